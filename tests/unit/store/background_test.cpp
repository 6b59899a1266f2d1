// docs/architecture.md, "Threads": the stores of a process share a handful of threads, however many stores there are; a
// store waits for no other one's checkpoint; the threads end with the last store, and a child of fork() has none of
// them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sim/decorators.hpp"
#include "support/process_memory.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kThreadsOfAll = 7;  // store/background.hpp
thread_local bool commits_here = false;

StoreOptions with_threads() {
  StoreOptions options = tiny_options();
  options.manual_checkpoint = false;
  options.log_max_bytes = options.log_bytes;
  return options;
}

Status commit_soon(Store& store, ObjectId object, std::uint64_t bytes, int value) {
  const Extent extent{object, 0, bytes};
  MEMLITH_TRY_ASSIGN(FrameWriter writer, store.begin_commit({&extent, 1}, {}, false));
  const Bytes content = filled(bytes, value);
  writer.put(content.data(), content.size());
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  store.wake_checkpointer(end);
  store.flush_soon(end);
  return kOk;
}

// Each in a folder of its own, with checkpoints, asynchronous commits and statistics at once.
TEST(Background, ManyStoresShareAHandfulOfThreads) {
  constexpr int kStores = 60;
  const std::uint64_t before = thread_count();
  {
    const TempFolder folder;
    std::vector<std::unique_ptr<Volume>> volumes;
    std::vector<std::unique_ptr<Store>> stores;
    std::vector<ObjectId> objects;
    for (int i = 0; i < kStores; ++i) {
      volumes.push_back(make_posix_volume(folder / std::to_string(i)));
      stores.push_back(must(Store::open(*volumes.back(), with_threads())));
      objects.push_back(create_object(*stores.back(), "a", 8192));
    }
    for (int round = 1; round <= 12; ++round) {
      for (std::size_t i = 0; i < stores.size(); ++i) ASSERT_OK(commit_soon(*stores[i], objects[i], 8000, round));
      EXPECT_LE(thread_count(), before + kThreadsOfAll);
    }
    for (std::size_t i = 0; i < stores.size(); ++i) {
      const Lsn end = stores[i]->log().head();
      while (stores[i]->log().durable_lsn() < end) std::this_thread::yield();
      EXPECT_GT(stores[i]->counters().checkpoints.load(), 0u);
      EXPECT_EQ(content_of(*stores[i], objects[i])[7999], std::byte{12});
    }
    for (auto& store : stores) {
      EXPECT_OK(store->close());
      store = nullptr;
    }
    EXPECT_EQ(thread_count_down_to(before), before) << "threads are left after the last store was closed";
    stores.push_back(must(Store::open(*volumes[0], with_threads())));  // and come back
    ASSERT_OK(commit_soon(*stores.back(), objects[0], 8000, 13));
    const Lsn end = stores.back()->log().head();
    while (stores.back()->log().durable_lsn() < end) std::this_thread::yield();
  }
  EXPECT_EQ(thread_count_down_to(before), before) << "a store that is dropped leaves threads";
}

// No call asks for it, and the log is far from half full.
TEST(Background, AnIdleStoreGoesHome) {
  const TempFolder folder;
  const auto volume = make_posix_volume(folder / "store");
  StoreOptions options;
  options.create = true;
  options.log_bytes = 8 * kMiB;
  auto store = must(Store::open(*volume, options));
  const ObjectId object = create_object(*store, "a", 4 * kMiB);
  ASSERT_OK(store->checkpoint());
  const Lsn tail = store->home_lsn();
  for (std::uint64_t at = 0; at < 3 * kMiB; at += 64 * kKiB) {
    ASSERT_OK(commit(*store, {{object, at, filled(64 * kKiB, 5)}}));
  }
  const Lsn end = store->log().durable_lsn();
  while (store->home_lsn() < end) std::this_thread::yield();
  EXPECT_GT(end, tail);
  EXPECT_GE(store->counters().home_bytes.load(), 3 * kMiB);
  EXPECT_OK(store->close());
}

