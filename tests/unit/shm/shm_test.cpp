// Memory that processes share, among real processes: who lives, what a death leaves locked, who is woken, which memory
// is refused; and helpers.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "shm/bell.hpp"
#include "shm/helper.hpp"
#include "shm/meeting.hpp"
#include "shm/packet.hpp"
#include "shm/participant.hpp"
#include "shm/robust_mutex.hpp"
#include "shm/segment.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::shm_test {
namespace {

using namespace core;
using namespace core::shm;
using std::chrono::milliseconds;

struct Board {
  static constexpr std::uint64_t kLayout = 7;
  RobustMutex mutex;
  Bell bell;
  Word owner{0};
  Word stage{0};
  Word repairs{0};
  std::uint64_t left = 0;  // two words that are equal, but for a moment
  std::uint64_t right = 0;
};

Segment<Board> make_board() {
  auto made = Segment<Board>::make("board", true, [](Board&) { return kOk; });
  EXPECT_TRUE(made.ok()) << last_error_text();
  return std::move(*made);
}

Participant join(const Segment<Board>& board) {
  auto joined = board.join();
  if (!joined.ok()) std::abort();
  return std::move(*joined);
}

// The analysis of locks does not follow these: a process dies with the mutex, or looks whether it can have it.
template <class Repair>
void lock_and_keep(Board& board, const Participant& self, Repair repair) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  board.mutex.lock(self, repair);
}
template <class Repair>
bool can_lock(Board& board, const Participant& self, Repair repair) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  if (!board.mutex.try_lock(self, repair)) return false;
  board.mutex.unlock();
  return true;
}

void await(const Word& word, std::uint32_t value) {
  while (word.load() < value) ::usleep(500);
}

pid_t start(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  act();
  ::_exit(0);
}

void kill(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// In a PID name space of its own, where its number is 1. False: this process may not make one.
bool in_own_numbers(const std::function<void()>& act, pid_t& child) {
  child = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    act();
    ::_exit(0);
  }
  return child > 0;
}

TEST(Participants, LiveUntilTheyEnd) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  EXPECT_NE(self.id(), 0u);
  EXPECT_TRUE(self.lives(self.id()));
  EXPECT_FALSE(self.lives(0));
  EXPECT_FALSE(self.lives(self.id() + 1)) << "a place that no process ever took";
  ParticipantId other = 0;
  {
    const Participant second = join(board);
    other = second.id();
    EXPECT_NE(other, self.id());
    EXPECT_TRUE(self.lives(other));
    EXPECT_TRUE(second.lives(self.id()));
  }
  EXPECT_FALSE(self.lives(other));
  const Participant third = join(board);
  EXPECT_NE(third.id(), other);
  EXPECT_EQ(third.place(), other & (kPlaces - 1));
  EXPECT_FALSE(self.lives(other)) << "its place is another's now";
}

TEST(Participants, OfAProcessThatWasKilledAreDead) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  const pid_t child = start([&] {
    if (self.is_of_this_process()) ::_exit(1);
    const Participant own = join(board);
    board->owner.store(own.id());
    ::pause();
  });
  while (board->owner.load() == 0) ::usleep(500);
  EXPECT_TRUE(self.lives(board->owner.load()));
  kill(child);
  EXPECT_FALSE(self.lives(board->owner.load()));
}

TEST(Participants, AForkedChildDoesNotKeepItsParentAlive) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  const pid_t parent = start([&] {
    const Participant own = join(board);
    if (::fork() == 0) {
      board->stage.store(1);
      await(board->stage, 2);
      ::_exit(0);
    }
    board->owner.store(own.id());
    ::pause();
  });
  await(board->stage, 1);
  while (board->owner.load() == 0) ::usleep(500);
  kill(parent);
  EXPECT_FALSE(self.lives(board->owner.load()));
  board->stage.store(2);
}

TEST(Participants, AreToldApartInOtherPidNameSpaces) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  pid_t child = 0;
  const auto live = [&] {
    const Participant own = join(board);
    board->owner.store(own.id());
    ::pause();
  };
  if (!in_own_numbers(live, child)) GTEST_SKIP() << "this user may not make PID name spaces";
  while (board->owner.load() == 0) ::usleep(500);
  EXPECT_TRUE(self.lives(board->owner.load()));
  kill(child);
  EXPECT_FALSE(self.lives(board->owner.load()));
}

