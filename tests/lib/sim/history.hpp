// The oracle of a run on the simulated disk: what was begun, what was acknowledged, and what the store holds after each
// commit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace memlith::lab {

// A store's content, as a user sees it: the bytes of every object by name. A store that is not there holds nothing.
struct Content {
  bool exists = false;
  std::map<std::string, std::vector<std::byte>> objects;
  friend bool operator==(const Content&, const Content&) = default;
};
using Fingerprint = std::uint64_t;
Fingerprint fingerprint(const Content& content);
std::string describe(const Content& content);
// The surplus of `found` over `expected`, in a few lines.
std::string describe_difference(const Content& expected, const Content& found);

using Change = std::function<void(Content&)>;

inline constexpr std::size_t kNever = ~std::size_t{0};

struct Commit {
  std::string text;
  Change change;
  std::size_t started_at = 0;            // number of operations done by then
  std::size_t acknowledged_at = kNever;  // likewise
  std::size_t lost_at = kNever;          // from here on it is known never to have happened
  std::uint64_t group = 0;               // commits of one group ran side by side: their order is that of the log
  core::Lsn lsn{~std::uint64_t{0}};      // of its frame, in a group
  std::size_t number = 0;
  bool framed = true;  // it put a frame into the log
};

// The contents that a crash may leave: those after any of the commits first to last; 0 is the one before all of them.
struct Expected {
  std::span<const Fingerprint> contents;
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t vouched = 0;  // as `first`, without what no later frame vouches for: the newest acknowledged ones
  bool closed = false;      // the last thing acknowledged was a clean close
  [[nodiscard]] bool allows(Fingerprint found, std::size_t from) const {
    for (std::size_t p = last + 1; p-- > from;) {
      if (contents[p] == found) return true;
    }
    return false;
  }
};

class History {
 public:
  explicit History(Content before) : before_(std::move(before)) {}

  // ---- the workload reports; any thread. `now` is the number of operations done on the disk.
  [[nodiscard]] std::size_t size() const;  // commits started
  std::size_t started(std::string text, Change change, std::size_t now, std::uint64_t group = 0);
  void placed(std::size_t commit, core::Lsn lsn);
  void acknowledged(std::size_t commit, std::size_t now);
  void wrote_nothing(std::size_t commit);  // there was nothing to write
  // It failed, and the engine said that nothing was written: it must never be seen.
  void cancelled(std::size_t commit);
  void closed(std::size_t now);
  void opened(std::size_t now);
  // The store was opened again without a power cut and shows `found`: what was not acknowledged is decided by that.
  // False if no allowed content looks so.
  bool resolve(Fingerprint found, std::size_t now);

  // ---- questions, once the reports are in
  void finish();
  [[nodiscard]] Expected expected(std::size_t at) const;
  // The content after the first `count` commits of those that count at `at`.
  [[nodiscard]] Content content(std::size_t at, std::size_t count) const;
  // Texts of the commits that count at `at`, in order.
  [[nodiscard]] std::vector<const Commit*> commits(std::size_t at) const;

 private:
  struct Epoch {
    std::size_t until = kNever;
    std::vector<std::size_t> commits;  // indexes, in order
    std::vector<Fingerprint> contents;
  };
  [[nodiscard]] const Epoch& epoch(std::size_t at) const;
  void sort();

  mutable std::mutex mutex_;
  Content before_;
  std::vector<Commit> commits_;
  std::vector<std::pair<std::size_t, bool>> closings_;  // (at, closed or opened)
  std::vector<Epoch> epochs_;
};

}  // namespace memlith::lab
