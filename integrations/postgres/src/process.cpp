#include "process.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "real.hpp"

namespace memlith_postgres {

namespace {

constexpr std::string_view kVersionName = "PG_VERSION";
constexpr std::string_view kLockFile = "postmaster.pid";
constexpr std::string_view kInitSuffix = "_init";

off_t place_of(std::uint32_t block) { return static_cast<off_t>(block) * static_cast<off_t>(kPageBytes); }

class OpenFile final : public FileAccess {
 public:
  explicit OpenFile(int descriptor, int (*sync)(int) = real().fsync) : descriptor_(descriptor), sync_(sync) {}

  std::uint32_t blocks() override {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) return 0;
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(status.st_size) / kPageBytes);
  }
  bool read_cached(std::uint32_t block, std::byte* page) override {
    const iovec piece{page, kPageBytes};
    // A file system that does not know the flag says so; then the whole page is logged.
    return ::preadv2(descriptor_, &piece, 1, place_of(block), RWF_NOWAIT) == static_cast<ssize_t>(kPageBytes);
  }
  int write(std::uint32_t block, const std::byte* page) override {
    for (std::size_t done = 0; done < kPageBytes;) {
      const ssize_t bytes =
          real().pwrite(descriptor_, page + done, kPageBytes - done, place_of(block) + static_cast<off_t>(done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return bytes < 0 ? errno : ENOSPC;
      done += static_cast<std::size_t>(bytes);
    }
    return 0;
  }
  int flush() override { return sync_(descriptor_) == 0 ? 0 : errno; }
  int cut(std::uint32_t blocks) override { return real().ftruncate(descriptor_, place_of(blocks)) == 0 ? 0 : errno; }
  int lengthen(std::uint32_t blocks) override {
    const off_t end = place_of(this->blocks());
    return end < place_of(blocks) ? real().posix_fallocate(descriptor_, end, place_of(blocks) - end) : 0;
  }

 private:
  const int descriptor_;
  int (*const sync_)(int);
};

int as_call(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Calls with one piece after the other, until one is done in part.
template <class Call>
ssize_t for_each_piece(const iovec* pieces, int count, off_t offset, const Call& call) {
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t bytes = call(pieces[i], offset + done);
    if (bytes < 0) return done > 0 ? done : -1;
    done += bytes;
    if (static_cast<std::size_t>(bytes) < pieces[i].iov_len) break;
  }
  return done;
}

FileRef ref_of(Pages& pages, const struct stat& status) {
  const Pages::Lock lock(pages);
  return pages.find_file(status.st_dev, status.st_ino);
}

}  // namespace

Process::Process(Pages::Segment memory)
    : pages_(std::move(memory)),
      waiting_(pages_, start_keeper),
      calls_(pages_, waiting_),
      data_(pages_.memory().data.data()),
      version_(std::string(pages_.memory().log.data()) + "/PG_VERSION"),
      postmaster_(::getpid()) {
  real().stat(data_.c_str(), &data_folder_);
}

bool Process::track(int descriptor, std::string_view path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return false;
  const auto blocks = static_cast<std::uint32_t>(static_cast<std::uint64_t>(status.st_size) / kPageBytes);
  const std::string init = init_of(path);
  const bool unlogged = !init.empty() && ::access((data_ + "/" + init).c_str(), F_OK) == 0;
  const Pages::Lock lock(pages_);
  const FileRef file = pages_.add_file(status.st_dev, status.st_ino, path, blocks, unlogged);
  files_[static_cast<std::size_t>(descriptor)] = file;
  return bool(file);
}

int Process::open(const char* path, int flags, mode_t mode) {
  const std::string_view name = within(data_, path);
  if (!is_relation(name)) {
    const bool locks = name == kLockFile && (flags & O_EXCL) != 0 && ::getpid() == postmaster_;
    if (locks) check_folder();
    const int descriptor = real().open(redirect(path), flags, mode);
    if (descriptor >= 0 && descriptor < kDescriptorsMax) {
      forget(descriptor);
      wal_[static_cast<std::size_t>(descriptor)] = memlith_postgres::is_wal(name);
    }
    if (descriptor >= 0 && locks) has_lock_file_ = true;
    return descriptor;
  }
  if ((flags & O_CREAT) != 0) {
    if (const int error = calls_.before_creation(name); error != 0) return as_call(error);
  }
  // It may be read by calls that this library does not see.
  if ((flags & O_ACCMODE) == O_RDONLY) {
    if (const int error = calls_.bring_home(); error != 0) return as_call(error);
  }
  const int descriptor = real().open(path, flags, mode);
  if (descriptor < 0) return descriptor;
  if ((flags & O_CREAT) != 0 && name.ends_with(kInitSuffix)) find_unlogged(name);
  if (descriptor < kDescriptorsMax && track(descriptor, name)) return descriptor;
  real().close(descriptor);
  return as_call(EMFILE);
}

ssize_t Process::write_wal(int descriptor, const void* source, std::size_t bytes, off_t offset) {
  const auto write = [descriptor](const std::byte* from, std::size_t count, std::uint64_t at) {
    return real().pwrite(descriptor, from, count, static_cast<off_t>(at));
  };
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return -1;
  return pages_.memory().wal.write({status.st_dev, status.st_ino, static_cast<std::uint64_t>(offset)},
                                   static_cast<const std::byte*>(source), bytes, write);
}

int Process::flush_wal(int descriptor, int (*sync)(int)) {
  const int flushed = sync(descriptor);
  if (flushed != 0) pages_.memory().wal.fail();
  return flushed;
}

// The files that an unlogged relation has when it becomes one, by this file; of later ones track() knows it.
void Process::find_unlogged(std::string_view init) {
  const std::string main = data_ + "/" + std::string(init.substr(0, init.size() - kInitSuffix.size()));
  for (const char* const fork : {"", "_fsm", "_vm"}) {
    if (const FileRef file = find((main + fork).c_str())) calls_.make_unlogged(file);
  }
}

// The entry may have been given to another file meanwhile, if there are more files than entries.
FileRef& Process::ref(int descriptor) {
  FileRef& file = files_[static_cast<std::size_t>(descriptor)];
  if (pages_.is_current(file)) return file;
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size() - 1);
  const std::string_view name = within(data_, {path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))});
  if (is_relation(name)) track(descriptor, name);  // a removed file is called otherwise
  return file;
}

