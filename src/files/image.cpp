#include "files/image.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/bytes.hpp"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#endif

namespace memlith::core {

namespace {

constexpr std::uint64_t kCopyBytes = 1 * kMiB;
constexpr std::uint64_t kMappedBytesWanted = 1ull << 40;
constexpr std::uint64_t kMappedBytesLeast = 1 * kGiB;
constexpr std::uint64_t kTwinnedBytes = 64 * kMiB;
constexpr std::uint64_t kExtentBytesMax = 1 * kGiB;

// Memory that the machine can give without swapping; no limit if the kernel does not say.
std::uint64_t memory_available() {
  const std::string text = text_of("/proc/meminfo");
  const auto kib_of = [&text](const char* name, unsigned long long otherwise) {
    const std::size_t found = text.find(name);
    return found == text.npos ? otherwise : std::strtoull(&text[found + std::strlen(name)], nullptr, 10);
  };
  if (text.empty()) return kWholeFile;
  const unsigned long long available = kib_of("MemAvailable:", kWholeFile / kKiB);
  const unsigned long long swap = kib_of("SwapFree:", 0);
  return (available + swap) * kKiB;
}

Status transfer(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::uint64_t count) {
  while (count > 0) {
    const ssize_t done = write ? ::pwrite(fd, bytes, count, static_cast<off_t>(offset))
                               : ::pread(fd, bytes, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail_errno(errno, Detail::mapping, "cannot {} the working image", write ? "write" : "read");
    if (done == 0) break;
    offset += static_cast<std::uint64_t>(done);
    bytes += done;
    count -= static_cast<std::uint64_t>(done);
  }
  std::memset(bytes, 0, write ? 0 : count);  // beyond the end
  return kOk;
}

void cut_off(std::vector<Range>& ranges, std::uint64_t end) {
  while (!ranges.empty() && ranges.back().offset + ranges.back().bytes > end) {
    if (ranges.back().offset >= end) {
      ranges.pop_back();
    } else {
      ranges.back().bytes = end - ranges.back().offset;
    }
  }
}

}  // namespace

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<FileImage>> FileImage::open(Store& store, std::uint64_t ahead_bytes_min, Descriptor memory,
                                                   bool is_equal) {
  auto image = std::unique_ptr<FileImage>(new FileImage(store, ahead_bytes_min));
  MEMLITH_TRY(image->load(std::move(memory), is_equal));
  return image;
}

// Zeros take no memory.
Result<Descriptor> FileImage::make_memory(const std::string& path, std::uint64_t bytes, const Reader& read) {
  if (const std::uint64_t available = memory_available(); bytes > available) {
    return fail(Errc::no_memory, Detail::mapping,
                "{}: the file has {} bytes, and its working image has to fit into memory, of which {} bytes are "
                "available; add memory or swap space, or use the file without memlith",
                path, bytes, available);
  }
  Descriptor memory(above_standard(::memfd_create("memlith", MFD_CLOEXEC)));
  if (memory.get() < 0) return fail_errno(errno, Detail::mapping, "cannot make a working image in memory");
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, Detail::mapping, "cannot make a working image of {} bytes", bytes);
  }
  MEMLITH_ASSERT(memory.get() > STDERR_FILENO);  // a program may close the standard descriptors
  std::vector<std::byte> piece(std::min(kCopyBytes, bytes));
  for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - at));
    MEMLITH_TRY(read(at, part));
    if (!is_zero(part)) MEMLITH_TRY(transfer(true, memory.get(), at, part.data(), part.size()));
  }
  return memory;
}

Result<Descriptor> FileImage::read_file(Device& file) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, file.size());
  return make_memory(file.path(), bytes,
                     [&file](std::uint64_t offset, std::span<std::byte> target) { return file.read(offset, target); });
}

