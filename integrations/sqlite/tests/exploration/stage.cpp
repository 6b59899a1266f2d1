#include "stage.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace memlith::test::exploration {

using core::shm::kSegmentMagic;
using core::shm::SegmentHead;

Stage* g_running = nullptr;

namespace {
constexpr std::uint64_t kStopNs = 2'000'000;
constexpr std::uint64_t kWakeNs = 50'000;  // as long as it takes to wake a thread: longer than a small transaction
constexpr std::uint64_t kNever = UINT64_MAX;
}  // namespace

namespace {
struct Named {
  const char* name;
  std::uint16_t what;
};
constexpr Named kNamed[] = {{"kill", kKill}, {"stop", kStop}, {"stop-for-long", kStopForLong}};
}  // namespace

std::string describe(const Plan& plan) {
  std::string text;
  for (const Turn& turn : plan) {
    std::string what = std::to_string(turn.what);
    for (const Named& each : kNamed) {
      if (each.what == turn.what) what = each.name;
    }
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", turn.step, what);
  }
  return text;
}

Plan parse_plan(const std::string& text) {
  Plan plan;
  std::istringstream in(text);
  for (std::string turn; std::getline(in, turn, ',');) {
    const std::size_t colon = std::min(turn.find(':'), turn.size() - 1);
    const std::string what = turn.substr(colon + 1);
    plan.push_back({static_cast<std::uint32_t>(std::atoi(turn.c_str())),
                    static_cast<std::uint16_t>(std::atoi(what.c_str()))});
    for (const Named& each : kNamed) {
      if (what == each.name) plan.back().what = each.what;
    }
  }
  return plan;
}

Stage::~Stage() {
  for (void* const stack : stacks_) ::munmap(stack, kStackBytes);
}

// ---- processes -----------------------------------------------------------------------------------------------------

void Stage::begin() {
  time_ = 1'000'000;
  outcome_ = {};
  process_ = -1;
}

void Stage::add_process(int process, bool has_checkpointer) {
  processes_[process].has_checkpointer |= has_checkpointer;
}

void Stage::end() {
  fibers_.clear();
  processes_.clear();
}

bool Stage::take_checkpoint(const sqlite::shared::Checkpoint& checkpoint) {
  Process& here = processes_.at(process());
  if (here.has_checkpointer) here.checkpoints.push_back(checkpoint);
  return here.has_checkpointer;
}

bool Stage::others_work() const {
  return std::any_of(fibers_.begin(), fibers_.end(), [this](const Fiber& fiber) {
    return &fiber != current_ && fiber.process == current_->process && fiber.state != State::ended;
  });
}

std::optional<sqlite::shared::Checkpoint> Stage::next_checkpoint() {
  auto& wanted = processes_.at(process()).checkpoints;
  if (wanted.empty()) return std::nullopt;
  const auto next = wanted.front();
  wanted.pop_front();
  return next;
}

void Stage::takes_write_lock(bool is_promised_to_another) {
  if (is_promised_to_another && takes_promised) takes_promised();
}

void Stage::release(int process) {
  Process& dead = processes_.at(process);
  dead.registry->abandon_all();
  (void)dead.registry.release();  // its lock may be held for ever
  dead.registry = std::make_unique<sqlite::shared::Registry>();
}

// ---- the order -----------------------------------------------------------------------------------------------------

Stage::Fiber* Stage::next_after(std::size_t index) {
  for (std::size_t i = 1; i <= fibers_.size(); ++i) {
    Fiber& fiber = fibers_[(index + i) % fibers_.size()];
    if (can_run(fiber)) return &fiber;
  }
  return nullptr;
}

// Until a thread can run. False: none ever can.
bool Stage::pass_time() {
  std::uint64_t next = kNever;
  for (const Fiber& fiber : fibers_) {
    if (fiber.state == State::ended) continue;
    const std::uint64_t when = std::max(fiber.state == State::waits ? fiber.until : time_, fiber.stopped_until);
    next = std::min(next, when);
  }
  if (next == kNever) {
    // A process that was stopped goes on when there is no other.
    bool any = false;
    for (Fiber& fiber : fibers_) {
      if (fiber.state == State::ended || fiber.stopped_until != kNever) continue;
      fiber.stopped_until = 0;
      any = true;
    }
    return any;
  }
  time_ = std::max(time_, next);
  end_waits();
  return true;
}

void Stage::end_waits() {
  for (Fiber& fiber : fibers_) {
    if (fiber.state != State::waits || fiber.until > time_) continue;
    fiber.state = State::ready;
    fiber.word = 0;
  }
}

void Stage::apply(std::uint16_t what) {
  if (what < kKill) {
    current_ = &fibers_[what];
    return;
  }
  const int process = current_->process;
  tell(what == kKill ? "KILLED" : "STOPPED");
  if (what == kKill) {
    outcome_.killed = process;
    (*kill_)(process);
  } else {
    outcome_.stopped = process;
  }
  for (Fiber& fiber : fibers_) {
    if (fiber.process != process) continue;
    if (what == kKill) fiber.state = State::ended;
    if (what == kStop) fiber.stopped_until = time_ + kStopNs;
    if (what == kStopForLong) fiber.stopped_until = kNever;
  }
  Fiber* const next = next_after(current_->index);
  if (next != nullptr) current_ = next;
}

