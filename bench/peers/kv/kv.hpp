// Key-value stores of other projects, behind one interface, so that every benchmark that compares memlith with such
// stores measures the same peers, set up in the same way. Floor: kv-peers.
//
// Each peer is set up as its own manual advises for the durability that is asked for: `sync`, an operation that
// returned survives power loss; `none`, the peer flushes nothing. What the peer does for that is a sentence, which
// results carry.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"

namespace memlith::tool {

enum class KvDurability : std::uint8_t { sync, none };
[[nodiscard]] constexpr std::string_view name_of(KvDurability durability) {
  return durability == KvDurability::sync ? "sync" : "none";
}

struct KvOptions {
  std::string folder;  // there, and empty when the store is made
  KvDurability durability = KvDurability::sync;
  std::uint64_t bytes_expected = 0;  // of keys and values together
  std::uint64_t cache_bytes = 0;     // 0: the peer's own default, or room for all that is expected
};

// One thread's use of a store. Each change is a transaction of its own; what it promises is the store's durability.
class KvSession {
 public:
  using Visit = std::function<void(std::string_view key, std::string_view value)>;

  virtual ~KvSession() = default;
  // Inserts, or replaces the value.
  [[nodiscard]] virtual MaybeFailure put(std::string_view key, std::string_view value) = 0;
  [[nodiscard]] virtual MaybeFailure get(std::string_view key, std::string& value, bool& found) = 0;
  // No failure where there is no such key.
  [[nodiscard]] virtual MaybeFailure remove(std::string_view key) = 0;
  // At most `count` pairs in the order of their keys, from the first key that is not before `from`.
  [[nodiscard]] virtual MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) = 0;
  // The last call, when no other session is in use: what a program does once before it closes the store, never timed.
  [[nodiscard]] virtual MaybeFailure finish() { return {}; }
};

// An open store; closes when the object goes. Sessions of one store may be used by different threads at once.
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual Result<std::unique_ptr<KvSession>> session() = 0;
};

struct KvPeer {
  std::string name;
  std::string version;
  std::string sync_text;  // what is done for each durability
  std::string none_text;
  Result<std::unique_ptr<KvStore>> (*open)(const KvOptions& options);

  [[nodiscard]] const std::string& text_of(KvDurability durability) const {
    return durability == KvDurability::sync ? sync_text : none_text;
  }
};

// Those whose libraries this program was built with: leveldb, kyoto-tree-tran, sqlite, lmdb, rocksdb,
// berkeleydb, wiredtiger.
std::vector<KvPeer> kv_peers();

// A peer's library said no.
[[nodiscard]] Failure peer_failure(std::string_view peer, std::string_view doing, std::string_view said);

// One each; what the build did not find is not defined.
KvPeer leveldb_peer();
KvPeer kyoto_peer();
KvPeer sqlite_peer();
KvPeer lmdb_peer();
KvPeer rocksdb_peer();
KvPeer berkeleydb_peer();
KvPeer wiredtiger_peer();

}  // namespace memlith::tool
