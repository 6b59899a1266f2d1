#include "store/replay.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "store/home_writer.hpp"

namespace memlith::core {

namespace {
constexpr std::size_t kExtentsKept = 64 * kKiB;  // room that stays; a large commit takes millions
}  // namespace

Result<std::uint64_t> Replay::gather(const Frame& frame) {
  if (frame.kind == kFrameKindTime) return std::uint64_t{0};
  std::span<const std::byte> rest = frame.payload;
  std::uint64_t commits = 0;
  do {
    MEMLITH_TRY(gather_commit(frame, rest));
    ++commits;
  } while (!rest.empty());
  return commits;
}

Status Replay::gather_commit(const Frame& frame, std::span<const std::byte>& rest) {
  MEMLITH_TRY(take_commit(*files_.log, frame, rest, extents_));
  for (const LoggedExtent& each : extents_) {
    const Extent& place = each.place;
    if (!each.is_discard) {
      MEMLITH_TRY(overlay_.apply(place.object, place.offset, each.bytes));
    } else {
      overlay_.apply_zeros(place.object, place.offset, place.bytes);
    }
  }
  return kOk;
}

Status Replay::add(const Changes& changes) {
  for (std::size_t i = 0; i < changes.extents.size(); ++i) {
    const Extent& extent = changes.extents[i];
    MEMLITH_TRY(overlay_.apply(extent.object, extent.offset, {changes.sources[i], extent.bytes}));
  }
  for (const SizeChange& change : changes.sizes) {
    const auto size = std::as_bytes(std::span(&change.size_bytes, 1));
    MEMLITH_TRY(overlay_.apply(kDirectory, offsetof(ObjectRecord, size_bytes), size));
  }
  return kOk;
}

Status Replay::check() {
  for (const ObjectId object : overlay_.objects()) {
    if (!directory_.has_home(object)) {
      MEMLITH_TRY(directory_.take_record(overlay_));
      continue;
    }
    MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get_if_there(object));
    std::uint64_t size = 0;
    if (device != nullptr) {
      MEMLITH_TRY_ASSIGN(size, device->size());
    }
    MEMLITH_TRY(overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
      if (offset + bytes.size() > size) unreachable_[object] = offset + bytes.size();
      return kOk;
    }));
  }
  return moment_.check(overlay_);
}

Status Replay::write_home(ReplayPace* pace) {
  const std::uint64_t pieces = std::max<std::uint64_t>(1, overlay_.piece_count());
  work_.piece = (work_.gathered - work_.home) / static_cast<double>(pieces);
  if (blocks_.in_use()) {
    // ORDER homes-before-blocks: home files that were written under the older blocks need them until they are flushed.
    // After that no home file is half written, and the older blocks may be overwritten. A torn blocks file is invalid
    // (its header has a checksum of the content), and is not needed then. [workload blocks-pieces]
    MEMLITH_TRY(flush_homes());
    MEMLITH_TRY(blocks_.keep(overlay_));
  }
  for (const ObjectId object : overlay_.objects()) MEMLITH_TRY(write_object(object, pace));
  overlay_.clear();
  if (extents_.capacity() > kExtentsKept) extents_ = {};
  blocks_.homes_are_written();
  return kOk;
}

void Replay::note_written(ObjectId object) {
  if (std::find(written_homes_.begin(), written_homes_.end(), object) == written_homes_.end()) {
    written_homes_.push_back(object);
  }
}

