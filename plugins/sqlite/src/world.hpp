// The environment of the plugin: the folder of a database, its identity, the locks that plain SQLite respects. Real
// files here; the tests use the simulated disk. Part of the SQLite plugin.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"
#include "device/volume.hpp"
#include "store/place.hpp"

namespace memlith::sqlite {

// A lock on the database file, at the place of SQLite's own locks, so that plain SQLite sees a busy database instead of
// a changing one. Shared at first; released by the destructor.
class HostLock {
 public:
  virtual ~HostLock() = default;
  // Makes the lock exclusive: no other process may even read. `busy` if another process reads.
  virtual core::Status make_exclusive() = 0;
  // Shared again.
  virtual core::Status share() = 0;
  // The file that is locked, for others to open it and lock it for their own ends without another descriptor. Open for
  // writing if it was locked for a writer.
  [[nodiscard]] virtual std::shared_ptr<core::OpenFile> file() const = 0;
  // Whether the file has lost its last name, so that it cannot be opened any more.
  [[nodiscard]] virtual bool removed() const = 0;
};

using core::Place;

class World {
 public:
  virtual ~World() = default;
  virtual core::Result<Place> place_of(const std::string& path) = 0;
  // Equal for two paths exactly if they lead to the same file; empty if there is no file.
  virtual core::Result<std::string> identity_of(const std::string& path) = 0;
  // Creates an empty file; ok if the file exists.
  virtual core::Status create(const std::string& path) = 0;
  // Whether this process may change the file and create others beside it.
  virtual bool may_write(const std::string& path) = 0;
  virtual core::Result<std::unique_ptr<HostLock>> lock(core::Volume& volume, const std::string& file_name,
                                                       bool writable) = 0;
};

// Real files. Lives as long as the process.
World& real_world();

}  // namespace memlith::sqlite
