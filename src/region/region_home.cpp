#include "region/region_home.hpp"

namespace memlith::core {

Status RegionHome::begin() {
  MEMLITH_ASSERT(!store_.read_only() && committed_lsn_ == nullptr);
  committed_lsn_ = store_.committed_lsn(object_);
  // Commits of an earlier mapping may still be in the log only; the mapping must start from their bytes.
  return store_.bring_home(Lsn{committed_lsn_->load()});
}

// Transactions note their commits beside each other, in any order.
void RegionHome::note_commit(Lsn end) {
  MEMLITH_ASSERT(committed_lsn_ != nullptr && end != Lsn{0});
  std::uint64_t newest = committed_lsn_->load();
  while (newest < end.value && !committed_lsn_->compare_exchange_weak(newest, end.value)) {
  }
  MEMLITH_ASSERT(newest_commit() >= end);
}

// The newest captured bytes may be in the log only; a checkpoint brings them home, where they can be read.
Status RegionHome::complete() const {
  const Lsn newest = newest_commit();
  MEMLITH_TRY(store_.sync(newest));
  if (store_.home_lsn() < newest) MEMLITH_TRY(store_.checkpoint());
  MEMLITH_ASSERT(store_.home_lsn() >= newest);
  return kOk;
}

}  // namespace memlith::core