TEST(ARobustMutex, ExcludesProcessesAndThreads) {
  const Segment<Board> board = make_board();
  const auto count = [&board] {
    const Participant self = join(board);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 20'000; ++n) {
          const RobustLock lock(board->mutex, self);
          ++board->left;
          ++board->right;
        }
      });
    }
    for (std::thread& each : threads) each.join();
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) children.push_back(start(count));
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  EXPECT_EQ(board->left, 120'000u);
  EXPECT_EQ(board->right, 120'000u);
}

// The owner dies with the two words unequal. The next owner finds them repaired, after a wait and without one.
TEST(ARobustMutex, OfADeadOwnerIsRepaired) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  const auto repair = [&board] {
    board->right = board->left;
    board->repairs.fetch_add(1);
  };
  for (std::uint32_t round = 1; round <= 20; ++round) {
    board->stage.store(0);
    const pid_t child = start([&] {
      const Participant own = join(board);
      const RobustLock lock(board->mutex, own, repair);
      ++board->left;
      board->stage.store(1);
      ::pause();
    });
    await(board->stage, 1);
    EXPECT_FALSE(can_lock(*board, self, repair));
    std::thread killer([&] {
      ::usleep(round % 3 * 1000);
      kill(child);
    });
    if (round % 2 == 0) {
      killer.join();
      ASSERT_TRUE(can_lock(*board, self, repair));
    } else {
      const RobustLock lock(board->mutex, self, repair);
      EXPECT_EQ(board->left, board->right);
      killer.join();
    }
    EXPECT_EQ(board->repairs.load(), round);
    EXPECT_EQ(board->left, round);
  }
}

TEST(ARobustMutex, IsRepairedByTheNextOwnerIfTheRepairDies) {
  const Segment<Board> board = make_board();
  const Participant self = join(board);
  for (const bool repairs : {false, true}) {
    const pid_t child = start([&] {
      const Participant own = join(board);
      lock_and_keep(*board, own, [&] {
        if (repairs) ::kill(::getpid(), SIGKILL);
      });
      ::kill(::getpid(), SIGKILL);
    });
    ::waitpid(child, nullptr, 0);
  }
  int repaired = 0;
  board->mutex.lock(self, [&] { ++repaired; });
  board->mutex.unlock();
  EXPECT_EQ(repaired, 1);
  board->mutex.lock(self, [&] { ++repaired; });
  board->mutex.unlock();
  EXPECT_EQ(repaired, 1);
}

// Process numbers are equal there: robust mutexes of the C library would take the mutex from its owner.
TEST(ARobustMutex, StaysItsOwnersWhenAWaiterOfAnotherNameSpaceDies) {
  const Segment<Board> board = make_board();
  pid_t owner = 0;
  const auto own = [&] {
    const Participant self = join(board);
    const RobustLock lock(board->mutex, self);
    board->stage.store(1);
    await(board->stage, 2);
    ++board->left;
  };
  if (!in_own_numbers(own, owner)) GTEST_SKIP() << "this user may not make PID name spaces";
  await(board->stage, 1);
  pid_t waiter = 0;
  ASSERT_TRUE(in_own_numbers(
      [&] {
        const Participant self = join(board);
        board->owner.store(1);
        lock_and_keep(*board, self, [] {});
      },
      waiter));
  await(board->owner, 1);
  ::usleep(5000);
  kill(waiter);
  const Participant self = join(board);
  EXPECT_FALSE(can_lock(*board, self, [] {}));
  board->stage.store(2);
  ::waitpid(owner, nullptr, 0);
  bool repaired = false;
  board->mutex.lock(self, [&] { repaired = true; });
  EXPECT_FALSE(repaired);
  EXPECT_EQ(board->left, 1u);
  board->mutex.unlock();
}

TEST(ABell, WakesEveryProcessThatWaits) {
  const Segment<Board> board = make_board();
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(start([&] {
      const std::uint32_t ticket = board->bell.ticket();
      board->stage.fetch_add(1);
      while (board->owner.load() == 0) board->bell.wait(ticket, std::chrono::hours(1));
    }));
  }
  await(board->stage, 3);
  board->owner.store(1);
  board->bell.ring();
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

