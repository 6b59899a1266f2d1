// docs/backup.md: a copy, a restored store and a promoted standby are stores in which each kind of structure opens by
// its own face, holds what it held, and goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "memlith/archive.h"
#include "memlith/copy.hpp"
#include "memlith/shared.hpp"
#include "support/mixed_store.hpp"
#include "support/numbered_pages.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::copied_structures_test {
namespace {

std::string last_error() {
  char text[1024] = "";
  (void)memlith_last_error(text, sizeof text);
  return text;
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
    where_.struct_size = sizeof where_;
    where_.folder = target_.c_str();
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
    memlith_archive* archive = nullptr;
    ASSERT_EQ(memlith_archive_open(path.c_str(), &where_, nullptr, &archive), MEMLITH_OK) << last_error();
    ASSERT_EQ(memlith_archive_close(archive), MEMLITH_OK) << last_error();
  }
  void restore(const std::string& path) {
    ASSERT_EQ(memlith_restore(&where_, path.c_str(), nullptr, nullptr), MEMLITH_OK) << last_error();
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "store";
  const std::string target_ = folder_ / "target";
  memlith_archive_target where_{};
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
  const std::string target = folder_ / "of the copy";
  where_.folder = target.c_str();
  archive(folder_ / "copy");
  restore(folder_ / "restored copy");
  check(folder_ / "restored copy");
}

TEST_F(Copied, APromotedStandbyIsUsedByEachFace) {
  archive(path_);
  memlith_standby* standby = nullptr;
  ASSERT_EQ(memlith_standby_open(&where_, (folder_ / "standby").c_str(), &standby), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_standby_step(standby, nullptr), MEMLITH_OK) << last_error();
  commit_more(path_, content_, 3);
  archive(path_);
  ASSERT_EQ(memlith_standby_step(standby, nullptr), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_standby_close(standby), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_promote((folder_ / "standby").c_str()), MEMLITH_OK) << last_error();
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
  auto map = kv->map("map", true);
  ASSERT_TRUE(map.ok()) << map.error().message();
  std::uint64_t found = 0;
  {
    auto txn = kv->begin(true);
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
  const std::string target = folder / "target";
  memlith_archive_target where{};
  where.struct_size = sizeof where;
  where.folder = target.c_str();
  memlith_archive* archive = nullptr;
  ASSERT_EQ(memlith_archive_open(path.c_str(), &where, nullptr, &archive), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_archive_close(archive), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_restore(&where, (folder / "restored").c_str(), nullptr, nullptr), MEMLITH_OK) << last_error();
  memlith_standby* standby = nullptr;
  ASSERT_EQ(memlith_standby_open(&where, (folder / "standby").c_str(), &standby), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_standby_step(standby, nullptr), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_standby_close(standby), MEMLITH_OK) << last_error();
  ASSERT_EQ(memlith_promote((folder / "standby/file").c_str()), MEMLITH_OK) << last_error();
  for (const char* each : {"copy", "second", "restored", "standby/file", "file"}) {
    use(folder / each, 2);
    use(folder / each, 3);
  }
}

}  // namespace
}  // namespace memlith::test::copied_structures_test
