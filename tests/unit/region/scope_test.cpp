// docs/guarantees.md, "Whose stores", "memlith_persist_async", "memlith_rollback", "fork".
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/host.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"
#include "support/sanitizers.hpp"

namespace memlith::test::scope_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kPageBytes;

// The narrowest scope that the region's tracker can tell.
Scope own(const Region& region) { return region.tracker()->knows_threads() ? Scope::thread : Scope::process; }
Result<Lsn> capture(Region& region) {
  Region* const one = &region;
  return Region::capture({&one, 1}, own(region), false);
}
Status rollback(Region& region, Scope scope) {
  Region* const one = &region;
  return Region::rollback({&one, 1}, scope);
}
class Scopes : public ::testing::TestWithParam<TrackerKind> {
 protected:
  RegionWorld world_{GetParam(), tiny_options()};
};
INSTANTIATE_TEST_SUITE_P(By, Scopes,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// A thread's persist leaves another's stores out, a process's takes them; scan refuses rather than take too much.
TEST_P(Scopes, ThreadAndProcess) {
  const bool knows_threads = GetParam() != TrackerKind::scan || works_by_faults(GetParam());
  Region& region = world_.open("a", 64 * host_page_bytes());
  put(region, 0, 1);
  std::thread([&] { put(region, host_page_bytes(), 2); }).join();
  if (!knows_threads) {
    EXPECT_EQ(persist(region, Scope::thread).category, Errc::unsupported);
    EXPECT_NE(last_error_text().find("fault"), std::string::npos);
  } else {
    ASSERT_OK(persist(region, Scope::thread));
  }
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 0), knows_threads ? 1u : 0u);
  EXPECT_EQ(get(again, host_page_bytes()), 0u);
  put(again, 0, 3);
  std::thread([&] { put(again, host_page_bytes(), 4); }).join();
  ASSERT_OK(persist(again, Scope::process));
  world_.crash();
  Region& last = world_.open("a");
  EXPECT_EQ(get(last, 0), 3u);
  EXPECT_EQ(get(last, host_page_bytes()), 4u);
}

// The scope is an explicit choice, whatever tracker was named: a persist that names no scope takes every
// thread's stores. (Two threads store to one page here, which `fault` counts as the page of the first thread.)
TEST_P(Scopes, TheDefaultIsTheProcess) {
  Region& region = world_.open("a", kSize);
  Region* const one = &region;
  std::thread([&] { put(region, 0, 1); }).join();
  put(region, 8, 2);
  ASSERT_OK(Region::persist({&one, 1}));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 0), 1u);
  EXPECT_EQ(get(again, 8), 2u);
}

// An asynchronous persist becomes durable by itself; a ticket that is durable is waited for in no time.
TEST_P(Scopes, AsynchronousPersistsBecomeDurable) {
  Region& region = world_.open("a", kSize);
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  world_.store().set_durable_eventfd(fd);
  put(region, 8, 1);
  const Lsn end = must(capture(region));
  world_.store().flush_soon(end);
  put(region, 8, 2);  // in flight or not, this is not in it
  while (world_.store().log().durable_lsn() < end) {
    pollfd ready{fd, POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 10'000), 1) << "the eventfd was not raised";
    std::uint64_t count = 0;
    ASSERT_EQ(::read(fd, &count, sizeof count), 8);
  }
  ASSERT_OK(world_.store().sync(end));
  world_.store().set_durable_eventfd(-1);
  ::close(fd);
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 8), 1u);
}

