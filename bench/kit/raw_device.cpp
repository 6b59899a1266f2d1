// The raw baseline: huge buffers, preallocated files, and timed rounds of write + flush.
#include "raw_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "memlith/memlith.h"
#include "random.hpp"

namespace memlith::tool {

namespace {
constexpr std::uint64_t kHugePageBytes = 2 * kMiB;
constexpr std::uint64_t kContentSeed = 0x6d656d6c69746821;
constexpr std::uint64_t kRoundsBeforeWrap = 4;  // a round never rewrites what the last one wrote
}  // namespace

// ---- HugeBuffer ------------------------------------------------------------------------------------------------

HugeBuffer::HugeBuffer(void* mapping, std::uint64_t mapping_bytes, std::uint64_t bytes)
    : mapping_(mapping),
      mapping_bytes_(mapping_bytes),
      data_(reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(mapping), kHugePageBytes))),
      bytes_(bytes) {}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      bytes_(other.bytes_) {}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

Result<HugeBuffer> HugeBuffer::allocate(std::uint64_t bytes) {
  bytes = round_up(std::max<std::uint64_t>(bytes, 1), kHugePageBytes);
  const std::uint64_t mapping_bytes = bytes + kHugePageBytes;
  void* const mapping = ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return errno_failure(errno, fmt::format("no memory for a buffer of {} bytes", bytes));
  HugeBuffer buffer(mapping, mapping_bytes, bytes);
  // Before the first touch, which is what allocates. Where the kernel has no huge pages, small ones do.
  (void)::madvise(buffer.data_, bytes, MADV_HUGEPAGE);
  return buffer;
}

Result<HugeBuffer> HugeBuffer::random(std::uint64_t bytes) {
  Result<HugeBuffer> buffer = allocate(bytes);
  if (buffer.ok()) Random(kContentSeed).fill(buffer->span());
  return buffer;
}

Result<HugeBuffer> HugeBuffer::zeros(std::uint64_t bytes) {
  Result<HugeBuffer> buffer = allocate(bytes);
  if (buffer.ok()) std::memset(buffer->data(), 0, buffer->span().size());
  return buffer;
}

// ---- RawFile ---------------------------------------------------------------------------------------------------

RawFile::RawFile(RawFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      alignment_(other.alignment_),
      direct_(other.direct_) {}

RawFile::~RawFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MaybeFailure RawFile::write(std::uint64_t offset, std::span<const std::byte> source) const {
  while (!source.empty()) {
    const ssize_t written = ::pwrite(descriptor_, source.data(), source.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_failure(errno, fmt::format("cannot write to {}", path_));
    if (written == 0) return tool_failure(MEMLITH_IO, fmt::format("{} took no more bytes at {}", path_, offset));
    source = source.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

MaybeFailure RawFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const ssize_t done = ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return errno_failure(done == 0 ? EIO : errno, fmt::format("cannot read {}", path_));
    offset += static_cast<std::uint64_t>(done);
    target = target.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

MaybeFailure RawFile::flush() const {
  if (::fdatasync(descriptor_) == 0) return {};
  return errno_failure(errno, fmt::format("cannot flush {}", path_));
}

MaybeFailure RawFile::leave_direct_io() {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) != 0) {
    return errno_failure(errno, fmt::format("cannot leave direct I/O on {}", path_));
  }
  direct_ = false;
  alignment_ = 512;
  return {};
}

// Only a transfer shows what the kernel accepts: every query is newer than the oldest supported kernel.
MaybeFailure RawFile::choose_alignment(std::span<const std::byte> zeros) {
  if (!direct_) return {};
  for (const std::uint64_t candidate : {std::uint64_t{512}, std::uint64_t{4096}}) {
    if (::pwrite(descriptor_, zeros.data(), candidate, 0) == static_cast<ssize_t>(candidate)) {
      alignment_ = candidate;
      return {};
    }
    if (errno != EINVAL) return errno_failure(errno, fmt::format("cannot write to {}", path_));
  }
  return leave_direct_io();
}

MaybeFailure RawFile::preallocate(std::span<const std::byte> zeros) {
  // One allocation for the whole file keeps it in few extents; where it is not supported the writes allocate.
  const int allocated = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(size_));
  if (allocated == ENOSPC) return errno_failure(allocated, fmt::format("cannot reserve {} bytes for {}", size_, path_));
  for (std::uint64_t offset = 0; offset < size_; offset += zeros.size()) {
    if (interrupted()) return interrupted_failure();
    const std::uint64_t count = std::min<std::uint64_t>(zeros.size(), size_ - offset);
    if (MaybeFailure failure = write(offset, zeros.first(count))) return failure;
  }
  if (::fsync(descriptor_) != 0) return errno_failure(errno, fmt::format("cannot flush {}", path_));
  // The file's name too, so that no flush of a measured round has it left to write.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int folder_descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) return errno_failure(errno, fmt::format("cannot open {}", folder));
  const int failed = ::fsync(folder_descriptor) != 0 ? errno : 0;
  ::close(folder_descriptor);
  if (failed != 0) return errno_failure(failed, fmt::format("cannot flush {}", folder));
  return {};
}

Result<RawFile> RawFile::create(const std::string& path, std::uint64_t bytes) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  int descriptor = ::open(path.c_str(), kFlags | O_EXCL | O_DIRECT, 0600);
  // A file system without direct I/O may leave the new file behind when it refuses; hence no O_EXCL here.
  const bool buffered = descriptor < 0 && errno == EINVAL;
  if (buffered) descriptor = ::open(path.c_str(), kFlags, 0600);
  if (descriptor < 0) return errno_failure(errno, fmt::format("cannot create {}", path));
  RawFile file(path, descriptor);
  file.direct_ = !buffered;
  file.size_ = round_up(bytes, kMiB);
  Result<HugeBuffer> zeros = HugeBuffer::zeros(kHugePageBytes);
  if (!zeros.ok()) return std::move(zeros.failure());
  if (MaybeFailure failure = file.choose_alignment(zeros->span())) return *failure;
  if (MaybeFailure failure = file.preallocate(zeros->span())) return *failure;
  return file;
}

