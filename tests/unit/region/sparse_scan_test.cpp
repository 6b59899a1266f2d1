// The scan tracker on private pages over a file (TrackedMemory::sparse): stores are found, wherever they are, and pages
// that were only read are not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "region/tracker.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21  // Linux 5.4
#endif

namespace memlith::test::sparse_scan_test {
namespace {

using namespace core;
using Ranges = std::vector<Range>;

constexpr std::uint64_t kBytes = 1 * kGiB;

std::uint64_t page_tables_kib() {
  const std::string status = read_file("/proc/self/status");
  const std::size_t found = status.find("VmPTE:");
  return found == status.npos ? 0 : std::strtoull(&status[found + 6], nullptr, 10);
}

// A file that is a hole up to its last 4 MiB.
class SparseScan : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!probe_scan().ok()) GTEST_SKIP() << "this kernel has no WP_ASYNC";
    const std::string data(4 * kMiB, 'h');
    ASSERT_EQ(::pwrite(file_, data.data(), data.size(), static_cast<off_t>(kBytes - data.size())),
              static_cast<ssize_t>(data.size()));
    base_ = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_, 0));
    ASSERT_NE(base_, MAP_FAILED);
    page_tables_kib_ = page_tables_kib();
    tracker_ =
        must(attach_scan_tracker({.base = base_, .bytes = kBytes, .capacity_bytes = kBytes, .sparse = true}, ""));
  }
  ~SparseScan() override {
    tracker_ = nullptr;
    if (base_ != nullptr) ::munmap(base_, kBytes);
    ::close(file_);
  }
  Ranges collect() {
    Ranges ranges;
    EXPECT_OK(tracker_->collect(kAllThreads, ranges));
    tracker_->accept();
    normalize(ranges);
    return ranges;
  }
  void read(std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t at = offset; at < offset + bytes; at += host_page_bytes()) {
      sum_ += static_cast<unsigned>(*const_cast<volatile std::byte*>(base_ + at));
    }
  }
  [[nodiscard]] Range page_at(std::uint64_t offset) const {
    return {round_down(offset, host_page_bytes()), host_page_bytes()};
  }

  TempFolder folder_;
  int file_ = ::open((folder_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  std::byte* base_ = nullptr;
  std::unique_ptr<Tracker> tracker_;
  std::uint64_t page_tables_kib_ = 0;  // before the tracker
  unsigned sum_ = 0;
};

TEST_F(SparseScan, PagesThatWereReadAreNotFound) {
  EXPECT_EQ(collect(), Ranges{});
  read(kBytes - 4 * kMiB, 4 * kMiB);
  read(8 * kMiB, 1 * kMiB);
  EXPECT_EQ(collect(), Ranges{});
  const std::uint64_t in_data = kBytes - 1 * kMiB;
  const std::uint64_t in_hole = kBytes / 2;
  base_[in_data + 5] = std::byte{1};
  read(2 * kMiB, 1 * kMiB);
  base_[in_hole] = std::byte{2};
  EXPECT_EQ(collect(), (Ranges{page_at(in_hole), page_at(in_data)}));
  EXPECT_EQ(collect(), Ranges{});
}

// Read or not, in memory or paged out, by a thread or by the kernel, after a release and after a failed capture.
TEST_F(SparseScan, EachStoreIsFound) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t at = round_down(random.below(kBytes), host_page_bytes());
    const Range page = page_at(at);
    if (random.one_in(2)) read(at, host_page_bytes());
    if (random.one_in(3)) {
      EXPECT_EQ(collect(), Ranges{}) << round;
    }
    if (random.one_in(4)) (void)::madvise(base_ + at, host_page_bytes(), MADV_PAGEOUT);
    if (random.one_in(2)) {
      base_[at] ^= std::byte{1};
    } else {
      ASSERT_EQ(::write(ends[1], "a", 1), 1);
      ASSERT_EQ(::read(ends[0], base_ + at, 1), 1);
    }
    if (random.one_in(4)) (void)::madvise(base_ + at, host_page_bytes(), MADV_PAGEOUT);
    if (random.one_in(3)) {
      Ranges ranges;
      ASSERT_OK(tracker_->collect(kAllThreads, ranges));
      tracker_->give_back();
    }
    const std::byte stored = base_[at];
    if (random.one_in(20)) {
      ASSERT_OK(tracker_->release_clean());
    }
    EXPECT_EQ(base_[at], stored) << round << ": a release keeps what was not captured";
    EXPECT_EQ(collect(), Ranges{page}) << round;
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

// A store beside a capture is in it or in the next one.
TEST_F(SparseScan, StoresBesideACaptureAreFound) {
  constexpr std::uint64_t kWords = 512;
  const std::uint64_t stride = 8 * host_page_bytes();  // the kernel maps more pages than the one that is read
  const std::uint64_t begin = kBytes - kWords * stride;
  const auto word = [&](std::uint64_t index) {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base_ + begin + index * stride));
  };
  std::atomic<bool> ended{false};
  std::thread stores([&] {
    Random random(3);
    for (std::uint64_t i = 1; i <= 30000; ++i) {
      (void)word(random.below(kWords)).load();
      word(random.below(kWords)).store(i);
    }
    ended = true;
  });
  std::vector<std::uint64_t> captured(kWords);
  for (std::uint64_t i = 0; i < kWords; ++i) captured[i] = word(i).load();
  for (bool last = false; !last;) {
    last = ended;
    for (const Range& range : collect()) {
      for (std::uint64_t i = 0; i < kWords; ++i) {
        if (lies_in({begin + i * stride, 8}, range)) captured[i] = word(i).load();
      }
    }
  }
  stores.join();
  for (std::uint64_t i = 0; i < kWords; ++i) EXPECT_EQ(captured[i], word(i).load()) << i;
}

TEST_F(SparseScan, PagesThatAreNotUsedTakeNoMemory) {
  base_[kBytes / 2] = std::byte{1};
  EXPECT_EQ(collect(), (Ranges{page_at(kBytes / 2)}));
  ASSERT_OK(tracker_->release_clean());
  EXPECT_LT(page_tables_kib(), page_tables_kib_ + kBytes / kPageBytes * 8 / kKiB / 4);
}

}  // namespace
}  // namespace memlith::test::sparse_scan_test
