// docs/guarantees.md, "memlith_persist": plain stores to mapped memory, captured by each tracker, come back whole after
// a crash at any device operation; a one-file store's file is the user's, byte for byte, until a persist is
// acknowledged.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/host.hpp"
#include "region/region.hpp"
#include "region/snapshot.hpp"
#include "support/crash_world.hpp"

namespace memlith::test {
namespace {

using namespace core;

class RegionCrash : public ::testing::TestWithParam<TrackerKind> {
 protected:
  static void SetUpTestSuite() { seed_ = seed_for_this_run(); }
  static ExploreOptions sampled() {
    ExploreOptions options;
    options.exhaustive_items_max = 6;
    options.samples = scaled(32);
    options.recovery_every = 16;
    return options;
  }
  static std::uint64_t seed_;
};
std::uint64_t RegionCrash::seed_ = 0;

// Regions on a recording disk; persist() reports what the memory held at that moment.
class Memory {
 public:
  Memory(CrashWorld& world, TrackerKind tracker) : world_(world), tracker_(tracker) {}

  void open_store() {
    const bool fresh = !*world_.volume().exists(log_name());
    std::size_t commit = 0;
    if (fresh) commit = world_.started([](Content& content) { content.exists = true; });
    auto store = Store::open(world_.volume(), world_.options());
    ASSERT_TRUE(store.ok()) << last_error_text();
    store_ = std::move(*store);
    if (fresh) world_.acknowledged(commit);
  }
  void open(const std::string& name, std::uint64_t size) {
    RegionOptions options;
    options.create = store_->find(name) == std::nullopt;
    options.tracker = tracker_;
    options.size_bytes = size;
    options.reserve_bytes = 1 * kMiB;
    options.thread_scope = thread_scope;
    std::size_t commit = 0;
    const bool fresh = options.create;
    if (fresh) commit = world_.started([name, size](Content& c) { c.objects[name].resize(size); });
    auto region = Region::open(*store_, name, options);
    ASSERT_TRUE(region.ok()) << last_error_text();
    if (fresh) {
      world_.placed(commit, store_->log().head());
      world_.acknowledged(commit);
    }
    regions_[name] = std::move(*region);
  }
  // A plain store; the tracker finds out by itself, or is told.
  void store(const std::string& name, std::uint64_t offset, std::uint64_t bytes, std::uint8_t fill) {
    Region& region = *regions_.at(name);
    std::memset(region.address() + offset, fill, bytes);
    ASSERT_TRUE(region.touch(region.address() + offset, bytes).ok());
  }
  void grow(const std::string& name, std::uint64_t size) { ASSERT_TRUE(regions_.at(name)->grow(size).ok()); }

  void persist(const std::vector<std::string>& names) {
    std::vector<Region*> regions;
    std::map<std::string, std::vector<std::byte>> now;
    for (const std::string& name : names) {
      Region* const region = regions_.at(name).get();
      regions.push_back(region);
      now[name].assign(region->address(), region->address() + region->size());
    }
    const std::size_t commit = world_.started([now](Content& content) {
      for (const auto& [name, bytes] : now) content.objects[name] = bytes;
    });
    ASSERT_TRUE(Region::persist(regions).ok()) << last_error_text();
    world_.placed(commit, store_->log().head());
    world_.acknowledged(commit);
  }
  bool thread_scope = false;  // of regions that are opened from now on
  // The content of the regions named in the change, had the stores to `name` been persisted.
  struct Capture {
    std::size_t commit = 0;
    Lsn end;
  };
  using Patch = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint8_t>>;  // offset, bytes, fill
  // Captures, in that scope, what `patch` says was stored in it, and does not wait.
  Capture capture(const std::string& name, const Patch& patch, Scope scope = Scope::process) {
    return capture(std::vector{name}, patch, scope);
  }
  // The same of several regions that were stored to alike.
  Capture capture(const std::vector<std::string>& names, const Patch& patch, Scope scope) {
    const std::size_t commit = world_.started([names, patch](Content& content) {
      for (const std::string& name : names) {
        for (const auto& [offset, bytes, fill] : patch) {
          std::memset(content.objects[name].data() + offset, fill, bytes);
        }
      }
    });
    std::vector<Region*> regions;
    for (const std::string& name : names) regions.push_back(regions_.at(name).get());
    auto end = Region::capture(regions, scope, false);
    EXPECT_TRUE(end.ok()) << last_error_text();
    world_.placed(commit, *end);
    return {commit, *end};
  }
  void wait(const Capture& capture) {
    ASSERT_TRUE(store_->sync(capture.end).ok()) << last_error_text();
    world_.acknowledged(capture.commit);
  }
  void rollback(const std::string& name, Scope scope) {
    Region* const region = regions_.at(name).get();
    ASSERT_TRUE(Region::rollback({&region, 1}, scope).ok()) << last_error_text();
  }
  // A snapshot of regions whose memory was persisted to the last byte, and what they hold.
  struct Seen {
    std::unique_ptr<Snapshot> snapshot;
    std::vector<std::vector<std::byte>> wanted;
  };
  Seen snapshot(const std::vector<std::string>& names) {
    Seen seen;
    std::vector<Region*> regions;
    for (const std::string& name : names) {
      Region* const region = regions_.at(name).get();
      regions.push_back(region);
      seen.wanted.emplace_back(region->address(), region->address() + region->size());
    }
    auto made = Snapshot::make(regions);
    EXPECT_TRUE(made.ok()) << last_error_text();
    if (made.ok()) seen.snapshot = std::move(*made);
    check(seen);
    return seen;
  }
  static void check(const Seen& seen) {
    ASSERT_NE(seen.snapshot, nullptr);
    for (std::size_t i = 0; i < seen.wanted.size(); ++i) {
      ASSERT_EQ(seen.snapshot->size(i), seen.wanted[i].size());
      EXPECT_EQ(std::memcmp(seen.snapshot->address(i), seen.wanted[i].data(), seen.wanted[i].size()), 0) << i;
    }
  }
  void release(const std::string& name) { ASSERT_TRUE(regions_.at(name)->release_clean().ok()) << last_error_text(); }
  [[nodiscard]] std::uint8_t byte(const std::string& name, std::uint64_t offset) const {
    return static_cast<std::uint8_t>(regions_.at(name)->address()[offset]);
  }
  void close() {
    regions_.clear();
    ASSERT_TRUE(store_->close().ok()) << last_error_text();
    store_ = nullptr;
  }
  void abandon() {
    regions_.clear();
    store_ = nullptr;
  }
  void close_region(const std::string& name) { regions_.erase(name); }
  [[nodiscard]] Store& underlying() { return *store_; }

