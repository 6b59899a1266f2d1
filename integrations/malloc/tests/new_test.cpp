// docs/heap.md, "Plain new and malloc": inside a memlith::use_heap, `new` of this thread comes from the heap, and a
// block goes back to where it came from; so the containers of std survive as they are.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memlith/heap.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using Words = std::map<std::string, std::vector<int>>;
struct Root {
  Words* words = nullptr;
  int count = 0;  // of what is in words
};

std::string word(int number) {
  return "a word that is too long to stand in the string itself, " + std::to_string(number);
}

// The child's part of a test, in a process that starts anew, with addresses of its own.
pid_t start_step(const std::string& step, const std::string& path, int acknowledge) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv("MEMLITH_HEAP", path.c_str(), 1);
  ::setenv("MEMLITH_ACKNOWLEDGE", std::to_string(acknowledge).c_str(), 1);
  const std::string filter = "--gtest_filter=" + step;
  ::execl("/proc/self/exe", "tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
  ::_exit(127);
}

void expect_right(const Root& root) {
  ASSERT_NE(root.words, nullptr);
  ASSERT_EQ(root.words->size(), static_cast<std::size_t>(root.count));
  for (int i = 0; i < root.count; ++i) {
    const auto found = root.words->find(word(i));
    ASSERT_NE(found, root.words->end()) << i;
    EXPECT_EQ(found->second, std::vector<int>(static_cast<std::size_t>(i % 50), i));
  }
}

TEST(PlainNew, DISABLED_AddsWordsUntilKilled) {
  auto heap = Heap::open_file(std::getenv("MEMLITH_HEAP"), {.create = true});
  ASSERT_TRUE(heap.ok()) << heap.error().message();
  auto root = heap->root<Root>();
  ASSERT_TRUE(root.ok()) << root.error().message();
  if ((*root)->words != nullptr) expect_right(**root);
  if (HasFailure()) return;
  for (;;) {
    {
      const use_heap scope(*heap);
      if ((*root)->words == nullptr) (*root)->words = new Words;
      const int number = (*root)->count++;
      (*(*root)->words)[word(number)].assign(static_cast<std::size_t>(number % 50), number);
    }
    if (!heap->persist().ok()) ::_exit(5);
    const int count = (*root)->count;
    if (::write(std::atoi(std::getenv("MEMLITH_ACKNOWLEDGE")), &count, sizeof count) != sizeof count) ::_exit(6);
  }
}

// Each life finds every word that an earlier one was told to be durable, in containers that know nothing of heaps.
TEST(PlainNew, StandardContainersSurviveKills) {
  const TempFolder folder;
  const std::string path = folder / "words.heap";
  std::minstd_rand random(std::random_device{}());
  int acknowledged = 0;
  for (int life = 0; life < 12; ++life) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = start_step("PlainNew.DISABLED_AddsWordsUntilKilled", path, ends[1]);
    ::close(ends[1]);
    int count = 0;
    const auto wanted = 1 + random() % 40;
    for (auto i = wanted; i > 0 && ::read(ends[0], &count, sizeof count) == sizeof count; --i) acknowledged = count;
    ::usleep(static_cast<useconds_t>(random() % 2000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "life " << life << " ended by itself: " << WEXITSTATUS(status);
    while (::read(ends[0], &count, sizeof count) == sizeof count) acknowledged = count;
    ::close(ends[0]);
    auto heap = Heap::open_file(path);
    ASSERT_TRUE(heap.ok()) << heap.error().message();
    auto root = heap->root<Root>();
    ASSERT_TRUE(root.ok()) << root.error().message();
    EXPECT_GE((*root)->count, acknowledged);
    EXPECT_LE((*root)->count, acknowledged + 1);
    expect_right(**root);
    ASSERT_TRUE(heap->verify().ok());
    acknowledged = (*root)->count;
  }
  auto heap = Heap::open_file(path);
  ASSERT_TRUE(heap.ok());
  delete (*heap->root<Root>())->words;  // outside of a scope
  EXPECT_EQ(heap->verify()->blocks, 2u) << "the root and its name, and nothing of the words";
}

class Diverted : public ::testing::Test {
 protected:
  static Heap open(const std::string& path) {
    auto heap = Heap::open_file(path, {.create = true, .max_size = 8u << 20});
    EXPECT_TRUE(heap.ok());
    return std::move(*heap);
  }
  TempFolder folder_;
  Heap heap_ = open(folder_ / "a.heap");
  [[nodiscard]] bool in_heap(const void* address) const { return memlith_heap_of(address) == heap_.handle(); }
};

TEST_F(Diverted, BlocksGoBackToWhereTheyCameFrom) {
  auto* const mine = new std::string(100, 'a');
  std::string* theirs = nullptr;
  struct alignas(256) Aligned {
    char bytes[256];
  };
  Aligned* aligned = nullptr;
  {
    const use_heap scope(heap_);
    theirs = new std::string(100, 'b');
    aligned = new Aligned();
    delete mine;
  }
  EXPECT_TRUE(in_heap(theirs) && in_heap(theirs->data()) && in_heap(aligned));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 256, 0u);
  EXPECT_EQ(heap_.verify()->blocks, 3u);
  *theirs +=
      std::string(1000, 'c');  // grows outside of the scope, and so out of the heap: what the pointer checker is for
  EXPECT_FALSE(in_heap(theirs->data()));
  delete theirs;
  delete aligned;
  EXPECT_EQ(heap_.verify()->blocks, 0u);
}

