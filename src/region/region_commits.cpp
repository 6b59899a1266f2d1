// Commits of a region that capture nothing: of bytes that the caller gathered, of transactions, and of a size that no
// commit carries yet. Floor: region.
#include "region/region.hpp"

namespace memlith::core {

// ---- bytes -----------------------------------------------------------------------------------------------------

Result<Lsn> Region::commit_bytes(std::span<const Extent> extents, std::span<const std::byte* const> sources,
                                 bool will_sync) {
  if (store_.read_only())
    return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name_);
  const LockGuard lock(capture_mutex_);
  const SizeChange size{object_, size_bytes_};
  const std::span<const SizeChange> sizes(&size, size_changed_ ? 1 : 0);
  if (extents.empty() && sizes.empty()) return newest_commit();
  MEMLITH_TRY_ASSIGN(const Lsn end, store_.commit_weak({extents, sources, sizes}, will_sync));
  size_changed_ = false;
  note_commit(end);
  return end;
}

// ---- the size --------------------------------------------------------------------------------------------------

std::optional<SizeChange> Region::size_to_commit() {
  if (!size_changed_.load(std::memory_order_acquire)) return std::nullopt;
  const LockGuard lock(capture_mutex_);
  return size_changed_ ? std::optional(SizeChange{object_, size_bytes_}) : std::nullopt;
}

void Region::note_size_committed(const SizeChange& size) {
  const LockGuard lock(capture_mutex_);
  if (size_bytes_ == size.size_bytes) size_changed_ = false;
}

Status Region::commit_size(bool will_sync) {
  if (!size_changed_.load(std::memory_order_acquire)) return kOk;
  for (;;) {
    SizeChange change{object_, size_bytes_};
    const Changes changes{{}, {}, {&change, 1}};
    {
      const LockGuard lock(capture_mutex_);
      if (!size_changed_) return kOk;  // another commit has the size
      change.size_bytes = size_bytes_;
      MEMLITH_TRY_ASSIGN(const std::optional<Lsn> end, store_.commit_weak_at_once(changes, will_sync));
      if (end.has_value()) {
        size_changed_ = false;
        note_commit(*end);
        return kOk;
      }
    }
    MEMLITH_TRY(store_.make_room(changes, will_sync));
  }
}

// ---- transactions ----------------------------------------------------------------------------------------------

Status Region::check_transactions() const {
  if (tracker_ == nullptr)
    return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name_);
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, whose structures change with every call; persist all of it instead",
                shown_name_, guard_->what());
  }
  if (tracker_->kind() == TrackerKind::touched) return kOk;
  return fail(Errc::unsupported, Detail::tracker,
              "region \"{}\": its tracker finds stores by itself, so another persist could capture half of a "
              "transaction; open the region with the explicit tracker",
              shown_name_);
}

// Transactions note their commits beside each other, in any order.
void Region::note_commit(Lsn end) {
  std::uint64_t newest = committed_lsn_->load();
  while (newest < end.value && !committed_lsn_->compare_exchange_weak(newest, end.value)) {
  }
}

}  // namespace memlith::core
