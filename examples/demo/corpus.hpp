// The text to index: which files of a folder, in which order.
//
// The list is made once and written beside the store, so that every life of the builder, and the index that is built
// without interruption in the end, go through the same files. It carries a checksum of each file: one that changes
// while the demo runs is reported as such and not mistaken for a fault of the store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace demo {

struct TextFile {
  std::string path;  // below the folder
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

struct Corpus {
  std::string folder;
  std::vector<TextFile> files;  // sorted by path
  std::uint64_t text_bytes = 0;
  // Files passed over while the list was made; not written to disk.
  std::uint64_t not_text = 0;
  std::uint64_t unreadable = 0;
  bool cut = false;  // there was more than the limit
};

// Lists the plain text below `folder`, up to `limit_bytes` of it. Links are not followed; what cannot be read is
// counted.
Result<Corpus> scan_folder(const std::string& folder, std::uint64_t limit_bytes);

// The machine's documentation if there is enough of it, else another folder that every machine has.
Result<Corpus> scan_default_folder(std::uint64_t limit_bytes);

Result<void> write_corpus(const Corpus& corpus, const std::string& path);
Result<Corpus> read_corpus(const std::string& path);

// Reads the files of a corpus, and keeps the last one at hand.
class TextReader {
 public:
  explicit TextReader(const Corpus& corpus) : corpus_(corpus) {}
  // The text of file number `file`, valid until the next call. An error if it is not the text that was listed.
  Result<const std::string*> text(std::uint64_t file);

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  const Corpus& corpus_;
  std::uint64_t loaded_ = kNone;
  std::string text_;
};

}  // namespace demo
