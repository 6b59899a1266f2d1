// A part of suite kvcalls, and what its parts share.
#pragma once

#include "kv_bench.hpp"

namespace memlith::tool {

[[nodiscard]] MaybeFailure measure_fairness(const KvBenchArguments& arguments, const ScratchFolder& scratch);
// The fields of a line of kvcalls that were asked for.
Json requested_of(const KvBenchArguments& arguments, std::uint64_t records);

}  // namespace memlith::tool
