#include "archive/source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "store/folder_directory.hpp"
#include "store/stats.hpp"

namespace memlith::core {

namespace {

constexpr int kLooksAtLog = 6;

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

}  // namespace

ArchiveSource::ArchiveSource(Volume& volume, StoreKind kind, std::string file_name)
    : files_(volume, following(kind, std::move(file_name))) {}

Status ArchiveSource::look() {
  // A process that closes the store cuts the log's grown slots off between two reads.
  Status looked = opening_.look();
  for (int looks = 1; looks < kLooksAtLog && looked.category == Errc::corrupt; ++looks) looked = opening_.look();
  MEMLITH_TRY(looked);
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, files_.volume.identity_of(files_.names.log));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, files_.log_device->identity());
  if (log_id_ == 0) log_id_ = files_.log->log_id();
  if (named == own && files_.log->log_id() == log_id_) return kOk;
  MEMLITH_TRY_ASSIGN(log_is_gone_, file_is_there());
  if (log_is_gone_) return kOk;
  return fail(Errc::not_found, Detail::open,
              "{}: the store was removed, or another has taken its place; archive what is there now anew",
              files_.path());
}

Result<bool> ArchiveSource::file_is_there() {
  if (!files_.one_file()) return false;
  return files_.volume.exists(files_.names.file);
}

Result<bool> ArchiveSource::look_for_log() {
  MEMLITH_TRY_ASSIGN(const bool log_there, files_.volume.exists(files_.names.log));
  MEMLITH_TRY_ASSIGN(const bool file_there, file_is_there());
  if (!log_there && file_there) return false;
  files_.log = nullptr;
  files_.log_device = nullptr;
  files_.log_file = nullptr;
  log_is_gone_ = false;
  log_id_ = at_rest_ = proven_in_ = 0;
  durable_ = proven_ = {};
  MEMLITH_TRY(look());
  if (notice_ != nullptr) MEMLITH_TRY(leave_notice(keep_bytes_));
  return true;
}

Result<bool> ArchiveSource::file_may_be_changed() {
  if (writes_ || !files_.one_file()) return false;
  if (!files_.was_clean) return true;
  MEMLITH_TRY_ASSIGN(const bool there, file_is_there());
  if (!there) return true;
  MEMLITH_TRY_ASSIGN(const auto file, files_.volume.open(files_.names.file, OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(const std::uint64_t stamp, file->stamp());
  return stamp == 0 || stamp != files_.closed_stamp;
}

Status ArchiveSource::leave_notice(std::uint64_t keep_bytes) {
  // Another archiver's notice does for this one, too, as long as the log need not wait.
  const bool has_other = notice_ == nullptr && has_archiver(files_.volume, files_.names.archived);
  if (keep_bytes == 0 && has_other) return kOk;
  std::unique_ptr<Device> file;  // which the notice gets its permissions from
  if (files_.one_file()) {
    MEMLITH_TRY_ASSIGN(file, files_.volume.open(files_.names.file, OpenMode::read_only, Caching::buffered));
  }
  keep_bytes_ = keep_bytes;
  notice_ = ArchivedNotice::make(files_.volume, files_.names.archived, file.get(), log_id_, keep_bytes);
  if (notice_ != nullptr || keep_bytes == 0) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "{}: this file, by which the program that writes learns what is archived, cannot be made: the archiver "
              "needs the right to write there, and on a device that holds a store by itself there is no place for it. "
              "Archive without a limit for the log (--keep), or give the log more room (log_bytes)",
              files_.volume.path_of(files_.names.archived));
}

// ---- what is durable -------------------------------------------------------------------------------------------

Status ArchiveSource::find_durable() {
  for (int tries = 0; tries < kLooksAtLog; ++tries) {
    MEMLITH_TRY_ASSIGN(writes_, ask_writer());
    if (writes_) return kOk;
    MEMLITH_TRY_ASSIGN(const bool is_durable, ask_log());
    if (is_durable) return kOk;
  }
  return too_restless(files_.path());
}

// False: no process that shows how far it is has the store open.
Result<bool> ArchiveSource::ask_writer() {
  if (log_is_gone_) return false;  // the page, if there is one, is of another log
  for (int tries = 0; tries < kLooksAtLog; ++tries) {
    const auto seen = SeenStats::look(files_.volume, files_.names.stats);
    if (!seen.ok() || !seen->held()) return false;
    if ((*seen)->incarnation != files_.log->superblock().incarnation) {
      MEMLITH_TRY(look());
      if (log_is_gone_) return false;
      continue;
    }
    const std::optional<std::uint64_t> durable = seen->durable_lsn();
    if (!durable.has_value()) continue;
    const Superblock& superblock = files_.log->superblock();
    const Lsn shown = std::max(Lsn{*durable}, Lsn{superblock.head_lsn});
    if (shown >= proven_ || superblock.incarnation != proven_in_) proven_ = {};
    durable_ = std::max(shown, proven_);
    return true;
  }
  return false;
}

// Makes durable the bytes that can be read. False: a process has begun to write meanwhile.
Result<bool> ArchiveSource::ask_log() {
  proven_ = {};
  MEMLITH_TRY(look());
  const std::uint64_t sequence = files_.log->superblock().sequence;
  if (sequence == at_rest_) {
    LogReader reader = files_.log->follower(at_rest_end_);
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> more, next_frame(reader));
    if (!more.has_value()) return true;
  }
  if (const Status read = files_.log->recover([](const Frame&) { return kOk; }); !read.ok()) {
    MEMLITH_TRY_ASSIGN(const bool moved, log_has_moved_on(read));
    if (!moved) return read;
    return false;
  }
  const LogPosition end = files_.log->recovered();
  MEMLITH_ASSERT(files_.log->tail().lsn <= end.lsn);
  // ORDER flush-before-archive: what a writer that was killed did not flush can be read, and lost in a power cut. An
  // archive that had it would be ahead of the store. [mutant archive_of_unflushed_log]
  if (!files_.was_clean) {
    const Status flushed = files_.log_device->flush();
    const bool no_flush_here = flushed.os_errno == EINVAL || flushed.os_errno == EROFS;
    if (!no_flush_here) MEMLITH_TRY(flushed);
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t sequence_now, sequence_on_disk());
  if (sequence_now != sequence) return false;
  at_rest_ = sequence;
  at_rest_end_ = end;
  durable_ = end.lsn;
  return true;
}

