// Finds or creates the log of a store, locks it and opens it. Floor: store.
#pragma once

#include <string>

#include "store/directory.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Alone: the store is not shared yet.
class Opening {
 public:
  Opening(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // Fills `files`. Changes nothing of an existing store.
  Status run();
  // Instead of run(), for a store that is followed: reads the log's superblock and slots anew, without a lock.
  Status look();
  // Writes the holder note: which process has the store open for writing. The note is advisory, for people; the lock
  // itself is the kernel's.
  static std::string own_note();
  Status leave_holder_note();
  // Removes the files that run() created, of a store without commits.
  void undo();
  [[nodiscard]] bool made_log() const { return !made_log_.empty(); }

 private:
  Status open_log();
  Status find_or_make_log();
  Status make_log_if_nobody_does();
  Status make_log();
  Status lock_log(const std::string& name);
  Status tell_who_holds(Status busy);
  Status read_header();
  [[nodiscard]] Status check_guard() const;
  Status check_blocks(const StoreHeader& header);
  [[nodiscard]] Status check_lines() const;
  [[nodiscard]] Status check_medium(const FileSystem& found) const;
  [[nodiscard]] Status check_not_copied() const;
  [[nodiscard]] Status check_held() const;
  [[nodiscard]] LogFormat log_format(std::uint32_t block_bytes) const;

  StoreFiles& files_;
  Directory& directory_;
  std::string made_log_;  // the name of the created log; empty: the log existed
};

}  // namespace memlith::core
