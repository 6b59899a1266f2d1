// A small vocabulary over core::Store: a place for it (simulated or a real folder), commits, and the bytes at home.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "device/posix.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {

using Bytes = std::vector<std::byte>;

inline Bytes filled(std::size_t count, int value) { return Bytes(count, static_cast<std::byte>(value)); }

// Four slots of 16 KiB, no thread, and a limit of sixteen slots.
inline core::StoreOptions tiny_options() {
  core::StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 16 * core::kKiB;
  options.log_bytes = 4 * options.slot_bytes;
  options.log_max_bytes = 16 * options.slot_bytes;
  return options;
}

struct Piece {
  core::ObjectId object;
  std::uint64_t offset = 0;
  Bytes bytes;
};

inline core::Status commit(core::Store& store, const std::vector<Piece>& pieces,
                           const std::vector<core::SizeChange>& sizes = {}) {
  std::vector<core::Extent> extents;
  std::vector<const std::byte*> sources;
  for (const Piece& piece : pieces) {
    extents.push_back({piece.object, piece.offset, piece.bytes.size()});
    sources.push_back(piece.bytes.data());
  }
  return store.commit({extents, sources, sizes});
}

// A new object at an address that no test uses; nothing is mapped there.
inline core::ObjectId create_object(core::Store& store, const std::string& name, std::uint64_t bytes) {
  return must(store.create(name, bytes, 0x510000000000, 1 * core::kGiB)).id;
}

// The content of an object once everything committed is at home.
inline Bytes content_of(core::Store& store, core::ObjectId id) {
  if (!store.read_only()) {
    EXPECT_OK(store.checkpoint());
  }
  Bytes bytes = must(store.read_home(id));
  EXPECT_OK(store.overlay().for_each(id, [&](std::uint64_t offset, std::span<const std::byte> piece) {
    if (offset + piece.size() <= bytes.size()) std::memcpy(bytes.data() + offset, piece.data(), piece.size());
    return core::kOk;
  }));
  return bytes;
}

}  // namespace memlith::test
