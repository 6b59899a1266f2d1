#include "device/direct_io.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/buffer.hpp"
#include "base/units.hpp"

namespace memlith::core {

namespace {

// The other transfer sizes of a log besides blocks: both superblocks, and a large commit.
constexpr std::uint64_t kSuperblocksBytes = 8 * kKiB;
constexpr std::uint64_t kLargeBytes = 1 * kMiB;

bool refused(ssize_t done) { return done < 0 && errno == EINVAL; }

// True if the file system accepts direct transfers of these blocks. The file is empty before and after.
bool takes_writes(int fd, std::byte* memory, std::uint32_t block) {
  bool taken = !refused(::pwrite(fd, memory, block, 0));
  for (const std::uint64_t bytes : {kSuperblocksBytes, kLargeBytes}) {
    taken = taken && !refused(::pwrite(fd, memory, bytes, block)) && !refused(::pread(fd, memory, bytes, block));
  }
  return ::ftruncate(fd, 0) == 0 && taken;
}

bool takes_reads(int fd, std::byte* memory, std::uint32_t block) {
  // Beyond the end of a file, some kernels answer before they check the alignment: in an empty file only the larger
  // alignment is certain.
  const ssize_t got = ::pread(fd, memory, block, 0);
  return (got > 0 || (got == 0 && block == kPageBytes)) && !refused(::pread(fd, memory, kSuperblocksBytes, 0));
}

}  // namespace

// Asks by transferring, because some file systems accept the flag and then refuse transfers: by writing where the file
// is empty, else by reading. What neither finds the device finds later.
std::uint32_t direct_block_bytes(int fd, bool writable) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return 0;
  if (S_ISBLK(info.st_mode)) {
    int sector = 0;  // never by writing: nothing of a device is known to be unused
    const bool known = ::ioctl(fd, BLKSSZGET, &sector) == 0 && sector > 0 && is_power_of_two(sector);
    return known && sector <= static_cast<int>(kPageBytes) ? std::max(512U, static_cast<std::uint32_t>(sector)) : 0;
  }
  const bool by_writing = writable && info.st_size == 0;
  std::uint32_t least = 512;
#ifdef STATX_DIOALIGN
  struct statx extended{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 && (extended.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t block = extended.stx_dio_offset_align;
    if (!is_power_of_two(block) || block > kPageBytes || extended.stx_dio_mem_align > kPageBytes) return 0;
    least = std::max(block, least);
    if (!by_writing) return least;
  }
#endif
  auto buffer = AlignedBuffer::allocate(by_writing ? kLargeBytes : kSuperblocksBytes);
  if (!buffer.ok()) return 0;
  std::memset(buffer->data(), 0, buffer->size());
  for (std::uint32_t block = least; block <= kPageBytes; block *= 8) {
    if (by_writing ? takes_writes(fd, buffer->data(), block) : takes_reads(fd, buffer->data(), block)) return block;
  }
  return 0;
}

}  // namespace memlith::core
