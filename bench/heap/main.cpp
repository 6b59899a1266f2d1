// memlith-heap-bench: containers on a persistent heap, and its allocator, beside what else there is.
//
// A program of its own, because the peers are libraries that the command `memlith` does not need.
// Exit codes: 0 done, and every side held what it should; 1 failed, or typed wrong; 130 stopped by a signal.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "allocators.hpp"
#include "cli/cli_words.hpp"
#include "heap_bench.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr const char* kMapSides =
    "Sides to compare: memlith-instrumented, memlith-fault, memlith-scan, leveldb, kyoto-tree-tran, sqlite, lmdb, "
    "rocksdb; without sync also memlith-fault-window and memlith-scan-window";

CLI::App* add_suite(CLI::App& app, CommandLine& line, const std::shared_ptr<HeapBenchArguments>& arguments,
                    const char* name, const char* what, MaybeFailure (*function)(const HeapBenchArguments&),
                    const char* sides) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  command->add_option("--sides", arguments->sides, sides)->delimiter(',');
  add_command(command, line, arguments, function);
  return command;
}

void add_map_options(CLI::App* command, HeapBenchArguments& arguments, const char* keys) {
  command
      ->add_option("--durability", arguments.durability,
                   "sync: each operation is durable when it returns; none: nothing is flushed; both")
      ->check(CLI::IsMember({"sync", "none", "both"}))
      ->capture_default_str();
  command->add_option("--keys", arguments.keys, keys)->check(between(1, 10'000'000));
  add_number(command, "--value-bytes", arguments.value_bytes, 1, 32 * 1024, "Bytes of a value");
}

void add_turn(CLI::App* command, HeapBenchArguments& arguments) {
  add_number(command, "--turn", arguments.turn, 1, 1'000'000, "Operations of a side before it is the next one's turn");
}

void add_suites(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<HeapBenchArguments>();
  CLI::App* command = add_suite(app, line, arguments, "table2",
                                "Insert, replace and delete all keys in random order, each operation durable",
                                run_heap_table2, kMapSides);
  add_map_options(command, *arguments, "Keys (1000)");
  add_turn(command, *arguments);
  add_number(command, "--repetitions", arguments->repetitions, 1, 1000, "Times that all of it is done");
  command = add_suite(app, line, arguments, "table2-large", "The same operations on a store of many keys",
                      run_heap_table2_large, kMapSides);
  add_map_options(command, *arguments, "Keys that are there (100000)");
  add_turn(command, *arguments);
  add_number(command, "--operations", arguments->operations, 1, 10'000'000, "Operations of each kind");
  command = add_suite(app, line, arguments, "allocate", "Allocate and free: speed, bytes of metadata, space",
                      run_heap_allocate, "Sides to compare: memlith, malloc, boost-rbtree, pmemobj");
  add_number(command, "--rounds", arguments->rounds, 1, 1'000'000'000, "Turns of each side");
  add_number(command, "--trace-mib", arguments->trace_mib, 1, 64 * 1024, "Bytes in use in the trace");
  command =
      add_suite(app, line, arguments, "open", "Open a large, fragmented heap, after a clean close and after a crash",
                run_heap_open, "memlith alone");
  add_number(command, "--heap-mib", arguments->heap_mib, 8, 4096 * 1024, "Size of the heap");
  add_number(command, "--blocks", arguments->blocks, 100, 1'000'000'000, "Blocks in use");
  add_number(command, "--repetitions", arguments->repetitions, 1, 1000, "Openings of each kind");
  command = add_suite(app, line, arguments, "threads", "Replace values, and allocate, with several threads",
                      run_heap_threads, "Sides to compare: those of table2 and of allocate");
  add_map_options(command, *arguments, "Keys (1000)");
  add_number(command, "--threads", arguments->threads, 1, 64, "Threads; or several: 1,2,4")->delimiter(',');
  command->add_option("--seconds", arguments->seconds, "Of each side and number of threads")
      ->check(seconds_between(0.001, 86400.0))
      ->capture_default_str();
}

// pmemobj takes memory for persistent memory if this variable was set when the program was started.
void force_pmem(char** words) {
  if (std::getenv(kPmemForceVariable) != nullptr) return;
  if (::setenv(kPmemForceVariable, "1", 1) == 0) (void)::execv("/proc/self/exe", words);
}

int run(int count, char** words) {
  force_pmem(words);
  CLI::App app("Measures containers on a persistent heap, and its allocator, against peers, in turns");
  app.name("memlith-heap-bench");
  app.require_subcommand(1);
  CommandLine line;
  add_json(&app, line);
  add_suites(app, line);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-heap-bench", count, words, memlith::tool::run);
}
