#include "scheduler.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/units.hpp"

namespace memlith::lab {

namespace {
// With keeps_time: how long a step takes, the others' turns when a thread gives way to them, and to wake a thread.
constexpr auto kStep = std::chrono::nanoseconds(200);
constexpr auto kGivenWay = std::chrono::microseconds(5);
constexpr auto kWaking = std::chrono::microseconds(50);
}  // namespace

// ---- one runs at a time ----------------------------------------------------------------------------------------

#if MEMLITH_LAB_FIBERS

namespace {
constexpr std::size_t kStackBytes = 512 * core::kKiB;
Scheduler* g_entered = nullptr;  // whose fiber begins

// Control enters the fiber at its beginning.
void begin_anew(ucontext_t& context, void* stack, void (*enter)()) {
  MEMLITH_ASSERT(::getcontext(&context) == 0);
  context.uc_stack = {stack, 0, kStackBytes};
  ::makecontext(&context, enter, 0);
}
}  // namespace

Scheduler::~Scheduler() {
  for (const auto& worker : workers_) ::munmap(worker->stack, kStackBytes);
}

void Scheduler::make_worker(std::size_t index) {
  const auto enter = [] { g_entered->work(g_entered->current_); };
  if (workers_.size() > index) {
    if (std::exchange(workers_[index]->is_left, false)) {
      begin_anew(workers_[index]->context, workers_[index]->stack, enter);
    }
    return;
  }
  workers_.push_back(std::make_unique<Worker>());
  Worker& worker = *workers_[index];
  worker.stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  // The page below the stack: one that grows too long dies there, and nowhere else.
  MEMLITH_ASSERT(worker.stack != MAP_FAILED && ::mprotect(worker.stack, core::kPageBytes, PROT_NONE) == 0);
  begin_anew(worker.context, worker.stack, enter);
}

void Scheduler::may_die(std::function<void()> death, std::uint32_t process) {
  tasks_[current_].death = std::move(death);
  tasks_[current_].process = process;
}

void Scheduler::die() {
  tell("dies", nullptr);
  has_died_ = true;
  {
    const Unobserved system;
    tasks_[current_].death();
  }
  for (const std::size_t task : tasks_of_process()) {
    *tasks_[task].ended = tasks_[task].died = true;
    workers_[task]->is_left = true;
  }
  const std::size_t self = current_;
  leave(self, next_after_end());
}

void Scheduler::leave(std::size_t self, std::size_t next) {
  g_entered = this;
  ucontext_t* const from = self == kMain ? &main_ : &workers_[self]->context;
  MEMLITH_ASSERT(::swapcontext(from, next == kMain ? &main_ : &workers_[next]->context) == 0);
}

#else

Scheduler::~Scheduler() {
  if (lost_) {  // its threads are stuck in the engine; the process ends soon
    for (const auto& worker : workers_) worker->thread.detach();
    for (auto& worker : workers_) (void)worker.release();
    return;
  }
  quitting_ = true;
  for (const auto& worker : workers_) {
    worker->go.release();
    worker->thread.join();
  }
}

void Scheduler::may_die(std::function<void()>, std::uint32_t) {}
void Scheduler::die() { MEMLITH_ASSERT(false); }

void Scheduler::make_worker(std::size_t index) {
  if (workers_.size() > index) return;
  workers_.push_back(std::make_unique<Worker>());
  workers_[index]->thread = std::thread([this, index] {
    core::controller = this;
    workers_[index]->go.acquire();
    work(index);
  });
}

void Scheduler::leave(std::size_t self, std::size_t next) {
  // Determined first: once main continues, a scheduler whose threads are stuck may be destroyed, but its workers never
  // are.
  std::binary_semaphore& mine = self == kMain ? over_ : workers_[self]->go;
  (next == kMain ? over_ : workers_[next]->go).release();
  mine.acquire();
}

#endif

void Scheduler::work(std::size_t index) {
  while (!quitting_) {
    tasks_[index].act();
    *tasks_[index].ended = true;
    tell("end", nullptr);
    leave(index, next_after_end());
  }
}

Scheduler::Outcome Scheduler::run(const std::function<void()>& act, const std::vector<std::uint16_t>& decisions) {
  return run(act, [&decisions, index = std::size_t{0}](std::size_t) mutable {
    return index < decisions.size() ? decisions[index++] : std::uint16_t{0};
  });
}

Scheduler::Outcome Scheduler::run(const std::function<void()>& act, Chooser chooser) {
  MEMLITH_ASSERT(!lost_);
  workers_.reserve(kTasksMax);  // they are looked at while they become more
  tasks_.clear();
  tasks_.reserve(kTasksMax);
  objects_.clear();
  outcome_ = {};
  chooser_ = std::move(chooser);
  time_ = std::chrono::nanoseconds(0);
  deciding_ = has_died_ = has_stopped_ = false;
  (void)start(act);
  current_ = 0;
  core::Controller* const before = std::exchange(core::controller, this);
  leave(kMain, 0);
  core::controller = before;
  return std::move(outcome_);
}

std::shared_ptr<const bool> Scheduler::start(std::function<void()> act) {
  const std::size_t index = tasks_.size();
  MEMLITH_ASSERT(index < kTasksMax);
  Task task;
  task.act = std::move(act);
  task.ended = std::make_shared<bool>(false);
  tasks_.push_back(std::move(task));
  make_worker(index);
  if (index > 0) tell("start a thread", nullptr);
  return tasks_[index].ended;
}

// ---- decisions -------------------------------------------------------------------------------------------------

bool Scheduler::can_run(std::size_t task) const {
  const Task& t = tasks_[task];
  if (*t.ended || time_ < t.stopped_until) return false;
  return t.until == nullptr || (*t.until)() || (keeps_time ? time_ >= t.end : t.at_most != core::kForEver);
}

std::vector<std::size_t> Scheduler::tasks_of_process() const {
  const std::uint32_t process = tasks_[current_].process;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if ((i == current_ || (process != 0 && tasks_[i].process == process)) && !*tasks_[i].ended) all.push_back(i);
  }
  return all;
}

