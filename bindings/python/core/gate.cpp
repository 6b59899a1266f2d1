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

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// The line of Python code that runs now, of the program and not of this package.
std::string place_of_caller() {
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string place;
  while (frame.is_valid() && !frame.is_none()) {
    auto* const at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    place = nb::str(code.attr("co_filename")).c_str() + (":" + std::to_string(PyFrame_GetLineNumber(at)));
    if (place.find("/memlith/_") == std::string::npos) break;
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

void Gate::await(const std::function<bool()>& take, std::optional<double> wait) {
  {
    const std::lock_guard lock(mutex_);
    if (take()) return;
  }
  const auto began = Clock::now();
  auto since = began;  // when the transaction in front was first seen
  OwnerPtr before;
  for (bool is_first = true;; is_first = false) {
    OwnerPtr holder;
    {
      const std::lock_guard lock(mutex_);
      holder = owner_;
    }
    if (holder != before || holder == nullptr || holder->ending) since = Clock::now();
    before = holder;
    const double left = wait.has_value() ? *wait - seconds_since(began) : kPatience - seconds_since(since);
    if (left <= 0) refuse(holder);
    if (is_first && holder != nullptr && holder->thread == PyThread_get_thread_ident() && runs_event_loop()) {
      refuse_in_loop(holder);
    }
    {
      const Unlocked unlocked;
      std::unique_lock lock(mutex_);
      const auto slice = std::min<std::chrono::duration<double>>(kBetweenLooks, std::chrono::duration<double>(left));
      if (changed_.wait_for(lock, slice, take)) return;
    }
    look_at_signals();
  }
}

void Gate::enter() {
  // A transaction that waits goes first, or a stream of persists would keep it out.
  await(
      [this] {
        if (is_held_ || waiting_ != 0) return false;
        ++inside_;
        return true;
      },
      std::nullopt);
}

void Gate::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) changed_.notify_all();
}

bool Gate::begin(const OwnerPtr& owner, std::optional<double> wait) {
  if (owner != nullptr && held_by(owner)) return false;
  struct CountedWait {
    Gate& gate;
    explicit CountedWait(Gate& given) : gate(given) {
      const std::lock_guard lock(gate.mutex_);
      ++gate.waiting_;
    }
    ~CountedWait() {
      const std::lock_guard lock(gate.mutex_);
      --gate.waiting_;
      gate.changed_.notify_all();
    }
  } const waiting(*this);
  bool has_it_already = false;
  await(
      [&] {
        if (is_held_ && owner != nullptr && owner_ == owner) return has_it_already = true;  // another thread took it
        if (is_held_ || inside_ != 0) return false;
        is_held_ = true;
        owner_ = owner;
        return true;
      },
      wait);
  return !has_it_already;
}

void Gate::end(const Owner* owner) {
  const std::lock_guard lock(mutex_);
  if (!is_held_ || owner_.get() != owner) return;
  is_held_ = false;
  owner_.reset();
  changed_.notify_all();
}

bool Gate::held_by(const OwnerPtr& owner) const {
  const std::lock_guard lock(mutex_);
  return is_held_ && owner_ == owner;
}

}  // namespace memlith::python