struct OtherBoard : Board {
  static constexpr std::uint64_t kLayout = 8;
};
struct LongerBoard : Board {
  std::uint64_t more = 0;
};

Descriptor copy_of(int descriptor) { return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3)); }

TEST(ASegment, OfAnotherLayoutOrDamagedIsRefused) {
  const Segment<Board> board = make_board();
  board->left = 5;
  auto same = Segment<Board>::map(copy_of(board.descriptor()), false);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ((*same)->left, 5u);
  EXPECT_EQ(Segment<OtherBoard>::map(copy_of(board.descriptor()), false).status().category, Errc::incompatible);
  EXPECT_EQ(Segment<LongerBoard>::map(copy_of(board.descriptor()), false).status().category, Errc::incompatible);
  EXPECT_NE(::ftruncate(board.descriptor(), 0), 0) << "a process could end the others by SIGBUS";
  constexpr std::uint64_t kNoMagic = 1;
  ASSERT_EQ(::pwrite(board.descriptor(), &kNoMagic, sizeof kNoMagic, 0), 8);
  EXPECT_EQ(Segment<Board>::map(copy_of(board.descriptor()), false).status().category, Errc::corrupt);
}

// ---- meetings

struct Room {
  static constexpr std::uint64_t kLayout = 3;
  Word visits{0};
};
using RoomMeeting = Meeting<Room>;
// The same in another version.
struct Hall {
  static constexpr std::uint64_t kLayout = 4;
  Word visits{0};
};

struct Attended {
  Result<RoomMeeting> part;
  int filled = 0;  // 1: of nothing, 2: of remains
};
Attended attend(const TempFolder& folder, std::uint64_t spare_bytes = 0) {
  int filled = 0;
  auto part = RoomMeeting::attend({folder / "room", folder.path(), spare_bytes},
                                  [&](Room&, bool remains) { filled = remains ? 2 : 1; });
  return {std::move(part), filled};
}
bool is_there(const TempFolder& folder) { return ::access((folder / "room").c_str(), F_OK) == 0; }

TEST(AMeeting, IsOfThoseThatAreThere) {
  const TempFolder folder;
  Attended first = attend(folder);
  ASSERT_TRUE(first.part.ok()) << last_error_text();
  EXPECT_EQ(first.filled, 1);
  (**first.part).visits.store(5);
  Attended second = attend(folder);
  ASSERT_TRUE(second.part.ok()) << last_error_text();
  EXPECT_EQ(second.filled, 0);
  EXPECT_EQ((**second.part).visits.load(), 5u);
  EXPECT_TRUE(first.part->self().lives(second.part->self().id()));
  first.part->leave([](const Room&) { return true; });
  EXPECT_TRUE(is_there(folder)) << "another one is there";
  second.part->leave([](const Room&) { return false; });
  EXPECT_TRUE(is_there(folder)) << "it is not over";
  Attended third = attend(folder);
  EXPECT_EQ(third.filled, 2);
  EXPECT_EQ((**third.part).visits.load(), 0u) << "remains were believed";
  third.part->leave([](const Room& room) { return room.visits.load() == 0; });
  EXPECT_FALSE(is_there(folder));
}

TEST(AMeeting, IsMadeAnewWhateverWasLeft) {
  const TempFolder folder;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{Segment<Room>::bytes()}, std::size_t{1} << 20}) {
    write_file(folder / "room", std::string(bytes, 'x'));
    const Attended first = attend(folder);
    ASSERT_TRUE(first.part.ok()) << last_error_text();
    EXPECT_EQ(first.filled, 2);
    EXPECT_EQ((**first.part).visits.load(), 0u);
  }
}

TEST(AMeeting, ForgetsAKilledProcessWhoseChildLives) {
  const TempFolder folder;
  const Segment<Board> board = make_board();
  const pid_t parent = start([&] {
    const Attended own = attend(folder);
    board->owner.store(own.part->self().id());
    const pid_t child = ::fork();
    if (child != 0) board->left = static_cast<std::uint64_t>(child);
    board->stage.fetch_add(1);
    ::pause();
  });
  await(board->stage, 2);
  Attended beside = attend(folder);
  EXPECT_EQ(beside.filled, 0);
  EXPECT_TRUE(beside.part->self().lives(board->owner.load()));
  kill(parent);
  EXPECT_FALSE(beside.part->self().lives(board->owner.load()));
  beside.part->leave([](const Room&) { return true; });
  EXPECT_FALSE(is_there(folder)) << "the child was taken for a process that is there";
  ::kill(static_cast<pid_t>(board->left), SIGKILL);
}

