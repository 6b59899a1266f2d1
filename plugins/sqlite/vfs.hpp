// A SQLite VFS whose databases are memlith's. Part of the SQLite plugin.
//
// Main databases are one-file stores (database.hpp); their journals and write-ahead logs live in memory; temporary files, which
// nobody misses after a crash, and everything else are left to the VFS that was the default before.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "api.hpp"
#include "database.hpp"

namespace memlith::sqlite {

class Vfs {
 public:
  // `name` and `world` live as long as the VFS. Null if the host has no VFS to stand on.
  static std::unique_ptr<Vfs> make(const Api& api, World& world, const char* name, const Options& defaults = {});
  Vfs(const Vfs&) = delete;
  Vfs& operator=(const Vfs&) = delete;

  // SQLITE_OK, or what SQLite says.
  int register_it(bool as_default);
  int unregister();

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] sqlite3_vfs* base() const { return base_; }
  [[nodiscard]] MemoryFolder& memory() { return memory_; }
  [[nodiscard]] World& world() { return world_; }

  // What the files below share.
  struct Shared {
    std::mutex mutex;  // opening and closing
    int users = 0;     // under the VFS's mutex
    std::unique_ptr<Database> database;
  };
  // A connection to the database at `path`. `wanted_write`: falls back to read-only where the file cannot be written.
  core::Status open(const std::string& path, const char* uri_name, bool wanted_write, bool create,
                    std::shared_ptr<Shared>& shared);
  core::Status close(const std::string& path, const std::shared_ptr<Shared>& shared);
  // The database that is open under this path, or null.
  std::shared_ptr<Shared> find(std::string_view path);
  // Whether `name` is the journal or the write-ahead log of a database that is open here; which one. Takes no memory.
  std::shared_ptr<Shared> find_owner(std::string_view name, std::string_view suffix);

 private:
  Vfs(const Api& api, World& world, sqlite3_vfs* base, const char* name, Options defaults);
  core::Status attach(const std::string& path, bool create, std::shared_ptr<Shared>& shared);
  void detach(const std::string& path, const std::shared_ptr<Shared>& shared);
  core::Status leave(const std::string& path, const std::shared_ptr<Shared>& shared);
  core::Status give_name_free(const std::string& path);

  Api api_;
  World& world_;
  sqlite3_vfs* base_;
  Options defaults_;
  sqlite3_vfs vfs_{};
  MemoryFolder memory_;
  std::mutex names_mutex_;  // held while a file is made, or a log removed, because there is no file of that name
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Shared>> by_identity_;
  struct OpenPath {
    std::shared_ptr<Shared> shared;
    int users = 0;
  };
  std::map<std::string, OpenPath, std::less<>> by_path_;
};

}  // namespace memlith::sqlite
