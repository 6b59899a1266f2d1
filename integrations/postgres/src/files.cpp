#include "files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace memlith_postgres {

namespace {

// File systems whose syncfs() waits for all of their files.
bool is_of_this_machine(int folder) {
  constexpr std::array<std::uint64_t, 5> kKnown{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
                                                TMPFS_MAGIC};
  struct statfs status{};
  return ::fstatfs(folder, &status) == 0 &&
         std::find(kKnown.begin(), kKnown.end(), static_cast<std::uint64_t>(status.f_type)) != kKnown.end();
}

}  // namespace

Error errno_error(const std::string& what) {
  const int why = errno;
  std::int32_t category = MEMLITH_IO;
  if (why == ENOSPC || why == EDQUOT) category = MEMLITH_NO_SPACE;
  if (why == ENOENT || why == ENOTDIR) category = MEMLITH_NOT_FOUND;
  if (why == EACCES || why == EPERM || why == EROFS) category = MEMLITH_PERMISSION;
  return Error(category, what + ": " + std::generic_category().message(why));
}

Error error_of(memlith::core::Status status) {
  return Error(static_cast<std::int32_t>(status.category), std::string(memlith::core::last_error_text()));
}

void say(const std::string& sentence) {
  const std::string line = "memlith: " + sentence + "\n";
  [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, line.data(), line.size());
}

Result<Descriptor> open_file(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (file.get() < 0) return errno_error("cannot open " + path);
  return file;
}

Result<void> flush_file(const Descriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0) return errno_error("cannot flush " + path);
  return {};
}

Result<void> flush_folder(const std::string& path) {
  const Result<Descriptor> folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!folder) return folder.error();
  return flush_file(*folder, path);
}

std::vector<std::uint64_t> settle(const std::vector<std::string>& folders) {
  std::vector<std::uint64_t> settled;
  for (const std::string& path : folders) {
    const Result<Descriptor> folder = open_file(path, O_RDONLY | O_DIRECTORY);
    struct stat status{};
    if (!folder || ::fstat(folder->get(), &status) != 0) continue;
    if (std::find(settled.begin(), settled.end(), status.st_dev) != settled.end()) continue;
    if (!is_of_this_machine(folder->get())) continue;
    // The second call for file systems that leave the disk's cache alone when only bytes of files had changed.
    if (::syncfs(folder->get()) == 0 && ::fsync(folder->get()) == 0) settled.push_back(status.st_dev);
  }
  return settled;
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator next(folder, error), end; !error && next != end; next.increment(error)) {
    entries.push_back(next->path());
  }
  return entries;
}

Result<std::optional<std::string>> read_file(const std::string& path) {
  const Result<Descriptor> file = open_file(path, O_RDONLY);
  if (!file && file.error().category() == MEMLITH_NOT_FOUND) return std::optional<std::string>();
  if (!file) return file.error();
  std::string content;
  std::array<char, 4096> part{};
  while (true) {
    const ssize_t bytes = ::read(file->get(), part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno_error("cannot read " + path);
    if (bytes == 0) return std::optional(content);
    content.append(part.data(), static_cast<std::size_t>(bytes));
  }
}

Result<void> replace_file(const std::string& path, std::string_view content) {
  const std::string made = path + ".memlith-new";
  {
    const Result<Descriptor> file = open_file(made, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file) return file.error();
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0 && ::fchmod(file->get(), status.st_mode & 07777) != 0) {
      return errno_error("cannot set the permissions of " + made);
    }
    while (!content.empty()) {
      const ssize_t bytes = ::write(file->get(), content.data(), content.size());
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return errno_error("cannot write " + made);
      content.remove_prefix(static_cast<std::size_t>(bytes));
    }
    if (Result<void> flushed = flush_file(*file, made); !flushed) return flushed;
  }
  if (::rename(made.c_str(), path.c_str()) != 0) return errno_error("cannot rename " + made + " to " + path);
  return flush_folder(folder_of(path));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> found{};
  return ::realpath(path.c_str(), found.data()) == nullptr ? std::string() : found.data();
}

}  // namespace memlith_postgres
