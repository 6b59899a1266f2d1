#include "files.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "c_file.hpp"
#include "errors.hpp"
#include "line_log.hpp"
#include "pragma_call.hpp"
#include "share_pragma.hpp"
#include "shared/shared_files.hpp"
#include "wal_format.hpp"

namespace memlith::sqlite {

using core::Status;

namespace {

// Where a library knows of them and an older header does not.
constexpr int kFcntlCkptStart = 39;
constexpr int kFcntlExternalReader = 40;

// SQLite expects zeros beyond the end of the file.
int read_result(void* target, std::uint64_t got, int wanted) {
  const auto count = static_cast<std::uint64_t>(wanted);
  std::memset(static_cast<std::byte*>(target) + got, 0, count - got);
  return got == count ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

template <class State>
int close_file(sqlite3_file* file) {
  (void)take_state<State>(file);
  return SQLITE_OK;
}

// ---- main databases ------------------------------------------------------------------------------------------------

struct Main {
  Vfs& vfs;
  std::string path;
  std::shared_ptr<Databases::Shared> shared;
  Database& database;
  Holder holder = {};
  std::uint64_t number = 0;  // of the connection
  sqlite3_int64 mmap_limit = 0;
  int fetched = 0;             // pages that SQLite holds pointers to; the limit stays until they are given back
  bool in_batch = false;       // between BEGIN_ATOMIC_WRITE and its end
  bool without_locks = false;  // nolock=1: SQLite takes none
  const char* name = nullptr;  // as xOpen got it; SQLite keeps it as long as the file is open
  int flags = 0;
  Told told = {};
  bool locked = false;  // SQLite has asked for a lock, and may have pages and a write-ahead log
  const OpenedHere opened = {};

  // True for a parent's connection: its memory stays with the parent, and its locks are the parent's.
  [[nodiscard]] bool inherited() const { return opened.inherited(); }
  [[nodiscard]] Status check_own() const { return opened.check_own(path); }
  int report(Status status) const { return sqlite::report(vfs.api(), status); }
  // A journal that a process left in the middle of a commit over several databases; SQLite looks for it next.
  void find_left_journal() const {
    if (auto left = database.take_left_journal()) vfs.memory().put(path + "-journal", std::move(left));
  }
};

Main& main_of(sqlite3_file* file) { return state_of<Main>(file); }

// The connection whose database this thread used last. SQLite opens a connection's file of the write-ahead log right
// after it has used its database, and does not say which connection it is.
std::uint64_t& number_at_hand() {
  thread_local std::uint64_t number = 0;
  return number;
}
// Runs `body` on a connection of this process.
template <class Body>
int use(sqlite3_file* file, Body body) {
  return guarded([&] {
    Main& state = main_of(file);
    if (const Status own = state.check_own(); !own.ok()) return state.report(own);
    number_at_hand() = state.number;
    return body(state);
  });
}
// The smallest page size: no other page begins below it.
constexpr sqlite3_int64 kPageOneEnd = 512;

int main_close(sqlite3_file* file) {
  return guarded([&] {
    std::unique_ptr<Main> state = take_state<Main>(file);
    if (state->inherited()) {  // what it holds is the parent's
      (void)state.release();
      return SQLITE_OK;
    }
    state->database.unlock(state->holder, SQLITE_LOCK_NONE);
    if (state->holder.maps_index) state->database.index().leave();
    state->database.leave(state->holder, state->number);
    return state->report(state->vfs.databases().close(state->path, state->shared));
  });
}

int read_database(const Main& state, void* target, int bytes, sqlite3_int64 offset) {
  const auto got =
      state.database.content().read(static_cast<std::uint64_t>(offset), target, static_cast<std::uint64_t>(bytes));
  return got.ok() ? read_result(target, *got, bytes) : state.report(got.status());
}

// SQLite looks at the beginning of the file, without a lock, when it opens a database. An empty answer is one of the
// possible ones: SQLite looks again under its lock.
int read_without_lock(Main& state, void* target, int bytes, sqlite3_int64 offset) {
  const Database::Use used(state.database, state.holder);
  if (!used) return read_result(target, 0, bytes);
  return read_database(state, target, bytes, offset);
}

int main_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  return use(file, [&](Main& state) {
    if (!state.holder.in_use) return read_without_lock(state, target, bytes, offset);
    const Status status = state.database.await_page(state.holder, offset < kPageOneEnd);
    return status.ok() ? read_database(state, target, bytes, offset) : state.report(status);
  });
}

// SQLite writes under a lock. A write without a lock comes from a VFS that splits a database into several files
// (multiplex) and forwards locks and commits for the first file only: its writes to the others would be lost when they
// are closed.
Status check_locked(const Main& state) {
  if (state.holder.level != SQLITE_LOCK_NONE || state.without_locks) return core::kOk;
  return core::
      fail(core::Errc::unsupported, core::Detail::write,
           "{}: written without a lock; a VFS that splits a database into several files cannot be used with memlith",
           state.path);
}

Status begin_change(Main& state) {
  MEMLITH_TRY(check_locked(state));
  return state.database.await_checkpoint(state.holder);
}

int main_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return use(file, [&](Main& state) {
    if (const Status status = begin_change(state); !status.ok()) return state.report(status);
    const auto count = static_cast<std::uint64_t>(bytes);
    return state.report(state.database.write(static_cast<std::uint64_t>(offset), source, count));
  });
}

int main_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return use(file, [&](Main& state) {
    const Status status = begin_change(state);
    return state.report(status.ok() ? state.database.truncate(static_cast<std::uint64_t>(bytes)) : status);
  });
}

