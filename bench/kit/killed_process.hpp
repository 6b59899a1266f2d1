// A crash on purpose: what a benchmark of recovery begins with.
#pragma once

#include <functional>

#include "cli/failure.hpp"

namespace memlith::tool {

// Runs `act` in a child process that is killed when `act` is done, with everything that it has opened. The calling
// process has no store open and no other threads.
[[nodiscard]] MaybeFailure in_a_killed_process(const std::function<MaybeFailure()>& act);

}  // namespace memlith::tool
