#include "kv/words.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kv/board.hpp"
#include "region/mapped_array.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::string_view kWithinAValue = "it lies within a value";
}  // namespace

Words::~Words() {
  if (board_ != nullptr) return;
  unmap_array(states_, states_count_);
  unmap_array(tags_, tags_count_);
}

Status Words::attach(Region& region) {
  MEMLITH_ASSERT(region_ == nullptr);
  region_ = &region;
  name_ = region.shown_name();
  base_ = region.address();
  states_count_ = region.reserve() / kPageBytes;
  MEMLITH_TRY(map_array(states_, states_count_));
  tags_count_ = LeafTags::lines_for(states_count_);
  return map_array(tags_, tags_count_);
}

void Words::attach(Board& board, PagesKeeper& keeper, std::string name) {
  MEMLITH_ASSERT(base_ == nullptr);
  board_ = &board;
  keeper_ = &keeper;
  name_ = std::move(name);
  base_ = board.pages();
  states_ = board.states();
  states_count_ = board.pages_max();
  tags_ = board.tags();
  tags_count_ = LeafTags::lines_for(states_count_);
  pages_ = &board.head().pages;
}

void Words::attach(Region& region, Board& board) {
  MEMLITH_ASSERT(base_ == nullptr && board.pages_max() * kPageBytes <= region.reserve());
  region_ = &region;
  board_ = &board;
  name_ = region.shown_name();
  base_ = board.pages();
  states_ = board.states();
  states_count_ = board.pages_max();
  tags_ = board.tags();
  tags_count_ = LeafTags::lines_for(states_count_);
  pages_ = &board.head().pages;
  std::memcpy(base_, region.address(), kPageBytes);  // the header
}

void Words::made(PageNumber page) {
  MEMLITH_ASSERT(own_word(page) == 0);
  set_use(page, 1, PageUse::own);
  make_tags(page);
  states_[page].word.store(kCheckedStamp << 1, std::memory_order_release);
}

void Words::forget_checks() {
  const PageNumber before = pages_->load(std::memory_order_relaxed);
  for (PageNumber page = 0; page < before; ++page) states_[page].word.store(0, std::memory_order_relaxed);
  set_use(0, before, PageUse::other);
  set_count(0);
}

Status Words::corrupt(PageNumber page, std::string_view fault) const {
  const std::string_view then = region_ != nullptr
                                    ? region_->after_damage(page * kPageBytes)
                                    : "end the programs that have the kv store open, and run memlith verify --data";
  std::string place;
  if (region_ != nullptr) {
    if (const auto file = region_->store().home_path(region_->object()); file.ok()) {
      place = fmt::format(" ({} at offset {})", *file, page * kPageBytes);
    }
  }
  return fail(Errc::corrupt, Detail::kv, "region \"{}\": page {} of the kv store is damaged: {}{}; {}", name_, page,
              fault, place, then);
}

// No commit has changed the pages since the store was opened, so the region has them as recovery left them.
Status Words::take_over(PageNumber first, std::uint64_t pages) {
  MEMLITH_TRY(compare(first, pages));
  const std::uint64_t at = first * kPageBytes;
  if (board_ != nullptr) std::memcpy(base_ + at, region_->address() + at, pages * kPageBytes);
  return kOk;
}

// Where the log lies over the region, memory is newer than the sum. A sum that cannot be read says nothing.
Status Words::compare(PageNumber first, std::uint64_t pages) {
  if (sums_ == nullptr) return kOk;
  const Store& store = region_->store();
  for (std::uint64_t page = first; page < first + pages; ++page) {
    if (store.read_only() && store.overlay().has(region_->object(), page)) continue;
    const std::uint64_t at = page * kPageBytes;
    const auto found = sums_->judge(at, {region_->address() + at, kPageBytes});
    if (found.ok() && *found == SumsFile::Verdict::wrong) {
      return corrupt(static_cast<PageNumber>(page), "it is not as it was written, as its checksum says");
    }
  }
  return kOk;
}

