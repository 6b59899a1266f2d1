// memlith/archive.h: a store that holds a kv store, a heap and an application log is restored to moments of a mixed
// run, and each is found as it was recorded then. memlith/copy.h: what memlith_check_region and memlith_check_data say.
// docs/backup.md.
#include "memlith/archive.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/copy.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

#define ASSERT_DONE(call)                                                \
  do {                                                                   \
    const auto done = (call);                                            \
    ASSERT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message()); \
  } while (false)

std::uint64_t seed() {
  const char* const given = std::getenv("MEMLITH_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

std::string last_error() {
  char text[1024] = "";
  (void)memlith_last_error(text, sizeof text);
  return text;
}

using Numbers = memlith::map<std::uint64_t, std::uint64_t>;

// What the three hold, in words.
struct Content {
  std::map<std::string, std::string> records;
  std::map<std::uint64_t, std::uint64_t> numbers;
  std::vector<std::string> entries;
  bool operator==(const Content&) const = default;
};

// The three, open.
struct Opened {
  Store store;
  Kv kv;
  Heap heap;
  AppLog log;
  KvMap map;
  Numbers* numbers;

  static Result<Opened> open(const std::string& path) {
    StoreOptions options;
    options.create = true;
    options.log_bytes = options.log_max_bytes = 1 << 20;  // it wraps
    auto store = Store::open(path, options);
    if (!store.ok()) return store.error();
    KvOptions kv_options;
    kv_options.create = true;
    auto kv = Kv::open(*store, "kv", kv_options);
    if (!kv.ok()) return kv.error();
    RegionOptions heap_options;
    heap_options.create = true;
    auto heap = Heap::open(*store, "heap", heap_options);
    if (!heap.ok()) return heap.error();
    AppLogOptions log_options;
    log_options.create = true;
    log_options.size = 256 << 10;
    auto log = AppLog::open(*store, "log", log_options);
    if (!log.ok()) return log.error();
    auto map = kv->map("map", true);
    if (!map.ok()) return map.error();
    auto numbers = heap->root<Numbers>();
    if (!numbers.ok()) return numbers.error();
    return Opened{std::move(*store), std::move(*kv), std::move(*heap), std::move(*log), *map, *numbers};
  }
  void close() {
    ASSERT_DONE(log.close());
    ASSERT_DONE(heap.close());
    ASSERT_DONE(kv.close());
    ASSERT_DONE(store.close());
  }
};

void read_content(const std::string& path, Content& content) {
  auto opened = Opened::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  {
    auto transaction = opened->kv.begin(true);
    ASSERT_TRUE(transaction.ok()) << transaction.error().message();
    ASSERT_DONE(transaction->get_range(opened->map, "", "", [&](std::string_view key, std::string_view value) {
      content.records.emplace(key, value);
      return true;
    }));
  }
  content.numbers = {opened->numbers->begin(), opened->numbers->end()};
  for (;;) {
    const auto entry = opened->log.read();
    ASSERT_TRUE(entry.ok()) << entry.error().message();
    if (!entry->has_value()) break;
    content.entries.emplace_back((*entry)->content);
  }
  ASSERT_DONE(opened->heap.verify());
  ASSERT_DONE(opened->kv.verify());
  opened->close();
}

struct Recorded {
  std::uint64_t lsn = 0;
  Content content;
};

// One commit of one of the three, or of all of them together.
void commit_something(Opened& opened, Content& now, std::mt19937_64& random) {
  const std::uint64_t what = random() % 4;
  const std::string key = "key" + std::to_string(random() % 60);
  const std::string value(1 + random() % 300, static_cast<char>('a' + random() % 26));
  const std::uint64_t number = random() % 80;
  if (what == 0) {
    const bool removes = now.records.contains(key) && random() % 3 == 0;
    ASSERT_DONE(opened.kv.transact(
        [&](KvTransaction& txn) { return removes ? txn.remove(opened.map, key) : txn.put(opened.map, key, value); },
        Durability::sync));
    if (removes) now.records.erase(key);
    if (!removes) now.records[key] = value;
    return;
  }
  if (what == 1) {
    if (random() % 3 == 0) {
      opened.numbers->erase(number);
      now.numbers.erase(number);
    } else {
      now.numbers[number] = (*opened.numbers)[number] = random();
    }
    ASSERT_DONE(opened.heap.persist());
    return;
  }
  if (what == 2) {
    ASSERT_TRUE(opened.log.append(value).ok());
    ASSERT_DONE(opened.log.write());
    now.entries.push_back(value);
    return;
  }
  auto all = opened.store.begin();
  ASSERT_TRUE(all.ok()) << all.error().message();
  auto txn = opened.kv.begin();
  ASSERT_TRUE(txn.ok()) << txn.error().message();
  ASSERT_DONE(txn->join(*all));
  ASSERT_DONE(opened.heap.join(*all));
  ASSERT_DONE(txn->put(opened.map, key, value));
  ASSERT_DONE(opened.log.append_in(*all, value));
  now.numbers[number] = (*opened.numbers)[number] = random();
  ASSERT_DONE(all->commit());
  now.records[key] = value;
  now.entries.push_back(value);
}

TEST(ArchiveOfAMixedRun, RestoresFiftyRandomMoments) {
  const std::uint64_t start = seed();
  SCOPED_TRACE("MEMLITH_SEED=" + std::to_string(start));
  std::mt19937_64 random(start);
  const TempFolder folder;
  const std::string path = folder / "store";
  const std::string target_path = folder / "target";
  memlith_archive_target target{};
  target.struct_size = sizeof target;
  target.folder = target_path.c_str();
  std::vector<Recorded> recorded;
  {
    auto opened = Opened::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    memlith_archive_options options{};
    options.struct_size = sizeof options;
    options.wait_ms = 1;
    memlith_archive* archive = nullptr;
    ASSERT_EQ(memlith_archive_open(path.c_str(), &target, &options, &archive), MEMLITH_OK) << last_error();
    Content now;
    for (int i = 0; i < 600; ++i) {
      commit_something(*opened, now, random);
      if (::testing::Test::HasFatalFailure()) return;
      recorded.push_back({opened->store.durable(), now});
      if (random() % 8 == 0) {
        ASSERT_EQ(memlith_archive_step(archive, nullptr), MEMLITH_OK) << last_error();
      }
      if (random() % 50 == 0) ASSERT_DONE(opened->store.checkpoint());
      if (random() % 150 == 0) {
        ASSERT_EQ(memlith_archive_copy(archive), MEMLITH_OK) << last_error();
      }
    }
    opened->close();  // what the writer has not shown as durable yet is archived after its end
    ASSERT_EQ(memlith_archive_close(archive), MEMLITH_OK) << last_error();
  }
  for (int i = 0; i < 50 && !::testing::Test::HasFatalFailure(); ++i) {
    const Recorded& wanted = recorded[i == 0 ? recorded.size() - 1 : random() % recorded.size()];
    SCOPED_TRACE("LSN " + std::to_string(wanted.lsn));
    const std::string dest = folder / ("moment" + std::to_string(i));
    memlith_restore_options options{};
    options.struct_size = sizeof options;
    options.at = MEMLITH_AT_LSN;
    options.value = wanted.lsn;
    ASSERT_EQ(memlith_restore(&target, dest.c_str(), &options, nullptr), MEMLITH_OK) << last_error();
    const auto data = check_data(dest);
    ASSERT_TRUE(data.ok()) << data.error().message();
    EXPECT_EQ(data->blocks_damaged, 0u);
    EXPECT_EQ(data->blocks_unknown, 0u);
    Content found;
    read_content(dest, found);
    EXPECT_TRUE(found == wanted.content) << "moment " << i << ": " << found.records.size() << " records, "
                                         << found.numbers.size() << " numbers, " << found.entries.size()
                                         << " entries; recorded were " << wanted.content.records.size() << ", "
                                         << wanted.content.numbers.size() << ", " << wanted.content.entries.size();
    std::error_code ignored;
    std::filesystem::remove_all(dest, ignored);
  }
}

// ---- rot, through the interface ---------------------------------------------------------------------------------

TEST(CheckedData, NamesTheRegionAndTheBytes) {
  const TempFolder folder;
  const std::string path = folder / "store";
  Content now;
  std::mt19937_64 random(1);
  {
    auto opened = Opened::open(path);
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
  memlith_data_report report{};
  report.struct_size = sizeof report;
  std::vector<std::string> found;
  const auto note = [](void* all, const char* each) {
    static_cast<std::vector<std::string>*>(all)->emplace_back(each);
  };
  ASSERT_EQ(memlith_check_region(store->handle(), "heap", note, &found, &report), MEMLITH_OK) << last_error();
  EXPECT_EQ(report.blocks_damaged, 1u);
  EXPECT_EQ(found, std::vector<std::string>{sentence});
  ASSERT_EQ(memlith_check_region(store->handle(), "kv", note, &found, &report), MEMLITH_OK) << last_error();
  EXPECT_EQ(report.blocks_damaged, 0u);
  EXPECT_EQ(memlith_category(memlith_check_region(store->handle(), "none", note, &found, &report)), MEMLITH_NOT_FOUND);
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
  EXPECT_EQ(memlith_category(memlith_complete_checksums((folder / "file").c_str(), nullptr)), MEMLITH_UNSUPPORTED);
}

}  // namespace
}  // namespace memlith::test
