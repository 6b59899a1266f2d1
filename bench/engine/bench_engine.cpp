// memlith bench engine: what stands on the engine needs many small commits. How many of them a second reach the disk,
// of one thread and of two, on one region and on two; what an abort takes; and what a commit takes beside the touches
// of another thread.
//
// A commit is a transaction of four 8-byte changes at random places, committed asynchronously. The time ends when the
// last one is durable.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "kit/random.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kRegionMib = 16;
constexpr std::uint64_t kWords = kRegionMib * kMiB / sizeof(std::uint64_t);
constexpr std::uint64_t kChanges = 4;  // of a transaction
constexpr std::uint64_t kRollbacksMax = 1000;
constexpr std::uint64_t kLookEvery = 256;  // commits between two looks at the signals and the checkpoints

struct Case {
  const char* name;
  std::size_t threads;
  std::size_t regions;
  bool over_checkpoints;
};
constexpr Case kCases[] = {{"commits", 1, 1, false},  {"commits", 2, 1, false},  {"commits", 2, 2, false},
                           {"sustained", 1, 1, true}, {"sustained", 2, 1, true}, {"sustained", 2, 2, true}};

// A store with regions in which every word was stored to.
struct Subject {
  StoreHandle store;
  std::vector<memlith_region*> regions;
};

Result<Subject> make_subject(const std::string& path, std::uint64_t log_mib, std::size_t regions) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE;
  options.log_bytes = log_mib * kMiB;
  options.log_max_bytes = options.log_bytes + 64 * kMiB;
  Result<StoreHandle> store = open_store({path, StoreKind::folder}, options);
  if (!store.ok()) return std::move(store.failure());
  Subject subject{std::move(*store), {}};
  for (std::size_t i = 0; i < regions; ++i) {
    memlith_region_options region_options{};
    region_options.struct_size = sizeof region_options;
    region_options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
    region_options.tracker = MEMLITH_TRACKER_EXPLICIT;
    region_options.size = kRegionMib * kMiB;
    memlith_region* region = nullptr;
    std::int32_t code =
        memlith_region_open(subject.store.get(), fmt::format("bench-{}", i).c_str(), &region_options, &region);
    if (code != MEMLITH_OK) return library_failure(code, "opening a region");
    auto* const words = static_cast<std::uint64_t*>(memlith_region_address(region));
    for (std::uint64_t word = 0; word < kWords; ++word) words[word] = word;
    code = memlith_touch(region, words, kRegionMib * kMiB);
    if (code == MEMLITH_OK) code = memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS);
    if (code != MEMLITH_OK) return library_failure(code, "filling a region");
    subject.regions.push_back(region);
  }
  const std::int32_t code = memlith_store_checkpoint(subject.store.get());
  if (code != MEMLITH_OK) return library_failure(code, "a checkpoint");
  return subject;
}

// One transaction in the words [begin, end) of the region; ends it with `finish`.
template <class Finish>
std::int32_t transact(memlith_store* store, memlith_region* region, std::uint64_t begin, std::uint64_t end,
                      Random& random, const Finish& finish) {
  auto* const words = static_cast<std::uint64_t*>(memlith_region_address(region));
  memlith_txn* transaction = nullptr;
  std::int32_t code = memlith_begin(store, &transaction);
  for (std::uint64_t i = 0; code == MEMLITH_OK && i < kChanges; ++i) {
    std::uint64_t* const word = words + begin + random.below(end - begin);
    code = memlith_touch_before(transaction, word, sizeof *word);
    ++*word;
  }
  if (code != MEMLITH_OK) {
    (void)memlith_abort(transaction);
    return code;
  }
  code = finish(transaction);
  if (code != MEMLITH_OK) (void)memlith_abort(transaction);
  return code;
}

// ---- many commits ----------------------------------------------------------------------------------------------

struct Run {
  const BenchEngineArguments& arguments;
  const Case& what;
  Subject& subject;
  std::uint64_t checkpoints_before = 0;
  std::atomic<std::uint64_t> commits{0};
  std::atomic<std::int32_t> code{MEMLITH_OK};
  std::atomic<bool> done{false};
};

bool is_over(Run& run, std::uint64_t commits) {
  if (interrupted() || run.code != MEMLITH_OK || run.done) return true;
  if (!run.what.over_checkpoints) return commits >= run.arguments.commits;
  Result<memlith_store_info> info = info_of(run.subject.store.get());
  if (info.ok() && info->checkpoints < run.checkpoints_before + run.arguments.checkpoints) return false;
  run.done = true;
  return true;
}