Stage::Outcome Stage::run(std::vector<Thread> threads, const Plan& plan, const std::function<void(int process)>& kill) {
  g_running = this;
  fibers_ = std::vector<Fiber>(threads.size());
  outcome_ = {};
  kill_ = &kill;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    Fiber& fiber = fibers_[i];
    fiber.index = i;
    fiber.process = threads[i].process;
    fiber.act = std::move(threads[i].act);
    if (stacks_.size() == i) {
      stacks_.push_back(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      if (stacks_.back() == MAP_FAILED) std::abort();
    }
    if (::getcontext(&fiber.context) != 0) std::abort();
    fiber.context.uc_stack = {stacks_[i], 0, kStackBytes};
    ::makecontext(
        &fiber.context,
        [] {
          Fiber& self = *g_running->current_;
          self.act();
          self.state = State::ended;
          g_running->leave("end", false);
        },
        0);
  }
  std::size_t next_turn = 0;
  current_ = fibers_.data();
  for (std::uint32_t step = 0;; ++step) {
    // The default: the running thread goes on, if it can and does not give way.
    Fiber* const before = current_;
    end_waits();
    if (!can_run(*before) || gave_way_) {
      Fiber* next = next_after(before->index);
      while (next == nullptr && pass_time()) next = next_after(before->index);
      if (next == nullptr) break;
      current_ = next;
    }
    std::uint16_t choices = outcome_.killed < 0 && outcome_.stopped < 0 ? kKillable : 0;
    for (const Fiber& fiber : fibers_) {
      if (&fiber != current_ && can_run(fiber)) choices |= static_cast<std::uint16_t>(1u << fiber.index);
    }
    if (next_turn < plan.size() && plan[next_turn].step == step) {
      // Killed or stopped is the thread that came to this step, also one that is about to wait.
      if (plan[next_turn].what >= kKill && before->state != State::ended) current_ = before;
      apply(plan[next_turn].what);
      ++next_turn;
      if (!can_run(*current_)) {
        gave_way_ = false;
        outcome_.choices.push_back(0);
        continue;
      }
    }
    outcome_.choices.push_back(choices);
    if (step > steps_max) {
      outcome_.stuck = fmt::format("no end after {} steps", steps_max);
      break;
    }
    gave_way_ = false;
    if (current_->refused != nullptr) sqlite::shared::note_refused(std::exchange(current_->refused, nullptr));
    time_ += 1000;
    if (::swapcontext(&main_, &current_->context) != 0) std::abort();
  }
  for (const Fiber& fiber : fibers_) {
    if (fiber.state != State::ended && outcome_.stuck.empty()) {
      outcome_.stuck = fmt::format("thread {} waits for ever", fiber.index);
    }
  }
  current_ = nullptr;
  return std::move(outcome_);
}

// ---- the running thread --------------------------------------------------------------------------------------------

void Stage::leave(const char* what, bool gives_way) {
  Fiber* const self = current_;
  tell(what);
  gave_way_ = gives_way;
  self->refused = sqlite::shared::take_refused();
  if (::swapcontext(&self->context, &main_) != 0) std::abort();
}

void Stage::point(const char* what) {
  if (current_ == nullptr || aside_ > 0) return;
  leave(what, false);
}

void Stage::give_way() {
  if (current_ == nullptr || aside_ > 0) return;
  if (waits) waits();
  time_ += 5'000;
  leave("give way", true);
}

void Stage::sleep(std::uint64_t nanoseconds) {
  if (current_ == nullptr || aside_ > 0) {
    time_ += nanoseconds;
    return;
  }
  current_->until = time_ + nanoseconds;
  current_->state = State::waits;
  leave("sleep", false);
}

// Processes have the page at addresses of their own.
std::size_t Stage::place_of(const std::atomic<std::uint32_t>& word) {
  const auto address = reinterpret_cast<std::uintptr_t>(&word);
  std::uintptr_t base = address & ~std::uintptr_t{4095};
  while (reinterpret_cast<const SegmentHead*>(base)->magic.load() != kSegmentMagic) base -= 4096;
  return address - base + 1;
}

void Stage::wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds,
                            std::uint32_t bits) {
  if (current_ == nullptr || aside_ > 0) {
    time_ += nanoseconds;
    return;
  }
  point("before a wait");
  if (word.load() != seen) return;
  if (waits) waits();
  current_->until = nanoseconds > kNever / 4 ? kNever : time_ + nanoseconds;
  current_->word = place_of(word);
  current_->bits = bits;
  current_->state = State::waits;
  leave("wait", false);
  current_->word = 0;
}

void Stage::wake(std::atomic<std::uint32_t>& word, int count, std::uint32_t bits) {
  point("wake");
  const std::size_t place = place_of(word);
  for (Fiber& fiber : fibers_) {
    if (count == 0) break;
    if (fiber.state != State::waits || fiber.word != place || (fiber.bits & bits) == 0) continue;
    --count;
    fiber.until = time_ + kWakeNs;
    fiber.word = 0;
  }
}

void Stage::tell(const char* what) {
  if (story == nullptr) return;
  story->push_back(fmt::format("  {:>8} us  thread {} (process {}): {}", time_ / 1000, current_->index,
                               current_->process, what));
}

}  // namespace memlith::test::exploration