// A commit is durable from FCNTL_SYNC on, which can still fail cleanly and is sent whatever `synchronous` is.
int main_sync(sqlite3_file*, int) { return SQLITE_OK; }

int main_file_size(sqlite3_file* file, sqlite3_int64* bytes) {
  return use(file, [&](Main& state) {
    const Database::Use used(state.database, state.holder);
    *bytes = used ? static_cast<sqlite3_int64>(state.database.content().size()) : 0;
    return SQLITE_OK;
  });
}

// A lock held by another connection of this process is an ordinary answer; one held by another process is logged.
int lock_result(const Main& state, Status status) {
  if (status.category == core::Errc::busy && status.detail == core::Detail::none) return SQLITE_BUSY;
  return state.report(status);
}

int main_lock(sqlite3_file* file, int level) {
  return use(file, [&](Main& state) {
    state.locked = true;
    const int code = lock_result(state, state.database.lock(state.holder, level));
    if (code == SQLITE_OK && level == SQLITE_LOCK_SHARED) state.find_left_journal();
    return code;
  });
}

int main_unlock(sqlite3_file* file, int level) {
  Main& state = main_of(file);
  if (!state.inherited()) state.database.unlock(state.holder, level);
  return SQLITE_OK;
}

int main_check_reserved(sqlite3_file* file, int* result) {
  return use(file, [&](const Main& state) {
    *result = state.database.reserved() ? 1 : 0;
    return SQLITE_OK;
  });
}

int pragma(Main& state, void* argument) {
  const PragmaCall call(state.vfs.api(), argument);
  if (!call.name().starts_with("memlith_")) return SQLITE_NOTFOUND;
  if (call.name() == "memlith_error") return call.answer(newest_report());
  const Database::Use used(state.database, state.holder);
  if (!used) return call.failed(used.status());
  if (call.name() == "memlith_stats") return call.answer(state.database.describe());
  if (call.name() == "memlith_read") {
    const auto set = [&](bool latest) {
      state.holder.reads_latest = latest;
      return core::kOk;
    };
    return call.setting(parse_read, set, [&] { return state.holder.reads_latest ? "latest" : "durable"; });
  }
  if (call.name() == "memlith_persist") {
    const Status status = state.database.persist();
    return status.ok() ? call.answer("ok") : call.failed(status);
  }
  if (call.name() == "memlith_durability") {
    // Earlier weak commits become durable with `full`.
    const auto set = [&](Durability wanted) {
      state.database.set_durability(wanted);
      return wanted == Durability::full ? state.database.persist() : core::kOk;
    };
    return call.setting(parse_durability, set,
                        [&] { return state.database.durability() == Durability::full ? "full" : "weak"; });
  }
  return SQLITE_NOTFOUND;
}

int map_limit(Main& state, sqlite3_int64* limit) {
  const sqlite3_int64 wanted = *limit;
  *limit = state.mmap_limit;
  if (wanted >= 0 && state.fetched == 0) state.mmap_limit = wanted;
  return SQLITE_OK;
}

