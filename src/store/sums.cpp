#include "store/sums.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "base/checksum.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kPageBytesOfHome = kSumsPerPage * kSummedBytes;

std::uint64_t file_bytes_for(std::uint64_t home_bytes) {
  const std::uint64_t pages = (home_bytes + kPageBytesOfHome - 1) / kPageBytesOfHome;
  return sizeof(SumsHeader) + pages * sizeof(SumsPage);
}

}  // namespace

std::uint32_t sum_of_block(ObjectId object, std::uint64_t offset, std::span<const std::byte> block) {
  if (is_zero(block)) return 0;
  const std::uint64_t place = std::uint64_t{object.value} << 40 ^ offset;
  return std::clamp(static_cast<std::uint32_t>(checksum(block, place)), std::uint32_t{1}, kSumUnknown - 1);
}

// ---- one file --------------------------------------------------------------------------------------------------

Result<std::unique_ptr<SumsFile>> SumsFile::make(Volume& volume, const std::string& name, std::uint64_t log_id,
                                                 ObjectId object, Home home) {
  MEMLITH_TRY_ASSIGN(const bool left_over, volume.exists(name));
  if (left_over) MEMLITH_TRY(volume.remove(name));
  MEMLITH_TRY_ASSIGN(auto made, volume.open(name, OpenMode::create, Caching::buffered));
  SumsHeader header{};
  header.magic = kSumsMagic;
  header.log_id = log_id;
  header.object = object.value;
  header.began_as_zeros = static_cast<std::uint32_t>(home);
  header.checksum = header_checksum(header, log_id);
  MEMLITH_TRY(made->reserve(sizeof header));
  MEMLITH_TRY(made->write(0, std::as_bytes(std::span(&header, 1))));
  auto file = std::unique_ptr<SumsFile>(new SumsFile(std::move(made), log_id, object, home));
  file->flushed_ = false;
  return file;
}

Result<std::unique_ptr<SumsFile>> SumsFile::open(Volume& volume, const std::string& name, std::uint64_t log_id,
                                                 ObjectId object, OpenMode mode) {
  auto opened = volume.open(name, mode, Caching::buffered);
  if (!opened.ok() && opened.error().category == Errc::not_found) return std::unique_ptr<SumsFile>();
  MEMLITH_TRY(opened.status());
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, (*opened)->size());
  SumsHeader header;
  if (size < sizeof header) return std::unique_ptr<SumsFile>();
  const bool counts = (*opened)->read(0, std::as_writable_bytes(std::span(&header, 1))).ok() &&
                      header.magic == kSumsMagic && header.log_id == log_id && header.object == object.value &&
                      header.began_as_zeros <= 1 && header.checksum == header_checksum(header, log_id);
  if (!counts) return std::unique_ptr<SumsFile>();
  const Home home = header.began_as_zeros != 0 ? Home::zeros : Home::unknown;
  return std::unique_ptr<SumsFile>(new SumsFile(std::move(*opened), log_id, object, home));
}

std::uint64_t SumsFile::seed(std::uint64_t number) const {
  return log_id_ ^ std::uint64_t{object_.value} << 40 ^ number;
}

Status SumsFile::turn_to(std::uint64_t number) {
  if (number == number_) return kOk;
  MEMLITH_TRY(write());
  MEMLITH_ASSERT(!changed_ && number != kNoPage);
  number_ = kNoPage;
  const std::uint64_t offset = sizeof(SumsHeader) + number * sizeof(SumsPage);
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device_->size());
  page_ = {};
  // Sums that cannot be read are as good as missing: sums are never a reason to refuse a store.
  const bool missing =
      offset + sizeof page_ > size || !device_->read(offset, std::as_writable_bytes(std::span(&page_, 1))).ok();
  number_ = number;
  const bool never_written = is_zero(std::as_bytes(std::span(&page_, 1)));
  const bool torn = !never_written && page_.checksum != header_checksum(page_, seed(number));
  if (missing || (never_written && home_ == Home::unknown) || torn) {
    std::fill(std::begin(page_.sums), std::end(page_.sums), kSumUnknown);
  }
  return kOk;
}

