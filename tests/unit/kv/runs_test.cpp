// docs/kv.md, "What lies in the region": a long value lies in one piece, is read where it lies, and is changed there if
// no read-only transaction may look at it; freed pages are used again when none looks at them any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/random.hpp"
#include "kv/free_runs.hpp"
#include "kv_world.hpp"

namespace memlith::test::runs_test {
namespace {

using namespace core;
using kv::Durability;
using kv::FreeRuns;
using kv::PageNumber;
using kv::Transaction;

// ---- the free runs, against a list of pages ----------------------------------------------------------------------

// Runs are freed, read, taken from, joined and taken out, and the two agree which pages are free.
TEST(KvFreeRuns, AreWhatWasFreed) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    struct Listed {
      PageNumber page;
      std::uint32_t pages;
      kv::Stamp freed;
    };
    std::vector<Listed> list;  // in its order
    PageNumber end = 2;
    for (std::uint64_t i = random.below(12); i > 0; --i) {
      const auto pages = static_cast<std::uint32_t>(1 + random.below(5));
      list.push_back({end, pages, 1 + random.below(3)});
      end += pages + static_cast<PageNumber>(random.below(3));
    }
    std::shuffle(list.begin(), list.end(), std::mt19937(seed));
    std::size_t read = 0;
    FreeRuns runs;
    runs.begin(list.empty() ? 0 : list[0].page);
    kv::Stamp oldest = random.below(3);
    kv::Stamp now = 4;
    runs.use_up_to(oldest);
    const auto usable = [&](const Listed& each) { return each.freed <= oldest; };
    for (int step = 0; step < 60; ++step) {
      switch (random.below(6)) {
        case 0:
          if (runs.unread() == 0) break;
          ASSERT_EQ(runs.unread(), list[read].page);
          ASSERT_TRUE(runs.add_read(list[read].pages, read + 1 < list.size() ? list[read + 1].page : 0,
                                    list[read].freed));
          ++read;
          break;
        case 1: {
          const auto pages = static_cast<std::uint32_t>(1 + random.below(4));
          list.insert(list.begin(), {end, pages, ++now});
          runs.add_first(end, pages, now);
          end += pages;
          ++read;
          break;
        }
        case 2: runs.use_up_to(oldest = std::max(oldest, now - std::min<kv::Stamp>(now, random.below(3)))); break;
        case 3: {
          const std::uint64_t wanted = 1 + random.below(6);
          std::uint32_t shortest = 0;
          for (std::size_t i = 0; i < read; ++i) {
            if (usable(list[i]) && list[i].pages >= wanted && (shortest == 0 || list[i].pages < shortest)) {
              shortest = list[i].pages;
            }
          }
          const auto found = runs.fitting(wanted);
          ASSERT_EQ(found.has_value(), shortest != 0);
          if (!found.has_value()) break;
          const auto at =
              std::find_if(list.begin(), list.end(), [&](const Listed& each) { return each.page == *found; });
          ASSERT_EQ(at->pages, shortest);
          const auto& known = runs.at(*found);
          ASSERT_EQ(known.before, at == list.begin() ? 0 : std::prev(at)->page);
          ASSERT_EQ(known.next, std::next(at) == list.end() ? 0 : std::next(at)->page);
          if (at->pages > wanted) {
            at->pages -= static_cast<std::uint32_t>(wanted);
            runs.resize(*found, at->pages);
          } else {
            runs.remove(*found);
            list.erase(at);
            --read;
          }
          break;
        }
        default: {
          const auto pair = runs.next_pair();
          if (!pair.has_value()) break;
          const auto left =
              std::find_if(list.begin(), list.end(), [&](const Listed& each) { return each.page == *pair; });
          const auto right = std::find_if(list.begin(), list.end(),
                                          [&](const Listed& each) { return each.page == left->page + left->pages; });
          ASSERT_TRUE(left != list.end() && right != list.end() && usable(*left) && usable(*right));
          const std::uint32_t both = left->pages + right->pages;
          left->pages = both;
          runs.remove(right->page);
          runs.resize(left->page, both);
          list.erase(right);
          --read;
        }
      }
      std::uint64_t pages = 0;
      std::uint64_t of_usable = 0;
      for (std::size_t i = 0; i < read; ++i) {
        pages += list[i].pages;
        of_usable += usable(list[i]) ? list[i].pages : 0;
      }
      ASSERT_EQ(runs.pages(), pages);
      ASSERT_EQ(runs.usable_pages(), of_usable);
    }
  }
}

TEST(KvFreeRuns, ThatLieOverEachOtherAreRefused) {
  FreeRuns runs;
  runs.begin(10);
  EXPECT_TRUE(runs.add_read(5, 14, 1));
  EXPECT_FALSE(runs.add_read(1, 20, 1));
  runs.begin(14);
  EXPECT_TRUE(runs.add_read(1, 10, 1));
  EXPECT_FALSE(runs.add_read(5, 0, 1));
}

// ---- values ------------------------------------------------------------------------------------------------------

