// memlith.h, MEMLITH_OPEN_FOLLOW: readers in other processes beside a writer, in C and C++.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::follow_test {
namespace {

constexpr std::uint64_t kSize = 64 * 4096;

std::uint64_t* words(const Region& region) { return static_cast<std::uint64_t*>(region.address()); }

StoreOptions follow() {
  StoreOptions options;
  options.follow = true;
  return options;
}

Result<Store> open_at(const std::string& path, bool one_file, const StoreOptions& options) {
  return one_file ? Store::open_file(path, options) : Store::open(path, options);
}

StoreOptions writing() {
  StoreOptions options;
  options.create = true;
  options.log_bytes = 256 * 1024;  // wraps soon, and checkpoints are many
  options.log_max_bytes = 512 * 1024;
  return options;
}

Result<Region> region_of(const Store& store, const std::string& name, std::uint64_t size) {
  RegionOptions options;
  options.create = size > 0;
  options.size = size;
  options.max_size = 4 * kSize;
  options.tracker = Tracker::touched;
  return store.region(name, options);
}

std::int32_t category(const Error& error) { return memlith_category(error.code()); }

class Followers : public ::testing::TestWithParam<bool> {
 protected:
  TempFolder folder_;
  const bool one_file_ = GetParam();
  const std::string path_ = folder_ / "store";
  const std::string first_ = one_file_ ? "file" : "a";
};
INSTANTIATE_TEST_SUITE_P(Of, Followers, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "File" : "Folder"; });

// Commits acknowledged before the refresh are shown after it, and nothing moves in between.
TEST_P(Followers, SeeWhatWasPersistedAndMoveOnWhenTheyAreTold) {
  SecondProcess reader([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "no word";
    auto store = open_at(path_, one_file_, follow());
    if (!store.ok()) return store.error().message();
    auto a = region_of(*store, first_, 0);
    if (!a.ok()) return a.error().message();
    const auto is = [&](std::uint64_t value) {
      return words(*a)[0] == value && words(*a)[kSize / 8 - 1] == value && a->size() == kSize;
    };
    if (!is(1)) return "not as persisted at first: " + std::to_string(words(*a)[0]);
    const memlith_store_info info = store->info();
    if (info.follows != 1 || info.read_only != 1 || info.writer != static_cast<std::uint32_t>(::getppid()) ||
        info.view_bytes != kSize) {
      return "info is wrong";
    }
    for (std::uint64_t value = 2; value <= 4; ++value) {
      test.tell();
      if (!test.wait()) return "no word";
      if (!is(value - 1)) return "the view moved by itself";
      const auto lsn = store->refresh();
      if (!lsn.ok()) return lsn.error().message();
      if (!is(value)) return "not as persisted: " + std::to_string(words(*a)[0]);
      if (*lsn != store->info().durable_lsn || *lsn != memlith_store_durable(store->handle())) return "another LSN";
    }
    // The writer has grown the region, closed the store, and opened it again.
    test.tell();
    if (!test.wait()) return "no word";
    if (const auto lsn = store->refresh(); !lsn.ok()) return lsn.error().message();
    if (a->size() != 2 * kSize || words(*a)[2 * kSize / 8 - 1] != 5 || words(*a)[0] != 4) return "not as it has grown";
    if (const auto closed = store->close(); !closed.ok()) return closed.error().message();
    return {};
  });
  auto store = open_at(path_, one_file_, writing());
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto a = region_of(*store, first_, kSize);
  ASSERT_TRUE(a.ok()) << a.error().message();
  for (std::uint64_t value = 1; value <= 4; ++value) {
    for (std::uint64_t at : {std::uint64_t{0}, kSize / 8 - 1}) {
      words(*a)[at] = value;
      ASSERT_TRUE(a->touch(words(*a) + at, 8).ok());
    }
    ASSERT_TRUE(a->persist().ok());
    words(*a)[0] = 77;  // not persisted
    if (value == 3) {
      ASSERT_TRUE(store->checkpoint().ok());
    }
    ASSERT_TRUE(reader.step());
    words(*a)[0] = value;
  }
  ASSERT_TRUE(a->grow(2 * kSize).ok());
  words(*a)[2 * kSize / 8 - 1] = 5;
  ASSERT_TRUE(a->touch(words(*a) + 2 * kSize / 8 - 1, 8).ok());
  ASSERT_TRUE(a->persist().ok());
  ASSERT_TRUE(store->close().ok());
  auto again = open_at(path_, one_file_, writing());
  ASSERT_TRUE(again.ok()) << "a reader kept the writer out: " << again.error().message();
  EXPECT_TRUE(reader.finish());
}