Result<std::uint32_t> SumsFile::get(std::uint64_t offset) {
  MEMLITH_ASSERT(offset % kSummedBytes == 0);
  const std::uint64_t block = offset / kSummedBytes;
  MEMLITH_TRY(turn_to(block / kSumsPerPage));
  return page_.sums[block % kSumsPerPage];
}

Status SumsFile::set(std::uint64_t offset, std::uint32_t sum) {
  MEMLITH_ASSERT(offset % kSummedBytes == 0);
  const std::uint64_t block = offset / kSummedBytes;
  MEMLITH_TRY(turn_to(block / kSumsPerPage));
  if (page_.sums[block % kSumsPerPage] == sum) return kOk;
  page_.sums[block % kSumsPerPage] = sum;
  changed_ = true;
  return kOk;
}

Result<SumsFile::Verdict> SumsFile::judge(std::uint64_t offset, std::span<const std::byte> block) {
  MEMLITH_TRY_ASSIGN(const std::uint32_t known, get(offset));
  if (known == kSumUnknown) return Verdict::unknown;
  return known == sum_of_block(object_, offset, block) ? Verdict::right : Verdict::wrong;
}

Status SumsFile::reserve(std::uint64_t home_bytes) {
  const std::uint64_t wanted = file_bytes_for(home_bytes);
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device_->size());
  return size < wanted ? device_->reserve(wanted) : kOk;
}

Status SumsFile::fit(std::uint64_t home_bytes) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device_->size());
  MEMLITH_TRY(reserve(home_bytes));
  MEMLITH_TRY(device_->fill_holes());
  if (home_ == Home::unknown) return kOk;
  const std::uint64_t pages = (file_bytes_for(home_bytes) - sizeof(SumsHeader)) / sizeof(SumsPage);
  MEMLITH_ASSERT(size >= sizeof(SumsHeader));
  for (std::uint64_t number = (size - sizeof(SumsHeader)) / sizeof(SumsPage); number < pages; ++number) {
    MEMLITH_TRY(turn_to(number));
    std::fill(std::begin(page_.sums), std::end(page_.sums), kSumUnknown);
    changed_ = true;
  }
  return write();
}

Status SumsFile::write() {
  if (!std::exchange(changed_, false)) return kOk;
  MEMLITH_ASSERT(number_ != kNoPage);
  flushed_ = false;
  page_.checksum = header_checksum(page_, seed(number_));
  return device_->write(sizeof(SumsHeader) + number_ * sizeof(SumsPage), std::as_bytes(std::span(&page_, 1)));
}

Status SumsFile::flush() {
  MEMLITH_TRY(write());
  if (std::exchange(flushed_, true)) return kOk;
  return device_->flush();
}

// ---- those of a store ------------------------------------------------------------------------------------------

void Sums::begin(bool makes, bool was_clean, std::uint64_t log_id) {
  const LockGuard lock(mutex_);
  makes_ = makes;
  found_flushed_ = was_clean;
  log_id_ = log_id;
}

// Found by its name at most once, while the store is opened: later the process may have given up the right to do so.
Result<SumsFile*> Sums::find(ObjectId object) {
  if (object == kDirectory || !names_.file.empty()) return static_cast<SumsFile*>(nullptr);
  if (const auto found = files_.find(object); found != files_.end()) return found->second.get();
  MEMLITH_TRY_ASSIGN(auto file, SumsFile::open(volume_, names_.sums(object), log_id_, object, OpenMode::read_write));
  // ORDER found-sums-before-tail: a process that was killed may have written sums and not flushed them. A recovery that
  // finds them right frees the frames. [test Rot.NothingIsAccusedAfterAPowerCut]
  if (file != nullptr && !found_flushed_) file->flush_again();
  return (files_[object] = std::move(file)).get();
}

