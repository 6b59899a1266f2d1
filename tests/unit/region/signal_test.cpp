// docs/guarantees.md, "Signal handlers": it catches its own faults and hands every other on; a program's own handlers
// and a program's own crashes are what they would be without it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/region_words.hpp"
#include "support/sanitizers.hpp"
#include "support/slowness.hpp"

namespace {
volatile char* g_stored_to_between = nullptr;
}  // namespace

// A fault strikes, as in another thread, when a handler is there and the call that installed it is not yet back.
extern "C" int sigaction(int signal, const struct sigaction* action, struct sigaction* previous) noexcept {
  static const auto next = reinterpret_cast<decltype(&::sigaction)>(::dlsym(RTLD_NEXT, "sigaction"));
  struct sigaction before{};
  const int result = next(signal, action, &before);
  if (g_stored_to_between != nullptr && action != nullptr && signal == SIGSEGV) *g_stored_to_between = 1;
  if (previous != nullptr) *previous = before;
  return result;
}

namespace memlith::test::signal_test {
namespace {

using namespace core;

// Each death test runs in a process of its own, where no other test has installed anything.
class FaultSignalsDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // The remains of the dead go with this folder.
    if (const char* const given = std::getenv("MEMLITH_TEST_DIR")) before_ = given;
    ::setenv("MEMLITH_TEST_DIR", folder_.path().c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty()) {
      ::unsetenv("MEMLITH_TEST_DIR");
    } else {
      ::setenv("MEMLITH_TEST_DIR", before_.c_str(), 1);
    }
  }
  TempFolder folder_;
  std::string before_;
  static volatile char* forbidden_page() {
    return static_cast<volatile char*>(::mmap(nullptr, kPageBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
};

void with_info(int, siginfo_t* info, void*) { ::_exit(info->si_addr != nullptr ? 42 : 1); }
void without_info(int) { ::_exit(43); }

// Ends a process that spins, whatever signals it blocks.
void limit_processor_time() {
  const rlimit seconds{20 * slowness(), 20 * slowness()};
  ::setrlimit(RLIMIT_CPU, &seconds);
}

constexpr std::uint64_t kStoredForEver = 4096;  // pages
void* store_for_ever(void* memory) {
  ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  for (std::uint64_t i = 0;; ++i) static_cast<volatile char*>(memory)[i % kStoredForEver * kPageBytes] = 1;
}

struct sigaction g_our_segv{};
struct sigaction g_our_bus{};
volatile char* g_ticked = nullptr;
void pass_to_ours(int signal, siginfo_t* info, void* context) {
  (signal == SIGBUS ? g_our_bus : g_our_segv).sa_sigaction(signal, info, context);
}

sigjmp_buf g_before;
void tell_blocked(int) {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  ::_exit(::sigismember(&now, SIGSEGV) + 2 * ::sigismember(&now, SIGUSR1) + 4 * ::sigismember(&now, SIGUSR2));
}

// A handler that the program installed before still gets faults outside all regions, in either form.
TEST_F(FaultSignalsDeathTest, EarlierHandlersGetTheirFaults) {
  for (const bool info : {true, false}) {
    EXPECT_EXIT(
        {
          struct sigaction action{};
          if (info) {
            action.sa_sigaction = with_info;
            action.sa_flags = SA_SIGINFO;
          } else {
            action.sa_handler = without_info;
          }
          ::sigaction(SIGSEGV, &action, nullptr);
          RegionWorld world(TrackerKind::fault, tiny_options());
          put(world.open("a", 64 * kKiB), 0, 1);
          if (!persist(world["a"]).ok()) ::_exit(1);
          put(world["a"], 0, 2);
          *forbidden_page() = 1;
          ::_exit(2);
        },
        ::testing::ExitedWithCode(info ? 42 : 43), "");
  }
}

// Also while ours is being installed.
TEST_F(FaultSignalsDeathTest, EarlierHandlersMissNoFault) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has a sigaction of its own";
  EXPECT_EXIT(
      {
        struct sigaction action{};
        action.sa_handler = without_info;
        ::sigaction(SIGSEGV, &action, nullptr);
        RegionWorld world(TrackerKind::fault, tiny_options());
        g_stored_to_between = forbidden_page();
        world.open("a", 64 * kKiB);
        ::_exit(2);
      },
      ::testing::ExitedWithCode(43), "");
}

// A wild store without a handler ends the program by SIGSEGV, and does not loop.
TEST_F(FaultSignalsDeathTest, WildStoresStillEndTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer catches SIGSEGV itself";
  EXPECT_EXIT(
      {
        RegionWorld world(TrackerKind::fault, tiny_options());
        put(world.open("a", 64 * kKiB), 0, 1);
        *forbidden_page() = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

// A page of the home file that is not there any more ends the program by SIGBUS, and does not loop, whether it is read
// or stored to.
TEST_F(FaultSignalsDeathTest, AHomeThatWasCutShortEndsTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer catches SIGBUS itself";
  for (const bool store : {true, false}) {
    EXPECT_EXIT(
        {
          RegionWorld world(TrackerKind::fault, tiny_options());
          Region& region = world.open("a", 256 * kKiB);
          for (std::uint64_t page = 0; page < 16; ++page) put(region, page * kPageBytes, 1);
          if (!persist(region).ok()) ::_exit(1);
          const std::string home = world.folder() / "store/objects/1";
          if (::truncate(home.c_str(), 64 * kKiB) != 0) ::_exit(2);
          put(region, 3 * kPageBytes, 2);  // what was moved away from the file stays
          volatile char* const gone = reinterpret_cast<char*>(region.address()) + 128 * kKiB;
          if (store) {
            *gone = 1;
          } else {
            (void)*gone;
          }
          ::_exit(3);
        },
        ::testing::KilledBySignal(SIGBUS), "");
  }
}

// A store behind the end of a region, in the addresses set aside for its growth, ends the program, too.
TEST_F(FaultSignalsDeathTest, StoresBehindTheEndEndTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer catches SIGSEGV itself";
  for (const TrackerKind kind : {TrackerKind::fault, TrackerKind::scan}) {
    EXPECT_EXIT(
        {
          RegionWorld world(kind, tiny_options());
          Region& region = world.open("a", 64 * kKiB);
          *reinterpret_cast<volatile char*>(region.address() + region.size()) = 1;
        },
        ::testing::KilledBySignal(SIGSEGV), "");
  }
}

// Two faults that looked as if they came from a file that was cut short, and did not because another thread gave the
// memory back in between, do not end the program, be they at one address, as long as the store in between was served.
TEST_F(FaultSignalsDeathTest, FalseAlarmsBetweenServedStoresDoNotEndTheProgram) {
  EXPECT_EXIT(
      {
        RegionWorld world(TrackerKind::fault, tiny_options());
        Region& region = world.open("a", 64 * kKiB);
        for (int i = 0; i < 5; ++i) {
          siginfo_t info{};
          info.si_signo = SIGBUS;
          info.si_code = BUS_ADRERR;
          info.si_addr = region.address();
          if (::syscall(SYS_rt_sigqueueinfo, ::getpid(), SIGBUS, &info) != 0) ::_exit(1);
          put(region, 0, static_cast<std::uint64_t>(i));
          if (!persist(region).ok()) ::_exit(2);
        }
        struct sigaction now{};
        ::sigaction(SIGBUS, nullptr, &now);
        ::_exit(now.sa_handler != SIG_DFL ? 0 : 3);
      },
      ::testing::ExitedWithCode(0), "");
}

// A thread that is cancelled at whatever instruction it is at, so also in the handler, holds no region for ever.
TEST_F(FaultSignalsDeathTest, CancelledThreadsHoldNothing) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers' threads cannot be cancelled anywhere";
  EXPECT_EXIT(
      {
        limit_processor_time();
        RegionWorld world(TrackerKind::fault, tiny_options());
        Region& region = world.open("a", kStoredForEver * kPageBytes);
        for (int round = 0; round < 400; ++round) {
          pthread_t thread{};
          if (::pthread_create(&thread, nullptr, store_for_ever, region.address()) != 0) ::_exit(1);
          ::usleep(static_cast<useconds_t>(200 + round));
          ::pthread_cancel(thread);
          ::pthread_join(thread, nullptr);
          Region* const one = &region;
          if (!Region::rollback({&one, 1}, Scope::process).ok()) ::_exit(2);
        }
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// A program's handlers that were installed after ours and pass on to them may let other signals in; one whose handler
// stores to the region does not wait for the store that it interrupted.
TEST_F(FaultSignalsDeathTest, SignalsWaitForLaterHandlersThatPassOn) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer runs handlers with every signal blocked";
  EXPECT_EXIT(
      {
        limit_processor_time();
        RegionWorld world(TrackerKind::fault, tiny_options());
        constexpr std::uint64_t kPages = 1024;
        Region& region = world.open("a", 2 * kPages * kPageBytes);
        g_ticked = reinterpret_cast<volatile char*>(region.address()) + kPages * kPageBytes;
        struct sigaction later{};
        later.sa_sigaction = pass_to_ours;
        later.sa_flags = SA_SIGINFO | SA_NODEFER;
        ::sigaction(SIGSEGV, &later, &g_our_segv);
        ::sigaction(SIGBUS, &later, &g_our_bus);
        struct sigaction tick{};
        tick.sa_handler = [](int) {
          static std::uint64_t count = 0;
          g_ticked[count++ % kPages * kPageBytes] = 1;
        };
        ::sigaction(SIGPROF, &tick, nullptr);
        itimerval often{};
        often.it_interval.tv_usec = often.it_value.tv_usec = 500;
        ::setitimer(ITIMER_PROF, &often, nullptr);
        for (int round = 0; round < 100; ++round) {
          for (std::uint64_t page = 0; page < kPages; ++page) region.address()[page * kPageBytes] = std::byte{1};
          Region* const one = &region;
          if (!Region::rollback({&one, 1}, Scope::process).ok()) ::_exit(2);
        }
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// A call through a wild pointer into a region ends the program, and does not loop.
TEST_F(FaultSignalsDeathTest, JumpsIntoARegionEndTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer catches SIGSEGV itself";
  for (const TrackerKind kind : {TrackerKind::fault, TrackerKind::scan}) {
    EXPECT_EXIT(
        {
          limit_processor_time();
          RegionWorld world(kind, tiny_options());
          Region& region = world.open("a", 64 * kKiB);
          if (!region.release_clean().ok()) ::_exit(1);
          reinterpret_cast<void (*)()>(region.address() + kPageBytes)();
        },
        ::testing::KilledBySignal(SIGSEGV), "");
  }
}

// Handlers installed before are called as the kernel would: with the signals blocked that they asked for and no others,
// once where they asked for that, and they may leave by longjmp.
TEST_F(FaultSignalsDeathTest, EarlierHandlersAreCalledAsTheyAsked) {
  const auto install = [](void (*handler)(int), int flags) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigaddset(&action.sa_mask, SIGUSR1);
    ::sigaction(SIGSEGV, &action, nullptr);
  };
  EXPECT_EXIT(
      {
        install(tell_blocked, 0);
        RegionWorld world(TrackerKind::fault, tiny_options());
        put(world.open("a", 64 * kKiB), 0, 1);
        *forbidden_page() = 1;
      },
      ::testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        install([](int) { ::siglongjmp(g_before, 1); }, SA_NODEFER);
        RegionWorld world(TrackerKind::fault, tiny_options());
        Region& region = world.open("a", 64 * kKiB);
        if (sigsetjmp(g_before, 0) == 0) *forbidden_page() = 1;  // restores no mask
        put(region, 0, 1);
        ::_exit(persist(region).ok() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        install(
            [](int) {
              static int calls = 0;
              if (++calls == 2) ::_exit(9);
            },
            SA_RESETHAND);
        RegionWorld world(TrackerKind::fault, tiny_options());
        put(world.open("a", 64 * kKiB), 0, 1);
        *forbidden_page() = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

// SIGSEGV sent by kill(2) ends the program at once, or is ignored for good.
TEST_F(FaultSignalsDeathTest, SentSignalsDoWhatTheyWouldWithoutUs) {
  for (const bool ignored : {false, true}) {
    const auto life = [ignored] {
      ::signal(SIGSEGV, ignored ? SIG_IGN : SIG_DFL);
      RegionWorld world(TrackerKind::fault, tiny_options());
      Region& region = world.open("a", 64 * kKiB);
      put(region, 0, 1);
      ::kill(::getpid(), SIGSEGV);
      if (!ignored) ::_exit(3);
      if (!persist(region).ok()) ::_exit(4);
      put(region, 0, 2);
      ::_exit(persist(region).ok() ? 0 : 5);
    };
    if (ignored) {
      EXPECT_EXIT(life(), ::testing::ExitedWithCode(0), "");
    } else {
      EXPECT_EXIT(life(), ::testing::KilledBySignal(SIGSEGV), "");
    }
  }
}

// errno is what it was, whatever the handler did between two instructions of the program.
TEST(FaultSignals, KeepErrno) {
  RegionWorld world(TrackerKind::fault, tiny_options());
  Region& region = world.open("a", 64 * kKiB);
  errno = 1234;
  *reinterpret_cast<volatile char*>(region.address()) = 1;
  EXPECT_EQ(errno, 1234);
}

// A store from within another signal's handler is seen like any other.
TEST(FaultSignals, StoresFromHandlers) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer runs handlers with every signal blocked";
  static RegionWorld* world = nullptr;
  RegionWorld here(TrackerKind::fault, tiny_options());
  world = &here;
  here.open("a", 64 * kKiB);
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { *reinterpret_cast<volatile std::uint64_t*>((*world)["a"].address() + 8192) = 77; };
  ::sigemptyset(&action.sa_mask);  // a handler that blocks SIGSEGV itself cannot store to the region
  ::sigaction(SIGUSR1, &action, &before);
  ::raise(SIGUSR1);
  ::sigaction(SIGUSR1, &before, nullptr);
  ASSERT_OK(persist(here["a"]));
  here.crash();
  EXPECT_EQ(get(here.open("a"), 8192), 77u);
}

// Stores to every other page of a large region: more separate page ranges than the kernel keeps for a process
// (vm.max_map_count, 65,530). They are stores like any other, not the end of the program.
TEST_F(FaultSignalsDeathTest, ScatteredStoresOutnumberTheKernelsRanges) {
  EXPECT_EXIT(
      {
        StoreOptions options = tiny_options();
        options.log_max_bytes = 1 * kGiB;
        RegionWorld world(TrackerKind::fault, options);
        constexpr std::uint64_t kPages = 150'000;
        Region& region = world.open("a", kPages * kPageBytes);
        for (std::uint64_t page = 0; page < kPages; page += 2) {
          *reinterpret_cast<volatile char*>(region.address() + page * kPageBytes) = 1;
        }
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// Regions come and go, more of them over time than there are places in the handler's table, which are used again.
TEST(FaultSignals, PlacesAreUsedAgain) {
  RegionWorld world(TrackerKind::fault, tiny_options());
  for (std::uint64_t i = 1; i <= 300; ++i) {
    put(world.open("a", 8 * kKiB), 0, i);
    ASSERT_OK(persist(world["a"]));
    world.close("a");
  }
  EXPECT_EQ(get(world.open("a"), 0), 300u);
}

}  // namespace
}  // namespace memlith::test::signal_test
