// Opening, taking over and closing a database.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

#include "base/bytes.hpp"
#include "database.hpp"
#include "line_log.hpp"
#include "memlith/sqlite_file.h"
#include "store/left_log.hpp"
#include "tender.hpp"

namespace memlith::sqlite {

using core::Caching;
using core::Detail;
using core::Errc;
using core::fail;
using core::file_log_name;
using core::kOk;
using core::OpenMode;
using core::Result;
using core::Status;
using core::Store;
using core::StoreOptions;

namespace {

// How often opening looks whether another process has closed the database.
constexpr std::chrono::milliseconds kLookEvery{2};

}  // namespace

// The state that the file's own bytes show.
struct Database::Head {
  memlith_sqlite_head said{};
  std::uint64_t size = 0;
  [[nodiscard]] bool is(std::int32_t kind) const { return said.kind == kind; }
};

// SQLite's busy handler is not asked while a database is being opened: waits for another process here, which may be
// about to close it.
Result<std::unique_ptr<Database>> Database::open(World& world, const std::string& path, const Options& options,
                                                 bool read_only, const std::function<Status()>& claim) {
  const auto end = Usage::Clock::now() + std::chrono::milliseconds(options.open_wait_ms);
  for (;;) {
    const Status claimed = claim();
    if (claimed == kIsForSharing) return claimed;
    auto opened = claimed.ok() ? try_to_open(world, path, options, read_only) : claimed;
    const bool again = !opened.ok() && opened.error().category == Errc::busy && Usage::Clock::now() < end;
    if (!again) return opened;
    std::this_thread::sleep_for(kLookEvery);
  }
}

Result<std::unique_ptr<Database>> Database::try_to_open(World& world, const std::string& path, const Options& options,
                                                        bool read_only) {
  try {
    auto database = std::unique_ptr<Database>(new Database(world, path, options, read_only));
    const Status status = database->open_claimed();
    if (!status.ok()) {
      const core::KeptSentence why;
      database = nullptr;
      return status;
    }
    if (world.is_tended()) Tender::of_process().add(database->usage_);
    return database;
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::open, "{}: no memory to open it", path);
  }
}

Status Database::open_claimed() {
  MEMLITH_TRY(attach());
  MEMLITH_TRY(claim());
  Status status = locks_.host()->share();
  if (status.ok()) status = open_it();
  if (status.ok() || store() == nullptr || read_only_ || status.category == Errc::io) return status;
  // A failed opening leaves no log that it created.
  const core::KeptSentence why;
  content_.undo_creation();
  return status;
}

Database::~Database() {
  Tender::of_process().remove(usage_);
  usage_->close();
}

Status Database::attach() {
  set_durability(options_.durability);
  MEMLITH_TRY_ASSIGN(Place place, world_.place_of(path_));
  volume_ = std::move(place.volume);
  file_name_ = std::move(place.file_name);
  MEMLITH_TRY_ASSIGN(identity_, world_.identity_of(path_));
  MEMLITH_TRY_ASSIGN(auto host, world_.host(*volume_, file_name_, !read_only_));
  locks_.set_host(std::move(host));
  return kOk;
}

Status Database::claim() {
  MEMLITH_TRY_ASSIGN(const bool claimed, locks_.host()->claim(read_only_));
  if (claimed) return kOk;
  // Its log names the process, if that one writes.
  const Status named = check_free(file_log_name(file_name_));
  const std::string holder = named.category == Errc::busy ? fmt::format(" ({})", core::last_error_text()) : "";
  return fail(Errc::busy, Detail::lock,
              "{}: another process has the database open with memlith's engine, which is for one process; close it "
              "there, or open it with share=1 (MEMLITH_SQLITE_SHARE=1) in all processes{}",
              path_, holder);
}

