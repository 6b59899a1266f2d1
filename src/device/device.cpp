#include "device/device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/units.hpp"
#include "device/volume.hpp"

namespace memlith::core {

Status cut_short(const std::string& path, std::uint64_t offset, std::uint64_t wanted, std::uint64_t got) {
  return fail(Errc::corrupt, Detail::read,
              "{}: expected {} bytes at offset {}, but the file ends after {} of them; it was cut short", path, wanted,
              offset, got);
}

Status Device::write_apart(std::span<const std::uint64_t> offsets, std::span<const iovec> pieces) {
  constexpr std::size_t kTogetherMin = 3;  // a call for each of fewer costs no more than reading and writing all
  const std::uint64_t begin = offsets.front();
  const std::uint64_t bytes = offsets.back() + pieces.back().iov_len - begin;
  MEMLITH_ASSERT(offsets.size() == pieces.size() && bytes <= kApartBytesMax);
  if (writes_whole_blocks() && pieces.size() >= kTogetherMin) {
    const std::unique_ptr<std::byte[]> content(new (std::nothrow) std::byte[bytes]);
    if (content != nullptr && read_cached(begin, {content.get(), bytes})) {
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        std::memcpy(content.get() + (offsets[i] - begin), pieces[i].iov_base, pieces[i].iov_len);
      }
      return write(begin, {content.get(), bytes});
    }
  }
  for (std::size_t from = 0; from < pieces.size();) {  // adjacent pieces by one write
    std::size_t to = from + 1;
    while (to < pieces.size() && offsets[to] == offsets[to - 1] + pieces[to - 1].iov_len) ++to;
    MEMLITH_TRY(write_pieces(offsets[from], pieces.subspan(from, to - from)));
    from = to;
  }
  return kOk;
}

Status Device::latch(Status status) {
  if (status.ok() || status.category == Errc::poisoned) return status;
  status.category = Errc::io;
  const LockGuard lock(latch_mutex_);
  if (why_.ok()) why_.keep(status);
  latched_.store(true, std::memory_order_release);
  return status;
}

Status Device::write_through(std::uint64_t offset, std::span<const iovec> pieces) {
  MEMLITH_TRY(check_latch());
  const Result<bool> done = do_write_through(offset, pieces);
  if (!done.ok()) return latch(done.status());
  if (*done) return kOk;
  MEMLITH_TRY(write_pieces(offset, pieces));
  return flush();
}

Status Device::do_discard(std::uint64_t offset, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(AlignedBuffer zeros, AlignedBuffer::allocate(std::min(bytes, kMiB)));
  std::memset(zeros.data(), 0, zeros.size());
  for (std::uint64_t done = 0; done < bytes; done += zeros.size()) {
    const iovec piece{zeros.data(), std::min<std::uint64_t>(zeros.size(), bytes - done)};
    MEMLITH_TRY(do_write(offset + done, {&piece, 1}));
  }
  return kOk;
}

Status Device::check_latch() const {
  if (!latched()) return kOk;
  const LockGuard lock(latch_mutex_);
  return fail(Errc::poisoned, Detail::write,
              "{}: an earlier write or flush failed, so nothing more is written; close and reopen to get back the last "
              "durable state. The failure was: {}",
              path_, why_.text());
}

namespace {

// One transfer at a time, done at once.
class SerialQueue final : public IoQueue {
 public:
  SerialQueue(Device& device, std::uint32_t depth) : device_(device), results_(depth) {}
  Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) override {
    MEMLITH_TRY(wait(number));
    results_[number] = device_.read(offset, target);
    return kOk;
  }
  Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) override {
    MEMLITH_TRY(wait(number));
    MEMLITH_TRY(device_.check_latch());
    results_[number] = device_.write(offset, source);
    return kOk;
  }
  Status wait(std::uint32_t number) override { return std::exchange(results_[number], kOk); }
  Status wait_all() override {
    Status first = kOk;
    for (Status& result : results_) {
      const Status status = std::exchange(result, kOk);
      if (first.ok()) first = status;
    }
    return first;
  }

 private:
  Device& device_;
  std::vector<Status> results_;
};

}  // namespace

// ---- copies -----------------------------------------------------------------------------------------------------

namespace {

bool all_zeros(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

Status write_to_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      return fail_errno(done < 0 && errno != ENOSPC ? errno : ENOMEM, Detail::mapping,
                        "no memory for a copy of {} bytes", bytes.size());
    }
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::uint64_t>(done));
  }
  return kOk;
}

Status write_pages_to_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::uint64_t begin = 0; begin < bytes.size();) {
    std::uint64_t end = begin;
    while (end < bytes.size() && !all_zeros(bytes.subspan(end, std::min(kPageBytes, bytes.size() - end)))) {
      end = std::min(end + kPageBytes, bytes.size());
    }
    if (end > begin) MEMLITH_TRY(write_to_memory(fd, offset + begin, bytes.subspan(begin, end - begin)));
    begin = end + kPageBytes;
  }
  return kOk;
}

Result<Descriptor> Device::copy_to_memory(std::uint64_t bytes) {
  MEMLITH_ASSERT(!direct());
  Descriptor copy(above_standard(::memfd_create("memlith-copy", MFD_CLOEXEC)));
  if (copy.get() < 0) return fail_errno(errno, Detail::mapping, "{}: cannot make a copy in memory", path_);
  if (::ftruncate(copy.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, Detail::mapping, "{}: cannot make a copy of {} bytes in memory", path_, bytes);
  }
  MEMLITH_TRY_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::allocate(1 * kMiB));
  for (std::uint64_t offset = 0; offset < bytes;) {
    offset = std::max(offset, round_down(skip_hole(offset), kPageBytes));
    if (offset >= bytes) break;
    const std::span<std::byte> piece = buffer.span().first(std::min(buffer.size(), bytes - offset));
    MEMLITH_TRY(read(offset, piece));
    MEMLITH_TRY(write_pages_to_memory(copy.get(), offset, piece));
    offset += piece.size();
  }
  return copy;
}

// ---- names ------------------------------------------------------------------------------------------------------

Status Volume::remove_own(std::string_view name, Device& device) {
  MEMLITH_TRY_ASSIGN(const FileIdentity own, device.identity());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> there, identity_of(name));
  return there == own ? remove(name) : kOk;
}

Result<std::unique_ptr<VolumeLock>> Volume::lock(std::string_view name, bool exclusive) {
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, open_file(name, false));
  return file->lock(exclusive);
}

Result<std::optional<DeviceUse>> Volume::device_use() { return std::optional<DeviceUse>(); }

// ---- notices ----------------------------------------------------------------------------------------------------

std::unique_ptr<Notice> Volume::make_notice(std::string_view, std::span<const std::byte>, Device*) { return nullptr; }

Result<SeenNotice> Volume::look_at_notice(std::string_view name, std::uint64_t) {
  return fail(Errc::not_found, Detail::open, "{}: this volume has no notices", path_of(name));
}

// ---- queues -----------------------------------------------------------------------------------------------------

std::unique_ptr<IoQueue> Device::make_queue(std::uint32_t depth) { return std::make_unique<SerialQueue>(*this, depth); }

}  // namespace memlith::core
