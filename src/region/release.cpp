// The release of memory, which must not happen beside transactions. Floor: region.
#include "region/region.hpp"
#include "region/region_user.hpp"

namespace memlith::core {

namespace {
constexpr int kReleasesMax = 4;  // so often a release waits for transactions that end beside it
}  // namespace

// Calls `release` when everything captured is home.
Status Region::release_at_home(const std::function<Status()>& release) {
  MEMLITH_ASSERT(tracker() != nullptr);
  for (int attempt = 0; attempt < kReleasesMax; ++attempt) {
    if (!transactions_.any()) MEMLITH_TRY(home_.complete());
    Status status = kOk;
    bool is_home = false;
    // A transaction that ended since may have left its bytes in the log only.
    const bool alone = transactions_.if_none([&] {
      is_home = store().home_lsn() >= newest_commit();
      if (is_home) status = release();
    });
    if (!alone) break;
    if (is_home) return status;
  }
  return fail(Errc::busy, Detail::object,
              "region \"{}\" cannot release memory while transactions are open in it; end them and try again",
              shown_name());
}

Status Region::release_clean() {
  if (tracker() == nullptr) return kOk;
  MEMLITH_TRY(store().check_process());
  const Held held(*this);
  return release_at_home([this]() MEMLITH_REQUIRES(capture_.mutex) { return capture_.release_clean(); });
}

// ---- for a session's memory limit ------------------------------------------------------------------------------

Status RegionUser::release_for_limit(Region& region) { return region.release_for_limit(); }

Status Region::release_for_limit() {
  if (!capture_.compares_with_home()) {
    return tracker() != nullptr && tracker()->releases_any_time() ? release_clean() : kOk;
  }
  MEMLITH_TRY(store().check_process());
  const Held held(*this);
  return release_at_home([this]() MEMLITH_REQUIRES(capture_.mutex) { return capture_.release_equal(); });
}

}  // namespace memlith::core
