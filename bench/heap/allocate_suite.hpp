// Allocation alone. Floor: heap-bench.
#pragma once

#include "heap_bench.hpp"
#include "kit/scratch.hpp"

namespace memlith::tool {

std::vector<std::string> allocator_names();
// Each thread allocates and frees blocks of its own; part of suite threads.
[[nodiscard]] MaybeFailure measure_allocators_with_threads(const HeapBenchArguments& arguments,
                                                           const ScratchFolder& scratch, std::uint64_t threads);

}  // namespace memlith::tool
