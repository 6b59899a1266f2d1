#include "store/file_directory.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "store/common_log.hpp"
#include "store/moment.hpp"
#include "store/stats.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kFileLogBytesFirst = 1 * kMiB;  // a program may have hundreds of files, most of them idle
constexpr std::uint64_t kFileLogBytesLeast = 16 * kMiB;
constexpr std::uint64_t kFileLogBytesMost = 64 * kMiB;
constexpr std::chrono::milliseconds kLockWait{5};
constexpr int kLockWaits = 400;  // 2 s in all
}  // namespace

FileRecord FileDirectory::record_at_home() const {
  const LockGuard lock(mutex_);
  return at_home_;
}

void FileDirectory::read_record(const FileRecord& record) {
  const LockGuard lock(mutex_);
  at_home_ = record;
  if (is_archives_copy()) at_home_.common = {};
}

// Its frames are those of another store, to which the common log belongs that they name.
bool FileDirectory::is_archives_copy() const {
  return files_.options.held || (files_.log != nullptr && files_.log->held());
}

// A marked file is long enough for its in-use header.
std::uint64_t FileDirectory::length_at_home() const {
  const LockGuard lock(mutex_);
  return std::max(at_home_.object.size_bytes,
                  at_home_.own.marked == InUse::none ? std::uint64_t{0} : kInUseHeaderBytes);
}

// ---- changes ---------------------------------------------------------------------------------------------------

void FileDirectory::put_record(FrameWriter& writer, const ObjectEntry& entry) {
  MEMLITH_ASSERT(entry.info.id == kFile && committed_.id == kFile.value && committed_.live == 1);
  committed_.size_bytes = entry.info.size_bytes;
  writer.put(&committed_, sizeof committed_);
}

Result<ObjectInfo> FileDirectory::create(const ObjectInfo& wanted, const Commit& commit) {
  const LockGuard create_lock(create_mutex_);
  ObjectInfo info = wanted;
  info.id = kFile;
  MEMLITH_TRY(reserve_home(kFile, info.size_bytes));
  MEMLITH_TRY(commit_record(info, commit));
  return info;
}

Status FileDirectory::set_reserve(ObjectId id, std::uint64_t reserve_bytes, const Commit& commit) {
  const LockGuard create_lock(create_mutex_);
  std::optional<ObjectInfo> info = find(id);
  if (!info.has_value()) return no_such_object(id);
  info->reserve_bytes = reserve_bytes;
  return commit_record(*info, commit);
}

Status FileDirectory::commit_record(const ObjectInfo& info, const Commit& commit) {
  MEMLITH_ASSERT(info.id == kFile && info.address % kPageBytes == 0);
  const ObjectRecord record{kFile.value, 1, info.size_bytes, info.address, info.reserve_bytes};
  std::vector<ObjectEntry> entries{{info, 0, committed_lsn(kFile)}};
  const Extent extent{kDirectory, 0, sizeof record};
  const auto* const source = reinterpret_cast<const std::byte*>(&record);
  MEMLITH_TRY(commit({{&extent, 1}, {&source, 1}, {}}));
  const LockGuard lock(mutex_);
  committed_ = record;
  entries_.swap(entries);
  return kOk;
}

Status FileDirectory::remove(ObjectId, const Commit&, const Checkpoint&) {
  return fail(Errc::invalid, Detail::object, "{}: the region of a one-file store is the file; remove the file instead",
              files_.path());
}

// ---- creating a store ------------------------------------------------------------------------------------------

Status FileDirectory::check_before_create() {
  const std::string& name = files_.names.file;
  const bool exclusive = files_.options.exclusive;
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(name));
  if (there && exclusive) return fail(Errc::exists, Detail::open, "{}: this file exists already", files_.path());
  MEMLITH_TRY(check_log_not_removed());
  // ORDER file-before-log: the program that created the file may have been killed before the name was durable. [test
  // AfterAKill.TheNameOfAFileIsFlushedBeforeItsLogHasOne]
  if (there) return files_.volume.sync_folder("");
  auto made = files_.volume.open(name, OpenMode::create, Caching::buffered);
  if (!made.ok() && (made.error().category != Errc::exists || exclusive)) return made.error();
  made_file_ = made.ok();
  return files_.volume.sync_folder("");
}

Status FileDirectory::check_log_not_removed() {
  MEMLITH_TRY(check_not_in_use(files_));
  return check_closed_before();
}

