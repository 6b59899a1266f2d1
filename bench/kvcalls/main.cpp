// memlith-kvcalls-bench: calls of the kv store beside what a program does without them, and beside LMDB.
//
// Exit codes: 0 done; 1 failed, or typed wrong; 130 stopped by a signal.
#include <CLI/CLI.hpp>

#include "cli/cli_words.hpp"
#include "kvcalls.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

int run(int count, char** words) {
  CLI::App app("Measures calls of the kv store, in turns with what a program does without them and with LMDB");
  app.name("memlith-kvcalls-bench");
  CommandLine line;
  const auto arguments = std::make_shared<KvCallsArguments>();
  app.add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  app.add_option("--calls", arguments->calls, "Any of remove-map, fairness, append, put-if, remove-range")
      ->delimiter(',')
      ->check(CLI::IsMember({"remove-map", "fairness", "append", "put-if", "remove-range"}))
      ->capture_default_str();
  app.add_option("--sides", arguments->sides,
                 "Sides to compare: memlith, memlith-without (the same store, without the call), lmdb; fairness has "
                 "memlith and memlith-wait")
      ->delimiter(',')
      ->check(CLI::IsMember({"memlith", "memlith-without", "memlith-wait", "lmdb"}));
  add_number(&app, "--records", arguments->records, 1000, 1'000'000'000,
             "Records of the map that is removed, filled or changed");
  add_number(&app, "--value-bytes", arguments->value_bytes, 8, 1024, "Bytes of a value");
  add_number(&app, "--range-records", arguments->range_records, 1, 1000, "Records that one remove-range removes");
  add_number(&app, "--long-records", arguments->long_records, 1, 100'000,
             "Records that a long transaction reads and writes, of fairness");
  add_number(&app, "--short-writers", arguments->short_writers, 1, 64, "Threads beside it that change one record each");
  add_number(&app, "--think-us", arguments->think_us, 0, 1'000'000,
             "What a transaction of fairness rests between reading and writing a record; or several: 0,50")
      ->delimiter(',');
  add_number(&app, "--wait-ms", arguments->wait_ms, 1, 24ull * 3600 * 1000, "How long memlith-wait waits for a lock");
  add_number(&app, "--repetitions", arguments->repetitions, 1, 1000, "Turns of each side; figures are their medians");
  app.add_option("--seconds", arguments->seconds, "Of each side in a turn of fairness, put-if and remove-range")
      ->check(seconds_between(0.001, 86400.0))
      ->capture_default_str();
  add_command(&app, line, arguments, run_kvcalls);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-kvcalls-bench", count, words, memlith::tool::run);
}