// The process goes on when there is no other that could.
bool Scheduler::pass_time() {
  if (!keeps_time) return false;
  auto next = core::kForEver;
  for (const Task& task : tasks_) {
    if (*task.ended) continue;
    const bool is_blocked = task.until != nullptr && !(*task.until)();
    next = std::min(next, std::max(is_blocked ? task.end : time_, task.stopped_until));
  }
  if (next != core::kForEver) time_ = std::max(time_, next);
  bool any = next != core::kForEver;
  for (Task& task : tasks_) {
    if (any || *task.ended || task.stopped_until != core::kForEver) continue;
    for (Task& each : tasks_) each.stopped_until = std::chrono::nanoseconds(0);
    any = true;
  }
  return any;
}

void Scheduler::stop(std::chrono::nanoseconds time) {
  tell("is stopped", nullptr);
  has_stopped_ = true;
  for (const std::size_t task : tasks_of_process()) {
    tasks_[task].stopped_until = time == core::kForEver ? time : time_ + time;
  }
  while (!can_run(current_)) {
    find_others();
    if (!others_.empty()) {
      switch_to(others_[0]);
    } else if (!pass_time()) {
      give_up("deadlock" + who_waits());
    }
  }
}

void Scheduler::find_others() {
  others_.clear();
  for (std::size_t i = 1; i < tasks_.size(); ++i) {
    const std::size_t task = (current_ + i) % tasks_.size();
    if (can_run(task)) others_.push_back(task);
  }
}

std::size_t Scheduler::decide(std::size_t options, bool preempts) {
  if (!deciding_ || options < 2) return 0;
  // More than there are: the line is of another run. It is done as far as it can be, and found not to be followed.
  const std::size_t chosen = std::min(chooser_(options), options - 1);
  outcome_.decisions.push_back({static_cast<std::uint16_t>(options), static_cast<std::uint16_t>(chosen),
                                preempts || keeps_time});
  return chosen;
}

void Scheduler::switch_to(std::size_t task) {
  const std::size_t self = current_;
  current_ = task;
  leave(self, task);
}

std::string Scheduler::who_waits() const {
  std::string text;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (!*tasks_[i].ended) text += fmt::format("; thread {}: {}", i, tasks_[i].what);
  }
  return text;
}

// This thread will never be scheduled again.
void Scheduler::give_up(std::string why) {
  outcome_.stuck = std::move(why);
  lost_ = true;
  leave(current_, kMain);
}

std::size_t Scheduler::next_after_end() {
  do {
    find_others();
    if (!others_.empty()) return current_ = others_[decide(others_.size(), false)];
  } while (pass_time());
  if (const std::string waiting = who_waits(); !waiting.empty()) {
    outcome_.stuck = "deadlock" + waiting;
    lost_ = true;
  }
  return kMain;
}

void Scheduler::point(const char* what, const void* object, bool changes) {
  tell(what, object);
  if (!deciding_) return;
  time_ += keeps_time ? kStep : std::chrono::microseconds(1);
  if (++outcome_.steps > steps_max) give_up(fmt::format("it gets nowhere: {} steps, and no end", steps_max));
  if (sees && object != nullptr && !sees(object)) return;
  find_others();
  const std::size_t others = others_.size();
  const std::size_t chosen = decide(others + 1 + (changes || !keeps_time ? fates() : 0), true);
  if (chosen > others) return meet_fate(chosen - others - 1);
  if (chosen > 0) switch_to(others_[chosen - 1]);
}

