// The workload's report (workload_main.cpp), and how it ends where something is wrong.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "memlith/memlith.hpp"

namespace memlith::power {

inline constexpr int kExitViolation = 10;
inline constexpr int kExitError = 11;
inline constexpr int kExitReport = 12;
// Beyond it, a number found is no commit of ours.
inline constexpr std::uint64_t kCommitMax = 1'000'000;

class Report {
 public:
  explicit Report(int descriptor) : descriptor_(descriptor) {}

  void line(char what, char stream, std::uint64_t number) {
    char text[64];
    std::snprintf(text, sizeof text, "%c %c %llu\n", what, stream, static_cast<unsigned long long>(number));
    put(text);
  }
  void frames(std::uint64_t count) { put("F " + std::to_string(count) + "\n"); }
  void done() { put("D\n"); }
  [[noreturn]] void violation(const std::string& text) { end("X " + text + "\n", kExitViolation); }
  [[noreturn]] void error(const std::string& text) { end("E " + text + "\n", kExitError); }

 private:
  // A line is whole on the other side, or at least out of this process, before anything that follows it is done.
  void put(const std::string& text) {
    const std::lock_guard guard(mutex_);
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t wrote = ::write(descriptor_, text.data() + done, text.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) std::_Exit(kExitReport);
      done += static_cast<std::size_t>(wrote);
    }
  }
  [[noreturn]] void end(const std::string& text, int status) {
    put(text);
    std::_Exit(status);
  }

  std::mutex mutex_;
  int descriptor_;
};

// A refusal to open, or damage that is reported, is a loss as much as wrong bytes are. A disk that fails is not.
[[noreturn]] inline void report_failure(Report& report, const std::string& what, const Error& error) {
  const bool environment = error.category() == MEMLITH_IO || error.category() == MEMLITH_POISONED ||
                           error.category() == MEMLITH_NO_SPACE || error.category() == MEMLITH_BUSY ||
                           error.category() == MEMLITH_READ_ONLY;
  const std::string text = what + ": " + error.message();
  if (environment) report.error(text);
  report.violation(text);
}

inline void must(Report& report, const std::string& what, const Result<void>& result) {
  if (!result.ok()) report_failure(report, what, result.error());
}
template <class T>
T must(Report& report, const std::string& what, Result<T> result) {
  if (!result.ok()) report_failure(report, what, result.error());
  return std::move(*result);
}

}  // namespace memlith::power
