#include "store/rot_finder.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace memlith::core {

void RotFinder::begin() {
  sums_ = nullptr;
  suspects_.clear();
  touched_.clear();
  blocks_ = unknown_ = 0;
}

Status RotFinder::enter(ObjectId object, std::uint64_t home_bytes) {
  object_ = object;
  home_bytes_ = home_bytes;
  next_ = 0;
  sums_ = nullptr;
  if (object == kDirectory || files_.one_file()) return kOk;
  MEMLITH_TRY_ASSIGN(sums_, SumsFile::open(files_.volume, files_.names.sums(object), files_.log->log_id(), object,
                                           OpenMode::read_only));
  return kOk;
}

Status RotFinder::judge(std::uint64_t offset, std::span<const std::byte> block) {
  MEMLITH_ASSERT(offset % kSummedBytes == 0 && !block.empty() && block.size() <= kSummedBytes);
  ++blocks_;
  auto verdict = SumsFile::Verdict::unknown;
  if (sums_ != nullptr) {
    MEMLITH_TRY_ASSIGN(verdict, sums_->judge(offset, block));
  }
  if (verdict == SumsFile::Verdict::unknown) ++unknown_;
  if (verdict == SumsFile::Verdict::wrong) suspects_[object_].push_back(offset);
  return kOk;
}

Status RotFinder::note_home(std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_TRY(note_hole(offset));
  while (!bytes.empty()) {
    const std::uint64_t begin = round_down(next_, kSummedBytes);
    const std::uint64_t end = std::min(begin + kSummedBytes, home_bytes_);
    if (next_ >= end) return kOk;  // the home has grown since
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), end - next_);
    const bool whole = next_ == begin && count == end - begin;
    MEMLITH_ASSERT(next_ - begin + count <= block_.size());
    if (!whole) std::memcpy(block_.data() + (next_ - begin), bytes.data(), count);
    next_ += count;
    if (next_ == end) MEMLITH_TRY(judge(begin, whole ? bytes.first(count) : std::span(block_).first(end - begin)));
    bytes = bytes.subspan(count);
  }
  return kOk;
}

Status RotFinder::note_hole(std::uint64_t end) {
  end = std::min(end, home_bytes_);
  constexpr std::array<std::byte, kSummedBytes> kZeros{};
  while (next_ < end) {
    const std::uint64_t begin = round_down(next_, kSummedBytes);
    const std::uint64_t block_end = std::min(begin + kSummedBytes, home_bytes_);
    const std::uint64_t until = std::min(end, block_end);
    MEMLITH_ASSERT(next_ < until && until - begin <= block_.size());
    std::memset(block_.data() + (next_ - begin), 0, until - next_);
    const bool whole = next_ == begin && until == block_end;
    next_ = until;
    if (next_ == block_end) MEMLITH_TRY(judge(begin, std::span(whole ? kZeros : block_).first(block_end - begin)));
  }
  return kOk;
}

Status RotFinder::leave() {
  MEMLITH_TRY(note_hole(home_bytes_));
  MEMLITH_ASSERT(next_ == home_bytes_);  // every block was judged
  sums_ = nullptr;
  return kOk;
}

void RotFinder::note_frame(ObjectId object, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || files_.one_file()) return;
  std::map<std::uint64_t, std::uint64_t>& ranges = touched_[object];
  std::uint64_t begin = round_down(offset, kSummedBytes);
  std::uint64_t end = round_up(offset + bytes, kSummedBytes);
  auto next = ranges.upper_bound(begin);
  if (next != ranges.begin() && std::prev(next)->second >= begin) --next;
  while (next != ranges.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges.erase(next);
  }
  const auto [made, is_new] = ranges.emplace(begin, end);
  MEMLITH_ASSERT(is_new && (made == ranges.begin() || std::prev(made)->second < begin));
  MEMLITH_ASSERT(std::next(made) == ranges.end() || std::next(made)->first > end);
}

std::vector<DamagedBytes> RotFinder::damaged(std::span<const ObjectInfo> objects) const {
  std::vector<DamagedBytes> found;
  for (const ObjectInfo& info : objects) {
    const auto suspects = suspects_.find(info.id);
    if (suspects == suspects_.end()) continue;
    const auto touched = touched_.find(info.id);
    for (const std::uint64_t offset : suspects->second) {
      if (offset >= info.size_bytes) continue;
      if (touched != touched_.end()) {
        const auto behind = touched->second.upper_bound(offset);
        if (behind != touched->second.begin() && std::prev(behind)->second > offset) continue;
      }
      const std::uint64_t bytes = std::min(kSummedBytes, info.size_bytes - offset);
      if (!found.empty() && found.back().object == info.id && found.back().offset + found.back().bytes == offset) {
        found.back().bytes += bytes;
      } else {
        found.push_back({info.id, offset, bytes});
      }
    }
  }
  return found;
}

}  // namespace memlith::core
