// docs/backup.md, "Archive" and "Restore": whatever the writer does, and wherever archiver, restorer or writer are
// stopped, an archive holds nothing that a power cut takes from the store, and every restore gives the state of the
// store as of the LSN that it names. And the tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "archive/archiver.hpp"
#include "archive/replica.hpp"
#include "archive/restorer.hpp"
#include "base/sync.hpp"
#include "readers/world.hpp"
#include "sim/power_cuts.hpp"

namespace memlith::test::archive_test {
namespace {

struct Archives {
  explicit Archives(World& store) : world(store), volume({}, true), target(make_folder_target(volume)) {
    options.seal_ns = 0;
    options.full_every_ns = 0;
    options.keep_ns = 0;
    options.now_ns = [this] { return now_ns += 1000; };
  }
  // As after a restart of the archiver.
  Status open() {
    archiver = nullptr;
    source = std::make_unique<ArchiveSource>(reading_volume, world.options.kind, world.options.file_name);
    archiver = std::make_unique<Archiver>(*source, *target, options);
    const Status status = archiver->open();
    if (!status.ok()) archiver = nullptr;
    return status;
  }
  // One round of an archiver, which makes several a second; there may be no store yet.
  void step(Faults& faults) {
    const Status status = archiver == nullptr ? open() : archiver->step();
    const bool passes = status.category == Errc::not_found || status.category == Errc::busy;
    if (!status.ok() && !passes) faults.add("the archiver failed: " + std::string(last_error_text()));
    if (archiver == nullptr || archiver->manifest().fulls.empty()) return;
    const Run& run = archiver->manifest().runs.back();
    if (archiver->manifest().fulls.back().run == run.number) seen.emplace_back(world.volume.operations(), run.end.lsn);
  }

