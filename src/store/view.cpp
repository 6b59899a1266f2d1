#include "store/view.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace memlith::core {

namespace {
constexpr std::uint64_t kCopyBytes = 4 * kMiB;  // between two looks at the log
}  // namespace

void View::hide(const ShownObject& object) { std::erase(shown_, &object); }

Status View::move(ShownObject* added) {
  const auto patience_ends = std::chrono::steady_clock::now() + files_.options.follow_patience;
  Status status = kOk;
  for (int tries = 1;; ++tries) {
    auto moved = try_to_move(added, copies_needed_);
    copies_needed_ = !moved.ok() || !*moved;
    if (!copies_needed_) {
      MEMLITH_ASSERT(std::ranges::find(shown_, added) == shown_.end());
      if (added != nullptr) shown_.push_back(added);
      return kOk;
    }
    replay_.forget();
    follower_.forget();
    drop_copies(added);
    status = moved.status();
    if (!status.ok() && !Follower::may_pass(status)) return status;
    if (tries < Follower::kTries) continue;
    // A process that opens the store writes superblocks and moves frames meanwhile, on a busy machine for longer than
    // six tries take.
    if (std::chrono::steady_clock::now() >= patience_ends) break;
    std::this_thread::sleep_for(Follower::kAskEvery);
  }
  if (!status.ok()) return status;
  return fail(Errc::busy, Detail::frame,
              "{}: each time that the store was copied, a process opened or closed it, or filled its log; try again, "
              "give the log more room (log_bytes), or open fewer regions",
              files_.path());
}

Result<bool> View::try_to_move(ShownObject* added, bool anew) {
  MEMLITH_TRY(follower_.look(position_.has_value() && !anew ? position_->lsn : Lsn{~std::uint64_t{0}}));
  const bool writes = follower_.writes();
  const LogPosition tail = files_.log->tail();
  if (!writes && added == nullptr && position_.has_value() && follower_.nothing_new(*position_)) return true;
  const bool changed = position_.has_value() && position_->lsn == tail.lsn && *position_ != tail;  // while closed
  anew = anew || changed || !position_.has_value() || !writes || (added != nullptr && position_->lsn < tail.lsn);
  follower_.start_at(anew || added != nullptr ? tail : *position_);
  if (anew) files_.counters.replayed_commits = files_.counters.replayed_bytes = 0;
  // ORDER home-before-log: what a checkpoint writes home while it is copied must be in the frames that are read, so
  // those are read last. [mutant view_copies_late]
  MEMLITH_TRY(copy_homes(added, anew));
  MEMLITH_TRY_ASSIGN(const bool followed, follower_.finish());
  if (!followed) return false;
  MEMLITH_TRY(show_all(added, anew));
  return true;
}

// ---- copies ----------------------------------------------------------------------------------------------------

Status View::copy_homes(ShownObject* added, bool anew) {
  if (anew) {
    MEMLITH_TRY(directory_.look_at_home());
    StoreHeader header;
    std::memcpy(&header, files_.log->superblock().client, sizeof header);
    record_ = {header.file, header.own, header.common, header.recoveries};
    directory_changes_.clear();
    for (ShownObject* const each : shown_) MEMLITH_TRY(copy_home(*each));
  }
  return added != nullptr ? copy_home(*added) : kOk;
}

Status View::copy_home(ShownObject& object) {
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
    if (follower_.writes() && done < copy.size()) MEMLITH_TRY(follower_.gather().status());
  }
  return kOk;
}

// ---- showing ---------------------------------------------------------------------------------------------------

// Steps that may fail come before any change that is shown.
Status View::show_all(ShownObject* added, bool anew) {
  const bool moved = anew || added != nullptr || follower_.at().lsn != position_->lsn;
  if (!moved) return kOk;
  MEMLITH_ASSERT(anew || position_->lsn <= follower_.at().lsn);  // a view goes back only to be made anew
  const auto keep = [this](std::uint64_t offset, std::span<const std::byte> bytes) {
    return directory_changes_.apply(kDirectory, offset, bytes);
  };
  MEMLITH_TRY(replay_.overlay().for_each(kDirectory, keep));
  directory_.read_record(record_);
  MEMLITH_TRY(directory_.take_record(directory_changes_));
  if (directory_.record_at_home().own.marked == InUse::guard) {
    return fail(Errc::unsupported, Detail::open,
                "{}: a guarded file cannot be followed; open it when the program that writes to it has closed it",
                files_.path());
  }
  if (!follower_.writes()) MEMLITH_TRY(directory_.check_has_all_commits());
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
                  "{}: a view of the regions takes {} bytes or more, and may have {} (memory_max_bytes, or what the "
                  "process may have)",
                  files_.path(), bytes_shown, files_.options.view_bytes_max);
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
  position_ = follower_.at();
  replay_.forget();
  return kOk;
}

void View::drop_copies(ShownObject* added) {
  for (ShownObject* const each : shown_) each->drop_copy();
  if (added != nullptr) added->drop_copy();
}

}  // namespace memlith::core
