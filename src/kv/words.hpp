// A word beside each page of a kv store, with which a reader finds that a commit has changed the page. Floor: kv.
//
// The words are in memory of the process, or of several (kv/board.hpp), never in the region. A word is twice the stamp
// of the commit that changed the page last, plus 1 while a commit is changing the page. A reader looks at the word,
// reads the page, and looks again: a word that is the same and even says that the bytes were whole.
//
// A page that an active snapshot may look at does not change where it lies: the commit that changes it puts it
// elsewhere, into the arena or back into the region (Kept). So a reader of a snapshot looks again once, when it has
// found where the page lies, and reads the page then as long as the snapshot is active. Pages on a board alone always
// lie in one place.
//
// A leaf has tags: a byte of the hash of each key, in the order of the cells. A reader that looks for a key reads the
// cells with its tag, instead of one cell after the other in a binary search, each of which would be fetched from
// memory. Tags are made when the page is checked, and kept by TreeWriter. They are a hint: a key to which no tag leads
// is searched for. Their lines are as many as the pages, up to 16 MiB; in a larger kv store, pages share lines, and the
// page that was checked or laid out last has the line.
//
// Stamps: 0 is a page that was not looked at since opening, 1 a page that was checked; commit number n has stamp
// n - base + 2, where base is the newest commit at opening.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/sync.hpp"
#include "kv/page.hpp"
#include "kv/page_arena.hpp"
#include "kv/page_state.hpp"
#include "kv/snapshots.hpp"
#include "region/region.hpp"
#include "store/sums.hpp"

namespace memlith::core::kv {

class Board;

// Held by the thread that holds the mutex of a kv store's Writer. One name for all kv stores: clang compares names, and
// cannot know that a tree's writer is the one whose mutex the caller holds.
class MEMLITH_CAPABILITY("role") WritingRole {};
inline WritingRole writing;

// A page as a reader sees it.
struct PageView {
  const std::byte* bytes = nullptr;
  PageNumber page = 0;
  std::uint64_t word = 0;
  PageUse use = PageUse::own;
  bool stays = false;   // as long as the snapshot is active; if not, the bytes are to be confirmed after reading
  bool is_old = false;  // the page has changed since
};

// The keeper of a kv store that several processes have open, as one of its clients asks it.
class PagesKeeper {
 public:
  virtual ~PagesKeeper() = default;
  // The page is checked when it returns ok. Errors: corrupt, io, and those of check().
  virtual Status load(PageNumber page) = 0;
  // The snapshot in that slot is one of the newest state when it returns ok. Errors: those of check().
  virtual Status settle(std::size_t slot) = 0;
  // Errors: poisoned - the keeper has ended, maybe in the middle of a commit.
  [[nodiscard]] virtual Status check() const = 0;
};

class Words {
 public:
  Words() = default;
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  Status attach(Region& region);
  // The pages are not in the region's memory but on the board, where other processes read them.
  void attach(Region& region, Board& board);
  // The board of a keeper, in one of its clients, where nothing changes a page and there is no region.
  void attach(Board& board, PagesKeeper& keeper, std::string name);
  [[nodiscard]] Region& region() const { return *region_; }
  [[nodiscard]] bool is_shared() const { return board_ != nullptr; }
  [[nodiscard]] Board* board() const { return board_; }
  [[nodiscard]] PagesKeeper* keeper() const { return keeper_; }
  // Errors: poisoned - this is a client, and its keeper has ended.
  [[nodiscard]] Status check_keeper() const { return keeper_ == nullptr ? kOk : keeper_->check(); }
  // For messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  // From now on each page is compared with its sum when it is checked. Not with another thread.
  void compare_with(std::unique_ptr<SumsFile> sums) { sums_ = std::move(sums); }
  // Errors: corrupt - a page is not as it was written. No commit has changed it since the opening.
  Status compare(PageNumber first, std::uint64_t pages);
  // The page was made here, and not read from the region.
  void made(PageNumber page) MEMLITH_REQUIRES(writing);
  // No page is known to be sound, and none is there until the writer has read the header. No thread reads.
  void forget_checks() MEMLITH_REQUIRES(writing);

  // ---- any thread