// The work of thread `number`. The threads on one region have a half of it each: a transaction's bytes are its own.
void commit_many(Run& run, std::size_t number) {
  memlith_region* const region = run.subject.regions[number % run.subject.regions.size()];
  const std::uint64_t share = kWords / run.what.threads;
  Random random(kSeed + number);
  std::uint64_t ticket = 0;
  std::uint64_t commits = 0;
  const auto finish = [&ticket](memlith_txn* transaction) {
    return memlith_commit(transaction, MEMLITH_COMMIT_WEAK, &ticket);
  };
  std::int32_t code = MEMLITH_OK;
  while (code == MEMLITH_OK && (commits % kLookEvery != 0 || !is_over(run, commits))) {
    code = transact(run.subject.store.get(), region, number * share, (number + 1) * share, random, finish);
    if (code == MEMLITH_OK) ++commits;
  }
  if (code == MEMLITH_OK && commits > 0) code = memlith_wait(run.subject.store.get(), ticket);
  if (code != MEMLITH_OK) run.code = code;
  run.commits += commits;
}

struct CaseResult {
  double commits_per_s = 0;
  std::uint64_t commits = 0;
  double bytes_logged = 0;  // of a commit
  std::uint64_t checkpoints = 0;
  double batch_commits = 0;
};

Result<CaseResult> run_case(const BenchEngineArguments& arguments, const Case& what, const ScratchFolder& scratch) {
  scratch.remove("store");
  Result<Subject> subject =
      make_subject(scratch.path_of("store"), what.over_checkpoints ? arguments.small_log_mib : arguments.log_mib,
                   what.regions);
  if (!subject.ok()) return std::move(subject.failure());
  Result<memlith_store_info> before = info_of(subject->store.get());
  if (!before.ok()) return std::move(before.failure());
  Run run{arguments, what, *subject, before->checkpoints};
  const std::uint64_t begin = now_ns();
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < what.threads; ++number) {
    threads.emplace_back([&run, number] { commit_many(run, number); });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = seconds_of(now_ns() - begin);
  if (interrupted()) return interrupted_failure();
  if (run.code != MEMLITH_OK) return library_failure(run.code, "committing");
  Result<memlith_store_info> after = info_of(subject->store.get());
  if (!after.ok()) return std::move(after.failure());
  CaseResult result;
  result.commits = run.commits;
  const auto commits = static_cast<double>(result.commits);
  result.commits_per_s = ratio_of(commits, seconds);
  result.bytes_logged = ratio_of(static_cast<double>(after->logged_bytes - before->logged_bytes), commits);
  result.checkpoints = after->checkpoints - before->checkpoints;
  result.batch_commits = ratio_of(commits, static_cast<double>(after->batches - before->batches));
  if (MaybeFailure failure = close_store(std::move(subject->store))) return std::move(*failure);
  return result;
}

