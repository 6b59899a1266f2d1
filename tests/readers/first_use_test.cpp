// docs/guarantees.md, "Rot": a kv store that compares each page with its checksum at its first use tells every flipped
// bit that would change an answer, and accuses no sound page. And the tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "kv/kv.hpp"
#include "support/expect.hpp"
#include "world.hpp"

namespace memlith::test::first_use_test {
namespace {

using kv::Durability;
using kv::Kv;
using kv::Transaction;

constexpr const char* kHome = "objects/1";

StoreOptions with_sums() {
  StoreOptions options = options_of(StoreKind::folder);
  options.log_bytes = options.log_max_bytes = 1 * kMiB;
  options.makes_sums = true;
  return options;
}

struct Shop {
  explicit Shop(SimVolume& volume, bool read_only = false) {
    StoreOptions options = with_sums();
    options.read_only = read_only;
    options.create = !read_only;
    store = must(Store::open(volume, options));
    RegionOptions plain;
    plain.create = !read_only;
    plain.tracker = TrackerKind::touched;
    plain.size_bytes = 256 * kKiB;
    plain.reserve_bytes = 4 * kMiB;
    region = must(Region::open(*store, "kv", plain));
  }
  ~Shop() {
    kv = nullptr;
    region = nullptr;
  }
  Status open() {
    MEMLITH_TRY_ASSIGN(kv, Kv::open(*region,
                                    {.create = !store->read_only(), .window = {}, .manual = true, .compares = true}));
    MEMLITH_TRY_ASSIGN(map, kv->open_map("map", !store->read_only(), false));
    return kOk;
  }
  void close() {
    kv = nullptr;
    region = nullptr;
    ASSERT_OK(store->close());
  }

  std::unique_ptr<Store> store;
  std::unique_ptr<Region> region;
  std::unique_ptr<Kv> kv;
  kv::MapNumber map = 0;
};

using Records = std::map<std::string, std::string>;

// Records of all lengths; some have pages of their own, several of them.
void fill(Shop& shop, Random& random, Records& records, int count) {
  for (int i = 0; i < count; ++i) {
    const std::string key = "key" + std::to_string(random.below(100));
    const std::string value(random.one_in(8) ? 10'000 : random.below(400), static_cast<char>('a' + random.below(26)));
    Transaction transaction(*shop.kv, false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(shop.map, key, value));
    ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
    records[key] = value;
  }
  ASSERT_OK(shop.kv->persist());
}

struct Answers {
  std::uint64_t wrong = 0;
  std::uint64_t refused = 0;
};
Answers ask(Shop& shop, const Records& records) {
  Answers answers;
  const auto judge = [&](const Status& status, bool right) {
    answers.refused += status.ok() ? 0 : 1;
    answers.wrong += status.ok() && !right ? 1 : 0;
  };
  if (const Status opened = shop.open(); !opened.ok()) {
    judge(opened, false);
    return answers;
  }
  if (shop.kv->header().records != records.size()) ++answers.wrong;
  Transaction transaction(*shop.kv, true);
  EXPECT_OK(transaction.begin());
  for (const auto& [key, value] : records) {
    const auto found = transaction.get(shop.map, key);
    judge(found.status(), found.ok() && *found == value);
  }
  return answers;
}

SimImage flipped(SimImage image, std::uint64_t bit) {
  std::vector<std::byte> bytes = *image.files.at(kHome);
  bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  image.files[kHome] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return image;
}

void flip_each_page(std::uint64_t seed, Faults& faults) {
  Random random(seed);
  Records records;
  SimVolume volume;
  std::uint64_t pages = 0;
  {
    Shop shop(volume);
    ASSERT_OK(shop.open());
    fill(shop, random, records, 80);
    pages = shop.kv->header().pages;
    shop.close();
  }
  const SimImage image = volume.image();
  std::uint64_t told = 0;
  for (std::uint64_t page = 0; page < pages; ++page) {
    // The header's count of records fits any number but the right one.
    const std::uint64_t at = page == 0 ? kv::kHeaderOffset + offsetof(kv::StoreHeader, records)
                                       : page * kPageBytes + random.below(kPageBytes);
    SimVolume rotten(flipped(image, at * 8 + random.below(8)));
    Shop shop(rotten);
    const Answers answers = ask(shop, records);
    if (answers.wrong > 0) faults.add("page " + std::to_string(page) + " has a flipped bit, and none was told");
    told += answers.refused > 0 ? 1 : 0;
  }
  if (!faults.planted) {
    EXPECT_GT(told, 20u);
  }
}

// Commits that are home, and others that are in the log only; read by an opening that recovers, and by one that reads.
void read_what_is_sound(std::uint64_t seed, Faults& faults) {
  Random random(seed);
  Records records;
  SimVolume volume;
  {
    Shop shop(volume);
    ASSERT_OK(shop.open());
    fill(shop, random, records, 80);
    ASSERT_OK(shop.store->checkpoint());
    fill(shop, random, records, 20);
  }  // killed
  for (const bool read_only : {true, false}) {
    SimVolume found(volume.image());
    Shop shop(found, read_only);
    const Answers answers = ask(shop, records);
    if (answers.refused > 0) faults.add("a sound page was accused: " + std::string(last_error_text()));
    if (answers.wrong > 0) faults.add("a sound page has another content");
  }
}

class FirstUse : public ::testing::Test {
 protected:
  ~FirstUse() override { active_mutant = Mutant::none; }
  using Trial = void (*)(std::uint64_t seed, Faults& faults);
  static void expect_sound(Trial trial) {
    Faults faults;
    for (std::uint64_t seed = 1; seed <= 3 && !HasFatalFailure(); ++seed) trial(seed, faults);
    faults.judge();
  }
  static void expect_noticed(Mutant mutant, Trial trial) {
    SCOPED_TRACE(static_cast<int>(mutant));
    active_mutant = mutant;
    Faults faults;
    for (std::uint64_t seed = 1; seed <= 10 && faults.found == 0; ++seed) trial(seed, faults);
    active_mutant = Mutant::none;
    faults.judge();
  }
};

TEST_F(FirstUse, EachFlippedBitIsTold) { expect_sound(flip_each_page); }
TEST_F(FirstUse, NothingSoundIsAccused) { expect_sound(read_what_is_sound); }

TEST_F(FirstUse, PlantedFaultsAreNoticed) {
  expect_noticed(Mutant::kv_rest_of_value_not_compared, flip_each_page);
  expect_noticed(Mutant::kv_header_not_compared, flip_each_page);
  expect_noticed(Mutant::kv_compared_with_wrong_sum, read_what_is_sound);
  expect_noticed(Mutant::kv_compared_under_the_log, read_what_is_sound);
}

}  // namespace
}  // namespace memlith::test::first_use_test
