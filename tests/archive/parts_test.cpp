// Damaged archives are named, and refuse to restore what they do not have; targets are not shared; old copies are
// forgotten; a replica grows for what it gets.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "archive/archiver.hpp"
#include "archive/replica.hpp"
#include "archive/restorer.hpp"
#include "readers/world.hpp"
#include "sim/power_cuts.hpp"

namespace memlith::test::parts_test {
namespace {

class ArchiveParts : public ::testing::Test {
 protected:
  ArchiveParts() : target_(make_folder_target(volume_)) {
    options_.seal_ns = 0;
    options_.full_every_ns = 0;
    options_.now_ns = [this] { return now_ns_ += 1000; };
    world_.open();
    world_.create("a", 4 * kPageBytes);
  }
  std::unique_ptr<Archiver> archive() {
    auto archiver = std::make_unique<Archiver>(source_, *target_, options_);
    opened_ = archiver->open();
    return opened_.ok() ? std::move(archiver) : nullptr;
  }
  void commit(Archiver& archiver) {
    world_.commit();
    world_.show();
    ASSERT_TRUE(archiver.step().ok()) << last_error_text();
  }
  // A mark as the writer's clock puts it.
  void mark(std::uint64_t ns) {
    auto& log = const_cast<Log&>(world_.store->log());
    const TimeRecord record{ns};
    ASSERT_TRUE(log.append(std::as_bytes(std::span(&record, 1)), kFrameKindTime).ok());
  }
  Result<Lsn> restore(const Moment& moment, Content* content = nullptr) {
    Restorer restorer(*target_);
    MEMLITH_TRY(restorer.look());
    MEMLITH_TRY_ASSIGN(const RestorePlan plan, restorer.plan(moment));
    clock_went_back_ = plan.clock_went_back;
    SimVolume disk;
    Replica replica(disk, StoreKind::folder, "");
    MEMLITH_TRY(restorer.begin(plan, replica));
    MEMLITH_TRY(restorer.feed(replica, plan.full, plan.until));
    const Lsn lsn = replica.end().lsn;
    MEMLITH_TRY(replica.promote());
    if (content != nullptr) *content = recovered(disk.image(), world_.options);
    return lsn;
  }
  // The archive with one object changed, or removed if there are no bytes.
  void change(const std::string& name, const std::function<void(std::vector<std::byte>&)>& how) {
    SimImage image = volume_.image();
    std::vector<std::byte> bytes = *image.files.at(name);
    how(bytes);
    if (bytes.empty()) {
      image.files.erase(name);
    } else {
      image.files[name] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    }
    changed_ = std::make_unique<SimVolume>(std::move(image));
    target_ = make_folder_target(*changed_);
  }
  void expect_named(const std::string& name) {
    const auto result = restore({});
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_EQ(result.error().category, Errc::corrupt);
    EXPECT_NE(last_error_text().find(name), std::string_view::npos) << last_error_text();
  }

  World world_{StoreKind::folder, 5};
  SimVolume volume_;
  std::unique_ptr<SimVolume> changed_;
  PageVolume reading_{world_.volume, world_.pages};
  std::unique_ptr<ArchiveTarget> target_;
  ArchiveSource source_{reading_, StoreKind::folder, ""};
  std::uint64_t now_ns_ = 1'000'000;
  ArchiveOptions options_;
  Status opened_ = kOk;
  bool clock_went_back_ = false;
};

TEST_F(ArchiveParts, DamageIsNamed) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr) << last_error_text();
  for (int i = 0; i < 4; ++i) commit(*archiver);
  ASSERT_TRUE(restore({}).ok()) << last_error_text();
  for (const char* const name : {"segment-000000000002", "full-000001", "manifest"}) {
    const std::size_t size = volume_.image().files.at(name)->size();
    Random random(size);
    for (int i = 0; i < 20; ++i) {
      const std::size_t at = random.below(size);
      change(name, [&](std::vector<std::byte>& bytes) { bytes[at] ^= static_cast<std::byte>(1u << random.below(8)); });
      const auto result = restore({});
      ASSERT_FALSE(result.ok()) << name << " changed at " << at;
      EXPECT_NE(last_error_text().find(name), std::string_view::npos) << last_error_text();
      change(name, [&](std::vector<std::byte>& bytes) { bytes.resize(std::max<std::size_t>(1, at)); });
      expect_named(name);
      target_ = make_folder_target(volume_);
    }
  }
  for (const char* const name : {"segment-000000000003", "full-000001"}) {
    change(name, [](std::vector<std::byte>& bytes) { bytes.clear(); });
    expect_named(name);
  }
  // A part in another one's place.
  const auto other = volume_.image().files.at("segment-000000000001");
  change("segment-000000000002", [&](std::vector<std::byte>& bytes) { bytes = *other; });
  expect_named("segment-000000000002");
}