// ---- frames ----------------------------------------------------------------------------------------------------

Result<std::uint64_t> ArchiveSource::sequence_on_disk() {
  Superblocks now(*files_.log_device);
  MEMLITH_TRY(now.read());
  return now.unshared().sequence;
}

// True if a failed read found the log while a process closed or opened it: such a process cuts slots off, and moves
// frames. Then the log has another superblock, and look() finds out what it has now.
Result<bool> ArchiveSource::log_has_moved_on(const Status& failed) {
  if (failed.category != Errc::corrupt) return false;
  const KeptSentence why;
  MEMLITH_TRY_ASSIGN(const std::uint64_t sequence, sequence_on_disk());
  return sequence != files_.log->superblock().sequence;
}

// No frame: the reader has come to the end, or the log has moved on.
Result<std::optional<Frame>> ArchiveSource::next_frame(LogReader& reader) {
  auto frame = reader.next();
  if (frame.ok()) return frame;
  MEMLITH_TRY_ASSIGN(const bool moved, log_has_moved_on(frame.error()));
  if (!moved) return frame.error();
  return std::optional<Frame>();
}

// A store that was opened with a changed file continues its log with another value in the chain.
bool ArchiveSource::is_behind_a_change(LogPosition at) const {
  const LogPosition tail = files_.log->tail();
  return tail.lsn == at.lsn && tail.previous != at.previous;
}

Result<ArchiveSource::Reach> ArchiveSource::read(LogPosition& at, const Visit& visit) {
  MEMLITH_TRY(find_durable());
  if (at.lsn > durable_) return Reach::elsewhere;
  if (is_behind_a_change(at)) return Reach::changed;
  const Lsn wanted = durable_;
  const Reach read_all = log_is_gone_ ? Reach::ended : Reach::all;
  for (int looks = 0;;) {
    const LogPosition before = at;
    LogReader reader = files_.log->follower(at);
    while (at.lsn < wanted) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, next_frame(reader));
      if (!frame.has_value()) break;
      if (frame->after.lsn > wanted) break;
      MEMLITH_ASSERT(at.lsn <= frame->lsn && frame->lsn < frame->after.lsn);  // each step comes nearer to the end
      MEMLITH_TRY(visit(*frame));
      at = frame->after;
    }
    if (at.lsn >= wanted) return read_all;
    const LogPosition tail = files_.log->tail();
    if (tail.lsn > at.lsn && tail.previous == at.previous) {
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

Result<Lsn> ArchiveSource::readable_end(LogPosition at) {
  MEMLITH_ASSERT(has_log());
  LogReader reader = files_.log->follower(at);
  for (;;) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, next_frame(reader));
    if (!frame.has_value()) return reader.position().lsn;
  }
}

