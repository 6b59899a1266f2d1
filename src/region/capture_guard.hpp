// Guards structures in a region's memory against captures and rollbacks in the middle of a change. Floor: region.
//
// A structure that threads change under locks of its own is whole only while those locks are held. A region with a
// guard therefore asks the guard before each capture, rollback and release of memory. All threads share the structure,
// so such a region refuses thread scope and commits of parts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace memlith::core {

class CaptureGuard {
 public:
  // Every structure is whole, and stays so until let_go(). Called before the region's capture lock is taken; the holder
  // of the structure's locks may grow the region.
  virtual void hold() = 0;
  virtual void let_go() = 0;
  // The memory is as it was last captured, within hold() and let_go(): what is remembered of it is out of date.
  virtual void rolled_back() = 0;
  // For messages: what the structures are, with an article.
  [[nodiscard]] virtual std::string_view what() const = 0;
  // For people: where each offset into the region lies. Empty for what is not in the program's hands. Not within
  // hold().
  virtual std::vector<std::string> where(std::span<const std::uint64_t> offsets) = 0;

 protected:
  ~CaptureGuard() = default;
};

}  // namespace memlith::core
