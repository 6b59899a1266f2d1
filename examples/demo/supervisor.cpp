// Lives, kills and what they prove. See supervisor.hpp.
#include "supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <random>

#include <fmt/core.h>

#include "report.hpp"

namespace demo {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kSilenceNsMax = 60'000'000'000;  // a builder that does not report for this long hangs
constexpr double kStretchNsMin = 20e6;                   // of building between two kills, so that none comes too late
constexpr double kBuildingNsMax = 40e9;                  // what the rest of the build may take before batches grow
constexpr std::uint64_t kBatchBytesMin = 16;
constexpr std::uint64_t kBatchBytesMax = kMiB;

// The process that builds. Whatever happens to the supervisor's own code, it does not outlive this object.
class Child {
 public:
  Child(pid_t process, int pipe) : process_(process), pipe_(pipe) {}
  Child(Child&& other) noexcept : process_(std::exchange(other.process_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (process_ > 0) {
      kill();
      wait();
    }
    if (pipe_ >= 0) ::close(pipe_);
  }
  [[nodiscard]] int pipe() const { return pipe_; }
  void kill() const { ::kill(process_, SIGKILL); }
  // The status as of waitpid.
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

 private:
  pid_t process_;
  int pipe_;
};

Result<Child> start_builder(const std::string& folder, std::uint64_t batch_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return error_of_errno("a pipe to the builder");
  std::array<std::string, 8> words = {
      "memlith-demo",         "build", "--store", folder, "--batch-bytes", std::to_string(batch_bytes), "--report-fd",
      std::to_string(ends[1])};
  std::array<char*, 9> arguments{};
  std::transform(words.begin(), words.end(), arguments.begin(), [](std::string& word) { return word.data(); });

  const pid_t supervisor = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) {
    // A builder without its supervisor would still write to the store during the next run.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != supervisor) ::_exit(127);
    ::fcntl(ends[1], F_SETFD, 0);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  const Error failed = error_of_errno("starting the builder");
  // The builder alone holds the other end, so that its death ends the stream of reports.
  ::close(ends[1]);
  if (process > 0) return Child(process, ends[0]);
  ::close(ends[0]);
  return failed;
}

// When a life is to end.
enum class Aim { nowhere, opening, persisting, anywhere };
struct Plan {
  std::uint64_t batch_bytes = 0;
  Aim aim = Aim::nowhere;
  std::uint64_t text_bytes = 0;      // persisting, anywhere: not before this much is indexed
  double delay = 0;                  // in parts of what it is aimed at
  std::uint64_t strike_ns = kNever;  // known once the builder is where it shall be
};

// The observations of one life so far.
struct Life {
  std::uint64_t begin_ns = 0;
  std::uint64_t opened_ns = 0;
  std::uint64_t last_ns = 0;
  std::optional<ReportKind> last;
  bool killed = false;
};

struct Point {
  std::uint64_t commit = 0;
  std::uint64_t text_bytes = 0;
};

class Supervisor {
 public:
  explicit Supervisor(const SuperviseOptions& options)
      : options_(options),
        progress_(options.text_bytes, options.kills),
        random_(options.seed),
        batch_bytes_max_(options.batch_bytes) {}

  Result<Outcome> run();

 private:
  Plan plan_life();
  Result<void> live_once();
  Result<void> follow(const Child& child, Plan& plan, Life& life);
  Result<void> take(const Report& report, Plan& plan, Life& life);
  Result<void> take_opened(const Report& report, const Life& life);
  void take_acked(const Report& report);
  void take_kill(const Life& life);
  double fraction() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  SuperviseOptions options_;
  Progress progress_;
  std::mt19937_64 random_;
  Outcome outcome_;
  bool finished_ = false;

  Point acked_;       // recovery may bring back no less
  Point started_;     // and no more
  std::string kill_;  // the one whose recovery is still to be seen; empty if there is none

