// Which sanitizers watch this build. gcc says it by macros, clang by features.
#pragma once

#if defined(__has_feature)
#define MEMLITH_TEST_HAS(feature) __has_feature(feature)
#else
#define MEMLITH_TEST_HAS(feature) 0
#endif

namespace memlith::test {

#if defined(__SANITIZE_ADDRESS__) || MEMLITH_TEST_HAS(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || MEMLITH_TEST_HAS(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

}  // namespace memlith::test

#undef MEMLITH_TEST_HAS
