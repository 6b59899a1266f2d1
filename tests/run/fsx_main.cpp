// run-fsx: random calls on one file, in every way that a program has: by the C library's functions, by system call
// numbers, by functions that make the C library write by itself, through mappings and streams. A model in memory says
// what the file holds, and a plain file gets the same bytes. (The idea is that of fsx; fsx_test.py runs it.)
//
//   run-fsx FOLDER SEED COUNT [raw] [kill]
// FOLDER/side.bin is what is copied from. With `kill` the program writes what was committed last to
// FOLDER/committed.bin, and kills itself after COUNT calls. With `raw` some writes are system calls that the program
// makes by an instruction of its own.
#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kBytesMax = 192 * 1024;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSideBytes = 64 * 1024;

// splitmix64
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t x = (state_ += 0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::size_t below(std::size_t bound) { return next() % bound; }
  bool one_in(std::size_t bound) { return below(bound) == 0; }

 private:
  std::uint64_t state_;
};

// A system call that no library sees; returns what syscall(2) returns.
long raw_pwrite(int fd, const void* bytes, std::size_t count, off_t at) {
  long result = 0;
#if defined(__x86_64__)
  register long fourth __asm__("r10") = at;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(SYS_pwrite64), "D"(fd), "S"(bytes), "d"(count), "r"(fourth)
                   : "rcx", "r11", "memory");
#else
  register long number __asm__("x8") = SYS_pwrite64;
  register long first __asm__("x0") = fd;
  register const void* second __asm__("x1") = bytes;
  register long third __asm__("x2") = static_cast<long>(count);
  register long fourth __asm__("x3") = at;
  __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(fourth) : "memory");
  result = first;
#endif
  return result;
}

int descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = -1;  // the folder's own
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd < 256) ++count;
  }
  ::closedir(folder);
  return count;
}

