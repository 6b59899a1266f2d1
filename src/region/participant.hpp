// A structure's part in a transaction that commits several structures of a store in one frame. Floor: region.
//
// Regions, kv stores and application logs know this interface and not each other. Transaction::capture() calls it:
//     make_ready() of every part, without locks.
//     prepare()   of every part, in their order. If one fails, or the log cannot take the frame, cancel() of those that
//                 were prepared: nothing has happened, and the transaction is still open.
//     add_to()    of every part. From here on memory changes, so what can fail was made certain before. Only a kv store
//                 may still lack memory; it has changed nothing then. If no part before it has changed anything either,
//                 cancel() of all follows.
//     finish()    the frame is in the log: the commit has happened, and is durable when the frame is.
//     give_up()   add_to() failed behind another part, or the log did: the store is poisoned, because memory and log
//                 differ.
//     settle()    behind the commit, without locks.
// abort() follows where the program aborts the transaction, or the transaction is forgotten without a commit.
//
// Threads: that of the transaction. From prepare() on it holds the mutex of the store's collectors. The locks that
// prepare() takes are held until finish(), cancel() or give_up(), also while the log waits for room.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "region/region.hpp"

namespace memlith::core {

// The most that a part adds to the frame.
struct FrameNeed {
  std::uint64_t bytes = 0;    // extents included
  std::uint64_t extents = 0;  // a kv store reserves its own
};

class Participant {
 public:
  // The order in which parts are prepared, the same in every transaction, so that two of them never wait for each
  // other: kinds first, then objects.
  enum class Kind : std::uint8_t { kv, applog, region };

  virtual ~Participant() = default;
  [[nodiscard]] virtual Kind kind() const = 0;
  [[nodiscard]] virtual Region& region() const = 0;  // in which the structure lies

  // Work that cannot be done under the mutex of the collectors. Nothing is promised by it.
  virtual Status make_ready() { return kOk; }
  // Takes the part's locks and makes certain whatever can fail. On failure nothing is locked and nothing has changed.
  virtual Result<FrameNeed> prepare() = 0;
  virtual Status add_to(JointFrame& frame) = 0;
  // The frame ends there in the log. Lsn 0: no part had anything to commit, and there is no frame.
  virtual void finish(Lsn end) noexcept = 0;
  virtual void cancel() noexcept = 0;
  // Also of parts whose add_to() was not called.
  virtual void give_up() noexcept { cancel(); }
  virtual void abort() noexcept {}
  // Work that the commit, which was finished, has left.
  virtual void settle() noexcept {}
};

}  // namespace memlith::core
