#include "vfs.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/process.hpp"
#include "c_file.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "shared/checkpointer.hpp"
#include "shared/connection.hpp"
#include "shared/shared_files.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::Status;

namespace {

Vfs& self(sqlite3_vfs* vfs) { return *static_cast<Vfs*>(vfs->pAppData); }
sqlite3_vfs* base(sqlite3_vfs* vfs) { return self(vfs).base(); }

// How often an opening looks again at what other threads do with the database meanwhile.
constexpr int kLooks = 10;

// As xOpen, with the engine or in mode shared: as `use` or the parameters say, or else as the database is.
//
// THE DEFAULT, where neither says so: a database in WAL mode is for mode shared (files.cpp). Another one is the
// engine's if the program asks for memlith by name. Where memlith is SQLite's default the program may be one of many
// processes that has never heard of memlith, and of which each would wait for the others to give the database back; so
// mode shared leaves the database to SQLite's own VFS until it is in WAL mode. The engine gets what it has marked.
enum class Use : std::uint8_t { any, by_default, share, checkpoint };
int open_database(Vfs& mine, const char* name, sqlite3_file* file, int flags, int* out_flags, Use use) {
  Options options = mine.databases().defaults();
  const char* const parameters = (flags & SQLITE_OPEN_URI) != 0 ? name : nullptr;
  if (const Status status = read_options(mine.api(), parameters, options); !status.ok()) {
    return report(mine.api(), status, true);
  }
  const bool share = use == Use::share || use == Use::checkpoint;
  const bool as_it_is = !share && !options.share.has_value();
  for (int looks = 0; looks < kLooks; ++looks) {
    const bool shared_first = as_it_is && ((use == Use::by_default && looks == 0) || shared::is_open_here(name));
    if (!share && !shared_first && !options.share.value_or(false)) {
      const int code = open_main(mine, name, file, flags, out_flags);
      if (!as_it_is || code != kNotForTheEngine) return code;
    }
    const int code = shared::open_shared(mine, name, file, flags, out_flags, options, use == Use::checkpoint, as_it_is);
    if (code != shared::kForTheEngine) return code;
    // A thread that opens it with the engine is waited for; then this connection goes where that one is.
    const bool is_open = static_cast<bool>(mine.databases().find_owner(name, ""));
    if (is_open && !as_it_is) break;
  }
  return report(mine.api(),
                fail(Errc::busy, Detail::open,
                     "{}: this process has the database open without share=1; close those connections first", name),
                true);
}

// ---- sqlite3_vfs -------------------------------------------------------------------------------------------------

int vfs_open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  return guarded<Caller::other>([&]() -> int {
    Vfs& mine = self(vfs);
    if (name != nullptr && (flags & SQLITE_OPEN_MAIN_DB) != 0) {
      const Use use = mine.is_default(vfs) ? Use::by_default : Use::any;
      return open_database(mine, name, file, flags, out_flags,
                           shared::take_opens_for_checkpoint() ? Use::checkpoint : use);
    }
    if (name != nullptr && shared::belongs_to_shared(name)) {
      return (flags & SQLITE_OPEN_WAL) != 0 ? shared::open_shared_wal(mine, name, file, flags, out_flags)
                                            : mine.base()->xOpen(mine.base(), name, file, flags, out_flags);
    }
    if (name != nullptr && (flags & SQLITE_OPEN_WAL) != 0) return open_wal(mine, name, file, flags, out_flags);
    if (name != nullptr && (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL)) != 0) {
      // SQLite also says "super-journal" for the databases' journals when it checks whether they still name one.
      const auto open_it = is_super_journal(name) ? open_super_journal : open_journal;
      return open_it(mine, name, file, flags, out_flags);
    }
    return mine.base()->xOpen(mine.base(), name, file, flags, out_flags);
  });
}

int vfs_delete(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  return guarded<Caller::other>([&]() -> int {
    // Allocates nothing for a journal: the commit is durable when SQLite removes the journal, and must not fail any
    // more.
    Vfs& mine = self(vfs);
    if (shared::belongs_to_shared(name)) return mine.base()->xDelete(mine.base(), name, sync_folder);
    if (is_super_journal(name)) return delete_super_journal(mine, name, sync_folder != 0);
    const auto journaled = mine.databases().find_owner(name, "-journal");
    if (journaled && journaled->part_is_open()) {
      if (const int code = report(mine.api(), journaled->end_part()); code != SQLITE_OK) return code;
    }
    if (mine.memory().remove(name)) return SQLITE_OK;
    if (const auto owner = mine.databases().find_owner(name, "-wal"); owner) {
      return owner->wal_remove() ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
    }
    // A file of this name beside one of memlith's databases does not belong to memlith.
    if (journaled) return SQLITE_IOERR_DELETE_NOENT;
    return mine.base()->xDelete(mine.base(), name, sync_folder);
  });
}

