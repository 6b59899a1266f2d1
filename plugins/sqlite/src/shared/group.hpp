// Flushes of a write-ahead log that the commits of all processes share. Part of the SQLite plugin.
#pragma once

#include <functional>
#include <optional>

#include "../sabotage.hpp"
#include "page.hpp"
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
};

// Threads: any.
class Group {
 public:
  explicit Group(Sidecar& sidecar) : sidecar_(sidecar), page_(sidecar.page()) {}

  // Whether this is known to be durable. Costs one load.
  [[nodiscard]] bool is_durable(Position position) const;
  // Taken before something is written or seen, for await().
  [[nodiscard]] std::uint32_t mark() const { return page_.abandoned.load(std::memory_order_acquire); }
  // Returns when `position` is durable: SQLITE_OK. SQLITE_IOERR_FSYNC if a flush failed, here or in another process:
  // then it is unknown whether it is, until all connections are closed. Empty: of what is not known to be durable.
  int await(std::optional<Position> position, std::uint32_t mark, Log& log);
  // The same as the log's flush(), whose result counts for everyone.
  int flush(Log& log);
  [[nodiscard]] bool failed() const {
    return page_.failed.load(std::memory_order_acquire) != 0 && !MEMLITH_SABOTAGED(shared_flush_again);
  }

 private:
  void claim(Position position);
  int lead(Log& log);
  void gather() const;
  void follow(std::uint32_t seen) const;

  Sidecar& sidecar_;
  Page& page_;
};

}  // namespace memlith::sqlite::shared
