// The list of peers that this program was built with.
#include "kv.hpp"

#include <fmt/format.h>

#include "memlith/memlith.h"

namespace memlith::tool {

Failure peer_failure(std::string_view peer, std::string_view doing, std::string_view said) {
  return tool_failure(MEMLITH_IO, fmt::format("{}: {}: {}", peer, doing, said));
}

std::vector<KvPeer> kv_peers() {
  std::vector<KvPeer> peers;
#ifdef MEMLITH_PEER_LEVELDB
  peers.push_back(leveldb_peer());
#endif
#ifdef MEMLITH_PEER_KYOTO
  peers.push_back(kyoto_peer());
#endif
#ifdef MEMLITH_PEER_SQLITE
  peers.push_back(sqlite_peer());
#endif
#ifdef MEMLITH_PEER_LMDB
  peers.push_back(lmdb_peer());
#endif
#ifdef MEMLITH_PEER_ROCKSDB
  peers.push_back(rocksdb_peer());
#endif
#ifdef MEMLITH_PEER_BERKELEYDB
  peers.push_back(berkeleydb_peer());
#endif
#ifdef MEMLITH_PEER_WIREDTIGER
  peers.push_back(wiredtiger_peer());
#endif
  return peers;
}

}  // namespace memlith::tool
