// Makes a database's logs ordinary files again: after a crash, and at a clean close. Floor: rocksdb.
#pragma once

#include <cstdint>
#include <string>

#include "files.hpp"

namespace memlith_rocksdb {

struct GivenBack {
  std::uint64_t logs = 0;
  std::uint64_t replayed_bytes = 0;
};

enum class Damage : std::uint8_t { refuse, accept };

// `folder` holds the logs. Brings what only the journal has into the files, checks that they have every byte that was
// acknowledged, gives them their names back, and removes folder/memlith. Does nothing where that is not. Can be
// interrupted at any moment and called again.
// Errors, nothing was changed that matters: BUSY - a process has the database open; CORRUPT - acknowledged bytes are
// damaged or missing; the message says which. With Damage::accept what there is, is given back.
Result<GivenBack> give_back(const std::string& folder, Damage damage = Damage::refuse);

}  // namespace memlith_rocksdb
