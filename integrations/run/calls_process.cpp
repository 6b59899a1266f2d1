// Other programs, as programs start them, and the end of the process.
#include <spawn.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "calls.hpp"
#include "engine_threads.hpp"
#include "images.hpp"
#include "program.hpp"
#include "real.hpp"
#include "start.hpp"

extern char** environ;

namespace memlith::preload {

namespace {

// The environment of a program that is started: with this library and its settings, whatever the caller left out.
class Environment {
 public:
  explicit Environment(char* const* given) {
    bool has_library = false;
    bool has_settings = false;
    const std::string library = library_path();
    for (; given != nullptr && *given != nullptr; ++given) {
      const std::string_view each = *given;
      if (each.starts_with("LD_PRELOAD=")) {
        has_library = true;
        if (each.find(library) == std::string_view::npos) {
          preload_ = "LD_PRELOAD=" + library + ":" + std::string(each.substr(each.find('=') + 1));
          entries_.push_back(preload_.data());
          continue;
        }
      }
      has_settings = has_settings || each.starts_with(std::string(kSettingsVariable) + "=");
      entries_.push_back(*given);
    }
    if (!has_library) {
      preload_ = "LD_PRELOAD=" + library;
      entries_.push_back(preload_.data());
    }
    if (!has_settings) {
      settings_ = std::string(kSettingsVariable) + "=" + encode(settings());
      entries_.push_back(settings_.data());
    }
    entries_.push_back(nullptr);
  }
  [[nodiscard]] char* const* get() const { return entries_.data(); }

 private:
  std::string preload_;
  std::string settings_;
  std::vector<char*> entries_;
};

std::string find_program(const char* name) {
  if (std::strchr(name, '/') != nullptr) return name;
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "/bin:/usr/bin" : path;
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t end = std::min(rest.find(':', begin), rest.size());
    const std::string candidate = (end == begin ? "." : rest.substr(begin, end - begin)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return name;
}

bool may_start(const std::string& path) {
  if (const std::string reason = why_not(path); !reason.empty()) {
    say(path + " " + reason + ". It uses matching files without memlith, so a crash may leave them half changed");
  }
  const NoSignals no_signals;
  const std::shared_lock lock(images().lock());
  const std::string descriptor = images().inherited();
  if (descriptor.empty()) return true;
  say(path + " would inherit " + descriptor + ", which only this program can use; it was not started");
  errno = EPERM;
  return false;
}

// Becomes another program by `call`. What this one has written is in its files then.
template <class Call>
int become(const std::string& path, Call call) {
  if (settings().patterns.empty()) return call();
  if (!may_start(path)) return -1;
  if (!images().any()) return call();
  const NoSignals no_signals;
  {
    const std::unique_lock lock(images().lock());
    images().keep_unseen_writes();
    images().detach_all();
  }
  // The new program begins with the signal mask that this one had.
  const int result = no_signals.without([&] { return call(); });
  const int error = errno;
  const std::unique_lock lock(images().lock());
  images().attach_all();
  errno = error;
  return result;
}

int execute(const char* path, char* const* arguments, char* const* environment) {
  const Environment full(environment);
  return become(path, [&] { return real().execve(path, arguments, full.get()); });
}

int execute_found(const char* name, char* const* arguments, char* const* environment) {
  const Environment full(environment);
  return become(find_program(name), [&] { return real().execvpe(name, arguments, full.get()); });
}

// The arguments of execl and its relatives, up to the null.
#define MEMLITH_ARGUMENTS(first)                          \
  std::vector<char*> arguments{const_cast<char*>(first)}; \
  va_list more;                                           \
  va_start(more, first);                                  \
  while (arguments.back() != nullptr) arguments.push_back(va_arg(more, char*));

}  // namespace

MEMLITH_INTERPOSE(int, execve, const char* path, char* const* arguments, char* const* environment) {
  return execute(path, arguments, environment);
}
MEMLITH_INTERPOSE(int, execv, const char* path, char* const* arguments) { return execute(path, arguments, environ); }
MEMLITH_INTERPOSE(int, execvp, const char* name, char* const* arguments) {
  return execute_found(name, arguments, environ);
}
MEMLITH_INTERPOSE(int, execvpe, const char* name, char* const* arguments, char* const* environment) {
  return execute_found(name, arguments, environment);
}
MEMLITH_INTERPOSE(int, execl, const char* path, const char* first, ...) {
  MEMLITH_ARGUMENTS(first)
  va_end(more);
  return execute(path, arguments.data(), environ);
}
MEMLITH_INTERPOSE(int, execlp, const char* name, const char* first, ...) {
  MEMLITH_ARGUMENTS(first)
  va_end(more);
  return execute_found(name, arguments.data(), environ);
}
MEMLITH_INTERPOSE(int, execle, const char* path, const char* first, ...) {
  MEMLITH_ARGUMENTS(first)
  char* const* const environment = va_arg(more, char* const*);
  va_end(more);
  return execute(path, arguments.data(), environment);
}
MEMLITH_INTERPOSE(int, fexecve, int fd, char* const* arguments, char* const* environment) {
  const Environment full(environment);
  return become("/proc/self/fd/" + std::to_string(fd), [&] { return real().fexecve(fd, arguments, full.get()); });
}
MEMLITH_INTERPOSE(int, execveat, int folder, const char* path, char* const* arguments, char* const* environment,
                  int flags) {
  const Environment full(environment);
  const bool in_folder = folder != AT_FDCWD && path[0] != '/';
  const std::string whole = in_folder ? "/proc/self/fd/" + std::to_string(folder) + "/" + path : path;
  return become(whole, [&] {
    return static_cast<int>(real().syscall(SYS_execveat, folder, path, arguments, full.get(), flags));
  });
}
MEMLITH_INTERPOSE(int, posix_spawn, pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                  const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  if (settings().patterns.empty()) return real().posix_spawn(child, path, actions, attributes, arguments, environment);
  const Environment full(environment);
  if (!may_start(path)) return EPERM;
  return real().posix_spawn(child, path, actions, attributes, arguments, full.get());
}
MEMLITH_INTERPOSE(int, posix_spawnp, pid_t* child, const char* name, const posix_spawn_file_actions_t* actions,
                  const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  if (settings().patterns.empty()) return real().posix_spawnp(child, name, actions, attributes, arguments, environment);
  const Environment full(environment);
  if (!may_start(find_program(name))) return EPERM;
  return real().posix_spawnp(child, name, actions, attributes, arguments, full.get());
}

MEMLITH_INTERPOSE(void, _exit, int status) {
  if (images().any()) images().finish();
  real()._exit(status);
  __builtin_unreachable();
}
MEMLITH_INTERPOSE_ALSO(_Exit, _exit);

MEMLITH_INTERPOSE(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                  void* context) {
  if (!NoSignals::held()) return real().pthread_create(thread, attributes, body, context);
  return engine_threads().start(*thread, body, context);
}

}  // namespace memlith::preload
