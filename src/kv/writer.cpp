#include "kv/writer.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kCutBytesMax = 64 * kKiB;
constexpr std::size_t kImagesKept = 4;  // blocks of them, of a commit that has ended
constexpr std::uint64_t kCommitsMax = std::uint64_t{1} << 62;
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
  read_partly_ = true;
  return kOk;
}

// ---- a commit --------------------------------------------------------------------------------------------------

void Writer::begin(Stamp stamp, bool sure) {
  MEMLITH_ASSERT(!running_ && changing_.empty() && imaged_.empty());
  MEMLITH_ASSERT(stamp > stamp_ && uses_.empty());
  joins_ = 0;
  running_ = undoable_ = true;  // also if this call fails
  stamp_ = stamp;
  begun_ = batch_.mark();
  header_before_ = header();
  newest_snapshot_ = kept_.begin(stamp);
  make_room_in(changing_);
  undoable_ = newest_snapshot_ != 0 || !sure;
  for (std::uint64_t i = 0; i < kBroughtBackMax && newest_snapshot_ == 0; ++i) {
    make_room_in(changing_);
    const std::optional<PageNumber> back = kept_.bring_back(stamp);
    if (!back.has_value()) break;
    changing_.push_back(*back);
    note_copied(*back, 1);
  }
}

void Writer::note_copied(PageNumber first, std::uint64_t pages) {
  if (logs_ && !words_.is_shared()) region().note_copied({first * kPageBytes, pages * kPageBytes});
}

// A page that the commit makes needs none: without the commit it is not there.
void Writer::save_image(PageNumber page) {
  if (page >= header_before_.pages) return;
  make_room_in(imaged_);
  if (imaged_.size() == images_.size() * kImagesTogether) {
    images_.push_back(std::make_unique_for_overwrite<std::byte[]>(kImagesTogether * kPageBytes));
  }
  std::memcpy(image(imaged_.size()), words_.bytes_of(page), kPageBytes);
  imaged_.push_back(page);
}

std::byte* Writer::change(PageNumber page, bool of_snapshots) {
  const std::uint64_t word = words_.own_word(page);
  if ((word & 1) != 0) return words_.at(page);
  const Stamp before = std::max(word >> 1, kCheckedStamp);
  MEMLITH_ASSERT(running_ && before < stamp_);
  MEMLITH_ASSERT(page != kHeaderPage && page < own_header().pages);
  // ORDER image-before-change: whatever fails for lack of memory fails before the page is changed, or can be undone.
  // [test KvOutOfMemory.ACommitIsUndoneAndTheStoreGoesOn]
  if (undoable_) save_image(page);
  make_room_in(changing_);
  if (of_snapshots && before <= newest_snapshot_) {
    kept_.keep(page, before, stamp_);
  } else {
    words_.begin_change(page, stamp_);
  }
  changing_.push_back(page);
  note_copied(page, 1);
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence in Words::confirmed()
  return words_.at(page);
}

void Writer::note(PageNumber page, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || !logs_) return;
  MEMLITH_ASSERT(page * kPageBytes + offset + bytes <= own_header().pages * kPageBytes);
  MEMLITH_ASSERT(words_.own_word(page) == (stamp_ << 1 | 1));
  batch_.add(region().object(), page * kPageBytes + offset, words_.bytes_of(page) + offset, bytes);
}

void Writer::note_removing(PageNumber root) { own_header().removing = root; }

void Writer::count_records(std::int64_t more) { own_header().records += static_cast<std::uint64_t>(more); }

// The words of the pages go on to the stamp of this commit: a reader that saw half of a change must not find the word
// that it had before.
void Writer::undo() {
  MEMLITH_ASSERT(running_ && undoable_);
  for (std::size_t i = 0; i < imaged_.size(); ++i) std::memcpy(words_.at(imaged_[i]), image(i), kPageBytes);
  for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
    words_.set_use(use->first, 1, use->before);
    words_.set_use(use->first + 1, use->pages - 1, use->before == PageUse::other ? PageUse::other : PageUse::inside);
  }
  for (const PageNumber page : imaged_) {
    if (words_.use(page) == PageUse::own) words_.tag_all(page);
  }
  read_partly_ = true;
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
  uses_.clear();
  imaged_.clear();
  if (images_.size() > kImagesKept) images_.resize(kImagesKept);
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
