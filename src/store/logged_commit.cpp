#include "store/logged_commit.hpp"

#include <cstring>

#include "store/format.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kOffsetMax = 1ull << 62;

Status bad_commit(const Log& log, const Frame& frame, const char* what) {
  return fail(Errc::corrupt, Detail::frame, "{}: the commit at LSN {} is invalid although its checksum is right: {}",
              log.device().path(), frame.lsn.value, what);
}

// The fault of a discard, if there is one.
const char* fault_of_discard(const LoggedExtent& extent) {
  if (extent.place.offset > kOffsetMax) return "a discard lies beyond all files";
  const bool whole_pages = extent.place.offset % kPageBytes == 0 && extent.place.bytes % kPageBytes == 0;
  return whole_pages && extent.place.object != kDirectory ? nullptr : "a discard is not of whole pages of a region";
}

}  // namespace

Status take_commit(const Log& log, const Frame& frame, std::span<const std::byte>& rest,
                   std::vector<LoggedExtent>& extents) {
  extents.clear();
  if (frame.kind != kFrameKindCommit) return bad_commit(log, frame, "unknown kind");
  CommitHeader header;
  if (rest.size() < sizeof header) return bad_commit(log, frame, "too short");
  std::memcpy(&header, rest.data(), sizeof header);
  rest = rest.subspan(sizeof header);
  if (header.extent_count > rest.size() / sizeof(ExtentRecord)) return bad_commit(log, frame, "too many extents");
  std::span<const std::byte> records = rest.first(header.extent_count * sizeof(ExtentRecord));
  rest = rest.subspan(records.size());
  for (; !records.empty(); records = records.subspan(sizeof(ExtentRecord))) {
    ExtentRecord record;
    std::memcpy(&record, records.data(), sizeof record);
    LoggedExtent extent;
    extent.is_discard = (record.offset & kDiscardBit) != 0;
    extent.place = {ObjectId{record.object}, record.offset & ~kDiscardBit, record.bytes};
    if (extent.is_discard) {
      if (const char* const fault = fault_of_discard(extent)) return bad_commit(log, frame, fault);
    } else {
      if (record.bytes > rest.size()) return bad_commit(log, frame, "its extents hold more bytes than it has");
      if (record.offset > kOffsetMax) return bad_commit(log, frame, "an extent lies beyond all files");
      extent.bytes = rest.first(record.bytes);
      rest = rest.subspan(record.bytes);
    }
    extents.push_back(extent);
  }
  MEMLITH_ASSERT(extents.size() == header.extent_count);
  return kOk;
}

}  // namespace memlith::core
