#include "store/common_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/random.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kLogBytes = 1 * kMiB;
constexpr std::uint64_t kLogMaxBytes = 1 * kGiB;
constexpr std::uint64_t kSlots = 4;
constexpr std::chrono::milliseconds kLogLockWait{5};
constexpr int kLogLockWaits = 400;  // 2 s in all: another opening may be recovering its file
constexpr std::uint64_t kSameSize = ~std::uint64_t{0};

LogOptions log_options(const StoreOptions& options) {
  LogOptions result = options.log;
  result.bytes_max = options.log_max_bytes != 0 ? options.log_max_bytes : kLogMaxBytes;
  return result;
}

ClientBytes client_bytes() {
  StoreHeader header{};
  header.kind = kCommonLogKind;
  ClientBytes client{};
  std::memcpy(client.data(), &header, sizeof header);
  return client;
}

Status commit_mark(Store& store, const CommonMark& mark) {
  const auto* const source = reinterpret_cast<const std::byte*>(&mark);
  return store.commit({{&kCommonMarkExtent, 1}, {&source, 1}, {}});
}

std::uint64_t bytes_of(const Changes& changes) {
  std::uint64_t bytes = changes.extents.size() * sizeof(ExtentRecord);
  for (const Extent& extent : changes.extents) bytes += extent.bytes;
  return bytes;
}

}  // namespace

// ---- making ----------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CommonLog>> CommonLog::make(Volume& volume, Store& like) {
  const StoreOptions& options = like.options();
  const std::uint64_t log_id = random_identity();
  auto common = std::unique_ptr<CommonLog>(new CommonLog(volume));
  common->name_ = common_log_name(log_id);
  const std::string fresh_name = common->name_ + ".new";
  {
    MEMLITH_TRY_ASSIGN(const auto device, volume.open(fresh_name, OpenMode::create, Caching::buffered));
    MEMLITH_TRY(like.match_permissions(*device));
    LogFormat format;
    format.block_bytes = like.log().superblock().block_bytes;
    format.slot_bytes = options.slot_bytes != 0 ? options.slot_bytes : kLogBytes / kSlots;
    format.slot_count = kSlots;
    MEMLITH_TRY(Log::format(*device, format, client_bytes(), log_id));
  }
  MEMLITH_TRY(volume.rename(fresh_name, common->name_));
  MEMLITH_TRY(volume.sync_folder(""));
  MEMLITH_TRY(common->open(options, true));
  MEMLITH_TRY(common->log_->recover([](const Frame&) { return kOk; }));
  MEMLITH_TRY(common->log_->start(common->log_->recovered(), client_bytes(), true));
  return common;
}

Status CommonLog::open(const StoreOptions& options, bool writable) {
  MEMLITH_TRY_ASSIGN(file_, volume_.open_file(name_, writable));
  for (int waits = 0; lock_ == nullptr; ++waits) {
    auto lock = file_->lock(writable);
    if (lock.ok()) {
      lock_ = std::move(*lock);
    } else if (lock.error().category != Errc::busy || waits == kLogLockWaits) {
      return lock.error();
    } else {
      std::this_thread::sleep_for(kLogLockWait);
    }
  }
  MEMLITH_TRY_ASSIGN(device_, file_->device(name_, options.direct_io ? Caching::direct : Caching::buffered));
  MEMLITH_TRY_ASSIGN(log_, Log::open(*device_, log_options(options)));
  return kOk;
}

// ---- commits ---------------------------------------------------------------------------------------------------

bool CommonLog::has(const Store& store) const {
  return std::find(stores_.begin(), stores_.end(), &store) != stores_.end();
}

Status CommonLog::join(Store& store) {
  const std::uint64_t log_id = store.log().log_id();
  MEMLITH_TRY(make_room(sizeof(CommonRecord)));
  // ORDER member-before-mark: the common log knows of every file whose log names it, or it would be removed too early.
  // [test SeveralFiles.AProcessThatDiesLeavesWhatItCommitted]
  MEMLITH_TRY(append(CommonRecord::kJoined, {log_id}));
  members_.insert(log_id);
  // ORDER mark-before-decision: a recovery of the file asks the common log for every commit that this one decides.
  // [mutant common_log_not_named]
  MEMLITH_TRY(commit_mark(store, {log_->log_id(), newest_}));
  stores_.push_back(&store);
  return kOk;
}

