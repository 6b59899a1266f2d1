// The memory that transactions take, up to the end of their commits. Floor: kv.
//
// Large transactions are counted together. One that would take more than the process may have is refused before the
// kernel ends the process: at the call that makes it so large, as far as that is known then, or else in the middle of
// its commit, which is undone.
#include <algorithm>

#include "kv/kv.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kMemoryStep = 1 * kMiB;       // a smaller transaction is not counted
constexpr std::uint64_t kMemoryLookedFor = 4 * kMiB;  // a smaller commit takes what there is

Status too_much(std::uint64_t bytes, std::uint64_t most) {
  return fail(Errc::full, Detail::kv,
              "the transactions of the kv store need {} bytes of memory with what a commit adds, and may have {} of "
              "those of the process; split the transaction, or give the process more memory",
              bytes, most);
}
}  // namespace

// A value is in memory three times during the commit: as the transaction's, in a page, and for the log.
Status Transaction::take_memory(std::uint64_t more) {
  const std::uint64_t commit_bytes = need_.memory_bytes() + 2 * more;
  const std::uint64_t bytes = memory_.bytes() + undo_.size() * sizeof(Undo) + more + commit_bytes;
  if (bytes < memory_told_ + kMemoryStep) return kOk;
  const std::uint64_t grown = bytes - memory_told_;
  const std::uint64_t all = kv_.memory_bytes_.fetch_add(grown, std::memory_order_relaxed) + grown;
  if (all <= kv_.memory_bytes_max_) {
    memory_told_ = bytes;
    locks_.commit_bytes = commit_bytes;
    return kOk;
  }
  kv_.memory_bytes_.fetch_sub(grown, std::memory_order_relaxed);
  return kv_.too_much_memory(all);
}

Status OpenKv::too_much_memory(std::uint64_t bytes) const { return too_much(bytes, memory_bytes_max_); }

void Kv::make_memory(std::uint64_t leaves) {
  // Each leaf will have a copy and an image.
  const std::uint64_t bytes = memory_bytes_.load(std::memory_order_relaxed) + 2 * leaves * kPageBytes;
  if (bytes > kMemoryLookedFor && open_region_ != nullptr) open_region_->session.make_memory(bytes, memory_bytes_max_);
}

// A small commit takes what there is: copies that other commits have left are given back meanwhile. A commit is counted
// as it goes, and not estimated, so it may have a third more.
Status Kv::check_memory(const LockSet& locks) {
  const Writer::Held held = pages_.writer.held();
  if (held.bytes + held.pages * kPageBytes <= kMemoryLookedFor) return kOk;
  const std::uint64_t transactions = memory_bytes_.load(std::memory_order_relaxed) - locks.commit_bytes;
  const std::uint64_t pages = std::max(held.pages, region().copied_pages()) * kPageBytes;
  const std::uint64_t bytes = transactions + held.bytes + pages + pages_.kept.bytes();
  const std::uint64_t most = memory_bytes_max_ / 3 * 4;
  return bytes <= most ? kOk : too_much(bytes, most);
}

}  // namespace memlith::core::kv
