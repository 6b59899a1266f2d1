// memlith/steps.hpp: calls that happen once, effects of unknown outcome, waits, refusals; in a real store.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memlith/steps.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using namespace std::chrono_literals;
using steps::Journal;

using steps::Status;

struct Opened {
  explicit Opened(const std::string& path)
      : store(std::move(*Store::open(path, {.create = true}))), journal(std::move(*Journal::open(store))) {}
  ~Opened() { EXPECT_TRUE(journal.close().ok()); }
  steps::Run run(std::string_view id, const steps::RunOptions& options = {}) {
    auto made = journal.run(id, options);
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }
  Store store;
  Journal journal;
};

class DurableSteps : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "s"; }
  TempFolder folder_;
};

#define EXPECT_FAILS(call, wanted, part)                                                           \
  do {                                                                                             \
    const auto failed = call;                                                                      \
    ASSERT_FALSE(failed.ok());                                                                     \
    EXPECT_EQ(failed.error().category(), wanted) << failed.error().message();                      \
    EXPECT_NE(failed.error().message().find(part), std::string::npos) << failed.error().message(); \
  } while (false)

TEST_F(DurableSteps, AStepHappensOnceWithAllThatItChanged) {
  int calls = 0;
  for (int life = 0; life < 3; ++life) {
    Opened opened(path());
    auto map = opened.journal.records().map("stock", {.create = true});
    ASSERT_TRUE(map.ok());
    {
      steps::Run run = opened.run("order", {.weak = life == 1});
      const auto value = run.step("reserve", [&](steps::Step& step) -> Result<int> {
        ++calls;
        if (auto put = step.records().put(*map, "marble", "9"); !put) return put.error();
        if (auto sent = step.send("reserved"); !sent) return sent.error();
        return 9;
      });
      ASSERT_TRUE(value.ok()) << value.error().message();
      EXPECT_EQ(*value, 9);
      ASSERT_TRUE(run.step("nothing", [&](steps::Step&) { ++calls; }).ok());
      ASSERT_TRUE(run.finish(std::string("receipt")).ok());
      EXPECT_EQ(*run.result(), "receipt");
      EXPECT_FAILS(run.step("more", [](steps::Step&) {}), MEMLITH_INCOMPATIBLE, "is done");
    }
    const auto info = opened.journal.info("order");
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->status, Status::done);
    EXPECT_EQ(info->position, 2u);
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(DurableSteps, AnErrorUndoesAStepAndIsRecordedIfTheProgramGoesOn) {
  int calls = 0;
  for (int life = 0; life < 3; ++life) {
    Opened opened(path());
    auto map = opened.journal.records().map("stock", {.create = true});
    steps::Run run = opened.run("order");
    const auto fails = [&](steps::Step& step) -> Result<void> {
      ++calls;
      EXPECT_TRUE(step.records().put(*map, "marble", "9").ok());
      return Error(MEMLITH_FULL, "no room");
    };
    EXPECT_FAILS(run.step("fails", fails), MEMLITH_FULL, "no room");
    auto txn = opened.journal.records().begin({.read_only = true});
    EXPECT_FALSE(txn->find(*map, "marble")->has_value());
    if (life > 0) {
      ASSERT_TRUE(run.step("else", [](steps::Step&) { return std::string("x"); }).ok());
    }
  }
  EXPECT_EQ(calls, 2);  // the first life ended behind the error
}

TEST_F(DurableSteps, AnEffectOfUnknownOutcomeIsRepeatedWithItsKeyOrDecided) {
  std::string keys;
  const auto call = [&](std::string_view key) -> std::string {
    keys.append(key).append(";");
    if (keys.size() < 40) throw 1;  // as a kill
    return "paid";
  };
  Opened opened(path());
  std::string key;
  {
    steps::Run run = opened.run("keyed");
    key = run.key();
    EXPECT_THROW((void)run.effect("charge", call, {.key = key}), int);
    EXPECT_EQ((*run.unknown())->key, key);
    EXPECT_THROW((void)run.effect("charge", call, {.key = "another"}), int);
    auto paid = run.effect("charge", call, {.key = key});
    ASSERT_TRUE(paid.ok());
    EXPECT_EQ(*paid, "paid");
    EXPECT_EQ(keys, key + ";" + key + ";" + key + ";");
    EXPECT_FALSE(run.unknown()->has_value());
    EXPECT_NE(run.key(), key);
  }
  int calls = 0;
  const auto mail = [&](std::string_view) {
    if (++calls < 3) throw 1;
  };
  steps::Run run = opened.run("keyless");
  EXPECT_THROW((void)run.effect("mail", mail), int);
  EXPECT_FAILS(run.effect("mail", mail), MEMLITH_INVALID, "unknown whether effect mail has happened");
  ASSERT_TRUE(run.repeat().ok());
  EXPECT_THROW((void)run.effect("mail", mail), int);
  ASSERT_TRUE(run.happened().ok());
  ASSERT_TRUE(run.effect("mail", mail).ok());
  EXPECT_EQ(calls, 2);
  EXPECT_FAILS(run.happened(), MEMLITH_NOT_FOUND, "no effect whose outcome is unknown");
}

TEST_F(DurableSteps, CodeThatDoesNotMatchIsTold) {
  Opened opened(path());
  ASSERT_TRUE(opened.run("r").step("reserve", [](steps::Step&) { return 1; }, {.version = "2"}).ok());
  steps::Run run = opened.run("r");
  EXPECT_FAILS(run.step("charge", [](steps::Step&) {}), MEMLITH_INCOMPATIBLE,
               "recorded step reserve of version 2 as call 0, and the program calls step charge");
  EXPECT_FAILS(run.wait_for("go"), MEMLITH_INCOMPATIBLE, "a wait for signal go");
  EXPECT_FAILS(run.finish(), MEMLITH_INCOMPATIBLE, "ends behind 0 steps, and has recorded 1");
  EXPECT_FAILS(run.step("reserve", [](steps::Step&) { return std::uint64_t{1}; }, {.version = "2"}),
               MEMLITH_INCOMPATIBLE, "has 4 bytes, and not 8");
  EXPECT_FAILS(opened.journal.run("r", {.version = "3"}), MEMLITH_INCOMPATIBLE, "was begun by version \"\"");
  for (const std::string& name : {std::string(), std::string(251, 'x'), std::string("a\0b", 3)}) {
    EXPECT_FAILS(opened.journal.run(name), MEMLITH_INVALID, "1 to 250 bytes");
  }
}

TEST_F(DurableSteps, AnotherObjectTakesARunOver) {
  Opened opened(path());
  steps::Run one = opened.run("r");
  ASSERT_TRUE(one.step("a", [](steps::Step&) {}).ok());
  steps::Run two = opened.run("r");
  EXPECT_FAILS(one.step("b", [](steps::Step&) {}), MEMLITH_CONFLICT, "taken by another");
  ASSERT_TRUE(two.step("a", [](steps::Step&) { ADD_FAILURE(); }).ok());
  ASSERT_TRUE(opened.journal.cancel("r").ok());
  EXPECT_FAILS(two.step("b", [](steps::Step&) {}), MEMLITH_INVALID, "was cancelled");
  EXPECT_FAILS(opened.journal.cancel("r"), MEMLITH_INVALID, "it is cancelled");
  ASSERT_TRUE(opened.journal.retry("r").ok());
  ASSERT_TRUE(two.step("b", [](steps::Step&) {}).ok());
  EXPECT_FAILS(opened.journal.retry("none"), MEMLITH_NOT_FOUND, "no run \"none\"");
}

TEST_F(DurableSteps, SignalsComeInOrderAndSleepsEndOnce) {
  for (int life = 0; life < 2; ++life) {
    Opened opened(path());
    steps::Run run = opened.run("r");
    if (life == 0) {
      ASSERT_TRUE(opened.journal.signal("r", "go", "one").ok());
      ASSERT_TRUE(opened.journal.signal("r", "go", "two").ok());
    }
    EXPECT_EQ(**run.wait_for("go"), "one");
    EXPECT_EQ(**run.wait_for("go", 1h), "two");
    EXPECT_FALSE(run.wait_for("go", 1ms)->has_value());
    ASSERT_TRUE(run.sleep(life == 0 ? 1ms : 1h).ok());
    std::thread later;
    if (life == 0) later = std::thread([&] { EXPECT_TRUE(opened.journal.signal("r", "number", 5).ok()); });
    EXPECT_EQ(**run.wait_for<int>("number"), 5);
    if (later.joinable()) later.join();
    ASSERT_TRUE(run.step("last", [](steps::Step&) {}).ok());
  }
}

TEST_F(DurableSteps, RunsOfManyThreadsAreListed) {
  Opened opened(path());
  std::vector<std::thread> threads;
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      steps::Run run = opened.run("run-" + std::to_string(number), {.weak = number % 2 == 0});
      for (int each = 0; each < 50; ++each) {
        ASSERT_TRUE(run.step("s", [&](steps::Step&) { return each; }).ok());
      }
      ASSERT_TRUE(run.finish().ok());
    });
  }
  for (std::thread& each : threads) each.join();
  const auto runs = opened.journal.runs("run-");
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 8u);
  for (const steps::RunInfo& each : *runs) EXPECT_EQ(each.position, 50u) << each.id;
  EXPECT_TRUE(opened.journal.runs("other")->empty());
}