Status CommonLog::commit(std::span<const Part> parts) {
  const std::uint64_t number = newest_ + 1;
  std::uint64_t bytes = 0;
  for (const Part& part : parts) bytes += sizeof(CommonRecord) + bytes_of(part.changes);
  MEMLITH_TRY(make_room(bytes));
  const auto put_all = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(FrameWriter writer, log_->begin(bytes, kFrameKindCommon));
    for (const Part& part : parts) {
      const Changes& changes = part.changes;
      MEMLITH_ASSERT(members_.contains(part.log_id) && changes.sizes.size() <= 1);
      const CommonRecord record{part.log_id,
                                CommonRecord::kCommit,
                                static_cast<std::uint32_t>(changes.extents.size()),
                                number,
                                changes.sizes.empty() ? kSameSize : changes.sizes.front().size_bytes,
                                bytes_of(changes)};
      writer.put(&record, sizeof record);
      for (const Extent& each : changes.extents) {
        const ExtentRecord extent{each.object.value, static_cast<std::uint32_t>(each.bytes), each.offset};
        writer.put(&extent, sizeof extent);
      }
      for (std::size_t i = 0; i < changes.extents.size(); ++i) writer.put(changes.sources[i], changes.extents[i].bytes);
    }
    MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
    // ORDER decision-before-parts: no file's log has its part before all of them are durable here, or a crash could
    // keep it in that file alone. [mutant common_commit_not_flushed]
    return log_->sync(end);
  };
  const Status status = put_all();
  if (!status.ok()) {
    poison(status);
    return status;
  }
  newest_ = number;
  return kOk;
}

void CommonLog::poison(Status cause) {
  const KeptSentence why;
  log_->poison(cause);
  for (Store* const store : stores_) store->poison(cause);
}

// A frame finds room with half of the log free, so that begin() neither waits nor asks for a trim.
Status CommonLog::make_room(std::uint64_t payload_bytes) {
  MEMLITH_TRY(log_->failure());
  const LogGeometry& geometry = log_->geometry();
  const std::uint64_t needed = geometry.frame_bytes(payload_bytes);
  if (2 * (log_->used_bytes() + needed) <= log_->capacity_bytes()) return kOk;
  MEMLITH_TRY(free_frames());
  const std::uint64_t wanted = 2 * (log_->used_bytes() + needed);
  const std::uint64_t capacity = log_->capacity_bytes();
  if (wanted <= capacity) return kOk;
  const std::uint64_t more = (wanted - capacity + geometry.segment_bytes() - 1) / geometry.segment_bytes();
  if (capacity / geometry.segment_bytes() + more > log_->slot_count_max()) {
    return fail(Errc::full, Detail::frame,
                "{}: a commit of {} bytes in several files does not fit their common log, whose limit is {} bytes; "
                "nothing was written. Commit the files one by one, or more often",
                device_->path(), payload_bytes, log_->slot_count_max() * geometry.segment_bytes() / 2);
  }
  return log_->grow(more);
}

Status CommonLog::free_frames() {
  // ORDER parts-before-tail: what the frames decided is in the logs of the files, durably, before the frames are freed.
  // [mutant common_frames_freed_early]
  for (Store* const store : stores_) {
    if (const Status status = store->sync(store->log().head()); !status.ok()) {
      poison(status);
      return status;
    }
  }
  const LogPosition tail = log_->durable();
  MEMLITH_TRY(append(CommonRecord::kJoined, members_));
  const Status status = log_->trim(tail, client_bytes());
  if (!status.ok()) poison(status);
  return status;
}

// One record for each of these files, in one frame. Durable on ok.
Status CommonLog::append(std::uint32_t kind, const std::set<std::uint64_t>& log_ids) {
  std::vector<CommonRecord> records;
  for (const std::uint64_t log_id : log_ids) records.push_back({log_id, kind, 0, newest_, kSameSize, 0});
  const Status status = log_->append(std::as_bytes(std::span(records)), kFrameKindCommon).status();
  if (!status.ok()) poison(status);
  return status;
}

// ---- closing ---------------------------------------------------------------------------------------------------

Status CommonLog::leave(Store& store) {
  std::erase(stores_, &store);
  return commit_mark(store, {});
}

void CommonLog::has_left(std::uint64_t log_id) {
  const KeptSentence unchanged;  // what is left behind does no harm
  members_.erase(log_id);
  if (members_.empty()) {
    is_over_ = true;
    (void)remove();
  } else if (make_room(sizeof(CommonRecord)).ok()) {
    (void)append(CommonRecord::kLeft, {log_id});
  }
}

Status CommonLog::remove() { return volume_.remove_own(name_, *device_); }

