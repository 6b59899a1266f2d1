#include "device/nvme_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.hpp"
#include "base/units.hpp"

namespace memlith::core {

template <class Act>
Status NvmePages::each_part(std::uint64_t begin, std::uint64_t end, const Act& act) {
  auto part = there_.upper_bound(begin);
  if (part != there_.begin()) --part;
  for (; part != there_.end() && part->first < end; ++part) {
    const std::uint64_t from = std::max(begin, part->first);
    const std::uint64_t to = std::min(end, part->second);
    if (from < to) MEMLITH_TRY(act(from, to));
  }
  return kOk;
}

Status NvmePages::open() {
  if (file_.get() >= 0) return kOk;
  Descriptor made(above_standard(::memfd_create("memlith-nvme", MFD_CLOEXEC)));
  if (made.get() < 0) return fail_errno(errno, Detail::mapping, "{}: no memory to map", path_);
  file_ = std::move(made);
  return kOk;
}

void NvmePages::note(std::uint64_t begin, std::uint64_t end) {
  auto next = there_.lower_bound(begin);
  if (next != there_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= begin) {
      begin = before->first;
      end = std::max(end, before->second);
      next = there_.erase(before);
    }
  }
  while (next != there_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = there_.erase(next);
  }
  there_[begin] = end;
}

// The lock is held while the piece is read, so that a write is either read, or comes behind it in wrote().
Status NvmePages::fill(std::uint64_t offset, std::span<std::byte> piece, const Read& read) {
  struct stat info{};
  const std::uint64_t end = offset + piece.size();
  if (::fstat(file_.get(), &info) != 0 ||
      (static_cast<std::uint64_t>(info.st_size) < end && ::ftruncate(file_.get(), static_cast<off_t>(end)) != 0)) {
    return fail_errno(errno, Detail::mapping, "{}: cannot make room in memory for {} bytes", path_, piece.size());
  }
  MEMLITH_TRY(read(offset, piece));
  const Status status = write_pages_to_memory(file_.get(), offset, piece);
  if (status.ok()) {
    note(offset, end);
  } else {
    // Bytes that do not count as present are zeros.
    (void)::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                      static_cast<off_t>(piece.size()));
  }
  return status;
}

Result<Mappable> NvmePages::map(std::uint64_t offset, std::uint64_t bytes, const Read& read) {
  MEMLITH_ASSERT(offset % kPageBytes == 0);
  const std::uint64_t end = round_up(offset + bytes, kPageBytes);
  AlignedBuffer buffer;
  int file = -1;
  for (std::uint64_t at = offset; at < end || file < 0;) {
    const LockGuard lock(mutex_);  // writes go on between two pieces
    MEMLITH_TRY(open());
    file = file_.get();
    const auto next = there_.upper_bound(at);
    const auto here = next == there_.begin() ? there_.end() : std::prev(next);
    if (here != there_.end() && here->second > at) {
      at = here->second;
      continue;
    }
    if (at >= end) break;
    if (buffer.size() == 0) {
      MEMLITH_TRY_ASSIGN(buffer, AlignedBuffer::allocate(std::min(end - at, 1 * kMiB)));
    }
    const std::uint64_t to = next == there_.end() ? end : std::min(end, next->first);
    const std::span<std::byte> piece = buffer.span().first(std::min(buffer.size(), to - at));
    MEMLITH_TRY(fill(at, piece, read));
    at += piece.size();
  }
  return Mappable{file, offset, bytes};
}

Status NvmePages::wrote(std::uint64_t offset, std::span<const iovec> pieces) {
  const LockGuard lock(mutex_);
  for (const iovec& piece : pieces) {
    const auto* const source = static_cast<const std::byte*>(piece.iov_base);
    MEMLITH_TRY(each_part(offset, offset + piece.iov_len,
                          [&](std::uint64_t from, std::uint64_t to) MEMLITH_REQUIRES(mutex_) {
                            return write_to_memory(file_.get(), from, {source + (from - offset), to - from});
                          }));
    offset += piece.iov_len;
  }
  return kOk;
}

Status NvmePages::zeroed(std::uint64_t offset, std::uint64_t bytes) {
  const LockGuard lock(mutex_);
  return each_part(offset, offset + bytes,
                   [&](std::uint64_t from, std::uint64_t to) MEMLITH_REQUIRES(mutex_) -> Status {
                     if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                                     static_cast<off_t>(to - from)) == 0) {
                       return kOk;
                     }
                     return fail_errno(errno, Detail::mapping, "{}: cannot clear {} bytes in memory", path_, to - from);
                   });
}

bool NvmePages::take(std::uint64_t offset, std::span<std::byte> target) {
  const LockGuard lock(mutex_);
  const auto next = there_.upper_bound(offset);
  if (next == there_.begin() || std::prev(next)->second < offset + target.size()) return false;
  for (std::uint64_t done = 0; done < target.size();) {
    const ssize_t got =
        ::pread(file_.get(), target.data() + done, target.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace memlith::core
