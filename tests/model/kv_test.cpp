// Random calls of memlith/kv.h, held against a model (docs/testing.md, "model"): records of two maps, what a
// transaction has written over them, and what a snapshot saw. Defends docs/kv.md.
//
// MEMLITH_SEED=N repeats the run of seed N.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "memlith/kv.hpp"
#include "model/world.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using Records = std::map<std::string, std::string>;

constexpr int kMaps = 2;
constexpr int kTransactions = kSanitized ? 800 : 4000;

// The result of a call that does not fail.
template <class T>
T must_be(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  return std::move(*result);
}

class KvModel : public ::testing::Test {
 protected:
  KvModel() { open(); }

  void open() {
    store_.emplace(must_be(Store::open(folder_ / "store", {.create = true})));
    kv_.emplace(must_be(Kv::open(*store_, "kv", {.create = true})));
    for (int i = 0; i < kMaps; ++i) maps_[i] = must_be(kv_->map(name_of(i), {.create = true}));
  }
  void close() {
    ASSERT_TRUE(kv_->close());
    ASSERT_TRUE(store_->close());
  }
  static std::string name_of(int map) { return map == 0 ? "a" : "b"; }

  // Short, and of bytes at the ends of the order, so that prefixes and neighbours meet.
  std::string key() {
    static constexpr char kBytes[] = {'\0', 'a', 'b', '\xff'};
    std::string made(1 + random_.below(4), ' ');
    for (char& byte : made) byte = kBytes[random_.below(sizeof kBytes)];
    return made;
  }
  std::string value() {
    const std::uint64_t bytes = random_.one_in(50) ? random_.below(10'000) : random_.below(60);
    return std::string(bytes, static_cast<char>('a' + random_.below(26)));
  }
  // An end of a range: none, as no bytes, or a key.
  std::string range_end() { return random_.one_in(4) ? std::string() : key(); }

  static Records::iterator first_of(Records& records, const std::string& from) {
    return from.empty() ? records.begin() : records.lower_bound(from);
  }
  static Records::iterator end_of(Records& records, const std::string& from, const std::string& to) {
    if (to.empty()) return records.end();
    return to <= from ? first_of(records, from) : records.lower_bound(to);
  }

  void put_if(KvTransaction& txn, int map, Records& records);
  void remove_range(KvTransaction& txn, int map, Records& records);
  void walk(KvTransaction& txn, int map, Records& records, bool may_remove);
  void estimate(KvTransaction& txn, int map, Records& records);
  void change(KvTransaction& txn, int map, Records& records);
  void transact();
  void append();
  void compare(KvTransaction& txn, std::array<Records, kMaps>& model);

  const TempFolder folder_;
  const std::uint64_t seed_ = seed();
  Random random_{seed_};
  std::optional<Store> store_;
  std::optional<Kv> kv_;
  std::array<KvMap, kMaps> maps_{};
  std::array<Records, kMaps> model_;
  std::map<std::string, std::uint64_t> counts_;
};

void KvModel::put_if(KvTransaction& txn, int map, Records& records) {
  const std::string name = key();
  const auto there = records.find(name);
  std::optional<std::string> expected;
  if (random_.one_in(4)) {
    expected = value();
  } else if (there != records.end() && !random_.one_in(4)) {
    expected = there->second;
  }
  const std::optional<std::string> wanted = random_.one_in(3) ? std::nullopt : std::optional(value());
  const bool fits = there == records.end() ? !expected : expected == there->second;
  ASSERT_EQ(must_be(txn.put_if(maps_[map], name, expected, wanted)), fits);
  ++counts_[fits ? "swaps" : "refused swaps"];
  if (!fits) return;
  records.erase(name);
  if (wanted) records[name] = *wanted;
}

void KvModel::remove_range(KvTransaction& txn, int map, Records& records) {
  const std::string from = random_.one_in(3) ? std::string() : key();
  const std::string to = from.empty() || random_.one_in(2) ? key() : from + key();
  const auto first = first_of(records, from);
  const auto end = end_of(records, from, to);
  const auto count = static_cast<std::uint64_t>(std::distance(first, end));
  ASSERT_EQ(must_be(txn.remove_range(maps_[map], from, to)), count);
  counts_["records of removed ranges"] += count;
  records.erase(first, end);
}

// A cursor that is kept to a range or to a prefix, and goes to and fro in it.
void KvModel::walk(KvTransaction& txn, int map, Records& records, bool may_remove) {
  Cursor cursor = must_be(txn.cursor(maps_[map]));
  std::string from = range_end();
  std::string to = range_end();
  if (random_.one_in(3)) {
    from = key().substr(0, random_.below(3));
    to = from;
    while (!to.empty() && to.back() == '\xff') to.pop_back();
    if (!to.empty()) ++to.back();
    ASSERT_TRUE(cursor.set_prefix(from));
  } else {
    ASSERT_TRUE(cursor.set_bounds(from, to));
  }
  std::vector<std::string> keys;
  for (auto at = first_of(records, from); at != end_of(records, from, to); ++at) keys.push_back(at->first);
  // Where it stands: -1 and the size are none, before and behind all; `fresh` is none of a new cursor.
  const auto size = static_cast<std::int64_t>(keys.size());
  std::int64_t at = -1;
  bool fresh = true;
  for (std::uint64_t steps = random_.below(12); steps > 0; --steps) {
    bool found = false;
    switch (random_.below(6)) {
      case 0:
        at = 0;
        found = must_be(cursor.first());
        break;
      case 1:
        at = size - 1;
        found = must_be(cursor.last());
        break;
      case 2: {
        const std::string wanted = key();
        at = std::lower_bound(keys.begin(), keys.end(), wanted) - keys.begin();
        found = must_be(cursor.seek(wanted));
        break;
      }
      case 3:
        at = fresh ? size - 1 : std::max<std::int64_t>(at - 1, -1);
        found = must_be(cursor.prev());
        break;
      default: at = fresh ? 0 : std::min(at + 1, size); found = must_be(cursor.next());
    }
    fresh = false;
    ASSERT_EQ(found, at >= 0 && at < size) << "seed " << seed_;
    if (size == 0) return;  // both ends are the same place
    if (!found) continue;
    const KvRecord record = must_be(cursor.current());
    ASSERT_EQ(record.key, keys[static_cast<std::size_t>(at)]) << "seed " << seed_;
    ASSERT_EQ(record.value, records[std::string(record.key)]) << "seed " << seed_;
    ++counts_["steps of cursors"];
    if (!may_remove || !random_.one_in(8)) continue;
    records.erase(std::string(record.key));
    ASSERT_TRUE(cursor.remove());
    return;
  }
}

// Estimates committed records: the count of pages at both ends is exact where there is only one.
void KvModel::estimate(KvTransaction& txn, int map, Records& records) {
  const std::string from = range_end();
  const std::string to = range_end();
  const KvTransaction::Estimate found = must_be(txn.estimate(maps_[map], from, to));
  std::uint64_t bytes = 0;
  std::uint64_t all_bytes = 0;
  for (auto at = first_of(records, from); at != end_of(records, from, to); ++at) {
    bytes += at->first.size() + at->second.size();
  }
  for (const auto& [name, content] : records) all_bytes += name.size() + content.size() + 16;
  if (all_bytes > 1000) return;
  EXPECT_EQ(found.bytes, bytes) << "seed " << seed_;
  EXPECT_EQ(found.records, std::distance(first_of(records, from), end_of(records, from, to))) << "seed " << seed_;
  ++counts_["estimates"];
}

void KvModel::change(KvTransaction& txn, int map, Records& records) {
  const std::string name = key();
  switch (random_.below(8)) {
    case 0: return put_if(txn, map, records);
    case 1: return random_.one_in(3) ? remove_range(txn, map, records) : put_if(txn, map, records);
    case 2: return walk(txn, map, records, true);
    case 3: {
      const auto removed = txn.remove(maps_[map], name);
      ASSERT_EQ(removed.ok(), records.erase(name) == 1) << "seed " << seed_;
      ASSERT_TRUE(removed.ok() || removed.error().category() == MEMLITH_NOT_FOUND);
      return;
    }
    case 4: {
      const auto found = must_be(txn.find(maps_[map], name));
      const auto there = records.find(name);
      ASSERT_EQ(found.has_value(), there != records.end()) << "seed " << seed_;
      if (found) {
        ASSERT_EQ(*found, there->second) << "seed " << seed_;
      }
      return;
    }
    default: records[name] = value(); ASSERT_TRUE(txn.put(maps_[map], name, records[name]));
  }
}

void KvModel::transact() {
  KvTransaction txn = must_be(kv_->begin());
  std::array<Records, kMaps> changed = model_;
  std::vector<std::pair<std::uint64_t, std::array<Records, kMaps>>> savepoints;
  for (std::uint64_t steps = random_.below(12); steps > 0; --steps) {
    const auto map = static_cast<int>(random_.below(kMaps));
    if (random_.one_in(12)) {
      savepoints.emplace_back(must_be(txn.savepoint()), changed);
    } else if (!savepoints.empty() && random_.one_in(10)) {
      ASSERT_TRUE(txn.undo_to(savepoints.back().first));
      changed = savepoints.back().second;
    } else {
      ASSERT_NO_FATAL_FAILURE(change(txn, map, changed[map]));
    }
  }
  if (random_.one_in(10)) {
    ASSERT_NO_FATAL_FAILURE(compare(txn, changed));
  }
  if (random_.one_in(6)) {
    ASSERT_TRUE(txn.abort());
    return;
  }
  ASSERT_TRUE(txn.commit(random_.one_in(50) ? Durability::sync : Durability::weak));
  model_ = std::move(changed);
}

// Behind all that a map has, in order; or not, and then the first of the records are there.
void KvModel::append() {
  const auto map = static_cast<int>(random_.below(kMaps));
  Records& records = model_[map];
  std::vector<std::string> keys;
  for (std::uint64_t i = random_.below(20); i > 0; --i)
    keys.push_back(random_.one_in(20) ? key() : std::string(4, '\xff') + key());
  if (!random_.one_in(4)) std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  bool in_order = keys.empty() || records.empty() || records.rbegin()->first < keys.front();
  in_order = in_order && std::is_sorted(keys.begin(), keys.end());
  std::size_t next = 0;
  std::string content;
  Records appended;
  std::uint64_t count = 0;
  const auto source = [&]() -> std::optional<KvRecord> {
    if (next == keys.size()) return std::nullopt;
    content = value();
    appended[keys[next]] = content;
    return KvRecord{keys[next++], content};
  };
  const auto done = kv_->append(maps_[map], source, &count);
  ASSERT_EQ(done.ok(), in_order) << "seed " << seed_;
  if (!done) {
    ASSERT_EQ(done.error().category(), MEMLITH_INVALID) << "seed " << seed_;
    ASSERT_LT(count, keys.size());
    keys.resize(count);
  }
  ASSERT_EQ(count, keys.size());
  counts_["appended records"] += count;
  for (const std::string& each : keys) records[each] = appended[each];
}

void KvModel::compare(KvTransaction& txn, std::array<Records, kMaps>& model) {
  for (int map = 0; map < kMaps; ++map) {
    Records found;
    ASSERT_TRUE(txn.get_range(maps_[map], {}, {}, [&](std::string_view name, std::string_view content) {
      return found.emplace(name, content).second;
    }));
    ASSERT_TRUE(found == model[map]) << "seed " << seed_;
  }
}

TEST_F(KvModel, RandomCallsOfAKvStore) {
  std::optional<KvTransaction> snapshot;
  std::array<Records, kMaps> seen;
  for (int i = 0; i < kTransactions && !HasFailure(); ++i) {
    if (random_.one_in(8)) {
      append();
    } else {
      transact();
    }
    if (HasFailure()) break;
    if (!snapshot && random_.one_in(10)) {
      snapshot.emplace(must_be(kv_->begin({.read_only = true})));
      seen = model_;
    }
    const auto map = static_cast<int>(random_.below(kMaps));
    if (snapshot) {
      walk(*snapshot, map, seen[map], false);
      estimate(*snapshot, map, seen[map]);
    }
    if (snapshot && random_.one_in(10)) {
      compare(*snapshot, seen);
      snapshot.reset();
    }
    if (random_.one_in(40)) {  // maps stay small enough for estimates
      snapshot.reset();
      ASSERT_TRUE(kv_->remove_map(name_of(map)));
      model_[map].clear();
      maps_[map] = must_be(kv_->map(name_of(map), {.create = true}));
    }
    if (random_.one_in(200)) {
      snapshot.reset();
      ASSERT_TRUE(kv_->verify());
      close();
      open();
      KvTransaction reader = must_be(kv_->begin({.read_only = true}));
      compare(reader, model_);
    }
  }
  for (const char* each :
       {"swaps", "refused swaps", "records of removed ranges", "steps of cursors", "estimates", "appended records"}) {
    EXPECT_GT(counts_[each], static_cast<std::uint64_t>(kTransactions) / 20) << each;
  }
  snapshot.reset();
  close();
}

}  // namespace
}  // namespace memlith::test
