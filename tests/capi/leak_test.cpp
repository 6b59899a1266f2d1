// docs/heap.md, "Leaks": what a killed program held outside of its heap is found and freed, and nothing that may be
// needed is: whatever the kind of its pointer, and wherever the pointer lies.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "memlith/heap.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::leak_test {

struct Library {  // an aggregate
  map<string, vector<string>> books;
  unordered_map<string, int> loans;
  list<string> queue;
  deque<string> shelf;
};

namespace {

struct Found {
  std::set<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
};

Found found_in(const Result<std::vector<Leak>>& leaks) {
  Found found;
  EXPECT_TRUE(leaks.ok()) << leaks.error().message();
  for (const Leak& leak : *leaks) {
    EXPECT_EQ(leak.heap, "heap");
    EXPECT_TRUE(found.offsets.insert(leak.offset).second);
    found.bytes += leak.bytes;
  }
  return found;
}
Found leaks_of(const std::string& path) { return found_in(verify_leaks(path)); }
Found collect(const std::string& path) { return found_in(collect_leaks(path, MEMLITH_PLAIN_POINTERS)); }

Heap open_heap(const Store& store) {
  auto heap = Heap::open(store, "heap", {.create = true});
  if (!heap) ::_exit(3);
  return std::move(*heap);
}
Store open_store(const std::string& path) {
  auto store = Store::open(path, {.create = true});
  if (!store) ::_exit(4);
  return std::move(*store);
}

// Runs it in a child, which is killed at the end.
template <class Program>
void run_and_kill(const Program& program) {
  const pid_t child = ::fork();
  if (child == 0) {
    program();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
}

string long_text(int i) {
  return string(("a text that does not fit the string itself, number " + std::to_string(i)).c_str());
}
void fill(Library& library) {
  for (int i = 0; i < 300; ++i) {
    library.books[long_text(i % 40)].push_back(long_text(i));
    library.loans[long_text(i)] = i;
    library.queue.push_back(long_text(i));
    library.shelf.push_back(long_text(i));
  }
}

class Leaks : public ::testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_ / "store";
};

TEST_F(Leaks, OfALocalStringAreFoundAndFreed) {
  std::uint64_t blocks = 0;
  {
    const Store store = open_store(path_);
    const Heap heap = open_heap(store);
    fill(**heap.root<Library>());
    ASSERT_TRUE(heap.persist().ok());
    blocks = heap.verify()->blocks;
  }
  EXPECT_TRUE(leaks_of(path_).offsets.empty()) << "containers lead to all that is theirs";
  run_and_kill([&] {
    const Store store = open_store(path_);
    const Heap heap = open_heap(store);
    const use_heap scope(heap);
    const string local = long_text(1000);
    const string large(100'000, 'x');
    if (!heap.persist()) ::_exit(5);
    ::kill(::getpid(), SIGKILL);
  });
  const Found found = leaks_of(path_);
  EXPECT_EQ(found.offsets.size(), 2u);
  EXPECT_GT(found.bytes, 100'000u);
  EXPECT_EQ(leaks_of(path_).offsets, found.offsets) << "looking changes nothing";
  // Not without the promise.
  for (const std::uint32_t promise : {0u, 2u}) {
    const auto refused = collect_leaks(path_, promise);
    EXPECT_EQ(refused.error().category(), MEMLITH_INVALID);
    EXPECT_NE(refused.error().message().find("XOR"), std::string::npos);
  }
  EXPECT_EQ(collect(path_).offsets, found.offsets);
  EXPECT_TRUE(leaks_of(path_).offsets.empty());
  EXPECT_TRUE(collect(path_).offsets.empty());
  const Store store = open_store(path_);
  const Heap heap = open_heap(store);
  EXPECT_EQ(heap.verify()->blocks, blocks);
  const Library& library = **heap.find<Library>("");
  EXPECT_EQ(library.books.size(), 40u);
  EXPECT_EQ(library.shelf.back(), long_text(299));
  EXPECT_EQ(library.loans.at(long_text(7)), 7);
}

// Each block is held by a pointer of another kind; none of them is found, and what only a leak leads to is.
TEST_F(Leaks, AreNothingThatSomethingLeadsTo) {
  struct Holder {
    void* begin;
    char* inside;
    char* end;
    std::ptrdiff_t beside;  // as boost::interprocess::offset_ptr: a distance from here
    char packed[3 + sizeof(void*)];
    std::uintptr_t tagged;
    void* chain;
  };
  std::set<std::uint64_t> wanted;
  {
    const Store store = open_store(path_);
    const Heap heap = open_heap(store);
    const Region other = std::move(*store.region("other", {.create = true, .size = 4096}));
    Holder& holder = **heap.construct<Holder>("holder");
    const auto block = [&](std::uint64_t bytes) {
      auto* const given = static_cast<char*>(*heap.allocate(bytes));
      std::memset(given, 0, bytes);
      return given;
    };
    holder.begin = block(100);
    holder.inside = block(5000) + 4096;
    holder.end = block(64) + 64;  // where the next block of its slab begins
    holder.beside = reinterpret_cast<char*>(block(300)) - reinterpret_cast<char*>(&holder.beside);
    char* const packed = block(700);
    std::memcpy(holder.packed + 3, &packed, sizeof packed);
    holder.tagged = reinterpret_cast<std::uintptr_t>(block(48)) | 1;
    char* const chain = block(2'000'000);
    holder.chain = chain;
    char* const next = block(1000);
    std::memcpy(chain + 1'500'000, &next, sizeof next);
    char* const from_other = block(900);
    std::memcpy(static_cast<char*>(other.address()) + 1001, &from_other, sizeof from_other);
    // Two that lead to each other, and one that leads to the holder.
    char* const one = block(200);
    char* const two = block(200);
    std::memcpy(one, &two, sizeof two);
    std::memcpy(two, &one, sizeof one);
    char* const three = block(160);
    void* const to_holder = &holder;
    std::memcpy(three, &to_holder, sizeof to_holder);
    for (const char* each : {one, two, three}) {
      wanted.insert(static_cast<std::uint64_t>(each - static_cast<char*>(memlith_region_address(heap.region()))));
    }
    ASSERT_TRUE(store.persist().ok());
  }
  EXPECT_EQ(leaks_of(path_).offsets, wanted);
  EXPECT_EQ(collect(path_).offsets, wanted);
  EXPECT_TRUE(leaks_of(path_).offsets.empty());
  const Store store = open_store(path_);
  const Heap heap = open_heap(store);
  EXPECT_TRUE(heap.verify().ok());
}

// Killed anywhere in a collection, all of the blocks are free afterwards or none.
TEST_F(Leaks, CollectionIsKilledAtAnyTime) {
  constexpr std::uint64_t kLeaks = 2000;
  std::uint64_t all = 0;
  std::uint64_t leaked = 0;  // a pointer to the end of a vector keeps what begins there
  const auto leak = [&] {
    {
      const Store store = open_store(path_);
      const Heap heap = open_heap(store);
      if (auto root = heap.root<Library>(); (*root)->queue.empty()) fill(**root);
      for (std::uint64_t i = 0; i < kLeaks; ++i) ASSERT_TRUE(heap.allocate(16 + i % 500).ok());
      ASSERT_TRUE(heap.persist().ok());
      all = heap.verify()->blocks;
    }
    leaked = leaks_of(path_).offsets.size();
    ASSERT_GT(leaked, kLeaks * 9 / 10);
  };
  leak();
  int collected = 0;
  for (int delay_us = 0; delay_us < 30'000; delay_us += 1'500) {
    const pid_t child = ::fork();
    if (child == 0) {
      (void)memlith_collect_leaks(path_.c_str(), MEMLITH_PLAIN_POINTERS, nullptr, nullptr);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(delay_us));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::uint64_t blocks = 0;
    {
      const Store store = open_store(path_);
      const Heap heap = open_heap(store);
      blocks = heap.verify()->blocks;
      EXPECT_EQ((*heap.find<Library>(""))->queue.size(), 300u);
    }
    ASSERT_TRUE(blocks == all || blocks == all - leaked) << blocks << " of " << all << ", of which " << leaked;
    if (blocks == all) continue;
    ++collected;
    leak();
  }
  EXPECT_EQ(collect(path_).offsets.size(), leaked) << "after " << collected << " that came to their end";
}

TEST_F(Leaks, OfOneFileAndWithoutAHeap) {
  const std::string file = folder_ / "app.heap";
  {
    auto heap = Heap::open_file(file, {.create = true});
    ASSERT_TRUE(heap.ok());
    (**heap->root<vector<int>>()).push_back(1);
    ASSERT_TRUE(heap->allocate(100).ok());
    ASSERT_TRUE(heap->persist().ok());
  }
  const auto found = verify_leaks(file);
  ASSERT_TRUE(found.ok()) << found.error().message();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().heap, "file");
  const auto freed = collect_leaks(file, MEMLITH_PLAIN_POINTERS);
  ASSERT_TRUE(freed.ok()) << freed.error().message();
  ASSERT_EQ(freed->size(), 1u);
  EXPECT_EQ(freed->front().offset, found->front().offset);
  auto heap = Heap::open_file(file);
  ASSERT_TRUE(heap.ok());
  EXPECT_EQ(heap->verify()->blocks, 3u);  // the root, its name, its number
  {
    const Store store = open_store(path_);
    EXPECT_TRUE(store.region("plain", {.create = true, .size = 4096}).ok());
  }
  EXPECT_TRUE(leaks_of(path_).offsets.empty());
  EXPECT_TRUE(collect(path_).offsets.empty());
  EXPECT_EQ(verify_leaks(folder_ / "no").error().category(), MEMLITH_NOT_FOUND);
  EXPECT_EQ(memlith_category(memlith_verify_leaks(path_.c_str(), nullptr, nullptr)), MEMLITH_INVALID);
}

}  // namespace
}  // namespace memlith::test::leak_test