TEST(AMeeting, OfAnotherVersionIsRefused) {
  const TempFolder folder;
  const Attended own = attend(folder);
  const auto other = Meeting<Hall>::attend({folder / "room", folder.path()}, [](Hall&, bool) {});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().category, Errc::incompatible);
  EXPECT_TRUE(attend(folder).part.ok());
}

TEST(AMeeting, LeavesNoFileOnADiskWithoutRoom) {
  const TempFolder folder;
  const Attended none = attend(folder, std::uint64_t{1} << 60);
  ASSERT_FALSE(none.part.ok());
  EXPECT_EQ(none.part.error().category, Errc::no_space);
  EXPECT_FALSE(is_there(folder));
}

TEST(ALife, IsReadableWhenTheProcessHasEndedInAnyNameSpace) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor mine(ends[0]);
  Descriptor other(ends[1]);
  pid_t child = 0;
  const auto tell = [&] {
    const auto life = life_of_this_process();
    if (!life.ok()) ::_exit(1);
    const std::array<int, 1> sent{life->get()};
    send_packet(other.get(), std::as_bytes(std::span("life", 4)), sent, true);
    // A child that the handlers of fork do not see keeps the socket open.
    if (::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) ::pause();
    ::pause();
  };
  if (!in_own_numbers(tell, child)) child = start(tell);
  other = Descriptor();
  std::array<std::byte, 4> room{};
  std::array<Descriptor, 1> lives;
  ASSERT_EQ(receive_packet(mine.get(), room, lives, true), 4);
  ASSERT_GE(lives[0].get(), 0);
  pollfd life{lives[0].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&life, 1, 0), 0);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::poll(&life, 1, -1), 1);
  ::waitpid(child, nullptr, 0);
}

HelperProgram shell(const std::string& script) {
  HelperProgram program;
  program.path = "/bin/sh";
  program.words = {"sh", "-c", script};
  return program;
}

TEST(AHelper, TellsHowItsStartWent) {
  EXPECT_TRUE(start_helper(shell("printf ready >&3")).ok());
  const Status failed = start_helper(shell("printf '9 8 the disk is full' >&3"));
  EXPECT_EQ(failed.category, Errc::no_space);
  EXPECT_EQ(failed.detail, Detail::open);
  EXPECT_EQ(last_error_text(), "the disk is full");
  // The one that is waited for is not the one that was started.
  EXPECT_TRUE(start_helper(shell("(sleep 0.05; printf ready >&3) & exec 3>&-")).ok());
}

TEST(AHelper, ThatIsKilledIsStartedAgain) {
  const TempFolder folder;
  const std::string file = folder / "starts";
  EXPECT_TRUE(start_helper(shell("echo >> " + file + "; [ $(wc -l < " + file + ") = 3 ] && printf ready >&3; true"))
                  .ok());
  const Status silent = start_helper(shell("true"));
  EXPECT_EQ(silent.category, Errc::io);
  EXPECT_NE(std::string(last_error_text()).find("without a word"), std::string::npos);
}

TEST(AHelper, HasTheDescriptorAndTheEnvironmentThatItIsGiven) {
  const Segment<Board> board = make_board();
  const Descriptor kept(::fcntl(board.descriptor(), F_DUPFD_CLOEXEC, 7));
  HelperProgram program = shell("[ -e /proc/self/fd/" + std::to_string(kept.get()) +
                                " ] && [ \"$GIVEN\" = yes ] && [ " + "-z \"$HOME\" ] && printf ready >&3");
  program.kept = kept.get();
  program.environment = {"GIVEN=yes"};
  program.has_own_environment = true;
  EXPECT_TRUE(start_helper(program).ok()) << last_error_text();
}

}  // namespace
}  // namespace memlith::test::shm_test
