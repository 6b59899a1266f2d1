// Transactions: changes of explicitly tracked regions that are announced before they are made. Floor: region.
//
// A transaction keeps its own list of ranges, each with an image of the bytes as they were. A commit logs the ranges
// and nothing else, so it costs the same whatever other threads have stored and not persisted. An abort copies the
// images back, without I/O. The region's tracker does not know of these ranges: a persist of the region leaves them
// out.
//
// Other structures may take part (Participant): kv stores, application logs, and regions with what a persist would
// capture of them. Then the same frame holds the changes of all of them, so a crash keeps all or none.
//
// For the ranges, no capture lock is taken: the bytes of the ranges are this transaction's alone until it ends (the
// program's locks see to that), so the order of the log is the order of the changes.
//
// Threads: one thread at a time uses a transaction; different threads use different transactions. A region must not be
// unmapped, and does not release memory, while a transaction has ranges or a part in it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "log/copy.hpp"
#include "region/participant.hpp"
#include "region/region.hpp"

namespace memlith::core {

class Transaction {
 public:
  explicit Transaction(Store& store) : store_(store) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  [[nodiscard]] bool empty() const { return touched_.empty() && parts_.empty(); }

  // The region in which the address lies, if the transaction has ranges in that region.
  [[nodiscard]] Region* joined(const void* address) const;

  // Keeps an image of the bytes, which the caller is about to change. On failure nothing has changed.
  Status touch_before(Region& region, const void* address, std::uint64_t bytes);

  // The same without a call, for a few bytes of the region of the range before. False, and nothing is done, if it is
  // another case. The memory that programs change is seldom in the processor's caches. If little is done between two
  // calls, the processor fetches the memory of several at a time.
  bool touch_few_before(const void* address, std::uint64_t bytes) {
    if (bytes - 1 >= kFewBytes || touched_.empty() || touched_.size() == touched_.capacity()) return false;
    Region& region = *touched_.back().region;
    const auto* const from = static_cast<const std::byte*>(address);
    const auto offset = static_cast<std::uint64_t>(from - region.address());
    const std::uint64_t size_bytes = region.size();
    if (offset >= size_bytes || bytes > size_bytes - offset) return false;
    const Range last = touched_.back().range;
    if (offset >= last.offset && offset + bytes <= last.offset + last.bytes) return true;
    std::uint64_t image = 0;
    copy_few(reinterpret_cast<std::byte*>(&image), from, bytes);
    touched_.push_back({&region, {offset, bytes}, image});
    return true;
  }

  // A structure of the same store takes part from now on. A region takes part once.
  Status add(std::unique_ptr<Participant> part);
  // The part of that kind that lies in the region; null: there is none.
  [[nodiscard]] Participant* part_in(Participant::Kind kind, const Region& region) const;

  // Puts the ranges and the parts into one frame and returns its end, for Store::sync(). The transaction keeps its
  // / ranges and parts: forget() follows, or abort() if anything failed. Without both: Lsn 0, or the failure of a
  // poisoned
  // store.
  Result<Lsn> capture(bool will_sync);

  // Copies the images back, the newest first, aborts the parts, and forgets both. No I/O, and no failure.
  void abort();
  // Forgets the ranges and parts; the memory stays as it is.
  void forget();

 private:
  static constexpr std::uint64_t kFewBytes = sizeof(std::uint64_t);
  struct Touched {
    Region* region = nullptr;
    Range range;
    std::uint64_t image = 0;  // of a few bytes, these; else the place of the bytes in images_
  };

  struct Joined {
    Region* region = nullptr;
    OpenTransactions::Shard shard = nullptr;
  };

  struct Part {
    std::unique_ptr<Participant> participant;
    OpenTransactions::Shard shard = nullptr;
  };

  Status join(Region& region);
  void add(Region& region, Range range);
  void collect_extents();
  void note_copied();
  Status commit_sizes(bool will_sync);
  void note_commit(Lsn end);
  Result<Lsn> commit(bool will_sync);
  Result<Lsn> commit_with_parts(bool will_sync);
  Result<std::uint64_t> prepare_parts(std::size_t& prepared);
  Result<Lsn> commit_frame(bool will_sync, std::size_t& changed);

  Store& store_;
  std::vector<Joined> regions_;  // in which it has ranges
  std::vector<Touched> touched_;
  std::vector<std::byte> images_;
  std::vector<Part> parts_;
  // Kept between commits, so that a commit allocates nothing once they have grown.
  std::vector<Touched> sorted_;
  std::vector<Extent> extents_;
  std::vector<const std::byte*> sources_;
  JointFrame frame_;
};

}  // namespace memlith::core
