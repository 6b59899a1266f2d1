#include "real.hpp"

#include <dlfcn.h>

namespace memlith::preload {

namespace {

RealCalls look_up() {
  RealCalls calls{};
#define MEMLITH_REAL_CALL(name) calls.name = reinterpret_cast<decltype(calls.name)>(::dlsym(RTLD_NEXT, #name));
  MEMLITH_REAL_CALLS(MEMLITH_REAL_CALL)
#undef MEMLITH_REAL_CALL
  return calls;
}

}  // namespace

const RealCalls& real() {
  static const RealCalls calls = look_up();
  return calls;
}

}  // namespace memlith::preload
