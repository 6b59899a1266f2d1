#include "pool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "unit.hpp"

namespace memlith::lab {

using nlohmann::json;

namespace {

constexpr std::size_t kPositionBytes = 16384;
constexpr int kDiedOfSignal = 70;
constexpr double kGapSecondsMax = 1;  // between two looks at the children, unless this process did not run
constexpr double kStopSeconds = 3;    // for a child that hung to say where

// Shared with the child: where it was when it died.
struct Last {
  int signal = 0;
  char position[kPositionBytes] = {};
};
Last* g_last = nullptr;

void tell_position(int signal) {
  if (g_last->signal != 0) ::_exit(kDiedOfSignal);  // again, in here
  g_last->signal = signal;
  const std::string position = current_position();
  std::strncpy(g_last->position, position.c_str(), kPositionBytes - 1);
  ::_exit(kDiedOfSignal);
}

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = 0;
  int from = -1;  // its answer
  int said = -1;  // its standard error
  Last* last = nullptr;
  Clock::time_point began;
  double seconds_stopped = 0;  // in which no process of the group ran: the group was frozen, or the machine asleep
  double seconds_max = 0;
  bool asked_to_stop = false;
  std::string bytes;
  std::string text;
};

bool write_all(int descriptor, const void* bytes, std::size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::write(descriptor, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<std::size_t>(done);
  }
  return true;
}

[[noreturn]] void be_the_child(const Job& job, int to, int standard_error, Last* last) {
  g_last = last;
  ::dup2(standard_error, STDERR_FILENO);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGUSR1}) std::signal(signal, tell_position);
  json report;
  std::vector<std::uint64_t> hashes;
  job.act(report, hashes);
  const std::string text = report.dump();
  const std::uint64_t sizes[2] = {text.size(), hashes.size()};
  const bool ok = write_all(to, sizes, sizeof sizes) && write_all(to, text.data(), text.size()) &&
                  write_all(to, hashes.data(), hashes.size() * sizeof hashes[0]);
  ::_exit(ok ? 0 : 1);
}

Child start(const Job& job) {
  int answer[2];
  int errors[2];
  void* const shared = ::mmap(nullptr, sizeof(Last), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || ::pipe2(answer, O_CLOEXEC) != 0 || ::pipe2(errors, O_CLOEXEC) != 0) {
    std::perror("memlith-crashlab: cannot start a process");
    std::exit(2);
  }
  std::fflush(stdout);
  std::fflush(stderr);
  Child child;
  child.last = new (shared) Last;
  child.began = Clock::now();
  child.seconds_max = job.seconds_max;
  child.pid = ::fork();
  if (child.pid == 0) be_the_child(job, answer[1], errors[1], child.last);
  if (child.pid < 0) {
    std::perror("memlith-crashlab: cannot start a process");
    std::exit(2);
  }
  ::close(answer[1]);
  ::close(errors[1]);
  child.from = answer[0];
  child.said = errors[0];
  return child;
}

// False at the end of what the child writes.
bool read_some(int& descriptor, std::string& bytes, std::size_t keep) {
  char buffer[65536];
  const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) {
    ::close(descriptor);
    descriptor = -1;
    return false;
  }
  bytes.append(buffer, static_cast<std::size_t>(count));
  if (bytes.size() > keep) bytes.erase(0, bytes.size() - keep);
  return true;
}

Answer finish(Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  Answer answer;
  answer.seconds = std::chrono::duration<double>(Clock::now() - child.began).count();
  answer.said = child.text;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : child.last->signal;
  std::uint64_t sizes[2] = {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && child.bytes.size() >= sizeof sizes) {
    std::memcpy(sizes, child.bytes.data(), sizeof sizes);
    answer.report = json::parse(child.bytes.substr(sizeof sizes, sizes[0]));
    answer.hashes.resize(sizes[1]);
    if (sizes[1] > 0) {
      std::memcpy(answer.hashes.data(), child.bytes.data() + sizeof sizes + sizes[0], sizes[1] * sizeof(std::uint64_t));
    }
  } else if (child.asked_to_stop) {
    answer.died = fmt::format("hung for {:.0f} s", child.seconds_max - kStopSeconds);
  } else if (signal != 0) {
    answer.died = fmt::format("died of {}", signal == SIGABRT ? "an assertion" : ::strsignal(signal));
  } else {
    answer.died = fmt::format("ended with code {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  answer.position = child.last->position;
  ::munmap(child.last, sizeof(Last));
  return answer;
}

// How long the threads of a process have been ready to run and did not get a processor. On a busy machine that is most
// of the time, and no fault of the process's.
double seconds_unserved(pid_t pid) {
  double seconds = 0;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    std::uint64_t ran_ns = 0;
    std::uint64_t waited_ns = 0;
    if (std::ifstream(task.path() / "schedstat") >> ran_ns >> waited_ns)
      seconds += static_cast<double>(waited_ns) / 1e9;
  }
  return seconds;
}

bool has_hung(const Child& child) {
  const double seconds = std::chrono::duration<double>(Clock::now() - child.began).count() - child.seconds_stopped;
  return seconds > child.seconds_max && seconds - seconds_unserved(child.pid) > child.seconds_max;
}

}  // namespace

void run_jobs(std::size_t processes, const std::function<std::optional<Job>()>& next,
              const std::function<bool(const Answer&)>& done) {
  std::map<std::size_t, Child> children;
  std::map<std::size_t, Answer> waiting;
  std::size_t started = 0;
  std::size_t handed = 0;
  bool more = true;
  bool wanted = true;
  Clock::time_point last_look = Clock::now();
  while (more || !children.empty()) {
    // Not too far ahead of the oldest that is still under way, or answers pile up.
    while (more && children.size() < processes && started < handed + 8 * processes) {
      std::optional<Job> job = next();
      if (!job.has_value()) {
        more = false;
        break;
      }
      children.emplace(started++, start(*job));
    }
    std::vector<pollfd> polled;
    std::vector<std::pair<std::size_t, bool>> who;
    for (auto& [index, child] : children) {
      if (child.from >= 0) polled.push_back({child.from, POLLIN, 0}), who.emplace_back(index, true);
      if (child.said >= 0) polled.push_back({child.said, POLLIN, 0}), who.emplace_back(index, false);
    }
    (void)::poll(polled.data(), polled.size(), 200);
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      Child& child = children.at(who[i].first);
      if (who[i].second) {
        (void)read_some(child.from, child.bytes, ~std::size_t{0});
      } else {
        (void)read_some(child.said, child.text, 4096);
      }
    }
    const double gap = std::chrono::duration<double>(Clock::now() - std::exchange(last_look, Clock::now())).count();
    for (auto at = children.begin(); at != children.end();) {
      Child& child = at->second;
      child.seconds_stopped += std::max(gap - kGapSecondsMax, 0.0);
      if (!wanted) {
        ::kill(child.pid, SIGKILL);
      } else if (has_hung(child)) {
        ::kill(child.pid, child.asked_to_stop ? SIGKILL : SIGUSR1);
        if (!std::exchange(child.asked_to_stop, true)) child.seconds_max += kStopSeconds;
      }
      if (child.from >= 0 || child.said >= 0) {
        ++at;
        continue;
      }
      waiting.emplace(at->first, finish(child));
      at = children.erase(at);
    }
    for (auto answer = waiting.find(handed); answer != waiting.end(); answer = waiting.find(handed)) {
      if (wanted && !done(answer->second)) wanted = more = false;
      waiting.erase(answer);
      ++handed;
    }
  }
}

}  // namespace memlith::lab
