// What lies outside the plugin: the folder a database is in, its identity, the locks that plain SQLite honours. Real files
// here; the tests have one over the simulated disk. Part of the SQLite plugin.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"
#include "device/volume.hpp"
#include "store/place.hpp"

namespace memlith::sqlite {

// On the database file, in the place where SQLite's own locks are, so that a plain SQLite sees a busy database instead of one
// that changes under its hands. Shared from the start; let go when destroyed.
class HostLock {
 public:
  virtual ~HostLock() = default;
  // Nobody else may even read. `busy` where somebody does.
  virtual core::Status make_exclusive() = 0;
  // Shared again.
  virtual core::Status share() = 0;
  // The file that is locked, for others to open it and lock it for their own ends without another descriptor. Open for writing if it was
  // locked for a writer.
  [[nodiscard]] virtual std::shared_ptr<core::OpenFile> file() const = 0;
  // Whether the file has no name any more, so that nobody will find it again.
  [[nodiscard]] virtual bool removed() const = 0;
};

using core::Place;

class World {
 public:
  virtual ~World() = default;
  virtual core::Result<Place> place_of(const std::string& path) = 0;
  // The same for two paths exactly if they are the same file; empty where there is none.
  virtual core::Result<std::string> identity_of(const std::string& path) = 0;
  // Makes an empty file; ok if there is one.
  virtual core::Status create(const std::string& path) = 0;
  // Whether this process may change the file, and make others beside it.
  virtual bool may_write(const std::string& path) = 0;
  virtual core::Result<std::unique_ptr<HostLock>> lock(core::Volume& volume, const std::string& file_name,
                                                       bool writable) = 0;
};

// Real files. Lives as long as the process.
World& real_world();

}  // namespace memlith::sqlite
