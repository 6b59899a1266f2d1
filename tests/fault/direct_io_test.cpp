// docs/guarantees.md, "What is assumed of the medium": a file system that takes O_DIRECT when a file is opened, and
// then refuses transfers of some sizes, costs speed and nothing else.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "support/region_words.hpp"

namespace {

// Transfers with O_DIRECT that the file system refuses.
struct Refusals {
  std::atomic<bool> active{false};
  std::atomic<std::uint64_t> reads_from{~std::uint64_t{0}};  // of so many bytes, or more
  std::atomic<std::uint64_t> writes_from{~std::uint64_t{0}};
  std::atomic<std::uint64_t> block{1};        // what offsets and lengths have to be multiples of
  std::atomic<std::uint64_t> writes_left{0};  // so many are taken before any is refused
  std::atomic<std::uint64_t> count{0};
} refusals;

bool refuses(int fd, std::uint64_t bytes, off_t offset, bool writes) {
  if (!refusals.active || (::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return false;
  const bool whole = bytes % refusals.block == 0 && static_cast<std::uint64_t>(offset) % refusals.block == 0;
  if (whole && bytes < (writes ? refusals.writes_from : refusals.reads_from)) return false;
  if (writes && refusals.writes_left > 0) {
    --refusals.writes_left;
    return false;
  }
  ++refusals.count;
  errno = EINVAL;
  return true;
}

}  // namespace

// In the place of the C library's: a file system below everything that this program does.
extern "C" {
ssize_t pread(int fd, void* target, size_t bytes, off_t offset) {
  return refuses(fd, bytes, offset, false) ? -1 : ::syscall(SYS_pread64, fd, target, bytes, offset);
}
ssize_t pwrite(int fd, const void* source, size_t bytes, off_t offset) {
  return refuses(fd, bytes, offset, true) ? -1 : ::syscall(SYS_pwrite64, fd, source, bytes, offset);
}
ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return refuses(fd, bytes, offset, true) ? -1 : ::syscall(SYS_pwritev, fd, pieces, count, offset, 0);
}
}

namespace memlith::test {
namespace {

using namespace core;

class RefusedDirectIo : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto volume = make_posix_volume(folder_.path());
    (void)must(volume->open("probe", OpenMode::create, Caching::buffered));
    if (!must(volume->open("probe", OpenMode::read_write, Caching::direct))->direct()) {
      GTEST_SKIP() << "no O_DIRECT on " << folder_.path();
    }
  }
  void TearDown() override {
    refusals.active = false;
    refusals.reads_from = refusals.writes_from = ~std::uint64_t{0};
    refusals.block = 1;
    refusals.writes_left = refusals.count = 0;
  }
  static StoreOptions options() {
    StoreOptions options;
    options.create = true;
    options.manual_checkpoint = true;
    options.log_bytes = 8 * kMiB;
    options.direct_replay_bytes_min = 0;
    return options;
  }
  std::unique_ptr<Volume> volume(IoBackend io = IoBackend::posix) const {
    return make_posix_volume(folder_ / "store", io);
  }
  // Small commits, some of several threads, a large one that is streamed, a checkpoint, and commits that are left for a
  // recovery.
  static void live(Store& store, std::uint64_t round) {
    RegionOptions wanted;
    wanted.create = true;
    wanted.size_bytes = 4 * kMiB;
    auto region = must(Region::open(store, "a", wanted));
    if (round > 1) {
      for (std::uint64_t page = 0; page < 4 * kMiB / kPageBytes; ++page) {
        ASSERT_EQ(get(*region, page * kPageBytes), round - 1) << "page " << page;
      }
    }
    put(*region, 0, round);
    ASSERT_OK(persist(*region));
    for (std::uint64_t page = 0; page < 4 * kMiB / kPageBytes; ++page) put(*region, page * kPageBytes, 0);
    ASSERT_OK(persist(*region));
    ASSERT_OK(store.checkpoint());
    for (std::uint64_t page = 0; page < 4 * kMiB / kPageBytes; ++page) put(*region, page * kPageBytes, round);
    ASSERT_OK(persist(*region));
    EXPECT_FALSE(store.log().poisoned());
  }
  // Each life ends as a kill would end it.
  void live_three_times(IoBackend io = IoBackend::posix) {
    for (std::uint64_t round = 1; round <= 3 && !HasFatalFailure(); ++round) {
      const auto here = volume(io);
      auto store = must(Store::open(*here, options()));
      live(*store, round);
    }
  }

