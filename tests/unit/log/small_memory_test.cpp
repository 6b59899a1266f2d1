// docs/architecture.md, "Life of a commit": a log takes the memory that large frames need with the first of them, and
// gives it back when there was none between two checkpoints. Frames are whole whichever memory they were in.
#include <sys/resource.h>

#include <thread>

#include "log_fixture.hpp"
#include "support/process_memory.hpp"

namespace memlith::test {
namespace {

LogOptions large_options() {
  LogOptions options;
  options.slot_count_max = 64;
  options.batch_bytes = 64 * kKiB;
  options.small_batch_bytes = 8 * kKiB;
  options.stream_bytes_min = 48 * kKiB;
  options.stream_chunk_bytes = 16 * kKiB;
  return options;
}
constexpr LogFormat kFormat{512, 256 * kKiB, 64};

// Small, large and streamed frames by several threads, with checkpoints among them that give memory back.
TEST(SmallMemory, FramesOfAllSizesByThreadsAreWhole) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kRounds = 120;
  constexpr std::uint64_t kSizes[] = {100, 3000, 9000, 700, 30'000, 100, 60'000, 300, 90'000, 8000, 64};
  LogWorld world(kFormat, large_options());
  ASSERT_TRUE(world.open().ok());
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        // Half of the rounds have small frames only, so that the large memory goes and comes.
        const std::uint64_t bytes = kSizes[round % 40 < 20 ? 0 : (round + thread) % std::size(kSizes)];
        auto payload = payload_of(bytes, thread * kRounds + round);
        std::memcpy(payload.data(), &thread, sizeof thread);
        std::memcpy(payload.data() + sizeof thread, &round, sizeof round);
        EXPECT_TRUE(world.log().append(payload, 1).ok()) << last_error_text();
        if (thread == 0 && round % 5 == 4) {
          EXPECT_TRUE(world.log().trim(world.log().tail(), {}).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  ASSERT_EQ(world.frames().size(), kThreads * kRounds);
  for (const auto& frame : world.frames()) {
    std::uint64_t thread = 0;
    std::uint64_t round = 0;
    std::memcpy(&thread, frame.data(), sizeof thread);
    std::memcpy(&round, frame.data() + sizeof thread, sizeof round);
    auto expected = payload_of(frame.size(), thread * kRounds + round);
    std::memcpy(expected.data(), frame.data(), 2 * sizeof thread);
    EXPECT_EQ(frame, expected) << thread << " " << round;
  }
}

// A log with the sizes of a real one: hundreds of them with small frames fit in little memory, and large frames do not
// stay.
TEST(SmallMemory, ALogWithSmallFramesIsSmall) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  LogOptions options;
  options.slot_count_max = 64;
  LogWorld world(kFormat, options);
  ASSERT_TRUE(world.open().ok());
  for (std::uint64_t i = 0; i < 30; ++i) world.append(payload_of(3000, i));
  const std::uint64_t before = anonymous_bytes();
  for (std::uint64_t i = 0; i < 6; ++i) world.append(payload_of(900'000, i));  // the simulated disk has had these bytes
  const std::uint64_t large = anonymous_bytes();
  EXPECT_GT(large, before + 512 * kKiB) << "no large memory was taken, so nothing is tested";
  ASSERT_TRUE(world.log().trim(world.log().tail(), {}).ok());
  world.append(payload_of(3000, 1));
  ASSERT_TRUE(world.log().trim(world.log().tail(), {}).ok());
  EXPECT_LT(anonymous_bytes(), large - 512 * kKiB);
}

}  // namespace
}  // namespace memlith::test