 private:
  [[nodiscard]] std::string log_name() const {
    return world_.options().kind == StoreKind::one_file ? world_.options().file_name + ".memlith" : "log";
  }

  CrashWorld& world_;
  TrackerKind tracker_;
  std::unique_ptr<Store> store_;
  std::map<std::string, std::unique_ptr<Region>> regions_;
};

StoreOptions options_for_pages() {
  StoreOptions options = small_store_options();
  options.slot_bytes = 16384;
  options.log_bytes = 4 * 16384;
  options.log_max_bytes = 16 * 16384;
  options.log.batch_bytes = 16384;
  options.log.stream_chunk_bytes = 8192;
  return options;
}

// Two regions, persisted alone and together, with a checkpoint, a reopened region, and a reopened store in between.
TEST_P(RegionCrash, StoresComeBackInWholePersists) {
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 8192);
  memory.open("b", 8192);
  memory.store("a", 100, 50, 1);
  memory.store("b", 4000, 200, 2);
  memory.persist({"a", "b"});
  memory.store("a", 4090, 20, 3);
  memory.store("b", 0, 1, 4);  // not persisted with a
  memory.persist({"a"});
  ASSERT_TRUE(memory.underlying().checkpoint().ok());
  memory.persist({"b"});
  memory.close_region("a");
  memory.open("a", 8192);  // its last bytes are home now, or in the log
  memory.store("a", 120, 5, 5);
  memory.persist({"a"});
  memory.abandon();
  memory.open_store();
  memory.open("a", 8192);
  memory.open("b", 8192);
  memory.store("a", 130, 5, 6);
  memory.store("b", 130, 5, 6);
  memory.persist({"a", "b"});
  memory.close();
  world.explore(sampled(), seed_);
}

// [crash/grow] Memory that grew is there with its bytes, or not at all.
TEST_P(RegionCrash, GrowthComesWithItsPersist) {
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 4096);
  memory.store("a", 0, 10, 1);
  memory.persist({"a"});
  memory.grow("a", 12288);
  memory.store("a", 4000, 5000, 2);
  memory.persist({"a"});
  memory.grow("a", 16384);  // with nothing stored
  memory.persist({"a"});
  memory.grow("a", 20480);  // never persisted
  memory.abandon();
  memory.open_store();
  memory.open("a", 0);
  memory.store("a", 16383, 1, 9);
  memory.persist({"a"});
  memory.close();
  world.explore(sampled(), seed_);
}

