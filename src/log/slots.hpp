// The slots of a log: which of them hold the live segments, and which are free. Floor: log.
//
// Every slot is one or the other once use() has run. Threads: the owner's lock guards all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "log/format.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

class Slots {
 public:
  // The slots as opening or recovery has found them. None is free before use().
  void take_over(const SlotMap& found, std::uint64_t count);
  // The segments [first, end) are live; all other slots are free from now on, and `headers` tell when each was last in
  // use. Returns a live segment that no slot holds, if there is one; then nothing has changed.
  std::optional<std::uint64_t> use(std::uint64_t first, std::uint64_t end, std::span<const SlotHeader> headers);

  [[nodiscard]] const SlotMap& map() const { return map_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // How many more slots the segments before `end` need.
  [[nodiscard]] std::uint64_t needed(std::uint64_t end) const;
  [[nodiscard]] bool has_room(std::uint64_t end) const { return needed(end) <= free_.size(); }
  // The room that would be free if everything before the segment of the head were released.
  [[nodiscard]] std::uint64_t free_at_best(std::uint64_t head_segment) const;

  // Gives the segments before `end` their slots, for which there is room.
  void map_until(std::uint64_t end);
  // The slots of all segments before this one are free. Allocates nothing.
  void release_before(std::uint64_t segment);
  // Memory for so many slots in all, so that add() and release_before() allocate nothing. Throws std::bad_alloc.
  void reserve(std::uint64_t count);
  // More slots at the end of the file.
  void add(std::uint64_t more);

  // `first` is the segment of the tail, and the head is not beyond the segment before `end`.
  void assert_state(std::uint64_t first, std::uint64_t end) const;

 private:
  SlotMap map_;
  std::vector<std::uint32_t> free_;  // the one that is taken next is the last
  std::uint64_t count_ = 0;
};

}  // namespace memlith::core
