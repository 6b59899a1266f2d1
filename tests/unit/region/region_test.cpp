// docs/guarantees.md, "memlith_persist": what was stored before a persist that returned ok is there after a crash, all
// of it and nothing else; memory lies where it lay; an error loses nothing.
#include "region/region.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "region/address.hpp"
#include "support/region_words.hpp"
#include "support/sanitizers.hpp"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace memlith::test::region_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 256 * kKiB;

class RegionTest : public ::testing::TestWithParam<TrackerKind> {
 protected:
  RegionWorld world_{GetParam(), tiny_options()};
};
INSTANTIATE_TEST_SUITE_P(By, RegionTest,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// A new region is zeros, is tracked as asked, and keeps what was persisted over a crash; what was not is dropped.
TEST_P(RegionTest, PersistedStoresSurvive) {
  Region& region = world_.open("a", kSize);
  EXPECT_EQ(region.size(), kSize);
  EXPECT_EQ(get(region, 100), 0u);
  if (GetParam() != TrackerKind::scan || probe_scan().ok()) {
    EXPECT_EQ(region.tracker()->kind(), GetParam());
  }
  put(region, 100, 7);
  put(region, kSize - 8, 8);
  ASSERT_OK(persist(region));
  put(region, 200, 9);
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 100), 7u);
  EXPECT_EQ(get(again, kSize - 8), 8u);
  EXPECT_EQ(get(again, 200), 0u);
}

// Each store is captured once: re-stores again, what was captured not again, and nothing at all without stores.
TEST_P(RegionTest, CapturesEachStoreOnce) {
  Region& region = world_.open("a", kSize);
  // With scan a page may be captured as a whole the first time: overlayfs and tmpfs tell no home without waiting.
  put(region, 5 * kPageBytes, 9);
  ASSERT_OK(persist(region));
  const std::uint64_t frames = world_.frames();
  // Words that were told of, or changed; of scan's pages the bytes. Without WP_ASYNC scan works by faults.
  const TrackerKind kind = region.tracker()->kind();
  std::uint64_t captured = world_.captured();
  for (int round = 1; round <= 3; ++round) {
    put(region, 5 * kPageBytes, static_cast<std::uint64_t>(round));
    ASSERT_OK(persist(region));
    captured += kind != TrackerKind::scan ? 8 : 1;
    EXPECT_EQ(world_.captured(), captured);
    ASSERT_OK(persist(region));
    EXPECT_EQ(world_.captured(), captured) << "seen twice";
    EXPECT_EQ(world_.frames(), frames + static_cast<std::uint64_t>(round)) << "an empty persist wrote a frame";
  }
}

// A persist of one region carries nothing of another.
TEST_P(RegionTest, OtherRegionsAreNotCarried) {
  put(world_.open("a", kSize), 0, 1);
  put(world_.open("b", kSize), 0, 2);
  ASSERT_OK(persist(world_["a"]));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 1u);
  EXPECT_EQ(get(world_.open("b"), 0), 0u);
}

// Several regions in one persist are one frame; the same region named twice is one region.
TEST_P(RegionTest, SeveralRegionsInOne) {
  Region& a = world_.open("a", kSize);
  Region& b = world_.open("b", kSize);
  ASSERT_OK(persist(a, b));
  const std::uint64_t frames = world_.frames();
  put(a, 8, 1);
  put(b, 8, 2);
  Region* const list[] = {&b, &a, &b, &a};
  ASSERT_OK(Region::persist(list));
  EXPECT_EQ(world_.frames(), frames + 1);
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 8), 1u);
  EXPECT_EQ(get(world_.open("b"), 8), 2u);
}

// Regions of two stores cannot be persisted in one, and nothing is lost by asking.
TEST_P(RegionTest, StoresDoNotMix) {
  RegionWorld other(GetParam(), tiny_options());
  Region& a = world_.open("a", kSize);
  Region& b = other.open("b", kSize);
  put(a, 0, 1);
  put(b, 0, 2);
  EXPECT_ERROR(Errc::invalid, persist(a, b));
  EXPECT_OK(persist(a));
  EXPECT_OK(persist(b));
  other.crash();
  EXPECT_EQ(get(other.open("b"), 0), 2u);
}

