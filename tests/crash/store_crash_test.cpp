// docs/guarantees.md, "After a crash": whatever a crash leaves of the unflushed writes, a store comes back in the state
// of exactly one commit, in all objects together, at or after the last acknowledged one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/crash_world.hpp"

namespace memlith::test {
namespace {

using namespace core;

// A store on a recording disk, with every commit reported to the world. The words of the workloads below.
class Workload {
 public:
  explicit Workload(CrashWorld& world) : world_(world) {}

  void open() {
    const bool fresh = !world_.volume().exists("log").ok() || !*world_.volume().exists("log");
    std::size_t commit = 0;
    if (fresh) commit = world_.started([](Content& content) { content.exists = true; });
    auto store = Store::open(world_.volume(), world_.options());
    ASSERT_TRUE(store.ok()) << last_error_text();
    store_ = std::move(*store);
    if (fresh) world_.acknowledged(commit);
    order_ = Lsn{0};
  }
  void close() {
    ASSERT_TRUE(store_->close().ok()) << last_error_text();
    store_ = nullptr;
  }
  // Walks away, as kill -9 would.
  void abandon() { store_ = nullptr; }

  void create(const std::string& name, std::uint64_t size) {
    const std::size_t commit = world_.started([name, size](Content& c) { c.objects[name].resize(size); });
    ASSERT_TRUE(store_->create(name, size, 0x550000000000, 1 * kMiB).ok()) << last_error_text();
    world_.placed(commit, next_place());
    world_.acknowledged(commit);
  }
  void remove(const std::string& name) {
    const std::size_t commit = world_.started([name](Content& c) { c.objects.erase(name); });
    ASSERT_TRUE(store_->remove(store_->find(name)->id).ok()) << last_error_text();
    world_.placed(commit, next_place());
    world_.acknowledged(commit);
  }

  struct Write {
    std::string object;
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  // One commit of `writes`, filled with bytes that no other commit has; with `grow`, the first object grows to that
  // size.
  void commit(const std::vector<Write>& writes, std::uint8_t fill, std::uint64_t grow = 0) {
    std::vector<Extent> extents;
    std::vector<SizeChange> sizes;
    for (const Write& write : writes) extents.push_back({store_->find(write.object)->id, write.offset, write.bytes});
    if (grow > 0) {
      ASSERT_TRUE(store_->reserve_home(extents.front().object, grow).ok());
      sizes.push_back({extents.front().object, grow});
    }
    const std::size_t number = world_.started([writes, fill, grow](Content& content) {
      if (grow > 0) content.objects[writes.front().object].resize(grow);
      for (const Write& write : writes) {
        std::memset(content.objects[write.object].data() + write.offset, fill, write.bytes);
      }
    });
    auto writer = store_->begin_commit(extents, sizes);
    ASSERT_TRUE(writer.ok()) << last_error_text();
    for (const Write& write : writes) {
      const std::vector<std::byte> bytes(write.bytes, std::byte{fill});
      writer->put(bytes.data(), bytes.size());
    }
    auto end = writer->finish();
    ASSERT_TRUE(end.ok()) << last_error_text();
    world_.placed(number, *end);
    order_ = *end;
    store_->wake_checkpointer(*end);
    ASSERT_TRUE(store_->sync(*end).ok()) << last_error_text();
    world_.acknowledged(number);
  }
  void checkpoint() { ASSERT_TRUE(store_->checkpoint().ok()) << last_error_text(); }
  [[nodiscard]] Store& store() { return *store_; }

 private:
  Lsn next_place() { return order_ = std::max(order_, store_->log().head()); }

  CrashWorld& world_;
  std::unique_ptr<Store> store_;
  Lsn order_;
};

class StoreCrash : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { seed_ = seed_for_this_run(); }
  static ExploreOptions every_subset() {
    ExploreOptions options;
    options.exhaustive_items_max = scaled(100) > 50 ? 13 : 8;
    options.samples = scaled(64);
    options.recovery_every = 4;
    return options;
  }
  static ExploreOptions sampled(std::size_t samples) {
    ExploreOptions options;
    options.exhaustive_items_max = 5;
    options.samples = scaled(samples);
    options.recovery_every = 16;
    return options;
  }
  static std::uint64_t seed_;
};
std::uint64_t StoreCrash::seed_ = 0;

// Three commits to two objects: every subset of unflushed sectors, every operation, and every operation of recovery.
TEST_F(StoreCrash, ThreeCommitsTwoObjectsEverySubset) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 4096);
  work.create("b", 4096);
  work.commit({{"a", 0, 200}, {"b", 100, 50}}, 1);
  work.commit({{"a", 100, 900}, {"b", 3000, 600}}, 2);
  work.commit({{"a", 4000, 96}, {"b", 0, 40}}, 3);
  world.explore(every_subset(), seed_);
}

