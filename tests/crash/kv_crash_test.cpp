// docs/kv.md, "What survives": after a crash at any device operation a kv store is, byte for byte, as some commit left
// it: a prefix of the order of commits that holds every commit acknowledged as durable. Every state that a commit left
// passed kv.verify(), so what comes back is a sound tree.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "kv/kv.hpp"
#include "support/crash_world.hpp"

namespace memlith::test {
namespace {

using namespace core;
using kv::Durability;
using kv::Kv;
using kv::PageNumber;
using kv::Transaction;

class KvMemory {
 public:
  explicit KvMemory(CrashWorld& world) : world_(world) {}
  ~KvMemory() { leave(); }

  void open() {
    const bool fresh = !*world_.volume().exists("log");
    std::size_t commit = 0;
    if (fresh) commit = world_.started([](Content& content) { content.exists = true; });
    auto store = Store::open(world_.volume(), world_.options());
    ASSERT_TRUE(store.ok()) << last_error_text();
    store_ = std::move(*store);
    if (fresh) world_.acknowledged(commit);
    RegionOptions options;
    options.create = fresh;
    options.tracker = TrackerKind::touched;
    options.size_bytes = 4 * kPageBytes;
    options.reserve_bytes = 1 * kMiB;
    if (fresh) commit = world_.started([](Content& c) { c.objects["kv"].resize(4 * kPageBytes); });
    auto region = Region::open(*store_, "kv", options);
    ASSERT_TRUE(region.ok()) << last_error_text();
    if (fresh) world_.acknowledged(commit);
    region_ = std::move(*region);
    change(true, [this] {
      auto made = Kv::open(*region_, {true, {}, true});
      ASSERT_TRUE(made.ok()) << last_error_text();
      kv_ = std::move(*made);
    });
  }
  // As a kill would.
  void leave() {
    kv_ = nullptr;
    region_ = nullptr;
    store_ = nullptr;
  }
  void checkpoint() { ASSERT_TRUE(store_->checkpoint().ok()) << last_error_text(); }
  PageNumber map(const std::string& name) {
    PageNumber map = 0;
    change(true, [&] {
      const auto opened = kv_->open_map(name, true, false);
      ASSERT_TRUE(opened.ok()) << last_error_text();
      map = *opened;
    });
    return map;
  }
  void remove_map(const std::string& name) {
    change(true, [&] { ASSERT_TRUE(kv_->remove_map(name).ok()) << last_error_text(); });
  }
  // Records with these keys, in one commit.
  void append(PageNumber map, int first, int count, const std::string& value) {
    change(true, [&] {
      int next = 0;
      std::string key;
      std::uint64_t appended = 0;
      const auto give = [&](std::string_view& its_key, std::string_view& its_value) {
        if (next == count) return false;
        key = std::to_string(1'000'000 + first + next++);
        its_key = key;
        its_value = value;
        return true;
      };
      ASSERT_TRUE(kv_->append(map, give, appended).ok()) << last_error_text();
      ASSERT_EQ(appended, static_cast<std::uint64_t>(count));
    });
    ASSERT_TRUE(kv_->verify().ok()) << last_error_text();
  }
  int remove_map_in_steps(const std::string& name, std::uint64_t pages) {
    return in_steps(pages, [&] { EXPECT_TRUE(kv_->remove_map(name).ok()) << last_error_text(); });
  }
  // With a record that is put into the range by the same commit.
  int remove_range_in_steps(PageNumber map, const std::string& from, const std::string& to, std::uint64_t pages) {
    return in_steps(pages, [&] {
      Transaction transaction(*kv_, false);
      ASSERT_TRUE(transaction.begin().ok());
      std::uint64_t removed = 0;
      EXPECT_TRUE(transaction.remove_range(map, from, to, removed).ok()) << last_error_text();
      EXPECT_TRUE(transaction.put(map, from + "new", "new").ok()) << last_error_text();
      EXPECT_TRUE(transaction.commit(Durability::weak, nullptr).ok()) << last_error_text();
    });
  }
  // A removal, which frees so many pages a step. Each step is a commit, whose state has to be sound. Returns how many
  // there were.
  template <class Remove>
  int in_steps(std::uint64_t pages, Remove&& remove) {
    int steps = 0;
    const auto left_by_step = std::make_shared<std::shared_ptr<std::vector<std::byte>>>();
    const auto next = [this, left_by_step] {
      const auto bytes = *left_by_step = std::make_shared<std::vector<std::byte>>();
      newest_ = world_.started([bytes](Content& content) { content.objects["kv"] = *bytes; });
    };
    const auto ended = [this, left_by_step] { **left_by_step = memory(); };
    next();
    kv_->watch_removals(pages, [&] {
      ++steps;
      EXPECT_TRUE(kv_->verify().ok()) << last_error_text();
      ended();
      next();
    });
    remove();
    ended();
    EXPECT_TRUE(kv_->persist().ok()) << last_error_text();
    world_.acknowledged(newest_);
    kv_->watch_removals(pages, nullptr);
    return steps;
  }
  void persist() {
    ASSERT_TRUE(kv_->persist().ok()) << last_error_text();
    world_.acknowledged(newest_);
  }
  // One transaction: puts with values, removals without.
  using Writes = std::vector<std::pair<std::string, std::optional<std::string>>>;
  void commit(const std::vector<std::pair<PageNumber, Writes>>& all, Durability durability) {
    change(durability == Durability::sync, [&] {
      Transaction transaction(*kv_, false);
      ASSERT_TRUE(transaction.begin().ok());
      for (const auto& [map, writes] : all) {
        for (const auto& [key, value] : writes) {
          const Status done =
              value.has_value() ? transaction.put(map, key, *value) : transaction.remove(map, key).status();
          ASSERT_TRUE(done.ok()) << last_error_text();
        }
      }
      ASSERT_TRUE(transaction.commit(durability, nullptr).ok()) << last_error_text();
    });
    ASSERT_TRUE(kv_->verify().ok()) << last_error_text();
  }
  // Transactions that look at what is there.
  std::unique_ptr<Transaction> view() {
    auto made = std::make_unique<Transaction>(*kv_, true);
    EXPECT_TRUE(made->begin().ok()) << last_error_text();
    return made;
  }