Status Sums::make(ObjectId object, std::uint64_t home_bytes) {
  const LockGuard lock(mutex_);
  files_[object] = nullptr;
  if (!makes_) return kOk;
  const auto make_file = [&]() MEMLITH_REQUIRES(mutex_) -> Status {
    MEMLITH_TRY_ASSIGN(auto file, SumsFile::make(volume_, names_.sums(object), log_id_, object, SumsFile::Home::zeros));
    MEMLITH_TRY(file->reserve(home_bytes));
    MEMLITH_TRY(file->flush());
    files_[object] = std::move(file);
    return kOk;
  };
  const Status made = make_file();
  if (!made.ok()) {
    const KeptSentence why;
    (void)volume_.remove(names_.sums(object));
  }
  return made;
}

Status Sums::keep(ObjectId object, std::uint64_t home_bytes) {
  const LockGuard lock(mutex_);
  SumsFile* file = nullptr;
  MEMLITH_TRY_ASSIGN(file, find(object));
  const std::string name = names_.sums(object);
  Status status = kOk;
  if (file == nullptr && makes_) {
    auto made = SumsFile::make(volume_, name, log_id_, object, SumsFile::Home::unknown);
    status = made.status();
    if (made.ok()) file = (files_[object] = std::move(*made)).get();
  }
  if (file != nullptr) {
    unflushed_[object] = file;
    status = file->fit(home_bytes);
  }
  if (status.ok() || (status.category != Errc::no_space && status.category != Errc::permission)) return status;
  // There is no room for sums. The store can be used without them, but then none that are out of date may be left.
  // ORDER removal-before-tail: the folder is flushed before a checkpoint could leave them behind. [test
  // Rot.AFullDiskLeavesNoChecksums]
  unflushed_.erase(object);
  files_[object] = nullptr;
  MEMLITH_TRY(volume_.remove(name));
  return volume_.sync_folder("objects");
}

Status Sums::reserve(ObjectId object, std::uint64_t home_bytes) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(SumsFile* const file, find(object));
  return file != nullptr ? file->reserve(home_bytes) : kOk;
}

Status Sums::remove(ObjectId object) {
  const LockGuard lock(mutex_);
  const auto found = files_.find(object);
  const bool there = found != files_.end() && found->second != nullptr;
  unflushed_.erase(object);
  files_.erase(object);
  return there ? volume_.remove(names_.sums(object)) : kOk;
}

Status Sums::note(ObjectId object, Device& home, const Overlay& overlay) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(SumsFile* const file, find(object));
  if (file == nullptr) return kOk;
  unflushed_[object] = file;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home.size());
  std::array<std::byte, kSummedBytes> whole;
  std::uint64_t read = ~std::uint64_t{0};  // the block that was read last
  MEMLITH_TRY(overlay.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    const std::uint64_t end = std::min(size, offset + bytes.size());
    for (std::uint64_t block = round_down(offset, kSummedBytes); block < end; block += kSummedBytes) {
      if (block == read) continue;
      const std::uint64_t block_end = std::min(block + kSummedBytes, size);
      if (offset <= block && block_end <= end) {
        MEMLITH_TRY(file->set(block, sum_of_block(object, block, bytes.subspan(block - offset, block_end - block))));
        continue;
      }
      // Home has the rest of a block that was written in part.
      MEMLITH_ASSERT(block < block_end && block_end - block <= whole.size());
      const std::span<std::byte> rest = std::span(whole).first(block_end - block);
      const bool readable = home.read(block, rest).ok();
      read = block;
      MEMLITH_TRY(file->set(block, readable ? sum_of_block(object, block, rest) : kSumUnknown));
    }
    return kOk;
  }));
  return file->write();
}

Status Sums::flush() {
  const LockGuard lock(mutex_);
  for (const auto& [object, file] : unflushed_) MEMLITH_TRY(file->flush());
  unflushed_.clear();
  return kOk;
}