// The writer opens its heap with a larger limit, for which the heap moves its segment table: a reader finds the new
// table.
TEST_P(Followers, SeeAHeapWhoseSegmentTableHasMoved) {
  RegionOptions options;
  options.create = true;
  options.max_size = 8 << 20;
  const auto open_heap = [&](const Store& store) { return Heap::open(store, first_, options); };
  {
    auto store = open_at(path_, one_file_, writing());
    ASSERT_TRUE(store.ok()) << store.error().message();
    auto heap = open_heap(*store);
    ASSERT_TRUE(heap.ok()) << heap.error().message();
    ASSERT_TRUE(heap->persist().ok());
  }
  SecondProcess reader([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "no word";
    auto store = open_at(path_, one_file_, follow());
    if (!store.ok()) return store.error().message();
    options.create = false;
    auto heap = open_heap(*store);
    if (!heap.ok()) return heap.error().message();
    if (const auto report = heap->verify(); !report.ok() || report->blocks != 0) return "not as it was made";
    test.tell();
    if (!test.wait()) return "no word";
    if (const auto lsn = store->refresh(); !lsn.ok()) return lsn.error().message();
    const auto report = heap->verify();
    if (!report.ok()) return report.error().message();
    return report->blocks == 1 ? "" : "the block is missing";
  });
  ASSERT_TRUE(reader.step());
  auto store = open_at(path_, one_file_, writing());
  ASSERT_TRUE(store.ok()) << store.error().message();
  options.max_size = std::uint64_t{1} << 30;
  auto heap = open_heap(*store);
  ASSERT_TRUE(heap.ok()) << heap.error().message();
  void* block = nullptr;
  ASSERT_EQ(memlith_heap_allocate(heap->handle(), 2'000'000, 16, &block), MEMLITH_OK);
  ASSERT_TRUE(heap->persist().ok());
  EXPECT_TRUE(reader.finish());
}

// The regions hold one number all over. The writer raises it, as fast as it can, until it is killed; readers must see
// one number, which never falls. Then a reader is killed, and leaves nothing behind.
[[noreturn]] void raise_for_ever(const std::string& path, bool one_file) {
  auto store = open_at(path, one_file, writing());
  if (!store.ok()) ::_exit(3);
  auto a = region_of(*store, one_file ? "file" : "a", kSize);
  if (!a.ok()) ::_exit(4);
  std::optional<Region> b;
  if (!one_file) {
    auto second = region_of(*store, "b", kSize);
    if (!second.ok()) ::_exit(4);
    b = std::move(*second);
  }
  for (std::uint64_t number = words(*a)[0] + 1;; ++number) {
    for (const Region* region : {&*a, b.has_value() ? &*b : nullptr}) {
      if (region == nullptr) continue;
      for (std::uint64_t at = 0; at < kSize / 8; at += 512) {
        words(*region)[at] = number;
        (void)region->touch(words(*region) + at, 8);
      }
    }
    const auto done = one_file ? a->persist() : Store::persist({&*a, &*b});
    if (!done.ok()) ::_exit(5);
  }
}

std::string one_number(const Region& region, std::uint64_t& number) {
  number = words(region)[0];
  for (std::uint64_t at = 0; at < kSize / 8; at += 512) {
    if (words(region)[at] != number) {
      return "a view of " + std::to_string(number) + " and " + std::to_string(words(region)[at]);
    }
  }
  return {};
}

[[noreturn]] void read_for_ever(const std::string& path, bool one_file) {
  const auto end = [](const std::string& why) {
    std::fprintf(stderr, "reader: %s\n", why.c_str());
    ::_exit(1);
  };
  std::uint64_t newest = 0;
  for (;;) {
    auto store = open_at(path, one_file, follow());
    if (!store.ok()) end(store.error().message());
    auto a = region_of(*store, one_file ? "file" : "a", 0);
    if (!a.ok()) end(a.error().message());
    std::optional<Region> b;
    if (!one_file) {
      auto second = region_of(*store, "b", 0);
      if (!second.ok()) end(second.error().message());
      b = std::move(*second);
    }
    for (int i = 0; i < 20; ++i) {
      std::uint64_t number = 0;
      std::uint64_t other = 0;
      if (const std::string wrong = one_number(*a, number); !wrong.empty()) end(wrong);
      if (!one_file) {
        if (const std::string wrong = one_number(*b, other); !wrong.empty()) end(wrong);
        if (other != number) end("two regions of two commits");
      }
      if (number < newest) end("the view went back");
      newest = number;
      if (const auto moved = store->refresh(); !moved.ok() && category(moved.error()) != MEMLITH_BUSY) {
        end(moved.error().message());
      }
    }
    if (!store->close().ok()) end("close");
  }
}