  // Running means over the last persists and lives, in nanoseconds; the first values are guesses.
  double persist_ns_ = 100e3;
  double cycle_ns_ = 100e3;
  double byte_ns_ = 0;
  double opening_ns_ = 5e6;
  std::uint64_t batch_bytes_max_;
  std::uint64_t batches_between_kills_min_ = 8;
};

void follow_mean(double& mean, double value) { mean += (value - mean) / 8; }

Plan Supervisor::plan_life() {
  const std::uint32_t kills_left = options_.kills - std::min(options_.kills, outcome_.kills_at_work());
  const std::uint64_t left = options_.text_bytes - acked_.text_bytes;
  const std::uint64_t stretch = left / (kills_left + 1);

  // On a slow disk fewer and larger persists finish sooner.
  if (static_cast<double>(left) * byte_ns_ > kBuildingNsMax) {
    batch_bytes_max_ = std::min(2 * batch_bytes_max_, kBatchBytesMax);
    batches_between_kills_min_ = std::max<std::uint64_t>(batches_between_kills_min_ / 2, 2);
  }
  const std::uint64_t batches =
      std::clamp(static_cast<std::uint64_t>(kStretchNsMin / cycle_ns_), batches_between_kills_min_, std::uint64_t{400});
  Plan plan;
  plan.batch_bytes = std::max(std::min(stretch / batches, batch_bytes_max_), kBatchBytesMin);
  if (kills_left == 0) return plan;

  const double choice = fraction();
  plan.aim = choice < 0.15 ? Aim::opening : choice < 0.45 ? Aim::persisting : Aim::anywhere;
  plan.text_bytes =
      acked_.text_bytes + static_cast<std::uint64_t>((0.2 + 1.4 * fraction()) * static_cast<double>(stretch));
  plan.delay = fraction();
  return plan;
}

Result<Outcome> Supervisor::run() {
  while (!finished_) {
    if (auto lived = live_once(); !lived) {
      progress_.end();
      return lived.error();
    }
  }
  progress_.end();
  outcome_.commits = acked_.commit;
  return std::move(outcome_);
}

Result<void> Supervisor::live_once() {
  Plan plan = plan_life();
  Life life;
  life.begin_ns = now_ns();
  if (plan.aim == Aim::opening) plan.strike_ns = life.begin_ns + static_cast<std::uint64_t>(plan.delay * opening_ns_);
  auto child = start_builder(options_.folder, plan.batch_bytes);
  if (!child) return child.error();
  if (auto followed = follow(*child, plan, life); !followed) return followed;
  const int status = child->wait();

  if (life.opened_ns != 0) outcome_.building_ns += life.last_ns - life.opened_ns;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && life.last == ReportKind::finished) {
    finished_ = true;
    return {};
  }
  if (life.killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    take_kill(life);
    return {};
  }
  if (WIFSIGNALED(status)) {
    return error_saying(fmt::format("the builder died of signal {}, which the demo did not send", WTERMSIG(status)));
  }
  return error_saying(fmt::format("the builder ended by itself with code {}; its messages stand above",
                                  WEXITSTATUS(status)));
}

// Reads reports and strikes when it is time, until the builder's end of the pipe is closed.
Result<void> Supervisor::follow(const Child& child, Plan& plan, Life& life) {
  life.last_ns = life.begin_ns;
  for (;;) {
    const std::uint64_t now = now_ns();
    if (!life.killed && now >= plan.strike_ns) {
      child.kill();
      life.killed = true;
    }
    const std::uint64_t hangs_ns = life.last_ns + kSilenceNsMax;
    if (now >= hangs_ns) return error_saying("the builder has not reported for a minute");
    const std::uint64_t until_ns = life.killed ? hangs_ns : std::min(plan.strike_ns, hangs_ns);
    const std::uint64_t wait_ns = until_ns > now ? until_ns - now : 0;
    const timespec wait = {static_cast<time_t>(wait_ns / 1'000'000'000), static_cast<long>(wait_ns % 1'000'000'000)};
    pollfd ready = {child.pipe(), POLLIN, 0};
    if (::ppoll(&ready, 1, &wait, nullptr) <= 0) continue;

    Report report;
    const ssize_t got = ::read(child.pipe(), &report, sizeof report);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return {};
    if (got != sizeof report) return error_saying("the builder's report came in pieces");
    if (auto taken = take(report, plan, life); !taken) return taken;
  }
}

Result<void> Supervisor::take(const Report& report, Plan& plan, Life& life) {
  life.last = report.kind;
  life.last_ns = now_ns();
  const bool far_enough = plan.strike_ns == kNever && report.text_bytes >= plan.text_bytes;
  switch (report.kind) {
    case ReportKind::opened: life.opened_ns = life.last_ns; return take_opened(report, life);
    case ReportKind::started:
      started_ = {report.commit, report.text_bytes};
      if (far_enough && plan.aim == Aim::persisting) {
        plan.strike_ns = life.last_ns + static_cast<std::uint64_t>(plan.delay * persist_ns_);
      }
      return {};
    case ReportKind::acked:
      if (report.commit != started_.commit) return error_saying("the builder acknowledged a commit it had not started");
      take_acked(report);
      if (far_enough && plan.aim == Aim::anywhere) {
        plan.strike_ns = life.last_ns + static_cast<std::uint64_t>(plan.delay * cycle_ns_);
      }
      return {};
    case ReportKind::finished: plan.strike_ns = kNever; return {};
  }
  return error_saying("the builder sent an unknown report");
}

// The heart of the proof: what came back must be what was persisted, no less than acknowledged and no more than
// started.
Result<void> Supervisor::take_opened(const Report& report, const Life& life) {
  if (report.commit < acked_.commit || report.commit > started_.commit) {
    return error_saying(fmt::format("{}: recovery brought back commit {}, but {} was acknowledged and {} started",
                                    kill_, report.commit, acked_.commit, started_.commit));
  }
  const Point& expected = report.commit == started_.commit ? started_ : acked_;
  if (report.text_bytes != expected.text_bytes) {
    return error_saying(fmt::format("{}: commit {} came back with {} bytes of text instead of {}", kill_, report.commit,
                                    report.text_bytes, expected.text_bytes));
  }
  const std::uint64_t opening_ns = life.opened_ns - life.begin_ns;
  opening_ns_ = static_cast<double>(opening_ns);
  if (!kill_.empty()) {
    progress_.say(fmt::format("{}: back with commit {} (acknowledged {}, started {}) in {}, {} replayed", kill_,
                              report.commit, acked_.commit, started_.commit, format_duration(opening_ns),
                              report.replayed_frames));
    kill_.clear();
  }
  // Recovered data is durable, and must be there again after the next kill.
  acked_ = {report.commit, report.text_bytes};
  started_ = acked_;
  return {};
}

void Supervisor::take_acked(const Report& report) {
  const std::uint64_t text_bytes = report.text_bytes - acked_.text_bytes;
  follow_mean(persist_ns_, static_cast<double>(report.persist_ns));
  follow_mean(cycle_ns_, static_cast<double>(report.cycle_ns));
  if (text_bytes > 0) follow_mean(byte_ns_, static_cast<double>(report.cycle_ns) / static_cast<double>(text_bytes));
  acked_ = {report.commit, report.text_bytes};
  outcome_.persist_ns.push_back(report.persist_ns);
  outcome_.cycle_ns.push_back(report.cycle_ns);
  outcome_.logged_bytes.push_back(report.logged_bytes);
  outcome_.pages.push_back(report.pages);
  outcome_.text_bytes.push_back(text_bytes);
  progress_.advance(report.text_bytes, report.commit, outcome_.kills_at_work());
}

void Supervisor::take_kill(const Life& life) {
  if (!kill_.empty()) progress_.say(kill_ + ": killed again on the way back");
  std::string where;
  if (!life.last || life.last == ReportKind::finished) {
    ++outcome_.kills_opening;
    where = life.last ? "closing the store" : "opening the store";
  } else if (life.last == ReportKind::started) {
    ++outcome_.kills_persisting;
    where = fmt::format("inside persist {}", started_.commit);
  } else {
    ++outcome_.kills_indexing;
    where = fmt::format("indexing for {}", started_.commit + 1);
  }
  kill_ = fmt::format("kill {:2} {}", outcome_.kills_at_work() + outcome_.kills_opening, where);
  progress_.advance(acked_.text_bytes, acked_.commit, outcome_.kills_at_work());
}

}  // namespace

Result<Outcome> supervise(const SuperviseOptions& options) { return Supervisor(options).run(); }

}  // namespace demo
