// run-calls: makes random calls on files and prints what they returned, so that two runs with one seed can be compared:
// one under `memlith run`, one without (calls_test.py).
//
//   run-calls FOLDER SEED COUNT [TRACE_FROM TRACE_TO]
// Prints "INDEX HASH" after every thousandth call, and each result of the traced calls on a line of its own.
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kBytesMax = 96 * 1024;
constexpr std::size_t kPage = 4096;
constexpr int kThreads = 3;
constexpr std::size_t kThreadBytes = 16 * kPage;

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
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool one_in(std::uint64_t bound) { return below(bound) == 0; }

 private:
  std::uint64_t state_;
};

std::uint64_t hash_of(const void* bytes, std::size_t count, std::uint64_t hash = 0xcbf29ce484222325) {
  const auto* const each = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) hash = (hash ^ each[i]) * 0x100000001b3;
  return hash;
}

sigjmp_buf beyond_the_end;
volatile sig_atomic_t expecting_bus = 0;
int signal_fd = -1;

void on_bus(int) {
  if (expecting_bus != 0) siglongjmp(beyond_the_end, 1);
  ::signal(SIGBUS, SIG_DFL);
}

// Writes what is there already, in the middle of other calls.
void on_alarm(int) {
  const int error = errno;
  if (signal_fd >= 0 && ::pwrite(signal_fd, "Z", 1, 7) != 1) std::abort();
  errno = error;
}

struct Mapping {
  char* begin = nullptr;
  std::size_t bytes = 0;
  off_t offset = 0;
  bool writable = false;
  bool shared = false;
  int fd = -1;  // a duplicate, to ask for the size
};

class Calls {
 public:
  Calls(std::uint64_t seed, std::uint64_t from, std::uint64_t to) : random_(seed), trace_from_(from), trace_to_(to) {
    fds_.fill(-1);
    keep_open("a.dat");
    keep_open("b.dat");
    keep_open("c.dat");
    keep_open("plain.txt");
    signal_fd = ::open("s.dat", O_RDWR | O_CREAT, 0644);
  }

  void run(std::uint64_t count) {
    for (index_ = 0; index_ < count; ++index_) {
      one();
      if (index_ % 1000 == 999) std::printf("%" PRIu64 " %016" PRIx64 "\n", index_, hash_);
    }
    for (Mapping& mapping : mappings_) drop(mapping);
    for (int fd : fds_) {
      if (fd >= 0) ::close(fd);
    }
    for (const int fd : kept_) ::close(fd);
    std::printf("end %016" PRIx64 "\n", hash_);
  }

 private:
  void keep_open(const char* name) { kept_.push_back(::open(name, O_RDWR | O_CREAT, 0644)); }

  void say(const char* what, std::int64_t result, std::uint64_t more = 0) {
    const std::int64_t seen = result < 0 ? -errno : result;
    const std::array<std::uint64_t, 2> both{static_cast<std::uint64_t>(seen), more};
    hash_ = hash_of(both.data(), sizeof both, hash_);
    hash_ = hash_of(what, std::strlen(what), hash_);
    if (index_ >= trace_from_ && index_ < trace_to_) {
      std::printf("%" PRIu64 " %s = %" PRId64 " %016" PRIx64 "\n", index_, what, seen, more);
    }
  }

  const char* name() {
    static constexpr std::array<const char*, 5> kNames{"a.dat", "b.dat", "c.dat", "d.dat", "plain.txt"};
    return kNames[random_.below(kNames.size())];
  }
  int slot() { return static_cast<int>(random_.below(fds_.size())); }
  int fd() { return fds_[static_cast<std::size_t>(slot())]; }
  off_t place() { return static_cast<off_t>(random_.below(kBytesMax)); }
  std::size_t some() { return random_.one_in(4) ? random_.below(20000) : random_.below(300); }
  std::vector<char> content(std::size_t bytes) {
    std::vector<char> made(bytes);
    const std::uint64_t seed = random_.next();
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>((seed >> (i % 8 * 8)) + i / 8);
    return made;
  }
  void put(int fd) {
    int& there = fds_[static_cast<std::size_t>(slot())];
    if (there >= 0) say("close", ::close(there));
    there = fd;
  }

