// memlith/copy.hpp: what check_region and check_data say of bytes that are not as they were written; and
// memlith/archive.hpp: a log that waits for an archiver. And of both: in a copy, a restored store and a promoted
// standby each kind of structure opens by its own face, holds what it held, and goes on. docs/backup.md.
#include "memlith/archive.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memlith/copy.hpp"
#include "memlith/memlith.hpp"
#include "memlith/shared.hpp"
#include "support/mixed_store.hpp"
#include "support/numbered_pages.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::archive_test {
namespace {

TEST(CheckedData, NamesTheRegionAndTheBytes) {
  const TempFolder folder;
  const std::string path = folder / "store";
  MixedContent now;
  std::mt19937_64 random(1);
  {
    auto opened = MixedStore::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    for (int i = 0; i < 40; ++i) commit_something(*opened, now, random);
    opened->close();
  }
  auto sound = check_data(path);
  ASSERT_TRUE(sound.ok()) << sound.error().message();
  EXPECT_GT(sound->blocks, 0u);
  EXPECT_EQ(sound->blocks_unknown, 0u);
  EXPECT_TRUE(sound->damaged.empty());
  const std::string home = path + "/objects/2";
  std::string bytes = read_file(home);
  const std::uint64_t at = bytes.size() / 4096 / 2 * 4096 + 77;
  bytes[at] = static_cast<char>(bytes[at] ^ 16);
  {
    std::ofstream file(home, std::ios::binary | std::ios::in);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const auto rotten = check_data(path);
  ASSERT_TRUE(rotten.ok()) << rotten.error().message();
  EXPECT_EQ(rotten->blocks_damaged, 1u);
  ASSERT_EQ(rotten->damaged.size(), 1u);
  const std::string sentence = "region \"heap\": 4096 bytes from offset " + std::to_string(at - 77) + " on";
  EXPECT_EQ(rotten->damaged.front(), sentence);
  const auto copied = copy_store(path, folder / "copy");
  ASSERT_FALSE(copied.ok());
  EXPECT_EQ(memlith_category(copied.error().code()), MEMLITH_CORRUPT);
  EXPECT_TRUE(copy_store(path, folder / "copy", {}, MEMLITH_COPY_DAMAGED).ok());

  // The same for one region, before it is opened.
  StoreOptions options;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  const auto in_heap = check_region(*store, "heap");
  ASSERT_TRUE(in_heap.ok()) << in_heap.error().message();
  EXPECT_EQ(in_heap->blocks_damaged, 1u);
  EXPECT_EQ(in_heap->damaged, std::vector<std::string>{sentence});
  const auto in_kv = check_region(*store, "kv");
  ASSERT_TRUE(in_kv.ok()) << in_kv.error().message();
  EXPECT_EQ(in_kv->blocks_damaged, 0u);
  EXPECT_TRUE(in_kv->damaged.empty());
  EXPECT_EQ(check_region(*store, "none").error().category(), MEMLITH_NOT_FOUND);
}

TEST(CheckedData, TellsItsProgressAndCompletesChecksums) {
  const TempFolder folder;
  const std::string path = folder / "store";
  {
    auto store = Store::open(path, {.create = true});
    ASSERT_TRUE(store.ok()) << store.error().message();
    auto region = store->region("a", {.create = true, .size = 1 << 20});
    ASSERT_TRUE(region.ok()) << region.error().message();
    std::memset(region->address(), 1, 1 << 20);
    ASSERT_DONE(region->persist());
    ASSERT_DONE(store->close());
  }
  std::uint64_t read = 0;
  const auto looked = check_data(path, [&read](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    read = done;
  });
  ASSERT_TRUE(looked.ok()) << looked.error().message();
  EXPECT_EQ(looked->blocks, 256u);
  EXPECT_GE(read, 1u << 20);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().filename().string().ends_with(".sums")) std::filesystem::remove(entry.path());
  }
  const auto completed = complete_checksums(path);
  ASSERT_TRUE(completed.ok()) << completed.error().message();
  EXPECT_EQ(*completed, 256u);
  EXPECT_EQ(*complete_checksums(path), 0u);
}

