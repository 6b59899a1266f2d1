// SIGNAL CONTEXT: everything but prepare_store_steps() may run inside a signal handler: no allocation, no locks but
// that of the region.
#include "region/trackers/store_steps.hpp"

#include <signal.h>
#include <ucontext.h>

#include <cerrno>
#include <cstring>
#include <mutex>

namespace memlith::core {

#if defined(__x86_64__)

namespace {

constexpr greg_t kTrapFlag = 0x100;
// A signal handler of the program that ran between the store and the stop would find the page writable.
constexpr SignalSet kDuringStep = ~(bit_of(SIGTRAP) | bit_of(SIGSEGV) | bit_of(SIGBUS));

// The pages that the instruction at `code` stores to: two if it lies across their border. An instruction that scatters
// its stores over more pages leaves the others writable.
struct Steps {
  static constexpr std::uint32_t kPagesMax = 4;
  std::uintptr_t code = 0;
  SignalSet signals = 0;  // blocked before
  std::uint32_t count = 0;
  std::uint32_t pages[kPagesMax] = {};
  FaultRegion* regions[kPagesMax] = {};
};
[[gnu::tls_model("initial-exec")]] thread_local Steps t_steps{};

struct sigaction g_previous_trap{};

greg_t& flags_of(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL]; }

void protect_stepped_pages() {
  for (std::uint32_t i = 0; i < t_steps.count; ++i) protect_watched_page(*t_steps.regions[i], t_steps.pages[i]);
  t_steps.count = 0;
}

void handle_trap(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (t_steps.count > 0 && info->si_code == TRAP_TRACE) {
    protect_stepped_pages();
    flags_of(context) &= ~kTrapFlag;
    std::memcpy(&static_cast<ucontext_t*>(context)->uc_sigmask, &t_steps.signals, sizeof t_steps.signals);
  } else if ((g_previous_trap.sa_flags & SA_SIGINFO) != 0) {
    g_previous_trap.sa_sigaction(signal, info, context);
  } else if (g_previous_trap.sa_handler != SIG_DFL && g_previous_trap.sa_handler != SIG_IGN) {
    g_previous_trap.sa_handler(signal);
  } else {
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    (void)::raise(signal);  // strikes when signals are unblocked
  }
  errno = saved_errno;
}

}  // namespace

// Under a lock that fork(2) waits for: a child either has the handler and knows so, or has neither.
Status prepare_store_steps() {
  static bool installed = false;
  order_forks_before_handler();
  const std::lock_guard lock(installing_handlers());
  if (installed) return kOk;
  struct sigaction action{};
  action.sa_sigaction = handle_trap;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  std::memset(&action.sa_mask, 0xff, sizeof action.sa_mask);
  if (::sigaction(SIGTRAP, &action, &g_previous_trap) != 0) {
    return fail_errno(errno, Detail::tracker, "cannot catch SIGTRAP");
  }
  installed = true;
  return kOk;
}

bool store_steps_work() {
  struct sigaction now{};
  return ::sigaction(SIGTRAP, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == handle_trap;
}

std::uintptr_t code_of(const void* context) {
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

void step_store(FaultRegion& region, std::uint64_t page, void* context) {
  if (!store_steps_work()) return;  // the program's handler would be called for each instruction from here on
  Steps& steps = t_steps;
  const std::uintptr_t code = code_of(context);
  // A handler of the program that left an earlier store by siglongjmp(3) took the trap flag with it.
  if (steps.count > 0 && steps.code != code) protect_stepped_pages();
  if (steps.count == 0) {
    auto& signals = static_cast<ucontext_t*>(context)->uc_sigmask;
    std::memcpy(&steps.signals, &signals, sizeof steps.signals);
    std::memcpy(&signals, &kDuringStep, sizeof kDuringStep);
    steps.code = code;
  }
  if (steps.count < Steps::kPagesMax) {
    steps.pages[steps.count] = static_cast<std::uint32_t>(page);
    steps.regions[steps.count] = &region;
    ++steps.count;
  }
  flags_of(context) |= kTrapFlag;
}

#else

Status prepare_store_steps() {
  return fail(Errc::unsupported, Detail::tracker,
              "MEMLITH_CHECK_THREADS works on x86-64 only; unset it, or open the region with the explicit tracker, "
              "which lets threads share pages");
}

bool store_steps_work() { return false; }

std::uintptr_t code_of(const void*) { return 0; }

void step_store(FaultRegion&, std::uint64_t, void*) {}

#endif

}  // namespace memlith::core