Result<ArchiveSource::Reach> ArchiveSource::find(LogPosition at) {
  files_.options.log.followed_to = at.lsn;
  MEMLITH_TRY(look());
  MEMLITH_TRY(find_durable());
  if (durable_ < at.lsn) return Reach::elsewhere;
  if (is_behind_a_change(at)) return Reach::changed;
  for (int looks = 0; looks < kLooksAtLog; ++looks) {
    const LogPosition tail = files_.log->tail();
    if (tail.lsn > at.lsn && tail.previous == at.previous) return Reach::all;
    const LogPosition end = std::max(tail, at, [](const auto& a, const auto& b) { return a.lsn < b.lsn; });
    LogReader reader =
        files_.log->follower(std::min(tail, at, [](const auto& a, const auto& b) { return a.lsn < b.lsn; }));
    while (reader.position().lsn < end.lsn) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, next_frame(reader));
      if (!frame.has_value()) break;
    }
    if (reader.position() == end) return Reach::all;
    if (tail.lsn <= at.lsn && reader.position().lsn >= at.lsn) return Reach::elsewhere;
    MEMLITH_TRY(look());
  }
  return Reach::gone;
}

// ---- full copies -----------------------------------------------------------------------------------------------

namespace {

// Makes records of a walk.
class RecordSink final : public CopySink {
 public:
  explicit RecordSink(const ArchiveSource::CopyCalls& calls) : calls_(calls) {}

  Status begin(const CopiedState&) override {
    there_.clear();
    return calls_.start();
  }
  Result<bool> take(ObjectId object, Device& home) override {
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, home.size());
    MEMLITH_TRY(make(object, size));
    return false;
  }
  Status put(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!there_.contains(object)) MEMLITH_TRY(make(object, 0));
    MEMLITH_TRY(calls_.write({kCopyBytes, object.value, offset, bytes.size()}, bytes));
    return calls_.between();
  }
  Status finish(const CopiedState& state) {
    if (state.kind == StoreKind::folder) {
      const std::vector<std::byte> directory = FolderDirectory::file_of(state.objects, state.next_id, state.log_id);
      for (const ObjectInfo& info : state.objects) MEMLITH_TRY(make(info.id, info.size_bytes));
      MEMLITH_TRY(make(kDirectory, directory.size()));
      MEMLITH_TRY(calls_.write({kCopyBytes, kDirectory.value, 0, directory.size()}, directory));
    }
    return calls_.write({kCopyEnd, 0, 0, 0}, {});
  }

 private:
  // Or sets its length.
  Status make(ObjectId object, std::uint64_t bytes) {
    there_.insert(object);
    return calls_.write({kCopySize, object.value, bytes, 0}, {});
  }

  const ArchiveSource::CopyCalls& calls_;
  std::set<ObjectId> there_;
};

}  // namespace

Result<CopiedState> ArchiveSource::copy(FullCopy& full, const CopyCalls& calls) {
  MEMLITH_ASSERT(has_log());
  MEMLITH_TRY(look());
  const Superblock before = files_.log->superblock();
  StoreOptions options = files_.options;
  options.follow_patience = std::chrono::milliseconds(0);
  CopySource source(files_.volume, options);
  RecordSink sink(calls);
  MEMLITH_TRY_ASSIGN(CopiedState state, source.walk(sink));
  if (state.log_id != log_id_) return too_restless(files_.path());
  MEMLITH_TRY(sink.finish(state));
  full.from = state.position;
  proven_in_ = state.incarnation;
  proven_ = state.position.lsn;
  full.block_bytes = before.block_bytes;
  full.slot_bytes = state.slot_bytes;
  full.slot_count = state.slot_count;
  StoreHeader header;
  std::memcpy(&header, before.client, sizeof header);
  header.file = state.file.object;
  header.own = state.file.own;
  header.common = {};
  full.client = {};
  std::memcpy(full.client.data(), before.client, full.client.size());
  if (files_.one_file()) std::memcpy(full.client.data(), &header, sizeof header);
  return state;
}

}  // namespace memlith::core
