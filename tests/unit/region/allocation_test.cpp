// docs/guarantees.md, "memory": once warm, persist allocates nothing, so running out of memory cannot strike in its middle.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "support/region_words.hpp"

namespace {
thread_local std::uint64_t g_allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++g_allocations;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(bytes)
                           : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace memlith::test {
namespace {

using namespace core;

class Allocation : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, Allocation, ::testing::Values(TrackerKind::scan, TrackerKind::mprotect, TrackerKind::touched),
                         [](const auto& given) { return name_of_tracker(given.param); });

// Small and streamed transactions, of one region and of two, after a first round of each.
TEST_P(Allocation, WarmPersistAllocatesNothing) {
  StoreOptions options;
  options.manual_checkpoint = true;
  options.log_bytes = 32 * kMiB;
  RegionWorld world(GetParam(), options);
  Region& a = world.open("a", 1 * kMiB);
  Region& b = world.open("b", 1 * kMiB);
  const auto round = [&](std::uint64_t value) {
    for (std::uint64_t offset = 0; offset < kMiB; offset += 8192) put(a, offset, value);  // 512 KiB of pages: streamed
    ASSERT_TRUE(persist(a).ok());
    put(a, 0, value + 1);
    put(b, 0, value + 1);
    ASSERT_TRUE(persist(a, b).ok());
    ASSERT_TRUE(persist(b).ok());  // nothing stored
  };
  for (std::uint64_t i = 0; i < 3; ++i) round(i);
  const std::uint64_t before = g_allocations;
  for (std::uint64_t i = 3; i < 13; ++i) round(i);
  EXPECT_EQ(g_allocations, before);
  EXPECT_GT(before, 0u) << "the counter does not count";
}

}  // namespace
}  // namespace memlith::test
