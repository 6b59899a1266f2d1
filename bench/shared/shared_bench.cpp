// memlith-shared-bench: what the keeper of a shared region costs.
//
// One process commits 64 bytes to its own store, and to a shared region of another store on the same disk, in turn, so
// that both see the same disk. Both commits are durable when they return. Then several processes commit to the shared
// region at the same time, each to bytes of its own.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cli/cli_words.hpp"
#include "cli/clock.hpp"
#include "kit/report.hpp"
#include "kit/scratch.hpp"
#include "kit/try.hpp"
#include "memlith/shared.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kBytes = 64;
constexpr std::uint64_t kRegionBytes = 1 << 20;
constexpr std::uint64_t kPlaces = kRegionBytes / 4096;
constexpr std::uint64_t kWarmUp = 100;

struct SharedArguments {
  std::string folder = ".";
  std::uint64_t commits = 2000;
  std::uint64_t processes = 4;
  Format format = Format::text;
};

// One durable commit of 64 bytes; `owner` begins transactions, and `memory` is its region's.
template <class Owner>
MaybeFailure commit(Owner& owner, void* memory, std::uint64_t number, std::uint64_t& elapsed_ns) {
  char* const place = static_cast<char*>(memory) + number % kPlaces * 4096;
  const std::uint64_t begin = now_ns();
  MEMLITH_TOOL_GET(auto tx, checked(owner.begin(), "beginning a transaction"));
  MEMLITH_TOOL_TRY(failure_of(tx.touch_before(place, kBytes), "touching"));
  std::memset(place, static_cast<int>(number), kBytes);
  MEMLITH_TOOL_TRY(failure_of(tx.commit(), "committing"));
  elapsed_ns = now_ns() - begin;
  return {};
}

Result<SharedRegion> open_shared(const ScratchFolder& scratch) {
  return checked(SharedRegion::open(scratch.path_of("shared"), "bench", {.create = true, .size = kRegionBytes}),
                 "opening a shared region");
}

Line line_of(const char* workload, const char* side, const char* does) {
  Line line;
  line.suite = "shared";
  line.side = side;
  line.version = memlith_version();
  line.workload = workload;
  line.durability = "sync";
  line.does = does;
  line.requested = {{"bytes", kBytes}};
  return line;
}

MaybeFailure measure_in_turn(const SharedArguments& arguments, const ScratchFolder& scratch) {
  MEMLITH_TOOL_GET(Store store, checked(Store::open(scratch.path_of("own"), {.create = true}), "opening a store"));
  const RegionOptions options{.create = true, .tracker = Tracker::touched, .size = kRegionBytes};
  MEMLITH_TOOL_GET(Region region, checked(store.region("bench", options), "opening a region"));
  MEMLITH_TOOL_GET(SharedRegion shared, open_shared(scratch));
  std::uint64_t numbers[] = {0, 0};
  std::vector<Side> sides(2);
  sides[0].round = [&](std::size_t, std::uint64_t& ns) { return commit(store, region.address(), numbers[0]++, ns); };
  sides[1].round = [&](std::size_t, std::uint64_t& ns) { return commit(shared, shared.address(), numbers[1]++, ns); };
  MEMLITH_TOOL_TRY(measure_in_turns(sides, {.rounds_min = kWarmUp}));
  for (Side& side : sides) side.clear();
  MEMLITH_TOOL_TRY(measure_in_turns(sides, {.rounds_min = arguments.commits}));
  std::vector<Line> lines{line_of("in turn", "in-process", "a commit of a region of the process's own store"),
                          line_of("in turn", "through the keeper", "a commit of a shared region")};
  for (std::size_t i = 0; i < sides.size(); ++i) lines[i].repetitions.push_back(repetition_of(sides[i]));
  print_lines(arguments.format, "durable commits of 64 bytes on each side, in turn", lines, "in-process");
  return {};
}

// Commits by one of several processes, which leaves their times.
MaybeFailure commit_beside(const ScratchFolder& scratch, std::uint64_t process, std::span<std::uint64_t> times_ns) {
  MEMLITH_TOOL_GET(SharedRegion shared, open_shared(scratch));
  char* const memory = static_cast<char*>(shared.address()) + process * kBytes;
  std::uint64_t number = 0;
  for (std::uint64_t& each : times_ns) MEMLITH_TOOL_TRY(commit(shared, memory, number++, each));
  return {};
}

// Processes that commit side by side share flushes.
MaybeFailure measure_side_by_side(const SharedArguments& arguments, const ScratchFolder& scratch) {
  const std::uint64_t count = arguments.commits * arguments.processes;
  void* const memory =
      ::mmap(nullptr, count * sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno_failure(errno, "mapping memory");
  const std::span times_ns(static_cast<std::uint64_t*>(memory), count);
  const std::uint64_t begin = now_ns();
  std::vector<pid_t> children;
  for (std::uint64_t process = 0; process < arguments.processes; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    auto failure = commit_beside(scratch, process, times_ns.subspan(process * arguments.commits, arguments.commits));
    ::_exit(exit_code_of(failure, arguments.format));
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    failed = ::waitpid(child, &status, 0) != child || status != 0 || failed;
  }
  Line line = line_of("side by side", "through the keeper", "commits of several processes, which share flushes");
  Repetition& repetition = line.repetitions.emplace_back();
  repetition.ops_per_s = static_cast<double>(count) / seconds_of(now_ns() - begin);
  repetition.samples_ns.assign(times_ns.begin(), times_ns.end());
  (void)::munmap(memory, times_ns.size_bytes());
  if (failed) return tool_failure(MEMLITH_IO, "a process that commits beside others failed; its message is above");
  line.found = {{"processes", arguments.processes}};
  print_lines(arguments.format, "several processes side by side", {line}, "through the keeper");
  return {};
}

MaybeFailure run_shared(const SharedArguments& arguments) {
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder, {});
  MEMLITH_TOOL_TRY(measure_in_turn(arguments, scratch));
  return measure_side_by_side(arguments, scratch);
}

int run(int count, char** words) {
  CLI::App app("Durable commits of a shared region, through its keeper, beside those of one process");
  app.name("memlith-shared-bench");
  CommandLine line;
  const auto arguments = std::make_shared<SharedArguments>();
  app.add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  add_number(&app, "--commits", arguments->commits, 100, 10'000'000, "On each side");
  add_number(&app, "--processes", arguments->processes, 1, 64, "That commit side by side");
  add_command(&app, line, arguments, run_shared);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-shared-bench", count, words, memlith::tool::run);
}