// [crash/checkpoint] [crash/trim]: a checkpoint in the middle moves bytes home and gives frames up, and nothing is lost
// or seen early.
TEST_F(StoreCrash, CommitsAroundACheckpointEverySubset) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 4096);
  work.create("b", 4096);
  work.checkpoint();
  work.commit({{"a", 0, 700}, {"b", 500, 1200}}, 1);
  work.commit({{"a", 300, 600}, {"b", 0, 100}}, 2);
  work.checkpoint();
  work.commit({{"a", 0, 64}, {"b", 1000, 64}}, 3);
  work.checkpoint();
  world.explore(every_subset(), seed_);
}

// Clean close and reopening, abandoned opens, and commits after each.
TEST_F(StoreCrash, ClosingAndReopening) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 4096);
  work.commit({{"a", 0, 600}}, 1);
  work.close();
  work.open();
  work.commit({{"a", 100, 600}}, 2);
  work.abandon();
  work.open();
  work.commit({{"a", 200, 600}}, 3);
  work.close();
  world.explore(every_subset(), seed_);
}

// The log goes round many times, through slots that hold older laps.
TEST_F(StoreCrash, TheLogWrapsAround) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 8192);
  work.create("b", 4096);
  Random random(seed_);
  for (std::uint8_t i = 1; i <= 60; ++i) {
    const std::uint64_t offset = random.below(6000);
    work.commit({{"a", offset, 1 + random.below(2000)}, {"b", random.below(3000), 1 + random.below(1000)}}, i);
    if (random.one_in(9)) work.checkpoint();
  }
  world.explore(sampled(24), seed_);
}

// Frames larger than a batch are streamed over several slots, and make the log grow. [crash/log_growth]
TEST_F(StoreCrash, LargeCommitsStreamAndGrowTheLog) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 40960);
  work.commit({{"a", 0, 5000}}, 1);
  work.commit({{"a", 1000, 30000}}, 2);
  work.commit({{"a", 100, 300}}, 3);
  work.commit({{"a", 0, 9000}, {"a", 20000, 9000}}, 4);
  work.checkpoint();
  work.commit({{"a", 7, 12345}}, 5);
  world.explore(sampled(400), seed_);
}

// [crash/create] [crash/remove]: objects come and go whole; homes without an entry are cleared away, and none is
// missed.
TEST_F(StoreCrash, ObjectsComeAndGo) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 4096);
  work.commit({{"a", 0, 400}}, 1);
  work.create("b", 8192);
  work.commit({{"b", 4000, 500}, {"a", 9, 9}}, 2);
  work.remove("a");
  work.commit({{"b", 0, 500}}, 3);
  work.create("a", 4096);
  work.commit({{"a", 1000, 100}}, 4);
  work.remove("b");
  work.close();
  work.open();
  work.commit({{"a", 0, 100}}, 5);
  world.explore(every_subset(), seed_);
}

// [crash/grow]: a new size and the bytes in the new part appear together.
TEST_F(StoreCrash, ObjectsGrowWithTheirBytes) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  work.create("a", 4096);
  work.commit({{"a", 0, 400}}, 1);
  work.commit({{"a", 4000, 4000}}, 2, 8192);
  work.checkpoint();
  work.commit({{"a", 12000, 200}, {"a", 0, 20}}, 3, 12288);
  work.commit({{"a", 1, 20}}, 4);
  world.explore(every_subset(), seed_);
}

// The directory outgrows its file.
TEST_F(StoreCrash, TheDirectoryGrows) {
  CrashWorld world(small_store_options());
  Workload work(world);
  work.open();
  for (int i = 0; i < 66; ++i) work.create("object " + std::to_string(i), 4096);
  work.commit({{"object 65", 0, 100}}, 1);
  ExploreOptions options = sampled(4);
  options.recovery_every = 64;
  world.explore(options, seed_);
}