// COMMIT_PHASETWO comes when the commit has taken effect. VACUUM cuts the file shortly before; the cut can be deferred.
// In WAL mode the write lock is released by now, and the commit may not be durable yet.
int phase_two(Main& state) {
  forget_refused();
  state.database.note_publication(true);
  if (!state.database.in_wal()) (void)state.report(state.database.commit());
  return state.report(state.database.end_commit(state.holder));
}

// SQLite names the super-journal of the commit, if there is one.
int commit(Main& state, const char* super_journal) {
  const auto journal = super_journal != nullptr ? state.database.journal() : nullptr;
  const int code = state.report(journal != nullptr ? state.database.commit_part(*journal) : state.database.commit());
  if (code == SQLITE_OK && !state.database.in_wal()) (void)state.report(state.database.keep_to_memory());
  return code;
}

int control(Main& state, int op, void* argument) {
  switch (op) {
    case SQLITE_FCNTL_SYNC: return commit(state, static_cast<const char*>(argument));
    case SQLITE_FCNTL_COMMIT_PHASETWO: return phase_two(state);
    case SQLITE_FCNTL_BEGIN_ATOMIC_WRITE: state.in_batch = true; return SQLITE_OK;
    case SQLITE_FCNTL_COMMIT_ATOMIC_WRITE: {
      state.in_batch = false;
      const int code = commit(state, nullptr);
      if (code != SQLITE_OK) state.database.roll_back();
      return code;
    }
    case SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE:
      if (state.in_batch) state.database.roll_back();
      state.in_batch = false;
      return SQLITE_OK;
    case SQLITE_FCNTL_PRAGMA: return pragma(state, argument);
    case SQLITE_FCNTL_LOCKSTATE: *static_cast<int*>(argument) = state.holder.level; return SQLITE_OK;
    case SQLITE_FCNTL_VFSNAME: *static_cast<char**>(argument) = state.vfs.api().mprintf("memlith"); return SQLITE_OK;
    case SQLITE_FCNTL_HAS_MOVED: {
      const Database::Use used(state.database, state.holder);
      *static_cast<int*>(argument) = !used || state.database.same_file() ? 0 : 1;
      return SQLITE_OK;
    }
    case SQLITE_FCNTL_PDB: state.told.connection = argument; return SQLITE_OK;
    case SQLITE_FCNTL_BUSYHANDLER: state.told.busy_handler = argument; return SQLITE_OK;
    case SQLITE_FCNTL_PERSIST_WAL: *static_cast<int*>(argument) = 0; return SQLITE_OK;
    case SQLITE_FCNTL_POWERSAFE_OVERWRITE: *static_cast<int*>(argument) = 1; return SQLITE_OK;
    case SQLITE_FCNTL_MMAP_SIZE: return map_limit(state, static_cast<sqlite3_int64*>(argument));
    case kFcntlExternalReader: *static_cast<int*>(argument) = 0; return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
    case SQLITE_FCNTL_CHUNK_SIZE:
    case SQLITE_FCNTL_OVERWRITE:
    case SQLITE_FCNTL_CKPT_DONE:
    case kFcntlCkptStart: return SQLITE_OK;
    default: return SQLITE_NOTFOUND;
  }
}

// PRAGMA journal_mode = wal, where the parameters name no mode, no other connection here has the database, and SQLite
// has nothing of it but its cache: no lock, no journal, no log. It looks whether the cache is valid when it locks next.
bool turns_to_wal(const Main& state, const void* argument) {
  const bool asks = is_pragma(argument, "journal_mode", "wal");
  if (!asks || state.without_locks || state.database.mode_was_named() || state.database.read_only()) return false;
  const bool has_nothing = state.holder.level == SQLITE_LOCK_NONE && !state.holder.maps_index && state.fetched == 0 &&
                           state.database.journal() == nullptr;
  return has_nothing && state.vfs.databases().is_only_user(*state.shared);
}

int main_control(sqlite3_file* file, int op, void* argument) {
  return use(file, [&](Main& state) {
    if (op == SQLITE_FCNTL_PRAGMA && is_pragma(argument, "memlith_share")) {
      const bool changes = !state.locked && !state.without_locks;
      return share_pragma({state.vfs, state.path, state.name, state.flags, state.told, file,
                           changes ? main_close : nullptr},
                          argument);
    }
    if (op == SQLITE_FCNTL_PRAGMA && turns_to_wal(state, argument)) {
      // The next processes share the database, so this one does.
      bool is_open = false;
      const int code =
          move_to_shared({state.vfs, state.path, state.name, state.flags, state.told, file, main_close}, is_open);
      return is_open ? SQLITE_NOTFOUND : code;
    }
    return control(state, op, argument);
  });
}

