// Where the entries of an application log lie, by their numbers. Floor: applog.
//
// The index has the position of every eighth entry. The first call for a number extends the index up to there: a log
// that is only read in order takes no memory for an index. Positions are those of format.hpp, so that neither growth
// nor laps of the ring move them.
#pragma once

#include <cstdint>
#include <deque>

#include "applog/ring.hpp"

namespace memlith::core::applog {

// Threads: those of its owner.
class PositionIndex {
 public:
  // The position of entry `number`, or behind the newest entry. `first` is the position of the first entry that is not
  // consumed: first.number <= number <= newest + 1, and the entries from `first` on are whole.
  std::uint64_t find(const Ring& ring, const Position& first, std::uint64_t number);
  // The entries from `number` on are gone; the next one lies there.
  void drop_from(std::uint64_t number, std::uint64_t at);
  void clear();

 private:
  static constexpr std::uint64_t kStep = 8;

  void forget_before(const Position& first);

  std::deque<std::uint64_t> marks_;  // of the entries whose numbers are multiples of kStep, from first_mark_ on
  std::uint64_t first_mark_ = 0;
  std::uint64_t known_ = 0;  // the index reaches up to that entry; 0: it is empty
  std::uint64_t known_at_ = 0;
  std::uint64_t last_ = 0;  // that was found, so that reading in order does not look for each
  std::uint64_t last_at_ = 0;
};

}  // namespace memlith::core::applog
