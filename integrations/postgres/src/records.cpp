#include "records.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace memlith_postgres {

namespace {

constexpr std::size_t kGapMin = 16;  // shorter ones are part of a range: the head of a range takes 4 bytes
constexpr std::size_t kStride = 64;  // is compared at once

struct RangeHead {
  std::uint16_t begin = 0;
  std::uint16_t bytes = 0;
};

template <class Type>
std::optional<Type> take(std::string_view& rest) {
  if (rest.size() < sizeof(Type)) return {};
  Type value;
  std::memcpy(&value, rest.data(), sizeof value);
  rest.remove_prefix(sizeof value);
  return value;
}

std::optional<std::string_view> take_bytes(std::string_view& rest, std::size_t bytes) {
  if (rest.size() < bytes) return {};
  const std::string_view taken = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  return taken;
}

// The first byte from `at` on in which they differ.
std::size_t next_difference(const std::byte* base, const std::byte* page, std::size_t at) {
  while (at < kPageBytes) {
    if (at % kStride == 0 && std::memcmp(base + at, page + at, kStride) == 0) {
      at += kStride;
    } else if (base[at] != page[at]) {
      return at;
    } else {
      ++at;
    }
  }
  return at;
}

// One past the last byte of the range that begins with the difference at `at`.
std::size_t end_of_range(const std::byte* base, const std::byte* page, std::size_t at) {
  std::size_t end = at + 1;
  for (std::size_t look = end; look < kPageBytes && look - end < kGapMin; ++look) {
    if (base[look] != page[look]) end = look + 1;
  }
  return end;
}

}  // namespace

std::optional<Encoded> encode(std::byte* target, const std::byte* base, const std::byte* page, std::size_t limit) {
  static constexpr std::array<std::byte, kPageBytes> kZeros{};
  if (base == nullptr) base = kZeros.data();
  Encoded made;
  for (std::size_t at = next_difference(base, page, 0); at < kPageBytes;) {
    const std::size_t end = end_of_range(base, page, at);
    const RangeHead head{static_cast<std::uint16_t>(at), static_cast<std::uint16_t>(end - at)};
    if (made.bytes + sizeof head + head.bytes > limit) return {};
    std::memcpy(target + made.bytes, &head, sizeof head);
    std::memcpy(target + made.bytes + sizeof head, page + at, head.bytes);
    made.bytes += static_cast<std::uint32_t>(sizeof head + head.bytes);
    ++made.ranges;
    at = next_difference(base, page, end);
  }
  return made;
}

std::optional<BatchReader> BatchReader::open(std::string_view bytes) {
  BatchReader reader;
  reader.rest_ = bytes;
  const auto head = take<BatchHead>(reader.rest_);
  if (!head || head->magic != kBatchMagic) return {};
  reader.records_ = head->records;
  for (std::uint32_t i = 0; i < head->files; ++i) {
    const auto file = take<FileHead>(reader.rest_);
    if (!file) return {};
    const auto path = take_bytes(reader.rest_, file->path_bytes);
    // Nothing but relations is ever replayed, whatever the bytes say.
    if (!path || !is_relation(*path) || !reader.paths_.emplace(file->number, *path).second) return {};
  }
  return reader;
}

std::optional<BatchReader::Record> BatchReader::next() {
  const auto head = take<RecordHead>(rest_);
  if (!head) return {};
  const auto path = paths_.find(head->file);
  const auto content = take_bytes(rest_, head->bytes);
  if (path == paths_.end() || !content) return {};
  return Record{*head, path->second, *content};
}

bool apply(const RecordHead& head, std::string_view content, std::byte* page) {
  if (head.kind == RecordKind::whole) std::memset(page, 0, kPageBytes);
  for (std::uint16_t i = 0; i < head.ranges; ++i) {
    const auto range = take<RangeHead>(content);
    if (!range || range->begin + std::size_t{range->bytes} > kPageBytes) return false;
    const auto bytes = take_bytes(content, range->bytes);
    if (!bytes) return false;
    std::memcpy(page + range->begin, bytes->data(), bytes->size());
  }
  return content.empty();
}

}  // namespace memlith_postgres
