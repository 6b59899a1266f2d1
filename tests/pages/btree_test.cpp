// memlith/btree.hpp: the containers hold what those of the standard library do, in every state of their heap; their
// index in ordinary memory is never believed where the heap has become another one; and damage is named.
#include "memlith/btree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memlith/heap.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::btree_test {

// As long as half of what makes a leaf hold four elements only, so that leaves are split and joined all the time.
struct Wide {
  std::uint32_t value = 0;
  std::array<char, 500> filling{};
  bool operator==(const Wide&) const = default;
};

// The root of a test's heap.
struct All {
  btree_map<int, int> numbers;
  btree_map<memlith::string, memlith::string> texts;
  btree_map<std::uint64_t, Wide> wide;
  btree_set<memlith::string, std::greater<>> falling;
  btree_set<short> small;
};

// The same, as the standard library has it.
struct Model {
  std::map<int, int> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::uint64_t, Wide> wide;
  std::set<std::string, std::greater<>> falling;
  std::set<short> small;
};

namespace {

template <class T>
::testing::AssertionResult fine(const T& result) {
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.error().message();
}

std::string text_of(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return number % 3 == 0 ? digits : "a text that is too long for the string itself: " + digits;
}

template <class Tree, class Standard>
void expect_same(const Tree& tree, const Standard& model) {
  ASSERT_TRUE(fine(tree.verify()));
  ASSERT_EQ(tree.size(), model.size());
  ASSERT_EQ(tree.empty(), model.empty());
  auto one = tree.begin();
  for (auto other = model.begin(); other != model.end(); ++other, ++one) {
    ASSERT_NE(one, tree.end());
    if constexpr (requires { other->second; }) {
      ASSERT_TRUE(one->first == other->first && one->second == other->second);
      ASSERT_EQ(tree.find(other->first), one);
    } else {
      ASSERT_TRUE(*one == *other);
      ASSERT_EQ(tree.find(*other), one);
    }
  }
  ASSERT_EQ(one, tree.end());
  auto other = model.rbegin();
  for (auto back = tree.rbegin(); back != tree.rend(); ++back, ++other) {
    if constexpr (requires { other->second; }) {
      ASSERT_TRUE(back->first == other->first);
    } else {
      ASSERT_TRUE(*back == *other);
    }
  }
}

void expect_same(const All& all, const Model& model) {
  expect_same(all.numbers, model.numbers);
  expect_same(all.texts, model.texts);
  expect_same(all.wide, model.wide);
  expect_same(all.falling, model.falling);
  expect_same(all.small, model.small);
}

// One operation on a map and on its model.
template <class Tree, class Standard, class Key>
void change_map(Tree& tree, Standard& model, const Key& key, std::uint64_t draw) {
  using Mapped = typename Standard::mapped_type;
  Mapped value{};
  if constexpr (std::is_same_v<Mapped, std::string>) {
    value = text_of(draw);
  } else if constexpr (std::is_same_v<Mapped, Wide>) {
    value.value = static_cast<std::uint32_t>(draw);
  } else {
    value = static_cast<Mapped>(draw);
  }
  using Value = typename Tree::mapped_type;
  switch (draw % 8) {
    case 0: {
      const auto [at, inserted] = tree.try_emplace(key, value);
      ASSERT_EQ(inserted, model.try_emplace(key, value).second);
      ASSERT_TRUE(at->first == key && at->second == model.at(key));
      break;
    }
    case 1: {
      const auto [at, inserted] = tree.insert_or_assign(key, value);
      ASSERT_EQ(inserted, model.insert_or_assign(key, value).second);
      ASSERT_TRUE(at->second == value);
      break;
    }
    case 2: ASSERT_EQ(tree.emplace(key, value).second, model.emplace(key, value).second); break;
    case 3: tree[key] = Value(value), model[key] = value; break;
    case 4: ASSERT_EQ(tree.erase(key), model.erase(key)); break;
    case 5: {
      const auto at = tree.lower_bound(key);
      const auto other = model.lower_bound(key);
      ASSERT_EQ(at == tree.end(), other == model.end());
      if (at == tree.end()) break;
      ASSERT_TRUE(at->first == other->first);
      const auto next = tree.erase(at);
      const auto other_next = model.erase(other);
      ASSERT_EQ(next == tree.end(), other_next == model.end());
      ASSERT_TRUE(next == tree.end() || next->first == other_next->first);
      break;
    }
    case 6: {
      const auto at = tree.upper_bound(key);
      const auto other = model.upper_bound(key);
      ASSERT_EQ(at == tree.end(), other == model.end());
      ASSERT_TRUE(at == tree.end() || at->first == other->first);
      ASSERT_EQ(tree.count(key), model.count(key));
      ASSERT_EQ(tree.contains(key), model.contains(key));
      break;
    }
    default: {
      const auto [first, last] = tree.equal_range(key);
      ASSERT_EQ(static_cast<std::size_t>(std::distance(first, last)), model.count(key));
      if (draw % 1024 == 7) {
        auto from = tree.lower_bound(key);
        auto model_from = model.lower_bound(key);
        auto to = from;
        auto model_to = model_from;
        for (int i = 0; i < 40 && to != tree.end(); ++i) ++to, ++model_to;
        tree.erase(from, to);
        model.erase(model_from, model_to);
      }
    }
  }
}

void change(All& all, Model& model, std::mt19937_64& random, std::uint64_t keys) {
  const std::uint64_t draw = random() >> 8;
  const std::uint64_t key = random() % keys;
  switch (random() % 5) {
    case 0: change_map(all.numbers, model.numbers, static_cast<int>(key) - static_cast<int>(keys / 2), draw); break;
    case 1: change_map(all.texts, model.texts, text_of(key), draw); break;
    case 2: change_map(all.wide, model.wide, key, draw); break;
    case 3:
      if (draw % 3 != 0) {
        ASSERT_EQ(all.falling.insert(text_of(key)).second, model.falling.insert(text_of(key)).second);
      } else {
        ASSERT_EQ(all.falling.erase(text_of(key)), model.falling.erase(text_of(key)));
      }
      break;
    default:
      if (draw % 3 != 0) {
        ASSERT_EQ(all.small.insert(static_cast<short>(key)).second, model.small.insert(static_cast<short>(key)).second);
      } else {
        ASSERT_EQ(all.small.erase(static_cast<short>(key)), model.small.erase(static_cast<short>(key)));
      }
  }
}

class Btrees : public ::testing::Test {
 protected:
  void open() {
    auto store = Store::open(folder_ / "store", {.create = true, .tell_dropped = false});
    ASSERT_TRUE(fine(store));
    store_.emplace(std::move(*store));
    auto heap = Heap::open(*store_, "heap", {.create = true});
    ASSERT_TRUE(fine(heap));
    heap_.emplace(std::move(*heap));
    auto root = heap_->root<All>();
    ASSERT_TRUE(fine(root));
    all_ = *root;
  }
  void close() {
    heap_.reset();
    store_.reset();
  }
  TempFolder folder_;
  std::optional<Store> store_;
  std::optional<Heap> heap_;
  All* all_ = nullptr;
};

TEST_F(Btrees, HoldWhatTheStandardsHoldAndComeBackWithTheHeap) {
  const std::uint64_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Model model;
  Model persisted;
  for (int round = 0; round < 24; ++round) {
    if (round % 4 == 0) {  // as after a crash: what was not persisted is gone
      close();
      open();
      if (::testing::Test::HasFatalFailure()) return;
      model = persisted;
      expect_same(*all_, model);
    }
    const std::uint64_t keys = round % 3 == 0 ? 100 : 2000;
    for (int i = 0; i < 1500; ++i) {
      change(*all_, model, random, keys);
      if (::testing::Test::HasFatalFailure()) return;
    }
    expect_same(*all_, model);
    ASSERT_TRUE(fine(heap_->verify()));
    if (round % 5 == 1) {
      ASSERT_TRUE(fine(heap_->rollback()));
      model = persisted;
      expect_same(*all_, model);
    } else {
      ASSERT_TRUE(fine(heap_->persist()));
      persisted = model;
    }
    const auto undone = heap_->transact([&]() -> Result<void> {
      for (int i = 0; i < 300; ++i) change(*all_, model, random, 2000);
      return Error(MEMLITH_INVALID, "undone");
    });
    ASSERT_FALSE(undone.ok());
    model = persisted;
    expect_same(*all_, model);
    if (::testing::Test::HasFatalFailure()) return;
  }
  all_->numbers.clear();
  all_->texts = {};
  all_->wide.erase(all_->wide.begin(), all_->wide.end());
  all_->falling.clear();
  all_->small.clear();
  expect_same(*all_, {});
  all_->wide.clear();
  const auto report = heap_->verify();
  ASSERT_TRUE(fine(report));
  EXPECT_EQ(report->blocks, 2U) << "of the root, and of its name";
}

// An index that was made of leaves which are no more, or of others, finds nothing wrong.
TEST_F(Btrees, DoNotBelieveAnIndexOfAnotherState) {
  open();
  auto& numbers = all_->numbers;
  for (int i = 0; i < 3000; ++i) numbers[i * 10] = i;
  ASSERT_TRUE(fine(heap_->persist()));
  ASSERT_TRUE(numbers.contains(29'990));
  for (int i = 0; i < 3000; ++i) numbers[i * 10 + 5] = i;
  ASSERT_EQ(numbers.size(), 6000U);
  ASSERT_TRUE(fine(heap_->rollback()));
  EXPECT_EQ(numbers.size(), 3000U);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(numbers.contains(i * 10) && !numbers.contains(i * 10 + 5)) << i;
  for (int i = 0; i < 3000; ++i) numbers.erase(i * 10);
  ASSERT_TRUE(numbers.empty());
  ASSERT_TRUE(fine(heap_->rollback()));
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(numbers.contains(i * 10)) << i;

  // Elements come and go, and leaves do not: the stamp stays, and only the heap knows.
  ASSERT_EQ(numbers.erase(15'000), 1U);
  ASSERT_EQ(numbers.size(), 2999U);
  ASSERT_TRUE(fine(heap_->rollback()));
  EXPECT_EQ(numbers.size(), 3000U);
  EXPECT_TRUE(numbers.contains(15'000));
}

// Digests that do not fit the leaves lead a search to a wrong leaf, which it notices.
TEST_F(Btrees, NoticeASearchThatEndsAtAWrongLeaf) {
  open();
  auto& numbers = all_->numbers;
  for (int i = 0; i < 5000; ++i) numbers[i] = i;
  ASSERT_TRUE(numbers.contains(17));
  detail::TreeRoot* root = nullptr;
  std::memcpy(&root, reinterpret_cast<const char*>(&numbers) + sizeof(allocator<>), sizeof root);
  auto* const index = static_cast<detail::LeafIndex*>(memlith_derived_find(root));
  ASSERT_NE(index, nullptr);
  for (auto& run : index->runs) {
    for (auto& entry : run) entry.digest += 700;
  }
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(numbers.contains(i)) << i;
  EXPECT_NE(memlith_derived_find(root), index) << "the index was not made anew";
}

TEST_F(Btrees, AreReadByThreadsThatMakeTheIndexTogether) {
  open();
  for (int i = 0; i < 20'000; ++i) all_->numbers[i] = -i;
  ASSERT_TRUE(fine(heap_->persist()));
  for (int round = 0; round < 20; ++round) {
    close();
    open();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto& numbers = std::as_const(all_->numbers);
        for (int i = t; i < 20'000; i += 97) {
          const auto at = numbers.find(i);
          if (at == numbers.end() || at->second != -i) ++wrong;
        }
        if (numbers.size() != 20'000) ++wrong;
      });
    }
    for (std::thread& each : threads) each.join();
    ASSERT_EQ(wrong, 0);
  }
}

// ---- damage

class DamagedBtrees : public Btrees {
 protected:
  void SetUp() override {
    open();
    for (int i = 0; i < 3000; ++i) all_->numbers[i] = i;
    std::memcpy(&root_, reinterpret_cast<const char*>(&all_->numbers) + sizeof(allocator<>), sizeof root_);
    ASSERT_TRUE(all_->numbers.contains(1));
    ASSERT_TRUE(fine(heap_->verify()));
    leaf_ = root_->first->next;
  }
  template <class T>
  void named(T& place, const T& value, const std::string& sentence) {
    const T before = std::exchange(place, value);
    for (const bool by_heap : {true, false}) {
      const auto found = by_heap ? heap_->verify() : Result<memlith_heap_report>(Error(0, ""));
      const Error error = by_heap && !found.ok() ? found.error() : by_heap ? Error() : of_tree();
      EXPECT_EQ(error.category(), MEMLITH_CORRUPT) << sentence;
      EXPECT_NE(error.message().find(sentence), std::string::npos) << error.message();
    }
    place = before;
    EXPECT_TRUE(fine(heap_->verify()));
  }
  Error of_tree() {
    const auto found = all_->numbers.verify();
    return found.ok() ? Error() : found.error();
  }
  detail::TreeRoot* root_ = nullptr;
  detail::LeafHead* leaf_ = nullptr;
};

TEST_F(DamagedBtrees, AreNamed) {
  using Shape = detail::LeafShape<std::pair<const int, int>>;
  named(root_->seal, std::uint64_t{1}, "root of a btree was stored over");
  named(leaf_->seal, std::uint64_t{1}, "leaf of a btree was stored over");
  named(leaf_->previous, leaf_->next, "does not lead back");
  named(leaf_->next, leaf_->previous, "does not lead back");  // a cycle
  named(leaf_->next, leaf_->next->next, "does not lead back");
  named(leaf_->next, static_cast<detail::LeafHead*>(nullptr), "fewer leaves");
  named(leaf_->next, reinterpret_cast<detail::LeafHead*>(&root_->first), "leads to what is no leaf");
  named(root_->last, leaf_, "wrong last leaf");
  named(root_->leaves, root_->leaves - 1, "more leaves than its root says");
  named(root_->leaves, root_->leaves + 1, "fewer leaves");
  named(leaf_->count, std::uint16_t{0}, "a wrong count");
  named(leaf_->count, std::uint16_t{9999}, "a wrong count");
  named(leaf_->count, static_cast<std::uint16_t>(leaf_->count - 1), "not as many elements as were counted");
  auto* const order = Shape::order(leaf_);
  named(order[1], order[0], "a slot twice");
  std::swap(order[3], order[4]);
  EXPECT_NE(of_tree().message().find("not in order"), std::string::npos) << of_tree().message();
  std::swap(order[3], order[4]);
  auto& key = const_cast<int&>(Shape::at(leaf_, 0)->first);
  named(key, key - 1000, "not in the order of their keys");
}

// ---- exceptions

struct Thrower {
  static inline int left = 1 << 30;
  int value = 0;
  explicit Thrower(int given) : value(given) {
    if (left-- == 0) throw std::runtime_error("as the test wants it");
  }
  Thrower(const Thrower& other) : Thrower(other.value) {}
  Thrower(Thrower&& other) noexcept : value(other.value) {}
  Thrower& operator=(const Thrower&) = default;
};
struct ThrowingLess {
  static inline int left = 1 << 30;
  bool operator()(int a, int b) const {
    if (left-- == 0) throw std::runtime_error("as the test wants it");
    return a < b;
  }
};

}  // namespace
}  // namespace memlith::test::btree_test

template <>
struct memlith::is_persistable<memlith::test::btree_test::Thrower> : std::true_type {};

namespace memlith::test::btree_test {
namespace {

TEST_F(Btrees, AreAsBeforeWhereAnInsertionThrows) {
  open();
  auto made = heap_->construct<btree_map<int, Thrower, ThrowingLess>>("throwing");
  ASSERT_TRUE(fine(made));
  auto& tree = **made;
  std::map<int, int> model;
  std::mt19937_64 random(7);
  int thrown = 0;
  for (int i = 0; i < 4000; ++i) {
    const int key = static_cast<int>(random() % 1500);
    Thrower::left = i % 3 == 0 ? 0 : 1 << 30;
    ThrowingLess::left = i % 3 == 1 ? static_cast<int>(random() % 14) : 1 << 30;
    try {
      if (i % 5 == 4) {
        tree.erase(key);
        model.erase(key);
      } else if (tree.try_emplace(key, i).second) {
        model[key] = i;
      }
    } catch (const std::runtime_error&) {
      ++thrown;
      if (i % 5 == 4) {  // the comparison was to find the key; nothing was erased
        ThrowingLess::left = 1 << 30;
        ASSERT_EQ(tree.count(key), model.count(key));
      }
    }
    ThrowingLess::left = 1 << 30;
    ASSERT_EQ(tree.size(), model.size());
    if (i % 50 == 0) {
      ASSERT_TRUE(fine(tree.verify()));
    }
  }
  ASSERT_GT(thrown, 500);
  ASSERT_TRUE(std::equal(tree.begin(), tree.end(), model.begin(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.value == other.second;
  }));
  Thrower::left = 20;  // a copy that fails leaves nothing
  const auto before = heap_->verify();
  ASSERT_TRUE(fine(before));
  {
    const use_heap in(*heap_);
    using Tree = std::remove_reference_t<decltype(tree)>;
    EXPECT_THROW(const Tree copy(tree), std::runtime_error);
  }
  Thrower::left = 1 << 30;
  const auto after = heap_->verify();
  ASSERT_TRUE(fine(after));
  EXPECT_EQ(after->blocks, before->blocks);
}

TEST_F(Btrees, AreAsBeforeWhereTheHeapIsFull) {
  auto store = Store::open(folder_ / "full", {.create = true, .tell_dropped = false});
  ASSERT_TRUE(fine(store));
  auto heap = Heap::open(*store, "heap", {.create = true, .max_size = 1 << 20});
  ASSERT_TRUE(fine(heap));
  auto root = heap->root<btree_map<memlith::string, memlith::string>>();
  ASSERT_TRUE(fine(root));
  auto& texts = **root;
  std::size_t inserted = 0;
  const auto fill = [&] {
    for (;; ++inserted) texts.try_emplace(text_of(inserted * 7919 % 100'003), text_of(inserted));
  };
  EXPECT_THROW(fill(), heap_error);
  EXPECT_EQ(texts.size(), inserted);
  EXPECT_TRUE(fine(texts.verify()));
  EXPECT_TRUE(fine(heap->verify()));
  EXPECT_TRUE(fine(heap->persist()));
}

// ---- allocators

TEST_F(Btrees, KeepToTheirHeapAndMakeNoKeyToLookForOne) {
  open();
  auto second = Heap::open(*store_, "second", {.create = true});  // so that there is no current heap
  ASSERT_TRUE(fine(second));
  auto& texts = all_->texts;
  for (std::uint64_t i = 0; i < 500; ++i) {
    texts[text_of(i)] = "v";
    texts.try_emplace("x" + text_of(i), "w");
    texts.insert_or_assign("y" + text_of(i), "a text that is too long to lie in the string itself");
    texts.emplace("z" + text_of(i), "v");
    all_->falling.insert(text_of(i));
  }
  EXPECT_EQ(texts.at(text_of(3)), "v");
  EXPECT_THROW((void)texts.at("not there, and too long to lie in the string itself"), std::out_of_range);
  EXPECT_EQ(texts.erase(text_of(4)), 1U);
  const auto report = second->verify();
  ASSERT_TRUE(fine(report));
  EXPECT_EQ(report->blocks, 0U);

  using Texts = btree_map<memlith::string, memlith::string>;
  const Texts copy(texts, second->get_allocator());
  EXPECT_TRUE(copy == texts);
  EXPECT_GT(second->verify()->blocks, 40U);
  Texts moved(Texts(texts, second->get_allocator()), heap_->get_allocator());
  EXPECT_TRUE(moved == texts);
  Texts stolen(std::move(moved));
  EXPECT_TRUE(moved.empty() && stolen == texts);  // NOLINT(bugprone-use-after-move)
  stolen["more"] = "of it";
  EXPECT_TRUE(stolen != texts && (stolen <=> texts) != 0);
  swap(stolen, moved);
  EXPECT_TRUE(stolen.empty() && moved.contains("more"));
  Texts listed({{"a", "b"}, {"c", "d"}}, heap_->get_allocator());
  listed = moved;
  EXPECT_EQ(listed.size(), moved.size());
  listed.insert(copy.begin(), copy.end());
  EXPECT_EQ(listed.size(), moved.size());
  EXPECT_GT(erase_if(listed, [](const auto& each) { return each.first.size() > 20; }), 100U);
  EXPECT_TRUE(fine(listed.verify()));
  // The value that is inserted may lie in the leaf that is split for it.
  btree_map<int, memlith::string> chain(heap_->get_allocator());
  chain.try_emplace(0, "a text that is too long to lie in the string itself");
  for (int i = 1; i < 2000; ++i) chain.try_emplace(i % 2 == 0 ? i : -i, chain.at(i % 2 == 0 ? -(i - 1) : i - 1));
  for (const auto& [number, text] : chain) ASSERT_EQ(text.size(), 51U) << number;
}

struct ByLength {
  using is_transparent = void;
  bool operator()(const memlith::string& a, const memlith::string& b) const { return a < b; }
  bool operator()(const memlith::string& a, char first) const { return a.front() < first; }
  bool operator()(char first, const memlith::string& a) const { return first < a.front(); }
};

TEST_F(Btrees, FindAllThatATransparentComparisonHoldsForEqual) {
  open();
  btree_set<memlith::string, ByLength> words(heap_->get_allocator());
  for (int i = 0; i < 3000; ++i) {
    words.insert(memlith::string(std::string(1, static_cast<char>('a' + i % 3)) + std::to_string(i),
                                 heap_->get_allocator()));
  }
  EXPECT_EQ(words.count('b'), 1000U);
  EXPECT_EQ(words.lower_bound('b')->front(), 'b');
  EXPECT_EQ(std::prev(words.lower_bound('b'))->front(), 'a');
  EXPECT_EQ(words.upper_bound('b')->front(), 'c');
  EXPECT_EQ(words.erase('b'), 1000U);
  EXPECT_EQ(words.size(), 2000U);
  EXPECT_FALSE(words.contains('b'));
}

// ---- other processes

TEST_F(Btrees, AreReadByAProcessThatFollows) {
  SecondProcess reader([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "no word";
    StoreOptions options;
    options.follow = true;
    auto store = Store::open(folder_ / "store", options);
    if (!store.ok()) return store.error().message();
    auto heap = Heap::open(*store, "heap", {});
    if (!heap.ok()) return heap.error().message();
    auto root = heap->find<All>("");
    if (!root.ok()) return root.error().message();
    for (int round = 1; round < 6; ++round) {
      const auto& numbers = (*root)->numbers;
      if (numbers.size() != static_cast<std::size_t>(round) * 900) return "size " + std::to_string(numbers.size());
      for (int i = 0; i < 5000; ++i) {
        if (numbers.contains(i) != (i < round * 900)) return "wrong about " + std::to_string(i);
      }
      if (const auto sound = heap->verify(); !sound.ok()) return sound.error().message();
      test.tell();
      if (round < 5 && !test.wait()) return "no word";
      if (const auto lsn = store->refresh(); !lsn.ok()) return lsn.error().message();
    }
    return "";
  });
  open();
  for (int round = 1; round < 6; ++round) {
    for (int i = 0; i < 900; ++i) all_->numbers[(round - 1) * 900 + i] = i;
    ASSERT_TRUE(fine(heap_->persist()));
    if (round < 5) {
      ASSERT_TRUE(reader.step());
    }
  }
  EXPECT_TRUE(reader.finish());
}

TEST_F(Btrees, AreReadInAChildAndInASnapshotThere) {
  open();
  for (int i = 0; i < 3000; ++i) all_->numbers[i] = i;
  ASSERT_TRUE(fine(heap_->persist()));
  memlith_region* const region = heap_->region();
  memlith_snapshot* snapshot = nullptr;
  ASSERT_EQ(memlith_region_snapshot(&region, 1, &snapshot), MEMLITH_OK);
  ASSERT_EQ(all_->numbers.erase(1500), 1U);
  ASSERT_EQ(all_->numbers.size(), 2999U);
  EXPECT_IN_CHILD([&]() -> std::string {
    if (all_->numbers.size() != 2999 || all_->numbers.contains(1500)) return "the child sees another tree";
    if (memlith_snapshot_place(snapshot) != MEMLITH_OK) return "not placed";
    if (all_->numbers.size() != 3000 || !all_->numbers.contains(1500)) return "not the tree of the snapshot";
    return "";
  });
  memlith_snapshot_close(snapshot);
}

}  // namespace
}  // namespace memlith::test::btree_test