int main_sector_size(sqlite3_file*) { return 512; }

int main_characteristics(sqlite3_file*) {
  return SQLITE_IOCAP_ATOMIC | SQLITE_IOCAP_SAFE_APPEND | SQLITE_IOCAP_SEQUENTIAL | SQLITE_IOCAP_POWERSAFE_OVERWRITE |
         SQLITE_IOCAP_BATCH_ATOMIC;
}

int main_shm_map(sqlite3_file* file, int region, int bytes, int extend, void volatile** result) {
  return use(file, [&](Main& state) {
    if (!state.holder.maps_index) {
      state.database.index().join();
      state.holder.maps_index = true;
    }
    *result = state.database.index().map(region, bytes, extend != 0);
    return SQLITE_OK;
  });
}

int main_shm_lock(sqlite3_file* file, int first, int count, int flags) {
  return use(file, [&](Main& state) {
    if (!state.holder.maps_index) return SQLITE_IOERR_SHMLOCK;  // as SQLite's own VFS has it
    return lock_result(state, state.database.lock_index(state.holder, first, count, flags));
  });
}

void main_shm_barrier(sqlite3_file* file) { main_of(file).database.index().barrier(); }

int main_shm_unmap(sqlite3_file* file, int) {
  Main& state = main_of(file);
  if (state.holder.maps_index && !state.inherited()) state.database.index().leave();
  state.holder.maps_index = false;
  return SQLITE_OK;
}

int main_fetch(sqlite3_file* file, sqlite3_int64 offset, int bytes, void** result) {
  *result = nullptr;
  return use(file, [&](Main& state) {
    if (!state.holder.in_use) return SQLITE_OK;
    const Status status = state.database.await_page(state.holder, offset < kPageOneEnd);
    if (!status.ok()) return state.report(status);
    if (offset + bytes > state.mmap_limit) return SQLITE_OK;
    const std::byte* const found =
        state.database.content().fetch(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes));
    *result = const_cast<std::byte*>(found);
    if (found != nullptr) ++state.fetched;
    return SQLITE_OK;
  });
}

int main_unfetch(sqlite3_file* file, sqlite3_int64, void* page) {
  if (page != nullptr) --main_of(file).fetched;
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kMainMethods = {
    3,
    main_close,
    main_read,
    main_write,
    main_truncate,
    main_sync,
    main_file_size,
    main_lock,
    main_unlock,
    main_check_reserved,
    main_control,
    main_sector_size,
    main_characteristics,
    main_shm_map,
    main_shm_lock,
    main_shm_barrier,
    main_shm_unmap,
    main_fetch,
    main_unfetch,
};

// ---- files in memory -----------------------------------------------------------------------------------------------

int no_sync(sqlite3_file*, int) { return SQLITE_OK; }
int no_lock(sqlite3_file*, int) { return SQLITE_OK; }
int no_reserved(sqlite3_file*, int* result) {
  *result = 0;
  return SQLITE_OK;
}
int no_control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }

struct Journal {
  std::shared_ptr<MemoryFile> memory;
  Vfs& vfs;
  std::string remove_at_close;
  std::shared_ptr<Databases::Shared> shared;  // the journal's database; null if it is not open here

  // SQLite ends a journal by cutting it, by overwriting its beginning, or by removing it (vfs.cpp).
  int end_part() const {
    if (shared == nullptr || shared->database == nullptr || !shared->database->part_is_open()) return SQLITE_OK;
    return report(vfs.api(), shared->database->end_part());
  }
};
Journal& journal_of(sqlite3_file* file) { return state_of<Journal>(file); }

