#include "kv/pages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "region/mapped_array.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr std::uint64_t kCutBytesMax = 64 * kKiB;
constexpr std::uint64_t kImageBytesKept = 1 * kMiB;  // of a commit that has ended

// Room for one more, so that push_back() allocates nothing.
template <class T>
void make_room_in(std::vector<T>& all) {
  if (all.size() == all.capacity()) all.reserve(std::max<std::size_t>(8, 2 * all.size()));
}
}  // namespace

Pages::~Pages() { unmap_array(states_, states_count_); }

Status Pages::attach(Region& region) {
  region_ = &region;
  base_ = region.address();
  states_count_ = region.reserve() / kPageBytes;
  // The log may stay as small as it is now: several such pieces fit.
  cut_bytes_ = std::min(kCutBytesMax, region.store().log().capacity_bytes() / 16);
  MEMLITH_TRY(map_array(states_, states_count_));
  return kOk;
}

Status Pages::format() {
  StoreHeader& header = own_header();
  header = {kMagic, kVersion, kPageBytes, kCatalogue + 1, 0, 0, 0, 0, 0};
  format_page(at(kCatalogue), kCatalogue, PageKind::leaf, 0, kCatalogue);
  batch_.add(region_->object(), kHeaderOffset, base_ + kHeaderOffset, sizeof header);
  batch_.add(region_->object(), kCatalogue * kPageBytes, at(kCatalogue), sizeof(PageHeader));
  return check_header();
}

StoreHeader Pages::header() const { return load_as<StoreHeader>(base_ + kHeaderOffset); }

Status Pages::check_header() const {
  const StoreHeader found = header();
  const std::string& name = region_->shown_name();
  if (found.magic != kMagic) {
    return fail(Errc::incompatible, Detail::kv, "region \"{}\" holds no kv store; open it as what it is", name);
  }
  if (found.version != kVersion || found.page_bytes != kPageBytes) {
    return fail(Errc::incompatible, Detail::version,
                "region \"{}\" holds a kv store of format {} with pages of {} bytes; this version of memlith reads "
                "format {} with {}",
                name, found.version, found.page_bytes, kVersion, kPageBytes);
  }
  if (found.pages <= kCatalogue || found.pages > region_->size() / kPageBytes || found.free_head >= found.pages ||
      found.free_pages >= found.pages || found.removing >= found.pages) {
    return fail(Errc::corrupt, Detail::kv, "region \"{}\": the kv store's header does not fit its {} bytes; {}", name,
                region_->size(), region_->after_damage(kHeaderOffset));
  }
  auto& self = const_cast<Pages&>(*this);
  self.pages_.store(found.pages, std::memory_order_release);
  self.cut_commit_ = found.commits;
  return kOk;
}

void Pages::forget_checks() {
  const PageNumber before = pages_.load(std::memory_order_relaxed);
  for (PageNumber page = 0; page < before; ++page) word_of(page).store(0, std::memory_order_relaxed);
  // A header that does not fit has no pages: whatever is read is reported to be damaged.
  pages_.store(0, std::memory_order_release);
  const KeptSentence sentence;
  (void)check_header();
}

Status Pages::corrupt(PageNumber page, std::string_view fault) const {
  return fail(Errc::corrupt, Detail::kv, "region \"{}\": page {} of the kv store is damaged: {}; {}",
              region_->shown_name(), page, fault, region_->after_damage(page * kPageBytes));
}

// ---- the writer ------------------------------------------------------------------------------------------------

void Pages::begin(Stamp stamp, bool sure) {
  undoable_ = true;  // also if this call fails
  stamp_ = stamp;
  begun_ = batch_.mark();
  header_before_ = header();
  beginning_.store(stamp, std::memory_order_seq_cst);  // pairs with take_snapshot()
  newest_snapshot_ = snapshots_.newest();
  keeping_ = newest_snapshot_ != 0;
  make_room_in(changing_);
  undoable_ = keeping_ || !sure;
}

// A page that the commit makes needs none: without the commit it is not there.
void Pages::save_image(PageNumber page) {
  if (page >= header_before_.pages) return;
  make_room_in(imaged_);
  images_.insert(images_.end(), bytes_of(page), bytes_of(page) + kPageBytes);
  imaged_.push_back(page);
}

// A page is changed only when it was checked, so nothing changes it here.
Status Pages::check(PageNumber page) {
  if (page == kHeaderPage || page >= count()) return corrupt(page, "there is no such page");
  const LockGuard lock(check_mutex_);
  if (word_of(page).load(std::memory_order_acquire) != 0) return kOk;
  const std::string_view fault = fault_of_page(at(page), page, count());
  if (!fault.empty()) return corrupt(page, fault);
  tag_all(page);
  word_of(page).store(kCheckedStamp << 1, std::memory_order_release);
  return kOk;
}

