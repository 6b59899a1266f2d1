#include "archive/source.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/mutant.hpp"
#include "store/stats.hpp"

namespace memlith::core {

namespace {

constexpr int kLooksAtLog = 6;
constexpr std::uint64_t kCopyStepBytes = 1 * kMiB;

StoreOptions following(StoreKind kind, std::string file_name) {
  StoreOptions options;
  options.kind = kind;
  options.file_name = std::move(file_name);
  options.read_only = options.follow = true;
  return options;
}

Status too_restless(const std::string& path) {
  return fail(Errc::busy, Detail::open, "{}: processes open and close this store faster than it can be read; try again",
              path);
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == std::byte{0}; });
}

}  // namespace

ArchiveSource::ArchiveSource(Volume& volume, StoreKind kind, std::string file_name)
    : files_(volume, following(kind, std::move(file_name))) {}

Status ArchiveSource::look() {
  MEMLITH_TRY(opening_.look());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, files_.volume.identity_of(files_.names.log));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, files_.log_device->identity());
  if (log_id_ == 0) log_id_ = files_.log->log_id();
  if (named == own && files_.log->log_id() == log_id_) return kOk;
  return fail(Errc::not_found, Detail::open,
              "{}: the store was removed, or another has taken its place; archive what is there now anew",
              files_.path());
}

// ---- what is durable -------------------------------------------------------------------------------------------

Status ArchiveSource::find_durable() {
  for (int tries = 0; tries < kLooksAtLog; ++tries) {
    MEMLITH_TRY_ASSIGN(writes_, ask_writer());
    if (writes_) return kOk;
    MEMLITH_TRY_ASSIGN(const bool settled, ask_log());
    if (settled) return kOk;
  }
  return too_restless(files_.path());
}

// False: no process that shows how far it is has the store open.
Result<bool> ArchiveSource::ask_writer() {
  for (int tries = 0; tries < kLooksAtLog; ++tries) {
    const auto seen = SeenStats::look(files_.volume, files_.names.stats);
    if (!seen.ok() || !seen->held()) return false;
    if ((*seen)->incarnation != files_.log->superblock().incarnation) {
      MEMLITH_TRY(look());
      continue;
    }
    const std::optional<std::uint64_t> durable = seen->durable_lsn();
    if (!durable.has_value()) continue;
    durable_ = std::max(Lsn{*durable}, Lsn{files_.log->superblock().head_lsn});
    return true;
  }
  return false;
}

// What can be read is made durable. False: a process has begun to write meanwhile.
Result<bool> ArchiveSource::ask_log() {
  MEMLITH_TRY(look());
  const std::uint64_t sequence = files_.log->superblock().sequence;
  if (sequence == settled_) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> more, files_.log->follower(settled_end_).next());
    if (!more.has_value()) return true;
  }
  MEMLITH_TRY(files_.log->recover([](const Frame&) { return kOk; }));
  const LogPosition end = files_.log->recovered();
  // ORDER flush-before-archive: what a writer that was killed did not flush can be read, and lost in a power cut. An
  // archive that had it would be ahead of the store. [mutant archive_of_unflushed_log]
  if (!files_.was_clean && !MEMLITH_MUTANT(archive_of_unflushed_log)) {
    const Status flushed = files_.log_device->flush();
    const bool no_flush_here = flushed.os_errno == EINVAL || flushed.os_errno == EROFS;
    if (!no_flush_here) MEMLITH_TRY(flushed);
  }
  Superblocks now(*files_.log_device);
  MEMLITH_TRY(now.read());
  if (now.current().sequence != sequence) return false;
  settled_ = sequence;
  settled_end_ = end;
  durable_ = end.lsn;
  return true;
}

// ---- frames ----------------------------------------------------------------------------------------------------

Result<ArchiveSource::Reach> ArchiveSource::read(LogPosition& at, const Visit& visit) {
  MEMLITH_TRY(find_durable());
  if (at.lsn > durable_) return MEMLITH_MUTANT(archive_believes_all) ? Reach::all : Reach::elsewhere;
  const Lsn wanted = durable_;
  for (int looks = 0;;) {
    const LogPosition before = at;
    LogReader reader = files_.log->follower(at);
    while (at.lsn < wanted || MEMLITH_MUTANT(archive_believes_all)) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
      if (!frame.has_value()) break;
      if (frame->after.lsn > wanted && !MEMLITH_MUTANT(archive_believes_all)) break;
      MEMLITH_TRY(visit(*frame));
      at = frame->after;
    }
    if (at.lsn >= wanted) return Reach::all;
    const LogPosition tail = files_.log->tail();
    const bool gap_overlooked = MEMLITH_MUTANT(archive_gap_overlooked) && looks == kLooksAtLog;
    if (tail.lsn > at.lsn && (tail.previous == at.previous || gap_overlooked)) {
      at = tail;
      continue;
    }
    if (at != before) looks = 0;
    if (looks++ == kLooksAtLog) return Reach::gone;
    // The log goes on in slots that it has taken since, or what is missing was overwritten.
    files_.options.log.followed_to = at.lsn;
    MEMLITH_TRY(look());
  }
}

