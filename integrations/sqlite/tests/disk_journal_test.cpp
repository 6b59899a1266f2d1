// docs/format.md, "disk journal": what lies on the disk, and that damage to it is told from a journal that was never
// completed.
#include "sqlite/src/disk_journal.hpp"

#include <cstring>
#include <filesystem>

#include "device/posix.hpp"
#include "sim/power_cuts.hpp"
#include "sim_world.hpp"
#include "support/expect.hpp"
#include "support/format_document.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using namespace sqlite;
using core::Errc;

class DiskJournal : public ::testing::Test {
 protected:
  static constexpr JournalOrigin kOrigin{0x1122334455667788, 4711};
  static constexpr std::uint64_t kContentBytes = 3'000'000;

  void SetUp() override { (void)registered_vfs(); }
  void write(JournalOrigin origin = kOrigin, std::uint64_t bytes = kContentBytes) {
    const std::string content(bytes, 'j');
    MemoryFile journal;
    journal.write(0, content.data(), content.size());
    auto device = make_disk_journal(*volume_, "app.db");
    ASSERT_OK(device);
    ASSERT_OK(write_disk_journal(*volume_, **device, origin, journal));
  }
  // The byte there is another one afterwards.
  void damage(std::uint64_t offset) {
    std::string file = read_file(name_);
    file[offset] ^= 1;
    write_file(name_, file);
  }
  void cut(std::uint64_t bytes) const { std::filesystem::resize_file(name_, bytes); }
  std::optional<LeftJournal> read() { return must(read_disk_journal(*volume_, "app.db")); }

  TempFolder folder_;
  std::unique_ptr<core::Volume> volume_ = core::make_posix_volume(folder_.path());
  const std::string name_ = folder_ / "app.db.memlith-journal";
};

TEST_F(DiskJournal, MatchesTheDocument) {
  expect_table("disk journal", sizeof(DiskJournalHeader),
               {FIELD(DiskJournalHeader, magic), FIELD(DiskJournalHeader, log_id), FIELD(DiskJournalHeader, lsn),
                FIELD(DiskJournalHeader, content_bytes), FIELD(DiskJournalHeader, content_checksum),
                FIELD(DiskJournalHeader, header_checksum)});
  write();
  EXPECT_EQ(read_file(name_).substr(0, 8), "MEMLJRNL");
}

TEST_F(DiskJournal, IsReadAsItWasWritten) {
  EXPECT_FALSE(read().has_value());
  write({1, 2}, 10);
  write();  // in place of the other
  const auto left = read();
  ASSERT_TRUE(left.has_value() && left->content != nullptr);
  EXPECT_EQ(left->origin.log_id, kOrigin.log_id);
  EXPECT_EQ(left->origin.lsn, kOrigin.lsn);
  ASSERT_EQ(left->content->size(), kContentBytes);
  std::string content(kContentBytes, '\0');
  EXPECT_EQ(left->content->read(0, content.data(), content.size()), kContentBytes);
  EXPECT_EQ(content, std::string(kContentBytes, 'j'));
  ASSERT_OK(remove_disk_journal(*volume_, "app.db"));
  ASSERT_OK(remove_disk_journal(*volume_, "app.db"));
  EXPECT_FALSE(std::filesystem::exists(name_));
}

// The header's sector was never written, or not all of what it tells of: the frame was not begun.
TEST_F(DiskJournal, OneThatWasNeverCompletedHasNoContent) {
  write();
  cut(512 + kContentBytes - 1);
  EXPECT_EQ(read()->content, nullptr);
  EXPECT_EQ(read()->origin.lsn, kOrigin.lsn);
  cut(511);
  EXPECT_EQ(read()->content, nullptr);
  write_file(name_, std::string(4096, '\0'));
  EXPECT_EQ(read()->content, nullptr);
  EXPECT_EQ(read()->origin.log_id, 0u);
}