TEST_P(Followers, SeeOneCommitBesideAWriterThatIsKilledAndStartedAgain) {
  const auto start = [&](KilledProcess& process, auto body) { process.start([&] { body(path_, one_file_); }); };
  {
    auto store = open_at(path_, one_file_, writing());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(region_of(*store, first_, kSize).ok());
    if (!one_file_) {
      ASSERT_TRUE(region_of(*store, "b", kSize).ok());
    }
  }
  std::mt19937_64 random(std::random_device{}());
  KilledProcess readers[2];
  for (KilledProcess& reader : readers) start(reader, read_for_ever);
  for (int life = 0; life < 12; ++life) {
    KilledProcess writer;
    start(writer, raise_for_ever);
    writer.kill_working(20'000 + random() % 60'000);
    if (life % 3 == 2) {
      readers[life / 3 % 2].kill_working();
      start(readers[life / 3 % 2], read_for_ever);
    }
  }
  for (KilledProcess& reader : readers) reader.kill_working();
  // Readers have left nothing, and keep no writer out.
  auto store = open_at(path_, one_file_, writing());
  ASSERT_TRUE(store.ok()) << store.error().message();
  ASSERT_TRUE(store->close().ok());
}

// A kv store is read in place; after a refresh it shows the new records.
TEST(FollowersOf, AKvStore) {
  const TempFolder folder;
  const std::string path = folder / "store";
  SecondProcess reader([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "no word";
    auto store = Store::open(path, follow());
    if (!store.ok()) return store.error().message();
    auto kv = Kv::open(*store, "records", {});
    if (!kv.ok()) return kv.error().message();
    auto map = kv->map("m");
    if (!map.ok()) return map.error().message();
    for (int round = 0; round < 6; ++round) {
      {
        auto txn = kv->begin({.read_only = true});
        if (!txn.ok()) return txn.error().message();
        for (int i = 0; i <= 500 * round; i += 100) {
          const auto got = txn->get(*map, "key" + std::to_string(i));
          if (!got.ok()) return "record " + std::to_string(i) + ": " + got.error().message();
        }
        const auto beyond = txn->get(*map, "key" + std::to_string(500 * round + 1));
        if (beyond.ok() || category(beyond.error()) != MEMLITH_NOT_FOUND) return "a record too many";
        const auto refused = store->refresh();
        if (refused.ok() || category(refused.error()) != MEMLITH_BUSY) return "moved under a transaction";
      }
      const auto verified = kv->verify();
      if (!verified.ok()) return verified.error().message();
      test.tell();
      if (!test.wait()) return "no word";
      if (const auto moved = store->refresh(); !moved.ok()) return moved.error().message();
    }
    return {};
  });
  StoreOptions options;
  options.create = true;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store.ok());
  auto kv = Kv::open(*store, "records", {.create = true});
  ASSERT_TRUE(kv.ok()) << kv.error().message();
  auto map = kv->map("m", {.create = true});
  ASSERT_TRUE(map.ok());
  int next = 0;
  for (int round = 0; round <= 6; ++round) {
    auto txn = kv->begin();
    ASSERT_TRUE(txn.ok());
    for (; next <= 500 * round; ++next) {
      ASSERT_TRUE(txn->put(*map, "key" + std::to_string(next), std::string(100, 'v')).ok());
    }
    ASSERT_TRUE(txn->commit(Durability::sync).ok());
    if (round < 6) {
      ASSERT_TRUE(reader.step());
    }
  }
  EXPECT_TRUE(reader.finish());
}

// Calls that the interface refuses.
TEST(FollowersOf, TheErrors) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const auto missing = Store::open(path, follow());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(category(missing.error()), MEMLITH_NOT_FOUND);
  auto writer = Store::open(path, writing());
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(region_of(*writer, "a", kSize).ok());
  EXPECT_EQ(category(writer->refresh().error()), MEMLITH_INVALID);
  ASSERT_TRUE(writer->close().ok());
  EXPECT_IN_CHILD(([&]() -> std::string {
    StoreOptions small = follow();
    small.memory_max_bytes = kSize / 2;
    auto store = Store::open(path, small);
    if (!store.ok()) return store.error().message();
    const auto region = region_of(*store, "a", 0);
    if (region.ok() || category(region.error()) != MEMLITH_NO_MEMORY) return "a view beyond its limit";
    StoreOptions both = follow();
    both.create = true;
    if (Store::open(path, both).ok()) return "created by a reader";
    auto large = Store::open(path, follow());
    if (!large.ok()) return large.error().message();
    auto a = region_of(*large, "a", 0);
    if (!a.ok()) return a.error().message();
    if (a->persist().ok() || a->grow(2 * kSize).ok()) return "a reader changed the store";
    memlith_region* const handle = a->handle();
    memlith_snapshot* snapshot = nullptr;
    if (memlith_category(memlith_region_snapshot(&handle, 1, &snapshot)) != MEMLITH_UNSUPPORTED) return "a snapshot";
    // Another store takes its place.
    if (std::system(("rm -r " + path).c_str()) != 0) return "rm";
    const auto gone = large->refresh();
    if (gone.ok() || category(gone.error()) != MEMLITH_NOT_FOUND) return "a store that is gone was refreshed";
    if (words(*a)[0] != 0) return "the view is gone";
    return {};
  }));
}

}  // namespace
}  // namespace memlith::test::follow_test
