// Status to code. Floor: capi.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <exception>
#include <new>
#include <system_error>

#include "base/status.hpp"

namespace memlith::core {

inline std::int32_t code_of(Status status) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(status.category) |
                                   static_cast<std::uint32_t>(status.detail) << 8);
}

// Holds back pthread_cancel(3) until the call is over: what a persist waits in are cancellation points, and unwinding it there would
// leave a frame without an end.
class UncancelledHere {
 public:
  UncancelledHere() { (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~UncancelledHere() { (void)::pthread_setcancelstate(before_, nullptr); }
  UncancelledHere(const UncancelledHere&) = delete;
  UncancelledHere& operator=(const UncancelledHere&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Every entry point runs inside this: nothing unwinds into C, and running out of memory in a container, or of threads, is an error
// like any other.
template <class Body>
std::int32_t guarded(Body&& body) noexcept {
  const UncancelledHere uncancelled;
  try {
    const Status status = body();
    return status.ok() ? 0 : code_of(status);
  } catch (const std::bad_alloc&) {
    return code_of(fail(Errc::no_memory, Detail::none, "out of memory"));
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {  // a file system's, say
      return code_of(fail_errno(error.code().value(), Detail::none, "{}", error.what()));
    }
    return code_of(fail(Errc::no_memory, Detail::thread,
                        "cannot start a thread; end some, or raise the limits of this process"));
  } catch (const std::exception& error) {
    return code_of(fail(Errc::io, Detail::none, "unexpected: {}", error.what()));
  }
}

}  // namespace memlith::core
