// Opening and filling the index. See builder.hpp.
#include "builder.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "report.hpp"

namespace demo {
namespace {

constexpr std::uint64_t kHeapBytesMax = 4 * kGiB;
constexpr const char* kHeapName = "index";

// The end of a piece of about `bytes` that starts at `begin` and cuts no word.
std::uint64_t end_of_piece(const std::string& text, std::uint64_t begin, std::uint64_t bytes) {
  std::uint64_t end = std::min<std::uint64_t>(text.size(), begin + bytes);
  while (end < text.size() && is_word_byte(text[end])) ++end;
  return end;
}

// Indexes about `batch_bytes` of text from where the index stands, and moves its position behind it.
template <class AnyIndex>
Result<void> add_batch(AnyIndex& index, const Corpus& corpus, TextReader& reader, std::uint64_t batch_bytes) {
  Position& position = index.position;
  std::uint64_t indexed = 0;
  while (indexed < batch_bytes && position.file < corpus.files.size()) {
    auto text = reader.text(position.file);
    if (!text) return text.error();
    if (position.offset == 0) index.begin_document(corpus.files[position.file].path);
    const std::uint64_t end = end_of_piece(**text, position.offset, batch_bytes - indexed);
    const std::uint64_t bytes = end - position.offset;
    index.add_text(std::string_view(**text).substr(position.offset, bytes));
    indexed += bytes;
    position.text_bytes += bytes;
    position.offset = end;
    if (end == (*text)->size()) {
      ++position.file;
      position.offset = 0;
    }
  }
  return {};
}

// Pages in which the bytes of the last commit lie; 0 if the store does not say.
std::uint64_t pages_of_last_commit(const memlith::Store& store) {
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  return memlith_store_get_stats(store.handle(), &stats) == MEMLITH_OK ? stats.last_captured_pages : 0;
}

Report report_of(ReportKind kind, const Index& index) {
  Report report;
  report.kind = kind;
  report.commit = index.commits;
  report.text_bytes = index.position.text_bytes;
  return report;
}

// The loop of the demo: store into memory, persist, again.
Result<void> build_on(const OpenIndex& open, const Corpus& corpus, const BuildOptions& options,
                      const Reporter& reporter) {
  Index& index = *open.index;
  TextReader reader(corpus);
  std::uint64_t logged_bytes = open.store.info().logged_bytes;
  std::uint64_t cycle_begin_ns = now_ns();
  while (index.position.file < corpus.files.size()) {
    if (auto indexed = add_batch(index, corpus, reader, options.batch_bytes); !indexed) return indexed;
    ++index.commits;

    // ORDER report-before-persist: from the first moment of the persist on, this commit may be what recovery finds.
    reporter.send(report_of(ReportKind::started, index));
    const std::uint64_t persist_begin_ns = now_ns();
    if (auto persisted = open.heap.persist(); !persisted) return persisted;
    const std::uint64_t end_ns = now_ns();

    Report acked = report_of(ReportKind::acked, index);
    acked.persist_ns = end_ns - persist_begin_ns;
    acked.cycle_ns = end_ns - cycle_begin_ns;
    const std::uint64_t logged_bytes_now = open.store.info().logged_bytes;
    acked.logged_bytes = logged_bytes_now - logged_bytes;
    acked.pages = pages_of_last_commit(open.store);
    reporter.send(acked);
    if (options.verbose) {
      fmt::print(stderr, "commit {}: {} bytes of text, {} words known, persisted {} bytes in {} us\n", index.commits,
                 index.position.text_bytes, index.terms().size(), acked.logged_bytes, acked.persist_ns / 1000);
    }
    logged_bytes = logged_bytes_now;
    cycle_begin_ns = end_ns;
  }
  return {};
}

// `scan` logs the bytes that changed, also of pages that were not captured lately: postings are all over the heap.
// Built with memlith-c++, the demo may do without page faults: -DMEMLITH_DEMO_TRACKER=instrumented.
#ifndef MEMLITH_DEMO_TRACKER
#define MEMLITH_DEMO_TRACKER scan
#endif
constexpr memlith::Tracker kTracker = memlith::Tracker::MEMLITH_DEMO_TRACKER;

}  // namespace

std::string store_path(const std::string& folder) { return folder + "/store"; }
std::string corpus_path(const std::string& folder) { return folder + "/files.txt"; }

Result<OpenIndex> open_index(const std::string& folder, Access access) {
  const bool building = access == Access::build;
  auto store = memlith::Store::open(store_path(folder), {.create = building, .read_only = !building});
  if (!store) return store.error();
  auto heap =
      memlith::Heap::open(*store, kHeapName, {.create = building, .tracker = kTracker, .max_size = kHeapBytesMax});
  if (!heap) return heap.error();
  // A reader must not construct anything.
  auto index = building ? heap->root<Index>() : heap->find<Index>("");
  if (!index) return index.error();
  return OpenIndex{std::move(*store), std::move(*heap), *index};
}

Result<void> build(const BuildOptions& options) {
  const Reporter reporter(options.report_descriptor);
  auto corpus = read_corpus(corpus_path(options.folder));
  if (!corpus) return corpus.error();
  auto open = open_index(options.folder, Access::build);
  if (!open) return open.error();

  const Index& index = *open->index;
  if (const std::string flaw = index.flaw(); !flaw.empty()) {
    return error_saying(fmt::format("the index recovered at commit {} is damaged: {}", index.commits, flaw));
  }
  Report opened = report_of(ReportKind::opened, index);
  opened.replayed_frames = open->store.info().replayed_frames;
  reporter.send(opened);

  try {
    if (auto built = build_on(*open, *corpus, options, reporter); !built) return built;
  } catch (const memlith::heap_error& full) {  // nothing that was persisted is lost
    return Error(full.code(), std::string(full.what()) + "; index less text (--limit)");
  }
  reporter.send(report_of(ReportKind::finished, index));
  // Closing the heap is part of closing the store; an error of either must be seen.
  if (auto closed = open->heap.close(); !closed) return closed;
  return open->store.close();
}

Result<void> index_batch(MemoryIndex& index, const Corpus& corpus, TextReader& reader, std::uint64_t batch_bytes) {
  return add_batch(index, corpus, reader, batch_bytes);
}

Result<MemoryIndex> build_in_memory(const Corpus& corpus) {
  MemoryIndex index;
  TextReader reader(corpus);
  while (index.position.file < corpus.files.size()) {
    if (auto indexed = add_batch(index, corpus, reader, kMiB); !indexed) return indexed.error();
  }
  return index;
}

}  // namespace demo