// A store's counters are shown by a gate, which stops the first, second, third or fourth show after the last commit:
// one of them finds that the store is idle, and asks for a checkpoint when the store is being closed.
TEST(Background, AnIdleStoreIsClosedWhileItIsLookedAt) {
  struct GatedVolume final : VolumeDecorator {
    using VolumeDecorator::VolumeDecorator;
    std::unique_ptr<Notice> make_notice(std::string_view, std::span<const std::byte>, Device*) override {
      struct Gated final : Notice {
        explicit Gated(GatedVolume& volume) : gate(volume) {}
        void show(std::span<const std::byte>) override { gate.pass(); }
        void remove() override {}
        GatedVolume& gate;
      };
      return std::make_unique<Gated>(*this);
    }
    void pass() {
      std::unique_lock lock(mutex);
      if (passes < 0 || passes-- > 0) return;
      is_held = true;
      changed.notify_all();
      changed.wait(lock, [this] { return !is_held; });
    }
    std::mutex mutex;
    std::condition_variable changed;
    int passes = -1;  // the shows before the one that is held; negative: none is held
    bool is_held = false;
  };
  for (int passes = 0; passes < 4; ++passes) {
    SimVolume disk(SimImage{}, true);
    GatedVolume volume(disk);
    StoreOptions options;
    options.create = true;
    options.log_bytes = 8 * kMiB;
    auto store = must(Store::open(volume, options));
    const ObjectId object = create_object(*store, "a", 4 * kMiB);
    for (std::uint64_t at = 0; at < 3 * kMiB; at += 64 * kKiB) {
      ASSERT_OK(commit(*store, {{object, at, filled(64 * kKiB, 5)}}));
    }
    {
      std::unique_lock lock(volume.mutex);
      volume.passes = passes;
      volume.changed.wait(lock, [&] { return volume.is_held; });
    }
    std::jthread opener([&volume] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // close() waits for the show by now, or soon
      const std::lock_guard lock(volume.mutex);
      volume.is_held = false;
      volume.changed.notify_all();
    });
    EXPECT_OK(store->close()) << passes;
  }
}

// Disks that stand still, as many as there are threads for checkpoints and more: another store's full log makes room
// all the same.
TEST(Background, AFullLogWaitsForNoOtherStore) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool closed = false;
    int waiting = 0;
    void pass() {
      std::unique_lock lock(mutex);
      ++waiting;
      changed.notify_all();
      changed.wait(lock, [this] { return !closed; });
      --waiting;
    }
  } gate;
  struct Slow {
    SimVolume volume;
    std::unique_ptr<Store> store;
    ObjectId object;
  };
  std::vector<std::unique_ptr<Slow>> slow;
  for (int i = 0; i < 4; ++i) {
    auto& each = *slow.emplace_back(std::make_unique<Slow>());
    each.store = must(Store::open(each.volume, with_threads()));
    each.object = create_object(*each.store, "a", 64 * kKiB);
    each.volume.before_transfer = [&gate] {
      if (!commits_here) gate.pass();
    };
  }
  gate.closed = true;  // for threads that commit not: those of checkpoints
  std::atomic<bool> enough{false};
  std::vector<std::thread> committers;
  for (auto& each : slow) {
    committers.emplace_back([&enough, store = each.get()] {
      commits_here = true;
      // A commit that finds the log full before a thread has begun makes room itself.
      for (int i = 0; !enough; ++i) (void)commit(*store->store, {{store->object, 0, filled(8000, i)}});
    });
  }
  {
    std::unique_lock lock(gate.mutex);
    gate.changed.wait(lock, [&] { return gate.waiting >= 2; });
  }
  enough = true;
  // Both threads stand still by now.
  SimVolume volume;
  auto store = must(Store::open(volume, with_threads()));
  const ObjectId object = create_object(*store, "a", 64 * kKiB);
  for (int i = 0; i < 100; ++i) ASSERT_OK(commit(*store, {{object, 0, filled(8000, i)}}));
  EXPECT_OK(store->close());
  {
    const std::lock_guard lock(gate.mutex);
    gate.closed = false;
  }
  gate.changed.notify_all();
  for (std::thread& committer : committers) committer.join();
  for (auto& each : slow) EXPECT_OK(each->store->close());
}

