// docs/how-to/sizing.md: a region of twice the memory that a control group allows can be filled, persisted, read and
// reopened with `memory_max_bytes`, and a kv store filled and read without it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

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

void live_in_group(const auto& live_there) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own memory does not fit the limit";
  const Group group;
  if (!group.ok()) GTEST_SKIP() << "no control group can be made here (it takes root)";
  const TempFolder folder;
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
