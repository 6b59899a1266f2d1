// Archives a store continuously: segments of its log, full copies, and a manifest. Floor: archive.
//
// A failure changes nothing of the store, and nothing that is archived: the next step tries again, and a log that was
// reused meanwhile is a gap, after which a new run begins with a full copy. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "archive/manifest.hpp"
#include "archive/pack.hpp"
#include "archive/source.hpp"
#include "archive/target.hpp"

namespace memlith::core {

struct ArchiveOptions {
  std::uint64_t seal_ns = 500'000'000;               // frames wait so long for more
  std::uint64_t segment_bytes = 8 * kMiB;            // or until there are so many bytes
  std::uint64_t waiting_bytes_max = 64 * kMiB;       // that are kept in memory while the target fails
  std::uint64_t full_every_ns = 86'400'000'000'000;  // a full copy after so long, if something was committed; 0: never
  std::uint64_t keep_ns = 7 * 86'400'000'000'000;    // older states need not be restorable; 0: all are kept
  // The log is not reused before it is archived, but grows up to this size (store/archived.hpp); 0: it does not wait.
  std::uint64_t keep_log_bytes = 0;
  // A target of commands cannot say that it has no manifest: with this, a command that fails says so.
  bool takes_failure_for_new = false;
  // For a one-file store: its path, and the archive that it was restored from, by which the archive knows the file
  // again when it has a new log; empty and 0: not known.
  std::string place;
  std::uint64_t restored_from = 0;
  bool takes_damaged = false;             // full copies are made of what is there, even if it is not as it was written
  std::function<std::uint64_t()> now_ns;  // since 1970; empty: the system's clock
};

struct ArchiveProgress {
  Lsn archived;            // everything before it is in the archive
  Lsn durable;             // of the store
  std::uint64_t gaps = 0;  // runs that began for lack of frames, since opening
  std::uint64_t segments = 0;
  std::uint64_t fulls = 0;
  std::uint64_t refused = 0;  // full copies that were due and not made, because the store is damaged
  bool log_is_full = false;   // as much as keep_log_bytes is not archived: the log waits no more
};

class Archiver {
 public:
  // The source and the target outlive the archiver.
  Archiver(ArchiveSource& source, ArchiveTarget& target, ArchiveOptions options);
  ~Archiver();

  // Finds the archive or begins one. A file without a log is waited for by step(). Errors: invalid, if the archive is
  // that of another store; busy, if another archiver is at work; those of the target.
  Status open();
  // Looks at the store once, and seals what is due. To be called several times a second. If a full copy that is due
  // was refused (progress), last_error_text() says why.
  Status step();
  // Looks at the store until everything is gathered that can be read now, for at most so long, and seals it: what a
  // commit has made durable, the program that writes shows up to 50 ms later. If the store cannot be read any more,
  // what was gathered before is sealed. Error: not_found, if the file has had no log since open().
  Status flush(std::chrono::milliseconds patience);
  // A full copy now. Error: not_found, as flush().
  Status copy_now();

  [[nodiscard]] ArchiveProgress progress() const;
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

 private:
  Status resume();
  Status check_same_store() const;
  Status check_log() const;
  Status go_on_with_new_log();
  Status begin_run(std::string why);
  Status copy_full(std::uint64_t run);
  Status is_damaged(const CopiedState& state) const;
  Status look_once();
  Status catch_up(std::chrono::milliseconds patience);
  Status gather();
  Status take(const Frame& frame);
  Status seal();
  Status put_segment(const PackHeader& header, std::uint64_t& stored_bytes);
  Status put_manifest(Manifest next);
  static void note_time(Run& run, std::uint64_t ns);
  Status check_still_mine();
  Status forget_old();
  [[nodiscard]] bool full_is_due() const;
  [[nodiscard]] std::uint64_t now() const;
  Result<std::uint64_t> segment_with(LogPosition position) const;
  [[nodiscard]] LogPosition archived() const { return manifest_.runs.back().end; }

  ArchiveSource& source_;
  ArchiveTarget& target_;
  const ArchiveOptions options_;
  std::unique_ptr<VolumeLock> lock_;
  Manifest manifest_;
  bool written_ = false;  // the target has a manifest of this session

  // Frames that are durable and not archived yet.
  std::vector<std::byte> waiting_;
  LogPosition waiting_from_;
  LogPosition position_;  // behind them
  std::uint64_t waiting_since_ns_ = 0;
  std::uint64_t first_time_ns_ = 0;  // the earliest time record among them; 0: none
  std::uint64_t all_read_ns_ = 0;    // when everything was read that was durable then
  bool ended_ = false;               // everything of a log was read that is gone
  bool broken_ = false;              // a run has to begin; why_ says which
  std::string why_;
  std::uint64_t gaps_ = 0;
  std::uint64_t segments_ = 0;
  std::uint64_t fulls_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t refused_ns_ = 0;
  std::uint64_t removed_segment_ = 1;  // lower ones were removed
  std::uint64_t removed_full_ = 1;
};

}  // namespace memlith::core
