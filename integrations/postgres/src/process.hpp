// A process of the server: what its descriptors are, and how its calls are done. Floor: postgres.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <string>

#include "file_calls.hpp"
#include "keeper.hpp"
#include "keeper_waiting.hpp"

namespace memlith_postgres {

class Process {
 public:
  static constexpr int kDescriptorsMax = 65536;

  explicit Process(Pages::Segment memory);

  // These do what the system calls do, on descriptors that are ours: of files of relations.
  int open(const char* path, int flags, mode_t mode);
  void forget(int descriptor) {
    files_[static_cast<std::size_t>(descriptor)] = {};
    wal_.reset(static_cast<std::size_t>(descriptor));
  }
  [[nodiscard]] bool is_ours(int descriptor) const {
    return descriptor >= 0 && descriptor < kDescriptorsMax && bool(files_[static_cast<std::size_t>(descriptor)]);
  }
  // A segment of the write-ahead log has write_wal() and flush_wal().
  [[nodiscard]] bool is_wal(int descriptor) const {
    return descriptor >= 0 && descriptor < kDescriptorsMax && wal_[static_cast<std::size_t>(descriptor)];
  }
  ssize_t write_wal(int descriptor, const void* source, std::size_t bytes, off_t offset);
  int flush_wal(int descriptor, int (*sync)(int));
  ssize_t read(int descriptor, void* target, std::size_t bytes, off_t offset);
  ssize_t write(int descriptor, const void* source, std::size_t bytes, off_t offset);
  ssize_t read(int descriptor, const iovec* pieces, int count, off_t offset);
  ssize_t write(int descriptor, const iovec* pieces, int count, off_t offset);
  // As posix_fallocate: returns the number of the error.
  int allocate(int descriptor, off_t offset, off_t bytes);
  int flush(int descriptor, int (*sync)(int));
  int cut(int descriptor, off_t bytes);
  [[nodiscard]] bool is_relation_path(const char* path) const { return is_relation(within(data_, path)); }
  int cut(const char* path, off_t bytes);
  int unlink(const char* path);
  // The path to use in the place of this one: DATA/PG_VERSION is where the mark does not hide it.
  [[nodiscard]] const char* redirect(const char* path) const;

 private:
  void check_folder() const;
  [[nodiscard]] FileRef& ref(int descriptor);
  [[nodiscard]] FileRef find(const char* path);
  bool track(int descriptor, std::string_view path);
  void find_unlogged(std::string_view init);

  Pages pages_;
  KeeperWaiting waiting_;
  FileCalls calls_;
  const std::string data_;     // the data directory, without links
  const std::string version_;  // where the server reads its PG_VERSION
  struct stat data_folder_{};
  const pid_t postmaster_;
  bool has_lock_file_ = false;  // this process has made postmaster.pid
  std::array<FileRef, kDescriptorsMax> files_{};
  std::bitset<kDescriptorsMax> wal_;
};

// Null in processes that are none of a server that runs with memlith.
Process* process();

}  // namespace memlith_postgres
