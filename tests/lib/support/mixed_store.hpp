// A store that holds a kv store, a heap and an application log, commits of each and of all of them together, and what
// they hold then. For tests that restore a store to a moment.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"

namespace memlith::test {

#define ASSERT_DONE(call)                                                \
  do {                                                                   \
    const auto done = (call);                                            \
    ASSERT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message()); \
  } while (false)

using Numbers = memlith::map<std::uint64_t, std::uint64_t>;

// The content of the three, in words.
struct MixedContent {
  std::map<std::string, std::string> records;
  std::map<std::uint64_t, std::uint64_t> numbers;
  std::vector<std::string> entries;
  bool operator==(const MixedContent&) const = default;
};

// The three, open.
struct MixedStore {
  Store store;
  Kv kv;
  Heap heap;
  AppLog log;
  KvMap map;
  Numbers* numbers;

  static Result<MixedStore> open(const std::string& path) {
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
    auto map = kv->map("map", {.create = true});
    if (!map.ok()) return map.error();
    auto numbers = heap->root<Numbers>();
    if (!numbers.ok()) return numbers.error();
    return MixedStore{std::move(*store), std::move(*kv), std::move(*heap), std::move(*log), *map, *numbers};
  }
  void close() {
    ASSERT_DONE(log.close());
    ASSERT_DONE(heap.close());
    ASSERT_DONE(kv.close());
    ASSERT_DONE(store.close());
  }
};

inline void read_content(const std::string& path, MixedContent& content) {
  auto opened = MixedStore::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  {
    auto transaction = opened->kv.begin({.read_only = true});
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

// One commit of one of the three, or of all of them together.
inline void commit_something(MixedStore& opened, MixedContent& now, std::mt19937_64& random) {
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

}  // namespace memlith::test