// An empty file counts as missing, as in SQLite's own VFS.
int vfs_access(sqlite3_vfs* vfs, const char* name, int flags, int* result) {
  return guarded<Caller::other>([&]() -> int {
    Vfs& mine = self(vfs);
    if (shared::belongs_to_shared(name)) return mine.base()->xAccess(mine.base(), name, flags, result);
    if (const auto found = mine.memory().open(name, false); found != nullptr) {
      *result = found->size() > 0 ? 1 : 0;
      return SQLITE_OK;
    }
    if (const auto owner = mine.databases().find_owner(name, "-wal"); owner) {
      *result = owner->wal().exists() && owner->wal().size() > 0 ? 1 : 0;
      return SQLITE_OK;
    }
    if (mine.databases().find_owner(name, "-journal")) {
      *result = 0;
      return SQLITE_OK;
    }
    if (is_super_journal(name)) return find_super_journal(mine, name, result);
    if (std::string_view(name).ends_with("-journal")) {
      const auto left = find_journal_on_disk(mine, name);
      if (!left.ok()) return report(mine.api(), left.error());
      if (*left != nullptr) {
        *result = 1;
        return SQLITE_OK;
      }
    }
    return mine.base()->xAccess(mine.base(), name, flags, result);
  });
}

int vfs_full_pathname(sqlite3_vfs* vfs, const char* name, int bytes, char* out) {
  return base(vfs)->xFullPathname(base(vfs), name, bytes, out);
}
void* vfs_dl_open(sqlite3_vfs* vfs, const char* name) { return base(vfs)->xDlOpen(base(vfs), name); }
void vfs_dl_error(sqlite3_vfs* vfs, int bytes, char* out) { base(vfs)->xDlError(base(vfs), bytes, out); }
void (*vfs_dl_sym(sqlite3_vfs* vfs, void* library, const char* symbol))(void) {
  return base(vfs)->xDlSym(base(vfs), library, symbol);
}
void vfs_dl_close(sqlite3_vfs* vfs, void* library) { base(vfs)->xDlClose(base(vfs), library); }
int vfs_randomness(sqlite3_vfs* vfs, int bytes, char* out) { return base(vfs)->xRandomness(base(vfs), bytes, out); }
// The busy handler of a connection that waits for the write lock sleeps in the queue.
int vfs_sleep(sqlite3_vfs* vfs, int microseconds) {
  if (const auto connection = shared::take_refused(); connection != nullptr) {
    return guarded<Caller::other>([&] {
      connection->sleep(std::chrono::microseconds(microseconds));
      return microseconds;
    });
  }
  const Refused refused = take_refused();
  if (refused.waiter == nullptr) return base(vfs)->xSleep(base(vfs), microseconds);
  return guarded<Caller::other>([&] {
    refused.queue->wait(*refused.waiter, std::chrono::microseconds(microseconds));
    return microseconds;
  });
}
int vfs_current_time(sqlite3_vfs* vfs, double* out) { return base(vfs)->xCurrentTime(base(vfs), out); }
int vfs_current_time_int64(sqlite3_vfs* vfs, sqlite3_int64* out) {
  return base(vfs)->xCurrentTimeInt64(base(vfs), out);
}

int vfs_get_last_error(sqlite3_vfs*, int bytes, char* out) {
  if (out != nullptr && bytes > 0) {
    const std::string_view text = last_report();
    const std::size_t count = std::min(text.size(), static_cast<std::size_t>(bytes) - 1);
    std::memcpy(out, text.data(), count);
    out[count] = 0;
  }
  return last_report_errno();
}

}  // namespace

int open_to_share(Vfs& vfs, const char* name, sqlite3_file* file, int flags) {
  return open_database(vfs, name, file, flags, nullptr, Use::share);
}

// ---- registration ------------------------------------------------------------------------------------------------

std::unique_ptr<Vfs> Vfs::make(const Api& api, Databases& databases, const char* name) {
  sqlite3_vfs* const base = api.vfs_find(nullptr);
  if (base == nullptr || base->iVersion < 2) return nullptr;
  return std::unique_ptr<Vfs>(new Vfs(api, databases, base, name));
}