TEST_F(ArchiveParts, IsOfOneStoreAndOneArchiver) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  commit(*archiver);
  // Another archiver, to which the target's lock says nothing.
  Archiver second(source_, *target_, options_);
  EXPECT_EQ(second.open().category, Errc::busy);
  Manifest taken = archiver->manifest();
  taken.session = 77;
  ASSERT_TRUE(taken.put(*target_).ok());
  world_.commit();
  world_.show();
  EXPECT_EQ(archiver->step().category, Errc::busy);
  EXPECT_NE(last_error_text().find("another archiver"), std::string_view::npos) << last_error_text();

  World other(StoreKind::folder, 6);
  other.open();
  other.create("a", kPageBytes);
  ArchiveSource stranger(other.pages_volume, StoreKind::folder, "");
  SimVolume copy(volume_.image());
  const auto place = make_folder_target(copy);
  Archiver third(stranger, *place, options_);
  EXPECT_EQ(third.open().category, Errc::invalid);
  EXPECT_NE(last_error_text().find("another store"), std::string_view::npos) << last_error_text();
}

TEST_F(ArchiveParts, AFailingTargetLosesNothing) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  commit(*archiver);
  const Lsn before = archiver->progress().archived;
  for (const auto kind : {SimFaults::Kind::full_write, SimFaults::Kind::fail_flush, SimFaults::Kind::no_space,
                          SimFaults::Kind::fail_name, SimFaults::Kind::fail_folder}) {
    volume_.faults().clear();
    volume_.faults().plan(kind, 0);
    world_.commit();
    world_.show();
    EXPECT_FALSE(archiver->step().ok()) << static_cast<int>(kind);
    ASSERT_TRUE(restore({}).ok()) << last_error_text();
    volume_.faults().clear();
    EXPECT_TRUE(archiver->step().ok()) << last_error_text();
  }
  Content content;
  const auto lsn = restore({}, &content);
  ASSERT_TRUE(lsn.ok()) << last_error_text();
  EXPECT_GT(*lsn, before);
  EXPECT_EQ(content, world_.states.back());
  EXPECT_EQ(archiver->progress().gaps, 0u);
}

TEST_F(ArchiveParts, OldCopiesAreForgotten) {
  options_.keep_ns = 10'000;
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  const Lsn early = world_.lsns.back();
  for (int copies = 0; copies < 5; ++copies) {
    commit(*archiver);
    commit(*archiver);
    world_.checkpoint();
    ASSERT_TRUE(archiver->copy_now().ok()) << last_error_text();
  }
  const Manifest& manifest = archiver->manifest();
  ASSERT_FALSE(manifest.fulls.empty());
  EXPECT_LT(manifest.fulls.size(), 6u);
  EXPECT_GT(manifest.fulls.front().number, 1u);
  const auto names = volume_.list("");
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(std::count(names->begin(), names->end(), "full-000001"), 0);
  EXPECT_EQ(std::count(names->begin(), names->end(), "segment-000000000001"), 0);
  EXPECT_EQ(restore({Moment::Kind::lsn, early.value}).status().category, Errc::not_found);
  for (std::size_t i = 0; i < world_.lsns.size(); ++i) {
    if (world_.lsns[i] < manifest.fulls.front().complete_at) continue;
    Content content;
    ASSERT_TRUE(restore({Moment::Kind::lsn, world_.lsns[i].value}, &content).ok()) << last_error_text();
    EXPECT_EQ(content, world_.states[i]);
  }
}

