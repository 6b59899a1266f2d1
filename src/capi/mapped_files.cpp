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

// A file lies at one place in the process, as long as it has mappings; a page of it may be mapped several times.
struct MappedFile {
  dev_t device = 0;
  ino_t inode = 0;
  std::unique_ptr<memlith_image> image;
  std::vector<Range> mappings;  // whole pages of the file, the newest last

  [[nodiscard]] std::byte* begin() const { return image->image->address(); }
  // The pages of the file that would lie there.
  [[nodiscard]] Range at(const std::byte* address, std::uint64_t bytes) const;
};

// A call of memlith_mmap.
struct Wish {
  std::byte* address;
  std::uint64_t bytes;  // whole pages
  std::uint64_t offset;
  int flags;
  [[nodiscard]] bool is_fixed() const { return (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0; }
  [[nodiscard]] bool replaces() const { return (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE; }
};

class MappedFiles {
 public:
  Result<void*> map(void* address, std::size_t bytes, int flags, int fd, off_t offset) MEMLITH_EXCLUDES(mutex_);
  Status sync(std::byte* address, std::size_t bytes, int flags) MEMLITH_EXCLUDES(mutex_);
  Status commit(std::span<void* const> addresses) MEMLITH_EXCLUDES(mutex_);
  Status unmap(std::byte* address, std::size_t bytes) MEMLITH_EXCLUDES(mutex_);
  Status resize(int fd, off_t bytes) MEMLITH_EXCLUDES(mutex_);

 private:
  using File = std::shared_ptr<MappedFile>;
  Result<File> file_of(int fd, const Wish& wish) MEMLITH_REQUIRES(mutex_);
  Result<Room> take_room(const Wish& wish, std::uint64_t file_bytes) MEMLITH_REQUIRES(mutex_);
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
  if ((type != MAP_SHARED && type != MAP_SHARED_VALIDATE) || (flags & MAP_ANONYMOUS) != 0) {
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

Range MappedFile::at(const std::byte* address, std::uint64_t bytes) const {
  const auto place = reinterpret_cast<std::uintptr_t>(begin());
  const std::uintptr_t end = place + image->image->reserve();
  const auto from = std::clamp(reinterpret_cast<std::uintptr_t>(address), place, end);
  const auto to = std::clamp(reinterpret_cast<std::uintptr_t>(address) + bytes, from, end);
  return {from - place, to - from};
}

Range common(Range a, Range b) {
  const std::uint64_t from = std::max(a.offset, b.offset);
  const std::uint64_t to = std::min(a.offset + a.bytes, b.offset + b.bytes);
  return {from, from < to ? to - from : 0};
}

// Adds to `rest` what `range` has and `taken` has not.
void add_rest(Range range, Range taken, std::vector<Range>& rest) {
  const Range both = common(range, taken);
  if (both.bytes == 0) return rest.push_back(range);
  const std::uint64_t end = range.offset + range.bytes;
  const std::uint64_t both_end = both.offset + both.bytes;
  if (range.offset < both.offset) rest.push_back({range.offset, both.offset - range.offset});
  if (both_end < end) rest.push_back({both_end, end - both_end});
}

// Ends the mapping of each of these pages that was made last; `all`: every one.
void end_mappings(std::vector<Range>& mappings, Range pages, bool all) {
  std::vector<Range> wanted{pages};
  std::vector<Range> kept;
  for (auto mapping = mappings.rbegin(); mapping != mappings.rend(); ++mapping) {
    std::vector<Range> parts{*mapping};
    std::vector<Range> still_wanted;
    for (const Range& range : wanted) {
      std::vector<Range> left;
      for (const Range& part : parts) add_rest(part, range, left);
      parts.swap(left);
      add_rest(range, *mapping, still_wanted);
    }
    kept.insert(kept.end(), parts.begin(), parts.end());
    if (!all) wanted.swap(still_wanted);
  }
  std::reverse(kept.begin(), kept.end());
  mappings.swap(kept);
}

// Room that is larger than the mapping, so that later ones find the file's other pages beside it.
constexpr std::uint64_t kRoomBytes = 64 * kGiB;

Result<Room> MappedFiles::take_room(const Wish& wish, std::uint64_t file_bytes) {
  const std::uint64_t least = wish.offset + wish.bytes;
  const auto wanted = reinterpret_cast<std::uintptr_t>(wish.address) - wish.offset;
  const bool has_address = reinterpret_cast<std::uintptr_t>(wish.address) > wish.offset;
  if (!wish.is_fixed()) {
    const std::uint64_t most = std::max({least, round_up(file_bytes, host_page_bytes()), kRoomBytes});
    for (const std::uint64_t bytes : {most, least}) {
      if (!has_address || wanted % host_page_bytes() != 0) break;
      if (reserve_addresses(wanted, bytes).ok()) return Room{wanted, bytes};
    }
    return find_room(least, most);
  }
  if (!has_address || wanted % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument, "a file cannot lie {} bytes in front of the address {}", wish.offset,
                static_cast<const void*>(wish.address));
  }
  for (const File& file : files_) {
    if (!wish.replaces() || file->at(wish.address, wish.bytes).bytes == 0) continue;
    return fail(Errc::invalid, Detail::argument,
                "{} bytes at {}: another file that memlith_mmap has mapped lies there; unmap it first, or leave "
                "MAP_FIXED out",
                wish.bytes, static_cast<const void*>(wish.address));
  }
  if (!wish.replaces()) {
    MEMLITH_TRY(reserve_addresses(wanted, least));
    return Room{wanted, least};
  }
  // The file's pages in front of the mapping have their addresses, too.
  if (wish.offset > 0) MEMLITH_TRY(reserve_addresses(wanted, wish.offset));
  constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (::mmap(wish.address, wish.bytes, PROT_NONE, kNothing, -1, 0) == MAP_FAILED) {
    const Status failed = fail_errno(errno, Detail::mapping, "cannot map {} bytes at {}", wish.bytes,
                                     static_cast<const void*>(wish.address));
    if (wish.offset > 0) release_addresses(wanted, wish.offset);
    return failed;
  }
  return Room{wanted, least};
}

Result<std::shared_ptr<MappedFile>> MappedFiles::file_of(int fd, const Wish& wish) {
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
  options.flags = MEMLITH_OPEN_CREATE | static_cast<std::uint32_t>(wish.flags & MEMLITH_IMAGE_GUARD);
  const auto room = [this, &wish](std::uint64_t file_bytes)
                        MEMLITH_REQUIRES(mutex_) { return take_room(wish, file_bytes); };
  MEMLITH_TRY_ASSIGN(file->image, open_private_image(path.c_str(), &options, room));
  files_.push_back(file);
  return file;
}

Result<void*> MappedFiles::map(void* address, std::size_t bytes, int flags, int fd, off_t offset) {
  MEMLITH_TRY(check_arguments(bytes, flags, fd, offset));
  const Wish wish{static_cast<std::byte*>(address), round_up(bytes, host_page_bytes()),
                  static_cast<std::uint64_t>(offset), flags};
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(const File file, file_of(fd, wish));
  MEMLITH_TRY(session_of(file->image->store).check_process());
  const std::uint64_t reserve = file->image->image->reserve();
  std::byte* const place = file->begin() + wish.offset;
  if (wish.bytes > reserve || wish.offset > reserve - wish.bytes) {
    return fail(Errc::no_memory, Detail::mapping,
                "{} bytes at offset {}: the file lies at {}, where this process has {} bytes of addresses for it; map "
                "the longest part first, or unmap the file before",
                wish.bytes, wish.offset, static_cast<const void*>(file->begin()), reserve);
  }
  if (wish.is_fixed() && place != wish.address) {
    return fail(Errc::invalid, Detail::argument,
                "the file lies at {} in this process, so its bytes from {} on have the address {}; leave MAP_FIXED "
                "out, or unmap the file before",
                static_cast<const void*>(file->begin()), wish.offset, static_cast<const void*>(place));
  }
  const Range pages{wish.offset, wish.bytes};
  if (wish.is_fixed() && wish.replaces()) end_mappings(file->mappings, pages, true);
  file->mappings.push_back(pages);
  return place;
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
    std::vector<Range> mapped;
    for (const File& file : files_) {
      const Range wanted = file->at(address, round_up(bytes, host_page_bytes()));
      mapped.clear();
      for (const Range& mapping : file->mappings) {
        if (const Range both = common(mapping, wanted); both.bytes > 0) mapped.push_back(both);
      }
      normalize(mapped);
      for (const Range& range : mapped) {
        parts.emplace_back(file, range);
        covered += range.bytes;
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
    FileImage& image = *file->image->image;
    MEMLITH_TRY(session_of(file->image->store).check_process());
    MEMLITH_TRY(mode == 0 ? image.rollback(range) : commit_image(*file->image, range, mode == MS_SYNC));
    image.keep_to_memory();
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

Status MappedFiles::commit(std::span<void* const> addresses) {
  std::vector<File> files;
  {
    const LockGuard lock(mutex_);
    for (void* const address : addresses) {
      const auto holds = [address](const File& file) {
        const Range at = file->at(static_cast<std::byte*>(address), 1);
        return std::ranges::any_of(file->mappings, [at](Range mapping) { return common(mapping, at).bytes > 0; });
      };
      const auto found = std::ranges::find_if(files_, holds);
      if (found == files_.end()) {
        Status status = fail(Errc::invalid, Detail::argument, "{} is not mapped by memlith_mmap", address);
        status.os_errno = ENOMEM;
        return status;
      }
      if (std::ranges::find(files, *found) == files.end()) files.push_back(*found);
    }
  }
  std::vector<memlith_image*> images;
  for (const File& file : files) images.push_back(file->image.get());
  MEMLITH_TRY(commit_images(images, true));
  for (const File& file : files) file->image->image->keep_to_memory();
  return kOk;
}

Status MappedFiles::unmap(std::byte* address, std::size_t bytes) {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument, "munmap needs an address on a page boundary and a length");
  }
  const LockGuard lock(mutex_);
  for (const File& file : files_) MEMLITH_TRY(session_of(file->image->store).check_process());
  const std::uint64_t whole = round_up(bytes, host_page_bytes());
  for (const File& file : files_) {
    if (const Range pages = file->at(address, whole); pages.bytes > 0) end_mappings(file->mappings, pages, false);
  }
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

void* memlith_mmap(void* address, size_t bytes, int /*protection*/, int flags, int fd, off_t offset) {
  void* got = MAP_FAILED;
  (void)succeeded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(got, mapped_files().map(address, bytes, flags, fd, offset));
    return kOk;
  });
  return got;
}

int memlith_msync(void* address, size_t bytes, int flags) {
  return succeeded([&] { return mapped_files().sync(static_cast<std::byte*>(address), bytes, flags); }) ? 0 : -1;
}

int memlith_files_commit(void* const* addresses, size_t count) {
  return succeeded([&]() -> Status {
    if (count > 0) MEMLITH_TRY(need(addresses, "addresses"));
    return mapped_files().commit({addresses, count});
  })
             ? 0
             : -1;
}

int memlith_munmap(void* address, size_t bytes) {
  return succeeded([&] { return mapped_files().unmap(static_cast<std::byte*>(address), bytes); }) ? 0 : -1;
}

int memlith_ftruncate(int fd, off_t bytes) {
  return succeeded([&] { return mapped_files().resize(fd, bytes); }) ? 0 : -1;
}

}  // extern "C"