// An opening that is never closed leaves its page of counters behind. If the page is of this file, the log that is
// missing held the newest commits. (The file and its log may also have been renamed while the store was open, and
// another file has taken the name.)
Status FileDirectory::check_closed_before() {
  if (files_.options.in_use == InUse::caller) return kOk;  // the in-use header in the file tells
  const auto page = SeenStats::look(files_.volume, files_.names.stats);
  const Errc missing = page.ok() ? Errc::ok : page.error().category;
  if (missing == Errc::not_found || missing == Errc::incompatible) return kOk;
  MEMLITH_TRY(page.status());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> file, files_.volume.identity_of(files_.names.file));
  // Another process may have made the store since this one looked for the log.
  MEMLITH_TRY_ASSIGN(const bool made_meanwhile, files_.volume.exists(files_.names.log));
  if (file != (*page)->file || made_meanwhile) return kOk;
  return fail(
      Errc::corrupt, Detail::open,
      "{0}: the last opening of this file was never closed ({1} is still there), and the log {2} is missing. The "
      "newest commits are in that log, and without them the file may be incomplete. Put the log back, or restore "
      "the file from a backup. To take the file as it is, remove {1}. Nothing was changed",
      files_.path(), files_.volume.path_of(files_.names.stats), files_.volume.path_of(files_.names.log));
}

Status FileDirectory::tell_log_is_missing() {
  MEMLITH_TRY(check_log_not_removed());
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(files_.names.file));
  if (!there) return no_store();
  return fail(Errc::not_found, Detail::open,
              "{}: its log {} is missing. If the file was closed cleanly, or never opened by memlith, it is complete, "
              "and opening it with `create` makes a new log. After a crash its newest commits are only in the missing "
              "log, and `create` discards them: put the log back",
              files_.path(), files_.volume.path_of(files_.names.log));
}

Status FileDirectory::make_first(std::uint64_t) {
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  // ORDER length-before-log: a file that was just copied here may not be on the medium yet.
  // [test AfterAKill.WhatTheUserDidToAFileIsFlushedBeforeItIsBuiltUpon]
  MEMLITH_TRY(file->flush());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  read_record({{kFile.value, 1, size, 0, 0}, {}, {}, 0});
  return kOk;
}

void FileDirectory::undo_creation(bool) {
  if (!made_file_) return;
  made_file_ = false;
  // Another process may have found the file meanwhile, written to it, or created a log beside it.
  const auto home = files_.homes.get(kFile);
  const auto size = home.ok() ? (*home)->size() : Result<std::uint64_t>(std::uint64_t{0});
  const auto log_there = files_.volume.exists(files_.names.log);
  const auto log_comes = files_.volume.exists(files_.names.fresh_log());
  const bool unused = log_there.ok() && !*log_there && log_comes.ok() && !*log_comes;
  if (unused && size.ok() && *size == 0) (void)files_.volume.remove(files_.names.file);
}

// ---- recovery --------------------------------------------------------------------------------------------------

Status FileDirectory::prepare_to_recover() {
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(files_.names.file));
  if (!there && !files_.was_clean) {
    return fail(Errc::corrupt, Detail::object,
                "{}: the file is gone, but its log {} still holds commits for it; put the file back, or remove the "
                "log, too. Nothing was changed",
                files_.path(), files_.log_device->path());
  }
  if (!there) {
    if (!files_.options.create) return fail(Errc::not_found, Detail::open, "{}: there is no such file", files_.path());
    MEMLITH_TRY(check_before_create());
    read_record({{kFile.value, 1, 0, 0, 0}, {}, {}, record_at_home().recoveries});
  }
  return lock_file();
}

Status FileDirectory::lock_file() {
  MEMLITH_TRY_ASSIGN(OpenFile* const file, files_.homes.user_file());
  // The log's lock is held, so no other process has the file open under this name. But a mapping of a process that was
  // killed may hold the lock of the file for a moment longer than the process lives.
  for (int waits = 0;; ++waits) {
    auto lock = file->lock(!files_.read_only());
    if (lock.ok()) {
      files_.file_lock = std::move(*lock);
      return kOk;
    }
    if (lock.error().category != Errc::busy) return lock.error();
    if (waits == kLockWaits) break;
    std::this_thread::sleep_for(kLockWait);
  }
  return fail(Errc::busy, Detail::lock, "{}: the file is in use under another of its names; close it there, or wait",
              files_.path());
}

Status FileDirectory::load(const Overlay&) {
  const LockGuard lock(mutex_);
  ObjectRecord& record = at_home_.object;
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (record.id != kFile.value || record.live != 1 || record.address % kPageBytes != 0) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the record of the file is invalid (id {}, live {}, address {:#x})", files_.log_device->path(),
                record.id, record.live, record.address);
  }
  if (files_.was_clean) {
    MEMLITH_TRY_ASSIGN(const std::uint64_t stamp, file->stamp());
    files_.file_was_changed = stamp == 0 || stamp != files_.closed_stamp;
    record.size_bytes = size;  // between two uses the file is the user's own, and so is its length
  } else if (size < record.size_bytes) {
    return fail(Errc::corrupt, Detail::object,
                "{}: expected {} bytes, found {}; the file was cut short by another program", files_.path(),
                record.size_bytes, size);
  }
  if (record.reserve_bytes < record.size_bytes)
    record.address = record.reserve_bytes = 0;  // grown by another program: the region gets a new address
  committed_ = record;
  entries_.clear();
  entries_.push_back({{kFile, "file", record.size_bytes, record.address, record.reserve_bytes}, 0});
  return kOk;
}

