// Commits of images: of one file, and of several together.
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "files/image.hpp"
#include "store/common_log.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kExtentBytesMax = 1 * kGiB;

}  // namespace

// ---- commit ----------------------------------------------------------------------------------------------------

// With a reserve, because each growth costs flushes. What no commit made part of the file is cut off at a clean close,
// and by recovery.
Status FileImage::reserve(std::uint64_t size_bytes, bool is_last) {
  if (size_bytes <= reserved_bytes_) return kOk;
  // ORDER growth-before-name: the file is long enough, durably, before a frame names the new length.
  // [mutant home_grown_unflushed]
  std::uint64_t wanted = size_bytes + (is_last ? 0 : std::max(size_bytes / 8, ahead_bytes_min_));
  Status status = store_.reserve_home(kFile, wanted);
  if (status.category == Errc::no_space) {
    wanted = size_bytes;
    status = store_.reserve_home(kFile, wanted);
  }
  MEMLITH_TRY(status);
  MEMLITH_ASSERT(wanted >= size_bytes);
  reserved_bytes_ = wanted;
  return kOk;
}

// The changes of one commit. Gives back what they were taken from, unless the commit is made.
class FileImage::Captured {
 public:
  explicit Captured(FileImage& image) : image_(image) {}
  ~Captured() {
    if (twins_ != nullptr) twins_->give_back();
    if (memory_ != nullptr) memory_->give_back();
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  [[nodiscard]] FileImage& image() const { return image_; }
  [[nodiscard]] bool is_empty() const { return changes.extents.empty() && changes.sizes.empty(); }
  void collect_from(ImageMemory& memory) { memory_ = &memory; }
  void take_twins(Twins& twins) { twins_ = &twins; }
  void keep() {
    if (twins_ != nullptr) std::exchange(twins_, nullptr)->accept();
    std::exchange(memory_, nullptr)->keep(part);
  }

  Range part;         // pages
  SizeChange length;  // of the image
  bool is_any = false;
  Changes changes;
  std::vector<std::byte> bytes;  // of the changes, if the image may change meanwhile

 private:
  FileImage& image_;
  ImageMemory* memory_ = nullptr;
  Twins* twins_ = nullptr;
};

Status FileImage::find(Range range, bool is_last, Captured& captured) {
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.failure());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, memory_->length());
  MEMLITH_TRY(memory_->reach(size));
  captured.length = {kFile, size};
  captured.collect_from(*memory_);
  MEMLITH_TRY(find_changes(size));
  if (!changed_.empty() || size != committed_bytes_) MEMLITH_TRY(store_.put_guard());
  MEMLITH_TRY(reserve(size, is_last));
  const bool regrown = cut_off_by_length(size).bytes > 0;
  captured.part = choose(range, size);
  if (shortest_bytes_ < committed_bytes_) twins_->clear();  // of bytes that were cut off
  captured.is_any = !chosen_.empty() || size != committed_bytes_ || regrown;
  MEMLITH_ASSERT(size <= reserved_bytes_);
  if (captured.is_any) gather(captured);
  return kOk;
}

Result<Lsn> FileImage::capture(Range range, bool will_sync, bool is_last) {
  const LockGuard lock(mutex_);
  Captured captured(*this);
  MEMLITH_TRY(find(range, is_last, captured));
  if (!captured.is_any) return last_lsn_;  // others may be writing what they captured
  Lsn end = last_lsn_;
  if (!captured.is_empty()) {
    MEMLITH_TRY_ASSIGN(end, store_.commit_weak(captured.changes, will_sync));
    MEMLITH_ASSERT(end > last_lsn_);
  }
  note_committed(end, captured);
  return end;
}

// For the pages that the commit does not take.
//
// ORDER zeros-with-length: where the file was cut, its home may still hold older bytes, and the log the order to cut
// it. The commit that makes the file longer again logs what is there now: the image's bytes, or zeros outside of its
// range. [mutant cut_off_bytes_come_back]
void FileImage::add_zeros(Range gone) {
  static constexpr std::array<std::byte, 64 * kKiB> kZeros{};
  for (const Range& each : left_) {
    const std::uint64_t end = std::min(each.offset + each.bytes, gone.offset + gone.bytes);
    for (std::uint64_t at = std::max(each.offset, gone.offset); at < end;) {
      const std::uint64_t bytes = std::min<std::uint64_t>(end - at, kZeros.size());
      pieces_.push_back({{at, bytes}, kZeros.data()});
      at += bytes;
    }
  }
}

void FileImage::gather(Captured& captured) {
  const std::uint64_t size_bytes = captured.length.size_bytes;
  captured.take_twins(*twins_);
  pieces_.clear();
  extents_.clear();
  sources_.clear();
  const Range gone = cut_off_by_length(size_bytes);
  // Where the file was cut, its home may have bytes that a recovery cuts off.
  twins_->reduce(memory_->base(), chosen_, gone.bytes > 0 ? nullptr : memory_->twin_reader(committed_bytes_), pieces_);
  add_zeros(gone);
  for (const SourceExtent& piece : pieces_) {
    std::uint64_t done = 0;
    MEMLITH_ASSERT(piece.range.offset + piece.range.bytes <= size_bytes);
    if (store_.is_guarded() && piece.range.offset < kInUseHeaderBytes) {  // the in-use header is there
      done = std::min(piece.range.bytes, kInUseHeaderBytes - piece.range.offset);
      extents_.push_back({kDirectory, kOwnBytesOffset + piece.range.offset, done});
      sources_.push_back(piece.source);
    }
    for (; done < piece.range.bytes; done += kExtentBytesMax) {
      extents_.push_back({kFile, piece.range.offset + done, std::min(piece.range.bytes - done, kExtentBytesMax)});
      sources_.push_back(piece.source + done);
    }
  }
  MEMLITH_ASSERT(extents_.size() == sources_.size());
  const std::size_t sizes = size_bytes != committed_bytes_ ? 1 : 0;
  captured.changes = {extents_, sources_, {&captured.length, sizes}};
}