class KvRuns : public ::testing::Test {
 protected:
  std::unique_ptr<Transaction> begin(bool read_only) {
    auto made = std::make_unique<Transaction>(world_.kv(), read_only);
    EXPECT_OK(made->begin());
    return made;
  }
  Status try_put(const std::string& key, const std::string& value) {
    const auto transaction = begin(false);
    MEMLITH_TRY(transaction->put(map_, key, value));
    return transaction->commit(Durability::weak, nullptr).status();
  }
  void put(const std::string& key, const std::string& value) { ASSERT_OK(try_put(key, value)); }
  std::string_view get(Transaction& transaction, const std::string& key) {
    const auto found = must(transaction.get(map_, key));
    return found.value_or(std::string_view());
  }
  std::uint64_t logged() {
    EXPECT_OK(world_.kv().persist());
    return world_.kv().weak_commits().logged_bytes();
  }
  std::string any_value(Random& random) {
    static constexpr std::uint64_t kEdges[] = {1290, 1310, 4080, 4081, 8176, 8177, 16 * kPageBytes - 16};
    const std::uint64_t bytes = random.one_in(3) ? kEdges[random.below(7)] + random.below(3) - 1 : random.below(30'000);
    std::string value(bytes, 'v');
    for (std::uint64_t at = random.below(100); at < bytes; at += 1 + random.below(400)) {
      value[at] = static_cast<char>('a' + random.below(26));
    }
    return value;
  }

  KvWorld world_;
  kv::MapNumber map_ = world_.map();
};

// Long values of all lengths come, change in many or few bytes, and go, beside views that keep what they saw; in the
// end the pages that were used suffice for what there was at a time.
TEST_F(KvRuns, AreWhatTheModelHolds) {
  Random random(5);
  struct View {
    std::unique_ptr<Transaction> transaction;
    Records seen;
    std::map<std::string, std::string_view> lying;
  };
  Records model;
  std::vector<View> views;
  const auto look = [&](View& view) {
    for (const auto& [key, value] : view.lying) ASSERT_EQ(value, view.seen[key]) << key;
    ASSERT_TRUE(world_.content(*view.transaction, map_) == view.seen);
  };
  for (int round = 0; round < 1200 && !HasFatalFailure(); ++round) {
    const auto transaction = begin(false);
    Records changed = model;
    for (std::uint64_t n = 1 + random.below(4); n > 0; --n) {
      const std::string key = "key" + std::to_string(random.below(30));
      if (random.one_in(5)) {
        ASSERT_EQ(must(transaction->remove(map_, key)), changed.erase(key) == 1);
        continue;
      }
      std::string value = any_value(random);
      if (changed.contains(key) && !changed[key].empty() && random.one_in(2)) {
        value = changed[key];
        for (std::uint64_t times = random.below(30); times > 0; --times) value[random.below(value.size())] = 'x';
        if (random.one_in(4)) value.resize(value.size() - random.below(std::min<std::uint64_t>(value.size(), 5000)));
      }
      ASSERT_OK(transaction->put(map_, key, value));
      changed[key] = value;
    }
    if (random.one_in(8)) {
      transaction->abort();
    } else {
      ASSERT_OK(transaction->commit(Durability::weak, nullptr).status());
      model = changed;
    }
    if (random.one_in(6)) {
      View view{begin(true), model, {}};
      for (const auto& [key, value] : model) view.lying[key] = get(*view.transaction, key);
      views.push_back(std::move(view));
    }
    for (View& view : views) look(view);
    if (!views.empty() && random.one_in(5)) {
      views.erase(views.begin() + static_cast<std::ptrdiff_t>(random.below(views.size())));
    }
    if (round % 20 == 0) {
      ASSERT_OK(world_.kv().verify().status());
    }
    if (round % 250 == 249) {
      views.clear();
      ASSERT_OK(world_.kv().persist());
      world_.crash();
      map_ = world_.map();
      ASSERT_TRUE(world_.content(map_) == model);
    }
  }
  EXPECT_LT(world_.kv().header().pages, 4000u) << "what was freed is not used again";
}

// All ways to read in a read-only transaction give the bytes where they lie.
TEST_F(KvRuns, AreReadWhereTheyLie) {
  const std::string value(100'000, 'v');
  put("a", value);
  put("b", value);
  const auto reader = begin(true);
  const std::string_view found = get(*reader, "a");
  EXPECT_EQ(found, value);
  const kv::Words& words = world_.kv().pages().words;
  const auto* const at = reinterpret_cast<const std::byte*>(found.data());
  EXPECT_GE(at, words.bytes_of(0));
  EXPECT_LT(at, words.bytes_of(words.count()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 16, 0u);
  EXPECT_EQ(get(*reader, "a").data(), found.data());
  kv::Cursor cursor(*reader, map_);
  ASSERT_TRUE(must(cursor.first()));
  EXPECT_EQ(must(cursor.peek()).value.data(), found.data());
  EXPECT_EQ(must(cursor.current())->value.data(), found.data());
  ASSERT_OK(reader->for_each(map_, "", "b", [&](std::string_view, std::string_view seen) {
    EXPECT_EQ(seen.data(), found.data());
    return true;
  }));
  // One that writes keeps a copy: it may lose its locks.
  const auto writer = begin(false);
  const std::string_view copy = get(*writer, "a");
  EXPECT_EQ(copy, value);
  EXPECT_NE(copy.data(), found.data());
}

// A byte that changes costs some bytes of log; equal bytes cost none; other lengths change what has to.
TEST_F(KvRuns, AreChangedWhereTheyDiffer) {
  std::string value(1 * kMiB, 'v');
  put("key", value);
  const PageNumber pages = world_.kv().header().pages;
  std::uint64_t before = logged();
  value[500'000] = 'w';
  put("key", value);
  EXPECT_LT(logged() - before, 400u);
  before = logged();
  put("key", value);
  EXPECT_LT(logged() - before, 300u);
  before = logged();
  for (std::size_t at = 10'000; at < value.size(); at += 5000) value[at] = 'x';  // in more places than are told apart
  put("key", value);
  EXPECT_LT(logged() - before, kMiB + 4096);
  value.resize(900'000);
  before = logged();
  put("key", value);
  EXPECT_LT(logged() - before, 600u);
  EXPECT_EQ(get(*begin(true), "key"), value);
  EXPECT_EQ(world_.kv().header().pages, pages);
  EXPECT_OK(world_.kv().verify().status());
  EXPECT_EQ(must(world_.kv().verify()).overflow_pages, kv::pages_of_value(value.size()));
}

// As long as a view may look at a value, its pages stay what they are, also when the record is changed or removed; then
// they are used again.
TEST_F(KvRuns, StayAsLongAsAViewMayLook) {
  const auto value = [](char fill) { return std::string(20'000, fill); };
  put("changed", value('a'));
  put("removed", value('b'));
  auto reader = begin(true);
  const std::string_view changed = get(*reader, "changed");
  const std::string_view removed = get(*reader, "removed");
  const auto writer = begin(false);
  ASSERT_TRUE(must(writer->remove(map_, "removed")));
  ASSERT_OK(writer->commit(Durability::weak, nullptr).status());
  for (int i = 0; i < 50; ++i) {
    put("changed", value(static_cast<char>('A' + i % 26)));
    put("new" + std::to_string(i), value('n'));
  }
  EXPECT_EQ(changed, value('a'));
  EXPECT_EQ(removed, value('b'));
  EXPECT_EQ(get(*reader, "removed").data(), removed.data());
  const PageNumber pages = world_.kv().header().pages;
  reader = nullptr;
  for (int i = 0; i < 50; ++i) {
    put("changed", value(static_cast<char>('A' + i % 26)));
    const auto again = begin(true);  // each with a view of its own, which ends
    put("new" + std::to_string(i), value('m'));
  }
  EXPECT_LT(world_.kv().header().pages, pages + 30) << "what was freed is not used again";
  EXPECT_OK(world_.kv().verify().status());
}

// In a region that is full a value is overwritten by one that is not longer, unless a view may look at it.
TEST(KvFullRegion, TakesLongValuesInPlaceOfOthers) {
  RegionWorld regions(TrackerKind::touched);
  Region& region = regions.open("kv", 256 * kKiB, 256 * kKiB);
  const auto kv = must(kv::Kv::open(region, {.create = true, .window = {}, .manual = true}));
  const auto map = must(kv->open_map("map", true, false));
  const auto put = [&](const std::string& key, const std::string& value) {
    Transaction transaction(*kv, false);
    MEMLITH_TRY(transaction.begin());
    MEMLITH_TRY(transaction.put(map, key, value));
    return transaction.commit(Durability::weak, nullptr).status();
  };
  ASSERT_OK(put("a", std::string(100'000, 'a')));
  ASSERT_OK(put("b", std::string(100'000, 'b')));
  EXPECT_ERROR(Errc::no_space, put("c", std::string(100'000, 'c')));
  ASSERT_OK(put("a", std::string(100'000, 'd')));
  {
    Transaction reader(*kv, true);
    ASSERT_OK(reader.begin());
    const auto seen = must(reader.get(map, "a"));
    EXPECT_ERROR(Errc::no_space, put("a", std::string(100'000, 'e')));
    EXPECT_EQ(seen, std::string(100'000, 'd'));
    EXPECT_OK(kv->verify().status());
  }
  ASSERT_OK(put("a", std::string(45'000, 'f')));
  ASSERT_OK(put("c", std::string(45'000, 'g')));
  ASSERT_OK(put("b", "short"));
  ASSERT_OK(put("b", std::string(80'000, 'h')));
  EXPECT_OK(kv->verify().status());
  Transaction reader(*kv, true);
  ASSERT_OK(reader.begin());
  EXPECT_EQ(must(reader.get(map, "a")), std::string(45'000, 'f'));
  EXPECT_EQ(must(reader.get(map, "b")), std::string(80'000, 'h'));
}

}  // namespace
}  // namespace memlith::test::runs_test
