// The interface's sentences are whole, and their advice helps when it is followed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "memlith/heap.hpp"
#include "memlith/memlith.h"
#include "support/temp_folder.hpp"

namespace memlith::test::sentences_test {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;

std::string last_sentence() {
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  return text;
}

memlith_store* open_store(const std::string& path) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.log_bytes = 1 << 20;
  memlith_store* store = nullptr;
  EXPECT_EQ(memlith_store_open(path.c_str(), &options, &store), 0) << last_sentence();
  return store;
}

std::int32_t open_region(memlith_store* store, const char* name, std::uint32_t tracker, memlith_region** region) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = kBytes;
  options.max_size = kBytes;
  options.tracker = tracker;
  return memlith_category(memlith_region_open(store, name, &options, region));
}

// A text that was cut lacks the bracket that ends its reason.
TEST(Sentences, ATrackersDetailIsWhole) {
  const TempFolder folder;
  memlith_store* const store = open_store(folder / "store");
  ASSERT_NE(store, nullptr);
  for (const std::uint32_t tracker :
       {MEMLITH_TRACKER_AUTO, MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT}) {
    memlith_region* region = nullptr;
    const std::string name = "region " + std::to_string(tracker);
    const std::int32_t code = open_region(store, name.c_str(), tracker, &region);
    if (code == MEMLITH_UNSUPPORTED) continue;
    ASSERT_EQ(code, 0) << last_sentence();
    memlith_region_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(memlith_region_get_info(region, &info), 0);
    const std::string detail = info.tracker_detail;
    EXPECT_FALSE(detail.empty());
    // The longest text is less than half of the field, so that a long reason of another kernel fits as well.
    EXPECT_LT(detail.size(), sizeof info.tracker_detail / 2) << detail;
    EXPECT_EQ(std::count(detail.begin(), detail.end(), '('), std::count(detail.begin(), detail.end(), ')')) << detail;
    EXPECT_EQ(memlith_region_close(region), 0);
  }
  EXPECT_EQ(memlith_store_close(store), 0);
}

// A copy of a store has its original's addresses. The sentence says what helps, and both ways help.
TEST(Sentences, TheAdviceForACopyBesideItsOriginalHelps) {
  const TempFolder folder;
  const std::string original_path = folder / "original";
  const std::string copy_path = folder / "copy";
  memlith_store* original = open_store(original_path);
  ASSERT_NE(original, nullptr);
  memlith_region* in_original = nullptr;
  ASSERT_EQ(open_region(original, "a", MEMLITH_TRACKER_AUTO, &in_original), 0) << last_sentence();
  ASSERT_EQ(memlith_store_close(original), 0);
  std::filesystem::copy(original_path, copy_path, std::filesystem::copy_options::recursive);

  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();  // before the original is open here, so that nothing of it is inherited
  if (child == 0) {
    ::alarm(60);
    char go = 0;
    if (::read(ready[0], &go, 1) != 1) ::_exit(1);
    memlith_store* const copy = open_store(copy_path);
    memlith_region* region = nullptr;
    if (copy == nullptr || open_region(copy, "a", MEMLITH_TRACKER_AUTO, &region) != 0) ::_exit(2);
    ::_exit(memlith_store_close(copy) == 0 ? 0 : 3);
  }
  original = open_store(original_path);
  ASSERT_NE(original, nullptr);
  ASSERT_EQ(open_region(original, "a", MEMLITH_TRACKER_AUTO, &in_original), 0) << last_sentence();
  ASSERT_EQ(::write(ready[1], "!", 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "another process could not open the copy";
  ::close(ready[0]);
  ::close(ready[1]);

  memlith_store* const copy = open_store(copy_path);
  ASSERT_NE(copy, nullptr);
  memlith_region* in_copy = nullptr;
  ASSERT_EQ(open_region(copy, "a", MEMLITH_TRACKER_AUTO, &in_copy), MEMLITH_ADDRESS_TAKEN);
  const std::string said = last_sentence();
  EXPECT_NE(said.find("close the original first"), std::string::npos) << said;
  EXPECT_NE(said.find("open the copy in another process"), std::string::npos) << said;
  ASSERT_EQ(memlith_store_close(original), 0);
  EXPECT_EQ(open_region(copy, "a", MEMLITH_TRACKER_AUTO, &in_copy), 0) << last_sentence();
  EXPECT_EQ(memlith_store_close(copy), 0);
}

TEST(Sentences, AClosedHandleIsCalledClosed) {
  const TempFolder folder;
  auto heap = Heap::open_file(folder / "heap", {.create = true});
  ASSERT_TRUE(heap);
  ASSERT_TRUE(heap->close());
  const auto persisted = heap->persist();
  ASSERT_FALSE(persisted);
  EXPECT_NE(persisted.error().message().find("the heap is not open: it was closed"), std::string::npos)
      << persisted.error().message();
  auto store = Store::open(folder / "store", {.create = true});
  ASSERT_TRUE(store);
  auto transaction = store->begin();
  ASSERT_TRUE(transaction);
  ASSERT_TRUE(transaction->commit());
  const auto again = transaction->commit();
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message().find("the transaction is not open"), std::string::npos) << again.error().message();
}

TEST(Sentences, AFolderIsNoFile) {
  const TempFolder folder;
  const auto store = Store::open_file(folder.path(), {.create = true});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message().find("is a folder; open it as a store"), std::string::npos)
      << store.error().message();
}

