// Other processes of a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

namespace memlith::test {

// Runs `body` in a child, where it may change its user, its mounts or its current folder. The body returns what went
// wrong, or nothing; "skip: why" where the machine does not let it.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const std::string text = body();
    if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += "the child ended with status " + std::to_string(status);
  return text;
}

#define EXPECT_IN_CHILD(body)                                                               \
  do {                                                                                      \
    const std::string outcome_of_child = ::memlith::test::in_child(body);                   \
    if (outcome_of_child.starts_with("skip: ")) GTEST_SKIP() << outcome_of_child.substr(6); \
    EXPECT_EQ(outcome_of_child, "");                                                        \
  } while (false)

// A process that works until it is killed. One at a time.
class KilledProcess {
 public:
  KilledProcess() = default;
  ~KilledProcess() { kill(); }
  KilledProcess(const KilledProcess&) = delete;
  KilledProcess& operator=(const KilledProcess&) = delete;

  // `work` may return, too. Returns when `ready` says so, or when the process has ended by itself.
  void start(const std::function<void()>& work, const std::function<bool()>& ready = [] { return true; }) {
    pid_ = ::fork();
    ASSERT_GE(pid_, 0) << std::strerror(errno);
    if (pid_ == 0) {
      work();
      ::_exit(0);
    }
    siginfo_t ended{};
    while (!ready() && ended.si_pid == 0) {
      ::usleep(200);
      ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
  }
  [[nodiscard]] bool started() const { return pid_ > 0; }
  // The wait status of the process.
  int kill() {
    if (pid_ <= 0) return 0;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  // Until it ends by itself. Its wait status.
  int wait() {
    if (pid_ <= 0) return 0;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  void signal(int number) const {
    if (started()) ::kill(pid_, number);
  }
  // For a process that never returns, after this time.
  void kill_working(std::uint64_t after_us = 0) {
    if (!started()) return;
    ::usleep(static_cast<useconds_t>(after_us));
    const int status = kill();
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = 0;
};

// The value of a result; an error ends the process, a child, which says the message.
template <class Result>
auto or_leave(Result result, int code) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    ::_exit(code);
  }
  if constexpr (requires { std::move(*result); }) return std::move(*result);
}

// A T in memory that a test shares with its children, also after they were killed.
template <class T>
class SharedWithChildren {
 public:
  SharedWithChildren()
      : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        value_(memory_ == MAP_FAILED ? nullptr : new(memory_) T{}) {
    EXPECT_NE(value_, nullptr) << std::strerror(errno);
  }
  ~SharedWithChildren() {
    if (value_ != nullptr) ::munmap(memory_, sizeof(T));
  }
  SharedWithChildren(const SharedWithChildren&) = delete;
  SharedWithChildren& operator=(const SharedWithChildren&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  void* memory_;
  T* value_;
};

// A process that takes steps in turn with the test: each side waits for the other's word.
class SecondProcess {
 public:
  class Side {
   public:
    Side(int in, int out) : in_(in), out_(out) {}
    void tell() const {
      if (::write(out_, "x", 1) != 1) ADD_FAILURE() << "the other side is gone";
    }
    // False if the other side ended.
    [[nodiscard]] bool wait() const {
      char byte = 0;
      return ::read(in_, &byte, 1) == 1;
    }

   private:
    int in_;
    int out_;
  };

  // The body returns what went wrong, or nothing. Starts before the test opens what the child must not inherit.
  explicit SecondProcess(const std::function<std::string(const Side& test)>& body) {
    int to_child[2];
    EXPECT_EQ(::pipe(to_child), 0);
    EXPECT_EQ(::pipe(from_child_), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(to_child[1]);
      ::close(from_child_[0]);
      const std::string wrong = body(Side(to_child[0], from_child_[1]));
      if (!wrong.empty()) std::fprintf(stderr, "second process: %s\n", wrong.c_str());
      ::_exit(wrong.empty() ? 0 : 1);
    }
    ::close(to_child[0]);
    ::close(from_child_[1]);
    to_child_ = to_child[1];
  }
  ~SecondProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(to_child_);
    ::close(from_child_[0]);
  }
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;

  // Lets the child take a step and waits for the end of it. False if it has ended.
  [[nodiscard]] bool step() const {
    const Side child(from_child_[0], to_child_);
    child.tell();
    return child.wait();
  }
  // Lets the child take its last step. Whether nothing went wrong in it.
  [[nodiscard]] bool finish() {
    Side(from_child_[0], to_child_).tell();
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status == 0;
  }

 private:
  pid_t pid_ = 0;
  int to_child_ = -1;
  int from_child_[2] = {-1, -1};
};

}  // namespace memlith::test
