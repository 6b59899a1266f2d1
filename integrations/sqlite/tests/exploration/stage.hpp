// Threads of several processes, one at a time, in an order that a plan says: the machine (step.hpp) of an exploration.
//
// The default order: a thread runs until it waits or gives way; then the next one that can run does. Time passes by the
// steps, and jumps when all threads wait. A plan says at which steps something else happens: another thread goes on, or
// the process of the running thread is killed, stopped for 2 ms, or stopped until the others have ended.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sqlite/src/shared/connection.hpp"
#include "sqlite/src/shared/step.hpp"

namespace memlith::test::exploration {

// Another thread by its number, or one of these.
enum Deviation : std::uint16_t { kKill = 100, kStop = 101, kStopForLong = 102 };

struct Turn {
  std::uint32_t step = 0;
  std::uint16_t what = 0;
};
using Plan = std::vector<Turn>;  // in order of the steps
std::string describe(const Plan& plan);
Plan parse_plan(const std::string& text);

// The stage whose threads run.
extern class Stage* g_running;

class Stage final : public sqlite::shared::Machine {
 public:
  Stage() = default;
  ~Stage() override;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  struct Thread {
    int process = 0;
    std::function<void()> act;
  };
  struct Outcome {
    // By step: what a plan could say there; a bit for each thread, and kKillable.
    std::vector<std::uint16_t> choices;
    std::string stuck;
    int killed = -1;  // a process
    int stopped = -1;
  };
  static constexpr std::uint16_t kKillable = 1u << 15;
  // Before and after a schedule.
  void begin();
  // `has_checkpointer`: a thread of it makes the checkpoints that its commits leave.
  void add_process(int process, bool has_checkpointer);
  void end();
  // The system releases what a killed process had.
  void release(int process);

  // Outside of run(): which process works, without any switches. -1: none.
  void set_process(int process) { process_ = process; }
  [[nodiscard]] int process() const { return current_ != nullptr ? current_->process : process_; }
  [[nodiscard]] int thread() const { return current_ != nullptr ? static_cast<int>(current_->index) : -1; }
  // The process that was stopped in this schedule, or -1.
  [[nodiscard]] int stopped() const { return outcome_.stopped; }
  [[nodiscard]] int killed() const { return outcome_.killed; }
  Outcome run(std::vector<Thread> threads, const Plan& plan, const std::function<void(int process)>& kill);

  // No step of what is done inside is one of the exploration.
  struct Aside {
    explicit Aside(Stage& stage) : stage_(stage) { ++stage_.aside_; }
    ~Aside() { --stage_.aside_; }
    Stage& stage_;
  };
  void point(const char* what);

  // ---- Machine
  std::uint64_t now_ns() override { return time_ += 100; }
  void sleep(std::uint64_t nanoseconds) override;
  void give_way() override;
  void wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds,
                       std::uint32_t bits) override;
  void wake(std::atomic<std::uint32_t>& word, int count, std::uint32_t bits) override;
  sqlite::shared::Registry& registry() override { return *processes_.at(process()).registry; }
  bool take_checkpoint(const sqlite::shared::Checkpoint& checkpoint) override;
  void takes_write_lock(bool is_promised_to_another) override;

  // For the thread of the running process that makes checkpoints.
  [[nodiscard]] bool others_work() const;
  std::optional<sqlite::shared::Checkpoint> next_checkpoint();

  std::function<void()> waits;           // the running thread waits, or gives way
  std::function<void()> takes_promised;  // the running thread takes the write lock that is promised to another one
  std::vector<std::string>* story = nullptr;
  std::uint32_t steps_max = 300'000;

 private:
  enum class State : std::uint8_t { ready, waits, ended };
  struct Fiber {
    std::size_t index = 0;
    int process = 0;
    std::function<void()> act;
    State state = State::ready;
    std::uint64_t until = 0;  // waits
    std::size_t word = 0;     // of the page, plus 1; 0: none
    std::uint32_t bits = 0;   // with which it is woken
    std::uint64_t stopped_until = 0;
    std::shared_ptr<sqlite::shared::Connection> refused;  // what take_refused() of this thread returns
    ucontext_t context{};
  };
  struct Process {
    std::unique_ptr<sqlite::shared::Registry> registry = std::make_unique<sqlite::shared::Registry>();
    bool has_checkpointer = false;
    std::deque<sqlite::shared::Checkpoint> checkpoints;
  };
  static constexpr std::size_t kStackBytes = std::size_t{512} << 10;

  void leave(const char* what, bool gives_way);
  [[nodiscard]] bool can_run(const Fiber& fiber) const {
    return fiber.state == State::ready && fiber.stopped_until <= time_;
  }
  Fiber* next_after(std::size_t index);
  bool pass_time();
  void end_waits();
  void apply(std::uint16_t what);
  void tell(const char* what);
  static std::size_t place_of(const std::atomic<std::uint32_t>& word);

  std::map<int, Process> processes_;
  std::vector<Fiber> fibers_;
  std::vector<void*> stacks_;
  Fiber* current_ = nullptr;
  int process_ = -1;
  int aside_ = 0;
  std::uint64_t time_ = 1'000'000;
  bool gave_way_ = false;
  ucontext_t main_{};
  Outcome outcome_;
  const std::function<void(int)>* kill_ = nullptr;
};

}  // namespace memlith::test::exploration
