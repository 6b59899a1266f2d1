// Cuts the power of a recorded run at every operation, in every way that was asked for, recovers, and judges.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/random.hpp"
#include "case.hpp"
#include "fault.hpp"
#include "log/format.hpp"
#include "run.hpp"
#include "workload.hpp"

namespace memlith::lab {

// How much is tried.
struct Budget {
  std::uint64_t point_every = 1;     // explore every n-th crash point
  std::size_t exhaustive_items = 7;  // every subset of up to this many unflushed items
  std::size_t samples = 12;          // drawn subsets a crash point beyond that
  std::size_t special = 5;           // states a crash point with a fault that subsets do not show
  std::uint64_t recovery_every = 8;  // crash the recovery of every n-th distinct state
  std::size_t recovery_samples = 2;  // drawn subsets an operation of a recovery
  std::uint64_t deep_every = 16;     // crash the recovery after every n-th crash of a recovery
  std::uint64_t look_every = 4;      // open every n-th distinct state read-only as well
  std::uint64_t kill_every = 3;      // kill the program after every n-th operation
  std::uint64_t life_every = 60;     // continue after every n-th distinct state
  std::size_t life_steps = 2;
  std::size_t violations_max = 3;
  std::uint64_t states_max = ~0ull;
};

struct Violation {
  std::string what;
  Case replay;
  std::uint64_t medium = 0;  // hash of what was on the medium last; 0: there was no cut
};

struct OperationCount {
  std::uint64_t crash_points = 0;
  std::uint64_t states = 0;
  std::uint64_t distinct = 0;
};

// The result of a piece of work.
struct Tally {
  std::uint64_t crash_points = 0;
  std::uint64_t states = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t runs = 0;
  std::uint64_t lives = 0;
  FaultTable faults{};
  OperationCount
      operations[core::kSimOpCount + 1]{};     // by the operation that was done last; the last row is recoveries
  std::unordered_set<std::uint64_t> distinct;  // by content of the medium
  std::vector<Violation> violations;
};

class Explorer {
 public:
  Explorer(const Workload& workload, Case base, FaultSet faults, const Budget& budget, Tally& tally);

  // Runs the workload and explores all its crash states.
  void work();
  // Only runs it, with the fault of the case, if it has one; nothing if the fault never struck.
  std::unique_ptr<Run> run_workload();

  [[nodiscard]] std::size_t step_count() const { return steps_.size(); }
  // The case that is being judged now, for reports of a hang or an abort.
  [[nodiscard]] Case position() const;

  // The image that the cuts lead to; the story as it unfolds is told to `tell`. Used to replay. Returns what is wrong
  // with what comes back, or nothing.
  std::string replay(const Cuts& cuts, std::string& story, std::uint64_t& image_hash);

 private:
  struct Known {
    Fingerprint found;
    bool was_clean;
  };
  using Seen = std::unordered_map<std::uint64_t, Known>;
  // The unflushed items of one operation.
  struct Operation {
    core::SimOp op{};
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  void explore(Run& run, const core::SimTrace& trace, std::size_t begin, int life);
  void cut_here(Run& run, const core::SimMedium& medium, const Expected& expected, int life);
  bool draw(Fault fault, const core::SimMedium& medium, std::vector<core::SimChoice>& choices);
  void draw_operations(std::vector<core::SimChoice>& choices);
  void count_shown(const core::SimMedium& medium, const std::vector<core::SimChoice>& choices, bool planned_too);
  static std::vector<Operation> operations_of(const core::SimMedium& medium);
  [[nodiscard]] std::string checksummed(std::string_view name) const;

  void judge(Run& run, const core::SimImage& image, const Expected& expected, int life);
  void judge_lie(const Run& run, const core::SimImage& image, const Expected& expected, Fault fault,
                 bool last_commit_may_go);
  void crash_recovery(const core::SimTrace& trace, Fingerprint found, int level);
  void second_life(Run& first, const core::SimImage& image, const Content& content, bool other);
  void flip_reads(const Run& run, const core::SimImage& image, const Expected& expected);
  void kill_here(Run& first, const core::SimTrace& trace, const core::SimMedium& medium, const Expected& expected);
  std::unique_ptr<Run> next_life(Run& first, const core::SimImage& image, const Content& content, bool other);
  // Does the steps, its threads in turns as the workload has it.
  void perform(Run& run, std::size_t from, std::size_t until, bool again);
  Budget lighten();  // less of everything from now on; returns what was
  // The fault found in it, or nothing.
  [[nodiscard]] std::string verdict(const Recovered& recovered, const Expected& expected) const;
  [[nodiscard]] std::string lie_verdict(const Run& run, std::size_t at, const Recovered& recovered,
                                        const Expected& expected, bool last_commit_may_go, FaultCount& count) const;
  void violated(std::string what, std::uint64_t medium);
  [[nodiscard]] bool enough() const {
    return tally_.violations.size() >= budget_.violations_max || tally_.states >= budget_.states_max;
  }
  bool note_distinct(std::uint64_t hash, std::size_t operation);
  void swap_moments(const Run& run, const core::SimMedium& medium, std::vector<core::SimChoice>& choices,
                    const Expected& expected);
  [[nodiscard]] std::uint64_t in_use_kind() const;
  [[nodiscard]] bool has_guard_in_it(std::span<const std::byte> bytes, std::span<const std::byte> content) const;
  [[nodiscard]] std::string copy_wrong(const core::SimImage& image, const Recovered& recovered) const;
  [[nodiscard]] bool says_its_moment(const core::SimImage& image) const;
  std::string moment_verdict(const Run& run, const Recovered& recovered, const Expected& expected,
                             FaultCount& count) const;
  [[nodiscard]] Content read_file_alone(const core::SimImage& image) const;

  const Workload& workload_;
  Case base_;
  FaultSet faults_;
  Budget budget_;
  Tally& tally_;
  core::StoreOptions options_;
  std::vector<Step> steps_;
  core::Random random_;
  Cuts path_;
  Seen* seen_ = nullptr;  // of the life under way
  std::vector<Operation> operations_;
  std::size_t operation_ = 0;  // row of the table
  std::uint64_t recovered_states_ = 0;
  std::uint64_t recovery_crashes_ = 0;
  std::uint64_t live_states_ = 0;
  std::size_t next_special_ = 0;
  char life_link_ = '>';
  const Expected* also_allowed_ = nullptr;  // after a kill: by the life before, until the next has opened the store
  std::size_t also_until_ = 0;
};

}  // namespace memlith::lab
