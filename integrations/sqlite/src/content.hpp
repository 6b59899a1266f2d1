// The content of a database that this process has with the engine: memory over the home file of a one-file store, and
// commits of what has changed in it. Part of the SQLite plugin.
//
// INVARIANT: the first 16 bytes of the home file say whether the file needs its log. "SQLite format 3": the file is
// complete by itself, and a log beside it does not count. The in-use header (the mark): the newest commits may be in
// the log only. Plain SQLite then says "file is not a database", even if it has page 1 cached, because one bit of the
// change counter is inverted at home and in the log as long as the mark is there. Memory always shows SQLite's own
// bytes. The mark goes home before the first commit is acknowledged, and SQLite's bytes replace it as the last step of
// a clean close. Both go through the log, because only replay writes a home file.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/memory_budget.hpp"
#include "change_list.hpp"
#include "image.hpp"
#include "memlith/sqlite_file.h"
#include "options.hpp"
#include "store/store.hpp"
#include "undo_log.hpp"

namespace memlith::sqlite {

// Threads: readers beside whatever SQLite's locks allow; a checkpoint and a commit in WAL mode may both find the file
// too short.
class Content {
 public:
  // `on_mark` is called when the mark is home.
  Content(std::string path, const Options& options, std::function<void()> on_mark)
      : path_(std::move(path)),
        options_(options),
        on_mark_(std::move(on_mark)),
        memory_budget_(options.memory_max_bytes) {}
  ~Content();  // leaves the store as a crash would

  // ---- opening and closing
  core::Status open(core::Volume& volume, const core::StoreOptions& options);
  // Without a store: a file that is complete by itself, and is only read.
  core::Status open_plain(std::unique_ptr<core::Device> file, std::uint64_t bytes);
  // Instead of close(): removes the log if open() made it.
  void undo_creation();
  // The file is an ordinary database then, if unmark() was called before.
  core::Status close(bool removes_log);
  // Null before open(), after close(), and without a store.
  [[nodiscard]] core::Store* store() const { return store_.get(); }
  [[nodiscard]] core::Device* plain() const { return plain_.get(); }

  // ---- memory
  [[nodiscard]] std::uint64_t size() const { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t committed() const { return committed_.load(std::memory_order_relaxed); }
  // Returns the number of bytes read; the rest of the target is unchanged.
  core::Result<std::uint64_t> read(std::uint64_t offset, void* target, std::uint64_t bytes) const;
  // The address of the bytes, valid until the database is closed; null if there is no single address.
  [[nodiscard]] const std::byte* fetch(std::uint64_t offset, std::uint64_t bytes) const;
  // The same of bytes that were loaded.
  [[nodiscard]] const std::byte* find(std::uint64_t offset, std::uint64_t bytes) const {
    return image_->find(offset, bytes);
  }
  // `undoable`: roll_back() takes it back. What a checkpoint of SQLite's stores is committed already.
  core::Status write(std::uint64_t offset, const void* source, std::uint64_t bytes, bool undoable);
  core::Status truncate(std::uint64_t bytes, bool undoable);
  // Makes the home file and the mapping long enough, with a reserve, because each growth costs flushes.
  core::Status reserve(std::uint64_t bytes);
  // A commit changes the page, and readers of older snapshots still look at this one.
  core::Status own(std::uint64_t offset, std::uint64_t bytes) { return image_->own(offset, bytes); }
  [[nodiscard]] bool unchanged() const { return undo_.empty() && size() == committed(); }
  void roll_back();
  // Memory beyond the committed size is not shown any more.
  void show_committed_size();
  // Releases memory beyond memory_max_bytes. Must be called when memory shows committed bytes only. A failure is no
  // failure of a commit.
  core::Status keep_to_memory();

  // ---- commits
  // The bytes of the next commit. Threads: the holder of EXCLUSIVE, or of WAL's WRITE lock.
  ChangeList& changes() { return changes_; }
  void count_captured(std::uint64_t bytes) { captured_bytes_ += bytes; }
  // Puts what was stored since the last commit into changes(). False: nothing has changed.
  bool collect();
  enum class Wait : std::uint8_t { now, later, never };
  // Commits changes() as one frame; `splits`: as many frames as necessary.
  core::Status commit(std::uint64_t new_size, Wait wait, bool splits);
  // Memory is what is committed.
  void clear_undo() { undo_.clear(); }
  [[nodiscard]] std::uint64_t last_lsn() const { return last_lsn_.load(std::memory_order_relaxed); }
  core::Status persist();  // everything committed is durable on return

  // ---- the mark
  core::Status mark();
  [[nodiscard]] bool is_marked() const { return marked_; }
  [[nodiscard]] bool mark_is_home() const { return mark_is_home_; }
  // The file becomes an ordinary one. To go on, make_ordinary() is called instead.
  core::Status unmark();
  core::Status make_ordinary();

 private:
  static constexpr std::uint64_t kMarkBytes = MEMLITH_SQLITE_MARK_BYTES;
  static constexpr std::uint64_t kChangedBytes = MEMLITH_SQLITE_CHANGED_BYTES;

  core::Status lay_over();
  core::Status show_magic();
  void zero_between(std::uint64_t begin, std::uint64_t end, bool undoable);
  [[nodiscard]] std::uint64_t kept_bytes(std::uint64_t offset, std::uint64_t bytes, bool undoable) const;
  core::Status commit_frame(std::span<const core::Extent> extents, std::span<const std::byte* const> sources,
                            std::uint64_t new_stored_size, Wait wait, bool splits);
  core::Status commit_directly(const core::Extent* extent, const std::byte* bytes, const std::uint64_t* size);
  [[nodiscard]] std::uint64_t stored_size(std::uint64_t logical) const;

  const std::string path_;
  const Options& options_;
  const std::function<void()> on_mark_;
  const core::MemoryBudget memory_budget_;
  std::unique_ptr<core::Device> plain_;
  std::unique_ptr<core::Store> store_;
  std::unique_ptr<Image> image_;

  std::atomic<std::uint64_t> size_{0};       // the size that SQLite sees; release after the bytes are stored
  std::atomic<std::uint64_t> committed_{0};  // as of the last commit
  std::uint64_t stored_ = 0;                 // the file's size as the store has it
  bool marked_ = false;                      // closing has to remove the mark
  std::atomic<bool> mark_is_home_{false};    // there may be commits

  std::mutex growth_mutex_;
  std::atomic<std::uint64_t> reserved_{0};
  std::uint64_t stale_end_ = 0;  // what lies beyond the size, up to here, are old bytes, not zeros

  UndoLog undo_;
  ChangeList changes_;
  std::uint64_t captured_bytes_ = 0;  // since memory was given back
  std::atomic<std::uint64_t> last_lsn_{0};
};

}  // namespace memlith::sqlite
