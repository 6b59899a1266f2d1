// Which power cuts an explorer tries at one point of a run: what each of them keeps of what is unflushed. The
// laboratory, the tests of the library and those of the plugins take them from here; what may come back is theirs to
// judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "sim/sim.hpp"

namespace memlith::core {

struct CutsTried {
  std::size_t exhaustive_items_max = 2;  // every subset of up to this many unflushed items
  std::size_t samples = 0;               // beyond that: nothing, everything, and so many drawn subsets
};

// The crash points of a run: before its operation `from`, and behind that one and each later one.
//
// for (CrashPoints points(trace); points.next();) {
//   for (PowerCuts cuts(points.medium(), tried, random); cuts.next();) judge(cuts.image(), points.at());
// }
class CrashPoints {
 public:
  // `trace` outlives the object.
  explicit CrashPoints(const SimTrace& trace, std::size_t from = 0)
      : medium_(trace, from), end_(trace.records.size()) {}

  // Goes on to the next point, at first to the first one. False: there is none.
  bool next() {
    if (!std::exchange(begun_, true)) return true;
    if (last()) return false;
    medium_.step();
    return true;
  }

  [[nodiscard]] const SimMedium& medium() const { return medium_; }
  [[nodiscard]] std::size_t at() const { return medium_.position(); }  // operations done
  [[nodiscard]] bool last() const { return at() == end_; }

 private:
  SimMedium medium_;
  std::size_t end_;
  bool begun_ = false;
};

class PowerCuts {
 public:
  // `medium` and `random` outlive the object, and the medium does not step.
  PowerCuts(const SimMedium& medium, const CutsTried& tried, Random& random)
      : medium_(medium),
        random_(random),
        choices_(medium.pending_count()),
        exhaustive_(choices_.size() <= tried.exhaustive_items_max),
        count_(exhaustive_ ? std::size_t{1} << choices_.size() : tried.samples + 2) {}

  // Goes on to the next cut, at first to the first one. False: there is none.
  bool next() {
    if (++number_ == count_) return false;
    if (exhaustive_ || number_ < 2) {
      for (std::size_t item = 0; item < choices_.size(); ++item) {
        keep(item, exhaustive_ ? (number_ >> item & 1) != 0 : number_ == 1);
      }
    } else {
      for (int attempt = 0; attempt < kAttempts && !draw(); ++attempt) {
      }
    }
    return true;
  }

  [[nodiscard]] const std::vector<SimChoice>& choices() const { return choices_; }
  [[nodiscard]] SimImage image() const { return medium_.cut(choices_, 0); }
  [[nodiscard]] std::size_t number() const { return number_; }  // of the cut, from 0
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool exhaustive() const { return exhaustive_; }

 private:
  static constexpr int kAttempts = 8;

  void keep(std::size_t item, bool kept) { choices_[item] = {kept ? SimFate::kept : SimFate::lost, 0}; }
  // Half of the samples keep each item with a probability of their own, so that "nearly all" and "hardly any" are seen,
  // too. False: it is a sample that was drawn before, or nothing or everything.
  bool draw() {
    const std::uint64_t of_eight = number_ % 2 == 0 ? 4 : 1 + random_.below(7);
    std::uint64_t mask = 0;
    bool any = false;
    bool all = true;
    for (std::size_t item = 0; item < choices_.size(); ++item) {
      const bool kept = random_.below(8) < of_eight;
      keep(item, kept);
      any = any || kept;
      all = all && kept;
      if (kept) mask ^= std::uint64_t{1} << item % 64;  // of more than 64 items some are taken for the same
    }
    return any && !all && drawn_.insert(mask).second;
  }

  const SimMedium& medium_;
  Random& random_;
  std::vector<SimChoice> choices_;
  bool exhaustive_;
  std::size_t count_;
  std::size_t number_ = ~std::size_t{0};
  std::set<std::uint64_t> drawn_;
};

}  // namespace memlith::core
