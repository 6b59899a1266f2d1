// store/collectors.hpp, INVARIANT one-order: commits of two kv stores and of a region, weak ones and others, are one
// sequence. A crash at any device operation leaves a prefix of it, byte for byte, that holds every commit acknowledged
// as durable.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "kv/kv.hpp"
#include "support/crash_world.hpp"
#include "support/region_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using kv::Durability;
using kv::Kv;
using kv::Transaction;

constexpr std::array<const char*, 3> kNames = {"b", "a", "counts"};  // the last has no kv store

class ThreeStructures {
 public:
  explicit ThreeStructures(CrashWorld& world) : world_(world) {}
  ~ThreeStructures() { leave(); }

  void open() {
    const bool fresh = !*world_.volume().exists("log");
    std::size_t commit = 0;
    if (fresh) commit = world_.started([](Content& content) { content.exists = true; });
    auto store = Store::open(world_.volume(), world_.options());
    ASSERT_TRUE(store.ok()) << last_error_text();
    store_ = std::move(*store);
    if (fresh) world_.acknowledged(commit);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      RegionOptions options;
      options.create = fresh;
      options.tracker = TrackerKind::touched;
      options.size_bytes = 8 * kPageBytes;
      options.reserve_bytes = 1 * kMiB;
      if (fresh) {
        commit = world_.started([name = kNames[i]](Content& c) { c.objects[name].resize(8 * kPageBytes); });
      }
      auto region = Region::open(*store_, kNames[i], options);
      ASSERT_TRUE(region.ok()) << last_error_text();
      if (fresh) world_.acknowledged(commit);
      regions_[i] = std::move(*region);
    }
    for (std::size_t i = 0; i < kvs_.size(); ++i) {
      change(i, true, [&] {
        auto made = Kv::open(*regions_[i], {true, {}, true});
        ASSERT_TRUE(made.ok()) << last_error_text();
        kvs_[i] = std::move(*made);
      });
      change(i, true, [&] {
        const auto opened = kvs_[i]->open_map("map", true, false);
        ASSERT_TRUE(opened.ok()) << last_error_text();
        maps_[i] = *opened;
      });
    }
  }
  // As a kill would.
  void leave() {
    for (auto& kv : kvs_) kv = nullptr;
    for (auto& region : regions_) region = nullptr;
    store_ = nullptr;
  }
  void checkpoint() { ASSERT_TRUE(store_->checkpoint().ok()) << last_error_text(); }
  void put(std::size_t which, const std::string& key, const std::string& value, Durability durability) {
    change(which, durability == Durability::sync, [&] {
      Transaction transaction(*kvs_[which], false);
      ASSERT_TRUE(transaction.begin().ok());
      ASSERT_TRUE(transaction.put(maps_[which], key, value).ok()) << last_error_text();
      ASSERT_TRUE(transaction.commit(durability, nullptr).ok()) << last_error_text();
    });
  }
  void count(std::uint64_t value, bool durable) {
    change(2, durable, [&] {
      test::put(*regions_[2], value % 8 * kPageBytes, value);
      Region* const one = regions_[2].get();
      const auto end = Region::capture({&one, 1}, Scope::process, durable);
      ASSERT_TRUE(end.ok()) << last_error_text();
      if (durable) {
        ASSERT_TRUE(store_->sync(*end).ok());
      }
    });
  }
  void persist(std::size_t which) {
    ASSERT_TRUE(kvs_[which]->persist().ok()) << last_error_text();
    world_.acknowledged(newest_[which]);
  }

 private:
  // The memory afterwards is the content that this commit leaves.
  template <class Act>
  void change(std::size_t which, bool durable, Act&& act) {
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    newest_[which] = world_.started([bytes, name = kNames[which]](Content& c) { c.objects[name] = *bytes; });
    act();
    bytes->assign(regions_[which]->address(), regions_[which]->address() + regions_[which]->size());
    if (durable) world_.acknowledged(newest_[which]);
  }

  CrashWorld& world_;
  std::unique_ptr<Store> store_;
  std::array<std::unique_ptr<Region>, 3> regions_;
  std::array<std::unique_ptr<Kv>, 2> kvs_;
  std::array<kv::MapNumber, 2> maps_{};
  std::array<std::size_t, 3> newest_{};
};

TEST(OneOrder, LeavesAPrefixOfTheCommitsOfAllStructures) {
  const std::uint64_t seed = seed_for_this_run();
  StoreOptions options = small_store_options();
  options.log_max_bytes = 64 * options.slot_bytes;
  CrashWorld world(options);
  Random random(seed);
  {
    ThreeStructures all(world);
    all.open();
    for (std::uint64_t i = 1; i <= 160 && !::testing::Test::HasFatalFailure(); ++i) {
      const std::uint64_t which = random.below(3);
      const bool durable = random.one_in(8);
      if (which == 2) {
        all.count(i, durable);
      } else {
        all.put(which, "key" + std::to_string(random.below(20)),
                std::string(random.below(200), static_cast<char>('a' + i % 26)),
                durable ? Durability::sync : Durability::weak);
      }
      if (random.one_in(20)) all.persist(random.below(2));
      if (random.one_in(25)) all.checkpoint();
      if (random.one_in(40)) {
        all.count(i, true);
        all.leave();
        all.open();
      }
    }
    all.count(1, true);
  }
  ExploreOptions explored;
  explored.exhaustive_items_max = 6;
  explored.samples = scaled(24);
  explored.recovery_every = 16;
  const ExploreResult result = world.explore(explored, seed);
  EXPECT_GT(result.distinct, 500u);
}

}  // namespace
}  // namespace memlith::test
