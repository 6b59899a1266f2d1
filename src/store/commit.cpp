// Commits of a store: one frame of the log each.
#include <algorithm>
#include <vector>

#include "store/common_log.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

std::uint64_t captured_bytes(std::span<const Extent> extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

std::uint64_t captured_pages(std::span<const Extent> extents) {
  std::uint64_t pages = 0;
  ObjectId object = kDirectory;
  std::uint64_t uncounted = 0;  // its first page that is not counted yet
  for (const Extent& extent : extents) {
    const std::uint64_t begin = extent.offset / kPageBytes;
    const std::uint64_t end = (extent.offset + extent.bytes - 1) / kPageBytes + 1;
    // The extents of a region come in order; several may lie in one page.
    pages += end - (extent.object == object && begin + 1 == uncounted ? uncounted : begin);
    object = extent.object;
    uncounted = end;
  }
  return pages;
}

}  // namespace

void Store::count_capture(std::span<const Extent> extents) {
  StoreCounters& counters = files_.counters;
  const std::uint64_t pages = captured_pages(extents);
  counters.captured_bytes.fetch_add(captured_bytes(extents), std::memory_order_relaxed);
  counters.captured_pages.fetch_add(pages, std::memory_order_relaxed);
  counters.last_captured_pages.store(pages, std::memory_order_relaxed);
}

// Writes everything except the bytes of the extents, which follow.
void Store::put_commit_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes) {
  count_capture(extents);
  directory_->put_header(writer, extents, sizes);
}

Result<FrameWriter> Store::begin_commit(std::span<const Extent> extents, std::span<const SizeChange> sizes,
                                        bool will_sync) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(files_.vacant.fill(extents, files_.homes));
  MEMLITH_TRY_ASSIGN(FrameWriter writer,
                     files_.log->begin(directory_->commit_bytes(extents, sizes), kFrameKindCommit, will_sync));
  put_commit_header(writer, extents, sizes);
  return writer;
}

Result<Lsn> Store::put_bytes(FrameWriter& writer, const Changes& changes) {
  const std::size_t count = changes.extents.size();
  MEMLITH_ASSERT(changes.sources.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t ahead = std::min(i + 1, count - 1);
    writer.put(changes.sources[i], changes.extents[i].bytes, {changes.sources[ahead], changes.extents[ahead].bytes});
  }
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  wake_checkpointer(end);
  return end;
}

Result<Lsn> Store::commit_weak(const Changes& changes, bool will_sync) {
  MEMLITH_TRY_ASSIGN(FrameWriter writer, begin_commit(changes.extents, changes.sizes, will_sync));
  return put_bytes(writer, changes);
}

Result<std::optional<Lsn>> Store::commit_weak_at_once(const Changes& changes, bool will_sync) {
  MEMLITH_TRY(check_process());
  const auto sizes = changes.sizes;
  MEMLITH_TRY(files_.vacant.fill(changes.extents, files_.homes));
  MEMLITH_TRY_ASSIGN(std::optional<FrameWriter> writer,
                     files_.log->begin_at_once(directory_->commit_bytes(changes.extents, sizes), kFrameKindCommit,
                                               will_sync));
  if (!writer.has_value()) return std::optional<Lsn>();
  put_commit_header(*writer, changes.extents, sizes);
  MEMLITH_TRY_ASSIGN(const Lsn end, put_bytes(*writer, changes));
  return std::optional(end);
}

Status Store::commit(const Changes& changes) {
  MEMLITH_TRY_ASSIGN(const Lsn end, commit_weak(changes, true));
  return sync(end);
}

// ORDER vacant-before-frame: a commit behind the discard must find the pages vacant and reserve their space. Otherwise
// the checkpoint between the two gives the space away. [test Discard.SpaceIsReservedBeforeACommitIntoIt]
Result<Lsn> Store::discard(const Extent& pages) {
  MEMLITH_TRY(check_process());
  MEMLITH_ASSERT(pages.bytes < (std::uint64_t{1} << 32) && (pages.offset & kDiscardBit) == 0);
  MEMLITH_ASSERT(pages.object != kDirectory && pages.offset % kPageBytes == 0 && pages.bytes % kPageBytes == 0);
  files_.vacant.add(pages);
  const CommitHeader header{1, 0};
  const ExtentRecord record{pages.object.value, static_cast<std::uint32_t>(pages.bytes), pages.offset | kDiscardBit};
  MEMLITH_TRY_ASSIGN(FrameWriter writer, files_.log->begin(sizeof header + sizeof record, kFrameKindCommit));
  writer.put(&header, sizeof header);
  writer.put(&record, sizeof record);
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  wake_checkpointer(end);
  return end;
}

Status Store::make_room(const Changes& changes, bool will_sync) {
  return files_.log->make_room(directory_->commit_bytes(changes.extents, changes.sizes), kFrameKindCommit, will_sync);
}

Status Store::make_room_for(std::uint64_t bytes, bool will_sync) {
  MEMLITH_TRY(check_process());
  return files_.log->make_room(bytes + kPageBytes, kFrameKindCommit, will_sync);
}

Status Store::prepare_commit(const Changes& changes) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(files_.vacant.fill(changes.extents, files_.homes));
  return make_room(changes, false);
}

// Common commits that the file's own log lacks go there, as commits of the file.
Status Store::take_common_commits() {
  const std::uint64_t log_id = files_.log->log_id();
  const auto common = std::move(files_.common);
  CommonMark mark = directory_->record_at_home().common;
  const auto* const source = reinterpret_cast<const std::byte*>(&mark);
  const auto take = [&](std::uint64_t number, const Changes& changes) -> Status {
    for (const SizeChange& change : changes.sizes) MEMLITH_TRY(reserve_home(change.object, change.size_bytes));
    std::vector<Extent> extents(changes.extents.begin(), changes.extents.end());
    std::vector<const std::byte*> sources(changes.sources.begin(), changes.sources.end());
    mark.number = number;
    extents.push_back(kCommonMarkExtent);
    sources.push_back(source);
    return commit_weak({extents, sources, changes.sizes}, false).status();
  };
  if (common != nullptr) MEMLITH_TRY(common->for_each_missing(take));
  mark = {};
  MEMLITH_TRY(commit({{&kCommonMarkExtent, 1}, {&source, 1}, {}}));
  // ORDER parts-before-removal: the file needs the common log until its own has everything. [mutant
  // common_log_left_early]
  if (common != nullptr) MEMLITH_TRY(common->has_recovered(log_id));
  MEMLITH_TRY(checkpoint());  // what an opening finds is home
  // A commit on the way may have been longer than the last one.
  return cut_home_to_size();
}

Status Store::failure() const {
  if (!files_.log->poisoned()) return kOk;
  MEMLITH_TRY(check_process());
  return files_.log->failure();
}

}  // namespace memlith::core
