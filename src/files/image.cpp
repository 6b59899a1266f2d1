#include "files/image.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace memlith::core {

namespace {

constexpr std::uint64_t kCopyBytes = 1 * kMiB;
constexpr std::uint64_t kTwinnedBytes = 64 * kMiB;

void cut_off(std::vector<Range>& ranges, std::uint64_t end) {
  while (!ranges.empty() && ranges.back().offset + ranges.back().bytes > end) {
    if (ranges.back().offset >= end) {
      ranges.pop_back();
    } else {
      ranges.back().bytes = end - ranges.back().offset;
    }
  }
}

// A memory has collected, and gives back what is not kept.
struct Collected {
  ImageMemory* memory;
  explicit Collected(ImageMemory* of) : memory(of) {}
  ~Collected() {
    if (memory != nullptr) memory->give_back();
  }
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;
  void keep(Range part) { std::exchange(memory, nullptr)->keep(part); }
};

}  // namespace

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<FileImage>> FileImage::open(Store& store, std::uint64_t ahead_bytes_min, Descriptor memory,
                                                   bool is_equal) {
  auto image = std::unique_ptr<FileImage>(new FileImage(store, ahead_bytes_min));
  MEMLITH_TRY(image->load(std::move(memory), is_equal));
  return image;
}

Result<std::unique_ptr<FileImage>> FileImage::open_private(Store& store, const Room& room,
                                                           std::uint64_t ahead_bytes_min) {
  auto image = std::unique_ptr<FileImage>(new FileImage(store, ahead_bytes_min));
  MEMLITH_TRY(image->load_private(room));
  return image;
}

Result<Descriptor> FileImage::read_file(Device& file) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, file.size());
  return MemfdMemory::read_into_memory(file.path(), bytes, [&file](std::uint64_t offset, std::span<std::byte> target) {
    return file.read(offset, target);
  });
}

Result<ObjectInfo> FileImage::begin() {
  const std::optional<ObjectInfo> info = store_.find("file");
  MEMLITH_ASSERT(memory_ == nullptr && committed_lsn_ == nullptr);
  if (!store_.one_file() || store_.read_only() || !info.has_value()) {
    return fail(Errc::invalid, Detail::argument, "{}: not a file that is open for writing", store_.path());
  }
  committed_bytes_ = longest_bytes_ = reserved_bytes_ = info->size_bytes;
  committed_lsn_ = store_.committed_lsn(kFile);
  last_lsn_ = Lsn{committed_lsn_->load()};
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  MEMLITH_TRY_ASSIGN(twins_, Twins::make(kTwinnedBytes));
  return *info;
}

Status FileImage::load(Descriptor memory, bool is_equal) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(begin().status());
  suspect_ = memory.get() >= 0 && !is_equal;
  if (memory.get() < 0) {
    const MemfdMemory::Reader read_home = [this](std::uint64_t offset, std::span<std::byte> target) {
      return store_.read_home_into(kFile, offset, target);
    };
    MEMLITH_TRY_ASSIGN(memory, MemfdMemory::read_into_memory(store_.path(), committed_bytes_, read_home));
  }
  auto made = std::make_unique<MemfdMemory>(std::move(memory));
  memfd_ = made.get();
  memory_ = std::move(made);
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, memory_->length());
  return memory_->reach(size);
}

Status FileImage::load_private(const Room& room) {
  const LockGuard lock(mutex_);
  auto begun = begin();
  if (!begun.ok()) {
    release_addresses(room.address, room.bytes);
    return begun.error();
  }
  begun->address = room.address;
  begun->reserve_bytes = room.bytes;
  MEMLITH_TRY_ASSIGN(auto made, PrivateMemory::make(store_, *begun));
  private_ = made.get();
  memory_ = std::move(made);
  budget_.emplace(0);
  return kOk;
}

std::uint64_t FileImage::committed_bytes() const {
  const LockGuard lock(mutex_);
  return committed_bytes_;
}

// ---- what changed ----------------------------------------------------------------------------------------------

Status FileImage::watch(std::byte* address, std::uint64_t bytes, std::uint64_t offset) {
  const LockGuard lock(mutex_);
  return memfd_->watch(address, bytes, offset);
}

Status FileImage::unwatch(const std::byte* address, std::uint64_t bytes) {
  const LockGuard lock(mutex_);
  return memfd_->unwatch(address, bytes, changed_);
}