Status Database::open_it() {
  Head head;
  MEMLITH_TRY(read_head(head));
  if (read_only_ && head.is(MEMLITH_SQLITE_PLAIN) && head.said.wal_mode != 0) MEMLITH_TRY(keep_writers_out(head));
  const bool no_database_yet = head.is(MEMLITH_SQLITE_EMPTY) || head.is(MEMLITH_SQLITE_ZEROS);
  if (head.is(MEMLITH_SQLITE_PLAIN) || no_database_yet) MEMLITH_TRY(check_left_over(head));
  // SQLite itself rejects a file that is not a database, at its first read; nothing in the file is changed.
  MEMLITH_TRY_ASSIGN(const bool log_there, volume_->exists(file_log_name(file_name_)));
  if (head.is(MEMLITH_SQLITE_FOREIGN) || (head.is(MEMLITH_SQLITE_ZEROS) && !log_there)) read_only_ = true;
  if (!read_only_) MEMLITH_TRY(check_log(head));
  if (!read_only_ && !head.is(MEMLITH_SQLITE_MARKED)) MEMLITH_TRY(remove_disk_journal(*volume_, file_name_));
  if (read_only_ && !head.is(MEMLITH_SQLITE_MARKED)) {
    MEMLITH_TRY(look_at_log(head).status());
    // The file is complete by itself.
    MEMLITH_TRY_ASSIGN(auto file, locks_.host()->file()->device(file_name_, Caching::buffered));
    return content_.open_plain(std::move(file), head.size);
  }
  MEMLITH_TRY(open_store());
  if (head.is(MEMLITH_SQLITE_MARKED)) MEMLITH_TRY(find_left_journal());
  // In WAL mode the first reader takes a writer's lock to build the index; SQLite waits ten seconds for it and then
  // reports a protocol error. Obstacles for a writer are therefore reported here.
  return !read_only_ && in_wal_mode() ? locks_.keep_others_out([] { return kOk; }) : kOk;
}

bool Database::in_wal_mode() const {
  unsigned char first[MEMLITH_SQLITE_LOOK_BYTES] = {};
  (void)content_.read(0, first, sizeof first);
  return memlith_sqlite_look(first, content_.size()).wal_mode != 0;
}

Status Database::read_head(Head& head) {
  MEMLITH_TRY_ASSIGN(const auto device, volume_->open(file_name_, OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(head.size, device->size());
  if (head.size == 0) return kOk;
  std::byte bytes[MEMLITH_SQLITE_LOOK_BYTES] = {};
  MEMLITH_TRY(device->read(0, {bytes, std::min<std::uint64_t>(head.size, sizeof bytes)}));
  head.said = memlith_sqlite_look(bytes, head.size);
  return kOk;
}

// In WAL mode plain SQLite changes the file under a shared lock, so a reader has to exclude it, too.
Status Database::keep_writers_out(Head& head) {
  locks_.set_host(nullptr);
  auto host = world_.host(*volume_, file_name_, true);
  if (!host.ok() && host.error().category == Errc::permission) {
    return fail(Errc::permission, Detail::open,
                "{}: plain SQLite left this database in WAL mode, so other processes may change it while it is read; "
                "keeping them out needs permission to write the file",
                path_);
  }
  MEMLITH_TRY(host.status());
  locks_.set_host(std::move(*host));
  MEMLITH_TRY(claim());
  MEMLITH_TRY(locks_.keep_others_out([] { return kOk; }));
  return read_head(head);
}

Status Database::check_left_over(const Head& head) {
  // As in keep_writers_out(): from the start.
  if (head.said.wal_mode != 0 && !read_only_) MEMLITH_TRY(locks_.keep_others_out([] { return kOk; }));
  const Status status = check_nothing_left();
  if (status.ok() || read_only_) return status;
  // While its owner is alive it is not left over: one of the two has to wait.
  MEMLITH_TRY(locks_.keep_others_out([] { return kOk; }));
  return check_nothing_left();
}

// Files that plain SQLite left beside the database belong to it, and only plain SQLite can apply them; beside a missing
// database they belong to a removed one, and plain SQLite removes them.
Status Database::check_nothing_left() {
  const std::string wal_name = file_name_ + "-wal";
  const std::string journal_name = file_name_ + "-journal";
  bool left = false;
  std::string what;
  MEMLITH_TRY_ASSIGN(const bool wal_there, volume_->exists(wal_name));
  if (wal_there) {
    MEMLITH_TRY_ASSIGN(const auto wal, volume_->open(wal_name, OpenMode::read_only, Caching::buffered));
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, wal->size());
    left = size > 0;
    what = volume_->path_of(wal_name);
  }
  MEMLITH_TRY_ASSIGN(const bool journal_there, volume_->exists(journal_name));
  if (!left && journal_there) {
    MEMLITH_TRY_ASSIGN(const auto journal, volume_->open(journal_name, OpenMode::read_only, Caching::buffered));
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, journal->size());
    std::byte begin[8] = {};
    if (size >= sizeof begin) MEMLITH_TRY(journal->read(0, begin));
    left = !core::is_zero(begin);  // journal_mode=PERSIST leaves a journal that begins with zeros
    what = volume_->path_of(journal_name);
  }
  if (!left) return kOk;
  return fail(Errc::permission, Detail::open,
              "{}: {} holds changes that plain SQLite has not yet written to the database; open the database once with "
              "plain SQLite (sqlite3 {} \"PRAGMA wal_checkpoint(TRUNCATE)\") and close it there",
              path_, what, path_);
}

