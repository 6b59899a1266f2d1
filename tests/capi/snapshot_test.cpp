// memlith.h, "snapshots": a view of regions as one persist left them, which never changes, in this process and in its
// children.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "memlith/memlith.h"
#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::snapshot_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSize = 64 * kPage;

std::string last_error() {
  char text[1024];
  memlith_last_error(text, sizeof text);
  return text;
}

// A store whose checkpoints run when the test says so, and words for the 8 bytes at the start of a page.
class Snapshots : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override { open_store(0); }
  void TearDown() override { EXPECT_EQ(memlith_store_close(store_), 0) << last_error(); }

  void open_store(std::uint32_t flags) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = flags != 0 ? flags : std::uint32_t{MEMLITH_OPEN_CREATE};
    options.log_bytes = flags != 0 ? 0 : 1 << 20;
    options.manual_checkpoint = 1;
    ASSERT_EQ(memlith_store_open((folder_ / "store").c_str(), &options, &store_), 0) << last_error();
  }
  memlith_region* open(const char* name, std::uint64_t size = kSize, std::uint64_t address = 0) {
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = size != 0 ? MEMLITH_CREATE : 0;
    options.tracker = GetParam();
    options.size = size;
    options.address = address;
    memlith_region* region = nullptr;
    EXPECT_EQ(memlith_region_open(store_, name, &options, &region), 0) << last_error();
    return region;
  }
  static std::uint64_t* word(memlith_region* region, std::uint64_t page) {
    return reinterpret_cast<std::uint64_t*>(static_cast<char*>(memlith_region_address(region)) + page * kPage);
  }
  static void put(memlith_region* region, std::uint64_t page, std::uint64_t value) {
    *word(region, page) = value;
    EXPECT_EQ(memlith_touch(region, word(region, page), sizeof value), 0);
  }
  static void persist(const std::vector<memlith_region*>& regions) {
    ASSERT_EQ(memlith_persist(regions.data(), regions.size(), MEMLITH_SCOPE_PROCESS), 0) << last_error();
  }
  static memlith_snapshot* snapshot(const std::vector<memlith_region*>& regions) {
    memlith_snapshot* made = nullptr;
    EXPECT_EQ(memlith_region_snapshot(regions.data(), regions.size(), &made), 0) << last_error();
    return made;
  }
  static std::uint64_t seen(const memlith_snapshot* snapshot, std::uint64_t index, std::uint64_t page) {
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(memlith_snapshot_address(snapshot, index)) + page * kPage, 8);
    return value;
  }
  static int try_snapshot(const std::vector<memlith_region*>& regions) {
    memlith_snapshot* made = nullptr;
    const int code = memlith_region_snapshot(regions.data(), regions.size(), &made);
    EXPECT_EQ(made, nullptr);
    return memlith_category(code);
  }
  [[nodiscard]] bool poisoned() const {
    memlith_store_info info{};
    info.struct_size = sizeof info;
    return memlith_store_get_info(store_, &info) != 0 || info.poisoned != 0;
  }

  TempFolder folder_;
  memlith_store* store_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(By, Snapshots,
                         ::testing::Values(MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT),
                         [](const auto& given) {
                           return given.param == MEMLITH_TRACKER_SCAN    ? "Scan"
                                  : given.param == MEMLITH_TRACKER_FAULT ? "Fault"
                                                                         : "Explicit";
                         });