// Within a window captures share their flushes; waiting for one ends the waiting of all before it.
TEST_P(Scopes, AWindowGathersCaptures) {
  StoreOptions options = tiny_options();
  options.log.batch_bytes = 64 * kKiB;
  RegionWorld world(GetParam(), options);
  Store& store = world.store();
  store.set_flush_window({60'000, 1ull << 30});
  Region& region = world.open("a", kSize);
  const std::uint64_t batches = store.log().counters().batches.load();
  Lsn end;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    put(region, 8 * i, i);
    end = must(capture(region));
    store.flush_soon(end);
  }
  EXPECT_LT(store.log().durable_lsn(), end) << "a window of a minute was over at once";
  ASSERT_OK(store.sync(end));
  EXPECT_EQ(store.log().counters().batches.load(), batches + 1);
  // Bytes end the window too, and so does setting another.
  store.set_flush_window({60'000, 1});
  put(region, 8, 7);
  end = must(capture(region));
  store.flush_soon(end);
  while (store.log().durable_lsn() < end) std::this_thread::yield();
  store.set_flush_window({60'000, 1ull << 30});
  put(region, 8, 8);
  end = must(capture(region));
  store.flush_soon(end);
  store.set_flush_window({0, 1});
  while (store.log().durable_lsn() < end) std::this_thread::yield();
}

// Memory goes back to the last capture, and is tracked as before from there.
TEST_P(Scopes, RollbackGoesBackToTheLastCapture) {
  Region& region = world_.open("a", kSize);
  put(region, 0, 1);
  put(region, 5 * kPageBytes, 1);
  ASSERT_OK(persist(region, own(region)));
  for (int round = 0; round < 3; ++round) {
    put(region, 0, 2);
    put(region, 8, 2);
    put(region, 7 * kPageBytes, 2);
    ASSERT_OK(rollback(region, own(region)));
    EXPECT_EQ(get(region, 0), 1u);
    EXPECT_EQ(get(region, 8), 0u);
    EXPECT_EQ(get(region, 7 * kPageBytes), 0u);
    EXPECT_EQ(get(region, 5 * kPageBytes), 1u);
  }
  const std::uint64_t frames = world_.frames();
  ASSERT_OK(persist(region, Scope::process));
  EXPECT_EQ(world_.frames(), frames) << "something was left to persist";
  put(region, 8, 3);
  ASSERT_OK(persist(region, own(region)));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 1u);
  EXPECT_EQ(get(world_["a"], 8), 3u);
}

// Where some pages can be had from home only, and home cannot be made ready, none is rolled back: not those that were
// kept either.
TEST_P(Scopes, ARollbackThatFailsUndoesNothing) {
  if (GetParam() != TrackerKind::fault) GTEST_SKIP() << "keeps no pages";
  Region& region = world_.open("a", 64 * host_page_bytes());
  std::byte* const closed = region.address() + 5 * host_page_bytes();
  put(region, 0, 1);
  put(region, 9 * host_page_bytes(), 1);
  must(capture(region));
  put(region, 0, 2);  // kept
  // The kernel refuses to make one page writable, and the attempt has made unknown other pages writable.
  const std::string file = world_.folder() / "file";
  write_file(file, std::string(host_page_bytes(), 0));
  const int fd = ::open(file.c_str(), O_RDONLY);
  ASSERT_EQ(::mmap(closed, host_page_bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0), closed);
  ::close(fd);
  EXPECT_FALSE(region.prepare(closed, 1).ok());
  ASSERT_EQ(::mmap(closed, host_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            closed);
  put(region, 9 * host_page_bytes(), 2);                         // not kept
  std::filesystem::remove(world_.folder() / "store/objects/1");  // which no checkpoint writes to any more
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(rollback(region, Scope::process).ok());
    EXPECT_EQ(get(region, 0), 2u);
    EXPECT_EQ(get(region, 9 * host_page_bytes()), 2u);
    put(region, 8 * host_page_bytes(), 3);
  }
}

// A thread rolls back its own stores.
TEST_P(Scopes, RollbackOfAThread) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  Region& region = world_.open("a", 64 * host_page_bytes());
  put(region, 0, 1);
  std::thread([&] {
    put(region, host_page_bytes(), 2);
    EXPECT_OK(rollback(region, Scope::thread));
    EXPECT_EQ(get(region, host_page_bytes()), 0u);
  }).join();
  EXPECT_EQ(get(region, 0), 1u);
  ASSERT_OK(persist(region, Scope::thread));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 1u);
}

// Memory that is given back is read again, with what was captured in it; what was not stays as it is.
TEST_P(Scopes, ReleasedMemoryComesBack) {
  Region& region = world_.open("a", kSize);
  for (std::uint64_t page = 0; page < 32; ++page) put(region, page * kPageBytes, page + 1);
  ASSERT_OK(persist(region, own(region)));
  put(region, 3 * kPageBytes + 8, 99);
  ASSERT_OK(region.release_clean());
  for (std::uint64_t page = 0; page < 32; ++page) ASSERT_EQ(get(region, page * kPageBytes), page + 1);
  EXPECT_EQ(get(region, 3 * kPageBytes + 8), 99u);
  put(region, 9 * kPageBytes, 98);
  ASSERT_OK(persist(region, own(region)));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 3 * kPageBytes + 8), 99u);
  EXPECT_EQ(get(again, 9 * kPageBytes), 98u);
  EXPECT_EQ(get(again, 10 * kPageBytes), 11u);
}

