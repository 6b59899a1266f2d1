// `memlith-crashlab replay LINE` does a crash again and tells its story; `shrink` looks for a smaller one first.
#pragma once

#include <string>

namespace memlith::lab {

// 0: nothing is wrong; 1: the violation came again; 2: the line cannot be followed.
int replay_command(const std::string& line, bool json);
int shrink_command(const std::string& line);

// True if a line, of a crash or of a schedule, leads to something wrong again, and to the same bytes on the medium, by
// their hash, if that is known.
bool replays(const std::string& line, const std::string& medium);

}  // namespace memlith::lab