Status Words::load_to_fill(PageNumber first, std::uint64_t pages) {
  const bool known = pages == 1 && own_word(first) != 0;
  return known || board_ != nullptr ? kOk : region_->load({first * kPageBytes, pages * kPageBytes});
}

// A page is changed only when it was checked, so nothing changes it here.
Status Words::check(PageNumber page) {
  if (page == kHeaderPage || page >= count()) return corrupt(page, "there is no such page");
  if (keeper_ != nullptr) return keeper_->load(page);
  MEMLITH_TRY(region_->load({page * kPageBytes, kPageBytes}));  // from the disk, beside other threads
  const LockGuard lock(check_mutex_);
  if (word(page) != 0) return kOk;
  if (use(page) == PageUse::inside) return corrupt(page, kWithinAValue);
  MEMLITH_TRY(take_over(page, 1));
  const std::string_view fault = fault_of_page(bytes_of(page), page, count());
  if (!fault.empty()) return corrupt(page, fault);
  const RunHeader run = run_of(bytes_of(page));
  if (run.kind == PageKind::overflow) {
    const std::uint64_t pages = pages_of_value(run.size);
    for (std::uint64_t i = 1; i < pages; ++i) {
      const auto inner = static_cast<PageNumber>(page + i);
      if (use(inner) != PageUse::other) return corrupt(inner, "it lies within a value, and is in use");
    }
    MEMLITH_TRY(region_->load({(page + 1) * kPageBytes, (pages - 1) * kPageBytes}));
    MEMLITH_TRY(take_over(page + 1, pages - 1));
    set_use(page + 1, pages - 1, PageUse::inside);
  }
  if (run.kind != PageKind::free) set_use(page, 1, PageUse::own);
  make_tags(page);
  states_[page].word.store(kCheckedStamp << 1, std::memory_order_release);
  return kOk;
}

Result<const std::byte*> Words::sound(PageNumber page) {
  if (page == kHeaderPage || page >= count()) return corrupt(page, "there is no such page");
  // Acquire: the writer changes the tags that check() has left.
  if (word(page) == 0) MEMLITH_TRY(check(page));
  if (use(page) == PageUse::own) return bytes_of(page);
  return corrupt(page, use(page) == PageUse::inside ? kWithinAValue : "it is free, and in use");
}

Result<RunHeader> Words::sound_free(PageNumber page) {
  if (page <= kCatalogue || page >= count()) return corrupt(page, "there is no such page to be free");
  if (word(page) == 0) MEMLITH_TRY(check(page));
  const RunHeader run = run_of(bytes_of(page));
  if (use(page) == PageUse::other && run.kind == PageKind::free) return run;
  return corrupt(page, "it is in the list of free pages, and in use");
}

Result<const std::byte*> Words::sound_run(const OverflowReference& reference) {
  if (!lies_within(reference, count())) return corrupt(reference.first, "a value does not fit the kv store from there");
  MEMLITH_TRY_ASSIGN(const std::byte* const bytes, sound(reference.first));
  const RunHeader run = run_of(bytes);
  if (run.kind == PageKind::overflow && run.size == reference.bytes) return bytes;
  return corrupt(reference.first, "it does not hold the value that it should");
}

// ---- tags ------------------------------------------------------------------------------------------------------

namespace {
// A mask of 16 bytes: bit i is set where byte i is `tag`.
std::uint64_t equal_bytes(const std::uint8_t* bytes, std::uint8_t tag) {
#if defined(__x86_64__)
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)))));
#else
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kLow = 0x7f * kOnes;
  std::uint64_t equal = 0;
  for (std::uint32_t half = 0; half < 2; ++half) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + half * sizeof word, sizeof word);
    word ^= tag * kOnes;
    const std::uint64_t zeros = ~(((word & kLow) + kLow) | word | kLow) >> 7;  // 1 in each byte that is zero
    equal |= (zeros * 0x0102040810204080 >> 56) << half * 8;                   // of byte i to bit i
  }
  return equal;