Result<ArchiveSource::Reach> ArchiveSource::find(LogPosition at) {
  files_.options.log.followed_to = at.lsn;
  MEMLITH_TRY(look());
  MEMLITH_TRY(find_durable());
  if (durable_ < at.lsn) return Reach::elsewhere;
  for (int looks = 0; looks < kLooksAtLog; ++looks) {
    const LogPosition tail = files_.log->tail();
    if (tail.lsn > at.lsn && tail.previous == at.previous) return Reach::all;
    const LogPosition end = std::max(tail, at, [](const auto& a, const auto& b) { return a.lsn < b.lsn; });
    LogReader reader =
        files_.log->follower(std::min(tail, at, [](const auto& a, const auto& b) { return a.lsn < b.lsn; }));
    while (reader.position().lsn < end.lsn) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
      if (!frame.has_value()) break;
    }
    if (reader.position() == end) return Reach::all;
    if (tail.lsn <= at.lsn && reader.position().lsn >= at.lsn) return Reach::elsewhere;
    MEMLITH_TRY(look());
  }
  return Reach::gone;
}

// ---- full copies -----------------------------------------------------------------------------------------------

Result<std::vector<ObjectId>> ArchiveSource::homes() {
  std::vector<ObjectId> ids;
  if (files_.one_file()) {
    ids.push_back(kFile);
    return ids;
  }
  MEMLITH_TRY_ASSIGN(const std::vector<std::string> names, files_.volume.list("objects"));
  for (const std::string& name : names) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error == std::errc() && end == name.data() + name.size()) ids.push_back(ObjectId{id});
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Status ArchiveSource::copy(FullCopy& full, const Write& write, const std::function<Status()>& between) {
  MEMLITH_TRY(look());
  MEMLITH_TRY(find_durable());
  // ORDER tail-before-homes: replay begins at the tail, and home files that are read later have at least what lies
  // before it. [mutant archive_tail_read_late]
  const Superblock before = files_.log->superblock();
  const auto note_tail = [&full](const Superblock& superblock) {
    full.from = {Lsn{superblock.tail_lsn}, superblock.tail_previous};
    full.block_bytes = superblock.block_bytes;
    full.slot_bytes = superblock.slot_bytes;
    full.slot_count = superblock.slot_count_made;
    std::memcpy(full.client.data(), superblock.client, full.client.size());
  };
  note_tail(before);
  const bool wrote = writes_;
  if (!wrote) MEMLITH_TRY(replay_.gather_blocks());
  const auto copied = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(const std::vector<ObjectId> ids, homes());
    for (const ObjectId id : ids) MEMLITH_TRY(copy_home(id, write, between));
    // Blocks that a power cut may have torn, as they were before.
    for (const ObjectId id : replay_.overlay().objects()) {
      MEMLITH_TRY(replay_.overlay().for_each(id, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
        return write({kCopyBytes, id.value, offset, bytes.size()}, bytes);
      }));
    }
    return write({kCopyEnd, 0, 0, 0}, {});
  }();
  replay_.forget();
  MEMLITH_TRY(copied);
  if (MEMLITH_MUTANT(archive_tail_read_late)) {
    MEMLITH_TRY(look());
    note_tail(files_.log->superblock());
  }
  return find_durable();
}

Status ArchiveSource::copy_home(ObjectId object, const Write& write, const std::function<Status()>& between) {
  const auto opened = files_.volume.open(files_.names.home(object), OpenMode::read_only, Caching::buffered);
  // It was removed meanwhile, by a commit that the log has.
  if (!opened.ok() && opened.error().category == Errc::not_found && !files_.one_file()) return kOk;
  MEMLITH_TRY(opened.status());
  Device& home = **opened;
  MEMLITH_TRY_ASSIGN(std::uint64_t size, home.size());
  MEMLITH_TRY(write({kCopySize, object.value, size, 0}, {}));
  std::vector<std::byte> buffer(kCopyStepBytes);
  for (std::uint64_t at = 0; at < size;) {
    at = std::max(at, round_down(home.skip_hole(at), kPageBytes));
    if (at >= size) break;
    const auto bytes = std::span(buffer).first(std::min(kCopyStepBytes, size - at));
    if (const Status status = home.read(at, bytes); !status.ok()) {
      MEMLITH_TRY_ASSIGN(const std::uint64_t now, home.size());
      if (now >= size) return status;
      size = now;  // it was cut meanwhile
      continue;
    }
    if (!is_zero(bytes)) MEMLITH_TRY(write({kCopyBytes, object.value, at, bytes.size()}, bytes));
    at += bytes.size();
    MEMLITH_TRY(between());
  }
  return kOk;
}

}  // namespace memlith::core
