// The sides of a key-value suite, each with its store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kit/measure.hpp"
#include "kit/random.hpp"
#include "kit/scratch.hpp"
#include "kv_bench.hpp"
#include "peers/peer.hpp"

namespace memlith::tool {

struct Contender {
  KvPeer peer;
  KvDurability durability = KvDurability::none;
  std::string told = std::string(name_of(durability));  // "weak" for memlith's own
  std::unique_ptr<KvStore> store = {};
  std::unique_ptr<KvSession> session = {};

  // Makes an empty store in a folder of its own; what lay there is gone.
  [[nodiscard]] MaybeFailure make(const ScratchFolder& scratch, KvOptions options);
  // Opens the store as it is, with a session.
  [[nodiscard]] MaybeFailure open(const ScratchFolder& scratch, KvOptions options);
  [[nodiscard]] MaybeFailure close();
  [[nodiscard]] std::string folder_name() const { return peer.name + "-" + told; }
  [[nodiscard]] Line line(std::string suite, std::string workload) const;
};

std::vector<std::string> names_of(const std::vector<KvPeer>& peers);

// One thread of a side.
struct Worker {
  std::unique_ptr<KvSession> session;
  Random random;
  std::string value;
};
using Once = std::function<MaybeFailure(Contender& contender, Worker& worker, std::uint64_t& elapsed_ns)>;

// `once` again and again by several threads, each side in phases of its own. Each side has its samples on return. The
// workers of all sides draw the same numbers, which begin with the seed.
[[nodiscard]] MaybeFailure measure_workers(const std::vector<Contender*>& contenders, const PhaseLimits& limits,
                                           std::uint64_t seed, const Once& once, std::vector<Side>& sides);

}  // namespace memlith::tool
