#include "memory_limit.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "cli/interrupt.hpp"
#include "kit/try.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr int kTriesMax = 100;
constexpr auto kBetweenTries = std::chrono::milliseconds(20);

class MemoryGroup {
 public:
  MemoryGroup() = default;
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    // The kernel may still count the process that has just ended.
    if (!path_.empty()) (void)tried([this] { return ::rmdir(path_.c_str()) == 0; });
  }

  [[nodiscard]] MaybeFailure make() {
    for (const char* const root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const bool v1 = ::access(fmt::format("{}/memory.limit_in_bytes", root).c_str(), F_OK) == 0;
      if (!v1) (void)write_control(fmt::format("{}/cgroup.subtree_control", root), "+memory");
      const std::string path = fmt::format("{}/memlith-bench-{}", root, ::getpid());
      if (::mkdir(path.c_str(), 0755) != 0) continue;
      path_ = path;
      limit_file_ = path + (v1 ? "/memory.limit_in_bytes" : "/memory.max");
      if (::access(limit_file_.c_str(), W_OK) == 0) return {};
      (void)::rmdir(path.c_str());
      path_.clear();
    }
    return tool_failure(MEMLITH_UNSUPPORTED, "no memory control group can be made",
                        "It takes root, and the memory controller of control groups.");
  }
  [[nodiscard]] MaybeFailure enter() const {
    if (write_control(path_ + "/cgroup.procs", std::to_string(::getpid()))) return {};
    return tool_failure(MEMLITH_UNSUPPORTED, "a memory control group cannot be entered");
  }
  // Pages that are not written back cannot leave memory.
  [[nodiscard]] MaybeFailure limit(std::uint64_t bytes) const {
    (void)::malloc_trim(0);
    ::sync();
    if (tried([&] { return write_control(limit_file_, std::to_string(bytes)); })) return {};
    return tool_failure(MEMLITH_NO_MEMORY,
                        fmt::format("memory cannot be limited to {} MiB: more is in use", bytes >> 20));
  }

 private:
  static bool write_control(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    return static_cast<bool>(file.flush());
  }
  template <class Act>
  static bool tried(const Act& act) {
    for (int i = 0; i < kTriesMax; ++i) {
      if (act()) return true;
      std::this_thread::sleep_for(kBetweenTries);
    }
    return false;
  }

  std::string path_;
  std::string limit_file_;
};

}  // namespace

std::string memory_text(std::uint64_t mib) {
  return mib == 0 ? "" : fmt::format("; {} MiB of memory for each side", mib);
}

MaybeFailure with_limited_memory(std::uint64_t bytes,
                                 const std::function<MaybeFailure(const LimitMemory& limit)>& act) {
  MemoryGroup group;
  MEMLITH_TOOL_TRY(group.make());
  std::fflush(nullptr);  // or the child would have what is buffered, too
  const pid_t child = ::fork();
  if (child < 0) return errno_failure(errno, "starting a child process");
  if (child == 0) {
    MaybeFailure failure = group.enter();
    if (!failure) failure = act([&] { return group.limit(bytes); });
    if (failure) std::fprintf(stderr, "%s\n", failure->message.c_str());
    std::fflush(nullptr);
    ::_exit(failure ? kExitFailed : 0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno_failure(errno, "waiting for the child process");
  }
  if (interrupted()) return interrupted_failure();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return tool_failure(MEMLITH_NO_MEMORY, fmt::format("a side was killed: it needs more than {} MiB", bytes >> 20));
  }
  return tool_failure(MEMLITH_IO, "the process that measures a side with limited memory failed");
}

}  // namespace memlith::tool