void FileImage::note_committed(Lsn end, Captured& captured) {
  if (end != last_lsn_) {
    last_lsn_ = end;
    committed_lsn_->store(last_lsn_.value);
    for (const SourceExtent& piece : pieces_) memory_->note_logged(piece.range, last_lsn_);
  }
  changed_.swap(left_);
  committed_bytes_ = captured.length.size_bytes;
  longest_bytes_ = std::max(longest_bytes_, committed_bytes_);
  shortest_bytes_ = kWholeFile;
  captured.keep();
}

// ---- several files ---------------------------------------------------------------------------------------------

bool FileImage::is_decided(Lsn end) const {
  const LockGuard lock(mutex_);
  return end == decided_lsn_;
}

CommonLog* FileImage::common_log() const {
  const LockGuard lock(mutex_);
  return common_;
}

Status FileImage::commit_together(std::span<const Wanted> wanted, const std::function<Result<CommonLog*>()>& common) {
  std::vector<Wanted> ordered(wanted.begin(), wanted.end());
  std::ranges::sort(ordered, std::less<>(),
                    [](const Wanted& each) { return std::pair(each.image->store_.log().log_id(), each.image); });
  std::vector<KeptLock> locks;
  std::deque<Captured> changed;
  for (const Wanted& each : ordered) {
    FileImage& image = *each.image;
    locks.emplace_back(image.mutex_);
    image.mutex_.assert_held();
    Captured& captured = changed.emplace_back(image);
    MEMLITH_TRY(image.find(each.range, each.is_last, captured));
    // ORDER earlier-before-decision: a crash keeps no commit without those of its files that came before it.
    // [mutant earlier_commits_not_flushed]
    MEMLITH_TRY(image.sync());
    if (!captured.is_empty()) continue;
    if (captured.is_any) image.note_committed(image.last_lsn_, captured);
    changed.pop_back();
  }
  if (changed.size() != 1) {
    if (changed.empty()) return kOk;
    for (;;) {
      MEMLITH_TRY_ASSIGN(CommonLog* const log, common());
      const LockGuard lock(log->mutex());
      if (!log->is_over()) return decide(changed, *log);
    }
  }
  FileImage& image = changed.front().image();
  image.mutex_.assert_held();
  MEMLITH_TRY_ASSIGN(const Lsn end, image.store_.commit_weak(changed.front().changes, true));
  image.note_committed(end, changed.front());
  changed.clear();
  locks.clear();
  return image.store_.sync(end);
}

// With the mutexes of the images and of the log.
Status FileImage::decide(std::deque<Captured>& all, CommonLog& common) {
  for (const Captured& each : all) {
    FileImage& image = each.image();
    image.mutex_.assert_held();
    if (!common.has(image.store_)) MEMLITH_TRY(common.join(image.store_));
    image.common_ = &common;
  }
  const CommonMark mark = common.next_mark();
  std::vector<CommonLog::Part> parts;
  for (Captured& each : all) {
    FileImage& image = each.image();
    image.mutex_.assert_held();
    // ORDER copy-before-decision: the program may go on storing to the image, and the common log and the file's own
    // get the same bytes, because later commits have only what differs from these. [mutant common_bytes_not_copied]
    std::uint64_t bytes = 0;
    for (const Extent& extent : image.extents_) bytes += extent.bytes;
    each.bytes.reserve(bytes);
    for (std::size_t i = 0; i < image.extents_.size(); ++i) {
      const std::byte* const source = std::exchange(image.sources_[i], each.bytes.data() + each.bytes.size());
      each.bytes.insert(each.bytes.end(), source, source + image.extents_[i].bytes);
    }
    image.extents_.push_back(kCommonMarkExtent);
    image.sources_.push_back(reinterpret_cast<const std::byte*>(&mark));
    each.changes = {image.extents_, image.sources_, each.changes.sizes};
    MEMLITH_TRY(image.store_.prepare_commit(each.changes));
    const std::size_t count = image.extents_.size() - 1;
    parts.push_back({image.store_.log().log_id(),
                     {each.changes.extents.first(count), each.changes.sources.first(count), each.changes.sizes}});
  }
  MEMLITH_TRY(common.commit(parts));
  for (Captured& each : all) {
    FileImage& image = each.image();
    image.mutex_.assert_held();
    const auto end = image.store_.commit_weak(each.changes, false);
    if (!end.ok()) {
      common.poison(end.error());
      return end.error();
    }
    image.note_committed(*end, each);
    image.decided_lsn_ = *end;
  }
  return kOk;
}

}  // namespace memlith::core
