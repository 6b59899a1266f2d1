#include "kv/pages.hpp"

namespace memlith::core::kv {

Result<PageView> Pages::look(PageNumber page, Stamp view) {
  if (page == kHeaderPage || page >= words.count()) return words.corrupt(page, "there is no such page");
  for (unsigned tries = 0;; ++tries) {
    const std::uint64_t word = words.word(page);
    const std::byte* const bytes = words.bytes_of(page);
    const PageUse use = words.use(page);
    if (word == 0) {
      MEMLITH_TRY(words.check(page));
      continue;
    }
    if (view == kNewest || word >> 1 <= view) {
      const bool stays = view != kNewest && !words.is_shared();
      if ((word & 1) == 0 && (!stays || words.is_still(page, word)))
        return PageView{bytes, page, word, use, stays, false};
    } else {
      const std::optional<const std::byte*> old = kept.find(page, view);
      if (old.has_value() && *old != nullptr) return PageView{*old, page, word, PageUse::own, true, true};
      MEMLITH_TRY(words.check_keeper());
      if (old.has_value()) return words.corrupt(page, "an older state of it is missing");
    }
    if (tries >= 20) yield_thread();
    if (tries % 256 == 255) MEMLITH_TRY(words.check_keeper());  // which may have ended in the middle of the change
  }
}

// A client looks last whether the keeper lives: if so, no other keeper had the store when the snapshot was taken.
Result<Snapshots::StampSlot> Pages::take_snapshot() {
  MEMLITH_TRY_ASSIGN(const Snapshots::StampSlot slot, take_newest());
  const Status lives = words.check_keeper();
  if (!lives.ok()) kept.drop(slot);
  MEMLITH_TRY(lives);
  return slot;
}

Result<Snapshots::StampSlot> Pages::take_newest() {
  for (int tries = 0; tries <= 50; ++tries) {
    MEMLITH_TRY_ASSIGN(const auto slot, kept.try_take());
    if (slot.has_value()) return *slot;
    yield_thread();
  }
  // Commits that follow closely on each other must not keep a snapshot waiting for ever.
  if (words.keeper() != nullptr) {
    MEMLITH_TRY_ASSIGN(Snapshots::StampSlot slot, kept.add());
    const Status settled = words.keeper()->settle(slot.slot);
    if (!settled.ok()) kept.drop(slot);
    MEMLITH_TRY(settled);
    slot.stamp = words.board()->stamp_of(slot.slot);
    return slot;
  }
  const LockGuard lock(writer.mutex());
  MEMLITH_TRY_ASSIGN(const auto slot, kept.try_take());
  MEMLITH_ASSERT(slot.has_value());
  return *slot;
}

}  // namespace memlith::core::kv
