// docs/kv.md: a map is removed in steps, beside commits and readers, and a removal that was interrupted is ended by the
// next opening.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kv_world.hpp"

namespace memlith::test::removal_test {
namespace {

using namespace core;
using core::kv::Durability;
using core::kv::Kv;
using core::kv::PageNumber;
using core::kv::Transaction;

constexpr int kRecords = 3000;
constexpr int kOthers = 200;

std::string key_of(int number) { return "key" + std::to_string(number); }
std::string value_of(int number) { return std::string(number % 100 == 7 ? 30'000 : 100, 'v') + std::to_string(number); }

// A store of real files with a kv store of two maps.
class MapRemoval : public ::testing::Test {
 protected:
  struct Opened {
    explicit Opened(const std::string& path, bool create = false) : volume(make_posix_volume(path)) {
      StoreOptions options;
      options.create = create;
      options.accept_copy = true;  // nothing is written while the test copies
      store = must(Store::open(*volume, options));
      RegionOptions given;
      given.create = create;
      given.tracker = TrackerKind::touched;
      given.size_bytes = create ? 64 * kKiB : 0;
      given.reserve_bytes = create ? 64 * kMiB : 0;
      region = must(Region::open(*store, "kv", given));
      kv = must(Kv::open(*region, {create, {}, true}));
    }
    std::unique_ptr<Volume> volume;
    std::unique_ptr<Store> store;
    std::unique_ptr<Region> region;
    std::unique_ptr<Kv> kv;
  };
  MapRemoval() {
    removed_ = must(all_.kv->open_map("removed", true, false));
    other_ = must(all_.kv->open_map("other", true, false));
    for (int i = 0; i < kRecords; ++i) put(removed_, i);
    for (int i = 0; i < kOthers; ++i) put(other_, i);
    EXPECT_OK(all_.kv->persist());
  }
  void put(kv::MapNumber map, int number) {
    Transaction transaction(*all_.kv, false);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map, key_of(number), value_of(number)));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
  }
  void expect_end_by_opening(const std::function<Status()>& remove, Errc left);
  static void expect_record(Transaction& reader, kv::MapNumber map, int number) {
    const auto found = reader.get(map, key_of(number));
    ASSERT_TRUE(found.ok() && found->has_value()) << number;
    EXPECT_EQ(**found, value_of(number));
  }

  TempFolder folder_;
  Opened all_{folder_ / "store", true};
  kv::MapNumber removed_ = 0;
  kv::MapNumber other_ = 0;
};

TEST_F(MapRemoval, GoesOnBesideCommitsAndReaders) {
  const std::uint64_t before = must(all_.kv->verify()).free_pages;
  Transaction reader(*all_.kv, true);
  EXPECT_OK(reader.begin());
  int steps = 0;
  all_.kv->watch_removals(8, [&] {
    put(other_, kOthers + steps);
    expect_record(reader, removed_, steps * 31 % kRecords);
    if (steps++ % 16 == 0) {
      EXPECT_OK(all_.kv->verify().status());
    }
  });
  EXPECT_OK(all_.kv->remove_map("removed"));
  EXPECT_GT(steps, 20);
  for (int i = 0; i < kRecords; i += 11) expect_record(reader, removed_, i);
  reader.abort();
  const auto report = must(all_.kv->verify());
  EXPECT_EQ(report.maps, 1u);
  EXPECT_EQ(report.records, static_cast<std::uint64_t>(kOthers + steps));
  EXPECT_GT(report.free_pages, before + kRecords * 100 / kPageBytes);
  EXPECT_EQ(all_.kv->header().removing, 0u);
  // Pages of a map that is made meanwhile are not those of the removed one.
  kv::MapNumber fresh = 0;
  all_.kv->watch_removals(1, [&] {
    if (fresh == 0) fresh = must(all_.kv->open_map("fresh", true, false));
    put(fresh, steps++);
  });
  EXPECT_OK(all_.kv->remove_map("other"));
  EXPECT_OK(all_.kv->verify().status());
}

TEST_F(MapRemoval, IsEndedByTheNextOpening) {
  expect_end_by_opening([this] { return all_.kv->remove_map("removed"); }, Errc::not_found);
}

TEST_F(MapRemoval, OfARangeIsEndedByTheNextOpening) {
  const auto remove = [this]() -> Status {
    Transaction transaction(*all_.kv, false);
    MEMLITH_TRY(transaction.begin());
    std::uint64_t removed = 0;
    MEMLITH_TRY(transaction.remove_range(removed_, std::nullopt, std::nullopt, removed));
    return transaction.commit(Durability::weak, nullptr).status();
  };
  expect_end_by_opening(remove, Errc::ok);
}

// The store's files as a kill leaves them, after each of some steps of the removal of all records of a map, which is
// `left` afterwards.
void MapRemoval::expect_end_by_opening(const std::function<Status()>& remove, Errc left) {
  int steps = 0;
  int interrupted = 0;
  std::vector<std::string> copies;
  all_.kv->watch_removals(8, [&] {
    if (steps++ % 7 != 3) return;
    EXPECT_OK(all_.kv->persist());
    interrupted += all_.kv->header().removing != 0 ? 1 : 0;
    copies.push_back(folder_ / ("copy" + std::to_string(steps)));
    std::filesystem::copy(folder_ / "store", copies.back(), std::filesystem::copy_options::recursive);
  });
  EXPECT_OK(remove());
  EXPECT_GT(interrupted, 5);
  all_.kv = nullptr;
  all_.region = nullptr;  // the copies have its addresses
  for (const std::string& copy : copies) {
    Opened opened(copy);
    EXPECT_EQ(opened.kv->header().removing, 0u);
    const auto map = opened.kv->open_map("removed", false, false);
    EXPECT_EQ(map.ok() ? Errc::ok : map.error().category, left);
    EXPECT_EQ(must(opened.kv->verify()).records, std::uint64_t{kOthers});
    Transaction reader(*opened.kv, true);
    EXPECT_OK(reader.begin());
    const kv::MapNumber other = must(opened.kv->open_map("other", false, false));
    for (int i = 0; i < kOthers; ++i) expect_record(reader, other, i);
  }
}

// Damage in a map that was removed prevents neither the removal nor the next opening.
TEST_F(MapRemoval, OfADamagedMap) {
  std::byte* const leaf = all_.region->address() + 40 * kPageBytes;
  ASSERT_EQ(kv::header_of(leaf).kind, kv::PageKind::leaf);
  all_.kv = nullptr;
  leaf[4] = std::byte{0xff};
  EXPECT_OK(all_.region->touch(leaf, kPageBytes));
  all_.kv = must(Kv::open(*all_.region, {false, {}, true}));
  EXPECT_EQ(all_.kv->remove_map("removed").category, Errc::corrupt);
  EXPECT_EQ(all_.kv->open_map("removed", false, false).error().category, Errc::not_found);
  other_ = must(all_.kv->open_map("other", false, false));
  put(other_, kOthers);
  EXPECT_EQ(all_.kv->header().removing, 0u);  // all but the damaged page was freed
  all_.kv = nullptr;
  all_.kv = must(Kv::open(*all_.region, {false, {}, true}));
  Transaction reader(*all_.kv, true);
  EXPECT_OK(reader.begin());
  expect_record(reader, must(all_.kv->open_map("other", false, false)), 5);
  reader.abort();
  EXPECT_OK(all_.kv->remove_map("other"));
  EXPECT_EQ(all_.kv->header().removing, 0u);
}

}  // namespace
}  // namespace memlith::test::removal_test
