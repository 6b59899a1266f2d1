// The requests to the keeper of a kv store, or of an application log, that several processes have open. Floor:
// processes.
#pragma once

#include <cstdint>

#include "shared/channel.hpp"

namespace memlith::core::processes {

// The object of a connection: `address` of its first request, whose number is `open` of either list below.
enum class Kind : std::uint64_t { kv = 0, applog = 1 };

// The requests of a kv store. Numbered from shared::Ask::service on.
enum class Ask : std::uint32_t {
  // Request: `name`, `creates` (kCreate, kExclusive), `bytes` (the largest size of a new region), `ticket` and `tx`
  // (the window in ms and in bytes; 0: as it is). Answer: `client` (whose slots it has), `bytes` (pages_max), two
  // memories.
  open = 0,
  load = 1,    // `address`: a page, which is to be checked
  settle = 2,  // `address`: a slot, whose snapshot is to be one of the newest state
  // The payload is the name of a map; `creates`. Answer: `address`, the number.
  open_map = 3,
  remove_map = 4,
  // The payload is a Proposal, whose snapshot is in slot `address`; `waits`: the answer comes when the commit is
  // durable. Answer: `bytes`, the number of the commit; `ticket`.
  commit = 5,
  durable = 6,  // everything up to `ticket` is to be durable; 0: everything
  window = 7,   // `ticket` and `tx`, as of `open`
  info = 8,     // answer: the data is a KvInfo
  verify = 9,   // answer: the data is a KvReport
};
// The requests of an application log. Numbered likewise.
enum class LogAsk : std::uint32_t {
  // Request: `name`, `creates`, `bytes` and `tx` (the largest size, and the size, of a new region). Answer: `bytes`
  // (the largest size of the region), `address` (seed of the entries' checksums), the data is a Place (of the first
  // entry), two memories.
  open = 0,
  // The payload: for each of `bytes` entries its length, 8 bytes each; and then their contents. `creates`: kGrow.
  // Answer: `address`, the number of the last one. After an error of category full, `bytes` is 1 if consuming entries
  // makes room.
  append = 1,
  write = 2,  // `waits`: the answer comes when it is durable. Answer: `ticket`
  wait = 3,   // up to `ticket`, likewise
  // `address`: the number of an entry; `tx`: the board's changes when that was known (AppLog::place_of). `waits`: the
  // answer comes when the entry is durable. Answer: the data is a Place; `bytes`: the newest durable entry's number.
  place = 4,
  truncate_after = 5,   // `address`: the number
  truncate_before = 6,  // likewise
  restart = 7,          // likewise
  info = 8,             // answer: the data is an AppLogReport
};

template <class ServiceAsk>
shared::Ask shared_ask(ServiceAsk ask) {
  return static_cast<shared::Ask>(static_cast<std::uint32_t>(shared::Ask::service) + static_cast<std::uint32_t>(ask));
}
template <class ServiceAsk = Ask>
ServiceAsk ask_of(const shared::Request& request) {
  return static_cast<ServiceAsk>(static_cast<std::uint32_t>(request.ask) -
                                 static_cast<std::uint32_t>(shared::Ask::service));
}
template <class ServiceAsk>
shared::Request request_for(ServiceAsk ask) {
  shared::Request request;
  request.ask = shared_ask(ask);
  return request;
}

inline constexpr std::uint32_t kCreate = 1;
inline constexpr std::uint32_t kExclusive = 2;
inline constexpr std::uint32_t kGrow = 4;

inline std::uint32_t flags_of(bool create, bool exclusive) {
  return (create ? kCreate : 0) | (exclusive ? kExclusive : 0);
}

}  // namespace memlith::core::processes