// A capture too large for the log is undone: everything is stored still, and can be rolled back or persisted in parts.
TEST_P(Scopes, WhatDoesNotFitStays) {
  Region& region = world_.open("a", 4 * kMiB);
  put(region, 8, 1);
  ASSERT_OK(persist(region, own(region)));
  for (std::uint64_t page = 0; page < 1024; ++page) {
    for (std::uint64_t word = 0; word < 512; ++word) put(region, page * kPageBytes + 8 * word, 7);
  }
  ASSERT_EQ(persist(region, own(region)).category, Errc::full) << last_error_text();
  EXPECT_EQ(get(region, 8), 7u);
  ASSERT_EQ(persist(region, own(region)).category, Errc::full) << last_error_text();
  ASSERT_OK(rollback(region, own(region)));
  EXPECT_EQ(get(region, 8), 1u);
  EXPECT_EQ(get(region, 16), 0u);
  put(region, 16, 2);
  ASSERT_OK(persist(region, own(region)));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 8), 1u);
  EXPECT_EQ(get(world_["a"], 16), 2u);
}

// While another thread gives memory back, for which a region is read-only for a moment, a child is forked: its copy is
// not.
TEST_P(Scopes, AChildForkedDuringARelease) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer lets the signals of a forked child wait";
  Region& region = world_.open("a", 512 * kPageBytes);
  for (std::uint64_t page = 0; page < 512; ++page) {
    put(region, page * kPageBytes, page + 1);
    if (page % 32 != 31) continue;
    ASSERT_OK(persist(region, Scope::process));
  }
  std::atomic<bool> over{false};
  std::thread releasing([&] {
    while (!over) EXPECT_OK(region.release_clean());
  });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      for (std::uint64_t page = 0; page < 512; ++page) {
        auto* const word = reinterpret_cast<volatile std::uint64_t*>(region.address() + page * kPageBytes);
        if (*word != page + 1) ::_exit(1);
        *word = 7;
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "child " << i;
    if (status != 0) break;
  }
  over = true;
  releasing.join();
}

// For the next test. Handlers of pthread_atfork(3) run last registered first: memlith's, then this one, which gives a
// release the time to install the handler beside the fork.
struct ReleaseBesideAFork {
  Region* region = nullptr;
  struct sigaction during{};
  std::thread releasing;