Result<const std::byte*> Pages::sound(PageNumber page) {
  if (page == kHeaderPage || page >= count()) return corrupt(page, "there is no such page");
  // Acquire: the writer changes the tags that check() has left.
  if (word_of(page).load(std::memory_order_acquire) == 0) MEMLITH_TRY(check(page));
  return bytes_of(page);
}

Status Pages::make_room(std::uint64_t pages, bool allow_growth) {
  const StoreHeader now = header();
  PageNumber next = now.free_head;
  std::uint64_t ready = 0;
  for (; ready < pages && next != 0; ++ready) {
    MEMLITH_TRY_ASSIGN(const std::byte* const bytes, sound(next));
    const ChainHeader chain = chain_of(bytes);
    if (chain.kind != PageKind::free) return corrupt(next, "it is in the list of free pages, and in use");
    if (ready > now.free_pages) return corrupt(next, "the list of free pages has no end");
    next = chain.next;
  }
  const std::uint64_t needed = (now.pages + (pages - ready)) * kPageBytes;
  if (needed <= region_->size()) return kOk;
  if (needed > region_->most() || needed / kPageBytes > ~PageNumber{0}) {
    return fail(Errc::no_space, Detail::kv,
                "region \"{}\": the kv store needs {} bytes and its region may have {}; copy the records to one with a "
                "larger max_size",
                region_->shown_name(), needed, region_->most());
  }
  if (needed > region_->reserve()) return region_->grow(needed);  // which says why that is not possible
  if (!allow_growth) return fail(Errc::no_space, Detail::kv, "the region has to grow");
  const std::uint64_t step = std::min(region_->size() / 2, kGrowthBytesMax);
  const std::uint64_t wanted = std::min(std::max(needed, region_->size() + step), region_->reserve());
  Status grown = region_->grow(wanted);
  if (!grown.ok() && wanted != needed) grown = region_->grow(needed);
  return needed <= region_->size() ? kOk : grown;  // grow_ahead() may have been faster
}

void Pages::grow_ahead() {
  const std::uint64_t size = region_->size();
  const std::uint64_t step = std::min(size / 2, kGrowthBytesMax);
  if (size - std::min(size, count() * kPageBytes) >= step / 2 || size == region_->reserve()) return;
  const KeptSentence sentence;  // a commit that needs the pages tries again, and tells
  (void)region_->grow(std::min(size + step, region_->reserve()));
}

// ORDER copy-before-change: a snapshot's reader that finds the page being changed finds the copy. The page's word is
// stored before the lock is let go: to drop_snapshot() the copy is the page's state up to the stamp in the word. With
// the old word, no snapshot would seem to need the copy. [mutant kv_copy_apart_from_word]
void Pages::keep(PageNumber page, Stamp stamp) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[kPageBytes]);
  std::memcpy(copy.get(), at(page), kPageBytes);
  {
    const LockGuard lock(kept_mutex_);
    kept_[page].push_back({stamp, copy});
    kept_copies_.fetch_add(1, std::memory_order_relaxed);
    word_of(page).store(stamp_ << 1 | 1, std::memory_order_relaxed);
  }
}

std::byte* Pages::change(PageNumber page) {
  const std::uint64_t word = word_of(page).load(std::memory_order_relaxed);
  if ((word & 1) != 0) return at(page);
  const Stamp stamp = std::max(word >> 1, kCheckedStamp);
  // ORDER image-before-change: whatever fails for lack of memory fails before the page is changed, or can be undone.
  // [test KvOutOfMemory.ACommitIsUndoneAndTheStoreGoesOn]
  if (undoable_) save_image(page);
  make_room_in(changing_);
  if (keeping_ && stamp <= newest_snapshot_) {
    keep(page, stamp);
  } else {
    word_of(page).store(stamp_ << 1 | 1, std::memory_order_relaxed);
  }
  changing_.push_back(page);
  if (logs_) region_->note_copied({page * kPageBytes, kPageBytes});
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence in confirmed()
  return at(page);
}

void Pages::note(PageNumber page, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0 && logs_) batch_.add(region_->object(), page * kPageBytes + offset, at(page) + offset, bytes);
}

PageNumber Pages::allocate() {
  StoreHeader& header = own_header();
  PageNumber page = header.free_head;
  if (page != 0) {
    (void)change(page);
    header.free_head = chain_of(at(page)).next;
    --header.free_pages;
    return page;
  }
  page = header.pages++;
  MEMLITH_ASSERT(header.pages * kPageBytes <= region_->size());
  (void)change(page);
  pages_.store(header.pages, std::memory_order_release);
  return page;
}

