// Which numbers of a structure, of its commits or entries, are in the log, and which are durable. Floor: store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>

#include "base/units.hpp"

namespace memlith::core {

// One thread at a time.
class LoggedNumbers {
 public:
  // Everything up to this number is durable.
  void begin(std::uint64_t number) {
    all_.clear();
    logged_ = durable_ = number;
  }
  // Everything up to `number` is in the log, before `end`.
  void add(std::uint64_t number, Lsn end) noexcept {
    logged_ = number;
    newest_ = end;
    try {
      all_.push_back({number, end});
    } catch (const std::exception&) {
      // No memory: those before it are found to be durable with it, or it with the next.
      if (!all_.empty()) all_.back() = {number, end};
    }
  }
  // The numbers behind `number` are gone, and will be given again. That one does not become durable later than before.
  void cut(std::uint64_t number) noexcept {
    while (all_.size() > 1 && all_[all_.size() - 2].number >= number) all_.pop_back();
    if (!all_.empty()) all_.back().number = std::min(all_.back().number, number);
    logged_ = std::min(logged_, number);
    durable_ = std::min(durable_, number);
  }
  // The newest durable number, when the log is durable up to there.
  std::uint64_t durable(Lsn durable_lsn) {
    for (; !all_.empty() && all_.front().end <= durable_lsn; all_.pop_front()) {
      durable_ = std::max(durable_, all_.front().number);
    }
    return durable_;
  }
  [[nodiscard]] std::uint64_t logged() const { return logged_; }
  // How far the log has to be durable for `number`, which is in the log, to be durable. 0: `number` is durable already.
  [[nodiscard]] Lsn end_of(std::uint64_t number) const {
    if (number <= durable_) return Lsn{0};
    const auto covers = [number](const One& one) { return one.number >= number; };
    const auto found = std::find_if(all_.begin(), all_.end(), covers);
    return found != all_.end() ? found->end : newest_;
  }
  // The ticket of the first that are not known to be durable; 0: all are.
  [[nodiscard]] Lsn oldest_end() const { return all_.empty() ? Lsn{0} : all_.front().end; }
  [[nodiscard]] Lsn newest_end() const { return newest_; }

 private:
  struct One {
    std::uint64_t number = 0;
    Lsn end;
  };
  std::deque<One> all_;  // in the log, not known to be durable
  std::uint64_t logged_ = 0;
  std::uint64_t durable_ = 0;
  Lsn newest_;
};

}  // namespace memlith::core
