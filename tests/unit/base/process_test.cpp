// base/process.hpp: the mark that tells a forked child, of whatever kind, from its ancestors.
#include "base/process.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <set>
#include <thread>
#include <vector>

namespace memlith::core {
namespace {

// The exit status of a child that runs `body`.
int in_child(const std::function<pid_t()>& fork, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t plain_fork() { return ::fork(); }
// As a program does that goes around libc, whose fork handlers then do not run.
pid_t bare_clone() { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

// 0 if the marks of a child and of its child are new, and stay.
int generations(const std::function<pid_t()>& fork) {
  std::set<std::uint64_t> seen{process_mark()};
  return in_child(fork, [&] {
    if (!seen.insert(process_mark()).second || seen.count(process_mark()) == 0) return 1;
    return in_child(fork, [&] { return seen.insert(process_mark()).second ? 0 : 2; });
  });
}

TEST(ProcessMark, IsOneInAllThreads) {
  const std::uint64_t mark = process_mark();
  EXPECT_NE(mark, 0u);
  std::vector<std::uint64_t> seen(8);
  std::vector<std::thread> threads;
  for (std::uint64_t& each : seen) threads.emplace_back([&each] { each = process_mark(); });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(seen, std::vector<std::uint64_t>(8, mark));
}

TEST(ProcessMark, IsAnotherInEachGeneration) { EXPECT_EQ(generations(plain_fork), 0); }

TEST(ProcessMark, KnowsAChildThatLibcDoesNot) { EXPECT_EQ(generations(bare_clone), 0); }

// From here on madvise(MADV_WIPEONFORK) fails in this process.
bool refuse_wiped_pages() {
  std::array<sock_filter, 6> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Without such pages it is the process's number. Each test is a process of its own in CTest, so nothing has asked
// before.
TEST(ProcessMark, WorksWhereTheKernelHasNoWipedPages) {
  const int status = in_child(plain_fork, [] {
    if (!refuse_wiped_pages()) return 77;
    return generations(plain_fork);
  });
  if (status == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace memlith::core
