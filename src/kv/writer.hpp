// Changes the pages of a kv store: one commit at a time, under one mutex. Floor: kv.
//
// Writer has the store's header, the list of free pages, what the commit under way has changed, and the batch of bytes
// that commits leave for the log. All of it belongs to the thread that holds the mutex, which clang checks as the role
// `writing`.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/sync.hpp"
#include "kv/batch.hpp"
#include "kv/free_runs.hpp"
#include "kv/kept.hpp"
#include "kv/words.hpp"

namespace memlith::core::kv {

// Room for one more, so that push_back() allocates nothing.
template <class T>
void make_room_in(std::vector<T>& all) {
  if (all.size() == all.capacity()) all.reserve(std::max<std::size_t>(8, 2 * all.size()));
}

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

  // For a commit: pages of trees, and runs for long values, with the number of pages of all runs together.
  struct Need {
    std::uint64_t pages = 0;
    std::uint64_t run_pages = 0;
  };
  // Room for the pages, for which the region grows if need be. write_run() finds room for the runs; with `for_runs`,
  // which is for a commit whose frame does not carry the region's size, without a growth.
  Status make_room(const Need& need, bool for_runs) MEMLITH_REQUIRES(writing);
  // Grows the region before a commit needs it, because a commit would wait for the disk. Any thread, without locks.
  void grow_ahead();
  // Room in the batch for the commit to come, so that it allocates nothing.
  void reserve_batch(std::uint64_t bytes, std::uint64_t extents) MEMLITH_REQUIRES(writing) {
    batch_.reserve(bytes + sizeof(StoreHeader), extents + 1);
  }
  // The same for the list of the pages that it changes; the number is the most that it can be.
  void reserve_changes(std::uint64_t pages) MEMLITH_REQUIRES(writing) { changing_.reserve(pages + kBroughtBackMax); }

  // ---- a commit

  // `stamp` is above all before. `sure`: the memory for the commit was reserved, but for what snapshots need. Otherwise
  // undo() can undo it.
  void begin(Stamp stamp, bool sure) MEMLITH_REQUIRES(writing);
  // The page of a tree, to be changed; it is sound.
  std::byte* change(PageNumber page) MEMLITH_REQUIRES(writing) { return change(page, true); }
  // These bytes of the page are part of the commit.
  void note(PageNumber page, std::uint64_t offset, std::uint64_t bytes) MEMLITH_REQUIRES(writing);
  // To be formatted by the caller; there is room. Errors: io; of a damaged file alone - corrupt, no_space.
  Result<PageNumber> allocate() MEMLITH_REQUIRES(writing);
  void free(PageNumber page) MEMLITH_REQUIRES(writing);  // of a tree
  // A new run with the value. Errors: no_space, io, corrupt.
  Result<PageNumber> write_run(std::string_view value) MEMLITH_REQUIRES(writing);
  // True if no snapshot may look at the sound run, so that it can be overwritten.
  [[nodiscard]] bool is_own_run(PageNumber first) const MEMLITH_REQUIRES(writing) {
    return words_.own_word(first) >> 1 > newest_snapshot_;
  }
  // The sound run, which is the commit's own, gets a value that needs no more pages. Changes and logs what differs.
  void overwrite_run(const OverflowReference& old, std::string_view value) MEMLITH_REQUIRES(writing);
  void free_run(const OverflowReference& run) MEMLITH_REQUIRES(writing) {
    free_pages(run.first, static_cast<std::uint32_t>(pages_of_value(run.bytes)), false);
  }
  void count_records(std::int64_t more) MEMLITH_REQUIRES(writing);
  // The map with this root was removed, and has pages left; 0: there is none.
  void note_removing(PageNumber root) MEMLITH_REQUIRES(writing);
  // Memory ran out in the middle of the commit: everything is as it was before it, and end() makes it one that changed
  // nothing.
  void undo() MEMLITH_REQUIRES(writing);
  // The commit is complete and visible. reserve_batch() was called before it began, and, to be sure, after its changes.
  void end(std::uint64_t commit) MEMLITH_REQUIRES(writing);

  // The commit takes the pages that it has changed, and beside them memory for images of pages and for the log.
  struct Held {
    std::uint64_t pages = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Held held() const MEMLITH_REQUIRES(writing) {
    const Batch::Mark now = batch_.mark();
    return {changing_.size(),
            now.bytes - begun_.bytes + (now.extents - begun_.extents) * sizeof(Extent) + imaged_.size() * kPageBytes};
  }

  // ---- for the log; between commits

  [[nodiscard]] Batch& batch() MEMLITH_REQUIRES(writing) { return batch_; }
  // A frame may end behind what the batch holds: puts the header there.
  void cut_batch() MEMLITH_REQUIRES(writing);

 private:
  static constexpr std::uint64_t kBroughtBackMax = 16;  // pages that a commit brings back into the region
  static constexpr std::size_t kImagesTogether = 64;
  // A page and how it was used, so that undo() can tell.
  struct Use {
    PageNumber first;
    std::uint32_t pages;
    PageUse before;  // of the first; the others were in a run, or free, too
  };
  void save_image(PageNumber page) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::byte* image(std::size_t index) const MEMLITH_REQUIRES(writing) {
    return images_[index / kImagesTogether].get() + index % kImagesTogether * kPageBytes;
  }
  // `of_snapshots`: those that are active may look at it.
  std::byte* change(PageNumber page, bool of_snapshots) MEMLITH_REQUIRES(writing);
  void note_copied(PageNumber first, std::uint64_t pages) MEMLITH_REQUIRES(writing);
  void note_use(const Use& use) MEMLITH_REQUIRES(writing);
  Status read_free_runs(std::uint64_t pages) MEMLITH_REQUIRES(writing);
  Status grow_to(std::uint64_t pages) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::uint64_t pages_behind() const MEMLITH_REQUIRES(writing);
  Result<PageNumber> take(std::uint32_t pages, std::optional<PageNumber> run) MEMLITH_REQUIRES(writing);
  void unlink(PageNumber run) MEMLITH_REQUIRES(writing);
  void join(PageNumber run) MEMLITH_REQUIRES(writing);
  void set_run_size(PageNumber run, std::uint32_t pages) MEMLITH_REQUIRES(writing);
  void free_pages(PageNumber first, std::uint32_t pages, bool of_snapshots) MEMLITH_REQUIRES(writing);
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
  FreeRuns free_runs_ MEMLITH_GUARDED_BY(writing);
  bool read_partly_ MEMLITH_GUARDED_BY(writing) = true;     // free_runs_ says nothing
  std::uint64_t reserved_ MEMLITH_GUARDED_BY(writing) = 0;  // pages for which make_room() has made room
  std::uint64_t joins_ MEMLITH_GUARDED_BY(writing) = 0;     // of free runs, by this commit
  std::vector<Use> uses_ MEMLITH_GUARDED_BY(writing);       // that the commit has changed
  bool undoable_ MEMLITH_GUARDED_BY(writing) = false;       // pages are copied before they are changed
  Batch::Mark begun_ MEMLITH_GUARDED_BY(writing);           // before the commit
  StoreHeader header_before_ MEMLITH_GUARDED_BY(writing){};
  std::vector<PageNumber> imaged_ MEMLITH_GUARDED_BY(writing);                    // the pages that were copied
  std::vector<std::unique_ptr<std::byte[]>> images_ MEMLITH_GUARDED_BY(writing);  // of kImagesTogether pages each
};

}  // namespace memlith::core::kv
