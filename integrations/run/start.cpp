// The start of a program that this library was loaded into, and its end.
#include "start.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "engine_heap.hpp"
#include "engine_threads.hpp"
#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

constexpr int kExitRefused = 126;
constexpr std::string_view kImageName = "/memfd:memlith (deleted)";  // of working images, in /proc/self/fd

// A descriptor that another program opened is not of an image, or of an image that is no more.
void refuse_inherited() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = std::atoi(entry->d_name);
    if ((::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) continue;
    std::array<char, PATH_MAX> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), path.data(), path.size() - 1) <= 0) continue;
    if (path.data() == kImageName) {
      say("descriptor " + std::to_string(fd) +
          " is of a file that another program keeps with memlith. What this program writes to the descriptor would be "
          "in no commit; let this program open the file itself");
      real()._exit(kExitRefused);
    }
    struct stat seen{};
    const bool is_kept = settings().matches(path.data()) && real().fstat(fd, &seen) == 0 && may_be_kept(fd, seen);
    if (!is_kept) continue;
    say(std::string(path.data()) + " was opened for writing by another program, as descriptor " + std::to_string(fd) +
        ", and memlith cannot take it over; let the program open the file itself, or choose a --match that leaves it "
        "out");
    real()._exit(kExitRefused);
  }
  ::closedir(folder);
}

void finish(int, void*) {
  if (!images().any()) return;
  std::fflush(nullptr);
  images().finish();
}

// The data behind the locks has to be whole in the child. While they are held, no handler may run.
NoSignals* around_fork = nullptr;  // guarded by the lock
void before_fork() {
  auto* const no_signals = new NoSignals;
  images().lock().lock();
  around_fork = no_signals;
  lock_heap();
}
void after_fork() {
  unlock_heap();
  const std::unique_ptr<NoSignals> no_signals(std::exchange(around_fork, nullptr));
  images().lock().unlock();
}
void in_child() {
  unlock_heap_in_child();
  const std::unique_ptr<NoSignals> no_signals(std::exchange(around_fork, nullptr));
  // The lock belongs to the parent's thread, as which the child cannot unlock it.
  std::construct_at(&images().lock());
  images().in_child();
  engine_threads().in_child();
  late_commits().in_child();
  Witness::in_child();
}

__attribute__((constructor)) void start() {
  if (settings().patterns.empty()) return;
  refuse_inherited();
  ::pthread_atfork(before_fork, after_fork, in_child);
  // Unlike atexit and destructors, this runs after the destructors of all libraries, which may still write.
  ::on_exit(finish, nullptr);
}

}  // namespace

const Settings& settings() {
  static const Settings& read = *[] {
    auto* const made = new Settings;
    if (!decode(std::getenv(kSettingsVariable), *made)) made->patterns.clear();
    return made;
  }();
  return read;
}

long fork_by(long (*call)(const void*), const void* context) {
  before_fork();
  const long made = call(context);
  const int error = errno;
  if (made == 0) {
    in_child();
  } else {
    after_fork();
  }
  errno = error;
  return made;
}

const char* library_path() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(&library_path), &info) != 0 ? info.dli_fname : "";
}

}  // namespace memlith::preload
