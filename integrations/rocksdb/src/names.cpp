#include "names.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>

namespace memlith_rocksdb {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, path.find_last_not_of('/', slash) + 1);
}

std::string file_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string log_file_name(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits + ".log";
}

std::optional<LogName> log_name_of(const std::string& path) {
  const std::string name = file_of(path);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end == name.data() || name != log_file_name(number)) return std::nullopt;
  return LogName{folder_of(path), number};
}

std::string memlith_folder(const std::string& folder) { return folder + "/" + kFolder; }
std::string store_path(const std::string& folder) { return memlith_folder(folder) + "/store"; }
std::string removed_path(const std::string& folder) { return memlith_folder(folder) + "/removed"; }
std::string kept_path(const std::string& folder, std::uint64_t number) {
  return memlith_folder(folder) + "/" + log_file_name(number);
}
std::string plain_path(const std::string& folder, std::uint64_t number) { return folder + "/" + log_file_name(number); }

bool is_there(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

}  // namespace memlith_rocksdb