Status FileImage::load(Descriptor memory, bool is_equal) {
  const LockGuard lock(mutex_);
  const std::optional<ObjectInfo> info = store_.find("file");
  MEMLITH_ASSERT(base_ == nullptr && committed_lsn_ == nullptr);
  if (!store_.one_file() || store_.read_only() || !info.has_value()) {
    return fail(Errc::invalid, Detail::argument, "{}: not a file that is open for writing", store_.path());
  }
  committed_bytes_ = longest_bytes_ = reserved_bytes_ = info->size_bytes;
  committed_lsn_ = store_.committed_lsn(kFile);
  last_lsn_ = Lsn{committed_lsn_->load()};
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  MEMLITH_TRY_ASSIGN(twins_, Twins::make(kTwinnedBytes));
  if (memory.get() >= 0) {
    memory_ = std::move(memory);
    suspect_ = !is_equal;
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
    return map(size);
  }
  const Reader read_home = [this](std::uint64_t offset, std::span<std::byte> target) {
    return store_.read_home_into(kFile, offset, target);
  };
  MEMLITH_TRY_ASSIGN(memory_, make_memory(store_.path(), committed_bytes_, read_home));
  return map(committed_bytes_);
}

FileImage::~FileImage() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

// Reserves addresses for growth: they cost nothing until they are read.
Status FileImage::map(std::uint64_t size_bytes) {
  if (size_bytes <= mapped_bytes_) return kOk;
  MEMLITH_ASSERT((base_ == nullptr) == (mapped_bytes_ == 0));
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
  base_ = nullptr;
  mapped_bytes_ = 0;
  const std::uint64_t least = std::max(round_up(size_bytes, kPageBytes), kMappedBytesLeast);
  for (std::uint64_t bytes = std::max(kMappedBytesWanted, 2 * least);; bytes = std::max(bytes / 4, least)) {
    void* const got = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
    if (got != MAP_FAILED) {
      base_ = static_cast<std::byte*>(got);
      mapped_bytes_ = bytes;
      MEMLITH_ASSERT(mapped_bytes_ >= size_bytes);
      return kOk;
    }
    if (bytes == least) return fail_errno(errno, Detail::mapping, "cannot map {} bytes of the working image", bytes);
  }
}

Result<std::uint64_t> FileImage::length() const {
  struct stat seen{};
  if (::fstat(memory_.get(), &seen) != 0) return fail_errno(errno, Detail::mapping, "cannot look at the working image");
  return static_cast<std::uint64_t>(seen.st_size);
}

std::uint64_t FileImage::committed_bytes() const {
  const LockGuard lock(mutex_);
  return committed_bytes_;
}

// ---- what changed ----------------------------------------------------------------------------------------------

