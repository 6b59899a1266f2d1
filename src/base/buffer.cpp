#include "base/buffer.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/units.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kHugeBytes = 2 * kMiB;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t bytes) {
  MEMLITH_ASSERT(bytes > 0);
  AlignedBuffer buffer;
  buffer.bytes_ = round_up(bytes, kPageBytes);
  if (buffer.bytes_ < kHugeBytes) {
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, buffer.bytes_));
    if (buffer.data_ == nullptr)
      return fail(Errc::no_memory, Detail::none, "no memory for a buffer of {} bytes", bytes);
    return buffer;
  }
  buffer.bytes_ = round_up(bytes, kHugeBytes);
  buffer.mapping_bytes_ = buffer.bytes_ + kHugeBytes;
  void* mapping = ::mmap(nullptr, buffer.mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return fail_errno(errno, Detail::none, "no memory for a buffer of {} bytes", bytes);
  }
  buffer.mapping_ = mapping;
  const auto address = round_up(reinterpret_cast<std::uintptr_t>(mapping), kHugeBytes);
  buffer.data_ = reinterpret_cast<std::byte*>(address);
  (void)::madvise(buffer.data_, buffer.bytes_, MADV_HUGEPAGE);  // a hint; 4 KiB pages are slower, but correct
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapping_bytes_);
  } else {
    std::free(data_);
  }
}

}  // namespace memlith::core
