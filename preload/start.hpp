// How the library gets into programs: the environment that `memlith run` sets.
#pragma once

namespace memlith::preload {

inline constexpr char kPreloadVariable[] = "LD_PRELOAD";
// The path of this library; empty if it cannot be found out.
const char* library_path();

}  // namespace memlith::preload