  World& world;
  SimVolume volume;
  PageVolume reading_volume{world.volume, world.pages};
  std::unique_ptr<ArchiveTarget> target;
  std::uint64_t now_ns = 1'000'000;
  ArchiveOptions options;
  std::unique_ptr<ArchiveSource> source;
  std::unique_ptr<Archiver> archiver;
  std::vector<std::pair<std::size_t, Lsn>> seen;  // operations of the writer's disk, and how far the archive was then
};

// The store as an archive has it; empty with the message if it cannot be restored.
std::optional<Content> restored(ArchiveTarget& target, const Moment& moment, const StoreOptions& options,
                                Lsn* lsn = nullptr) {
  Restorer restorer(target);
  if (!restorer.look().ok()) return std::nullopt;
  const auto plan = restorer.plan(moment);
  if (!plan.ok()) return std::nullopt;
  SimVolume volume;
  Replica replica(volume, options.kind, options.file_name);
  if (!restorer.begin(*plan, replica).ok()) return std::nullopt;
  if (!restorer.feed(replica, plan->full, plan->until).ok()) return std::nullopt;
  if (lsn != nullptr) *lsn = replica.end().lsn;
  if (!replica.promote().ok()) return std::nullopt;
  return recovered(volume.image(), options);
}

// Every state since the first full copy can be restored, unless it lies in a gap.
void check_restores(const World& world, Archives& archives, Faults& faults, std::uint64_t every = 1) {
  const Manifest& manifest = archives.archiver->manifest();
  std::uint64_t restores = 0;
  for (std::size_t i = 0; i < world.lsns.size(); ++i) {
    const Lsn lsn = world.lsns[i];
    const bool has_it = std::any_of(manifest.fulls.begin(), manifest.fulls.end(), [&](const FullCopy& full) {
      const auto run = std::find_if(manifest.runs.begin(), manifest.runs.end(),
                                    [&full](const Run& each) { return each.number == full.run; });
      return full.complete_at <= lsn && lsn <= run->end.lsn;
    });
    if (i % every != 0 && i + 1 != world.lsns.size()) continue;
    const auto content = restored(*archives.target, {Moment::Kind::lsn, lsn.value}, world.options);
    if (has_it != content.has_value()) {
      faults.add("state " + std::to_string(i) + (has_it ? " cannot" : " can") +
                 " be restored: " + std::string(last_error_text()));
    }
    if (!content.has_value()) continue;
    ++restores;
    if (*content != world.states[world.state_at(lsn)]) {
      faults.add("LSN " + std::to_string(lsn.value) + " was restored as state " +
                 std::to_string(world.state_of(*content)) + " instead of " + std::to_string(world.state_at(lsn)));
    }
  }
  if (!faults.planted) {
    EXPECT_GT(restores, 3u / every);
  }
}

// At no moment was the archive ahead of what a power cut keeps.
void check_durable(const World& world, const Archives& archives, Faults& faults) {
  SimMedium medium(world.volume.trace());
  std::optional<std::size_t> last;
  for (const auto& [at, archived] : archives.seen) {
    if (last == at) continue;
    last = at;
    while (medium.position() < at) medium.step();
    SimVolume volume(medium.durable());
    auto store = Store::open(volume, world.options);
    ASSERT_TRUE(store.ok()) << last_error_text();
    if ((*store)->log().durable_lsn() < archived) {
      faults.add("after operation " + std::to_string(at) + " the archive had everything before LSN " +
                 std::to_string(archived.value) + ", and a power cut keeps " +
                 std::to_string((*store)->log().durable_lsn().value));
    }
  }
}

// The archiver looks at every operation of the writer.
void archive_at_every_operation(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  Archives archives(world);
  bool inside = false;
  const auto step = [&] {
    if (std::exchange(inside, true)) return;
    archives.step(faults);
    inside = false;
  };
  world.volume.before_transfer = world.volume.after_write = step;
  run_writer(world);
  world.volume.before_transfer = world.volume.after_write = nullptr;
  if (::testing::Test::HasFatalFailure()) return;
  archives.step(faults);
  ASSERT_NE(archives.archiver, nullptr);
  if (!faults.planted) {
    EXPECT_EQ(archives.archiver->progress().gaps, 0u);
    EXPECT_EQ(archives.archiver->manifest().runs.back().end.lsn, archives.archiver->progress().durable);
  }
  check_restores(world, archives, faults);
  check_durable(world, archives, faults);
}

// The writer commits and writes home at each of the archiver's reads in turn.
void write_at_every_read(StoreKind kind, std::uint64_t seed, Faults& faults) {
  for (std::uint64_t strike = 0;; ++strike) {
    World world(kind, seed);
    world.open();
    world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
    for (int i = 0; i < 4; ++i) world.commit();
    world.checkpoint();
    world.commit();
    world.show();
    Archives archives(world);
    std::uint64_t reads = 0;
    archives.reading_volume.before_read = [&] {
      if (reads++ != strike) return;
      world.commit(true);
      world.write_home();
      world.commit();
      world.checkpoint();
      world.commit();
      world.write_home();
      world.checkpoint();
      world.commit();
      world.show();
    };
    archives.step(faults);
    archives.reading_volume.before_read = nullptr;
    archives.step(faults);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    ASSERT_NE(archives.archiver, nullptr);
    check_restores(world, archives, faults, 4);
    if (reads <= strike || (faults.planted && faults.found > 0)) return;
  }
}

// The writer fills its log several times over while the archiver sleeps.
void sleep_through_a_gap(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
  Archives archives(world);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      world.commit();
      world.show();
      archives.step(faults);
    }
    for (int i = 0; i < 80; ++i) {
      world.commit();
      if (i % 8 == 0) world.checkpoint();
    }
    world.show();
    archives.step(faults);
  }
  ASSERT_NE(archives.archiver, nullptr);
  if (!faults.planted) {
    EXPECT_EQ(archives.archiver->progress().gaps, 3u);
  } else if (archives.archiver->progress().gaps == 0) {
    faults.add("no gap was noticed");
  }
  check_restores(world, archives, faults, 3);
}

// A power cut at any operation of the writer's disk leaves a state of the store, never an older one than an earlier
// cut.
void check_cuts(const World& world, Faults& faults) {
  SimMedium medium(world.volume.trace());
  std::int64_t newest = -1;
  while (medium.position() < world.volume.operations()) {
    medium.step();
    if (medium.position() < world.volume.operations() && medium.position() % 13 != 0) continue;
    SimVolume kept(medium.durable());
    if (!*kept.exists(StoreNames(world.options.kind, world.options.file_name).log)) continue;
    const std::int64_t state = world.state_of(recovered(kept.image(), world.options));
    if (state < newest || state < 0) faults.add("cut after operation " + std::to_string(medium.position()));
    newest = state;
  }
  EXPECT_EQ(newest, static_cast<std::int64_t>(world.states.size()) - 1);
}

