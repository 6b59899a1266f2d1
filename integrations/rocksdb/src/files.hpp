// Files and folders by system calls, with errors as values. Floor: rocksdb.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "memlith/memlith.hpp"

namespace memlith_rocksdb {

using memlith::Error;
using memlith::Result;

// The error of the last system call: NO_SPACE or IO; `what` names the call and the file.
Error errno_error(const std::string& what);

class File {
 public:
  File() = default;
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~File();

  static Result<File> open(const std::string& path, int flags);
  Result<void> write_at(std::uint64_t offset, std::string_view bytes) const;
  // The kernel begins to read the first `bytes` bytes into its cache.
  void read_ahead(std::uint64_t bytes) const;
  // The bytes that there are, from `offset` on; empty at the end of the file.
  Result<std::string_view> read_at(std::uint64_t offset, char* buffer, std::uint64_t bytes) const;
  Result<std::uint64_t> size() const;
  Result<void> sync_data() const;

 private:
  int descriptor_ = -1;
  std::string path_;
};

// Held by the process that writes the logs in a folder, or gives them back; the kernel lets go when the process ends.
// A child that fork(2) makes does not hold it, so a helper that outlives a killed program keeps no database locked.
class FolderLock {
 public:
  FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();
  // Errors: BUSY - another holds it.
  static Result<FolderLock> take(const std::string& folder);

 private:
  struct LockedFolder;
  std::unique_ptr<LockedFolder> held_;
};

Result<void> sync_folder(const std::string& path);
Result<void> rename_file(const std::string& from, const std::string& to);
Result<void> remove_file(const std::string& path);  // fine if there is none
Result<void> remove_folder_tree(const std::string& path);
// The folder without links, as the key of what this process has open.
Result<std::string> real_folder(const std::string& path);

}  // namespace memlith_rocksdb
