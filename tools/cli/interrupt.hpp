// Stopping in good order on SIGINT, SIGTERM and SIGHUP.
//
// The benchmarks own a temporary folder that must not stay behind, so a signal only sets a flag; the loops look at it
// between rounds and return interrupted_failure(), and destructors remove the folder. A second signal, a second later
// or more, kills a run that hangs; but not one that is removing its folder.
#pragma once

namespace memlith::tool {

// Also ignores SIGPIPE: a reader that went away shows as output_failed(), not as a death that leaves files behind.
void catch_interrupts();

// From now on, for the end of the process.
void ignore_interrupts();

[[nodiscard]] bool interrupted();

}  // namespace memlith::tool