// Commits that the notice calls archived are in the archive whenever the power of the archive's disk fails.
void check_told(const Archives& archives, const std::vector<std::pair<std::size_t, Lsn>>& told, Faults& faults) {
  SimMedium medium(archives.volume.trace());
  for (const auto& [at, lsn] : told) {
    while (medium.position() < at) medium.step();
    SimVolume kept(medium.durable());
    const auto target = make_folder_target(kept);
    const auto manifest = Manifest::get(*target);
    const bool has_it = manifest.ok() && manifest->runs.back().end.lsn >= lsn;
    if (lsn.value != 0 && !has_it) faults.add("the log may reuse what a power cut takes from the archive");
  }
}

// The log waits for an archiver that sleeps, and grows, up to the size that the archiver asks for. Then the writer goes
// on, and after that as without an archiver.
void let_the_log_wait(StoreKind kind, std::uint64_t seed, Faults& faults) {
  constexpr std::uint64_t kKeep = 384 * kKiB;
  StoreOptions given = options_of(kind);
  given.log_max_bytes = 1 * kMiB;
  World world(given, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
  const auto commit = [&world](std::uint64_t bytes) {
    const Lsn begin = world.store->log().durable_lsn();
    for (int i = 0; world.store->log().durable_lsn() < begin.advance(bytes) && !::testing::Test::HasFatalFailure();) {
      world.commit();
      if (++i % 16 == 0) world.write_home();
    }
    world.show();
  };
  Archives archives(world);
  archives.options.keep_log_bytes = kKeep;
  const std::string name = StoreNames(kind, world.options.file_name).archived;
  std::vector<std::pair<std::size_t, Lsn>> told;
  archives.volume.before_transfer = [&] {
    const auto wait = look_for_archiver(world.pages_volume, name, world.store->log().log_id());
    if (wait.has_value()) told.emplace_back(archives.volume.operations(), wait->archived);
  };
  world.show();
  archives.step(faults);
  const std::uint64_t before = world.store->log().capacity_bytes();
  for (int round = 0; round < 3; ++round) {
    commit(kKeep * 3 / 4);
    archives.step(faults);
  }
  ASSERT_NE(archives.archiver, nullptr);
  const std::uint64_t grown = world.store->log().capacity_bytes();
  if (!faults.planted) {
    EXPECT_EQ(archives.archiver->progress().gaps, 0u);
    EXPECT_GT(grown, before);
    EXPECT_LE(grown, kKeep);
    // The store goes on with the log as it is, and the archive with the store.
    commit(kKeep / 2);
    world.close();
    world.open();
    world.show();
    archives.step(faults);
    EXPECT_EQ(archives.archiver->progress().gaps, 0u);
    EXPECT_FALSE(archives.archiver->progress().log_is_full);
    // Just below the limit; the archiver has looked, and not archived yet. Then beyond.
    archives.options.seal_ns = ~std::uint64_t{0};
    ASSERT_TRUE(archives.open().ok()) << last_error_text();
    commit(kKeep - 2 * given.slot_bytes);
    archives.step(faults);
    EXPECT_EQ(archives.archiver->progress().gaps, 0u);
    EXPECT_TRUE(archives.archiver->progress().log_is_full);
    commit(2 * kKeep);
    archives.options.seal_ns = 0;
    EXPECT_LE(world.store->log().capacity_bytes(), kKeep);
    ASSERT_TRUE(archives.open().ok()) << last_error_text();
    EXPECT_EQ(archives.archiver->manifest().runs.back().why, "gap");
    // An archiver that was killed is not waited for.
    const std::uint64_t size = world.store->log().capacity_bytes();
    world.pages.pages.at(name)->held = false;
    commit(2 * kKeep);
    EXPECT_EQ(world.store->log().capacity_bytes(), size);
  }
  archives.volume.before_transfer = nullptr;
  check_told(archives, told, faults);
  if (faults.planted) return;
  check_restores(world, archives, faults, 40);
  check_cuts(world, faults);
}

// The writer closes a store whose log has grown, which cuts the log, at each of the archiver's reads in turn. With
// `seen`, the archiver has all frames and looks whether there are more; otherwise the newest ones are still to come.
void close_a_grown_log(StoreKind kind, std::uint64_t seed, bool seen, Faults& faults) {
  for (std::uint64_t strike = 0;; ++strike) {
    StoreOptions given = options_of(kind);
    given.log_max_bytes = 1 * kMiB;
    World world(given, seed);
    world.open();
    world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
    Archives archives(world);
    archives.options.keep_log_bytes = 512 * kKiB;
    world.show();
    archives.step(faults);
    while (world.store->log().capacity_bytes() < 2 * given.log_bytes) world.commit();
    world.show();
    if (seen) archives.step(faults);
    std::uint64_t reads = 0;
    bool awaited = false;  // the writer sees at its close that an archiver lives
    archives.reading_volume.before_read = [&] {
      if (reads++ != strike) return;
      awaited = has_archiver(world.pages_volume, StoreNames(kind, world.options.file_name).archived);
      world.close();
    };
    // The devices that count reads are made when the volume is opened anew.
    const Status opened = archives.open();
    if (!opened.ok()) return faults.add("read " + std::to_string(strike) + ": " + std::string(last_error_text()));
    archives.step(faults);
    archives.reading_volume.before_read = nullptr;
    archives.step(faults);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    if (archives.archiver->manifest().runs.back().end.lsn < world.lsns.back())
      faults.add("the last commits are missing");
    if (awaited && archives.archiver->progress().gaps != 0) faults.add("commits are missing");
    const auto content = restored(*archives.target, {}, world.options);
    if (content != world.states.back()) faults.add("the newest state is not that of the store");
    if (reads <= strike || faults.found > 0) return;
  }
}
void close_a_grown_log_that_is_archived(StoreKind kind, std::uint64_t seed, Faults& faults) {
  close_a_grown_log(kind, seed, true, faults);
}
void close_a_grown_log_that_is_not_archived(StoreKind kind, std::uint64_t seed, Faults& faults) {
  close_a_grown_log(kind, seed, false, faults);
}

// A writer is killed with commits that nothing has flushed, and the archiver comes then.
void archive_after_a_kill(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
  for (int i = 0; i < 3; ++i) world.commit();
  world.store = nullptr;
  const SimTrace trace = world.volume.trace();
  // The full copy is older, so that what is archived after the kill comes from the log.
  SimVolume early;
  ArchiveOptions options;
  options.seal_ns = 0;
  {
    SimVolume disk(trace, trace.records.size() / 2);
    Pages pages;
    PageVolume volume(disk, pages);
    const auto target = make_folder_target(early);
    ArchiveSource source(volume, kind, world.options.file_name);
    Archiver archiver(source, *target, options);
    ASSERT_TRUE(archiver.open().ok() && archiver.step().ok()) << last_error_text();
  }
  for (std::size_t at = trace.records.size() / 2; at <= trace.records.size(); ++at) {
    SimVolume disk(trace, at);
    Pages pages;
    PageVolume volume(disk, pages);
    SimVolume memory(early.image());
    const auto target = make_folder_target(memory);
    ArchiveSource source(volume, kind, world.options.file_name);
    Archiver archiver(source, *target, options);
    if (!archiver.open().ok() || !archiver.step().ok()) {
      faults.add("cut after operation " + std::to_string(at) + ": " + std::string(last_error_text()));
      continue;
    }
    SimVolume kept(SimMedium(disk.trace(), disk.operations()).durable());
    const auto store = Store::open(kept, world.options);
    ASSERT_TRUE(store.ok()) << last_error_text();
    const Lsn archived = archiver.manifest().runs.back().end.lsn;
    if ((*store)->log().durable_lsn() < archived) faults.add("a power cut takes what was archived");
  }
}

// The store is put back to what it was earlier, and goes on from there.
void go_back(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
  Archives archives(world);
  world.commit();
  world.show();
  archives.step(faults);
  const SimImage early = world.volume.image();
  const std::size_t early_states = world.states.size();
  for (int i = 0; i < 6; ++i) world.commit();
  world.show();
  archives.step(faults);
  ASSERT_NE(archives.archiver, nullptr);
  const Lsn first_end = archives.archiver->manifest().runs.back().end.lsn;
  archives.archiver = nullptr;

  World back(options_of(kind), seed + 1, early);
  back.states.assign(world.states.begin(), world.states.begin() + static_cast<std::ptrdiff_t>(early_states));
  back.lsns.assign(world.lsns.begin(), world.lsns.begin() + static_cast<std::ptrdiff_t>(early_states));
  back.open();
  for (int i = 0; i < 9; ++i) back.commit();
  back.show();
  EXPECT_GT(back.store->log().durable_lsn(), first_end);
  Archives again(back);
  again.target = std::move(archives.target);
  again.step(faults);
  if (again.archiver == nullptr) return faults.add("the archiver does not go on");
  again.step(faults);
  if (again.archiver->manifest().runs.back().why != "history") faults.add("it is not noticed that the store went back");
  const auto content = restored(*again.target, {}, back.options);
  if (content != back.states.back()) faults.add("the newest state is not that of the store");
  const std::uint64_t lsn = world.lsns[early_states + 1].value;
  const std::uint64_t run = again.archiver->manifest().runs.front().number;
  const auto earlier = restored(*again.target, {Moment::Kind::lsn, lsn, run}, back.options);
  if (earlier != world.states[early_states + 1]) faults.add("a state of the older history is lost");
  // The newer history had this LSN, too.
  const auto of_which = restored(*again.target, {Moment::Kind::lsn, lsn}, back.options);
  if (of_which.has_value()) faults.add("an LSN of two histories was restored");
}

// A power cut at every operation of the archive's disk: what the manifest names is there, and archiving goes on.
void cut_the_archive(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  Archives archives(world);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 3 * kPageBytes);
  for (int i = 0; i < 5; ++i) {
    world.commit(i == 2);
    world.show();
    archives.step(faults);
    if (i == 3) {
      ASSERT_TRUE(archives.archiver->copy_now().ok()) << last_error_text();
    }
  }
  const SimTrace trace = archives.volume.trace();
  Random random(seed);
  for (CrashPoints points(trace); points.next();) {
    for (PowerCuts cuts(points.medium(), {2, 2}, random); cuts.next();) {
      SimVolume volume(cuts.image());
      const auto target = make_folder_target(volume);
      const std::string where = "cut after operation " + std::to_string(points.at()) + " of the archive's disk: ";
      Restorer restorer(*target);
      const Status looked = restorer.look();
      if (!looked.ok() && looked.category != Errc::not_found) faults.add(where + std::string(last_error_text()));
      if (looked.ok() && !restorer.manifest().fulls.empty()) {
        Lsn lsn;
        const auto content = restored(*target, {}, world.options, &lsn);
        if (!content.has_value()) {
          faults.add(where + std::string(last_error_text()));
        } else if (*content != world.states[world.state_at(lsn)]) {
          faults.add(where + "the restored state is none of that LSN");
        }
      }
      if (cuts.number() + 1 != cuts.count()) continue;
      ArchiveSource source(archives.reading_volume, kind, world.options.file_name);
      Archiver archiver(source, *target, archives.options);
      if (!archiver.open().ok() || !archiver.step().ok()) {
        faults.add(where + "archiving does not go on: " + std::string(last_error_text()));
      } else if (restored(*target, {}, world.options) != world.states.back()) {
        faults.add(where + "the archive that went on does not have the newest state");
      }
    }
    if (faults.planted && faults.found > 0) return;
  }
}

