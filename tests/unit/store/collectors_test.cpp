// store/collectors.hpp, INVARIANT one-order: what waits is seen to wait until it is in the log.
#include "store/collectors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "store/store.hpp"
#include "support/expect.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

// Keeps one word, and notes at each step of a closing whether another thread would see that something waits.
class OneWord : public Collector {
 public:
  OneWord(Store& store, ObjectId object, std::uint64_t offset = 0)
      : Collector(store.collectors()), store_(store), object_(object), offset_(offset) {}
  Lsn put(std::uint64_t word) {
    begin_commit();
    word_ = word;
    note_waiting_commit();
    return newest_ticket();
  }
  std::vector<bool> seen;
  std::function<void()> before_frame;  // something was set aside for it

 private:
  void note() { seen.push_back(store_.collectors().any_waits()); }
  Result<KeptLock> pause() override {
    note();
    return KeptLock();
  }
  void set_aside(const Closing& closing) noexcept override {
    EXPECT_TRUE(closing.holds(*this));
    note();
  }
  CommitBatch first(std::uint64_t /*bytes_max*/) override {
    note();
    if (before_frame) std::exchange(before_frame, nullptr)();
    extents_ = {Extent{object_, offset_, sizeof word_}};
    sources_ = {reinterpret_cast<const std::byte*>(&word_)};
    return {extents_, sources_, std::nullopt, sizeof word_, 1};
  }
  bool in_log(Lsn /*end*/) noexcept override {
    note();
    return false;
  }
  [[nodiscard]] std::string what_waits() const override { return "a word"; }

  Store& store_;
  ObjectId object_;
  std::uint64_t offset_;
  std::uint64_t word_ = 0;
  std::array<Extent, 1> extents_;
  std::array<const std::byte*, 1> sources_;
};

class CollectorsTest : public ::testing::Test {
 protected:
  CollectorsTest() { open(true); }
  void open(bool manual_flush) {
    store_ = nullptr;
    volume_ = std::make_unique<SimVolume>();
    options_.create = true;
    options_.manual_flush = manual_flush;
    store_ = must(Store::open(*volume_, options_));
    object_ = must(store_->create("a", kPageBytes, 0, kPageBytes)).id;
  }
  // As by a thread that has closed the collectors before, and comes to the log now. Durable on return.
  void commit_beside() {
    const Extent extent{object_, 64, sizeof beside_};
    const std::byte* const source = reinterpret_cast<const std::byte*>(&++beside_);
    const Lsn end = must(store_->commit_weak({{&extent, 1}, {&source, 1}, {}}, true));
    ASSERT_OK(store_->sync(end));
    ASSERT_GE(store_->log().durable_lsn(), end);
  }

  std::unique_ptr<SimVolume> volume_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
  ObjectId object_;
  std::uint64_t beside_ = 0;
};

// Otherwise a commit of another thread could pass one that had returned before, while a closing takes that to the log.
TEST_F(CollectorsTest, WhatIsSetAsideWaitsUntilItIsInTheLog) {
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  EXPECT_FALSE(store_->collectors().any_waits());
  for (std::uint64_t i = 1; i <= 2; ++i) {
    word.put(i);
    EXPECT_OK(store_->collectors().close(false).status());
    EXPECT_EQ(word.seen, std::vector<bool>(4, true));  // one each of pause, set_aside, first, in_log
    EXPECT_FALSE(store_->collectors().any_waits());
    word.seen.clear();
  }
  store_->collectors().remove(word, true);
}

