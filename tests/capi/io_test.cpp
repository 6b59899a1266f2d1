// memlith.h, "how the disk is read and written": the same store in each way, and a kernel that refuses io_uring.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "memlith/memlith.h"
#include "private/options.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::io_test {
namespace {

constexpr std::uint64_t kBytes = 4 << 20;

std::string message() {
  std::array<char, 512> text{};
  memlith_last_error(text.data(), text.size());
  return text.data();
}

memlith_store* open_store(const std::string& path, std::uint32_t io, std::int32_t wanted = MEMLITH_OK) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.io = io;
  memlith_store* store = nullptr;
  EXPECT_EQ(memlith_category(memlith_store_open(path.c_str(), &options, &store)), wanted) << message();
  return store;
}

std::uint32_t io_of(memlith_store* store) {
  memlith_store_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(memlith_store_get_info(store, &info), MEMLITH_OK);
  return info.io;
}

memlith_region* open_region(memlith_store* store) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = kBytes;
  memlith_region* region = nullptr;
  EXPECT_EQ(memlith_region_open(store, "a", &options, &region), MEMLITH_OK) << message();
  return region;
}

// Small commits, a large one that is streamed, a checkpoint; left as a kill would, and recovered in the next way.
TEST(Io, EachWayReadsWhatTheOthersWrote) {
  const TempFolder folder;
  const std::string path = folder / "store";
  constexpr std::array<std::uint32_t, 4> kWays{MEMLITH_IO_AUTO, MEMLITH_IO_POSIX, MEMLITH_IO_URING, MEMLITH_IO_AUTO};
  for (std::size_t round = 0; round < kWays.size(); ++round) {
    const auto value = static_cast<unsigned char>(round + 1);
    const pid_t child = ::fork();
    if (child == 0) {
      memlith_store* const store = open_store(path, kWays[round]);
      memlith_region* region = open_region(store);
      auto* const bytes = static_cast<unsigned char*>(memlith_region_address(region));
      for (std::uint64_t at = 0; at < kBytes; at += 4096) {
        if (bytes[at] != value - 1) ::_exit(1);
      }
      std::memset(bytes, value, kBytes);
      if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) ::_exit(2);
      if (round % 2 == 0 && memlith_store_checkpoint(store) != MEMLITH_OK) ::_exit(3);
      for (int i = 0; i < 5; ++i) {
        bytes[100] = static_cast<unsigned char>(value + i);
        if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) ::_exit(4);
      }
      ::_exit(::testing::Test::HasFailure() ? 5 : 0);  // no close
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "in round " << round;
  }
  memlith_store* const store = open_store(path, MEMLITH_IO_POSIX);
  EXPECT_EQ(io_of(store), MEMLITH_IO_POSIX);
  const auto* const bytes = static_cast<const unsigned char*>(memlith_region_address(open_region(store)));
  EXPECT_EQ(bytes[0], kWays.size());
  EXPECT_EQ(bytes[100], kWays.size() + 4);
  EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
}

// From here on io_uring_setup(2) and io_uring_enter(2) fail in this process, as they do in many containers.
bool refuse_uring() {
  std::array<sock_filter, 5> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A backend asked for by name is refused with a reason; one left to memlith works without, and says so.
void use_without_uring(const std::string& path) {
  open_store(path, MEMLITH_IO_URING, MEMLITH_UNSUPPORTED);
  EXPECT_NE(message().find("io_uring was requested"), std::string::npos) << message();
  memlith_store* const store = open_store(path, MEMLITH_IO_AUTO);
  EXPECT_EQ(io_of(store), MEMLITH_IO_POSIX);
  memlith_region* region = open_region(store);
  std::memset(memlith_region_address(region), 7, kBytes);
  EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK) << message();
}

// Runs `body` in a child, which ends without closing, so that the next opening recovers; then looks at the last byte of
// the region. The child ends with 77 where it cannot be kept from io_uring.
template <typename Body>
void in_child_without_close(const std::string& path, unsigned char last_byte, const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp filters here";
  ASSERT_EQ(status, 0);
  memlith_store* const store = open_store(path, MEMLITH_IO_AUTO);
  EXPECT_EQ(static_cast<const unsigned char*>(memlith_region_address(open_region(store)))[kBytes - 1], last_byte);
  EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
}

