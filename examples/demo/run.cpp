// The demo from end to end. See run.hpp.
#include "run.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include "builder.hpp"
#include "corpus.hpp"
#include "display.hpp"
#include "floor.hpp"
#include "index.hpp"
#include "supervisor.hpp"

namespace demo {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHitsShown = 10;

int failed(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "memlith-demo: {}\n", error.message());
  return 1;
}

std::string marker_path(const std::string& folder) { return folder + "/memlith-demo.marker"; }

// The demo's folder, empty and held against other runs until the process ends. A folder that no demo has made is left
// alone, and of one that a demo has made only what demos make is removed.
Result<void> take_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return error_saying(folder + ": " + error.message());
  const std::string marker = marker_path(folder);
  if (!fs::exists(marker, error) && !fs::is_empty(folder, error)) {
    return error_saying(folder + " was not made by this demo, so it is left alone; name another with --store");
  }
  const int file = ::open(marker.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return error_of_errno(marker);
  // The lock goes with the process; nothing else closes the file.
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return error_saying("another run is at work in " + folder);
  for (const std::string& path : {store_path(folder), corpus_path(folder)}) {
    fs::remove_all(path, error);
    if (error) return error_saying(path + ": " + error.message());
  }
  return {};
}

Result<Corpus> scan(const RunOptions& options) {
  auto corpus = options.folder.empty() ? scan_default_folder(options.limit_bytes)
                                       : scan_folder(options.folder, options.limit_bytes);
  if (!corpus) return corpus;
  if (auto written = write_corpus(*corpus, corpus_path(options.store)); !written) return written.error();
  return corpus;
}

void print_corpus(const Corpus& corpus) {
  fmt::print("text     {}: {} files, {}{}\n", corpus.folder, format_count(corpus.files.size()),
             format_bytes(corpus.text_bytes), corpus.cut ? "; there is more, cut by --limit" : "");
  fmt::print("         passed over: {} not plain text, {} unreadable or too large\n", format_count(corpus.not_text),
             format_count(corpus.unreadable));
}

// Builds the index a second time, undisturbed and in memory, and compares everything.
Result<void> prove(const OpenIndex& open, const Corpus& corpus) {
  const Index& index = *open.index;
  const std::uint64_t begin_ns = now_ns();
  auto reference = build_in_memory(corpus);
  if (!reference) return reference.error();
  const std::uint64_t built_ns = now_ns() - begin_ns;
  const std::string differs = difference(index, *reference);
  fmt::print("killed and recovered   checksum {:016x}  ({} words, {} commits)\n", content_checksum(index),
             format_count(index.terms().size()), format_count(index.commits));
  fmt::print("built without a break  checksum {:016x}  ({} words, in memory, {})\n", content_checksum(*reference),
             format_count(reference->terms().size()), format_duration(built_ns));
  if (!differs.empty()) return error_saying("the two indexes differ: " + differs);
  if (const std::string flaw = index.flaw(); !flaw.empty()) return error_saying("the index is damaged: " + flaw);
  fmt::print("equal: every document, every word, every posting\n");
  auto heap = open.heap.verify();
  if (!heap) return heap.error();
  fmt::print("the heap accounts for every byte: {} in {} blocks, {} of structures, {} free\n",
             format_bytes(heap->block_bytes), format_count(heap->blocks), format_bytes(heap->header_bytes),
             format_bytes(heap->slab_bytes + heap->free_bytes));
  return {};
}

void print_hits(const Index& index, const std::vector<std::string>& words, std::uint64_t opened_ns) {
  const std::uint64_t begin_ns = now_ns();
  const std::vector<Hit> hits = search(index, words);
  const std::uint64_t took_ns = now_ns() - begin_ns;
  std::string asked;
  for (const std::string& word : words) asked += (asked.empty() ? "" : " and ") + word;
  fmt::print("{}: {} of {} documents, found in {} (store opened in {})\n", asked, format_count(hits.size()),
             format_count(index.documents().size()), format_duration(took_ns), format_duration(opened_ns));
  for (std::size_t i = 0; i < std::min(hits.size(), kHitsShown); ++i) {
    fmt::print("  {:>7}  {}\n", format_count(hits[i].count), hits[i].document->path.c_str());
  }
}

// A word worth asking for: "memory" where the text has it, else the longer word that stands in most documents.
std::string sample_word(const Index& index) {
  constexpr std::size_t kLongWord = 6;
  if (index.terms().contains(std::string_view("memory"))) return "memory";
  std::string_view best;
  std::size_t documents = 0;
  for (const auto& [word, postings] : index.terms()) {
    if (word.size() < kLongWord || postings.size() <= documents) continue;
    best = word;
    documents = postings.size();
  }
  return std::string(best);
}

double ratio(std::uint64_t value, std::uint64_t floor) {
  return floor == 0 ? 0 : static_cast<double>(value) / static_cast<double>(floor);
}

