// docs/architecture.md, "Packed commits": small payloads that wait for a batch anyway share a frame.
#include <algorithm>
#include <thread>

#include "log_fixture.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kPackedBytesMax = 1000;
constexpr std::uint32_t kKind = 1;

LogOptions packing() {
  LogOptions options = LogWorld::small_options();
  options.packed_kind = kKind;
  options.packed_bytes_max = kPackedBytesMax;
  return options;
}
constexpr LogFormat kPackedFormat{512, 16 * kKiB, 8};

class Packed : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(world_.open().ok()) << last_error_text(); }

  Lsn add(std::uint64_t bytes, bool will_sync = false, std::uint32_t kind = kKind) {
    const auto payload = payload_of(bytes, ++seed_);
    auto writer = world_.log().begin(payload.size(), kind, will_sync);
    EXPECT_TRUE(writer.ok()) << last_error_text();
    writer->put(payload.data(), payload.size());
    all_.push_back(payload);
    const Lsn end = *writer->finish();
    EXPECT_GT(end, newest_);
    newest_ = end;
    return end;
  }
  // The payloads added from first to last, one behind the other.
  std::vector<std::byte> joined(std::size_t first, std::size_t last) const {
    std::vector<std::byte> bytes;
    for (std::size_t i = first; i <= last; ++i) bytes.insert(bytes.end(), all_[i].begin(), all_[i].end());
    return bytes;
  }

  LogWorld world_{kPackedFormat, packing()};
  std::vector<std::vector<std::byte>> all_;
  std::uint64_t seed_ = 0;
  Lsn newest_;
};

TEST_F(Packed, PayloadsShareAFrame) {
  const Lsn first = add(100);
  add(300);
  add(700);
  EXPECT_EQ(world_.log().head(), newest_);
  EXPECT_EQ(world_.log().counters().frames, 3u);
  EXPECT_EQ(world_.log().counters().bytes, world_.log().geometry().frame_bytes(1100));
  ASSERT_TRUE(world_.log().sync(first).ok());
  EXPECT_GE(world_.log().durable_lsn(), newest_) << "the frame is durable as a whole";
  EXPECT_EQ(world_.log().counters().batches, 1u);
  add(50);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(), (Frames{joined(0, 2), joined(3, 3)}));
}

TEST_F(Packed, AFrameOfItsOwnEndsThePack) {
  add(10);
  add(20);
  add(30, false, kKind + 1);
  add(40, false, kKind + 1);
  add(50);
  add(kPackedBytesMax + 1);
  add(60);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(),
            (Frames{joined(0, 1), joined(2, 2), joined(3, 3), joined(4, 4), joined(5, 5), joined(6, 6)}));
}

// The first could be written at once; the others share the batch that it has begun.
TEST_F(Packed, PayloadsThatAreWaitedForShareAFrameUnlessOneIsAlone) {
  add(300, true);
  const Lsn second = add(300, true);
  add(10);
  const Lsn last = add(300, true);
  EXPECT_EQ(world_.log().counters().bytes,
            world_.log().geometry().frame_bytes(300) + world_.log().geometry().frame_bytes(610));
  ASSERT_TRUE(world_.log().sync(last).ok());
  EXPECT_EQ(world_.log().counters().batches, 1u);
  EXPECT_GT(world_.log().durable_lsn(), second);
  add(300, true);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(), (Frames{joined(0, 0), joined(1, 3), joined(4, 4)}));
}

// A batch is full, a segment ends, and the log is full and trimmed, all within packs.
TEST_F(Packed, PacksGoOnAcrossBatchesAndSegments) {
  world_.log().set_relieve([this] { return world_.log().trim(world_.log().durable(), {}); });
  for (std::uint64_t i = 0; i < 2000; ++i) add(1 + i * 37 % 400);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  EXPECT_LT(world_.log().counters().batches, 200u);
  EXPECT_GT(world_.log().counters().trims, 2u);
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  std::vector<std::byte> found;
  for (const auto& frame : world_.frames()) found.insert(found.end(), frame.begin(), frame.end());
  const auto all = joined(0, all_.size() - 1);
  ASSERT_GT(found.size(), 0u);
  ASSERT_LE(found.size(), all.size());
  EXPECT_TRUE(std::equal(found.rbegin(), found.rend(), all.rbegin())) << "the newest payloads, without a gap";
}

TEST_F(Packed, APackThatIsTornAnywhereIsGoneAsAWhole) {
  add(200, true);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  const std::uint64_t begin = world_.file_offset(world_.log().head());
  for (int i = 0; i < 6; ++i) add(300);
  ASSERT_TRUE(world_.log().sync(newest_).ok());
  const std::uint64_t bytes = world_.log().geometry().frame_bytes(1800);
  world_.crash();
  const SimImage whole = world_.volume().image();
  for (std::uint64_t sector = 0; sector < bytes; sector += 512) {
    LogWorld torn(kPackedFormat, packing());
    torn.crash([&](std::vector<std::byte>& disk) {
      disk = *whole.files.at("log");
      std::fill_n(disk.begin() + static_cast<std::ptrdiff_t>(begin + sector), 512, std::byte{0});
    });
    ASSERT_TRUE(torn.open().ok()) << last_error_text();
    EXPECT_EQ(torn.frames(), (Frames{joined(0, 0)})) << "sector at " << sector;
  }
}

TEST_F(Packed, ThreadsCopyBesideEachOther) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kEach = 400;
  constexpr std::uint64_t kBytes = 48;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        auto payload = payload_of(kBytes, thread * kEach + i);
        payload[0] = static_cast<std::byte>(thread);
        auto writer = world_.log().begin(kBytes, kKind, i % 50 == 49);
        EXPECT_TRUE(writer.ok()) << last_error_text();
        writer->put(payload.data(), kBytes);
        const Lsn end = *writer->finish();
        if (i % 50 == 49) {
          EXPECT_TRUE(world_.log().sync(end).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  std::vector<std::uint64_t> next(kThreads, 0);
  for (const auto& frame : world_.frames()) {
    ASSERT_EQ(frame.size() % kBytes, 0u);
    for (std::size_t at = 0; at < frame.size(); at += kBytes) {
      const auto thread = static_cast<std::uint64_t>(frame[at]);
      ASSERT_LT(thread, kThreads);
      auto expected = payload_of(kBytes, thread * kEach + next[thread]++);
      expected[0] = frame[at];
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), frame.begin() + static_cast<std::ptrdiff_t>(at)))
          << "thread " << thread;
    }
  }
  for (const std::uint64_t count : next) EXPECT_EQ(count, kEach);
}

}  // namespace
}  // namespace memlith::test