// A file that is no heap stays as it was, and nothing is left beside it.
TEST(Sentences, ARefusedFileIsLeftAlone) {
  const TempFolder folder;
  const std::string path = folder / "letter.txt";
  const std::string text(10000, 'x');
  std::ofstream(path) << text;
  for (const bool create : {false, true}) {
    const auto heap = Heap::open_file(path, {.create = create});
    ASSERT_FALSE(heap);
    std::vector<std::string> found;
    for (const auto& each : std::filesystem::directory_iterator(folder.path())) {
      found.push_back(each.path().filename().string());
    }
    EXPECT_EQ(found, std::vector<std::string>{"letter.txt"}) << heap.error().message();
    std::ifstream file(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
  }
}

// A log with commits is no leftover of a refused opening.
TEST(Sentences, ARefusedOpeningKeepsTheLogOfAHeap) {
  const TempFolder folder;
  const std::string path = folder / "heap";
  {
    auto heap = Heap::open_file(path, {.create = true});
    ASSERT_TRUE(heap && heap->root<int>() && heap->persist() && heap->close());
  }
  EXPECT_FALSE(Heap::open_file(path, {.create = true, .exclusive = true}));
  EXPECT_TRUE(std::filesystem::exists(path + ".memlith"));
  auto heap = Heap::open_file(path);
  ASSERT_TRUE(heap && heap->root<int>());
}

constexpr const char* kDropped = "bytes that no persist had made durable were dropped";

// The number of sentences about dropped changes that `work` prints.
std::size_t told_of_dropped(const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  work();
  const std::string told = ::testing::internal::GetCapturedStderr();
  std::size_t count = 0;
  for (std::size_t at = told.find(kDropped); at != std::string::npos; at = told.find(kDropped, at + 1)) ++count;
  return count;
}

class Forgotten : public ::testing::TestWithParam<Tracker> {
 protected:
  using Numbers = vector<std::uint64_t>;

  Result<Heap> open(const StoreOptions& options = {}) {
    return Heap::open_file(folder_ / "heap", {.create = !options.read_only && !options.follow, .tracker = GetParam()},
                           options);
  }
  // A heap with some thousand bytes, all of them persisted.
  void make() {
    auto heap = open();
    ASSERT_TRUE(heap) << heap.error().message();
    auto root = heap->root<Numbers>();
    ASSERT_TRUE(root);
    for (std::uint64_t i = 0; i < 1000; ++i) (*root)->push_back(i);
    ASSERT_TRUE(heap->persist() && heap->close());
  }
  // Opens the heap, calls `use`, and closes it by its destructor.
  std::size_t told_after(const std::function<void(Heap&, Numbers&)>& use, const StoreOptions& options = {}) {
    return told_of_dropped([&] {
      auto heap = open(options);
      ASSERT_TRUE(heap) << heap.error().message();
      auto root = heap->root<Numbers>();
      ASSERT_TRUE(root) << root.error().message();
      use(*heap, **root);
    });
  }

  const TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Trackers, Forgotten, ::testing::Values(Tracker::automatic, Tracker::scan, Tracker::fault),
                         [](const auto& given) { return "Tracker" + std::to_string(static_cast<int>(given.param)); });

TEST_P(Forgotten, PersistsAreTold) {
  if (!open()) GTEST_SKIP() << "this kernel has no such tracker";
  make();
  const auto change = [](Heap&, Numbers& numbers) { numbers[500] += 1; };
  EXPECT_EQ(told_after(change), 1u);
  EXPECT_EQ(told_after(change, {.tell_dropped = false}), 0u);
  EXPECT_EQ(told_after([](Heap& heap, Numbers& numbers) {
              numbers[1] += 1;
              ASSERT_TRUE(heap.persist());
              numbers[2] += 1;
            }),
            1u);
  EXPECT_EQ(told_after([](Heap& heap, Numbers&) { ASSERT_TRUE(heap.allocate(100)); }), 1u) << "a block that is lost";
}

TEST_P(Forgotten, NothingIsToldWhereNothingWasForgotten) {
  if (!open()) GTEST_SKIP() << "this kernel has no such tracker";
  make();
  EXPECT_EQ(told_after([](Heap&, Numbers& numbers) { ASSERT_EQ(numbers[999], 999u); }), 0u) << "read";
  EXPECT_EQ(told_after([](Heap& heap, Numbers& numbers) {
              for (int i = 0; i < 40; ++i) {  // enough for pages that stay writable
                numbers[7] += 1;
                ASSERT_TRUE(heap.persist());
              }
            }),
            0u)
      << "persisted";
  EXPECT_EQ(told_after([](Heap& heap, Numbers& numbers) {
              numbers[3] += 1;
              numbers.resize(100000);
              ASSERT_TRUE(heap.rollback());
            }),
            0u)
      << "rolled back";
  EXPECT_EQ(told_after([](Heap& heap, Numbers& numbers) {
              EXPECT_THROW((void)heap.transact([&] {
                numbers[4] += 1;
                throw 5;
              }),
                           int);
            }),
            0u)
      << "undone";
  EXPECT_EQ(told_after([](Heap&, Numbers& numbers) { ASSERT_EQ(numbers[999], 999u); }, {.read_only = true}), 0u);
  EXPECT_EQ(told_after([](Heap&, Numbers& numbers) { ASSERT_EQ(numbers[999], 999u); }, {.follow = true}), 0u);
  EXPECT_EQ(told_after([](Heap& heap, Numbers& numbers) {
              numbers[5] += 1;
              const pid_t child = ::fork();
              ASSERT_GE(child, 0);
              if (child == 0) {
                (void)heap.close();
                ::_exit(0);
              }
              int status = -1;
              ASSERT_EQ(::waitpid(child, &status, 0), child);
              EXPECT_EQ(status, 0);
              ASSERT_TRUE(heap.persist());
            }),
            0u)
      << "closed in a forked child";
}

// The object that std::pmr containers lead to has a pointer of the process, which each opening writes anew.
TEST_P(Forgotten, WhatAnOpeningWritesIsNotTold) {
  if (!open()) GTEST_SKIP() << "this kernel has no such tracker";
  {
    auto heap = open();
    ASSERT_TRUE(heap);
    auto resource = heap->resource();
    ASSERT_TRUE(resource && heap->root<Numbers>());
    const std::uint64_t other = 1;
    std::memcpy(static_cast<void*>(*resource), &other, sizeof other);  // as another process has it
    ASSERT_TRUE(heap->persist());
  }
  EXPECT_EQ(told_after([](Heap&, Numbers&) {}), 0u);
  EXPECT_EQ(told_after([](Heap&, Numbers& numbers) { numbers.push_back(1); }), 1u);
}

// The explicit tracker knows what was touched. A region that is closed by itself is told by its name, and a store's
// regions each.
TEST(ForgottenTouch, IsTold) {
  const TempFolder folder;
  const auto told_after = [&](const std::function<void(Store&, Region&, Region&)>& use) {
    return told_of_dropped([&] {
      auto store = Store::open(folder / "store", {.create = true});
      ASSERT_TRUE(store) << store.error().message();
      auto a = store->region("a", {.create = true, .tracker = Tracker::touched, .size = kBytes});
      auto b = store->region("b", {.create = true, .tracker = Tracker::touched, .size = kBytes});
      ASSERT_TRUE(a && b);
      use(*store, *a, *b);
    });
  };
  const auto store_to = [](Region& region) {
    *static_cast<std::uint64_t*>(region.address()) += 1;
    return region.touch(region.address(), 8);
  };
  EXPECT_EQ(told_after([&](Store&, Region& a, Region& b) { ASSERT_TRUE(store_to(a) && store_to(b)); }), 2u);
  EXPECT_EQ(told_after([&](Store&, Region& a, Region&) { ASSERT_TRUE(store_to(a) && a.close()); }), 1u);
  EXPECT_EQ(told_after([&](Store& store, Region& a, Region& b) {
              ASSERT_TRUE(store_to(a) && store_to(b) && store.persist());
              *static_cast<std::uint64_t*>(a.address()) += 1;  // and no touch
            }),
            0u);
  EXPECT_EQ(told_after([&](Store& store, Region& a, Region&) {
              auto txn = store.begin();
              ASSERT_TRUE(txn && txn->touch_before(a.address(), 8));
              *static_cast<std::uint64_t*>(a.address()) += 1;
              ASSERT_TRUE(txn->abort());
            }),
            0u);
}

}  // namespace
}  // namespace memlith::test::sentences_test
