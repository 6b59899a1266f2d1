// Assertions. Floor: base.
//
// MEMLITH_ASSERT is always on: it guards bytes about to reach the medium and the state that decides about them.
// Stopping loses nothing that was committed; going on might write nonsense. MEMLITH_DCHECK is for debug builds. Bytes
// read from a medium are input, never asserted on.
#pragma once

namespace memlith::core::detail {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}

#define MEMLITH_ASSERT(expression)                    \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? static_cast<void>(0)                         \
       : ::memlith::core::detail::assertion_failed(#expression, __FILE__, __LINE__))

#ifdef NDEBUG
#define MEMLITH_DCHECK(expression) static_cast<void>(0)
#else
#define MEMLITH_DCHECK(expression) MEMLITH_ASSERT(expression)
#endif
