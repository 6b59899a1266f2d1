// Allocators that can be compared: each takes its memory from a place that can be looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv_bench.hpp"

namespace memlith::tool {

class TestedAllocator {
 public:
  virtual ~TestedAllocator() = default;
  // Null: no room. May be called by several threads at once.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* block) = 0;
  // All memory in which blocks and what must survive of the allocator's own structures lie.
  [[nodiscard]] virtual std::vector<std::span<const std::byte>> memory() const = 0;
  // Bytes that the allocator keeps from everyone else. By default: the pages of memory() that are not all zeros.
  [[nodiscard]] virtual std::uint64_t footprint_bytes() const;
  // The part of that which is in use before the trace begins.
  [[nodiscard]] virtual std::uint64_t others_bytes() const { return 0; }
};

struct AllocatorKind {
  std::string name;
  std::string version;
  std::string text;  // what it is
  Result<std::unique_ptr<TestedAllocator>> (*open)(const std::string& folder, std::uint64_t bytes);
};

// `memlith`, `malloc`, and those that this program was built with: `boost-rbtree`, `pmemobj`.
std::vector<AllocatorKind> allocator_kinds();

std::vector<std::string> allocator_names();
// Each thread allocates and frees blocks of its own; part of suite threads.
[[nodiscard]] MaybeFailure measure_allocators_with_threads(const KvBenchArguments& arguments,
                                                           const ScratchFolder& scratch, std::uint64_t threads);

// One each; what the build did not find is not defined.
AllocatorKind boost_peer();
AllocatorKind pmemobj_peer();

// pmemobj looks at this variable before main().
inline constexpr const char* kPmemForceVariable = "PMEM_IS_PMEM_FORCE";

}  // namespace memlith::tool
