// Names in a data directory of PostgreSQL. Floor: postgres.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace memlith_postgres {

inline constexpr std::size_t kPageBytes = 8192;  // of PostgreSQL, as Debian builds it
inline constexpr std::size_t kPathBytesMax = 111;

// True if a path, relative to the data directory, is that of a file of a relation's pages: of any fork and segment, and
// of no temporary relation. Such as base/5/16384, base/5/16384_fsm.1, global/1262,
// pg_tblspc/16400/PG_15_202209061/5/16384.
bool is_relation(std::string_view path);

// True if a path, relative to the data directory, is that of a segment of the write-ahead log.
bool is_wal(std::string_view path);

// For a relation's file, the file that an unlogged relation has beside it: base/5/16384_init for base/5/16384_fsm.1.
// Empty for such a file itself, which is logged.
std::string init_of(std::string_view path);

// The path relative to the data directory `root`, an absolute path without a slash at the end; also removes "./" in
// front. A path that leads elsewhere comes back as it is.
std::string_view within(std::string_view root, std::string_view path);

}  // namespace memlith_postgres