// A power cut at every operation of a standby's disk: it is a state of the store, and the standby goes on.
void cut_the_standby(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  Archives archives(world);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 3 * kPageBytes);
  world.commit();
  world.show();
  archives.step(faults);
  for (int i = 0; i < 6; ++i) {
    world.commit(i % 3 == 1);
    if (kind == StoreKind::folder && i == 2) world.create("c", kPageBytes);
    if (kind == StoreKind::folder && i == 4) world.remove("c");
    world.show();
    archives.step(faults);
  }
  SimVolume disk({}, true);
  Restorer restorer(*archives.target);
  ASSERT_TRUE(restorer.look().ok()) << last_error_text();
  const auto plan = restorer.plan({});
  ASSERT_TRUE(plan.ok()) << last_error_text();
  {
    Replica replica(disk, kind, world.options.file_name);
    ASSERT_TRUE(restorer.begin(*plan, replica).ok()) << last_error_text();
    // In two pieces, so that there are frames behind a tail that has moved.
    ASSERT_TRUE(restorer.feed(replica, plan->full, world.lsns[world.lsns.size() / 2]).ok()) << last_error_text();
    ASSERT_TRUE(replica.checkpoint().ok()) << last_error_text();
    ASSERT_TRUE(restorer.feed(replica, plan->full, plan->until).ok()) << last_error_text();
    ASSERT_TRUE(replica.checkpoint().ok()) << last_error_text();
  }
  const SimTrace& trace = disk.trace();
  const std::string log_name = StoreNames(kind, world.options.file_name).log;
  Random random(seed);
  std::uint64_t states = 0;
  for (CrashPoints points(trace); points.next();) {
    for (PowerCuts cuts(points.medium(), {2, 2}, random); cuts.next();) {
      SimVolume volume(cuts.image());
      if (!*volume.exists(log_name)) continue;
      ++states;
      const std::string where = "cut after operation " + std::to_string(points.at()) + " of the standby's disk: ";
      Lsn lsn;
      {
        Replica replica(volume, kind, world.options.file_name);
        Restorer feeder(*archives.target);
        Status status = replica.open();
        if (status.ok()) status = feeder.look();
        if (status.ok() && cuts.number() + 1 == cuts.count()) status = feeder.feed(replica, plan->full, plan->until);
        if (status.ok() && replica.end().lsn < plan->full.complete_at) continue;  // the copy is not complete yet
        if (status.ok()) status = replica.promote();
        if (!status.ok()) {
          faults.add(where + std::string(last_error_text()));
          continue;
        }
        lsn = replica.end().lsn;
      }
      if (recovered(volume.image(), world.options) != world.states[world.state_at(lsn)]) {
        faults.add(where + "it is not the state of LSN " + std::to_string(lsn.value));
      }
    }
    if (faults.planted && faults.found > 0) return;
  }
  EXPECT_GT(states, 50u);
}