// Persisted bytes are in the snapshot, stores without a persist are not, and nothing later changes a byte of
// the snapshot.
TEST_P(Snapshots, ShowTheLastPersistForEver) {
  memlith_region* const a = open("a");
  for (std::uint64_t page = 0; page < 64; page += 3) put(a, page, page + 1);
  persist({a});
  put(a, 1, 77);  // not persisted
  memlith_snapshot* const made = snapshot({a});
  ASSERT_EQ(memlith_snapshot_size(made, 0), kSize);
  EXPECT_EQ(memlith_snapshot_ticket(made), memlith_store_durable(store_));
  const auto check = [&] {
    for (std::uint64_t page = 0; page < 64; ++page) {
      ASSERT_EQ(seen(made, 0, page), page % 3 == 0 ? page + 1 : 0) << page;
    }
  };
  check();
  for (std::uint64_t round = 1; round <= 5; ++round) {
    for (std::uint64_t page = 0; page < 64; ++page) put(a, page, 1000 * round + page);
    check();
    persist({a});
    check();
    ASSERT_EQ(memlith_store_checkpoint(store_), 0);
    check();
    ASSERT_EQ(memlith_region_release(a), 0);
    check();
  }
  memlith_snapshot* const later = snapshot({a});
  EXPECT_EQ(seen(later, 0, 9), 5009u);
  EXPECT_GT(memlith_snapshot_ticket(later), memlith_snapshot_ticket(made));
  memlith_snapshot_close(made);
  EXPECT_EQ(seen(later, 0, 9), 5009u);
  memlith_snapshot_close(later);
}

// The fault that snapshots are for: a child that reads what it inherited sees the parent's checkpoints page by page.
// Over a snapshot the two halves of the invariant are equal at every look, while the parent persists and checkpoints.
TEST_P(Snapshots, AChildSeesOneStateWhileTheParentGoesOn) {
  memlith_region* const a = open("a");
  memlith_region* const b = open("b");
  const auto round = [&](std::uint64_t value) {
    for (std::uint64_t page = 0; page < 64; ++page) {
      put(a, page, value);
      put(b, page, value);
    }
    persist({a, b});
  };
  round(1);
  // Lets the child inherit pages of the home files, and not private copies of the parent's.
  ASSERT_EQ(memlith_region_release(a), 0);
  ASSERT_EQ(memlith_region_release(b), 0);
  memlith_snapshot* const made = snapshot({a, b});
  {
    SecondProcess child([&](const SecondProcess::Side& test) -> std::string {
      for (int look = 0; look < 100; ++look) {
        if (!test.wait()) return "the test ended";
        for (std::uint64_t page = 0; page < 64; ++page) {
          if (seen(made, 0, page) != 1 || seen(made, 1, page) != 1) {
            return "look " + std::to_string(look) + ": page " + std::to_string(page) + " has changed";
          }
        }
        if (look < 99) test.tell();
      }
      return "";
    });
    for (std::uint64_t value = 2; value <= 100; ++value) {
      round(value);
      if (value % 3 == 0) {
        ASSERT_EQ(memlith_store_checkpoint(store_), 0);
      }
      ASSERT_TRUE(child.step());
    }
    EXPECT_TRUE(child.finish());
  }
  memlith_snapshot_close(made);
}

// Snapshots that are made while threads persist both regions together: in each the two are equal, and at or after what
// was acknowledged before the call. Other snapshots and checkpoints run at the same time.
TEST_P(Snapshots, ShowOnePersistBesideCommitters) {
  constexpr std::uint64_t kPages = 4096;  // so many that a checkpoint has time to run while they are copied
  memlith_region* const a = open("a", kPages * kPage);
  memlith_region* const b = open("b");
  for (std::uint64_t page = 0; page < kPages; ++page) put(a, page, 1);
  persist({a});
  std::atomic<std::uint64_t> acknowledged{0};
  std::atomic<bool> stop{false};
  std::thread committer([&] {
    for (std::uint64_t value = 2; !stop.load(); ++value) {
      for (std::uint64_t page = 0; page < 64; page += 7) {
        put(a, page, value);
        put(b, page, value);
      }
      persist({a, b});
      acknowledged.store(value);
    }
  });
  std::thread checkpointer([&] {
    while (!stop.load()) EXPECT_EQ(memlith_store_checkpoint(store_), 0);
  });
  while (acknowledged.load() == 0) std::this_thread::yield();
  std::uint64_t before = 0;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    const std::uint64_t least = acknowledged.load();
    memlith_snapshot* const made = snapshot({a, b, a});
    const std::uint64_t value = seen(made, 0, 0);
    EXPECT_GE(value, std::max(least, before));
    before = value;
    for (std::uint64_t page = 0; page < 64; page += 7) {
      EXPECT_EQ(seen(made, 0, page), value);
      EXPECT_EQ(seen(made, 1, page), value);
      EXPECT_EQ(seen(made, 2, page), value);
    }
    memlith_snapshot_close(made);
  }
  stop.store(true);
  committer.join();
  checkpointer.join();
}