TEST_F(DurableSteps, RecordsThatAreDamagedOrNewerAreTold) {
  Opened opened(path());
  ASSERT_TRUE(opened.run("r").step("a", [](steps::Step&) { return 1; }).ok());
  const Kv& kv = opened.journal.records();
  auto map = kv.map("=.steps");
  ASSERT_TRUE(map.ok());
  for (const std::string& key : {steps::detail::key('r', "r"), steps::detail::call_key("r", 0)}) {
    std::string whole;
    ASSERT_TRUE(kv.transact([&](KvTransaction& txn) -> Result<void> {
                    whole = **txn.find(*map, key);
                    return {};
                  }).ok());
    for (const auto& [bytes, category] :
         {std::pair(whole.substr(0, whole.size() - 1), MEMLITH_CORRUPT), std::pair(whole + "x", MEMLITH_CORRUPT),
          std::pair(std::string(), MEMLITH_CORRUPT), std::pair("\2" + whole.substr(1), MEMLITH_INCOMPATIBLE)}) {
      ASSERT_TRUE(kv.transact([&](KvTransaction& txn) { return txn.put(*map, key, bytes); }).ok());
      auto run = opened.journal.run("r");
      if (run.ok()) {
        const auto called = run->step("a", [](steps::Step&) { return 1; });
        ASSERT_FALSE(called.ok());
        EXPECT_EQ(called.error().category(), category);
      } else {
        EXPECT_EQ(run.error().category(), category);
      }
    }
    ASSERT_TRUE(kv.transact([&](KvTransaction& txn) { return txn.put(*map, key, whole); }).ok());
  }
}

}  // namespace
}  // namespace memlith::test
