#include "store/view.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/mutant.hpp"
#include "store/stats.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kCopyBytes = 4 * kMiB;  // between two looks at the log
constexpr std::chrono::milliseconds kLookEvery{1};
constexpr int kPageReads = 100;

// What a writer that goes on, or ends, can make of what is read.
bool may_pass(const Status& status) { return status.category == Errc::corrupt || status.category == Errc::not_found; }
}  // namespace

void View::hide(const ShownObject& object) { std::erase(shown_, &object); }

Status View::move(ShownObject* added) {
  Status status = kOk;
  for (int tries = 0; tries < kTries; ++tries) {
    auto moved = try_to_move(added, copies_needed_);
    copies_needed_ = !moved.ok() || !*moved;
    if (!copies_needed_) {
      if (added != nullptr) shown_.push_back(added);
      return kOk;
    }
    replay_.forget();
    waiting_.clear();
    drop_copies(added);
    status = moved.status();
    if (!status.ok() && !may_pass(status)) return status;
  }
  if (!status.ok()) return status;
  return fail(Errc::busy, Detail::frame,
              "{}: process {} filled its log {} times over while the store was copied; try again, give the log more "
              "room (log_bytes), or open fewer regions",
              files_.path(), writer_, kTries);
}

Result<bool> View::try_to_move(ShownObject* added, bool anew) {
  files_.options.log.followed_to = position_.has_value() && !anew ? position_->lsn : Lsn{~std::uint64_t{0}};
  MEMLITH_TRY(look());
  MEMLITH_TRY_ASSIGN(writes_, look_at_writer());
  const LogPosition tail = files_.log->tail();
  if (!writes_ && added == nullptr && nothing_new()) return true;
  anew = anew || !position_.has_value() || !writes_ || (added != nullptr && position_->lsn < tail.lsn);
  at_ = anew || added != nullptr ? tail : *position_;
  if (anew) files_.counters.replayed_commits = files_.counters.replayed_bytes = 0;
  if (MEMLITH_MUTANT(view_copies_late)) {
    MEMLITH_TRY_ASSIGN(const bool followed, writes_ ? follow_writer() : follow_nobody());
    if (!followed) return false;
    MEMLITH_TRY(copy_homes(added, anew));
    MEMLITH_TRY(show_all(added, anew));
    return true;
  }
  // ORDER home-before-log: what a checkpoint writes home while it is copied must be in the frames that are read, so
  // those are read last. [mutant view_copies_late]
  MEMLITH_TRY(copy_homes(added, anew));
  MEMLITH_TRY_ASSIGN(const bool followed, writes_ ? follow_writer() : follow_nobody());
  if (!followed) return false;
  MEMLITH_TRY(show_all(added, anew));
  return true;
}

// ---- who writes ------------------------------------------------------------------------------------------------

Status View::look() {
  MEMLITH_TRY(opening_.look());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, files_.volume.identity_of(files_.names.log));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, files_.log_device->identity());
  if (log_id_ == 0) log_id_ = files_.log->log_id();
  if (named != own || files_.log->log_id() != log_id_) {
    return fail(Errc::not_found, Detail::open,
                "{}: the store was removed, or another has taken its place; close it and open what is there now",
                files_.path());
  }
  sequence_ = files_.log->superblock().sequence;
  return kOk;
}

// Whether the process that writes is alive, and how far it is.
Result<bool> View::look_at_writer() {
  writer_ = 0;
  for (int reads = 0; reads < kPageReads; ++reads) {
    const auto seen = SeenStats::look(files_.volume, files_.names.stats);
    // A writer that shows no page, or one of another version, is one whose commits are taken as they can be read.
    if (!seen.ok() || !seen->held() || (*seen)->incarnation != files_.log->superblock().incarnation) return false;
    const std::optional<std::uint64_t> durable = seen->durable_lsn();
    if (!durable.has_value()) continue;
    durable_ = std::max({durable_, Lsn{*durable}, Lsn{files_.log->superblock().head_lsn}});
    stalled_ = (*seen)->poisoned.load(std::memory_order_relaxed) != 0;
    writer_ = (*seen)->process;
    return true;
  }
  return fail(Errc::corrupt, Detail::open, "{}: its counters are damaged", files_.volume.path_of(files_.names.stats));
}

