// Status to code. Floor: capi.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <utility>

#include "base/no_throw.hpp"

namespace memlith::core {

inline std::int32_t code_of(Status status) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(status.category) |
                                   static_cast<std::uint32_t>(status.detail) << 8);
}

// Defers pthread_cancel(3) until the call is over: a persist waits in cancellation points, and unwinding it there would
// leave an unfinished frame.
class UncancelledHere {
 public:
  UncancelledHere() { (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~UncancelledHere() { (void)::pthread_setcancelstate(before_, nullptr); }
  UncancelledHere(const UncancelledHere&) = delete;
  UncancelledHere& operator=(const UncancelledHere&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// How many calls of memlith this thread is in. What they allocate is the process's own, whatever heap the thread has
// named (memlith_heap_used). A stand-in for malloc asks, so that the access itself must not allocate.
#define MEMLITH_EARLY_THREAD_LOCAL __attribute__((tls_model("initial-exec")))
MEMLITH_EARLY_THREAD_LOCAL extern constinit thread_local unsigned calls_inside;

class InsideHere {
 public:
  InsideHere() { ++calls_inside; }
  ~InsideHere() { --calls_inside; }
  InsideHere(const InsideHere&) = delete;
  InsideHere& operator=(const InsideHere&) = delete;
};

// Every entry point runs inside this function: no exception reaches C.
template <class Body>
std::int32_t guarded(Body&& body) noexcept {
  const UncancelledHere uncancelled;
  const InsideHere inside;
  const Status status = no_throw(std::forward<Body>(body));
  return status.ok() ? 0 : code_of(status);
}

}  // namespace memlith::core
