// Transactions: changes of explicitly tracked regions that are announced before they are made. Floor: region.
//
// A transaction keeps its own list of ranges, each with an image of the bytes as they were. A commit logs the ranges
// and nothing else, so it costs the same whatever other threads have stored and not persisted. An abort copies the
// images back, without I/O. The region's tracker does not know of these ranges: a persist of the region leaves them
// out.
//
// No capture lock is taken: the bytes of the ranges are this transaction's alone until it ends (the program's locks see
// to that), so the order of the log is the order of the changes.
//
// Threads: one thread at a time uses a transaction; different threads use different transactions. A region must not be
// unmapped, and does not release memory, while a transaction has ranges in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "region/region.hpp"

namespace memlith::core {

// Bytes to be copied to a place in a region.
struct BufferedWrite {
  std::byte* target = nullptr;
  const std::byte* bytes = nullptr;
  std::uint64_t count = 0;
};

class Transaction {
 public:
  explicit Transaction(Store& store) : store_(store) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // The region in which the address lies, if the transaction has ranges in that region.
  [[nodiscard]] Region* joined(const void* address) const;

  // Keeps an image of the bytes, which the caller is about to change. On failure nothing has changed.
  Status touch_before(Region& region, const void* address, std::uint64_t bytes);

  // Puts the ranges into one frame and returns its end, for Store::sync(). The transaction keeps its ranges: forget()
  // follows, or abort() if anything failed. Without ranges: Lsn 0, or the failure of a poisoned store.
  Result<Lsn> capture(bool will_sync);

  // Logs the buffers' bytes, then copies the bytes to their targets, which lie in the regions given, one for each
  // write. On failure nothing has changed. The transaction has no ranges before, and none after forget().
  Result<Lsn> capture_buffers(std::span<const BufferedWrite> writes, std::span<Region* const> regions, bool will_sync);

  // Copies the images back, the newest first, and forgets the ranges. No I/O, and no failure.
  void abort();
  // Forgets the ranges; the memory stays as it is.
  void forget();

 private:
  struct Touched {
    Region* region = nullptr;
    Range range;
    std::uint64_t image = 0;  // its place in images_
  };

  struct Joined {
    Region* region = nullptr;
    OpenTransactions::Place place = nullptr;
  };

  Status join(Region& region);
  void add(Region& region, Range range);
  void collect_extents();
  Result<Lsn> commit(bool will_sync);

  Store& store_;
  std::vector<Joined> regions_;  // in which it has ranges
  std::vector<Touched> touched_;
  std::vector<std::byte> images_;
  // Kept between commits, so that a commit allocates nothing once they have grown.
  std::vector<Touched> sorted_;
  std::vector<Extent> extents_;
  std::vector<const std::byte*> sources_;
};

}  // namespace memlith::core
