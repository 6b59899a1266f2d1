// docs/guarantees.md, "memlith_persist": the call that met it says io, every later one says poisoned,
// memory stays readable, and reopening gives exactly one state between the last acknowledged and the last begun.
#include <gtest/gtest.h>

#include "support/region_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using Kind = SimFaults::Kind;

constexpr std::uint64_t kSize = 64 * kKiB;
constexpr std::uint64_t kSpread = 3;  // pages that each persist stores to, in both regions
constexpr std::uint64_t kRounds = 12;

StoreOptions options() {
  StoreOptions result = tiny_options();
  result.slot_bytes = 16 * kKiB;
  result.log_bytes = 32 * kKiB;  // two slots: persists wait for checkpoints
  return result;
}

// Two regions that always hold the same number, on a simulated disk that fails where it was told to.
class PoisonedLife : public ::testing::Test {
 protected:
  struct Run {
    std::uint64_t fired = 0;
    std::uint64_t acknowledged = 0;
    std::uint64_t begun = 0;
    Status first = kOk;  // the first call that failed
    std::string text;
    SimImage image;                   // as it is when the program goes
    std::vector<SimImage> power_cut;  // and what may be left of it after a power cut
  };

  static SimImage fresh_store() {
    SimVolume volume;
    auto store = must(Store::open(volume, options()));
    for (const char* name : {"a", "b"}) (void)open_region(*store, name, true);
    EXPECT_OK(store->close());
    return volume.image();
  }
  static std::unique_ptr<Region> open_region(Store& store, const char* name, bool create) {
    RegionOptions wanted;
    wanted.create = create;
    wanted.size_bytes = kSize;
    wanted.reserve_bytes = 1 * kMiB;
    wanted.tracker = TrackerKind::touched;
    return must(Region::open(store, name, wanted));
  }
  static void store_number(Region& region, std::uint64_t number) {
    for (std::uint64_t i = 0; i < kSpread; ++i) {
      const std::uint64_t offset = i * 4 * kPageBytes;
      std::memset(region.address() + offset, static_cast<int>(number), kPageBytes);
      EXPECT_OK(region.touch(region.address() + offset, kPageBytes));
    }
  }
  // The number that a region holds; the same in all of its pages.
  static std::uint64_t number_in(Region& region) {
    const std::byte first = region.address()[0];
    for (std::uint64_t i = 0; i < kSpread; ++i) {
      for (std::uint64_t at = 0; at < kPageBytes; at += 511) {
        EXPECT_EQ(region.address()[i * 4 * kPageBytes + at], first) << "torn";
      }
    }
    return static_cast<std::uint64_t>(first);
  }

  // Opens, persists 1, 2, 3, ... with checkpoints now and then, closes; the nth operation of the kind fails.
  static Run run(const SimImage& start, Kind kind, std::uint64_t nth) {
    Run result;
    SimVolume volume(start, true);
    volume.faults().plan(kind, nth);
    const auto note = [&result](Status status) {
      if (!status.ok() && result.first.ok()) {
        result.first = status;
        result.text = last_error_text();
      }
      return status.ok();
    };
    {
      auto opened = Store::open(volume, options());
      if (note(opened.status())) {
        Store& store = **opened;
        auto a = open_region(store, "a", false);
        auto b = open_region(store, "b", false);
        bool good = true;
        for (std::uint64_t number = 1; good && number <= kRounds; ++number) {
          store_number(*a, number);
          store_number(*b, number);
          result.begun = number;
          good = note(persist(*a, *b));
          if (good) result.acknowledged = number;
          if (good && number % 4 == 0) good = note(store.checkpoint());
        }
        if (good) {
          (void)note(store.close());
        } else {
          after_failure(store, *a, *b, result.begun);
        }
      }
    }
    result.fired = volume.faults().fired(kind);
    result.image = volume.image();
    const SimMedium medium(volume.trace(), volume.operations());
    result.power_cut.push_back(medium.durable());
    if (kind != Kind::fail_flush) result.power_cut.push_back(medium.cut([](std::size_t) { return true; }));
    return result;
  }

  // The store is poisoned: nothing more is acknowledged, nothing in memory is lost.
  static void after_failure(Store& store, Region& a, Region& b, std::uint64_t number) {
    for (int again = 0; again < 2; ++again) {
      EXPECT_ERROR(Errc::poisoned, persist(a, b));
      put(a, kSize - 8, 1);
      EXPECT_ERROR(Errc::poisoned, persist(a));
    }
    EXPECT_ERROR(Errc::poisoned, a.grow(2 * kSize));
    EXPECT_FALSE(store.create("c", 4096, 0x510000000000, 1 * kGiB).ok());
    EXPECT_NE(last_error_text().find("lose and reopen"), std::string_view::npos) << last_error_text();
    EXPECT_EQ(number_in(a), number);
    EXPECT_EQ(number_in(b), number);
    EXPECT_FALSE(store.close().ok());
  }

  static void expect_recovers(const SimImage& image, const Run& run, const std::string& where) {
    SCOPED_TRACE(where);
    SimVolume volume(image);
    auto store = Store::open(volume, options());
    ASSERT_OK(store);
    auto a = open_region(**store, "a", false);
    auto b = open_region(**store, "b", false);
    const std::uint64_t number = number_in(*a);
    EXPECT_EQ(number_in(*b), number) << "half a persist";
    EXPECT_GE(number, run.acknowledged);
    EXPECT_LE(number, run.begun);
    store_number(*a, 99);
    EXPECT_OK(persist(*a)) << "the reopened store works";
  }
};

