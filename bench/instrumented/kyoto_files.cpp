// How a Kyoto Cabinet that memlith-c++ compiled gets failure-atomic files with byte-exact tracking: the linker leads
// its calls for files here (-Wl,--wrap=NAME, list in kyoto.py), and its source knows nothing of it. The mapping of a
// database is a region over the file (memlith_file_open) with the tracker `instrumented`, and an fsync of the file is
// a persist. All other files are passed through.
//
// While a database is open its file is as long as the mapping; closing cuts it to the length that Kyoto Cabinet set,
// which after a crash it finds in the database's header. Its msync commits nothing, because the file is not consistent
// there (as `memlith run --commit fsync`). One database at a time, which one thread opens and closes.
// MEMLITH_KYOTO_IO=dax in the environment: docs/dax.md.
#include <fcntl.h>
#include <memlith/memlith.h>
#include <memlith/track.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

MEMLITH_NO_TRACK_FILE;

extern "C" {
int __real_open64(const char* path, int flags, ...);
int __real_close(int fd);
int __real_fcntl64(int fd, int command, ...);
int __real_fsync(int fd);
int __real_ftruncate64(int fd, off64_t bytes);
void* __real_mmap64(void* address, size_t bytes, int protection, int flags, int fd, off64_t offset);
int __real_msync(void* address, size_t bytes, int flags);
int __real_munmap(void* address, size_t bytes);
ssize_t __real_pwrite64(int fd, const void* buffer, size_t bytes, off64_t offset);
}

namespace {

struct Database {
  int fd = -1;
  bool writable = false;
  std::string path;
  off64_t length_bytes = 0;  // as the program set it
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;
};
Database database;

[[noreturn]] void refuse(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s: %s\n", database.path.c_str(), what, why);
  std::exit(1);
}

void must(std::int32_t code, const char* what) {
  if (code == MEMLITH_OK) return;
  char text[512];
  (void)memlith_last_error(text, sizeof text);
  refuse(what, text);
}

bool is_database(const std::string& path) {
  return path.size() > 4 &&
         (path.compare(path.size() - 4, 4, ".kch") == 0 || path.compare(path.size() - 4, 4, ".kct") == 0);
}

bool in_region(const void* address) {
  return database.region != nullptr && address == memlith_region_address(database.region);
}

void open_region(std::uint64_t bytes) {
  const char* const io = std::getenv("MEMLITH_KYOTO_IO");
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;  // a new log beside a file that was closed cleanly
  options.io = io != nullptr && std::strcmp(io, "dax") == 0 ? MEMLITH_IO_DAX : MEMLITH_IO_AUTO;
  must(memlith_file_open(database.path.c_str(), &options, &database.store), "open the file");
  memlith_region_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.flags = MEMLITH_CREATE;
  wanted.tracker = MEMLITH_TRACKER_INSTRUMENTED;
  wanted.size = bytes;
  must(memlith_region_open(database.store, "file", &wanted, &database.region), "open the region");
  if (memlith_region_size(database.region) < bytes)
    must(memlith_region_grow(database.region, bytes), "grow the region");
}

void commit() { must(memlith_persist(&database.region, 1, MEMLITH_SCOPE_PROCESS), "persist"); }

}  // namespace

extern "C" {

int __wrap_open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int fd = __real_open64(path, flags, va_arg(more, int));
  va_end(more);
  if (fd >= 0 && is_database(path)) {
    if (database.fd >= 0) refuse(path, "a second database is open");
    database.fd = fd;
    database.writable = (flags & O_ACCMODE) == O_RDWR;
    database.path = path;
    struct stat64 seen{};
    if (::fstat64(fd, &seen) != 0) refuse("fstat", std::strerror(errno));
    database.length_bytes = seen.st_size;
  }
  return fd;
}

int __wrap_close(int fd) {
  if (fd == database.fd) database = Database();
  return __real_close(fd);
}

// Kyoto Cabinet's lock of the whole file: memlith has one of its own.
int __wrap_fcntl64(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (fd == database.fd && (command == F_SETLK || command == F_SETLKW)) return 0;
  return __real_fcntl64(fd, command, argument);
}

void* __wrap_mmap64(void* address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  if (fd < 0 || fd != database.fd || !database.writable) {
    return __real_mmap64(address, bytes, protection, flags, fd, offset);
  }
  open_region(bytes);
  return memlith_region_address(database.region);
}

int __wrap_munmap(void* address, size_t bytes) {
  if (!in_region(address)) return __real_munmap(address, bytes);
  commit();
  must(memlith_region_close(database.region), "close the region");
  must(memlith_store_close(database.store), "close the file");
  database.region = nullptr;
  database.store = nullptr;
  // A clean close: the file has everything, and its log can go.
  (void)::unlink((database.path + ".memlith").c_str());
  return __real_ftruncate64(database.fd, database.length_bytes);
}

int __wrap_msync(void* address, size_t bytes, int flags) {
  return in_region(address) ? 0 : __real_msync(address, bytes, flags);
}

int __wrap_ftruncate64(int fd, off64_t bytes) {
  if (fd == database.fd) database.length_bytes = bytes;
  return fd == database.fd && database.region != nullptr ? 0 : __real_ftruncate64(fd, bytes);
}

int __wrap_fsync(int fd) {
  if (fd != database.fd || database.region == nullptr) return __real_fsync(fd);
  commit();
  return 0;
}

ssize_t __wrap_pwrite64(int fd, const void* buffer, size_t bytes, off64_t offset) {
  if (fd == database.fd) refuse("write", "beyond the mapping, where no store is recorded");
  return __real_pwrite64(fd, buffer, bytes, offset);
}

}  // extern "C"
