#include "files/private_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.hpp"

namespace memlith::core {

Result<std::unique_ptr<PrivateMemory>> PrivateMemory::make(Store& store, const ObjectInfo& info) {
  auto memory = std::unique_ptr<PrivateMemory>(new PrivateMemory(store, info));
  MEMLITH_TRY(memory->mapping_.begin(std::min(info.size_bytes, info.reserve_bytes)));
  memory->length_ = info.size_bytes;
  MEMLITH_TRY(memory->attach());
  return memory;
}

Status PrivateMemory::attach() {
  const std::uint64_t bytes = mapping_.mapped_bytes();
  MEMLITH_ASSERT(tracker_ == nullptr);
  if (bytes == 0) return kOk;
  // ORDER copy-before-guard: the image has its own page before the file gets the in-use header there.
  // [mutant guarded_page_not_copied]
  if (guarded_) {
    std::array<std::byte, kInUseHeaderBytes> own{};
    MEMLITH_TRY(home_.read(0, std::span(own).first(std::min<std::uint64_t>(length_, own.size()))));
    MEMLITH_TRY(mapping_.load({0, own.size()}));
    std::memcpy(mapping_.base(), own.data(), own.size());
  }
  const auto map_home = [this](std::uint64_t begin, std::uint64_t end) { return mapping_.map_to_read(begin, end); };
  MEMLITH_TRY_ASSIGN(tracker_, attach_tracker(TrackerKind::scan,
                                              {.base = mapping_.base(),
                                               .bytes = bytes,
                                               .capacity_bytes = round_up(mapping_.reserve(), host_page_bytes()),
                                               .map_home = map_home,
                                               .sparse = true}));
  if (tracker_->kind() != TrackerKind::scan) return kOk;
  MEMLITH_TRY_ASSIGN(captured_, CapturedPages::make(mapping_.reserve()));
  return kOk;
}

Status PrivateMemory::read(std::uint64_t offset, std::span<std::byte> target) const {
  const std::uint64_t end = std::min(length_, mapping_.size());
  const std::uint64_t count = std::min<std::uint64_t>(target.size(), end - std::min(offset, end));
  std::memcpy(target.data(), mapping_.base() + offset, count);
  std::memset(target.data() + count, 0, target.size() - count);
  return kOk;
}

// ---- the length ------------------------------------------------------------------------------------------------

// Pages that are zeros already take no memory where the file has zeros. Elsewhere they must count as stored to: a
// release would show the file's bytes there.
Status PrivateMemory::clear(std::uint64_t begin, std::uint64_t end, std::uint64_t data_bytes) {
  if (begin < end) MEMLITH_TRY(mapping_.load({begin, end - begin}));
  while (begin < end) {
    const std::uint64_t until = std::min(round_down(begin, kPageBytes) + kPageBytes, end);
    std::byte* const place = mapping_.base() + begin;
    if (begin < data_bytes || !is_zero({place, until - begin})) std::memset(place, 0, until - begin);
    begin = until;
  }
  return kOk;
}

Status PrivateMemory::set_length(std::uint64_t bytes, std::uint64_t data_bytes) {
  if (bytes > length_) {
    MEMLITH_TRY(clear(length_, std::min(bytes, mapping_.mapped_bytes()), data_bytes));
    const std::uint64_t reach = std::min(bytes, mapping_.reserve());
    if (reach > mapping_.size()) {
      MEMLITH_TRY(mapping_.extend(reach));
      const std::uint64_t end = round_up(reach, host_page_bytes());
      if (tracker_ != nullptr && end > mapping_.mapped_bytes()) MEMLITH_TRY(tracker_->grow(end));
      mapping_.set_size(reach);
      if (tracker_ == nullptr) MEMLITH_TRY(attach());
    }
  }
  length_ = bytes;
  return kOk;
}

// ---- what was stored -------------------------------------------------------------------------------------------

Result<bool> PrivateMemory::collect(std::uint64_t, std::vector<Range>& stored) {
  if (tracker_ != nullptr) MEMLITH_TRY(tracker_->collect(kAllThreads, stored));
  return true;
}

void PrivateMemory::keep(Range part) {
  if (tracker_ != nullptr) tracker_->accept_part(part);
}

void PrivateMemory::give_back() {
  if (tracker_ != nullptr) tracker_->give_back();
}

void PrivateMemory::note_logged(Range logged, Lsn end) {
  if (captured_ == nullptr || logged.offset >= mapping_.size()) return;
  logged.bytes = std::min(logged.bytes, mapping_.size() - logged.offset);
  captured_->note(logged, end);
}

ReadTwin PrivateMemory::twin_reader(std::uint64_t committed_bytes) {
  if (captured_ == nullptr) return nullptr;
  return [this, whole_pages = committed_bytes / kPageBytes](std::uint64_t page, std::span<std::byte> target) {
    return page < whole_pages && captured_->is_home(page, home_.store().home_lsn()) &&
           home_.store().read_cached_home(kFile, page * kPageBytes, target);
  };
}

Status PrivateMemory::restore(Range range, const Tracker::ReadHome& read, bool at_home) {
  MEMLITH_ASSERT(range.bytes > 0 && tracker_ != nullptr && range.offset + range.bytes <= mapping_.mapped_bytes());
  if (guarded_ && range.offset < host_page_bytes()) {
    const std::uint64_t bytes = std::min(range.bytes, host_page_bytes() - range.offset);
    MEMLITH_TRY(tracker_->restore({range.offset, bytes}, read, false));
    range = {range.offset + bytes, range.bytes - bytes};
    if (range.bytes == 0) return kOk;
  }
  return tracker_->restore(range, read, at_home);
}

// ---- releases of memory ----------------------------------------------------------------------------------------

std::uint64_t PrivateMemory::copied_bytes() const {
  return tracker_ != nullptr && !guarded_ ? tracker_->pages_taken() * kPageBytes : 0;
}

Status PrivateMemory::release() {
  if (tracker_ == nullptr || guarded_) return kOk;
  if (captured_ != nullptr) captured_->clear();
  return tracker_->release_clean();
}

}  // namespace memlith::core
