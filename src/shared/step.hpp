// Places where a test may kill a process, or plant a mistake, in the protocol of shared regions. Floor: shared.
//
// Only the tests' copy of this floor (MEMLITH_SHARED_PLANTED) has any of it.
#pragma once

#include <cstdint>

namespace memlith::core::shared {

#ifdef MEMLITH_SHARED_PLANTED
enum class Planted : std::uint8_t {
  none,
  answer_before_durable,  // a synchronous commit is acknowledged when it was captured
  undo_left_out,          // the ranges of a client that died are released as they are
  release_before_undo,    // and undone then
  capture_after_release,  // a commit's ranges are released before their bytes are copied
};
extern Planted planted;
extern void (*step_hook)();  // null: nothing happens
#define MEMLITH_SHARED_STEP() \
  (::memlith::core::shared::step_hook != nullptr ? ::memlith::core::shared::step_hook() : void())
#define MEMLITH_SHARED_IS_PLANTED(name) (::memlith::core::shared::planted == ::memlith::core::shared::Planted::name)
#else
#define MEMLITH_SHARED_STEP() void()
#define MEMLITH_SHARED_IS_PLANTED(name) false
#endif

}  // namespace memlith::core::shared
