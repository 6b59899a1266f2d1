#include "kv/writer.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr std::uint64_t kCutBytesMax = 64 * kKiB;
constexpr std::uint64_t kImageBytesKept = 1 * kMiB;  // of a commit that has ended
constexpr std::uint64_t kCommitsMax = std::uint64_t{1} << 62;

// Room for one more, so that push_back() allocates nothing.
template <class T>
void make_room_in(std::vector<T>& all) {
  if (all.size() == all.capacity()) all.reserve(std::max<std::size_t>(8, 2 * all.size()));
}
}  // namespace

// ---- the header ------------------------------------------------------------------------------------------------

void Writer::format() {
  own_header() = {kMagic, kVersion, kPageBytes, kCatalogue + 1, 0, 0, 0, 0, 0};
  format_page(words_.at(kCatalogue), kCatalogue, PageKind::leaf, 0, kCatalogue);
  batch_.add(region().object(), kHeaderOffset, header_bytes(), sizeof(StoreHeader));
  batch_.add(region().object(), kCatalogue * kPageBytes, words_.bytes_of(kCatalogue), sizeof(PageHeader));
}

StoreHeader Writer::header() const { return load_as<StoreHeader>(header_bytes()); }

Status Writer::check_header() const {
  const StoreHeader found = header();
  const std::string& name = region().shown_name();
  if (found.magic != kMagic) {
    return fail(Errc::incompatible, Detail::kv, "region \"{}\" holds no kv store; open it as what it is", name);
  }
  if (found.version != kVersion || found.page_bytes != kPageBytes) {
    return fail(Errc::incompatible, Detail::version,
                "region \"{}\" holds a kv store of format {} with pages of {} bytes; this version of memlith reads "
                "format {} with {}",
                name, found.version, found.page_bytes, kVersion, kPageBytes);
  }
  // Page 0 and the catalogue are never free, nor a map that was removed.
  const bool has_list = found.free_head != 0;
  if (found.pages <= kCatalogue || found.pages > region().size() / kPageBytes || found.free_head >= found.pages ||
      found.free_pages >= found.pages - kCatalogue || found.removing >= found.pages || found.free_head == kCatalogue ||
      found.removing == kCatalogue || has_list != (found.free_pages != 0) || found.commits > kCommitsMax ||
      found.records > found.pages * kPageBytes) {
    return fail(Errc::corrupt, Detail::kv, "region \"{}\": the kv store's header does not fit its {} bytes; {}", name,
                region().size(), region().after_damage(kHeaderOffset));
  }
  return kOk;
}

Status Writer::load_header() {
  MEMLITH_ASSERT(!running_);
  MEMLITH_TRY(check_header());
  // The log may stay as small as it is now: several such pieces fit.
  cut_bytes_ = std::min(kCutBytesMax, region().store().log().capacity_bytes() / 16);
  cut_commit_ = header().commits;
  words_.set_count(header().pages);
  return kOk;
}

// ---- room ------------------------------------------------------------------------------------------------------

Status Writer::make_room(std::uint64_t pages) {
  const StoreHeader now = header();
  PageNumber next = now.free_head;
  std::uint64_t ready = 0;
  ready_.clear();
  for (; ready < pages && next != 0; ++ready) {
    MEMLITH_TRY_ASSIGN(const std::byte* const bytes, words_.sound(next));
    const ChainHeader chain = chain_of(bytes);
    if (chain.kind != PageKind::free) return words_.corrupt(next, "it is in the list of free pages, and in use");
    if (ready >= now.free_pages) return words_.corrupt(next, "the list of free pages has more than the header counts");
    ready_.push_back(next);
    next = chain.next;
  }
  // No page is given out twice, whatever list a file has.
  std::sort(ready_.begin(), ready_.end());
  const auto twice = std::adjacent_find(ready_.begin(), ready_.end());
  if (twice != ready_.end()) return words_.corrupt(*twice, "it is in the list of free pages twice");
  if (ready < pages && ready != now.free_pages) {
    return words_.corrupt(kHeaderPage, "it counts more free pages than are in their list");
  }
  const std::uint64_t needed = (now.pages + (pages - ready)) * kPageBytes;
  if (needed <= region().size()) return kOk;
  if (needed > region().most() || needed / kPageBytes > ~PageNumber{0}) {
    return fail(Errc::no_space, Detail::kv,
                "region \"{}\": the kv store needs {} bytes and its region may have {}; copy the records to one with a "
                "larger max_size",
                region().shown_name(), needed, region().most());
  }
  if (needed > region().reserve()) return region().grow(needed);  // which says why that is not possible
  const std::uint64_t step = std::min(region().size() / 2, kGrowthBytesMax);
  const std::uint64_t wanted = std::min(std::max(needed, region().size() + step), region().reserve());
  Status grown = region().grow(wanted);
  if (!grown.ok() && wanted != needed) grown = region().grow(needed);
  return needed <= region().size() ? kOk : grown;  // grow_ahead() may have been faster
}

void Writer::grow_ahead() {
  const std::uint64_t size = region().size();
  const std::uint64_t step = std::min(size / 2, kGrowthBytesMax);
  if (size - std::min(size, words_.count() * kPageBytes) >= step / 2 || size == region().reserve()) return;
  const KeptSentence sentence;  // a commit that needs the pages tries again, and tells
  (void)region().grow(std::min(size + step, region().reserve()));
}

// ---- a commit --------------------------------------------------------------------------------------------------