// In a child the views can take the regions' places, so that pointers work; in the process that made them they cannot.
TEST_P(Snapshots, PlacedInAChildPointersWork) {
  memlith_region* const a = open("a");
  memlith_region* const b = open("b");
  put(b, 5, 55);
  put(a, 0, reinterpret_cast<std::uintptr_t>(word(b, 5)));
  persist({a, b});
  memlith_snapshot* const made = snapshot({a, b});
  EXPECT_EQ(memlith_category(memlith_snapshot_place(made)), MEMLITH_INVALID);
  put(b, 5, 66);
  persist({b});
  const auto follow = [&] { return **reinterpret_cast<std::uint64_t**>(word(a, 0)); };
  EXPECT_IN_CHILD([&]() -> std::string {
    if (follow() != 66) return "the child did not inherit the parent's memory";
    if (memlith_snapshot_place(made) != 0) return last_error();
    if (follow() != 55) return "the pointer leads elsewhere: " + std::to_string(follow());
    if (memlith_snapshot_place(made) != 0) return "again: " + last_error();
    memlith_snapshot_close(made);
    if (follow() != 55) return "what was placed went with the snapshot";
    if (memlith_category(memlith_persist(&a, 1, MEMLITH_SCOPE_PROCESS)) != MEMLITH_INVALID) return "a child persists";
    return "";
  });
  EXPECT_EQ(follow(), 66u);
  EXPECT_EQ(seen(made, 1, 5), 55u);
  memlith_snapshot_close(made);
  put(b, 6, 67);
  persist({b});
}

// A snapshot needs neither its regions nor its store. Where a closed region lay there may be something else, which a
// child keeps.
TEST_P(Snapshots, OutliveRegionsAndStore) {
  memlith_region* a = open("a");
  void* const at = memlith_region_address(a);
  put(a, 2, 7);
  persist({a});
  memlith_snapshot* const made = snapshot({a});
  ASSERT_EQ(memlith_region_close(a), 0);
  EXPECT_EQ(seen(made, 0, 2), 7u);
  ASSERT_EQ(memlith_store_close(store_), 0);
  store_ = nullptr;
  EXPECT_EQ(seen(made, 0, 2), 7u);
  const auto place = [&](bool taken) -> std::string {
    const int category = memlith_category(memlith_snapshot_place(made));
    if (category != (taken ? MEMLITH_ADDRESS_TAKEN : MEMLITH_OK)) return std::to_string(category) + last_error();
    const std::uint64_t found = static_cast<std::uint64_t*>(at)[2 * kPage / 8];
    return found == (taken ? 0 : 7) ? "" : "found " + std::to_string(found);
  };
  EXPECT_IN_CHILD([&] { return place(false); });
  ASSERT_EQ(::mmap(at, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), at);
  EXPECT_IN_CHILD([&] { return place(true); });
  ASSERT_EQ(::munmap(at, kSize), 0);
  open_store(0);
  a = open("a", 0);
  put(a, 2, 8);
  persist({a});
  EXPECT_EQ(seen(made, 0, 2), 7u);
  memlith_snapshot_close(made);
}

// The size is that of the persist, too: a growth that no persist has made durable is not in the snapshot.
TEST_P(Snapshots, HaveTheSizeOfThePersist) {
  memlith_region* const a = open("a", kPage);
  put(a, 0, 1);
  persist({a});
  ASSERT_EQ(memlith_region_grow(a, 3 * kPage), 0);
  put(a, 2, 3);
  memlith_snapshot* const small = snapshot({a});
  EXPECT_EQ(memlith_snapshot_size(small, 0), kPage);
  persist({a});
  memlith_snapshot* const large = snapshot({a});
  EXPECT_EQ(memlith_snapshot_size(small, 0), kPage);
  EXPECT_EQ(memlith_snapshot_size(large, 0), 3 * kPage);
  EXPECT_EQ(seen(large, 0, 2), 3u);
  EXPECT_EQ(memlith_snapshot_size(large, 1), 0u);
  EXPECT_EQ(memlith_snapshot_address(large, 1), nullptr);
  memlith_snapshot_close(small);
  memlith_snapshot_close(large);
}