void print_figures(const Corpus& corpus, const Index& index, const Outcome& outcome, const Floor& floor,
                   std::uint64_t begin_ns) {
  const std::uint64_t persist_p50 = percentile(outcome.persist_ns, 0.50);
  const std::uint64_t persist_p99 = percentile(outcome.persist_ns, 0.99);
  const std::uint64_t floor_p50 = percentile(floor.nanoseconds, 0.50);
  const std::uint64_t floor_p99 = percentile(floor.nanoseconds, 0.99);
  const double commits_a_second = static_cast<double>(outcome.persist_ns.size()) * 1e9 /
                                  static_cast<double>(std::max<std::uint64_t>(outcome.building_ns, 1));
  print_table({
      {"files indexed", format_count(index.documents().size()), corpus.cut ? "(the text was cut by --limit)" : ""},
      {"text", format_bytes(corpus.text_bytes), ""},
      {"terms", format_count(index.terms().size()), ""},
      {"commits made", format_count(outcome.commits), "all synchronous: durable on return"},
      {"kills survived", format_count(outcome.kills_at_work() + outcome.kills_opening),
       fmt::format("{} indexing, {} inside persist, {} opening or closing", outcome.kills_indexing,
                   outcome.kills_persisting, outcome.kills_opening)},
      {"commits/s", fmt::format("{:.0f}", commits_a_second), "indexing included, opening not"},
      {"logged by a commit", format_bytes(percentile(outcome.logged_bytes, 0.50)),
       fmt::format("for {} of text (medians)", format_bytes(percentile(outcome.text_bytes, 0.50)))},
      {"persist p50", format_duration(persist_p50), ""},
      {"persist p99", format_duration(persist_p99), ""},
      {"raw write p50", format_duration(floor_p50),
       fmt::format("{} of {} and fdatasync, {} times{}", floor.direct ? "O_DIRECT write" : "buffered write",
                   format_bytes(floor.bytes), floor.nanoseconds.size(),
                   floor.direct ? "" : " (O_DIRECT was refused here)")},
      {"raw write p99", format_duration(floor_p99), ""},
      {"persist / raw write", fmt::format("{:.2f}x", ratio(persist_p50, floor_p50)),
       fmt::format("at p50; {:.2f}x at p99", ratio(persist_p99, floor_p99))},
      {"total time", format_duration(now_ns() - begin_ns), ""},
  });
}

// Everything after the folder is ours and the text is chosen.
Result<void> run_in(const RunOptions& options, const Corpus& corpus, std::uint64_t begin_ns) {
  auto outcome = supervise({.folder = options.store,
                            .text_bytes = corpus.text_bytes,
                            .kills = options.kills,
                            .seed = options.seed,
                            .batch_bytes = options.batch_bytes});
  if (!outcome) return outcome.error();
  const std::uint64_t opening_ns = now_ns();
  auto open = open_index(options.store, Access::read);
  if (!open) return open.error();
  const std::uint64_t opened_ns = now_ns() - opening_ns;
  const Index& index = *open->index;
  fmt::print("\n");
  if (index.commits != outcome->commits) {
    return error_saying(fmt::format("the finished index holds commit {} instead of {}", index.commits,
                                    outcome->commits));
  }
  if (auto proved = prove(*open, corpus); !proved) return proved;

  fmt::print("\n");
  print_hits(index, {sample_word(index)}, opened_ns);
  const std::uint64_t logged_bytes = percentile(outcome->logged_bytes, 0.50);
  auto floor = measure_floor(options.store, std::max<std::uint64_t>((logged_bytes + 4095) / 4096, 1) * 4096);
  if (!floor) return floor.error();
  fmt::print("\n");
  print_figures(corpus, index, *outcome, *floor, begin_ns);
  return {};
}

}  // namespace

int run(const RunOptions& options) {
  const std::uint64_t begin_ns = now_ns();
  if (auto taken = take_folder(options.store); !taken) return failed(taken.error());
  auto corpus = scan(options);
  if (!corpus) return failed(corpus.error());
  print_corpus(*corpus);
  fmt::print("store    {}\n", options.store);
  fmt::print("kills    {} while the builder is at work, seed {}\n\n", options.kills, options.seed);
  std::fflush(stdout);

  if (auto done = run_in(options, *corpus, begin_ns); !done) {
    failed(done.error());
    fmt::print(stderr, "memlith-demo: FAILED. The store is kept in {} for inspection; the seed was {}\n", options.store,
               options.seed);
    return 1;
  }
  fmt::print("\nAsk it yourself:  {}\n", options.query_hint);
  return 0;
}

int check(const std::string& store) {
  auto corpus = read_corpus(corpus_path(store));
  if (!corpus) return failed(corpus.error());
  auto open = open_index(store, Access::read);
  if (!open) return failed(open.error());
  auto proved = prove(*open, *corpus);
  return proved ? 0 : failed(proved.error());
}

int query(const std::string& store, const std::vector<std::string>& words) {
  std::vector<std::string> asked;
  for (const std::string& argument : words) {
    for (std::string& word : words_of(argument)) asked.push_back(std::move(word));
  }
  if (asked.empty()) return failed(error_saying("words have 2 to 32 letters or digits and start with a letter"));
  std::error_code error;
  if (!fs::exists(store_path(store), error)) {
    return failed(error_saying("there is no index in " + store + " yet: run the demo first (memlith-demo run)"));
  }
  const std::uint64_t begin_ns = now_ns();
  auto open = open_index(store, Access::read);
  if (!open) return failed(open.error());
  print_hits(*open->index, asked, now_ns() - begin_ns);
  return 0;
}

}  // namespace demo
