// PMDK's libpmemobj: atomic allocations, each persistent when it returns, in memory that is said to be persistent.
#include <fmt/format.h>
#include <libpmemobj.h>
#include <unistd.h>

#include <algorithm>

#include "allocators.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr char kPmemobjLayout[] = "memlith-bench";
constexpr unsigned kPmemobjMode = 0600;
constexpr std::uint64_t kPmemobjPoolBytesMin = 64ull << 20;  // each size has chunks of 256 KiB

class PmemobjAllocator final : public TestedAllocator {
 public:
  PmemobjAllocator(PMEMobjpool* pool, std::string path, std::uint64_t bytes)
      : pool_(pool), path_(std::move(path)), bytes_(bytes) {}
  ~PmemobjAllocator() override {
    ::pmemobj_close(pool_);
    (void)::unlink(path_.c_str());
  }
  PmemobjAllocator(const PmemobjAllocator&) = delete;
  PmemobjAllocator& operator=(const PmemobjAllocator&) = delete;

  void* allocate(std::size_t bytes) override {
    PMEMoid block;
    if (::pmemobj_alloc(pool_, &block, bytes, 0, nullptr, nullptr) != 0) return nullptr;
    if (pool_id_ == 0) pool_id_ = block.pool_uuid_lo;  // the first allocation is made by one thread
    return reinterpret_cast<std::byte*>(pool_) + block.off;
  }
  void free(void* block) override {
    PMEMoid id{pool_id_,
               static_cast<std::uint64_t>(static_cast<std::byte*>(block) - reinterpret_cast<std::byte*>(pool_))};
    ::pmemobj_free(&id);
  }
  [[nodiscard]] std::vector<std::span<const std::byte>> memory() const override {
    return {{reinterpret_cast<const std::byte*>(pool_), bytes_}};
  }

 private:
  PMEMobjpool* pool_;  // also where the pool is mapped
  std::string path_;
  std::uint64_t bytes_;
  std::uint64_t pool_id_ = 0;
};

Result<std::unique_ptr<TestedAllocator>> open_pmemobj(const std::string&, std::uint64_t bytes) {
  bytes = std::max(bytes, kPmemobjPoolBytesMin);
  std::string path = fmt::format("/dev/shm/memlith-bench-{}.pool", ::getpid());
  (void)::unlink(path.c_str());
  PMEMobjpool* const pool = ::pmemobj_create(path.c_str(), kPmemobjLayout, bytes, kPmemobjMode);
  if (pool == nullptr) return tool_failure(MEMLITH_IO, fmt::format("pmemobj: {}: {}", path, ::pmemobj_errormsg()));
  auto made = std::make_unique<PmemobjAllocator>(pool, std::move(path), bytes);
  made->free(made->allocate(1));
  return std::unique_ptr<TestedAllocator>(std::move(made));
}

}  // namespace

AllocatorKind pmemobj_peer() {
  return {"pmemobj", fmt::format("{}.{}", PMEMOBJ_MAJOR_VERSION, PMEMOBJ_MINOR_VERSION),
          fmt::format("PMDK's pmemobj_alloc and pmemobj_free, in /dev/shm with {}=1; durable at return on such memory",
                      kPmemForceVariable),
          open_pmemobj};
}

}  // namespace memlith::tool
