// The tests' copy of shared regions has this in the place of src/shared/step.hpp: a hook at each step, which may kill
// the process.
#pragma once

namespace memlith::core::shared {

inline void (*step_hook)() = nullptr;  // null: nothing happens

}  // namespace memlith::core::shared

#define MEMLITH_SHARED_STEP() \
  (::memlith::core::shared::step_hook != nullptr ? ::memlith::core::shared::step_hook() : void())
