// memlith_mmap and its relatives: mappings of working images, and which file each of them is of;
// include/memlith/files.h. Floor: capi.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/host.hpp"
#include "base/sync.hpp"
#include "capi/errors.hpp"
#include "capi/image.hpp"

using namespace memlith::core;

namespace {

struct Mapping {
  std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
};

struct MappedFile {
  dev_t device = 0;
  ino_t inode = 0;
  std::unique_ptr<memlith_image> image;
  std::vector<Mapping> mappings;
};

class MappedFiles {
 public:
  Result<void*> map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset)
      MEMLITH_EXCLUDES(mutex_);
  Status sync(std::byte* address, std::size_t bytes, int flags) MEMLITH_EXCLUDES(mutex_);
  Status unmap(std::byte* address, std::size_t bytes) MEMLITH_EXCLUDES(mutex_);
  Status resize(int fd, off_t bytes) MEMLITH_EXCLUDES(mutex_);

 private:
  using File = std::shared_ptr<MappedFile>;
  Result<File> file_of(int fd, std::uint32_t flags) MEMLITH_REQUIRES(mutex_);
  Status unmap_parts(std::byte* begin, std::byte* end, bool keep_addresses) MEMLITH_REQUIRES(mutex_);
  Status close_unused() MEMLITH_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<File> files_ MEMLITH_GUARDED_BY(mutex_);
};

// Never destroyed: threads may use mappings while the program ends.
MappedFiles& mapped_files() {
  static MappedFiles& all = *new MappedFiles;
  return all;
}

Result<std::string> path_of(int fd, const struct stat& seen) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length < 0) return fail_errno(errno, Detail::open, "cannot find the name of descriptor {}", fd);
  path.resize(static_cast<std::size_t>(length));
  struct stat named{};
  if (::stat(path.c_str(), &named) != 0 || named.st_dev != seen.st_dev || named.st_ino != seen.st_ino) {
    return fail(Errc::not_found, Detail::open,
                "{}: the file of descriptor {} has no name any more, and its log lies beside its name; open the file "
                "again, or use mmap",
                path, fd);
  }
  return path;
}

Status check_arguments(std::size_t bytes, int flags, int fd, off_t offset) {
  const int type = flags & MAP_TYPE;
  if (type != MAP_SHARED && type != MAP_SHARED_VALIDATE) {
    return fail(Errc::invalid, Detail::argument,
                "memlith_mmap maps files shared (MAP_SHARED); what is stored to a private mapping reaches no file");
  }
  if (bytes == 0 || offset < 0 || static_cast<std::uint64_t>(offset) % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument,
                "{} bytes at offset {}: the length must not be 0, and the offset has "
                "to be a multiple of {}",
                bytes, offset, host_page_bytes());
  }
  const int mode = ::fcntl(fd, F_GETFL);
  if (mode < 0) return fail_errno(errno, Detail::argument, "descriptor {}", fd);
  if ((mode & O_ACCMODE) != O_RDWR) {
    return fail(Errc::permission, Detail::argument, "descriptor {} is not open for reading and writing (O_RDWR)", fd);
  }
  return kOk;
}

Result<std::shared_ptr<MappedFile>> MappedFiles::file_of(int fd, std::uint32_t flags) {
  struct stat seen{};
  if (::fstat(fd, &seen) != 0) return fail_errno(errno, Detail::argument, "descriptor {}", fd);
  for (const File& file : files_) {
    if (file->device == seen.st_dev && file->inode == seen.st_ino) return file;
  }
  if (!S_ISREG(seen.st_mode)) {
    return fail(Errc::invalid, Detail::argument, "descriptor {} is not an ordinary file", fd);
  }
  MEMLITH_TRY_ASSIGN(const std::string path, path_of(fd, seen));
  auto file = std::make_shared<MappedFile>();
  file->device = seen.st_dev;
  file->inode = seen.st_ino;
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE | flags;
  MEMLITH_TRY_ASSIGN(file->image, open_image(path.c_str(), &options));
  files_.push_back(file);
  return file;
}

Result<void*> MappedFiles::map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  const auto guard = static_cast<std::uint32_t>(flags & MEMLITH_IMAGE_GUARD);
  flags &= ~MEMLITH_IMAGE_GUARD;
  MEMLITH_TRY(check_arguments(bytes, flags, fd, offset));
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(const File file, file_of(fd, guard));
  auto* const wanted = static_cast<std::byte*>(address);
  if ((flags & MAP_FIXED) != 0) MEMLITH_TRY(unmap_parts(wanted, wanted + round_up(bytes, host_page_bytes()), true));
  void* const got = ::mmap(address, bytes, protection, flags, file->image->image->descriptor(), offset);
  if (got == MAP_FAILED) {
    const Status failed = fail_errno(errno, Detail::mapping, "cannot map {} bytes of the working image", bytes);
    const KeptSentence why;
    (void)close_unused();
    return failed;
  }
  auto* const begin = static_cast<std::byte*>(got);
  const auto from = static_cast<std::uint64_t>(offset);
  if (const Status watched = file->image->image->watch(begin, bytes, from); !watched.ok()) {
    const KeptSentence why;
    ::munmap(got, bytes);
    (void)close_unused();
    return watched;
  }
  file->mappings.push_back({begin, round_up(bytes, host_page_bytes()), from});
  MEMLITH_TRY(close_unused());  // MAP_FIXED may have replaced the last mapping of another file
  return got;
}