class Fsx {
 public:
  Fsx(std::uint64_t seed, bool raw, bool kills) : random_(seed), raw_(raw), kills_(kills) {
    kept_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    plain_ = ::open("plain.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    committed_ = ::open("committed.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    side_ = ::open("side.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const std::vector<char> side = content(kSideBytes);
    need(kept_ >= 0 && plain_ >= 0 && committed_ >= 0, "open");
    need(::pwrite(side_, side.data(), side.size(), 0) == static_cast<ssize_t>(side.size()), "write side.bin");
    side_bytes_ = side;
  }

  void run(std::uint64_t count) {
    for (index_ = 0; index_ < count; ++index_) one();
    if (kills_) ::kill(::getpid(), SIGKILL);
    doing_ = "the end";
    compare();
    close_kept();
    for (const int fd : {plain_, committed_, side_}) ::close(fd);
  }

 private:
  void need(bool holds, const char* what) {
    if (holds) return;
    std::printf("call %" PRIu64 ", %s: %s: %s\n", index_, doing_, what, std::strerror(errno));
    std::exit(1);
  }

  // ---- what is written -------------------------------------------------------------------------------------------

  bool number() { return random_.one_in(2); }  // by the number of the system call
  std::vector<char> content(std::size_t bytes) {
    std::vector<char> made(bytes);
    const std::uint64_t seed = random_.next();
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>((seed >> (i % 8 * 8)) + i / 8 + 1);
    return made;
  }
  std::size_t some() { return 1 + (random_.one_in(4) ? random_.below(20000) : random_.below(300)); }
  std::size_t place() {
    return random_.one_in(5) ? random_.below(kBytesMax - 30000) : random_.below(model_.size() + 1);
  }

  // The model and the plain file have the bytes; the caller writes them to the file under test.
  void expect(std::size_t at, const char* bytes, std::size_t count) {
    if (model_.size() < at + count) model_.resize(at + count);
    std::memcpy(model_.data() + at, bytes, count);
    need(::pwrite(plain_, bytes, count, static_cast<off_t>(at)) == static_cast<ssize_t>(count), "plain file");
  }
  void expect_length(std::size_t bytes) {
    model_.resize(bytes);
    need(::ftruncate(plain_, static_cast<off_t>(bytes)) == 0, "plain file");
  }
  void expect_zeros(std::size_t at, std::size_t count) {
    count = at < model_.size() ? std::min(count, model_.size() - at) : 0;
    const std::vector<char> zeros(count);
    if (count > 0) expect(at, zeros.data(), count);
  }
  void expect_commit() {
    if (!kills_) return;
    need(::pwrite(committed_, model_.data(), model_.size(), 0) == static_cast<ssize_t>(model_.size()), "committed.bin");
    need(::ftruncate(committed_, static_cast<off_t>(model_.size())) == 0, "committed.bin");
  }

  // ---- writes ----------------------------------------------------------------------------------------------------

  void write_somehow() {
    static constexpr std::array<void (Fsx::*)(std::size_t), 10> kWays{
        &Fsx::write_at, &Fsx::write_here, &Fsx::write_parts, &Fsx::print, &Fsx::write_async,
        &Fsx::stream,   &Fsx::append,     &Fsx::copy_range,  &Fsx::send,  &Fsx::splice_from_pipe};
    (this->*kWays[random_.below(kWays.size())])(place());
  }

  void write_at(std::size_t at) {
    const std::vector<char> data = content(some());
    const bool raw = raw_ && random_.one_in(3);
    doing_ = raw ? "pwrite by an instruction" : "pwrite";
    const auto offset = static_cast<off_t>(at);
    const long done = raw        ? raw_pwrite(kept_, data.data(), data.size(), offset)
                      : number() ? ::syscall(SYS_pwrite64, kept_, data.data(), data.size(), offset)
                                 : ::pwrite(kept_, data.data(), data.size(), offset);
    need(done == static_cast<long>(data.size()), "result");
    expect(at, data.data(), data.size());
  }

  void seek(std::size_t at) {
    const auto offset = static_cast<off_t>(at);
    need((number() ? ::syscall(SYS_lseek, kept_, offset, SEEK_SET) : ::lseek(kept_, offset, SEEK_SET)) == offset,
         "lseek");
  }

  void write_here(std::size_t at) {
    doing_ = "write";
    const std::vector<char> data = content(some());
    seek(at);
    const long done =
        number() ? ::syscall(SYS_write, kept_, data.data(), data.size()) : ::write(kept_, data.data(), data.size());
    need(done == static_cast<long>(data.size()), "result");
    expect(at, data.data(), data.size());
  }

  void write_parts(std::size_t at) {
    std::vector<char> data = content(some() + 2);
    const std::size_t third = data.size() / 3;
    const std::array<iovec, 2> parts{{{data.data(), third}, {data.data() + third, data.size() - third}}};
    const auto offset = static_cast<off_t>(at);
    long done = 0;
    switch (random_.below(3)) {
      case 0:
        doing_ = "writev";
        seek(at);
        done = number() ? ::syscall(SYS_writev, kept_, parts.data(), 2) : ::writev(kept_, parts.data(), 2);
        break;
      case 1:
        doing_ = "pwritev";
        done = number() ? ::syscall(SYS_pwritev, kept_, parts.data(), 2, offset, 0)
                        : ::pwritev(kept_, parts.data(), 2, offset);
        break;
      default:
        doing_ = "pwritev2";
        done = number() ? ::syscall(SYS_pwritev2, kept_, parts.data(), 2, offset, 0, 0)
                        : ::pwritev2(kept_, parts.data(), 2, offset, 0);
    }
    need(done == static_cast<long>(data.size()), "result");
    expect(at, data.data(), data.size());
  }

  void print(std::size_t at) {
    doing_ = "dprintf";
    const std::uint64_t value = random_.next();
    const std::string text = "value " + std::to_string(value) + "\n";
    seek(at);
    need(::dprintf(kept_, "value %" PRIu64 "\n", value) == static_cast<int>(text.size()), "result");
    expect(at, text.data(), text.size());
  }

  void write_async(std::size_t at) {
    std::vector<char> data = content(some() + 1);
    const std::size_t half = data.size() / 2;
    std::array<aiocb, 2> requests{};
    for (std::size_t i = 0; i < 2; ++i) {
      requests[i].aio_fildes = kept_;
      requests[i].aio_buf = data.data() + i * half;
      requests[i].aio_nbytes = i == 0 ? half : data.size() - half;
      requests[i].aio_offset = static_cast<off_t>(at + i * half);
      requests[i].aio_lio_opcode = LIO_WRITE;
      requests[i].aio_sigevent.sigev_notify = SIGEV_NONE;
    }
    const std::array<aiocb*, 2> list{&requests[0], &requests[1]};
    if (random_.one_in(2)) {
      doing_ = "lio_listio";
      need(::lio_listio(LIO_WAIT, list.data(), 2, nullptr) == 0, "result");
    } else {
      doing_ = "aio_write";
      for (aiocb& each : requests) need(::aio_write(&each) == 0, "result");
    }
    for (aiocb& each : requests) {
      const aiocb* const waited = &each;
      while (::aio_error(&each) == EINPROGRESS) ::aio_suspend(&waited, 1, nullptr);
      need(::aio_return(&each) == static_cast<ssize_t>(each.aio_nbytes), "aio_return");
    }
    expect(at, data.data(), data.size());
  }

  void stream(std::size_t at) {
    doing_ = "a stream";
    const std::vector<char> data = content(some());
    FILE* const file = random_.one_in(2) ? ::fdopen(::dup(kept_), "r+") : ::fopen(name_.c_str(), "r+");
    need(file != nullptr, "fdopen");
    need(std::fseek(file, static_cast<long>(at), SEEK_SET) == 0, "fseek");
    need(std::fwrite(data.data(), 1, data.size(), file) == data.size(), "fwrite");
    need(std::fclose(file) == 0, "fclose");
    expect(at, data.data(), data.size());
  }

  void append(std::size_t) {
    doing_ = "appending";
    if (model_.size() > kBytesMax) return;
    const std::vector<char> data = content(some());
    constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC;
    const int fd = number() ? static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name_.c_str(), kFlags))
                            : ::open(name_.c_str(), kFlags);
    need(fd >= 0, "open");
    need(::write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size()), "write");
    need((number() ? ::syscall(SYS_close, fd) : ::close(fd)) == 0, "close");
    expect(model_.size(), data.data(), data.size());
  }

  void copy_range(std::size_t at) {
    doing_ = "copy_file_range";
    off_t from = static_cast<off_t>(random_.below(kSideBytes / 2));
    off_t to = static_cast<off_t>(at);
    const char* const source = side_bytes_.data() + from;
    const std::size_t bytes = some();
    const long done = number() ? ::syscall(SYS_copy_file_range, side_, &from, kept_, &to, bytes, 0)
                               : ::copy_file_range(side_, &from, kept_, &to, bytes, 0);
    need(done == static_cast<long>(bytes) && to == static_cast<off_t>(at + bytes), "result");
    expect(at, source, bytes);
  }

  void send(std::size_t at) {
    doing_ = "sendfile";
    off_t from = static_cast<off_t>(random_.below(kSideBytes / 2));
    const char* const source = side_bytes_.data() + from;
    const std::size_t bytes = some();
    seek(at);
    const long done =
        number() ? ::syscall(SYS_sendfile, kept_, side_, &from, bytes) : ::sendfile(kept_, side_, &from, bytes);
    need(done == static_cast<long>(bytes), "result");
    expect(at, source, bytes);
  }

  void splice_from_pipe(std::size_t at) {
    doing_ = "splice";
    const std::vector<char> data = content(1 + random_.below(4000));
    std::array<int, 2> ends{};
    need(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
    need(::write(ends[1], data.data(), data.size()) == static_cast<ssize_t>(data.size()), "write to the pipe");
    ::close(ends[1]);
    off_t to = static_cast<off_t>(at);
    std::size_t done = 0;
    while (done < data.size()) {
      const std::size_t rest = data.size() - done;
      const long step = number() ? ::syscall(SYS_splice, ends[0], nullptr, kept_, &to, rest, 0)
                                 : ::splice(ends[0], nullptr, kept_, &to, rest, 0);
      need(step > 0, "result");
      done += static_cast<std::size_t>(step);
    }
    ::close(ends[0]);
    expect(at, data.data(), data.size());
  }

  // ---- mappings --------------------------------------------------------------------------------------------------

  char* map(std::size_t offset, std::size_t bytes, int protection) {
    const auto at = static_cast<off_t>(offset);
    void* const got =
        number() ? reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, bytes, protection, MAP_SHARED, kept_, at))
                 : ::mmap(nullptr, bytes, protection, MAP_SHARED, kept_, at);
    need(got != MAP_FAILED, "mmap");
    return static_cast<char*>(got);
  }
  void unmap(char* begin, std::size_t bytes) {
    need((number() ? ::syscall(SYS_munmap, begin, bytes) : ::munmap(begin, bytes)) == 0, "munmap");
  }

  void store() {
    if (model_.empty()) return;
    doing_ = "a store";
    const std::size_t at = random_.below(model_.size());
    const std::vector<char> data = content(std::min(some(), model_.size() - at));
    const std::size_t begin = at / kPage * kPage;
    const std::size_t bytes = at + data.size() - begin;
    char* const memory = map(begin, bytes, PROT_READ | PROT_WRITE);
    std::memcpy(memory + (at - begin), data.data(), data.size());
    expect(at, data.data(), data.size());
    if (random_.one_in(3)) {
      doing_ = "msync";
      need((number() ? ::syscall(SYS_msync, memory, bytes, MS_SYNC) : ::msync(memory, bytes, MS_SYNC)) == 0, "result");
      expect_commit();
    }
    if (random_.one_in(4)) {
      doing_ = "madvise(MADV_REMOVE)";
      const long done =
          number() ? ::syscall(SYS_madvise, memory, bytes, MADV_REMOVE) : ::madvise(memory, bytes, MADV_REMOVE);
      need(done == 0, "result");
      expect_zeros(begin, (bytes + kPage - 1) / kPage * kPage);
    }
    unmap(memory, bytes);
  }

  // ---- lengths ---------------------------------------------------------------------------------------------------

  void resize() {
    const std::size_t bytes = random_.one_in(3) ? random_.below(kBytesMax / 2) : random_.below(model_.size() + 1);
    const auto length = static_cast<off_t>(bytes);
    doing_ = "truncating";
    const long done = random_.one_in(3) ? (number() ? ::syscall(SYS_truncate, name_.c_str(), length)
                                                    : ::truncate(name_.c_str(), length))
                      : number()        ? ::syscall(SYS_ftruncate, kept_, length)
                                        : ::ftruncate(kept_, length);
    need(done == 0, "result");
    expect_length(bytes);
  }

  void reserve() {
    static constexpr std::array<int, 3> kKinds{0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
    const int kind = kKinds[random_.below(3)];
    const std::size_t at = place();
    const std::size_t bytes = some();
    doing_ = "fallocate";
    const long done = number() ? ::syscall(SYS_fallocate, kept_, kind, at, bytes)
                               : ::fallocate(kept_, kind, static_cast<off_t>(at), static_cast<off_t>(bytes));
    need(done == 0, "result");
    if (kind == 0 && model_.size() < at + bytes) expect_length(at + bytes);
    if ((kind & FALLOC_FL_PUNCH_HOLE) != 0) expect_zeros(at, bytes);
  }

  // ---- commits, names, descriptors -------------------------------------------------------------------------------

  void sync() {
    long done = 0;
    switch (random_.below(3)) {
      case 0:
        doing_ = "fsync";
        done = number() ? ::syscall(SYS_fsync, kept_) : ::fsync(kept_);
        break;
      case 1:
        doing_ = "fdatasync";
        done = number() ? ::syscall(SYS_fdatasync, kept_) : ::fdatasync(kept_);
        break;
      default: {
        doing_ = "aio_fsync";
        aiocb request{};
        request.aio_fildes = kept_;
        request.aio_sigevent.sigev_notify = SIGEV_NONE;
        need(::aio_fsync(random_.one_in(2) ? O_SYNC : O_DSYNC, &request) == 0, "result");
        const aiocb* const waited = &request;
        while (::aio_error(&request) == EINPROGRESS) ::aio_suspend(&waited, 1, nullptr);
        done = ::aio_return(&request);
      }
    }
    need(done == 0, "result");
    expect_commit();
  }

  void close_kept() { need((number() ? ::syscall(SYS_close, kept_) : ::close(kept_)) == 0, "close"); }

  void open_again() {
    doing_ = "closing and opening";
    const bool truncates = random_.one_in(10);
    const int flags = O_RDWR | O_CLOEXEC | (truncates ? O_TRUNC : 0);
    close_kept();
    expect_commit();
    kept_ = number() ? static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name_.c_str(), flags))
                     : ::open(name_.c_str(), flags);
    need(kept_ >= 0, "open");
    if (truncates) expect_length(0);
    compare();
  }

  void duplicate() {
    doing_ = "duplicating";
    int copy = ::dup(kept_);
    need(copy >= 0, "dup");
    if (random_.one_in(2)) std::swap(kept_, copy);
    need((number() ? ::syscall(SYS_dup3, kept_, copy, O_CLOEXEC) : ::dup2(kept_, copy)) == copy, "dup2");
    need((number() ? ::syscall(SYS_close, copy) : ::close(copy)) == 0, "close");
  }

  void rename() {
    doing_ = "renaming";
    const std::string to = name_ == "data.fsx" ? "other.fsx" : "data.fsx";
    need((number() ? ::syscall(SYS_renameat2, AT_FDCWD, name_.c_str(), AT_FDCWD, to.c_str(), 0)
                   : ::rename(name_.c_str(), to.c_str())) == 0,
         "result");
    name_ = to;
    expect_commit();
  }

  void replace() {
    doing_ = "replacing";
    std::string fresh = "new-XXXXXX.fsx";
    const int fd = ::mkostemps(fresh.data(), 4, O_CLOEXEC);
    need(fd >= 0, "mkostemps");
    const std::vector<char> data = content(some() * 3);
    need(::write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size()), "write");
    need(::fsync(fd) == 0, "fsync");
    need((number() ? ::syscall(SYS_renameat, AT_FDCWD, fresh.c_str(), AT_FDCWD, name_.c_str())
                   : ::rename(fresh.c_str(), name_.c_str())) == 0,
         "rename");
    close_kept();
    kept_ = fd;
    expect_length(0);
    expect(0, data.data(), data.size());
    expect_commit();
  }

  // ---- looking ---------------------------------------------------------------------------------------------------

  void check_length() {
    struct stat seen{};
    struct statx more{};
    long done = 0;
    switch (random_.below(4)) {
      case 0:
        doing_ = "fstat";
        done = number() ? ::syscall(SYS_fstat, kept_, &seen) : ::fstat(kept_, &seen);
        break;
      case 1:
        doing_ = "fstatat";
        done = number() ? ::syscall(SYS_newfstatat, AT_FDCWD, name_.c_str(), &seen, 0)
                        : ::fstatat(AT_FDCWD, name_.c_str(), &seen, 0);
        break;
      default:
        doing_ = "statx";
        done = number() ? ::syscall(SYS_statx, AT_FDCWD, name_.c_str(), 0, STATX_BASIC_STATS, &more)
                        : ::statx(kept_, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more);
        seen.st_size = static_cast<off_t>(more.stx_size);
    }
    need(done == 0 && static_cast<std::size_t>(seen.st_size) == model_.size(), "the length");
  }

  void check_bytes() {
    if (model_.empty()) return;
    doing_ = "reading";
    const std::size_t at = random_.below(model_.size());
    const std::size_t bytes = std::min(some(), model_.size() - at);
    if (random_.one_in(3)) {
      const std::size_t begin = at / kPage * kPage;
      char* const memory = map(begin, at + bytes - begin, PROT_READ);
      need(std::memcmp(memory + (at - begin), model_.data() + at, bytes) == 0, "other bytes in a mapping");
      return unmap(memory, at + bytes - begin);
    }
    std::vector<char> found(bytes);
    const auto offset = static_cast<off_t>(at);
    const long done = number() ? ::syscall(SYS_pread64, kept_, found.data(), bytes, offset)
                               : ::pread(kept_, found.data(), bytes, offset);
    need(done == static_cast<long>(bytes), "result");
    need(std::memcmp(found.data(), model_.data() + at, bytes) == 0, "other bytes");
  }

  void compare() {
    std::vector<char> found(model_.size() + 1);
    need(::pread(kept_, found.data(), found.size(), 0) == static_cast<ssize_t>(model_.size()), "the length");
    need(std::memcmp(found.data(), model_.data(), model_.size()) == 0, "other bytes in the whole file");
  }

  void one() {
    const std::size_t kind = random_.below(100);
    if (kind < 45) return write_somehow();
    if (kind < 58) return store();
    if (kind < 64) return resize();
    if (kind < 68) return reserve();
    if (kind < 80) return check_bytes();
    if (kind < 88) return check_length();
    if (kind < 93) return sync();
    if (kind < 95) return duplicate();
    if (kind < 98) return open_again();
    return random_.one_in(2) ? rename() : replace();
  }

  Random random_;
  const bool raw_;
  const bool kills_;
  std::uint64_t index_ = 0;
  const char* doing_ = "the beginning";
  std::string name_ = "data.fsx";
  int kept_ = -1;
  int plain_ = -1;
  int committed_ = -1;
  int side_ = -1;
  std::vector<char> side_bytes_;
  std::vector<char> model_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 4 || ::chdir(arguments[1]) != 0) return 2;
  bool raw = false;
  bool kills = false;
  for (int i = 4; i < argument_count; ++i) {
    raw = raw || std::strcmp(arguments[i], "raw") == 0;
    kills = kills || std::strcmp(arguments[i], "kill") == 0;
  }
  const int before = descriptors();
  Fsx(std::strtoull(arguments[2], nullptr, 0), raw, kills).run(std::strtoull(arguments[3], nullptr, 0));
  const int left = descriptors() - before;
  if (left != 0) std::printf("%d descriptors are left open\n", left);
  return left == 0 ? 0 : 1;
}
