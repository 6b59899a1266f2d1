// Exceptions as errors. Floor: base.
#pragma once

#include <sys/resource.h>

#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "base/status.hpp"
#include "base/thread_annotations.hpp"

namespace memlith::core {

// The error of a std::bad_alloc; `when`: "" or " in ...". Allocates nothing.
inline Status out_of_memory(Detail detail, std::string_view when) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return fail(Errc::no_memory, detail, "out of memory{}", when);
  }
  return fail(Errc::no_memory, detail,
              "out of memory{}: the process may have {} bytes of addresses in all (RLIMIT_AS, `ulimit -v`)", when,
              limit.rlim_cur);
}

// Runs `body`, which returns a Status, and turns an exception into a Status: a container that runs out of memory, or a
// lack of threads, is an error like any other. A body that needs a mutex is annotated with it.
template <class Body>
Status no_throw(Body&& body) noexcept {
  try {
    return call_annotated(body);
  } catch (const std::bad_alloc&) {
    return out_of_memory(Detail::none, "");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {  // for example of std::filesystem
      return fail_errno(error.code().value(), Detail::none, "{}", error.what());
    }
    return fail(Errc::no_memory, Detail::thread,
                "cannot start a thread; end other threads, or raise the limits of this process");
  } catch (const std::exception& error) {
    return fail(Errc::io, Detail::none, "unexpected: {}", error.what());
  }
}

}  // namespace memlith::core
