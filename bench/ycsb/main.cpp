// memlith-ycsb-bench: the kv store beside other key-value stores.
//
// A program of its own, because the peers are libraries that the command `memlith` does not need.
// Exit codes: 0 done; 1 failed, or typed wrong; 130 stopped by a signal.
#include <CLI/CLI.hpp>

#include "cli/cli_words.hpp"
#include "memlith/memlith.h"
#include "ycsb.hpp"

namespace memlith::tool {

namespace {

int run(int count, char** words) {
  CLI::App app("Measures the kv store against peers, in turns");
  app.name("memlith-ycsb-bench");
  CommandLine line;
  const auto arguments = std::make_shared<YcsbArguments>();
  app.add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  app.add_option("--sides", arguments->sides,
                 "Sides to compare: memlith, memlith-wait (sync: weak commits that are waited for), "
                 "memlith-no-durability, leveldb, kyoto-tree-tran, sqlite, lmdb, rocksdb, berkeleydb, wiredtiger")
      ->delimiter(',');
  app.add_option("--workloads", arguments->workloads,
                 "Any of write, read, insert, scan, modify, a, b, c, d, e, f (the last six are YCSB's)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--durability", arguments->durability,
                 "relaxed: weak commits beside peers that flush nothing; sync: each operation is durable when it "
                 "returns; both")
      ->check(CLI::IsMember({"relaxed", "sync", "both"}))
      ->capture_default_str();
  app.add_option("--distribution", arguments->distribution, "How records are chosen; zipfian is with 0.99")
      ->check(CLI::IsMember({"uniform", "zipfian"}))
      ->capture_default_str();
  add_number(&app, "--records", arguments->records, 10, 1'000'000'000, "Records that are there");
  add_number(&app, "--value-bytes", arguments->value_bytes, 1, 32 * 1024, "Bytes of a value");
  add_number(&app, "--window-ms", arguments->windows_ms, 1, 24ull * 3600 * 1000,
             "Window of memlith's weak commits; or several: 1,10,100")
      ->delimiter(',');
  add_number(&app, "--window-mib", arguments->window_mib, 1, 1 << 20, "The window ends earlier after so much log");
  add_number(&app, "--memory-mib", arguments->memory_mib, 0, 1 << 24,
             "Memory of each side for its data: memlith's limit, the others' caches; 0: enough for all");
  add_number(&app, "--flush-delay-us", arguments->flush_delay_us, 0, 60'000'000,
             "A slower disk: so much longer takes each flush of all sides");
  add_number(&app, "--recovery-log-mib", arguments->recovery_log_mib, 1, 1 << 17,
             "Measure how long memlith takes to open the records after a clean close, and after a crash with so much "
             "log; or several: 64,256")
      ->delimiter(',');
  add_number(&app, "--rounds", arguments->rounds, 1, 1000, "Turns of each side in a workload");
  app.add_option("--seconds", arguments->seconds, "Of each side in a workload")
      ->check(seconds_between(0.001, 86400.0))
      ->capture_default_str();
  add_number(&app, "--threads", arguments->threads, 1, 64, "Threads; or several: 1,2,4")->delimiter(',');
  add_command(&app, line, arguments, run_ycsb);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-ycsb-bench", count, words, memlith::tool::run);
}