int journal_close(sqlite3_file* file) {
  return guarded([&] {
    const std::unique_ptr<Journal> state = take_state<Journal>(file);
    if (!state->remove_at_close.empty()) state->vfs.memory().remove(state->remove_at_close);
    return SQLITE_OK;
  });
}
int journal_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  const auto count = static_cast<std::uint64_t>(bytes);
  return read_result(target, journal_of(file).memory->read(static_cast<std::uint64_t>(offset), target, count), bytes);
}
int journal_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return guarded([&] {
    const Journal& state = journal_of(file);
    if (const int code = offset == 0 ? state.end_part() : SQLITE_OK; code != SQLITE_OK) return code;
    state.memory->write(static_cast<std::uint64_t>(offset), source, static_cast<std::uint64_t>(bytes));
    return SQLITE_OK;
  });
}
int journal_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return guarded([&] {
    const Journal& state = journal_of(file);
    if (const int code = state.end_part(); code != SQLITE_OK) return code;
    state.memory->truncate(static_cast<std::uint64_t>(bytes));
    return SQLITE_OK;
  });
}
int journal_size(sqlite3_file* file, sqlite3_int64* bytes) {
  *bytes = static_cast<sqlite3_int64>(journal_of(file).memory->size());
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kJournalMethods = {
    1,       journal_close, journal_read, journal_write,    journal_truncate,     no_sync, journal_size, no_lock,
    no_lock, no_reserved,   no_control,   main_sector_size, main_characteristics, nullptr, nullptr,      nullptr,
    nullptr, nullptr,       nullptr,
};

// ---- super-journals ------------------------------------------------------------------------------------------------

// The super-journal lies on the disk, because removing its name commits all databases (disk_journal.hpp).
struct SuperJournal {
  Vfs& vfs;
  Place place;
  std::unique_ptr<core::Device> device;
  std::uint64_t size = 0;
};
SuperJournal& super_journal_of(sqlite3_file* file) { return state_of<SuperJournal>(file); }

int super_journal_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  return guarded([&] {
    SuperJournal& state = super_journal_of(file);
    const auto begin = static_cast<std::uint64_t>(offset);
    const auto count = static_cast<std::uint64_t>(bytes);
    const std::uint64_t got = begin < state.size ? std::min(count, state.size - begin) : 0;
    const Status status = got > 0 ? state.device->read(begin, {static_cast<std::byte*>(target), got}) : core::kOk;
    return status.ok() ? read_result(target, got, bytes) : report(state.vfs.api(), status);
  });
}
int super_journal_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return guarded([&] {
    SuperJournal& state = super_journal_of(file);
    const auto begin = static_cast<std::uint64_t>(offset);
    const auto count = static_cast<std::uint64_t>(bytes);
    const Status status = state.device->write(begin, {static_cast<const std::byte*>(source), count});
    if (status.ok()) state.size = std::max(state.size, begin + count);
    return report(state.vfs.api(), status);
  });
}
int super_journal_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return guarded([&] {
    SuperJournal& state = super_journal_of(file);
    const Status status = state.device->truncate(static_cast<std::uint64_t>(bytes));
    if (status.ok()) state.size = static_cast<std::uint64_t>(bytes);
    return report(state.vfs.api(), status);
  });
}
int super_journal_sync(sqlite3_file* file, int) {
  return guarded([&] {
    SuperJournal& state = super_journal_of(file);
    const Status status = state.device->flush();
    return report(state.vfs.api(), status.ok() ? state.place.volume->sync_folder("") : status);
  });
}
int super_journal_size(sqlite3_file* file, sqlite3_int64* bytes) {
  *bytes = static_cast<sqlite3_int64>(super_journal_of(file).size);
  return SQLITE_OK;
}
// Reports no capability that would let SQLite omit the sync.
int super_journal_characteristics(sqlite3_file*) { return 0; }

