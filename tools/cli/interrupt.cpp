// The signal flag. SIGNAL CONTEXT: the handler uses lock-free atomics and what POSIX allows a handler to call.
#include "interrupt.hpp"

#include <atomic>
#include <csignal>
#include <initializer_list>

#include "clock.hpp"

namespace memlith::tool {

namespace {

constexpr auto kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<std::uint64_t> first_interrupt_ns{0};  // 0: none yet
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

extern "C" void note_interrupt(int signal) {
  const std::uint64_t now = now_ns();
  std::uint64_t first = 0;
  if (first_interrupt_ns.compare_exchange_strong(first, now, std::memory_order_relaxed)) return;
  // timeout(1) sends its signal to us and to our group, so that one comes twice.
  if (now - first < kNsPerSecond) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this returns
}

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // or measured calls would return EINTR
  action.sa_handler = note_interrupt;
  for (const int signal : kSignals) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void ignore_interrupts() {
  for (const int signal : kSignals) ::signal(signal, SIG_IGN);
}

bool interrupted() { return first_interrupt_ns.load(std::memory_order_relaxed) != 0; }

}  // namespace memlith::tool