// The writer's marks are before and behind the commits of one segment; the archiver's clock says when that was sealed.
TEST_F(ArchiveParts, RestoresToATime) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  now_ns_ = 5'000'000;
  world_.commit();
  mark(2'000'000);
  const std::size_t early = world_.states.size() - 1;
  world_.store = nullptr;  // killed, and opened much later
  world_.open();
  world_.commit();
  mark(4'000'000);
  const std::size_t late = world_.states.size() - 1;
  world_.commit();
  world_.show();
  ASSERT_TRUE(archiver->step().ok()) << last_error_text();
  const auto state = [this](std::uint64_t ns) {
    Content content;
    const auto lsn = restore({Moment::Kind::time, ns}, &content);
    EXPECT_TRUE(lsn.ok()) << last_error_text();
    return content;
  };
  const auto expect = [&](std::uint64_t ns, std::size_t index) { EXPECT_EQ(state(ns), world_.states[index]) << ns; };
  expect(2'000'000, early);
  expect(3'999'999, early);
  expect(4'000'000, late);
  expect(9'000'000, world_.states.size() - 1);
  EXPECT_FALSE(clock_went_back_);
  EXPECT_EQ(restore({Moment::Kind::time, 10}).status().category, Errc::not_found);
  active_mutant = Mutant::archive_time_of_next;
  const Content wrong = state(3'999'999);
  active_mutant = Mutant::none;
  EXPECT_NE(wrong, world_.states[early]) << "the planted fault was not noticed";
  // A clock that is set back: the last state of that time, and a word about it.
  mark(2'500'000);
  world_.show();
  ASSERT_TRUE(archiver->step().ok());
  expect(3'000'000, world_.states.size() - 1);
  EXPECT_TRUE(clock_went_back_);
}

