#include "gate.hpp"

#include <memlith/memlith.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "errors.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatience = 10;  // seconds
constexpr int kLooks = 500;       // about 20 us
constexpr int kOvertaken = 4;     // times

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// The line of Python code that runs now, of the program and not of this package.
std::string place_of_caller() {
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string place;
  while (frame.is_valid() && !frame.is_none()) {
    auto* const at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    place = nb::str(code.attr("co_filename")).c_str() + (":" + std::to_string(PyFrame_GetLineNumber(at)));
    if (place.find("/memlith/_") == std::string::npos && place.find("/memlith/steps/_") == std::string::npos) break;
    frame = frame.attr("f_back");
  }
  return place;
}

std::string name_of_thread(unsigned long ident) {
  for (const nb::handle thread : nb::module_::import_("threading").attr("enumerate")()) {
    const nb::object number = thread.attr("ident");
    if (number.is_none() || nb::cast<unsigned long>(number) != ident) continue;
    return std::string("thread \"") + nb::str(thread.attr("name")).c_str() + "\"";
  }
  return "a thread that has ended";
}

// An event loop runs in this thread: while the thread waits, no task of the loop can end its transaction.
bool runs_event_loop() {
  const nb::object asyncio = nb::steal(PyImport_GetModule(nb::str("asyncio").ptr()));
  if (!asyncio.is_valid()) {
    PyErr_Clear();
    return false;
  }
  return !asyncio.attr("_get_running_loop")().is_none();
}

std::string beginning(const Owner& owner) {
  char seconds[32];
  (void)std::snprintf(seconds, sizeof seconds, "%.1f", seconds_since(owner.began));
  return " began " + std::string(seconds) + " s ago at " + owner.place;
}

[[noreturn]] void refuse(const OwnerPtr& holder) {
  if (holder == nullptr) fail(MEMLITH_BUSY, "other threads persist; wait for longer");
  fail(MEMLITH_BUSY, "the store is in a transaction that " + name_of_thread(holder->thread) + beginning(*holder) +
                         ", and that has not ended; end it, wait for longer (wait=), or work in that transaction: "
                         "`with tx.use():`, where tx is what store.begin() returned");
}

[[noreturn]] void refuse_in_loop(const OwnerPtr& holder) {
  fail(MEMLITH_BUSY, "the store is in a transaction that another task of this event loop" + beginning(*holder) +
                         ": waiting for it here would stop the loop; use `async with store.transaction():`, which "
                         "waits without that");
}

}  // namespace

Owner::Owner(Store* of, bool with_arrays)
    : store(of),
      arrays(with_arrays),
      thread(PyThread_get_thread_ident()),
      began(Clock::now()),
      place(place_of_caller()) {}

// The holder is about to end if it is in the library without the interpreter lock; it is cheaper to look again for a
// moment than to sleep. Without yielding, which would give away the interpreter lock's time.
bool Gate::take_at_once(const Request& request) {
  for (int look = 0; look < kLooks; ++look) {
    const std::lock_guard lock(mutex_);
    if (request.may()) {
      request.take();
      return true;
    }
    if (!is_held_ || (owner_ != nullptr && !owner_->ending)) return false;
  }
  return false;
}

void Gate::await(const Request& request, std::optional<double> wait) {
  const auto began = Clock::now();
  auto since = began;  // when the transaction in front was first seen
  OwnerPtr before;
  for (int round = 0;; ++round) {
    OwnerPtr holder;
    {
      const std::lock_guard lock(mutex_);
      holder = owner_;
    }
    if (holder != before || holder == nullptr || holder->ending) since = Clock::now();
    before = holder;
    const double left = wait.has_value() ? *wait - seconds_since(began) : kPatience - seconds_since(since);
    if (left <= 0) refuse(holder);
    if (round == 0 && holder != nullptr && holder->thread == PyThread_get_thread_ident() && runs_event_loop()) {
      refuse_in_loop(holder);
    }
    {
      const Unlocked unlocked;
      std::unique_lock lock(mutex_);
      const auto slice = std::min<std::chrono::duration<double>>(kBetweenLooks, std::chrono::duration<double>(left));
      // One that others have overtaken again and again takes it as soon as it may.
      const bool may = request.changed.wait_for(lock, slice, request.may);
      if (may && round >= kOvertaken) return request.take();
    }
    look_at_signals();
    if (take_at_once(request)) return;
  }
}

// With mutex_ held. A transaction that waits goes first, or a stream of persists would keep it out.
void Gate::wake() {
  if (is_held_) return;
  if (waiting_ == 0) {
    may_enter_.notify_all();
  } else if (inside_ == 0) {
    may_begin_.notify_one();
  }
}

void Gate::enter() {
  const Request request{may_enter_, [this] { return !is_held_ && waiting_ == 0; }, [this] { ++inside_; }};
  if (!take_at_once(request)) await(request, std::nullopt);
}

void Gate::leave() {
  const std::lock_guard lock(mutex_);
  --inside_;
  wake();
}

bool Gate::begin(const OwnerPtr& owner, std::optional<double> wait) {
  bool has_it_already = false;
  const Request request{may_begin_, [&] { return is_held_ ? owner != nullptr && owner_ == owner : inside_ == 0; },
                        [&] {
                          has_it_already = is_held_;  // another thread of the transaction took it
                          is_held_ = true;
                          owner_ = owner;
                        }};
  if (take_at_once(request)) return !has_it_already;
  struct CountedWait {
    Gate& gate;
    const OwnerPtr& owner;
    CountedWait(Gate& given, const OwnerPtr& of) : gate(given), owner(of) {
      const std::lock_guard lock(gate.mutex_);
      ++gate.waiting_;
      if (owner != nullptr) ++owner->waiting;
    }
    ~CountedWait() {
      const std::lock_guard lock(gate.mutex_);
      --gate.waiting_;
      if (owner != nullptr && --owner->waiting > 0) gate.may_begin_.notify_all();
      gate.wake();
    }
  } const waiting(*this, owner);
  await(request, wait);
  return !has_it_already;
}

void Gate::end(const Owner* owner) {
  const std::lock_guard lock(mutex_);
  if (!is_held_ || owner_.get() != owner) return;
  is_held_ = false;
  owner_.reset();
  wake();
}

bool Gate::held_by(const OwnerPtr& owner) const {
  const std::lock_guard lock(mutex_);
  return is_held_ && owner_ == owner;
}

}  // namespace memlith::python
