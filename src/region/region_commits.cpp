// Commits of a region that capture nothing: of bytes that the caller gathered, of transactions, and of a size that no
// commit carries yet. Floor: region.
#include "region/region.hpp"

namespace memlith::core {

// ---- bytes -----------------------------------------------------------------------------------------------------

Result<Lsn> Region::commit_bytes(std::span<const Extent> extents, std::span<const std::byte* const> sources,
                                 bool will_sync) {
  MEMLITH_TRY(need_writable());
  MEMLITH_ASSERT(extents.size() == sources.size());
  const LockGuard lock(capture_.mutex);
  const SizeChange size{object(), mapping_.size()};
  const std::span<const SizeChange> sizes(&size, size_changed_ ? 1 : 0);
  if (extents.empty() && sizes.empty()) return newest_commit();
  MEMLITH_TRY_ASSIGN(const Lsn end, store().commit_weak({extents, sources, sizes}, will_sync));
  size_changed_ = false;
  note_commit(end);
  return end;
}

// ---- the size --------------------------------------------------------------------------------------------------

std::optional<SizeChange> Region::size_to_commit() {
  if (!size_changed_.load(std::memory_order_acquire)) return std::nullopt;
  const LockGuard lock(capture_.mutex);
  return size_changed_ ? std::optional(SizeChange{object(), mapping_.size()}) : std::nullopt;
}

void Region::note_size_committed(const SizeChange& size) {
  MEMLITH_ASSERT(size.object == object() && size.size_bytes <= mapping_.size());
  const LockGuard lock(capture_.mutex);
  if (mapping_.size() == size.size_bytes) size_changed_ = false;
}

Status Region::commit_size(bool will_sync) {
  if (!size_changed_.load(std::memory_order_acquire)) return kOk;
  for (;;) {
    SizeChange change{object(), mapping_.size()};
    const Changes changes{{}, {}, {&change, 1}};
    {
      const LockGuard lock(capture_.mutex);
      if (!size_changed_) return kOk;  // another commit has the size
      change.size_bytes = size();
      MEMLITH_TRY_ASSIGN(const std::optional<Lsn> end, store().commit_weak_at_once(changes, will_sync));
      if (end.has_value()) {
        size_changed_ = false;
        note_commit(*end);
        return kOk;
      }
    }
    MEMLITH_TRY(store().make_room(changes, will_sync));
  }
}

// ---- transactions ----------------------------------------------------------------------------------------------

Status Region::check_transactions() const {
  MEMLITH_TRY(need_writable());
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, whose structures change with every call; persist all of it instead",
                shown_name(), guard_->what());
  }
  if (tracker()->kind() == TrackerKind::touched) return kOk;
  return fail(Errc::unsupported, Detail::tracker,
              "region \"{}\": its tracker finds stores by itself, so another persist could capture half of a "
              "transaction; open the region with the explicit tracker",
              shown_name());
}

}  // namespace memlith::core