// The options of a process that may die: that, and to be stopped.
std::size_t Scheduler::fates() const {
  return has_died_ || has_stopped_ || !tasks_[current_].death ? 0 : 1 + stops.size();
}

void Scheduler::meet_fate(std::size_t which) {
  if (which == 0) return die();
  stop(stops[which - 1]);
}

// With keeps_time: before the running thread waits or gives way.
void Scheduler::begin_waiting() {
  if (waits) waits();
  if (const std::size_t chosen = keeps_time ? decide(1 + fates(), true) : 0; chosen > 0) meet_fate(chosen - 1);
}

bool Scheduler::block(const char* what, const void* object, std::chrono::nanoseconds at_most,
                      const std::function<bool()>& until) {
  tell(what, object);
  begin_waiting();
  Task* const self = &tasks_[current_];
  const std::size_t number = current_;
  const bool may_end = at_most != core::kForEver && !keeps_time;
  self->until = &until;
  self->at_most = at_most;
  self->end = at_most >= core::kForEver - time_ ? core::kForEver : time_ + at_most;
  self->what = what;
  while (!until() && !(keeps_time && time_ >= tasks_[number].end)) {
    if (++outcome_.steps > steps_max) give_up(fmt::format("it gets nowhere: {} steps, and no end", steps_max));
    find_others();
    std::size_t chosen = 0;
    if (!others_.empty()) chosen = decide(others_.size() + (may_end ? 1 : 0), may_end && timeouts_count);
    if (chosen < others_.size()) {
      switch_to(others_[chosen]);
    } else if (!may_end && !pass_time()) {
      give_up("deadlock" + who_waits());
    }
    if (may_end && !until()) {  // chosen although no thread has woken it
      time_ += std::chrono::seconds(1);
      break;
    }
  }
  Task& task = tasks_[number];
  task.until = nullptr;
  task.at_most = core::kForEver;
  task.what = "running";
  tell(until() ? "go on" : "time runs out", object);
  return until();
}

void Scheduler::yield() {
  tell("give way", nullptr);
  begin_waiting();
  if (++outcome_.steps > steps_max) give_up(fmt::format("it gets nowhere: {} steps, and no end", steps_max));
  find_others();
  // No thread can run: time passes.
  time_ += keeps_time        ? kGivenWay
           : others_.empty() ? std::chrono::nanoseconds(std::chrono::seconds(1))
                             : std::chrono::microseconds(1);
  if (!others_.empty()) switch_to(others_[decide(others_.size(), false)]);
}

std::size_t Scheduler::choose(std::size_t count) { return decide(count, false); }

void Scheduler::woken(std::uint32_t thread) {
  auto& not_before = tasks_[thread - 1].stopped_until;
  if (keeps_time) not_before = std::max(not_before, time_ + kWaking);
}

void Scheduler::let_others_run() {
  for (;;) {
    find_others();
    std::erase_if(others_, [this](std::size_t task) {
      const Task& t = tasks_[task];
      return t.until != nullptr && !(*t.until)();  // only time would wake it
    });
    if (others_.empty()) break;
    // It runs until it blocks or ends; then the first thread that can run continues: this thread, unless others can
    // run, too.
    const std::function<bool()> all_wait = [this, self = current_] {
      for (std::size_t task = 0; task < tasks_.size(); ++task) {
        const Task& t = tasks_[task];
        if (task != self && !*t.ended && (t.until == nullptr || (*t.until)())) return false;
      }
      return true;
    };
    block("let the others run", nullptr, core::kForEver, all_wait);
  }
}

bool next_schedule(std::vector<Decision>& decisions, std::size_t preemptions) {
  std::vector<std::size_t> spent(decisions.size() + 1, 0);
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    spent[i + 1] = spent[i] + (decisions[i].preempts && decisions[i].chosen > 0 ? 1 : 0);
  }
  while (!decisions.empty()) {
    Decision& last = decisions.back();
    const std::size_t cost = spent[decisions.size() - 1] + (last.preempts ? 1 : 0);
    if (last.chosen + 1 < last.options && cost <= preemptions) {
      ++last.chosen;
      return true;
    }
    decisions.pop_back();
  }
  return false;
}

void Scheduler::tell(const char* what, const void* object) {
  if (story == nullptr || !deciding_) return;
  std::string text = fmt::format("  thread {}: {}", current_, what);
  if (object != nullptr) {
    auto known = std::find(objects_.begin(), objects_.end(), object);
    if (known == objects_.end()) known = objects_.insert(objects_.end(), object);
    text += fmt::format(" #{}", known - objects_.begin());
  }
  story->push_back(std::move(text));
}

}  // namespace memlith::lab
