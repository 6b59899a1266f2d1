// The descriptors that memlith itself has open in the program's process.
//
// They get high numbers, so that the program's own are as they would be without memlith, and the program cannot close
// them or put something else in their place: daemons close all descriptors that they do not know.
#pragma once

namespace memlith::preload {

// Gives a descriptor of memlith's a high number, and remembers it. Negative numbers are returned as they are.
int engine_descriptor(int fd);
bool is_engine_descriptor(int fd);
void close_engine_descriptor(int fd);

}  // namespace memlith::preload
