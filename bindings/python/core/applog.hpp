// Application logs of a store: memlith.AppLog.
//
// Part: python. Any number of threads append, write and get. The C interface wants one thread at a time for the rest:
// Log::reader sees to that, for commits of transactions, too. A wait for an entry or for room takes slices, between
// which no lock is held, so that other threads read, consume and close, and the main thread hears signals.
#ifndef MEMLITH_PYTHON_APPLOG_HPP
#define MEMLITH_PYTHON_APPLOG_HPP

#include <memlith/applog.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace memlith::python {

struct Log {
  memlith_applog* handle = nullptr;  // null: closed. Guarded by the store's lock
  std::string name;
  bool blocks = true;  // an append waits for room
  std::mutex reader;   // comes after the store's lock
};
using LogPtr = std::shared_ptr<Log>;

// The part of a transaction in a log, for its commit.
struct LogChange {
  LogPtr log;
  std::vector<std::string> entries;
  std::uint64_t consumed = 0;  // up to this entry; 0: none
};

void define_applog(nanobind::module_& module);

}  // namespace memlith::python

#endif