class Poisoning : public PoisonedLife, public ::testing::WithParamInterface<Kind> {};
INSTANTIATE_TEST_SUITE_P(On, Poisoning, ::testing::Values(Kind::fail_write, Kind::short_write, Kind::fail_flush),
                         [](const auto& given) {
                           return given.param == Kind::fail_write    ? "FailedWrite"
                                  : given.param == Kind::short_write ? "ShortWrite"
                                                                     : "FailedFlush";
                         });

// Every write, or flush, of a whole life of a store fails once: opening, persists, checkpoints, closing.
TEST_P(Poisoning, EveryOperationFailsOnce) {
  const SimImage start = fresh_store();
  std::uint64_t nth = 0;
  for (;; ++nth) {
    const Run outcome = run(start, GetParam(), nth);
    if (outcome.fired == 0) break;
    SCOPED_TRACE("operation " + std::to_string(nth) + ": " + outcome.text);
    EXPECT_EQ(outcome.fired, 1u);
    EXPECT_EQ(name_of(outcome.first.category), name_of(Errc::io)) << "the call that met the failure";
    expect_recovers(outcome.image, outcome, "after the program");
    for (std::size_t i = 0; i < outcome.power_cut.size(); ++i) {
      expect_recovers(outcome.power_cut[i], outcome,
                      i == 0 ? "everything unflushed lost" : "everything unflushed kept");
    }
  }
  EXPECT_GT(nth, 3 * kRounds / 2) << "not many operations were made to fail";
}

// No opening gives back what cannot be read: the message does not promise that.
TEST_F(PoisonedLife, AfterAFailedReadTheMessageNamesACopy) {
  SimVolume volume(fresh_store());
  auto store = must(Store::open(volume, options()));
  const auto region = open_region(*store, "a", false);
  store_number(*region, 1);
  EXPECT_OK(persist(*region));
  volume.faults().plan(Kind::fail_read, 0, true);
  EXPECT_ERROR(Errc::io, store->checkpoint());
  EXPECT_ERROR(Errc::poisoned, persist(*region));
  EXPECT_NE(last_error_text().find("restore a copy or an archive"), std::string_view::npos) << last_error_text();
  EXPECT_ERROR(Errc::poisoned, store->close());
}

// A life in which nothing fails acknowledges everything: the faults above are what stopped the others.
TEST_P(Poisoning, NothingFailsWithoutFaults) {
  const Run outcome = run(fresh_store(), GetParam(), 1'000'000);
  EXPECT_EQ(outcome.fired, 0u);
  EXPECT_OK(outcome.first);
  EXPECT_EQ(outcome.acknowledged, kRounds);
  expect_recovers(outcome.image, outcome, "closed");
}

// The same with the checkpoint in its thread: the failure may be met there, and then the next call hears of it.
TEST_P(Poisoning, BackgroundCheckpointsPoisonToo) {
  const SimImage start = fresh_store();
  std::uint64_t stopped = 0;
  for (std::uint64_t nth = 0; nth < 30; ++nth) {
    SimVolume volume(start);
    Run outcome;
    StoreOptions threaded = options();
    threaded.manual_checkpoint = false;
    volume.faults().plan(GetParam(), nth);
    {
      auto store = Store::open(volume, threaded);
      if (!store.ok()) continue;
      auto a = open_region(**store, "a", false);
      auto b = open_region(**store, "b", false);
      for (std::uint64_t number = 1; number <= kRounds; ++number) {
        store_number(*a, number);
        store_number(*b, number);
        outcome.begun = number;
        const Status status = persist(*a, *b);
        if (!status.ok()) {
          EXPECT_TRUE(status.category == Errc::io || status.category == Errc::poisoned) << told(status);
          EXPECT_ERROR(Errc::poisoned, persist(*a, *b));
          ++stopped;
          break;
        }
        outcome.acknowledged = number;
      }
    }
    expect_recovers(volume.image(), outcome, "operation " + std::to_string(nth));
  }
  EXPECT_GT(stopped, 10u);
}

// Growth or creation that meets a failed flush: io, and what was acknowledged before is intact.
TEST_F(PoisonedLife, FailedFlushWhileGrowingAndCreating) {
  for (std::uint64_t nth = 0; nth < 8; ++nth) {
    SimVolume volume(fresh_store());
    Run outcome;
    {
      auto store = must(Store::open(volume, options()));
      auto a = open_region(*store, "a", false);
      auto b = open_region(*store, "b", false);
      store_number(*a, 1);
      store_number(*b, 1);
      ASSERT_OK(persist(*a, *b));
      outcome.acknowledged = outcome.begun = 1;
      volume.faults().plan(Kind::fail_flush, nth);
      Status status = a->grow(2 * kSize);
      if (status.ok()) status = persist(*a);
      if (status.ok()) status = store->create("c", 4096, 0x510000000000, 1 * kGiB).status();
      if (status.ok()) status = store->checkpoint();
      if (status.ok()) status = store->close();
      EXPECT_EQ(status.ok(), volume.faults().fired(Kind::fail_flush) == 0) << nth;
      if (!status.ok()) {
        EXPECT_ERROR(Errc::io, status) << nth;
      }
    }
    expect_recovers(volume.image(), outcome, "operation " + std::to_string(nth));
  }
}

}  // namespace
}  // namespace memlith::test
