// docs/format.md, "The moment": a marked database and a log of another moment of the same database are told apart,
// whichever of the two is the older, and refused unchanged. So is what lacks its log.
#include <chrono>

#include "device/posix.hpp"
#include "files_fixture.hpp"
#include "store/store.hpp"

namespace memlith::test {
namespace {

class Moments : public Files {
 protected:
  static constexpr const char* kFixedLog = "log_mib=1";  // which checkpoints, and does not grow

  static std::uint64_t checkpoints(const Db& db) {
    const std::string stats = db.all("pragma memlith_stats");
    const std::size_t at = stats.find(" checkpoints=");
    EXPECT_NE(at, std::string::npos) << stats;
    return at == std::string::npos ? 0 : std::stoull(stats.substr(at + 13));
  }
  // As soon as no checkpoint is under way.
  static std::uint64_t settled_checkpoints(const Db& db) {
    std::uint64_t seen = 0;
    do {
      seen = checkpoints(db);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } while (seen != checkpoints(db));
    return seen;
  }
  // Commits until a checkpoint is over that began behind the first of them, and nothing is under way.
  static void commit_past_a_checkpoint(Db& db) {
    const std::uint64_t before = checkpoints(db);
    for (int i = 0; i < 10'000 && checkpoints(db) < before + 2; ++i) {
      ASSERT_RUNS(db, "insert into t values(randomblob(20000))");
    }
    ASSERT_GE(checkpoints(db), before + 2);
    ASSERT_RUNS(db, "insert into t values(1)");
    (void)settled_checkpoints(db);
  }
  // The file of one copy with the log of another.
  std::string pair(const std::string& file_of, const std::string& log_of) const {
    const std::string name = folder_ / "pair.db";
    fs::copy_file(file_of, name, fs::copy_options::overwrite_existing);
    fs::copy_file(log_of + ".memlith", name + ".memlith", fs::copy_options::overwrite_existing);
    return name;
  }
  void expect_refused(const std::string& file_of, const std::string& log_of, const char* what) const {
    const std::string name = pair(file_of, log_of);
    for (const char* const mode : {"ro", "rw"}) {
      sqlite_log.clear();
      EXPECT_EQ(Db("file:" + name + "?mode=" + mode, "memlith").open_code(), SQLITE_CORRUPT) << what << ", " << mode;
      for (const char* const part : {"pair.db: is not of the same moment as its log", "pair.db.memlith", "LSN",
                                     "put back the two as they were together"}) {
        EXPECT_TRUE(sqlite_log.told(part)) << what << ", " << mode << ": " << sqlite_log.last();
      }
    }
    EXPECT_TRUE(read_file(name) == read_file(file_of)) << what;
    EXPECT_TRUE(read_file(name + ".memlith") == read_file(log_of + ".memlith")) << what;
  }
  void expect_rows(const std::string& name, const std::string& rows) const {
    EXPECT_EQ(Db(pair(name, name), "memlith").all("select count(*) from t; pragma integrity_check"), rows + "\nok");
  }
};

TEST_F(Moments, OfOneOpening) {
  Db db = open(kFixedLog);
  ASSERT_RUNS(db, "create table t(a)");
  std::string early, early_rows, same, same_rows;
  for (;;) {
    commit_past_a_checkpoint(db);
    const std::uint64_t before = settled_checkpoints(db);
    early = copy_as_crashed("early.db");
    early_rows = db.all("select count(*) from t");
    ASSERT_RUNS(db, "insert into t values(2)");
    same = copy_as_crashed("same.db");
    same_rows = db.all("select count(*) from t");
    if (settled_checkpoints(db) == before) break;  // a busy machine's idle store may have begun one in between
  }
  commit_past_a_checkpoint(db);
  const std::string late = copy_as_crashed("late.db");
  const std::string late_rows = db.all("select count(*) from t");
  expect_refused(early, late, "old file, new log");
  expect_refused(late, early, "new file, old log");
  expect_rows(early, early_rows);
  expect_rows(same, same_rows);
  expect_rows(late, late_rows);
  // No checkpoint came between these, so the file is the same, and the log alone says how far it goes.
  EXPECT_EQ(Db(pair(early, same), "memlith").all("select count(*) from t"), same_rows);
}

// Crashed, opened again and crashed again: the recovery has brought the file to another moment.
TEST_F(Moments, OfTwoOpenings) {
  std::string early;
  std::string late;
  std::string rows;
  {
    Db db = open(kFixedLog);
    ASSERT_RUNS(db, "create table t(a); insert into t values(1)");
    early = copy_as_crashed("early.db");
  }
  {
    Db again("file:" + pair(early, early) + "?" + kFixedLog, "memlith");
    ASSERT_RUNS(again, "insert into t values(2)");
    commit_past_a_checkpoint(again);
    rows = again.all("select count(*) from t");
    fs::copy_file(folder_ / "pair.db", folder_ / "late.db");
    fs::copy_file(folder_ / "pair.db.memlith", folder_ / "late.db.memlith");
    late = folder_ / "late.db";
  }
  expect_refused(early, late, "old file, new log");
  expect_refused(late, early, "new file, old log");
  expect_rows(early, "1");
  expect_rows(late, rows);
}

// The first opening was closed cleanly, and the log of the second is another.
TEST_F(Moments, OfAClosedOpeningAndALaterOne) {
  std::string early;
  {
    Db db = open();
    ASSERT_RUNS(db, "create table t(a); insert into t values(1)");
    early = copy_as_crashed("early.db");
  }
  Db db = open();
  ASSERT_RUNS(db, "insert into t values(2)");
  const std::string late = copy_as_crashed("late.db");
  expect_refused(early, late, "old file, new log");
  expect_refused(late, early, "new file, old log");
}

// Two histories that began with the same copy: where they part, positions are the same numbers and not the same
// commits.
TEST_F(Moments, OfTwoHistories) {
  Db db = open(kFixedLog);
  ASSERT_RUNS(db, "create table t(a); insert into t values(1)");
  const std::string root = copy_as_crashed("root.db");
  std::string ends[2];
  for (int i = 0; i < 2; ++i) {
    Db branch("file:" + pair(root, root) + "?" + kFixedLog, "memlith");
    ASSERT_RUNS(branch, "insert into t values(" + std::to_string(i) + ")");
    commit_past_a_checkpoint(branch);
    ends[i] = folder_ / ("branch" + std::to_string(i) + ".db");
    fs::copy_file(folder_ / "pair.db", ends[i]);
    fs::copy_file(folder_ / "pair.db.memlith", ends[i] + ".memlith");
  }
  expect_refused(ends[0], ends[1], "another history");
  expect_refused(ends[1], ends[0], "another history");
}

// The engine itself takes nothing over that lacks its log.
TEST_F(Moments, AMarkedFileWithoutItsLogIsNotTakenOver) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1)");
  const std::string crashed = copy_as_crashed("crashed.db");
  fs::remove(crashed + ".memlith");
  const auto volume = core::make_posix_volume(folder_.path());
  core::StoreOptions options;
  options.kind = core::StoreKind::one_file;
  options.file_name = "crashed.db";
  const std::string before = read_file(crashed);
  for (const bool create : {false, true}) {
    options.create = create;
    EXPECT_EQ(core::Store::open(*volume, options).status().category, core::Errc::corrupt) << create;
    const std::string text(core::last_error_text());
    EXPECT_NE(text.find("crashed.db.memlith is the place"), std::string::npos) << text;
    EXPECT_NE(text.find("Put the log back"), std::string::npos) << text;
  }
  EXPECT_TRUE(read_file(crashed) == before);
  EXPECT_FALSE(fs::exists(crashed + ".memlith"));
}

}  // namespace
}  // namespace memlith::test
