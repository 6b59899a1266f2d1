// Key-value stores, memlith's and those of other projects, behind one interface, so that every suite measures the same
// sides, set up in the same way.
//
// Each side is set up as its own manual advises for the durability that is asked for: `sync`, an operation that
// returned survives power loss; `none`, the side flushes nothing (memlith: weak commits). A sentence says what the side
// does for that, and results carry it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/failure.hpp"
#include "kit/backend.hpp"

namespace memlith::tool {

class Values;

inline constexpr unsigned kThreadsMax = 1024;  // of a suite; some stores have to know

enum class KvDurability : std::uint8_t { sync, none };
[[nodiscard]] constexpr std::string_view name_of(KvDurability durability) {
  return durability == KvDurability::sync ? "sync" : "none";
}

struct KvOptions {
  std::string folder = {};  // there, and empty when the store is made
  KvDurability durability = KvDurability::sync;
  std::uint64_t bytes_expected = 0;  // of keys and values together
  std::uint64_t cache_bytes = 0;     // 0: the side's own default, or room for all that is expected
  std::uint64_t memory_bytes = 0;    // what the process may have, page cache included; 0: no limit
  Backend backend = {};              // of memlith's sides
};

using KvPair = std::pair<std::string, std::string_view>;

// One thread's use of a store. Each change is a transaction of its own; what it promises is the store's durability.
class KvSession {
 public:
  using Visit = std::function<void(std::string_view key, std::string_view value)>;

  virtual ~KvSession() = default;
  // Inserts, or replaces the value.
  [[nodiscard]] virtual MaybeFailure put(std::string_view key, std::string_view value) = 0;
  // Each of them, as one change: after a crash all are there, or none. A heap's are, if one persist covers them.
  [[nodiscard]] virtual MaybeFailure put_all(std::span<const KvPair> pairs) = 0;
  [[nodiscard]] virtual MaybeFailure get(std::string_view key, std::string& value, bool& found) = 0;
  // Reads each value and replaces it: one transaction, or, of a side that has none, gets and puts. `seen` is the last
  // value, and `found` tells that all were there.
  [[nodiscard]] virtual MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) {
    bool all = true;
    for (const auto& [key, value] : pairs) {
      if (MaybeFailure failure = get(key, seen, found)) return failure;
      all = all && found;
      if (MaybeFailure failure = put(key, value)) return failure;
    }
    found = all;
    return {};
  }
  // How often another session was in the way of a transaction, which was aborted then and begun anew; nothing where
  // modify() is no transaction.
  [[nodiscard]] virtual std::optional<std::uint64_t> aborts() const { return std::nullopt; }
  // No failure where there is no such key.
  [[nodiscard]] virtual MaybeFailure remove(std::string_view key) = 0;
  // At most `count` pairs in the order of their keys, from the first key that is not before `from`.
  [[nodiscard]] virtual MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) = 0;
  // The last call, when no other session is in use: what a program does once before it closes the store, never timed.
  [[nodiscard]] virtual MaybeFailure finish() { return {}; }
};

// One thread's use of one of several maps of a store: the calls that suite kvcalls measures.
class CallSession {
 public:
  virtual ~CallSession() = default;
  // Puts the records 0, 1, ... into the empty map; `samples_ns` gets the time of each kBatchRecords. They are durable
  // on return.
  [[nodiscard]] virtual MaybeFailure fill(std::uint64_t count, Values& values,
                                          std::vector<std::uint64_t>& samples_ns) = 0;
  // Each of these is one transaction, which is not waited for. Another thread may remove another map meanwhile.
  [[nodiscard]] virtual MaybeFailure put(std::string_view key, std::string_view value) = 0;
  [[nodiscard]] virtual MaybeFailure put_if(std::string_view key, std::string_view expected, std::string_view value,
                                            bool& done) = 0;
  [[nodiscard]] virtual MaybeFailure put_range(std::uint64_t first, std::uint64_t count, Values& values) = 0;
  [[nodiscard]] virtual MaybeFailure remove_range(std::string_view from, std::string_view to, std::uint64_t& count) = 0;
  // The map is gone; the session can only end.
  [[nodiscard]] virtual MaybeFailure remove_map() = 0;
  // Bytes that the log of memlith took. Everything that was committed is in the log then.
  virtual Result<std::optional<std::uint64_t>> logged_bytes() { return std::optional<std::uint64_t>(); }
  // Bytes of the pages in use.
  virtual Result<std::uint64_t> data_bytes() = 0;
};

