// docs/guarantees.md, "Trust in files", and docs/kv.md, "Errors": whatever bytes lie in the pages of a kv store, every
// call gives a record, or an error that says CORRUPT or INCOMPATIBLE (or that there is no room); none crashes or runs
// for ever. MEMLITH_SEED=n replays a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/random.hpp"
#include "kv/kv.hpp"
#include "support/region_words.hpp"

namespace memlith::test::damage_test {
namespace {

using namespace core;
using kv::Kv;
using kv::Transaction;

constexpr std::uint64_t kRegionBytes = 256 * kKiB;

std::uint64_t seed_given() {
  const char* const given = std::getenv("MEMLITH_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : random_identity();
  std::printf("MEMLITH_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::string key_of(std::uint64_t i) { return "key" + std::to_string(i * 7919 % 1000); }

class KvDamage : public ::testing::Test {
 protected:
  KvDamage() {
    region_ = &regions_.open("kv", kRegionBytes, 4 * kMiB);
    auto kv = must(Kv::open(*region_, {.create = true, .window = {}, .manual = true}));
    for (const char* name : {"a", "b"}) {
      const auto map = must(kv->open_map(name, true, false));
      Transaction transaction(*kv, false);
      EXPECT_OK(transaction.begin());
      for (std::uint64_t i = 0; i < 300; ++i) {
        EXPECT_OK(transaction.put(map, key_of(i), std::string(i % 60 == 0 ? 6000 : i % 200, 'v')));
      }
      for (std::uint64_t i = 40; i < 100; ++i) EXPECT_TRUE(must(transaction.remove(map, key_of(i))));
      EXPECT_OK(transaction.commit(kv::Durability::weak, nullptr).status());
    }
    pages_ = kv->header().pages;
    EXPECT_OK(kv->verify().status());
    kv = nullptr;
    sound_.assign(region_->address(), region_->address() + kRegionBytes);
  }

  // Some words, runs of bytes, whole pages.
  void damage(Random& random) {
    std::memcpy(region_->address(), sound_.data(), sound_.size());
    for (std::uint64_t times = 1 + random.below(4); times > 0; --times) {
      std::byte* const page = region_->address() + random.below(pages_) * kPageBytes;
      switch (random.below(5)) {
        case 0: std::memcpy(page, sound_.data() + random.below(pages_) * kPageBytes, kPageBytes); break;
        case 1: std::memset(page, static_cast<int>(random.below(2) * 255), kPageBytes); break;
        case 2: fill(random, page + random.below(kPageBytes / 8) * 8, 8); break;
        case 3: fill(random, page, sizeof(kv::PageHeader)); break;
        default: page[random.below(random.one_in(2) ? 64 : kPageBytes)] ^= std::byte{1} << random.below(8);
      }
    }
  }
  static void fill(Random& random, std::byte* target, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      target[i] = static_cast<std::byte>(random.below(random.one_in(2) ? 4 : 256));
  }

  // False: the call told of damage, which is as good as an answer.
  bool answered(const Status& status) {
    if (status.ok()) return true;
    const bool expected = status.category == Errc::corrupt || status.category == Errc::incompatible ||
                          status.category == Errc::no_space || status.category == Errc::full ||
                          status.category == Errc::invalid || status.category == Errc::not_found;
    EXPECT_TRUE(expected) << told(status);
    ++refused_;
    return false;
  }
  void use(Kv& kv, Random& random) {
    for (const char* name : {"a", "b"}) {
      const auto map = kv.open_map(name, random.one_in(3), false);
      if (!answered(map.status())) continue;
      for (const bool read_only : {true, false}) {
        Transaction transaction(kv, read_only);
        EXPECT_OK(transaction.begin());
        for (int i = 0; i < 12; ++i) (void)answered(transaction.get(*map, key_of(random.below(300))).status());
        for (const bool forward : {true, false}) scan(transaction, *map, forward);
      }
      for (int i = 0; i < 12; ++i) change(kv, *map, random);
    }
    (void)answered(kv.verify().status());
    if (random.one_in(4)) (void)answered(kv.remove_map("a"));
  }
  void scan(Transaction& transaction, kv::PageNumber map, bool forward) {
    kv::Cursor cursor(transaction, map);
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 100'000) << "it never ends";
      const auto more = forward ? cursor.next() : cursor.prev();
      if (!answered(more.status()) || !*more) return;
      (void)answered(cursor.current().status());
    }
  }
  void change(Kv& kv, kv::PageNumber map, Random& random) {
    Transaction transaction(kv, false);
    EXPECT_OK(transaction.begin());
    for (std::uint64_t n = random.below(4) + 1; n > 0; --n) {
      const std::string key = key_of(random.below(300));
      if (random.one_in(3)) {
        (void)answered(transaction.remove(map, key).status());
      } else {
        (void)answered(transaction.put(map, key, std::string(random.one_in(9) ? 9000 : random.below(900), 'w')));
      }
      if (!transaction.active()) return;
    }
    (void)answered(transaction.commit(kv::Durability::weak, nullptr).status());
  }

  RegionWorld regions_{TrackerKind::touched};
  Region* region_ = nullptr;
  std::vector<std::byte> sound_;
  std::uint64_t pages_ = 0;
  std::uint64_t refused_ = 0;
};

TEST_F(KvDamage, IsToldAndNothingWorse) {
  const std::uint64_t seed = seed_given();
  for (std::uint64_t i = 0; i < 1500 && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    Random random(seed + i);
    damage(random);
    auto kv = Kv::open(*region_, {.create = random.one_in(2), .window = {}, .manual = true, .is_volatile = true});
    if (answered(kv.status())) use(**kv, random);
  }
  EXPECT_GT(refused_, 1000u);
}

// A planted leaf: a record whose value holds another record's cell. A write of the one would make the other what the
// value says, behind every check.
TEST_F(KvDamage, RecordsThatLieOverEachOtherAreNeitherReadNorWritten) {
  std::byte* page = nullptr;  // no root
  for (std::byte* at = region_->address(); at < region_->address() + kRegionBytes; at += kPageBytes) {
    const kv::PageHeader header = kv::header_of(at);
    if (header.kind == kv::PageKind::leaf && header.self != header.map && header.self != 0) page = at;
  }
  ASSERT_NE(page, nullptr);
  kv::PageHeader header = kv::header_of(page);
  const std::string key(kv::cell_of(page, 0).key);
  const std::string inner_key = key + "x";
  const kv::CellHeader cell{static_cast<std::uint16_t>(inner_key.size()), 4};
  const std::string inner = std::string(reinterpret_cast<const char*>(&cell), sizeof cell) + inner_key + "1234";
  const std::string filling(20, 'v');
  kv::format_page(page, header.self, kv::PageKind::leaf, 0, header.map);
  kv::insert_cell(page, 0, {key, filling + inner + filling, false});
  header = kv::header_of(page);
  const auto slot = static_cast<std::uint16_t>(header.cells_begin + sizeof cell + key.size() + filling.size());
  std::memcpy(page + sizeof header + kv::kSlotBytes, &slot, sizeof slot);
  header.count = 2;
  header.cells_begin = static_cast<std::uint16_t>(header.cells_begin - inner.size());
  std::memcpy(page, &header, sizeof header);
  ASSERT_EQ(kv::cell_of(page, 1).key, inner_key);

  const auto kv = must(Kv::open(*region_, {.window = {}, .manual = true, .is_volatile = true}));
  int refused = 0;
  for (const char* const name : {"a", "b"}) {
    const auto map = must(kv->open_map(name, false, false));
    for (const std::string& each : {key, inner_key}) {
      Transaction transaction(*kv, false);
      EXPECT_OK(transaction.begin());
      const Status read = transaction.get(map, each).status();
      if (read.ok()) continue;  // of the other map
      ++refused;
      EXPECT_EQ(read.category, Errc::corrupt);
      EXPECT_NE(last_error_text().find("two cells lie over each other"), std::string_view::npos) << last_error_text();
      EXPECT_OK(transaction.put(map, each, std::string(2 * filling.size() + inner.size(), '\xff')));
      EXPECT_ERROR(Errc::corrupt, transaction.commit(kv::Durability::weak, nullptr).status());
    }
  }
  EXPECT_EQ(refused, 2);
  EXPECT_ERROR(Errc::corrupt, kv->verify().status());
}

// A header that is sound by itself, but not with the list of free pages, or that has a map removed which is none.
TEST_F(KvDamage, AHeaderThatDoesNotFitItsPagesIsToldBeforeAChange) {
  {
    const auto kv = must(Kv::open(*region_, {.window = {}, .manual = true, .is_volatile = true}));
    const auto map = must(kv->open_map("a", false, false));
    Transaction transaction(*kv, false);
    EXPECT_OK(transaction.begin());
    for (const std::uint64_t i : {0u, 120u, 180u})
      EXPECT_TRUE(must(transaction.remove(map, key_of(i))));  // long values
    EXPECT_OK(transaction.commit(kv::Durability::weak, nullptr).status());
  }
  const std::vector<std::byte> sound(region_->address(), region_->address() + kRegionBytes);
  const auto header = kv::load_as<kv::StoreHeader>(sound.data() + kv::kHeaderOffset);
  ASSERT_GT(header.free_pages, 2u);
  const auto open_with = [&](const kv::StoreHeader& wrong) {
    std::memcpy(region_->address(), sound.data(), sound.size());
    std::memcpy(region_->address() + kv::kHeaderOffset, &wrong, sizeof wrong);
    return Kv::open(*region_, {.window = {}, .manual = true, .is_volatile = true});
  };
  for (const int field : {0, 1, 2, 3, 4}) {
    kv::StoreHeader wrong = header;
    if (field == 0) wrong.removing = kv::kCatalogue;
    if (field == 1) wrong.free_head = kv::kCatalogue;
    if (field == 2) wrong.free_pages = 0;
    if (field == 3) wrong.free_head = 0;
    if (field == 4) wrong.free_pages = wrong.pages - 1;
    EXPECT_EQ(open_with(wrong).status().category, Errc::corrupt) << "field " << field;
  }
  for (const int more : {-1, 1}) {
    kv::StoreHeader wrong = header;
    wrong.free_pages = static_cast<std::uint32_t>(static_cast<int>(header.free_pages) + more);
    const auto kv = must(open_with(wrong));
    const std::vector<std::byte> before(region_->address(), region_->address() + kRegionBytes);
    Transaction transaction(*kv, false);
    EXPECT_OK(transaction.begin());
    // Takes all free pages, and more.
    const auto map = must(kv->open_map("a", false, false));
    for (std::uint64_t i = 0; i <= header.free_pages; ++i) {
      EXPECT_OK(transaction.put(map, "new" + std::to_string(i), std::string(6000, 'n')));
    }
    EXPECT_EQ(transaction.commit(kv::Durability::weak, nullptr).error().category, Errc::corrupt) << more;
    EXPECT_EQ(std::memcmp(before.data(), region_->address(), kRegionBytes), 0) << "something was changed";
  }
}

// A store through a wrong pointer damages the memory, a failing disk the file: closing and opening is enough after the
// one, and nothing but a backup helps after the other.
TEST_F(KvDamage, TheMessageTellsTheMemoryFromTheDisk) {
  const std::string name = regions_.folder() / "store/objects/" + std::to_string(region_->object().value);
  regions_.close_store();
  regions_.open_store();
  region_ = &regions_.open("kv");
  const auto told_of = [](Region& region) {
    const auto opened = Kv::open(region, {.window = {}, .manual = true, .is_volatile = true});
    const Status found = opened.ok() ? (*opened)->verify().status() : opened.status();
    EXPECT_EQ(found.category, Errc::corrupt) << told(found);
    return std::string(last_error_text());
  };
  std::memset(region_->address() + kv::kCatalogue * kPageBytes, 0xff, sizeof(kv::PageHeader));
  const std::string memory = told_of(*region_);
  EXPECT_NE(memory.find("close the store and open it again"), std::string::npos) << memory;
  EXPECT_LT(memory.find("open it again"), memory.find("restore a backup")) << memory;
  regions_.leave();  // what is in memory is not persisted

  regions_.open_store();
  EXPECT_OK(must(Kv::open(regions_.open("kv"), {.window = {}, .manual = true}))->verify().status());
  regions_.close_store();

  std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(kv::kCatalogue * kPageBytes));
  file << std::string(sizeof(kv::PageHeader), '\xff');
  file.close();
  ASSERT_TRUE(file);
  regions_.open_store();
  const std::string unknown = told_of(regions_.open("kv"));  // memory and file are alike
  EXPECT_LT(unknown.find("`memlith verify`"), unknown.find("restore a backup")) << unknown;
  regions_.close_store();
  StoreOptions reading;
  reading.read_only = true;
  const auto store = must(Store::open(regions_.volume(), reading));
  const std::string disk = told_of(*must(Region::open(*store, "kv", {})));
  EXPECT_NE(disk.find("restore a backup"), std::string::npos) << disk;
  EXPECT_EQ(disk.find("close the store"), std::string::npos) << disk;
}

}  // namespace
}  // namespace memlith::test::damage_test
