// The log by itself: what was synced is read back, in order, whole, and damage is told from a torn end.
#include "log/log.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/random.hpp"
#include "log_fixture.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kHeader = sizeof(FrameHeader);
constexpr std::uint64_t kSegment = 4096 - kBlock;

// Frames of every length around the borders of blocks and segments come back as they were appended.
TEST(Log, ReadsBackEveryLengthAroundTheBorders) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kBlock - kHeader - 1, kBlock - kHeader,
                                    kBlock - kHeader + 1, kSegment - kHeader - 1, kSegment - kHeader,
                                    kSegment - kHeader + 1, 2 * kSegment - kHeader, 2 * kSegment - kHeader + 1}) {
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    world.append(payload_of(bytes, 1));
    world.append(payload_of(3, 2));
    world.crash();
    ASSERT_TRUE(world.open().ok()) << last_error_text();
    EXPECT_EQ(world.frames(), (Frames{payload_of(bytes, 1), payload_of(3, 2)})) << bytes;
  }
}

// Appending, trimming, crashing and reopening at random for many laps never loses, repeats or reorders a frame.
TEST(Log, KeepsEverythingSinceTheTrimOverManyLaps) {
  Random random(7);
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  std::vector<std::vector<std::byte>> kept;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    if (kept.size() > 5 || random.one_in(20)) {
      ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
      kept.clear();
    }
    kept.push_back(payload_of(random.below(1500), i));
    world.append(kept.back());
    if (random.one_in(10)) {
      if (random.one_in(2)) {
        ASSERT_TRUE(world.log().close({}).ok());
      }
      world.crash();
      ASSERT_TRUE(world.open().ok()) << last_error_text();
      ASSERT_EQ(world.frames(), kept) << i;
    }
  }
}

// Frames completed but not synced share one write and one flush with the next sync.
TEST(Log, SharesOneWriteAmongFramesOfABatch) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  const std::uint64_t batches = world.log().counters().batches;
  world.add(payload_of(10, 1));
  world.add(payload_of(10, 2));
  ASSERT_TRUE(world.log().sync(world.add(payload_of(10, 3))).ok());
  EXPECT_EQ(world.log().counters().batches, batches + 1);
  world.crash();
  ASSERT_TRUE(world.open().ok());
  EXPECT_EQ(world.frames().size(), 3u);
}

// Threads that append side by side, small and streamed frames mixed: each finds its own frames, in its own order.
TEST(Log, TakesFramesFromManyThreads) {
  LogOptions options = LogWorld::small_options();
  options.slot_count_max = 1024;
  LogWorld world({512, 16384, 1024}, options);
  ASSERT_TRUE(world.open().ok());
  constexpr std::uint64_t kThreads = 6;
  constexpr std::uint64_t kFrames = 100;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&world, t] {
      for (std::uint64_t i = 0; i < kFrames; ++i) {
        auto payload = payload_of(i % 17 == 0 ? 9000 : 16 + i, t);
        payload[0] = static_cast<std::byte>(t);
        payload[1] = static_cast<std::byte>(i);
        ASSERT_TRUE(world.log().append(payload, 1).ok()) << last_error_text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  ASSERT_EQ(world.frames().size(), kThreads * kFrames);
  std::vector<std::uint64_t> next(kThreads, 0);
  for (const auto& frame : world.frames()) {
    EXPECT_EQ(static_cast<std::uint64_t>(frame[1]), next[static_cast<std::uint64_t>(frame[0])]++);
  }
}

// A frame larger than the log makes it grow, once and durably; one beyond the limit is refused and changes nothing.
TEST(Log, GrowsForALargeFrameUpToItsLimit) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  world.append(payload_of(8 * kSegment, 1));
  EXPECT_GT(world.log().capacity_bytes(), 4 * kSegment);
  const auto refused = world.log().append(payload_of(17 * kSegment, 2), 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().category, Errc::full);
  ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
  world.append(payload_of(100, 3));
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), (Frames{payload_of(100, 3)}));
}