Status FileImage::watch(std::byte* address, std::uint64_t bytes, std::uint64_t offset) {
  const LockGuard lock(mutex_);
  if (watches_ == nullptr) {
    MEMLITH_TRY_ASSIGN(watches_, Watches::make());
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  return watches_->add(address, bytes, offset, size);
}

Status FileImage::unwatch(const std::byte* address, std::uint64_t bytes) {
  const LockGuard lock(mutex_);
  if (watches_ == nullptr) return kOk;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  return watches_->remove(address, bytes, size, changed_);
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
  if (::ftruncate(memory_.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, Detail::mapping, "cannot give the working image {} bytes", bytes);
  }
  shortest_bytes_ = std::min(shortest_bytes_, bytes);
  return kOk;
}

void FileImage::suspect() {
  const LockGuard lock(mutex_);
  suspect_ = true;
}

// Leaves in changed_ all pages that may differ from the last commit, sorted.
Status FileImage::find_changes(std::uint64_t size_bytes) {
  shortest_bytes_ = std::min(shortest_bytes_, size_bytes);
  if (watches_ != nullptr) {
    MEMLITH_TRY_ASSIGN(const bool all_known, watches_->collect(size_bytes, changed_));
    suspect_ = suspect_ || !all_known;
  }
  if (suspect_) MEMLITH_TRY(compare_with_file(size_bytes));
  suspect_ = false;  // what differs is in changed_
  if (const Range gone = cut_off_by_length(size_bytes); gone.bytes > 0) {
    const std::uint64_t begin = round_down(gone.offset, kPageBytes);
    changed_.push_back({begin, gone.offset + gone.bytes - begin});
  }
  if (size_bytes > longest_bytes_) MEMLITH_TRY(add_data(round_down(longest_bytes_, kPageBytes), size_bytes));
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

// Beyond every committed length the file is zeros, and so is what the image has no memory for.
Status FileImage::add_data(std::uint64_t begin, std::uint64_t end) {
  MEMLITH_ASSERT(begin % kPageBytes == 0);
  while (begin < end) {
    const off_t data = ::lseek(memory_.get(), static_cast<off_t>(begin), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return kOk;
    const off_t hole = data < 0 ? -1 : ::lseek(memory_.get(), data, SEEK_HOLE);
    if (hole < 0) return fail_errno(errno, Detail::mapping, "cannot look for data in the working image");
    const std::uint64_t until = std::min(static_cast<std::uint64_t>(hole), end);
    if (static_cast<std::uint64_t>(data) < until) {
      changed_.push_back({static_cast<std::uint64_t>(data), until - static_cast<std::uint64_t>(data)});
    }
    begin = static_cast<std::uint64_t>(hole);
  }
  return kOk;
}

Status FileImage::compare_with_file(std::uint64_t size_bytes) {
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  return find_differences(std::min(size_bytes, committed_bytes_), changed_);
}

Result<bool> FileImage::is_as_told() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(store_.bring_all_home());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
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
    MEMLITH_TRY(transfer(false, memory_.get(), at, now.data(), count));
    for (std::uint64_t page = 0; page < count; page += kPageBytes) {
      if (std::memcmp(&home[page], &now[page], std::min(kPageBytes, count - page)) != 0) {
        found.push_back({at + page, kPageBytes});
      }
    }
  }
  return kOk;
}

// Divides changed_ into what lies in the range and what does not.
void FileImage::choose(Range range, std::uint64_t size_bytes) {
  chosen_.clear();
  left_.clear();
  const std::uint64_t begin = round_down(range.offset, kPageBytes);
  const std::uint64_t end = range.bytes >= size_bytes - std::min(size_bytes, begin)
                                ? size_bytes
                                : round_up(range.offset + range.bytes, kPageBytes);
  for (const Range& each : changed_) {
    const std::uint64_t until = each.offset + each.bytes;
    const std::uint64_t from = std::clamp(begin, each.offset, until);
    const std::uint64_t to = std::clamp(end, from, until);
    MEMLITH_ASSERT(each.bytes > 0 && each.offset <= from && from <= to && to <= until);
    if (each.offset < from) left_.push_back({each.offset, from - each.offset});
    if (from < to) chosen_.push_back({from, to - from});
    if (to < until) left_.push_back({to, until - to});
  }
}

Result<std::uint64_t> FileImage::changed_bytes() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  MEMLITH_TRY(map(size));
  MEMLITH_TRY(find_changes(size));
  std::uint64_t bytes = size != committed_bytes_ ? 1 : 0;
  for (const Range& each : changed_) bytes += each.bytes;
  return bytes;
}

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

Result<Lsn> FileImage::capture(Range range, bool will_sync, bool is_last) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.failure());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, length());
  MEMLITH_TRY(map(size));
  MEMLITH_TRY(find_changes(size));
  if (!changed_.empty() || size != committed_bytes_) MEMLITH_TRY(store_.put_guard());
  MEMLITH_TRY(reserve(size, is_last));
  const bool regrown = cut_off_by_length(size).bytes > 0;
  choose(range, size);
  if (shortest_bytes_ < committed_bytes_) twins_->clear();  // of bytes that were cut off
  const bool nothing = chosen_.empty() && size == committed_bytes_ && !regrown;
  if (nothing) return last_lsn_;  // others may be writing what they captured
  MEMLITH_ASSERT(size <= reserved_bytes_ && size <= mapped_bytes_);
  return append(size, will_sync);
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