TEST(CheckedData, OfAOneFileStoreIsRefused) {
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  auto store = Store::open_file(folder / "file", options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  ASSERT_DONE(store->close());
  const auto looked = check_data(folder / "file");
  ASSERT_FALSE(looked.ok());
  EXPECT_EQ(memlith_category(looked.error().code()), MEMLITH_UNSUPPORTED);
  EXPECT_EQ(complete_checksums(folder / "file").error().category(), MEMLITH_UNSUPPORTED);
}

// The log of a program that has the store open waits for an archiver that archives nothing yet.
TEST(ArchiveWithAKeptLog, HasNoGapUpToTheLimit) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const ArchiveTarget target{.folder = folder / "target"};
  StoreOptions options;
  options.create = true;
  options.log_bytes = 1 << 20;
  options.log_max_bytes = 32 << 20;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  RegionOptions region_options;
  region_options.create = true;
  region_options.size = 1 << 20;
  region_options.tracker = Tracker::touched;
  auto region = store->region("a", region_options);
  ASSERT_TRUE(region.ok()) << region.error().message();
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  const auto write = [&](std::uint64_t mib) {
    for (std::uint64_t i = 0; i < mib * 4; ++i) {
      for (std::uint64_t at = 0; at < 32768; at += 512) ++numbers[at];
      ASSERT_DONE(region->touch(numbers, 256 << 10));
      ASSERT_DONE(region->persist());
    }
  };
  auto archive = Archive::open(path, target, {.wait_ms = 3'600'000, .keep_log_bytes = 24 << 20});
  ASSERT_TRUE(archive.ok()) << archive.error().message();
  write(12);
  EXPECT_TRUE(std::filesystem::exists(path + "/archived"));
  const memlith_store_info info = store->info();
  EXPECT_GT(info.log_bytes, 12u << 20);
  EXPECT_LE(info.log_bytes, 24u << 20);
  const std::uint64_t wanted = numbers[512];
  ASSERT_DONE(region->close());
  ASSERT_DONE(store->close());
  const auto progress = archive->step();
  ASSERT_TRUE(progress.ok()) << progress.error().message();
  EXPECT_EQ(progress->gaps, 0u);
  ASSERT_DONE(archive->close());
  EXPECT_FALSE(std::filesystem::exists(path + "/archived"));
  ASSERT_DONE(memlith::restore(target, folder / "restored"));
  auto restored = Store::open(folder / "restored", {});
  ASSERT_TRUE(restored.ok()) << restored.error().message();
  auto found = restored->region("a", {});
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(static_cast<std::uint64_t*>(found->address())[512], wanted);
}

// The program that writes shows what is durable a little later; a flush of the archive waits for it.
TEST(ArchiveFlush, HasWhatWasDurableBefore) {
  const TempFolder folder;
  const std::string path = folder / "store";
  auto opened = MixedStore::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const ArchiveTarget target{.folder = folder / "target"};
  auto archive = Archive::open(path, target, {.wait_ms = 3'600'000});
  ASSERT_TRUE(archive.ok()) << archive.error().message();
  MixedContent now;
  std::mt19937_64 random(2);
  std::uint64_t segments = 0;
  for (int i = 0; i < 20; ++i) {
    commit_something(*opened, now, random);
    const std::uint64_t durable = opened->store.durable();
    const auto progress = archive->flush();
    ASSERT_TRUE(progress.ok()) << progress.error().message();
    EXPECT_GE(progress->archived_lsn, durable) << i;
    segments = progress->segments;
  }
  EXPECT_GE(segments, 10u);
  commit_something(*opened, now, random);
  const std::uint64_t durable = opened->store.durable();
  ASSERT_DONE(archive->close());
  const auto restored = memlith::restore(target, folder / "restored", {.at = At::lsn, .value = durable});
  ASSERT_TRUE(restored.ok()) << restored.error().message();
  EXPECT_GE(restored->lsn, durable);
  EXPECT_EQ(memlith::restore(target, folder / "restored").error().category(), MEMLITH_EXISTS);
  opened->close();
}

