// A real store on a simulated disk, small and always the same but for its random identity.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/sim.hpp"
#include "store/store.hpp"

namespace memlith::fuzz {

inline core::StoreOptions small_store_options(bool one_file) {
  core::StoreOptions options;
  options.kind = one_file ? core::StoreKind::one_file : core::StoreKind::folder;
  options.file_name = "data";
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 4096;
  options.log_bytes = 2 * 4096;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  options.log.recovery_window_bytes = 4096;
  return options;
}

// `objects` objects of one page, with three commits each; closed, or as a kill leaves it.
inline core::Status fill_small_store(core::SimVolume& volume, bool one_file, std::size_t objects, bool close) {
  MEMLITH_TRY_ASSIGN(auto store, core::Store::open(volume, small_store_options(one_file)));
  for (std::size_t n = 0; n < objects; ++n) {
    const std::string name = one_file ? "file" : "region" + std::to_string(n);
    MEMLITH_TRY_ASSIGN(const core::ObjectInfo info, store->create(name, 4096, 0x550000000000, 4096));
    for (std::uint64_t i = 0; i < 3; ++i) {
      const core::Extent extent{info.id, i * 700, 300};
      const std::vector<std::byte> bytes(extent.bytes, static_cast<std::byte>(i + 1));
      const std::byte* const source = bytes.data();
      MEMLITH_TRY(store->commit({{&extent, 1}, {&source, 1}, {}}));
    }
  }
  return close ? store->close() : core::kOk;
}

inline core::SimImage small_store_image(std::size_t objects, bool close, bool one_file = false) {
  core::SimVolume volume;
  if (!fill_small_store(volume, one_file, objects, close).ok()) {
    std::fprintf(stderr, "a small store cannot be made: %s\n", std::string(core::last_error_text()).c_str());
    std::abort();
  }
  return volume.image();
}

}  // namespace memlith::fuzz
