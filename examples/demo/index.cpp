// The index and what can be asked of it. See index.hpp.
#include "index.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/core.h>

#include "common.hpp"

namespace demo {
namespace {

constexpr std::size_t kWordBytesMin = 2;
constexpr std::size_t kWordBytesMax = 32;  // longer runs are data, not words

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
char lower_case(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte; }

// Calls `visit` with each word that is indexed, as it stands in the text.
template <class Visit>
void for_each_word(std::string_view text, Visit visit) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    if (!is_word_byte(text[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < text.size() && is_word_byte(text[end])) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    if (word.size() >= kWordBytesMin && word.size() <= kWordBytesMax && !is_digit(word[0])) visit(word);
    begin = end;
  }
}

template <class AnyIndex>
std::string describe(const AnyIndex& index, const typename AnyIndex::Postings& postings) {
  std::string text = fmt::format("{} documents", postings.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(postings.size(), 3); ++i) {
    text += fmt::format(", {} times in {}", postings[i].count, index.documents()[postings[i].document].path.c_str());
  }
  return text;
}

std::string difference_of_documents(const Index& one, const MemoryIndex& other) {
  if (one.documents().size() != other.documents().size()) {
    return fmt::format("{} documents against {}", one.documents().size(), other.documents().size());
  }
  for (std::size_t i = 0; i < one.documents().size(); ++i) {
    const Index::Document& left = one.documents()[i];
    const MemoryIndex::Document& right = other.documents()[i];
    if (std::string_view(left.path) != std::string_view(right.path)) {
      return fmt::format("document {} is {} against {}", i, left.path.c_str(), right.path.c_str());
    }
    if (left.text_bytes != right.text_bytes || left.words != right.words) {
      return fmt::format("document {}: {} bytes and {} words against {} and {}", left.path.c_str(), left.text_bytes,
                         left.words, right.text_bytes, right.words);
    }
  }
  return {};
}

}  // namespace

template <class Containers>
void BasicIndex<Containers>::begin_document(std::string_view path) {
  documents_.emplace_back().path = path;
}

template <class Containers>
void BasicIndex<Containers>::add_text(std::string_view text) {
  // Counting outside of the heap first touches each posting once a call, which keeps the set of dirty pages small.
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(), lower_case);
  std::unordered_map<std::string_view, std::uint32_t> counts;
  std::uint64_t words = 0;
  for_each_word(lowered, [&](std::string_view word) {
    ++counts[word];
    ++words;
  });

  const auto document = static_cast<std::uint32_t>(documents_.size() - 1);
  for (const auto& [word, count] : counts) {
    auto place = terms_.lower_bound(word);
    if (place == terms_.end() || std::string_view(place->first) != word) {
      place = terms_.try_emplace(place, typename Containers::String(word));
    }
    Postings& postings = place->second;
    if (!postings.empty() && postings.back().document == document) {
      postings.back().count += count;
    } else {
      postings.push_back({document, count});
    }
  }
  documents_.back().text_bytes += text.size();
  documents_.back().words += words;
}

template <class Containers>
std::string BasicIndex<Containers>::flaw() const {
  std::uint64_t words = 0;
  std::uint64_t text_bytes = 0;
  for (const Document& document : documents_) {
    words += document.words;
    text_bytes += document.text_bytes;
  }
  if (text_bytes != position.text_bytes) {
    return fmt::format("the documents hold {} bytes, but {} were indexed", text_bytes, position.text_bytes);
  }
  std::uint64_t counted = 0;
  for (const auto& [word, postings] : terms_) {
    std::uint64_t next_document = 0;
    for (const Posting& posting : postings) {
      if (posting.document < next_document || posting.document >= documents_.size() || posting.count == 0) {
        return fmt::format("the postings of '{}' are out of order", word.c_str());
      }
      next_document = std::uint64_t{posting.document} + 1;
      counted += posting.count;
    }
  }
  if (counted != words) return fmt::format("the postings count {} words, the documents {}", counted, words);
  return {};
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) {
    std::transform(word.begin(), word.end(), std::back_inserter(words.emplace_back()), lower_case);
  });
  return words;
}

std::string difference(const Index& one, const MemoryIndex& other) {
  if (std::string documents = difference_of_documents(one, other); !documents.empty()) return documents;
  auto left = one.terms().begin();
  auto right = other.terms().begin();
  while (left != one.terms().end() && right != other.terms().end()) {
    const std::string_view left_word = left->first;
    const std::string_view right_word = right->first;
    if (left_word != right_word) {
      return fmt::format("only one of them knows the word '{}'", std::min(left_word, right_word));
    }
    if (!std::equal(left->second.begin(), left->second.end(), right->second.begin(), right->second.end())) {
      return fmt::format("the word '{}': {}; against {}", left_word, describe(one, left->second),
                         describe(other, right->second));
    }
    ++left;
    ++right;
  }
  if (one.terms().size() != other.terms().size()) {
    return fmt::format("{} words against {}", one.terms().size(), other.terms().size());
  }
  return {};
}

template <class Containers>
std::uint64_t content_checksum(const BasicIndex<Containers>& index) {
  Checksum checksum;
  checksum.add_number(index.documents().size());
  for (const auto& document : index.documents()) {
    checksum.add_text(document.path);
    checksum.add_number(document.text_bytes);
    checksum.add_number(document.words);
  }
  checksum.add_number(index.terms().size());
  for (const auto& [word, postings] : index.terms()) {
    checksum.add_text(word);
    checksum.add_number(postings.size());
    for (const Posting& posting : postings) {
      checksum.add_number(posting.document);
      checksum.add_number(posting.count);
    }
  }
  return checksum.value();
}

std::vector<Hit> search(const Index& index, std::span<const std::string> words) {
  // A document counts as long as it was seen with every word so far.
  struct Seen {
    std::size_t words = 0;
    std::uint64_t count = 0;
  };
  std::unordered_map<std::uint32_t, Seen> seen;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto term = index.terms().find(words[i]);
    if (term == index.terms().end()) return {};
    for (const Posting& posting : term->second) {
      if (i > 0 && !seen.contains(posting.document)) continue;
      Seen& document = seen[posting.document];
      if (document.words != i) continue;
      document.words = i + 1;
      document.count += posting.count;
    }
  }
  std::vector<Hit> hits;
  for (const auto& [document, found] : seen) {
    if (found.words == words.size()) hits.push_back({&index.documents()[document], found.count});
  }
  std::sort(hits.begin(), hits.end(), [](const Hit& left, const Hit& right) {
    if (left.count != right.count) return left.count > right.count;
    return std::string_view(left.document->path) < std::string_view(right.document->path);
  });
  return hits;
}

template class BasicIndex<InHeap>;
template class BasicIndex<InMemory>;
template std::uint64_t content_checksum(const Index& index);
template std::uint64_t content_checksum(const MemoryIndex& index);

}  // namespace demo
