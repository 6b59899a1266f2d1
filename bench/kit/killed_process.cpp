#include "killed_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "cli/interrupt.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

MaybeFailure in_a_killed_process(const std::function<MaybeFailure()>& act) {
  std::fflush(nullptr);  // or the child would have what is buffered, too
  const pid_t child = ::fork();
  if (child < 0) return errno_failure(errno, "starting a child process");
  if (child == 0) {
    if (const MaybeFailure failure = act(); failure.has_value()) {
      std::fprintf(stderr, "%s\n", failure->message.c_str());
      ::_exit(kExitFailed);
    }
    (void)::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno_failure(errno, "waiting for the child process");
  }
  if (interrupted()) return interrupted_failure();
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return {};
  return tool_failure(MEMLITH_IO, "the process that uses the store and is killed ended before that");
}

}  // namespace memlith::tool
