// The states of a kv store that can be read: the newest, and those of the active snapshots, for which copies of pages
// are kept. Floor: kv.
//
// A commit that is about to change a page that an active snapshot may need copies the page, and changes the copy: the
// snapshot's readers go on to read the page where it lies. Without snapshots a commit copies nothing, and brings some
// copies back into the region.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/sync.hpp"
#include "kv/board.hpp"
#include "kv/snapshots.hpp"
#include "kv/words.hpp"

namespace memlith::core::kv {

class Kept {
 public:
  explicit Kept(Words& words) : words_(words) {}
  // The states lie on the board of the words, in which other processes read them. Snapshots are of its clients.
  void share() { moment_ = &words_.board()->head().moment; }

  // ---- the writer

  // A commit begins; its stamp is above all before. Snapshots that are taken from here on do not see it. Returns the
  // stamp of the newest active snapshot; 0: there is none.
  Stamp begin(Stamp stamp) MEMLITH_REQUIRES(writing);
  // The stamp of the oldest active snapshot; kNewest: there is none. Between commits: a snapshot that is taken later is
  // of the newest state, or is not taken.
  Stamp oldest_snapshot() MEMLITH_REQUIRES(writing) {
    return words_.is_shared() ? words_.board()->oldest_snapshot() : snapshots_.oldest();
  }
  // Begins the change of a page, whose state has the stamp `before` and stays for the active snapshots.
  void keep(PageNumber page, Stamp before, Stamp stamp) MEMLITH_REQUIRES(writing);
  // Pages that lie in the arena, and may lie in the region again, as no snapshot is active: begins the change of one,
  // which has the same bytes. Nothing: there is none.
  std::optional<PageNumber> bring_back(Stamp stamp) MEMLITH_REQUIRES(writing);
  // The page, which is being changed, lies in the region. No active snapshot may look at it.
  void put_in_region(PageNumber page) MEMLITH_REQUIRES(writing);
  // The commit is visible.
  void publish(Stamp stamp) MEMLITH_REQUIRES(writing);

  // ---- readers; any thread

  [[nodiscard]] Stamp newest() const { return moment_->newest.load(std::memory_order_acquire); }
  // The page as of `view`, which is older than the page's word. It stays as long as that snapshot. Null: it is missing.
  // Nothing: as Board::find().
  std::optional<const std::byte*> find(PageNumber page, Stamp view);
  // A snapshot of the newest state, active until it is dropped. Nothing: a commit is under way. Errors: busy - this
  // client of a keeper has as many snapshots as it may.
  Result<std::optional<Snapshots::StampSlot>> try_take();
  // The same, of whatever state is the newest then.
  Result<Snapshots::StampSlot> add();
  void drop(const Snapshots::StampSlot& slot);
  // States that no snapshot needs are looked for from that number of states on, and whenever the last snapshot is
  // dropped.
  void forget_from(std::uint64_t copies) {
    const LockGuard lock(mutex_);
    forget_at_ = forget_from_ = copies;
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return (words_.is_shared() ? words_.board()->copies() : copies_.load(std::memory_order_relaxed)) * kPageBytes;
  }

 private:
  struct Version {
    Stamp stamp = 0;          // of the commit that had made the page so
    std::uint32_t place = 0;  // as Words::place()
  };
  using Versions = std::unordered_map<PageNumber, std::vector<Version>>;  // of each page in the order of their stamps
  // A step of forgetting; nothing is allocated for it.
  static constexpr std::size_t kForgetBuckets = 64;
  static constexpr std::size_t kForgetCopies = 64;
  struct Forgotten {
    std::array<std::uint32_t, kForgetCopies> places;
    std::size_t count = 0;
  };
  void release(std::uint32_t place) {
    if (place != 0) words_.arena().release(place);
  }
  void forget_unneeded() MEMLITH_EXCLUDES(mutex_);
  bool forget_in(std::size_t bucket, Forgotten& forgotten) MEMLITH_REQUIRES(mutex_);

  Words& words_;
  Moment own_moment_;
  Moment* moment_ = &own_moment_;
  Snapshots snapshots_;
  Mutex mutex_;
  Versions versions_ MEMLITH_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> copies_{0};
  std::uint64_t forget_from_ MEMLITH_GUARDED_BY(mutex_) = 256;
  std::uint64_t forget_at_ MEMLITH_GUARDED_BY(mutex_) = forget_from_;
  bool forgetting_ MEMLITH_GUARDED_BY(mutex_) = false;     // a thread looks for states to drop
  std::set<PageNumber> away_ MEMLITH_GUARDED_BY(writing);  // the pages that lie in the arena, and maybe others
};

}  // namespace memlith::core::kv
