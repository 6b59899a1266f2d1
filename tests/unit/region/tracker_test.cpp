// docs/architecture.md, "trackers": every store is in the next collect, once; a store after it is in the one after
// that.
#include "region/tracker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/host.hpp"
#include "base/random.hpp"
#include "support/expect.hpp"
#include "support/sanitizers.hpp"
#include "support/slowness.hpp"
#include "support/temp_folder.hpp"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace memlith::test::tracker_test {
namespace {

using namespace core;
using Ranges = std::vector<Range>;

Ranges normal(Ranges ranges) {
  normalize(ranges);
  return ranges;
}

// Sorted, joined where ranges touch or overlap, and nothing covered that was not.
TEST(Normalize, SortsAndJoins) {
  EXPECT_EQ(normal({}), Ranges{});
  EXPECT_EQ(normal({{5, 1}}), (Ranges{{5, 1}}));
  EXPECT_EQ(normal({{10, 5}, {0, 5}}), (Ranges{{0, 5}, {10, 5}}));
  EXPECT_EQ(normal({{0, 5}, {5, 5}}), (Ranges{{0, 10}}));
  EXPECT_EQ(normal({{0, 5}, {6, 5}}), (Ranges{{0, 5}, {6, 5}}));
  EXPECT_EQ(normal({{0, 100}, {10, 5}, {50, 60}}), (Ranges{{0, 110}}));
  EXPECT_EQ(normal({{3, 4}, {3, 4}, {3, 2}}), (Ranges{{3, 4}}));
  EXPECT_EQ(normal({{1ull << 45, 8}, {0, 1ull << 45}}), (Ranges{{0, (1ull << 45) + 8}}));
}

// Against a set of bytes, for random ranges.
TEST(Normalize, AgreesWithASetOfBytes) {
  Random random(23);
  for (int round = 0; round < 500; ++round) {
    Ranges ranges;
    std::vector<bool> covered(300, false);
    for (std::uint64_t i = random.below(20); i-- > 0;) {
      const Range range{random.below(250), 1 + random.below(20)};
      ranges.push_back(range);
      std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    std::vector<bool> seen(300, false);
    std::uint64_t last_end = 0;
    for (const Range& range : normal(ranges)) {
      ASSERT_TRUE(last_end == 0 || range.offset > last_end) << "not joined, or out of order";
      last_end = range.offset + range.bytes;
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    ASSERT_EQ(seen, covered);
  }
}

constexpr std::uint64_t kPages = 64;  // of the kernel

// A tracker on plain anonymous memory.
class PageTracker : public ::testing::TestWithParam<TrackerKind> {
 protected:
  PageTracker() {
    base_ = static_cast<std::byte*>(::mmap(nullptr, 2 * kPages * host_page_bytes(), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // Home is zeros here.
    const auto map_home = [this](std::uint64_t begin, std::uint64_t end) {
      void* const got = ::mmap(base_ + begin, end - begin, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      return got != MAP_FAILED ? kOk : fail_errno(errno, Detail::tracker, "mmap");
    };
    tracker_ =
        must(attach_tracker(GetParam(), {base_, kPages * host_page_bytes(), 2 * kPages * host_page_bytes(), map_home}));
  }
  ~PageTracker() override {
    tracker_ = nullptr;
    ::munmap(base_, 2 * kPages * host_page_bytes());
  }
  // Maps a file there that is open for reading only: the kernel does not let the page become writable.
  void make_page_stay_read_only(std::uint64_t page) {
    const TempFolder folder;
    write_file(folder / "file", std::string(host_page_bytes(), 0));
    const int fd = ::open((folder / "file").c_str(), O_RDONLY);
    std::byte* const at = base_ + page * host_page_bytes();
    ASSERT_EQ(::mmap(at, host_page_bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0), at);
    ::close(fd);
  }
  void store(std::uint64_t page) {
    std::byte& byte = base_[page * host_page_bytes() + 17];
    byte = static_cast<std::byte>(static_cast<unsigned>(byte) + 1);
  }
  // The pages in which something was stored.
  Ranges take() {
    Ranges ranges;
    EXPECT_OK(tracker_->collect(kAllThreads, ranges));
    for (Range& range : ranges) {
      const std::uint64_t begin = round_down(range.offset, host_page_bytes());
      range = {begin, round_up(range.offset + range.bytes, host_page_bytes()) - begin};
    }
    return normal(ranges);
  }
  Ranges collect() {
    Ranges ranges = take();
    tracker_->accept();
    return ranges;
  }
  static Ranges pages(std::uint64_t first, std::uint64_t count) {
    return {{first * host_page_bytes(), count * host_page_bytes()}};
  }

  std::byte* base_;
  std::unique_ptr<Tracker> tracker_;
};
INSTANTIATE_TEST_SUITE_P(Of, PageTracker, ::testing::Values(TrackerKind::scan, TrackerKind::fault),
                         [](const auto& given) { return given.param == TrackerKind::scan ? "Scan" : "Fault"; });

// Nothing stored, nothing seen; a store is seen once; the same store again is seen again.
TEST_P(PageTracker, SeesEachStoreOnce) {
  EXPECT_EQ(collect(), Ranges{});
  for (int round = 0; round < 3; ++round) {
    store(5);
    store(5);
    EXPECT_EQ(collect(), pages(5, 1)) << round;
    EXPECT_EQ(collect(), Ranges{}) << round;
  }
}

// Reading is not storing.
TEST_P(PageTracker, ReadingIsNotSeen) {
  volatile std::byte sum{};
  for (std::uint64_t page = 0; page < kPages; ++page) sum = base_[page * host_page_bytes()];
  (void)sum;
  EXPECT_EQ(collect(), Ranges{});
}

// The first and the last page, neighbours, and all of them.
TEST_P(PageTracker, EdgesAndNeighbours) {
  store(0);
  store(kPages - 1);
  store(7);
  store(8);
  EXPECT_EQ(collect(), (Ranges{{0, host_page_bytes()},
                               {7 * host_page_bytes(), 2 * host_page_bytes()},
                               {(kPages - 1) * host_page_bytes(), host_page_bytes()}}));
  for (std::uint64_t page = 0; page < kPages; ++page) store(page);
  EXPECT_EQ(collect(), pages(0, kPages));
  EXPECT_EQ(collect(), Ranges{});
}

// Every other page: as many ranges as there can be, more than one call of the kernel returns in larger regions.
TEST_P(PageTracker, EveryOtherPage) {
  for (std::uint64_t page = 0; page < kPages; page += 2) store(page);
  EXPECT_EQ(collect().size(), kPages / 2);
  EXPECT_EQ(collect(), Ranges{});
}

// Random stores against a set of pages, many times over.
TEST_P(PageTracker, AgreesWithASetOfPages) {
  Random random(31);
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> stored(kPages, false);
    for (std::uint64_t i = random.below(30); i-- > 0;) {
      const std::uint64_t page = random.below(kPages);
      store(page);
      stored[page] = true;
    }
    std::vector<bool> seen(kPages, false);
    for (const Range& range : collect()) {
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset / host_page_bytes()),
                  range.bytes / host_page_bytes(), true);
    }
    ASSERT_EQ(seen, stored) << round;
  }
}

// Pages that join later are clean at first and tracked from then on; the others keep their marks.
TEST_P(PageTracker, GrowKeepsMarksAndAddsCleanPages) {
  store(3);
  ASSERT_OK(tracker_->grow(2 * kPages * host_page_bytes()));
  EXPECT_EQ(collect(), pages(3, 1));
  store(kPages);
  store(2 * kPages - 1);
  EXPECT_EQ(collect(), (Ranges{{kPages * host_page_bytes(), host_page_bytes()},
                               {(2 * kPages - 1) * host_page_bytes(), host_page_bytes()}}));
}

// Detaching leaves the memory usable.
TEST_P(PageTracker, MemoryOutlivesTheTracker) {
  store(1);
  tracker_ = nullptr;
  ASSERT_EQ(::mprotect(base_, kPages * host_page_bytes(), PROT_READ | PROT_WRITE), 0);
  store(1);
  EXPECT_EQ(base_[host_page_bytes() + 17], std::byte{2});
}

// A capture that came to nothing: its pages are in the next, with those stored to since.
TEST_P(PageTracker, WhatIsGivenBackIsTakenAgain) {
  store(5);
  store(9);
  EXPECT_EQ(take().size(), 2u);
  tracker_->give_back();
  store(9);
  store(11);
  EXPECT_EQ(collect(), (Ranges{{5 * host_page_bytes(), host_page_bytes()},
                               {9 * host_page_bytes(), host_page_bytes()},
                               {11 * host_page_bytes(), host_page_bytes()}}));
  EXPECT_EQ(collect(), Ranges{});
}

// Anonymous memory that is dropped reads as zeros; what was stored since the last capture stays. The fault tracker may
// keep up to 15 neighbours of such a page.
TEST_P(PageTracker, ReleasesCleanPagesOnly) {
  for (std::uint64_t page = 0; page < kPages; ++page) store(page);
  collect();
  store(5);
  ASSERT_OK(tracker_->release_clean());
  EXPECT_EQ(base_[5 * host_page_bytes() + 17], std::byte{2});
  for (std::uint64_t page = 16; page < kPages; ++page)
    EXPECT_EQ(base_[page * host_page_bytes() + 17], std::byte{0}) << page;
  for (std::uint64_t page = 0; page < 16; ++page) {
    if (page == 5 || (GetParam() == TrackerKind::fault && base_[page * host_page_bytes() + 17] == std::byte{1}))
      continue;
    EXPECT_EQ(base_[page * host_page_bytes() + 17], std::byte{0}) << page;
  }
  EXPECT_EQ(collect(), pages(5, 1));
  store(6);
  EXPECT_EQ(collect(), pages(6, 1));
}

// Threads go on storing while clean pages are dropped: no store is lost.
TEST_P(PageTracker, ReleasingRacesWithStores) {
  std::atomic<bool> stop{false};
  std::uint64_t sum = 0;
  std::thread writer([&] {
    while (!stop.load()) {
      for (std::uint64_t page = 0; page < kPages; ++page) store(page), ++sum;
    }
  });
  for (int round = 0; round < 200; ++round) ASSERT_OK(tracker_->release_clean());
  stop = true;
  writer.join();
  std::uint64_t seen = 0;
  for (std::uint64_t page = 0; page < kPages; ++page)
    seen += static_cast<std::uint64_t>(base_[page * host_page_bytes() + 17]);
  EXPECT_EQ(seen % 256, sum % 256);
}

// A program may have its memory locked (mlock, mlockall). Giving memory back makes no page count as stored to, and
// rolling back works.
TEST_P(PageTracker, LockedMemory) {
  if (::mlock(base_, kPages * host_page_bytes()) != 0) GTEST_SKIP() << "no memory can be locked here";
  collect();
  for (std::uint64_t page = 0; page < kPages; ++page) store(page);
  collect();
  store(5);
  ASSERT_OK(tracker_->release_clean());
  EXPECT_EQ(collect(), pages(5, 1));
  const std::byte before = base_[7 * host_page_bytes() + 17];
  store(7);
  Ranges others;
  ASSERT_OK(tracker_->rollback(kAllThreads, others));
  for (const Range& range : others) {
    ASSERT_OK(tracker_->restore(range, [](auto...) { return fail(Errc::io, Detail::tracker, "not asked for"); }, true));
  }
  tracker_->accept();
  EXPECT_EQ(base_[7 * host_page_bytes() + 17], others.empty() ? before : std::byte{0});
  EXPECT_EQ(collect(), Ranges{});
}

class ScanTracker : public PageTracker {};
INSTANTIATE_TEST_SUITE_P(Of, ScanTracker, ::testing::Values(TrackerKind::scan), [](const auto&) { return "Scan"; });

// The region cannot be made writable again after a release, not all of it: stores make what they need writable, or are
// passed on where they cannot, and none waits for ever.
TEST_P(ScanTracker, AReleaseThatLeavesPagesReadOnly) {
  if (tracker_->kind() != TrackerKind::scan) GTEST_SKIP() << "this kernel has no WP_ASYNC";
  if (kSanitized) GTEST_SKIP() << "the sanitizers have SIGSEGV and the signals of children in hand";
  make_page_stay_read_only(5);
  EXPECT_FALSE(tracker_->release_clean().ok());
  for (const std::uint64_t page : {7, 5}) {
    const pid_t child = ::fork();
    if (child == 0) {
      // Processor time, ended by a signal that cannot be blocked.
      const rlimit seconds{10 * slowness(), 10 * slowness()};
      ::setrlimit(RLIMIT_CPU, &seconds);
      ::signal(SIGXCPU, SIG_IGN);
      store(page);
      ::_exit(base_[page * host_page_bytes() + 17] == std::byte{1} ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, page == 7 ? 0 : SIGSEGV) << page;
  }
  store(7);
  EXPECT_EQ(base_[7 * host_page_bytes() + 17], std::byte{1});
}

// The kernel has one mark for its page, of which a part goes back to what is home: the rest was stored to.
TEST_P(ScanTracker, ARestoreOfAPartOfAPageKeepsItsMark) {
  if (tracker_->kind() != TrackerKind::scan) GTEST_SKIP() << "this kernel has no WP_ASYNC";
  if (host_page_bytes() == kPageBytes) GTEST_SKIP() << "the kernel's pages have no parts";
  base_[kPageBytes] = std::byte{1};
  ASSERT_OK(tracker_->restore({0, kPageBytes}, [](auto...) { return kOk; }, false));
  EXPECT_EQ(collect(), pages(0, 1));
}

// The fault tracker beyond pages.
class FaultTracker : public PageTracker {};
INSTANTIATE_TEST_SUITE_P(Of, FaultTracker, ::testing::Values(TrackerKind::fault), [](const auto&) { return "Fault"; });

// The word that has the byte of this place in page `page`.
Range word_of(std::uint64_t page, std::uint64_t byte) { return {page * host_page_bytes() + byte / 8 * 8, 8}; }

// Exactly the words that changed, give or take gaps that cost less than a range of their own.
TEST_P(FaultTracker, GivesTheWordsThatChanged) {
  Random random(77);
  std::vector<std::byte> before(kPages * host_page_bytes());
  for (int round = 0; round < 100; ++round) {
    std::memcpy(before.data(), base_, before.size());
    for (std::uint64_t i = random.below(40); i-- > 0;) {
      const std::uint64_t at = random.below(before.size() - 64);
      for (std::uint64_t n = 1 + random.below(64); n-- > 0;) base_[at + n] = static_cast<std::byte>(random.next());
    }
    Ranges ranges;
    ASSERT_OK(tracker_->collect(kAllThreads, ranges));
    tracker_->accept();
    std::vector<std::byte> rebuilt = before;
    for (const Range& range : ranges) {
      ASSERT_EQ((range.offset | range.bytes) % 8, 0u);
      const std::uint64_t last = range.offset + range.bytes - 8;
      ASSERT_NE(std::memcmp(&before[range.offset], &base_[range.offset], 8), 0) << "begins with a word as before";
      ASSERT_NE(std::memcmp(&before[last], &base_[last], 8), 0) << "ends with a word as before";
      std::memcpy(rebuilt.data() + range.offset, base_ + range.offset, range.bytes);
    }
    ASSERT_EQ(std::memcmp(rebuilt.data(), base_, rebuilt.size()), 0) << round;
  }
}

// A store between the taking and the copying of a page may be copied or not; either way the next capture has it.
// Here the copy gets 0 and memory ends as 5, which is what it was when the page was taken.
TEST_P(FaultTracker, StoresDuringACaptureAreInTheNext) {
  std::byte& byte = base_[3 * host_page_bytes() + 17];
  byte = std::byte{5};
  Ranges ranges;
  ASSERT_OK(tracker_->collect(kAllThreads, ranges));
  EXPECT_EQ(ranges, (Ranges{word_of(3, 17)}));
  byte = std::byte{0};
  const std::byte copied = byte;
  byte = std::byte{5};
  tracker_->accept();
  ASSERT_NE(copied, byte);
  EXPECT_EQ(collect(), pages(3, 1));
  byte = std::byte{6};
  ranges.clear();
  ASSERT_OK(tracker_->collect(kAllThreads, ranges));
  tracker_->accept();
  EXPECT_EQ(ranges, (Ranges{word_of(3, 17)})) << "twins again from then on";
}

// A thread takes its own pages; those of a thread that ended stay for the process.
TEST_P(FaultTracker, TellsThreadsApart) {
  store(1);
  std::thread([this] { store(2); }).join();
  std::thread([this] {
    store(3);
    Ranges mine;
    EXPECT_OK(tracker_->collect(this_thread_number(), mine));
    tracker_->accept();
    EXPECT_EQ(mine, (Ranges{word_of(3, 17)}));
  }).join();
  Ranges mine;
  ASSERT_OK(tracker_->collect(this_thread_number(), mine));
  tracker_->accept();
  EXPECT_EQ(mine, (Ranges{word_of(1, 17)}));
  EXPECT_EQ(collect(), pages(2, 1));
}

// Rolling back puts the bytes back, of this thread's pages alone; the pages are clean then.
TEST_P(FaultTracker, RollsBackFromTwins) {
  store(1);
  collect();
  store(1);
  store(2);
  std::thread([this] { store(3); }).join();
  Ranges others;
  ASSERT_OK(tracker_->rollback(this_thread_number(), others));
  tracker_->accept();
  EXPECT_EQ(others, Ranges{});
  EXPECT_EQ(base_[host_page_bytes() + 17], std::byte{1});
  EXPECT_EQ(base_[2 * host_page_bytes() + 17], std::byte{0});
  EXPECT_EQ(base_[3 * host_page_bytes() + 17], std::byte{1});
  store(2);
  EXPECT_EQ(collect(), pages(2, 2));
}

// A capture that came to nothing can still be rolled back: the twins were kept.
TEST_P(FaultTracker, RollsBackWhatWasGivenBack) {
  store(1);
  take();
  tracker_->give_back();
  store(1);
  Ranges others;
  ASSERT_OK(tracker_->rollback(kAllThreads, others));
  tracker_->accept();
  EXPECT_EQ(base_[host_page_bytes() + 17], std::byte{0});
  EXPECT_EQ(collect(), Ranges{});
}

// read(2) into a clean page fails; after prepare() it works, and what it wrote is captured.
TEST_P(FaultTracker, PreparesForSystemCalls) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abcd", 4), 4);
  EXPECT_EQ(::read(ends[0], base_ + 8190, 4), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_OK(tracker_->prepare({8190, 4}));
  EXPECT_EQ(::read(ends[0], base_ + 8190, 4), 4);
  Ranges ranges;
  ASSERT_OK(tracker_->collect(this_thread_number(), ranges));
  tracker_->accept();
  EXPECT_EQ(normal(ranges), (Ranges{{8184, 16}})) << "the words of the four bytes";
  ::close(ends[0]);
  ::close(ends[1]);
}

// However many pages of a chunk are prepared, and whatever is stored or captured beside them: they stay open to the
// kernel until they are captured themselves.
TEST_P(FaultTracker, PreparedPagesStayPrepared) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_GE(::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20), 1 << 20);
  const auto read_into = [&](std::uint64_t first, std::uint64_t count) {
    const std::vector<char> bytes(count * host_page_bytes(), 'x');
    EXPECT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return ::read(ends[0], base_ + first * host_page_bytes(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  };
  for (std::uint64_t round = 0; round < 3; ++round) {  // before the chunk is moved, and after
    for (const std::uint64_t count : {1, 3, 4, 5, 8, 15}) {
      ASSERT_OK(tracker_->prepare({0, count * host_page_bytes()}));
      for (std::uint64_t page = count; page < std::min<std::uint64_t>(count + 3, 16); ++page) store(page);
      EXPECT_TRUE(read_into(0, count)) << count << " pages, round " << round;
      std::thread([this] {  // their neighbours on both sides are captured in one stretch
        store(0);
        store(15);
        Ranges ranges;
        EXPECT_OK(tracker_->collect(this_thread_number(), ranges));
        tracker_->accept();
      })
          .join();
      EXPECT_TRUE(read_into(1, std::max<std::uint64_t>(count, 2) - 1) || count == 1)
          << count << " pages, round " << round;
      const Ranges ranges = collect();
      EXPECT_GE(ranges.size(), 1u);
    }
    for (std::uint64_t page = 0; page < 16; ++page) store(page);
    collect();
  }
  // Two threads: one prepares a page of a moved chunk, the other captures what it stored on both sides of it.
  ASSERT_OK(tracker_->prepare({5 * host_page_bytes(), host_page_bytes()}));
  std::thread([this] {
    store(4);
    store(6);
    Ranges ranges;
    EXPECT_OK(tracker_->collect(this_thread_number(), ranges));
    tracker_->accept();
  }).join();
  EXPECT_TRUE(read_into(5, 1));
  collect();
  ::close(ends[0]);
  ::close(ends[1]);
}

// A child of fork() may store to its copy, whatever the parent was doing; nothing of it reaches the parent.
TEST_P(FaultTracker, AForkedChildStoresToItsOwnCopy) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer lets the signals of a forked child wait";
  store(1);
  const pid_t child = ::fork();
  if (child == 0) {
    store(1);
    store(2);
    ::_exit(base_[host_page_bytes() + 17] == std::byte{2} && base_[2 * host_page_bytes() + 17] == std::byte{1} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(collect(), pages(1, 1));
  EXPECT_EQ(base_[2 * host_page_bytes() + 17], std::byte{0});
}

// Pages of one chunk stored to in turn, from the first store, when mprotect protects them, through the fourth, when the
// chunk is moved with a page or three that were stored to, to the hundredth: each capture has exactly what was stored
// since the last.
TEST_P(FaultTracker, ChunksAreMovedWithoutLosingAnything) {
  Random random(12);
  std::vector<std::byte> captured(kPages * host_page_bytes());
  for (int round = 0; round < 400; ++round) {
    for (std::uint64_t i = random.below(6); i-- > 0;) store(random.below(kPages));
    if (round % 50 == 49) {
      ASSERT_OK(tracker_->grow((kPages + static_cast<std::uint64_t>(round) / 50) * host_page_bytes()));
    }
    const std::uint64_t what = random.below(10);
    if (what < 2) continue;
    Ranges ranges;
    if (what == 2) {
      ASSERT_OK(tracker_->rollback(kAllThreads, ranges));
      ASSERT_EQ(ranges, Ranges{});
      tracker_->accept();
    } else {
      ASSERT_OK(tracker_->collect(kAllThreads, ranges));
      if (what == 3) {
        tracker_->give_back();
        continue;
      }
      for (const Range& range : ranges) {
        std::memcpy(captured.data() + range.offset, base_ + range.offset, range.bytes);
      }
      tracker_->accept();
    }
    ASSERT_EQ(std::memcmp(captured.data(), base_, captured.size()), 0) << round;
  }
}

// Threads store to chunks that are moved under their hands, and moved back when their memory is given back, over and
// over. Home is zeros here, so only what was stored since the last capture must be there; captures add up to every
// store.
TEST_P(FaultTracker, ChunksAreMovedUnderStores) {
  constexpr int kThreads = 3;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::array<std::uint64_t, kThreads> stored{};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      while (!stop.load(std::memory_order_relaxed)) {
        // Only ever ones, each byte once a thread: what is in no capture is lost.
        const std::uint64_t at = stored[t] * 61 % (kPages * host_page_bytes() / 4) * 4 + static_cast<std::uint64_t>(t);
        std::atomic_ref(base_[at]).store(std::byte{1}, std::memory_order_relaxed);
        if (++stored[t] == kPages * host_page_bytes() / 4) return;
        if (random.below(64) == 0) std::this_thread::yield();
      }
    });
  }
  std::vector<bool> seen(kPages * host_page_bytes());
  const auto capture = [&] {
    Ranges ranges;
    ASSERT_OK(tracker_->collect(kAllThreads, ranges));
    for (const Range& range : ranges) {
      for (std::uint64_t i = range.offset; i < range.offset + range.bytes; ++i) {
        if (std::atomic_ref(base_[i]).load(std::memory_order_relaxed) == std::byte{1}) seen[i] = true;
      }
    }
    tracker_->accept();
  };
  for (int round = 0; round < 300; ++round) {
    capture();
    if (round % 3 == 0) {
      ASSERT_OK(tracker_->release_clean());
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  capture();
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    for (std::uint64_t i = 0; i < stored[t]; ++i) {
      ASSERT_TRUE(seen[i * 61 % (kPages * host_page_bytes() / 4) * 4 + t]) << "store " << i << " of thread " << t;
    }
  }
}

// The child does not use the parent's userfaultfd: its stores to moved chunks are its own, and do not disturb the
// parent.
TEST_P(FaultTracker, AForkedChildMovesNoChunks) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer lets the signals of a forked child wait";
  for (std::uint64_t page = 0; page < 16; ++page) store(page);  // moved
  store(16), store(17), store(18);                              // one more, and it will be
  collect();
  const pid_t child = ::fork();
  if (child == 0) {
    for (std::uint64_t page = 0; page < kPages; ++page) store(page);
    for (std::uint64_t page = 0; page < kPages; ++page) {
      if (base_[page * host_page_bytes() + 17] != std::byte{static_cast<unsigned char>(page < 19 ? 2 : 1)}) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(collect(), Ranges{});
  for (std::uint64_t page = 0; page < kPages; ++page) {
    ASSERT_EQ(base_[page * host_page_bytes() + 17], std::byte{static_cast<unsigned char>(page < 19 ? 1 : 0)}) << page;
  }
  for (std::uint64_t page = 16; page < 32; ++page) store(page);
  EXPECT_EQ(collect(), pages(16, 16));
}

// However it was forked: without the handlers of pthread_atfork(3), which this call leaves out, and before its first
// store the parent has moved the chunk.
TEST_P(FaultTracker, AChildForkedWithoutHandlersStoresToItsOwnCopy) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer lets the signals of a forked child wait";
  int moved[2];
  ASSERT_EQ(::pipe(moved), 0);
  store(0), store(1);
  collect();
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    ::alarm(20);
    char byte = 0;
    (void)!::read(moved[0], &byte, 1);
    for (std::uint64_t page = 0; page < 8; ++page) store(page);
    for (std::uint64_t page = 0; page < 8; ++page) {
      if (base_[page * host_page_bytes() + 17] != std::byte{static_cast<unsigned char>(page < 2 ? 2 : 1)}) ::_exit(1);
    }
    ::_exit(0);
  }
  for (std::uint64_t page = 0; page < 4; ++page) store(page);
  collect();
  ASSERT_EQ(::write(moved[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(moved[0]);
  ::close(moved[1]);
  for (std::uint64_t page = 0; page < 8; ++page) store(page);
  EXPECT_EQ(collect(), pages(0, 8)) << "the child's stores opened pages of the parent";
}

// A page that the kernel does not let become writable: preparing says so. What became writable on the way there is
// captured whole rather than forgotten.
TEST_P(FaultTracker, PagesThatAFailedPrepareOpenedAreCaptured) {
  make_page_stay_read_only(5);
  EXPECT_FALSE(tracker_->prepare({5 * host_page_bytes(), 1}).ok());
  store(0);
  store(4);
  Ranges ranges;
  ASSERT_OK(tracker_->collect(kAllThreads, ranges));
  tracker_->accept();
  normalize(ranges);
  ASSERT_FALSE(ranges.empty());
  EXPECT_EQ(ranges.front().offset, 0u);
  EXPECT_GE(ranges.front().bytes, 5 * host_page_bytes());
  store(1);
  EXPECT_EQ(collect(), pages(1, 1));
}

// A process that may have no more addresses than it has already keeps its pages where they are.
TEST_P(FaultTracker, NoAddressesToMoveAChunk) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers need addresses of their own";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit addresses{};
        ::getrlimit(RLIMIT_AS, &addresses);
        addresses.rlim_cur = host_page_bytes();
        ::setrlimit(RLIMIT_AS, &addresses);
        for (std::uint64_t page = 0; page < 16; ++page) store(page);
        bool all = true;
        for (std::uint64_t page = 0; page < 16; ++page)
          all = all && base_[page * host_page_bytes() + 17] == std::byte{1};
        ::_exit(all ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

class ExplicitTracker : public ::testing::Test {
 protected:
  Ranges collect(ThreadNumber thread = kAllThreads) {
    Ranges ranges;
    EXPECT_OK(tracker_->collect(thread, ranges));
    tracker_->accept();
    return normal(ranges);
  }
  std::unique_ptr<Tracker> tracker_ = attach_explicit_tracker({});
};

// A thread takes what it touched itself, also among more touches than are kept one by one.
TEST_F(ExplicitTracker, TellsThreadsApart) {
  constexpr std::uint64_t kEach = 6000;
  const auto touch_all = [this](std::uint64_t from) {
    for (std::uint64_t i = 0; i < kEach; ++i) tracker_->touch({from + 16 * i, 4});
  };
  touch_all(0);
  std::thread([&] { touch_all(8); }).join();
  const Ranges mine = collect(this_thread_number());
  ASSERT_EQ(mine.size(), kEach);
  for (std::uint64_t i = 0; i < kEach; ++i) ASSERT_EQ(mine[i], (Range{16 * i, 4}));
  EXPECT_EQ(collect(this_thread_number()), Ranges{});
  const Ranges others = collect();
  ASSERT_EQ(others.size(), kEach);
  EXPECT_EQ(others.front(), (Range{8, 4}));
}

// A capture that came to nothing: the ranges are its thread's again.
TEST_F(ExplicitTracker, WhatIsGivenBackIsTakenAgain) {
  tracker_->touch({10, 4});
  Ranges ranges;
  EXPECT_OK(tracker_->collect(this_thread_number(), ranges));
  tracker_->give_back();
  tracker_->touch({20, 4});
  std::thread([this] { EXPECT_EQ(collect(this_thread_number()), Ranges{}); }).join();
  EXPECT_EQ(collect(this_thread_number()), (Ranges{{10, 4}, {20, 4}}));
}

// The same range touched again and again is kept a few times at most, also when more than usual came back from captures
// of nothing.
TEST_F(ExplicitTracker, KeepsLittleAfterAGiveBack) {
  constexpr std::uint64_t kEach = 3000;
  const auto touch_from = [this](std::uint64_t from) {
    for (std::uint64_t i = 0; i < kEach; ++i) tracker_->touch({(from + 2 * i) * 64, 8});
  };
  touch_from(0);
  Ranges ranges;
  ASSERT_OK(tracker_->collect(this_thread_number(), ranges));
  tracker_->give_back();
  std::thread([&] { touch_from(2 * kEach); }).join();
  std::thread([this] { EXPECT_TRUE(collect(this_thread_number()).empty()); }).join();
  for (std::uint64_t i = 0; i < 100'000; ++i) tracker_->touch({i % 2 * 128, 8});
  ranges.clear();
  ASSERT_OK(tracker_->collect(kAllThreads, ranges));
  tracker_->accept();
  EXPECT_LT(ranges.size(), 10 * kEach);
  EXPECT_EQ(normal(ranges).size(), 2 * kEach);
}

// Exactly the bytes that were told, once.
TEST_F(ExplicitTracker, GivesWhatItWasTold) {
  tracker_->touch({10, 4});
  tracker_->touch({14, 4});
  tracker_->touch({100, 1});
  tracker_->touch({12, 2});
  EXPECT_EQ(collect(), (Ranges{{10, 8}, {100, 1}}));
  EXPECT_EQ(collect(), Ranges{});
}

// More touches than it keeps one by one, in random order, against a set of bytes.
TEST_F(ExplicitTracker, AgreesWithASetOfBytes) {
  Random random(41);
  constexpr std::uint64_t kSpace = 1 << 18;
  for (int round = 0; round < 3; ++round) {
    std::vector<bool> touched(kSpace, false);
    for (int i = 0; i < 20'000; ++i) {
      const Range range{random.below(kSpace - 8), 1 + random.below(8)};
      tracker_->touch(range);
      std::fill_n(touched.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    std::vector<bool> seen(kSpace, false);
    for (const Range& range : collect())
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    ASSERT_TRUE(seen == touched) << round;
  }
}

// Every kind says how it works here, in one line.
TEST(Trackers, DescribeThemselves) {
  for (const TrackerKind kind : {TrackerKind::automatic, TrackerKind::scan, TrackerKind::touched, TrackerKind::fault,
                                 TrackerKind::instrumented}) {
    const std::string text = describe_tracker(kind);
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace memlith::test::tracker_test
