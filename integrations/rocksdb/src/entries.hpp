// The entries of the journal. Floor: rocksdb.
//
// The journal is an application log. An entry begins with a Head. What entries before it say stays true:
//   data        bytes of a log, from an offset on, which were durable when the entry was
//   checkpoint  claims: the file of a log had `bytes` bytes on the medium, with this checksum
//   gone        the log was removed or renamed on purpose
//   released    everything before has reached the files, and the journal makes no claim any more
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memlith_rocksdb {

enum class Kind : std::uint32_t { data = 1, checkpoint = 2, gone = 3, released = 4 };

struct Head {
  Kind kind = Kind::data;
  std::uint32_t count = 0;   // of claims
  std::uint64_t number = 0;  // of the log
  std::uint64_t offset = 0;  // of data
};
struct Claim {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3 of them
};
static_assert(sizeof(Head) == 24 && sizeof(Claim) == 24);

inline std::string entry_of(const Head& head, std::string_view content = {}) {
  std::string entry(reinterpret_cast<const char*>(&head), sizeof head);
  entry += content;
  return entry;
}

inline std::string entry_of(const std::vector<Claim>& claims) {
  return entry_of({.kind = Kind::checkpoint, .count = static_cast<std::uint32_t>(claims.size())},
                  {reinterpret_cast<const char*>(claims.data()), claims.size() * sizeof(Claim)});
}

struct JournalEntry {
  Head head;
  std::string_view content;
};

// Nothing: no version of memlith writes such an entry.
inline std::optional<JournalEntry> entry_in(std::string_view bytes) {
  JournalEntry entry;
  if (bytes.size() < sizeof entry.head) return std::nullopt;
  std::memcpy(&entry.head, bytes.data(), sizeof entry.head);
  entry.content = bytes.substr(sizeof entry.head);
  if (entry.head.kind < Kind::data || entry.head.kind > Kind::released) return std::nullopt;
  if (entry.head.kind == Kind::checkpoint && entry.content.size() != entry.head.count * sizeof(Claim))
    return std::nullopt;
  return entry;
}

inline std::vector<Claim> claims_of(const JournalEntry& entry) {
  std::vector<Claim> claims(entry.head.count);
  if (!claims.empty()) std::memcpy(claims.data(), entry.content.data(), entry.content.size());
  return claims;
}

}  // namespace memlith_rocksdb
