#include "applog/position_index.hpp"

#include <algorithm>

namespace memlith::core::applog {

void PositionIndex::clear() {
  marks_.clear();
  known_ = last_ = 0;
}

void PositionIndex::forget_before(const Position& first) {
  if (known_ < first.number) {
    clear();
    known_ = first.number;
    known_at_ = first.at;
    first_mark_ = round_up(first.number, kStep);
  }
  while (!marks_.empty() && first_mark_ < first.number) {
    marks_.pop_front();
    first_mark_ += kStep;
  }
  if (marks_.empty()) first_mark_ = round_up(std::max(known_, first.number), kStep);
  if (last_ < first.number) last_ = 0;
}

std::uint64_t PositionIndex::find(const Ring& ring, const Position& first, std::uint64_t number) {
  const auto size_at = [&ring](std::uint64_t at) { return stored_bytes(ring.header_at(at).bytes); };
  MEMLITH_ASSERT(first.number <= number);
  forget_before(first);
  MEMLITH_ASSERT(known_ >= first.number && known_at_ >= first.at);
  MEMLITH_ASSERT(marks_.empty() || first_mark_ % kStep == 0);
  while (known_ < number) {
    if (known_ % kStep == 0) marks_.push_back(known_at_);
    known_at_ += size_at(known_at_);
    ++known_;
  }
  std::uint64_t from = first.number;
  std::uint64_t at = first.at;
  const auto begin_at = [&](std::uint64_t nearer, std::uint64_t its_at) {
    if (nearer < from || nearer > number) return;
    from = nearer;
    at = its_at;
  };
  if (!marks_.empty() && number >= first_mark_) {
    const std::uint64_t mark = std::min<std::uint64_t>((number - first_mark_) / kStep, marks_.size() - 1);
    begin_at(first_mark_ + mark * kStep, marks_[mark]);
  }
  if (last_ != 0) begin_at(last_, last_at_);
  begin_at(known_, known_at_);
  MEMLITH_ASSERT(first.number <= from && from <= number && first.at <= at);
  for (; from < number; ++from) at += size_at(at);
  last_ = number;
  last_at_ = at;
  return at;
}

void PositionIndex::drop_from(std::uint64_t number, std::uint64_t at) {
  if (last_ > number) last_ = 0;
  if (known_ <= number) return;
  MEMLITH_ASSERT(at <= known_at_);
  known_ = number;
  known_at_ = at;
  while (!marks_.empty() && first_mark_ + (marks_.size() - 1) * kStep >= number) marks_.pop_back();
  if (marks_.empty()) first_mark_ = round_up(number, kStep);
}

}  // namespace memlith::core::applog