// Snapshots of a store that is open read-only, with commits that are in its log only.
TEST_P(Snapshots, OfAReadOnlyStoreHaveWhatIsInTheLog) {
  memlith_region* a = open("a");
  put(a, 3, 33);
  persist({a});
  // A copy of the folder as a kill would leave it.
  const auto files = read_folder(folder_ / "store");
  ASSERT_EQ(memlith_store_close(store_), 0);
  write_folder(folder_ / "store", files);
  open_store(MEMLITH_OPEN_READ_ONLY | MEMLITH_OPEN_ACCEPT_COPY);
  a = open("a", 0);
  ASSERT_EQ(*word(a, 3), 33u);
  memlith_snapshot* const made = snapshot({a});
  EXPECT_EQ(seen(made, 0, 3), 33u);
  EXPECT_EQ(read_folder(folder_ / "store"), files);
  memlith_snapshot_close(made);
}

// Without descriptors or memory there is no snapshot, and that is all: the store goes on.
TEST_P(Snapshots, AFailedOneHarmsNothing) {
  memlith_region* const a = open("a", 8 << 20);
  put(a, 1, 1);
  persist({a});
  ASSERT_EQ(memlith_store_checkpoint(store_), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(try_snapshot({a}), MEMLITH_TOO_MANY_FILES);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  if (!kSanitized) {
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    const rlimit little{1 << 20, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
    EXPECT_EQ(try_snapshot({a}), MEMLITH_NO_MEMORY);
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  }
  EXPECT_FALSE(poisoned());
  put(a, 1, 2);
  persist({a});
  memlith_snapshot* const made = snapshot({a});
  EXPECT_EQ(seen(made, 0, 1), 2u);
  memlith_snapshot_close(made);
}

TEST_P(Snapshots, RefuseWhatMakesNoSense) {
  memlith_region* const a = open("a");
  EXPECT_EQ(try_snapshot({}), MEMLITH_INVALID);
  EXPECT_EQ(try_snapshot({nullptr}), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_region_snapshot(&a, 1, nullptr)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_snapshot_place(nullptr)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_snapshot_address(nullptr, 0), nullptr);
  EXPECT_EQ(memlith_snapshot_size(nullptr, 0), 0u);
  EXPECT_EQ(memlith_snapshot_ticket(nullptr), 0u);
  memlith_snapshot_close(nullptr);
  EXPECT_IN_CHILD([&]() -> std::string { return try_snapshot({a}) == MEMLITH_INVALID ? "" : last_error(); });
}

// memlith::Snapshot; and a one-file store, whose size is no multiple of a page.
TEST(SnapshotsInCpp, OfAFile) {
  const TempFolder folder;
  write_file(folder / "data", std::string(5003, 'x'));
  StoreOptions options;
  options.create = true;
  auto store = Store::open_file(folder / "data", options);
  ASSERT_TRUE(store) << store.error().message();
  auto region = store->region("file");
  ASSERT_TRUE(region) << region.error().message();
  auto* const bytes = static_cast<char*>(region->address());
  bytes[5002] = 'y';
  ASSERT_TRUE(region->persist());
  ASSERT_TRUE(region->grow(9000));
  auto one = region->snapshot();
  ASSERT_TRUE(one) << one.error().message();
  EXPECT_EQ(one->size(), 5003u);
  ASSERT_TRUE(region->persist());
  auto two = Store::snapshot({&*region, &*region});
  ASSERT_TRUE(two) << two.error().message();
  EXPECT_EQ(two->size(1), 9000u);
  EXPECT_GT(two->ticket(), one->ticket());
  const Snapshot kept = std::move(*one);
  ASSERT_TRUE(store->close());
  const std::string_view view(static_cast<const char*>(kept.address()), kept.size());
  EXPECT_EQ(view, std::string(5002, 'x') + 'y');
  EXPECT_FALSE(two->place());
}

}  // namespace
}  // namespace memlith::test::snapshot_test