TEST_F(DiskJournal, DamageIsNoticed) {
  for (const std::uint64_t offset : {0u, 8u, 16u, 24u, 32u, 40u}) {
    write();
    damage(offset);
    EXPECT_ERROR(Errc::corrupt, read_disk_journal(*volume_, "app.db")) << offset;
    EXPECT_NE(core::last_error_text().find(name_), std::string_view::npos) << core::last_error_text();
  }
  write();
  damage(512 + kContentBytes / 2);
  EXPECT_EQ(read()->content, nullptr);
}

// Beside a database that crashed: what its journal says of the transaction is believed only if it is whole, and its
// own.
TEST_F(DiskJournal, OfACrashedDatabaseIsBelievedWholeOnly) {
  std::uint64_t log_id = 0;
  {
    Db db(folder_ / "first.db", "memlith");
    ASSERT_RUNS(db, "create table t(a); insert into t values(1)");
    std::filesystem::copy_file(folder_ / "first.db", folder_ / "app.db");
    std::filesystem::copy_file(folder_ / "first.db.memlith", folder_ / "app.db.memlith");
    std::memcpy(&log_id, read_file(folder_ / "app.db.memlith").data() + offsetof(core::Superblock, log_id),
                sizeof log_id);
  }
  const auto refused = [&](const std::string& why) {
    for (const std::string mode : {"rw", "ro"}) {
      sqlite_log.clear();
      EXPECT_EQ(Db("file:" + (folder_ / "app.db") + "?mode=" + mode, "memlith").open_code(), SQLITE_CORRUPT) << why;
      EXPECT_TRUE(sqlite_log.told(why) && sqlite_log.told("app.db.memlith-journal")) << sqlite_log.all();
    }
    EXPECT_TRUE(std::filesystem::exists(name_)) << why;
  };
  write({log_id, 0});
  damage(512);
  refused("wrong checksum of its content");
  write({log_id + 1, 0});
  refused("belongs to another database");
  write({log_id, 0});
  damage(0);
  refused("no valid header");
  // One whose frame was not begun is of no account.
  write({log_id, std::uint64_t{1} << 40});
  EXPECT_EQ(Db(folder_ / "app.db", "memlith").all("select * from t"), "1");
  EXPECT_FALSE(std::filesystem::exists(name_));
}

// That a super-journal is gone is no outcome before it is durable.
TEST(DiskJournalRemoval, ASuperJournalThatIsGoneIsGoneForGood) {
  core::SimVolume volume(core::SimImage{}, true);
  sim_world().volume = &volume;
  const std::string name = "app.db-mj0123459AB";
  ASSERT_OK(volume.open(name, core::OpenMode::create, core::Caching::buffered));
  ASSERT_OK(volume.remove(name));
  sqlite3_vfs* const vfs = sqlite3_vfs_find(kSimVfs);
  int there = -1;
  ASSERT_EQ(vfs->xAccess(vfs, ("/" + name).c_str(), SQLITE_ACCESS_EXISTS, &there), SQLITE_OK);
  EXPECT_EQ(there, 0);
  EXPECT_EQ(volume.trace().records.back().op, core::SimOp::sync_folder);
}

