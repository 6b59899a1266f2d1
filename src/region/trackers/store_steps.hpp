// MEMLITH_CHECK_THREADS: stores to a region one by one, so that each of them is seen. Floor: region, private to the
// trackers.
//
// A page is never left writable. The handler of a store's fault makes the page writable and asks the processor to stop
// behind the next instruction (the trap flag); the handler of that stop, SIGTRAP, protects the page again. While a
// store is on its way, its page is writable for all threads: a store of another thread to the same page in these
// microseconds is not seen.
#pragma once

#include "region/trackers/fault_handler.hpp"

namespace memlith::core {

// Installs the handler of SIGTRAP, once per process. `unsupported` where the processor is not one of x86-64.
Status prepare_store_steps();

// False if the program has installed a handler of SIGTRAP since: pages stay writable from their first store on, so that
// no further store to them is seen. Async-signal-safe.
bool store_steps_work();

// The fault of a store was handled, and its page is writable: `context` is that of the handler. The page is protected
// again when the store is done. In the handler of the fault, which holds no region.
void step_store(FaultRegion& region, std::uint64_t page, void* context);

// The address of the instruction at which `context` was interrupted; 0 if that is unknown.
std::uintptr_t code_of(const void* context);

}  // namespace memlith::core
