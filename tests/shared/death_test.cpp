// docs/shared-regions.md, "What a death leaves": clients and keepers are killed at every step of the protocol.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>

#include <optional>

#include "base/descriptor.hpp"
#include "world.hpp"

namespace memlith::test {
namespace {

constexpr int kSteps = 4000;  // more than there are

class SharedDeath : public SharedWorld {};

TEST_F(SharedDeath, OfAClientAtEveryStep) {
  Child keeper = start_keeper();
  int deaths = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->die_at = static_cast<std::uint64_t>(at);
    const std::uint64_t acknowledged = told->acknowledged[0];
    Child client([&] {
      const auto opened = or_leave(open(), 20);
      core::shm::observer = step;
      move(*opened, 0, at % kAccounts, (at + 3) % kAccounts, at, true);
      move(*opened, 0, at % kAccounts, (at + 5) % kAccounts, at);
    });
    const int status = client.wait();
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "step " << at << ": " << WEXITSTATUS(status);
    ASSERT_EQ(look(), "") << "after a death at step " << at;
    const auto opened = open();
    ASSERT_TRUE(opened.ok());
    // The next one counts from there: a commit that was not acknowledged may be there.
    ASSERT_LE(table_of(**opened).done[0], acknowledged + 1);
    told->acknowledged[0] = table_of(**opened).done[0];
    if (!WIFSIGNALED(status)) break;
    ++deaths;
  }
  EXPECT_GT(deaths, 25);
  // And on the disk.
  keeper.kill();
  keeper = start_keeper();
  EXPECT_EQ(look(), "");
}

// The keeper of each round is killed at another step. Its client commits, aborts, and is killed with ranges.
TEST_F(SharedDeath, OfTheKeeperAtEveryStep) {
  int deaths = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->stage = 0;
    told->die_at = static_cast<std::uint64_t>(at);
    Child keeper = start_keeper(true);
    Child client([&] {
      auto opened = open();
      if (!opened.ok()) ::_exit(0);
      for (int i = 0; i < 2; ++i) move(**opened, 1, i, i + 7, at, i == 1);
      move(**opened, 1, 3, 4, at);
      told->stage = 1;
      auto tx = (*opened)->begin();
      if (!tx.ok() || !(*tx)->touch_before((*opened)->address(), 64, kLong).ok()) ::_exit(0);
      table_of(**opened).account[2] = 77;
      ::kill(::getpid(), SIGKILL);
    });
    (void)client.wait();
    // A keeper that lives to the end undoes what the client has left. One that does not is killed here at the latest.
    const bool is_last = told->stage == 1 && look().empty() && told->steps < static_cast<std::uint64_t>(at);
    keeper.kill();
    told->die_at = 0;
    keeper = start_keeper();
    ASSERT_EQ(look(), "") << "after a death at step " << at;
    const auto opened = open();
    ASSERT_TRUE(opened.ok());
    told->acknowledged[1] = table_of(**opened).done[1];
    if (is_last) break;
    ++deaths;
  }
  EXPECT_GT(deaths, 20);
}

// A child that was forked has the parent's socket, which then does not end with the parent.
TEST_F(SharedDeath, IsNoticedWhileAForkedChildLives) {
  Child keeper = start_keeper();
  Child parent([&] {
    const auto opened = or_leave(open(), 20);
    SharedTransaction* const tx = or_leave(opened->begin(), 21);
    or_leave(tx->touch_before(opened->address(), sizeof(Table), kLong), 22);
    table_of(*opened).account[0] = 5;
    if (::fork() == 0) {
      while (told->stage < 2) ::usleep(1000);
      ::_exit(0);
    }
    told->stage = 1;
    ::pause();
  });
  await_stage(1);
  parent.kill();
  EXPECT_EQ(look(), "");
  told->stage = 2;
}

