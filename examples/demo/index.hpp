// The search index: for every word, the documents it stands in and how often. Ordinary containers, in a heap.
//
// An index knows nothing of persistence: it is filled like any object, and the owner of its heap decides when to
// persist. It also keeps how far it came in the list of files, so that the place to go on from and the postings that
// belong to it become durable in one. Text may be fed in pieces of any size, as long as no word is cut.
//
// The same index is built of the containers of std, out of memlith's reach, to compare with.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memlith/heap.hpp"

namespace demo {

// The parts of an index.
struct InHeap {
  using String = memlith::string;
  template <class T>
  using Vector = memlith::vector<T>;
  template <class Key, class T>
  using Map = memlith::map<Key, T>;
};
struct InMemory {
  using String = std::string;
  template <class T>
  using Vector = std::vector<T>;
  template <class Key, class T>
  using Map = std::map<Key, T, std::less<>>;
};

struct Posting {
  std::uint32_t document;  // number in the list of documents
  std::uint32_t count;     // how often the word stands in it; at least 1
  bool operator==(const Posting&) const = default;
};

template <class Containers>
struct BasicDocument {
  typename Containers::String path;  // below the folder
  std::uint64_t text_bytes;
  std::uint64_t words;
};

// Where to continue after a restart.
struct Position {
  std::uint64_t file = 0;        // number in the list of files
  std::uint64_t offset = 0;      // bytes of it that are indexed; 0 also means that it is not a document yet
  std::uint64_t text_bytes = 0;  // indexed in all
};

template <class Containers>
class BasicIndex {
 public:
  // Raise it with every change of the members' layout.
  static constexpr std::uint32_t memlith_layout = 1;
  using Document = BasicDocument<Containers>;
  using Documents = typename Containers::template Vector<Document>;
  using Postings = typename Containers::template Vector<Posting>;  // in ascending order of documents
  using Terms = typename Containers::template Map<typename Containers::String, Postings>;

  // Later text belongs to this document, until the next call.
  void begin_document(std::string_view path);
  // The text's first and last word must be whole.
  void add_text(std::string_view text);

  [[nodiscard]] const Terms& terms() const { return terms_; }
  [[nodiscard]] const Documents& documents() const { return documents_; }

  Position position;          // kept by the builder
  std::uint64_t commits = 0;  // persists made, this one included: also the builder's

  // Looks for damage: postings out of order, or counts that do not add up. Empty if there is none.
  [[nodiscard]] std::string flaw() const;

 private:
  Documents documents_;
  Terms terms_;
};
using Index = BasicIndex<InHeap>;
using MemoryIndex = BasicIndex<InMemory>;

// Is this byte part of a word? Letters, digits, and everything beyond ASCII, so that UTF-8 stays whole.
inline bool is_word_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') || (value >= '0' && value <= '9') ||
         value >= 0x80;
}

// The words of `text` as the index keeps them: lower case, 2 to 32 bytes long, starting with a letter.
std::vector<std::string> words_of(std::string_view text);

// A sentence on the first difference of the two indexes; empty if equal. Compares every word, posting and document.
std::string difference(const Index& one, const MemoryIndex& other);

// A checksum over documents, words and postings in their order: equal for equal content, wherever it lies in memory.
template <class Containers>
std::uint64_t content_checksum(const BasicIndex<Containers>& index);

struct Hit {
  const Index::Document* document;
  std::uint64_t count;  // of all the words together
};

// The documents that hold every one of the words, those with most occurrences first.
std::vector<Hit> search(const Index& index, std::span<const std::string> words);

}  // namespace demo

// All that these own lies in the heap.
template <>
struct memlith::is_persistable<demo::Index::Document> : std::true_type {};
template <>
struct memlith::is_persistable<demo::Index> : std::true_type {};
