// docs/how-to/sizing.md: a region of twice the memory that a control group allows can be filled, persisted, read and
// reopened with `memory_max_bytes`, and a kv store filled, read and recovered without it. A transaction that the group
// cannot hold is refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "support/process_memory.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::memory_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLimit = 128 * kMiB;  // of the group
constexpr std::uint64_t kSize = 256 * kMiB;
constexpr std::uint64_t kStep = 2 * kMiB;

// A group of our own with a limit and no swap, in whichever hierarchy has memory control. Empty where there is none to
// be had.
class Group {
 public:
  Group() {
    const std::string name = "/memlith-test-" + std::to_string(::getpid());
    for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      if (::access(root, F_OK) != 0) continue;
      const bool v1 = ::access((std::string(root) + "/memory.limit_in_bytes").c_str(), F_OK) == 0;
      if (!v1) write_to(std::string(root) + "/cgroup.subtree_control", "+memory");
      const std::string path = root + name;
      if (::mkdir(path.c_str(), 0755) != 0) continue;
      if (write_to(path + (v1 ? "/memory.limit_in_bytes" : "/memory.max"), std::to_string(kLimit))) {
        path_ = path;
        return;
      }
      ::rmdir(path.c_str());
    }
  }
  ~Group() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  [[nodiscard]] bool ok() const { return !path_.empty(); }
  [[nodiscard]] bool enter() const { return write_to(path_ + "/cgroup.procs", std::to_string(::getpid())); }

 private:
  static bool write_to(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    return static_cast<bool>(file.flush());
  }
  std::string path_;
};

std::uint64_t word(std::uint64_t page, std::uint64_t round) { return page * 1000 + round; }

// Fills, reads back, changes every page again, reopens, reads. Returns 0 or the number of the step that failed.
int live(const std::string& path, Tracker tracker) {
  StoreOptions options;
  options.create = true;
  options.log_bytes = 16 * kMiB;
  options.memory_max_bytes = 32 * kMiB;
  for (std::uint64_t round = 1; round <= 2; ++round) {
    auto store = Store::open(path, options);
    if (!store) return 1;
    auto region = store->region("large", {.create = true, .tracker = tracker, .size = kSize});
    if (!region) return 2;
    auto* const bytes = static_cast<char*>(region->address());
    const auto at = [bytes](std::uint64_t page) { return reinterpret_cast<std::uint64_t*>(bytes + page * 4096); };
    for (std::uint64_t page = 0; page < kSize / 4096; ++page) {
      if (round == 2 && *at(page) != word(page, 1)) return 3;
      for (std::uint64_t i = 0; i < 512; ++i) at(page)[i] = word(page, round);
      if ((page + 1) * 4096 % kStep == 0 && !region->persist(Scope::process)) return 4;
    }
    for (std::uint64_t page = 0; page < kSize / 4096; ++page) {
      if (*at(page) != word(page, round) || at(page)[511] != word(page, round)) return 5;
    }
    if (!store->close()) return 6;
  }
  return 0;
}

// The same of a kv store that was told nothing.
int live_by_default(const std::string& path) {
  auto store = Store::open(path, {.create = true});
  if (!store) return 1;
  auto kv = Kv::open(*store, "records", {.create = true, .max_size = 1024 * kMiB});
  if (!kv) return 2;
  const auto map = kv->map("m", {.create = true});
  if (!map) return 3;
  const auto key = [](std::uint64_t record) { return std::to_string(1'000'000 + record * 7919 % 200'000); };
  constexpr std::uint64_t kRecords = 160'000;
  for (std::uint64_t record = 0; record < kRecords;) {
    const auto done = kv->transact(
        [&](KvTransaction& txn) -> Result<void> {
          for (int i = 0; i < 100; ++i, ++record) {
            if (auto put = txn.put(*map, key(record), key(record) + std::string(1000, 'v')); !put) return put;
          }
          return {};
        },
        Durability::weak);
    if (!done) return 4;
  }
  {
    auto txn = kv->begin();
    for (std::uint64_t record = 0; record < kRecords; record += 1000) {
      const auto found = txn->get(*map, key(record));
      if (!found || !found->starts_with(key(record))) return 5;
    }
  }
  if (!kv->close()) return 6;
  return store->close() ? 0 : 7;
}

class Memory : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, Memory, ::testing::Values(Tracker::scan, Tracker::fault),
                         [](const auto& given) { return given.param == Tracker::scan ? "Scan" : "Fault"; });

// `before` is called outside of the group.
void live_in_group(const auto& live_there, const std::function<void(const std::string& path)>& before = {}) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own memory does not fit the limit";
  const Group group;
  if (!group.ok()) GTEST_SKIP() << "no control group can be made here (it takes root)";
  const TempFolder folder;
  if (before) before(folder / "store");
  if (::testing::Test::HasFatalFailure()) return;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!group.enter()) ::_exit(77);
    ::_exit(live_there(folder / "store"));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the group cannot be entered";
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status) << " (out of memory?)";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(Memory, ARegionOfTwiceTheLimit) {
  live_in_group([](const std::string& path) { return live(path, GetParam()); });
}