// A clean close gives back what a log has grown, and the next user finds it as large as it was made; once more and
// again.
TEST(Log, AClosedLogIsAsLargeAsItWasMade) {
  LogWorld world;
  for (unsigned round = 0; round < 4; ++round) {
    ASSERT_TRUE(world.open().ok()) << last_error_text();
    const std::uint64_t made = world.log().capacity_bytes();
    EXPECT_EQ(made, 4 * kSegment);
    const std::uint64_t size = must(world.log().device().size());
    world.append(payload_of(100 + round, 1));
    world.append(payload_of(8 * kSegment, 2));
    EXPECT_GT(world.log().capacity_bytes(), made);
    EXPECT_GT(must(world.log().device().size()), size);
    ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
    ASSERT_TRUE(world.log().close({}).ok());
    EXPECT_EQ(must(world.log().device().size()), size);
  }
  // Or as large as the caller wants it to be, if it has grown so far.
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  world.append(payload_of(8 * kSegment, 2));
  ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
  ASSERT_TRUE(world.log().close({}, {}, 6).ok());
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.log().capacity_bytes(), 6 * kSegment);
  world.append(payload_of(5 * kSegment, 4));
  EXPECT_EQ(world.log().capacity_bytes(), 6 * kSegment);
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), (Frames{payload_of(5 * kSegment, 4)}));
  ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
  ASSERT_TRUE(world.log().close({}).ok());
  // Not where something is in it still.
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  world.append(payload_of(8 * kSegment, 3));
  ASSERT_TRUE(world.log().close({}).ok());
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), (Frames{payload_of(8 * kSegment, 3)}));
  EXPECT_GT(world.log().capacity_bytes(), 4 * kSegment);
}

// Whatever limit is asked for: no more slots than a superblock may count, or the log could not be opened again.
TEST(Log, GrowsNoFurtherThanItCanBeOpened) {
  LogOptions options = LogWorld::small_options();
  options.slot_count_max = 1ull << 40;
  LogWorld world({512, 4096, 4}, options);
  ASSERT_TRUE(world.open().ok());
  EXPECT_EQ(world.log().begin((1ull << 20) * kSegment, 1).status().category, Errc::full);
}

// A full log asks its owner to trim, and goes on when that was done.
TEST(Log, AsksForRelieveWhenFull) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  int asked = 0;
  world.log().set_relieve([&] {
    ++asked;
    return world.log().trim(world.log().durable(), {});
  });
  for (std::uint64_t i = 0; i < 100; ++i) world.append(payload_of(1000, i));
  EXPECT_GT(asked, 3);
}

// A committer that waits because the log is full continues as soon as the log has grown, without a trim.
TEST(Log, GrowthLetsAWaitingCommitGoOn) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  std::promise<void> asked;
  std::atomic<int> times_asked{0};
  world.log().set_relieve([&]() -> Status {
    if (times_asked.fetch_add(1) == 0) asked.set_value();
    return kOk;  // nothing is trimmed yet
  });
  constexpr std::uint64_t kFrames = 5;  // of nearly a slot; the log has four
  std::future<void> writer = std::async(std::launch::async, [&world] {
    for (std::uint64_t i = 0; i < kFrames; ++i) world.append(payload_of(3000, i));
  });
  asked.get_future().wait();
  ASSERT_TRUE(world.log().grow(2).ok()) << last_error_text();
  const bool went_on = writer.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  if (!went_on) (void)world.log().trim(world.log().durable(), {});  // so that the test ends, and fails
  writer.get();
  ASSERT_TRUE(went_on);
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames().size(), kFrames);
}

// Rot in a frame that a later one vouches for is damage, and is said with its place, not taken for the end.
TEST(Log, TellsDamageFromATornEnd) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  world.append(payload_of(600, 1));
  const Lsn second = world.log().head();
  world.append(payload_of(600, 2));
  world.append(payload_of(600, 3));
  world.append(payload_of(600, 4));
  const std::uint64_t at = world.file_offset(second) + 300;
  world.crash([at](std::vector<std::byte>& disk) { disk[at] ^= std::byte{4}; });
  const Status status = world.open_to_read();
  EXPECT_EQ(status.category, Errc::corrupt);
  EXPECT_NE(last_error_text().find("LSN " + std::to_string(second.value)), std::string_view::npos) << last_error_text();
}

