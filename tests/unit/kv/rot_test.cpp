// docs/guarantees.md, "Rot": a kv store that compares pages with their checksums at their first use answers with the
// right value or with CORRUPT, whatever bit of its file flips; and it accuses no page that the disk has kept, whatever
// commits, checkpoints, kills and openings there were. MEMLITH_SEED=n replays a run.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/random.hpp"
#include "kv/kv.hpp"
#include "support/region_words.hpp"

namespace memlith::test::rot_test {
namespace {

using namespace core;
using kv::Kv;
using kv::Transaction;

using Records = std::map<std::string, std::string>;

std::uint64_t seed_given() {
  const char* const given = std::getenv("MEMLITH_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : random_identity();
  std::printf("MEMLITH_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

StoreOptions with_sums() {
  StoreOptions options;
  options.makes_sums = true;
  return options;
}

class KvRot : public ::testing::Test {
 protected:
  ~KvRot() override { kv_ = nullptr; }

  void open(bool compares) {
    kv_ = must(Kv::open(regions_.open("kv", 256 * kKiB, 16 * kMiB),
                        {.create = true, .window = {}, .manual = true, .compares = compares}));
    map_ = must(kv_->open_map("map", true, false));
  }
  void put(const std::string& key, const std::string& value, kv::Durability durability) {
    Transaction transaction(*kv_, false);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map_, key, value));
    EXPECT_OK(transaction.commit(durability, nullptr).status());
    records_[key] = value;
  }
  std::string random_value() {
    return std::string(random_.one_in(20) ? 9000 : random_.below(400), static_cast<char>('a' + random_.below(26)));
  }
  static std::string key_of(std::uint64_t i) { return "key" + std::to_string(i * 7919 % 1000); }

  // Calls with what a kv store answers for each record.
  template <class Judge>
  void read_all(Kv& kv, kv::MapNumber map, Judge&& judge) {
    for (const bool read_only : {true, false}) {
      if (!read_only && kv.read_only()) continue;
      Transaction transaction(kv, read_only);
      EXPECT_OK(transaction.begin());
      for (const auto& [key, value] : records_) {
        const auto found = transaction.get(map, key);
        judge(found.status(), found.ok() && *found == value);
      }
    }
  }

  struct Answers {
    std::uint64_t refused = 0;
    std::uint64_t wrong = 0;
  };
  // The answers of the store on the disk, of which that page may be damaged.
  Answers answers(kv::PageNumber page, bool compares) {
    Answers all;
    const auto judge = [&](const Status& answer, bool right) {
      all.refused += answer.ok() ? 0 : 1;
      all.wrong += answer.ok() && !right ? 1 : 0;
      if (answer.ok() || !compares) return;
      EXPECT_EQ(answer.category, Errc::corrupt) << told(answer);
      const std::string place = "objects/1 at offset " + std::to_string(page * kPageBytes) + ")";
      EXPECT_NE(std::string(last_error_text()).find(place), std::string::npos) << last_error_text();
    };
    regions_.open_store();
    {
      const auto kv =
          Kv::open(regions_.open("kv"), {.create = false, .window = {}, .manual = true, .compares = compares});
      if (kv.ok()) {
        const auto map = (*kv)->open_map("map", false, false);
        map.ok() ? read_all(**kv, *map, judge) : judge(map.status(), false);
      } else {
        judge(kv.status(), false);
      }
    }
    regions_.leave();
    return all;
  }

  Random random_{seed_given()};
  RegionWorld regions_{TrackerKind::touched, with_sums()};
  std::unique_ptr<Kv> kv_;
  kv::MapNumber map_ = 0;
  Records records_;
};

TEST_F(KvRot, EachFlippedBitIsToldOrChangesNothing) {
  open(false);
  for (std::uint64_t i = 0; i < 300; ++i) put(key_of(i), random_value(), kv::Durability::weak);
  EXPECT_OK(kv_->persist());
  const kv::StoreHeader header = kv_->header();
  EXPECT_GT(header.pages, 30u);
  kv_ = nullptr;
  regions_.close_store();

  const int home = ::open((regions_.folder() / "store/objects/1").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(home, 0);
  const auto flip = [&](off_t at, unsigned char bit) {
    unsigned char byte = 0;
    ASSERT_EQ(::pread(home, &byte, 1, at), 1);
    byte ^= bit;
    ASSERT_EQ(::pwrite(home, &byte, 1, at), 1);
  };
  std::uint64_t told_pages = 0;
  std::uint64_t wrong_unless_compared = 0;
  for (kv::PageNumber page = 0; page < header.pages; ++page) {
    const auto at = static_cast<off_t>(page * kPageBytes + random_.below(kPageBytes));
    const auto bit = static_cast<unsigned char>(1u << random_.below(8));
    flip(at, bit);
    const Answers compared = answers(page, true);
    EXPECT_EQ(compared.wrong, 0u) << "page " << page;
    told_pages += compared.refused > 0 ? 1 : 0;
    wrong_unless_compared += answers(page, false).wrong;
    flip(at, bit);
  }
  ::close(home);
  // All but what is free, whose bits mean nothing.
  EXPECT_GE(told_pages, header.pages - header.free_pages);
  EXPECT_GT(wrong_unless_compared, 0u);
}

TEST_F(KvRot, NothingSoundIsAccused) {
  open(true);
  for (int life = 0; life < 30; ++life) {
    for (std::uint64_t commits = random_.below(200); commits > 0; --commits) {
      put(key_of(random_.below(300)), random_value(), kv::Durability::weak);
      if (random_.one_in(30)) {
        EXPECT_OK(kv_->persist());
      }
      if (random_.one_in(60)) {
        EXPECT_OK(regions_.store().checkpoint());
      }
    }
    EXPECT_OK(kv_->persist());
    if (random_.one_in(3)) {
      EXPECT_OK(kv_->verify().status());
    }
    kv_ = nullptr;
    switch (random_.below(3)) {
      case 0: regions_.close("kv"); break;  // what is in the log comes home when the region is opened
      case 1:
        regions_.close_store();
        regions_.open_store();
        break;
      default: {
        regions_.leave();
        // The log lies over the homes.
        StoreOptions options = with_sums();
        options.read_only = true;
        const auto store = must(Store::open(regions_.volume(), options));
        const auto region = must(Region::open(*store, "kv", {}));
        const auto kv = must(Kv::open(*region, {.create = false, .window = {}, .manual = true, .compares = true}));
        read_all(*kv, must(kv->open_map("map", false, false)), [](const Status& answer, bool right) {
          EXPECT_OK(answer);
          EXPECT_TRUE(right);
        });
        EXPECT_OK(kv->verify().status());
      }
        regions_.open_store();
    }
    open(true);
    read_all(*kv_, map_, [](const Status& answer, bool right) {
      EXPECT_OK(answer);
      EXPECT_TRUE(right);
    });
  }
}

TEST_F(KvRot, WhereNoChecksumsAreKeptItIsRefused) {
  StoreOptions options;
  options.kind = StoreKind::one_file;
  options.file_name = "file";
  RegionWorld world(TrackerKind::touched, options);
  Region& region = world.open("file", 256 * kKiB, 4 * kMiB);
  EXPECT_ERROR(Errc::unsupported, Kv::open(region, {.create = true, .window = {}, .manual = true, .compares = true}));
}

}  // namespace
}  // namespace memlith::test::rot_test
