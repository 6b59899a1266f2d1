// A log in front of homes: what is given up and when, which failures end it, and its thread.
#include "settled/settled_log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace memlith_settled {
namespace {

// A log in memory, whose calls fail when they are told to.
class ListedLog final : public EntryLog {
 public:
  [[nodiscard]] bool has_room(std::uint64_t) const override { return true; }
  Result<void> append(std::string_view entry) override {
    if (fails != 0) return Error(fails, "append");
    entries.emplace_back(entry);
    return {};
  }
  Result<void> write() override { return fails == 0 ? Result<void>() : Error(fails, "write"); }
  Result<std::uint64_t> newest() override { return given_up + entries.size(); }
  Result<std::optional<std::string_view>> next() override {
    if (read == entries.size()) return std::optional<std::string_view>();
    return std::optional<std::string_view>(entries[read++]);
  }
  Result<void> give_up(std::uint64_t upto) override {
    if (fails_to_give_up != 0) return Error(std::exchange(fails_to_give_up, 0), "give up");
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(upto - given_up));
    given_up = upto;
    return {};
  }

  std::vector<std::string> entries;
  std::uint64_t given_up = 0;
  std::size_t read = 0;
  std::int32_t fails = 0;
  std::int32_t fails_to_give_up = 0;  // once
};

Result<void> nothing() { return {}; }

TEST(SettledLogTest, GivesUpWhatIsHomeAndNothingThatComesMeanwhile) {
  ListedLog list;
  SettledLog log(list, 1000);
  ASSERT_TRUE(log.append("one").ok());
  ASSERT_TRUE(log.append("two").ok());
  ASSERT_TRUE(log.write().ok());
  EXPECT_TRUE(log.wants_settling());
  const auto bring_home = [&]() -> Result<void> {
    EXPECT_EQ(list.entries.size(), 2u) << "given up before it was home";
    return log.append("three");
  };
  ASSERT_TRUE(log.settle(bring_home).ok());
  EXPECT_EQ(list.entries, std::vector<std::string>{"three"});
  EXPECT_FALSE(log.wants_settling());
  std::vector<std::string> seen;
  ASSERT_TRUE(log.replay([&](std::string_view entry) {
                   seen.emplace_back(entry);
                   return Result<void>();
                 })
                  .ok());
  EXPECT_EQ(seen, std::vector<std::string>{"three"});
}

TEST(SettledLogTest, ARefusalChangesNothing) {
  ListedLog list;
  SettledLog log(list, 1000);
  for (const std::int32_t refusal : {MEMLITH_NO_SPACE, MEMLITH_FULL, MEMLITH_NO_MEMORY, MEMLITH_TOO_MANY_FILES}) {
    list.fails = refusal;
    EXPECT_EQ(log.append("one").error().category(), refusal);
    EXPECT_EQ(log.write().error().category(), refusal);
    list.fails = 0;
    EXPECT_TRUE(log.append("one").ok());
    list.fails_to_give_up = refusal;
    EXPECT_EQ(log.settle(nothing).error().category(), refusal);
    EXPECT_TRUE(log.write().ok());
  }
  EXPECT_EQ(list.entries.size(), 4u);
  EXPECT_TRUE(log.settle(nothing).ok());
  EXPECT_TRUE(list.entries.empty());
}

TEST(SettledLogTest, TheFirstFailureIsKept) {
  ListedLog list;
  SettledLog log(list, 1000);
  list.fails = MEMLITH_IO;
  EXPECT_EQ(log.write().error().category(), MEMLITH_IO);
  list.fails = 0;
  for (const Result<void>& later : {log.append("one"), log.write(), log.settle(nothing)}) {
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().category(), MEMLITH_POISONED);
    EXPECT_EQ(later.error().message(), "write");
  }
  EXPECT_TRUE(list.entries.empty());
}

TEST(SettledLogTest, AHomeThatFailsEndsTheLog) {
  for (const bool has_room : {true, false}) {
    ListedLog list;
    SettledLog log(list, 1000);
    ASSERT_TRUE(log.append("one").ok());
    // A flush that fails for lack of room has lost what it was to keep.
    const auto bring_home = [&]() -> Result<void> {
      return has_room ? Error(MEMLITH_IO, "home") : log.behind().fail(Error(MEMLITH_NO_SPACE, "home"));
    };
    EXPECT_FALSE(log.settle(bring_home).ok());
    EXPECT_EQ(list.entries.size(), 1u) << "given up, and not home";
    EXPECT_EQ(log.write().error().category(), MEMLITH_POISONED);
  }
}

TEST(SettledLogTest, TheThreadSettlesWhenThereIsMuchAndTriesAgain) {
  ListedLog list;
  SettledLog log(list, 2000);
  std::atomic<int> settled = 0;
  list.fails_to_give_up = MEMLITH_NO_SPACE;
  std::thread thread([&] {
    log.settle_behind([&] {
      ++settled;
      return log.settle(nothing);
    });
  });
  ASSERT_TRUE(log.append(std::string(2000, 'x')).ok());
  log.behind().wake();
  while (log.wants_settling()) std::this_thread::yield();
  EXPECT_GE(settled, 2) << "the first was refused";
  log.behind().end();
  thread.join();
  EXPECT_TRUE(list.entries.empty());
}

TEST(SettledLogTest, TheThreadEndsWithAFailureAndWhileItIsRefused) {
  for (const std::int32_t why : {MEMLITH_IO, MEMLITH_NO_SPACE}) {
    ListedLog list;
    SettledLog log(list, 1);
    ASSERT_TRUE(log.append("one").ok());
    std::atomic<bool> has_tried = false;
    std::thread thread([&] {
      log.settle_behind([&]() -> Result<void> {
        has_tried = true;
        return Error(why, "settle");
      });
    });
    log.behind().wake();
    while (!has_tried) std::this_thread::yield();
    if (why == MEMLITH_NO_SPACE) log.behind().end();
    thread.join();
  }
}

}  // namespace
}  // namespace memlith_settled