// A torn last frame is the normal end of a crashed log.
TEST(Log, DropsATornLastFrame) {
  for (const bool header : {true, false}) {
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    world.append(payload_of(600, 1));
    const Lsn last = world.log().head();
    world.append(payload_of(600, 2));
    const std::uint64_t at = world.file_offset(last) + (header ? 0 : kBlock);
    world.crash([at](std::vector<std::byte>& disk) { std::memset(disk.data() + at, 0, kBlock); });
    ASSERT_TRUE(world.open_to_read().ok()) << last_error_text();
    EXPECT_EQ(world.frames(), (Frames{payload_of(600, 1)}));
  }
}

// Either copy of the superblock may be lost; not both.
TEST(Log, SurvivesTheLossOfOneSuperblock) {
  for (const std::uint64_t copy : {0, 1}) {
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    world.append(payload_of(10, 1));
    world.crash([copy](std::vector<std::byte>& disk) { disk[copy * kSuperblockStrideBytes + 40] ^= std::byte{1}; });
    ASSERT_TRUE(world.open().ok()) << last_error_text();
    EXPECT_EQ(world.frames(), (Frames{payload_of(10, 1)}));
  }
  LogWorld world;
  world.crash([](std::vector<std::byte>& disk) { disk[40] = disk[4096 + 40] = std::byte{0xee}; });
  EXPECT_EQ(world.open().category, Errc::corrupt);
  // The magic number is there, so the sentence is about the checksums: what was expected, and what was found.
  const std::string text(last_error_text());
  EXPECT_NE(text.find("at offset 0, its checksum is wrong (expected 0x"), std::string::npos) << text;
  EXPECT_NE(text.find("at offset 4096, its checksum is wrong (expected 0x"), std::string::npos) << text;
  EXPECT_EQ(text.find("magic"), std::string::npos) << text;
}

// A superblock of another version, whole: the sentence says which memlith reads it, where there is one.
TEST(Log, OtherVersionsAreRefusedByName) {
  const auto open_as = [](std::uint32_t version) {
    LogWorld world;
    world.crash([version](std::vector<std::byte>& disk) {
      for (const std::uint64_t at : {std::uint64_t{0}, kSuperblockStrideBytes}) {
        Superblock block;
        std::memcpy(&block, disk.data() + at, sizeof block);
        block.magic = kSuperblockMagic;  // one of the copies may never have been written
        block.version = version;
        block.checksum = header_checksum(block, kSuperblockSeed);
        std::memcpy(disk.data() + at, &block, sizeof block);
      }
    });
    const Status status = world.open();
    EXPECT_EQ(status.category, Errc::incompatible);
    EXPECT_EQ(status.detail, Detail::version);
    return std::string(last_error_text());
  };
  const std::string later = open_as(kFormatVersion + 1);
  EXPECT_NE(later.find("Use a later version of memlith"), std::string::npos) << later;
  const std::string none = open_as(0);
  EXPECT_NE(none.find("No version of memlith writes format version 0"), std::string::npos) << none;
  EXPECT_EQ(none.find("later"), std::string::npos) << none;
}

// Whichever copy rots away, the one left is not the mark of an earlier clean close: what was committed since is found.
TEST(Log, EitherSuperblockKnowsWhatWasCommittedAfterAClose) {
  for (const std::uint64_t copy : {0, 1}) {
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    ASSERT_TRUE(world.log().close({}).ok());
    world.crash();
    ASSERT_TRUE(world.open().ok());
    world.append(payload_of(10, 1));
    world.crash([copy](std::vector<std::byte>& disk) { disk[copy * kSuperblockStrideBytes + 40] ^= std::byte{1}; });
    ASSERT_TRUE(world.open().ok()) << last_error_text();
    EXPECT_EQ(world.frames(), (Frames{payload_of(10, 1)}));
  }
}

