// True if a commit was refused rather than failed. Floor: store.
#pragma once

#include "base/status.hpp"

namespace memlith::core {

// The log had no room for a commit, or memory was lacking. Nothing was written, and the same commit may succeed later.
constexpr bool is_refusal(Status status) {
  return is_lack(status) || status.category == Errc::no_space || status.category == Errc::full;
}

}  // namespace memlith::core
