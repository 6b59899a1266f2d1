// run-handler: uses a file in handlers of signals, as POSIX lets a program do, and says which of its calls called the
// program's malloc. The signal may have come within that malloc, whose lock the handler then waits for for ever.
//
//   run-handler FILE
// Prints "STEP CALLS" for each step: the number of calls of malloc and the like that it made in the handler.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

// glibc's own, under the names by which a malloc of the program's reaches them.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t each_bytes);
void* __libc_realloc(void* bytes, std::size_t wanted);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* bytes);
}

namespace {
[[gnu::tls_model("initial-exec")]] thread_local bool t_in_handler = false;
[[gnu::tls_model("initial-exec")]] thread_local int t_calls = 0;

void count() {
  if (t_in_handler) ++t_calls;
}
}  // namespace

extern "C" {
void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t all, std::size_t each_bytes) {
  count();
  return __libc_calloc(all, each_bytes);
}
void* realloc(void* bytes, std::size_t wanted) {
  count();
  return __libc_realloc(bytes, wanted);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** made, std::size_t alignment, std::size_t bytes) {
  count();
  *made = __libc_memalign(alignment, bytes);
  return *made == nullptr ? 12 : 0;
}
void free(void* bytes) {
  if (bytes != nullptr) count();
  __libc_free(bytes);
}
}

namespace {

void (*step)() = nullptr;
int fd = -1;
const char* path = nullptr;
std::string other;

void require(bool holds) {
  if (!holds) std::abort();
}

void on_signal(int) {
  t_in_handler = true;
  step();
  t_in_handler = false;
}

// In a handler, in which nothing else runs.
void in_handler(const char* what, void (*body)()) {
  step = body;
  t_calls = 0;
  ::raise(SIGUSR1);
  std::printf("%s %d\n", what, t_calls);
}

void write_pages() {
  for (off_t page = 0; page < 3000; page += 2) require(::pwrite(fd, "x", 1, page * 4096) == 1);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 2) return 2;
  path = arguments[1];
  other = std::string(path) + ".other";
  ::signal(SIGUSR1, on_signal);
  fd = ::open(path, O_RDWR | O_CREAT, 0644);
  require(fd >= 0);
  in_handler("first_write", [] { require(::pwrite(fd, "first", 5, 0) == 5); });
  in_handler("write", [] { require(::write(fd, "again", 5) == 5); });
  in_handler("many_writes", write_pages);
  in_handler("fsync", [] { require(::fsync(fd) == 0); });
  in_handler("writes_and_fdatasync", [] {
    write_pages();
    require(::fdatasync(fd) == 0);
  });
  in_handler("ftruncate", [] { require(::ftruncate(fd, 100000) == 0 && ::fsync(fd) == 0); });
  in_handler("read", [] {
    char bytes[5];
    require(::pread(fd, bytes, 5, 0) == 5);
  });
  in_handler("fork", [] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    require(::waitpid(child, nullptr, 0) == child);
  });
  in_handler("close", [] { require(::close(fd) == 0); });
  in_handler("open", [] { require((fd = ::open(path, O_RDWR)) >= 0); });
  in_handler("open_new", [] {
    const int made = ::open(other.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    require(made >= 0 && ::write(made, "new", 3) == 3 && ::close(made) == 0);
  });
  in_handler("stat", [] {
    struct stat seen{};
    require(::stat(other.c_str(), &seen) == 0 && seen.st_size == 3);
  });
  in_handler("rename", [] { require(::rename(other.c_str(), path) == 0); });
  in_handler("unlink", [] { require(::unlink(path) == 0); });
  ::close(fd);
  return 0;
}