// Regions of stores that were made apart hardly ever lie at the same addresses, so that the stores can be open in one
// process.
TEST(RegionAddress, StoresMadeApartCanBeOpenTogether) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer leaves programs a narrow range of addresses";
  if (host_address_bits() < 47) GTEST_SKIP() << "programs have few addresses here: " << host_address_bits() << " bits";
  constexpr std::uint64_t kCount = 100;
  std::vector<std::uint64_t> addresses;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    addresses.push_back(must(choose_addresses(kGiB, {})));
    release_addresses(addresses.back(), kGiB);
  }
  std::sort(addresses.begin(), addresses.end());
  int overlaps = 0;
  for (std::uint64_t i = 1; i < kCount; ++i) overlaps += addresses[i] - addresses[i - 1] < kGiB ? 1 : 0;
  EXPECT_LT(overlaps, 6) << "of " << kCount << " addresses";  // 0.2 are expected
}

// The address is the same after reopening, so pointers into the region work.
TEST_P(RegionTest, PointersStayValid) {
  struct Node {
    Node* next;
    std::uint64_t value;
  };
  Region& region = world_.open("a", kSize);
  const std::byte* const address = region.address();
  auto* nodes = reinterpret_cast<Node*>(region.address());
  for (std::uint64_t i = 0; i < 1000; ++i) nodes[i] = {i + 1 < 1000 ? &nodes[(i * 7 + 1) % 1000] : nullptr, i};
  ASSERT_OK(region.touch(nodes, 1000 * sizeof(Node)));
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  ASSERT_EQ(again.address(), address);
  const Node* node = reinterpret_cast<const Node*>(again.address());
  for (std::uint64_t i = 0; i + 1 < 1000; ++i) ASSERT_EQ(node[i].next->value, (i * 7 + 1) % 1000);
}

// Something else at a region's addresses: ADDRESS_TAKEN, what is there is untouched, and later it opens.
TEST_P(RegionTest, AddressTaken) {
  std::byte* const address = world_.open("a", kSize).address();
  put(world_["a"], 0, 5);
  ASSERT_OK(persist(world_["a"]));
  world_.close("a");
  void* const squatter = ::mmap(address + host_page_bytes(), host_page_bytes(), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(squatter, address + host_page_bytes());
  std::memset(squatter, 0x77, host_page_bytes());
  EXPECT_ERROR(Errc::address_taken, world_.try_open("a"));
  EXPECT_ERROR(Errc::address_taken, world_.try_open("b", kSize, 1 * kMiB, reinterpret_cast<std::uintptr_t>(address)));
  EXPECT_FALSE(world_.store().find("b").has_value());
  EXPECT_EQ(*static_cast<unsigned char*>(squatter), 0x77);
  ::munmap(squatter, host_page_bytes());
  EXPECT_EQ(get(world_.open("a"), 0), 5u);
}

// A region is not laid where a closed region of the same store lies: the two could never be open together.
TEST_P(RegionTest, AskedForAddressesDoNotOverlap) {
  const auto address = reinterpret_cast<std::uintptr_t>(world_.open("a", kSize, 1 * kMiB).address());
  world_.close("a");
  auto b = world_.try_open("b", kSize, 1 * kMiB, address + 512 * kKiB);
  EXPECT_FALSE(b.ok());
  EXPECT_FALSE(world_.store().find("b").has_value());
}

// Closed and opened again while its commits are in the log only, it shows what was committed and nothing later.
TEST_P(RegionTest, ReopensWithBytesThatAreOnlyInTheLog) {
  for (std::uint64_t round = 1; round <= 5; ++round) {
    Region& region = world_.open("a", kSize);
    EXPECT_EQ(get(region, 64), round - 1);
    put(region, 64, round);
    put(region, round * kPageBytes, round);
    ASSERT_OK(persist(region));
    put(region, 64, 999);
    EXPECT_GT(world_.store().log().used_bytes(), 0u);
    world_.close("a");
  }
  Region& region = world_.open("a");
  for (std::uint64_t round = 1; round <= 5; ++round) EXPECT_EQ(get(region, round * kPageBytes), round);
}

// Checkpoints change nothing in memory, stored or not stored.
TEST_P(RegionTest, CheckpointsDoNotDisturbMemory) {
  Region& region = world_.open("a", kSize);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    put(region, 0, i);
    if (i % 2 == 0) {
      ASSERT_OK(persist(region));
    }
    ASSERT_OK(world_.store().checkpoint());
    ASSERT_EQ(get(region, 0), i);
  }
  put(region, 0, 21);
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 20u);
}