constexpr sqlite3_io_methods kSuperJournalMethods = {
    1,
    close_file<SuperJournal>,
    super_journal_read,
    super_journal_write,
    super_journal_truncate,
    super_journal_sync,
    super_journal_size,
    no_lock,
    no_lock,
    no_reserved,
    no_control,
    main_sector_size,
    super_journal_characteristics,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

// ---- write-ahead logs ----------------------------------------------------------------------------------------------

struct Wal {
  Vfs& vfs;
  std::shared_ptr<Databases::Shared> shared;
  Database& database;
  Holder* holder;  // of the connection, which SQLite closes later; null if it was not found
};
Wal& wal_of(sqlite3_file* file) { return state_of<Wal>(file); }

int wal_close(sqlite3_file* file) {
  if (Holder* const holder = wal_of(file).holder; holder != nullptr) holder->has_wal = false;
  return close_file<Wal>(file);
}
int wal_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  const Wal& state = wal_of(file);
  const auto begin = static_cast<std::uint64_t>(offset);
  if (state.holder != nullptr && state.holder->unwaited_lsn != 0) {
    const bool page_one = state.database.wal().holds_page_one(begin);
    const Status status = state.database.await_page(*state.holder, page_one);
    if (!status.ok()) return report(state.vfs.api(), status);
  }
  return read_result(target, state.database.wal().read(begin, target, static_cast<std::uint64_t>(bytes)), bytes);
}
int wal_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return guarded([&] {
    Wal& state = wal_of(file);
    const auto count = static_cast<std::uint64_t>(bytes);
    const Status status = state.database.wal_write(state.holder, static_cast<std::uint64_t>(offset), source, count);
    // The log restarts when everything in it was stored in the database.
    if (status.ok() && offset == 0) (void)report(state.vfs.api(), state.database.keep_to_memory());
    return report(state.vfs.api(), status);
  });
}
int wal_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return guarded([&] {
    wal_of(file).database.wal_truncate(static_cast<std::uint64_t>(bytes));
    return SQLITE_OK;
  });
}
int wal_size(sqlite3_file* file, sqlite3_int64* bytes) {
  *bytes = static_cast<sqlite3_int64>(wal_of(file).database.wal().size());
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kWalMethods = {
    1,       wal_close,   wal_read,   wal_write,        wal_truncate,         no_sync, wal_size, no_lock,
    no_lock, no_reserved, no_control, main_sector_size, main_characteristics, nullptr, nullptr,  nullptr,
    nullptr, nullptr,     nullptr,
};

// THE DEFAULT, for connections whose parameters name no mode: an ordinary database in WAL mode, which processes can
// share, is for mode shared. Not one whose log an engine of another process has, or that was not closed.
bool is_for_sharing(Vfs& vfs, const char* name) {
  return shared::is_in_wal_mode(*vfs.base(), name) && !Database::has_log_in_use(vfs.world(), name);
}

}  // namespace

// ---- open ----------------------------------------------------------------------------------------------------------

const int kFileBytes = sizeof(CFile<Main>);

int open_main(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  std::shared_ptr<Databases::Shared> shared;
  const bool write = (flags & SQLITE_OPEN_READWRITE) != 0;
  // Without this flag nothing says that there are parameters behind the name, which a VFS in between may have made up.
  const char* const parameters = (flags & SQLITE_OPEN_URI) != 0 ? name : nullptr;
  const Status status = vfs.databases().open(
      vfs.api(), name, parameters, write, (flags & SQLITE_OPEN_CREATE) != 0, [&] { return is_for_sharing(vfs, name); },
      shared);
  if (status == kIsForSharing) return kNotForTheEngine;
  if (!status.ok()) return report(vfs.api(), status, true);
  Database& database = *shared->database;
  if (out_flags != nullptr) {
    *out_flags = flags;
    if (database.read_only() && write) {
      *out_flags = (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
    }
  }
  log_line("{}: on memlith: {}, durability {} (SQLite {})", name, database.read_only() ? "read-only" : "for writing",
           database.durability() == Durability::full ? "full" : "weak", version_of(vfs.api()));
  const char* const nolock = vfs.api().uri_parameter(parameters, "nolock");
  const char* const immutable = vfs.api().uri_parameter(parameters, "immutable");
  const auto is_set = [](const char* text) { return text != nullptr && *text != 0 && std::string_view(text) != "0"; };
  const bool without_locks = is_set(nolock) || is_set(immutable);
  auto state = std::unique_ptr<Main>(new Main{vfs, name, std::move(shared), database});
  state->without_locks = without_locks;
  state->holder.reads_latest = database.reads_latest();
  state->name = name;
  state->flags = flags;
  if (without_locks) {
    if (const Status pinned = database.pin(state->holder); !pinned.ok()) {
      const int code = report(vfs.api(), pinned, true);
      (void)report(vfs.api(), vfs.databases().close(name, state->shared));
      return code;
    }
  }
  state->number = database.join(state->holder);
  set_state(file, kMainMethods, std::move(state));
  return SQLITE_OK;
}

int open_wal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto shared = vfs.databases().find_owner(name, "-wal").shared();
  if (shared == nullptr) return SQLITE_CANTOPEN;
  Database& database = *shared->database;
  if (!database.wal().exists()) {
    if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
    database.wal().make();
  }
  if (out_flags != nullptr) *out_flags = flags;
  Holder* const holder = database.find(number_at_hand());
  if (holder != nullptr) holder->has_wal = true;
  set_state(file, kWalMethods, std::unique_ptr<Wal>(new Wal{vfs, std::move(shared), database, holder}));
  return SQLITE_OK;
}

