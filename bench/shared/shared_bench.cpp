// memlith-shared-bench: what the keeper of a shared region costs.
//
// One process commits 64 bytes to its own store, and to a shared region of another store on the same disk, in turn, so
// that both see the same disk. Both commits are durable when they return. Then several processes commit to the shared
// region at the same time, each to bytes of its own.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/clock.hpp"
#include "cli/output.hpp"
#include "memlith/shared.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kBytes = 64;
constexpr std::uint64_t kRegionBytes = 1 << 20;
constexpr std::uint64_t kPlaces = kRegionBytes / 4096;
constexpr std::uint64_t kWarmUp = 100;

struct Wanted {
  std::string folder = "memlith-shared-bench";
  std::uint64_t commits = 2000;
  std::uint64_t processes = 4;
  bool json = false;
};

struct Times {
  std::vector<std::uint64_t> ns;
  [[nodiscard]] double us(double share) {
    std::sort(ns.begin(), ns.end());
    return static_cast<double>(ns[static_cast<std::size_t>(share * static_cast<double>(ns.size() - 1))]) / 1000;
  }
};

template <class T>
T or_end(memlith::Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "memlith-shared-bench: {}\n", result.error().message());
  std::_Exit(1);
}
void or_end(const memlith::Result<void>& result) {
  if (result) return;
  fmt::print(stderr, "memlith-shared-bench: {}\n", result.error().message());
  std::_Exit(1);
}

SharedRegion open_shared(const Wanted& wanted) {
  return or_end(SharedRegion::open(wanted.folder + "/shared", "bench", {.create = true, .size = kRegionBytes}));
}

// One durable commit of 64 bytes; `owner` begins transactions, and `memory` is its region's.
template <class Owner>
std::uint64_t commit(Owner& owner, char* memory, std::uint64_t number) {
  char* const place = memory + number % kPlaces * 4096;
  const std::uint64_t begin = now_ns();
  auto tx = or_end(owner.begin());
  or_end(tx.touch_before(place, kBytes));
  std::memset(place, static_cast<int>(number), kBytes);
  or_end(tx.commit());
  return now_ns() - begin;
}

void print_side(const Wanted& wanted, const char* side, Times& times, double ratio) {
  const double p50 = times.us(0.5);
  const double p99 = times.us(0.99);
  const double p999 = times.us(0.999);
  if (wanted.json) {
    write_json({{"benchmark", "shared"},
                {"side", side},
                {"bytes", kBytes},
                {"commits", times.ns.size()},
                {"p50_us", p50},
                {"p99_us", p99},
                {"p999_us", p999},
                {"ratio", ratio}});
  } else {
    write_line(fmt::format("{:<28} {:>9.1f} {:>9.1f} {:>9.1f}   {:.2f}", side, p50, p99, p999, ratio));
  }
}

void measure_in_turn(const Wanted& wanted) {
  auto store = or_end(Store::open(wanted.folder + "/own", {.create = true}));
  auto region = or_end(store.region("bench", {.create = true, .tracker = Tracker::touched, .size = kRegionBytes}));
  auto shared = open_shared(wanted);
  Times own;
  Times through;
  for (std::uint64_t i = 0; i < kWarmUp + wanted.commits; ++i) {
    const std::uint64_t one = commit(store, static_cast<char*>(region.address()), i);
    const std::uint64_t other = commit(shared, static_cast<char*>(shared.address()), i);
    if (i < kWarmUp) continue;
    own.ns.push_back(one);
    through.ns.push_back(other);
  }
  if (!wanted.json) {
    write_line(fmt::format("{} durable commits of {} bytes on each side, in turn; microseconds", wanted.commits,
                           kBytes));
    write_line(fmt::format("{:<28} {:>9} {:>9} {:>9}   p50 / in-process", "", "p50", "p99", "p99.9"));
  }
  const double base = own.us(0.5);
  print_side(wanted, "in-process", own, 1);
  print_side(wanted, "through the keeper", through, through.us(0.5) / base);
}

// Processes that commit side by side share flushes.
void measure_side_by_side(const Wanted& wanted) {
  const std::uint64_t begin = now_ns();
  std::vector<pid_t> children;
  for (std::uint64_t process = 0; process < wanted.processes; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    auto shared = open_shared(wanted);
    for (std::uint64_t i = 0; i < wanted.commits; ++i) {
      (void)commit(shared, static_cast<char*>(shared.address()) + process * kBytes, i);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) std::_Exit(1);
  }
  const double seconds = seconds_of(now_ns() - begin);
  const double rate = static_cast<double>(wanted.commits * wanted.processes) / seconds;
  if (wanted.json) {
    write_json({{"benchmark", "shared"},
                {"side", "side by side"},
                {"processes", wanted.processes},
                {"commits_per_s", rate}});
  } else {
    write_line(fmt::format("{} processes side by side: {:.0f} durable commits a second", wanted.processes, rate));
  }
}

int run(int argument_count, char** arguments) {
  Wanted wanted;
  CLI::App app{"Durable commits of a shared region, through its keeper, beside those of one process",
               "memlith-shared-bench"};
  app.add_option("--dir", wanted.folder, "A folder for the stores, which is made and removed")->capture_default_str();
  app.add_option("--commits", wanted.commits, "On each side")
      ->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  app.add_option("--processes", wanted.processes, "That commit side by side")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--json", wanted.json, "Print JSON, one object a line");
  CLI11_PARSE(app, argument_count, arguments);
  wanted.folder += "/shared-bench";
  std::filesystem::create_directories(wanted.folder);
  measure_in_turn(wanted);
  measure_side_by_side(wanted);
  std::error_code ignored;
  std::filesystem::remove_all(wanted.folder, ignored);
  return 0;
}

}  // namespace

}  // namespace memlith::tool

int main(int argument_count, char** arguments) {
  return memlith::tool::run_program("memlith-shared-bench", argument_count, arguments, memlith::tool::run);
}
