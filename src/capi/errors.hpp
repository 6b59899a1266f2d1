// Status to code. Floor: capi.
#pragma once

#include <cstdint>
#include <exception>
#include <new>

#include "base/status.hpp"

namespace memlith::core {

inline std::int32_t code_of(Status status) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(status.category) |
                                   static_cast<std::uint32_t>(status.detail) << 8);
}

// Every entry point runs inside this: nothing unwinds into C, and running out of memory in a container is an error like
// any other.
template <class Body>
std::int32_t guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? 0 : code_of(status);
  } catch (const std::bad_alloc&) {
    return code_of(fail(Errc::no_memory, Detail::none, "out of memory"));
  } catch (const std::exception& error) {
    return code_of(fail(Errc::io, Detail::none, "unexpected: {}", error.what()));
  }
}

}  // namespace memlith::core