class Archive : public OfBothKinds {};
INSTANTIATE_TEST_SUITE_P(Of, Archive, kBothKinds, name_of_kind);

TEST_P(Archive, EveryRestoreIsAStateOfTheStore) { expect_sound(archive_at_every_operation, GetParam(), 2); }
TEST_P(Archive, TheWriterMayWriteAtEveryRead) { expect_sound(write_at_every_read, GetParam(), 1); }
TEST_P(Archive, AGapIsNoticed) { expect_sound(sleep_through_a_gap, GetParam(), 1); }
TEST_P(Archive, TheLogWaitsUpToASize) { expect_sound(let_the_log_wait, GetParam(), 1); }
TEST_P(Archive, AGrownLogIsCutWhileItIsRead) { expect_sound(close_a_grown_log_that_is_archived, GetParam(), 1); }
TEST_P(Archive, AGrownLogIsLeftToTheArchiver) { expect_sound(close_a_grown_log_that_is_not_archived, GetParam(), 1); }
TEST_P(Archive, HasNothingThatAPowerCutTakes) { expect_sound(archive_after_a_kill, GetParam(), 1); }
TEST_P(Archive, AStoreMayGoBack) { expect_sound(go_back, GetParam(), 1); }
TEST_P(Archive, IsWholeAfterAPowerCut) { expect_sound(cut_the_archive, GetParam(), 1); }
TEST_P(Archive, AStandbyIsAStateAfterAPowerCut) { expect_sound(cut_the_standby, GetParam(), 1); }

TEST_P(Archive, PlantedFaultsAreNoticed) {
  expect_noticed(Mutant::archive_believes_all, archive_at_every_operation, GetParam(), 1);
  expect_noticed(Mutant::archive_gap_overlooked, sleep_through_a_gap, GetParam(), 1);
  expect_noticed(Mutant::archive_of_unflushed_log, archive_after_a_kill, GetParam(), 1);
  expect_noticed(Mutant::archive_continues_other_history, go_back, GetParam(), 1);
  expect_noticed(Mutant::archive_manifest_first, cut_the_archive, GetParam(), 1);
  expect_noticed(Mutant::archive_tells_too_early, let_the_log_wait, GetParam(), 1);
  expect_noticed(Mutant::grown_log_cut_unread, close_a_grown_log_that_is_not_archived, GetParam(), 1);
  expect_noticed(Mutant::archive_named_unflushed, cut_the_archive, GetParam(), 1);
  expect_noticed(Mutant::archive_name_unflushed, cut_the_archive, GetParam(), 1);
  expect_noticed(Mutant::standby_counts_early, cut_the_standby, GetParam(), 1);
}

}  // namespace
}  // namespace memlith::test::archive_test
