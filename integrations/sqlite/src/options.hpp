// The options of a database, from its URI or else from the environment. Part of the SQLite plugin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api.hpp"
#include "base/status.hpp"
#include "store/store.hpp"

namespace memlith::sqlite {

enum class Durability : std::uint8_t { full, weak };

struct Options {
  Durability durability = Durability::full;
  // Mode shared (shared/connection.hpp), or the engine; empty: as the database is (files.cpp).
  std::optional<bool> share;
  bool foresight = true;              // mode shared: transactions that will write are foreseen (shared/foresight.hpp)
  bool reads_latest = false;          // WAL: readers do not wait for what they see to be durable
  std::uint64_t open_wait_ms = 5000;  // opening waits so long for a database that another process holds
  // After this time without a transaction the file of an open database is an ordinary one again; 0: when it is closed.
  std::uint64_t idle_ms = 1000;
  core::FlushWindow window{100, 16 * core::kMiB};   // weak: a commit is durable at most this much later
  bool window_given = false;                        // mode shared: the window also holds for synchronous=NORMAL
  std::uint64_t log_bytes = 0;                      // 0: by the size of the database
  std::uint64_t log_max_bytes = 4 * core::kGiB;     // the largest transaction is a little smaller
  std::uint64_t memory_max_bytes = 0;               // of private copies; 0: no limit
  std::uint64_t growth_bytes_min = 1 * core::kMiB;  // by which the file grows ahead; for tests
  core::StoreOptions store;                         // other options of the engine; for tests
};

// Reads share, foresight, durability, read, open_wait_ms, idle_ms, window_ms, window_bytes, log_mib, log_max_mib,
// memory_max_mib and direct_io from the URI, and missing ones from MEMLITH_SQLITE_DURABILITY and so on. `name` is the
// argument of xOpen.
// Errors: invalid, naming the parameter and its allowed values.
core::Status read_options(const Api& api, const char* name, Options& options);

// durability=full or weak.
core::Result<Durability> parse_durability(const std::string& text);
// share=0 or 1: whether it is 1.
core::Result<bool> parse_share(const std::string& text);
// window_ms: a number, or off.
core::Result<std::optional<std::uint64_t>> parse_window(const std::string& text);
// read=durable or latest: whether it is latest.
core::Result<bool> parse_read(const std::string& text);

}  // namespace memlith::sqlite