Status FileImage::note(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return kOk;
  const LockGuard lock(mutex_);
  const std::uint64_t begin = round_down(offset, kPageBytes);
  const std::uint64_t end = round_up(offset + bytes, kPageBytes);
  if (!changed_.empty() && changed_.back().offset <= begin && begin <= changed_.back().offset + changed_.back().bytes) {
    changed_.back().bytes = std::max(changed_.back().bytes, end - changed_.back().offset);
    return kOk;
  }
  if (changed_.size() == changed_.capacity() && changed_.size() >= 1024) normalize(changed_);
  changed_.push_back({begin, end - begin});
  return kOk;
}

Status FileImage::cut(std::uint64_t bytes) {
  const LockGuard lock(mutex_);
  if (memory_->lies_on_file()) {
    MEMLITH_TRY(store_.check_process());
    MEMLITH_TRY(store_.failure());
    // ORDER guard-before-growth: a copy of the file that has grown, and lacks what is committed next, is marked.
    // [mutant growth_before_guard]
    if (bytes > reserved_bytes_) MEMLITH_TRY(store_.put_guard());
    MEMLITH_TRY(reserve(bytes, false));
  }
  MEMLITH_TRY(memory_->set_length(bytes, longest_bytes_));
  shortest_bytes_ = std::min(shortest_bytes_, bytes);
  return kOk;
}

void FileImage::suspect() {
  const LockGuard lock(mutex_);
  suspect_ = true;
}

// Leaves in changed_ all pages that may differ from the last commit, sorted. A Collected is there.
Status FileImage::find_changes(std::uint64_t size_bytes) {
  shortest_bytes_ = std::min(shortest_bytes_, size_bytes);
  MEMLITH_TRY_ASSIGN(const bool all_known, memory_->collect(size_bytes, changed_));
  suspect_ = suspect_ || !all_known;
  if (suspect_) MEMLITH_TRY(compare_with_file(size_bytes));
  suspect_ = false;  // what differs is in changed_
  if (const Range gone = cut_off_by_length(size_bytes); gone.bytes > 0) {
    const std::uint64_t begin = round_down(gone.offset, kPageBytes);
    changed_.push_back({begin, gone.offset + gone.bytes - begin});
  }
  if (size_bytes > longest_bytes_) {
    MEMLITH_TRY(memory_->add_data(round_down(longest_bytes_, kPageBytes), size_bytes, changed_));
  }
  normalize(changed_);
  cut_off(changed_, size_bytes);
  MEMLITH_ASSERT(changed_.empty() || changed_.back().offset + changed_.back().bytes <= size_bytes);
  return kOk;
}

// Ranges that a commit covered once, and that a change of the length has made zeros since, whatever was stored there
// afterwards.
Range FileImage::cut_off_by_length(std::uint64_t size_bytes) const {
  const std::uint64_t begin = std::min(shortest_bytes_, committed_bytes_);
  const std::uint64_t end = std::min(size_bytes, longest_bytes_);
  return {begin, begin < end ? end - begin : 0};
}

Status FileImage::compare_with_file(std::uint64_t size_bytes) {
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  return find_differences(std::min(size_bytes, committed_bytes_), changed_);
}

Result<bool> FileImage::is_as_told() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(store_.bring_all_home());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, memory_->length());
  std::vector<Range> found;
  MEMLITH_TRY(find_differences(std::min(size, committed_bytes_), found));
  normalize(changed_);
  const bool all_told = std::all_of(found.begin(), found.end(), [this](const Range& page) MEMLITH_REQUIRES(mutex_) {
    return std::any_of(changed_.begin(), changed_.end(), [&page](const Range& told) {
      return told.offset <= page.offset && page.offset + page.bytes <= told.offset + told.bytes;
    });
  });
  changed_.insert(changed_.end(), found.begin(), found.end());
  return all_told && size == committed_bytes_;
}

Status FileImage::find_differences(std::uint64_t end, std::vector<Range>& found) {
  MEMLITH_ASSERT(end <= committed_bytes_);
  std::vector<std::byte> home(kCopyBytes);
  std::vector<std::byte> now(kCopyBytes);
  for (std::uint64_t at = 0; at < end; at += kCopyBytes) {
    const std::uint64_t count = std::min(kCopyBytes, end - at);
    MEMLITH_TRY(store_.read_home_into(kFile, at, std::span(home).first(count)));
    MEMLITH_TRY(memory_->read(at, std::span(now).first(count)));
    for (std::uint64_t page = 0; page < count; page += kPageBytes) {
      if (std::memcmp(&home[page], &now[page], std::min(kPageBytes, count - page)) != 0) {
        found.push_back({at + page, kPageBytes});
      }
    }
  }
  return kOk;
}