// No process writes to the store, and none has written since the view was made.
bool View::nothing_new() const {
  if (!position_.has_value() || settled_ != sequence_) return false;
  auto next = files_.log->follower(*position_).next();
  return next.ok() && !next->has_value();
}

Result<bool> View::superblock_is_the_same() {
  Superblocks now(*files_.log_device);
  MEMLITH_TRY(now.read());
  return now.current().sequence == sequence_;
}

// ---- copies ----------------------------------------------------------------------------------------------------

Status View::copy_homes(ShownObject* added, bool anew) {
  if (anew) {
    MEMLITH_TRY(directory_.look_at_home());
    StoreHeader header;
    std::memcpy(&header, files_.log->superblock().client, sizeof header);
    record_ = {header.file, header.own};
    directory_changes_.clear();
    for (ShownObject* const each : shown_) MEMLITH_TRY(copy_home(*each, writes_));
  }
  return added != nullptr ? copy_home(*added, writes_) : kOk;
}

Status View::copy_home(ShownObject& object, bool follows) {
  MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get(object.object()));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
  MEMLITH_TRY_ASSIGN(const std::span<std::byte> copy, object.begin_copy(size));
  for (std::uint64_t done = 0; done < copy.size();) {
    done = std::max(done, round_down(home->skip_hole(done), kPageBytes));
    if (done >= copy.size()) break;
    const std::uint64_t step = std::min<std::uint64_t>(kCopyBytes, copy.size() - done);
    MEMLITH_TRY(home->read(done, copy.subspan(done, step)));
    done += step;
    // The log is read along, so that only the time of one step counts against the writer's log.
    if (follows && done < copy.size() && !MEMLITH_MUTANT(view_copies_late)) MEMLITH_TRY(gather().status());
  }
  return kOk;
}

// ---- the log ---------------------------------------------------------------------------------------------------

Status View::gather_frame(const Frame& frame) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t commits, replay_.gather(frame));
  files_.counters.replayed_commits += commits;
  files_.counters.replayed_bytes += bytes_between(frame.lsn, frame.after.lsn);
  at_ = frame.after;
  return kOk;
}

Status View::gather_waiting() {
  std::size_t done = 0;
  for (; done < waiting_.size() && waiting_[done].frame.after.lsn <= durable_; ++done) {
    waiting_[done].frame.payload = waiting_[done].payload;
    MEMLITH_TRY(gather_frame(waiting_[done].frame));
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
  return kOk;
}

// Takes what is durable and can be read. False: the writer has ended.
Result<bool> View::gather() {
  MEMLITH_TRY_ASSIGN(const bool writes, look_at_writer());
  if (!writes) return false;
  waiting_.clear();
  LogReader reader = files_.log->follower(at_);
  for (;;) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame.has_value()) break;
    durable_ = std::max(durable_, frame->durable);
    MEMLITH_TRY(gather_waiting());
    if (frame->after.lsn <= durable_ || MEMLITH_MUTANT(view_believes_all)) {
      MEMLITH_TRY(gather_frame(*frame));
    } else {
      waiting_.push_back({*frame, {frame->payload.begin(), frame->payload.end()}});
    }
  }
  readable_ = reader.position().lsn;
  return true;
}

Result<bool> View::follow_writer() {
  const auto give_up = std::chrono::steady_clock::now() + files_.options.follow_patience;
  Lsn wanted;  // what was readable at first; the writer goes on meanwhile
  for (;;) {
    const LogPosition before = at_;
    MEMLITH_TRY_ASSIGN(const bool writes, gather());
    if (!writes) return false;
    if (at_.lsn < durable_) {
      // The log goes on in slots that it has taken since, or what is missing was overwritten.
      const std::uint64_t incarnation = files_.log->superblock().incarnation;
      files_.options.log.followed_to = at_.lsn;
      MEMLITH_TRY(look());
      if (files_.log->superblock().incarnation != incarnation) return false;
      MEMLITH_TRY_ASSIGN(const bool still, gather());
      if (!still || (at_.lsn < durable_ && at_ == before)) return false;
      if (at_.lsn < durable_) continue;
    }
    // What was acknowledged before this call is readable; the writer tells within moments that it is durable.
    if (wanted == Lsn{}) wanted = readable_;
    if (wanted <= at_.lsn || stalled_ || std::chrono::steady_clock::now() >= give_up) return true;
    std::this_thread::sleep_for(kLookEvery);
  }
}

