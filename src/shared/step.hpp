// Places in the protocol of shared regions where a process may die. Nothing happens there: tests, which put a header of
// their own in the place of this one, kill the process. Floor: shared.
#pragma once

#define MEMLITH_SHARED_STEP() void()
