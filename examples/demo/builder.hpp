// Building the index: one life of the process that is killed again and again, and the same work undisturbed in memory.
#pragma once

#include <cstdint>
#include <string>

#include "common.hpp"
#include "corpus.hpp"
#include "index.hpp"
#include "memlith/heap.hpp"

namespace demo {

// The files of the demo's folder.
std::string store_path(const std::string& folder);   // the memlith store
std::string corpus_path(const std::string& folder);  // the list of files

// The index in its store. The heap is closed before the store.
struct OpenIndex {
  memlith::Store store;
  memlith::Heap heap;
  Index* index = nullptr;
};

enum class Access { build, read };

// Build: creates or resumes. Read: the last durable state; an error if there is none.
Result<OpenIndex> open_index(const std::string& folder, Access access);

struct BuildOptions {
  std::string folder;
  std::uint64_t batch_bytes = 64 * kKiB;  // of text, between two persists
  int report_descriptor = -1;
  bool verbose = false;
};

// Opens or resumes the index, checks it, and continues to the end of the list of files. Durable at each persist.
Result<void> build(const BuildOptions& options);

// Indexes about `batch_bytes` of text from where the index stands, and moves its position behind it.
Result<void> index_batch(MemoryIndex& index, const Corpus& corpus, TextReader& reader, std::uint64_t batch_bytes);

// The index built in one go, in the memory of the process.
Result<MemoryIndex> build_in_memory(const Corpus& corpus);

}  // namespace demo
