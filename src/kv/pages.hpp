// The pages of a kv store in memory: allocation, what a commit changes, and reading beside a writer. Floor: kv.
//
// One commit at a time changes pages, under the writer's lock of Kv. Each page has a word in memory of the process,
// never in the region: twice the stamp of the commit that changed the page last, plus 1 while a commit is changing the
// page. A reader looks at the word, reads the page, and looks again: if the word is the same and even, what it read was
// whole.
//
// Beside its word a leaf has tags: a byte of the hash of each key, in the order of the cells. A reader that looks for a
// key reads the cells with its tag, instead of one cell after the other in a binary search, each of which would be
// fetched from memory. Tags are made when the page is checked, and kept by TreeWriter.
//
// Snapshots: a commit that is about to change a page that an active snapshot may need keeps a copy of the page first.
// Without snapshots a commit copies nothing.
//
// Stamps: 0 is a page that was not looked at since opening, 1 a page that was checked; commit number n has stamp
// n - base + 2, where base is the newest commit at opening.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/sync.hpp"
#include "kv/batch.hpp"
#include "kv/page.hpp"
#include "kv/snapshots.hpp"
#include "region/region.hpp"

namespace memlith::core::kv {

inline constexpr Stamp kCheckedStamp = 1;
inline constexpr Stamp kNewest = ~Stamp{0};  // as a view: what is there now

// A page as a reader sees it: in place, to be confirmed after reading, or a copy.
struct PageView {
  const std::byte* bytes = nullptr;
  PageNumber page = 0;
  std::uint64_t word = 0;
  std::shared_ptr<const std::byte[]> copy;
};

// State of a page besides its bytes: one line of the cache.
struct alignas(64) PageState {
  static constexpr std::uint32_t kTagsMax = 56;
  std::atomic<std::uint64_t> word;
  // Tags of a leaf with at most kTagsMax cells. Read beside a writer, like the page.
  std::uint8_t tags[kTagsMax];
};
static_assert(sizeof(PageState) == 64);

// ThreadSanitizer cannot know that what is read beside a writer is confirmed afterwards: under it, readers take turns
// with the writer.
#if defined(__SANITIZE_THREAD__)
#define MEMLITH_KV_READERS_WAIT 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMLITH_KV_READERS_WAIT 1
#endif
#endif

class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // The region holds a kv store, or will: format() then makes an empty one, which the first batch makes durable.
  Status attach(Region& region);
  Status format();
  Status check_header() const;
  // The region has other bytes now, which are those of a kv store. No thread reads.
  void forget_checks();

  [[nodiscard]] StoreHeader header() const;
  [[nodiscard]] Region& region() const { return *region_; }

  // ---- the writer

  // Held by the writer.
  [[nodiscard]] Mutex& writer() { return writer_; }
  // A commit begins; `stamp` is above all before. Snapshots that are taken from here on do not see it. `sure`: the
  // memory for it was reserved, but for what snapshots need. Otherwise undo() can undo it.
  void begin(Stamp stamp, bool sure);
  // Room for so many new pages: the region grows if need be. Also checks that so many free pages are what they should
  // be.
  Status make_room(std::uint64_t pages, bool allow_growth = true);
  // Grows the region before a commit needs it, because a commit would wait for the disk. Any thread, without locks.
  void grow_ahead();
  // A sound page. Errors: corrupt.
  Result<const std::byte*> sound(PageNumber page);
  // The page, to be changed; it is sound.
  std::byte* change(PageNumber page);
  // From now on no commit leaves anything for the log.
  void log_nothing() { logs_ = false; }
  [[nodiscard]] bool logs() const { return logs_; }
  // These bytes of the page are part of the commit.
  void note(PageNumber page, std::uint64_t offset, std::uint64_t bytes);
  PageNumber allocate();  // to be changed and formatted by the caller; there is room
  void free(PageNumber page);
  void count_records(std::int64_t more);
  // The map with this root was removed, and has pages left; 0: there is none.
  void note_removing(PageNumber root);
  // Tags of a page that is being changed: a cell with the key is at `index` now; the one that was at `index` is not
  // there any more; the cells are others.
  void tag_inserted(PageNumber page, std::uint32_t index, std::string_view key);
  void tag_removed(PageNumber page, std::uint32_t index);
  void tag_all(PageNumber page);
  [[nodiscard]] bool tags_match(PageNumber page) const;
  // Memory ran out in the middle of the commit: everything is as it was before it, and end() makes it one that changed
  // nothing.
  void undo();
  // The commit is complete and visible. reserve_batch() was called before it began, and, to be sure, after its changes.
  void end(std::uint64_t commit);
  [[nodiscard]] Batch& batch() { return batch_; }
  // Room in the batch for the commit to come, so that it allocates nothing.
  void reserve_batch(std::uint64_t bytes, std::uint64_t extents) {
    batch_.reserve(bytes + sizeof(StoreHeader), extents + 1);
  }
  // A frame may end behind what the batch holds: puts the header there. Between commits.
  void cut_batch();
  // The page, if it is one, will be read soon.
  void fetch_early(PageNumber page) const {
    if (page >= count()) return;
    __builtin_prefetch(states_ + page);
    __builtin_prefetch(bytes_of(page));
    __builtin_prefetch(bytes_of(page) + 64);
  }
  [[nodiscard]] const std::byte* bytes_of(PageNumber page) const { return base_ + page * kPageBytes; }
  [[nodiscard]] PageNumber count() const { return pages_.load(std::memory_order_acquire); }

