// The requests to the keeper of a kv store that several processes have open. Floor: processes.
#pragma once

#include <cstdint>

#include "shared/channel.hpp"

namespace memlith::core::processes {

// Numbered from shared::Ask::service on.
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
inline shared::Ask shared_ask(Ask ask) {
  return static_cast<shared::Ask>(static_cast<std::uint32_t>(shared::Ask::service) + static_cast<std::uint32_t>(ask));
}
inline Ask ask_of(const shared::Request& request) {
  return static_cast<Ask>(static_cast<std::uint32_t>(request.ask) - static_cast<std::uint32_t>(shared::Ask::service));
}

inline constexpr std::uint32_t kCreate = 1;
inline constexpr std::uint32_t kExclusive = 2;

}  // namespace memlith::core::processes
