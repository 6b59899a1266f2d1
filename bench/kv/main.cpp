// memlith-kv-bench: memlith's containers, allocator, kv store and application log, beside what else there is.
//
// A program of its own, because the peers are libraries that the command `memlith` does not need.
// Exit codes: 0 done, and every side held what it should; 1 failed, or typed wrong; 130 stopped by a signal.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "allocators/allocators.hpp"
#include "cli/cli_words.hpp"
#include "kv_bench.hpp"
#include "memlith/memlith.h"
#include "peers/peer.hpp"
#include "ycsb.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kMany = 1'000'000'000;
constexpr const char* kCgroupHelp =
    "All memory of each side, page cache included, once its records are there: each has a process and a memory control "
    "group of its own, as root, and caches of half of it; 0: no limit";
constexpr const char* kPeerSides = "leveldb, kyoto-tree-tran, sqlite, lmdb, rocksdb, berkeleydb, wiredtiger";

using Arguments = KvBenchArguments;

// A command and its options. The defaults are those of `arguments` when an option is added.
class Suite {
 public:
  Suite(CLI::App& app, CommandLine& line, const char* name, const char* what, MaybeFailure (*run)(const Arguments&),
        const std::string& sides, const Arguments& defaults)
      : arguments_(std::make_shared<Arguments>(defaults)), command_(app.add_subcommand(name, what)) {
    command_->add_option("--dir", arguments_->folder, "Folder for the temporary stores")->capture_default_str();
    if (!sides.empty()) {
      command_->add_option("--sides", arguments_->sides, "Sides to compare: " + sides)->delimiter(',');
    }
    add_command(command_, line, arguments_, run);
  }
  // A number, or several; and words of those that are known.
  template <class Target>
  Suite& number(const char* name, Target Arguments::* target, std::uint64_t low, std::uint64_t high, const char* what) {
    return listed<Target>(add_number(command_, name, (*arguments_).*target, low, high, what));
  }
  template <class Target>
  Suite& word(const char* name, Target Arguments::* target, const std::vector<std::string>& known, const char* what) {
    return listed<Target>(command_->add_option(name, (*arguments_).*target, what)
                              ->check(CLI::IsMember(known))
                              ->capture_default_str());
  }
  Suite& seconds(const char* what = "Of each side in a workload") {
    command_->add_option("--seconds", arguments_->seconds, what)
        ->check(seconds_between(0.001, 86400.0))
        ->capture_default_str();
    return *this;
  }
  Suite& value_bytes() { return number("--value-bytes", &Arguments::value_bytes, 1, 32 * 1024, "Bytes of a value"); }
  Suite& keys(const char* what) { return number("--keys", &Arguments::records, 1, 10'000'000, what); }
  Suite& program(const char* name, std::string Arguments::* target, const char* what) {
    command_->add_option(name, (*arguments_).*target, what)->check(CLI::ExistingFile);
    return *this;
  }
  Suite& backends() {
    command_->add_option("--backends", arguments_->backends, kBackendsHelp)->delimiter(',')->capture_default_str();
    command_->add_option("--device", arguments_->devices.block, kDeviceHelp);
    command_->add_option("--namespace", arguments_->devices.name_space, kNamespaceHelp);
    return *this;
  }

 private:
  template <class Target>
  Suite& listed(CLI::Option* option) {
    constexpr bool kOne = std::is_integral_v<Target> || std::is_same_v<Target, std::string>;
    if (!kOne) option->delimiter(',');
    return *this;
  }

  std::shared_ptr<Arguments> arguments_;
  CLI::App* command_;
};

