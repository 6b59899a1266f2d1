// Turns of one thread, phases of several.
#include "measure.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <thread>
#include <utility>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "memlith/memlith.h"
#include "stats.hpp"

namespace memlith::tool {

namespace {

constexpr std::size_t kSamplesReserved = 1 << 16;

// Why measuring must end before it is done; empty to go on.
MaybeFailure reason_to_stop() {
  if (interrupted()) return interrupted_failure();
  if (output_failed()) return tool_failure(MEMLITH_IO, "cannot write to standard output");
  return {};
}

// K threads that go through the phases together.
class PhaseCrew {
 public:
  PhaseCrew(std::span<Side> sides, const PhaseLimits& limits)
      : sides_(sides), limits_(limits), barrier_(static_cast<std::ptrdiff_t>(limits.threads), Meeting{this}) {
    for (std::size_t i = 0; i < limits.threads; ++i) members_.emplace_back(sides.size());
  }

  MaybeFailure run() {
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < limits_.threads; ++i) threads.emplace_back([this, i] { work(i); });
    }
    for (Member& member : members_) {
      if (member.failure) return member.failure;
      for (std::size_t s = 0; s < sides_.size(); ++s) {
        const std::vector<std::uint64_t>& samples = member.samples_ns[s];
        sides_[s].samples_ns.insert(sides_[s].samples_ns.end(), samples.begin(), samples.end());
      }
    }
    return reason_to_stop();
  }

 private:
  struct Member {
    explicit Member(std::size_t sides) : samples_ns(sides) {
      for (std::vector<std::uint64_t>& samples : samples_ns) samples.reserve(kSamplesReserved);
    }
    std::vector<std::vector<std::uint64_t>> samples_ns;  // a side each
    MaybeFailure failure;
  };

  // Runs in the last thread to arrive, while all others wait: what it writes, all of them read alike.
  struct Meeting {
    PhaseCrew* crew;
    void operator()() noexcept {
      crew->met_ns_ = now_ns();
      crew->stopping_ = crew->failed_.load(std::memory_order_relaxed) || interrupted() || output_failed();
    }
  };

  void work(std::size_t thread) {
    for (std::uint64_t alternation = 0; alternation < limits_.alternations; ++alternation) {
      for (std::size_t s = 0; s < sides_.size(); ++s) {
        barrier_.arrive_and_wait();
        if (stopping_) return;
        const std::uint64_t phase_start_ns = met_ns_;
        run_phase(thread, s, phase_start_ns + limits_.phase_ns);
        barrier_.arrive_and_wait();
        if (thread == 0) sides_[s].wall_ns += met_ns_ - phase_start_ns;
        if (stopping_) return;
      }
    }
  }

  void run_phase(std::size_t thread, std::size_t side, std::uint64_t deadline_ns) {
    Member& member = members_[thread];
    while (now_ns() < deadline_ns) {
      std::uint64_t elapsed_ns = 0;
      member.failure = sides_[side].round(thread, elapsed_ns);
      if (member.failure) {
        failed_.store(true, std::memory_order_relaxed);  // the barrier orders it before any thread reads it
        return;
      }
      member.samples_ns[side].push_back(elapsed_ns);
    }
  }

  std::span<Side> sides_;
  PhaseLimits limits_;
  std::vector<Member> members_;  // one a thread, and only that thread writes it
  std::atomic<bool> failed_{false};
  std::uint64_t met_ns_ = 0;  // these two: written by Meeting only
  bool stopping_ = false;
  std::barrier<Meeting> barrier_;
};

}  // namespace

double Side::rounds_per_second() const {
  return wall_ns == 0 ? 0 : static_cast<double>(samples_ns.size()) / seconds_of(wall_ns);
}

void Side::clear() {
  samples_ns.clear();
  wall_ns = 0;
}

MaybeFailure measure_in_turns(std::span<Side> sides, const TurnLimits& limits) {
  for (Side& side : sides) side.samples_ns.reserve(kSamplesReserved);
  std::vector<std::size_t> order(sides.size());
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t start = now_ns();
  for (std::uint64_t done = 0; done < limits.rounds_min || now_ns() - start < limits.duration_ns_min;) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    for (std::size_t i = order.size(); i > 1 && limits.order_of_sides != nullptr; --i) {
      std::swap(order[i - 1], order[limits.order_of_sides->below(i)]);
    }
    const std::uint64_t left = limits.rounds_min > done ? limits.rounds_min - done : 1;
    const std::uint64_t rounds = std::min(limits.rounds_of_turn, left);
    for (const std::size_t number : order) {
      Side& side = sides[number];
      for (std::uint64_t i = 0; i < rounds; ++i) {
        std::uint64_t elapsed_ns = 0;
        if (MaybeFailure failure = side.round(0, elapsed_ns)) return failure;
        side.samples_ns.push_back(elapsed_ns);
        side.wall_ns += elapsed_ns;
      }
    }
    done += rounds;
  }
  return {};
}

double ratio_per_turn(const Side& side, const Side& base) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < side.samples_ns.size(); ++i) {
    ratios.push_back(ratio_of(static_cast<double>(side.samples_ns[i]), static_cast<double>(base.samples_ns[i])));
  }
  return rounded(median_of(std::move(ratios)));
}

MaybeFailure measure_in_phases(std::span<Side> sides, const PhaseLimits& limits) {
  return PhaseCrew(sides, limits).run();
}

}  // namespace memlith::tool