// ---- the log beside it ---------------------------------------------------------------------------------------------

// `busy`, naming the holder, if another process has the log.
Status Database::check_free(const std::string& log_name) {
  MEMLITH_TRY_ASSIGN(const bool there, volume_->exists(log_name));
  if (!there) return kOk;
  const std::string earlier(core::last_error_text());
  const auto lock = volume_->lock(log_name, true);
  if (!lock.ok() && lock.error().category == Errc::busy) {
    StoreOptions options;
    options.kind = core::StoreKind::one_file;
    options.file_name = file_name_;
    options.read_only = true;
    return Store::open(*volume_, options).status();
  }
  core::set_error_text(earlier);
  return kOk;
}

Status Database::check_log(const Head& head) {
  const std::string log_name = file_log_name(file_name_);
  MEMLITH_TRY_ASSIGN(const bool there, volume_->exists(log_name));
  if (!there && head.is(MEMLITH_SQLITE_MARKED)) {
    return fail(Errc::corrupt, Detail::open,
                "{}: its newest commits are in the log {}, which is missing. Without the log the file may be "
                "incomplete. Put the log back, or restore both from a backup. Nothing was changed",
                path_, volume_->path_of(log_name));
  }
  if (!there) return kOk;
  MEMLITH_TRY(check_free(log_name));
  MEMLITH_TRY_ASSIGN(const bool clean, look_at_log(head));
  return head.is(MEMLITH_SQLITE_PLAIN) && !clean ? discard_log(log_name) : kOk;
}

// True if the log was closed cleanly. Refuses a log as `memlith run` leaves it when its program is killed: it holds
// acknowledged commits, and SQLite's own bytes at the beginning of the file say nothing about it.
Result<bool> Database::look_at_log(const Head& head) {
  MEMLITH_TRY_ASSIGN(const std::optional<core::LeftLog> log, core::look_at_log(*volume_, file_name_));
  const bool was_closed = !log.has_value() || log->was_closed;
  if (was_closed || !head.is(MEMLITH_SQLITE_PLAIN) || log->by_caller) return was_closed;
  return fail(Errc::corrupt, Detail::open,
              "{0}: its newest commits are in the log {1}, which memlith wrote without this plugin, and which was not "
              "closed. Run `memlith recover {0}`, which brings them into the database, and open it again. Nothing was "
              "changed",
              path_, volume_->path_of(file_log_name(file_name_)));
}

// The file is complete by itself. A log with commits beside it is left by a crash between the last steps of closing or
// the first steps of opening, or another database has replaced the one that the log belongs to.
Status Database::discard_log(const std::string& log_name) {
  // ORDER file-before-log: the bytes that say so may not be on the medium yet, because the process that wrote them was
  // killed, or because its flush failed. After a failed flush the page cache has them, and a later flush passes them
  // by: they are written anew. [mutant believe_cached_head]
  MEMLITH_TRY_ASSIGN(const auto file, locks_.host()->file()->device(file_name_, Caching::buffered));
  std::byte first[MEMLITH_SQLITE_CHANGED_BYTES] = {};
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  const std::span<std::byte> changed(first, std::min<std::uint64_t>(size, sizeof first));
  MEMLITH_TRY(file->read(0, changed));
  MEMLITH_TRY(file->write(0, changed));
  MEMLITH_TRY(file->flush());
  // Another process may have done the same, and have its new log open.
  const auto held = volume_->lock(log_name, true);
  if (!held.ok() && held.error().category == Errc::not_found) return kOk;
  MEMLITH_TRY(held.status());
  return volume_->remove(log_name);
}

Status Database::check_absent(World& world, const std::string& path) {
  MEMLITH_TRY_ASSIGN(const Place place, world.place_of(path));
  MEMLITH_TRY_ASSIGN(const auto log, core::look_at_log(*place.volume, place.file_name));
  if (!log.has_value() || log->was_closed) return kOk;
  return fail(Errc::corrupt, Detail::open,
              "{}: the database is gone, but its log {} still holds commits for it; put the database back, or, if it "
              "was renamed, rename its log in the same way; remove the log only if you no longer need the database",
              path, place.volume->path_of(file_log_name(place.file_name)));
}

