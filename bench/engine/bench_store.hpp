// Making what the benchmarks measure: a store in its steady state, with regions that were written all over.
#pragma once

#include <cstdint>
#include <string>

#include "cli/failure.hpp"
#include "cli/store_path.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

// A new store in folder `path`. `log_mib` 0: a log of the library's own choice.
Result<StoreHandle> make_bench_store(const std::string& path, std::uint64_t log_mib, const std::string& io = "auto");

// A new region `bench-<number>` of that store, filled and persisted. `tracker_detail` becomes the library's sentence on
// how the region is tracked. Call memlith_store_checkpoint() behind the last one.
Result<memlith_region*> make_bench_region(memlith_store* store, std::uint64_t number, std::uint64_t region_mib,
                                          const RoundShape& shape, std::string& tracker_detail);

// Such a region, and the work on it.
Result<Workload> make_workload(memlith_store* store, std::uint64_t number, std::uint64_t region_mib,
                               const RoundShape& shape, std::string& tracker_detail);

}  // namespace memlith::tool