// The flush of the folder fails when the journal of an undone part is removed: a power cut brings it back, with the
// super-journal, and then there must not be commits behind it.
TEST(DiskJournalRemoval, ThatFailedIsNotForgotten) {
  std::uint64_t struck = 0;
  for (std::uint64_t nth = 0;; ++nth) {
    core::SimVolume volume({}, true);
    sim_world().volume = &volume;
    std::string acknowledged = "0";
    bool fired = false;
    std::size_t crash_at = 0;
    {
      Db db("/simulated/app.db", kSimVfs);
      ASSERT_RUNS(db, "attach 'file:/simulated/two.db?vfs=memlith-sim' as two");
      ASSERT_RUNS(
          db, "pragma main.page_size = 512; pragma two.page_size = 65536; create table t(a); create table two.u(v)");
      ASSERT_RUNS(db, "insert into t values(0)");
      volume.faults().plan(core::SimFaults::Kind::fail_folder, nth, true);
      // More than the log of the second may grow to, so the first is undone.
      ASSERT_RUNS(db, "begin; update t set a = 'undone'; insert into u values(randomblob(1200000))");
      EXPECT_NE(db.run("commit"), SQLITE_OK);
      (void)db.run("rollback; select * from t");
      fired = volume.faults().fired() > 0;
      volume.faults().clear();
      for (int i = 1; i < 4; ++i) {
        if (db.run("insert into t values(" + std::to_string(i) + ")") == SQLITE_OK)
          acknowledged += "\n" + std::to_string(i);
      }
      EXPECT_EQ(db.all("select a from t"), acknowledged) << "it is read on, nth " << nth;
      crash_at = volume.operations();
    }
    struck += fired ? 1 : 0;
    const core::SimMedium medium(volume.trace(), crash_at);
    for (std::size_t kept = 0; kept <= medium.pending_count() + 1; ++kept) {
      // Nothing, everything but one, everything.
      core::SimVolume after(medium.cut([&](std::size_t item) { return kept > 0 && item + 1 != kept; }));
      sim_world().volume = &after;
      Db db("/simulated/app.db", kSimVfs);
      EXPECT_EQ(db.all("select a from t"), acknowledged) << "nth " << nth << ", kept " << kept << sqlite_log.all();
    }
    sim_world().volume = nullptr;
    if (!fired) break;
  }
  EXPECT_GT(struck, 1u);
}

// The second part does not fit its log, and what undoes the first may not fit the first one's in one frame: that
// depends on where in its log the first one ended.
TEST(DiskJournalUndo, TakesAsManyFramesAsItNeeds) {
  constexpr const char* kSmallVfs = "memlith-sim-small";
  register_sim(sim_world(), kSmallVfs, 8);
  int undone = 0;
  for (int fill = 100; fill < 4000 && !::testing::Test::HasFailure(); fill += 400) {
    core::SimVolume volume({}, true);
    sim_world().volume = &volume;
    const std::string query = "select hex(b) from t";
    std::string before;
    std::size_t begin = 0;
    std::size_t end = 0;
    {
      Db db("/simulated/app.db", kSmallVfs);
      ASSERT_RUNS(db, "attach 'file:/simulated/two.db?vfs=memlith-sim-small' as two");
      ASSERT_RUNS(db, "create table t(b); create table w(b); create table two.u(v)");
      for (int i = 0; i < 10; ++i) ASSERT_RUNS(db, "insert into t values(randomblob(2550))");
      ASSERT_RUNS(db, "insert into w values(randomblob(" + std::to_string(fill) + "))");
      before = db.all(query);
      ASSERT_RUNS(db, "begin; update t set b = randomblob(2550); insert into u values(randomblob(60000))");
      begin = volume.operations();
      sqlite_log.clear();
      EXPECT_EQ(db.run("commit"), SQLITE_FULL);
      end = volume.operations();
      EXPECT_EQ(db.all(query), before) << "fill " << fill << sqlite_log.all();
      EXPECT_RUNS(db, "insert into w values('x')");
      EXPECT_EQ(db.close(), SQLITE_OK);
    }
    if (!sqlite_log.told("two.db.memlith: a transaction of")) continue;  // the first part was the one that did not fit
    ++undone;
    for (core::CrashPoints points(volume.trace(), begin);
         !::testing::Test::HasFailure() && points.next() && points.at() < end;) {
      for (const bool kept : {false, true}) {
        core::SimVolume after(points.medium().cut([&](std::size_t) { return kept; }));
        sim_world().volume = &after;
        const Db db("/simulated/app.db", kSmallVfs);
        EXPECT_EQ(db.all(query), before) << "fill " << fill << ", operation " << points.at()
                                         << (kept ? ", kept" : ", lost");
      }
    }
  }
  sim_world().volume = nullptr;
  EXPECT_GT(undone, 2);
}

}  // namespace
}  // namespace memlith::test
