// A copy of a store that is made from an archive: a full copy, and the frames behind it as they are. Floor: archive.
//
// The replica's log is held (LogEnd): frames count once they are flushed and a superblock has them before its head.
// Therefore after a crash at any point the replica is a state of the store, and append() can go on from end(). Only
// replay writes its home files, as in any store. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "archive/manifest.hpp"
#include "archive/pack.hpp"
#include "store/directory.hpp"
#include "store/opening.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class Replica {
 public:
  // The volume outlives the replica.
  Replica(Volume& volume, StoreKind kind, std::string file_name);
  ~Replica();

  // Makes the replica of a full copy, in a volume without one. `log_bytes_min`: of the log.
  Status create(const FullCopy& full, std::uint64_t log_id, PackReader& copy, std::uint64_t log_bytes_min);
  // Opens one that create() made. Errors: those of opening a store; invalid, if it was promoted.
  Status open();

  // Everything before it is in the replica.
  [[nodiscard]] LogPosition end() const { return end_; }
  // Adds whole frames that follow end(), durably. `incarnation` is that of the last one. If `from` lies behind end(),
  // the log had moved on without a frame.
  Status append(std::span<const std::byte> frames, LogPosition from, LogPosition to, std::uint64_t incarnation);
  // Writes everything home, and frees the log.
  Status checkpoint();
  // Makes it a store that can be opened for writing, and recovers like any other. The replica is closed then.
  Status promote();

  [[nodiscard]] std::uint64_t log_id() const { return files_.log->log_id(); }
  [[nodiscard]] const LogGeometry& geometry() const { return files_.log->geometry(); }
  [[nodiscard]] StoreFiles& files() { return files_; }

 private:
  Status copy_homes(PackReader& copy, std::uint64_t log_id);
  Status fit_in_use_header();
  Status make_log(const FullCopy& full, std::uint64_t log_id, std::uint64_t log_bytes_min);
  Status read_log();
  Status make_room(LogPosition to);
  Status grow(std::uint64_t slots);
  Status write_frames(std::span<const std::byte> frames, Lsn from);
  Status claim(std::uint64_t segment);
  Status make_homes_fit();
  Status make_home_fit(ObjectId object, std::uint64_t bytes);
  [[nodiscard]] const Superblock& superblock() const { return superblocks_->unshared(); }
  Status write_superblock(LogPosition tail, LogPosition head, const std::function<void(Superblock&)>& change = {});
  [[nodiscard]] ClientBytes client() const;

  StoreFiles files_;
  std::unique_ptr<Directory> directory_ = Directory::make(files_);
  Opening opening_{files_, *directory_};
  Replay replay_{files_, *directory_};
  std::unique_ptr<Superblocks> superblocks_;  // the log is not started, so nothing else writes them
  std::set<std::uint64_t> claimed_;           // segments whose slots say so
  LogPosition end_;
};

}  // namespace memlith::core
