// Flushes of a write-ahead log that the commits of all processes share. Part of the SQLite plugin.
#pragma once

#include <sqlite3.h>

#include <optional>

#include "control_block.hpp"
#include "sidecar.hpp"

namespace memlith::sqlite::shared {

// A write-ahead log as one connection has it open.
class Log {
 public:
  virtual ~Log() = default;
  // The end of the newest commit that connections can see; empty if it cannot be told, because the index is not valid.
  [[nodiscard]] virtual std::optional<Position> newest() const = 0;
  // SQLITE_OK if everything that was written to the log before is on the medium.
  virtual int flush() = 0;
  // Group::number() when it had been opened: failures of earlier flushes than that are not told to it.
  [[nodiscard]] virtual std::uint64_t opened_at() const { return 0; }
  // Writes what may not be on the medium once more, for a flush to come (write_again.hpp).
  virtual int write_again() { return SQLITE_IOERR; }
};

// Threads: any.
class Group {
 public:
  explicit Group(Sidecar& sidecar) : sidecar_(sidecar), control_(sidecar.control()) {}

  // True if this is known to be durable. Costs one load.
  [[nodiscard]] bool is_durable(Position position) const;
  // Taken before something is written or seen, for await().
  [[nodiscard]] std::uint32_t mark() const { return control_.abandoned.load(std::memory_order_acquire); }
  // Returns when `position` is durable: SQLITE_OK. SQLITE_IOERR_FSYNC if a flush failed, here or in another process:
  // then it is unknown whether it is, until all connections are closed. Empty: of what is not known to be durable.
  int await(std::optional<Position> position, std::uint32_t mark, Log& log);
  // Flushes, whatever is known to be durable.
  int flush(Log& log);
  // From now on no commit can be known to be durable, as after a flush that failed.
  void poison() { control_.failed.store(1, std::memory_order_release); }
  // Asked when a log has been opened, for Log::opened_at().
  [[nodiscard]] std::uint64_t number() const;
  // A commit that is not waited for: a flush is due within `window_ns`. Returns true if none was due before.
  bool promise(Position position, std::uint64_t window_ns);
  // When a flush is due, as now_ns(); 0: none is.
  [[nodiscard]] std::uint64_t due_ns() const;
  // Flushes, unless another one has done so meanwhile.
  int flush_due(Log& log);
  // A killed leader's flush is still in doubt: the next commit had better be waited for.
  [[nodiscard]] bool in_doubt() const { return control_.doubt.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool failed() const { return control_.failed.load(std::memory_order_acquire) != 0; }

 private:
  void claim(Position position);
  int lead(Log& log, std::uint32_t leader, bool gathers);
  int flush_once(Log& log, std::uint32_t leader);
  int flush_alone(Log& log);
  void clear_due(std::uint64_t due, std::uint64_t begun_ns);
  void note_killed(std::uint64_t flush);
  void end_leading(std::uint32_t leader, std::uint32_t served);
  [[nodiscard]] bool may_miss_a_failure(const Log& log, std::uint32_t leader) const;
  [[nodiscard]] std::uint64_t patience() const;
  [[nodiscard]] std::uint32_t in_flight_now() const;
  [[nodiscard]] bool may_lead() const;
  [[nodiscard]] std::uint64_t served_by(Position position) const;
  void gather() const;
  template <class IsOver>
  bool follow(std::uint32_t seen, std::uint32_t bits, IsOver is_over) const;

  Sidecar& sidecar_;
  ControlBlock& control_;
};

}  // namespace memlith::sqlite::shared
