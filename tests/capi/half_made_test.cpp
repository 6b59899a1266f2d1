// A structure whose making a crash cut in the middle is absent for the next opening, not something else: kv stores,
// application logs, heaps and roots. The crash laboratory cuts at every operation (workload "making"); here each kind
// meets what such a crash leaves, a region of zeros, through the public interface.
#include <gtest/gtest.h>

#include <algorithm>

#include "memlith/applog.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::half_made_test {
namespace {

// A store whose regions "half" and "other" are all that there is of what was to be made in them. In "other" bytes were
// stored, but not at its beginning.
class HalfMade : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Store::open(folder_ / "store", {.create = true});
    ASSERT_TRUE(opened) << opened.error().message();
    store.emplace(std::move(*opened));
    ASSERT_TRUE(store->region("half", {.create = true, .size = 1 << 20}));
    auto other = store->region("other", {.create = true, .size = 1 << 20});
    ASSERT_TRUE(other);
    static_cast<char*>(other->address())[100] = 'x';
    ASSERT_TRUE(store->persist());
  }
  template <class T>
  std::int32_t category(const memlith::Result<T>& result) {
    said = result ? "" : result.error().message();
    return result ? MEMLITH_OK : result.error().category();
  }
  // `open(name, create, exclusive)` opens the structure and returns the category.
  template <class Open>
  void check(const Open& open) {
    EXPECT_EQ(open("half", false, false), MEMLITH_NOT_FOUND);
    EXPECT_NE(said.find("crash cut the making"), std::string::npos) << said;
    EXPECT_EQ(open("other", false, false), MEMLITH_INCOMPATIBLE);
    EXPECT_EQ(open("other", true, false), MEMLITH_INCOMPATIBLE) << "another program's bytes are no empty region";
    EXPECT_EQ(open("other", true, true), MEMLITH_EXISTS);
    EXPECT_EQ(open("half", true, true), MEMLITH_OK) << said;
    EXPECT_EQ(open("half", true, true), MEMLITH_EXISTS);
    EXPECT_EQ(open("half", false, false), MEMLITH_OK) << said;
  }
  TempFolder folder_;
  std::optional<Store> store;
  std::string said;
};

TEST_F(HalfMade, KvStore) {
  check([&](const char* name, bool create, bool exclusive) {
    return category(Kv::open(*store, name, {.create = create, .exclusive = exclusive}));
  });
}

TEST_F(HalfMade, ApplicationLog) {
  check([&](const char* name, bool create, bool exclusive) {
    return category(AppLog::open(*store, name, {.create = create, .exclusive = exclusive}));
  });
}

TEST_F(HalfMade, Heap) {
  check([&](const char* name, bool create, bool exclusive) {
    auto heap = Heap::open(*store, name, {.create = create, .exclusive = exclusive});
    if (heap) {
      EXPECT_TRUE(heap->persist());
    }
    return category(heap);
  });
}

// The object that a root is made of persists the region while it is being constructed, and the process is killed.
TEST_F(HalfMade, Root) {
  struct Root {
    explicit Root(const memlith::Region& region) : number(7) {
      (void)region.persist();
      ::_exit(0);
    }
    std::uint64_t number;
    std::uint64_t another = 0;
  };
  struct Whole {
    std::uint64_t number = 9;
    std::uint64_t another = 9;
  };
  store.reset();
  EXPECT_IN_CHILD([&]() -> std::string {
    auto opened = Store::open(folder_ / "store");
    if (!opened) return opened.error().message();
    auto region = opened->region("half");
    if (!region) return region.error().message();
    (void)region->root<Root>(1, *region);
    return "the constructor returned";
  });
  auto opened = Store::open(folder_ / "store");
  ASSERT_TRUE(opened);
  auto region = opened->region("half");
  ASSERT_TRUE(region);
  const auto* const words = static_cast<const std::uint64_t*>(region->address());
  const auto* const end = words + region->size() / sizeof *words;
  EXPECT_NE(std::find(words, end, 7U), end) << "the first one was cut in the middle";
  const auto root = region->root<Whole>();
  ASSERT_TRUE(root) << root.error().message();
  EXPECT_EQ((*root)->another, 9U);
}

}  // namespace
}  // namespace memlith::test::half_made_test