TEST(MemoryByDefault, AKvStoreOfTwiceTheLimit) { live_in_group(live_by_default); }

// A kv store of its own, with a map. Steps are numbered; 0 is a success.
struct Shop {
  explicit Shop(const std::string& path, std::uint64_t log_bytes = 0)
      : store(Store::open(path, {.create = true, .log_bytes = log_bytes})) {
    if (!store) return;
    kv.emplace(Kv::open(*store, "records", {.create = true, .max_size = 1024 * kMiB}));
    if (!*kv) return;
    const auto made = (*kv)->map("m", {.create = true});
    if (!made) return;
    map = *made;
    ok = true;
  }
  static std::string key(std::uint64_t record) { return std::to_string(1'000'000 + record * 7919 % 1'000'003); }
  // In transactions of 100 records.
  bool fill(std::uint64_t records, std::uint64_t value_bytes) {
    for (std::uint64_t record = 0; record < records;) {
      const auto done = (*kv)->transact(
          [&](KvTransaction& txn) -> Result<void> {
            for (int i = 0; i < 100; ++i, ++record) {
              if (auto put = txn.put(map, key(record), std::string(value_bytes, 'f')); !put) return put;
            }
            return {};
          },
          Durability::weak);
      if (!done) return false;
    }
    return true;
  }
  [[nodiscard]] std::string value(const std::string& of) {
    auto txn = (*kv)->begin({.read_only = true});
    const auto found = txn->get(map, of);
    return found ? std::string(*found) : "";
  }
  [[nodiscard]] bool close() { return (*kv)->close() && store->close(); }

  Result<Store> store;
  std::optional<Result<Kv>> kv;
  KvMap map = 0;
  bool ok = false;
};

bool tells_of_memory(const Error& error) {
  return error.category() == MEMLITH_FULL && error.message().find("bytes of memory") != std::string::npos;
}

