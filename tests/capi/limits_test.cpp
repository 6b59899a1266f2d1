// docs/guarantees.md, "Not promised": calls in a forked child, in a thread that is cancelled, and in a process that
// gets no more memory or threads.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "memlith/memlith.h"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::limits_test {
namespace {

class Limits : public ::testing::Test {
 protected:
  void open(std::uint64_t log_bytes) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.log_bytes = log_bytes;
    ASSERT_EQ(memlith_store_open((folder_ / "store").c_str(), &options, &store_), 0);
    region_ = open_region("a");
    ASSERT_NE(region_, nullptr);
  }
  memlith_region* open_region(const char* name) {
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE;
    options.size = 8 << 20;
    memlith_region* region = nullptr;
    return memlith_region_open(store_, name, &options, &region) == 0 ? region : nullptr;
  }
  [[nodiscard]] unsigned char* memory() const { return static_cast<unsigned char*>(memlith_region_address(region_)); }
  std::int32_t persist() { return memlith_category(memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS)); }
  [[nodiscard]] bool poisoned() const {
    memlith_store_info info{};
    info.struct_size = sizeof info;
    return memlith_store_get_info(store_, &info) != 0 || info.poisoned != 0;
  }
  // Runs `act` on the store in a child; the result is the number of the line that it did not come past, or 0.
  static int in_child(const std::function<int()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      ::_exit(act());
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // No more memory but what malloc has got already, and no more threads but those whose stacks are left over.
  static void limit_memory() {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1 << 20;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  static void lift_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_AS, &limit);
  }

  TempFolder folder_;
  memlith_store* store_ = nullptr;
  memlith_region* region_ = nullptr;
};

// Every call with the parent's handles is INVALID in a child, at once: the threads of the parent may have held any lock
// when the child was made.
TEST_F(Limits, AForkedChildIsRefusedAtOnce) {
  open(0);
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    while (!over) memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS);
  });
  busy.emplace_back([&] {
    while (!over) {
      memlith_region_close(open_region("b"));
      memlith_region_remove(store_, "b");
      memlith_store_set_window(store_, 1, 0);
    }
  });
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    EXPECT_EQ(in_child([&] {
                memlith_store_info info{};
                memlith_stats stats{};
                memlith_region_info region{};
                memlith_region_options options{};
                info.struct_size = sizeof info;
                stats.struct_size = sizeof stats;
                region.struct_size = sizeof region;
                options.struct_size = sizeof options;
                memlith_region* opened = nullptr;
                std::uint64_t ticket = 0;
                const std::int32_t codes[] = {memlith_persist_all(store_, MEMLITH_SCOPE_PROCESS),
                                              memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS),
                                              memlith_persist_async(&region_, 1, MEMLITH_SCOPE_PROCESS, &ticket),
                                              memlith_wait(store_, 0),
                                              memlith_persist_range(region_, memory(), 1, MEMLITH_SCOPE_PROCESS),
                                              memlith_rollback(&region_, 1, MEMLITH_SCOPE_PROCESS),
                                              memlith_touch(region_, memory(), 1),
                                              memlith_prepare(region_, memory(), 1),
                                              memlith_announce(region_, nullptr, 0),
                                              memlith_region_release(region_),
                                              memlith_region_discard(region_, memory(), 4096),
                                              memlith_region_grow(region_, 16 << 20),
                                              memlith_region_open(store_, "b", &options, &opened),
                                              memlith_region_remove(store_, "b"),
                                              memlith_region_get_info(region_, &region),
                                              memlith_store_region_at(store_, 0, &region),
                                              memlith_store_get_info(store_, &info),
                                              memlith_store_get_stats(store_, &stats),
                                              memlith_store_set_window(store_, 0, 0),
                                              memlith_store_set_eventfd(store_, -1),
                                              memlith_store_checkpoint(store_),
                                              memlith_region_close(region_),
                                              memlith_store_close(store_)};
                int which = 0;
                for (const std::int32_t code : codes) {
                  ++which;
                  if (memlith_category(code) != MEMLITH_INVALID) return which;
                }
                return memlith_store_durable(store_) == 0 && memlith_store_newest(store_) == 0 ? 0 : 100;
              }),
              0);
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(memlith_store_close(store_), 0);
}

// A thread that is cancelled ends between two calls; what it was persisting is persisted, and the others go on.
TEST_F(Limits, ACancelledThreadEndsBetweenTwoCalls) {
  open(0);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> done{0};
    std::thread cancelled([&] {
      for (;;) {
        ++memory()[0];
        if (persist() == 0) ++done;
        ::pthread_testcancel();
      }
    });
    while (done < 3) std::this_thread::yield();
    ASSERT_EQ(::pthread_cancel(cancelled.native_handle()), 0);
    cancelled.join();
    ++memory()[4096];
    EXPECT_EQ(persist(), 0);
  }
  EXPECT_EQ(memlith_store_close(store_), 0);
}