Result<Lsn> FileImage::append(std::uint64_t size_bytes, bool will_sync) {
  struct GiveBack {
    Twins* twins;
    ~GiveBack() {
      if (twins != nullptr) twins->give_back();
    }
  } taken{twins_.get()};
  pieces_.clear();
  extents_.clear();
  sources_.clear();
  twins_->reduce(base_, chosen_, nullptr, pieces_);
  add_zeros(cut_off_by_length(size_bytes));
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
  const SizeChange resized{kFile, size_bytes};
  std::span<const SizeChange> sizes{&resized, size_bytes != committed_bytes_ ? std::size_t{1} : 0};
  if (!extents_.empty() || !sizes.empty()) {
    const Lsn before = last_lsn_;
    MEMLITH_TRY_ASSIGN(last_lsn_, store_.commit_weak({extents_, sources_, sizes}, will_sync));
    MEMLITH_ASSERT(last_lsn_ > before);
    committed_lsn_->store(last_lsn_.value);
  }
  taken.twins->accept();
  taken.twins = nullptr;
  changed_.swap(left_);
  committed_bytes_ = size_bytes;
  longest_bytes_ = std::max(longest_bytes_, size_bytes);
  shortest_bytes_ = kWholeFile;
  return last_lsn_;
}

// ---- rollback --------------------------------------------------------------------------------------------------

// Reads the range from the file.
Status FileImage::restore(Range range) {
  MEMLITH_ASSERT(range.bytes > 0);
  std::vector<std::byte> bytes(std::min(kCopyBytes, range.bytes));
  const std::uint64_t end = std::min(range.offset + range.bytes, committed_bytes_);
  for (std::uint64_t at = range.offset; at < end; at += bytes.size()) {
    const auto part = std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), end - at));
    MEMLITH_TRY(store_.read_home_into(kFile, at, part));
    MEMLITH_TRY(transfer(true, memory_.get(), at, part.data(), part.size()));
  }
  return kOk;
}

Status FileImage::rollback(Range range) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.bring_home(last_lsn_));
  const bool whole = range.offset == 0 && range.bytes == kWholeFile;
  MEMLITH_TRY_ASSIGN(std::uint64_t size, length());
  MEMLITH_TRY(find_changes(size));
  if (whole && size != committed_bytes_) {
    if (::ftruncate(memory_.get(), static_cast<off_t>(committed_bytes_)) != 0) {
      return fail_errno(errno, Detail::mapping, "cannot put the working image back to {} bytes", committed_bytes_);
    }
    if (size < committed_bytes_)
      changed_.push_back({round_down(size, kPageBytes), committed_bytes_ - size + kPageBytes});
    normalize(changed_);
    size = committed_bytes_;
    cut_off(changed_, size);
  }
  choose(range, size);
  for (const Range& each : chosen_) {
    MEMLITH_TRY(restore(each));
    const std::uint64_t beyond = std::max(each.offset, committed_bytes_);
    if (beyond >= each.offset + each.bytes) continue;
    std::vector<std::byte> zeros(std::min(kCopyBytes, each.offset + each.bytes - beyond));
    for (std::uint64_t at = beyond; at < each.offset + each.bytes; at += zeros.size()) {
      MEMLITH_TRY(transfer(true, memory_.get(), at, zeros.data(),
                           std::min<std::uint64_t>(zeros.size(), each.offset + each.bytes - at)));
    }
  }
  changed_.swap(left_);
  if (whole) shortest_bytes_ = kWholeFile;
  return kOk;
}

}  // namespace memlith::core
