// Ranges of addresses in memory of their own, which joins them when it is full: what store_lists.cpp keeps for a
// thread. Floor: region. Not synchronised.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "region/store_lists.hpp"

namespace memlith::core {

// A signal handler may add to it, which malloc would not allow.
class RangePile {
 public:
  void add(StoredRange range) {
    if (range.begin >= range.end) return;
    if (count_ == room_ && !make_room(1)) {
      // Without memory for ranges, everything counts as stored to.
      everything_ = true;
      return;
    }
    MEMLITH_ASSERT(count_ < room_);
    ranges_[count_++] = range;
  }
  void add_all(const RangePile& other) {
    everything_ = everything_ || other.everything_;
    for (const StoredRange& range : std::span(other.ranges_, other.count_)) add(range);
  }
  void clear() {
    count_ = 0;
    everything_ = false;
  }
  // Room for `more` ranges, if there is memory. Takes milliseconds if it joins many ranges, so the ring is empty then:
  // signal handlers meanwhile fill the ring.
  void prepare(std::uint64_t more) {
    if (room_ - count_ < more) (void)make_room(more);
  }

  // Moves what lies in `memory` to `taken`, which has room.
  void take(StoredRange memory, ThreadNumber thread, std::vector<StoredBy>& taken) {
    MEMLITH_ASSERT(taken.capacity() - taken.size() >= count());  // nothing is allocated here
    MEMLITH_ASSERT(memory.begin < memory.end);
    if (everything_) taken.push_back({memory, thread});
    for (const StoredRange& range : std::span(ranges_, count_)) {
      if (!lies_in(range, memory)) continue;
      taken.push_back({{std::max(range.begin, memory.begin), std::min(range.end, memory.end)}, thread});
    }
    drop(memory);
  }
  void drop(StoredRange memory) {
    StoredRange* const end =
        std::remove_if(ranges_, ranges_ + count_, [memory](StoredRange range) { return lies_in(range, memory); });
    count_ = static_cast<std::uint64_t>(end - ranges_);
  }
  [[nodiscard]] std::uint64_t count() const { return count_ + (everything_ ? 1 : 0); }
  [[nodiscard]] bool is_empty() const { return count() == 0; }
  // Every region counts as stored to as a whole.
  void everything() { everything_ = true; }
  void nothing_else() { everything_ = false; }
  [[nodiscard]] bool is_everything() const { return everything_; }

 private:
  static constexpr std::uint64_t kFirstRoom = 4096;
  static constexpr std::uint64_t kFewRanges = 64;

  // With room for sorting.
  static std::uint64_t bytes_of(std::uint64_t room) { return 2 * room * sizeof(StoredRange); }
  static bool lies_in(StoredRange range, StoredRange memory) {
    return range.begin < memory.end && range.end > memory.begin;
  }
  bool make_room(std::uint64_t more) {
    if (count_ > 0) compact();
    if (room_ > 0 && count_ <= room_ / 2 && room_ - count_ >= more) return true;
    const std::uint64_t room = room_ == 0 ? kFirstRoom : 2 * room_;
    void* const memory =
        room_ == 0 ? ::mmap(nullptr, bytes_of(room), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   : ::mremap(ranges_, bytes_of(room_), bytes_of(room), MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) return count_ < room_;
    ranges_ = static_cast<StoredRange*>(memory);
    room_ = room;
    MEMLITH_ASSERT(count_ < room_);
    return true;
  }
  // By their begins, 8 bits at a time: comparing as many ranges with each other takes six times as long.
  void sort() {
    const auto by_begin = [](StoredRange a, StoredRange b) { return a.begin < b.begin; };
    if (count_ < kFewRanges) return std::sort(ranges_, ranges_ + count_, by_begin);
    const auto [least, most] = std::minmax_element(ranges_, ranges_ + count_, by_begin);
    const std::uintptr_t low = least->begin;
    const std::uintptr_t spread = most->begin - low;
    StoredRange* from = ranges_;
    StoredRange* to = ranges_ + room_;
    for (unsigned shift = 0; shift < 64 && spread >> shift != 0; shift += 8) {
      std::array<std::uint64_t, 256> places{};  // small, because the stack of a signal handler may be
      for (const StoredRange& each : std::span(from, count_)) ++places[(each.begin - low) >> shift & 255];
      std::exclusive_scan(places.begin(), places.end(), places.begin(), std::uint64_t{0});
      for (const StoredRange& each : std::span(from, count_)) to[places[(each.begin - low) >> shift & 255]++] = each;
      std::swap(from, to);
    }
    if (from != ranges_) std::copy(from, from + count_, ranges_);
  }
  // Joins ranges that overlap or touch.
  void compact() {
    MEMLITH_ASSERT(count_ > 0 && count_ <= room_);
    sort();
    std::uint64_t last = 0;
    for (std::uint64_t i = 1; i < count_; ++i) {
      if (ranges_[i].begin <= ranges_[last].end) {
        ranges_[last].end = std::max(ranges_[last].end, ranges_[i].end);
      } else {
        ranges_[++last] = ranges_[i];
      }
    }
    count_ = last + 1;
    MEMLITH_ASSERT(count_ <= room_ && ranges_[0].begin < ranges_[last].end);
  }

  StoredRange* ranges_ = nullptr;
  std::uint64_t count_ = 0;
  std::uint64_t room_ = 0;
  bool everything_ = false;
};

}  // namespace memlith::core