void Pages::free(PageNumber page) {
  StoreHeader& header = own_header();
  std::byte* const bytes = change(page);
  const ChainHeader chain{page, PageKind::free, 0, 0, header.free_head, 0};
  std::memcpy(bytes, &chain, sizeof chain);
  note(page, 0, sizeof chain);
  header.free_head = page;
  ++header.free_pages;
}

void Pages::note_removing(PageNumber root) { own_header().removing = root; }

void Pages::count_records(std::int64_t more) { own_header().records += static_cast<std::uint64_t>(more); }

// The words of the pages go on to the stamp of this commit: a reader that saw half of a change must not find the word
// that it had before.
void Pages::undo() {
  MEMLITH_ASSERT(undoable_);
  for (std::size_t i = 0; i < imaged_.size(); ++i) {
    std::memcpy(at(imaged_[i]), images_.data() + i * kPageBytes, kPageBytes);
    tag_all(imaged_[i]);
  }
  batch_.undo_to(begun_);
  own_header() = header_before_;
  pages_.store(header_before_.pages, std::memory_order_release);
}

void Pages::end(std::uint64_t commit) {
  own_header().commits = commit;
  // ORDER header-in-each-frame: the log may take the batch in several frames, and a crash may leave the first of them.
  // The header has to be that of its last commit. [mutant kv_frame_without_header]
  if (batch_.uncut_bytes() >= cut_bytes_) cut_batch();
  for (const PageNumber page : changing_) word_of(page).store(stamp_ << 1, std::memory_order_release);
  changing_.clear();
  imaged_.clear();
  images_.clear();
  if (images_.capacity() > kImageBytesKept) std::vector<std::byte>().swap(images_);
  newest_.store(stamp_, std::memory_order_seq_cst);
}

