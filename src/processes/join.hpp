// How a process opens what the keeper of a store keeps. Floor: processes.
#pragma once

#include <chrono>
#include <string>

#include "processes/asks.hpp"
#include "shared/meet.hpp"

namespace memlith::core::processes {

struct Joining {
  std::string path;  // of the store's folder
  std::string name;  // of the kv store, or application log
  bool create = false;
  bool exclusive = false;
  std::string program;                         // as shared::ClientOptions
  std::chrono::milliseconds patience{60'000};  // likewise
};

// `request` has what is of that kind alone. Errors: those of shared::meet().
Result<shared::Joined> join_keeper(const Joining& joining, Kind kind, shared::Request request);

}  // namespace memlith::core::processes