  void one() {
    const std::uint64_t kind = random_.below(1000);
    if (kind < 20) return open();
    if (kind < 40) return close_or_copy();
    if (kind < 420) return read_or_write();
    if (kind < 500) return seek();
    if (kind < 560) return lengths();
    if (kind < 620) return look();
    if (kind < 660) return map();
    if (kind < 930) return touch();
    if (kind < 960) return sync();
    if (kind < 975) return copy();
    if (kind < 985) return reserve();
    if (kind < 989) return names();
    if (kind < 990) return stream();
    if (random_.one_in(40)) return child();
    read_or_write();
  }

  void open() {
    static constexpr std::array<int, 3> kModes{O_RDONLY, O_WRONLY, O_RDWR};
    int flags = kModes[random_.below(3)] | O_CLOEXEC;
    if (random_.one_in(2)) flags |= O_CREAT;
    if (random_.one_in(6)) flags |= O_TRUNC;
    if (random_.one_in(4)) flags |= O_APPEND;
    if (random_.one_in(12)) flags |= O_EXCL;
    const int got = random_.one_in(2) ? ::open(name(), flags, 0644) : ::openat(AT_FDCWD, name(), flags, 0640);
    say("open", got < 0 ? got : 0);
    if (got >= 0) put(got);
  }

  void close_or_copy() {
    int& mine = fds_[static_cast<std::size_t>(slot())];
    if (random_.one_in(2)) {
      say("close", ::close(mine));
      mine = -1;
    } else if (random_.one_in(2)) {
      const int got = ::dup(mine);
      say("dup", got < 0 ? got : 0);
      if (got >= 0) put(got);
    } else if (mine >= 0) {
      const int to = fd();
      if (to < 0) return;
      say("dup2", ::dup2(mine, to) - to);
    }
  }

  void read_or_write() {
    const int from = fd();
    const std::size_t bytes = some();
    switch (random_.below(8)) {
      case 0: return got_some("read", from, bytes, [&](char* to) { return ::read(from, to, bytes); });
      case 1: {
        const off_t at = place();
        return got_some("pread", from, bytes, [&](char* to) { return ::pread(from, to, bytes, at); });
      }
      case 2: {
        const off_t at = place();
        return got_some("preadv", from, bytes, [&](char* to) {
          const std::array<iovec, 2> parts{{{to, bytes / 2}, {to + bytes / 2, bytes - bytes / 2}}};
          return ::preadv(from, parts.data(), 2, at);
        });
      }
      default: break;
    }
    std::vector<char> data = content(bytes);
    const std::array<iovec, 2> parts{{{data.data(), bytes / 3}, {data.data() + bytes / 3, bytes - bytes / 3}}};
    struct stat seen{};
    if (::fstat(from, &seen) == 0 && seen.st_size > static_cast<off_t>(2 * kBytesMax)) {
      return say("shorten", ::ftruncate(from, place()));
    }
    switch (random_.below(5)) {
      case 0: return say("write", ::write(from, data.data(), bytes));
      case 1: return say("pwrite", ::pwrite(from, data.data(), bytes, place()));
      case 2: return say("writev", ::writev(from, parts.data(), 2));
      case 3: return say("pwritev", ::pwritev(from, parts.data(), 2, place()));
      default:
        return say("pwritev2", ::pwritev2(from, parts.data(), 2, random_.one_in(3) ? -1 : place(),
                                          random_.one_in(3) ? RWF_APPEND : 0));
    }
  }

