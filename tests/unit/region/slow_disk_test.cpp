// A slow disk, and threads that do not wait for it.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "region/region.hpp"
#include "sim/sim.hpp"
#include "support/expect.hpp"

namespace memlith::test::slow_disk_test {
namespace {

using namespace core;

// A persist that finds the open batch full writes it, and so do a growing log and a full one. Threads that persist the
// same region asynchronously continue meanwhile, as long as there is room.
TEST(SlowDisk, StallsNoPersistThatDoesNotWait) {
  SimVolume volume;
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.manual_flush = true;
  options.slot_bytes = 16384;
  options.log_bytes = 8 * 16384;
  options.log.batch_bytes = 4096;
  const std::unique_ptr<Store> store = must(Store::open(volume, options));
  RegionOptions wanted;
  wanted.create = true;
  wanted.tracker = TrackerKind::touched;
  wanted.size_bytes = 64 * kKiB;
  const std::unique_ptr<Region> region = must(Region::open(*store, "r", wanted));
  Region* const both[] = {region.get()};
  const auto persist_soon = [&](std::uint64_t offset, std::uint64_t bytes, int value) {
    std::memset(region->address() + offset, value, bytes);
    EXPECT_OK(region->touch(region->address() + offset, bytes));
    EXPECT_OK(Region::capture(both, Scope::process, false));
  };
  persist_soon(0, 3000, 1);  // the batch has no room for another one of these

  std::promise<void> disk_at_work;
  std::promise<void> disk_may_go_on;
  std::atomic<bool> first{true};
  volume.before_transfer = [&] {
    if (!first.exchange(false)) return;
    disk_at_work.set_value();
    disk_may_go_on.get_future().wait();
  };
  std::thread large([&] { persist_soon(8192, 3000, 2); });
  disk_at_work.get_future().wait();
  std::promise<void> small_done;
  std::thread small([&] {
    persist_soon(32768, 100, 3);
    small_done.set_value();
  });
  // With the mend this is over at once; without it, never, and the disk has to go on for the test to end.
  EXPECT_EQ(small_done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  disk_may_go_on.set_value();
  small.join();
  large.join();
  volume.before_transfer = nullptr;
  EXPECT_OK(Region::persist(both, Scope::process));
  ASSERT_OK(store->checkpoint());
  const std::vector<std::byte> home = must(store->read_home(region->object()));
  EXPECT_EQ(home[2999], std::byte{1});
  EXPECT_EQ(home[8192 + 2999], std::byte{2});
  EXPECT_EQ(home[32768 + 99], std::byte{3});
}

}  // namespace
}  // namespace memlith::test::slow_disk_test