// Growing is in place: old bytes and pointers stay, new bytes are zeros, both are persisted together.
TEST_P(RegionTest, Grows) {
  Region& region = world_.open("a", kSize, 1 * kMiB);
  std::byte* const address = region.address();
  put(region, 0, 1);
  ASSERT_OK(region.grow(2 * kSize));
  EXPECT_EQ(region.address(), address);
  EXPECT_EQ(region.size(), 2 * kSize);
  EXPECT_EQ(get(region, 2 * kSize - 8), 0u);
  put(region, kSize, 2);
  put(region, 2 * kSize - 8, 3);
  ASSERT_OK(persist(region));
  put(region, kSize + kPageBytes, 4);
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  ASSERT_EQ(again.size(), 2 * kSize);
  EXPECT_EQ(get(again, 0), 1u);
  EXPECT_EQ(get(again, kSize), 2u);
  EXPECT_EQ(get(again, 2 * kSize - 8), 3u);
  EXPECT_EQ(get(again, kSize + kPageBytes), 4u);
}

// A growth without a persist is lost in a crash, and what was stored there with it; a persist of the size alone keeps
// it.
TEST_P(RegionTest, UnpersistedGrowthIsLost) {
  ASSERT_OK(world_.open("a", kSize, 1 * kMiB).grow(2 * kSize));
  put(world_["a"], kSize, 7);
  world_.crash();
  Region& region = world_.open("a");
  ASSERT_EQ(region.size(), kSize);
  ASSERT_OK(region.grow(2 * kSize));
  EXPECT_EQ(get(region, kSize), 0u);
  ASSERT_OK(persist(region));
  world_.crash();
  EXPECT_EQ(world_.open("a").size(), 2 * kSize);
  EXPECT_EQ(get(world_["a"], kSize), 0u);
}

// Growing to less, or beyond max_size, is refused and changes nothing; to the same size it is nothing.
TEST_P(RegionTest, GrowthHasLimits) {
  Region& region = world_.open("a", kSize, 2 * kSize);
  EXPECT_ERROR(Errc::invalid, region.grow(kSize - kPageBytes));
  EXPECT_ERROR(Errc::invalid, region.grow(2 * kSize + 1));
  EXPECT_ERROR(Errc::invalid, region.grow(~0ull));
  EXPECT_OK(region.grow(kSize));
  EXPECT_EQ(region.size(), kSize);
  EXPECT_OK(region.grow(2 * kSize));
  put(region, 2 * kSize - 8, 1);
  EXPECT_OK(persist(region));
}

// Bytes to touch lie in the region, all of them.
TEST_P(RegionTest, TouchChecksItsRange) {
  Region& region = world_.open("a", kSize);
  const std::byte* const base = region.address();
  EXPECT_OK(region.touch(base, kSize));
  EXPECT_OK(region.touch(base + kSize, 0));
  EXPECT_ERROR(Errc::invalid, region.touch(base, kSize + 1));
  EXPECT_ERROR(Errc::invalid, region.touch(base + 8, ~0ull));
  EXPECT_ERROR(Errc::invalid, region.touch(base - 1, 1));
  EXPECT_ERROR(Errc::invalid, region.touch(nullptr, 1));
}

// Options that make no sense are refused with nothing created.
TEST_P(RegionTest, RefusesNonsense) {
  EXPECT_ERROR(Errc::not_found, world_.try_open("a"));
  EXPECT_ERROR(Errc::invalid, world_.try_open("", kSize));
  EXPECT_ERROR(Errc::invalid, world_.try_open(std::string(kNameBytesMax + 1, 'x'), kSize));
  EXPECT_ERROR(Errc::invalid, world_.try_open(std::string("a\0b", 3), kSize));
  EXPECT_ERROR(Errc::invalid, world_.try_open("a", kSize, kSize / 2));
  EXPECT_ERROR(Errc::invalid, world_.try_open("a", kSize, 0, 0x510000000001));
  EXPECT_ERROR(Errc::invalid, world_.try_open("a", ~0ull));
  RegionOptions options;
  options.create = true;
  EXPECT_ERROR(Errc::invalid, Region::open(world_.store(), "a", options)) << "a new region without a size";
  EXPECT_TRUE(world_.store().objects().empty());
  EXPECT_OK(world_.try_open(std::string(kNameBytesMax, 'x'), 1));
}

