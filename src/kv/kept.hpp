// The states of a kv store that can be read: the newest, and those of the active snapshots, for which copies of pages
// are kept. Floor: kv.
//
// A commit that is about to change a page that an active snapshot may need keeps a copy of the page first. Without
// snapshots a commit copies nothing.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/sync.hpp"
#include "kv/board.hpp"
#include "kv/snapshots.hpp"
#include "kv/words.hpp"

namespace memlith::core::kv {

class Kept {
 public:
  using Copy = std::shared_ptr<const std::byte[]>;

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
  // Begins the change of a page, whose state has the stamp `before`, with a copy for the active snapshots.
  void keep(PageNumber page, Stamp before, Stamp stamp) MEMLITH_REQUIRES(writing);
  // The commit is visible.
  void publish(Stamp stamp) MEMLITH_REQUIRES(writing);

  // ---- readers; any thread

  [[nodiscard]] Stamp newest() const { return moment_->newest.load(std::memory_order_acquire); }
  // The page as of `view`, which is older than the page's word. Null: there is no such copy.
  Copy find(PageNumber page, Stamp view);
  // A snapshot of the newest state, active until it is dropped. Nothing: a commit is under way. Errors: busy - this
  // client of a keeper has as many snapshots as it may.
  Result<std::optional<Snapshots::StampSlot>> try_take();
  // The same, of whatever state is the newest then.
  Result<Snapshots::StampSlot> add();
  void drop(const Snapshots::StampSlot& slot);
  // Copies that no snapshot needs are looked for from that number of copies on, and whenever the last snapshot is
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
    Stamp stamp = 0;  // of the commit that had made the page so
    Copy bytes;
  };
  using Versions = std::unordered_map<PageNumber, std::vector<Version>>;  // of each page in the order of their stamps
  // A step of forgetting; nothing is allocated for it.
  static constexpr std::size_t kForgetBuckets = 64;
  static constexpr std::size_t kForgetCopies = 64;
  struct Forgotten {
    std::array<Copy, kForgetCopies> copies;
    std::size_t count = 0;
  };
  void forget_unneeded() MEMLITH_EXCLUDES(mutex_);
  bool forget_in(std::size_t bucket, Forgotten& forgotten) MEMLITH_REQUIRES(mutex_);

  Words& words_;
  Moment own_moment_;
  Moment* moment_ = &own_moment_;
  Snapshots snapshots_;
  Mutex mutex_;
  Versions versions_ MEMLITH_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> copies_{0};
  std::uint64_t forget_from_ MEMLITH_GUARDED_BY(mutex_) = 256;  // copies
  std::uint64_t forget_at_ MEMLITH_GUARDED_BY(mutex_) = forget_from_;
  bool forgetting_ MEMLITH_GUARDED_BY(mutex_) = false;  // a thread looks for copies to drop
};

}  // namespace memlith::core::kv