// Several threads commit side by side, two batches in flight: what comes back is a prefix of the order of the log.
TEST_F(StoreCrash, GroupCommitLeavesAPrefixOfTheLog) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    StoreOptions options = small_store_options();
    options.log_bytes = 64 * 4096;
    options.log_max_bytes = 64 * 4096;
    options.log.in_flight_max = 2 + round % 2;
    options.log.pipeline_bytes_min = 0;
    CrashWorld world(options);
    world.volume().before_transfer = [] {
      thread_local Random random(random_identity());
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(200)));
    };
    Workload work(world);
    work.open();
    constexpr std::size_t kThreads = 3;
    for (std::size_t i = 0; i < kThreads; ++i) work.create("t" + std::to_string(i), 4096);
    Store& store = work.store();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&world, &store, i] {
        const std::string name = "t" + std::to_string(i);
        const ObjectId id = store.find(name)->id;
        for (std::uint8_t n = 1; n <= 8; ++n) {
          const Extent extent{id, n * 100u, 300};
          const std::size_t number = world.started([name, extent, n](Content& content) {
            std::memset(content.objects[name].data() + extent.offset, n, extent.bytes);
          });
          auto writer = store.begin_commit({&extent, 1}, {});
          ASSERT_TRUE(writer.ok());
          const std::vector<std::byte> bytes(extent.bytes, std::byte{n});
          writer->put(bytes.data(), bytes.size());
          const auto end = writer->finish();
          ASSERT_TRUE(end.ok());
          world.placed(number, *end);
          ASSERT_TRUE(store.sync(*end).ok());
          world.acknowledged(number);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ExploreOptions explore = sampled(16);
    explore.exhaustive_items_max = 8;
    world.explore(explore, seed_ + round);
  }
}

// A log that commits fill grows once checkpoints have written home as much as that costs. [crash/log_growth]
TEST_F(StoreCrash, ABusyLogGrows) {
  StoreOptions options = small_store_options();
  options.manual_checkpoint = false;
  options.log_busy_bytes = options.log_max_bytes;
  CrashWorld world(options);
  Workload work(world);
  work.open();
  work.create("a", 8192);
  Random random(seed_);
  for (std::uint8_t i = 1; i <= 60; ++i) work.commit({{"a", random.below(5000), 1 + random.below(3000)}}, i);
  EXPECT_GT(work.store().log().capacity_bytes(), options.log_bytes);
  work.close();
  world.explore(sampled(16), seed_);
}

// The thread that checkpoints in the background, against committers that fill a tiny log.
TEST_F(StoreCrash, BackgroundCheckpointsUnderPressure) {
  StoreOptions options = small_store_options();
  options.manual_checkpoint = false;
  CrashWorld world(options);
  Workload work(world);
  work.open();
  work.create("a", 8192);
  Random random(seed_);
  for (std::uint8_t i = 1; i <= 40; ++i) work.commit({{"a", random.below(5000), 1 + random.below(3000)}}, i);
  work.close();
  world.explore(sampled(16), seed_);
}

// Long random histories over everything above, by seed.
TEST_F(StoreCrash, RandomHistories) {
  for (std::uint64_t round = 0; round < scaled(80); ++round) {
    Random random(seed_ + 1000 + round);
    StoreOptions options = small_store_options();
    options.log.in_flight_max = 1 + static_cast<std::uint32_t>(random.below(3));
    CrashWorld world(options);
    Workload work(world);
    work.open();
    std::map<std::string, std::uint64_t> sizes;
    std::uint8_t fill = 0;
    for (int step = 0; step < 30; ++step) {
      const std::string name = "o" + std::to_string(random.below(3));
      const auto object = sizes.find(name);
      if (object == sizes.end()) {
        sizes[name] = 4096 * (1 + random.below(3));
        work.create(name, sizes[name]);
        continue;
      }
      const std::uint64_t offset = random.below(object->second);
      const std::uint64_t bytes = 1 + random.below(std::min<std::uint64_t>(object->second - offset, 5000));
      switch (random.below(12)) {
        case 0: work.checkpoint(); break;
        case 1: work.close(), work.open(); break;
        case 2: work.abandon(), work.open(); break;
        case 3:
          work.remove(name);
          sizes.erase(name);
          break;
        case 4:
          object->second += 4096;
          work.commit({{name, object->second - 4096, 700}}, ++fill, object->second);
          break;
        default: work.commit({{name, offset, bytes}}, ++fill); break;
      }
    }
    world.explore(sampled(20), seed_ + round);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace memlith::test
