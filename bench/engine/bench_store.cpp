// Stores and regions of the benchmarks.
#include "bench_store.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "cli/io_names.hpp"
#include "kit/raw_device.hpp"

namespace memlith::tool {

Result<StoreHandle> make_bench_store(const std::string& path, std::uint64_t log_mib, const std::string& io) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE;
  options.log_bytes = log_mib * kMiB;
  options.io = io_of(io);
  options.notice = [](void*, const char* sentence) { fmt::print(stderr, "# {}\n", sentence); };
  return open_store({path, StoreKind::folder}, options);
}

Result<memlith_region*> make_bench_region(memlith_store* store, std::uint64_t number, std::uint64_t region_mib,
                                          const RoundShape& shape, std::string& tracker_detail) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
  if (shape.process_scope) options.flags |= MEMLITH_REGION_PROCESS_SCOPE;
  if (shape.thread_scope) options.flags |= MEMLITH_REGION_THREAD_SCOPE;
  options.tracker = shape.tracker;
  options.size = region_mib * kMiB;
  memlith_region* region = nullptr;
  std::int32_t code = memlith_region_open(store, fmt::format("bench-{}", number).c_str(), &options, &region);
  if (code != MEMLITH_OK) return library_failure(code, "opening a region");
  memlith_region_info info{};
  info.struct_size = sizeof info;
  code = memlith_region_get_info(region, &info);
  if (code != MEMLITH_OK) return library_failure(code, "examining a region");
  tracker_detail.assign(info.tracker_detail, ::strnlen(info.tracker_detail, sizeof info.tracker_detail));
  if (MaybeFailure failure = Workload(store, region, shape, kSeed + number).fill()) return std::move(*failure);
  return region;
}

Result<Workload> make_workload(memlith_store* store, std::uint64_t number, std::uint64_t region_mib,
                               const RoundShape& shape, std::string& tracker_detail) {
  Result<memlith_region*> region = make_bench_region(store, number, region_mib, shape, tracker_detail);
  if (!region.ok()) return std::move(region.failure());
  return Workload(store, *region, shape, kSeed + number);
}

}  // namespace memlith::tool