  template <class Call>
  void got_some(const char* what, int, std::size_t bytes, Call call) {
    std::vector<char> data(bytes + 1);
    const ssize_t got = call(data.data());
    say(what, got, got > 0 ? hash_of(data.data(), static_cast<std::size_t>(got)) : 0);
  }

  void seek() {
    const int from = fd();
    switch (random_.below(3)) {
      case 0: return say("lseek set", ::lseek(from, place(), SEEK_SET));
      case 1: return say("lseek cur", ::lseek(from, static_cast<off_t>(random_.below(2000)) - 1000, SEEK_CUR));
      default: return say("lseek end", ::lseek(from, -static_cast<off_t>(random_.below(3000)), SEEK_END));
    }
  }

  void lengths() {
    if (random_.one_in(4)) return say("truncate", ::truncate(name(), place()));
    say("ftruncate", ::ftruncate(fd(), place()));
  }

  void look() {
    struct stat seen{};
    const char* what = "fstat";
    int result = 0;
    if (random_.one_in(2)) {
      result = ::fstat(fd(), &seen);
    } else if (random_.one_in(2)) {
      what = "stat";
      result = ::stat(name(), &seen);
    } else {
      what = "statx";
      struct statx more{};
      result = ::statx(AT_FDCWD, name(), 0, STATX_BASIC_STATS, &more);
      seen.st_size = static_cast<off_t>(more.stx_size);
      seen.st_mode = more.stx_mode;
      seen.st_nlink = more.stx_nlink;
    }
    say(what, result,
        result == 0 ? static_cast<std::uint64_t>(seen.st_size) * 64 + seen.st_nlink * 7 + seen.st_mode : 0);
  }

  void drop(Mapping& mapping) {
    if (mapping.begin == nullptr) return;
    say("munmap", ::munmap(mapping.begin, mapping.bytes));
    ::close(mapping.fd);
    mapping = {};
  }

  void map() {
    Mapping& mapping = mappings_[random_.below(mappings_.size())];
    if (mapping.begin != nullptr && random_.one_in(3)) return remap(mapping);
    const int from = fd();
    Mapping made;
    made.bytes = (1 + random_.below(20)) * kPage;
    made.offset = static_cast<off_t>(random_.below(8) * kPage);
    made.writable = !random_.one_in(3);
    made.shared = !random_.one_in(5);
    const bool over = mapping.begin != nullptr && mapping.bytes >= made.bytes && random_.one_in(2);
    const int flags = (made.shared ? MAP_SHARED : MAP_PRIVATE) | (over ? MAP_FIXED : 0);
    const int protection = PROT_READ | (made.writable ? PROT_WRITE : 0);
    if (over) {
      void* const got = ::mmap(mapping.begin, made.bytes, protection, flags, from, made.offset);
      say("mmap over", got == MAP_FAILED ? -1 : 0);
      if (got == MAP_FAILED) return;
      if (mapping.bytes > made.bytes) ::munmap(mapping.begin + made.bytes, mapping.bytes - made.bytes);
      ::close(mapping.fd);
      made.begin = static_cast<char*>(got);
    } else {
      drop(mapping);
      void* const got = ::mmap(nullptr, made.bytes, protection, flags, from, made.offset);
      say("mmap", got == MAP_FAILED ? -1 : 0);
      if (got == MAP_FAILED) return;
      made.begin = static_cast<char*>(got);
    }
    made.fd = ::dup(from);
    mapping = made;
  }

  void remap(Mapping& mapping) {
    const std::size_t bytes = (1 + random_.below(24)) * kPage;
    void* const got = ::mremap(mapping.begin, mapping.bytes, bytes, MREMAP_MAYMOVE);
    say("mremap", got == MAP_FAILED ? -1 : 0);
    if (got == MAP_FAILED) return;
    mapping.begin = static_cast<char*>(got);
    mapping.bytes = bytes;
  }

