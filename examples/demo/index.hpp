// The search index: for every word, the documents it stands in and how often. Ordinary std containers, inside a region.
//
// An Index knows nothing of persistence: it is filled like any object, and whoever owns its memory decides when to
// persist. It also keeps how far it came in the list of files, so that the place to go on from and the postings that
// belong to it become durable in one. Text may be fed in pieces of any size, as long as no word is cut.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arena.hpp"

namespace demo {

using ArenaString = std::basic_string<char, std::char_traits<char>, ArenaAllocator<char>>;
template <class T>
using ArenaVector = std::vector<T, ArenaAllocator<T>>;

// Orders words by their bytes, and finds one without making an ArenaString of it.
struct WordOrder {
  using is_transparent = void;
  bool operator()(std::string_view left, std::string_view right) const { return left < right; }
};

struct Posting {
  std::uint32_t document;  // number in the list of documents
  std::uint32_t count;     // how often the word stands in it; at least 1
  bool operator==(const Posting&) const = default;
};

struct Document {
  ArenaString path;  // below the folder
  std::uint64_t text_bytes;
  std::uint64_t words;
};

// Where to continue after a restart.
struct Position {
  std::uint64_t file = 0;        // number in the list of files
  std::uint64_t offset = 0;      // bytes of it that are indexed; 0 also means that it is not a document yet
  std::uint64_t text_bytes = 0;  // indexed in all
};

class Index {
 public:
  // Raise it with every change of the members' layout.
  static constexpr std::uint32_t kVersion = 1;
  using Postings = ArenaVector<Posting>;  // in ascending order of documents
  using Terms = std::map<ArenaString, Postings, WordOrder, ArenaAllocator<std::pair<const ArenaString, Postings>>>;

  // The index hangs everything it holds between its own last byte and `space_end`.
  explicit Index(std::byte* space_end);

  // Later text belongs to this document, until the next call.
  void begin_document(std::string_view path);
  // The text's first and last word must be whole.
  void add_text(std::string_view text);

  [[nodiscard]] const Terms& terms() const { return terms_; }
  [[nodiscard]] const ArenaVector<Document>& documents() const { return documents_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return arena_.used_bytes(); }

  Position position;          // kept by the builder
  std::uint64_t commits = 0;  // persists made, this one included: also the builder's

  // Looks for damage: postings out of order, or counts that do not add up. Empty if there is none.
  [[nodiscard]] std::string flaw() const;

 private:
  Arena arena_;
  ArenaVector<Document> documents_;
  Terms terms_;
};

// Is this byte part of a word? Letters, digits, and everything beyond ASCII, so that UTF-8 stays whole.
inline bool is_word_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') || (value >= '0' && value <= '9') ||
         value >= 0x80;
}

// The words of `text` as the index keeps them: lower case, 2 to 32 bytes long, starting with a letter.
std::vector<std::string> words_of(std::string_view text);

// What makes the two indexes differ, in a sentence; empty if nothing does. Compares every word, posting and document.
std::string difference(const Index& one, const Index& other);

// A checksum over documents, words and postings in their order: equal for equal content, wherever it lies in memory.
std::uint64_t content_checksum(const Index& index);

struct Hit {
  const Document* document;
  std::uint64_t count;  // of all the words together
};

// The documents that hold every one of the words, those with most occurrences first.
std::vector<Hit> search(const Index& index, std::span<const std::string> words);

}  // namespace demo
