// Places where a process may be killed, or another one run, between two steps of the shared page's protocol: tests hook
// in there. Part of the SQLite plugin.
#pragma once

namespace memlith::sqlite::shared {

#ifdef MEMLITH_SQLITE_SABOTAGE
// The next step of the calling thread is about to be done.
extern void (*step_hook)();
#define MEMLITH_SHARED_STEP() \
  (::memlith::sqlite::shared::step_hook != nullptr ? ::memlith::sqlite::shared::step_hook() : void())
#else
#define MEMLITH_SHARED_STEP() void()
#endif

}  // namespace memlith::sqlite::shared
