// Which programs this library cannot be loaded into, or does not see all of.
#pragma once

#include <string>

namespace memlith::preload {

// Empty if the program at `path`, or the interpreter that its first line names, can run under `memlith run`; otherwise
// the reason, as the end of a sentence that begins with the name of the program.
std::string why_not(const std::string& path);

}  // namespace memlith::preload
