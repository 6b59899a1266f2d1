#include "shm/helper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

extern char** environ;

namespace memlith::core::shm {

namespace {

constexpr int kSilentMax = 5;
constexpr std::string_view kReady = "ready";

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

  int set(const HelperProgram& program, int told) {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int error = ::posix_spawnattr_setsigmask(&attributes, &none);
    if (error == 0) error = ::posix_spawnattr_setsigdefault(&attributes, &all);
    if (error == 0) error = ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, told, kReadyNumber);
    if (error == 0 && program.kept >= 0) {
      error = ::posix_spawn_file_actions_adddup2(&actions, program.kept, program.kept);
    }
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (error == 0 && program.is_quiet) {
        error = ::posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
      }
    }
    return error;
  }

  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// The end of the pipe that hears the helper.
Result<Descriptor> spawn(const HelperProgram& program) {
  MEMLITH_ASSERT(program.kept < 0 || program.kept > kReadyNumber);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, Detail::open, "cannot make a pipe");
  Descriptor heard(above_standard(ends[0]));
  // A descriptor that is already the right one would stay closed on exec.
  const Descriptor told(::fcntl(ends[1], F_DUPFD_CLOEXEC, kReadyNumber + 1));
  ::close(ends[1]);
  if (heard.get() < 0 || told.get() < 0) return fail_errno(errno, Detail::open, "cannot make a pipe");
  std::vector<std::string> words = program.words;
  std::vector<std::string> variables = program.environment;
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> environment = pointers(variables);
  Settings settings;
  pid_t child = -1;
  int error = settings.set(program, told.get());
  if (error == 0) {
    error = ::posix_spawn(&child, program.path.c_str(), &settings.actions, &settings.attributes, arguments.data(),
                          program.has_own_environment ? environment.data() : environ);
  }
  if (error != 0) return fail_errno(error, Detail::open, "{}: cannot start this program", program.path);
  // One that leaves is a child of that child, which ends at once.
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return heard;
}

std::string hear(const Descriptor& heard) {
  std::string told;
  std::array<char, 512> piece{};
  for (;;) {
    const ssize_t got = ::read(heard.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return told;
    told.append(piece.data(), static_cast<std::size_t>(got));
  }
}

// Ok: that is no failure.
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

void tell(Descriptor& ready, std::string_view text) {
  if (ready.get() >= 0) [[maybe_unused]]
    const ssize_t told = ::write(ready.get(), text.data(), text.size());
  const Descriptor closed = std::move(ready);
}

}  // namespace

Status start_helper(const HelperProgram& program) {
  for (int silent = 0; silent < kSilentMax; ++silent) {
    MEMLITH_TRY_ASSIGN(const Descriptor heard, spawn(program));
    const std::string told = hear(heard);
    if (told == kReady) return kOk;
    MEMLITH_TRY(failure_of(told));
  }
  return fail(Errc::io, Detail::open,
              "{} did not start: it ended {} times without a word; is it a program of this version of memlith?",
              program.path, kSilentMax);
}

void tell_ready(Descriptor& ready) { tell(ready, kReady); }

void tell_failure(Descriptor& ready, int category, int detail, std::string_view sentence) {
  tell(ready, fmt::format("{} {} {}", category, detail, sentence));
}

}  // namespace memlith::core::shm