// The transaction commits without the refused record, and its checkpoint has room, too.
int put_too_much(const std::string& path) {
  Shop shop(path);
  if (!shop.ok || !shop.fill(30'000, 1000)) return 1;
  for (const std::uint64_t value_bytes : {100u, 1000u, 1'000'000u}) {
    std::uint64_t records = 0;
    const auto key = [&records, value_bytes] { return std::to_string(value_bytes) + ":" + Shop::key(records); };
    auto txn = (*shop.kv)->begin();
    if (!txn) return 2;
    for (;; ++records) {
      const auto put = txn->put(shop.map, key(), std::string(value_bytes, 'v'));
      if (put) continue;
      if (!tells_of_memory(put.error())) return 3;
      if (records * value_bytes < kMiB) return 4;
      for (int again = 0; again < 200; ++again) {  // which takes no memory
        if (txn->put(shop.map, key(), std::string(value_bytes, 'v'))) return 5;
      }
      break;
    }
    if (!txn->commit()) return 6;
    if (!shop.store->checkpoint()) return 7;
    if (!shop.value(key()).empty()) return 8;
    --records;
    if (shop.value(key()) != std::string(value_bytes, 'v')) return 9;
  }
  return shop.close() ? 0 : 10;
}
TEST(MemoryByDefault, ATransactionThatIsTooLargeIsRefused) { live_in_group(put_too_much); }

// A few bytes in each of many pages, which the commit finds.
int change_too_many_pages(const std::string& path) {
  Shop shop(path);
  constexpr std::uint64_t kRecords = 60'000;
  if (!shop.ok || !shop.fill(kRecords, 1000)) return 1;
  {
    auto txn = (*shop.kv)->begin();
    if (!txn) return 2;
    for (std::uint64_t record = 0; record < kRecords; record += 4) {
      if (!txn->put(shop.map, Shop::key(record), "short")) return 3;
    }
    const auto done = txn->commit();
    if (done || !tells_of_memory(done.error())) return 4;
  }
  for (std::uint64_t record = 0; record < kRecords; record += 1000) {
    if (shop.value(Shop::key(record)) != std::string(1000, 'f')) return 5;
  }
  if (!(*shop.kv)->verify()) return 6;
  if (!(*shop.kv)->transact([&](KvTransaction& next) { return next.put(shop.map, Shop::key(0), "short"); })) return 7;
  if (shop.value(Shop::key(0)) != "short") return 8;
  return shop.close() ? 0 : 9;
}
TEST(MemoryByDefault, ACommitOfTooManyPagesIsUndone) { live_in_group(change_too_many_pages); }

// A log of more than the group allows, which a killed process has left that had more memory.
TEST(MemoryByDefault, ALargeLogIsRecovered) {
  live_in_group(
      [](const std::string& path) {
        Shop shop(path);
        return shop.ok && shop.value(Shop::key(79'999)) == std::string(2000, 'f') && shop.close() ? 0 : 1;
      },
      [](const std::string& path) {
        const pid_t child = ::fork();
        if (child == 0) {
          Shop shop(path, 3 * kLimit);  // a checkpoint comes when half of that is used
          const bool filled = shop.ok && shop.fill(80'000, 2000) && (*shop.kv)->persist();
          ::_exit(filled ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
      });
}

// The flags of the largest mapping of a file of the store, as proc(5) names them.
std::string flags_of_largest(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t most = 0;
  bool is_largest = false;
  std::string flags;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
      is_largest = line.find(path) != std::string::npos && to - from > most;
      if (is_largest) most = to - from;
    } else if (is_largest && line.starts_with("VmFlags:")) {
      flags = line + " ";
    }
  }
  return flags;
}

// The kernel would read up to the device's read-ahead around each page that a key leads to.
TEST(MemoryByDefault, AKvStoreReadsNoPageAheadWhereMemoryIsShort) {
  live_in_group(
      [](const std::string& path) {
        Shop shop(path);
        if (!shop.ok || flags_of_largest(path).find(" rr ") == std::string::npos) return 1;
        if (shop.value(Shop::key(59'999)) != std::string(2000, 'f')) return 2;
        return shop.close() ? 0 : 3;
      },
      [](const std::string& path) {
        Shop filled(path);
        ASSERT_TRUE(filled.ok && filled.fill(60'000, 2000) && filled.close());
        Shop shop(path);
        ASSERT_TRUE(shop.ok);
        const std::string flags = flags_of_largest(path);
        EXPECT_NE(flags, "");
        EXPECT_EQ(flags.find(" rr "), std::string::npos) << "memory has room: " << flags;
        ASSERT_TRUE(shop.close());
      });
}

// A page stands in memory whole, however little of it was stored to: the budget counts pages, not the bytes that were
// logged.
TEST_P(Memory, SmallStoresUseTheBudgetUp) {
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  options.memory_max_bytes = kMiB;
  auto store = Store::open(folder / "store", options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto region = store->region("a", {.create = true, .tracker = GetParam(), .size = 8 * kMiB});
  ASSERT_TRUE(region.ok()) << region.error().message();
  auto* const bytes = static_cast<unsigned char*>(region->address());
  const auto before = store->info().checkpoints;
  for (std::uint64_t page = 0; page < 1024; ++page) {  // 4 MiB of pages
    bytes[page * 4096] = 1;
    if (page % 16 == 15) {
      ASSERT_TRUE(region->persist(Scope::process).ok());
    }
  }
  EXPECT_GE(store->info().checkpoints - before, 4u);
  EXPECT_EQ(store->info().memory_error, 0);
}

// Pages that were stored to and set back before the persist stand in memory like others, though nothing of them is
// logged.
TEST_P(Memory, PagesThatWereSetBackUseTheBudgetUp) {
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  options.memory_max_bytes = kMiB;
  auto store = Store::open(folder / "store", options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto region = store->region("a", {.create = true, .tracker = GetParam(), .size = 8 * kMiB});
  ASSERT_TRUE(region.ok()) << region.error().message();
  auto* const bytes = static_cast<volatile unsigned char*>(region->address());
  for (std::uint64_t page = 0; page < 2048; ++page) {
    bytes[page * 4096] = 1;
    bytes[page * 4096] = 0;
    if (page % 16 == 15) {
      ASSERT_TRUE(region->persist(Scope::process).ok());
    }
  }
  EXPECT_LT(own_pages(region->address(), 8 * kMiB), 512u) << "of 4 KiB, and a budget of 1 MiB";
  for (std::uint64_t page = 0; page < 2048; ++page) {
    bytes[page * 4096] = 1;
    if (page % 16 == 15) {
      ASSERT_TRUE(region->rollback(Scope::process).ok());
    }
  }
  EXPECT_LT(own_pages(region->address(), 8 * kMiB), 512u) << "rolled back";
}

// A region whose memory cannot be given back does not keep that of the others.
TEST(MemoryOfSeveral, OneThatCannotBeReleasedIsTold) {
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  options.memory_max_bytes = kMiB;
  auto store = Store::open(folder / "store", options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto holed = store->region("a", {.create = true, .tracker = Tracker::fault, .size = kMiB});
  auto region = store->region("b", {.create = true, .tracker = Tracker::fault, .size = 8 * kMiB});
  ASSERT_TRUE(holed.ok() && region.ok());
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  ASSERT_EQ(::munmap(static_cast<char*>(holed->address()) + page_bytes, page_bytes), 0);
  for (std::uint64_t page = 0; page < 2048; ++page) {
    static_cast<unsigned char*>(region->address())[page * 4096] = 1;
    if (page % 16 == 15) {
      ASSERT_TRUE(region->persist(Scope::process).ok());
    }
  }
  EXPECT_EQ(memlith_category(store->info().memory_error), MEMLITH_NO_MEMORY);
  EXPECT_LT(own_pages(region->address(), 8 * kMiB), 512u) << "of 4 KiB, and a budget of 1 MiB";
}

// A persist that is durable says so, although the checkpoint that the budget then asks for fails; that is said
// elsewhere.
TEST_P(Memory, AFailedCheckpointOfTheBudgetIsNotThePersists) {
  const TempFolder folder;
  const std::string home = folder / "store/objects/1";
  constexpr std::uint64_t kBudget = 256 * 1024;
  int removed = -1;
  {
    StoreOptions options;
    options.create = true;
    options.memory_max_bytes = kBudget;
    auto store = Store::open(folder / "store", options);
    ASSERT_TRUE(store.ok()) << store.error().message();
    auto region = store->region("a", {.create = true, .tracker = GetParam(), .size = kMiB});
    ASSERT_TRUE(region.ok()) << region.error().message();
    auto* const words = static_cast<std::uint64_t*>(region->address());
    words[0] = 1;
    ASSERT_TRUE(region->persist(Scope::process).ok());
    EXPECT_EQ(store->info().memory_error, 0);
    removed = ::open(home.c_str(), O_RDONLY | O_CLOEXEC);
    std::filesystem::remove(home);  // mapped as before; a checkpoint finds that it is removed
    for (std::uint64_t i = 0; i < kBudget / sizeof *words; ++i) words[i] = i + 2;
    const auto persisted = region->persist(Scope::process);
    EXPECT_TRUE(persisted.ok()) << persisted.error().message();
    EXPECT_EQ(memlith_category(store->info().memory_error), MEMLITH_CORRUPT);
    EXPECT_EQ(store->info().poisoned, 1u);
    words[0] = 9;
    EXPECT_FALSE(region->persist(Scope::process).ok());
  }
  ASSERT_GE(removed, 0);
  std::filesystem::copy_file("/proc/self/fd/" + std::to_string(removed), home);
  ::close(removed);
  auto store = Store::open(folder / "store", {});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto region = store->region("a", {.tracker = GetParam()});
  ASSERT_TRUE(region.ok()) << region.error().message();
  const auto* const words = static_cast<const std::uint64_t*>(region->address());
  for (std::uint64_t i = 0; i < kBudget / sizeof *words; ++i) ASSERT_EQ(words[i], i + 2);
}

}  // namespace
}  // namespace memlith::test::memory_test
