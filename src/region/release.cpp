// The release of memory, which must not happen beside transactions. Floor: region.
#include <cerrno>

#include "region/drop_pages.hpp"
#include "region/region.hpp"
#include "region/region_user.hpp"

namespace memlith::core {

namespace {
constexpr int kReleasesMax = 4;  // so often a release waits for transactions that end beside it
}  // namespace

// Calls `release` when everything captured is home.
Status Region::release_at_home(const std::function<Status()>& release) {
  for (int attempt = 0; attempt < kReleasesMax; ++attempt) {
    if (!transactions_.any()) MEMLITH_TRY(complete_home());
    Status status = kOk;
    bool is_home = false;
    // A transaction that ended since may have left its bytes in the log only.
    const bool alone = transactions_.if_none([&] {
      is_home = store_.home_lsn() >= newest_commit();
      if (is_home) status = release();
    });
    if (!alone) break;
    if (is_home) return status;
  }
  return fail(Errc::busy, Detail::object,
              "region \"{}\" cannot release memory while transactions are open in it; end them and try again",
              shown_name_);
}

Status Region::release_clean() {
  if (tracker_ == nullptr) return kOk;
  MEMLITH_TRY(store_.check_process());
  const Held held(*this);
  return release_at_home([this]() MEMLITH_REQUIRES(capture_mutex_) -> Status {
    if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(kWholeRegion));
    if (twins_ != nullptr) twins_->clear();
    return tracker_->release_clean();
  });
}

// ---- for a session's memory limit ------------------------------------------------------------------------------

Status Region::note_copies() {
  if (tracker_->releases_any_time()) return kOk;
  MEMLITH_TRY_ASSIGN(copied_, CopiedPages::make(reserve_bytes_));
  equal_ = std::make_unique<EqualPages>(base_);
  return kOk;
}

std::uint64_t Region::copied_pages() const {
  if (copied_ != nullptr) return copied_->count();
  return tracker_ != nullptr && tracker_->releases_any_time() ? tracker_->pages_taken() : 0;
}

Status RegionUser::release_for_limit(Region& region) { return region.release_for_limit(); }

Status Region::release_copies(std::uint64_t first, std::uint64_t end,
                              const std::function<bool(std::uint64_t page)>& is_home) {
  if (copied_ == nullptr) return kOk;
  for (std::uint64_t next = first; first < end; first = next + 1) {
    for (next = first; next < end && copied_->has(next) && is_home(next); ++next) {
    }
    const Range home = host_pages_in({first * kPageBytes, (next - first) * kPageBytes});
    if (home.bytes == 0) continue;
    if (!drop_pages(base_ + home.offset, home.bytes)) {
      return fail_errno(errno, Detail::tracker, "cannot drop {} bytes of the region", home.bytes);
    }
    for (std::uint64_t at = home.offset; at < home.offset + home.bytes; at += kPageBytes) {
      copied_->forget(at / kPageBytes);
    }
  }
  return kOk;
}

Status Region::release_for_limit() {
  if (copied_ == nullptr) return tracker_ != nullptr && tracker_->releases_any_time() ? release_clean() : kOk;
  MEMLITH_TRY(store_.check_process());
  const Held held(*this);
  return release_at_home([this]() MEMLITH_REQUIRES(capture_mutex_) {
    return equal_->release(mapped_bytes_, size(), *copied_, [this](std::uint64_t offset, std::span<std::byte> target) {
      return store_.read_home_into(object_, offset, target);
    });
  });
}

}  // namespace memlith::core
