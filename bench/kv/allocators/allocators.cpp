// memlith's allocator and the C library's, and how much of its memory an allocator has in use.
#include "allocators.hpp"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "kit/raw_device.hpp"
#include "kit/try.hpp"
#include "kit/workload.hpp"
#include "memlith/heap.hpp"

#ifndef MEMLITH_PEERS_ALLOCATORS
#define MEMLITH_PEERS_ALLOCATORS
#endif

namespace memlith::tool {

namespace {

class MallocAllocator final : public TestedAllocator {
 public:
  void* allocate(std::size_t bytes) override { return std::malloc(bytes); }
  void free(void* block) override { std::free(block); }
  // The main arena: what sbrk gave, and the C library's variables. Blocks that mmap gives are not among them.
  [[nodiscard]] std::vector<std::span<const std::byte>> memory() const override {
    std::vector<std::span<const std::byte>> found;
    std::ifstream maps("/proc/self/maps");
    std::string line;
    std::string before;
    while (std::getline(maps, line)) {
      unsigned long begin = 0;
      unsigned long end = 0;
      char rights[5] = "";
      if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
      // The C library's variables that begin as zeros lie in memory without a name behind its file.
      const bool library = line.find("/libc.so") != std::string::npos ||
                           (before.find("/libc.so") != std::string::npos && line.find('/') == std::string::npos);
      if (std::strncmp(rights, "rw", 2) == 0 && (library || line.find("[heap]") != std::string::npos)) {
        found.emplace_back(reinterpret_cast<const std::byte*>(begin), end - begin);
      }
      before = line;
    }
    return found;
  }
  [[nodiscard]] std::uint64_t footprint_bytes() const override {
    const auto info = ::mallinfo2();
    return info.arena + info.hblkhd - info.keepcost;  // what free() could return at once is not kept
  }
  [[nodiscard]] std::uint64_t others_bytes() const override {
    (void)::malloc_trim(0);
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  }
};

Result<std::unique_ptr<TestedAllocator>> open_malloc(const std::string&, std::uint64_t) {
  return std::unique_ptr<TestedAllocator>(std::make_unique<MallocAllocator>());
}

class HeapAllocator final : public TestedAllocator {
 public:
  ~HeapAllocator() override {
    if (heap_) (void)heap_->close();
    if (store_) (void)store_->close();
  }
  HeapAllocator() = default;
  HeapAllocator(const HeapAllocator&) = delete;
  HeapAllocator& operator=(const HeapAllocator&) = delete;

  [[nodiscard]] MaybeFailure open(const std::string& folder, std::uint64_t bytes) {
    const StoreOptions store{.create = true, .exclusive = true, .tell_dropped = false};
    MEMLITH_TOOL_GET(store_, checked(Store::open(folder + "/store", store), "opening a store"));
    const RegionOptions heap{.create = true, .tracker = Tracker::fault, .max_size = bytes};
    MEMLITH_TOOL_GET(heap_, checked(Heap::open(*store_, "heap", heap), "opening a heap"));
    allocator_.emplace(heap_->get_allocator());
    return {};
  }
  void* allocate(std::size_t bytes) override {
    try {
      return allocator_->allocate(bytes);
    } catch (const heap_error&) {
      return nullptr;
    }
  }
  void free(void* block) override { allocator_->deallocate(static_cast<std::byte*>(block), 0); }
  [[nodiscard]] std::vector<std::span<const std::byte>> memory() const override {
    memlith_region* const region = heap_->region();
    return {{static_cast<const std::byte*>(memlith_region_address(region)), memlith_region_size(region)}};
  }

 private:
  std::optional<Store> store_;
  std::optional<Heap> heap_;
  std::optional<allocator<>> allocator_;  // as containers use it
};

Result<std::unique_ptr<TestedAllocator>> open_heap_allocator(const std::string& folder, std::uint64_t bytes) {
  auto made = std::make_unique<HeapAllocator>();
  MEMLITH_TOOL_TRY(made->open(folder, bytes));
  return std::unique_ptr<TestedAllocator>(std::move(made));
}

bool is_zero(std::span<const std::byte> page) {
  return page[0] == std::byte{0} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0;
}

}  // namespace

std::uint64_t TestedAllocator::footprint_bytes() const {
  std::uint64_t bytes = 0;
  for (std::span<const std::byte> rest : memory()) {
    for (; !rest.empty(); rest = rest.subspan(std::min<std::size_t>(rest.size(), kPageBytes))) {
      if (!is_zero(rest.first(std::min<std::size_t>(rest.size(), kPageBytes)))) bytes += kPageBytes;
    }
  }
  return bytes;
}

std::vector<AllocatorKind> allocator_kinds() {
  return {
      {"memlith", memlith_version(), "memlith::allocator, tracker fault; its structures lie in the region",
       open_heap_allocator},
      {"malloc", fmt::format("glibc {}", ::gnu_get_libc_version()), "the C library's; nothing survives", open_malloc},
      MEMLITH_PEERS_ALLOCATORS};
}

std::vector<std::string> allocator_names() {
  std::vector<std::string> names;
  for (const AllocatorKind& kind : allocator_kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace memlith::tool
