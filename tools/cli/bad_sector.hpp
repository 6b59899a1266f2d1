// A file's page that the disk cannot give back ends a process by SIGBUS at the load that meets it. A command says then
// which file and where, and exits with 1.
#pragma once

#include "output.hpp"

namespace memlith::tool {

// Before the library maps anything; its own handler passes on what is not its own.
void tell_bad_sectors(Format format);

}  // namespace memlith::tool