TEST(ArchiveRuns, AreListedAndCheckedWithoutARestore) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const ArchiveTarget target{.folder = folder / "target"};
  EXPECT_EQ(archive_runs(target).error().category(), MEMLITH_NOT_FOUND);
  EXPECT_EQ(Archive::open(path, target).error().category(), MEMLITH_NOT_FOUND);
  MixedContent content;
  std::mt19937_64 random(4);
  auto opened = MixedStore::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  auto archive = Archive::open(path, target);
  ASSERT_TRUE(archive.ok()) << archive.error().message();
  commit_something(*opened, content, random);
  ASSERT_DONE(archive->copy());
  Archive moved = std::move(*archive);
  ASSERT_DONE(moved.close());
  opened->close();
  const auto runs = archive_runs(target);
  ASSERT_TRUE(runs.ok()) << runs.error().message();
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_EQ(runs->front().why, "first");
  EXPECT_EQ(runs->front().full_copies, 2u);
  EXPECT_GT(runs->front().end_lsn, 0u);
  const auto dry = memlith::restore(target, folder / "restored", {.run = runs->front().number, .dry = true});
  ASSERT_TRUE(dry.ok()) << dry.error().message();
  EXPECT_FALSE(std::filesystem::exists(folder / "restored"));
  EXPECT_EQ(memlith::restore(target, folder / "restored", {.at = At::time, .value = 1}).error().category(),
            MEMLITH_NOT_FOUND);
}