// The laboratory's story: the log was trimmed and went round, a write strayed over the newest superblock, and the older
// one's tail stood in slots that had been used again. One frame there was whole still, the next one gone, and so
// recovery replayed an old frame over newer data and saw nothing wrong. Whichever copy is lost now, and at whatever
// trim, exactly the frames behind the last trim are found.
TEST(Log, EitherSuperblockKnowsTheTail) {
  for (const std::uint64_t copy : {0, 1}) {
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    for (std::uint64_t round = 1; round <= 12; ++round) {
      for (std::uint64_t i = 0; i < 3; ++i) world.append(payload_of(600 + 200 * i, 10 * round + i));
      ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok());
      world.append(payload_of(300, round));
      world.crash([copy](std::vector<std::byte>& disk) { disk[copy * kSuperblockStrideBytes + 40] ^= std::byte{1}; });
      ASSERT_TRUE(world.open().ok()) << last_error_text();
      ASSERT_EQ(world.frames(), (Frames{payload_of(300, round)})) << "round " << round << ", copy " << copy << " lost";
    }
  }
}

// After a failed write or flush nothing is acknowledged any more, and reopening finds what was.
TEST(Log, IsPoisonedByTheFirstFailure) {
  for (const auto kind : {SimFaults::Kind::fail_write, SimFaults::Kind::short_write, SimFaults::Kind::fail_flush}) {
    for (const std::uint64_t bytes : {std::uint64_t{100}, std::uint64_t{6000}}) {  // batched and streamed
      LogWorld world;
      ASSERT_TRUE(world.open().ok());
      world.append(payload_of(10, 1));
      world.volume().faults().plan(kind, 0);
      EXPECT_EQ(world.log().append(payload_of(bytes, 2), 1).status().category, Errc::io);
      EXPECT_EQ(world.volume().faults().fired(kind), 1u);
      EXPECT_EQ(world.log().append(payload_of(10, 3), 1).status().category, Errc::poisoned);
      EXPECT_EQ(world.log().trim(world.log().durable(), {}).category, Errc::poisoned);
      world.crash();
      ASSERT_TRUE(world.open().ok()) << last_error_text();
      ASSERT_GE(world.frames().size(), 1u);
      EXPECT_LE(world.frames().size(), 2u);
      EXPECT_EQ(world.frames()[0], payload_of(10, 1));
    }
  }
}

// A committer with a place in the log gets `io` when the log fails, never `poisoned`, which would mean that nothing was
// tried: also if the device refused because of another thread's failure that the log does not know yet.
TEST(Log, ACommitterWithAFrameInTheLogGetsIoWhenTheLogFails) {
  const Status refused{Errc::poisoned, Detail::flush, 0, 0};
  for (const std::uint64_t bytes : {std::uint64_t{100}, std::uint64_t{6000}}) {  // batched and streamed
    LogWorld world;
    ASSERT_TRUE(world.open().ok());
    (void)world.log().device().latch(Status{Errc::io, Detail::flush, 0, 0});
    EXPECT_EQ(world.log().append(payload_of(bytes, 1), 1).status().category, Errc::io);
    EXPECT_EQ(world.log().append(payload_of(bytes, 2), 1).status().category, Errc::poisoned);
  }
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  const Lsn end = world.add(payload_of(100, 1));
  world.log().poison(refused);  // as a checkpoint that met a refusal does
  EXPECT_EQ(world.log().sync(end).category, Errc::io);
}

// A frame of another log in the right place, even with a right checksum of its own, is not a file of the store.
TEST(Log, RefusesFramesOfAnotherLog) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok());
  const std::uint64_t at = world.file_offset(Lsn{0});
  world.append(payload_of(10, 1));
  world.crash([at](std::vector<std::byte>& disk) {
    FrameHeader header;
    std::memcpy(&header, disk.data() + at, sizeof header);
    header.checksum = header_checksum(header, 0x9999);
    std::memcpy(disk.data() + at, &header, sizeof header);
  });
  ASSERT_TRUE(world.open_to_read().ok());
  EXPECT_TRUE(world.frames().empty());
}

}  // namespace
}  // namespace memlith::test