// The store's states in a gap are not in the archive, and no state before the gap is taken for them.
TEST_F(ArchiveParts, ATimeInAGapIsRefused) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  now_ns_ = 5'000'000'000;
  commit(*archiver);
  const std::size_t before = world_.states.size() - 1;
  now_ns_ = 9'000'000'000;
  ASSERT_TRUE(archiver->step().ok()) << last_error_text();
  for (int i = 0; i < 80; ++i) {
    world_.commit();
    if (i % 8 == 0) world_.checkpoint();
  }
  world_.show();
  now_ns_ = 40'000'000'000;
  ASSERT_TRUE(archiver->step().ok()) << last_error_text();
  ASSERT_EQ(archiver->manifest().runs.back().why, "gap");
  const auto state = [this](std::uint64_t ns) {
    Content content;
    const auto lsn = restore({Moment::Kind::time, ns}, &content);
    EXPECT_TRUE(lsn.ok()) << last_error_text();
    return content;
  };
  EXPECT_EQ(state(6'000'000'000), world_.states[before]);
  EXPECT_EQ(state(8'999'000'000), world_.states[before]) << "the store was looked at later, and had nothing new";
  for (const std::uint64_t ns : {10'000'000'000u, 39'999'000'000u}) {
    const auto in_gap = restore({Moment::Kind::time, ns});
    ASSERT_FALSE(in_gap.ok()) << "LSN " << in_gap->value << " for the time " << ns;
    EXPECT_EQ(in_gap.error().category, Errc::not_found);
    EXPECT_NE(last_error_text().find("gap"), std::string_view::npos) << last_error_text();
  }
  EXPECT_EQ(state(41'000'000'000), world_.states.back());
}

// The archive as it is, which says when a full copy begins.
class WatchedTarget final : public ArchiveTarget {
 public:
  explicit WatchedTarget(ArchiveTarget& target) : target_(target) {}
  std::function<void()> at_full;
  Result<std::unique_ptr<ArchiveSink>> put(const std::string& name) override {
    if (at_full && name.starts_with("full-")) std::exchange(at_full, {})();
    return target_.put(name);
  }
  Result<std::unique_ptr<ArchiveStream>> get(const std::string& name) override { return target_.get(name); }
  Status remove(const std::string& name) override { return target_.remove(name); }
  Result<std::unique_ptr<VolumeLock>> lock() override { return target_.lock(); }
  [[nodiscard]] std::string path_of(const std::string& name) const override { return target_.path_of(name); }

 private:
  ArchiveTarget& target_;
};

// A full copy of a store whose writer fills the log meanwhile begins anew. The frames that were read along until the
// log was reused are archived all the same.
TEST_F(ArchiveParts, FramesThatWereReadDuringACopyAreArchived) {
  WatchedTarget watched(*target_);
  int looks = -1;  // at the log since the copy began: the first finds a commit, the second that the log was reused
  options_.now_ns = [&] {
    if (looks >= 0 && ++looks == 3) {
      for (int i = 0; i < 80; ++i) {
        world_.commit();
        if (i % 8 == 0) world_.checkpoint();
      }
      world_.show();
    }
    return now_ns_ += 1000;
  };
  options_.seal_ns = ~std::uint64_t{0};
  Archiver archiver(source_, watched, options_);
  ASSERT_TRUE(archiver.open().ok()) << last_error_text();
  world_.commit();
  world_.show();
  ASSERT_TRUE(archiver.step().ok()) << last_error_text();
  std::size_t seen = 0;
  watched.at_full = [&] {
    world_.commit();
    world_.show();
    seen = world_.states.size() - 1;
    looks = 0;
  };
  EXPECT_EQ(archiver.copy_now().category, Errc::busy) << last_error_text();
  ASSERT_GE(looks, 3);
  looks = -1;
  ASSERT_TRUE(archiver.step().ok()) << last_error_text();
  ASSERT_EQ(archiver.manifest().runs.size(), 2u);
  EXPECT_EQ(archiver.manifest().runs.back().why, "gap");
  EXPECT_GE(archiver.manifest().runs.front().end.lsn, world_.lsns[seen]);
  Content content;
  ASSERT_TRUE(restore({Moment::Kind::lsn, world_.lsns[seen].value, 1}, &content).ok()) << last_error_text();
  EXPECT_EQ(content, world_.states[seen]);
  ASSERT_TRUE(restore({}, &content).ok()) << last_error_text();
  EXPECT_EQ(content, world_.states.back());
}

// A ticket lies in the frame of its commit.
TEST_F(ArchiveParts, ATicketIsTheStateWithItsCommit) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  for (int i = 0; i < 3; ++i) commit(*archiver);
  const std::size_t last = world_.states.size() - 1;
  for (std::size_t i = last - 1; i <= last; ++i) {
    for (const std::uint64_t ticket : {world_.lsns[i - 1].value + 1, world_.lsns[i].value - 1, world_.lsns[i].value}) {
      Content content;
      const auto lsn = restore({Moment::Kind::lsn, ticket}, &content);
      ASSERT_TRUE(lsn.ok()) << last_error_text();
      EXPECT_EQ(*lsn, world_.lsns[i]);
      EXPECT_EQ(content, world_.states[i]) << "ticket " << ticket;
    }
  }
}

// The full copy is of a later time than what was archived behind it.
TEST_F(ArchiveParts, AClockMayBeSetBackBehindTheFirstCopy) {
  now_ns_ = 100'000'000;
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  now_ns_ = 50'900'000;
  world_.commit();
  mark(50'500'000);
  const std::size_t early = world_.states.size() - 1;
  commit(*archiver);
  now_ns_ = 60'000'000;
  commit(*archiver);
  Content content;
  ASSERT_TRUE(restore({Moment::Kind::time, 50'500'000}, &content).ok()) << last_error_text();
  EXPECT_EQ(content, world_.states[early]);
  EXPECT_TRUE(clock_went_back_);
  ASSERT_TRUE(restore({Moment::Kind::time, 70'000'000}, &content).ok()) << last_error_text();
  EXPECT_EQ(content, world_.states.back());
  EXPECT_EQ(restore({Moment::Kind::time, 40'000'000}).status().category, Errc::not_found);
}

TEST_F(ArchiveParts, AReplicaGrowsForALargeFrame) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  commit(*archiver);
  world_.create("large", 64 * kPageBytes);
  Content next = world_.states.back();
  std::vector<std::byte>& bytes = next["large"];
  for (std::byte& each : bytes) each = static_cast<std::byte>(world_.random.next());
  const Extent extent{world_.store->find("large")->id, 0, 20 * kPageBytes};
  std::fill(bytes.begin() + 20 * kPageBytes, bytes.end(), std::byte{0});
  const std::byte* const source = bytes.data();
  ASSERT_TRUE(world_.store->commit({{&extent, 1}, {&source, 1}, {}}).ok()) << last_error_text();
  world_.show();
  ASSERT_TRUE(archiver->step().ok());
  Restorer restorer(*target_);
  ASSERT_TRUE(restorer.look().ok());
  auto plan = restorer.plan({});
  ASSERT_TRUE(plan.ok());
  plan->full.slot_count = 2;  // 32 KiB
  SimVolume disk;
  Replica replica(disk, StoreKind::folder, "");
  ASSERT_TRUE(restorer.begin(*plan, replica).ok()) << last_error_text();
  ASSERT_TRUE(restorer.feed(replica, plan->full, plan->until).ok()) << last_error_text();
  ASSERT_TRUE(replica.promote().ok()) << last_error_text();
  EXPECT_EQ(recovered(disk.image(), world_.options), next);
}

// A standby is refused to writers until it is promoted, and afterwards to the archive.
TEST_F(ArchiveParts, OnlyAPromotedReplicaIsWritten) {
  const auto archiver = archive();
  ASSERT_NE(archiver, nullptr);
  commit(*archiver);
  Restorer restorer(*target_);
  ASSERT_TRUE(restorer.look().ok());
  const auto plan = restorer.plan({});
  ASSERT_TRUE(plan.ok());
  SimVolume disk;
  {
    Replica replica(disk, StoreKind::folder, "");
    ASSERT_TRUE(restorer.begin(*plan, replica).ok()) << last_error_text();
    ASSERT_TRUE(restorer.feed(replica, plan->full, plan->until).ok()) << last_error_text();
    // Followers see what was added.
    auto follower = Store::open(disk, reading(world_.options));
    ASSERT_TRUE(follower.ok()) << last_error_text();
    EXPECT_EQ((*follower)->durable_lsn(), replica.end().lsn);
  }
  const auto refused = Store::open(disk, world_.options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().category, Errc::read_only);
  EXPECT_NE(last_error_text().find("promote"), std::string_view::npos) << last_error_text();
  {
    Replica replica(disk, StoreKind::folder, "");
    ASSERT_TRUE(replica.open().ok()) << last_error_text();
    ASSERT_TRUE(replica.promote().ok()) << last_error_text();
  }
  EXPECT_TRUE(Store::open(disk, world_.options).ok()) << last_error_text();
  Replica again(disk, StoreKind::folder, "");
  EXPECT_EQ(again.open().category, Errc::invalid);
}

// ---- a file that is closed and opened again ------------------------------------------------------------------------

struct FileArchive {
  FileArchive() : target_(make_folder_target(volume_)) {
    options_.seal_ns = 0;
    options_.full_every_ns = 0;
    options_.place = "/place/file";
    world_.open();
    world_.create("file", 4 * kPageBytes);
    world_.commit();
  }
  // As after a restart of the archiver.
  Status open() {
    archiver_ = nullptr;
    source_ = std::make_unique<ArchiveSource>(reading_, StoreKind::one_file, "file");
    archiver_ = std::make_unique<Archiver>(*source_, *target_, options_);
    return archiver_->open();
  }
  void step() {
    if (world_.store != nullptr) world_.show();
    ASSERT_TRUE(archiver_->step().ok()) << last_error_text();
  }
  // As a SQLite database is closed: without a log. `is_told`: the program sees the archiver's notice.
  void close_without_log(bool is_told) {
    const std::string name = StoreNames(StoreKind::one_file, "file").archived;
    ASSERT_TRUE(world_.pages.pages.contains(name));
    world_.pages.pages.at(name)->held = is_told;
    ASSERT_TRUE(world_.store->close_and_remove_log().ok()) << last_error_text();
    world_.store = nullptr;
    if (world_.pages.pages.contains(name)) world_.pages.pages.at(name)->held = true;
  }
  // Another program changes the closed file.
  void change_file() {
    const auto file = world_.volume.open("file", OpenMode::read_write, Caching::buffered);
    ASSERT_TRUE(file.ok()) << last_error_text();
    Content next = world_.states.back();
    std::vector<std::byte>& bytes = next["file"];
    for (std::size_t i = 0; i < 3000; ++i) bytes[i] = static_cast<std::byte>(i % 251);
    ASSERT_TRUE((*file)->write(0, bytes).ok() && (*file)->flush().ok()) << last_error_text();
    world_.states.back() = next;
  }
  std::optional<Content> restored(const Moment& moment = {}) const { return restored_from(*target_, moment); }
  [[nodiscard]] std::optional<Content> restored_from(ArchiveTarget& target, const Moment& moment = {}) const {
    Restorer restorer(target);
    if (!restorer.look().ok()) return std::nullopt;
    const auto plan = restorer.plan(moment);
    if (!plan.ok()) return std::nullopt;
    SimVolume disk;
    Replica replica(disk, StoreKind::one_file, "file");
    const bool made = restorer.begin(*plan, replica).ok() && restorer.feed(replica, plan->full, plan->until).ok() &&
                      replica.promote().ok();
    if (!made) return std::nullopt;
    return recovered(disk.image(), world_.options);
  }
  [[nodiscard]] const core::Run& newest_run() const { return archiver_->manifest().runs.back(); }

  World world_{StoreKind::one_file, 7};
  SimVolume volume_;
  PageVolume reading_{world_.volume, world_.pages};
  std::unique_ptr<ArchiveTarget> target_;
  ArchiveOptions options_;
  std::unique_ptr<ArchiveSource> source_;
  std::unique_ptr<Archiver> archiver_;
};

class ArchivedFile : public ::testing::Test, protected FileArchive {};

// Rounds of a program that leaves its log to an archiver that lives.
void close_beside_an_archiver(StoreKind, std::uint64_t, Faults& faults) {
  FileArchive archive;
  ASSERT_TRUE(archive.open().ok()) << last_error_text();
  for (int round = 0; round < 3; ++round) {
    archive.world_.commit();
    archive.close_without_log(true);
    archive.step();
    if (archive.restored() != archive.world_.states.back()) faults.add("the last commits are not in the archive");
    archive.world_.open();
    archive.step();
  }
  if (archive.archiver_->manifest().runs.size() != 1) faults.add("the archive did not go on in its run");
}

// Commits to a file that was changed while it was closed are archived behind a full copy.
void change_a_closed_file(StoreKind, std::uint64_t, Faults& faults) {
  FileArchive archive;
  World& world = archive.world_;
  ASSERT_TRUE(archive.open().ok()) << last_error_text();
  const auto look = [&](std::uint64_t run, const char* when) {
    world.show();
    if (!archive.archiver_->step().ok()) return faults.add(std::string(when) + std::string(last_error_text()));
    if (archive.newest_run().number != run) faults.add(std::string(when) + "the run is another one");
    if (archive.restored() != world.states.back()) faults.add(std::string(when) + "the state is another one");
  };
  world.commit();
  world.close();
  archive.step();
  const std::uint64_t before = archive.newest_run().number;
  archive.change_file();
  world.open();
  world.commit();
  look(before + 1, "changed: ");
  world.close();
  world.open();
  world.commit();
  look(before + 1, "as it was closed: ");
}

// A power cut at every operation of the opening that makes a new log for a file whose archive waits for one, and of its
// close, which removes that log, as the file is not of the kind that the program asked for. The next program's commits
// are in the archive.
void cut_the_making_of_a_log(StoreKind kind, std::uint64_t seed, Faults& faults) {
  FileArchive archive;
  ASSERT_TRUE(archive.open().ok()) << last_error_text();
  archive.world_.commit();
  archive.close_without_log(false);
  archive.step();
  const Content& state = archive.world_.states.back();
  const SimImage closed = archive.world_.volume.image();
  World making(options_of(kind), seed, closed);
  making.open();
  making.store->forget_new_log();
  making.close();
  const SimTrace trace = making.volume.trace();
  Random random(seed);
  std::uint64_t with_log = 0;
  for (CrashPoints points(trace); points.next();) {
    for (PowerCuts cuts(points.medium(), {2, 2}, random); cuts.next();) {
      const std::string where = "cut after operation " + std::to_string(points.at()) + ": ";
      World next(options_of(kind), seed, cuts.image());
      with_log += *next.volume.exists("file.memlith") ? 1 : 0;
      next.open();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << where;
      next.states = {state};
      if (*next.store->read_home(kFile) != state.at("file")) faults.add(where + "the file is another one");
      next.commit();
      next.show();
      SimVolume disk(archive.volume_.image());
      const auto target = make_folder_target(disk);
      PageVolume reading(next.volume, next.pages);
      ArchiveSource source(reading, kind, "file");
      Archiver archiver(source, *target, archive.options_);
      if (!archiver.open().ok() || !archiver.step().ok()) {
        faults.add(where + std::string(last_error_text()));
        continue;
      }
      if (archive.restored_from(*target) != next.states.back()) faults.add(where + "the newest state is another one");
      const Moment moment{Moment::Kind::lsn, archive.world_.lsns.back().value, archive.newest_run().number};
      if (archive.restored_from(*target, moment) != state) faults.add(where + "the state before it is another one");
    }
  }
  EXPECT_GT(with_log, 5u);
}

TEST_F(ArchivedFile, AProgramLeavesTheLogToAnArchiverThatLives) {
  expect_sound(close_beside_an_archiver, StoreKind::one_file, 1);
}
TEST_F(ArchivedFile, OfAFileThatWasChangedWhileItWasClosed) {
  expect_sound(change_a_closed_file, StoreKind::one_file, 1);
}
TEST_F(ArchivedFile, AnOpeningThatMakesALogMayBeCut) { expect_sound(cut_the_making_of_a_log, StoreKind::one_file, 1); }
TEST_F(ArchivedFile, PlantedFaultsAreNoticed) {
  expect_noticed(Mutant::log_removed_unread, close_beside_an_archiver, StoreKind::one_file, 1);
  expect_noticed(Mutant::chain_goes_on, change_a_closed_file, StoreKind::one_file, 1);
  expect_noticed(Mutant::closed_stamp_not_compared, change_a_closed_file, StoreKind::one_file, 1);
  expect_noticed(Mutant::closed_stamp_left_out, change_a_closed_file, StoreKind::one_file, 1);
}

TEST_F(ArchivedFile, ALogThatWasRemovedIsReadToItsEnd) {
  ASSERT_TRUE(open().ok()) << last_error_text();
  for (int round = 0; round < 3; ++round) {
    step();
    world_.commit();
    const std::size_t last = world_.states.size() - 1;
    const Moment moment{Moment::Kind::lsn, world_.lsns.back().value, newest_run().number};
    close_without_log(false);
    step();
    EXPECT_EQ(restored(), world_.states[last]) << last_error_text();
    if (round == 1) {  // before a program has the file open again
      ASSERT_TRUE(open().ok()) << last_error_text();
    }
    step();
    world_.open();
    world_.commit();
    step();
    EXPECT_EQ(newest_run().why, "log");
    EXPECT_EQ(newest_run().number, static_cast<std::uint64_t>(round) + 2);
    EXPECT_EQ(restored(), world_.states.back()) << last_error_text();
    EXPECT_EQ(restored(moment), world_.states[last]) << last_error_text();
  }
  EXPECT_EQ(archiver_->progress().gaps, 0u);
  // While the archiver does not run.
  archiver_ = nullptr;
  source_ = nullptr;
  world_.commit();
  ASSERT_TRUE(world_.store->close_and_remove_log().ok()) << last_error_text();
  world_.store = nullptr;
  world_.open();
  world_.show();
  ASSERT_TRUE(open().ok()) << last_error_text();
  step();
  EXPECT_EQ(restored(), world_.states.back()) << last_error_text();
  // Another file of this name.
  options_.place = "/elsewhere/file";
  world_.close();
  ASSERT_TRUE(world_.volume.remove("file.memlith").ok());
  world_.open();
  EXPECT_EQ(open().category, Errc::invalid);
  ASSERT_TRUE(world_.volume.remove("file.memlith").ok());
  EXPECT_EQ(open().category, Errc::invalid) << "without a log";
  world_.store = nullptr;
  world_.open();
  options_.restored_from = Manifest::get(*target_)->archive_id;
  EXPECT_TRUE(open().ok()) << last_error_text();
}

TEST_F(ArchivedFile, AFileThatWasChangedWhileItWasClosedIsCopiedAnew) {
  ASSERT_TRUE(open().ok()) << last_error_text();
  for (const bool archiver_lives : {true, false}) {
    world_.commit();
    world_.close();
    step();
    const std::uint64_t before = newest_run().number;
    change_file();
    if (!archiver_lives) archiver_ = nullptr;
    world_.open();
    world_.show();
    if (!archiver_lives) {
      ASSERT_TRUE(open().ok()) << last_error_text();
    }
    step();
    EXPECT_EQ(newest_run().number, before + 1);
    EXPECT_EQ(newest_run().why, "changed");
    EXPECT_EQ(restored(), world_.states.back()) << "without a commit: " << last_error_text();
    world_.commit();
    step();
    EXPECT_EQ(restored(), world_.states.back()) << last_error_text();
    // Not changed: the history goes on.
    world_.close();
    step();
    world_.open();
    world_.commit();
    step();
    EXPECT_EQ(newest_run().number, before + 1);
    EXPECT_EQ(restored(), world_.states.back()) << last_error_text();
  }
  // The program commits before the archiver looks again.
  world_.close();
  change_file();
  world_.open();
  world_.commit();
  world_.checkpoint();
  world_.commit();
  step();
  step();
  EXPECT_EQ(restored(), world_.states.back()) << last_error_text();
}

}  // namespace
}  // namespace memlith::test::parts_test