Vfs::Vfs(const Api& api, Databases& databases, sqlite3_vfs* base, const char* name)
    : api_(api), databases_(databases), base_(base), default_name_(std::string(name) + "-default") {
  vfs_.iVersion = 2;
  vfs_.szOsFile = std::max({base->szOsFile, kFileBytes, shared::kSharedFileBytes});
  vfs_.mxPathname = base->mxPathname;
  vfs_.zName = name;
  vfs_.pAppData = this;
  vfs_.xOpen = vfs_open;
  vfs_.xDelete = vfs_delete;
  vfs_.xAccess = vfs_access;
  vfs_.xFullPathname = vfs_full_pathname;
  vfs_.xDlOpen = vfs_dl_open;
  vfs_.xDlError = vfs_dl_error;
  vfs_.xDlSym = vfs_dl_sym;
  vfs_.xDlClose = vfs_dl_close;
  vfs_.xRandomness = vfs_randomness;
  vfs_.xSleep = vfs_sleep;
  vfs_.xCurrentTime = vfs_current_time;
  vfs_.xGetLastError = vfs_get_last_error;
  vfs_.xCurrentTimeInt64 = vfs_current_time_int64;
  default_vfs_ = vfs_;
  default_vfs_.zName = default_name_.c_str();
}

int Vfs::register_it(bool as_default) {
  const int code = api_.vfs_register(&vfs_, 0);
  return code == SQLITE_OK && as_default ? api_.vfs_register(&default_vfs_, 1) : code;
}

int Vfs::unregister() {
  (void)api_.vfs_unregister(&default_vfs_);
  return api_.vfs_unregister(&vfs_);
}

// ---- databases by identity ---------------------------------------------------------------------------------------

Databases::Databases(World& world, Options defaults)
    : world_(world), defaults_(std::move(defaults)), here_(new Here{core::process_mark(), {}, {}, {}, {}, {}}) {}

Databases::Here& Databases::here() {
  const std::uint64_t mark = core::process_mark();
  Here* found = here_.load(std::memory_order_acquire);
  if (found->process_mark == mark) return *found;
  auto* const made = new Here{mark, {}, {}, {}, {}, {}};
  if (here_.compare_exchange_strong(found, made)) {
    world_.leave_parent();
    return *made;
  }
  delete made;
  return *found;
}

std::shared_ptr<Databases::Shared> Databases::find(std::string_view path) {
  const std::lock_guard lock(here().mutex);
  const auto found = here().by_path.find(path);
  return found != here().by_path.end() ? found->second.shared : nullptr;
}

bool Databases::is_only_user(const Shared& shared) {
  const std::lock_guard lock(here().mutex);
  return shared.users == 1;
}

Databases::Owner Databases::find_owner(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return Owner();
  auto shared = find(name.substr(0, name.size() - suffix.size()));
  return shared != nullptr ? Owner(std::move(shared)) : Owner();
}

// If a database could not be opened, the file that attach() created is removed, unless another process uses it by now.
void Databases::remove_made(const std::string& path) {
  const std::lock_guard naming(here().names_mutex);
  const auto identity = world_.identity_of(path);
  {
    const std::lock_guard lock(here().mutex);
    if (!identity.ok() || here().by_identity.contains(*identity)) return;
  }
  const auto place = world_.place_of(path);
  if (!place.ok()) return;
  core::Volume& volume = *place->volume;
  const auto host = world_.host(volume, place->file_name, true);
  if (!host.ok()) return;
  const auto claimed = (*host)->claim(false);
  if (!claimed.ok() || !*claimed || !(*host)->make_exclusive().ok()) return;
  const auto file = volume.open(place->file_name, core::OpenMode::read_only, core::Caching::buffered);
  const auto log_there = volume.exists(core::file_log_name(place->file_name));
  if (!file.ok() || !log_there.ok() || *log_there) return;
  const auto size = (*file)->size();
  if (size.ok() && *size == 0) (void)volume.remove_own(place->file_name, **file);
}

Status Databases::attach(const std::string& path, bool create, bool& made, std::shared_ptr<Shared>& shared) {
  // An open file of this name may have been removed, or renamed, in which case its log is needed.
  bool removed_here = false;
  if (const auto open_here = find(path); open_here != nullptr) {
    const std::lock_guard lock(open_here->mutex);
    removed_here = open_here->database != nullptr && open_here->database->removed();
    if (removed_here && create) MEMLITH_TRY(open_here->database->remove_log());
  }
  const std::lock_guard naming(here().names_mutex);
  MEMLITH_TRY_ASSIGN(std::string identity, world_.identity_of(path));
  if (identity.empty()) {
    if (create || !removed_here) MEMLITH_TRY(Database::check_absent(world_, path));
    if (!create) return fail(Errc::not_found, Detail::open, "{}: there is no such database", path);
    if (removed_here) {
      const std::lock_guard lock(here().mutex);
      here().by_path.erase(path);
      memory().remove(path + "-journal");  // connections that have it open keep it
    }
    MEMLITH_TRY(world_.create(path));
    made = true;
    MEMLITH_TRY_ASSIGN(identity, world_.identity_of(path));
  }
  const std::lock_guard lock(here().mutex);
  auto& entry = here().by_identity[identity];
  if (entry == nullptr) entry = std::make_shared<Shared>();
  ++entry->users;
  shared = entry;
  OpenPath& open_path = here().by_path[path];
  if (open_path.shared != shared) open_path = {shared, 0};
  ++open_path.users;
  return kOk;
}

