// docs/backup.md: a copy of a store that a process writes to, at every operation of the writer and at every read of the
// copy, is what exactly one commit left, the one that the copy names; a power cut at that moment keeps that commit. A
// power cut at any operation of the copy leaves a whole store or none, and the copy can be started again. And the tests
// notice each mistake that is planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "copy/source.hpp"
#include "copy/target.hpp"
#include "mutants/mutants.hpp"
#include "readers/world.hpp"
#include "sim/power_cuts.hpp"

namespace memlith::test::copy_test {
namespace {

StoreOptions copying(StoreOptions options, std::chrono::milliseconds patience) {
  options.follow_patience = patience;
  options.replay_bytes_max = 1;  // whatever was gathered goes to the target at once
  return options;
}

struct Copied {
  Lsn lsn;
  Content content;
};

StoreOptions opening_of_a_copy(StoreOptions options) {
  options.create = false;
  return options;
}

// Copies into an empty volume, or what a power cut left of one.
Result<Lsn> copy_into(SimVolume& target_volume, Volume& from, const StoreOptions& options,
                      std::chrono::milliseconds patience = {}) {
  CopyTarget target(target_volume, options.kind, options.file_name);
  MEMLITH_TRY(target.prepare());
  CopySource source(from, copying(options, patience), {1024, 1024});
  auto state = source.walk(target);
  const Status status = state.ok() ? target.finish(*state) : state.status();
  if (!status.ok()) {
    target.abandon();
    return status;
  }
  return state->position.lsn;
}

// Empty if there is no store to copy yet.
std::optional<Copied> copy(Volume& from, const StoreOptions& options, Faults& faults,
                           std::chrono::milliseconds patience = {}) {
  SimVolume target;
  const auto lsn = copy_into(target, from, options, patience);
  if (!lsn.ok()) {
    EXPECT_EQ(lsn.error().category, Errc::not_found) << last_error_text();
    EXPECT_TRUE(target.image().files.empty()) << target.image().files.begin()->first;
    return std::nullopt;
  }
  auto store = Store::open(target, opening_of_a_copy(options));
  if (!store.ok()) {
    faults.add("the copy cannot be opened: " + std::string(last_error_text()));
    return std::nullopt;
  }
  EXPECT_TRUE((*store)->was_clean());
  Copied copied{*lsn, {}};
  for (const ObjectInfo& info : (*store)->objects()) copied.content[info.name] = *(*store)->read_home(info.id);
  return copied;
}

// The content of one commit, the one that the copy names.
void check(const World& world, const Copied& copied, std::vector<Seen>& seen, Faults& faults) {
  const std::int64_t state = world.state_of(copied.content);
  if (state < 0) faults.add("a copy is what no commit left, of LSN " + std::to_string(copied.lsn.value));
  seen.push_back({world.volume.operations(), state});
}

void check_names(const World& world, const std::vector<Copied>& copies, Faults& faults) {
  for (const Copied& each : copies) {
    const std::size_t named = world.state_at(each.lsn);
    if (each.content != world.states[named] && !each.content.empty()) {
      faults.add("a copy names LSN " + std::to_string(each.lsn.value) + ", of state " + std::to_string(named) +
                 ", and is state " + std::to_string(world.state_of(each.content)));
    }
  }
}

void copy_at_operations_of_the_writer(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  PageVolume readers_volume(world.volume, world.pages);
  std::vector<Seen> seen;
  std::vector<Copied> copies;
  std::uint64_t operations = 0;
  bool inside = false;
  const auto act = [&] {
    if (inside || ++operations % 5 != seed % 5) return;
    inside = true;
    if (auto copied = copy(readers_volume, world.options, faults); copied.has_value() && !copied->content.empty()) {
      check(world, *copied, seen, faults);
      copies.push_back(std::move(*copied));
    }
    inside = false;
  };
  world.volume.before_transfer = act;
  world.volume.after_write = act;
  run_writer(world);
  world.volume.before_transfer = world.volume.after_write = nullptr;
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_GT(copies.size(), 30u);
  check_names(world, copies, faults);
  check_durable(world, seen, faults);
}

// The writer commits, writes home, creates, grows and removes while the copy is made, at each of its reads in turn.
void write_at_every_read(StoreKind kind, std::uint64_t seed, Faults& faults) {
  for (std::uint64_t strike = 0;; ++strike) {
    World world(kind, seed);
    world.open();
    const bool folder = kind == StoreKind::folder;
    world.create(folder ? "a" : "file", 4 * kPageBytes);
    if (folder) world.create("b", 2 * kPageBytes);
    world.commit();
    world.checkpoint();
    world.commit();
    world.show();
    PageVolume readers_volume(world.volume, world.pages);
    std::uint64_t reads = 0;
    bool inside = false;
    readers_volume.before_read = [&] {
      if (inside || reads++ < strike || reads > strike + 3) return;
      inside = true;
      world.commit(strike % 4 == 1);
      if (strike % 3 != 0) world.show();
      strike % 2 == 0 ? world.checkpoint() : world.write_home();
      if (folder && strike % 5 == 0 && reads == strike + 1) world.create("c", kPageBytes);
      if (folder && strike % 5 == 1 && reads == strike + 1) world.remove("b");
      // Enough to overwrite the slots that are yet to be read, now and then.
      for (int i = 0; strike % 8 == 3 && i < 40; ++i) {
        world.commit();
        if (i % 8 == 7) world.checkpoint();
      }
      inside = false;
    };
    auto copied = copy(readers_volume, world.options, faults);
    readers_volume.before_read = nullptr;
    std::vector<Seen> seen;
    if (copied.has_value()) {
      check(world, *copied, seen, faults);
      check_names(world, {*copied}, faults);
      check_durable(world, seen, faults);
    } else {
      faults.add("there was nothing to copy");
    }
    if (reads <= strike || ::testing::Test::HasFatalFailure() || faults.found > 0) break;
  }
}

// The rest of a copy after a power cut: no store, or all of it. The copy is then made again.
void cut_the_power(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 3 * kPageBytes);
  if (kind == StoreKind::folder) world.create("b", kPageBytes);
  for (int i = 0; i < 3; ++i) {
    world.commit();
    if (i == 1) world.checkpoint();
  }
  world.show();
  PageVolume from(world.volume, world.pages);
  SimVolume target({}, true);
  ASSERT_TRUE(copy_into(target, from, world.options).ok()) << last_error_text();
  const Content wanted = world.states.back();
  const StoreOptions opening = opening_of_a_copy(world.options);
  const std::string name = kind == StoreKind::folder ? "log" : opening.file_name;
  Random random(seed);
  for (CrashPoints points(target.trace()); points.next();) {
    for (PowerCuts cuts(points.medium(), {2, 2}, random); cuts.next();) {
      const SimImage image = cuts.image();
      const std::string at = " after operation " + std::to_string(points.at());
      if (!image.files.contains(name)) {
        if (points.last()) faults.add("a finished copy is gone" + at);
        if (cuts.number() != points.at() % cuts.count()) continue;
        SimVolume again(image);
        const auto lsn = copy_into(again, from, world.options);
        if (!lsn.ok()) faults.add("the copy cannot be started again" + at + ": " + std::string(last_error_text()));
        if (lsn.ok() && recovered(again.image(), opening) != wanted) faults.add("the second copy is not whole" + at);
        continue;
      }
      SimVolume found(image);
      auto store = Store::open(found, opening);
      if (!store.ok()) {
        faults.add("there is a store that cannot be opened" + at + ": " + std::string(last_error_text()));
        continue;
      }
      Content content;
      for (const ObjectInfo& info : (*store)->objects()) content[info.name] = *(*store)->read_home(info.id);
      if (content != wanted) faults.add("there is a store that is not whole" + at);
    }
  }
}

class Copy : public OfBothKinds {};
INSTANTIATE_TEST_SUITE_P(Of, Copy, kBothKinds, name_of_kind);

TEST_P(Copy, AtOperationsOfTheWriter) { expect_sound(copy_at_operations_of_the_writer, GetParam()); }

TEST_P(Copy, WhileTheWriterActsAtEveryRead) { expect_sound(write_at_every_read, GetParam()); }

// Disturbs what a copy reads `times` times, and counts in `done`.
using Disturb = void (*)(World& world, PageVolume& readers_volume, int& done, int times);

// A copy that is disturbed at each of its first `enough` reads goes on until there is peace, and one without patience
// fails in one of these ways, after fewer reads.
void expect_patience(StoreKind kind, int enough, std::initializer_list<Errc> ways, Disturb disturb) {
  for (const bool patient : {true, false}) {
    World world(kind, 1);
    world.open();
    world.create(kind == StoreKind::folder ? "a" : "file", 2 * kPageBytes);
    world.commit();
    world.show();
    PageVolume readers_volume(world.volume, world.pages);
    int done = 0;
    disturb(world, readers_volume, done, patient ? enough : INT_MAX);
    if (!patient) {
      SimVolume target;
      const auto lsn = copy_into(target, readers_volume, world.options);
      ASSERT_FALSE(lsn.ok());
      EXPECT_TRUE(std::ranges::find(ways, lsn.error().category) != ways.end()) << last_error_text();
      EXPECT_LT(done, enough) << "an attempt reads more often than the other half of this test believes";
      continue;
    }
    Faults faults;
    const auto copied = copy(readers_volume, world.options, faults, std::chrono::hours(10));
    faults.judge();
    EXPECT_EQ(done, enough);
    ASSERT_TRUE(copied.has_value());
    EXPECT_EQ(copied->content, world.states.back());
  }
}

TEST_P(Copy, GoesOnForItsPatienceBesideAWriterThatComesBackAgainAndAgain) {
  // An attempt reads less than two hundred times.
  expect_patience(GetParam(), 200 * Follower::kTries, {Errc::busy, Errc::corrupt}, come_back_at_each_read);
}

// A process that opens a store writes over its superblocks meanwhile.
TEST_P(Copy, LooksAgainAtAStoreThatLooksDamaged) {
  expect_patience(GetParam(), 100 * Follower::kTries, {Errc::corrupt},
                  [](World&, PageVolume& readers_volume, int& done, int times) {
                    readers_volume.after_read = [&done, times](std::span<std::byte> sector) {
                      if (done == times) return;
                      ++done;
                      sector[sector.size() / 4] ^= std::byte{1};
                    };
                  });
}

TEST_P(Copy, APowerCutAtAnyOperationLeavesAWholeStoreOrNone) { expect_sound(cut_the_power, GetParam()); }

// Each operation fails in turn: the copy says so, leaves nothing, and can be started again.
TEST_P(Copy, AFailureLeavesNothing) {
  World world(GetParam(), 1);
  world.open();
  world.create(GetParam() == StoreKind::folder ? "a" : "file", 3 * kPageBytes);
  world.commit();
  world.show();
  PageVolume from(world.volume, world.pages);
  using Kind = SimFaults::Kind;
  for (const Kind kind : {Kind::no_space, Kind::full_write, Kind::fail_write, Kind::fail_flush, Kind::fail_folder}) {
    for (std::uint64_t nth = 0;; ++nth) {
      SimVolume target;
      target.faults().plan(kind, nth);
      const auto lsn = copy_into(target, from, world.options);
      if (target.faults().fired() == 0) {
        EXPECT_TRUE(lsn.ok()) << last_error_text();
        EXPECT_GT(nth, 0u);
        break;
      }
      const bool lack = kind == Kind::no_space;
      if (!lsn.ok() && lack) {
        EXPECT_EQ(lsn.error().category, Errc::no_space) << last_error_text();
      }
      target.faults().clear();
      // A failure of the last steps finds the store finished.
      const auto there = target.exists(GetParam() == StoreKind::folder ? "log" : "file");
      if (*there) {
        EXPECT_EQ(recovered(target.image(), opening_of_a_copy(world.options)), world.states.back());
        continue;
      }
      EXPECT_FALSE(lsn.ok());
      EXPECT_TRUE(copy_into(target, from, world.options).ok()) << last_error_text();
    }
  }
}

TEST_P(Copy, ReplacesNothing) {
  World world(GetParam(), 1);
  world.open();
  world.create(GetParam() == StoreKind::folder ? "a" : "file", kPageBytes);
  PageVolume from(world.volume, world.pages);
  SimVolume target;
  ASSERT_TRUE(copy_into(target, from, world.options).ok()) << last_error_text();
  const std::uint64_t hash = target.image().hash();
  const auto again = copy_into(target, from, world.options);
  EXPECT_EQ(again.status().category, Errc::exists) << last_error_text();
  EXPECT_EQ(target.image().hash(), hash);
  if (GetParam() == StoreKind::folder) return;
  // The log of a file that is gone, with commits of it.
  SimVolume other;
  SimImage image = world.volume.image();
  image.files.erase("file");
  SimVolume left(std::move(image));
  EXPECT_EQ(copy_into(left, from, world.options).status().category, Errc::exists) << last_error_text();
}

TEST_P(Copy, NoticesALogThatIsReadFirst) {
  expect_noticed(Mutant::copy_reads_log_first, write_at_every_read, GetParam());
}

TEST_P(Copy, NoticesHomesThatReplaceFrames) {
  expect_noticed(Mutant::copy_home_over_frames, write_at_every_read, GetParam());
}

// Files that no store made, beside the homes: "01" is no name of object 1.
TEST(CopyOfAFolder, PassesOverFilesThatNoStoreMade) {
  World world(StoreKind::folder, 1);
  world.open();
  world.create("a", 2 * kPageBytes);
  world.commit();
  world.checkpoint();
  const std::vector<std::string> foreign{"01", "001.sums", "1 (copy)", "+1", "-1", "4294967297", "notes.sums", ".sums"};
  for (const std::string& name : foreign) {
    const auto made = world.volume.open("objects/" + name, OpenMode::create, Caching::buffered);
    ASSERT_TRUE(made.ok()) << last_error_text();
    const std::vector<std::byte> bytes(3 * kPageBytes, std::byte{7});
    ASSERT_TRUE((*made)->write(0, bytes).ok());
  }
  world.show();
  PageVolume from(world.volume, world.pages);
  SimVolume target;
  ASSERT_TRUE(copy_into(target, from, world.options).ok()) << last_error_text();
  EXPECT_EQ(recovered(target.image(), opening_of_a_copy(world.options)), world.states.back());
  for (const std::string& name : foreign) EXPECT_FALSE(*target.exists("objects/" + name)) << name;
  // A recovery, which removes homes that no object has, leaves them.
  world.store = nullptr;
  world.open();
  for (const std::string& name : foreign) EXPECT_TRUE(*world.volume.exists("objects/" + name)) << name;
}

// A one-file store is opened under another name first, which flushes its file.
TEST(CopyOfAFolder, NoticesAStoreWithItsNameTooEarly) {
  expect_noticed(Mutant::copy_named_unflushed, cut_the_power, StoreKind::folder);
}

}  // namespace
}  // namespace memlith::test::copy_test