ssize_t Process::read(int descriptor, void* target, std::size_t bytes, off_t offset) {
  const FileRef file = ref(descriptor);
  auto* const begin = static_cast<std::byte*>(target);
  std::size_t done = 0;
  while (done < bytes) {
    const auto at = static_cast<std::uint64_t>(offset) + done;
    const std::size_t skip = at % kPageBytes;
    const std::size_t part = std::min(bytes - done, kPageBytes - skip);
    if (calls_.read(file, static_cast<std::uint32_t>(at / kPageBytes), skip, part, begin + done)) {
      done += part;
      continue;
    }
    const ssize_t read = real().pread(descriptor, begin + done, part, static_cast<off_t>(at));
    if (read < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
    done += static_cast<std::size_t>(read);
    if (static_cast<std::size_t>(read) < part) break;
  }
  return static_cast<ssize_t>(done);
}

// PostgreSQL writes whole pages only.
ssize_t Process::write(int descriptor, const void* source, std::size_t bytes, off_t offset) {
  if (bytes % kPageBytes != 0 || offset % place_of(1) != 0) return as_call(EINVAL);
  const FileRef file = ref(descriptor);
  OpenFile access(descriptor);
  const auto* const begin = static_cast<const std::byte*>(source);
  for (std::size_t done = 0; done < bytes; done += kPageBytes) {
    const auto block = static_cast<std::uint32_t>((static_cast<std::size_t>(offset) + done) / kPageBytes);
    const int error = calls_.write(file, access, block, begin + done);
    if (error != 0) return done > 0 ? static_cast<ssize_t>(done) : as_call(error);
  }
  return static_cast<ssize_t>(bytes);
}

ssize_t Process::read(int descriptor, const iovec* pieces, int count, off_t offset) {
  return for_each_piece(pieces, count, offset, [&](const iovec& piece, off_t at) {
    return read(descriptor, piece.iov_base, piece.iov_len, at);
  });
}

ssize_t Process::write(int descriptor, const iovec* pieces, int count, off_t offset) {
  return for_each_piece(pieces, count, offset, [&](const iovec& piece, off_t at) {
    return write(descriptor, piece.iov_base, piece.iov_len, at);
  });
}

int Process::allocate(int descriptor, off_t offset, off_t bytes) {
  if ((offset + bytes) % place_of(1) != 0) return EINVAL;
  OpenFile access(descriptor);
  return calls_.lengthen(ref(descriptor), access, static_cast<std::uint32_t>((offset + bytes) / place_of(1)));
}

int Process::flush(int descriptor, int (*sync)(int)) {
  OpenFile access(descriptor, sync);
  return as_call(calls_.flush(ref(descriptor), access));
}

int Process::cut(int descriptor, off_t bytes) {
  OpenFile access(descriptor);
  if (bytes % static_cast<off_t>(kPageBytes) != 0) return as_call(EINVAL);
  return as_call(calls_.cut(ref(descriptor), access, static_cast<std::uint32_t>(bytes / place_of(1))));
}

int Process::cut(const char* path, off_t bytes) {
  const int descriptor = open(path, O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int result = cut(descriptor, bytes);
  const int error = errno;
  forget(descriptor);
  real().close(descriptor);
  errno = error;
  return result;
}

FileRef Process::find(const char* path) {
  struct stat status{};
  return real().lstat(path, &status) == 0 ? ref_of(pages_, status) : FileRef{};
}

int Process::unlink(const char* path) {
  const std::string_view name = within(data_, path);
  if (name == kLockFile && has_lock_file_ && ::getpid() == postmaster_) {
    has_lock_file_ = false;
    // pg_ctl takes the server for stopped when the file is gone; the directory is an ordinary one by then.
    if (!waiting_.finish()) say("the data directory needs `memlith postgres recover`, or a start with memlith");
  } else if (is_relation(name)) {
    if (const FileRef file = find(path)) {
      if (const int error = calls_.before_removal(file); error != 0) return as_call(error);
    }
  }
  return real().unlink(path);
}

// The server is in its data directory when it makes its lock file.
void Process::check_folder() const {
  struct stat here{};
  if (real().stat(".", &here) == 0 && here.st_dev == data_folder_.st_dev && here.st_ino == data_folder_.st_ino) return;
  say("the server's data directory is not " + data_ + ": name the one of its setting data_directory with -D");
  ::_exit(1);
}

const char* Process::redirect(const char* path) const {
  const std::string_view whole = path;
  if (!whole.ends_with(kVersionName)) return path;
  std::string_view folder = whole.substr(0, whole.size() - kVersionName.size());
  if (!folder.empty() && folder.back() != '/') return path;
  struct stat status{};
  const std::string name = folder.empty() ? "." : std::string(folder);
  if (real().stat(name.c_str(), &status) != 0) return path;
  const bool is_own = status.st_dev == data_folder_.st_dev && status.st_ino == data_folder_.st_ino;
  return is_own ? version_.c_str() : path;
}

}  // namespace memlith_postgres