Status MappedFiles::sync(std::byte* address, std::size_t bytes, int flags) {
  const int mode = flags & (MS_SYNC | MS_ASYNC);
  if ((flags & ~(MS_SYNC | MS_ASYNC | MS_INVALIDATE)) != 0 || mode == (MS_SYNC | MS_ASYNC) ||
      reinterpret_cast<std::uintptr_t>(address) % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument,
                "msync needs an address on a page boundary, and one of MS_SYNC and "
                "MS_ASYNC, or MS_INVALIDATE");
  }
  std::vector<std::pair<File, Range>> parts;
  std::uint64_t covered = 0;
  {
    const LockGuard lock(mutex_);
    for (const File& file : files_) {
      for (const Mapping& mapping : file->mappings) {
        std::byte* const from = std::max(address, mapping.begin);
        std::byte* const to = std::min(address + round_up(bytes, host_page_bytes()), mapping.begin + mapping.bytes);
        if (from >= to) continue;
        const auto count = static_cast<std::uint64_t>(to - from);
        parts.emplace_back(file, Range{mapping.offset + static_cast<std::uint64_t>(from - mapping.begin), count});
        covered += count;
      }
    }
  }
  if (covered < round_up(bytes, host_page_bytes())) {
    Status status = fail(Errc::invalid, Detail::argument, "[{}, {} bytes) is not mapped by memlith_mmap",
                         static_cast<const void*>(address), bytes);
    status.os_errno = ENOMEM;
    return status;
  }
  for (const auto& [file, range] : parts) {
    MEMLITH_TRY(session_of(file->image->store).check_process());
    MEMLITH_TRY(mode == 0 ? file->image->image->rollback(range) : commit_image(*file->image, range, mode == MS_SYNC));
  }
  return kOk;
}

// Takes [begin, end) out of all mappings. With `keep_addresses`, something else is about to be mapped there.
Status MappedFiles::unmap_parts(std::byte* begin, std::byte* end, bool keep_addresses) {
  for (const File& file : files_) {
    std::vector<Mapping> left;
    for (const Mapping& mapping : file->mappings) {
      std::byte* const from = std::max(begin, mapping.begin);
      std::byte* const to = std::min(end, mapping.begin + mapping.bytes);
      if (from >= to) {
        left.push_back(mapping);
        continue;
      }
      const auto count = static_cast<std::size_t>(to - from);
      MEMLITH_TRY(file->image->image->unwatch(from, count));
      if (!keep_addresses && ::munmap(from, count) != 0) return fail_errno(errno, Detail::mapping, "munmap");
      const auto before = static_cast<std::uint64_t>(from - mapping.begin);
      const std::uint64_t until = before + count;
      if (before > 0) left.push_back({mapping.begin, before, mapping.offset});
      if (until < mapping.bytes) {
        left.push_back({to, mapping.bytes - until, mapping.offset + until});
      }
    }
    file->mappings.swap(left);
  }
  return kOk;
}

Status MappedFiles::close_unused() {
  Status first = kOk;
  KeptFailure told;
  for (std::size_t i = 0; i < files_.size();) {
    if (!files_[i]->mappings.empty()) {
      ++i;
      continue;
    }
    const File file = std::move(files_[i]);
    files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(i));
    const Status closed = close_image(std::move(file->image));
    if (first.ok() && !closed.ok()) told.keep(first = closed);
  }
  return first.ok() ? kOk : told.tell();
}

Status MappedFiles::unmap(std::byte* address, std::size_t bytes) {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument, "munmap needs an address on a page boundary and a length");
  }
  const LockGuard lock(mutex_);
  for (const File& file : files_) MEMLITH_TRY(session_of(file->image->store).check_process());
  MEMLITH_TRY(unmap_parts(address, address + round_up(bytes, host_page_bytes()), false));
  return close_unused();
}

Status MappedFiles::resize(int fd, off_t bytes) {
  if (bytes < 0) return fail(Errc::invalid, Detail::argument, "a length of {} bytes", bytes);
  const LockGuard lock(mutex_);
  struct stat seen{};
  if (::fstat(fd, &seen) != 0) return fail_errno(errno, Detail::argument, "descriptor {}", fd);
  for (const File& file : files_) {
    if (file->device != seen.st_dev || file->inode != seen.st_ino) continue;
    MEMLITH_TRY(session_of(file->image->store).check_process());
    return file->image->image->cut(static_cast<std::uint64_t>(bytes));
  }
  return fail(Errc::invalid, Detail::argument, "the file of descriptor {} is not mapped by memlith_mmap; use ftruncate",
              fd);
}

// Runs `body` like guarded(), and sets errno.
template <class Body>
bool succeeded(Body&& body) {
  Status status = kOk;
  const std::int32_t code = guarded([&] { return status = body(); });
  if (code == 0) return true;
  if (status.ok()) status = {Errc::no_memory, Detail::none, 0, 0};  // an allocation failed on the way
  errno = errno_of(status);
  return false;
}

}  // namespace

extern "C" {

void* memlith_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  void* got = MAP_FAILED;
  (void)succeeded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(got, mapped_files().map(address, bytes, protection, flags, fd, offset));
    return kOk;
  });
  return got;
}

int memlith_msync(void* address, size_t bytes, int flags) {
  return succeeded([&] { return mapped_files().sync(static_cast<std::byte*>(address), bytes, flags); }) ? 0 : -1;
}

int memlith_munmap(void* address, size_t bytes) {
  return succeeded([&] { return mapped_files().unmap(static_cast<std::byte*>(address), bytes); }) ? 0 : -1;
}

int memlith_ftruncate(int fd, off_t bytes) {
  return succeeded([&] { return mapped_files().resize(fd, bytes); }) ? 0 : -1;
}

}  // extern "C"
