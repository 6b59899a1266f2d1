// Random calls of the whole C interface, held against a model (docs/testing.md, "model"). Defends docs/guarantees.md,
// "Call by call".
//
// MEMLITH_SEED=N repeats the run of seed N.
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/world.hpp"
#include "support/backends.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace {
std::atomic<std::int64_t> transfers_left{0};
std::atomic<bool> has_failed{false};
std::atomic<bool> is_full{false};
std::atomic<bool> has_refused{false};
bool fails_now() {
  if (transfers_left.load() == 0 || transfers_left.fetch_sub(1) != 1) return false;
  has_failed = true;
  errno = EIO;
  return true;
}
}  // namespace

// The library's transfers come through here: the linker's --wrap.
extern "C" {
ssize_t __real_pwritev(int fd, const iovec* pieces, int count, off_t offset);
int __real_fdatasync(int fd);
ssize_t __wrap_pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  return fails_now() ? -1 : __real_pwritev(fd, pieces, count, offset);
}
int __wrap_fdatasync(int fd) { return fails_now() ? -1 : __real_fdatasync(fd); }
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (!is_full) return __real_fallocate(fd, mode, offset, bytes);
  has_refused = true;
  errno = ENOSPC;
  return -1;
}
}

namespace memlith::test {

void fail_transfer(std::int64_t which) {
  has_failed = false;
  transfers_left = which;
}
bool transfer_failed() { return has_failed; }

FullDisk::FullDisk() {
  has_refused = false;
  is_full = true;
}
FullDisk::~FullDisk() { is_full = false; }
bool FullDisk::refused() const { return has_refused; }

namespace {

// `./dev test` has less time than `./dev test all`.
const std::uint64_t kCalls = kSanitized || std::getenv("MEMLITH_TEST_SHORT") != nullptr ? 100'000 : 1'000'000;
const std::uint64_t kCallsOnDisk = kCalls / 50;
constexpr int kKills = kSanitized ? 10 : 40;
constexpr int kFailures = kSanitized ? 30 : 200;

// The functions that the headers declare which memlith.h includes.
std::vector<std::string> declared() {
  std::vector<std::string> names;
  std::string header;
  for (const char* name : {"status.h", "store.h", "region.h", "transaction.h"}) {
    header += read_file(std::string(MEMLITH_HEADERS "/") + name);
  }
  const std::string mark = "MEMLITH_API ";
  for (std::size_t at = header.find(mark); at != std::string::npos; at = header.find(mark, at + 1)) {
    const std::size_t open = header.find('(', at);
    const std::size_t name = header.rfind("memlith_", open);
    if (open != std::string::npos && name != std::string::npos && name > at) {
      names.push_back(header.substr(name, open - name));
    }
  }
  return names;
}

// Every call returns what the model says, and every store holds what the model holds, whenever it is looked at.
TEST(Model, RandomCalls) {
  Random random(seed());
  std::uint64_t wanted = 0;
  // A part of it on the disk of the tests, the rest in memory, where a flush costs nothing.
  for (const bool on_disk : {true, false}) {
    wanted = on_disk ? kCallsOnDisk : kCalls;
    while (call_count() < wanted && !HasFailure()) {
      const TempFolder folder(on_disk ? "" : "/dev/shm");
      World world(std::filesystem::canonical(folder.path()), seed(), random.below(~std::uint32_t{0}));
      for (int i = 0; i < 4000 && call_count() < wanted && !HasFailure(); ++i) world.step();
      if (!HasFailure()) world.reopen_and_compare();
    }
  }
  const auto names = declared();
  EXPECT_GE(names.size(), 30u);
  for (const std::string& name : names) {
    EXPECT_GT(calls()[name], 0u) << name << " was never called: give it a step in tests/model/steps.cpp";
  }
  for (const auto& [name, count] : calls())
    std::printf("%10llu %s\n", static_cast<unsigned long long>(count), name.c_str());
  std::printf("%10llu calls\n", static_cast<unsigned long long>(call_count()));
  EXPECT_TRUE(HasFailure() || call_count() >= wanted);
}

// ---- what a crash and a failing disk leave -------------------------------------------------------------------------

struct Opened {
  memlith_store* store = nullptr;
  std::array<memlith_region*, Stream::kRegions> regions{};
  std::array<unsigned char*, Stream::kRegions> memory{};
};

Opened open_stream(const std::string& path, std::uint32_t tracker, std::uint32_t io = MEMLITH_IO_POSIX) {
  Opened opened;
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.io = io;
  options.log_bytes = 1 << 20;
  if (memlith_store_open(path.c_str(), &options, &opened.store) != MEMLITH_OK) return opened;
  for (std::uint64_t i = 0; i < Stream::kRegions; ++i) {
    memlith_region_options given{};
    given.struct_size = sizeof given;
    given.flags = MEMLITH_CREATE;
    given.tracker = tracker;
    given.size = Stream::kBytes;
    if (memlith_region_open(opened.store, i == 0 ? "a" : "b", &given, &opened.regions[i]) != MEMLITH_OK) return {};
    opened.memory[i] = static_cast<unsigned char*>(memlith_region_address(opened.regions[i]));
  }
  return opened;
}

struct Progress {
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> acknowledged;
};

// Makes one commit after another; ends when one fails.
std::int32_t run_stream(const Opened& opened, const Stream& stream, std::uint64_t from, Progress& progress,
                        std::uint64_t most) {
  for (std::uint64_t n = from + 1; n <= from + most; ++n) {
    progress.started = n;
    stream.apply(n, opened.memory, [&](std::uint64_t region, Range range) {
      (void)memlith_touch(opened.regions[region], opened.memory[region] + range.offset, range.bytes);
    });
    std::int32_t code = MEMLITH_OK;
    if (n % 3 == 0) {
      std::uint64_t ticket = 0;
      code = memlith_persist_async(opened.regions.data(), Stream::kRegions, MEMLITH_SCOPE_PROCESS, &ticket);
      if (code == MEMLITH_OK && n % 2 == 0) code = memlith_wait(opened.store, ticket);
      if (n % 2 != 0 && code == MEMLITH_OK) continue;  // not acknowledged: a later one will take it along
    } else {
      code = memlith_persist(opened.regions.data(), Stream::kRegions, MEMLITH_SCOPE_PROCESS);
    }
    if (code != MEMLITH_OK) return code;
    progress.acknowledged = n;
  }
  return MEMLITH_OK;
}

// Checks that the found state is that after one commit, at or after the last acknowledged one, and at or before the
// last that was begun. Brings `state` there and returns its number.
std::optional<std::uint64_t> find_commit(const Opened& opened, const Stream& stream, Stream::State& state,
                                         std::uint64_t at, const Progress& progress) {
  for (;; ++at) {
    bool same = at >= progress.acknowledged;
    for (std::uint64_t i = 0; same && i < Stream::kRegions; ++i) {
      same = std::memcmp(opened.memory[i], state[i].data(), Stream::kBytes) == 0;
    }
    if (same) return at;
    if (at >= progress.started) return std::nullopt;
    stream.apply(at + 1, {state[0].data(), state[1].data()}, [](std::uint64_t, Range) {});
  }
}

class Crashes : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(By, Crashes,
                         ::testing::Values(MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT),
                         [](const auto& given) {
                           return given.param == MEMLITH_TRACKER_SCAN    ? "Scan"
                                  : given.param == MEMLITH_TRACKER_FAULT ? "Fault"
                                                                         : "Explicit";
                         });

// A program that is killed at any moment finds the state of one commit, and goes on from there.
void kill_and_look(const std::string& path, std::uint32_t tracker, std::uint32_t io) {
  Random random(seed());
  const Stream stream(seed());
  const SharedWithChildren<Progress> progress;
  Stream::State state = Stream::empty();
  std::uint64_t at = 0;
  for (int kill = 0; kill < kKills && !::testing::Test::HasFailure(); ++kill) {
    progress->started = progress->acknowledged = at;
    const auto live = [&] {
      const Opened opened = open_stream(path, tracker, io);
      if (opened.store == nullptr) ::_exit(1);
      if (random.one_in(2)) (void)memlith_store_set_window(opened.store, 5, 0);
      ::_exit(run_stream(opened, stream, at, *progress, ~std::uint64_t{0} / 2) == MEMLITH_OK ? 2 : 3);
    };
    // Three of four are killed among their commits, however slow the machine is; the others perhaps while they open the
    // store.
    const std::uint64_t wanted = kill % 4 == 3 ? 0 : random.below(10) + 1;
    KilledProcess child;
    child.start(live, [&] { return progress->acknowledged >= at + wanted; });
    child.kill_working(random.below(5000));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed();
    const Opened opened = open_stream(path, tracker, io);
    char why[400] = "";
    memlith_last_error(why, sizeof why);
    ASSERT_NE(opened.store, nullptr) << why;
    const auto found = find_commit(opened, stream, state, at, *progress);
    ASSERT_TRUE(found.has_value()) << "no commit from " << progress->acknowledged << " to " << progress->started
                                   << "; seed " << seed();
    at = *found;
    EXPECT_EQ(memlith_store_close(opened.store), MEMLITH_OK);
  }
  EXPECT_GT(at, static_cast<std::uint64_t>(kKills) / 2) << "hardly anything was committed";
}

TEST_P(Crashes, AKilledProgramFindsOneCommit) {
  const TempFolder folder;
  kill_and_look(folder / "store", GetParam(), MEMLITH_IO_POSIX);
}

class KilledOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backend, KilledOn, ::testing::Values("FileUring", "RawLoop"),
                         [](const auto& given) { return std::string(given.param); });
TEST_P(KilledOn, AKilledProgramFindsOneCommit) {
  const Backend backend(GetParam());
  if (!backend.lacks().empty()) GTEST_SKIP() << backend.lacks();
  kill_and_look(backend.path(), MEMLITH_TRACKER_SCAN, backend.io());
}

// After a failed write or flush nothing more is acknowledged, and the next opening finds one commit.
TEST_P(Crashes, AFailedTransferPoisonsAndLosesNothing) {
  const TempFolder folder("/dev/shm");
  Random random(seed());
  const Stream stream(seed());
  Stream::State state = Stream::empty();
  std::uint64_t at = 0;
  int struck = 0;
  for (int failure = 0; failure < kFailures && !HasFailure(); ++failure) {
    Progress progress{at, at};
    Opened opened = open_stream(folder / "store", GetParam());
    ASSERT_NE(opened.store, nullptr);
    fail_transfer(static_cast<std::int64_t>(1 + random.below(60)));
    std::int32_t code = run_stream(opened, stream, at, progress, 40);
    // The failure may have struck in the background; a checkpoint and an empty persist meet whatever there was.
    if (code == MEMLITH_OK && random.one_in(2)) code = memlith_store_checkpoint(opened.store);
    const bool failed = transfer_failed();
    fail_transfer(0);
    if (failed) {
      ++struck;
      if (code != MEMLITH_OK) {
        EXPECT_TRUE(memlith_category(code) == MEMLITH_IO || memlith_category(code) == MEMLITH_POISONED) << code;
        opened.memory[0][0] ^= 1;
        (void)memlith_touch(opened.regions[0], opened.memory[0], 1);
        EXPECT_EQ(memlith_category(memlith_persist(opened.regions.data(), 1, MEMLITH_SCOPE_PROCESS)), MEMLITH_POISONED);
        std::uint64_t ticket = 0;
        EXPECT_EQ(memlith_category(memlith_persist_async(opened.regions.data(), 1, MEMLITH_SCOPE_PROCESS, &ticket)),
                  MEMLITH_POISONED);
        EXPECT_EQ(memlith_category(memlith_store_checkpoint(opened.store)), MEMLITH_POISONED);
      }
    } else {
      EXPECT_EQ(code, MEMLITH_OK);
    }
    const std::int32_t closed = memlith_store_close(opened.store);
    EXPECT_TRUE(failed || closed == MEMLITH_OK) << closed;
    opened = open_stream(folder / "store", GetParam());
    ASSERT_NE(opened.store, nullptr);
    const auto found = find_commit(opened, stream, state, at, progress);
    ASSERT_TRUE(found.has_value()) << "no commit from " << progress.acknowledged << " to " << progress.started
                                   << "; seed " << seed();
    at = *found;
    EXPECT_EQ(memlith_store_close(opened.store), MEMLITH_OK);
  }
  EXPECT_GT(struck, kFailures / 3) << "the failures hardly ever struck";
}

}  // namespace
}  // namespace memlith::test
