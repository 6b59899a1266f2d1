// The signal flag. SIGNAL CONTEXT: the handler does nothing but store to a lock-free atomic.
#include "interrupt.hpp"

#include <atomic>
#include <csignal>

namespace memlith::tool {

namespace {

std::atomic<bool> interrupt_seen{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_interrupt(int /*signal*/) { interrupt_seen.store(true, std::memory_order_relaxed); }

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  // SA_RESTART keeps EINTR out of the measured calls; SA_RESETHAND lets a second signal kill a run that hangs.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  action.sa_handler = note_interrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_seen.load(std::memory_order_relaxed); }

}  // namespace memlith::tool