// A transaction larger than the log may grow is `full`: memory and tracking keep everything, and in parts it goes
// through.
TEST_P(RegionTest, FullLosesNothing) {
  Region& a = world_.open("a", kSize);
  Region& b = world_.open("b", kSize);
  for (std::uint64_t offset = 0; offset < 160 * kKiB; offset += 8) {
    put(a, offset, offset + 1);
    put(b, offset, offset + 2);
  }
  for (int round = 0; round < 3; ++round) EXPECT_ERROR(Errc::full, persist(a, b));
  put(world_.open("c", kSize), 0, 5);
  EXPECT_OK(persist(world_["c"]));
  EXPECT_OK(persist(a));
  EXPECT_OK(persist(b));
  world_.crash();
  EXPECT_EQ(get(world_.open("c"), 0), 5u);
  world_.open("a");
  world_.open("b");
  for (std::uint64_t offset = 0; offset < 160 * kKiB; offset += 8) {
    ASSERT_EQ(get(world_["a"], offset), offset + 1);
    ASSERT_EQ(get(world_["b"], offset), offset + 2);
  }
}

// A growth that was in a persist that failed with `full` is in the next one.
TEST_P(RegionTest, FullKeepsTheGrowth) {
  Region& a = world_.open("a", kPageBytes, 1 * kMiB);
  Region& b = world_.open("b", kSize);
  ASSERT_OK(a.grow(160 * kKiB));
  for (std::uint64_t offset = 0; offset < 160 * kKiB; offset += 8) {
    put(a, offset, 1);
    put(b, offset, 2);
  }
  EXPECT_ERROR(Errc::full, persist(a, b));
  EXPECT_OK(persist(a));
  world_.crash();
  EXPECT_EQ(world_.open("a").size(), 160 * kKiB);
  EXPECT_EQ(get(world_["a"], 160 * kKiB - 8), 1u);
  EXPECT_EQ(get(world_.open("b"), 0), 0u);
}

// Threads that store while persists run: after they are joined, one more persist has everything they ever stored.
TEST_P(RegionTest, ThreadsStoreWhilePersistsRun) {
  StoreOptions options = tiny_options();
  options.manual_checkpoint = false;
  options.log_bytes = options.log_max_bytes = 1 * kMiB;
  RegionWorld world(GetParam(), options);
  Region& region = world.open("a", kSize);
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kSlots = kSize / 64;  // a cache line each; every page is shared by all threads
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (std::uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
        put(region, (random.below(kSlots / kThreads) * kThreads + t) * 64, i);
      }
    });
  }
  for (int i = 0; i < 150; ++i) EXPECT_OK(persist(region, Scope::process));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(persist(region, Scope::process));
  const Bytes stored(region.address(), region.address() + kSize);
  world.crash();
  Region& again = world.open("a");
  EXPECT_EQ(std::memcmp(again.address(), stored.data(), kSize), 0);
}

// Threads that persist the same and different regions, one, several and in any order, do not lock each other out, and
// each finds its last store.
TEST_P(RegionTest, ThreadsPersistSideBySide) {
  Region& a = world_.open("a", kSize);
  Region& b = world_.open("b", kSize);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; i <= 50; ++i) {
        put(a, t * 64, i);
        put(b, t * 64, i);
        ASSERT_OK(t % 2 == 0 ? persist(a, b) : persist(b, a));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  world_.crash();
  world_.open("a");
  world_.open("b");
  for (std::uint64_t t = 0; t < 4; ++t) {
    EXPECT_EQ(get(world_["a"], t * 64), 50u);
    EXPECT_EQ(get(world_["b"], t * 64), 50u);
  }
}

// Pages that the kernel pushes out between persists come back with what was stored, and later stores to them are seen.
TEST_P(RegionTest, SurvivesMemoryPressure) {
  Region& region = world_.open("a", kSize);
  for (std::uint64_t round = 1; round <= 5; ++round) {
    put(region, 3 * kPageBytes, round);
    if (::madvise(region.address(), kSize, MADV_PAGEOUT) != 0) GTEST_SKIP() << "this kernel has no MADV_PAGEOUT";
    ASSERT_EQ(get(region, 3 * kPageBytes), round);
    ASSERT_OK(persist(region));
    ASSERT_OK(world_.store().checkpoint());
    ::madvise(region.address(), kSize, MADV_PAGEOUT);
    put(region, (10 + round) * kPageBytes, round);
    ASSERT_OK(persist(region));
  }
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 3 * kPageBytes), 5u);
  for (std::uint64_t round = 1; round <= 5; ++round) EXPECT_EQ(get(again, (10 + round) * kPageBytes), round);
}

