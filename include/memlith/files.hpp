// memlith: failure-atomic files. The C++20 interface over memlith/files.h, where the full contract stands. Guide:
// docs/failure-atomic-files.md.
//
//   auto file = memlith::MappedFile::open("counters", {.create = true, .size = 4096});
//   if (!file) return;
//   auto* counters = file->as<std::uint64_t>();
//   ++counters[0];
//   ++counters[1];
//   if (!file->persist()) ...  // durable when it is ok, both or neither
//   if (!file->close()) ...    // the file alone holds everything that was persisted
//
// Nothing here throws.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "memlith/files.h"
#include "memlith/memlith.hpp"

namespace memlith {

struct MappedFileOptions {
  bool create = false;
  bool exclusive = false;      // with create: fail with EXISTS if the file exists
  bool guard = false;          // MEMLITH_IMAGE_GUARD: a copy of the file alone that lacks commits is refused
  std::uint64_t size = 0;      // of a new or empty file
  std::uint64_t max_size = 0;  // addresses, which limit resize(); 0 = the file's size
};

namespace detail {
// The category that memlith/files.h reports as this number.
inline std::int32_t category_of_errno(int number) {
  switch (number) {
    case EINVAL: return MEMLITH_INVALID;
    case ENOENT: return MEMLITH_NOT_FOUND;
    case EEXIST: return MEMLITH_EXISTS;
    case EBUSY: return MEMLITH_BUSY;
    case EFBIG: return MEMLITH_FULL;
    case ENOSPC: return MEMLITH_NO_SPACE;
    case EACCES:
    case EPERM: return MEMLITH_PERMISSION;
    case EROFS: return MEMLITH_READ_ONLY;
    case EOPNOTSUPP: return MEMLITH_UNSUPPORTED;
    case ENOMEM: return MEMLITH_NO_MEMORY;
    case EMFILE:
    case ENFILE: return MEMLITH_TOO_MANY_FILES;
    default: return MEMLITH_IO;
  }
}
}  // namespace detail

// An ordinary file, mapped whole. Every mapping of the file in the process shows the same bytes. Move-only; the
// destructor closes it and drops errors.
class MappedFile {
 public:
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }
  ~MappedFile() { (void)close(); }

  // Maps the file, and first replays its log if the last program did not end cleanly. The size of a new file becomes
  // durable with the first persist. See memlith_mmap.
  // Errors: NOT_FOUND, EXISTS, PERMISSION; BUSY - another process has the file; INVALID - a new or empty file, and no
  // size; NO_MEMORY, NO_SPACE, IO.
  static Result<MappedFile> open(const std::string& path, const MappedFileOptions& options = {}) {
    MappedFile file;
    const int flags = (options.create ? O_CREAT : 0) | (options.create && options.exclusive ? O_EXCL : 0);
    file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
    if (file.fd_ < 0) {
      const int number = errno;
      return Error(detail::category_of_errno(number), path + ": " + std::strerror(number));
    }
    if (auto mapped = file.map(path, options); !mapped) return mapped.error();
    return file;
  }

  [[nodiscard]] void* address() const { return address_; }
  // The file's length, as this object made it or found it.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // The file as an object, or an array of them; null if it is too small.
  template <class T>
  [[nodiscard]] T* as() const {
    static_assert(is_persistable_v<T>, "T cannot live in a file: see is_persistable");
    return sizeof(T) <= size_ ? static_cast<T*>(address_) : nullptr;
  }

  // Durable on ok, all or nothing, with the file's length. See memlith_msync, MS_SYNC.
  // Errors: FULL, NO_SPACE - nothing was committed, everything stays due. IO - whether this took effect is unknown
  // until the file is opened again; nothing more is committed until then.
  Result<void> persist() const { return commit(address_, mapped_bytes_, MS_SYNC); }
  // The same of the pages that hold these bytes; stores to other pages stay due.
  Result<void> persist_range(const void* address, std::uint64_t bytes) const {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t into_page = begin % page;
    return commit(reinterpret_cast<void*>(begin - into_page), bytes + into_page, MS_SYNC);
  }
  // The same of several files, which lie in one folder: durable on ok, all or nothing, in all of them. See
  // memlith_files_commit. Errors: those of persist(), for all files; INVALID - they lie in different folders.
  static Result<void> persist_together(std::initializer_list<const MappedFile*> files) {
    std::vector<void*> addresses;
    for (const MappedFile* const file : files) addresses.push_back(file->address_);
    if (memlith_files_commit(addresses.data(), addresses.size()) != 0) return failed();
    return {};
  }
  // Captured on ok; durable soon, in the order of the calls, and at the latest with the next persist().
  Result<void> persist_async() const { return commit(address_, mapped_bytes_, MS_ASYNC); }
  // Puts memory back to what was last persisted.
  Result<void> rollback() const { return commit(address_, mapped_bytes_, MS_INVALIDATE); }
  // Sets the file's length, up to max_size; it is committed by the next persist. What is cut off is gone then, and is
  // zeros where the file grows again.
  Result<void> resize(std::uint64_t bytes) {
    if (bytes > mapped_bytes_) {
      return Error(MEMLITH_INVALID, "resize to " + std::to_string(bytes) + " bytes: the file has addresses for " +
                                        std::to_string(mapped_bytes_) + "; open it with a larger max_size");
    }
    if (memlith_ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return failed();
    size_ = bytes;
    return {};
  }
  // Drops what was not persisted. With the last mapping the file is closed, and its log may be deleted.
  // Errors: IO - every commit is safe, and the next opening brings them into the file.
  Result<void> close() {
    void* const mapped = std::exchange(address_, nullptr);
    Result<void> done;
    if (mapped != nullptr && memlith_munmap(mapped, mapped_bytes_) != 0) done = failed();
    if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
    return done;
  }

 private:
  MappedFile() = default;

  static Error failed() { return Error(detail::category_of_errno(errno)); }
  static Result<void> commit(void* address, std::uint64_t bytes, int how) {
    if (memlith_msync(address, bytes, how) != 0) return failed();
    return {};
  }
  [[nodiscard]] std::uint64_t length() const {
    struct stat seen{};
    return ::fstat(fd_, &seen) == 0 ? static_cast<std::uint64_t>(seen.st_size) : 0;
  }

  Result<void> map(const std::string& path, const MappedFileOptions& options) {
    do {  // the first mapping replays the log, and the file may be longer then
      if (address_ != nullptr && memlith_munmap(std::exchange(address_, nullptr), mapped_bytes_) != 0) return failed();
      mapped_bytes_ = std::max({length(), options.size, options.max_size, std::uint64_t{1}});
      const int flags = MAP_SHARED | (options.guard ? MEMLITH_IMAGE_GUARD : 0);
      void* const got = memlith_mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, fd_, 0);
      if (got == MAP_FAILED) return failed();
      address_ = got;
      size_ = length();
    } while (size_ > mapped_bytes_);
    if (size_ > 0) return {};
    if (options.size == 0) return Error(MEMLITH_INVALID, path + ": the file is empty; open it with a size");
    return resize(options.size);
  }

  int fd_ = -1;
  void* address_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace memlith
