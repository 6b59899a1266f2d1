#include "store/home_writer.hpp"

#include <algorithm>
#include <cstring>

#include "base/units.hpp"

namespace memlith::core {

namespace {
constexpr std::uint32_t kDirectDepth = 64;  // transfers at a time: scattered pages are twice as fast as with 16
constexpr std::uint64_t kDirectBytes = 64 * kKiB;
}  // namespace

bool BufferedHome::continues(std::uint64_t offset, std::uint64_t bytes) const {
  if (count_ == kPiecesMax || bytes_held_ >= bytes_max_) return false;
  if (offset == end() && !has_gaps_) return true;
  return is_ours_ && offset <= end() + kGapBytes && offset + bytes <= offsets_[0] + Device::kApartBytesMax;
}

Status BufferedHome::put(std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_ASSERT(!bytes.empty() && offset >= end());  // in order
  if (count_ > 0 && !continues(offset, bytes.size())) MEMLITH_TRY(finish());
  if (count_ > 0 && offset > end()) has_gaps_ = true;
  offsets_[count_] = offset;
  pieces_[count_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  bytes_held_ += bytes.size();
  return kOk;
}

Status BufferedHome::finish() {
  if (count_ == 0) return kOk;
  MEMLITH_ASSERT(bytes_held_ >= count_ && count_ <= kPiecesMax);
  home_bytes_.fetch_add(bytes_held_, std::memory_order_relaxed);
  const auto pieces = std::span(pieces_).first(count_);
  if (has_gaps_) {
    MEMLITH_TRY(device_.write_apart(std::span(offsets_).first(count_), pieces));
  } else {
    MEMLITH_TRY(device_.write_pieces(offsets_[0], pieces));
  }
  // The page cache writes whole pages, however little of each has changed.
  const std::uint64_t pages_begin = std::max(pages_end_, round_down(offsets_[0], kPageBytes));
  pages_end_ = round_up(end(), kPageBytes);
  count_ = 0;
  has_gaps_ = false;
  bytes_held_ = 0;
  return written_(pages_end_ - std::min(pages_begin, pages_end_));
}

Result<std::unique_ptr<DirectHome>> DirectHome::open(Volume& volume, const std::string& name, Device& buffered) {
  auto home = std::make_unique<DirectHome>();
  MEMLITH_TRY_ASSIGN(home->device_, volume.open(name, OpenMode::read_write, Caching::direct));
  const bool fits = kPageBytes % home->device_->caps().block_bytes == 0;
  if (!home->device_->direct() || !fits) return std::unique_ptr<DirectHome>();
  MEMLITH_TRY_ASSIGN(const FileIdentity opened, home->device_->identity());
  MEMLITH_TRY_ASSIGN(const FileIdentity wanted, buffered.identity());
  if (opened != wanted) return std::unique_ptr<DirectHome>();  // the name leads to another file by now
  MEMLITH_TRY_ASSIGN(home->memory_, AlignedBuffer::allocate(kDirectDepth * kDirectBytes));
  home->queue_ = home->device_->make_queue(kDirectDepth);
  home->queue_->register_memory(home->memory_.span());
  return home;
}

bool DirectHome::takes(std::uint64_t offset, std::uint64_t bytes) {
  return offset % kPageBytes == 0 && bytes % kPageBytes == 0;
}

Status DirectHome::put(std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_ASSERT(takes(offset, bytes.size()));
  while (!bytes.empty()) {
    if (used_ == kDirectBytes || (used_ > 0 && offset != begin_ + used_)) MEMLITH_TRY(send());
    if (used_ == 0) {
      MEMLITH_TRY(queue_->wait(slot_));
      begin_ = offset;
    }
    const std::uint64_t step = std::min<std::uint64_t>(bytes.size(), kDirectBytes - used_);
    std::memcpy(buffer() + used_, bytes.data(), step);
    used_ += step;
    offset += step;
    bytes = bytes.subspan(step);
  }
  return kOk;
}

Status DirectHome::finish() {
  if (used_ > 0) MEMLITH_TRY(send());
  return queue_->wait_all();
}

std::byte* DirectHome::buffer() const { return memory_.data() + slot_ * kDirectBytes; }

Status DirectHome::send() {
  MEMLITH_ASSERT(used_ > 0 && used_ <= kDirectBytes && takes(begin_, used_));
  MEMLITH_TRY(queue_->write(slot_, begin_, {buffer(), used_}));
  slot_ = (slot_ + 1) % kDirectDepth;
  used_ = 0;
  return kOk;
}

}  // namespace memlith::core