void report(const BenchEngineArguments& arguments, const Case& what, const CaseResult& result, double one_thread) {
  const double ratio = ratio_of(result.commits_per_s, one_thread);
  if (arguments.format == Format::json) {
    write_json({{"bench", "engine"},
                {"case", what.name},
                {"threads", what.threads},
                {"regions", what.regions},
                {"commits", result.commits},
                {"commits_per_s", rounded(result.commits_per_s)},
                {"ratio_one_thread", rounded(ratio)},
                {"bytes_changed", kChanges * sizeof(std::uint64_t)},
                {"bytes_logged", rounded(result.bytes_logged)},
                {"commits_per_batch", rounded(result.batch_commits)},
                {"checkpoints", result.checkpoints},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::
                 format("{:<10} {} thread{}, {} region{}: {:6.2f} M/s, {:5.2f} times one thread, {:6.1f} bytes logged "
                        "each, {} checkpoints",
                        what.name, what.threads, what.threads == 1 ? " " : "s", what.regions,
                        what.regions == 1 ? " " : "s", result.commits_per_s / 1e6, ratio, result.bytes_logged,
                        result.checkpoints));
}

// ---- single calls ----------------------------------------------------------------------------------------------

struct Timed {
  const char* name;
  std::uint64_t pending;  // of what another thread did
  std::uint64_t rounds;
  Percentiles latency;
  const char* pending_what = "ranges pending";
};

void report(const BenchEngineArguments& arguments, const Timed& timed) {
  if (arguments.format == Format::json) {
    write_json({{"bench", "engine"},
                {"case", timed.name},
                {"pending", timed.pending},
                {"rounds", timed.rounds},
                {"p50_us", timed.latency.p50_us},
                {"p99_us", timed.latency.p99_us},
                {"p999_us", timed.latency.p999_us},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::format("{:<10} {:>7} {}: p50 {:8.2f} us, p99 {:8.2f} us, p99.9 {:8.2f} us", timed.name, timed.pending,
                         timed.pending_what, timed.latency.p50_us, timed.latency.p99_us, timed.latency.p999_us));
}

// Times `finish` of each transaction, or with `whole` the transaction as well.
template <class Finish>
MaybeFailure time_calls(const BenchEngineArguments& arguments, Subject& subject, Timed timed, const Finish& finish) {
  Random random(kSeed);
  std::vector<std::uint64_t> samples;
  samples.reserve(arguments.rounds);
  for (std::uint64_t round = 0; round < arguments.rounds; ++round) {
    if (interrupted()) return interrupted_failure();
    const auto timed_finish = [&samples, &finish](memlith_txn* transaction) {
      const std::uint64_t begin = now_ns();
      const std::int32_t code = finish(transaction);
      samples.push_back(now_ns() - begin);
      return code;
    };
    const std::int32_t code =
        transact(subject.store.get(), subject.regions.front(), 0, kWords / 2, random, timed_finish);
    if (code != MEMLITH_OK) return library_failure(code, timed.name);
  }
  timed.latency = percentiles_of(std::move(samples));
  report(arguments, timed);
  return {};
}

std::int32_t persist_word(Subject& subject, std::size_t region, std::uint64_t word) {
  memlith_region* const of = subject.regions[region];
  auto* const at = static_cast<std::uint64_t*>(memlith_region_address(of)) + word;
  ++*at;
  std::uint64_t ticket = 0;
  const std::int32_t code = memlith_touch(of, at, sizeof *at);
  return code == MEMLITH_OK ? memlith_persist_async(&of, 1, MEMLITH_SCOPE_PROCESS, &ticket) : code;
}

// Undoes 8 bytes, beside asynchronous persists of another region that are in the log and not home.
MaybeFailure run_rollbacks(const BenchEngineArguments& arguments, const ScratchFolder& scratch) {
  scratch.remove("store");
  Result<Subject> subject = make_subject(scratch.path_of("store"), arguments.log_mib, 2);
  if (!subject.ok()) return std::move(subject.failure());
  std::int32_t code = MEMLITH_OK;
  for (std::uint64_t i = 0; code == MEMLITH_OK && i < arguments.persists; ++i) {
    code = persist_word(*subject, 1, i % kWords);
  }
  if (code != MEMLITH_OK) return library_failure(code, "an asynchronous persist");
  memlith_region* const region = subject->regions.front();
  auto* const words = static_cast<std::uint64_t*>(memlith_region_address(region));
  Random random(kSeed);
  std::vector<std::uint64_t> samples;
  for (std::uint64_t round = 0; round < std::min(arguments.rounds, kRollbacksMax); ++round) {
    if (interrupted()) return interrupted_failure();
    const std::uint64_t word = random.below(kWords);
    code = persist_word(*subject, 0, word);
    ++words[word];
    if (code == MEMLITH_OK) code = memlith_touch(region, words + word, sizeof *words);
    const std::uint64_t begin = now_ns();
    if (code == MEMLITH_OK) code = memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS);
    if (code != MEMLITH_OK) return library_failure(code, "a rollback");
    samples.push_back(now_ns() - begin);
  }
  const std::uint64_t rounds = samples.size();
  report(arguments,
         {"rollback", arguments.persists, rounds, percentiles_of(std::move(samples)), "persists in the log"});
  return close_store(std::move(subject->store));
}

MaybeFailure run_single_calls(const BenchEngineArguments& arguments, const ScratchFolder& scratch) {
  scratch.remove("store");
  Result<Subject> subject = make_subject(scratch.path_of("store"), arguments.log_mib, 1);
  if (!subject.ok()) return std::move(subject.failure());
  const auto commit = [](memlith_txn* transaction) {
    return memlith_commit(transaction, MEMLITH_COMMIT_WEAK, nullptr);
  };
  const auto abort = [](memlith_txn* transaction) { return memlith_abort(transaction); };
  for (const std::uint64_t pending : {std::uint64_t{0}, arguments.pending}) {
    // Another thread's ranges, in the other half of the region.
    std::int32_t code = MEMLITH_OK;
    std::thread toucher([&] {
      auto* const words = static_cast<std::uint64_t*>(memlith_region_address(subject->regions.front()));
      for (std::uint64_t i = 0; code == MEMLITH_OK && i < pending; ++i) {
        code = memlith_touch(subject->regions.front(), words + kWords / 2 + i * 2 % (kWords / 2), sizeof *words);
      }
    });
    toucher.join();
    if (code != MEMLITH_OK) return library_failure(code, "touching");
    if (MaybeFailure failure = time_calls(arguments, *subject, {"commit", pending, arguments.rounds, {}}, commit))
      return failure;
    if (MaybeFailure failure = time_calls(arguments, *subject, {"abort", pending, arguments.rounds, {}}, abort))
      return failure;
  }
  return close_store(std::move(subject->store));
}

}  // namespace

MaybeFailure run_bench_engine(const BenchEngineArguments& arguments) {
  catch_interrupts();
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t bytes = (arguments.log_mib + 2 * kRegionMib) * kMiB + kStoreSlackBytes;
  if (MaybeFailure failure = require_space(scratch->path(), bytes)) return failure;
  if (arguments.format == Format::text) {
    write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                           printable(arguments.folder), utc_now()));
    write_line("asynchronous commits of four 8-byte changes, until all are durable; single calls");
  }
  double one_thread = 0;
  for (const Case& what : kCases) {
    Result<CaseResult> result = run_case(arguments, what, *scratch);
    if (!result.ok()) return std::move(result.failure());
    if (what.threads == 1) one_thread = result->commits_per_s;
    report(arguments, what, *result, one_thread);
  }
  if (MaybeFailure failure = run_single_calls(arguments, *scratch)) return failure;
  return run_rollbacks(arguments, *scratch);
}

}  // namespace memlith::tool
