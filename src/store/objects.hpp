// The objects of a store, and the changes of a commit. Floor: store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/units.hpp"

namespace memlith::core {

inline constexpr ObjectId kDirectory{0};
inline constexpr ObjectId kFile{1};  // one-file store: the user's file

struct ObjectInfo {
  ObjectId id;
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;
  std::uint64_t reserve_bytes = 0;
};

struct Extent {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct SizeChange {
  ObjectId object;
  std::uint64_t size_bytes = 0;
};

// The changes of one commit: bytes of objects, and sizes of objects.
struct Changes {
  std::span<const Extent> extents;
  std::span<const std::byte* const> sources;  // for each extent: the address of its bytes
  std::span<const SizeChange> sizes;
};

// One for each object asked for, in that order.
struct HomeCopies {
  struct Copy {
    Descriptor memory;  // a file of at least size_bytes
    std::uint64_t size_bytes = 0;
  };
  Lsn lsn;  // the copies hold everything before it
  std::vector<Copy> copies;
};

struct StoreCounters {
  std::atomic<std::uint64_t> captured_bytes{0};
  std::atomic<std::uint64_t> captured_pages{0};
  std::atomic<std::uint64_t> last_captured_pages{0};
  std::atomic<std::uint64_t> checkpoints{0};
  std::atomic<std::uint64_t> home_bytes{0};
  std::uint64_t replayed_commits = 0;  // constant after open
  std::uint64_t replayed_bytes = 0;
};

}  // namespace memlith::core
