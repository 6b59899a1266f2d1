// docs/heap.md, "Limits": a heap at its max_size through each kind of container, and a heap that is only read.
#include <gtest/gtest.h>

#include <memory_resource>
#include <string>

#include "memlith/heap.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {

struct Filled {
  memlith::vector<int> numbers;
  memlith::map<int, memlith::string> texts;
  std::pmr::vector<std::pmr::string> lines;

  explicit Filled(std::pmr::memory_resource* resource) : lines(resource) {}
};

}  // namespace memlith::test

template <>
struct memlith::is_persistable<memlith::test::Filled> : std::true_type {};

namespace memlith::test::heap_limits_test {
namespace {

template <class T>
::testing::AssertionResult fine(const T& result) {
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.error().message();
}

std::string text_of(std::size_t i) { return "line " + std::to_string(i) + std::string(300, '.'); }

void expect_filled(const Filled& all, std::size_t numbers, std::size_t texts, std::size_t lines) {
  ASSERT_EQ(all.numbers.size(), numbers);
  for (std::size_t i = 0; i < numbers; ++i) ASSERT_EQ(all.numbers[i], static_cast<int>(i));
  ASSERT_EQ(all.texts.size(), texts);
  for (std::size_t i = 0; i < texts; ++i) ASSERT_EQ(all.texts.at(static_cast<int>(i)), text_of(i).c_str());
  ASSERT_EQ(all.lines.size(), lines);
  for (std::size_t i = 0; i < lines; ++i) ASSERT_EQ(all.lines[i], text_of(i).c_str());
}

// Adds until the heap refuses; how many were added. Each refusal is a std::bad_alloc that names the limit.
template <class Add>
std::size_t fill_up(const Add& add) {
  for (std::size_t i = 0;; ++i) {
    try {
      add(i);
    } catch (const std::bad_alloc& error) {
      EXPECT_NE(std::string(error.what()).find("max_size"), std::string::npos) << error.what();
      return i;
    }
  }
}

// Each container in turn takes all the room there is. The refused operation changed nothing, neither in the container
// nor in the others; that is persisted, rolled back to and found by the next opening; and room that is given back can
// be used.
TEST(HeapLimits, EveryContainerIsIntactAtMaxSize) {
  const TempFolder temp;
  std::size_t numbers = 0;
  std::size_t texts = 0;
  std::size_t lines = 0;
  {
    auto store = Store::open(temp / "store", {.create = true});
    ASSERT_TRUE(fine(store));
    auto heap = Heap::open(*store, "heap", {.create = true, .max_size = 3u << 20});
    ASSERT_TRUE(fine(heap));
    auto resource = heap->resource();
    ASSERT_TRUE(fine(resource));
    auto root = heap->root<Filled>(*resource);
    ASSERT_TRUE(fine(root));
    Filled& all = **root;
    numbers = fill_up([&](std::size_t i) { all.numbers.push_back(static_cast<int>(i)); });
    texts = fill_up([&](std::size_t i) { all.texts.emplace(static_cast<int>(i), text_of(i).c_str()); });
    all.texts.erase(all.texts.find(static_cast<int>(texts / 2)), all.texts.end());
    texts /= 2;
    ASSERT_TRUE(fine(heap->persist()));
    lines = fill_up([&](std::size_t i) { all.lines.emplace_back(text_of(i).c_str()); });
    EXPECT_GT(numbers, 100'000u);
    EXPECT_GT(texts, 500u);
    EXPECT_GT(lines, 100u);
    expect_filled(all, numbers, texts, lines);
    ASSERT_TRUE(fine(heap->rollback()));
    expect_filled(all, numbers, texts, 0);
    EXPECT_EQ(fill_up([&](std::size_t i) { all.lines.emplace_back(text_of(i).c_str()); }), lines);
    ASSERT_TRUE(fine(heap->verify()));
    ASSERT_TRUE(fine(heap->persist()));
  }
  auto store = Store::open(temp / "store");
  ASSERT_TRUE(fine(store));
  auto heap = Heap::open(*store, "heap");
  ASSERT_TRUE(fine(heap));
  auto resource = heap->resource();
  auto root = heap->find<Filled>("");
  ASSERT_TRUE(fine(root));
  expect_filled(**root, numbers, texts, lines);
  (*root)->numbers.clear();
  (*root)->numbers.shrink_to_fit();
  for (std::size_t i = 0; i < 100; ++i) (*root)->lines.emplace_back(text_of(lines + i).c_str());
  expect_filled(**root, 0, texts, lines + 100);
}

// A heap that is only read lies where it was made, in a folder and in one file, so that its pointers lead where they
// should; nothing can be changed, and any number of openings may read it at a time.
class HeapReadOnly : public ::testing::TestWithParam<bool> {};

TEST_P(HeapReadOnly, IsFoundWhereItWasMade) {
  const bool one_file = GetParam();
  const TempFolder temp;
  const std::string path = temp / "app";
  const auto open = [&](bool read_only) {
    const StoreOptions options{.create = !read_only, .read_only = read_only};
    return one_file ? Store::open_file(path, options) : Store::open(path, options);
  };
  const char* const name = one_file ? "file" : "heap";
  using Words = memlith::map<memlith::string, memlith::vector<int>>;
  for (int run = 0; run < 3; ++run) {
    {
      auto store = open(false);
      ASSERT_TRUE(fine(store));
      auto heap = Heap::open(*store, name, {.create = true});
      ASSERT_TRUE(fine(heap));
      auto root = heap->root<Words>();
      ASSERT_TRUE(fine(root));
      ASSERT_TRUE(fine(heap->resource()));
      (**root)["a word that is too long to stand in the string"].push_back(run);
      ASSERT_TRUE(fine(heap->persist()));
    }
    auto store = open(true);
    ASSERT_TRUE(fine(store));
    auto heap = Heap::open(*store, name);
    ASSERT_TRUE(fine(heap));
    auto root = heap->find<Words>("");
    ASSERT_TRUE(fine(root));
    ASSERT_EQ((*root)->size(), 1u);
    EXPECT_EQ((*root)->begin()->second.size(), static_cast<std::size_t>(run + 1));
    EXPECT_EQ((*root)->begin()->second.back(), run);
    EXPECT_TRUE(fine(heap->verify()));
    EXPECT_EQ(memlith_category(heap->allocate(100).error().code()), MEMLITH_READ_ONLY);
    EXPECT_EQ(memlith_category(heap->deallocate(&**root).error().code()), MEMLITH_READ_ONLY);
    EXPECT_EQ(memlith_category(heap->persist().error().code()), MEMLITH_READ_ONLY);
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, HeapReadOnly, ::testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "OneFile" : "Folder"); });

}  // namespace
}  // namespace memlith::test::heap_limits_test