// Adds 1 to the number in a region that processes share, and returns what it was.
std::uint64_t count_in_shared(const std::string& path, bool create = false) {
  auto shared = SharedRegion::open(path, "shared", {.create = create, .size = 64 << 10});
  EXPECT_TRUE(shared.ok()) << shared.error().message();
  if (!shared.ok()) return 0;
  auto* const number = shared->as<std::uint64_t>();
  auto tx = shared->begin();
  EXPECT_TRUE(tx.ok() && tx->touch_before(number).ok());
  const std::uint64_t was = (*number)++;
  EXPECT_TRUE(tx->commit().ok());
  shared->close();
  for (int i = 0; i < 1000; ++i) {  // until its keeper has ended
    if (Store::open(path).ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return was;
}

void commit_more(const std::string& path, MixedContent& now, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto opened = MixedStore::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  for (int i = 0; i < 20; ++i) commit_something(*opened, now, random);
  opened->close();
}

// The store at `path` holds what it should and takes changes, also those of a new structure of each kind.
void check_used(const std::string& path, MixedContent expected) {
  MixedContent found;
  read_content(path, found);
  EXPECT_TRUE(found == expected) << path;
  if (::testing::Test::HasFailure()) return;
  commit_more(path, expected, 9);
  found = {};
  read_content(path, found);
  EXPECT_TRUE(found == expected) << path << ", after changes";
  auto store = Store::open(path);
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto log = AppLog::open(*store, "another log", {.create = true});
  ASSERT_TRUE(log.ok()) << log.error().message();
  EXPECT_TRUE(log->append("entry").ok() && log->write().ok());
}

class Copied : public ::testing::Test {
 protected:
  void SetUp() override {
    commit_more(path_, content_, 1);
    EXPECT_EQ(count_in_shared(path_, true), 0u);
  }
  void check(const std::string& path) const {
    check_used(path, content_);
    EXPECT_EQ(count_in_shared(path), 1u) << path;
    check_used(path, content_of(path));
  }
  static MixedContent content_of(const std::string& path) {
    MixedContent found;
    read_content(path, found);
    return found;
  }
  // Archives what there is.
  void archive(const std::string& path) {
    auto archive = Archive::open(path, where_);
    ASSERT_TRUE(archive.ok()) << archive.error().message();
    ASSERT_DONE(archive->close());
  }
  void restore(const std::string& path) { ASSERT_DONE(memlith::restore(where_, path)); }

  TempFolder folder_;
  const std::string path_ = folder_ / "store";
  ArchiveTarget where_{.folder = folder_ / "target"};
  MixedContent content_;
};

TEST_F(Copied, ACopyAndItsCopyAreUsedByEachFace) {
  ASSERT_DONE(copy_store(path_, folder_ / "copy"));
  ASSERT_DONE(copy_store(folder_ / "copy", folder_ / "second"));
  check(folder_ / "copy");
  check(folder_ / "second");
  check(path_);
}

TEST_F(Copied, ACopyOfAStoreInUseIsUsedByEachFace) {
  auto opened = MixedStore::open(path_);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  std::mt19937_64 random(2);
  for (int i = 0; i < 20; ++i) commit_something(*opened, content_, random);
  ASSERT_DONE(copy_store(path_, folder_ / "copy"));
  opened->close();
  check(folder_ / "copy");
}

TEST_F(Copied, ARestoredStoreIsUsedByEachFace) {
  archive(path_);
  restore(folder_ / "restored");
  check(folder_ / "restored");
  // The archive of a copy.
  ASSERT_DONE(copy_store(path_, folder_ / "copy"));
  where_.folder = folder_ / "of the copy";
  archive(folder_ / "copy");
  restore(folder_ / "restored copy");
  check(folder_ / "restored copy");
}

TEST_F(Copied, APromotedStandbyIsUsedByEachFace) {
  archive(path_);
  auto standby = Standby::open(where_, folder_ / "standby");
  ASSERT_TRUE(standby.ok()) << standby.error().message();
  const auto first = standby->step();
  ASSERT_TRUE(first.ok()) << first.error().message();
  commit_more(path_, content_, 3);
  archive(path_);
  const auto second = standby->step();
  ASSERT_TRUE(second.ok()) << second.error().message();
  EXPECT_GT(*second, *first);
  ASSERT_DONE(standby->close());
  ASSERT_DONE(promote(folder_ / "standby"));
  check(folder_ / "standby");
}

// ---- one file --------------------------------------------------------------------------------------------------

// Opens the structure of its kind in the file, which has what `rounds` calls have put into it, and puts one more.
using Use = std::function<void(const std::string& path, std::uint64_t rounds)>;

void use_heap(const std::string& path, std::uint64_t rounds) {
  auto heap = Heap::open_file(path, {.create = true});
  ASSERT_TRUE(heap.ok()) << heap.error().message();
  auto numbers = heap->root<Numbers>();
  ASSERT_TRUE(numbers.ok()) << numbers.error().message();
  EXPECT_EQ((*numbers)->size(), rounds);
  (**numbers)[rounds] = rounds;
  ASSERT_DONE(heap->persist());
}

void use_kv(const std::string& path, std::uint64_t rounds) {
  auto store = open_at(path, true, {.create = true});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto kv = Kv::open(*store, "file", {.create = true});
  ASSERT_TRUE(kv.ok()) << kv.error().message();
  auto map = kv->map("map", {.create = true});
  ASSERT_TRUE(map.ok()) << map.error().message();
  std::uint64_t found = 0;
  {
    auto txn = kv->begin({.read_only = true});
    ASSERT_TRUE(txn.ok());
    ASSERT_DONE(txn->get_range(*map, "", "", [&found](std::string_view, std::string_view) { return ++found, true; }));
  }
  EXPECT_EQ(found, rounds);
  ASSERT_DONE(kv->transact([&](KvTransaction& txn) { return txn.put(*map, std::to_string(rounds), "value"); },
                           Durability::sync));
}

void use_log(const std::string& path, std::uint64_t rounds) {
  auto store = open_at(path, true, {.create = true});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto log = AppLog::open(*store, "file", {.create = true, .size = 64 << 10});
  ASSERT_TRUE(log.ok()) << log.error().message();
  std::uint64_t found = 0;
  for (;; ++found) {
    const auto entry = log->read();
    ASSERT_TRUE(entry.ok()) << entry.error().message();
    if (!entry->has_value()) break;
  }
  EXPECT_EQ(found, rounds);
  ASSERT_TRUE(log->append("entry").ok());
  ASSERT_DONE(log->write());
}

class CopiedFile : public ::testing::TestWithParam<std::pair<const char*, Use>> {};
INSTANTIATE_TEST_SUITE_P(A, CopiedFile,
                         ::testing::Values(std::pair{"Heap", Use(use_heap)}, std::pair{"Kv", Use(use_kv)},
                                           std::pair{"AppLog", Use(use_log)}),
                         [](const auto& given) { return std::string(given.param.first); });

TEST_P(CopiedFile, IsUsedByItsOwnFace) {
  const Use& use = GetParam().second;
  const TempFolder folder;
  const std::string path = folder / "file";
  use(path, 0);
  use(path, 1);
  ASSERT_DONE(copy_store(path, folder / "copy"));
  ASSERT_DONE(copy_store(folder / "copy", folder / "second"));
  const ArchiveTarget where{.folder = folder / "target"};
  ASSERT_DONE(Archive::open(path, where)->close());
  ASSERT_DONE(memlith::restore(where, folder / "restored"));
  auto standby = Standby::open(where, folder / "standby");
  ASSERT_TRUE(standby.ok()) << standby.error().message();
  ASSERT_DONE(standby->step());
  ASSERT_DONE(standby->close());
  ASSERT_DONE(promote(folder / "standby/file"));
  for (const char* each : {"copy", "second", "restored", "standby/file", "file"}) {
    use(folder / each, 2);
    use(folder / each, 3);
  }
}

}  // namespace
}  // namespace memlith::test::archive_test
