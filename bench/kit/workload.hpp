// The work that is measured on memlith's side: random pages of a region change, and one call makes that durable.
//
// One Workload belongs to one thread and one region. Choosing pages, and the bytes that go into them, is never part
// of a measured time; what is besides the call to memlith_persist() is what its Scope says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/failure.hpp"
#include "memlith/memlith.h"
#include "random.hpp"

namespace memlith::tool {

inline constexpr std::uint64_t kPageBytes = 4096;

// Which steps are timed as one persist. `automatic` depends on the tracker: with explicit and instrumented, the
// call that says what was stored and the persist (touch); with the others the stores have a cost of their own, so they
// are timed, too (stores).
enum class Scope : std::uint8_t { automatic, stores, touch, persist };

// The scope that Scope::automatic means for this tracker; returns any other scope unchanged.
[[nodiscard]] Scope resolve_scope(Scope scope, std::uint32_t tracker);
[[nodiscard]] const char* name_of(Scope scope);

// The changes of a round: `bytes_per_page` bytes, at most a page, in each of `pages` distinct pages.
struct RoundShape {
  std::uint64_t pages = 1;
  std::uint64_t bytes_per_page = kPageBytes;
  std::uint32_t tracker = MEMLITH_TRACKER_EXPLICIT;
  Scope scope = Scope::touch;   // not `automatic`
  bool same_pages = false;      // the first round's pages and places in them, in every round
  std::uint64_t hot_pages = 0;  // of the pages, the first ones of the region: these in every round
  bool process_scope = false;   // the region is opened with MEMLITH_REGION_PROCESS_SCOPE
  bool thread_scope = false;    // the region is opened with MEMLITH_REGION_THREAD_SCOPE
  bool asynchronous = false;    // persist_async, and the waiting is not timed
  [[nodiscard]] std::uint64_t bytes() const { return pages * bytes_per_page; }
};

// The times of a round's steps, one behind the other. Those that a round does not have are 0.
struct RoundParts {
  std::uint64_t stores_ns = 0;
  std::uint64_t touch_ns = 0;
  std::uint64_t call_ns = 0;  // memlith_persist, or memlith_persist_async
  std::uint64_t wait_ns = 0;  // memlith_wait behind the latter
};

// Distinct pages of so many, every set of them equally likely.
class RandomPages {
 public:
  explicit RandomPages(std::uint64_t pages);
  // `count` of them; valid until the next call.
  std::span<const std::uint32_t> choose(Random& random, std::uint64_t count);
  [[nodiscard]] std::uint64_t size() const { return order_.size(); }

 private:
  std::vector<std::uint32_t> order_;  // every page once; its start is shuffled anew each time
};

class Workload {
 public:
  // Precondition: the region has at least shape.pages pages.
  // `store` is where the region belongs.
  Workload(memlith_store* store, memlith_region* region, const RoundShape& shape, std::uint64_t seed);

  // Stores to every page and persists that, so that rounds measure memory and a home file that have been in use.
  [[nodiscard]] MaybeFailure fill();

  // From now on a round changes that many pages, at most as many as at the beginning, and that many bytes in each.
  void set_pages(std::uint64_t pages);
  void set_bytes_per_page(std::uint64_t bytes) { shape_.bytes_per_page = bytes; }

  // One round: choose, store, persist. `elapsed_ns` is what the scope covers of it.
  [[nodiscard]] MaybeFailure round(std::uint64_t& elapsed_ns);
  // Stores and captures, and waits for nothing: something is on its way then.
  [[nodiscard]] MaybeFailure capture();
  // One round step by step; `asynchronous` whatever the shape says.
  [[nodiscard]] MaybeFailure round_in_parts(bool asynchronous, RoundParts& parts);

 private:
  struct Change {
    std::byte* target;
    const std::byte* source;
  };
  void choose();
  void choose_beside_hot();
  [[nodiscard]] const std::byte* content();
  void store() const;
  [[nodiscard]] std::int32_t touch() const;

  [[nodiscard]] std::int32_t persist();

  memlith_store* store_;
  memlith_region* region_;
  std::uint64_t ticket_ = 0;
  std::byte* base_;
  RoundShape shape_;
  Random random_;
  std::vector<std::byte> source_;  // random content that changes are cut from, each time elsewhere
  RandomPages pages_;
  std::vector<Change> changes_;
  bool chosen_ = false;  // there was a round
};

}  // namespace memlith::tool
