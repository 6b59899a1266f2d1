// Scans of a large region are left out while the process has no page fault.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "base/random.hpp"
#include "region/tracker.hpp"
#include "support/expect.hpp"

namespace memlith::test::scan_faults_test {
namespace {

using namespace core;
using Ranges = std::vector<Range>;

// Whatever stores, and whatever else faults, each store is found.
TEST(ScanFaults, ScansAreLeftOutWithoutFaults) {
  if (!probe_scan().ok()) GTEST_SKIP() << "this kernel has no WP_ASYNC";
  const std::uint64_t bytes = 16 * kMiB;
  auto* const base =
      static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto tracker = must(attach_scan_tracker({.base = base, .bytes = bytes, .capacity_bytes = bytes}, ""));
  const auto collect = [&tracker] {
    Ranges ranges;
    EXPECT_OK(tracker->collect(kAllThreads, ranges));
    tracker->accept();
    normalize(ranges);
    return ranges;
  };
  collect();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t at = random.below(bytes / host_page_bytes()) * host_page_bytes();
    switch (round % 5) {
      case 0: base[at] ^= std::byte{1}; break;
      case 1:
        ASSERT_EQ(::write(ends[1], "a", 1), 1);
        ASSERT_EQ(::read(ends[0], base + at, 1), 1);
        break;
      case 2: std::thread([&] { base[at] ^= std::byte{1}; }).join(); break;
      case 3: {
        base[at] ^= std::byte{1};
        Ranges ranges;
        ASSERT_OK(tracker->collect(kAllThreads, ranges));
        tracker->give_back();
        break;
      }
      default: EXPECT_EQ(collect(), Ranges{}) << round; continue;
    }
    EXPECT_EQ(collect(), (Ranges{{at, host_page_bytes()}})) << round;
    if (round % 2 == 0) {
      EXPECT_EQ(collect(), Ranges{}) << round;
    }
  }
  tracker = nullptr;
  ::munmap(base, bytes);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace memlith::test::scan_faults_test
