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
#include "otherwise.hpp"
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

// Builds the index a second time, undisturbed and in memory, and compares everything. Returns the second one.
Result<MemoryIndex> prove(const OpenIndex& open, const Corpus& corpus) {
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
  return reference;
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

// "1.3 times a persist", of the medians.
std::string beside(std::uint64_t nanoseconds, std::uint64_t persist_ns) {
  if (persist_ns == 0) return "";
  return fmt::format("{:.1f} times a persist", static_cast<double>(nanoseconds) / static_cast<double>(persist_ns));
}

void print_counts(const Corpus& corpus, const Index& index, const Outcome& outcome, const RunOptions& options) {
  const std::uint32_t kills = outcome.kills_at_work() + outcome.kills_opening;
  const double commits_a_second = static_cast<double>(outcome.persist_ns.size()) * 1e9 /
                                  static_cast<double>(std::max<std::uint64_t>(outcome.building_ns, 1));
  print_table({
      {"files indexed", format_count(index.documents().size()), corpus.cut ? "the text was cut by --limit" : ""},
      {"text", format_bytes(corpus.text_bytes), ""},
      {"words known", format_count(index.terms().size()), ""},
      {"commits made", format_count(outcome.commits), "all synchronous: durable on return"},
      {"commits/s", fmt::format("{:.0f}", commits_a_second), "indexing included, opening not"},
      {"kills survived", format_count(kills),
       fmt::format("{} while indexing, {} inside a persist, {} while opening or closing", outcome.kills_indexing,
                   outcome.kills_persisting, outcome.kills_opening)},
  });
  if (outcome.kills_at_work() < options.kills) {
    fmt::print(
        "\nThe text was indexed after {} of the {} kills while at work; with more text (--folder, --limit) more "
        "kills fit.\n",
        format_count(outcome.kills_at_work()), format_count(options.kills));
  }
}

// All of it from this run and this disk.
void print_durations(const Outcome& outcome, const Commit& commit, const Otherwise& otherwise, const Floor& floor) {
  const std::uint64_t persist_ns = percentile(outcome.persist_ns, 0.50);
  const std::uint64_t cycle_ns = percentile(outcome.cycle_ns, 0.50);
  const auto row = [persist_ns](const char* name, const std::vector<std::uint64_t>& samples, std::string remark) {
    const std::uint64_t median = percentile(samples, 0.50);
    return Row{name, format_duration(median), beside(median, persist_ns) + "; " + std::move(remark)};
  };
  fmt::print("\nTo make {} of text durable, indexed into {} pages of memory, on this disk (medians):\n\n",
             format_bytes(commit.text_bytes), format_count(commit.pages));
  print_table({
      {"memlith: persist", format_duration(persist_ns),
       fmt::format("p99 {}; all or nothing; {} with the indexing before it",
                   format_duration(percentile(outcome.persist_ns, 0.99)), format_duration(cycle_ns))},
      row("msync", otherwise.msync_ns, "as many scattered pages of a mapped file; a crash leaves some of them"),
      row("SQLite", otherwise.sqlite_ns,
          fmt::format("the same words as rows, beside {}; {} of it is the COMMIT", format_count(otherwise.sqlite_rows),
                      format_duration(percentile(otherwise.sqlite_commit_ns, 0.50)))),
      row("a new file", otherwise.file_ns,
          fmt::format("the whole index, {}, written, fsync, rename", format_bytes(otherwise.file_bytes))),
      row("one plain write", floor.nanoseconds,
          fmt::format("{} in one piece{} and fdatasync", format_bytes(floor.bytes),
                      floor.direct ? " with O_DIRECT" : ", buffered,")),
  });
  fmt::print(
      "\nThe plain write is what the disk needs at least for the {} that a commit logs. A persist also finds and\n"
      "copies what changed on each of the pages, which no single write does.\n",
      format_bytes(percentile(outcome.logged_bytes, 0.50)));
}

// The result of the run, in a sentence.
std::string verdict(const Outcome& outcome) {
  const std::uint32_t kills = outcome.kills_at_work() + outcome.kills_opening;
  if (kills == 0) return "No kill was made, because the text was too short for one: nothing is shown about crashes.";
  return fmt::format(
      "All {} kills were survived, and the index is equal to one built without any: nothing that was "
      "acknowledged is lost.",
      format_count(kills));
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
  auto reference = prove(*open, corpus);
  if (!reference) return reference.error();

  fmt::print("\n");
  print_hits(index, {sample_word(index)}, opened_ns);
  fmt::print("\n");
  print_counts(corpus, index, *outcome, options);
  std::fflush(stdout);

  auto heap = open->heap.verify();
  if (!heap) return heap.error();
  const Commit commit = {percentile(outcome->pages, 0.50), percentile(outcome->text_bytes, 0.50)};
  auto otherwise = measure_otherwise(options.store, corpus, *reference, heap->block_bytes, commit);
  if (!otherwise) return otherwise.error();
  const std::uint64_t logged_bytes = percentile(outcome->logged_bytes, 0.50);
  auto floor = measure_floor(options.store, std::max<std::uint64_t>((logged_bytes + 4095) / 4096, 1) * 4096);
  if (!floor) return floor.error();
  print_durations(*outcome, commit, *otherwise, *floor);
  fmt::print("\n{}\nTotal time: {}\n", verdict(*outcome), format_duration(now_ns() - begin_ns));
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
  fmt::print("kills    {} while the builder is at work, seed {}\n", options.kills, options.seed);
  fmt::print(
      "\nThe builder persists the index after each piece of text: a commit. After a kill it must come back with the\n"
      "last commit that was acknowledged, or with the one that was under way.\n\n");
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