// A sandbox that is put up when the store is open already: large commits, which would go by io_uring, go without.
TEST(Io, ASandboxPutUpLater) {
  for (const std::uint32_t io : {std::uint32_t{MEMLITH_IO_AUTO}, MEMLITH_IO_URING}) {
    const TempFolder folder;
    const std::string path = folder / "store";
    in_child_without_close(path, 8, [&] {
      memlith_store* const store = open_store(path, io);
      memlith_region* region = open_region(store);
      std::memset(memlith_region_address(region), 6, kBytes);
      if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) ::_exit(1);
      if (!refuse_uring()) ::_exit(77);
      std::memset(memlith_region_address(region), 7, kBytes);
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK) << message();
      EXPECT_EQ(memlith_store_checkpoint(store), MEMLITH_OK) << message();
      std::memset(memlith_region_address(region), 8, kBytes);
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK) << message();
    });
  }
}

TEST(Io, AKernelThatRefusesUring) {
  const TempFolder folder;
  const std::string path = folder / "store";
  in_child_without_close(path, 7, [&] {
    if (!refuse_uring()) ::_exit(77);
    use_without_uring(path);
  });
}

// On a file system in memory the opening that makes a store says that a power loss takes it, and the info says so
// later.
TEST(Io, AStoreInMemorySaysThatItForgets) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  const TempFolder memory("/dev/shm");
  const TempFolder disk;
  for (const bool forgets : {true, false}) {
    const std::string path = (forgets ? memory : disk) / "store";
    std::string told;
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.log_bytes = 1 << 20;
    options.notice = [](void* context, const char* sentence) { *static_cast<std::string*>(context) += sentence; };
    options.notice_context = &told;
    for (const bool made : {true, false}) {
      told.clear();
      memlith_store* store = nullptr;
      ASSERT_EQ(memlith_store_open(path.c_str(), &options, &store), MEMLITH_OK) << message();
      memlith_store_info info{};
      info.struct_size = sizeof info;
      EXPECT_EQ(memlith_store_get_info(store, &info), MEMLITH_OK);
      // The other folder may lie in memory as well.
      const bool in_memory = forgets || info.medium == MEMLITH_MEDIUM_MEMORY;
      EXPECT_EQ(info.medium == MEMLITH_MEDIUM_MEMORY, in_memory);
      EXPECT_EQ(told.empty(), !(made && in_memory)) << told;
      if (made && forgets) {
        EXPECT_NE(told.find(path), std::string::npos) << told;
      }
      EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
    }
  }
}

// ---- byte-addressable memory (docs/dax.md), for which a file in memory stands ------------------------------------

class DaxStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  }
  TempFolder folder_{::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ""};
};

memlith_region* open_tracked(memlith_store* store, std::uint32_t tracker) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = kBytes;
  options.tracker = tracker;
  memlith_region* region = nullptr;
  const std::int32_t code = memlith_region_open(store, "a", &options, &region);
  if (code != MEMLITH_OK && memlith_category(code) == MEMLITH_UNSUPPORTED) return nullptr;
  EXPECT_EQ(code, MEMLITH_OK) << message();
  return region;
}

// The opening that makes the store says loudly what it is; every tracker finds what the one before it left, through the
// log and through checkpoints; nothing that was not stored to is captured, although all pages were copied.
TEST_F(DaxStore, LivesWithEveryTracker) {
  const std::string path = folder_ / "store";
  std::string told;
  {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.io = MEMLITH_IO_DAX;
    options.notice = [](void* context, const char* sentence) { *static_cast<std::string*>(context) += sentence; };
    options.notice_context = &told;
    memlith_store* store = nullptr;
    ASSERT_EQ(memlith_store_open(path.c_str(), &options, &store), MEMLITH_OK) << message();
    ASSERT_EQ(memlith_store_close(store), MEMLITH_OK);
    EXPECT_NE(told.find("EMULATED"), std::string::npos) << told;
  }
  unsigned char value = 0;
  for (const std::uint32_t tracker :
       {MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT, MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT}) {
    for (const bool checkpoint : {false, true}) {
      memlith_store* const store = open_store(path, MEMLITH_IO_DAX);
      EXPECT_EQ(io_of(store), MEMLITH_IO_DAX);
      memlith_region* region = open_tracked(store, tracker);
      if (region != nullptr) {
        auto* const bytes = static_cast<unsigned char*>(memlith_region_address(region));
        ASSERT_EQ(bytes[12345], value);
        ASSERT_EQ(bytes[kBytes - 1], value);
        memlith_store_info before{};
        before.struct_size = sizeof before;
        ASSERT_EQ(memlith_store_get_info(store, &before), MEMLITH_OK);
        EXPECT_EQ(before.log_block_bytes, 64u);
        ++value;
        bytes[12345] = value;
        bytes[kBytes - 1] = value;
        memlith_touch(region, bytes + 12345, 1);
        memlith_touch(region, bytes + kBytes - 1, 1);
        ASSERT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK) << message();
        memlith_store_info after = before;
        ASSERT_EQ(memlith_store_get_info(store, &after), MEMLITH_OK);
        EXPECT_LE(after.captured_bytes - before.captured_bytes,
                  2 * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
        if (checkpoint) {
          ASSERT_EQ(memlith_store_checkpoint(store), MEMLITH_OK);
        }
      }
      ASSERT_EQ(memlith_store_close(store), MEMLITH_OK);
    }
  }
}

