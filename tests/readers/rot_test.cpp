// docs/guarantees.md, "Rot": every bit that flips in a home file is found; nothing is accused that the disk has kept,
// whatever the writer does and wherever a power cut stops it; and checksums that are lost or torn cost no data. And the
// tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "copy/source.hpp"
#include "copy/target.hpp"
#include "mutants/mutants.hpp"
#include "readers/world.hpp"
#include "sim/power_cuts.hpp"

namespace memlith::test::rot_test {
namespace {

using Bytes = std::vector<std::byte>;

StoreOptions with_sums() {
  StoreOptions options = options_of(StoreKind::folder);
  options.makes_sums = true;
  return options;
}

class NoSink final : public CopySink {
 public:
  Status begin(const CopiedState&) override { return kOk; }
  Result<bool> take(ObjectId, Device&) override { return false; }
  Status put(ObjectId, std::uint64_t, std::span<const std::byte>) override { return kOk; }
};

// The result of memlith_check_data; empty if there is no store yet.
std::optional<CopiedState> look(Volume& volume, const StoreOptions& options) {
  StoreOptions reading = options;
  reading.follow_patience = std::chrono::milliseconds(0);
  reading.replay_bytes_max = 1;
  CopySource source(volume, reading, {1024, 1024});
  NoSink sink;
  auto state = source.walk(sink);
  if (state.ok()) return std::move(*state);
  EXPECT_TRUE(state.error().category == Errc::not_found || state.error().category == Errc::busy) << last_error_text();
  return std::nullopt;
}

// Nothing was damaged.
void expect_quiet(Volume& volume, const StoreOptions& options, const std::string& where, Faults& faults) {
  const auto state = look(volume, options);
  if (!state.has_value() || state->damaged.empty()) return;
  const DamagedBytes& first = state->damaged.front();
  faults.add(where + ": accused object " + std::to_string(first.object.value) + " at " + std::to_string(first.offset));
}

void look_at_every_operation_of_the_writer(std::uint64_t seed, Faults& faults) {
  World world(with_sums(), seed);
  PageVolume readers_volume(world.volume, world.pages);
  bool inside = false;
  std::uint64_t looks = 0;
  const auto act = [&] {
    if (inside) return;
    inside = true;
    ++looks;
    expect_quiet(readers_volume, world.options, "at operation " + std::to_string(world.volume.operations()), faults);
    inside = false;
  };
  world.volume.before_transfer = act;
  world.volume.after_write = act;
  run_writer(world);
  world.volume.before_transfer = world.volume.after_write = nullptr;
  EXPECT_GT(looks, 100u);
}

void write_at_every_read(std::uint64_t seed, Faults& faults) {
  for (std::uint64_t strike = 0;; ++strike) {
    World world(with_sums(), seed);
    world.open();
    world.create("a", 4 * kPageBytes);
    world.create("b", 2 * kPageBytes);
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
      if (strike % 5 == 0 && reads == strike + 1) world.create("c", kPageBytes);
      if (strike % 5 == 1 && reads == strike + 1) world.remove("b");
      inside = false;
    };
    expect_quiet(readers_volume, world.options, "written at read " + std::to_string(strike), faults);
    readers_volume.before_read = nullptr;
    if (reads <= strike || ::testing::Test::HasFatalFailure() || faults.found > 0) break;
  }
}

// The verdict of a recovered store on its homes.
void check_recovered(SimVolume& volume, const StoreOptions& options, const std::string& where, Faults& faults) {
  auto store = Store::open(volume, options);
  if (!store.ok()) {
    faults.add(where + ": cannot be opened: " + std::string(last_error_text()));
    return;
  }
  for (const ObjectInfo& info : (*store)->objects()) {
    const auto unknown = (*store)->check_sums(info.id, [&](std::uint64_t offset) {
      faults.add(where + ": after recovery " + info.name + " is accused at " + std::to_string(offset));
    });
    if (!unknown.ok()) faults.add(where + ": " + std::string(last_error_text()));
  }
}

// A power cut at every operation of the writer, and one at an operation of the recovery that follows.
void cut_the_power(std::uint64_t seed, Faults& faults) {
  World world(with_sums(), seed);
  run_writer(world);
  if (::testing::Test::HasFatalFailure()) return;
  Random random(seed);
  std::uint64_t states = 0;
  for (CrashPoints points(world.volume.trace()); faults.found == 0 && points.next();) {
    for (PowerCuts cuts(points.medium(), {2, 2}, random); cuts.next();) {
      const SimImage image = cuts.image();
      if (!image.files.contains("log")) continue;
      ++states;
      const std::string where =
          "cut after operation " + std::to_string(points.at()) + ", cut " + std::to_string(cuts.number());
      {
        SimVolume found(image);
        expect_quiet(found, world.options, where, faults);
      }
      SimVolume found(image, true);
      check_recovered(found, world.options, where, faults);
      const std::size_t stop = random.below(found.trace().records.size() + 1);
      const SimMedium again(found.trace(), stop);
      SimVolume twice(again.cut([&](std::size_t) { return random.one_in(2); }));
      check_recovered(twice, world.options, where + ", and in its recovery after " + std::to_string(stop), faults);
    }
  }
  if (!faults.planted) {
    EXPECT_GT(states, 300u);
  }
}

// A closed store, or one with commits in its log, whose objects were never written to in places.
SimImage made(bool closed, std::uint64_t seed, Content& content) {
  World world(with_sums(), seed);
  world.open();
  world.create("a", 12 * kPageBytes);
  world.create("b", 7 * kPageBytes);
  for (int i = 0; i < 5; ++i) {
    world.commit(i == 2);
    if (i == 2) world.checkpoint();
  }
  if (closed) world.close();
  content = world.states.back();
  return world.volume.image();
}

SimImage flipped(SimImage image, const std::string& name, std::uint64_t bit) {
  Bytes bytes = *image.files.at(name);
  bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  image.files[name] = std::make_shared<const Bytes>(std::move(bytes));
  return image;
}

std::vector<std::string> files_in(const SimImage& image, bool sums) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : image.files) {
    const bool home = name.starts_with("objects/") && name != "objects/0";
    if (home && name.ends_with(".sums") == sums) names.push_back(name);
  }
  return names;
}

