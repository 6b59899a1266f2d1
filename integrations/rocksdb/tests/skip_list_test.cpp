// The skip list in a region (rocksdb/src/skip_list.hpp): it agrees with a map; transactions of several threads come
// back whole and in order after kills, as in MemSnap (ASPLOS 2024, section 7), and after a power cut at each operation
// of the disk; damage is an error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "power_cut.hpp"
#include "rocksdb/src/skip_list.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith_rocksdb::test {
namespace {

using memlith::Store;
using memlith::Ticket;
using memlith::test::KilledProcess;
using memlith::test::or_leave;
using memlith::test::SharedWithChildren;
using memlith::test::TempFolder;

constexpr std::uint64_t kSize = 1 << 20;

std::unique_ptr<SkipList> open_list(Store& store) { return or_leave(SkipList::open(store, "list", kSize), 3); }
Store open_store(const std::string& path) {
  return or_leave(Store::open(path, {.create = true, .log_bytes = 8 << 20, .io = memlith::Io::posix}), 4);
}

std::map<std::string, std::string> content_of(const SkipList& list) {
  std::map<std::string, std::string> content;
  std::string last;
  list.scan({}, [&](std::string_view key, std::string_view value) {
    EXPECT_TRUE(content.empty() || last < key);
    content.emplace(last = key, value);
    return true;
  });
  EXPECT_EQ(list.records(), content.size());
  return content;
}

std::string number_key(std::uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "key %06llu", static_cast<unsigned long long>(number));
  return text;
}

// Keys of one transaction, as the list wants them.
struct Keys {
  explicit Keys(std::set<std::string> some) : own(std::move(some)), views(own.begin(), own.end()) {}
  std::set<std::string> own;
  std::vector<std::string_view> views;
};

// Random transactions, of which a map makes the same.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {}
  void transact(SkipList::Writer& writer, Ticket& ticket) {
    std::set<std::string> some;
    for (std::uint64_t i = 1 + random_() % 12; i-- > 0;) some.insert(number_key(random_() % 300));
    const Keys keys(std::move(some));
    auto done = writer.transact(keys.views, [&](std::size_t place, std::optional<std::string>& value) {
      const std::string key(keys.views[place]);
      const auto known = content.find(key);
      ASSERT_EQ(value.has_value(), known != content.end()) << key;
      if (value) {
        ASSERT_EQ(*value, known->second) << key;
      }
      const std::uint64_t what = random_() % 4;
      if (what == 0) {
        value.reset();
        content.erase(key);
      } else {
        value.emplace(random_() % (what == 3 ? 6000 : 60), static_cast<char>('a' + random_() % 26));
        content[key] = *value;
      }
    });
    ASSERT_TRUE(done) << done.error().message();
    ticket = *done;
  }
  std::map<std::string, std::string> content;

 private:
  std::mt19937_64 random_;
};

TEST(SkipList, AgreesWithAMap) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const TempFolder folder;
  Model model(seed);
  for (int opening = 0; opening < 8; ++opening) {
    Store store = open_store(folder / "store");
    {
      const auto list = open_list(store);
      ASSERT_EQ(content_of(*list), model.content) << "opening " << opening;
      SkipList::Writer one(*list);
      SkipList::Writer other(*list);
      Ticket ticket = 0;
      for (int i = 0; i < 200; ++i) model.transact(i % 3 == 0 ? other : one, ticket);
      ASSERT_FALSE(HasFailure());
      ASSERT_TRUE(store.wait(ticket));
      ASSERT_EQ(content_of(*list), model.content);
      for (std::uint64_t i = 0; i < 300; ++i) {
        const auto seen = list->get(number_key(i));
        const auto known = model.content.find(number_key(i));
        ASSERT_EQ(seen.has_value(), known != model.content.end());
        if (seen) {
          ASSERT_EQ(*seen, known->second);
        }
      }
      std::string first;
      list->scan(number_key(150), [&](std::string_view key, std::string_view) { return first = key, false; });
      const auto known = model.content.lower_bound(number_key(150));
      ASSERT_EQ(first, known == model.content.end() ? "" : known->first);
    }
    ASSERT_TRUE(store.close());
  }
}