  // Loads and stores, also where the file has no page.
  void touch() {
    Mapping& mapping = mappings_[random_.below(mappings_.size())];
    if (mapping.begin == nullptr) return;
    const std::size_t at = random_.below(mapping.bytes);
    const std::size_t bytes = std::min(some(), mapping.bytes - at);
    expecting_bus = 1;
    if (sigsetjmp(beyond_the_end, 1) != 0) {
      expecting_bus = 0;
      return say("SIGBUS", 0);
    }
    if (mapping.writable && random_.one_in(2)) {
      const std::vector<char> data = content(bytes);
      struct stat seen{};
      ::fstat(mapping.fd, &seen);
      const auto end = static_cast<std::size_t>(std::max<off_t>(seen.st_size - mapping.offset, 0));
      // Programs may not rely on stores between the end of the file and that of its page.
      const std::size_t count = at < end ? std::min(bytes, end - at) : at / kPage * kPage >= end ? bytes : 0;
      std::memcpy(mapping.begin + at, data.data(), count);
      expecting_bus = 0;
      return say("store", static_cast<std::int64_t>(count));
    }
    const std::uint64_t hash = hash_of(mapping.begin + at, bytes);
    expecting_bus = 0;
    say("load", 0, hash);
  }

  void sync() {
    if (random_.one_in(3)) {
      const Mapping& mapping = mappings_[random_.below(mappings_.size())];
      if (mapping.begin == nullptr) return;
      return say("msync", ::msync(mapping.begin, mapping.bytes, random_.one_in(2) ? MS_SYNC : MS_ASYNC));
    }
    if (!random_.one_in(4)) return look();
    if (random_.one_in(2)) return say("fsync", ::fsync(fd()));
    say("fdatasync", ::fdatasync(fd()));
  }

  void copy() {
    const int in = fd();
    const int out = fd();
    off_t at = place();
    const std::size_t bytes = some();
    // The kernel copies pages of a file onto themselves in pieces of its own choice.
    if (same_file(in, out)) return;
    if (random_.one_in(2)) return say("sendfile", ::sendfile(out, in, &at, bytes), static_cast<std::uint64_t>(at));
    off_t to = place();
    if ((::fcntl(out, F_GETFL) & O_APPEND) != 0) return;
    say("copy_file_range", ::copy_file_range(in, &at, out, &to, bytes, 0), static_cast<std::uint64_t>(at + to));
  }
  static bool same_file(int a, int b) {
    struct stat one{};
    struct stat other{};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_ino == other.st_ino;
  }

  void reserve() {
    static constexpr std::array<int, 3> kKinds{0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
    const int kind = kKinds[random_.below(3)];
    say("fallocate", ::fallocate(fd(), kind, place(), 1 + static_cast<off_t>(some())));
  }

  void names() {
    if (random_.one_in(3)) return say("unlink", ::unlink(name()));
    const char* const from = name();
    const char* const to = name();
    // Two files, both kept by memlith or neither: their names say which.
    if ((from[0] == 'p') != (to[0] == 'p')) return;
    if (random_.one_in(4)) return say("renameat2", ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE));
    say("rename", ::rename(from, to));
  }

  void stream() {
    static constexpr std::array<const char*, 5> kModes{"r", "r+", "w", "a", "a+"};
    const char* const mode = kModes[random_.below(kModes.size())];
    FILE* const file = std::fopen(name(), mode);
    say("fopen", file == nullptr ? -1 : 0);
    if (file == nullptr) return;
    const std::vector<char> data = content(some());
    std::vector<char> read(300);
    const bool reads = mode[0] == 'r';
    if (reads) {
      const std::size_t got = std::fread(read.data(), 1, read.size(), file);
      say("fread", static_cast<std::int64_t>(got), hash_of(read.data(), got));
    }
    std::fseek(file, static_cast<long>(random_.below(5000)), SEEK_SET);
    if (mode[0] != 'r' || mode[1] == '+') {
      say("fwrite", static_cast<std::int64_t>(std::fwrite(data.data(), 1, data.size(), file)));
    }
    if (random_.one_in(3)) say("fsync stream", std::fflush(file) == 0 ? ::fsync(::fileno(file)) : -1);
    say("fclose", std::fclose(file));
  }

