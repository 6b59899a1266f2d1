// Exceptions as errors. Floor: base.
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "base/status.hpp"
#include "base/thread_annotations.hpp"

namespace memlith::core {

// Runs `body`, which returns a Status. What it throws is a Status as well: running out of memory in a container, or of threads, is an
// error like any other. A body that needs a mutex says so; here the analysis cannot know which one that is.
template <class Body>
Status no_throw(Body&& body) noexcept MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::none, "out of memory");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {  // a file system's, say
      return fail_errno(error.code().value(), Detail::none, "{}", error.what());
    }
    return fail(Errc::no_memory, Detail::thread,
                "cannot start a thread; end some, or raise the limits of this process");
  } catch (const std::exception& error) {
    return fail(Errc::io, Detail::none, "unexpected: {}", error.what());
  }
}

}  // namespace memlith::core
