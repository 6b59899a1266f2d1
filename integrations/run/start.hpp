// How the library gets into programs: the environment that `memlith run` sets.
#pragma once

namespace memlith::preload {

inline constexpr char kPreloadVariable[] = "LD_PRELOAD";
// The path of this library; empty if it cannot be found out.
const char* library_path();

// Forks by `call`, which returns what fork returns, as pthread_atfork would have it done.
long fork_by(long (*call)(const void*), const void* context);

}  // namespace memlith::preload