  // A child sees what its parent wrote.
  void child() {
    const int from = fd();
    std::fflush(stdout);
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::array<char, 4096> data{};
      const ssize_t got = ::pread(from, data.data(), data.size(), 100);
      ::_exit(got <= 0 ? 3 : static_cast<int>(hash_of(data.data(), static_cast<std::size_t>(got)) & 0x7f));
    }
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    say("fork", status);
  }

  Random random_;
  std::uint64_t index_ = 0;
  std::uint64_t hash_ = 1;
  const std::uint64_t trace_from_;
  const std::uint64_t trace_to_;
  std::array<int, 12> fds_{};
  std::vector<int> kept_;
  std::array<Mapping, 6> mappings_;
};

// Several threads, each with descriptors and a mapping of its own of one file, and a part of it.
void run_thread(std::uint64_t seed, std::uint64_t count, int number, std::uint64_t& hash) {
  Random random(seed + static_cast<std::uint64_t>(number));
  const int fd = ::open("threads.dat", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const off_t begin = static_cast<off_t>(kThreadBytes) * number;
  auto* const memory = static_cast<char*>(::mmap(nullptr, kThreadBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin));
  std::vector<char> data(1000);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t at = random.below(kThreadBytes - data.size());
    const std::size_t bytes = random.below(data.size());
    std::memset(data.data(), static_cast<int>(random.below(256)), bytes);
    std::uint64_t result = 0;
    switch (random.below(5)) {
      case 0:
        result = static_cast<std::uint64_t>(::pwrite(fd, data.data(), bytes, begin + static_cast<off_t>(at)));
        break;
      case 1: std::memcpy(memory + at, data.data(), bytes); break;
      case 2:
        if (random.one_in(50)) result = static_cast<std::uint64_t>(::fdatasync(fd));
        break;
      case 3: result = hash_of(memory + at, bytes); break;
      default:
        if (::pread(fd, data.data(), bytes, begin + static_cast<off_t>(at)) >= 0) result = hash_of(data.data(), bytes);
    }
    hash = hash_of(&result, sizeof result, hash);
  }
  ::munmap(memory, kThreadBytes);
  ::close(fd);
}

void run_threads(std::uint64_t seed, std::uint64_t count) {
  const int fd = ::open("threads.dat", O_RDWR | O_CREAT, 0644);
  if (::ftruncate(fd, static_cast<off_t>(kThreadBytes) * kThreads) != 0) std::abort();
  std::array<std::uint64_t, kThreads> hashes{};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([=, &hashes] { run_thread(seed, count / kThreads, i, hashes[static_cast<std::size_t>(i)]); });
  }
  for (std::thread& each : threads) each.join();
  for (const std::uint64_t hash : hashes) std::printf("thread %016" PRIx64 "\n", hash);
  ::close(fd);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 4 || ::chdir(arguments[1]) != 0) return 2;
  const std::uint64_t seed = std::strtoull(arguments[2], nullptr, 0);
  const std::uint64_t count = std::strtoull(arguments[3], nullptr, 0);
  const bool traced = argument_count >= 6;
  ::signal(SIGBUS, on_bus);
  struct sigaction on{};
  on.sa_handler = on_alarm;
  on.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &on, nullptr);
  Calls calls(seed, traced ? std::strtoull(arguments[4], nullptr, 0) : 1,
              traced ? std::strtoull(arguments[5], nullptr, 0) : 0);
  const itimerval every{{0, 3000}, {0, 3000}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
  calls.run(count * 9 / 10);
  run_threads(seed, count / 10);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  return 0;
}
