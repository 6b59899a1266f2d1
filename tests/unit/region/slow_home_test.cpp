// A region whose home lies on persistent memory, which is slower than memory, runs from copies of all its pages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/host.hpp"
#include "base/pages.hpp"
#include "region/region.hpp"
#include "support/process_memory.hpp"
#include "support/store_words.hpp"

namespace memlith::test::slow_home_test {
namespace {

using namespace core;

TEST(RegionOnPersistentMemory, IsCopiedWhenItIsMappedAndWhenItGrows) {
  if (::madvise(nullptr, 0, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "this kernel copies a page at the first store";
  // Where larger pages are emulated, the kernel's own pages of such a page may lie behind the end of the file.
  if (host_page_bytes() != kPageBytes) GTEST_SKIP() << "the kernel maps a file by pages of 4 KiB only";
  const TempFolder folder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "");
  const auto volume = make_posix_volume(folder / "store", IoBackend::dax);
  StoreOptions options;
  options.create = true;
  const auto store = must(Store::open(*volume, options));
  if (!store->runs_from_copies()) GTEST_SKIP() << "the folder cannot be mapped like persistent memory";
  RegionOptions wanted;
  wanted.create = true;
  wanted.tracker = TrackerKind::touched;
  wanted.size_bytes = 64 * kPageBytes;
  {
    const auto region = must(Region::open(*store, "a", wanted));
    EXPECT_EQ(own_pages(region->address(), region->size()), 64u);
    ASSERT_OK(region->grow(128 * kPageBytes));
    EXPECT_EQ(own_pages(region->address(), region->size()), 128u);
  }
  EXPECT_OK(store->close());
}

}  // namespace
}  // namespace memlith::test::slow_home_test