Status Replay::write_object(ObjectId object, ReplayPace* pace) {
  if (!directory_.has_home(object)) return directory_.take_record(overlay_);
  MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get_if_there(object));
  bool removed = device == nullptr;
  if (!removed) {
    MEMLITH_TRY_ASSIGN(removed, device->removed());
  }
  if (removed) {
    unreachable_.emplace(object, 0);
    return kOk;
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  // ORDER transfers-before-home: a program that was killed while it wrote home may still be writing. Bytes of its that
  // land behind a later checkpoint would put older ones back. [test BackgroundOn.ARecoveryWaitsForTheKilled]
  if (pace == nullptr && !directory_.home_has_the_lock()) MEMLITH_TRY(device->wait_for_transfers());
  note_written(object);
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<DirectHome> direct, direct_home(object, *device, pace));
  BufferedHome buffered(*device, pace != nullptr ? pace->write_bytes_max() : ReplayPace::kWriteBytesMax,
                        !directory_.homes_may_shrink(), files_.counters.home_bytes,
                        [&](std::uint64_t page_bytes) { return written(object, page_bytes, pace); });
  const auto overwrite = [&buffered](std::uint64_t offset, std::uint64_t bytes) -> Status {
    const std::span<const std::byte> zeros = Overlay::page_of_zeros();
    for (std::uint64_t done = 0; done < bytes; done += zeros.size()) MEMLITH_TRY(buffered.put(offset + done, zeros));
    return kOk;
  };
  Extent discarded{object, 0, 0};  // pages behind each other
  const auto discard = [&]() -> Status {
    const Extent pages = std::exchange(discarded, {object, 0, 0});
    return pages.bytes == 0 ? kOk : files_.vacant.discard(object, *device, pages.offset, pages.bytes, overwrite);
  };
  MEMLITH_TRY(overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (Overlay::is_page_of_zeros(bytes) && offset + bytes.size() <= size) {
      if (offset != discarded.offset + discarded.bytes) MEMLITH_TRY(discard());
      if (discarded.bytes == 0) discarded.offset = offset;
      discarded.bytes += bytes.size();
      work_.home += work_.piece;
      return kOk;
    }
    MEMLITH_TRY(discard());
    if (offset + bytes.size() > size) {
      unreachable_.emplace(object, offset + bytes.size());  // the directory decides whether it matters
      // A user's file may shrink later in the log, and an earlier recovery may have cut it; the remaining bytes count.
      if (!directory_.homes_may_shrink() || offset >= size) return kOk;
      bytes = bytes.first(size - offset);
    }
    MEMLITH_ASSERT(offset + bytes.size() <= size);  // replay makes no home longer
    work_.home += work_.piece;
    if (direct == nullptr || !DirectHome::takes(offset, bytes.size())) return buffered.put(offset, bytes);
    files_.counters.home_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
    return direct->put(offset, bytes);
  }));
  MEMLITH_TRY(discard());
  if (direct != nullptr) MEMLITH_TRY(direct->finish());
  MEMLITH_TRY(buffered.finish());
  return files_.sums.note(object, *device, overlay_);
}

// At opening the home file is not mapped, so it may be written past the page cache. That pays if there is much to
// write.
Result<std::unique_ptr<DirectHome>> Replay::direct_home(ObjectId object, Device& device, const ReplayPace* pace) {
  const bool pays = overlay_.bytes_held() >= files_.options.direct_replay_bytes_min;
  if (pace != nullptr || !files_.options.direct_io || !pays) return std::unique_ptr<DirectHome>();
  return DirectHome::open(files_.volume, files_.names.home(object), device);
}

// A commit's flush waits for everything that the device holds: a checkpoint keeps its writes short, and slow as long as
// no thread waits for the checkpoint.
Status Replay::written(ObjectId object, std::uint64_t page_bytes, ReplayPace* pace) {
  home_bytes_unflushed_ += page_bytes;
  if (pace == nullptr || home_bytes_unflushed_ < pace->step_bytes(work_.home)) return kOk;
  MEMLITH_TRY(flush_homes());
  note_written(object);  // there may be more of it
  pace->pause();
  return kOk;
}

Status Replay::flush_homes() {
  for (const ObjectId object : written_homes_) {
    MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(object));
    MEMLITH_TRY(device->flush());
  }
  written_homes_.clear();
  home_bytes_unflushed_ = 0;
  return kOk;
}

void Replay::assert_at_rest() const {
  MEMLITH_ASSERT(overlay_.piece_count() == 0);
  MEMLITH_ASSERT(unreachable_.empty());
  MEMLITH_ASSERT(files_.sums.all_flushed());
  MEMLITH_ASSERT(written_homes_.empty() && home_bytes_unflushed_ == 0);
}

}  // namespace memlith::core