// Lost parts of a sums file accuse nothing and cost nothing, and can be made anew.
void damage_the_sums(std::uint64_t seed, Faults& faults) {
  Content content;
  const SimImage image = made(true, seed, content);
  Random random(seed);
  for (const std::string& name : files_in(image, true)) {
    const std::uint64_t bits = image.files.at(name)->size() * 8;
    for (int i = 0; i < 60; ++i) {
      SimImage damaged = flipped(image, name, random.below(bits));
      if (i == 0) damaged.files.erase(name);
      if (i == 1) damaged.files[name] = std::make_shared<const Bytes>(Bytes(random.below(bits / 8)));
      SimVolume found(damaged);
      expect_quiet(found, with_sums(), name + " damaged", faults);
      SimVolume opened(damaged);
      {
        auto store = Store::open(opened, with_sums());
        ASSERT_TRUE(store.ok()) << last_error_text();
        ASSERT_TRUE((*store)->complete_sums().ok()) << last_error_text();
        ASSERT_TRUE((*store)->close().ok()) << last_error_text();
      }
      if (recovered(opened.image(), with_sums()) != content) faults.add(name + ": data was lost");
      const auto now = look(opened, with_sums());
      ASSERT_TRUE(now.has_value());
      if (now->blocks_unknown > 0 || !now->damaged.empty()) faults.add(name + ": was not completed");
    }
  }
}

