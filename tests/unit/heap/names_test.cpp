// docs/heap.md, "names": objects are found again by name, as the type that they were made as, and a changed type is
// named.
#include <gtest/gtest.h>

#include "heap/heap.hpp"
#include "support/heap_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr ObjectType kType{"Notebook", 72, 8, 1};

// Names live and die with the persist that covers them.
TEST(HeapNames, AreFoundAgain) {
  HeapWorld world(TrackerKind::fault);
  Heap& heap = world.heap();
  std::vector<std::byte*> objects;
  for (int i = 0; i < 100; ++i) {
    objects.push_back(static_cast<std::byte*>(must(heap.arenas().allocate(72, 8))));
    ASSERT_OK(heap.names().set("object " + std::to_string(i), objects.back(), kType));
  }
  for (int i = 0; i < 100; i += 3) ASSERT_OK(heap.names().remove("object " + std::to_string(i)));
  ASSERT_OK(world.persist());
  ASSERT_OK(heap.names().remove("object 1"));
  world.crash();
  for (int i = 0; i < 100; ++i) {
    const auto found = world.heap().names().find("object " + std::to_string(i), kType);
    if (i % 3 == 0) {
      EXPECT_TRUE(is_error(found, Errc::not_found));
    } else {
      ASSERT_OK(found);
      EXPECT_EQ(found->address, objects[static_cast<std::size_t>(i)]);
    }
  }
  const auto report = world.heap().verify();
  ASSERT_OK(report);
  EXPECT_EQ(report->names, 66u);
  EXPECT_EQ(report->blocks, 166u);  // the objects stay, and each record is a block
  EXPECT_EQ(must(world.heap().names().all()).size(), 66u);
}

// Another type is refused, and both are named; so are names that are taken, and objects that are none.
TEST(HeapNames, AreOfOneType) {
  HeapWorld world(TrackerKind::touched);
  Heap& heap = world.heap();
  void* const object = must(heap.arenas().allocate(72, 8));
  ASSERT_OK(heap.names().set("a", object, kType));
  for (const ObjectType& other : {ObjectType{"Notebook", 80, 8, 1}, ObjectType{"Notebook", 72, 16, 1},
                                  ObjectType{"Notebook", 72, 8, 2}, ObjectType{"_ZTSi", 72, 8, 1}}) {
    EXPECT_TRUE(is_error(heap.names().find("a", other), Errc::incompatible));
    const std::string text(last_error_text());
    EXPECT_NE(text.find("Notebook of 72 bytes, aligned to 8, layout 1"), std::string::npos) << text;
    EXPECT_NE(text.find("the program expects"), std::string::npos) << text;
  }
  EXPECT_NE(std::string(last_error_text()).find("expects int of"), std::string::npos) << last_error_text();
  EXPECT_TRUE(is_error(heap.names().set("a", object, kType), Errc::exists));
  EXPECT_TRUE(is_error(heap.names().set("b", static_cast<std::byte*>(object) + 16, kType), Errc::invalid));
  EXPECT_TRUE(is_error(heap.names().set("b", &world, kType), Errc::invalid));
  EXPECT_TRUE(is_error(heap.names().set("b", object, {"Larger", 100, 8, 1}), Errc::invalid));
  EXPECT_TRUE(is_error(heap.names().set(std::string(256, 'n'), object, kType), Errc::invalid));
  EXPECT_TRUE(is_error(heap.names().remove("b"), Errc::not_found));
  EXPECT_EQ(must(heap.verify()).blocks, 2u);
  ASSERT_OK(world.rollback());
  EXPECT_TRUE(is_error(heap.names().find("a"), Errc::not_found));
}

}  // namespace
}  // namespace memlith::test
