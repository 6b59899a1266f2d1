// The interface's sentences are whole, and their advice helps when it is followed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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

// Changes that no persist covers are dropped by a close, which says so if the program wants that.
TEST(Sentences, AForgottenPersistIsTold) {
  const TempFolder folder;
  for (const bool wants : {false, true}) {
    for (const bool forgets : {false, true}) {
      ::testing::internal::CaptureStderr();
      {
        auto heap = Heap::open_file(folder / "heap", {.create = true}, {.tell_dropped = wants});
        ASSERT_TRUE(heap) << heap.error().message();
        auto root = heap->root<int>();
        ASSERT_TRUE(root && heap->persist());
        **root += 1;
        if (!forgets) {
          ASSERT_TRUE(heap->persist());
        }
      }
      const std::string told = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(told.find("bytes that no persist had made durable were dropped") != std::string::npos, wants && forgets)
          << told;
    }
  }
}

}  // namespace
}  // namespace memlith::test::sentences_test
