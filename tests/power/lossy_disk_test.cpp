// The lossy disk itself (docs/testing.md, "power"): what it may lose, and what it must not. A rig whose disk kept
// everything would pass every test.
#include "power/lossy_disk.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>

#include "power/frontend.hpp"

namespace memlith::power {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;

class LossyDiskTest : public ::testing::Test {
 protected:
  LossyDiskTest() : image_(::memfd_create("image", 0)) {
    EXPECT_GE(image_, 0);
    EXPECT_EQ(::ftruncate(image_, kBytes), 0);
  }
  ~LossyDiskTest() override { ::close(image_); }

  static void put(LossyDisk& disk, std::uint64_t sector, std::uint64_t sectors, char letter, bool durable = false) {
    const std::string text(sectors * kSectorBytes, letter);
    disk.write(sector * kSectorBytes, std::as_bytes(std::span(text)), durable);
  }
  // One letter a sector, '.' for zeros, '?' for a sector that is none of ours.
  [[nodiscard]] std::string image(std::uint64_t sectors) const {
    std::string bytes(sectors * kSectorBytes, '\0');
    EXPECT_EQ(::pread(image_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    std::string letters;
    for (std::uint64_t sector = 0; sector < sectors; ++sector) {
      const std::string_view one(bytes.data() + sector * kSectorBytes, kSectorBytes);
      const bool uniform = one.find_first_not_of(one[0]) == std::string_view::npos;
      letters += !uniform ? '?' : one[0] == '\0' ? '.' : one[0];
    }
    return letters;
  }
  void reset() const {
    EXPECT_EQ(::ftruncate(image_, 0), 0);
    EXPECT_EQ(::ftruncate(image_, kBytes), 0);
  }

  int image_;
};

// Flushed writes are kept by every cut; later ones may be old, new, or new in parts, and all three
// happen.
TEST_F(LossyDiskTest, KeepsWhatWasFlushedAndLosesTheRestInEveryWay) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, {});
    put(disk, 0, 3, 'a');
    disk.flush();
    put(disk, 2, 2, 'b');
    const CutResult result = disk.cut(seed);
    EXPECT_EQ(result.kept + result.dropped, 2u);
    seen.insert(image(5));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"aaa..", "aab..", "aaab.", "aabb."}));
}

// Any of several unflushed writes of a sector may be the last that reached the medium, and reads see the newest.
TEST_F(LossyDiskTest, AnyUnflushedVersionMayBeFound) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, {});
    put(disk, 0, 1, 'a');
    put(disk, 0, 1, 'b');
    std::string now(kSectorBytes, '\0');
    disk.read(0, std::as_writable_bytes(std::span(now)));
    EXPECT_EQ(now[0], 'b');
    (void)disk.cut(seed);
    seen.insert(image(1));
  }
  EXPECT_EQ(seen, (std::set<std::string>{".", "a", "b"}));
}

// A write that is durable by itself is never undone by an older one that was not.
TEST_F(LossyDiskTest, DurableWritesOutliveOlderOnes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, {});
    put(disk, 0, 2, 'a');
    put(disk, 0, 1, 'b', true);
    (void)disk.cut(seed);
    EXPECT_EQ(image(1), "b");
  }
}

// Where blocks are whole, their eight sectors share one fate.
TEST_F(LossyDiskTest, WholeBlocksAreNotTorn) {
  DiskRules rules;
  rules.whole_blocks = {{0, 4096}};
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, rules);
    put(disk, 0, 8, 'a');
    (void)disk.cut(seed);
    seen.insert(image(8));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"........", "aaaaaaaa"}));
}

// On a disk with large sectors only what is named is torn within one.
TEST_F(LossyDiskTest, LargeSectorsAreTornOnlyUnderANamedPrefix) {
  DiskRules rules;
  rules.atom_bytes = 4096;
  rules.torn_prefixes = {"bb"};
  std::set<std::string> plain;
  std::set<std::string> named;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, rules);
    put(disk, 0, 8, 'a');
    put(disk, 8, 8, 'b');
    (void)disk.cut(seed);
    plain.insert(image(8));
    named.insert(image(16).substr(8));
  }
  EXPECT_EQ(plain, (std::set<std::string>{"........", "aaaaaaaa"}));
  EXPECT_GT(named.size(), 20u);
}

// One seed, one outcome; and before the cut the image has not been touched.
TEST_F(LossyDiskTest, ACutFollowsFromItsSeed) {
  std::string first;
  for (int pass = 0; pass < 2; ++pass) {
    reset();
    LossyDisk disk(image_, kBytes, {});
    for (std::uint64_t sector = 0; sector < 100; ++sector) put(disk, sector, 4, static_cast<char>('a' + sector % 26));
    EXPECT_EQ(image(104), std::string(104, '.'));
    (void)disk.cut(42);
    if (pass == 0) first = image(104);
    EXPECT_EQ(image(104), first);
  }
}

// A disk that lies about flushes loses what it said was safe.
TEST_F(LossyDiskTest, ALiarLosesWhatItAcknowledged) {
  DiskRules rules;
  rules.lies = true;
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, rules);
    put(disk, 0, 1, 'a', true);
    disk.flush();
    (void)disk.cut(seed);
    seen.insert(image(1));
  }
  EXPECT_EQ(seen, (std::set<std::string>{".", "a"}));
}

// Unflushed writes are gone on request, and nothing else.
TEST_F(LossyDiskTest, LosesAllThatWasNotFlushed) {
  LossyDisk disk(image_, kBytes, {});
  put(disk, 0, 2, 'a');
  disk.flush();
  put(disk, 1, 2, 'b');
  EXPECT_EQ(disk.lose().dropped, 2u);
  EXPECT_EQ(image(3), "aa.");
}

// A flush that fails has not happened, and says so; the next one flushes.
TEST_F(LossyDiskTest, WhatAFailedFlushLeftMayBeLost) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    reset();
    LossyDisk disk(image_, kBytes, {});
    PoweredDisk powered(disk);
    powered.fail_flushes(1);
    const std::string text(kSectorBytes, 'a');
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(powered.write(0, bytes, false), Answer::done);
    EXPECT_EQ(powered.flush(), Answer::failed);
    EXPECT_EQ(powered.failed_flushes(), 1u);
    const bool again = seed % 2 == 0;
    if (again) {
      EXPECT_EQ(powered.flush(), Answer::done);
    }
    (void)disk.cut(seed);
    if (again) {
      EXPECT_EQ(image(1), "a");
    } else {
      seen.insert(image(1));
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{".", "a"}));
}

// A slow disk takes its time for each write and each flush.
TEST_F(LossyDiskTest, ASlowDiskTakesItsTime) {
  LossyDisk disk(image_, kBytes, {});
  PoweredDisk powered(disk);
  powered.slow_down(std::chrono::milliseconds(10), std::chrono::milliseconds(20));
  const std::string text(kSectorBytes, 'a');
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(powered.write(0, std::as_bytes(std::span(text)), false), Answer::done);
  EXPECT_EQ(powered.flush(), Answer::done);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace memlith::power
