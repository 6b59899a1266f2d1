// The environment of the plugin: the folder of a database, its identity, the locks that plain SQLite respects. Real
// files here; the tests use the simulated disk. Part of the SQLite plugin.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"
#include "device/volume.hpp"
#include "store/place.hpp"

namespace memlith::sqlite {

// The locks of this process on a database file. All of them belong to one open file, so the system releases them when
// the process ends.
//
// The lock at the place of SQLite's own locks shows plain SQLite a busy database instead of a changing one. The claim,
// behind it, keeps other processes with memlith's engine out from the moment of opening.
class HostLock {
 public:
  virtual ~HostLock() = default;
  // SQLite's place, shared. `busy` if plain SQLite writes.
  virtual core::Status share() = 0;
  // SQLite's place, exclusive: no other process may even read. `busy` if another process reads.
  virtual core::Status make_exclusive() = 0;
  // The file that is locked, for others to open it and lock it for their own ends without another descriptor. Open for
  // writing if it was locked for a writer.
  [[nodiscard]] virtual std::shared_ptr<core::OpenFile> file() const = 0;
  // True if the file has lost its last name, so that it cannot be opened any more.
  [[nodiscard]] virtual bool removed() const = 0;

  // The right to have the database open with the engine: one process that writes, or any number that read (`shared`).
  // False: others have it.
  virtual core::Result<bool> claim(bool shared) {
    (void)shared;
    return true;
  }
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
  // True if this process may change the file and create others beside it.
  virtual bool may_write(const std::string& path) = 0;
  // Opens the file. Nothing is locked yet. `busy` if this process has the file open by other means.
  virtual core::Result<std::unique_ptr<HostLock>> host(core::Volume& volume, const std::string& file_name,
                                                       bool writable) = 0;
  // True if databases are put in order while no connection uses them (tender.hpp).
  [[nodiscard]] virtual bool is_tended() const { return false; }
  // In a forked child, before it opens a database: its parent's files are not kept open and locked by it.
  virtual void leave_parent() {}
};

// Real files. Lives as long as the process.
World& real_world();

}  // namespace memlith::sqlite
