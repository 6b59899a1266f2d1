// docs/guarantees.md, "Running out of memory": a checkpoint that lacks memory fails the commits that wait for it, which
// have changed nothing, and the store goes on.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using Kind = SimFaults::Kind;

constexpr std::uint64_t kObjectBytes = 64 * kKiB;

class Lack : public ::testing::Test {
 protected:
  Lack() {
    StoreOptions options = tiny_options();
    options.manual_checkpoint = false;
    options.log_max_bytes = options.log_bytes;
    store_ = must(Store::open(volume_, options));
    object_ = create_object(*store_, "a", kObjectBytes);
  }
  // Commits until one fails, and says how.
  Status fill(int value) {
    for (int i = 0; i < 1000; ++i) MEMLITH_TRY(commit(*store_, {{object_, 0, filled(3000, value)}}));
    return kOk;
  }

  SimVolume volume_;
  std::unique_ptr<Store> store_;
  ObjectId object_;
};

// The background thread lacks memory each time that it reads the log.
TEST_F(Lack, ACommitThatWaitsForRoomIsToldAndTheStoreGoesOn) {
  volume_.faults().plan(Kind::no_memory, 0, true);
  EXPECT_ERROR(Errc::no_memory, fill(1));
  EXPECT_NE(last_error_text().find("Cannot allocate memory"), std::string_view::npos) << last_error_text();
  EXPECT_FALSE(store_->log().poisoned());
  EXPECT_ERROR(Errc::no_memory, fill(1));
  volume_.faults().clear();
  ASSERT_OK(commit(*store_, {{object_, 0, filled(3000, 2)}}));
  EXPECT_OK(fill(3));
  Bytes expected = filled(kObjectBytes, 0);
  std::fill_n(expected.begin(), 3000, std::byte{3});
  EXPECT_EQ(content_of(*store_, object_), expected);
  EXPECT_OK(store_->close());
}

// As many threads as wait are told.
TEST_F(Lack, AllCommitsThatWaitAreTold) {
  volume_.faults().plan(Kind::no_memory, 0, true);
  std::vector<std::thread> threads;
  std::atomic<int> told{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (fill(1).category == Errc::no_memory) ++told;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 4);
  volume_.faults().clear();
  EXPECT_OK(fill(2));
  EXPECT_OK(store_->close());
}

}  // namespace
}  // namespace memlith::test
