// A process with little memory, page cache included. Floor: kv-bench.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/failure.hpp"

namespace memlith::tool {

using LimitMemory = std::function<MaybeFailure()>;

// Runs `act` in a child process with a memory control group of its own. When `act` calls `limit`, the group may have
// `bytes` of memory from then on. The calling process has no store open and no other threads. Takes root.
// Errors: UNSUPPORTED: no such group can be made. NO_MEMORY: the kernel killed the child, because it needed more.
[[nodiscard]] MaybeFailure with_limited_memory(std::uint64_t bytes,
                                               const std::function<MaybeFailure(const LimitMemory& limit)>& act);

// For a heading; empty without a limit.
[[nodiscard]] std::string memory_text(std::uint64_t mib);

}  // namespace memlith::tool
