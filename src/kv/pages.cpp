#include "kv/pages.hpp"

namespace memlith::core::kv {

Result<PageView> Pages::look(PageNumber page, Stamp view) {
  if (page == kHeaderPage || page >= words.count()) return words.corrupt(page, "there is no such page");
  for (unsigned tries = 0;; ++tries) {
    const std::uint64_t word = words.word(page);
    if (word == 0) {
      MEMLITH_TRY(words.check(page));
      continue;
    }
    if (view == kNewest || word >> 1 <= view) {
      if ((word & 1) == 0) return PageView{words.bytes_of(page), page, word, nullptr};
    } else {
      Kept::Copy copy = kept.find(page, view);
      if (copy == nullptr) return words.corrupt(page, "an older state of it is missing");
      const std::byte* const bytes = copy.get();
      return PageView{bytes, page, 0, std::move(copy)};
    }
    if (tries >= 20) yield_thread();
  }
}

Snapshots::StampSlot Pages::take_snapshot() {
  for (int tries = 0; tries <= 50; ++tries) {
    if (const auto slot = kept.try_take(); slot.has_value()) return *slot;
    yield_thread();
  }
  // Commits that follow closely on each other must not keep a snapshot waiting for ever.
  const LockGuard lock(writer.mutex());
  const auto slot = kept.try_take();
  MEMLITH_ASSERT(slot.has_value());
  return *slot;
}

}  // namespace memlith::core::kv
