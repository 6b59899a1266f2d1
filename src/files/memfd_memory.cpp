#include "files/memfd_memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/bytes.hpp"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#endif

namespace memlith::core {

namespace {

constexpr std::uint64_t kPieceBytes = 1 * kMiB;
constexpr std::uint64_t kMappedBytesWanted = 1ull << 40;
constexpr std::uint64_t kMappedBytesLeast = 1 * kGiB;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// Memory that the machine can give without swapping; no limit if the kernel does not say.
std::uint64_t memory_available() {
  const std::string text = text_of("/proc/meminfo");
  const auto kib_of = [&text](const char* name, unsigned long long otherwise) {
    const std::size_t found = text.find(name);
    return found == text.npos ? otherwise : std::strtoull(&text[found + std::strlen(name)], nullptr, 10);
  };
  if (text.empty()) return kNoLimit;
  const unsigned long long available = kib_of("MemAvailable:", kNoLimit / kKiB);
  const unsigned long long swap = kib_of("SwapFree:", 0);
  return (available + swap) * kKiB;
}

Status transfer(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::uint64_t count) {
  while (count > 0) {
    const ssize_t done = write ? ::pwrite(fd, bytes, count, static_cast<off_t>(offset))
                               : ::pread(fd, bytes, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail_errno(errno, Detail::mapping, "cannot {} the working image", write ? "write" : "read");
    if (done == 0) break;
    offset += static_cast<std::uint64_t>(done);
    bytes += done;
    count -= static_cast<std::uint64_t>(done);
  }
  std::memset(bytes, 0, write ? 0 : count);  // beyond the end
  return kOk;
}

}  // namespace

// Zeros take no memory.
Result<Descriptor> MemfdMemory::read_into_memory(const std::string& path, std::uint64_t bytes, const Reader& read) {
  if (const std::uint64_t available = memory_available(); bytes > available) {
    return fail(Errc::no_memory, Detail::mapping,
                "{}: the file has {} bytes, and its working image has to fit into memory, of which {} bytes are "
                "available; add memory or swap space, use memlith_mmap if the program only maps the file, or use the "
                "file without memlith",
                path, bytes, available);
  }
  Descriptor memory(above_standard(::memfd_create("memlith", MFD_CLOEXEC)));
  if (memory.get() < 0) return fail_errno(errno, Detail::mapping, "cannot make a working image in memory");
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, Detail::mapping, "cannot make a working image of {} bytes", bytes);
  }
  MEMLITH_ASSERT(memory.get() > STDERR_FILENO);  // a program may close the standard descriptors
  std::vector<std::byte> piece(std::min(kPieceBytes, bytes));
  for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - at));
    MEMLITH_TRY(read(at, part));
    if (!is_zero(part)) MEMLITH_TRY(transfer(true, memory.get(), at, part.data(), part.size()));
  }
  return memory;
}

MemfdMemory::~MemfdMemory() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

// Reserves addresses for growth: they cost nothing until they are read.
Status MemfdMemory::reach(std::uint64_t size_bytes) {
  if (size_bytes <= mapped_bytes_) return kOk;
  MEMLITH_ASSERT((base_ == nullptr) == (mapped_bytes_ == 0));
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
  base_ = nullptr;
  mapped_bytes_ = 0;
  const std::uint64_t least = std::max(round_up(size_bytes, kPageBytes), kMappedBytesLeast);
  for (std::uint64_t bytes = std::max(kMappedBytesWanted, 2 * least);; bytes = std::max(bytes / 4, least)) {
    void* const got = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
    if (got != MAP_FAILED) {
      base_ = static_cast<std::byte*>(got);
      mapped_bytes_ = bytes;
      MEMLITH_ASSERT(mapped_bytes_ >= size_bytes);
      return kOk;
    }
    if (bytes == least) return fail_errno(errno, Detail::mapping, "cannot map {} bytes of the working image", bytes);
  }
}

Status MemfdMemory::read(std::uint64_t offset, std::span<std::byte> target) const {
  return transfer(false, memory_.get(), offset, target.data(), target.size());
}

Result<std::uint64_t> MemfdMemory::length() const {
  struct stat seen{};
  if (::fstat(memory_.get(), &seen) != 0) return fail_errno(errno, Detail::mapping, "cannot look at the working image");
  return static_cast<std::uint64_t>(seen.st_size);
}

Status MemfdMemory::set_length(std::uint64_t bytes, std::uint64_t /*data_bytes*/) {
  if (::ftruncate(memory_.get(), static_cast<off_t>(bytes)) == 0) return kOk;
  return fail_errno(errno, Detail::mapping, "cannot give the working image {} bytes", bytes);
}

Status MemfdMemory::watch(std::byte* address, std::uint64_t bytes, std::uint64_t offset) {
  if (watches_ == nullptr) {
    MEMLITH_TRY_ASSIGN(watches_, Watches::make());
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  return watches_->add(address, bytes, offset, size);
}

Status MemfdMemory::unwatch(const std::byte* address, std::uint64_t bytes, std::vector<Range>& stored) {
  if (watches_ == nullptr) return kOk;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  return watches_->remove(address, bytes, size, stored);
}

Result<bool> MemfdMemory::collect(std::uint64_t bytes, std::vector<Range>& stored) {
  if (watches_ == nullptr) return true;
  return watches_->collect(bytes, stored);
}

// The image is zeros where it has no memory.
Status MemfdMemory::add_data(std::uint64_t begin, std::uint64_t end, std::vector<Range>& stored) {
  MEMLITH_ASSERT(begin % kPageBytes == 0);
  while (begin < end) {
    const off_t data = ::lseek(memory_.get(), static_cast<off_t>(begin), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return kOk;
    const off_t hole = data < 0 ? -1 : ::lseek(memory_.get(), data, SEEK_HOLE);
    if (hole < 0) return fail_errno(errno, Detail::mapping, "cannot look for data in the working image");
    const std::uint64_t until = std::min(static_cast<std::uint64_t>(hole), end);
    if (static_cast<std::uint64_t>(data) < until) {
      stored.push_back({static_cast<std::uint64_t>(data), until - static_cast<std::uint64_t>(data)});
    }
    begin = static_cast<std::uint64_t>(hole);
  }
  return kOk;
}

Status MemfdMemory::restore(Range range, const Tracker::ReadHome& read, bool /*at_home*/) {
  MEMLITH_ASSERT(range.bytes > 0);
  std::vector<std::byte> bytes(std::min(kPieceBytes, range.bytes));
  const std::uint64_t end = range.offset + range.bytes;
  for (std::uint64_t at = range.offset; at < end; at += bytes.size()) {
    const auto part = std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), end - at));
    MEMLITH_TRY(read(at, part));
    MEMLITH_TRY(transfer(true, memory_.get(), at, part.data(), part.size()));
  }
  return kOk;
}

}  // namespace memlith::core
