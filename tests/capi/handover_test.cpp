// An opening that waits takes over from a process that ends (docs/guarantees.md, "Call by call").
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>

#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::handover_test {
namespace {

constexpr int kRounds = 50;
constexpr std::uint64_t kWaitMs = 60'000;

// Memory that a test shares with the processes that it starts.
struct Told {
  std::atomic<std::uint64_t> persisted{0};
  std::atomic<bool> end{false};
};

class Handover : public ::testing::TestWithParam<bool> {
 protected:
  Handover() {
    void* const memory = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    told_ = ::new (memory) Told;
  }
  ~Handover() override { ::munmap(told_, sizeof(Told)); }

  [[nodiscard]] bool one_file() const { return GetParam(); }
  [[nodiscard]] Result<Store> open(std::uint64_t wait_ms, bool read_only = false) const {
    const StoreOptions options{.create = !read_only, .read_only = read_only, .open_wait_ms = wait_ms};
    return one_file() ? Store::open_file(path_, options) : Store::open(path_, options);
  }
  static Result<Region> number_in(Store& store, bool one_file) {
    return store.region(one_file ? "file" : "number", {.create = true, .size = 4096});
  }

  // Opens, adds one to the number and persists it; then has the store until it is told to end, and closes it.
  void serve() const {
    auto store = open(kWaitMs);
    if (!store) return;
    auto region = number_in(*store, one_file());
    if (!region) return;
    auto* const number = static_cast<std::uint64_t*>(region->address());
    ++*number;
    if (!region->persist()) return;
    told_->persisted = *number;
    while (!told_->end) ::usleep(200);
  }
  // Waits behind the process that has the store. Returns the number that the predecessor left, or what went wrong.
  [[nodiscard]] std::string take_over(std::uint64_t expected) const {
    auto store = open(kWaitMs);
    if (!store) return store.error().message();
    auto region = number_in(*store, one_file());
    if (!region) return region.error().message();
    const std::uint64_t found = *static_cast<const std::uint64_t*>(region->address());
    return found == expected ? "" : "the number is " + std::to_string(found) + ", not " + std::to_string(expected);
  }

  Told* told_;
  TempFolder folder_;
  const std::string path_ = folder_ / "store";
};

// The longest time from a predecessor's end to its successor's answer is written down, not judged.
TEST_P(Handover, TheSuccessorOpensWhenThePredecessorEnds) {
  std::chrono::steady_clock::duration longest[2] = {};
  for (int round = 0; round < kRounds; ++round) {
    const bool by_kill = round % 2 == 1;
    told_->end = false;
    const std::uint64_t before = told_->persisted;
    KilledProcess server;
    server.start([&] { serve(); }, [&] { return told_->persisted > before; });
    ASSERT_EQ(told_->persisted, before + 1);
    ASSERT_EQ(open(0).error().category(), MEMLITH_BUSY) << "the store was not locked";

    std::string wrong = "has not ended";
    std::chrono::steady_clock::time_point answered;
    std::thread successor([&] {
      wrong = take_over(before + 1);
      answered = std::chrono::steady_clock::now();
    });
    ::usleep(5000);
    const auto ended = std::chrono::steady_clock::now();
    if (by_kill) {
      server.kill();
    } else {
      told_->end = true;
    }
    successor.join();
    ASSERT_EQ(wrong, "") << "round " << round;
    longest[by_kill ? 1 : 0] = std::max(longest[by_kill ? 1 : 0], answered - ended);
  }
  const auto in_ms = [](auto time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); };
  RecordProperty("longest_after_close_ms", static_cast<int>(in_ms(longest[0])));
  RecordProperty("longest_after_kill_ms", static_cast<int>(in_ms(longest[1])));
}

TEST_P(Handover, AReaderWaitsForAWriterAndAWriterForAReader) {
  for (const bool reads : {false, true}) {
    told_->end = false;
    const std::uint64_t before = told_->persisted;
    {
      KilledProcess server;
      server.start([&] { serve(); }, [&] { return told_->persisted > before; });
      std::thread ends([&] {
        ::usleep(5000);
        told_->end = true;
      });
      auto store = open(kWaitMs, reads);
      ends.join();
      ASSERT_TRUE(store) << store.error().message();
      std::thread closes([&] {
        ::usleep(5000);
        store = Error(MEMLITH_INVALID, "closed");
      });
      auto next = open(kWaitMs);
      closes.join();
      ASSERT_TRUE(next) << next.error().message();
    }
  }
}

TEST_P(Handover, AWaitThatIsOverIsBusyAndNamesTheHolder) {
  KilledProcess server;
  server.start([&] { serve(); }, [&] { return told_->persisted > 0; });
  const auto store = open(20);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().category(), MEMLITH_BUSY);
  EXPECT_NE(store.error().message().find("is in use by"), std::string::npos) << store.error().message();
}

// Errors other than a lock are told at once, however long the wait.
TEST_P(Handover, OnlyALockIsWaitedFor) {
  const StoreOptions options{.open_wait_ms = 86'400'000};
  const auto store = one_file() ? Store::open_file(path_, options) : Store::open(path_, options);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().category(), MEMLITH_NOT_FOUND);
  const auto too_long = Store::open(path_, {.open_wait_ms = 86'400'001});
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().category(), MEMLITH_INVALID);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Handover, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "OneFile" : "Folder"; });

}  // namespace
}  // namespace memlith::test::handover_test