void add_heap_suites(CLI::App& app, CommandLine& line) {
  const std::string maps = std::string(
                               "memlith-instrumented, memlith-fault, memlith-scan, memlith-btree-fault, "
                               "memlith-btree-scan, memlith-hash-fault, memlith-hash-scan; without sync also "
                               "memlith-fault-window, memlith-scan-window; ") +
                           kPeerSides;
  const std::vector<std::string> durabilities{"sync", "none", "both"};
  const char* const durability = "sync: each operation is durable when it returns; none: nothing is flushed; both";
  const char* const turn = "Operations of a side before it is the next one's turn";
  const char* const rest = "Time between operations, for a light load";
  Suite(app, line, "table2", "Insert, replace and delete all keys in random order, each operation durable", run_table2,
        maps, {.records = 1000, .value_bytes = 1024, .repetitions = 2})
      .word("--durability", &Arguments::durability, durabilities, durability)
      .keys("Keys")
      .value_bytes()
      .number("--turn", &Arguments::turn, 1, 1'000'000, turn)
      .number("--rest-us", &Arguments::rest_us, 0, 60'000'000, rest)
      .number("--repetitions", &Arguments::repetitions, 1, 1000, "Times that all of it is done");
  Suite(app, line, "table2-large", "The same operations on a store of many keys", run_table2_large, maps,
        {.records = 100'000, .value_bytes = 1024})
      .word("--durability", &Arguments::durability, durabilities, durability)
      .keys("Keys that are there")
      .value_bytes()
      .number("--turn", &Arguments::turn, 1, 1'000'000, turn)
      .number("--rest-us", &Arguments::rest_us, 0, 60'000'000, rest)
      .number("--operations", &Arguments::operations, 1, 10'000'000, "Operations of each kind");
  Suite(app, line, "entries", "Replace some of many values at once with the default tracker, beside a plain write",
        run_entries,
        std::string("memlith-auto, memlith-btree-auto, memlith-hash-auto, memlith-gcc, memlith-instrumented, "
                    "memlith, ") +
            kPeerSides,
        {.records = 100'000, .seconds = 2})
      .keys("Keys that are there")
      .value_bytes()
      .number("--changes", &Arguments::changes, 1, 10'000, "Values that a round replaces; or several: 1,10,100")
      .number("--rounds", &Arguments::rounds, 1, kMany, "Rounds of each side, instead of --seconds")
      .seconds("Of each number of changes");
  Suite(app, line, "threads", "Replace values, and allocate, with several threads", run_threads,
        "those of table2 and of allocate", {.records = 1000, .value_bytes = 1024, .seconds = 1, .threads = {1, 2, 4}})
      .word("--durability", &Arguments::durability, durabilities, durability)
      .keys("Keys")
      .value_bytes()
      .number("--threads", &Arguments::threads, 1, 64, "Threads; or several: 1,2,4")
      .seconds("Of each side and number of threads");
  Suite(app, line, "allocate", "Allocate and free: speed, bytes of metadata, space", run_allocate,
        "memlith, malloc, boost-rbtree, pmemobj", {.rounds = 2000})
      .number("--rounds", &Arguments::rounds, 1, kMany, "Turns of each side")
      .number("--trace-mib", &Arguments::trace_mib, 1, 64 * 1024, "Bytes in use in the trace");
  Suite(app, line, "open", "Open a large, fragmented heap, after a clean close and after a crash", run_open, {},
        {.repetitions = 2})
      .number("--heap-mib", &Arguments::heap_mib, 8, 4096 * 1024, "Size of the heap")
      .number("--blocks", &Arguments::blocks, 100, kMany, "Blocks in use")
      .number("--repetitions", &Arguments::repetitions, 1, 1000, "Openings of each kind");
}

void add_ycsb(CLI::App& app, CommandLine& line) {
  Suite(app, line, "ycsb", "The kv store beside other key-value stores", run_ycsb,
        std::string("memlith, memlith-wait (sync: weak commits that are waited for), memlith-group (the same, for the "
                    "end of their window; only if it is named), memlith-no-durability, memlith-memtable (a skip list "
                    "in a region), ") +
            kPeerSides,
        {.workloads = {"write", "read", "scan", "a", "b", "c", "d", "e", "f"},
         .durability = "relaxed",
         .rounds = 3,
         .seconds = 6})
      .word("--workloads", &Arguments::workloads, ycsb_workload_names(), "The last six are YCSB's")
      .word("--durability", &Arguments::durability, {"relaxed", "sync", "both"},
            "relaxed: weak commits beside peers that flush nothing; sync: each operation is durable when it returns; "
            "both")
      .word("--distribution", &Arguments::distribution, {"uniform", "zipfian"},
            "How records are chosen; zipfian is with 0.99")
      .number("--records", &Arguments::records, 10, kMany, "Records that are there")
      .value_bytes()
      .number("--window-ms", &Arguments::windows_ms, 1, 24ull * 3600 * 1000,
              "Window of memlith's weak commits; or several: 1,10,100")
      .number("--window-mib", &Arguments::window_mib, 1, 1 << 20, "The window ends earlier after so much log")
      .number("--memory-mib", &Arguments::memory_mib, 0, 1 << 24,
              "Memory of each side for its data: memlith's limit, the others' caches; 0: enough for all")
      .number("--cgroup-mib", &Arguments::cgroup_mib, 0, 1 << 24, kCgroupHelp)
      .number("--transaction-records", &Arguments::transaction_records, 1, 1000,
              "Records that an update, an insert or a modify changes as one transaction; or several: 1,4,16")
      .number("--flush-delay-us", &Arguments::flush_delay_us, 0, 60'000'000,
              "A slower disk: so much longer takes each flush of all sides")
      .number("--recovery-log-mib", &Arguments::recovery_log_mib, 1, 1 << 17,
              "Measure how long memlith takes to open the records after a clean close, and after a crash with so "
              "much log; or several: 64,256")
      .number("--rounds", &Arguments::rounds, 1, 1000, "Turns of each side in a workload")
      .seconds()
      .number("--threads", &Arguments::threads, 1, kThreadsMax, "Threads; or several: 1,2,4");
}

void add_dbbench(CLI::App& app, CommandLine& line) {
  const std::vector<std::string> known{"fillseq", "fillrandom", "overwrite", "readseq", "readrandom"};
  Suite(app, line, "dbbench", "Fills and reads of small records, with and without an application log", run_dbbench,
        std::string("memlith-log (an application log before the kv store), memlith (the kv store alone), ") +
            kPeerSides,
        {.workloads = {"fillseq", "fillrandom", "readseq", "readrandom"},
         .backends = {"file", "file-uring"},
         .records = 100'000,
         .seconds = 5})
      .word("--workloads", &Arguments::workloads, known,
            "What is done; overwrite: durable puts of records that are there")
      .backends()
      .number("--cgroup-mib", &Arguments::cgroup_mib, 0, 1 << 24, kCgroupHelp)
      .number("--records", &Arguments::records, 10, kMany, "Records that are there, or that are filled")
      .value_bytes()
      .seconds()
      .number("--rounds", &Arguments::rounds, 1, kMany, "So many of each side, instead of --seconds");
}

void add_kvcalls(CLI::App& app, CommandLine& line) {
  const std::vector<std::string> calls{"remove-map", "fairness", "append", "put-if", "remove-range"};
  Suite(app, line, "kvcalls", "Calls of the kv store, beside what a program does without them, and beside LMDB",
        run_kvcalls, "memlith, memlith-without (without the call), lmdb; of fairness: memlith, memlith-wait",
        {.workloads = calls, .repetitions = 5, .seconds = 2})
      .word("--calls", &Arguments::workloads, calls, "What is measured")
      .number("--records", &Arguments::records, 1000, kMany, "Records of the map that is removed, filled or changed")
      .number("--value-bytes", &Arguments::value_bytes, 8, 1024, "Bytes of a value")
      .number("--range-records", &Arguments::range_records, 1, 1000, "Records that one remove-range removes")
      .number("--long-records", &Arguments::long_records, 1, 100'000,
              "Records that a long transaction reads and writes, of fairness")
      .number("--short-writers", &Arguments::short_writers, 1, 64, "Threads beside it that change one record each")
      .number("--think-us", &Arguments::think_us, 0, 1'000'000,
              "What a transaction of fairness rests between reading and writing a record; or several: 0,50")
      .number("--wait-ms", &Arguments::wait_ms, 1, 24ull * 3600 * 1000, "How long memlith-wait waits for a lock")
      .number("--repetitions", &Arguments::repetitions, 1, 1000, "Turns of each side; figures are their medians")
      .seconds("Of each side in a turn of fairness, put-if and remove-range");
}

void add_applog(CLI::App& app, CommandLine& line) {
  const std::vector<std::string> suites{"append", "writers", "size", "device"};
  Suite(app, line, "applog", "The application log against the raw disk, and with a consumer", run_applog, {},
        {.workloads = suites, .rounds = 5, .seconds = 3, .threads = {1, 2, 4, 8, 16}})
      .word("--suites", &Arguments::workloads, suites, "What is measured")
      .number("--bytes", &Arguments::entry_bytes, 8, 1 << 20, "Bytes of an entry, of append")
      .number("--threads", &Arguments::threads, 1, 64, "Threads, of writers and device")
      .number("--log-mib", &Arguments::log_mib, 1, 4096, "Sizes of the log, of size")
      .backends()
      .number("--rounds", &Arguments::rounds, 1, 1000, "Phases of each side, of writers")
      .seconds("Of each side in a line");
}

void add_invariant(CLI::App& app, CommandLine& line) {
  Suite(app, line, "invariant", "Transactions that keep an order, for a rig that cuts the power (./dev soak invariant)",
        run_invariant, std::string("memlith, ") + kPeerSides, {})
      .value_bytes();
}

void add_processes(CLI::App& app, CommandLine& line) {
  const std::vector<std::string> workloads{"get", "put", "weak-put"};
  Suite(app, line, "processes", "A kv store that several processes have open, beside LMDB, SQLite and redb",
        run_processes,
        "memlith-shared, memlith (of one process), lmdb, sqlite (WAL, FULL), sqlite-memlith (the same, on memlith), "
        "redb",
        {.workloads = workloads, .records = 100'000, .repetitions = 5, .seconds = 5, .threads = {1, 4}})
      .word("--workloads", &Arguments::workloads, workloads, "What each process does with one record after the other")
      .number("--processes", &Arguments::threads, 1, 64, "That work at the same time; or several: 1,4")
      .number("--records", &Arguments::records, 10, 10'000'000, "Records that are there")
      .value_bytes()
      .number("--repetitions", &Arguments::repetitions, 1, 1000, "Turns of each side; figures are their medians")
      .seconds()
      .program("--redb", &Arguments::redb, "The program of side redb, which is left out without it");
}

// pmemobj takes memory for persistent memory if this variable was set when the program was started.
void force_pmem(std::span<char*> words) {
  const auto allocates = [](std::string_view word) { return word == "allocate" || word == "threads"; };
  if (std::getenv(kPmemForceVariable) != nullptr || std::ranges::none_of(words, allocates)) return;
  if (::setenv(kPmemForceVariable, "1", 1) == 0) (void)::execv("/proc/self/exe", words.data());
}

int run(int count, char** words) {
  force_pmem({words, static_cast<std::size_t>(count)});
  CLI::App app("Measures memlith's heap, kv store and application log against peers, in turns");
  app.name("memlith-kv-bench");
  app.require_subcommand(1);
  CommandLine line;
  add_json(&app, line);
  add_heap_suites(app, line);
  add_ycsb(app, line);
  add_dbbench(app, line);
  add_kvcalls(app, line);
  add_applog(app, line);
  add_processes(app, line);
  add_invariant(app, line);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-kv-bench", count, words, memlith::tool::run);
}
