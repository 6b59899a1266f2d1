#include "shared/start.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <vector>

extern char** environ;

namespace memlith::core::shared {

namespace {

constexpr int kReadyNumber = 3;  // of the descriptor in the keeper

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> found{};
  return ::realpath(path.c_str(), found.data()) == nullptr ? std::string() : found.data();
}

bool is_program(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// The folder of the library, or of the program that contains it.
std::string own_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&find_program), &self) == 0 || self.dli_fname == nullptr) return {};
  std::string own = real_path(self.dli_fname);
  // The name of a program may be the one that it was started by.
  if (own.empty()) own = real_path("/proc/self/exe");
  return own.substr(0, own.rfind('/'));
}

// The settings of the keeper's process: none of the descriptors but one, and no signal that is blocked or ignored.
class Settings {
 public:
  Settings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~Settings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  int set(int told) {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int error = ::posix_spawnattr_setsigmask(&attributes, &none);
    if (error == 0) error = ::posix_spawnattr_setsigdefault(&attributes, &all);
    if (error == 0) error = ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, told, kReadyNumber);
    // A reader of the program's output to its end does not wait for the keeper.
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (error == 0) error = ::posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
    }
    return error;
  }

  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

Status failure_of(std::string_view told) {
  unsigned category = 0;
  unsigned detail = 0;
  const char* const end = told.data() + told.size();
  const auto first = std::from_chars(told.data(), end, category);
  if (first.ec != std::errc() || first.ptr == end) return kOk;
  const auto second = std::from_chars(first.ptr + 1, end, detail);
  if (second.ec != std::errc() || second.ptr == end || category == 0) return kOk;
  set_error_text({second.ptr + 1, static_cast<std::size_t>(end - second.ptr - 1)});
  return Status{static_cast<Errc>(category), static_cast<Detail>(detail), 0, 0};
}

}  // namespace

Result<std::string> find_program(const std::string& given) {
  if (!given.empty()) {
    if (is_program(given)) return given;
    return fail(Errc::not_found, Detail::open, "{}: this is no program; set `program` to the path of memlith", given);
  }
  const std::string folder = own_folder();
  for (const char* const place : {"/memlith", "/memlith-keeper", "/../bin/memlith", "/../../bin/memlith"}) {
    if (!folder.empty() && is_program(folder + place)) return folder + place;
  }
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = (end == begin ? "." : folders.substr(begin, end - begin)) + "/memlith";
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return fail(Errc::not_found, Detail::open,
              "the program memlith, which keeps shared regions, is neither near {} nor in PATH; install memlith's "
              "tools, set `program` to its path, or start `memlith keeper STORE` before",
              folder);
}

Result<Starting> Starting::start(const std::string& program, const std::string& path, bool create) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, Detail::open, "cannot make a pipe");
  Descriptor heard(above_standard(ends[0]));
  // A descriptor that is already the right one would stay closed on exec.
  Descriptor told(::fcntl(ends[1], F_DUPFD_CLOEXEC, kReadyNumber + 1));
  ::close(ends[1]);
  if (heard.get() < 0 || told.get() < 0) return fail_errno(errno, Detail::open, "cannot make a pipe");
  std::vector<std::string> words{program, "keeper", "--ready-fd", std::to_string(kReadyNumber)};
  if (create) words.emplace_back("--create");
  words.insert(words.end(), {"--", path});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Settings settings;
  pid_t child = -1;
  int error = settings.set(told.get());
  if (error == 0) {
    error = ::posix_spawn(&child, program.c_str(), &settings.actions, &settings.attributes, arguments.data(), environ);
  }
  if (error != 0) return fail_errno(error, Detail::open, "{}: cannot start the keeper", program);
  // The keeper is a child of that child, which ends at once.
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return Starting(std::move(heard));
}

Result<bool> Starting::wait() const {
  std::string told;
  std::array<char, 512> piece{};
  for (;;) {
    const ssize_t got = ::read(told_.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    told.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (told == "ready") return true;
  MEMLITH_TRY(failure_of(told));
  return false;
}

}  // namespace memlith::core::shared
