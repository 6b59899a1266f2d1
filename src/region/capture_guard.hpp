// Guards structures in a region's memory against captures and rollbacks in the middle of a change. Floor: region.
//
// A structure that threads change under locks of its own is whole only while those locks are held. A region with a
// guard therefore asks the guard before each capture, rollback and release of memory. All threads share the structure,
// so such a region refuses commits of parts, and thread scope unless the guard knows threads: it keeps what each thread
// changes out of the region's memory then, until a capture of that thread asks for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

class CaptureGuard {
 public:
  // Every structure is whole, and stays so until let_go(). Called before the region's capture lock is taken; the holder
  // of the structure's locks may grow the region.
  virtual void hold() = 0;
  virtual void let_go() = 0;
  // The memory is as it was last captured, within hold() and let_go(): what is remembered of it is out of date.
  virtual void rolled_back() = 0;

  // ---- threads; all within hold() and let_go()
  [[nodiscard]] virtual bool knows_threads() const { return false; }
  // Makes the memory what a capture of `thread` (kAllThreads: of every thread) commits, and adds the ranges that the
  // capture takes whichever thread stored to them. captured() or not_captured() follows, also after a failure.
  virtual Status before_capture(ThreadNumber /*thread*/, std::vector<Range>& /*shared*/) { return kOk; }
  virtual void captured() {}
  virtual void not_captured() {}
  // Ranges that the next capture takes whichever thread stored to them, for a rollback of all threads.
  virtual void add_shared(std::vector<Range>& /*shared*/) {}
  // True for a page of the structures, which several threads may store to between captures.
  [[nodiscard]] virtual bool shares_page(std::uint64_t /*page*/) const { return false; }

  // For messages: what the structures are, with an article.
  [[nodiscard]] virtual std::string_view what() const = 0;
  // For people: where each offset into the region lies. Empty for what is not in the program's hands. Not within
  // hold().
  virtual std::vector<std::string> where(std::span<const std::uint64_t> offsets) = 0;

 protected:
  ~CaptureGuard() = default;
};

}  // namespace memlith::core
