// The store that is archived, as a follower reads it: durable frames, and copies of home files. Floor: archive.
//
// The source takes no lock, and the writer need not know of it (store/view.hpp says why that is sound). A frame is
// handed out only if it is durable in the store: as the writer's page of counters says, or, if no process writes, after
// the source itself has flushed what it found. So a frame that a crash takes back is never in the archive.
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "archive/format.hpp"
#include "archive/manifest.hpp"
#include "copy/source.hpp"
#include "store/archived.hpp"
#include "store/directory.hpp"
#include "store/opening.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class ArchiveSource {
 public:
  // The volume outlives the source.
  ArchiveSource(Volume& volume, StoreKind kind, std::string file_name);

  // Reads the superblock anew. If the file of a one-file store is there and its log was removed or replaced, that is no
  // error: the log that was looked at before is read to its end then, and log_is_gone() says so. Errors: those of
  // opening a store; not_found, if the store was removed, or a folder store replaced.
  Status look();
  // Instead of look(), before the first one and when the log is gone: looks at the log that the file has now. False: it
  // has none, because no process has it open. Errors: as look().
  Result<bool> look_for_log();
  [[nodiscard]] bool log_is_gone() const { return log_is_gone_; }
  // True if look() or look_for_log() has found a log.
  [[nodiscard]] bool has_log() const { return files_.log != nullptr; }

  enum class Reach : std::uint8_t {
    all,        // everything that is durable was read
    gone,       // frames are missing: the log was reused before they were read
    elsewhere,  // the log does not have this position: it is an older copy, or went on from an older state
    changed,    // the file was changed while the store was closed, and the log goes on behind that
    ended       // as all, and nothing will come any more: the log is gone
  };
  using Visit = std::function<Status(const Frame&)>;
  // Hands out the durable frames from `at` on, and moves `at` behind each. A clean close may move the log on without a
  // frame: then the next frame does not start where the last one ended, but follows it in the chain.
  Result<Reach> read(LogPosition& at, const Visit& visit);
  // Behind the last frame from `at` on that can be read. A writer that runs may not have shown yet that it is durable.
  Result<Lsn> readable_end(LogPosition at);
  // True if reading can go on at a position of an earlier time.
  Result<Reach> find(LogPosition at);

  // Copies the store while the writer goes on, as the commit before `full.from` left it. `start` is called before the
  // first record, and again if the copy begins anew; `between` now and then. Errors: those of CopySource::walk.
  struct CopyCalls {
    std::function<Status()> start;
    std::function<Status(const CopyRecord& record, std::span<const std::byte> bytes)> write;
    std::function<Status()> between;
  };
  Result<CopiedState> copy(FullCopy& full, const CopyCalls& calls);

  // As long as this process lives, a program that closes the store leaves what is not archived, and the log. Up to
  // `keep_bytes`, the log is not reused before it is archived; 0: it is. Error: unsupported, if `keep_bytes` is not 0
  // and no notice for the writer can be left beside the log. Called again for a new log.
  Status leave_notice(std::uint64_t keep_bytes);
  // A one-file store: whether the file may have been changed since the log was closed cleanly.
  Result<bool> file_may_be_changed();
  // Everything before this is in the archive.
  void tell_archived(Lsn archived) {
    if (notice_ != nullptr) notice_->show(archived);
  }

  [[nodiscard]] std::uint64_t slot_bytes() const { return has_log() ? files_.log->geometry().slot_bytes : 0; }
  [[nodiscard]] LogPosition tail() const { return files_.log->tail(); }
  [[nodiscard]] Lsn durable() const { return durable_; }
  [[nodiscard]] std::uint64_t log_id() const { return log_id_; }  // 0: has_log() is false
  [[nodiscard]] StoreKind kind() const { return files_.options.kind; }
  [[nodiscard]] const std::string& file_name() const { return files_.options.file_name; }
  [[nodiscard]] std::string path() const { return files_.path(); }

 private:
  Status find_durable();
  Result<bool> ask_writer();
  Result<bool> ask_log();
  Result<bool> file_is_there();
  [[nodiscard]] bool is_behind_a_change(LogPosition at) const;
  Result<std::uint64_t> sequence_on_disk();
  Result<bool> log_has_moved_on(const Status& failed);
  Result<std::optional<Frame>> next_frame(LogReader& reader);

  StoreFiles files_;
  std::unique_ptr<Directory> directory_ = Directory::make(files_);
  Opening opening_{files_, *directory_};
  std::uint64_t log_id_ = 0;
  bool log_is_gone_ = false;
  Lsn durable_;
  Lsn proven_;  // durable as frames say that a copy has read; the writer's page shows it a little later
  std::uint64_t proven_in_ = 0;  // that incarnation
  bool writes_ = false;          // a process has the store open for writing
  std::uint64_t at_rest_ = 0;    // the superblock's sequence when no process wrote and everything was flushed
  LogPosition at_rest_end_;
  std::unique_ptr<ArchivedNotice> notice_;
  std::uint64_t keep_bytes_ = 0;
};

}  // namespace memlith::core
