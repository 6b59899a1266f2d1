#include "line_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include "base/descriptor.hpp"

namespace memlith::sqlite {

namespace {

struct Target {
  bool wanted = false;
  std::string path;  // absolute; empty: standard error
  bool stderr_there = false;
  struct stat stderr_file{};
};

Target find_target() {
  Target target;
  const char* const text =
      ::secure_getenv("MEMLITH_SQLITE_LOG");  // no file for a program with more rights than its caller
  if (text == nullptr || *text == 0) return target;
  target.wanted = true;
  if (std::string_view(text) == "stderr") {
    target.stderr_there = ::fstat(STDERR_FILENO, &target.stderr_file) == 0;
    return target;
  }
  std::error_code error;
  target.path = std::filesystem::absolute(text, error).string();  // before the program changes its folder
  if (error) target.path = text;
  return target;
}

const Target& target() {
  static const Target* const instance = new Target(find_target());  // never destroyed: used until the process has ended
  return *instance;
}

// A pipe without a reader, or a file at its size limit, would end the program by a signal; a log line must not cause
// that.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigemptyset(&mine_);
    for (const int each : kSignals) sigaddset(&mine_, each);
    sigpending(&pending_before_);
    ::pthread_sigmask(SIG_BLOCK, &mine_, &mask_before_);
  }
  ~SignalsHeld() {
    sigset_t pending;
    sigpending(&pending);
    for (const int each : kSignals) {
      if (sigismember(&pending, each) != 1 || sigismember(&pending_before_, each) == 1) continue;
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, each);
      const timespec at_once{0, 0};
      (void)::sigtimedwait(&one, nullptr, &at_once);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals = {SIGPIPE, SIGXFSZ};
  sigset_t mine_{};
  sigset_t mask_before_{};
  sigset_t pending_before_{};
};

void write_line(int descriptor, std::string_view line) {
  pollfd ready{descriptor, POLLOUT, 0};
  // A full pipe would block the program.
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  const SignalsHeld held;
  (void)!::write(descriptor, line.data(), line.size());
}

std::string make_line(std::string_view text) {
  constexpr std::size_t kLineBytesMax = 4096;  // a pipe accepts this much at once (PIPE_BUF)
  std::string line = fmt::format("memlith {}: ", ::getpid());
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte < ' ' || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += each;
    }
  }
  line.resize(std::min(line.size(), kLineBytesMax - 1));
  return line + '\n';
}

}  // namespace

void start_line_log() { (void)target(); }
bool line_log_wanted() { return target().wanted; }

void write_log_line(std::string_view text) {
  const int errno_before = errno;
  const std::string line = make_line(text);
  if (target().path.empty()) {
    struct stat now{};
    const struct stat& then = target().stderr_file;
    const bool same = target().stderr_there && ::fstat(STDERR_FILENO, &now) == 0 && now.st_dev == then.st_dev &&
                      now.st_ino == then.st_ino;
    if (same) write_line(STDERR_FILENO, line);
  } else {
    // The file is opened for each line: the program may close a descriptor that is kept, and its number may be reused.
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    const int file = core::above_standard(::open(target().path.c_str(), flags, 0644));
    if (file >= 0) {
      write_line(file, line);
      ::close(file);
    }
  }
  errno = errno_before;
}

}  // namespace memlith::sqlite
