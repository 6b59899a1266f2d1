// memlith run -- PROGRAM: starts a program with the library that keeps its matching files failure-atomic
// (docs/failure-atomic-files.md).
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

#include "commands.hpp"
#include "memlith/memlith.h"
#include "program.hpp"
#include "settings.hpp"

namespace memlith::tool {

namespace {

constexpr int kExitRefused = 126;  // as shells say of a program that cannot be started
constexpr int kExitNotFound = 127;

Failure refusal(std::int32_t category, std::string message, std::string advice, int exit_code = kExitRefused) {
  Failure failure = tool_failure(category, std::move(message), std::move(advice));
  failure.exit_code = exit_code;
  return failure;
}

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> found{};
  return ::realpath(path.c_str(), found.data()) == nullptr ? std::string() : found.data();
}

// A pattern with a slash is one of whole paths. Its folder is looked up now, as the kernel will name the files.
std::string whole_pattern(const std::string& pattern) {
  const std::size_t slash = pattern.rfind('/');
  if (slash == std::string::npos) return pattern;
  const std::string folder = real_path(slash == 0 ? "/" : pattern.substr(0, slash));
  if (!folder.empty()) return (folder == "/" ? "" : folder) + pattern.substr(slash);
  return pattern[0] == '/' ? pattern : real_path(".") + "/" + pattern;
}

Result<std::string> find_library() {
  const std::string own = real_path("/proc/self/exe");
  const std::string folder = own.substr(0, own.rfind('/'));
  for (const char* place : {"/../lib/", "/../" MEMLITH_LIBRARY_FOLDER "/"}) {
    const std::string path = real_path(folder + place + "libmemlith_run.so");
    if (!path.empty()) return path;
  }
  return tool_failure(MEMLITH_NOT_FOUND, fmt::format("libmemlith_run.so is not where {} looks for it", own),
                      "Install memlith with its libraries.");
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/bin:/usr/bin" : path;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = (end == begin ? "." : folders.substr(begin, end - begin)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return refusal(MEMLITH_NOT_FOUND, fmt::format("there is no program {} in PATH", name), {}, kExitNotFound);
}

// Writes that the kernel makes through a ring cannot be seen in the program. Such a ring is refused as on a
// kernel that has none, and programs do without. The filter outlives exec.
bool refuse_rings() {
#if defined(__x86_64__)
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif
  std::array<sock_filter, 7> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

MaybeFailure start(const RunArguments& arguments, const std::string& program, const std::string& library) {
  preload::Settings settings;
  for (const std::string& pattern : arguments.patterns) settings.patterns.push_back(whole_pattern(pattern));
  settings.commit = static_cast<preload::CommitAt>(arguments.commit[0]);
  settings.weak_ms = arguments.weak_ms;
  settings.commit_every_ms = static_cast<std::uint64_t>(arguments.commit_every_s * 1000);
  settings.report = arguments.report;
  settings.guard = arguments.guard;
  settings.one_commit = arguments.one_commit;
  const char* const before = std::getenv("LD_PRELOAD");
  const std::string preloaded = before == nullptr || *before == '\0' ? library : library + ":" + before;
  ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
  ::setenv(preload::kSettingsVariable, preload::encode(settings).c_str(), 1);
  if (!refuse_rings()) return errno_failure(errno, "cannot forbid the program its own io_uring");
  std::vector<std::string> copies = arguments.command;
  std::vector<char*> words;
  for (std::string& each : copies) words.push_back(each.data());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  Failure failure = errno_failure(errno, fmt::format("cannot start {}", program));
  failure.exit_code = errno == ENOENT ? kExitNotFound : kExitRefused;
  return failure;
}

}  // namespace

MaybeFailure run_run(const RunArguments& arguments) {
  if (arguments.patterns.empty()) {
    return tool_failure(MEMLITH_INVALID, "no files are named",
                        "Say with --match which files memlith is to keep, for example --match '*.kch'.");
  }
  if (arguments.one_commit && (arguments.weak_ms > 0 || arguments.commit_every_s > 0)) {
    return tool_failure(MEMLITH_INVALID, "--one-commit does not go with --weak or --commit-every",
                        "A commit of all files is made by the program's own calls, and is durable when they return.");
  }
  Result<std::string> library = find_library();
  if (!library.ok()) return std::move(library.failure());
  Result<std::string> program = find_program(arguments.command.front());
  if (!program.ok()) return std::move(program.failure());
  if (const std::string reason = preload::why_not(*program); !reason.empty()) {
    return refusal(MEMLITH_UNSUPPORTED, fmt::format("{} {}", *program, reason),
                   "Change the program to call memlith_mmap and memlith_msync (memlith/files.h).");
  }
  return start(arguments, *program, *library);
}

}  // namespace memlith::tool
