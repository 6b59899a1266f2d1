// How much slower this machine is than tests expect: $MEMLITH_TEST_SLOWNESS, of emulated processors. Limits of time
// that end what hangs are so many times longer.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace memlith::test {

inline unsigned slowness() {
  const char* const given = std::getenv("MEMLITH_TEST_SLOWNESS");
  return given == nullptr ? 1 : std::max(1u, static_cast<unsigned>(std::strtoul(given, nullptr, 10)));
}

}  // namespace memlith::test
