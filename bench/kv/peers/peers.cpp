// The peers that this program was built with.
#include <fmt/format.h>

#include "peer.hpp"

#ifndef MEMLITH_PEERS_KV
#define MEMLITH_PEERS_KV
#endif

namespace memlith::tool {

Failure peer_failure(std::string_view peer, std::string_view doing, std::string_view said) {
  return tool_failure(MEMLITH_IO, fmt::format("{}: {}: {}", peer, doing, said));
}

std::vector<KvPeer> kv_peers() { return {MEMLITH_PEERS_KV}; }

}  // namespace memlith::tool
