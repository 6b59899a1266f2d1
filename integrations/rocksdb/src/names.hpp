// Where the files of a RocksDB log lie. Floor: rocksdb.
//
// A log is DIR/NNNNNN.log. While a process has the database open with memlith, its bytes are in DIR/memlith/NNNNNN.log,
// and DIR/NNNNNN.log is a symbolic link that leads nowhere, so that a RocksDB without memlith fails to open the
// database instead of opening an older state of it. DIR/memlith/store is the memlith store with the journal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memlith_rocksdb {

struct LogName {
  std::string folder;
  std::uint64_t number = 0;
};

inline constexpr const char* kFolder = "memlith";
inline constexpr const char* kLinkText = "memlith/this-log-is-opened-with-memlith-rocksdb-only";

std::string folder_of(const std::string& path);
std::string file_of(const std::string& path);
// As RocksDB names it: at least six digits.
std::string log_file_name(std::uint64_t number);
// Nothing, if the path is not that of a log.
std::optional<LogName> log_name_of(const std::string& path);

std::string memlith_folder(const std::string& folder);
std::string store_path(const std::string& folder);
std::string removed_path(const std::string& folder);  // of a store that is being removed
std::string kept_path(const std::string& folder, std::uint64_t number);
std::string plain_path(const std::string& folder, std::uint64_t number);
bool is_there(const std::string& path);  // a link that leads nowhere is

}  // namespace memlith_rocksdb