// Counts of a kv store of memlith, for the fields that no other side has.
struct KvCounts {
  std::uint64_t logged_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t records = 0;
  std::uint64_t checkpoints = 0;
  // Since the store was opened: how long frames with weak commits were not durable, from the first commit on.
  std::uint64_t weak_wait_p50_ns = 0;
  std::uint64_t weak_wait_p99_ns = 0;
  std::uint64_t weak_wait_max_ns = 0;
};

// An open store; closes when the object goes. Sessions of one store may be used by different threads at once.
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual Result<std::unique_ptr<KvSession>> session() = 0;
  // Only of those whose `calls` are not empty. Makes the map if it is missing.
  virtual Result<std::unique_ptr<CallSession>> calls(const std::string& map) {
    return tool_failure(MEMLITH_INVALID, "no calls on map " + map);
  }
  // Both do something for memlith's kv stores only.
  virtual std::optional<KvCounts> counts() { return {}; }
  [[nodiscard]] virtual MaybeFailure set_window(std::uint64_t, std::uint64_t) { return {}; }
};

enum class Call : std::uint8_t { remove_map, append, put_if, remove_range };

struct KvPeer {
  std::string name;
  std::string version;
  std::string sync_text;  // what is done for each durability
  std::string none_text;
  Result<std::unique_ptr<KvStore>> (*open)(const KvOptions& options);
  std::array<std::string, 4> calls = {};  // what is done for each Call; empty: not a side of kvcalls

  [[nodiscard]] const std::string& text_of(KvDurability durability) const {
    return durability == KvDurability::sync ? sync_text : none_text;
  }
};

// `KvPeer::open` of a store that has `MaybeFailure open(const KvOptions&)`.
template <class Store>
Result<std::unique_ptr<KvStore>> open_as(const KvOptions& options) {
  auto store = std::make_unique<Store>();
  if (MaybeFailure failure = store->open(options)) return *failure;
  return std::unique_ptr<KvStore>(std::move(store));
}
// A session of a store, as the store's session() returns it.
template <class Session, class... Arguments>
Result<std::unique_ptr<KvSession>> make_session(Arguments&&... arguments) {
  return std::unique_ptr<KvSession>(std::make_unique<Session>(std::forward<Arguments>(arguments)...));
}

// Those whose libraries this program was built with: leveldb, kyoto-tree-tran, sqlite, lmdb, rocksdb, berkeleydb,
// wiredtiger.
std::vector<KvPeer> kv_peers();
// A peer's library said no.
[[nodiscard]] Failure peer_failure(std::string_view peer, std::string_view doing, std::string_view said);

// One each; what the build did not find is not defined.
KvPeer leveldb_peer();
KvPeer kyoto_peer();
KvPeer sqlite_peer();
// The same on memlith, in mode shared; nothing if its plugin is not beside this program, as the build puts it.
std::optional<KvPeer> sqlite_on_memlith();
KvPeer lmdb_peer();
KvPeer rocksdb_peer();
KvPeer berkeleydb_peer();
KvPeer wiredtiger_peer();

// memlith's sides. A kv store with weak or sync commits; with weak commits, each of which is waited for; with weak
// commits that become durable together at the end of the window; the same tree without any durability; without the
// calls that kvcalls measures; and behind an application log: a change is durable when its entry is in the log, and a
// thread moves the entries into the kv store.
KvPeer memlith_side();
KvPeer waiting_side();
KvPeer group_side();
KvPeer volatile_side();
KvPeer without_calls_side();
KvPeer logged_side();
// A skip list in a region, as the memtable of MemSnap's RocksDB.
KvPeer memtable_side();
// A memlith::map of strings on a heap: memlith-instrumented, if this build has memlith-c++, memlith-fault and
// memlith-scan; and maps made for pages: memlith-btree-fault, memlith-btree-scan, memlith-hash-fault and
// memlith-hash-scan. Without sync an operation changes memory and nothing is persisted.
std::vector<KvPeer> heap_map_sides();
// Without sync only: each operation is captured by an asynchronous persist, in order, and is durable within a second.
std::vector<KvPeer> heap_map_window_sides();
// The same with the default tracker: memlith-auto, memlith-btree-auto, memlith-hash-auto; and memlith-gcc and
// memlith-instrumented, whose stores memlith-g++ or memlith-c++ records, if this build has them.
std::vector<KvPeer> heap_map_default_sides();
KvPeer heap_map_gcc_side();
KvPeer heap_map_instrumented_side();

}  // namespace memlith::tool
