// Places where a process may be killed, or another one run, between two steps of the control block's protocol. Nothing
// happens there: tests put a header of their own in the place of this one. Part of the SQLite plugin.
#pragma once

#define MEMLITH_SHARED_STEP() void()
#define MEMLITH_SHARED_TAKES_LOCK(is_promised_to_another) void()
#define MEMLITH_SHARED_ON_MACHINE(call) void()
