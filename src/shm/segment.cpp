#include "shm/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "shm/helper.hpp"

namespace memlith::core::shm {

Result<Descriptor> make_memory(const char* name, std::uint64_t bytes) {
  const Descriptor made(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Descriptor memory(made.get() < 0 ? -1 : ::fcntl(made.get(), F_DUPFD_CLOEXEC, kReadyNumber + 1));
  if (memory.get() < 0 || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, Detail::mapping, "{}: cannot make {} bytes of memory for processes to share", name, bytes);
  }
  return memory;
}

Result<Descriptor> open_for_reading(int memory) {
  const std::string path = fmt::format("/proc/self/fd/{}", memory);
  Descriptor shown(above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (shown.get() >= 0) return shown;
  return fail_errno(errno, Detail::open, "{}: cannot open this memory for reading", path);
}

Result<Mapping> Mapping::map(int memory, std::uint64_t bytes, Options options) {
  MEMLITH_ASSERT(bytes > 0 && (!options.replaces || options.address != nullptr));
  int flags = MAP_SHARED;
  if (options.populates) flags |= MAP_POPULATE;
  if (options.address != nullptr) flags |= options.replaces ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  const int protection = options.for_reading ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const got = ::mmap(options.address, bytes, protection, flags, memory, 0);
  // A kernel that does not know the flag maps elsewhere.
  const bool is_elsewhere = got != MAP_FAILED && options.address != nullptr && got != options.address;
  if (is_elsewhere) ::munmap(got, bytes);
  if (is_elsewhere || (got == MAP_FAILED && errno == EEXIST)) {
    return fail(Errc::address_taken, Detail::mapping, "something else of this process lies between {} and {}",
                static_cast<const void*>(options.address), static_cast<const void*>(options.address + bytes));
  }
  if (got == MAP_FAILED) return fail_errno(errno, Detail::mapping, "cannot map {} bytes of shared memory", bytes);
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(got);
  mapping.bytes_ = bytes;
  if (!options.for_children) ::madvise(got, bytes, MADV_DONTFORK);
  if (options.is_sparse) ::madvise(got, bytes, MADV_DONTDUMP);
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void finish_segment(SegmentHead& head, std::uint64_t layout, std::uint64_t bytes) {
  head.layout = layout;
  head.bytes = bytes;
  head.magic.store(kSegmentMagic, std::memory_order_release);
}

Status check_segment_size(int memory, std::uint64_t bytes) {
  struct stat status{};
  if (::fstat(memory, &status) != 0) return fail_errno(errno, Detail::mapping, "cannot look at shared memory");
  if (static_cast<std::uint64_t>(status.st_size) == bytes) return kOk;
  return fail(Errc::incompatible, Detail::version,
              "the shared memory has {} bytes, not {}: it is of another version of memlith; end the programs that "
              "share it, and use one version",
              status.st_size, bytes);
}

Status check_segment(const SegmentHead& head, std::uint64_t layout, std::uint64_t bytes) {
  if (head.magic.load(std::memory_order_acquire) != kSegmentMagic) {
    return fail(Errc::corrupt, Detail::mapping,
                "the shared memory is not whole; end the programs that share it, and start them anew");
  }
  if (head.layout == layout && head.bytes == bytes) return kOk;
  return fail(Errc::incompatible, Detail::version,
              "the shared memory has layout {} and {} bytes, not {} and {}: it is of another version of memlith; end "
              "the programs that share it, and use one version",
              head.layout, head.bytes, layout, bytes);
}

}  // namespace memlith::core::shm