class Rot : public ::testing::Test {
 protected:
  ~Rot() override { active_mutant = Mutant::none; }
  using Trial = void (*)(std::uint64_t seed, Faults& faults);
  static void expect_sound(Trial trial, std::uint64_t seeds) {
    Faults faults;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) trial(seed, faults);
    faults.judge();
  }
  static void expect_noticed(Mutant mutant, Trial trial) {
    SCOPED_TRACE(static_cast<int>(mutant));
    active_mutant = mutant;
    Faults faults;
    for (std::uint64_t seed = 1; seed <= 10 && faults.found == 0; ++seed) trial(seed, faults);
    active_mutant = Mutant::none;
    faults.judge();
  }
};

TEST_F(Rot, NothingIsAccusedAtAnyOperationOfTheWriter) { expect_sound(look_at_every_operation_of_the_writer, 3); }
TEST_F(Rot, NothingIsAccusedWhileTheWriterActsAtEveryRead) { expect_sound(write_at_every_read, 2); }
TEST_F(Rot, NothingIsAccusedAfterAPowerCut) { expect_sound(cut_the_power, 2); }
TEST_F(Rot, DamagedChecksumsAccuseNothing) { expect_sound(damage_the_sums, 1); }

TEST_F(Rot, PlantedFaultsAreNoticed) {
  expect_noticed(Mutant::rot_in_touched_blocks, look_at_every_operation_of_the_writer);
  expect_noticed(Mutant::sums_not_renewed, look_at_every_operation_of_the_writer);
  expect_noticed(Mutant::sums_before_home, look_at_every_operation_of_the_writer);
  expect_noticed(Mutant::sums_not_flushed, cut_the_power);
  expect_noticed(Mutant::torn_sums_believed, damage_the_sums);
}

// In each block of each home, also in those that nothing was ever written to.
TEST_F(Rot, EveryFlippedBitIsFound) {
  Content content;
  const SimImage image = made(true, 1, content);
  Random random(1);
  std::uint64_t flips = 0;
  for (const std::string& name : files_in(image, false)) {
    const std::uint64_t bytes = image.files.at(name)->size();
    const ObjectId object{static_cast<std::uint32_t>(std::stoul(name.substr(name.rfind('/') + 1)))};
    for (std::uint64_t block = 0; block < bytes; block += kPageBytes) {
      for (int i = 0; i < 40; ++i) {
        const std::uint64_t bit = block * 8 + (i == 0 ? 0 : i == 1 ? kPageBytes * 8 - 1 : random.below(kPageBytes * 8));
        SimVolume volume(flipped(image, name, bit));
        const auto state = look(volume, with_sums());
        ASSERT_TRUE(state.has_value());
        EXPECT_EQ(state->blocks_unknown, 0u);
        ASSERT_EQ(state->damaged.size(), 1u) << name << ", bit " << bit;
        EXPECT_EQ(state->damaged.front().object, object);
        EXPECT_EQ(state->damaged.front().offset, block);
        EXPECT_EQ(state->damaged.front().bytes, kPageBytes);
        ++flips;
      }
    }
  }
  EXPECT_GT(flips, 200u);
}

// Bytes that the log still has are written anew by the recovery; what it cannot repair is found before and after.
TEST_F(Rot, AFlippedBitUnderCommitsInTheLogIsFoundOrRepaired) {
  Content content;
  const SimImage image = made(false, 2, content);
  Random random(2);
  std::uint64_t found = 0;
  for (const std::string& name : files_in(image, false)) {
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t bit = random.below(image.files.at(name)->size() * 8);
      SimVolume volume(flipped(image, name, bit));
      const auto state = look(volume, with_sums());
      ASSERT_TRUE(state.has_value());
      found += state->damaged.size();
      if (!state->damaged.empty()) {
        EXPECT_EQ(state->damaged.front().offset, round_down(bit / 8, kPageBytes));
      }
      auto store = Store::open(volume, with_sums());
      ASSERT_TRUE(store.ok()) << last_error_text();
      std::set<std::uint64_t> wrong;
      for (const ObjectInfo& info : (*store)->objects()) {
        ASSERT_TRUE((*store)->check_sums(info.id, [&](std::uint64_t offset) { wrong.insert(offset); }).ok());
      }
      EXPECT_EQ(wrong.size(), state->damaged.size());
    }
  }
  EXPECT_GT(found, 50u);
}

