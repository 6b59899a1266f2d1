// A commit as the log has it: which bytes of which objects it changes. Floor: store.
#pragma once

#include <span>
#include <vector>

#include "log/log.hpp"
#include "store/objects.hpp"

namespace memlith::core {

struct LoggedExtent {
  Extent place;
  bool is_discard = false;           // the bytes are zeros, of whole pages
  std::span<const std::byte> bytes;  // of the frame; none of a discard
};

// Takes one commit off the front of `rest`, which begins as the frame's payload. Errors: corrupt.
Status take_commit(const Log& log, const Frame& frame, std::span<const std::byte>& rest,
                   std::vector<LoggedExtent>& extents);

}  // namespace memlith::core
