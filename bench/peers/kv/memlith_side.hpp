// A kv store of memlith as a side of a benchmark. Floor: kv-peers.
#pragma once

#include <cstdint>

#include "kit/backend.hpp"
#include "peers/kv/kv.hpp"

namespace memlith::tool {

// What a kv store of memlith counts, for the fields that only it has.
struct KvCounts {
  std::uint64_t logged_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t records = 0;
  std::uint64_t checkpoints = 0;
};
class CountedKvStore : public KvStore {
 public:
  virtual KvCounts counts() = 0;
  // Of weak commits.
  [[nodiscard]] virtual MaybeFailure set_window(std::uint64_t ms, std::uint64_t bytes) = 0;
};

// memlith with weak or sync commits; with weak commits, each of which is waited for; and the same tree without any
// durability.
KvPeer memlith_side();
KvPeer waiting_side();
KvPeer volatile_side();

// The same with sync or weak commits, on a backend. Weak commits have the window of kWeakWindowMs.
inline constexpr std::uint64_t kWeakWindowMs = 1000;
Result<std::unique_ptr<KvStore>> open_memlith_kv(const KvOptions& options, const Backend& backend);

}  // namespace memlith::tool
