// Runs threads one at a time and decides at each step which one continues, so that an interleaving can be repeated and
// the next one tried. Implements the Controller of base/sync.hpp. The idea of bounding the preemptions, and of trying
// everything within the bound: CHESS (Musuvathi and others, "Finding and Reproducing Heisenbugs in Concurrent
// Programs", OSDI 2008).
//
// Its threads are fibers of the one thread that calls run(): a switch then costs no more on a busy machine than on a
// quiet one. Sanitizers know threads better than fibers, so with them each is a thread of the system's, of which one
// runs at a time.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sync.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMLITH_LAB_FIBERS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMLITH_LAB_FIBERS 0
#endif
#endif
#ifndef MEMLITH_LAB_FIBERS
#define MEMLITH_LAB_FIBERS 1
#endif

namespace memlith::lab {

// A point at which more than one thread could continue. Option 0 is the default: the running thread continues or, if it
// cannot, the first thread that can.
struct Decision {
  std::uint16_t options = 0;
  std::uint16_t chosen = 0;
  bool preempts = false;  // any option except 0 takes the processor from a thread that could continue
};

// The next schedule, depth first, after one with these decisions, within the bound of preemptions: the last decision
// that has another option takes it. False: that was the last one.
bool next_schedule(std::vector<Decision>& decisions, std::size_t preemptions);

class Scheduler final : public core::Controller {
 public:
  Scheduler() = default;
  ~Scheduler() override;
  Scheduler(const Scheduler&) = delete;

  struct Outcome {
    std::vector<Decision> decisions;
    std::string stuck;  // why it did not come to its end; its threads are lost then, and so is this scheduler
    std::uint64_t steps = 0;
  };
  // Runs `act` as the first thread, until all threads have ended. The first decisions are those given, the rest are 0.
  Outcome run(const std::function<void()>& act, const std::vector<std::uint16_t>& decisions);
  // Selects one of the options; a number beyond them selects the last one.
  using Chooser = std::function<std::size_t(std::size_t options)>;
  Outcome run(const std::function<void()>& act, Chooser chooser);

  // ---- from within
  // Lets all other threads run until they wait.
  void let_others_run();
  // From now on every step is a decision.
  void begin_deciding() { deciding_ = true; }
  void end_deciding() { deciding_ = false; }
  // The calling thread is a process, or one of those of the process with this number. The process may die: at any one
  // of its points (an option behind those of the other threads), but only one process in a schedule. `death` is what
  // the system does then. What the process has on its stacks is not destroyed. Only with fibers.
  void may_die(std::function<void()> death, std::uint32_t process = 0);
  // True if a process has died.
  [[nodiscard]] bool has_died() const { return has_died_; }
  // A point of the laboratory's own.
  void here(const char* what) { point(what, nullptr); }

  // Time passes as on a machine, some of it with each step: a wait ends when its time is over, and the default is the
  // only order that is no deviation. Every other option counts as a preemption.
  bool keeps_time = false;
  // With it: a process that may die may be stopped instead, for so long; kForEver: until the others have ended.
  std::vector<std::chrono::nanoseconds> stops;
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }
  std::function<void()> waits;  // called before the running thread waits or gives way, if set

  std::uint64_t steps_max = 20'000;  // a schedule that takes more gets nowhere
  // A thread that does not wait as long as the others run counts as a preemption, because it could do so without end.
  bool timeouts_count = false;
  // If set: no decision is made about an object for which it is false.
  std::function<bool(const void* object)> sees;
  // A line a step goes here, if set.
  std::vector<std::string>* story = nullptr;

  // ---- Controller
  void point(const char* what, const void* object, bool changes = true) override;
  bool block(const char* what, const void* object, std::chrono::nanoseconds at_most,
             const std::function<bool()>& until) override;
  void yield() override;
  std::size_t choose(std::size_t count) override;
  std::shared_ptr<const bool> start(std::function<void()> act) override;
  std::chrono::nanoseconds now() override { return time_; }
  [[nodiscard]] std::uint32_t thread() const override { return static_cast<std::uint32_t>(current_ + 1); }
  void woken(std::uint32_t thread) override;
  [[nodiscard]] bool lives(std::uint32_t thread) const override { return !tasks_[thread - 1].died; }

 private:
  struct Task {
    std::function<void()> act;
    std::shared_ptr<bool> ended;
    const std::function<bool()>* until = nullptr;  // blocked
    std::chrono::nanoseconds at_most = core::kForEver;
    std::chrono::nanoseconds end{0};
    std::chrono::nanoseconds stopped_until{0};
    const char* what = "";
    std::function<void()> death;  // empty: it does not die
    std::uint32_t process = 0;
    bool died = false;
  };
  // Kept from run to run: starting one takes longer than a schedule.
  struct Worker {
#if MEMLITH_LAB_FIBERS
    ucontext_t context{};
    void* stack = nullptr;
    bool is_left = false;  // a process died there
#else
    std::binary_semaphore go{0};
    std::thread thread;
#endif
  };
  static constexpr std::size_t kMain = ~std::size_t{0};  // the caller of run()
  static constexpr std::size_t kTasksMax = 64;

  void work(std::size_t index);
  void make_worker(std::size_t index);
  void die();
  void stop(std::chrono::nanoseconds time);
  [[nodiscard]] std::size_t fates() const;
  void meet_fate(std::size_t which);
  void begin_waiting();
  [[nodiscard]] std::vector<std::size_t> tasks_of_process() const;
  // Until a thread can run; false: none ever can.
  bool pass_time();
  // Lets `next` continue; returns when this thread is scheduled again.
  void leave(std::size_t self, std::size_t next);
  [[nodiscard]] bool can_run(std::size_t task) const;
  // The other threads that can continue, in order of their numbers after the current one.
  void find_others();
  std::size_t decide(std::size_t options, bool preempts);
  void switch_to(std::size_t task);
  std::size_t next_after_end();
  void give_up(std::string why);
  [[nodiscard]] std::string who_waits() const;
  void tell(const char* what, const void* object);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Task> tasks_;
  std::vector<std::size_t> others_;
  std::size_t current_ = 0;
  bool deciding_ = false;
  bool has_died_ = false;
  bool has_stopped_ = false;
  bool lost_ = false;
  bool quitting_ = false;
  Chooser chooser_;
  Outcome outcome_;
  std::chrono::nanoseconds time_{0};
#if MEMLITH_LAB_FIBERS
  ucontext_t main_{};
#else
  std::binary_semaphore over_{0};
#endif
  std::vector<const void*> objects_;  // by the numbers that the story gives them
};

// Calls of the laboratory itself are no steps of the engine's.
struct Unobserved {
  core::Controller* const before = std::exchange(core::controller, nullptr);
  ~Unobserved() { core::controller = before; }
};

}  // namespace memlith::lab