// A file that was there before, of a length that is no multiple of anything, adopted, changed, grown, closed, reopened.
TEST_P(RegionCrash, AnOrdinaryFileChangesOnlyByPersists) {
  std::vector<std::byte> bytes(5003);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  SimImage start;
  start.files["data"] = std::make_shared<const std::vector<std::byte>>(bytes);
  Content before;
  before.objects["file"] = bytes;
  StoreOptions options = options_for_pages();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  CrashWorld world(options, start, before);
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("file", 0);
  memory.store("file", 5000, 3, 1);
  memory.persist({"file"});
  memory.grow("file", 9001);
  memory.store("file", 4999, 4000, 2);
  memory.persist({"file"});
  memory.close();
  memory.open_store();
  memory.open("file", 0);
  memory.store("file", 1, 1, 3);
  memory.persist({"file"});
  memory.grow("file", 20000);
  memory.abandon();
  memory.open_store();
  memory.open("file", 0);
  memory.store("file", 9000, 1, 4);
  memory.persist({"file"});
  memory.close();
  world.explore(sampled(), seed_);
}

// Captures without a wait are a prefix: the second cannot come back without the first, nor a store after a capture with
// it; and waiting for the later one makes the earlier one durable, too.
TEST_P(RegionCrash, AsynchronousPersistsAreAPrefix) {
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 8192);
  memory.store("a", 0, 10, 1);
  const auto first = memory.capture("a", {{0, 10, 1}});
  memory.store("a", 5, 10, 2);
  const auto second = memory.capture("a", {{5, 10, 2}});
  memory.store("a", 4090, 20, 3);
  memory.wait(second);
  memory.wait(first);
  const auto third = memory.capture("a", {{4090, 20, 3}});
  memory.store("a", 8000, 5, 4);
  (void)third;
  ASSERT_TRUE(memory.underlying().checkpoint().ok());
  const auto fourth = memory.capture("a", {{8000, 5, 4}});
  memory.wait(fourth);
  memory.store("a", 8001, 1, 5);
  memory.capture("a", {{8001, 1, 5}});
  memory.close();  // makes that durable too
  world.explore(sampled(), seed_);
}

// [crash/snapshot] Snapshots between persists, checkpoints and growth change nothing of what a crash leaves; and each
// goes on showing the persist that it was made of, also when its store was left as a crash would.
TEST_P(RegionCrash, SnapshotsChangeNothing) {
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 8192);
  memory.open("b", 4096);
  const auto empty = memory.snapshot({"b", "a"});
  memory.store("a", 100, 50, 1);
  memory.store("b", 4000, 90, 2);
  memory.persist({"a", "b"});
  const auto first = memory.snapshot({"a", "b"});
  memory.store("a", 4090, 20, 3);
  memory.persist({"a"});
  ASSERT_TRUE(memory.underlying().checkpoint().ok());
  memory.check(first);
  memory.grow("a", 16384);
  memory.store("a", 9000, 700, 4);
  memory.persist({"a", "b"});
  const auto second = memory.snapshot({"a", "b", "a"});
  memory.store("a", 120, 9000, 5);
  memory.persist({"a"});
  memory.abandon();
  memory.open_store();
  memory.open("a", 0);
  memory.store("a", 130, 5, 6);
  memory.persist({"a"});
  const auto third = memory.snapshot({"a"});
  memory.close();
  memory.check(empty);
  memory.check(first);
  memory.check(second);
  memory.check(third);
  world.explore(sampled(), seed_);
}

// A change that was rolled back is never there, and later persists stand on what was persisted before it.
TEST_P(RegionCrash, RollbackLeavesNothing) {
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 8192);
  memory.store("a", 0, 10, 1);
  memory.persist({"a"});
  memory.store("a", 4, 10, 2);
  memory.store("a", 5000, 100, 3);
  memory.rollback("a", Scope::process);
  ASSERT_EQ(memory.byte("a", 3), 1);
  ASSERT_EQ(memory.byte("a", 5), 1);
  ASSERT_EQ(memory.byte("a", 11), 0);
  ASSERT_EQ(memory.byte("a", 5050), 0);
  memory.store("a", 6, 1, 4);
  memory.persist({"a"});
  memory.store("a", 6000, 10, 5);
  const auto in_flight = memory.capture("a", {{6000, 10, 5}});
  memory.store("a", 6005, 10, 6);
  memory.rollback("a", Scope::process);  // to what was captured, durable or not
  ASSERT_EQ(memory.byte("a", 6009), 5);
  ASSERT_EQ(memory.byte("a", 6012), 0);
  memory.wait(in_flight);
  memory.release("a");
  ASSERT_EQ(memory.byte("a", 6009), 5);
  ASSERT_EQ(memory.byte("a", 6), 4);
  memory.store("a", 7, 1, 7);
  memory.persist({"a"});
  memory.close();
  world.explore(sampled(), seed_);
}

