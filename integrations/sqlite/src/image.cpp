#include "image.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/host.hpp"
#include "base/pages.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::fail_errno;
using core::kOk;
using core::kPageBytes;
using core::Status;

Image::~Image() {
  for (std::uint64_t i = 0; i < segments_; ++i) {
    const std::unique_ptr<Segment> gone(&whole_segment(i));
    ::munmap(gone->memory, kSegmentBytes);
  }
  for (auto& table : tables_) delete table.load(std::memory_order_relaxed);
}

Status Image::cover(std::uint64_t bytes) {
  const std::uint64_t wanted = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  if (wanted > 1024 * 1024) {
    return fail(Errc::no_space, Detail::mapping, "a database of {} bytes; at most {} can be mapped", bytes,
                1024 * 1024 * kSegmentBytes);
  }
  for (; segments_ < wanted; ++segments_) {
    auto& slot = tables_[segments_ / 1024];
    if (slot.load(std::memory_order_relaxed) == nullptr) slot.store(new Table{}, std::memory_order_release);
    // Maps also beyond the end of the file: those pages become accessible as the file grows.
    void* const memory = ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                                descriptor_, static_cast<off_t>(segments_ * kSegmentBytes));
    if (memory == MAP_FAILED) {
      return fail_errno(errno, Detail::mapping, "cannot map {} bytes of the database at offset {}", kSegmentBytes,
                        segments_ * kSegmentBytes);
    }
    // Not for a forked child: the mapping would keep the file open there, with its locks, and change with the parent's
    // checkpoints.
    (void)::madvise(memory, kSegmentBytes, MADV_DONTFORK);
    (*slot.load(std::memory_order_relaxed))[segments_ % 1024].store(new Segment{static_cast<std::byte*>(memory), {}},
                                                                    std::memory_order_release);
  }
  return kOk;
}

Status Image::load(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t end = bytes == 0 ? 0 : offset + bytes;
  for (std::uint64_t page = offset / kPageBytes; page * kPageBytes < end; ++page) {
    Segment& segment = whole_segment(page / kSegmentPages);
    const std::uint64_t inside = page % kSegmentPages;
    if ((segment.loaded[inside / 64].load(std::memory_order_relaxed) >> inside % 64 & 1) != 0) continue;
    if (!load_page(segment, inside)) {
      return fail_errno(errno, Detail::read,
                        "the page at offset {} of the database cannot be read; `dmesg` names the disk, and `memlith "
                        "verify` finds all such places",
                        page * kPageBytes);
    }
  }
  return kOk;
}

// With its neighbours, as the kernel's own read-ahead does; alone, if one of them cannot be read, or lies behind the
// end of the file.
bool Image::load_page(Segment& segment, std::uint64_t page) {
  for (const std::uint64_t pages : {std::uint64_t{16}, core::host_page_bytes() / kPageBytes}) {
    const std::uint64_t first = core::round_down(page, pages);
    if (core::load_pages(segment.memory + first * kPageBytes, pages * kPageBytes)) {
      segment.loaded[first / 64].fetch_or(((std::uint64_t{1} << pages) - 1) << first % 64, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

std::byte* Image::find(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0 || offset / kSegmentBytes != (offset + bytes - 1) / kSegmentBytes) return nullptr;
  return segment(offset / kSegmentBytes) + offset % kSegmentBytes;
}

void Image::read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  auto* to = static_cast<std::byte*>(target);
  for_each_piece(offset, bytes, [&](const std::byte* at, std::uint64_t, std::uint64_t step) {
    std::memcpy(to, at, step);
    to += step;
  });
}

void Image::write(std::uint64_t offset, const void* source, std::uint64_t bytes) {
  const auto* from = static_cast<const std::byte*>(source);
  for_each_piece(offset, bytes, [&](std::byte* at, std::uint64_t, std::uint64_t step) {
    std::memcpy(at, from, step);
    from += step;
  });
}

void Image::zero(std::uint64_t offset, std::uint64_t bytes) {
  for_each_piece(offset, bytes, [](std::byte* at, std::uint64_t, std::uint64_t step) { std::memset(at, 0, step); });
}

Status Image::own(std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t page = offset / kPageBytes; page * kPageBytes < offset + bytes; ++page) {
    if (owned_.size() <= page / 64) owned_.resize(page / 64 + 64);
    const std::uint64_t bit = std::uint64_t{1} << page % 64;
    if ((owned_[page / 64] & bit) != 0) continue;
    const std::uint64_t copied = core::host_page_bytes();
    std::byte* const at = find(core::round_down(page * kPageBytes, copied), copied);
    // Other threads may read and store meanwhile.
    if (::madvise(at, copied, MADV_POPULATE_WRITE) != 0) {
      if (errno != EINVAL) {
        return fail_errno(errno, Detail::mapping, "cannot copy the page at offset {} of the database",
                          page * kPageBytes);
      }
      // Before Linux 5.14: a store that changes nothing, in one step, because a checkpoint may be storing beside it.
      __atomic_fetch_or(reinterpret_cast<unsigned char*>(at), 0, __ATOMIC_RELAXED);
    }
    owned_[page / 64] |= bit;
  }
  return kOk;
}

void Image::note_cut(std::uint64_t bytes) {
  for (std::uint64_t page = (bytes + kPageBytes - 1) / kPageBytes; page < owned_.size() * 64; ++page) {
    owned_[page / 64] &= ~(std::uint64_t{1} << page % 64);
  }
  // The kernel drops its pages behind the end, and of the page with the end nothing.
  const std::uint64_t behind = core::round_up(bytes, kPageBytes);
  zero(behind, core::round_up(bytes, core::host_page_bytes()) - behind);
}

Status Image::release() {
  owned_.assign(owned_.size(), 0);
  for (std::uint64_t i = 0; i < segments_; ++i) {
    const std::uint64_t kept = i == 0 ? core::host_page_bytes() : 0;
    if (!core::drop_pages(segment(i) + kept, kSegmentBytes - kept)) {
      return fail_errno(errno, Detail::mapping, "cannot release memory of the database");
    }
  }
  return kOk;
}

}  // namespace memlith::sqlite
