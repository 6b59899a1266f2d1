// A SQLite VFS whose databases are memlith's. Part of the SQLite plugin.
//
// Main databases are one-file stores (database.hpp); their journals and write-ahead logs live in memory. Temporary
// files, which are not needed after a crash, and everything else are left to the former default VFS.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "api.hpp"
#include "database.hpp"

namespace memlith::sqlite {

// The databases that are open in this process: one Database per file, for all connections and all SQLites. Several
// SQLites in one process (entry.cpp) share them, as several processes share the files of plain SQLite. Threads: any.
class Databases {
 public:
  explicit Databases(World& world, Options defaults = {});
  ~Databases() { delete here_.load(); }
  Databases(const Databases&) = delete;
  Databases& operator=(const Databases&) = delete;

  struct Shared {
    std::mutex mutex;             // opening and closing
    int users = 0;                // under Here::mutex
    std::shared_ptr<void> claim;  // under `mutex`; while the engine has it, or opens it (shared_files.hpp)
    std::unique_ptr<Database> database;
  };
  // A connection to the database at `path`. `wanted_write`: falls back to read-only where the file cannot be written.
  // kIsForSharing, where the options name no mode and `is_for_sharing` says so.
  core::Status open(const Api& api, const std::string& path, const char* uri_name, bool wanted_write, bool create,
                    const std::function<bool()>& is_for_sharing, std::shared_ptr<Shared>& shared);
  core::Status close(const std::string& path, const std::shared_ptr<Shared>& shared);
  // True if no other connection of this process has it, at this moment.
  [[nodiscard]] bool is_only_user(const Shared& shared);
  // The database that is open under this path, or null.
  std::shared_ptr<Shared> find(std::string_view path);
  // An open database. As long as this object lives, the database is neither opened nor closed.
  class Owner {
   public:
    Owner() = default;
    explicit Owner(std::shared_ptr<Shared> shared) : shared_(std::move(shared)), lock_(shared_->mutex) {}
    explicit operator bool() const { return shared_ != nullptr && shared_->database != nullptr; }
    Database* operator->() const { return shared_->database.get(); }
    // Stays open as long as the caller has a connection of its own.
    [[nodiscard]] std::shared_ptr<Shared> shared() const { return *this ? shared_ : nullptr; }

   private:
    std::shared_ptr<Shared> shared_;
    std::unique_lock<std::mutex> lock_;  // released before shared_
  };
  // The database whose journal or write-ahead log is called `name`. Allocates nothing. Waits while that database is
  // opened or closed.
  Owner find_owner(std::string_view name, std::string_view suffix);

  [[nodiscard]] MemoryFolder& memory() { return here().memory; }
  [[nodiscard]] World& world() { return world_; }
  // The options of databases whose parameters say nothing else.
  [[nodiscard]] const Options& defaults() const { return defaults_; }

 private:
  core::Status attach(const std::string& path, bool create, bool& made, std::shared_ptr<Shared>& shared);
  core::Result<std::unique_ptr<Database>> open_claimed(const std::string& path, const Options& options, bool read_only,
                                                       const std::function<bool()>& is_for_sharing, Shared& shared);
  void remove_made(const std::string& path);
  void detach(const std::string& path, const std::shared_ptr<Shared>& shared);
  core::Status leave(const std::string& path, const std::shared_ptr<Shared>& shared);

  // The paths open in one process. A forked child begins with none: its parent's connections are its parent's, and the
  // mutexes may be held by threads that the child does not have.
  struct OpenPath {
    std::shared_ptr<Shared> shared;
    int users = 0;
  };
  struct Here {
    const std::uint64_t process_mark;
    MemoryFolder memory;
    std::mutex names_mutex;  // held while a file is made, or a log removed, because there is no file of that name
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Shared>> by_identity;
    std::map<std::string, OpenPath, std::less<>> by_path;
  };
  Here& here();

  World& world_;
  Options defaults_;
  std::atomic<Here*> here_;  // acquire pairs with the exchange that publishes a child's; the parent's is never freed
};

// The databases on real files, for every SQLite of the process. Live as long as the process.
Databases& real_databases();

// One for each SQLite of the process.
class Vfs {
 public:
  // `name` and `databases` live as long as the VFS. Null if SQLite has no default VFS to build on.
  static std::unique_ptr<Vfs> make(const Api& api, Databases& databases, const char* name);
  Vfs(const Vfs&) = delete;
  Vfs& operator=(const Vfs&) = delete;

  // SQLITE_OK, or what SQLite says. As the default it has another name, so that it knows which connections ask for it.
  int register_it(bool as_default);
  int unregister();

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] const char* name() const { return vfs_.zName; }
  [[nodiscard]] sqlite3_vfs* base() const { return base_; }
  [[nodiscard]] bool is_default(const sqlite3_vfs* vfs) const { return vfs == &default_vfs_; }
  [[nodiscard]] Databases& databases() { return databases_; }
  [[nodiscard]] MemoryFolder& memory() { return databases_.memory(); }
  [[nodiscard]] World& world() { return databases_.world(); }

 private:
  Vfs(const Api& api, Databases& databases, sqlite3_vfs* base, const char* name);

  Api api_;
  Databases& databases_;
  sqlite3_vfs* base_;
  sqlite3_vfs vfs_{};
  const std::string default_name_;
  sqlite3_vfs default_vfs_{};
};

}  // namespace memlith::sqlite