void Databases::detach(const std::string& path, const std::shared_ptr<Shared>& shared) {
  const std::lock_guard lock(here().mutex);
  if (--shared->users == 0) {
    std::erase_if(here().by_identity, [&](const auto& each) { return each.second == shared; });
  }
  const auto found = here().by_path.find(path);
  if (found != here().by_path.end() && found->second.shared == shared && --found->second.users == 0)
    here().by_path.erase(found);
}

core::Result<std::unique_ptr<Database>> Databases::open_claimed(const std::string& path, const Options& options,
                                                                bool read_only,
                                                                const std::function<bool()>& is_for_sharing,
                                                                Shared& shared) {
  const bool named = options.share.has_value();
  const auto claim = [&]() -> Status {
    shared.claim = nullptr;
    if (!named && is_for_sharing()) return kIsForSharing;
    shared.claim = shared::claim_for_engine(path);
    if (shared.claim != nullptr) return kOk;
    if (!named) return kIsForSharing;
    return fail(Errc::busy, Detail::open,
                "{}: this process has the database open in mode shared; close those connections first, or open it "
                "without share=0",
                path);
  };
  auto opened = Database::open(world_, path, options, read_only, claim);
  if (!opened.ok()) shared.claim = nullptr;
  return opened;
}

Status Databases::open(const Api& api, const std::string& path, const char* uri_name, bool wanted_write, bool create,
                       const std::function<bool()>& is_for_sharing, std::shared_ptr<Shared>& shared) {
  Options options = defaults_;
  MEMLITH_TRY(read_options(api, uri_name, options));
  bool made = false;
  MEMLITH_TRY(attach(path, create, made, shared));
  Status status = kOk;
  {
    const std::lock_guard opening(shared->mutex);
    if (shared->database == nullptr) {
      const bool read_only = !wanted_write || !world_.may_write(path);
      auto opened = open_claimed(path, options, read_only, is_for_sharing, *shared);
      if (opened.ok()) {
        shared->database = std::move(*opened);
        if (auto left = shared->database->take_left_journal()) memory().put(path + "-journal", std::move(left));
      } else {
        status = opened.error();
      }
    } else if (wanted_write && shared->database->read_only() && world_.may_write(path)) {
      status =
          fail(Errc::busy, Detail::open,
               "{}: this process has it open read-only; close those connections first, or open it for writing first",
               path);
    }
    if (status.ok()) return kOk;
    // A connection that closed meanwhile counted this one as a remaining user.
    const std::string text(core::last_error_text());
    (void)report(api, leave(path, shared));
    core::set_error_text(text);
  }
  if (made && status.category != Errc::io) {
    const std::string text(core::last_error_text());
    remove_made(path);
    core::set_error_text(text);
  }
  shared = nullptr;
  return status;
}

Status Databases::close(const std::string& path, const std::shared_ptr<Shared>& shared) {
  const std::lock_guard closing(shared->mutex);
  return leave(path, shared);
}

// The last user closes the database, under the mutex of `shared`: otherwise, of two users that leave at once, neither
// would be the last.
Status Databases::leave(const std::string& path, const std::shared_ptr<Shared>& shared) {
  Status status = kOk;
  bool last = false;
  {
    const std::lock_guard lock(here().mutex);
    last = shared->users == 1;
    if (last && shared->database != nullptr) {
      // Unless the file was removed, and the journal belongs to the next one of its name.
      const std::string& name = shared->database->path();
      const auto found = here().by_path.find(name);
      if (found == here().by_path.end() || found->second.shared == shared) memory().remove(name + "-journal");
    }
  }
  if (last && shared->database != nullptr) {
    status = shared->database->close();
    if (!status.ok() && shared->database->removed()) {
      // Its log is not needed any more, and would prevent the next database of that name.
      const std::lock_guard naming(here().names_mutex);
      status = shared->database->remove_log();
    }
    shared->database = nullptr;
    shared->claim = nullptr;
  }
  const std::string text(core::last_error_text());
  detach(path, shared);
  core::set_error_text(text);
  return status;
}

Databases& real_databases() {
  static Databases* const databases = new Databases(real_world());  // never destroyed, as real_world()
  return *databases;
}

}  // namespace memlith::sqlite