// The keeper, and the clients, are in a container each: the keeper cannot see their numbers. The child is one that the
// handlers of fork do not see, so it has the socket, and all else.
TEST_F(SharedDeath, InAnotherPidNameSpaceIsNoticedWhileAChildLives) {
  const core::Descriptor own(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  if (::unshare(CLONE_NEWPID) != 0) GTEST_SKIP() << "this user may not make PID name spaces";
  Child keeper = start_keeper();
  ASSERT_EQ(::setns(own.get(), CLONE_NEWPID), 0);
  ASSERT_EQ(::unshare(CLONE_NEWPID), 0);
  const Child container([&] {
    Child client([&] {
      const auto opened = or_leave(open(), 20);
      SharedTransaction* const tx = or_leave(opened->begin(), 21);
      or_leave(tx->touch_before(opened->address(), sizeof(Table), kLong), 22);
      table_of(*opened).account[0] = 5;
      if (::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
        for (;;) ::pause();
      }
      told->stage = 1;
      ::pause();
    });
    await_stage(1);
    client.kill();
    told->stage = 2;
    ::pause();
  });
  ASSERT_EQ(::setns(own.get(), CLONE_NEWPID), 0);
  await_stage(2);
  EXPECT_EQ(look(), "");
}

TEST_F(SharedDeath, OfTheKeeperPoisonsEveryHandle) {
  Child keeper = start_keeper();
  auto client = open();
  ASSERT_TRUE(client.ok());
  auto tx = (*client)->begin();
  ASSERT_TRUE(tx.ok());
  ASSERT_TRUE((*tx)->touch_before((*client)->address(), 8, kLong).ok());
  // Another one waits for the range.
  Child waiter([&] {
    const auto opened = or_leave(open(), 20);
    SharedTransaction* const own = or_leave(opened->begin(), 21);
    told->stage = 1;
    const core::Status status = own->touch_before(opened->address(), 8, kLong);
    ::_exit(status.category == core::Errc::poisoned ? 3 : 4);
  });
  await_stage(1);
  keeper.kill();
  EXPECT_EQ(WEXITSTATUS(waiter.wait()), 3) << "a process that waits is not told";
  EXPECT_EQ((*tx)->touch_before((*client)->address() + 64, 8, kLong).category, core::Errc::poisoned);
  EXPECT_EQ((*client)->commit(**tx, true).status().category, core::Errc::poisoned);
  EXPECT_EQ((*client)->wait(1).category, core::Errc::poisoned);
  EXPECT_EQ((*client)->begin().status().category, core::Errc::poisoned);
  // A new keeper is nothing to an old handle.
  keeper = start_keeper();
  EXPECT_EQ((*client)->check().category, core::Errc::poisoned);
  EXPECT_EQ(open().status().category, core::Errc::address_taken);
  *client = nullptr;
  EXPECT_EQ(look(), "");
}

// ---- mutants: what the tests above rest on notices each

class SharedMutants : public SharedWorld {};

// Kills the keeper behind the answer to a commit; what the next one shows.
std::string killed_after_answer(const std::function<Child()>& start, const std::function<void()>& commit,
                                const std::function<std::string()>& look) {
  Child keeper = start();
  commit();
  keeper.kill();
  keeper = start();
  return look();
}

TEST_F(SharedMutants, AnAnswerBeforeTheFlushIsNoticed) {
  const auto commit = [this] {
    Child client([&] { move(*or_leave(open(), 20), 0, 1, 2, 5); });
    ASSERT_EQ(client.wait(), 0);
  };
  EXPECT_EQ(killed_after_answer([this] { return start_keeper(); }, commit, [this] { return look(); }), "");
  EXPECT_EQ(killed_after_answer([this] { return start_keeper(false, Mutant::answer_before_durable); }, commit,
                                [this] { return look(); }),
            "an acknowledged commit is gone");
}

TEST_F(SharedMutants, AnUndoThatIsLeftOutIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::undo_left_out}) {
    Child keeper = start_keeper(false, mutant);
    told->steps = 0;
    Child client([&] {
      const auto opened = or_leave(open(), 20);
      SharedTransaction* const tx = or_leave(opened->begin(), 21);
      or_leave(tx->touch_before(opened->address(), 16, kLong), 22);
      table_of(*opened).account[0] += 5;
      ::kill(::getpid(), SIGKILL);
    });
    (void)client.wait();
    EXPECT_EQ(look(), mutant == Mutant::none ? "" : "the sum is 5");
  }
}

// The keeper does each step slowly, so that a waiter for a range gets it as soon as it is released.
TEST_F(SharedMutants, AReleaseBeforeTheUndoIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::release_before_undo}) {
    Child keeper = start_keeper(true, mutant);
    told->pause_us = 50'000;
    told->stage = 0;
    Child client([&] {
      const auto opened = or_leave(open(), 20);
      SharedTransaction* const tx = or_leave(opened->begin(), 21);
      or_leave(tx->touch_before(opened->address(), 16, kLong), 22);
      table_of(*opened).account[0] += 5;
      told->stage = 1;
      ::pause();
    });
    await_stage(1);
    auto waiting = open();
    ASSERT_TRUE(waiting.ok());
    auto tx = (*waiting)->begin();
    ASSERT_TRUE(tx.ok());
    client.kill();
    ASSERT_TRUE((*tx)->touch_before((*waiting)->address(), 16, kLong).ok());
    EXPECT_EQ(complaint(table_of(**waiting)), mutant == Mutant::none ? "" : "the sum is 5");
    told->pause_us = 0;
  }
}

TEST_F(SharedMutants, ACaptureAfterTheReleaseIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::capture_after_release}) {
    Child keeper = start_keeper(true, mutant);
    told->stage = 0;
    Child first([&] {
      const auto opened = or_leave(open(), 20);
      SharedTransaction* const tx = or_leave(opened->begin(), 21);
      or_leave(tx->touch_before(opened->address(), 16, kLong), 22);
      told->stage = 1;
      while (told->stage < 2) ::usleep(1000);
      told->pause_us = 50'000;
      (void)or_leave(opened->commit(*tx, true), 23);
    });
    await_stage(1);
    // Stores something as soon as it gets the range, and is killed with that.
    Child second([&] {
      const auto opened = or_leave(open(), 20);
      SharedTransaction* const tx = or_leave(opened->begin(), 21);
      told->stage = 2;
      or_leave(tx->touch_before(opened->address(), 16, kLong), 22);
      table_of(*opened).account[0] += 5;
      told->stage = 3;
      ::pause();
    });
    EXPECT_EQ(first.wait(), 0);
    await_stage(3);
    told->pause_us = 0;
    second.kill();
    EXPECT_EQ(look(), mutant == Mutant::none ? "" : "the sum is 5");
    keeper.kill();
  }
}

}  // namespace
}  // namespace memlith::test
