// The raw device floor: what one write and one flush of as many bytes cost without memlith.
//
// No durable commit can be faster than this on the same disk, so persist is best read beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace demo {

struct Floor {
  std::vector<std::uint64_t> nanoseconds;  // one a write, in order of time
  std::uint64_t bytes = 0;                 // a write
  bool direct = false;                     // O_DIRECT; false where the file system refused it
};

// Writes `bytes`, a multiple of 4096, and calls fdatasync, over and over, in a preallocated zero-filled file in
// `folder`, which it removes again. 500 times, or fewer where the disk is so slow that this would take more than some
// seconds.
Result<Floor> measure_floor(const std::string& folder, std::uint64_t bytes);

}  // namespace demo
