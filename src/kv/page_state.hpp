// The state of a page of a kv store, which lies beside it (kv/words.hpp). Floor: kv.
#pragma once

#include <atomic>
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

// State of a page besides its bytes: one line of the cache.
struct alignas(64) PageState {
  static constexpr std::uint32_t kTagsMax = 51;
  std::atomic<std::uint64_t> word;
  // Where the page lies as the newest commit left it: in the region, or there in the arena. Changes with the word.
  std::atomic<std::uint32_t> place;
  std::atomic<PageUse> use;  // changes with the word, but for damaged files
  // Tags of a leaf with at most kTagsMax cells. Read beside a writer, like the page.
  std::uint8_t tags[kTagsMax];
};
static_assert(sizeof(PageState) == 64);

// Where a key is, or belongs, in a leaf that had `word` then: as long as the leaf has that word, and the key is locked.
struct LeafPlace {
  PageNumber page = 0;  // 0: it was not looked for
  std::uint32_t index = 0;
  std::uint64_t word = 0;
  bool found = false;
  bool at_end = false;  // the leaf is known to be the last of its map
};

}  // namespace memlith::core::kv