// ---- timed writing ---------------------------------------------------------------------------------------------

Result<RawWriter> RawWriter::create(const std::string& path, std::uint64_t file_bytes, std::uint64_t round_bytes_max) {
  // 4096 more, because a round may be rounded up to the alignment.
  const std::uint64_t round_room = round_bytes_max + 4096;
  Result<RawFile> file = RawFile::create(path, std::max(file_bytes, kRoundsBeforeWrap * round_room));
  if (!file.ok()) return std::move(file.failure());
  Result<HugeBuffer> source = HugeBuffer::random(round_room);
  if (!source.ok()) return std::move(source.failure());
  return RawWriter(std::move(*file), std::move(*source));
}

void RawWriter::set_round_bytes(std::uint64_t bytes) {
  round_bytes_ = round_up(bytes, file_.alignment());
  offset_ = 0;
}

MaybeFailure RawWriter::round(std::uint64_t& elapsed_ns) {
  const std::span<const std::byte> source = source_.span().first(round_bytes_);
  const std::uint64_t start = now_ns();
  if (MaybeFailure failure = write(source)) return failure;
  elapsed_ns = now_ns() - start;
  return {};
}

MaybeFailure RawWriter::write(std::span<const std::byte> source) {
  if (offset_ + round_bytes_ > file_.size()) offset_ = 0;
  if (MaybeFailure failure = file_.write(offset_, source)) return failure;
  if (MaybeFailure failure = file_.flush()) return failure;
  offset_ += round_bytes_;
  return {};
}

MaybeFailure write_sequentially(const RawFile& file, const HugeBuffer& source, std::uint64_t bytes,
                                std::uint64_t& elapsed_ns) {
  bytes = round_up(bytes, file.alignment());
  const std::uint64_t start = now_ns();
  for (std::uint64_t offset = 0; offset < bytes; offset += kSequentialBytes) {
    const std::uint64_t count = std::min(kSequentialBytes, bytes - offset);
    if (MaybeFailure failure = file.write(offset, source.span().first(count))) return failure;
  }
  if (MaybeFailure failure = file.flush()) return failure;
  elapsed_ns = now_ns() - start;
  return {};
}

MaybeFailure read_sequentially(const RawFile& file, const HugeBuffer& target, std::uint64_t bytes,
                               std::uint64_t& elapsed_ns) {
  bytes = round_up(bytes, file.alignment());
  const std::uint64_t start = now_ns();
  for (std::uint64_t offset = 0; offset < bytes; offset += kSequentialBytes) {
    const std::uint64_t count = std::min(kSequentialBytes, bytes - offset);
    if (MaybeFailure failure = file.read(offset, target.span().first(count))) return failure;
  }
  elapsed_ns = now_ns() - start;
  return {};
}

}  // namespace memlith::tool
