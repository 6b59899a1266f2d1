// The builder's reports to its supervisor: fixed records through a pipe, one write(2) each.
//
// A record is smaller than PIPE_BUF, so it arrives whole or not at all, and what was written before a SIGKILL can
// still be read after it. The builder says `started` before each persist and `acked` after: a recovered index must
// hold commit number `acked` at least and `started` at most.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <type_traits>

namespace demo {

enum class ReportKind : std::uint32_t { opened = 1, started = 2, acked = 3, finished = 4 };

struct Report {
  ReportKind kind = ReportKind::opened;
  std::uint32_t reserved = 0;
  std::uint64_t commit = 0;           // the index's own number of commits
  std::uint64_t text_bytes = 0;       // indexed by that commit
  std::uint64_t persist_ns = 0;       // acked: how long the persist took,
  std::uint64_t cycle_ns = 0;         //        and the indexing before it too
  std::uint64_t logged_bytes = 0;     //        what it wrote to the log
  std::uint64_t replayed_frames = 0;  // opened: what recovery found in the log
  std::uint64_t pages = 0;            // acked: in which the persisted bytes lie
};
static_assert(sizeof(Report) == 64 && std::is_trivially_copyable_v<Report>);

class Reporter {
 public:
  // A negative descriptor means that there is no listener.
  explicit Reporter(int descriptor) : descriptor_(descriptor) {}
  void send(const Report& report) const {
    if (descriptor_ < 0) return;
    while (::write(descriptor_, &report, sizeof report) < 0 && errno == EINTR) {
    }
  }

 private:
  int descriptor_;
};

}  // namespace demo
