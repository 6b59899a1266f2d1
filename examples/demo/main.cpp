// memlith-demo: a search index over a real folder of text, built as ordinary C++ containers in a memlith heap,
// by a process that is killed with SIGKILL again and again while it builds.
//
//   run     builds it under kills, proves it equal to one built in peace, and shows the figures (the default)
//   query   asks the index that run has left behind
//   check   compares that index once more with one built from scratch
//   build   one life of the builder, as run starts it
//
// index.hpp is the index; builder.hpp fills and persists it; supervisor.hpp kills the builder and judges what comes
// back; floor.hpp and otherwise.hpp measure the disk, and what one would do without memlith, beside it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "builder.hpp"
#include "run.hpp"

namespace {

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) % 1'000'000'000;
}

// Quotes a word for a shell, if it contains characters that a shell might interpret.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char each : text) quoted += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return quoted + "'";
}

int live(const demo::BuildOptions& options) {
  auto built = demo::build(options);
  if (built) return 0;
  fmt::print(stderr, "memlith-demo build: {}\n", built.error().message());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A search index in plain memory that survives kill -9");
  app.require_subcommand(0, 1);
  const char* wanted_store = std::getenv("MEMLITH_DEMO_DIR");
  std::string store = wanted_store != nullptr ? wanted_store : "./memlith-demo-data";
  const auto add_store = [&store](CLI::App* command) {
    return command->add_option("--store", store, "Folder of the demo's own; MEMLITH_DEMO_DIR sets it too")
        ->capture_default_str();
  };

  demo::RunOptions run_options;
  run_options.seed = random_seed();
  std::uint64_t limit_mib = run_options.limit_bytes / demo::kMiB;
  std::uint64_t batch_kib = run_options.batch_bytes / demo::kKiB;
  CLI::App* run = app.add_subcommand("run", "Build the index under kills and prove it right (the default)");
  const CLI::Option* store_of_run = add_store(run);
  run->add_option("--folder", run_options.folder, "Folder of text; default: the machine's documentation");
  run->add_option("--kills", run_options.kills, "How often to kill the builder")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  run->add_option("--seed", run_options.seed, "Seed of the random moments; default: drawn");
  run->add_option("--limit", limit_mib, "MiB of text to index")->check(CLI::Range(1, 1000))->capture_default_str();
  run->add_option("--batch", batch_kib, "KiB of text between two persists")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();

  std::vector<std::string> words;
  CLI::App* query = app.add_subcommand("query", "Show the documents that hold all the words");
  add_store(query);
  query->add_option("WORD", words, "What to look for")->required();

  CLI::App* check = app.add_subcommand("check", "Compare the index with one built from scratch");
  add_store(check);

  demo::BuildOptions build_options;
  CLI::App* builder = app.add_subcommand("build", "One life of the builder, as run starts it");
  add_store(builder);
  builder->add_option("--batch-bytes", build_options.batch_bytes, "Bytes of text between two persists")
      ->check(CLI::PositiveNumber);
  builder->add_option("--report-fd", build_options.report_descriptor, "Where to report each commit");
  builder->add_flag("-v,--verbose", build_options.verbose, "Print a line per commit");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;  // it knows a code for each mistake
  }
  build_options.folder = store;
  if (builder->parsed()) return live(build_options);
  if (query->parsed()) return demo::query(store, words);
  if (check->parsed()) return demo::check(store);
  run_options.store = store;
  run_options.limit_bytes = limit_mib * demo::kMiB;
  run_options.batch_bytes = batch_kib * demo::kKiB;
  run_options.query_hint =
      shell_word(argv[0]) + " query" + (store_of_run->count() > 0 ? " --store " + shell_word(store) : "") + " WORD...";
  return demo::run(run_options);
}