 private:
  // The region with its pages as the newest commit left them.
  std::vector<std::byte> memory() {
    std::vector<std::byte> bytes(region_->address(), region_->address() + region_->size());
    if (kv_ == nullptr) return bytes;
    const kv::Words& words = kv_->pages().words;
    for (PageNumber page = 0; page < words.count(); ++page) {
      std::memcpy(bytes.data() + page * kPageBytes, words.bytes_of(page), kPageBytes);
    }
    return bytes;
  }
  // The memory afterwards is the content that this commit leaves.
  template <class Act>
  void change(bool durable, Act&& act) {
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    newest_ = world_.started([bytes](Content& content) { content.objects["kv"] = *bytes; });
    act();
    *bytes = memory();
    if (durable) world_.acknowledged(newest_);
  }

  CrashWorld& world_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Kv> kv_;
  std::size_t newest_ = 0;
};

StoreOptions kv_options() {
  StoreOptions options = small_store_options();
  options.log_max_bytes = 64 * options.slot_bytes;
  return options;
}

ExploreOptions sampled() {
  ExploreOptions options;
  options.exhaustive_items_max = 6;
  options.samples = scaled(24);
  options.recovery_every = 16;
  return options;
}

// Weak and sync commits, splits, merges, values in overflow pages, maps that come and go, checkpoints, kills.
TEST(KvCrash, LeavesAPrefixOfTheCommits) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  Random random(seed);
  {
    KvMemory memory(world);
    memory.open();
    PageNumber map = memory.map("a");
    (void)memory.map("b");
    std::vector<std::string> keys;
    for (int i = 0; i < 60 && !::testing::Test::HasFatalFailure(); ++i) {
      KvMemory::Writes writes;
      for (std::uint64_t n = 1 + random.below(3); n-- > 0;) {
        if (i > 35 && keys.size() > 4) {  // it shrinks again
          writes.emplace_back(keys.back(), std::nullopt);
          keys.pop_back();
        } else {
          keys.push_back(std::to_string(random.below(1000)) + std::to_string(i * 10 + static_cast<int>(n)));
          writes.emplace_back(keys.back(), std::string(random.one_in(12) ? 5000 : random.below(700), 'v'));
        }
      }
      memory.commit({{map, writes}}, random.one_in(5) ? Durability::sync : Durability::weak);
      if (random.one_in(14)) memory.checkpoint();
      if (random.one_in(20)) {
        memory.persist();
        memory.leave();
        memory.open();
        map = memory.map("a");
      }
      if (i == 40) memory.remove_map("b");
    }
    memory.persist();
  }
  const ExploreResult result = world.explore(sampled(), seed);
  EXPECT_GT(result.distinct, 1000u);
}

// A map that is removed in steps, among weak commits and a checkpoint.
TEST(KvCrash, OfAMapThatIsRemovedInSteps) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  {
    KvMemory memory(world);
    memory.open();
    const PageNumber kept = memory.map("kept");
    for (int round = 0; round < 2 && !::testing::Test::HasFatalFailure(); ++round) {
      const PageNumber map = memory.map("removed");
      for (int i = 0; i < 20; i += 4) {
        KvMemory::Writes writes;
        for (int j = i; j < i + 4; ++j) {
          writes.emplace_back(std::to_string(j * 7 % 20), std::string(j % 13 == 5 ? 5000 : 900, 'v'));
        }
        memory.commit({{map, writes}}, Durability::sync);
      }
      memory.commit({{kept, {{std::to_string(round), "before"}}}}, Durability::sync);
      if (round == 1) memory.checkpoint();
      EXPECT_GT(memory.remove_map_in_steps("removed", 1 + static_cast<std::uint64_t>(round)), 3);
      memory.commit({{kept, {{std::to_string(round), "after"}}}}, Durability::weak);
    }
    memory.persist();
  }
  ExploreOptions options = sampled();
  options.samples = scaled(6);
  const ExploreResult result = world.explore(options, seed);
  EXPECT_GT(result.distinct, 500u);
}

