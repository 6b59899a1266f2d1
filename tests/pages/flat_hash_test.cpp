// memlith/flat_hash.hpp: the containers hold what those of the standard library do, in every state of their heap, and
// damage is named.
#include "memlith/flat_hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memlith/heap.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::flat_hash_test {

// As long as half of what makes a page hold four elements only, so that pages are split and given back all the time.
struct Wide {
  std::uint32_t value = 0;
  std::array<char, 500> filling{};
  bool operator==(const Wide&) const = default;
};
// Ten keys have one hash, and the hashes have few bits.
struct BadHash {
  std::size_t operator()(int key) const noexcept { return static_cast<std::size_t>(key / 10 % 7); }
};

// The root of a test's heap.
struct All {
  flat_hash_map<int, int> numbers;
  flat_hash_map<memlith::string, memlith::string> texts;
  flat_hash_map<std::uint64_t, Wide> wide;
  flat_hash_map<int, Wide, BadHash> chains;
  flat_hash_set<memlith::string> words;
};
struct Model {
  std::unordered_map<int, int> numbers;
  std::unordered_map<std::string, std::string> texts;
  std::unordered_map<std::uint64_t, Wide> wide;
  std::unordered_map<int, Wide> chains;
  std::unordered_set<std::string> words;
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

template <class Table, class Standard>
void expect_same(const Table& table, const Standard& model) {
  ASSERT_TRUE(fine(table.verify()));
  ASSERT_EQ(table.size(), model.size());
  ASSERT_EQ(table.empty(), model.empty());
  std::size_t count = 0;
  for (const auto& each : table) {
    ++count;
    if constexpr (requires { each.second; }) {
      const auto there = model.find(each.first);
      ASSERT_NE(there, model.end());
      ASSERT_TRUE(there->second == each.second);
    } else {
      ASSERT_TRUE(model.contains(each));
    }
  }
  ASSERT_EQ(count, model.size());
  for (const auto& each : model) {
    if constexpr (requires { each.second; }) {
      const auto there = table.find(each.first);
      ASSERT_NE(there, table.end());
      ASSERT_TRUE(there->second == each.second);
    } else {
      ASSERT_TRUE(table.contains(each));
    }
  }
}

void expect_same(const All& all, const Model& model) {
  expect_same(all.numbers, model.numbers);
  expect_same(all.texts, model.texts);
  expect_same(all.wide, model.wide);
  expect_same(all.chains, model.chains);
  expect_same(all.words, model.words);
}

template <class Table, class Standard, class Key, class Value>
void change_map(Table& table, Standard& model, const Key& key, const Value& value, std::uint64_t draw) {
  switch (draw % 8) {
    case 0: ASSERT_EQ(table.try_emplace(key, value).second, model.try_emplace(key, value).second); break;
    case 1: ASSERT_EQ(table.insert_or_assign(key, value).second, model.insert_or_assign(key, value).second); break;
    case 2: ASSERT_EQ(table.emplace(key, value).second, model.emplace(key, value).second); break;
    case 3: table[key] = typename Table::mapped_type(value), model[key] = value; break;
    case 4:
    case 5: ASSERT_EQ(table.erase(key), model.erase(key)); break;
    case 6: {
      const auto at = table.find(key);
      ASSERT_EQ(at == table.end(), !model.contains(key));
      if (at == table.end()) break;
      table.erase(at);
      model.erase(key);
      break;
    }
    default:
      ASSERT_EQ(table.count(key), model.count(key));
      if (draw % 512 == 7) {
        const auto odd = [&](const auto& each) {
          return std::hash<std::string_view>()(text_of(draw)) % 2 == 1 && !(each.first == key);
        };
        ASSERT_EQ(erase_if(table, odd), std::erase_if(model, odd));
      }
  }
}

void change(All& all, Model& model, std::mt19937_64& random, std::uint64_t keys) {
  const std::uint64_t draw = random() >> 8;
  const std::uint64_t key = random() % keys;
  const Wide wide{static_cast<std::uint32_t>(draw)};
  const int number = static_cast<int>(key) - static_cast<int>(keys / 2);
  switch (random() % 5) {
    case 0: change_map(all.numbers, model.numbers, number, static_cast<int>(draw), draw); break;
    case 1: change_map(all.texts, model.texts, text_of(key), text_of(draw), draw); break;
    case 2: change_map(all.wide, model.wide, key, wide, draw); break;
    case 3: change_map(all.chains, model.chains, static_cast<int>(key % 300), wide, draw); break;
    default:
      if (draw % 3 != 0) {
        ASSERT_EQ(all.words.insert(text_of(key)).second, model.words.insert(text_of(key)).second);
      } else {
        ASSERT_EQ(all.words.erase(text_of(key)), model.words.erase(text_of(key)));
      }
  }
}

class FlatHashes : public ::testing::Test {
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

TEST_F(FlatHashes, HoldWhatTheStandardsHoldAndComeBackWithTheHeap) {
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
  all_->chains.erase(all_->chains.cbegin(), all_->chains.cend());
  all_->words.clear();
  expect_same(*all_, {});
  all_->wide.clear();
  all_->chains.clear();
  const auto report = heap_->verify();
  ASSERT_TRUE(fine(report));
  EXPECT_EQ(report->blocks, 2U) << "of the root, and of its name";
}

TEST_F(FlatHashes, DoNotBelieveACountOfAnotherState) {
  open();
  auto& numbers = all_->numbers;
  for (int i = 0; i < 3000; ++i) numbers[i] = i;
  ASSERT_TRUE(fine(heap_->persist()));
  ASSERT_EQ(numbers.size(), 3000U);
  numbers.erase(7);
  ASSERT_EQ(numbers.size(), 2999U);
  ASSERT_TRUE(fine(heap_->rollback()));
  EXPECT_EQ(numbers.size(), 3000U);
}

// Pages become full one after the other, not all at about the same time.
TEST_F(FlatHashes, KeepTheirPagesFilledAlikeAtAnySize) {
  open();
  constexpr double kCapacity = detail::BucketShape<std::pair<const int, int>>::kCapacity;
  detail::HashRoot* root = nullptr;
  for (int i = 0; i < 400'000; ++i) {
    all_->numbers[i] = i;
    if (i == 0) std::memcpy(&root, reinterpret_cast<const char*>(&all_->numbers) + sizeof(allocator<>), sizeof root);
    if (i < 20'000 || i % 5000 != 0) continue;
    const double filled = i / kCapacity / static_cast<double>(root->pages);
    EXPECT_GT(filled, 0.6) << i;
    EXPECT_LT(filled, 0.85) << i;
  }
}

// ---- damage

template <class T>
void named(const Heap& heap, const All& all, T& place, const T& value, const std::string& sentence) {
  const T before = std::exchange(place, value);
  const auto by_heap = heap.verify();
  const auto by_table = all.numbers.verify();
  for (const Error& error : {by_heap.ok() ? Error() : by_heap.error(), by_table.ok() ? Error() : by_table.error()}) {
    EXPECT_EQ(error.category(), MEMLITH_CORRUPT) << sentence;
    EXPECT_NE(error.message().find(sentence), std::string::npos) << error.message();
  }
  place = before;
  EXPECT_TRUE(fine(heap.verify()));
}

TEST_F(FlatHashes, NameDamage) {
  open();
  for (int i = 0; i < 5000; ++i) all_->numbers[i] = i;
  ASSERT_EQ(all_->numbers.size(), 5000U);
  using Shape = detail::BucketShape<std::pair<const int, int>>;
  detail::HashRoot* root = nullptr;
  std::memcpy(&root, reinterpret_cast<const char*>(&all_->numbers) + sizeof(allocator<>), sizeof root);
  detail::BucketHead* const page = root->directory[0];
  detail::BucketHead* const last = root->directory[(std::uint64_t{1} << root->depth) - 1];
  const auto expect = [&](auto& place, auto value, const char* sentence) {
    named(*heap_, *all_, place, static_cast<std::remove_reference_t<decltype(place)>>(value), sentence);
  };
  expect(root->seal, 1, "root of a hash table was stored over");
  expect(root->depth, 60, "no directory");
  expect(root->pages, root->pages - 1, "more pages than its root says");
  expect(root->pages, root->pages + 1, "fewer pages");
  expect(root->directory[0], reinterpret_cast<detail::BucketHead*>(&root->pages), "what is no page");
  expect(root->directory[0], last, "wrong place of the directory");
  expect(page->seal, 1, "page of a hash table was stored over");
  expect(page->count, page->count - 1, "a wrong count");
  expect(page->depth, 63, "wrong place of the directory");
  expect(page->more, page, "more pages than its root says");  // a cycle
  const std::size_t slot = Shape::marked(page, 0, 0) == 0 ? 1 : 0;
  expect(Shape::marks(page)[slot], Shape::marks(page)[slot] % 255 + 1, "wrong mark");
  auto& key = const_cast<int&>(Shape::slot(page, slot)->first);
  for (int other = 0; other < 5000; ++other) {
    if (detail::HashPlace(hash<int>()(other)).mark != detail::HashPlace(hash<int>()(key)).mark || other == key)
      continue;
    const bool same_page =
        detail::HashPlace(hash<int>()(other)).index(root->depth) < (1U << (root->depth - page->depth));
    expect(key, other, same_page ? "twice" : "for other hashes");
  }
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
struct ThrowingHash {
  static inline int left = 1 << 30;
  std::size_t operator()(int key) const {
    if (left-- == 0) throw std::runtime_error("as the test wants it");
    return hash<int>()(key);
  }
};

}  // namespace
}  // namespace memlith::test::flat_hash_test

template <>
struct memlith::is_persistable<memlith::test::flat_hash_test::Thrower> : std::true_type {};

namespace memlith::test::flat_hash_test {
namespace {

TEST_F(FlatHashes, AreAsBeforeWhereAnInsertionThrows) {
  open();
  auto made = heap_->construct<flat_hash_map<int, Thrower, ThrowingHash>>("throwing");
  ASSERT_TRUE(fine(made));
  auto& table = **made;
  std::unordered_map<int, int> model;
  std::mt19937_64 random(7);
  int thrown = 0;
  for (int i = 0; i < 6000; ++i) {
    const int key = static_cast<int>(random() % 5000);
    Thrower::left = i % 3 == 0 ? 0 : 1 << 30;
    ThrowingHash::left = i % 3 == 1 ? static_cast<int>(random() % 300) : 1 << 30;
    try {
      if (table.try_emplace(key, i).second) model[key] = i;
    } catch (const std::runtime_error&) {
      ++thrown;
    }
    ThrowingHash::left = 1 << 30;
    ASSERT_EQ(table.size(), model.size());
    if (i % 50 == 0) {
      ASSERT_TRUE(fine(table.verify()));
    }
  }
  ASSERT_GT(thrown, 500);
  for (const auto& [key, value] : table) ASSERT_EQ(value.value, model.at(key));
}

TEST_F(FlatHashes, AreAsBeforeWhereTheHeapIsFull) {
  auto store = Store::open(folder_ / "full", {.create = true, .tell_dropped = false});
  ASSERT_TRUE(fine(store));
  auto heap = Heap::open(*store, "heap", {.create = true, .max_size = 1 << 20});
  ASSERT_TRUE(fine(heap));
  auto root = heap->root<flat_hash_map<memlith::string, memlith::string>>();
  ASSERT_TRUE(fine(root));
  auto& texts = **root;
  std::size_t inserted = 0;
  const auto fill = [&] {
    for (;; ++inserted) texts.try_emplace(text_of(inserted), text_of(inserted));
  };
  EXPECT_THROW(fill(), heap_error);
  EXPECT_EQ(texts.size(), inserted);
  EXPECT_TRUE(fine(texts.verify()));
  EXPECT_TRUE(fine(heap->verify()));
  EXPECT_TRUE(fine(heap->persist()));
}

// ---- allocators, and other processes

TEST_F(FlatHashes, KeepToTheirHeapAndMakeNoKeyToLookForOne) {
  open();
  auto second = Heap::open(*store_, "second", {.create = true});  // so that there is no current heap
  ASSERT_TRUE(fine(second));
  auto& texts = all_->texts;
  for (std::uint64_t i = 0; i < 500; ++i) {
    texts[text_of(i)] = "v";
    texts.try_emplace("x" + text_of(i), "w");
    texts.insert_or_assign("y" + text_of(i), "a text that is too long to lie in the string itself");
    texts.emplace("z" + text_of(i), "v");
    all_->words.insert(text_of(i));
  }
  EXPECT_EQ(texts.at(text_of(3)), "v");
  EXPECT_THROW((void)texts.at("not there, and too long to lie in the string itself"), std::out_of_range);
  EXPECT_EQ(texts.erase(text_of(4)), 1U);
  const auto report = second->verify();
  ASSERT_TRUE(fine(report));
  EXPECT_EQ(report->blocks, 0U);

  using Texts = flat_hash_map<memlith::string, memlith::string>;
  const Texts copy(texts, second->get_allocator());
  EXPECT_TRUE(copy == texts);
  Texts moved(Texts(texts, second->get_allocator()), heap_->get_allocator());
  EXPECT_TRUE(moved == texts);
  Texts stolen(std::move(moved));
  EXPECT_TRUE(moved.empty() && stolen == texts);  // NOLINT(bugprone-use-after-move)
  stolen["more"] = "of it";
  EXPECT_TRUE(stolen != texts);
  swap(stolen, moved);
  EXPECT_TRUE(stolen.empty() && moved.contains("more"));
  Texts listed({{"a", "b"}, {"c", "d"}}, heap_->get_allocator());
  listed = moved;
  EXPECT_EQ(listed.size(), moved.size());
  listed.insert(copy.begin(), copy.end());
  EXPECT_EQ(listed.size(), moved.size());
  // The value that is inserted may lie in the page that is split for it.
  flat_hash_map<int, memlith::string> chain(heap_->get_allocator());
  chain.try_emplace(0, "a text that is too long to lie in the string itself");
  for (int i = 1; i < 2000; ++i) chain.try_emplace(i, chain.at(i - 1));
  for (const auto& [number, text] : chain) ASSERT_EQ(text.size(), 51U) << number;
}

TEST_F(FlatHashes, AreReadByAProcessThatFollows) {
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
    for (int round = 1; round < 4; ++round) {
      const auto& numbers = (*root)->numbers;
      if (numbers.size() != static_cast<std::size_t>(round) * 900) return "size " + std::to_string(numbers.size());
      for (int i = 0; i < 3000; ++i) {
        if (numbers.contains(i) != (i < round * 900)) return "wrong about " + std::to_string(i);
      }
      if (const auto sound = heap->verify(); !sound.ok()) return sound.error().message();
      test.tell();
      if (round < 3 && !test.wait()) return "no word";
      if (const auto lsn = store->refresh(); !lsn.ok()) return lsn.error().message();
    }
    return "";
  });
  open();
  for (int round = 1; round < 4; ++round) {
    for (int i = 0; i < 900; ++i) all_->numbers[(round - 1) * 900 + i] = i;
    ASSERT_TRUE(fine(heap_->persist()));
    if (round < 3) {
      ASSERT_TRUE(reader.step());
    }
  }
  EXPECT_TRUE(reader.finish());
}

}  // namespace
}  // namespace memlith::test::flat_hash_test