void Writer::begin(Stamp stamp, bool sure) {
  MEMLITH_ASSERT(!running_ && changing_.empty() && imaged_.empty());
  MEMLITH_ASSERT(stamp > stamp_);
  running_ = undoable_ = true;  // also if this call fails
  stamp_ = stamp;
  begun_ = batch_.mark();
  header_before_ = header();
  newest_snapshot_ = kept_.begin(stamp);
  make_room_in(changing_);
  undoable_ = newest_snapshot_ != 0 || !sure;
}

// A page that the commit makes needs none: without the commit it is not there.
void Writer::save_image(PageNumber page) {
  if (page >= header_before_.pages) return;
  make_room_in(imaged_);
  images_.insert(images_.end(), words_.bytes_of(page), words_.bytes_of(page) + kPageBytes);
  imaged_.push_back(page);
}

std::byte* Writer::change(PageNumber page) {
  const std::uint64_t word = words_.own_word(page);
  if ((word & 1) != 0) return words_.at(page);
  const Stamp before = std::max(word >> 1, kCheckedStamp);
  MEMLITH_ASSERT(running_ && before < stamp_);
  MEMLITH_ASSERT(page != kHeaderPage && page < own_header().pages);
  // ORDER image-before-change: whatever fails for lack of memory fails before the page is changed, or can be undone.
  // [test KvOutOfMemory.ACommitIsUndoneAndTheStoreGoesOn]
  if (undoable_) save_image(page);
  make_room_in(changing_);
  if (before <= newest_snapshot_) {
    kept_.keep(page, before, stamp_);
  } else {
    words_.begin_change(page, stamp_);
  }
  changing_.push_back(page);
  if (logs_ && !words_.is_shared()) region().note_copied({page * kPageBytes, kPageBytes});
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence in Words::confirmed()
  return words_.at(page);
}

void Writer::note(PageNumber page, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || !logs_) return;
  MEMLITH_ASSERT(offset < kPageBytes && bytes <= kPageBytes - offset);
  MEMLITH_ASSERT(words_.own_word(page) == (stamp_ << 1 | 1));
  batch_.add(region().object(), page * kPageBytes + offset, words_.bytes_of(page) + offset, bytes);
}

PageNumber Writer::allocate() {
  StoreHeader& header = own_header();
  PageNumber page = header.free_head;
  if (page != 0) {
    MEMLITH_ASSERT(header.free_pages > 0 && chain_of(words_.bytes_of(page)).kind == PageKind::free);  // see make_room()
    (void)change(page);
    header.free_head = chain_of(words_.bytes_of(page)).next;
    --header.free_pages;
    return page;
  }
  page = header.pages++;
  MEMLITH_ASSERT(header.pages * kPageBytes <= region().size());
  (void)change(page);
  words_.set_count(header.pages);
  return page;
}

void Writer::free(PageNumber page) {
  MEMLITH_ASSERT(page > kCatalogue);  // the header and the catalogue stay
  StoreHeader& header = own_header();
  if (chain_of(words_.bytes_of(page)).kind == PageKind::free) return;  // two trees or values of a damaged file have it
  std::byte* const bytes = change(page);
  const ChainHeader chain{page, PageKind::free, 0, 0, header.free_head, 0};
  std::memcpy(bytes, &chain, sizeof chain);
  note(page, 0, sizeof chain);
  header.free_head = page;
  ++header.free_pages;
}

void Writer::note_removing(PageNumber root) { own_header().removing = root; }

void Writer::count_records(std::int64_t more) { own_header().records += static_cast<std::uint64_t>(more); }

// The words of the pages go on to the stamp of this commit: a reader that saw half of a change must not find the word
// that it had before.
void Writer::undo() {
  MEMLITH_ASSERT(running_ && undoable_ && images_.size() == imaged_.size() * kPageBytes);
  for (std::size_t i = 0; i < imaged_.size(); ++i) {
    std::memcpy(words_.at(imaged_[i]), images_.data() + i * kPageBytes, kPageBytes);
    words_.tag_all(imaged_[i]);
  }
  batch_.undo_to(begun_);
  own_header() = header_before_;
  words_.set_count(header_before_.pages);
}

void Writer::end(std::uint64_t commit) {
  MEMLITH_ASSERT(running_ && commit == header_before_.commits + 1);
  running_ = false;
  own_header().commits = commit;
  // ORDER header-in-each-frame: the log may take the batch in several frames, and a crash may leave the first of them.
  // The header has to be that of its last commit. [mutant kv_frame_without_header]
  if (batch_.uncut_bytes() >= cut_bytes_) cut_batch();
  for (const PageNumber page : changing_) words_.end_change(page, stamp_);
  changing_.clear();
  imaged_.clear();
  images_.clear();
  if (images_.capacity() > kImageBytesKept) std::vector<std::byte>().swap(images_);
  kept_.publish(stamp_);
}

// A commit that changed no page leaves its number, too, which would be given to another commit after a crash.
void Writer::cut_batch() {
  MEMLITH_ASSERT(!running_);
  const std::uint64_t newest = header().commits;
  MEMLITH_ASSERT(cut_commit_ <= newest);
  if (!logs_ || (batch_.ends_in_cut() && cut_commit_ == newest)) return;
  cut_commit_ = newest;
  reserve_batch(0, 0);
  batch_.add(region().object(), kHeaderOffset, header_bytes(), sizeof(StoreHeader));
  batch_.cut(newest);
}

}  // namespace memlith::core::kv