Result<bool> View::follow_nobody() {
  MEMLITH_TRY(replay_.gather_blocks());
  MEMLITH_TRY(files_.log->recover([this](const Frame& frame) { return gather_frame(frame); }));
  at_ = files_.log->recovered();
  durable_ = at_.lsn;
  // ORDER flush-before-view: what a writer that was killed did not flush can be read, and lost in a power cut. [test
  // Follow.ShowsOnlyWhatAPowerCutKeeps]
  if (!files_.was_clean && !MEMLITH_MUTANT(view_of_unflushed_log)) {
    const Status flushed = files_.log_device->flush();
    const bool no_flush_here = flushed.os_errno == EINVAL || flushed.os_errno == EROFS;
    if (!no_flush_here) MEMLITH_TRY(flushed);
  }
  MEMLITH_TRY_ASSIGN(const bool same, superblock_is_the_same());
  if (same) settled_ = sequence_;
  return same;
}

// ---- showing ---------------------------------------------------------------------------------------------------

// What may fail comes before anything that is shown changes.
Status View::show_all(ShownObject* added, bool anew) {
  const bool moved = anew || added != nullptr || at_.lsn != position_->lsn;
  if (!moved) return kOk;
  const auto keep = [this](std::uint64_t offset, std::span<const std::byte> bytes) {
    return directory_changes_.apply(kDirectory, offset, bytes);
  };
  MEMLITH_TRY(replay_.overlay().for_each(kDirectory, keep));
  directory_.read_record(record_);
  MEMLITH_TRY(directory_.take_record(directory_changes_));
  if (directory_.record_at_home().own.marked != 0) {
    return fail(Errc::unsupported, Detail::open,
                "{}: a guarded file cannot be followed; open it when the program that writes to it has closed it",
                files_.path());
  }
  MEMLITH_TRY(directory_.load(directory_changes_));

  std::vector<ShownObject*> all = shown_;
  if (added != nullptr) all.push_back(added);
  std::vector<std::pair<ShownObject*, std::span<std::byte>>> changes;
  std::uint64_t bytes_shown = 0;
  for (ShownObject* const each : all) {
    const std::optional<ObjectInfo> info = directory_.find(each->object());
    if (!info.has_value()) {
      if (each == added) return fail(Errc::not_found, Detail::object, "{}: the region was removed", files_.path());
      each->drop_copy();  // it was removed, and stays as it was
      continue;
    }
    bytes_shown += info->size_bytes;
    if (files_.options.view_bytes_max != 0 && bytes_shown > files_.options.view_bytes_max) {
      return fail(Errc::no_memory, Detail::object,
                  "{}: a view of the regions takes {} bytes or more, and memory_max_bytes allows {}", files_.path(),
                  bytes_shown, files_.options.view_bytes_max);
    }
    MEMLITH_TRY_ASSIGN(const std::span<std::byte> bytes, each->begin_change(info->size_bytes));
    changes.emplace_back(each, bytes);
  }
  for (const auto& [object, bytes] : changes) {
    const std::span<std::byte> target = bytes;
    MEMLITH_TRY(replay_.overlay().for_each(object->object(),
                                           [&target](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
                                             if (offset >= target.size())
                                               return kOk;  // of a time when the object was longer
                                             std::memcpy(target.data() + offset, piece.data(),
                                                         std::min<std::uint64_t>(piece.size(), target.size() - offset));
                                             return kOk;
                                           }));
    MEMLITH_TRY(object->end_change());
  }
  bytes_shown_ = bytes_shown;
  position_ = at_;
  replay_.forget();
  return kOk;
}

void View::drop_copies(ShownObject* added) {
  for (ShownObject* const each : shown_) each->drop_copy();
  if (added != nullptr) added->drop_copy();
}

}  // namespace memlith::core
