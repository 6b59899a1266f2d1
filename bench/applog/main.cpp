// memlith-applog-bench: the application log beside the raw disk, and with a kv store that consumes it.
//
// Exit codes: 0 done; 1 failed, or typed wrong; 130 stopped by a signal.
#include <CLI/CLI.hpp>

#include "applog_bench.hpp"
#include "cli/cli_words.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

int run(int count, char** words) {
  CLI::App app("Measures the application log against the raw disk, and with a consumer");
  app.name("memlith-applog-bench");
  CommandLine line;
  const auto arguments = std::make_shared<AppLogArguments>();
  app.add_option("--dir", arguments->folder, "Folder for the temporary stores")->capture_default_str();
  app.add_option("--suites", arguments->suites, "Any of append, writers, size")
      ->delimiter(',')
      ->check(CLI::IsMember({"append", "writers", "size"}))
      ->capture_default_str();
  add_number(&app, "--bytes", arguments->entry_bytes, 8, 1 << 20, "Bytes of an entry, of append")->delimiter(',');
  add_number(&app, "--threads", arguments->threads, 1, 64, "Threads, of writers")->delimiter(',');
  add_number(&app, "--log-mib", arguments->log_mib, 1, 4096, "Sizes of the log, of size")->delimiter(',');
  app.add_option("--backends", arguments->backends, kBackendsHelp)->delimiter(',')->capture_default_str();
  app.add_option("--device", arguments->devices.block, kDeviceHelp);
  app.add_option("--namespace", arguments->devices.name_space, kNamespaceHelp);
  add_number(&app, "--rounds", arguments->rounds, 1, 1000, "Phases of each side, of writers");
  app.add_option("--seconds", arguments->seconds, "Of each side in a line")
      ->check(seconds_between(0.001, 86400.0))
      ->capture_default_str();
  add_command(&app, line, arguments, run_applog);
  return parse_and_run(app, count, words, line.run, line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-applog-bench", count, words, memlith::tool::run);
}