  void before_fork() {
    if (region == nullptr) return;
    releasing = std::thread([this] { EXPECT_OK(region->release_clean()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::sigaction(SIGSEGV, nullptr, &during);
  }
};
ReleaseBesideAFork& beside_a_fork() {
  static ReleaseBesideAFork one;
  return one;
}

// The kernel copies the signal handlers before the memory. A child of a fork beside the first release would have
// read-only pages, and no handler. The handler is installed once per process, so the trial has one of its own.
TEST_P(Scopes, NoChildIsMadeWhileTheHandlerIsInstalled) {
  if (GetParam() != TrackerKind::scan) GTEST_SKIP() << "only scan installs the handler at a release";
  constexpr const char* kTrial = "MEMLITH_TEST_TRIAL";
  if (::getenv(kTrial) == nullptr) {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    EXPECT_EQ(std::system(("MEMLITH_TEST_TRIAL=1 '" + std::filesystem::read_symlink("/proc/self/exe").string() +
                           "' '--gtest_filter=By/Scopes." + name + "'")
                              .c_str()),
              0);
    return;
  }
  ASSERT_EQ(::pthread_atfork([] { beside_a_fork().before_fork(); }, nullptr, nullptr), 0);
  Region& region = world_.open("a", kSize);
  if (region.tracker()->kind() != TrackerKind::scan || works_by_faults(GetParam())) {
    GTEST_SKIP() << "this kernel cannot scan";
  }
  struct sigaction before{};
  ::sigaction(SIGSEGV, nullptr, &before);
  beside_a_fork().region = &region;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  beside_a_fork().releasing.join();
  struct sigaction after{};
  ::sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(beside_a_fork().during.sa_sigaction, before.sa_sigaction) << "installed while a child was made";
  EXPECT_NE(after.sa_sigaction, before.sa_sigaction) << "the release installed no handler";
}

// A forked child reads and stores to its own copy; whatever it asks of the store is refused, and the parent goes on.
TEST_P(Scopes, AForkedChildLeavesTheStoreAlone) {
  Region& region = world_.open("a", kSize);
  put(region, 0, 1);
  world_.store().flush_soon(must(capture(region)));  // so that both threads of the store run
  put(region, 8, 2);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool reads = get(region, 0) == 1 && get(region, 8) == 2;
    const std::uint64_t value = 77;
    std::memcpy(region.address() + 16, &value, sizeof value);
    (void)region.touch(region.address() + 16, sizeof value);
    char made = 0;  // the parent makes an object meanwhile, with the number that the child would give to one
    (void)!::read(ready[0], &made, 1);
    const bool refused = persist(region, Scope::process).category == Errc::invalid &&
                         world_.store().create("mine", 8192, 0, 8192).status().category == Errc::invalid &&
                         world_.store().reserve_home(region.object(), 2 * kSize).category == Errc::invalid &&
                         world_.store().checkpoint().category == Errc::invalid &&
                         world_.store().close().category == Errc::invalid;
    world_.close("a");
    ::_exit(reads && refused ? 0 : 1);
  }
  const ObjectInfo theirs = must(world_.store().create("theirs", 8192, 0, 8192));
  ASSERT_EQ(::write(ready[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(world_.store().read_home(theirs.id).ok()) << last_error_text();
  EXPECT_TRUE(must(world_.volume().exists("objects/" + std::to_string(theirs.id.value)))) << "the child removed it";
  EXPECT_EQ(get(region, 16), 0u);
  ASSERT_OK(persist(region, own(region)));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 8), 2u);
  EXPECT_EQ(get(world_["a"], 16), 0u);
}

// Threads persist their own pages of one region all at once; each finds its own last state again.
TEST_P(Scopes, ManyThreadsPersistTheirOwn) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  Region& region = world_.open("a", 64 * host_page_bytes());
  constexpr std::uint64_t kThreads = 8;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&region, t] {
      for (std::uint64_t i = 1; i <= 50; ++i) {
        put(region, t * 4 * host_page_bytes(), i);
        put(region, (t * 4 + 2) * host_page_bytes() + 8, i);
        EXPECT_OK(persist(region, Scope::thread));
      }
      put(region, t * 4 * host_page_bytes(), 999);  // not persisted
    });
  }
  for (std::thread& thread : threads) thread.join();
  world_.crash();
  Region& again = world_.open("a");
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(get(again, t * 4 * host_page_bytes()), 50u);
    EXPECT_EQ(get(again, (t * 4 + 2) * host_page_bytes() + 8), 50u);
  }
}

}  // namespace
}  // namespace memlith::test::scope_test