// Only DAX may write behind a frame of lines; reading needs nothing.
TEST_F(DaxStore, IsRefusedToWritersOfSectors) {
  const std::string path = folder_ / "store";
  ASSERT_EQ(memlith_store_close(open_store(path, MEMLITH_IO_DAX)), MEMLITH_OK);
  open_store(path, MEMLITH_IO_AUTO, MEMLITH_UNSUPPORTED);
  EXPECT_NE(message().find("io = DAX"), std::string::npos) << message();
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_READ_ONLY;
  memlith_store* store = nullptr;
  ASSERT_EQ(memlith_store_open(path.c_str(), &options, &store), MEMLITH_OK) << message();
  EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
  // A store with sectors may be written by lines.
  const std::string sectors = folder_ / "sectors";
  ASSERT_EQ(memlith_store_close(open_store(sectors, MEMLITH_IO_POSIX)), MEMLITH_OK);
  ASSERT_EQ(memlith_store_close(open_store(sectors, MEMLITH_IO_DAX)), MEMLITH_OK);
  ASSERT_EQ(memlith_store_close(open_store(sectors, MEMLITH_IO_POSIX)), MEMLITH_OK);
}

// A child persists a number in two pages and tells it; it is killed at any moment. Both pages have the same number
// afterwards, and no number that was told is lost.
TEST_F(DaxStore, SurvivesKills) {
  const std::string path = folder_ / "store";
  std::uint64_t last = 0;
  const SharedWithChildren<std::atomic<std::uint64_t>> told;
  const SharedWithChildren<std::atomic<int>> times;
  for (int round = 0; round < 20; ++round) {
    const auto live = [&] {
      memlith_store* const store = open_store(path, MEMLITH_IO_DAX);
      memlith_region* region = open_tracked(store, MEMLITH_TRACKER_EXPLICIT);
      auto* const bytes = static_cast<char*>(memlith_region_address(region));
      std::uint64_t number = 0;
      std::memcpy(&number, bytes, sizeof number);
      for (;;) {
        ++number;
        for (char* const place : {bytes, bytes + 8192 + 60}) {
          std::memcpy(place, &number, sizeof number);
          memlith_touch(region, place, sizeof number);
        }
        if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) ::_exit(1);
        if (number % 1000 == 0 && memlith_store_checkpoint(store) != MEMLITH_OK) ::_exit(2);
        *told = number;
        ++*times;
      }
    };
    KilledProcess child;
    *times = 0;
    child.start(live, [&] { return *times > round * 157; });
    child.kill_working();
    ASSERT_FALSE(HasFailure());
    memlith_store* const store = open_store(path, MEMLITH_IO_DAX);
    const auto* const bytes =
        static_cast<const char*>(memlith_region_address(open_tracked(store, MEMLITH_TRACKER_EXPLICIT)));
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::memcpy(&first, bytes, sizeof first);
    std::memcpy(&second, bytes + 8192 + 60, sizeof second);
    EXPECT_EQ(first, second);
    EXPECT_GE(first, *told);
    EXPECT_GT(*told, last);
    last = first;
    ASSERT_EQ(memlith_store_close(store), MEMLITH_OK);
  }
}

// Without direct I/O, by the caller's wish.
TEST(Io, DirectIoCanBeTurnedOff) {
  const TempFolder folder;
  for (const std::uint32_t flags : {MEMLITH_OPEN_CREATE | MEMLITH_OPEN_BUFFERED, MEMLITH_OPEN_BUFFERED + 0}) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    options.log_bytes = 1 << 20;
    memlith_store* store = nullptr;
    ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), MEMLITH_OK) << message();
    memlith_store_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(memlith_store_get_info(store, &info), MEMLITH_OK);
    EXPECT_EQ(info.direct_io, 0u);
    EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
  }
}

}  // namespace
}  // namespace memlith::test::io_test