// A commit that changed no page leaves its number, too, which would be given to another commit after a crash.
void Pages::cut_batch() {
  const std::uint64_t newest = header().commits;
  if (!logs_ || (batch_.ends_in_cut() && cut_commit_ == newest)) return;
  cut_commit_ = newest;
  reserve_batch(0, 0);
  batch_.add(region_->object(), kHeaderOffset, base_ + kHeaderOffset, sizeof(StoreHeader));
  batch_.cut(newest);
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

void Pages::tag_inserted(PageNumber page, std::uint32_t index, std::string_view key) {
  const PageHeader header = header_of(at(page));
  if (header.kind != PageKind::leaf || header.count > PageState::kTagsMax) return;
  std::uint8_t* const tags = states_[page].tags;
  std::memmove(tags + index + 1, tags + index, header.count - 1 - index);
  tags[index] = tag_of(key);
}

void Pages::tag_removed(PageNumber page, std::uint32_t index) {
  const PageHeader header = header_of(at(page));
  if (header.kind != PageKind::leaf || header.count > PageState::kTagsMax) return;
  if (header.count == PageState::kTagsMax) return tag_all(page);  // it had too many cells for tags
  std::uint8_t* const tags = states_[page].tags;
  std::memmove(tags + index, tags + index + 1, header.count - index);
}

void Pages::tag_all(PageNumber page) {
  const PageHeader header = header_of(at(page));
  if (header.kind != PageKind::leaf || header.count > PageState::kTagsMax) return;
  for (std::uint32_t i = 0; i < header.count; ++i) states_[page].tags[i] = tag_of(cell_of(at(page), i).key);
}

bool Pages::tags_match(PageNumber page) const {
  const PageHeader header = header_of(bytes_of(page));
  if (header.kind != PageKind::leaf || header.count > PageState::kTagsMax) return true;
  for (std::uint32_t i = 0; i < header.count; ++i) {
    if (states_[page].tags[i] != tag_of(cell_of(bytes_of(page), i).key)) return false;
  }
  return true;
}

Place Pages::find_in(const PageView& leaf, std::string_view key) const {
  const std::uint32_t count = count_of(leaf.bytes);
  if (leaf.copy == nullptr && count <= PageState::kTagsMax) {
    const std::uint8_t* const tags = states_[leaf.page].tags;
    const std::uint8_t tag = tag_of(key);
    std::uint64_t equal = equal_bytes(tags, tag) | equal_bytes(tags + 16, tag) << 16 |
                          equal_bytes(tags + 32, tag) << 32 | equal_bytes(tags + 40, tag) >> 8 << 48;
    equal &= (std::uint64_t{1} << count) - 1;
    for (; equal != 0; equal &= equal - 1) {
      const auto index = static_cast<std::uint32_t>(std::countr_zero(equal));
      Cell cell;
      if (!read_cell(leaf.bytes, index, cell)) return {index, false, true};
      if (cell.key == key) return {index, true, false};
    }
  }
  return find_place(leaf.bytes, key);
}

// ---- readers ---------------------------------------------------------------------------------------------------

Result<PageView> Pages::look(PageNumber page, Stamp view) {
  if (page == kHeaderPage || page >= count()) return corrupt(page, "there is no such page");
  for (unsigned tries = 0;; ++tries) {
    const std::uint64_t word = word_of(page).load(std::memory_order_acquire);
    if (word == 0) {
      MEMLITH_TRY(check(page));
      continue;
    }
    if (view == kNewest || word >> 1 <= view) {
      if ((word & 1) == 0) return PageView{bytes_of(page), page, word, nullptr};
    } else {
      const LockGuard lock(kept_mutex_);
      const auto found = kept_.find(page);
      if (found != kept_.end()) {
        for (auto each = found->second.rbegin(); each != found->second.rend(); ++each) {
          if (each->stamp <= view) return PageView{each->bytes.get(), page, 0, each->bytes};
        }
      }
      return corrupt(page, "an older state of it is missing");
    }
    if (tries >= 20) yield_thread();
  }
}

Snapshots::Place Pages::take_snapshot() {
  for (int tries = 0;; ++tries) {
    // Commits that follow closely on each other must not keep a snapshot waiting for ever.
    const KeptLock writer = tries > 50 ? KeptLock(writer_) : KeptLock();
    const Snapshots::Place place = snapshots_.add(newest_.load(std::memory_order_seq_cst));
    if (beginning_.load(std::memory_order_seq_cst) == place.stamp) return place;
    drop_snapshot(place);
    yield_thread();
  }
}

void Pages::drop_snapshot(const Snapshots::Place& place) {
  snapshots_.remove(place);
  if (kept_copies_.load(std::memory_order_acquire) == 0) return;
  KeptPages all;  // freed without the lock, for which commits wait
  {
    const LockGuard lock(kept_mutex_);
    // For a snapshot that is added from here on, a commit that waits for the lock keeps the pages.
    if (snapshots_.newest() == 0) {
      all.swap(kept_);
      kept_copies_.store(0, std::memory_order_relaxed);
      forget_at_ = forget_from_;
      return;
    }
    if (forgetting_ || kept_copies_.load(std::memory_order_relaxed) < forget_at_) return;
    forgetting_ = true;
  }
  forget_unneeded();
}

// In steps, and the copies are freed without the lock: commits wait for a step, not for all of it. If the table grows
// between two steps, entries are missed, and stay until copies are looked for again.
void Pages::forget_unneeded() {
  for (std::size_t bucket = 0, more = 1; more > 0;) {
    Forgotten forgotten;
    const LockGuard lock(kept_mutex_);
    const std::size_t end = std::min(bucket + kForgetBuckets, kept_.bucket_count());
    while (bucket < end && forget_in(bucket, forgotten)) ++bucket;
    kept_copies_.fetch_sub(forgotten.count, std::memory_order_relaxed);
    more = kept_.bucket_count() - std::min(bucket, kept_.bucket_count());
    if (more > 0) continue;
    forget_at_ = std::max(forget_from_, 2 * kept_copies_.load(std::memory_order_relaxed));
    forgetting_ = false;
  }
}

// A copy is needed by the snapshots from its own stamp on, up to the stamp of the page's next state. False: `forgotten`
// is full, and the bucket may hold more.
bool Pages::forget_in(std::size_t bucket, Forgotten& forgotten) {
  for (auto entry = kept_.begin(bucket); entry != kept_.end(bucket);) {
    std::vector<Kept>& all = entry->second;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Stamp next = i + 1 < all.size() ? all[i + 1].stamp : word_of(entry->first).load() >> 1;
      bool needed = false;
      snapshots_.for_each([&](Stamp user) { needed = needed || (all[i].stamp <= user && user < next); });
      if (!needed && forgotten.count < kForgetCopies) {
        forgotten.copies[forgotten.count++] = std::move(all[i].bytes);
      } else if (const std::size_t to = kept++; to != i) {
        all[to] = std::move(all[i]);
      }
    }
    all.resize(kept);
    if (all.empty()) {
      kept_.erase(PageNumber{entry->first});
      entry = kept_.begin(bucket);
    } else {
      ++entry;
    }
    if (forgotten.count == kForgetCopies) return false;
  }
  return true;
}

}  // namespace memlith::core::kv