// A range that goes as subtrees, with the pages of long values, among weak commits and a checkpoint.
TEST(KvCrash, OfARangeThatIsRemovedInSteps) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  {
    KvMemory memory(world);
    memory.open();
    const PageNumber map = memory.map("map");
    for (int round = 0; round < 2 && !::testing::Test::HasFatalFailure(); ++round) {
      for (int i = 0; i < 24; i += 4) {
        KvMemory::Writes writes;
        for (int j = i; j < i + 4; ++j) {
          writes.emplace_back(std::string(700, 'k') + std::to_string(10 + j),
                              std::string(j % 13 == 5 ? 5000 : 400, 'v'));
        }
        memory.commit({{map, writes}}, Durability::weak);
      }
      if (round == 1) memory.checkpoint();
      const auto key = [](int number) { return std::string(700, 'k') + std::to_string(number); };
      EXPECT_GT(memory.remove_range_in_steps(map, key(12), key(31), 1 + static_cast<std::uint64_t>(round)), 3);
      memory.commit({{map, {{std::to_string(round), "after"}}}}, Durability::weak);
    }
    memory.persist();
  }
  ExploreOptions options = sampled();
  options.samples = scaled(2);
  const ExploreResult result = world.explore(options, seed);
  EXPECT_GT(result.distinct, 300u);
}

