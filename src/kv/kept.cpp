#include "kv/kept.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core::kv {

Stamp Kept::begin(Stamp stamp) {
  MEMLITH_ASSERT(stamp > newest() && newest() == moment_->beginning.load(std::memory_order_relaxed));
  moment_->beginning.store(stamp, std::memory_order_seq_cst);  // pairs with try_take()
  return words_.is_shared() ? words_.board()->newest_snapshot() : snapshots_.newest();
}

// ORDER copy-before-change: a snapshot's reader that finds the page being changed finds the copy. The page's word is
// stored before the lock is let go: to drop() the copy is the page's state up to the stamp in the word. With the old
// word, no snapshot would seem to need the copy. [mutant kv_copy_apart_from_word]
void Kept::keep(PageNumber page, Stamp before, Stamp stamp) {
  if (words_.is_shared()) {  // whose copies are dropped between commits
    words_.board()->keep(page, before);
    return words_.begin_change(page, stamp);
  }
  const std::shared_ptr<std::byte[]> copy(new std::byte[kPageBytes]);
  std::memcpy(copy.get(), words_.bytes_of(page), kPageBytes);
  {
    const LockGuard lock(mutex_);
    std::vector<Version>& versions = versions_[page];
    MEMLITH_ASSERT(versions.empty() || versions.back().stamp < before);
    versions.push_back({before, copy});
    copies_.fetch_add(1, std::memory_order_relaxed);
    words_.begin_change(page, stamp);
  }
}

void Kept::publish(Stamp stamp) {
  MEMLITH_ASSERT(stamp == moment_->beginning.load(std::memory_order_relaxed));
  moment_->newest.store(stamp, std::memory_order_seq_cst);
  if (words_.is_shared()) words_.board()->forget();
}

Kept::Copy Kept::find(PageNumber page, Stamp view) {
  if (words_.is_shared()) return {Copy(), words_.board()->find(page, view)};  // owned by the board
  const LockGuard lock(mutex_);
  const auto found = versions_.find(page);
  if (found == versions_.end()) return nullptr;
  for (auto each = found->second.rbegin(); each != found->second.rend(); ++each) {
    if (each->stamp <= view) return each->bytes;
  }
  return nullptr;
}

Result<std::optional<Snapshots::StampSlot>> Kept::try_take() {
  MEMLITH_TRY_ASSIGN(const Snapshots::StampSlot slot, add());
  if (moment_->beginning.load(std::memory_order_seq_cst) == slot.stamp) return std::optional(slot);
  drop(slot);
  return std::optional<Snapshots::StampSlot>();
}

Result<Snapshots::StampSlot> Kept::add() {
  const Stamp newest = moment_->newest.load(std::memory_order_seq_cst);
  if (!words_.is_shared()) return snapshots_.add(newest);
  const auto slot = words_.board()->add(newest);
  if (slot.has_value()) return *slot;
  return fail(Errc::busy, Detail::kv,
              "region \"{}\": {} transactions of this handle are active, as many as there may be where several "
              "processes have the kv store open; end some of them, or open another handle",
              words_.name(), Board::kSlots);
}

void Kept::drop(const Snapshots::StampSlot& slot) {
  if (words_.is_shared()) return words_.board()->remove(slot);
  snapshots_.remove(slot);
  if (copies_.load(std::memory_order_acquire) == 0) return;
  Versions all;  // freed without the lock, for which commits wait
  {
    const LockGuard lock(mutex_);
    // For a snapshot that is added from here on, a commit that waits for the lock keeps the pages.
    if (snapshots_.newest() == 0) {
      all.swap(versions_);
      copies_.store(0, std::memory_order_relaxed);
      forget_at_ = forget_from_;
      return;
    }
    if (forgetting_ || copies_.load(std::memory_order_relaxed) < forget_at_) return;
    forgetting_ = true;
  }
  forget_unneeded();
}

// In steps, and the copies are freed without the lock: commits wait for a step, not for all of it. If the table grows
// between two steps, entries are missed, and stay until copies are looked for again.
void Kept::forget_unneeded() {
  for (std::size_t bucket = 0, more = 1; more > 0;) {
    Forgotten forgotten;
    const LockGuard lock(mutex_);
    const std::size_t end = std::min(bucket + kForgetBuckets, versions_.bucket_count());
    while (bucket < end && forget_in(bucket, forgotten)) ++bucket;
    MEMLITH_ASSERT(forgotten.count <= copies_.load(std::memory_order_relaxed));
    copies_.fetch_sub(forgotten.count, std::memory_order_relaxed);
    more = versions_.bucket_count() - std::min(bucket, versions_.bucket_count());
    if (more > 0) continue;
    forget_at_ = std::max(forget_from_, 2 * copies_.load(std::memory_order_relaxed));
    forgetting_ = false;
  }
}

// A copy is needed by the snapshots from its own stamp on, up to the stamp of the page's next state. False: `forgotten`
// is full, and the bucket may hold more.
bool Kept::forget_in(std::size_t bucket, Forgotten& forgotten) {
  for (auto entry = versions_.begin(bucket); entry != versions_.end(bucket);) {
    std::vector<Version>& all = entry->second;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Stamp next = i + 1 < all.size() ? all[i + 1].stamp : words_.word(entry->first) >> 1;
      MEMLITH_ASSERT(all[i].stamp < next);
      bool needed = false;
      snapshots_.for_each([&](Stamp user) { needed = needed || (all[i].stamp <= user && user < next); });
      if (!needed && forgotten.count < kForgetCopies) {
        forgotten.copies[forgotten.count++] = std::move(all[i].bytes);
      } else if (const std::size_t to = kept++; to != i) {
        all[to] = std::move(all[i]);
      }
    }
    all.resize(kept);
    if (all.empty()) {
      versions_.erase(PageNumber{entry->first});
      entry = versions_.begin(bucket);
    } else {
      ++entry;
    }
    if (forgotten.count == kForgetCopies) return false;
  }
  return true;
}

}  // namespace memlith::core::kv
