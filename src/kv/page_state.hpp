// The state of a page of a kv store, which lies beside it (kv/words.hpp). Floor: kv.
#pragma once

#include <atomic>
#include <cstdint>

#include "kv/snapshots.hpp"

namespace memlith::core::kv {

inline constexpr Stamp kCheckedStamp = 1;
inline constexpr Stamp kNewest = ~Stamp{0};  // as a view: what is there now

// State of a page besides its bytes: one line of the cache.
struct alignas(64) PageState {
  static constexpr std::uint32_t kTagsMax = 56;
  std::atomic<std::uint64_t> word;
  // Tags of a leaf with at most kTagsMax cells. Read beside a writer, like the page.
  std::uint8_t tags[kTagsMax];
};
static_assert(sizeof(PageState) == 64);

}  // namespace memlith::core::kv
