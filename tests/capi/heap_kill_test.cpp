// docs/heap.md, "crashes and threads": a heap that several threads use is killed again and again; each time it is as of
// one persist, the last acknowledged or a later one, with nothing leaked. Some lives give it a larger limit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memlith/heap.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

constexpr int kThreads = 3;
constexpr std::uint32_t kKeys = 200;

// A thread's map after its n-th change is a function of n alone, so that a map tells whether it is whole.
struct Part {
  std::uint64_t changes = 0;
  map<std::uint32_t, string> texts;
  vector<std::uint64_t> history;
};
struct Shared {
  Part parts[kThreads];
  std::uint64_t handed = 0;  // by any thread, under the lock
  list<string> queue;        // strings made by one thread and freed by another
};
template <class Map, class History>
void change(Map& texts, History& history, std::uint64_t n, int thread) {
  std::mt19937_64 draw(n * 8 + static_cast<std::uint64_t>(thread));
  const auto key = static_cast<std::uint32_t>(draw() % kKeys);
  if (draw() % 3 == 0) {
    texts.erase(key);
  } else {
    texts[key].assign(draw() % 900, static_cast<char>('a' + n % 26));
  }
  if (n % 500 == 0) history.clear();
  history.push_back(n);
}

}  // namespace
}  // namespace memlith::test

template <>
struct memlith::is_persistable<memlith::test::Shared> : std::true_type {};

namespace memlith::test {
namespace {

// Counts of changes that were captured by an acknowledged persist, seen by the parent after the kill.
struct Acknowledged {
  std::atomic<std::uint64_t> changes[kThreads];
};

// The first of the addresses for regions, so that there is room behind.
constexpr std::uint64_t kAddress = 0x400000000000;

Heap open_heap(const Store& store, Tracker tracker, std::uint64_t max_size = 0) {
  return or_leave(Heap::open(store, "heap",
                             {.create = true,
                              .tracker = tracker,
                              .size = 1 << 20,
                              .max_size = max_size,
                              .address = kAddress}),
                  4);
}
Store open_store(const std::string& path) {
  return or_leave(Store::open(path, {.create = true, .log_bytes = 1 << 20}), 3);
}

// Each thread changes its own part, without a lock while it does: the threads meet in the allocator only. A persist is
// captured when no change is half done, and by any thread for all of them.
void live(const std::string& path, Tracker tracker, std::uint64_t max_size, Acknowledged& acknowledged) {
  const Store store = open_store(path);
  const Heap heap = open_heap(store, tracker, max_size);
  auto shared = heap.root<Shared>();
  if (!shared) ::_exit(5);
  std::mutex busy[kThreads];  // held during a change of that thread's part
  std::mutex handing;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const use_heap scope(heap);
      Part& part = (*shared)->parts[t];
      for (;;) {
        {
          const std::lock_guard lock(busy[t]);
          change(part.texts, part.history, part.changes + 1, t);
          ++part.changes;
        }
        if (part.changes % 4 == 0) {
          const std::lock_guard lock(handing);
          list<string>& queue = (*shared)->queue;
          queue.push_back(string(20 + (*shared)->handed % 300, 'q'));
          ++(*shared)->handed;
          if (queue.size() > 20) queue.pop_front();
        }
        if (part.changes % 16 != 0) continue;
        std::unique_lock first(busy[0], std::defer_lock);
        std::unique_lock second(busy[1], std::defer_lock);
        std::unique_lock third(busy[2], std::defer_lock);
        std::unique_lock queue(handing, std::defer_lock);
        std::lock(first, second, third, queue);
        std::uint64_t captured[kThreads];
        for (int i = 0; i < kThreads; ++i) captured[i] = (*shared)->parts[i].changes;
        const auto ticket = heap.persist_async();
        first.unlock(), second.unlock(), third.unlock(), queue.unlock();
        if (!ticket || !heap.wait(*ticket)) ::_exit(6);
        for (int i = 0; i < kThreads; ++i) {
          std::uint64_t known = acknowledged.changes[i].load();
          while (known < captured[i] && !acknowledged.changes[i].compare_exchange_weak(known, captured[i])) {
          }
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

class HeapKill : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, HeapKill, ::testing::Values(Tracker::scan, Tracker::fault),
                         [](const auto& given) { return given.param == Tracker::scan ? "Scan" : "Fault"; });

TEST_P(HeapKill, OfSeveralThreads) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const SharedWithChildren<Acknowledged> acknowledged;
  std::mt19937_64 random(std::random_device{}());
  // The model: what each part must be after so many changes.
  std::uint64_t modelled[kThreads] = {};
  std::map<std::uint32_t, std::string> texts[kThreads];
  std::vector<std::uint64_t> history[kThreads];
  for (int kill = 0; kill < 25; ++kill) {
    const std::uint64_t max_size = (1ull + 150 * (static_cast<unsigned>(kill) / 8)) << 30;
    KilledProcess child;
    child.start([&] { live(path, GetParam(), max_size, *acknowledged); });
    child.kill_working(random() % 150'000);
    ASSERT_FALSE(HasFailure());

    Store store = open_store(path);
    Heap heap = open_heap(store, GetParam());
    const auto report = heap.verify();
    ASSERT_TRUE(report) << report.error().message();
    auto shared = heap.root<Shared>();
    ASSERT_TRUE(shared) << shared.error().message();
    std::uint64_t blocks = 2 + (*shared)->queue.size();  // the root and its name
    for (const string& each : (*shared)->queue) {
      EXPECT_EQ(each.find_first_not_of('q'), string::npos);
      ++blocks;
    }
    for (int t = 0; t < kThreads; ++t) {
      const Part& part = (*shared)->parts[t];
      EXPECT_GE(part.changes, acknowledged->changes[t].load()) << "kill " << kill << ", thread " << t;
      acknowledged->changes[t].store(part.changes);
      while (modelled[t] < part.changes) change(texts[t], history[t], ++modelled[t], t);
      ASSERT_TRUE(std::equal(part.history.begin(), part.history.end(), history[t].begin(), history[t].end()));
      ASSERT_EQ(part.texts.size(), texts[t].size()) << "kill " << kill << ", thread " << t;
      blocks += part.texts.size() + (part.history.capacity() > 0 ? 1 : 0);
      for (auto mine = texts[t].begin(); const auto& [key, text] : part.texts) {
        ASSERT_EQ(key, mine->first);
        ASSERT_EQ(std::string_view(text.data(), text.size()), mine->second);
        blocks += text.capacity() > string().capacity() ? 1 : 0;
        ++mine;
      }
    }
    if (report->blocks > 0) {
      EXPECT_EQ(report->blocks, blocks) << "blocks that nothing owns, after kill " << kill;
    }
    if (kill % 2 == 0) {
      EXPECT_TRUE(heap.close());
      EXPECT_TRUE(store.close());
    }
  }
  std::uint64_t changes = 0;
  for (const std::uint64_t each : modelled) changes += each;
  EXPECT_GT(changes, 100u) << "the children did not get far";
}

}  // namespace
}  // namespace memlith::test