int open_journal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto memory = vfs.memory().open(name, (flags & SQLITE_OPEN_CREATE) != 0);
  auto shared = vfs.databases().find_owner(name, "-journal").shared();
  if (memory == nullptr && shared == nullptr) {
    // SQLite checks whether the journals of a super-journal's databases still name it; these databases may be plain
    // SQLite's.
    auto left = find_journal_on_disk(vfs, name);
    if (!left.ok()) return report(vfs.api(), left.error());
    if (*left == nullptr) return vfs.base()->xOpen(vfs.base(), name, file, flags, out_flags);
    memory = std::move(*left);
  }
  if (memory == nullptr) return SQLITE_CANTOPEN;
  // SQLite opens a journal read-only to check whether it exists.
  if (shared != nullptr && (flags & SQLITE_OPEN_READWRITE) != 0) shared->database->note_journal(memory);
  if (out_flags != nullptr) *out_flags = flags;
  const bool delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  set_state(file, kJournalMethods,
            std::unique_ptr<Journal>(new Journal{std::move(memory), vfs, delete_on_close ? name : "",
                                                 std::move(shared)}));
  return SQLITE_OK;
}

int open_super_journal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto place = vfs.world().place_of(name);
  if (!place.ok()) return report(vfs.api(), place.error(), true);
  const bool create = (flags & SQLITE_OPEN_CREATE) != 0;
  auto device = place->volume->open(place->file_name, create ? core::OpenMode::create : core::OpenMode::read_only,
                                    core::Caching::buffered);
  if (!device.ok()) return report(vfs.api(), device.error(), true);
  const auto size = (*device)->size();
  if (!size.ok()) return report(vfs.api(), size.error(), true);
  if (out_flags != nullptr) *out_flags = flags;
  set_state(file, kSuperJournalMethods,
            std::unique_ptr<SuperJournal>(new SuperJournal{vfs, std::move(*place), std::move(*device), *size}));
  return SQLITE_OK;
}

int delete_super_journal(Vfs& vfs, const char* name, bool sync_folder) {
  auto place = vfs.world().place_of(name);
  if (!place.ok()) return report(vfs.api(), place.error());
  const auto there = place->volume->exists(place->file_name);
  if (!there.ok()) return report(vfs.api(), there.error());
  if (!*there) return SQLITE_IOERR_DELETE_NOENT;
  const Status status = place->volume->remove(place->file_name);
  return report(vfs.api(), status.ok() && sync_folder ? place->volume->sync_folder("") : status);
}

int find_super_journal(Vfs& vfs, const char* name, int* result) {
  auto place = vfs.world().place_of(name);
  if (!place.ok()) return report(vfs.api(), place.error());
  const auto there = place->volume->exists(place->file_name);
  if (!there.ok()) return report(vfs.api(), there.error());
  *result = *there ? 1 : 0;
  if (*there) return SQLITE_OK;
  // ORDER absence-before-outcome: a commit has taken effect when the removal of the super-journal is durable, and the
  // process that removed it may have been killed before that. If the name came back, other databases would be undone
  // but not this one. (The super-journal may be in another folder than this database, whose names were flushed when it
  // was opened.) [test DiskJournalRemoval.ASuperJournalThatIsGoneIsGoneForGood]
  return report(vfs.api(), place->volume->sync_folder(""));
}

core::Result<std::shared_ptr<MemoryFile>> find_journal_on_disk(Vfs& vfs, const std::string& name) {
  constexpr std::string_view kSuffix = "-journal";
  MEMLITH_TRY_ASSIGN(const Place place, vfs.world().place_of(name.substr(0, name.size() - kSuffix.size())));
  MEMLITH_TRY_ASSIGN(auto left, read_disk_journal(*place.volume, place.file_name));
  return left.has_value() ? std::move(left->content) : nullptr;
}

}  // namespace memlith::sqlite
