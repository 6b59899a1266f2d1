// A commit of bytes that the caller gathered. Floor: region.
#include "region/region.hpp"

namespace memlith::core {

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

std::optional<SizeChange> Region::size_to_commit() {
  if (!size_changed_.load(std::memory_order_acquire)) return std::nullopt;
  const LockGuard lock(capture_mutex_);
  return size_changed_ ? std::optional(SizeChange{object_, size_bytes_}) : std::nullopt;
}

void Region::note_size_committed(const SizeChange& size) {
  const LockGuard lock(capture_mutex_);
  if (size_bytes_ == size.size_bytes) size_changed_ = false;
}

}  // namespace memlith::core