bool Sums::all_flushed() {
  const LockGuard lock(mutex_);
  return unflushed_.empty();
}

Status Sums::judge(ObjectId object, Device& home, const Visit& visit) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(SumsFile* const file, find(object));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home.size());
  std::vector<std::byte> buffer(std::min<std::uint64_t>(size, 64 * kSummedBytes));
  for (std::uint64_t at = 0; at < size;) {
    const std::span<std::byte> read = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at));
    MEMLITH_TRY(home.read(at, read));
    for (std::uint64_t done = 0; done < read.size(); done += kSummedBytes) {
      const auto block = read.subspan(done, std::min<std::uint64_t>(kSummedBytes, read.size() - done));
      auto verdict = SumsFile::Verdict::unknown;
      if (file != nullptr) {
        MEMLITH_TRY_ASSIGN(verdict, file->judge(at + done, block));
      }
      MEMLITH_TRY(visit(at + done, verdict));
    }
    at += read.size();
  }
  return kOk;
}

Result<std::uint64_t> Sums::complete(ObjectId object, Device& home) {
  std::vector<std::uint64_t> unknown;
  MEMLITH_TRY(judge(object, home, [&unknown](std::uint64_t offset, SumsFile::Verdict verdict) {
    if (verdict == SumsFile::Verdict::unknown) unknown.push_back(offset);
    return kOk;
  }));
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(SumsFile* const file, find(object));
  if (file == nullptr) return std::uint64_t{0};
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home.size());
  std::array<std::byte, kSummedBytes> whole;
  for (const std::uint64_t offset : unknown) {
    const std::span<std::byte> block = std::span(whole).first(std::min(kSummedBytes, size - offset));
    MEMLITH_TRY(home.read(offset, block));
    MEMLITH_TRY(file->set(offset, sum_of_block(object, offset, block)));
  }
  MEMLITH_TRY(file->flush());
  return std::uint64_t{unknown.size()};
}

// ---- those of a new home ---------------------------------------------------------------------------------------

void NewSums::note(std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_ASSERT(sums_.size() == partly_written_.size());
  const std::uint64_t end = offset + bytes.size();
  const std::uint64_t blocks = (end + kSummedBytes - 1) / kSummedBytes;
  if (sums_.size() < blocks) {
    sums_.resize(blocks);
    partly_written_.resize(blocks);
  }
  for (std::uint64_t block = round_down(offset, kSummedBytes); block < end; block += kSummedBytes) {
    const bool whole = offset <= block && block + kSummedBytes <= end;
    partly_written_[block / kSummedBytes] = !whole;
    if (whole) {
      sums_[block / kSummedBytes] = sum_of_block(object_, block, bytes.subspan(block - offset, kSummedBytes));
    }
  }
}

void NewSums::note_unknown(std::uint64_t home_bytes) {
  sums_.assign((home_bytes + kSummedBytes - 1) / kSummedBytes, kSumUnknown);
  partly_written_.assign(sums_.size(), false);
}

Status NewSums::finish(Volume& volume, const std::string& name, std::uint64_t log_id, Device& home) {
  MEMLITH_TRY_ASSIGN(const auto file, SumsFile::make(volume, name, log_id, object_, SumsFile::Home::zeros));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home.size());
  MEMLITH_TRY(file->reserve(size));
  MEMLITH_ASSERT(sums_.size() == partly_written_.size());
  std::array<std::byte, kSummedBytes> whole;
  for (std::uint64_t i = 0; i < sums_.size() && i * kSummedBytes < size; ++i) {
    if (partly_written_[i]) {
      const auto block = std::span(whole).first(std::min(kSummedBytes, size - i * kSummedBytes));
      MEMLITH_TRY(home.read(i * kSummedBytes, block));
      sums_[i] = sum_of_block(object_, i * kSummedBytes, block);
    }
    MEMLITH_TRY(file->set(i * kSummedBytes, sums_[i]));
  }
  return file->flush();
}

}  // namespace memlith::core