// Calls that find no memory say so, and are good again once there is some.
TEST_F(Limits, NoMemoryPoisonsNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space without end";
  const std::function<std::int32_t()> calls[] = {
      [&] { return memlith_store_checkpoint(store_); },
      [&] { return memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS); },  // the log has to grow for it
      [&] { return memlith_rollback(&region_, 1, MEMLITH_SCOPE_PROCESS); },
      [&] { return memlith_region_release(region_); },
  };
  for (const auto& call : calls) {
    const bool grows = &call == calls + 1;
    EXPECT_EQ(in_child([&] {
                open(grows ? 2 << 20 : 16 << 20);
                std::memset(memory(), 1, grows ? 100 : 6 << 20);
                if (persist() != 0) return 1;
                std::memset(memory(), 2, grows ? 6 << 20 : 100);
                limit_memory();
                const std::int32_t category = memlith_category(call());
                lift_limit();
                if (category != MEMLITH_NO_MEMORY) return 2;
                if (poisoned()) return 3;
                if (memory()[0] != 2) return 4;
                if (call() != 0 || persist() != 0 || memlith_store_checkpoint(store_) != 0) return 5;
                if (memory()[0] != (&call == calls + 2 ? 1 : 2) || memory()[100] != (grows ? 2 : 1)) return 6;
                return memlith_store_close(store_) == 0 ? 0 : 7;
              }),
              0)
        << &call - calls;
    std::filesystem::remove_all(folder_ / "store");
  }
}

// Where a program has all its memory locked, and may not lock more, the system says so in another way.
TEST_F(Limits, NoMemoryThatMayBeLockedIsNoMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space without end";
  EXPECT_EQ(in_child([&] {
              open(16 << 20);
              std::memset(memory(), 1, 6 << 20);
              if (persist() != 0) return 1;
              __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
              __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3]{};  // none: root's limits count, too
              const rlimit limit{1 << 20, 1 << 20};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::syscall(SYS_capset, &header, capabilities) != 0)
                return 2;
              if (::mlockall(MCL_FUTURE) != 0) return 3;
              const std::int32_t code = memlith_store_checkpoint(store_);
              ::munlockall();
              if (memlith_category(code) != MEMLITH_NO_MEMORY) return 4;
              if (poisoned()) return 5;
              if (memlith_store_checkpoint(store_) != 0 || persist() != 0) return 6;
              return memlith_store_close(store_) == 0 ? 0 : 7;
            }),
            0);
}

// The background thread finds no memory: as long as no commit waits for it, it tries again later.
TEST_F(Limits, ACheckpointInTheBackgroundWithoutMemoryIsTriedAgain) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space without end";
  EXPECT_EQ(in_child([&] {
              open(16 << 20);
              std::memset(memory(), 1, 4 << 20);
              if (persist() != 0) return 1;
              limit_memory();
              for (unsigned char value = 2; value < 9; ++value) {
                std::memset(memory(), value, 1 << 20);
                if (persist() != 0) return 2;
              }
              ::usleep(100'000);  // for the thread; too short, and nothing is tested, but nothing fails
              lift_limit();
              if (poisoned()) return 3;
              for (unsigned char value = 0; value < 40; ++value) {
                std::memset(memory(), value, 1 << 20);
                if (persist() != 0) return 4;
              }
              memlith_store_info info{};
              info.struct_size = sizeof info;
              if (memlith_store_get_info(store_, &info) != 0) return 5;
              if (info.checkpoints == 0) return 6;
              return memlith_store_close(store_) == 0 ? 0 : 7;
            }),
            0);
}

// No more threads: what is asynchronous is done at once.
TEST_F(Limits, WithoutAThreadAsynchronousIsSynchronous) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space without end";
  EXPECT_EQ(in_child([&] {
              open(0);
              memory()[0] = 1;
              if (persist() != 0) return 1;
              memory()[0] = 2;
              limit_memory();
              try {  // stacks of threads that are over serve new ones
                for (;;) std::thread([] { ::pause(); }).detach();
              } catch (const std::system_error&) {
              }
              std::uint64_t ticket = 0;
              if (memlith_persist_async(&region_, 1, MEMLITH_SCOPE_PROCESS, &ticket) != 0) return 2;
              lift_limit();
              if (ticket == 0 || memlith_store_durable(store_) < ticket) return 3;
              return poisoned() ? 4 : 0;
            }),
            0);
}

}  // namespace
}  // namespace memlith::test::limits_test
