// Bytes of one structure that go to the log in the frame of another structure's commit. Floor: region.
//
// An application log moves its read position in this way with a commit of a kv store: the two structures know this
// interface and not each other. The bytes are copied when the commit takes effect in memory. They are in the log, and
// durable, together with the commit or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/units.hpp"

namespace memlith::core {

// Each Ride keeps it alive, and so longer than the structure whose bytes travel.
class Companion {
 public:
  virtual ~Companion() = default;
  // The frame with the bytes of the ride so marked, and of all earlier rides, is in the log and ends there. Frames that
  // enter the log from now on lie behind it. Any thread; must not call into the structure that carried the bytes.
  virtual void captured(std::uint64_t mark, Lsn end) noexcept = 0;
  // Whether the frame should enter the log soon, without waiting for a window.
  virtual bool is_urgent(std::uint64_t mark) = 0;
};

struct Ride {
  std::shared_ptr<Companion> companion;
  std::uint64_t mark = 0;
  ObjectId object;
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
  bool taken = false;  // set by the carrier: the commit has taken effect in memory, and the bytes travel with it
};

}  // namespace memlith::core
