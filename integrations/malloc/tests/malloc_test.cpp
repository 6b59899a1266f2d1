// docs/heap.md, "Plain new and malloc": malloc and its relatives, with libmemlith_malloc preloaded.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>

#include "memlith/heap.hpp"
#include "private/inside.h"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

TEST(PlainMalloc, ComesFromTheHeapInAScope) {
  const TempFolder folder;
  auto heap = Heap::open_file(folder / "a.heap", {.create = true});
  ASSERT_TRUE(heap.ok());
  constexpr int kCount = 8;
  void* blocks[kCount] = {};
  char* text = nullptr;
  bool zero = true;
  {
    const use_heap scope(*heap);
    blocks[0] = std::malloc(100);
    blocks[1] = std::calloc(10, 30);
    blocks[2] = std::realloc(nullptr, 50);
    blocks[3] = std::aligned_alloc(64, 128);
    if (::posix_memalign(&blocks[4], 4096, 10) != 0) blocks[4] = nullptr;
    blocks[5] = ::memalign(32, 10);
    blocks[6] = ::valloc(10);
    blocks[7] = ::reallocarray(nullptr, 10, 10);
    text = ::strdup("a text that the C library copies");
    for (int i = 0; i < 300; ++i) zero = zero && static_cast<char*>(blocks[1])[i] == 0;
  }
  EXPECT_TRUE(zero);
  for (void* const block : blocks) EXPECT_EQ(memlith_heap_of(block), heap->handle());
  EXPECT_EQ(memlith_heap_of(text), heap->handle());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[4]) % 4096, 0u);
  EXPECT_GE(::malloc_usable_size(blocks[0]), 100u);
  // A block that is resized stays in its heap, also outside of a scope.
  std::strcpy(static_cast<char*>(blocks[0]), "content");
  blocks[0] = std::realloc(blocks[0], 100000);
  EXPECT_EQ(memlith_heap_of(blocks[0]), heap->handle());
  EXPECT_STREQ(static_cast<char*>(blocks[0]), "content");
  blocks[0] = std::realloc(blocks[0], 10);
  EXPECT_STREQ(static_cast<char*>(blocks[0]), "content");
  EXPECT_LT(::malloc_usable_size(blocks[0]), 100u);
  ASSERT_TRUE(heap->verify().ok());
  for (void* const block : blocks) std::free(block);
  std::free(text);
  EXPECT_EQ(heap->verify()->blocks, 0u);
}

TEST(PlainMalloc, IsTheProcessesOtherwise) {
  void* const block = std::malloc(100);
  EXPECT_EQ(memlith_heap_owns(block), 0);
  EXPECT_GE(::malloc_usable_size(block), 100u);
  void* const larger = std::realloc(block, 200);
  EXPECT_EQ(memlith_heap_owns(larger), 0);
  std::free(larger);
}

// A block that was freed before ends the program, because what is persisted next would be spoilt.
TEST(PlainMallocDeathTest, ASecondFreeEndsTheProgram) {
  const TempFolder folder;
  EXPECT_DEATH(
      {
        auto heap = Heap::open_file(folder / "a.heap", {.create = true});
        const use_heap scope(*heap);
        void* volatile block = std::malloc(100);  // or the compiler leaves all three calls out
        std::free(block);
        std::free(block);
      },
      "memlith: .*freed before|memlith: .*no block");
}

}  // namespace
}  // namespace memlith::test
