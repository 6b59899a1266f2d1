// Where a path leads: the volume, and the name in it. Floor: store.
#pragma once

#include <memory>
#include <string>

#include "device/volume.hpp"
#include "store/format.hpp"

namespace memlith::core {

struct Place {
  std::unique_ptr<Volume> volume;
  std::string file_name;  // in the volume; empty: the volume itself
};

// The name that the path ends with, in the folder before it. Errors: invalid, if the path cannot be a file's.
Result<Place> place_of_name(const std::string& path, IoBackend io = IoBackend::automatic);

// Of the store at `path`: a folder store's volume is its folder; a one-file store's is the folder that has the file itself, whatever
// link leads there, because the log lies beside it. The store need not exist. Errors: invalid.
Result<Place> place_of_store(const std::string& path, StoreKind kind, IoBackend io = IoBackend::automatic);

// What a store at `path` is, if there is one.
StoreKind kind_at(const std::string& path);

}  // namespace memlith::core
