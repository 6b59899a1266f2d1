// Reading back what commits left in the log, beside commits and checkpoints. Floor: store.
#include <algorithm>

#include "store/logged_commit.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

// The part of a logged extent that lies in [begin, end).
Status put_part(const LoggedExtent& logged, std::uint64_t begin, std::uint64_t end, Overlay& found) {
  const ObjectId object = logged.place.object;
  MEMLITH_ASSERT(begin < end && begin >= logged.place.offset && end <= logged.place.offset + logged.place.bytes);
  if (!logged.is_discard) {
    return found.apply(object, begin, logged.bytes.subspan(begin - logged.place.offset, end - begin));
  }
  while (begin < end) {
    const std::uint64_t count = std::min(end - begin, kPageBytes - begin % kPageBytes);
    MEMLITH_TRY(found.apply(object, begin, Overlay::page_of_zeros().first(count)));
    begin += count;
  }
  return kOk;
}

Status put_wanted(const LoggedExtent& logged, std::span<const Extent> wanted, Overlay& found) {
  const Extent& place = logged.place;
  if (place.object != wanted.front().object) return kOk;
  const std::uint64_t place_end = place.offset + place.bytes;
  auto each = std::partition_point(wanted.begin(), wanted.end(),
                                   [&](const Extent& extent) { return extent.offset + extent.bytes <= place.offset; });
  for (; each != wanted.end() && each->offset < place_end; ++each) {
    MEMLITH_TRY(put_part(logged, std::max(place.offset, each->offset), std::min(place_end, each->offset + each->bytes),
                         found));
  }
  return kOk;
}

}  // namespace

Status Store::read_log(std::span<const Extent> wanted, Lsn end, Overlay& found) {
  MEMLITH_TRY(check_process());
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    MEMLITH_ASSERT(wanted[i].object == wanted[0].object);
    MEMLITH_ASSERT(wanted[i - 1].offset + wanted[i - 1].bytes <= wanted[i].offset);
  }
  // ORDER durable-before-read-back: what is in memory of the log only cannot be read from its file.
  // [test Rollbacks.ReadBackWhatIsNotDurableYet]
  MEMLITH_TRY(sync(end));
  const Log& log = *files_.log;
  std::vector<LoggedExtent> extents;
  for (;;) {
    found.clear();
    const LogPosition from = log.tail();
    LogReader reader = log.reader(from, log.durable_lsn());
    bool whole = true;
    while (whole && reader.position().lsn < end) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
      whole = frame.has_value();
      const bool has_commits = whole && frame->kind != kFrameKindTime;
      std::span<const std::byte> rest = has_commits ? frame->payload : std::span<const std::byte>();
      while (!rest.empty()) {
        MEMLITH_TRY(take_commit(log, *frame, rest, extents));
        for (const LoggedExtent& logged : extents) MEMLITH_TRY(put_wanted(logged, wanted, found));
      }
    }
    if (whole) return kOk;
    // A checkpoint that ended meanwhile has brought frames home, and their place was used again.
    if (log.tail() != from) continue;
    return fail(Errc::corrupt, Detail::frame, "{}: the log cannot be read back at LSN {}, which was durable: {}",
                files_.log_device->path(), reader.position().lsn.value, reader.why());
  }
}

}  // namespace memlith::core
