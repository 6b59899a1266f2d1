// State that every thread uses and seldom shares, in parts: as a rule, a thread has a part of its own. Floor: region.
#pragma once

#include <array>
#include <cstddef>

#include "base/thread_annotations.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

// Threads whose numbers are the same modulo kCount share a part, so parts have locks of their own.
template <class Part>
class Shards {
 public:
  static constexpr std::size_t kCount = 16;

  Part& mine() { return parts_[this_thread_number() % kCount].part; }
  template <class Act>
  void for_each(Act&& act) {
    for (Line& line : parts_) call_annotated(act, line.part);
  }

 private:
  struct alignas(64) Line {  // no two parts in one cache line
    Part part;
  };
  std::array<Line, kCount> parts_;
};

}  // namespace memlith::core