TEST(SkipList, KeysThatDoNotRiseChangeNothing) {
  const TempFolder folder;
  Store store = open_store(folder / "store");
  const auto list = open_list(store);
  SkipList::Writer writer(*list);
  const auto set = [](std::size_t, std::optional<std::string>& value) { value = "value"; };
  const std::vector<std::vector<std::string_view>> wrong{{"b", "a"}, {"a", "a"}, {"a", "c", "b"}};
  for (const auto& keys : wrong) {
    const auto done = writer.transact(keys, set);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().category(), MEMLITH_INVALID);
  }
  EXPECT_TRUE(content_of(*list).empty());
  const std::vector<std::string_view> keys{"a", "b", "c"};
  EXPECT_TRUE(writer.transact(keys, set));  // no lock was left behind
  EXPECT_EQ(list->records(), 3u);
}

TEST(SkipList, DamagedNodesAreErrors) {
  // Offsets of fields of the first node, which the root leads to, behind its header of 512 bytes.
  constexpr std::uint64_t kRoot = 512;
  struct Damage {
    std::uint64_t offset;
    std::uint64_t value;
  };
  const std::vector<Damage> all{
      {0, 0x12345},      {8, 0x10}, {8, ~std::uint64_t{0} << 4}, {16, 0xffff'ffff}, {20, 0xffff'ffff},
      {24, 0x7fff'ffff}, {28, 2}};
  for (const Damage damage : all) {
    const TempFolder folder;
    Store store = open_store(folder / "store");
    {
      const auto list = open_list(store);
      SkipList::Writer writer(*list);
      const Keys keys({"a", "b", "c"});
      const auto set = [](std::size_t, std::optional<std::string>& value) { value = "1"; };
      const auto done = writer.transact(keys.views, set);
      ASSERT_TRUE(done && store.wait(*done));
    }
    {
      auto region = store.region("list", {.tracker = memlith::Tracker::touched});
      ASSERT_TRUE(region) << region.error().message();
      char* first = nullptr;
      std::memcpy(&first, static_cast<char*>(region->address()) + kRoot, sizeof first);
      const std::size_t bytes = damage.offset < 16 ? 8 : 4;
      std::memcpy(first + damage.offset, &damage.value, bytes);
      ASSERT_TRUE(region->touch(first + damage.offset, bytes) && region->persist());
    }
    const auto list = SkipList::open(store, "list", kSize);
    ASSERT_FALSE(list) << damage.offset;
    EXPECT_EQ(list.error().category(), MEMLITH_CORRUPT) << damage.offset;
  }
}

// ---- threads, and kills --------------------------------------------------------------------------------------------

constexpr std::uint64_t kThreads = 20;
constexpr std::uint64_t kKeysPerTransaction = 100;
constexpr std::uint64_t kKeys = 20'000;  // few are there at first

// How many transactions each thread was told are durable, and how many it began.
struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
  std::array<std::atomic<std::uint64_t>, kThreads> begun;
};

std::string counter_of(std::uint64_t thread) { return "done " + number_key(thread); }
std::uint64_t count_in(const std::optional<std::string>& value) { return value ? std::stoull(*value) : 0; }

// Adds one to random keys, which are made at first, and counts the transaction in it.
void count_for_ever(Store& store, SkipList& list, Told& told, std::uint64_t thread, std::uint64_t seed) {
  std::mt19937_64 random(seed + thread);
  SkipList::Writer writer(list);
  for (;;) {
    std::set<std::string> some{counter_of(thread)};
    while (some.size() < kKeysPerTransaction + 1) some.insert(number_key(random() % kKeys));
    const Keys keys(std::move(some));
    const std::uint64_t pause_us = random() % 500;
    told.begun[thread].fetch_add(1);
    const auto ticket = writer.transact(keys.views, [&](std::size_t place, std::optional<std::string>& value) {
      // With half of its locks, it waits: others meet it.
      if (place == kKeysPerTransaction / 2) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      value = std::to_string(count_in(value) + 1);
    });
    if (!ticket || !store.wait(*ticket)) ::_exit(5);
    told.acknowledged[thread].fetch_add(1);
  }
}

void live(const std::string& path, Told& told, std::uint64_t seed) {
  Store store = open_store(path);
  const auto list = open_list(store);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { count_for_ever(store, *list, told, thread, seed); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SkipList, TransactionsOfThreadsComeBackWhole) {
  const TempFolder folder;
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, kThreads> before{};
  std::uint64_t transactions = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    const SharedWithChildren<Told> shared;
    const std::uint64_t of_the_child = random();
    KilledProcess child;
    child.start([&] { live(folder / "store", *shared, of_the_child); },
                [&] { return shared->acknowledged[round % kThreads] != 0; });
    child.kill_working(random() % 40'000);
    ASSERT_FALSE(HasFailure());

    Store store = open_store(folder / "store");
    {
      const auto list = open_list(store);
      std::uint64_t sum = 0;
      std::uint64_t done = 0;
      for (const auto& [key, value] : content_of(*list)) {
        if (!key.starts_with("done ")) sum += std::stoull(value);
      }
      for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
        const std::uint64_t now = count_in(list->get(counter_of(thread)));
        const std::uint64_t since = now - before[thread];
        EXPECT_GE(since, shared->acknowledged[thread].load()) << "an acknowledged transaction is lost: " << thread;
        EXPECT_LE(since, shared->begun[thread].load()) << thread;
        done += before[thread] = now;
      }
      EXPECT_EQ(sum, done * kKeysPerTransaction) << "a transaction came back in part; round " << round;
      transactions = done;
    }
    ASSERT_FALSE(HasFailure());
    ASSERT_TRUE(store.close());
  }
  std::printf("transactions %llu\n", static_cast<unsigned long long>(transactions));
  EXPECT_GE(transactions, 5u);
}

// ---- power cuts ----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kCutTransactions = 12;

// Transactions that are the same in every run, each of them durable before the next; `told` counts those that are.
void work_until_the_cut(const std::string& path, std::atomic<std::uint64_t>& told, std::uint64_t seed, int operations) {
  Store store = open_store(path);
  const auto list = open_list(store);
  SkipList::Writer writer(*list);
  Model model(seed);
  Ticket ticket = 0;
  operations_left.store(operations);
  for (std::uint64_t i = 0; i < kCutTransactions; ++i) {
    model.transact(writer, ticket);
    if (!store.wait(ticket)) ::_exit(6);
    told.fetch_add(1);
  }
  operations_left.store(-1);
}

TEST(SkipList, PowerCutsLeaveWholeTransactions) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  // The content of the list after each number of transactions.
  std::vector<std::map<std::string, std::string>> states;
  {
    const TempFolder folder;
    Store store = open_store(folder / "store");
    const auto list = open_list(store);
    SkipList::Writer writer(*list);
    Model model(seed);
    Ticket ticket = 0;
    states.push_back(model.content);
    for (std::uint64_t i = 0; i < kCutTransactions; ++i) {
      model.transact(writer, ticket);
      states.push_back(model.content);
    }
  }
  int cuts = 0;
  for (bool done = false; !done; ++cuts) {
    const TempFolder folder;
    {
      Store made = open_store(folder / "store");
      open_list(made);
    }
    const SharedWithChildren<std::atomic<std::uint64_t>> told;
    cut_seed = seed + static_cast<std::uint64_t>(cuts);
    KilledProcess child;
    child.start([&] { work_until_the_cut(folder / "store", *told, seed, cuts); });
    const int status = child.wait();
    ASSERT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7)) << status;
    done = WEXITSTATUS(status) == 0;

    Store store = open_store(folder / "store");
    const auto list = open_list(store);
    const auto content = content_of(*list);
    const std::uint64_t least = told->load();
    const bool fits = content == states[least] || (least < kCutTransactions && content == states[least + 1]);
    ASSERT_TRUE(fits) << "cut " << cuts << ": " << least << " transactions were acknowledged";
  }
  EXPECT_GE(cuts, static_cast<int>(kCutTransactions));  // each was a write at least
}

}  // namespace
}  // namespace memlith_rocksdb::test
