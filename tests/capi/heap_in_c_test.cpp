// memlith/heap.h keeps its contract from C: heap_c_test.c.
#include <gtest/gtest.h>

#include "support/temp_folder.hpp"

extern "C" int heap_in_c(const char* path);

namespace memlith::test::heap_in_c_test {
namespace {

TEST(HeapInC, EveryCall) {
  const TempFolder folder;
  EXPECT_EQ(heap_in_c((folder / "store").c_str()), 0) << "the line of heap_c_test.c that failed";
}

}  // namespace
}  // namespace memlith::test::heap_in_c_test