// ---- recovery --------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CommonLog>> CommonLog::find(Volume& volume, const StoreOptions& options, const std::string& path,
                                                   std::uint64_t log_id, const CommonMark& mark) {
  auto common = std::unique_ptr<CommonLog>(new CommonLog(volume));
  common->name_ = common_log_name(mark.log_id);
  const Status status = common->open(options, !options.read_only);
  if (status.category == Errc::not_found) {
    return fail(Errc::corrupt, Detail::open,
                "{0}: its newest commits may be in {1}, the common log of files that were committed together, and that "
                "is missing. Put it back beside the file, or move the file back to its folder. To take the file "
                "without these commits: `memlith recover --accept-copy {0}`",
                path, volume.path_of(common->name_));
  }
  if (status.category == Errc::busy) {
    return fail(Errc::busy, Detail::lock,
                "{}: its newest commits may be in {}, the common log of files that were committed together, and a "
                "process has that open; close the files there, or wait",
                path, volume.path_of(common->name_));
  }
  MEMLITH_TRY(status);
  MEMLITH_TRY(common->read(log_id, mark, !options.read_only));
  return common;
}

Status CommonLog::read(std::uint64_t log_id, const CommonMark& mark, bool writable) {
  if (log_->log_id() != mark.log_id) {
    return fail(Errc::corrupt, Detail::superblock, "{}: is another log than its name says", device_->path());
  }
  // ORDER decision-before-recovery: a frame that can be read may never have been flushed, or the flush may have failed;
  // what one file takes, a power cut must not take from the others. [mutant unproven_common_commits]
  const Status flushed = device_->flush();
  const bool no_flush_here = flushed.os_errno == EINVAL || flushed.os_errno == EROFS;
  if (writable || !no_flush_here) MEMLITH_TRY(flushed);
  MEMLITH_TRY(log_->recover([&](const Frame& frame) { return take(frame, log_id, mark); }));
  return writable ? log_->secure() : kOk;
}

Status CommonLog::take(const Frame& frame, std::uint64_t log_id, const CommonMark& mark) {
  for (std::span<const std::byte> rest = frame.payload; !rest.empty();) {
    Missing found;
    const bool whole = frame.kind == kFrameKindCommon && rest.size() >= sizeof found.record;
    if (whole) std::memcpy(&found.record, rest.data(), sizeof found.record);
    if (!whole || found.record.bytes > rest.size() - sizeof found.record) {
      return fail(Errc::corrupt, Detail::frame, "{}: the frame at LSN {} is invalid although its checksum is right",
                  device_->path(), frame.lsn.value);
    }
    const auto bytes = rest.subspan(sizeof found.record, found.record.bytes);
    rest = rest.subspan(sizeof found.record + bytes.size());
    if (found.record.kind == CommonRecord::kLeft) {
      members_.erase(found.record.log_id);
      continue;
    }
    members_.insert(found.record.log_id);
    if (found.record.kind != CommonRecord::kCommit || found.record.log_id != log_id) continue;
    if (found.record.number <= mark.number) continue;
    found.bytes.assign(bytes.begin(), bytes.end());
    missing_.push_back(std::move(found));
  }
  return kOk;
}

Status CommonLog::for_each_missing(const Visit& visit) const {
  for (const Missing& each : missing_) {
    std::vector<Extent> extents;
    std::vector<const std::byte*> sources;
    const std::uint64_t count = each.record.extent_count;
    std::uint64_t at = count * sizeof(ExtentRecord);
    for (std::uint64_t i = 0; i < count && at <= each.bytes.size(); ++i) {
      ExtentRecord record;
      std::memcpy(&record, each.bytes.data() + i * sizeof record, sizeof record);
      extents.push_back({ObjectId{record.object}, record.offset, record.bytes});
      sources.push_back(each.bytes.data() + at);
      at += record.bytes;
    }
    if (at != each.bytes.size()) {
      return fail(Errc::corrupt, Detail::frame, "{}: common commit {} is invalid although its checksum is right",
                  device_->path(), each.record.number);
    }
    const SizeChange resized{kFile, each.record.size_bytes};
    const std::size_t sizes = each.record.size_bytes != kSameSize ? 1 : 0;
    MEMLITH_TRY(visit(each.record.number, {extents, sources, {&resized, sizes}}));
  }
  return kOk;
}

std::uint64_t CommonLog::length() const {
  std::uint64_t bytes = 0;
  for (const Missing& each : missing_) {
    if (each.record.size_bytes != kSameSize) bytes = std::max(bytes, each.record.size_bytes);
  }
  return bytes;
}

Status CommonLog::has_recovered(std::uint64_t log_id) {
  members_.erase(log_id);
  if (members_.empty()) {
    const Status removed = remove();
    return removed.category == Errc::permission ? kOk : removed;
  }
  MEMLITH_TRY(log_->start(log_->tail(), client_bytes()));
  return append(CommonRecord::kLeft, {log_id});
}

}  // namespace memlith::core