// Records that are appended, until the tree has two levels, with long values among them and weak commits between.
TEST(KvCrash, OfAppendedRecords) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  {
    KvMemory memory(world);
    memory.open();
    const PageNumber appended = memory.map("appended");
    const PageNumber other = memory.map("other");
    int records = 0;
    for (int step = 0; step < 12 && !::testing::Test::HasFatalFailure(); ++step) {
      const bool long_value = step == 5;
      const int count = long_value ? 1 : 9;
      memory.append(appended, records, count, std::string(long_value ? 6000 : 300, static_cast<char>('a' + step)));
      records += count;
      memory.commit({{other, {{std::to_string(step % 3), std::string(step, 'o')}}}}, Durability::weak);
      if (step == 7) memory.checkpoint();
    }
    memory.persist();
  }
  ExploreOptions options = sampled();
  options.samples = scaled(6);
  const ExploreResult result = world.explore(options, seed);
  EXPECT_GT(result.distinct, 200u);
}

// Long values in runs of pages: new ones, some that change in few bytes, where they lie or, beside a view, elsewhere,
// some that go, and whose pages are used again at once, among weak and sync commits, checkpoints and kills.
TEST(KvCrash, OfLongValues) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  Random random(seed);
  {
    KvMemory memory(world);
    memory.open();
    PageNumber map = memory.map("a");
    std::map<std::string, std::string> values;
    std::unique_ptr<Transaction> view;
    for (int i = 0; i < 40 && !::testing::Test::HasFatalFailure(); ++i) {
      KvMemory::Writes writes;
      const std::string key = std::to_string(random.below(5));
      std::string& value = values[key];
      const std::uint64_t what = random.below(4);
      if (what == 0 && !value.empty()) {
        values.erase(key);
        writes.emplace_back(key, std::nullopt);
      } else {
        if (what == 1 || value.empty()) {
          value.assign(1400 + random.below(6000), static_cast<char>('a' + i % 26));
        } else {
          for (int times = 0; times < 3; ++times) value[random.below(value.size())] = static_cast<char>('A' + i % 26);
        }
        writes.emplace_back(key, value);
      }
      memory.commit({{map, writes}}, random.one_in(4) ? Durability::sync : Durability::weak);
      if (random.one_in(5)) view = memory.view();
      if (random.one_in(7)) view = nullptr;
      if (random.one_in(8)) memory.checkpoint();
      if (random.one_in(25)) {
        memory.persist();
        view = nullptr;
        memory.leave();
        memory.open();
        map = memory.map("a");
      }
    }
    view = nullptr;
    memory.persist();
  }
  ExploreOptions options = sampled();
  options.samples = scaled(6);
  const ExploreResult result = world.explore(options, seed);
  EXPECT_GT(result.distinct, 500u);
}

// A store of few pages: short records of two maps change together and are written home every few commits, so that each
// operation of a checkpoint is cut beside commits that it does not hold yet.
TEST(KvCrash, OfShortRecordsAmongCheckpoints) {
  const std::uint64_t seed = seed_for_this_run();
  CrashWorld world(kv_options());
  Random random(seed);
  {
    KvMemory memory(world);
    memory.open();
    const PageNumber maps[] = {memory.map("a"), memory.map("b")};
    for (int i = 0; i < 800 && !::testing::Test::HasFatalFailure(); ++i) {
      KvMemory::Writes writes[2];
      for (std::uint64_t n = 1 + random.below(4); n-- > 0;) {
        const std::string key = "key" + std::to_string(random.below(24));
        const bool removes = random.one_in(4);
        writes[random.below(2)].emplace_back(key, removes
                                                      ? std::nullopt
                                                      : std::optional(std::string(random.below(60),
                                                                                  static_cast<char>('a' + i % 26))));
      }
      memory.commit({{maps[0], writes[0]}, {maps[1], writes[1]}},
                    random.one_in(3) ? Durability::sync : Durability::weak);
      if (random.one_in(4)) memory.checkpoint();
    }
    memory.persist();
  }
  ExploreOptions options = sampled();
  options.recovery_every = 8;
  const ExploreResult result = world.explore(options, seed);
  EXPECT_GT(result.distinct, 1000u);
}

}  // namespace
}  // namespace memlith::test