// Divides changed_ into what lies in the pages of the range, which are returned, and what does not.
Range FileImage::choose(Range range, std::uint64_t size_bytes) {
  chosen_.clear();
  left_.clear();
  const std::uint64_t begin = round_down(range.offset, host_page_bytes());
  const bool to_end = range.bytes >= size_bytes - std::min(size_bytes, begin);
  const std::uint64_t wanted_end = to_end ? size_bytes : round_up(range.offset + range.bytes, host_page_bytes());
  const std::uint64_t end = std::min(wanted_end, memory_->reachable());
  for (const Range& each : changed_) {
    const std::uint64_t until = each.offset + each.bytes;
    const std::uint64_t from = std::clamp(begin, each.offset, until);
    const std::uint64_t to = std::clamp(end, from, until);
    MEMLITH_ASSERT(each.bytes > 0 && each.offset <= from && from <= to && to <= until);
    if (each.offset < from) left_.push_back({each.offset, from - each.offset});
    if (from < to) chosen_.push_back({from, to - from});
    if (to < until) left_.push_back({to, until - to});
  }
  return {begin, to_end ? kWholeFile - begin : wanted_end - begin};
}

Result<std::uint64_t> FileImage::changed_bytes() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, memory_->length());
  MEMLITH_TRY(memory_->reach(size));
  const Collected collected{memory_.get()};
  MEMLITH_TRY(find_changes(size));
  std::uint64_t bytes = size != committed_bytes_ ? 1 : 0;
  for (const Range& each : changed_) bytes += each.bytes;
  return bytes;
}

// ---- rollback --------------------------------------------------------------------------------------------------

Status FileImage::restore_chosen() {
  const auto read = [this](std::uint64_t offset, std::span<std::byte> target) MEMLITH_REQUIRES(mutex_) -> Status {
    const std::uint64_t has = committed_bytes_ - std::min(offset, committed_bytes_);
    const std::size_t count = std::min<std::uint64_t>(target.size(), has);
    if (count > 0) MEMLITH_TRY(store_.read_home_into(kFile, offset, target.first(count)));
    std::memset(target.data() + count, 0, target.size() - count);
    return kOk;
  };
  const std::uint64_t home_end = round_down(committed_bytes_, host_page_bytes());
  for (const Range& each : chosen_) {
    const std::uint64_t end = each.offset + each.bytes;
    const std::uint64_t from = std::clamp(home_end, each.offset, end);
    if (each.offset < from) MEMLITH_TRY(memory_->restore({each.offset, from - each.offset}, read, true));
    if (from < end) MEMLITH_TRY(memory_->restore({from, end - from}, read, false));
  }
  return kOk;
}

Status FileImage::rollback(Range range) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  const bool whole = range.offset == 0 && range.bytes == kWholeFile;
  MEMLITH_TRY_ASSIGN(std::uint64_t size, memory_->length());
  Collected collected{memory_.get()};
  MEMLITH_TRY(find_changes(size));
  if (whole && size != committed_bytes_) {
    MEMLITH_TRY(memory_->set_length(committed_bytes_, longest_bytes_));
    if (size < committed_bytes_)
      changed_.push_back({round_down(size, kPageBytes), committed_bytes_ - size + kPageBytes});
    normalize(changed_);
    size = committed_bytes_;
    cut_off(changed_, size);
  }
  const Range part = choose(range, size);
  MEMLITH_TRY(restore_chosen());
  collected.keep(part);
  changed_.swap(left_);
  if (whole) shortest_bytes_ = kWholeFile;
  return kOk;
}

// ---- memory ----------------------------------------------------------------------------------------------------

Status FileImage::release() {
  Lsn newest;
  {
    const LockGuard lock(mutex_);
    newest = last_lsn_;
  }
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.bring_home(newest));
  const LockGuard lock(mutex_);
  if (store_.home_lsn() < last_lsn_) return kOk;  // another thread has committed since: the next call releases
  twins_->clear();
  return memory_->release();
}

// The commit before was made, whatever happens here.
void FileImage::keep_to_memory() {
  {
    const LockGuard lock(mutex_);
    if (!budget_->used_up(memory_->copied_bytes())) return;
  }
  const KeptSentence sentence;
  (void)release();
}

}  // namespace memlith::core
