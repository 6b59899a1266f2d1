// Entries by their numbers, and logs that are cut at either end: what is read then, and after a crash.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "applog_world.hpp"
#include "base/random.hpp"
#include "sim/decorators.hpp"

namespace memlith::test::truncate_test {
namespace {

using namespace core;
using applog::AppLog;
using applog::WhenFull;
using Texts = std::vector<std::string>;

std::string get(AppLog& log, std::uint64_t number) {
  std::vector<std::byte> content;
  if (!must(log.read_at(number, content))) return "none";
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

void write_all(AppLog& log, const Texts& texts) {
  for (const std::string& each : texts) must(append(log, each));
  EXPECT_OK(log.write());
}

TEST(AppLogTruncateTest, EntriesAreReadByNumberWhenTheyAreDurable) {
  AppLogWorld world(16 * kKiB);
  must(append(world.log(), "one"));
  EXPECT_EQ(get(world.log(), 1), "none") << "it is not durable";
  write_all(world.log(), {"two", "three"});
  EXPECT_EQ(get(world.log(), 0), "none");
  EXPECT_EQ(get(world.log(), 3), "three");
  EXPECT_EQ(get(world.log(), 1), "one");
  EXPECT_EQ(get(world.log(), 4), "none");
  EXPECT_EQ(world.read_all(), (Texts{"one", "two", "three"})) << "reading by number moves nothing";
  EXPECT_OK(world.log().consume(2));
  EXPECT_EQ(get(world.log(), 2), "none");
  EXPECT_EQ(get(world.log(), 3), "three");
}

TEST(AppLogTruncateTest, TheNewerEndIsReplaced) {
  AppLogWorld world(16 * kKiB);
  write_all(world.log(), {"one", "two", "three"});
  EXPECT_EQ(world.read_all().size(), 3u);
  EXPECT_OK(world.log().truncate_after(3));
  EXPECT_OK(world.log().truncate_after(1));
  EXPECT_EQ(world.log().durable(), 1u);
  EXPECT_EQ(get(world.log(), 2), "none");
  EXPECT_EQ(must(append(world.log(), "other")), 2u);
  EXPECT_EQ(world.log().durable(), 1u) << "the number was durable once, the entry is not";
  EXPECT_EQ(get(world.log(), 2), "none");
  EXPECT_OK(world.log().write());
  EXPECT_EQ(get(world.log(), 2), "other");
  EXPECT_EQ(world.read_all(), Texts{"other"}) << "the reader had read beyond the cut";
  world.crash();
  EXPECT_EQ(world.read_all(), (Texts{"one", "other"}));
}

// A write has returned, and what it made durable was not looked for since. A cut, whose frame is in no hurry, does not
// take that back.
TEST(AppLogTruncateTest, DurableEntriesThatStayAreReadBesideACut) {
  StoreOptions in_no_hurry;
  in_no_hurry.flush_window = {3600'000, 1 * kGiB};
  AppLogWorld world(16 * kKiB, WhenFull::fail, 0, in_no_hurry);
  write_all(world.log(), {"one", "two", "three", "four"});
  EXPECT_OK(world.log().truncate_before(2));
  EXPECT_EQ(get(world.log(), 4), "four");
  write_all(world.log(), {"five", "six"});
  EXPECT_OK(world.log().truncate_after(5));
  EXPECT_EQ(get(world.log(), 5), "five");
  EXPECT_EQ(world.log().durable(), 5U);
}

// Calls `act` in the middle of the next flush.
class FlushedVolume final : public VolumeDecorator {
 public:
  using VolumeDecorator::VolumeDecorator;
  std::function<void()> act;

 private:
  class Flushed final : public DeviceDecorator {
   public:
    Flushed(std::unique_ptr<Device> below, FlushedVolume& volume)
        : DeviceDecorator(std::move(below)), volume_(volume) {}

   private:
    Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
      volume_.call();
      return DeviceDecorator::do_write_through(offset, pieces);
    }
    Status do_flush() override {
      volume_.call();
      return DeviceDecorator::do_flush();
    }
    FlushedVolume& volume_;
  };
  std::unique_ptr<Device> decorate(std::unique_ptr<Device> device, std::string_view, bool) override {
    return std::make_unique<Flushed>(std::move(device), *this);
  }
  void call() {
    if (const auto now = std::exchange(act, nullptr)) now();
  }
};

// The frame of the cut comes behind that of the entries, and is not flushed with it.
TEST(AppLogTruncateTest, EntriesThatStayAreDurableWhenTheirWriteReturnsBesideACut) {
  for (const bool newer : {false, true}) {
    SimVolume disk;
    FlushedVolume volume(disk);
    StoreOptions options = tiny_options();
    options.manual_flush = true;
    const auto store = must(Store::open(volume, options));
    RegionOptions of_log;
    of_log.create = true;
    of_log.tracker = TrackerKind::touched;
    of_log.size_bytes = 4 * kPageBytes;
    const auto region = must(Region::open(*store, "log", of_log));
    const auto log = must(AppLog::open(*region, {.create = true}));
    for (const char* const each : {"one", "two", "three"}) must(append(*log, each));
    volume.act = [&] { EXPECT_OK(newer ? log->truncate_after(2) : log->truncate_before(2)); };
    EXPECT_OK(log->write());
    EXPECT_EQ(log->durable(), newer ? 2U : 3U);
    EXPECT_EQ(get(*log, 2), "two");
    EXPECT_LT(store->log().durable_lsn(), region->newest_commit()) << "or this test tests nothing";
    EXPECT_OK(log->write());
    EXPECT_GE(store->log().durable_lsn(), region->newest_commit()) << "the next write makes the cut durable";
  }
}

TEST(AppLogTruncateTest, AWriteWaitsForWhatWasDroppedBefore) {
  StoreOptions by_hand;
  by_hand.manual_flush = true;
  AppLogWorld world(16 * kKiB, WhenFull::fail, 0, by_hand);
  write_all(world.log(), {"one", "two"});
  EXPECT_EQ(world.read_all().size(), 2u);
  const auto expect_waits = [&](const Status& dropped) {
    EXPECT_OK(dropped);
    EXPECT_LT(world.regions().store().log().durable_lsn(), world.region().newest_commit());
    EXPECT_EQ(must(world.log().write_weak()), world.region().newest_commit()) << "the ticket";
  };
  must(append(world.log(), "three"));
  must(world.log().write_weak());
  expect_waits(world.log().consume(1));
  expect_waits(world.log().truncate_before(3));
  must(append(world.log(), "four"));
  must(world.log().write_weak());
  expect_waits(world.log().truncate_after(3));
}

// "three" lies exactly behind the entry that takes the place of "two".
TEST(AppLogTruncateTest, WhatWasDroppedStaysDropped) {
  AppLogWorld world(16 * kKiB);
  write_all(world.log(), {"one", "two", "three", "four"});
  EXPECT_OK(world.log().truncate_after(1));
  EXPECT_OK(world.log().write()) << "nothing was appended, and the cut is durable";
  EXPECT_GE(world.regions().store().log().durable_lsn(), world.region().newest_commit());
  world.crash();
  EXPECT_EQ(world.read_all(), Texts{"one"});
  write_all(world.log(), {"222"});
  world.crash();
  EXPECT_EQ(world.read_all(), (Texts{"one", "222"}));
}

TEST(AppLogTruncateTest, EntriesThatWereNotWrittenAreDroppedWithoutAFrame) {
  AppLogWorld world(16 * kKiB);
  write_all(world.log(), {"one"});
  must(append(world.log(), "two"));
  must(append(world.log(), "three"));
  const std::uint64_t frames = world.regions().frames();
  EXPECT_OK(world.log().truncate_after(2));
  EXPECT_OK(world.log().truncate_after(1));
  EXPECT_EQ(world.regions().frames(), frames);
  EXPECT_EQ(must(append(world.log(), "2")), 2u);
  EXPECT_OK(world.log().write());
  world.crash();
  EXPECT_EQ(world.read_all(), (Texts{"one", "2"}));
}

TEST(AppLogTruncateTest, TheOlderEndIsDroppedUnread) {
  AppLogWorld world(4 * kKiB);
  write_all(world.log(), {"one", "two"});
  must(append(world.log(), "three"));
  EXPECT_OK(world.log().truncate_before(0));
  EXPECT_OK(world.log().truncate_before(1));
  EXPECT_EQ(world.log().report().consumed, 0u);
  EXPECT_ERROR(Errc::invalid, world.log().truncate_before(5));
  EXPECT_OK(world.log().truncate_before(4)) << "up to an entry that was not written";
  EXPECT_EQ(world.log().report().consumed, 3u);
  EXPECT_EQ(world.log().report().room, world.log().report().capacity - 24);
  EXPECT_EQ(must(append(world.log(), "four")), 4u);
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.read_all(), Texts{"four"});
  EXPECT_ERROR(Errc::invalid, world.log().truncate_after(2)) << "it was consumed";
  EXPECT_OK(world.log().truncate_after(3));
  EXPECT_EQ(world.log().report().newest, 3u);
  world.crash();
  EXPECT_EQ(world.log().report().consumed, 3u);
}

TEST(AppLogTruncateTest, ALogIsRestartedWithAnyNumber) {
  AppLogWorld world(4 * kKiB);
  write_all(world.log(), {"one", "two"});
  EXPECT_EQ(world.read_all().size(), 2u);
  must(append(world.log(), "three"));
  EXPECT_ERROR(Errc::invalid, world.log().restart(0));
  EXPECT_OK(world.log().restart(1000));
  EXPECT_EQ(world.log().report().newest, 999u);
  EXPECT_EQ(world.read_all(), Texts{});
  EXPECT_OK(world.log().write());
  world.crash();
  EXPECT_EQ(world.log().report().consumed, 999u);
  EXPECT_EQ(must(append(world.log(), "a")), 1000u);
  EXPECT_OK(world.log().write());
  EXPECT_EQ(get(world.log(), 1000), "a");
  EXPECT_OK(world.log().restart(1));
  EXPECT_EQ(world.log().durable(), 0u);
  EXPECT_EQ(must(append(world.log(), "b")), 1u);
  EXPECT_EQ(get(world.log(), 1), "none");
  EXPECT_OK(world.log().write());
  world.crash();
  EXPECT_EQ(world.read_all(), Texts{"b"});
}

// Against a model, over many laps of a ring that grows, with crashes.
class AppLogRandomCutsTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(AppLogRandomCutsTest, AgreeWithAModel) {
  Random random(GetParam());
  AppLogWorld world(8 * kKiB, WhenFull::grow, 64 * kKiB);
  std::map<std::uint64_t, std::string> model;
  std::uint64_t next = 1;
  for (int round = 0; round < 250; ++round) {
    for (std::uint64_t left = random.below(12); left > 0; --left, ++next) {
      const std::string text = std::to_string(round) + ":" + std::string(random.below(200), 'x');
      ASSERT_EQ(must(append(world.log(), text)), next);
      model[next] = text;
    }
    const std::uint64_t first = model.empty() ? next : model.begin()->first;
    switch (random.below(6)) {
      case 0:
      case 1: {
        const std::uint64_t last = next - 1 - random.below(next - first + 1);
        ASSERT_OK(world.log().truncate_after(last));
        model.erase(model.upper_bound(last), model.end());
        next = last + 1;
        break;
      }
      case 2:
      case 3: {
        const std::uint64_t from = first + random.below(next - first + 1);
        ASSERT_OK(world.log().truncate_before(from));
        model.erase(model.begin(), model.lower_bound(from));
        break;
      }
      case 4:
        if (!random.one_in(5)) break;
        next += random.below(20);
        ASSERT_OK(world.log().restart(next));
        model.clear();
        break;
      default: break;
    }
    ASSERT_OK(world.log().write());
    if (random.one_in(20)) world.crash();
    if (random.one_in(15)) {
      ASSERT_OK(world.regions().store().checkpoint());
    }
    for (int probe = 0; probe < 12; ++probe) {
      const std::uint64_t from = model.empty() ? next : model.begin()->first;
      const std::uint64_t number = from + random.below(next - from + 3);
      const auto found = model.find(number);
      ASSERT_EQ(get(world.log(), number), found == model.end() ? "none" : found->second) << "entry " << number;
    }
    ASSERT_EQ(world.log().report().newest, next - 1);
  }
  world.log().rewind();
  Texts expected;
  for (const auto& [number, text] : model) expected.push_back(text);
  EXPECT_EQ(world.read_all(), expected);
}
INSTANTIATE_TEST_SUITE_P(Seeds, AppLogRandomCutsTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace memlith::test::truncate_test
