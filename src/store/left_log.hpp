// A log that lies beside a file: looked at by a caller that decides whether to open the store. Floor: store.
#pragma once

#include <optional>
#include <string>

#include "device/volume.hpp"

namespace memlith::core {

struct LeftLog {
  bool was_closed = false;  // cleanly: everything is in the file
  bool by_caller = false;   // a store with InUse::caller wrote it
};

// Empty if there is none. Changes nothing and takes no lock. corrupt, incompatible: as Store::open().
Result<std::optional<LeftLog>> look_at_log(Volume& volume, const std::string& file_name);

}  // namespace memlith::core