// [invariant 5] Two threads store to pages of their own and persist in turns: a persist holds its thread's stores and
// none of the other's.
TEST_P(RegionCrash, APersistHoldsItsThreadsStores) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  if (GetParam() == TrackerKind::fault && host_page_bytes() != kPageBytes) {
    GTEST_SKIP() << "the threads' pages share one of the kernel's, which tells no threads apart";
  }
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", 16384);
  const auto other = [](auto work) { std::thread(work).join(); };
  memory.store("a", 100, 10, 1);
  Memory::Capture theirs;
  other([&] {
    memory.store("a", 4096 + 100, 10, 2);
    theirs = memory.capture("a", {{4096 + 100, 10, 2}}, Scope::thread);
    memory.store("a", 8192, 10, 3);  // by a thread that ends without persisting it
  });
  memory.wait(theirs);
  const auto mine = memory.capture("a", {{100, 10, 1}}, Scope::thread);
  memory.wait(mine);
  memory.store("a", 101, 1, 4);
  other([&] {
    memory.store("a", 4096, 10, 5);
    memory.rollback("a", Scope::thread);
    memory.store("a", 4096 + 50, 10, 6);
    memory.wait(memory.capture("a", {{4096 + 50, 10, 6}}, Scope::thread));
  });
  memory.wait(memory.capture("a", {{101, 1, 4}}, Scope::thread));
  memory.wait(memory.capture("a", {{8192, 10, 3}}, Scope::process));
  memory.close();
  world.explore(sampled(), seed_);
}

// The isolation test of MemSnap on the simulated disk: threads increment counters under page locks and persist their
// own, and the power goes at every operation. Any prefix of the transactions in the order of the log may come back,
// whole.
TEST_P(RegionCrash, TransactionsOfThreadsComeBackWhole) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  if (GetParam() == TrackerKind::fault && host_page_bytes() != kPageBytes) {
    GTEST_SKIP() << "the threads' pages share one of the kernel's, which tells no threads apart";
  }
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kPages = 4;
  CrashWorld world(options_for_pages());
  Memory memory(world, GetParam());
  memory.open_store();
  memory.open("a", kPages * 4096);
  std::array<std::mutex, kPages> locks;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(seed_ + t);
      for (int i = 0; i < 4; ++i) {
        std::uint64_t first = random.below(kPages);
        std::uint64_t second = random.below(kPages);
        if (first > second) std::swap(first, second);
        const std::lock_guard low(locks[first]);
        std::unique_lock high(locks[second], std::defer_lock);
        if (second != first) high.lock();
        Memory::Patch patch;
        for (const std::uint64_t page : {first, second}) {
          const std::uint64_t offset = page * 4096 + 16 * t;
          const auto value = static_cast<std::uint8_t>(memory.byte("a", offset) + 1);
          memory.store("a", offset, 1, value);
          patch.emplace_back(offset, 1, value);
        }
        memory.wait(memory.capture("a", patch, Scope::thread));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.close();
  world.explore(sampled(), seed_);
}

// Threads with pages of their own, side by side, that persist what each of them stored to two regions: in whatever
// order they come, each of these commits comes back whole or not at all, and none that was acknowledged is missing.
TEST_P(RegionCrash, ThreadsPersistTheirOwnPagesOfAllRegions) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  if (GetParam() == TrackerKind::fault && host_page_bytes() != kPageBytes) {
    GTEST_SKIP() << "the threads' pages share one of the kernel's, which tells no threads apart";
  }
  constexpr std::uint64_t kThreads = 4;
  CrashWorld world(options_for_pages());
  // Automatic, because the regions say that threads persist their own stores.
  Memory memory(world, GetParam() == TrackerKind::fault ? TrackerKind::automatic : GetParam());
  memory.thread_scope = true;
  memory.open_store();
  const std::vector<std::string> names{"a", "b"};
  for (const std::string& name : names) memory.open(name, kThreads * kPageBytes);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint8_t i = 1; i <= 3; ++i) {
        const Memory::Patch patch{{t * kPageBytes + 40 * i, 30, i},
                                  {t * kPageBytes, 8, static_cast<std::uint8_t>(16 + i)}};
        for (const std::string& name : names) {
          for (const auto& [offset, bytes, fill] : patch) memory.store(name, offset, bytes, fill);
        }
        memory.wait(memory.capture(names, patch, Scope::thread));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.close();
  world.explore(sampled(), seed_);
}

std::string tracker_name(const ::testing::TestParamInfo<TrackerKind>& test) {
  switch (test.param) {
    case TrackerKind::touched: return "explicit";
    case TrackerKind::fault: return "fault";
    case TrackerKind::instrumented: return "instrumented";
    default: return "scan";
  }
}
INSTANTIATE_TEST_SUITE_P(EveryTracker, RegionCrash,
                         ::testing::Values(TrackerKind::scan, TrackerKind::touched, TrackerKind::fault,
                                           TrackerKind::instrumented),
                         tracker_name);

}  // namespace
}  // namespace memlith::test