// The child's own store has threads of its own; the parent's go on.
TEST(Background, AChildHasItsOwn) {
  const TempFolder folder;
  const auto volume = make_posix_volume(folder / "parent");
  auto store = must(Store::open(*volume, with_threads()));
  const ObjectId object = create_object(*store, "a", 8192);
  for (int i = 0; i < 20; ++i) ASSERT_OK(commit_soon(*store, object, 8000, i));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);            // a hang ends here, by signal
    (void)store.release();  // taking it down would wait for threads that may be in it
    const auto own = make_posix_volume(folder / "child");
    auto opened = Store::open(*own, with_threads());
    if (!opened.ok()) ::_exit(1);
    const auto made = (*opened)->create("a", 8192, 0x510000000000, 1 * kGiB);
    if (!made.ok()) ::_exit(2);
    for (int i = 0; i < 40; ++i) {
      if (!commit_soon(**opened, made->id, 8000, i).ok()) ::_exit(3);
    }
    while ((*opened)->log().durable_lsn() < (*opened)->log().head()) std::this_thread::yield();
    if (!(*opened)->close().ok()) ::_exit(4);
    *opened = nullptr;
    ::_exit(thread_count_down_to(1) == 1 ? 0 : 5);
  }
  for (int i = 0; i < 40; ++i) ASSERT_OK(commit_soon(*store, object, 8000, i));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_OK(store->sync(store->log().head()));
  EXPECT_EQ(content_of(*store, object)[7999], std::byte{39});
  EXPECT_OK(store->close());
}

// A program that is killed during a recovery or a checkpoint may have writes to home files under way. Their ring keeps
// the file open, and the next recovery waits for it, but not for rings of its own.
class BackgroundOn : public ::testing::TestWithParam<IoBackend> {};
INSTANTIATE_TEST_SUITE_P(Io, BackgroundOn, ::testing::Values(IoBackend::automatic, IoBackend::uring),
                         [](const auto& given) { return given.param == IoBackend::uring ? "Uring" : "Automatic"; });
TEST_P(BackgroundOn, ARecoveryWaitsForTheKilled) {
  const TempFolder folder;
  const auto volume = make_posix_volume(folder / "store", GetParam());
  const pid_t killed = ::fork();
  if (killed == 0) {
    auto store = Store::open(*volume, with_threads());
    if (!store.ok()) ::_exit(1);
    const auto made = (*store)->create("a", 8192, 0x510000000000, 1 * kGiB);
    if (!made.ok() || !commit_soon(**store, made->id, 8000, 7).ok()) ::_exit(2);
    ::_exit((*store)->sync((*store)->log().head()).ok() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(killed, &status, 0), killed);
  ASSERT_EQ(status, 0);
  auto home = must(volume->open("objects/1", OpenMode::read_write, Caching::direct));
  if (home->caps().io == IoBackend::posix) GTEST_SKIP() << "no io_uring here";
  auto writing = home->make_queue(1);
  std::atomic<bool> over{false};
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    over = true;
    writing = nullptr;
    home = nullptr;
  });
  auto store = must(Store::open(*volume, with_threads()));
  EXPECT_TRUE(over);
  ending.join();
  EXPECT_EQ(content_of(*store, ObjectId{1})[0], std::byte{7});
  EXPECT_OK(store->close());
}

}  // namespace
}  // namespace memlith::test
