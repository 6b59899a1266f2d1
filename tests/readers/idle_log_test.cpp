// docs/guarantees.md, "Rot": once the log is idle, a bit that flips in any frame of an acknowledged commit is damage,
// and is told; it does not take the commit for a torn end. And the tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "store/time_marker.hpp"
#include "support/expect.hpp"
#include "world.hpp"

namespace memlith::test::idle_log_test {
namespace {

std::uint64_t no_time() { return 0; }

// A log with a marker that looks at it.
class MarkedLog {
 public:
  MarkedLog() : files_(volume_, {}) {
    files_.log_device = must(volume_.open("log", OpenMode::create, Caching::direct));
    EXPECT_OK(volume_.sync_folder(""));
    EXPECT_OK(Log::format(*files_.log_device, {512, 16 * kKiB, 4}, {}, 7));
    files_.log = must(Log::open(*files_.log_device, {}));
    EXPECT_OK(files_.log->recover([](const Frame&) { return kOk; }));
    EXPECT_OK(files_.log->start(files_.log->recovered(), {}));
    flusher_ = std::make_unique<Flusher>(files_, *background_);
    marker_ = std::make_unique<TimeMarker>(files_, *flusher_, now_);
  }
  ~MarkedLog() {
    marker_->stop();
    flusher_->stop();
  }
  void commit(std::uint64_t bytes) {
    EXPECT_OK(files_.log->append(std::vector<std::byte>(bytes, std::byte{5}), kFrameKindCommit).status());
    end_ = files_.log->durable_lsn();
  }
  void look() { (void)marker_->look(now_ += std::chrono::milliseconds(10), no_time); }
  // Looks until the log is idle, and some more.
  void rest() {
    for (int i = 0; i < 5; ++i) look();
    EXPECT_OK(files_.log->sync(files_.log->head()));
  }
  [[nodiscard]] Lsn end() const { return end_; }
  [[nodiscard]] SimImage image() const { return volume_.image(); }

 private:
  SimVolume volume_;
  StoreFiles files_;
  std::shared_ptr<Background> background_ = Background::of_process();
  Workers::Time now_{};
  std::unique_ptr<Flusher> flusher_;
  std::unique_ptr<TimeMarker> marker_;
  Lsn end_;
};

// Each bit of the log, one after the other: what a recovery says.
void flip_each_bit(const MarkedLog& marked, Random& random, Faults& faults) {
  const SimImage image = marked.image();
  const std::vector<std::byte>& bytes = *image.files.at("log");
  for (std::uint64_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == std::byte{0}) continue;
    SimImage rotten = image;
    std::vector<std::byte> changed = bytes;
    changed[at] ^= static_cast<std::byte>(1 << random.below(8));
    rotten.files["log"] = std::make_shared<const std::vector<std::byte>>(std::move(changed));
    SimVolume volume(std::move(rotten));
    const auto device = must(volume.open("log", OpenMode::read_only, Caching::direct));
    const auto log = Log::open(*device, {});
    if (!log.ok()) continue;  // told
    const Status recovered = (*log)->recover([](const Frame&) { return kOk; });
    if (recovered.ok() && (*log)->recovered().lsn < marked.end()) {
      faults.add("a flipped bit at offset " + std::to_string(at) + " takes commits without a word");
    }
  }
}

void commits_then_rest(std::uint64_t seed, Faults& faults) {
  Random random(seed);
  MarkedLog log;
  for (int i = 0; i < 3; ++i) log.commit(1 + random.below(200));
  log.rest();
  flip_each_bit(log, random, faults);
}

void commits_between_rests(std::uint64_t seed, Faults& faults) {
  Random random(seed);
  MarkedLog log;
  for (int rest = 0; rest < 3; ++rest) {
    log.commit(1 + random.below(200));
    log.rest();
  }
  flip_each_bit(log, random, faults);
}

class IdleLog : public ::testing::Test {
 protected:
  ~IdleLog() override { active_mutant = Mutant::none; }
  using Trial = void (*)(std::uint64_t seed, Faults& faults);
  static void expect_sound(Trial trial) {
    Faults faults;
    for (std::uint64_t seed = 1; seed <= 2; ++seed) trial(seed, faults);
    faults.judge();
  }
  static void expect_noticed(Mutant mutant, Trial trial) {
    SCOPED_TRACE(static_cast<int>(mutant));
    active_mutant = mutant;
    Faults faults;
    for (std::uint64_t seed = 1; seed <= 5 && faults.found == 0; ++seed) trial(seed, faults);
    active_mutant = Mutant::none;
    faults.judge();
  }
};

TEST_F(IdleLog, AFlippedBitIsDamage) { expect_sound(commits_then_rest); }
TEST_F(IdleLog, AFlippedBitIsDamageAfterEachRest) { expect_sound(commits_between_rests); }

TEST_F(IdleLog, PlantedFaultsAreNoticed) {
  expect_noticed(Mutant::idle_log_not_marked, commits_then_rest);
  expect_noticed(Mutant::idle_log_marked_once, commits_between_rests);
}

}  // namespace
}  // namespace memlith::test::idle_log_test
