// The keeper's process, of `memlith keeper` and of the program that the Python wheel brings (docs/shared-regions.md).
//
// memlith_shared_open starts it with --ready-fd. It then leaves the process that has started it: it is no child of
// a process there, and no signal to that process's group or terminal reaches it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memlith::tool {

struct Keeping {
  std::string store;
  bool create = false;
  std::uint64_t grace_ms = 0;  // 0: the library's
  int ready_fd = -1;           // none: the keeper stays where it was started
};

// Returns the result of memlith_shared_keep, when the store is closed. None in the process that was started with
// `ready_fd`, which ends at once.
std::optional<std::int32_t> keep(const Keeping& keeping);

}  // namespace memlith::tool