  TempFolder folder_;
};

// The fault as it was reported: 512 bytes are read, 8192 are refused.
TEST_F(RefusedDirectIo, LargerReads) {
  refusals.reads_from = 8192;
  refusals.active = true;
  live_three_times();
  EXPECT_GT(refusals.count, 0u);
}

TEST_F(RefusedDirectIo, LargerWrites) {
  refusals.writes_from = 8192;
  refusals.active = true;
  live_three_times();
  EXPECT_GT(refusals.count, 0u);
}

TEST_F(RefusedDirectIo, AllWrites) {
  refusals.writes_from = 1;
  refusals.active = true;
  live_three_times();
  EXPECT_GT(refusals.count, 0u);
}

// Blocks of 512 bytes are refused, and of 4096 taken: the log is made for those, and goes past the page cache.
TEST_F(RefusedDirectIo, SmallBlocks) {
  refusals.block = 4096;
  refusals.active = true;
  live_three_times();
  const auto here = volume();
  const auto store = must(Store::open(*here, options()));
  EXPECT_TRUE(store->log().device().direct());
  EXPECT_EQ(store->log().superblock().block_bytes, 4096u);
}

// The file system begins to refuse while commits are under way, as one does that a store was copied to: at the n-th
// write.
TEST_F(RefusedDirectIo, InTheMiddle) {
  for (std::uint64_t taken = 0; taken < 12 && !HasFailure(); ++taken) {
    refusals.active = false;
    std::filesystem::remove_all(folder_ / "store");
    const auto here = volume();
    auto store = must(Store::open(*here, options()));
    ASSERT_TRUE(store->log().device().direct());
    refusals.writes_from = 1;
    refusals.writes_left = taken;
    refusals.count = 0;
    refusals.active = true;
    constexpr std::uint64_t kThreads = 3;
    RegionOptions wanted;
    wanted.create = true;
    wanted.size_bytes = 1 * kMiB;
    std::vector<std::unique_ptr<Region>> regions;
    for (std::uint64_t each = 0; each < kThreads; ++each) {
      regions.push_back(must(Region::open(*store, "r" + std::to_string(each), wanted)));
    }
    std::vector<std::thread> threads;
    for (auto& region : regions) {
      threads.emplace_back([&region] {
        for (std::uint64_t i = 1; i <= 20; ++i) {
          put(*region, 8 * i, i);
          EXPECT_OK(persist(*region));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    regions.clear();
    EXPECT_FALSE(store->log().device().direct());
    EXPECT_GT(refusals.count, 0u);
    store = nullptr;  // as a kill
    auto again = must(Store::open(*volume(), options()));
    for (std::uint64_t each = 0; each < kThreads; ++each) {
      const auto region = must(Region::open(*again, "r" + std::to_string(each), {}));
      for (std::uint64_t i = 1; i <= 20; ++i) EXPECT_EQ(get(*region, 8 * i), i) << "refused after " << taken;
    }
  }
}

// With direct I/O turned off none is asked for.
TEST_F(RefusedDirectIo, TurnedOff) {
  refusals.reads_from = refusals.writes_from = 1;
  refusals.active = true;
  for (std::uint64_t round = 1; round <= 2; ++round) {
    StoreOptions buffered = options();
    buffered.direct_io = false;
    const auto here = volume();
    auto store = must(Store::open(*here, buffered));
    EXPECT_FALSE(store->log().device().direct());
    live(*store, round);
  }
  EXPECT_EQ(refusals.count, 0u);
}

// The kernel's own refusal, of memory and offsets that are no multiples of a sector, by each way to transfer.
class MisalignedDirectIo : public RefusedDirectIo, public ::testing::WithParamInterface<IoBackend> {};
std::string name_of_way(const ::testing::TestParamInfo<IoBackend>& given) {
  constexpr const char* kNames[] = {"Automatic", "Posix", "Uring"};
  return kNames[static_cast<std::uint32_t>(given.param)];
}
INSTANTIATE_TEST_SUITE_P(By, MisalignedDirectIo,
                         ::testing::Values(IoBackend::automatic, IoBackend::posix, IoBackend::uring), name_of_way);

TEST_P(MisalignedDirectIo, GoesThroughThePageCache) {
  const auto here = make_posix_volume(folder_.path(), GetParam());
  auto made = here->open("a", OpenMode::create, Caching::buffered);
  if (!made.ok() && made.error().category == Errc::unsupported) GTEST_SKIP() << "no io_uring here";
  EXPECT_OK(made.status());
  AlignedBuffer memory = must(AlignedBuffer::allocate(64 * kKiB));
  for (std::uint64_t i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const bool queued : {false, true}) {
    const auto device = must(here->open("a", OpenMode::read_write, Caching::direct));
    ASSERT_TRUE(device->direct());
    ASSERT_OK(device->write(0, memory.span()));
    EXPECT_TRUE(device->direct());
    const auto odd = memory.span().subspan(1, 5000);
    if (queued) {
      // Whole ones are in flight on both sides of the one that is refused.
      const auto queue = device->make_queue(3);
      ASSERT_OK(queue->write(0, 64 * kKiB, memory.span()));
      ASSERT_OK(queue->write(1, 3, odd));
      ASSERT_OK(queue->write(2, 128 * kKiB, memory.span()));
      ASSERT_OK(queue->wait_all());
    } else {
      ASSERT_OK(device->write(3, odd));
    }
    EXPECT_FALSE(device->direct());
    ASSERT_OK(device->flush());
    std::vector<std::byte> back(odd.size());
    ASSERT_OK(device->read(3, back));
    EXPECT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));
    back.resize(3);
    ASSERT_OK(device->read(0, back));
    EXPECT_TRUE(std::equal(back.begin(), back.end(), memory.data()));
    if (queued) {
      back.resize(64 * kKiB);
      for (const std::uint64_t offset : {64 * kKiB, 128 * kKiB}) {
        ASSERT_OK(device->read(offset, back));
        EXPECT_TRUE(std::equal(back.begin(), back.end(), memory.data()));
      }
    }
    const auto reading = must(here->open("a", OpenMode::read_only, Caching::direct));
    ASSERT_TRUE(reading->direct());
    if (queued) {
      const auto queue = reading->make_queue(2);
      back.resize(5000);
      ASSERT_OK(queue->read(0, 3, back));
      ASSERT_OK(queue->wait_all());
      EXPECT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));
    } else {
      back.resize(5000);
      ASSERT_OK(reading->read(3, back));
      EXPECT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));
    }
    EXPECT_FALSE(reading->direct());
  }
}

}  // namespace
}  // namespace memlith::test
