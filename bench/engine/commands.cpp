// The benchmarks and options that may be typed behind `memlith bench`.
#include "commands.hpp"

#include <memory>

#include "cli/io_names.hpp"
#include "cli/trackers.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kRegionMibMax = 256 * 1024;
constexpr std::uint64_t kLogMibMin = 16;
constexpr std::uint64_t kLogMibMax = 64 * 1024;

std::vector<std::string> tracker_names() {
  std::vector<std::string> names;
  for (const TrackerName& tracker : kTrackers) names.emplace_back(tracker.name);
  return names;
}

void add_io(CLI::App* command, std::string& io) {
  command
      ->add_option("--io", io,
                   "How the store uses the disk: auto, posix (system calls only), uring (io_uring only) or dax (lines)")
      ->check(CLI::IsMember(std::vector<std::string>(kIoNames.begin(), kIoNames.end())))
      ->capture_default_str();
}

// `--peers`, and what goes with it only. The defaults are those of the table then.
void add_peers(CLI::App* command, const std::shared_ptr<BenchPersistArguments>& shared) {
  BenchPersistArguments& arguments = *shared;
  CLI::Option* const peers = command->add_flag_callback(
      "--peers",
      [command, &arguments] {
        arguments.peers = true;
        if (command->count("--pages") == 0) arguments.pages = {1, 4, 16, 64, 256, 1024};
        if (command->count("--tracker") == 0) arguments.trackers = {"explicit", "fault", "scan"};
      },
      "Instead: compare memlith with each tracker, pwrite + fsync, msync and raw, for 4 KiB to 4 MiB of pages");
  for (const char* other :
       {"--threads", "--scope", "--async", "--raw", "--same-pages", "--breakdown", "--one-region", "--io"})
    peers->excludes(command->get_option(other));
  command
      ->add_flag("--sequential", arguments.sequential,
                 "With --peers: the pages of a round lie one behind the other, from a random one on")
      ->needs(peers);
  command
      ->add_option("--fsync-dir", arguments.fsync_folders,
                   "With --peers: also measure pwrite + fsync in this folder, on another file system; may be repeated")
      ->needs(peers);
  command->add_option("--record", arguments.record, "With --peers: write the JSON lines to this file, too")
      ->needs(peers);
}

void add_checkpoints(CLI::App* command, BenchPersistArguments& arguments) {
  CLI::Option* const checkpoints = command->add_flag_callback(
      "--checkpoints",
      [command, &arguments] {
        arguments.checkpoints = true;
        if (command->count("--pages") == 0) arguments.pages = {1, 4, 16, 64, 256, 1024};
        if (command->count("--tracker") == 0) arguments.trackers = {"explicit", "fault"};
      },
      "Instead: compare a thread's persists with checkpoints that stop all threads, of a region and of a forked "
      "process; --threads is the number of threads that store beside, whose pause is measured");
  for (const char* other : {"--scope", "--async", "--raw", "--same-pages", "--hot-pages", "--process-scope", "--io",
                            "--breakdown", "--one-region", "--peers"})
    checkpoints->excludes(command->get_option(other));
}

void add_one_region(CLI::App* command, BenchPersistArguments& arguments) {
  CLI::Option* const one_region =
      command->add_flag("--one-region", arguments.one_region,
                        "Instead: threads with pages of their own in one region persist their own stores, beside "
                        "persists of all stores under one lock");
  command
      ->add_option_function<std::vector<std::string>>(
          "--whose",
          [&arguments](const std::vector<std::string>& names) {
            arguments.whose.clear();
            for (const std::string& name : names)
              arguments.whose.push_back(name == "thread" ? Whose::thread : Whose::process);
          },
          "With --one-region: whose stores a persist covers, thread or process. Default: thread,process, in turn")
      ->delimiter(',')
      ->check(CLI::IsMember({"thread", "process"}))
      ->needs(one_region);
  for (const char* other :
       {"--scope", "--async", "--raw", "--same-pages", "--hot-pages", "--process-scope", "--breakdown"}) {
    one_region->excludes(command->get_option(other));
  }
}