bool Database::has_log_in_use(World& world, const std::string& path) {
  const core::KeptSentence why;
  const auto place = world.place_of(path);
  if (!place.ok()) return true;
  const auto lock = place->volume->lock(file_log_name(place->file_name), false);
  if (!lock.ok()) return lock.error().category != Errc::not_found;
  const auto log = core::look_at_log(*place->volume, place->file_name);
  return !log.ok() || (log->has_value() && !(*log)->was_closed);
}

// ---- mapping -------------------------------------------------------------------------------------------------------

Status Database::open_store() {
  StoreOptions options = options_.store;
  options.kind = core::StoreKind::one_file;
  options.file_name = file_name_;
  options.file = locks_.host()->file();
  options.in_use = core::InUse::caller;
  options.create = !read_only_;
  options.read_only = read_only_;
  if (options.log_bytes == 0) options.log_bytes = options_.log_bytes;
  if (options.log_max_bytes == 0) options.log_max_bytes = options_.log_max_bytes;
  options.flush_window = options_.window;
  return content_.open(*volume_, options);
}

// If the journal's frame is in the log, SQLite finds out whether the transaction took effect in all databases. A
// journal whose frame was not begun undoes nothing, but names the super-journal, which SQLite removes with the last
// journal that names it.
Status Database::find_left_journal() {
  MEMLITH_TRY_ASSIGN(auto left, read_disk_journal(*volume_, file_name_));
  // A journal whose removal was interrupted by a kill must not come back after later commits. A process that closed the
  // log had removed its journal durably before.
  if (!left.has_value()) return read_only_ || store()->was_clean() ? kOk : volume_->sync_folder("");
  const std::string path = volume_->path_of(disk_journal_name(file_name_));
  if (left->origin.log_id != 0 && left->origin.log_id != store()->log().log_id()) {
    return fail(Errc::corrupt, Detail::open,
                "{}: belongs to another database than {} (expected log {:016x}, found {:016x}); remove it if that "
                "database is gone, or put it back where it was. Nothing was changed",
                path, path_, store()->log().log_id(), left->origin.log_id);
  }
  const std::uint64_t head = store()->log().head().value;
  const bool begun = left->origin.log_id != 0 && left->origin.lsn < head;
  if (begun && left->content == nullptr) {
    return fail(Errc::corrupt, Detail::open,
                "{}: the journal of a transaction over several databases is damaged (wrong checksum of its content); "
                "it decides whether that transaction took effect, so the database cannot be opened without it",
                path);
  }
  // A journal for a place beyond the end of the log does not belong to the database: older files were put beside it. It
  // does not count.
  const bool undoes_nothing = left->origin.lsn == head && !read_only_;
  if (begun || (left->content != nullptr && undoes_nothing)) {
    if (!read_only_) {
      const std::string name = disk_journal_name(file_name_);
      MEMLITH_TRY_ASSIGN(part_.journal, volume_->open(name, OpenMode::read_only, Caching::buffered));
    }
    left_journal_.put(std::move(left->content));
    part_.is_open = true;
    return kOk;
  }
  return read_only_ ? kOk : remove_disk_journal(*volume_, file_name_);
}

// ---- closing ---------------------------------------------------------------------------------------------------

Status Database::close() {
  Tender::of_process().remove(usage_);
  usage_->close();
  if (store() == nullptr) return kOk;
  if (!read_only_) {
    if (!in_wal()) roll_back();
    forget_wal();
  }
  MEMLITH_TRY(close_store());
  locks_.set_host(nullptr);
  return kOk;
}

Status Database::close_store() {
  // An undecided transaction over several databases keeps plain SQLite out.
  if (!read_only_ && !part_.is_open) MEMLITH_TRY(content_.unmark());
  const bool keeps_log = part_.is_open || read_only_;
  // The file is complete by itself now, and creating a small log again costs little. A log whose size the user set may
  // be large, and stays if it still has that size.
  const core::Superblock& log = store()->log().superblock();
  const std::uint64_t made_bytes = log.slot_count_made * log.slot_bytes;
  const bool as_named =
      options_.log_bytes != 0 && made_bytes <= 2 * options_.log_bytes && 3 * made_bytes >= options_.log_bytes;
  const bool removes_log = !keeps_log && !as_named && same_file();
  return content_.close(removes_log);
}

}  // namespace memlith::sqlite