// A thousand random steps against two arrays: what memory holds, and what was last persisted.
TEST_P(RegionTest, AgreesWithAModel) {
  Random random(GetParam() == TrackerKind::scan ? 1 : GetParam() == TrackerKind::touched ? 2 : 3);
  std::uint64_t size = 16 * kPageBytes;
  std::uint64_t persisted_size = size;
  world_.open("a", size, 1 * kMiB);
  std::map<std::uint64_t, std::uint64_t> memory;
  std::map<std::uint64_t, std::uint64_t> persisted;
  const auto check = [&] {
    for (std::uint64_t offset = 0; offset < size; offset += 512) {
      ASSERT_EQ(get(world_["a"], offset), memory.contains(offset) ? memory[offset] : 0) << offset;
    }
  };
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    const std::uint64_t what = random.below(100);
    if (what < 60) {
      const std::uint64_t offset = random.below(size / 512) * 512;
      put(world_["a"], offset, step);
      memory[offset] = step;
    } else if (what < 85) {
      ASSERT_OK(persist(world_["a"]));
      persisted = memory;
      persisted_size = size;
    } else if (what < 90) {
      ASSERT_OK(world_.store().checkpoint());
    } else if (what < 92 && size < 64 * kPageBytes) {
      size += kPageBytes * (1 + random.below(4));
      ASSERT_OK(world_["a"].grow(size));
    } else if (what == 92) {
      Region* const region = &world_["a"];
      ASSERT_OK(Region::rollback({&region, 1}, Scope::process));
      for (auto& [offset, value] : memory) value = persisted.contains(offset) ? persisted[offset] : 0;
      ASSERT_NO_FATAL_FAILURE(check()) << step;
    } else if (what == 93) {
      ASSERT_OK(world_["a"].release_clean());
      ASSERT_NO_FATAL_FAILURE(check()) << step;
    } else if (what > 96) {
      if (what < 98) {
        world_.crash();
      } else {
        world_.close("a");
      }
      world_.open("a");
      memory = persisted;
      size = persisted_size;
      ASSERT_EQ(world_["a"].size(), size) << step;
      ASSERT_NO_FATAL_FAILURE(check()) << step;
    }
  }
  check();
}

// A read-only store shows the persisted bytes at the same address, and refuses every change.
TEST_P(RegionTest, ReadOnlyRegions) {
  Region& region = world_.open("a", kSize);
  const std::byte* const address = region.address();
  put(region, 0, 1);
  ASSERT_OK(world_.store().checkpoint());
  put(region, kPageBytes, 2);
  ASSERT_OK(persist(region));
  world_.crash();
  const std::string folder = world_.folder().path();
  StoreOptions options = tiny_options();
  options.create = false;
  options.read_only = options.accept_copy = true;
  auto copy_volume = make_posix_volume(folder + "/copy");
  std::filesystem::copy(folder + "/store", folder + "/copy", std::filesystem::copy_options::recursive);
  auto store = must(Store::open(*copy_volume, options));
  auto readable = must(Region::open(*store, "a", {}));
  EXPECT_EQ(readable->address(), address);
  EXPECT_EQ(readable->tracker(), nullptr);
  EXPECT_EQ(get(*readable, kPageBytes), 2u);
  EXPECT_ERROR(Errc::read_only, persist(*readable));
  EXPECT_ERROR(Errc::read_only, readable->grow(2 * kSize));
  RegionOptions create;
  create.create = true;
  create.size_bytes = kSize;
  EXPECT_ERROR(Errc::read_only, Region::open(*store, "new", create));
}

// The kernel's own stores into a scanned region are seen: read(2) straight into it, onto fresh and onto clean pages.
TEST(ScanRegion, SeesSystemCalls) {
  if (!probe_scan().ok()) GTEST_SKIP() << last_error_text();
  RegionWorld world(TrackerKind::scan, tiny_options());
  Region& region = world.open("a", kSize);
  write_file(world.folder() / "input", std::string(3 * kPageBytes, 'r'));
  for (int round = 0; round < 2; ++round) {
    const int fd = ::open((world.folder() / "input").c_str(), O_RDONLY);
    ASSERT_EQ(::read(fd, region.address() + 100 + round, 3 * kPageBytes), static_cast<ssize_t>(3 * kPageBytes));
    ::close(fd);
    ASSERT_OK(persist(region));
  }
  world.crash();
  Region& again = world.open("a");
  EXPECT_EQ(again.address()[99], std::byte{0});
  EXPECT_EQ(again.address()[100], std::byte{'r'});
  EXPECT_EQ(again.address()[100 + 3 * kPageBytes], std::byte{'r'});
}

