// docs/applog.md, "Inside": an entry that is consumed before a checkpoint is written once, to the redo log; one that is
// not goes home, whatever was consumed around it.
#include <gtest/gtest.h>

#include "applog_world.hpp"

namespace memlith::test::applog_home_test {
namespace {

using namespace core;

constexpr std::uint64_t kEntryBytes = 1000;  // 1 KiB with its header

std::string entry_of(std::uint64_t number) {
  return std::to_string(number) + std::string(kEntryBytes - std::to_string(number).size(), 'e');
}

class World {
 public:
  void append(int entries) {
    for (int i = 0; i < entries; ++i) must(test::append(world_.log(), entry_of(++newest_)));
    EXPECT_OK(world_.log().write());
  }
  // Returns the number of the newest entry that was consumed.
  std::uint64_t consume(int entries) {
    applog::AppLog::Entry entry;
    for (int i = 0; i < entries && must(world_.log().read(0, entry)); ++i) {
    }
    EXPECT_OK(world_.log().consume(entry.number));
    return entry.number;
  }
  void checkpoint() { EXPECT_OK(store().checkpoint()); }
  void expect_left(std::uint64_t consumed) {
    world_.crash();
    std::vector<std::string> wanted;
    for (std::uint64_t number = consumed + 1; number <= newest_; ++number) wanted.push_back(entry_of(number));
    EXPECT_EQ(world_.read_all(), wanted);
    world_.log().rewind();
  }
  Store& store() { return world_.regions().store(); }
  [[nodiscard]] std::uint64_t home_bytes() { return store().counters().home_bytes.load(); }
  [[nodiscard]] std::uint64_t bytes() { return home_bytes() + store().log().counters().bytes.load(); }
  [[nodiscard]] std::uint64_t appended_bytes() const { return newest_ * kEntryBytes; }
  AppLogWorld& world() { return world_; }

 private:
  static StoreOptions options() {
    StoreOptions options = tiny_options();
    options.slot_bytes = 64 * kKiB;
    options.manual_flush = true;
    options.log_bytes = options.log_max_bytes = 32 * options.slot_bytes;
    return options;
  }
  AppLogWorld world_{512 * kKiB, applog::WhenFull::fail, 0, options()};
  std::uint64_t newest_ = 0;
};

TEST(AppLogHome, AnEntryThatIsConsumedSoonIsWrittenOnce) {
  World world;
  std::uint64_t consumed = 0;
  for (int round = 0; round < 256; ++round) {
    world.append(32);
    consumed = world.consume(32);
    if (round % 24 == 23) world.checkpoint();
  }
  EXPECT_LE(world.bytes(), world.appended_bytes() * 115 / 100);
  EXPECT_LE(world.home_bytes(), world.appended_bytes() / 10);
  EXPECT_EQ(consumed, 256 * 32u);
  EXPECT_OK(world.world().log().write());
  world.expect_left(consumed);
}

TEST(AppLogHome, WhatIsNotConsumedGoesHome) {
  World world;
  for (int round = 0; round < 40; ++round) {
    world.append(100);
    const std::uint64_t consumed = world.consume(round == 0 ? 20 : 100);
    EXPECT_OK(world.world().log().write());
    if (round % 3 != 0) world.checkpoint();
    world.expect_left(consumed);
  }
}

// The consumption may be lost, and what was consumed is needed then.
TEST(AppLogHome, WhatIsConsumedBehindTheCheckpointGoesHome) {
  World world;
  std::uint64_t kept = 0;
  for (int round = 0; round < 20; ++round) {
    world.append(200);
    (void)world.consume(200);  // in the redo log, and not durable
    const Lsn durable = world.store().log().durable_lsn();
    ASSERT_LT(durable, world.world().region().newest_commit());
    const std::uint64_t before = world.home_bytes();
    world.checkpoint();
    EXPECT_GE(world.home_bytes() - before, 200 * kEntryBytes);
    world.append(1);
    kept = world.consume(1);
    EXPECT_OK(world.world().log().write());
    world.checkpoint();
  }
  world.expect_left(kept);
}

}  // namespace
}  // namespace memlith::test::applog_home_test