// A commit of another thread is in the log and durable before one that waits: the ticket of that one is smaller.
TEST_F(CollectorsTest, TheTicketOfAWaitingCommitIsNotDurableBeforeItsFrame) {
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  const Lsn ticket = word.put(1);
  EXPECT_LT(store_->durable_ticket(), ticket);
  commit_beside();
  EXPECT_GT(store_->log().durable_lsn(), ticket);
  EXPECT_LT(store_->durable_ticket(), ticket);
  EXPECT_LT(word.durable_ticket(), ticket);
  // In the log, and not on the disk.
  const Lsn end = must(store_->collectors().close(false));
  EXPECT_GE(end, ticket);
  EXPECT_LT(store_->durable_ticket(), ticket);
  EXPECT_OK(store_->wait(ticket));
  EXPECT_GE(store_->durable_ticket(), ticket);
  EXPECT_GE(word.durable_ticket(), ticket);
  EXPECT_GE(store_->newest_ticket(), store_->durable_ticket());
  store_->collectors().remove(word, true);
}

// An entry of an application log, say, whose writer waits for more. Otherwise a program that polls the durable ticket
// for the commit beside would poll for ever.
TEST_F(CollectorsTest, ALookAtHeldTicketsBringsWhatHoldsThemToTheDisk) {
  open(false);
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  const Lsn ticket = word.put(1);
  EXPECT_LT(store_->durable_ticket(), ticket);
  commit_beside();
  while (store_->durable_ticket() < ticket) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(store_->collectors().any_waits());
  store_->collectors().remove(word, true);
}

// One wait brings what waits in several structures to the disk.
TEST_F(CollectorsTest, AWaitForATicketClosesWhatWaits) {
  OneWord one(*store_, object_);
  OneWord two(*store_, object_, 8);
  store_->collectors().add(one);
  store_->collectors().add(two);
  (void)one.put(1);
  (void)two.put(2);
  const Lsn newest = store_->newest_ticket();
  EXPECT_ERROR(Errc::invalid, store_->wait(newest.advance(1)));
  EXPECT_LT(store_->durable_ticket(), newest);
  EXPECT_OK(store_->wait(newest));
  EXPECT_FALSE(store_->collectors().any_waits());
  EXPECT_GE(store_->durable_ticket(), newest);
  store_->collectors().remove(one, true);
  store_->collectors().remove(two, true);
}

// While a closing takes one commit to the log, the next has a later ticket, although the head has not moved.
TEST_F(CollectorsTest, ACommitBesideAClosingHasALaterTicket) {
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  const Lsn first = word.put(1);
  Lsn second;
  word.before_frame = [&] { second = word.put(2); };
  EXPECT_OK(store_->sync(must(store_->collectors().close(false))));
  EXPECT_GT(second, first);
  EXPECT_GE(store_->durable_ticket(), first);
  EXPECT_LT(store_->durable_ticket(), second);
  commit_beside();
  EXPECT_LT(store_->durable_ticket(), second);
  EXPECT_OK(store_->wait(second));
  EXPECT_GE(store_->durable_ticket(), second);
  store_->collectors().remove(word, true);
}

TEST_F(CollectorsTest, ATicketOfWhatIsLostIsNeverDurable) {
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  const Lsn ticket = word.put(1);
  store_->collectors().remove(word, true);
  commit_beside();
  EXPECT_GT(store_->log().durable_lsn(), ticket);
  EXPECT_LT(store_->durable_ticket(), ticket);
  EXPECT_ERROR(Errc::no_space, store_->wait(ticket));
  EXPECT_LT(store_->durable_ticket(), ticket);
}

// More frames than HeldTickets keeps apart.
TEST_F(CollectorsTest, TicketsOfManyFramesBecomeDurableWithOneFlush) {
  OneWord word(*store_, object_);
  store_->collectors().add(word);
  std::vector<Lsn> tickets;
  Lsn end;
  for (std::uint64_t i = 0; i < 200; ++i) {
    tickets.push_back(word.put(i));
    end = must(store_->collectors().close(false));
    EXPECT_LT(store_->durable_ticket(), tickets.front());
  }
  EXPECT_TRUE(std::ranges::is_sorted(tickets));
  EXPECT_OK(store_->sync(end));
  EXPECT_GE(store_->durable_ticket(), tickets.back());
  store_->collectors().remove(word, true);
}

}  // namespace
}  // namespace memlith::test
