// How a client finds the keeper of a store, or starts one. Floor: shared.
#pragma once

#include <chrono>
#include <string>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "shared/channel.hpp"

namespace memlith::core::shared {

struct KeeperWish {
  std::string path;  // of the store's folder, absolute
  bool create = false;
  std::string program;                         // the path of `memlith`; empty: find_program()
  std::chrono::milliseconds patience{60'000};  // with a keeper that begins or ends
};

struct Joined {
  Descriptor socket;
  Answer answer;
  Memories memories;
};

// Finds the keeper, or starts one, and sends it the first request of a connection. Of two that start one at once, one
// sees the other's. Errors: those of the answer; busy - no keeper began, or ended, in time; those of start_keeper().
Result<Joined> meet(const KeeperWish& wish, const Request& request);

}  // namespace memlith::core::shared
