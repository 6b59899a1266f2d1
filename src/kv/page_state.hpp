// The state of a page of a kv store, which lies beside it (kv/words.hpp). Floor: kv.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "kv/page.hpp"
#include "kv/snapshots.hpp"

namespace memlith::core::kv {

inline constexpr Stamp kCheckedStamp = 1;
inline constexpr Stamp kNewest = ~Stamp{0};  // as a view: what is there now

// The use of a page, as far as the kv store was looked at since it was opened. So no page has two, whatever lists and
// trees a damaged file has, and a page in the middle of a run, which has no header, is not taken for what a value says.
enum class PageUse : std::uint8_t {
  other,   // not looked at, or free
  own,     // its header tells what it is
  inside,  // in a run that begins before it
};

// State of a page besides its bytes.
struct PageState {
  std::atomic<std::uint64_t> word;
  // Where the page lies as the newest commit left it: in the region, or there in the arena. Changes with the word.
  std::atomic<std::uint32_t> place;
  std::atomic<PageUse> use;  // changes with the word, but for damaged files
};
static_assert(sizeof(PageState) == 16);

// Tags of a leaf: a line of the cache, which pages with the same last digits share.
struct alignas(64) LeafTags {
  static constexpr std::uint32_t kMax = 60;
  static inline std::uint64_t lines_max = 1u << 18;  // a power of two; tests have fewer
  static constexpr PageNumber kChanging = ~PageNumber{0};
  std::atomic<PageNumber> page;  // whose tags these are; 0: no page's
  std::uint8_t tags[kMax];       // read beside the thread that changes them
  // How many lines a kv store of `pages` pages has: a power of two.
  static std::uint64_t lines_for(std::uint64_t pages) { return std::min(std::bit_ceil(pages), lines_max); }
};
static_assert(sizeof(LeafTags) == 64);

// Where a key is, or belongs, in a leaf that had `word` then: as long as the leaf has that word, and the key is locked.
struct LeafPlace {
  PageNumber page = 0;  // 0: it was not looked for
  std::uint32_t index = 0;
  std::uint64_t word = 0;
  bool found = false;
  bool at_end = false;  // the leaf is known to be the last of its map
};

}  // namespace memlith::core::kv