TEST_F(Rot, ACopyHasChecksumsOfItsOwn) {
  World world(with_sums(), 3);
  run_writer(world);
  SimVolume target;
  CopyTarget copy(target, StoreKind::folder, "");
  ASSERT_TRUE(copy.prepare().ok()) << last_error_text();
  CopySource source(world.volume, world.options, {1024, 1024});
  const auto copied = source.walk(copy);
  ASSERT_TRUE(copied.ok()) << last_error_text();
  ASSERT_TRUE(copy.finish(*copied).ok()) << last_error_text();
  const auto state = look(target, with_sums());
  ASSERT_TRUE(state.has_value());
  EXPECT_GT(state->blocks, 0u);
  EXPECT_EQ(state->blocks_unknown, 0u);
  EXPECT_TRUE(state->damaged.empty());
  const SimImage image = target.image();
  SimVolume rotten(flipped(image, files_in(image, false).front(), 100));
  EXPECT_EQ(look(rotten, with_sums())->damaged.size(), 1u);
}

// A store that was made without checksums gets them when there is room for them, and is opened without if not.
TEST_F(Rot, AFullDiskLeavesNoChecksums) {
  World world(StoreKind::folder, 4);
  run_writer(world);
  EXPECT_TRUE(files_in(world.volume.image(), true).empty());
  for (std::uint64_t nth = 0;; ++nth) {
    SimVolume volume(world.volume.image());
    volume.faults().plan(SimFaults::Kind::no_space, nth);
    auto store = Store::open(volume, with_sums());
    const bool fired = volume.faults().fired() > 0;
    volume.faults().clear();
    if (!store.ok()) {  // there was no room for something else
      EXPECT_EQ(store.error().category, Errc::no_space) << last_error_text();
      EXPECT_TRUE(fired);
      continue;
    }
    ASSERT_TRUE((*store)->close().ok()) << last_error_text();
    const auto state = look(volume, with_sums());
    ASSERT_TRUE(state.has_value());
    EXPECT_TRUE(state->damaged.empty());
    EXPECT_EQ(state->blocks_unknown, state->blocks);
    if (!fired) {
      EXPECT_EQ(files_in(volume.image(), true).size(), files_in(volume.image(), false).size());
      EXPECT_GT(nth, 0u);
      break;
    }
  }
}

// A checkpoint flushes one more file for each object that it writes, and a commit none.
TEST_F(Rot, ACheckpointFlushesOneMoreFileForEachObject) {
  std::uint64_t flushes[2][2] = {};
  for (const bool sums : {false, true}) {
    World world(sums ? with_sums() : options_of(StoreKind::folder), 5);
    world.open();
    world.create("a", 3 * kPageBytes);
    world.create("b", 3 * kPageBytes);
    world.commit();
    world.checkpoint();
    const auto count = [&world] {
      const auto& records = world.volume.trace().records;
      return static_cast<std::uint64_t>(std::count_if(records.begin(), records.end(),
                                                      [](const auto& each) { return each.op == SimOp::flush; }));
    };
    const std::uint64_t before = count();
    world.commit();
    const std::uint64_t committed = count();
    world.checkpoint();
    flushes[sums ? 1 : 0][0] = committed - before;
    flushes[sums ? 1 : 0][1] = count() - committed;
  }
  EXPECT_EQ(flushes[1][0], flushes[0][0]);
  EXPECT_EQ(flushes[1][1], flushes[0][1] + 2);
}

}  // namespace
}  // namespace memlith::test::rot_test
