// The heap of this library around a fork. All signals are blocked while it is locked.
#pragma once

namespace memlith::preload {

void lock_heap();
void unlock_heap();
// The lock belongs to the parent's thread, as which the child cannot unlock it.
void unlock_heap_in_child();

}  // namespace memlith::preload