  // The number of pages in the newest header.
  [[nodiscard]] PageNumber count() const { return pages_->load(std::memory_order_acquire); }
  [[nodiscard]] const std::byte* bytes_of(PageNumber page) const { return bytes_at(page, place(page)); }
  // 0: in the region, or on the board.
  [[nodiscard]] std::uint32_t place(PageNumber page) const {
    return states_[page].place.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::byte* bytes_at(PageNumber page, std::uint32_t place) const {
    return place == 0 ? base_ + page * kPageBytes : arena_.at(place);
  }
  [[nodiscard]] PageArena& arena() { return arena_; }
  // The page, which was checked since opening; it is of a tree, or begins a value. Errors: corrupt, io.
  Result<const std::byte*> sound(PageNumber page);
  // The same for the first page of a free run.
  Result<RunHeader> sound_free(PageNumber page);
  // The same for the first page of a run with that value.
  Result<const std::byte*> sound_run(const OverflowReference& reference);
  // Checks a page whose word is 0, and the run that it begins. Errors: corrupt, io.
  Status check(PageNumber page);
  [[nodiscard]] Status corrupt(PageNumber page, std::string_view fault) const;
  // How often pages went without a change of their own: a copy of a leaf may be one of what is there no more. Read
  // before the way to the leaf.
  [[nodiscard]] std::uint64_t detached() const { return detached_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t word(PageNumber page) const { return states_[page].word.load(std::memory_order_acquire); }
  // True if the bytes that were read were whole. If not, begin anew from a page that is known.
  [[nodiscard]] bool confirmed(const PageView& view) const { return view.stays || is_still(view.page, view.word); }
  [[nodiscard]] bool is_still(PageNumber page, std::uint64_t word) const {
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fences in Writer::change() and Kept::keep()
    return states_[page].word.load(std::memory_order_relaxed) == word;
  }
  // The leaf has not changed since.
  [[nodiscard]] bool is_as_found(const LeafPlace& place) const {
    return place.page != 0 && word(place.page) == place.word;
  }
  [[nodiscard]] PageUse use(PageNumber page) const { return states_[page].use.load(std::memory_order_relaxed); }
  // The value of a run.
  [[nodiscard]] std::string_view value_of(const OverflowReference& reference) const {
    return {reinterpret_cast<const char*>(bytes_of(reference.first)) + sizeof(RunHeader), reference.bytes};
  }
  // As find_cell(), in a leaf.
  [[nodiscard]] CellSearch find_in(const PageView& leaf, std::string_view key) const;
  // The page, if it is one, will be read soon.
  void fetch_early(PageNumber page) const {
    if (page >= count()) return;
    __builtin_prefetch(states_ + page);
    __builtin_prefetch(&tags_of(page));
    __builtin_prefetch(bytes_at(page, 0));
    __builtin_prefetch(bytes_at(page, 0) + 64);
  }
  // As fetch_early(), and all its cells will be read, whose order the processor cannot foresee.
  void fetch_whole(PageNumber page) const {
    fetch_early(page);
    if (page >= count()) return;
    for (std::size_t at = 128; at < kPageBytes; at += 64) __builtin_prefetch(bytes_at(page, 0) + at);
  }

  // ---- the writer

  void set_count(PageNumber pages) MEMLITH_REQUIRES(writing) {
    MEMLITH_ASSERT(pages <= states_count_);  // a page has its word before it has its bytes
    pages_->store(pages, std::memory_order_release);
  }
  // Free pages are about to be filled. Errors: io.
  Status load_to_fill(PageNumber first, std::uint64_t pages) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::byte* at(PageNumber page) MEMLITH_REQUIRES(writing) { return bytes_at(page, place(page)); }
  // The page is being changed.
  void set_place(PageNumber page, std::uint32_t place) MEMLITH_REQUIRES(writing) {
    states_[page].place.store(place, std::memory_order_relaxed);
  }
  // The word as the writer, which alone changes it, has left it.
  [[nodiscard]] std::uint64_t own_word(PageNumber page) const MEMLITH_REQUIRES(writing) {
    return states_[page].word.load(std::memory_order_relaxed);
  }
  // The commit with that stamp will change the page; a fence follows, before the first change. It has changed the page.
  void begin_change(PageNumber page, Stamp stamp) MEMLITH_REQUIRES(writing) {
    states_[page].word.store(stamp << 1 | 1, std::memory_order_relaxed);
  }
  void end_change(PageNumber page, Stamp stamp) MEMLITH_REQUIRES(writing) {
    MEMLITH_ASSERT(own_word(page) == (stamp << 1 | 1));
    states_[page].word.store(stamp << 1, std::memory_order_release);
  }
  // Pages that lead to others have been changed.
  void note_detached() MEMLITH_REQUIRES(writing) { detached_.fetch_add(1, std::memory_order_release); }
  void set_use(PageNumber first, std::uint64_t pages, PageUse use) {
    for (std::uint64_t i = 0; i < pages; ++i) states_[first + i].use.store(use, std::memory_order_relaxed);
  }
  // Tags of a page that is being changed: a cell with the key is at `index` now; the one that was at `index` is not
  // there any more; the cells are others.
  void tag_inserted(PageNumber page, std::uint32_t index, std::string_view key) MEMLITH_REQUIRES(writing);
  void tag_removed(PageNumber page, std::uint32_t index) MEMLITH_REQUIRES(writing);
  void tag_all(PageNumber page) MEMLITH_REQUIRES(writing) { make_tags(page); }
  [[nodiscard]] bool tags_match(PageNumber page) const MEMLITH_REQUIRES(writing);

 private:
  [[nodiscard]] LeafTags& tags_of(PageNumber page) const { return tags_[page & (tags_count_ - 1)]; }
  void make_tags(PageNumber page);
  Status take_over(PageNumber first, std::uint64_t pages);
  template <class Change>
  bool change_tags(PageNumber page, const Change& change) const;

  Region* region_ = nullptr;
  Board* board_ = nullptr;         // null: this process alone has the kv store
  PagesKeeper* keeper_ = nullptr;  // of a client
  std::string name_;
  std::byte* base_ = nullptr;
  PageState* states_ = nullptr;
  std::uint64_t states_count_ = 0;
  LeafTags* tags_ = nullptr;
  std::uint64_t tags_count_ = 0;
  PageArena arena_;
  std::atomic<std::uint64_t> detached_{0};  // pairs with a cursor's look at its leaf
  Mutex check_mutex_;                       // held while a page is checked, and so while its first tags are made
  std::unique_ptr<SumsFile> sums_;          // used under it; null: pages are not compared
  std::atomic<PageNumber> own_pages_{0};
  std::atomic<PageNumber>* pages_ = &own_pages_;  // those of the header, for readers
};

}  // namespace memlith::core::kv