  // ---- readers; any thread

#ifdef MEMLITH_KV_READERS_WAIT
  class MEMLITH_SCOPED_CAPABILITY Reading {
   public:
    explicit Reading(Pages& pages) MEMLITH_NO_THREAD_SAFETY_ANALYSIS : guard_(pages.writer_) {}
    ~Reading() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {}

   private:
    LockGuard guard_;
  };
#else
  struct Reading {
    explicit Reading(Pages&) {}
  };
#endif
  [[nodiscard]] Stamp newest() const { return newest_.load(std::memory_order_acquire); }
  // The page as of `view`. Errors: corrupt.
  Result<PageView> look(PageNumber page, Stamp view);
  // True if what was read of it was whole. If not, begin anew from a page that is known.
  [[nodiscard]] bool confirmed(const PageView& view) const {
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in change()
    return view.copy != nullptr || states_[view.page].word.load(std::memory_order_relaxed) == view.word;
  }
  // As find_place(), in a leaf.
  [[nodiscard]] Place find_in(const PageView& leaf, std::string_view key) const;
  [[nodiscard]] Status corrupt(PageNumber page, std::string_view fault) const;
  [[nodiscard]] std::uint64_t word(PageNumber page) const { return word_of(page).load(std::memory_order_acquire); }

  // A snapshot is active until it is dropped.
  Snapshots::Place take_snapshot();
  void drop_snapshot(const Snapshots::Place& place);
  // Copies that no snapshot needs are looked for from so many copies on, and whenever the last snapshot is dropped.
  void forget_from(std::uint64_t copies) {
    const LockGuard lock(kept_mutex_);
    forget_at_ = forget_from_ = copies;
  }
  [[nodiscard]] std::uint64_t kept_bytes() const { return kept_copies_.load(std::memory_order_relaxed) * kPageBytes; }

 private:
  struct Kept {
    Stamp stamp = 0;  // of the commit that had made the page so
    std::shared_ptr<const std::byte[]> bytes;
  };
  using KeptPages = std::unordered_map<PageNumber, std::vector<Kept>>;
  // A step of forgetting; nothing is allocated for it.
  static constexpr std::size_t kForgetBuckets = 64;
  static constexpr std::size_t kForgetCopies = 64;
  struct Forgotten {
    std::array<std::shared_ptr<const std::byte[]>, kForgetCopies> copies;
    std::size_t count = 0;
  };
  Status check(PageNumber page);
  [[nodiscard]] std::atomic<std::uint64_t>& word_of(PageNumber page) const { return states_[page].word; }
  void keep(PageNumber page, Stamp stamp);
  void save_image(PageNumber page);
  void forget_unneeded() MEMLITH_EXCLUDES(kept_mutex_);
  bool forget_in(std::size_t bucket, Forgotten& forgotten) MEMLITH_REQUIRES(kept_mutex_);
  std::byte* at(PageNumber page) { return base_ + page * kPageBytes; }
  StoreHeader& own_header() { return *reinterpret_cast<StoreHeader*>(base_ + kHeaderOffset); }

  Region* region_ = nullptr;
  std::byte* base_ = nullptr;
  PageState* states_ = nullptr;
  std::uint64_t states_count_ = 0;
  Mutex check_mutex_;                 // held while a page is checked, and so while its first tags are made
  std::atomic<PageNumber> pages_{0};  // those of the header, for readers

  Mutex writer_;
  // The writer's.
  Batch batch_;
  bool logs_ = true;
  std::uint64_t cut_bytes_ = 0;   // a frame may end behind so much
  Batch::Mark begun_;             // before the commit under way
  std::uint64_t cut_commit_ = 0;  // the newest whose number is in the batch, or was when the batch went to the log
  StoreHeader header_before_{};
  std::vector<PageNumber> changing_;
  bool undoable_ = false;           // pages are copied before they are changed
  std::vector<PageNumber> imaged_;  // those that were
  std::vector<std::byte> images_;
  Stamp stamp_ = kCheckedStamp;
  bool keeping_ = false;  // snapshots are active
  Stamp newest_snapshot_ = 0;

  std::atomic<Stamp> beginning_{kCheckedStamp};
  std::atomic<Stamp> newest_{kCheckedStamp};
  Snapshots snapshots_;
  Mutex kept_mutex_;
  KeptPages kept_ MEMLITH_GUARDED_BY(kept_mutex_);
  std::atomic<std::uint64_t> kept_copies_{0};
  std::uint64_t forget_from_ MEMLITH_GUARDED_BY(kept_mutex_) = 256;  // copies
  std::uint64_t forget_at_ MEMLITH_GUARDED_BY(kept_mutex_) = forget_from_;
  bool forgetting_ MEMLITH_GUARDED_BY(kept_mutex_) = false;  // a thread looks for copies to drop
};

}  // namespace memlith::core::kv
