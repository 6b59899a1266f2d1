// Application logs: memlith.AppLog, of a store, or of several processes (shared_log.cpp).
//
// Part: python. Any number of threads append, write and get. The C interface wants one thread at a time for the rest: a
// mutex sees to that, for commits of transactions, too. A wait for an entry or for room takes slices, between which no
// lock is held, so that other threads read, consume and close, and the main thread hears signals.
#ifndef MEMLITH_PYTHON_APPLOG_HPP
#define MEMLITH_PYTHON_APPLOG_HPP

#include <memlith/applog.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memlith::python {

struct Log {
  memlith_applog* handle = nullptr;  // null: closed. Guarded by the store's lock
  std::string name;
  std::mutex reader;  // comes after the store's lock
};
using LogPtr = std::shared_ptr<Log>;

// The part of a transaction in a log, for its commit.
struct LogChange {
  LogPtr log;
  std::vector<std::string> entries;
  std::uint64_t consumed = 0;  // up to this entry; 0: none
};

// The calls of a log that are the same wherever it is open.
class LogCalls {
 public:
  explicit LogCalls(std::uint32_t when_full) : blocks_(when_full == MEMLITH_APPLOG_BLOCK) {}
  LogCalls(const LogCalls&) = delete;
  LogCalls& operator=(const LogCalls&) = delete;
  virtual ~LogCalls() = default;

  // The number of the last entry; 0 in a transaction, where the commit gives them their numbers.
  std::uint64_t append(const std::vector<nanobind::bytes>& entries);
  std::optional<std::pair<std::uint64_t, nanobind::bytes>> read(std::optional<double> seconds);
  std::optional<nanobind::bytes> get(std::uint64_t number);
  void rewind();
  void consume(std::uint64_t number);
  void truncate_after(std::uint64_t last);
  void truncate_before(std::uint64_t first);
  void restart(std::uint64_t next);
  nanobind::dict info();

 protected:
  // Calls work(handle) without the interpreter lock; as the reader beside no other one. Waiting for room is done
  // between such calls, so that the handle is one that fails.
  virtual void use(bool as_reader, const std::function<void(memlith_applog* handle)>& work) = 0;
  // False: no transaction is open here.
  virtual bool append_in_transaction(const std::vector<nanobind::bytes>& /*entries*/) { return false; }
  virtual bool consume_in_transaction(std::uint64_t /*number*/) { return false; }
  virtual void check_no_transaction() {}

 private:
  void at_once(const std::function<void(memlith_applog* handle)>& work);

  const bool blocks_;  // an append waits for room
};

// For memlith_applog_options.
inline std::uint32_t without_waits(std::uint32_t when_full) {
  return when_full == MEMLITH_APPLOG_BLOCK ? std::uint32_t{MEMLITH_APPLOG_FAIL} : when_full;
}

void define_applog(nanobind::module_& module);

}  // namespace memlith::python

#endif