TEST_F(Diverted, OtherThreadsAndInnerScopesAreNotMeant) {
  void* of_thread = nullptr;
  void* inside = nullptr;
  void* outside = nullptr;
  std::atomic<bool> begin = false;
  std::thread thread([&] {
    while (!begin) std::this_thread::yield();
    of_thread = ::operator new(100);
  });
  {
    const use_heap scope(heap_);
    begin = true;
    thread.join();
    inside = ::operator new(100);
    memlith_heap* const before = memlith_heap_use(nullptr);
    outside = ::operator new(100, std::nothrow);
    (void)memlith_heap_use(before);
  }
  EXPECT_FALSE(in_heap(of_thread));
  EXPECT_TRUE(in_heap(inside));
  EXPECT_FALSE(in_heap(outside));
  for (void* const block : {of_thread, inside, outside}) ::operator delete(block);
  EXPECT_EQ(heap_.verify()->blocks, 0u);
}

// memlith's own allocations, for as long as it is open or for a message, come from the process's heap.
TEST_F(Diverted, CallsOfMemlithAllocateInTheProcess) {
  const std::string other = folder_ / "b";
  {
    const use_heap scope(heap_);
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    memlith_store* store = nullptr;
    memlith_heap* second = nullptr;
    void* block = nullptr;
    (void)memlith_store_open(other.c_str(), &options, &store);
    memlith_region_options region{};
    region.struct_size = sizeof region;
    region.flags = MEMLITH_CREATE;
    (void)memlith_heap_open(store, "a region with a rather long name", &region, &second);
    (void)memlith_heap_allocate(second, 100, 0, &block);
    (void)memlith_heap_persist(second);
    (void)memlith_heap_find(second, "there is no object of this name", nullptr, &block);
    (void)memlith_heap_persist(heap_.handle());
    (void)memlith_heap_verify(heap_.handle(), nullptr);
    (void)memlith_store_close(store);
  }
  EXPECT_EQ(heap_.verify()->blocks, 0u);
}

TEST_F(Diverted, AFullHeapThrowsAndIsIntact) {
  std::vector<void*> blocks;
  blocks.reserve(10000);
  std::size_t count = 0;
  bool thrown = false;
  {
    const use_heap scope(heap_);
    try {
      while (count < 10000) blocks[count] = ::operator new(1000), ++count;
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    if (::operator new(100000, std::nothrow) != nullptr) thrown = false;
  }
  EXPECT_TRUE(thrown);
  EXPECT_GT(count, 5000u);
  for (std::size_t i = 0; i < count; ++i) ::operator delete(blocks[i]);
  EXPECT_TRUE(heap_.persist().ok());
  EXPECT_TRUE(heap_.verify().ok());
}

// Blocks of a heap are gone with the heap; malloc does not get them.
TEST_F(Diverted, ABlockOfAClosedHeapIsGone) {
  char* block = nullptr;
  {
    const use_heap scope(heap_);
    block = new char[100];
  }
  ASSERT_TRUE(heap_.close().ok());
  delete[] block;
}

}  // namespace
}  // namespace memlith::test