// A file that keeps its holes: commits reserve the space of those that they change.
Status FileDirectory::fill_holes(const Overlay& due) {
  if (!files_.options.keeps_holes) return Directory::fill_holes(due);
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  for (std::uint64_t at = 0; at < size;) {
    const std::optional<Device::Hole> hole = file->next_hole(at);
    if (!hole.has_value()) break;
    const std::uint64_t begin = round_down(hole->begin, kPageBytes);
    files_.vacant.add({kFile, begin, round_up(hole->end, kPageBytes) - begin});
    at = std::max(hole->end, at + 1);
  }
  // The reservations of the commits in the log may be gone: they were not durable.
  std::vector<Extent> extents;
  MEMLITH_TRY(due.for_each(kFile, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset < size) extents.push_back({kFile, offset, std::min<std::uint64_t>(bytes.size(), size - offset)});
    return kOk;
  }));
  return files_.vacant.fill(extents, files_.homes);
}

Status FileDirectory::undo_uncommitted_growth() {
  MEMLITH_ASSERT(!files_.read_only());
  if (files_.made_log) return kOk;  // make_first() took the length as it was, and flushed the file; the names are, too
  // ORDER length-until-parts: readers find the file as long as the common commits made it that its log has yet to get.
  // [mutant common_length_cut]
  const std::uint64_t wanted =
      std::max(length_at_home(), files_.common != nullptr ? files_.common->length() : std::uint64_t{0});
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  // Undoes a growth that no persist made part of the file. A right length may also be in the page cache only.
  if (!files_.was_clean) {
    MEMLITH_TRY(file->truncate(wanted));
    const LockGuard lock(mutex_);
    // ORDER cut-before-superblock: a copy of the file from before the cut may have bytes behind it, where later commits
    // rely on zeros. The next superblock refuses the moment of that copy. [test
    // InUseHeaderOf.ACopyFromBeforeTheCutOfARecoveryIsRefused]
    at_home_.recoveries += 1;
  }
  // If the length is right already, the program that set it may have been killed before the flush. Between two uses the
  // file is the user's own, and neither its content nor its name need be flushed. [crash/killed]
  MEMLITH_TRY(file->flush());
  const Status named = files_.volume.sync_folder("");
  return named.category == Errc::permission ? kOk : named;  // a folder that the process may enter but not read
}

// ---- replay ----------------------------------------------------------------------------------------------------

Status FileDirectory::take_record(const Overlay& overlay) {
  const LockGuard lock(mutex_);
  FileRecord& record = at_home_;
  MEMLITH_TRY(overlay.for_each(kDirectory, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset > sizeof record || bytes.size() > sizeof record - offset) {
      return fail(Errc::corrupt, Detail::directory,
                  "{}: a commit changes the file's record at offset {}, beyond its end", files_.log_device->path(),
                  offset);
    }
    std::memcpy(reinterpret_cast<std::byte*>(&record) + offset, bytes.data(), bytes.size());
    return kOk;
  }));
  if (is_archives_copy()) record.common = {};
  return kOk;
}

Result<bool> FileDirectory::homes_are_as_said(const Overlay& overlay) {
  MEMLITH_TRY(take_record(overlay));
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  return size >= record_at_home().object.size_bytes;
}

Result<std::uint64_t> FileDirectory::size_at_home(ObjectId id) {
  if (!files_.read_only()) return record_at_home().object.size_bytes;
  const std::optional<ObjectInfo> info = find(id);
  if (!info.has_value()) return no_such_object(id);
  return info->size_bytes;  // constant from here on
}

Status FileDirectory::cut_home_to_size() {
  const std::uint64_t wanted = length_at_home();
  MEMLITH_ASSERT(!files_.read_only());
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size == wanted) return kOk;  // otherwise grown and never persisted
  MEMLITH_TRY(file->truncate(wanted));
  return file->flush();
}

Result<std::uint64_t> FileDirectory::stamp() {
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  return file->stamp();
}

std::uint64_t FileDirectory::log_bytes_first() const { return kFileLogBytesFirst; }

std::uint64_t FileDirectory::log_bytes_given() const {
  if (files_.options.log_busy_bytes != 0) return 0;
  return std::clamp(round_up(record_at_home().object.size_bytes / 2, kFileLogBytesLeast), kFileLogBytesLeast,
                    kFileLogBytesMost);
}

Status FileDirectory::match_permissions(Device& other) {
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  return other.match_permissions(*file);
}

}  // namespace memlith::core
