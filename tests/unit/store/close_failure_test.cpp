// The errors of a close that fails, and the files after a close that did not fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

using namespace core;

// A simulated disk on which the store shows its counters in a file, which may be one that cannot be removed.
class VolumeWithNotice final : public VolumeDecorator {
 public:
  explicit VolumeWithNotice(SimVolume& below) : VolumeDecorator(below), disk(below) {}

  std::unique_ptr<Notice> make_notice(std::string_view, std::span<const std::byte>, Device*) override {
    struct Told final : Notice {
      explicit Told(VolumeWithNotice& volume) : told(volume) {}
      void show(std::span<const std::byte>) override {}
      void remove() override {
        ++told.removals;
        told.removed_at = told.disk.operations();
        if (told.is_stuck) (void)fail(Errc::permission, Detail::write, "the counters cannot be removed");
      }
      VolumeWithNotice& told;
    };
    return std::make_unique<Told>(*this);
  }

  SimVolume& disk;
  bool is_stuck = false;
  int removals = 0;
  std::size_t removed_at = 0;  // after so many operations of the disk
};

TEST(FailedClose, TellsOfTheFailureAndNotOfTheCleaningUpBehindIt) {
  SimVolume disk{SimImage{}, true};
  VolumeWithNotice volume(disk);
  volume.is_stuck = true;
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.log_bytes = 256 * kKiB;
  std::unique_ptr<Store> store = must(Store::open(volume, options));
  volume.disk.faults().plan(SimFaults::Kind::fail_flush, 0);
  EXPECT_ERROR(Errc::io, store->close());
  const std::string told_by_close(last_error_text());
  EXPECT_NE(told_by_close.find("flush failed"), std::string::npos) << told_by_close;
  store = nullptr;
  EXPECT_EQ(volume.removals, 1) << "or this test tests nothing";
  EXPECT_EQ(last_error_text(), told_by_close);
}

// A guarded file that became shorter is cut when it is closed, behind all commits: that failure poisons no log. The
// length stays in the page cache, so that no later step stumbles over it. False: there is no nth flush.
bool close_guarded_file(SimFaults::Kind kind, std::uint64_t nth, bool* ok) {
  SimVolume disk(SimImage{}, true);
  StoreOptions options;
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  options.create = options.manual_checkpoint = true;
  options.in_use = InUse::guard;
  options.log_bytes = 256 * kKiB;
  std::unique_ptr<Store> store = must(Store::open(disk, options));
  EXPECT_OK(store->put_guard());
  for (const std::uint64_t bytes : {std::uint64_t{8192}, std::uint64_t{838}}) {
    EXPECT_OK(store->reserve_home(kFile, bytes));
    const SizeChange size{kFile, bytes};
    EXPECT_OK(store->commit({{}, {}, {&size, 1}}));
  }
  disk.faults().done_nevertheless = true;
  disk.faults().plan(kind, nth);
  *ok = store->close().ok();
  return disk.faults().fired() != 0;
}

TEST(FailedClose, OfAGuardedFileTellsOfEveryFailedFlush) {
  for (const auto kind : {SimFaults::Kind::fail_flush, SimFaults::Kind::forget_flush}) {
    std::uint64_t flushes = 0;
    bool ok = false;
    for (; close_guarded_file(kind, flushes, &ok); ++flushes) EXPECT_FALSE(ok) << "flush " << flushes;
    EXPECT_TRUE(ok);
    EXPECT_GE(flushes, 7U) << "or this test tests nothing";
  }
}

// Counters without a log say that the log was lost. A user may remove the log of a closed file, and `memlith run` does;
// a power cut that undid the removal of the counters alone made a complete file one that is refused.
TEST(CloseOfAFile, TheCountersAreGoneBeforeTheLogMayBe) {
  SimVolume disk{SimImage{}, true};
  VolumeWithNotice volume(disk);
  StoreOptions options;
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  options.create = true;
  options.manual_checkpoint = true;
  options.log_bytes = 256 * kKiB;
  std::unique_ptr<Store> store = must(Store::open(volume, options));
  ASSERT_OK(store->close());
  ASSERT_EQ(volume.removals, 1);
  const auto& records = volume.disk.trace().records;
  const auto removed = records.begin() + static_cast<std::ptrdiff_t>(volume.removed_at);
  EXPECT_TRUE(std::any_of(removed, records.end(), [](const SimRecord& each) { return each.op == SimOp::sync_folder; }))
      << volume.disk.trace().describe(records.size());
}

// Programs open a file, append a record and close it. Each flush that is not needed is paid for every record.
TEST(CloseOfAFile, OpeningChangingAndClosingTakeTwelveFlushes) {
  SimVolume disk(SimImage{}, true);
  const auto flushes = [&disk] {
    const auto& records = disk.trace().records;
    return std::count_if(records.begin(), records.end(), [](const SimRecord& each) {
      return each.op == SimOp::flush || each.op == SimOp::sync_folder;
    });
  };
  StoreOptions options;
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  options.create = true;
  options.manual_checkpoint = true;
  options.log_bytes = 256 * kKiB;
  std::unique_ptr<Store> store = must(Store::open(disk, options));
  EXPECT_EQ(flushes(), 6) << "the folder, the file, the log, its name, two copies of the superblock";
  ASSERT_OK(store->reserve_home(kFile, 4096));
  const std::vector<std::byte> record(4096, std::byte{7});
  const Extent extent{kFile, 0, record.size()};
  const auto* const source = record.data();
  const SizeChange grown{kFile, record.size()};
  ASSERT_OK(store->commit({{&extent, 1}, {&source, 1}, {&grown, 1}}));
  EXPECT_EQ(flushes(), 8) << "the length of the file, the commit";
  ASSERT_OK(store->bring_all_home());
  EXPECT_EQ(flushes(), 9) << "the file";
  ASSERT_OK(store->close());
  EXPECT_EQ(flushes(), 12) << "two copies of the superblock, the folder\n" << disk.trace().describe(disk.operations());
  EXPECT_EQ(disk.image().files.at("data")->size(), record.size());
}

}  // namespace
}  // namespace memlith::test