#endif
}
}  // namespace

// Changes the tags of the page if the line has them. Another thread may check a page that shares the line.
template <class Change>
bool Words::change_tags(PageNumber page, const Change& change) const {
  LeafTags& line = tags_of(page);
  PageNumber before = page;
  if (!line.page.compare_exchange_strong(before, LeafTags::kChanging, std::memory_order_acquire)) return false;
  change(line.tags);
  line.page.store(page, std::memory_order_release);
  return true;
}

void Words::tag_inserted(PageNumber page, std::uint32_t index, std::string_view key) {
  const PageHeader header = header_of(bytes_of(page));
  if (header.kind != PageKind::leaf || header.count > LeafTags::kMax) return;
  MEMLITH_ASSERT(index < header.count);
  if (header.count == 1) return make_tags(page);  // it had no cells, and maybe no line
  change_tags(page, [&](std::uint8_t* tags) {
    std::memmove(tags + index + 1, tags + index, header.count - 1 - index);
    tags[index] = tag_of(key);
  });
}

void Words::tag_removed(PageNumber page, std::uint32_t index) {
  const PageHeader header = header_of(bytes_of(page));
  if (header.kind != PageKind::leaf || header.count > LeafTags::kMax) return;
  if (header.count == LeafTags::kMax) return make_tags(page);  // it had too many cells for tags
  MEMLITH_ASSERT(index <= header.count);
  change_tags(page, [&](std::uint8_t* tags) { std::memmove(tags + index, tags + index + 1, header.count - index); });
}

void Words::make_tags(PageNumber page) {
  const PageHeader header = header_of(bytes_of(page));
  if (header.kind != PageKind::leaf || header.count > LeafTags::kMax) return;
  LeafTags& line = tags_of(page);
  PageNumber before = line.page.load(std::memory_order_relaxed);
  if (before == LeafTags::kChanging) return;
  if (!line.page.compare_exchange_strong(before, LeafTags::kChanging, std::memory_order_acquire)) return;
  for (std::uint32_t i = 0; i < header.count; ++i) line.tags[i] = tag_of(cell_of(bytes_of(page), i).key);
  line.page.store(page, std::memory_order_release);
}

bool Words::tags_match(PageNumber page) const {
  const PageHeader header = header_of(bytes_of(page));
  if (header.kind != PageKind::leaf || header.count > LeafTags::kMax) return true;
  bool match = true;
  change_tags(page, [&](const std::uint8_t* tags) {
    for (std::uint32_t i = 0; i < header.count; ++i) match = match && tags[i] == tag_of(cell_of(bytes_of(page), i).key);
  });
  return match;
}

CellSearch Words::find_in(const PageView& leaf, std::string_view key) const {
  const std::uint32_t count = count_of(leaf.bytes);
  const LeafTags& line = tags_of(leaf.page);
  if (!leaf.is_old && count <= LeafTags::kMax && line.page.load(std::memory_order_acquire) == leaf.page) {
    const std::uint8_t* const tags = line.tags;
    const std::uint8_t tag = tag_of(key);
    std::uint64_t equal = equal_bytes(tags, tag) | equal_bytes(tags + 16, tag) << 16 |
                          equal_bytes(tags + 32, tag) << 32 | equal_bytes(tags + 44, tag) >> 4 << 48;
    equal &= (std::uint64_t{1} << count) - 1;
    // The tags are those of the newest commit.
    if (leaf.stays && !is_still(leaf.page, leaf.word)) equal = 0;
    for (; equal != 0; equal &= equal - 1) {
      const auto index = static_cast<std::uint32_t>(std::countr_zero(equal));
      Cell cell;
      if (!read_cell(leaf.bytes, index, cell)) return {index, false, true};
      if (cell.key == key) return {index, true, false};
    }
  }
  return find_cell(leaf.bytes, key);
}

}  // namespace memlith::core::kv
