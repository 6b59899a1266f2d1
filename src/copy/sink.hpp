// The receiver of a copy of a store, and its report. Floor: copy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "log/reader.hpp"
#include "store/format.hpp"
#include "store/objects.hpp"
#include "store/rot_finder.hpp"

namespace memlith::core {

// A store as one durable commit left it.
struct CopiedState {
  LogPosition position;  // every commit before it, and none behind it
  std::uint64_t log_id = 0;
  std::uint64_t origin = 0;  // as in the store's header
  std::uint64_t incarnation = 0;
  StoreKind kind = StoreKind::folder;
  std::uint32_t physical_block_bytes = 0;  // as in the store's header
  bool marked_by_caller = false;           // one file: it may begin with an in-use header of InUse::caller
  FileRecord file{};                       // one file: its record; with `own`, what belongs in the place of the guard
  std::uint64_t slot_bytes = 0;            // of the log
  std::uint64_t slot_count = 0;            // of the log, as it was made
  std::uint32_t next_id = 1;               // folder: no object had this number or a higher one
  std::vector<ObjectInfo> objects;         // with their sizes; whatever else was put belongs to no object
  // Damage found in the homes that the sink did not take by itself, and the number of blocks that were read.
  std::vector<DamagedBytes> damaged;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_unknown = 0;  // of them, those without a sum
};

// Takes the bytes of the objects. An error ends the walk, which returns it.
class CopySink {
 public:
  virtual ~CopySink() = default;
  // The walk begins, possibly not for the first time: everything that was put before is void. `start` lacks the objects
  // and the position.
  virtual Status begin(const CopiedState& start) = 0;
  // The home of an object whose bytes will be put: at most once for an object, before its first put(). True: the sink
  // has taken all of the home's bytes by itself.
  virtual Result<bool> take(ObjectId object, Device& home) = 0;
  // Bytes of an object, in any order; bytes that are put twice count as they are put the second time. Bytes that are
  // never put are zeros. An object without a home as yet is put without having been taken.
  virtual Status put(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
};

// Both in bytes. `total` may rise.
using CopyProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace memlith::core
