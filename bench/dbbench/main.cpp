// memlith-dbbench: small records, as LevelDB's db_bench puts and reads them, with and without an application log, on
// each backend, beside other key-value stores.
//
// Exit codes: 0 done; 1 failed, or typed wrong; 130 stopped by a signal.
#include <CLI/CLI.hpp>

#include "cli/cli_words.hpp"
#include "dbbench.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

int run(int count, char** words) {
  CLI::App app("Measures fills and reads of small records, side by side");
  app.name("memlith-dbbench");
  CommandLine line;
  const auto arguments = std::make_shared<DbBenchArguments>();
  app.add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  app.add_option("--sides", arguments->sides,
                 "Sides to compare: memlith-log (an application log before the kv store), memlith (the kv store "
                 "alone), leveldb, lmdb, sqlite, kyoto-tree-tran, rocksdb")
      ->delimiter(',');
  app.add_option("--workloads", arguments->workloads, "Any of fillseq, fillrandom, readseq, readrandom")
      ->delimiter(',')
      ->check(CLI::IsMember({"fillseq", "fillrandom", "readseq", "readrandom"}))
      ->capture_default_str();
  app.add_option("--backends", arguments->backends, kBackendsHelp)->delimiter(',')->capture_default_str();
  app.add_option("--device", arguments->devices.block, kDeviceHelp);
  app.add_option("--namespace", arguments->devices.name_space, kNamespaceHelp);
  add_number(&app, "--records", arguments->records, 10, 1'000'000'000, "Records that are there, or that are filled");
  add_number(&app, "--value-bytes", arguments->value_bytes, 1, 32 * 1024, "Bytes of a value");
  app.add_option("--seconds", arguments->seconds, "Of each side in a workload")
      ->check(seconds_between(0.001, 86400.0))
      ->capture_default_str();
  add_number(&app, "--rounds", arguments->rounds, 1, 1'000'000'000, "So many of each side, instead of --seconds");
  add_command(&app, line, arguments, run_dbbench);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-dbbench", count, words, memlith::tool::run);
}