// With fault a system call into a clean page fails with EFAULT, as documented, and the region is none the worse.
TEST(FaultRegions, SystemCallsFail) {
  RegionWorld world(TrackerKind::fault, tiny_options());
  Region& region = world.open("a", kSize);
  const int fd = ::open("/dev/zero", O_RDONLY);
  EXPECT_EQ(::read(fd, region.address(), 100), -1);
  EXPECT_EQ(errno, EFAULT);
  put(region, 0, 1);
  EXPECT_EQ(::read(fd, region.address() + 8, 100), 100);
  ::close(fd);
  EXPECT_OK(persist(region));
}

// Its page numbers would not reach further.
TEST(FaultRegions, LargerThanItsPageNumbersAreRefused) {
  const AlignedBuffer page = must(AlignedBuffer::allocate(kPageBytes));
  const TrackedMemory memory{page.data(), kPageBytes, (1ull << 44) + kPageBytes};
  EXPECT_ERROR(Errc::unsupported, attach_tracker(TrackerKind::fault, memory).status());
}

// An explicit region persists touched bytes only, byte for byte.
TEST(ExplicitRegion, PersistsExactlyWhatWasTouched) {
  RegionWorld world(TrackerKind::touched, tiny_options());
  Region& region = world.open("a", kSize);
  std::memset(region.address(), 0xff, 100);
  ASSERT_OK(region.touch(region.address() + 10, 3));
  ASSERT_OK(persist(region));
  world.crash();
  Region& again = world.open("a");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(again.address()[i], i >= 10 && i < 13 ? std::byte{0xff} : std::byte{0}) << i;
}

// An explicit transaction that was too large can be followed by smaller ones elsewhere once it has gone through in a
// store with a larger limit... and here, where it never will, the rest of memory is still readable and the store
// closes.
TEST(ExplicitRegion, TooLargeForEverLeavesTheStoreUsable) {
  RegionWorld world(TrackerKind::touched, tiny_options());
  Region& large = world.open("large", 1 * kMiB);
  ASSERT_OK(large.touch(large.address(), 1 * kMiB));
  EXPECT_ERROR(Errc::full, persist(large));
  put(world.open("small", kPageBytes), 0, 1);
  EXPECT_OK(persist(world["small"]));
  world.close_store();
  world.open_store();
  EXPECT_EQ(get(world.open("small"), 0), 1u);
  EXPECT_EQ(get(world.open("large"), 0), 0u);
}

// Places that memlith chooses are free, apart from each other, and apart from those of closed objects.
TEST(Addresses, ChosenOnesAreFree) {
  std::vector<ObjectInfo> objects;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t address = must(choose_addresses(1 * kGiB, objects));
    for (const ObjectInfo& other : objects)
      EXPECT_TRUE(address + kGiB <= other.address || other.address + kGiB <= address);
    EXPECT_ERROR(Errc::address_taken, reserve_addresses(address + host_page_bytes(), host_page_bytes()));
    objects.push_back({ObjectId{1}, "", 0, address, 1 * kGiB});
    release_addresses(address, 1 * kGiB);
  }
  EXPECT_FALSE(choose_addresses(1ull << 47, {}).ok());
}

// On kernels of arm64 that give programs few addresses.
TEST(Addresses, ChosenOnesLieWithinFewBits) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers have these addresses";
  for (const unsigned bits : {39u, 42u}) {
    std::vector<ObjectInfo> objects;
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t address = must(choose_addresses(1 * kGiB, objects, bits));
      EXPECT_EQ((address + 1 * kGiB - 1) >> bits, 0u);
      objects.push_back({ObjectId{1}, "", 0, address, 1 * kGiB});
      release_addresses(address, 1 * kGiB);
    }
    EXPECT_ERROR(Errc::address_taken, choose_addresses(128 * kGiB, {}, bits).status());
    EXPECT_NE(last_error_text().find(std::to_string(bits) + " bits"), std::string_view::npos) << last_error_text();
  }
}

TEST(Addresses, OnesThatNoProgramHasAreRefused) {
  EXPECT_ERROR(Errc::unsupported, reserve_addresses(std::uint64_t{1} << 56, 1 * kGiB));
  const std::string_view text = last_error_text();
  EXPECT_NE(text.find(std::to_string(host_address_bits()) + " bits"), std::string_view::npos) << text;
  EXPECT_NE(text.find("has at least 57"), std::string_view::npos) << text;
}

}  // namespace
}  // namespace memlith::test::region_test
