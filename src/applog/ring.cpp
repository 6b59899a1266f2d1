#include "applog/ring.hpp"

#include <cstring>

#include "base/checksum.hpp"

namespace memlith::core::applog {

template <class Record>
std::uint64_t sum_of(const Record& record, std::uint64_t seed) {
  return checksum(std::as_bytes(std::span(&record, 1)).first(offsetof(Record, checksum)), seed);
}
template std::uint64_t sum_of(const Identity& record, std::uint64_t seed);
template std::uint64_t sum_of(const Shape& record, std::uint64_t seed);
template std::uint64_t sum_of(const Position& record, std::uint64_t seed);

std::uint64_t content_sum(std::span<const std::byte> content, std::uint64_t seed) { return checksum(content, seed); }

std::uint64_t entry_sum(const EntryHeader& header, std::uint64_t content_sum, std::uint64_t seed) {
  EntryHeader summed = header;
  summed.checksum = content_sum;
  return checksum(std::as_bytes(std::span(&summed, 1)), seed);
}

EntryHeader end_mark(std::uint64_t number, std::uint64_t seed) {
  EntryHeader mark{number, EntryKind::end, 0, 0};
  mark.checksum = entry_sum(mark, 0, seed);
  return mark;
}

void Ring::put(std::uint64_t position, const void* bytes, std::uint64_t count) const {
  MEMLITH_ASSERT(bytes != nullptr || count == 0);
  const auto* from = static_cast<const std::byte*>(bytes);
  for_each_run(position, count, [&](std::uint64_t offset, std::uint64_t run) {
    std::memcpy(base_ + offset, from, run);
    from += run;
  });
}

void Ring::get(std::uint64_t position, void* target, std::uint64_t count) const {
  auto* to = static_cast<std::byte*>(target);
  for_each_run(position, count, [&](std::uint64_t offset, std::uint64_t run) {
    std::memcpy(to, base_ + offset, run);
    to += run;
  });
}

EntryHeader Ring::header_at(std::uint64_t position) const {
  EntryHeader header{};
  get(position, &header, sizeof header);
  return header;
}

Found read_entry(const Ring& ring, std::uint64_t position, std::uint64_t number, std::uint64_t bytes_max,
                 std::uint64_t seed, std::vector<std::byte>& content) {
  const EntryHeader header = ring.header_at(position);
  const bool is_entry = header.kind == EntryKind::entry;
  if (header.number != number || (!is_entry && header.kind != EntryKind::end)) return Found::damage;
  std::uint64_t sum = 0;
  if (is_entry) {
    if (stored_bytes(header.bytes) > bytes_max) return Found::damage;
    content.resize(header.bytes);
    ring.get(position + sizeof header, content.data(), header.bytes);
    sum = content_sum(content, seed);
  }
  if (header.checksum != entry_sum(header, sum, seed)) return Found::damage;
  return is_entry ? Found::entry : Found::end;
}

}  // namespace memlith::core::applog
