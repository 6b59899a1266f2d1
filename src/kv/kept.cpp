#include "kv/kept.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core::kv {

Stamp Kept::begin(Stamp stamp) {
  MEMLITH_ASSERT(stamp > newest() && newest() == moment_->beginning.load(std::memory_order_relaxed));
  moment_->beginning.store(stamp, std::memory_order_seq_cst);  // pairs with try_take()
  return words_.is_shared() ? words_.board()->newest_snapshot() : snapshots_.newest();
}

namespace {
// The page has a copy of its own then, which a checkpoint does not change when it writes the page home.
__attribute__((no_sanitize("thread"))) void make_private(std::byte* page) {
  volatile auto* const byte = reinterpret_cast<volatile unsigned char*>(page);
  *byte = *byte;
}
}  // namespace

// ORDER stay-before-change: a snapshot's reader that finds the page being changed finds the state that stays. The word
// of the page is stored before the lock is let go: to drop() that is the page's state up to the stamp in the word. With
// the old word, no snapshot would seem to need the state. [mutant kv_copy_apart_from_word]
void Kept::keep(PageNumber page, Stamp before, Stamp stamp) {
  if (words_.is_shared()) {  // whose copies are dropped between commits
    words_.board()->keep(page, before);
    return words_.begin_change(page, stamp);
  }
  const std::uint32_t from = words_.place(page);
  if (from == 0) away_.insert(page);
  std::uint32_t to = 0;
  {
    const LockGuard lock(mutex_);
    std::vector<Version>& versions = versions_[page];
    MEMLITH_ASSERT(versions.empty() || versions.back().stamp < before);
    versions.reserve(versions.size() + 1);
    const auto is_home = [](const Version& each) { return each.place == 0; };
    if (from == 0 || std::any_of(versions.begin(), versions.end(), is_home)) to = words_.arena().take();
    versions.push_back({before, from});
    copies_.fetch_add(1, std::memory_order_relaxed);
    words_.begin_change(page, stamp);
  }
  if (to == 0) away_.erase(page);
  // A reader that finds the new place finds the new word then.
  std::atomic_thread_fence(std::memory_order_release);  // pairs with Words::is_still()
  // ORDER private-before-commit: from the commit on a checkpoint may change what the page's file shows.
  // [mutant kv_page_left_to_its_file]
  if (from == 0) make_private(words_.bytes_at(page, 0));
  std::memcpy(words_.bytes_at(page, to), words_.bytes_at(page, from), kPageBytes);
  words_.set_place(page, to);
}

// As no snapshot is active, nothing reads the page in the arena but to look at its word afterwards.
std::optional<PageNumber> Kept::bring_back(Stamp stamp) {
  while (!away_.empty()) {
    const PageNumber page = *away_.begin();
    away_.erase(away_.begin());
    if (words_.place(page) == 0) continue;
    words_.begin_change(page, stamp);
    std::atomic_thread_fence(std::memory_order_release);  // as in keep()
    put_in_region(page);
    return page;
  }
  return std::nullopt;
}

void Kept::put_in_region(PageNumber page) {
  const std::uint32_t from = words_.place(page);
  if (from == 0) return;
  std::memcpy(words_.bytes_at(page, 0), words_.bytes_at(page, from), kPageBytes);
  words_.set_place(page, 0);
  words_.arena().release(from);
}

void Kept::publish(Stamp stamp) {
  MEMLITH_ASSERT(stamp == moment_->beginning.load(std::memory_order_relaxed));
  moment_->newest.store(stamp, std::memory_order_seq_cst);
  if (words_.is_shared()) words_.board()->forget();
}

std::optional<const std::byte*> Kept::find(PageNumber page, Stamp view) {
  if (words_.is_shared()) return words_.board()->find(page, view);
  const LockGuard lock(mutex_);
  const auto found = versions_.find(page);
  if (found == versions_.end()) return nullptr;
  for (auto each = found->second.rbegin(); each != found->second.rend(); ++each) {
    if (each->stamp <= view) return words_.bytes_at(page, each->place);
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
  Versions all;  // released without the lock, for which commits wait
  bool all_go = false;
  {
    const LockGuard lock(mutex_);
    // For a snapshot that is added from here on, a commit that waits for the lock keeps the pages.
    all_go = snapshots_.newest() == 0;
    if (all_go) {
      all.swap(versions_);
      copies_.store(0, std::memory_order_relaxed);
      forget_at_ = forget_from_;
    } else if (!forgetting_ && copies_.load(std::memory_order_relaxed) >= forget_at_) {
      forgetting_ = true;
    } else {
      return;
    }
  }
  if (!all_go) return forget_unneeded();
  for (const auto& [page, versions] : all) {
    for (const Version& each : versions) release(each.place);
  }
}

// In steps, and the copies are freed without the lock: commits wait for a step, not for all of it. If the table grows
// between two steps, entries are missed, and stay until copies are looked for again.
void Kept::forget_unneeded() {
  for (std::size_t bucket = 0, more = 1; more > 0;) {
    Forgotten forgotten;
    const struct Release {
      Kept& kept;
      const Forgotten& forgotten;
      ~Release() {
        for (std::size_t i = 0; i < forgotten.count; ++i) kept.release(forgotten.places[i]);
      }
    } behind_the_lock{*this, forgotten};
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
        forgotten.places[forgotten.count++] = all[i].place;
      } else {
        all[kept++] = all[i];
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