void add_bench_persist(CLI::App* bench, CommandLine& line) {
  const auto shared = std::make_shared<BenchPersistArguments>();
  BenchPersistArguments& arguments = *shared;
  CLI::App* command =
      bench->add_subcommand("persist",
                            "Time durable persists against raw writes and flushes of as many bytes, interleaved");
  command->add_option("--tracker", arguments.trackers, "auto, scan, explicit, fault, instrumented; or several: a,b")
      ->delimiter(',')
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_number(command, "--pages", arguments.pages, 1, kRegionMibMax * 256,
             "Pages changed in a round; or several: 1,16,256")
      ->delimiter(',');
  add_number(command, "--bytes-per-page", arguments.bytes_per_page, 1, 4096, "Bytes changed in each page");
  add_number(command, "--region-mib", arguments.region_mib, 1, kRegionMibMax, "Size of each thread's region");
  add_number(command, "--log-mib", arguments.log_mib, 0, kLogMibMax,
             "Size of the store's log; no checkpoints run if half of the log holds the whole run. 0: the default");
  add_number(command, "--threads", arguments.thread_counts, 1, 64,
             "Threads, each with its own region and its own raw file; or several: 1,4,16")
      ->delimiter(',');
  add_io(command, arguments.io);
  command->add_option("--dir", arguments.folder, "Folder for the temporary store and raw files")->capture_default_str();
  CLI::Option* seconds = command->add_option("--seconds", arguments.seconds,
                                             "Seconds per line; at least 300 rounds, or 20 phases of each side");
  seconds->check(seconds_between(0.0, 86400.0))->capture_default_str();
  command->add_option("--rounds", arguments.rounds, "Rounds per line; with threads, phases of 100 ms of each side")
      ->check(between(1, 1'000'000'000))
      ->excludes(seconds);
  command
      ->add_option_function<std::string>(
          "--scope",
          [&arguments](const std::string& name) {
            arguments.scope = name == "stores" ? Scope::stores : Scope::persist;
          },
          "Which steps are timed: stores (stores + persist) or persist (the call alone). Default: stores; for "
          "explicit, touch + persist")
      ->check(CLI::IsMember({"stores", "persist"}));
  command->add_flag("--async", arguments.asynchronous,
                    "Time memlith_persist_async, until the bytes are captured; each round then waits until they are "
                    "durable");
  command
      ->add_option_function<std::string>(
          "--raw",
          [&arguments](const std::string& name) {
            arguments.raw = name == "pages" ? RawSide::pages : name == "captured" ? RawSide::captured : RawSide::bytes;
          },
          "What the raw side writes: bytes (as many as changed), pages (the whole pages) or captured (a copy of what "
          "changed, with a checksum: the minimum of any program that copies)")
      ->check(CLI::IsMember({"bytes", "pages", "captured"}));
  command->add_flag("--same-pages", arguments.same_pages,
                    "Change the same bytes in every round, and report how often they are written home");
  add_number(command, "--hot-pages", arguments.hot_pages, 0, 1024,
             "Pages of a round that are the same in every round; the others are random");
  command->add_flag("--process-scope", arguments.process_scope,
                    "Open the regions for process scope only, so that fault can leave such pages writable");
  CLI::Option* const breakdown = command->add_flag("--breakdown", arguments.breakdown,
                                                   "Instead: time the steps of a persist one by one, synchronous, "
                                                   "asynchronous, and asynchronous within a flush window");
  for (const char* other :
       {"--threads", "--scope", "--async", "--raw", "--same-pages", "--hot-pages", "--process-scope", "--io"}) {
    breakdown->excludes(command->get_option(other));
  }
  add_one_region(command, arguments);
  add_peers(command, shared);
  add_checkpoints(command, arguments);
  add_command(command, line, shared, run_bench_persist);
}

void add_bench_protect(CLI::App* bench, CommandLine& line) {
  const auto arguments = std::make_shared<BenchProtectArguments>();
  CLI::App* command =
      bench->add_subcommand("protect",
                            "Time ways to protect pages of memory again, and the fault of the next store to each");
  add_number(command, "--region-mib", arguments->region_mib, 1, kRegionMibMax, "Size of the memory");
  // With mprotect, each page that was stored to may be a mapping of its own, and the kernel has a limit on these.
  add_number(command, "--pages", arguments->pages, 1, 16'384, "Pages stored to in a round; or several: 1,16,256,4096")
      ->delimiter(',');
  add_number(command, "--rounds", arguments->rounds, 1, 1'000'000'000, "Rounds of each way and number of pages");
  add_command(command, line, arguments, run_bench_protect);
}

void add_bench_tail(CLI::App* bench, CommandLine& line) {
  const auto shared = std::make_shared<BenchTailArguments>();
  BenchTailArguments& arguments = *shared;
  CLI::App* command = bench->add_subcommand(
      "tail", "Time the slowest persists while checkpoints run, against raw writes and flushes beside the same load");
  command->add_option("--dir", arguments.folder, "Folder for the temporary store and raw files")->capture_default_str();
  command->add_option("--tracker", arguments.tracker, "auto, scan, explicit, fault or instrumented")
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_number(command, "--pages", arguments.pages, 1, kRegionMibMax * 256, "Pages changed in a round");
  add_number(command, "--bytes-per-page", arguments.bytes_per_page, 1, 4096, "Bytes changed in each page");
  add_number(command, "--region-mib", arguments.region_mib, 1, kRegionMibMax, "Size of the region");
  add_number(command, "--log-mib", arguments.log_mib, 1, kLogMibMax,
             "Size of the log, and of raw's file; a checkpoint begins when half of the log is used");
  add_number(command, "--phases", arguments.phases, 1, 10'000, "Number of turns of each side");
  add_number(command, "--rate", arguments.rate, 0, 10'000'000,
             "Rounds per second on every side, for a load that the disk can sustain. 0: without a pause");
  add_number(command, "--pause-ms", arguments.pause_ms, 0, 60'000,
             "Rest before each phase, as programs do that work in bursts; all rounds count then");
  CLI::Option* seconds = command->add_option("--seconds", arguments.seconds, "Time of each side, all phases together");
  seconds->check(seconds_between(0.0, 86400.0))->capture_default_str();
  command->add_option("--rounds", arguments.rounds, "Rounds of a phase that count")
      ->check(between(1, 1'000'000'000))
      ->excludes(seconds);
  add_command(command, line, shared, run_bench_tail);
}

void add_bench_transparent(CLI::App* bench, CommandLine& line) {
  const auto arguments = std::make_shared<BenchTransparentArguments>();
  CLI::App* command =
      bench
          ->add_subcommand("transparent",
                           "Time stores and persists of a region with the default tracker, against other ways and raw");
  command->add_option("--dir", arguments->folder, "Folder for the temporary stores and files")->capture_default_str();
  add_number(command, "--region-mib", arguments->region_mib, 1, kRegionMibMax, "Sizes of the region: 64,1024,16384")
      ->delimiter(',');
  add_number(command, "--pages", arguments->pages, 0, kRegionMibMax * 256, "Pages stored to in a round: 0,1,16,256")
      ->delimiter(',');
  add_number(command, "--bytes-per-page", arguments->bytes_per_page, 1, 4096, "Bytes changed in each page: 4,4096")
      ->delimiter(',');
  add_number(command, "--filled-mib", arguments->filled_mib, 1, kRegionMibMax,
             "Larger regions are sparse: only what rounds store to is in memory");
  add_number(command, "--log-mib", arguments->log_mib, 0, kLogMibMax, "Size of the store's log. 0: the default");
  CLI::Option* seconds = command->add_option("--seconds", arguments->seconds, "Seconds per size and number of pages");
  seconds->check(seconds_between(0.0, 86400.0))->capture_default_str();
  command->add_option("--rounds", arguments->rounds, "Rounds of each side instead")
      ->check(between(1, 1'000'000'000))
      ->excludes(seconds);
  add_command(command, line, arguments, run_bench_transparent);
}

void add_bench_recovery(CLI::App* bench, CommandLine& line) {
  const auto arguments = std::make_shared<BenchRecoveryArguments>();
  CLI::App* command =
      bench->add_subcommand("recovery", "Time recovery after a crash against a sequential write of as many bytes");
  command->add_option("--dir", arguments->folder, "Folder for the temporary store and the raw file")
      ->capture_default_str();
  add_number(command, "--log-mib", arguments->log_mib, kLogMibMin, kLogMibMax,
             "Size of the log, which is filled to about 90 % (a small one to 70 %, or what its segments allow)");
  add_number(command, "--region-mib", arguments->region_mib, 1, kRegionMibMax,
             "Size of the region whose random pages are committed");
  add_io(command, arguments->io);
  add_command(command, line, arguments, run_bench_recovery);
}

void add_bench_open(CLI::App* bench, CommandLine& line) {
  const auto arguments = std::make_shared<BenchOpenArguments>();
  CLI::App* command = bench->add_subcommand("open", "Time opening a clean store with a large region");
  command->add_option("--dir", arguments->folder, "Folder for the temporary store")->capture_default_str();
  add_number(command, "--region-mib", arguments->region_mib, 1, kRegionMibMax,
             "Size of the region; its disk space is reserved");
  command->add_option("--tracker", arguments->tracker, "auto, scan, explicit, fault or instrumented")
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_command(command, line, arguments, run_bench_open);
}

void add_bench_engine(CLI::App* bench, CommandLine& line) {
  const auto arguments = std::make_shared<BenchEngineArguments>();
  CLI::App* command = bench->add_subcommand(
      "engine", "Count small asynchronous commits of one and two threads, and time aborts and commits beside touches");
  command->add_option("--dir", arguments->folder, "Folder for the temporary store")->capture_default_str();
  add_number(command, "--commits", arguments->commits, 1, 1'000'000'000, "Commits of each thread without a checkpoint");
  add_number(command, "--log-mib", arguments->log_mib, 1, kLogMibMax,
             "Size of the log; no checkpoint runs if half of the log holds the commits of two threads");
  add_number(command, "--small-log-mib", arguments->small_log_mib, 1, kLogMibMax,
             "Size of the log of the lines that run over checkpoints");
  add_number(command, "--checkpoints", arguments->checkpoints, 1, 1'000, "Checkpoints that these lines run over");
  add_number(command, "--pending", arguments->pending, 1, 100'000'000, "Ranges that another thread has touched");
  add_number(command, "--rounds", arguments->rounds, 1, 1'000'000'000, "Timed aborts, and timed commits");
  add_number(command, "--persists", arguments->persists, 1, 100'000'000,
             "Asynchronous persists of 8 bytes that are in the log while rollbacks are timed");
  add_command(command, line, arguments, run_bench_engine);
}

}  // namespace

void add_bench_commands(CLI::App& app, CommandLine& line) {
  CLI::App* bench = app.add_subcommand("bench", "Measure memlith on this machine");
  bench->require_subcommand(1);
  add_json(bench, line);
  add_bench_persist(bench, line);
  add_bench_protect(bench, line);
  add_bench_tail(bench, line);
  add_bench_transparent(bench, line);
  add_bench_recovery(bench, line);
  add_bench_open(bench, line);
  add_bench_engine(bench, line);
}

}  // namespace memlith::tool
