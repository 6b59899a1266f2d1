// Changes the pages of a kv store: one commit at a time, under one mutex. Floor: kv.
//
// Writer has the store's header, the list of free pages, what the commit under way has changed, and the batch of bytes
// that commits leave for the log. All of it belongs to the thread that holds the mutex, which clang checks as the role
// `writing`.
#pragma once

#include <vector>

#include "base/sync.hpp"
#include "kv/batch.hpp"
#include "kv/kept.hpp"
#include "kv/words.hpp"

namespace memlith::core::kv {

class Writer {
 public:
  Writer(Words& words, Kept& kept) : words_(words), kept_(kept) {}
  [[nodiscard]] Mutex& mutex() MEMLITH_RETURN_CAPABILITY(writing) { return mutex_; }

  // ---- the header

  // Makes an empty kv store, which the first batch makes durable.
  void format() MEMLITH_REQUIRES(writing);
  [[nodiscard]] StoreHeader header() const MEMLITH_REQUIRES(writing);
  // Errors: the region holds no kv store, or one that this version does not read; corrupt.
  [[nodiscard]] Status check_header() const MEMLITH_REQUIRES(writing);
  // The region's bytes are those of a kv store, or are others now. Readers find the header's pages if it is sound.
  Status load_header() MEMLITH_REQUIRES(writing);
  // From now on no commit leaves anything for the log. Before the first commit.
  void log_nothing() { logs_ = false; }
  [[nodiscard]] bool logs() const { return logs_; }

  // ---- room

  // Room for that number of new pages: the region grows if need be. Also checks that as many free pages are what they
  // should be.
  Status make_room(std::uint64_t pages) MEMLITH_REQUIRES(writing);
  // Grows the region before a commit needs it, because a commit would wait for the disk. Any thread, without locks.
  void grow_ahead();
  // Room in the batch for the commit to come, so that it allocates nothing.
  void reserve_batch(std::uint64_t bytes, std::uint64_t extents) MEMLITH_REQUIRES(writing) {
    batch_.reserve(bytes + sizeof(StoreHeader), extents + 1);
  }

  // The same for the list of the pages that it changes, so many at most.
  void reserve_changes(std::uint64_t pages) MEMLITH_REQUIRES(writing) { changing_.reserve(pages); }

  // ---- a commit

  // `stamp` is above all before. `sure`: the memory for the commit was reserved, but for what snapshots need. Otherwise
  // undo() can undo it.
  void begin(Stamp stamp, bool sure) MEMLITH_REQUIRES(writing);
  // The page, to be changed; it is sound.
  std::byte* change(PageNumber page) MEMLITH_REQUIRES(writing);
  // These bytes of the page are part of the commit.
  void note(PageNumber page, std::uint64_t offset, std::uint64_t bytes) MEMLITH_REQUIRES(writing);
  PageNumber allocate() MEMLITH_REQUIRES(writing);  // to be changed and formatted by the caller; there is room
  void free(PageNumber page) MEMLITH_REQUIRES(writing);
  void count_records(std::int64_t more) MEMLITH_REQUIRES(writing);
  // The map with this root was removed, and has pages left; 0: there is none.
  void note_removing(PageNumber root) MEMLITH_REQUIRES(writing);
  // Memory ran out in the middle of the commit: everything is as it was before it, and end() makes it one that changed
  // nothing.
  void undo() MEMLITH_REQUIRES(writing);
  // The commit is complete and visible. reserve_batch() was called before it began, and, to be sure, after its changes.
  void end(std::uint64_t commit) MEMLITH_REQUIRES(writing);

  // ---- for the log; between commits

  [[nodiscard]] Batch& batch() MEMLITH_REQUIRES(writing) { return batch_; }
  // A frame may end behind what the batch holds: puts the header there.
  void cut_batch() MEMLITH_REQUIRES(writing);

 private:
  void save_image(PageNumber page) MEMLITH_REQUIRES(writing);
  StoreHeader& own_header() MEMLITH_REQUIRES(writing) {
    return *reinterpret_cast<StoreHeader*>(words_.at(kHeaderPage) + kHeaderOffset);
  }
  [[nodiscard]] const std::byte* header_bytes() const { return words_.bytes_of(kHeaderPage) + kHeaderOffset; }
  [[nodiscard]] Region& region() const { return words_.region(); }

  Words& words_;
  Kept& kept_;
  Mutex mutex_;
  bool logs_ = true;  // constant after opening
  Batch batch_ MEMLITH_GUARDED_BY(writing);
  std::uint64_t cut_bytes_ MEMLITH_GUARDED_BY(writing) = 0;  // a frame may end behind that number of bytes
  // The newest commit whose number is in the batch, or was when the batch went to the log.
  std::uint64_t cut_commit_ MEMLITH_GUARDED_BY(writing) = 0;

  // The commit under way.
  bool running_ MEMLITH_GUARDED_BY(writing) = false;
  Stamp stamp_ MEMLITH_GUARDED_BY(writing) = kCheckedStamp;
  Stamp newest_snapshot_ MEMLITH_GUARDED_BY(writing) = 0;         // 0: no snapshot is active
  std::vector<PageNumber> changing_ MEMLITH_GUARDED_BY(writing);  // the pages it has changed
  std::vector<PageNumber> ready_ MEMLITH_GUARDED_BY(writing);     // free pages that make_room() has looked at
  bool undoable_ MEMLITH_GUARDED_BY(writing) = false;             // pages are copied before they are changed
  Batch::Mark begun_ MEMLITH_GUARDED_BY(writing);                 // before the commit
  StoreHeader header_before_ MEMLITH_GUARDED_BY(writing){};
  std::vector<PageNumber> imaged_ MEMLITH_GUARDED_BY(writing);  // the pages that were copied
  std::vector<std::byte> images_ MEMLITH_GUARDED_BY(writing);
};

}  // namespace memlith::core::kv
