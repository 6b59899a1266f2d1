// Resolves a path to a volume and a name in it. Floor: store.
#pragma once

#include <memory>
#include <string>

#include "device/volume.hpp"
#include "store/format.hpp"

namespace memlith::core {

struct Place {
  std::unique_ptr<Volume> volume;
  std::string file_name;  // the name in the volume; empty: the volume itself
};

// Resolves to the last name of the path, in the folder before it. Errors: invalid, if the path cannot be that of a
// file.
Result<Place> place_of_name(const std::string& path, IoBackend io = IoBackend::automatic);

// Resolves the path of a store. The volume of a folder store is its folder, or the device that it lies on. The
// volume of a one-file store is the folder of the file itself, with symbolic links followed, because the log lies
// beside the file. The store need not exist. Errors: invalid.
Result<Place> place_of_store(const std::string& path, StoreKind kind, IoBackend io = IoBackend::automatic);

// The kind of the store at `path`, if there is one.
StoreKind kind_at(const std::string& path);

}  // namespace memlith::core
