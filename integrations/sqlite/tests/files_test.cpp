// docs/sqlite.md, "The file": an ordinary database file before and after, refused or whole in between, and what lies
// beside it.
#include <sys/inotify.h>

#include <vector>

#include "files_fixture.hpp"
#include "store/place.hpp"
#include "store/store.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kSmallLogBytes = 16 * 1024 + 1024 * 1024;

// ---- the file ------------------------------------------------------------------------------------------------------

TEST_F(Files, AnOrdinaryDatabaseIsTakenOverAndGivenBack) {
  make_plain();
  {
    Db db = open();
    ASSERT_OPEN(db);
    EXPECT_EQ(db.all("select * from t"), "1");
    ASSERT_RUNS(db, "insert into t values(2)");
  }
  Db db = plain();
  EXPECT_EQ(db.all("select * from t"), "1\n2");
  EXPECT_EQ(integrity(db), "ok");
}

// A connection that only reads does not change the file, and plain SQLite may read beside it.
TEST_F(Files, ReadingLeavesTheFileAlone) {
  make_plain();
  const std::string before = read_file(path_);
  Db db = open();
  EXPECT_EQ(db.all("select * from t"), "1");
  EXPECT_EQ(plain().all("select * from t"), "1");
  EXPECT_EQ(read_file(path_), before);
  // While a connection on memlith is open, plain SQLite may not write.
  EXPECT_EQ(plain().run("insert into t values(3)"), SQLITE_BUSY);
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(read_file(path_), before);
}

TEST_F(Files, PlainSqliteIsKeptOutWhileTheLogHoldsCommits) {
  make_plain();
  Child earlier([&](int ready) {
    Db reader = plain();
    if (reader.all("select * from t") != "1") ::_exit(1);
    tell(ready);
    while (reader.run("select * from t") != SQLITE_BUSY) ::usleep(1000);
    tell(ready);
    while (reader.all("select * from t") != "1\n2") ::usleep(1000);
    tell(ready);
  });
  ASSERT_EQ(earlier.wait(), 1);
  Db db = open();
  sqlite3_busy_timeout(db.get(), 60000);  // the other may be reading just now
  ASSERT_RUNS(db, "insert into t values(2)");
  // Plain SQLite meets a lock, had it opened the file before or not. After a crash, when no locks are held, it
  // does not accept the file as a database.
  EXPECT_EQ(earlier.wait(), 1);
  EXPECT_EQ(plain().run("select * from t"), SQLITE_BUSY);
  Db crashed(copy_as_crashed("crashed.db"), nullptr);
  EXPECT_EQ(crashed.run("select * from t"), SQLITE_NOTADB);
  crashed.close();
  Db recovered(folder_ / "crashed.db", "memlith");
  EXPECT_EQ(recovered.all("select * from t"), "1\n2");
  ASSERT_EQ(recovered.close(), SQLITE_OK);
  EXPECT_EQ(Db(folder_ / "crashed.db", nullptr).all("select * from t"), "1\n2");
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(earlier.wait(), 1);
}

// A connection that has its first page cached asks only the change counter whether that is the file's still.
class WarmCache : public Files, public ::testing::WithParamInterface<std::string> {};

TEST_P(WarmCache, IsNoWayAroundTheMark) {
  for (const std::string page_bytes : {"512", "4096"}) {
    make_plain("pragma page_size = " + page_bytes + "; vacuum;");
    const std::string go_on = folder_ / "go_on";
    Child idle([&](int ready) {
      Db db = plain();
      const auto told = [&](int code) {
        const auto byte = static_cast<unsigned char>(code);
        if (::write(ready, &byte, 1) != 1) ::_exit(1);
      };
      told(db.all("select * from t") == "1" ? 1 : 0);
      while (!fs::exists(go_on)) ::usleep(1000);
      told(db.run("select * from t"));
      told(db.run("insert into t values(7)"));
      fs::remove(go_on);
      while (!fs::exists(go_on)) ::usleep(1000);
      told(db.run("insert into t values(3)"));
    });
    ASSERT_EQ(idle.wait(), 1);
    Child writer([&](int ready) {
      Db db = open();
      if (db.run(GetParam() + "insert into t values(2)") == SQLITE_OK) tell(ready);
      ::pause();
    });
    ASSERT_EQ(writer.wait(), 1);
    writer.kill();
    write_file(go_on, "");
    EXPECT_EQ(idle.wait(), SQLITE_NOTADB);
    EXPECT_EQ(idle.wait(), SQLITE_NOTADB);
    {
      Db db = open();
      EXPECT_EQ(db.all("select * from t"), "1\n2");
      EXPECT_EQ(integrity(db), "ok");
      ASSERT_RUNS(db, "pragma journal_mode = delete");
    }
    const std::string file = read_file(path_);
    EXPECT_EQ(file.substr(24, 4), file.substr(92, 4)) << "SQLite would not believe the page count";
    // Its cache from the time of the mark is not the file's any more.
    write_file(go_on, "");
    EXPECT_EQ(idle.wait(), SQLITE_OK);
    EXPECT_EQ(plain().all("select * from t"), "1\n2\n3");
    EXPECT_EQ(integrity(plain()), "ok");
    fs::remove(path_);
    fs::remove(go_on);
  }
}
INSTANTIATE_TEST_SUITE_P(All, WarmCache,
                         ::testing::Values("", "pragma journal_mode = off;", "pragma journal_mode = wal;"),
                         [](const auto& each) { return each.param.empty() ? "delete" : each.param.substr(22, 3); });

// Killed between the mark and the first commit, which comes when the file has to grow.
TEST_F(Files, TheMarkAloneChangesNothing) {
  make_plain();
  const std::string before = read_file(path_);
  Child writer([&](int ready) {
    Db db = open();
    (void)db.run("pragma cache_size = 2; begin; insert into t values(zeroblob(90000))");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(writer.wait(), 1);
  writer.kill();
  EXPECT_EQ(plain().run("select * from t"), SQLITE_NOTADB);
  EXPECT_EQ(open("mode=ro").all("select * from t"), "1");
  EXPECT_EQ(open().all("select * from t"), "1");
  EXPECT_EQ(read_file(path_), before);
}

// A plain reader in the middle of a transaction keeps our writer waiting, not the other way round.
TEST_F(Files, APlainReaderKeepsAWriterOut) {
  make_plain();
  Child reader([&](int ready) {
    Db db = plain();
    (void)db.run("begin; select * from t");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(reader.wait(), 1);
  Db db = open();
  ASSERT_OPEN(db);
  EXPECT_EQ(db.run("insert into t values(2)"), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("in use by process " + std::to_string(reader.pid()))) << sqlite_log.last();
  reader.kill();
  EXPECT_RUNS(db, "insert into t values(2)");
}

// The locks of plain SQLite would be lost with the first descriptor that we close.
TEST_F(Files, PlainSqliteOfTheSameProcessIsRespected) {
  make_plain();
  Db other = plain();
  ASSERT_RUNS(other, "begin immediate; insert into t values(2)");
  EXPECT_EQ(open().open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("this process has the file open already")) << sqlite_log.last();
  ASSERT_RUNS(other, "commit");
  other.close();
  EXPECT_EQ(open().all("select * from t"), "1\n2");
}

TEST_F(Files, TheFileWithoutItsLogIsRefused) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  const std::string crashed = copy_as_crashed("crashed.db");
  fs::rename(crashed + ".memlith", folder_ / "log");
  const std::string before = read_file(crashed);
  EXPECT_EQ(Db(crashed, "memlith").open_code(), SQLITE_CORRUPT);
  EXPECT_TRUE(sqlite_log.told("crashed.db.memlith, which is missing")) << sqlite_log.last();
  EXPECT_EQ(read_file(crashed), before);
  // Nor does another database's log do, clean or not.
  {
    Db other("file:" + folder_ / "other.db" + "?log_mib=1", "memlith");
    ASSERT_RUNS(other, "create table u(a)");
    fs::copy_file(folder_ / "other.db.memlith", crashed + ".memlith");
  }
  EXPECT_EQ(Db(crashed, "memlith").open_code(), SQLITE_CORRUPT);
  EXPECT_TRUE(sqlite_log.told("is not of the same moment as its log")) << sqlite_log.last();
  EXPECT_EQ(Db("file:" + crashed + "?mode=ro", "memlith").open_code(), SQLITE_CORRUPT);
  fs::copy_file(folder_ / "other.db.memlith", crashed + ".memlith", fs::copy_options::overwrite_existing);
  EXPECT_EQ(Db(crashed, "memlith").open_code(), SQLITE_CORRUPT);
  EXPECT_EQ(read_file(crashed), before);
  // Its own is found again.
  fs::rename(folder_ / "log", crashed + ".memlith");
  EXPECT_EQ(Db(crashed, "memlith").all("select * from t"), "1");
}

TEST_F(Files, ALogWithoutItsFileIsRefusedAndAnOldLogIsOfNoAccount) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  const std::string crashed = copy_as_crashed("crashed.db");
  const std::string old_log = read_file(crashed + ".memlith");
  fs::remove(crashed);
  for (const int flags : {SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, SQLITE_OPEN_READWRITE, SQLITE_OPEN_READONLY}) {
    sqlite_log.clear();
    EXPECT_EQ(Db(crashed, "memlith", flags).open_code(), SQLITE_CORRUPT);
    for (const std::string part :
         {"the database is gone", "put the database back, or, if it was renamed, rename its log",
          "crashed.db.memlith"}) {
      EXPECT_TRUE(sqlite_log.told(part)) << part << ": " << sqlite_log.last();
    }
  }
  EXPECT_FALSE(fs::exists(crashed)) << "nothing was changed";
  // An ordinary database put in the place of one that crashed: the file counts.
  {
    Db other(crashed, nullptr);
    ASSERT_RUNS(other, "create table mine(a); insert into mine values(7)");
  }
  EXPECT_EQ(Db(crashed, "memlith").all("select * from mine"), "7");
  EXPECT_EQ(Db(crashed, nullptr).all("select * from mine"), "7");
  EXPECT_FALSE(fs::exists(crashed + ".memlith"));
}

// As `memlith run` leaves it: the log counts, although the file begins with SQLite's own bytes.
TEST_F(Files, ALogThatAnotherUserOfMemlithLeftIsRefused) {
  make_plain();
  const std::string before = read_file(path_);
  Child other([&](int ready) {
    auto place = core::place_of_store(path_, core::StoreKind::one_file);
    if (!place.ok()) ::_exit(1);
    core::StoreOptions options;
    options.kind = core::StoreKind::one_file;
    options.file_name = place->file_name;
    options.create = true;
    auto store = core::Store::open(*place->volume, options);
    const std::vector<std::byte> fresh(3, std::byte{'n'});
    const core::Extent extent{core::kFile, 200, fresh.size()};
    const auto* const source = fresh.data();
    if (!store.ok() || !(*store)->commit({{&extent, 1}, {&source, 1}, {}}).ok()) ::_exit(1);
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(other.wait(), 1);
  other.kill();
  for (const int flags : {SQLITE_OPEN_READWRITE, SQLITE_OPEN_READONLY}) {
    sqlite_log.clear();
    EXPECT_EQ(Db(path_, "memlith", flags).open_code(), SQLITE_CORRUPT);
    EXPECT_TRUE(sqlite_log.told("Run `memlith recover")) << sqlite_log.last();
  }
  EXPECT_EQ(read_file(path_).substr(0, before.size()), before) << "nothing was changed";
  EXPECT_TRUE(fs::exists(path_ + ".memlith"));
}

TEST_F(Files, TheLogMayBeRemovedAfterACleanClose) {
  ASSERT_RUNS(open("log_mib=1"), "create table t(a); insert into t values(1);");
  fs::remove(path_ + ".memlith");
  EXPECT_EQ(open().all("select * from t"), "1");
  fs::rename(path_, folder_ / "moved.db");
  EXPECT_EQ(Db(folder_ / "moved.db", "memlith").all("select * from t"), "1");
}

TEST_F(Files, LeftOversOfPlainSqliteAreRefused) {
  Db source = plain();
  ASSERT_RUNS(source, "pragma journal_mode = wal; create table t(a); insert into t values(1);");
  fs::copy_file(path_, folder_ / "copy.db");
  fs::copy_file(path_ + "-wal", folder_ / "copy.db-wal");
  EXPECT_EQ(Db(folder_ / "copy.db", "memlith").open_code(), SQLITE_CANTOPEN);
  EXPECT_TRUE(sqlite_log.told("copy.db-wal holds changes")) << sqlite_log.last();
  ASSERT_RUNS(Db(folder_ / "copy.db", nullptr), "select * from t");  // which brings them in
  EXPECT_EQ(Db(folder_ / "copy.db", "memlith").all("select * from t"), "1");
  ASSERT_RUNS(source,
              "pragma journal_mode = delete; pragma cache_size = 2; begin; insert into t values(zeroblob(90000))");
  fs::copy_file(path_, folder_ / "hot.db");
  fs::copy_file(path_ + "-journal", folder_ / "hot.db-journal");
  EXPECT_EQ(Db(folder_ / "hot.db", "memlith").open_code(), SQLITE_CANTOPEN);
  EXPECT_TRUE(sqlite_log.told("hot.db-journal holds changes")) << sqlite_log.last();
  source.close();
  // The remains of a removed database: plain SQLite would bring them into the next one of that name. It removes them
  // where there is none yet.
  for (const std::string name : {"copy.db", "hot.db"}) {
    const std::string left = (folder_ / name) + (name == "hot.db" ? "-journal" : "-wal");
    if (name == "copy.db") {
      Db owner(folder_ / "other.db", nullptr);
      ASSERT_RUNS(owner, "pragma journal_mode = wal; create table t(a); insert into t values(1);");
      fs::copy_file((folder_ / "other.db") + "-wal", left, fs::copy_options::overwrite_existing);
    }
    fs::remove(folder_ / name);
    fs::remove((folder_ / name) + ".memlith");
    EXPECT_EQ(Db(folder_ / name, "memlith").open_code(), SQLITE_CANTOPEN) << name;
    EXPECT_TRUE(sqlite_log.told(name)) << sqlite_log.last();
    EXPECT_EQ(Db(folder_ / name, nullptr).all("select count(*) from sqlite_schema"), "0");
    EXPECT_FALSE(fs::exists(left));
    Db fresh(folder_ / name, "memlith");
    ASSERT_RUNS(fresh, "create table u(b); insert into u values(5)");
    EXPECT_EQ(fresh.close(), SQLITE_OK);
    EXPECT_EQ(Db(folder_ / name, nullptr).all("select * from u"), "5");
  }
}

// While its owner lives, a journal is not left over: one of the two has to wait.
TEST_F(Files, AWriterOfPlainSqliteKeepsOursOut) {
  make_plain();
  Child writer([&](int ready) {
    Db db = plain();
    (void)db.run("begin immediate; insert into t values(2)");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(writer.wait(), 1);
  ASSERT_TRUE(fs::exists(path_ + "-journal"));
  {
    Db db = open();
    EXPECT_EQ(db.all("select * from t"), "1");
    EXPECT_EQ(db.run("insert into t values(3)"), SQLITE_BUSY);
  }
  writer.kill();
  EXPECT_RUNS(open(), "insert into t values(3)");
  EXPECT_EQ(plain().all("select * from t"), "1\n3");
}

// The remains of plain SQLite beside our reader are found before the first write, which cannot undo them later.
TEST_F(Files, LeftOversAreLookedForBeforeTheFirstWrite) {
  make_plain();
  const std::string go_on = folder_ / "go_on";
  Child writer([&](int ready) {
    while (!fs::exists(go_on)) ::usleep(1000);
    Db db = plain();
    (void)db.run("pragma synchronous = off; begin immediate; update t set a = 5");
    tell(ready);
    ::pause();
  });
  Db db = open();
  EXPECT_EQ(db.all("select * from t"), "1");
  write_file(go_on, "");
  ASSERT_EQ(writer.wait(), 1);
  EXPECT_EQ(db.run("insert into t values(2)"), SQLITE_BUSY);
  writer.kill();
  ASSERT_TRUE(fs::exists(path_ + "-journal"));
  EXPECT_EQ(db.run("insert into t values(2)"), SQLITE_IOERR);
  EXPECT_TRUE(sqlite_log.told("app.db-journal holds changes")) << sqlite_log.last();
  // Readers of plain SQLite are not kept out for that.
  fs::rename(path_ + "-journal", folder_ / "journal");
  EXPECT_EQ(plain().all("select * from t"), "1");
  fs::rename(folder_ / "journal", path_ + "-journal");
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from t"), "1");  // which brings it in
  EXPECT_FALSE(fs::exists(path_ + "-journal"));
  EXPECT_RUNS(open(), "insert into t values(2)");
  EXPECT_EQ(plain().all("select * from t"), "1\n2");
}

TEST_F(Files, AWalDatabaseIsNotSharedWithPlainSqlite) {
  Child other([&](int ready) {
    Db db = plain();
    (void)db.run("pragma journal_mode = wal; create table t(a); pragma wal_checkpoint(truncate);");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(other.wait(), 1);
  EXPECT_EQ(open().open_code(), SQLITE_BUSY);
  other.kill();
  ASSERT_RUNS(plain(), "select * from t");
  Db db = open();
  ASSERT_OPEN(db);
  EXPECT_EQ(plain().run("insert into t values(1)"), SQLITE_BUSY);
  EXPECT_RUNS(db, "insert into t values(2)");
}

// A plain WAL writer changes the file beside readers that only have SQLite's shared lock: a reader on memlith excludes
// it, too.
TEST_F(Files, AReaderKeepsAPlainWalWriterOut) {
  make_plain("pragma journal_mode = wal; insert into t values(2); pragma wal_checkpoint(truncate);");
  {
    Db reader = Db("file:" + path_ + "?mode=ro", "memlith", SQLITE_OPEN_READONLY);
    EXPECT_EQ(reader.all("select * from t"), "1\n2");
    Child writer([&](int ready) {
      Db db = plain();
      if (db.run("insert into t values(3); pragma wal_checkpoint(truncate)") == SQLITE_BUSY) tell(ready);
    });
    EXPECT_EQ(writer.wait(), 1) << "the writer was let in";
    EXPECT_EQ(reader.all("select * from t"), "1\n2");
  }
  EXPECT_RUNS(plain(), "insert into t values(3)");
}

// A child that was forked while the database was open, and lives on, does not keep its locks.
TEST_F(Files, AForkedChildKeepsNoLocks) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  Child child([](int ready) {
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(child.wait(), 1);
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_RUNS(plain(), "insert into t values(2)");
  Db again = open();
  EXPECT_RUNS(again, "insert into t values(3)");
}

TEST_F(Files, AFileThatIsNoDatabaseIsLeftAlone) {
  write_file(path_, "This is a letter and no database, and it is longer than a header.");
  EXPECT_EQ(open().run("select * from sqlite_schema"), SQLITE_NOTADB);
  EXPECT_EQ(open().run("create table t(a)"), SQLITE_NOTADB);
  EXPECT_EQ(open("mode=ro").run("select * from sqlite_schema"), SQLITE_NOTADB);
  EXPECT_EQ(read_file(path_), "This is a letter and no database, and it is longer than a header.");
  EXPECT_FALSE(fs::exists(path_ + ".memlith"));
  EXPECT_EQ(Db(folder_ / "nowhere/app.db", "memlith").open_code(), SQLITE_CANTOPEN);
  EXPECT_EQ(Db(folder_.path(), "memlith").open_code(), SQLITE_CANTOPEN);
  EXPECT_EQ(Db(folder_ / "new.db", "memlith", SQLITE_OPEN_READWRITE).open_code(), SQLITE_CANTOPEN);
}

// A VFS on top that splits a database passes locks and commits on for its first file only. What it stored to the others
// was lost.
TEST_F(Files, StoringWithoutALockIsRefused) {
  sqlite3_vfs* const vfs = sqlite3_vfs_find("memlith");
  std::vector<std::max_align_t> memory(static_cast<std::size_t>(vfs->szOsFile) / sizeof(std::max_align_t) + 1);
  auto* const file = reinterpret_cast<sqlite3_file*>(memory.data());
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MAIN_DB;
  ASSERT_EQ(vfs->xOpen(vfs, path_.c_str(), file, flags, nullptr), SQLITE_OK);
  EXPECT_EQ(file->pMethods->xWrite(file, "page", 4, 0), SQLITE_IOERR);
  EXPECT_TRUE(sqlite_log.told("written without a lock")) << sqlite_log.all();
  EXPECT_EQ(file->pMethods->xTruncate(file, 0), SQLITE_IOERR);
  EXPECT_EQ(file->pMethods->xLock(file, SQLITE_LOCK_SHARED), SQLITE_OK);
  EXPECT_EQ(file->pMethods->xWrite(file, "page", 4, 0), SQLITE_OK);
  EXPECT_EQ(file->pMethods->xUnlock(file, SQLITE_LOCK_NONE), SQLITE_OK);
  EXPECT_EQ(file->pMethods->xClose(file), SQLITE_OK);
  EXPECT_EQ(fs::file_size(path_), 0u);

  // A program may tell SQLite to work without locks.
  Db db = open("nolock=1");
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from t"), "1");
}

TEST_F(Files, TheLogIsAsSecretAsTheDatabase) {
  make_plain();
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  Db db = open();
  ASSERT_RUNS(db, "insert into t values(2)");
  EXPECT_EQ(fs::status(path_ + ".memlith").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// With locking_mode=exclusive plain SQLite keeps the lock with which it found that the file is no database.
TEST_F(Files, AnOpeningInWalModeBesideAnExclusiveLockIsBusy) {
  Db db = open();
  ASSERT_RUNS(db, "pragma journal_mode = wal; create table t(a); insert into t values(1)");
  const std::string crashed = copy_as_crashed("crashed.db");
  ASSERT_EQ(db.close(), SQLITE_OK);
  Child other([&](int ready) {
    const Db held(crashed, nullptr);
    if (held.run("pragma locking_mode = exclusive; select * from t") != SQLITE_NOTADB) ::_exit(1);
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(other.wait(), 1);
  EXPECT_EQ(Db(crashed, "memlith").open_code(), SQLITE_BUSY);
  other.kill();
  EXPECT_EQ(Db(crashed, "memlith").all("select * from t"), "1");
}

TEST_F(Files, ARemovedDatabaseCanBeMadeAnewWhileTheOldOneIsOpen) {
  Db old = open();
  ASSERT_RUNS(old, "create table t(a); insert into t values(1);");
  fs::remove(path_);
  Db fresh = open();
  ASSERT_OPEN(fresh);
  ASSERT_RUNS(fresh, "create table u(b); insert into u values(2);");
  EXPECT_EQ(old.all("select * from t"), "1");
  EXPECT_EQ(old.run("insert into t values(3)"), SQLITE_READONLY_DBMOVED);
  (void)old.close();
  EXPECT_EQ(fresh.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from u"), "2");
}

// The connections of a removed database do not take the journal of the next one of its name away.
TEST_F(Files, ARemovedDatabaseLeavesTheJournalOfTheNextOneAlone) {
  for (const std::string mode : {"delete", "truncate", "persist"}) {
    Db old = open();
    ASSERT_RUNS(old, "create table t(a); insert into t values(1);");
    fs::remove(path_);
    Db fresh = open();
    ASSERT_RUNS(fresh, "pragma journal_mode = " + mode + "; create table u(b); begin; insert into u values(2);");
    (void)old.close();
    ASSERT_RUNS(fresh, "commit");
    EXPECT_EQ(fresh.all("select * from u"), "2");
    ASSERT_RUNS(fresh, "begin; insert into u values(3); rollback");
    EXPECT_EQ(fresh.close(), SQLITE_OK);
    EXPECT_EQ(plain().all("select * from u"), "2");
    fs::remove(path_);
  }
}

// Nor, in the middle of a transaction, what makes a commit over several databases atomic.
TEST_F(Files, ACommitOverSeveralHasItsJournalWhateverBecomesOfItsName) {
  Db old = open();
  ASSERT_RUNS(old, "create table t(a); begin; insert into t values(1);");
  fs::remove(path_);
  Db fresh = open();
  ASSERT_RUNS(fresh, "attach 'file:" + (folder_ / "two.db") + "?vfs=memlith' as two");
  ASSERT_RUNS(fresh, "create table main.u(b); create table two.v(b); pragma main.journal_mode = truncate");
  ASSERT_RUNS(fresh, "begin; insert into u values(2); insert into v values(2)");
  (void)old.run("rollback");
  const int watch = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(watch, folder_.path().c_str(), IN_CREATE), 0);
  ASSERT_RUNS(fresh, "commit");
  std::string events(65536, '\0');
  events.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(watch, events.data(), events.size()), 0)));
  ::close(watch);
  EXPECT_NE(events.find("app.db.memlith-journal"), std::string::npos);
  EXPECT_NE(events.find("two.db.memlith-journal"), std::string::npos);
  EXPECT_EQ(fresh.all("select u.b, v.b from u, v"), "2|2");
}

TEST_F(Files, ARemovedDatabaseCanBeMadeAnewWhenTheOldOneIsClosed) {
  Db old = open();
  ASSERT_RUNS(old, "create table t(a); insert into t values(1);");
  fs::remove(path_);
  EXPECT_EQ(old.close(), SQLITE_OK);
  EXPECT_FALSE(fs::exists(path_ + ".memlith"));
  Db fresh = open();
  ASSERT_OPEN(fresh);
  ASSERT_RUNS(fresh, "create table u(b); insert into u values(2);");
  EXPECT_EQ(fresh.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from u"), "2");

  // A renamed file, or a file with another name, is not removed: the log belongs to the file, also when the old name is
  // opened.
  Db moved = open();
  ASSERT_RUNS(moved, "insert into u values(3);");
  fs::rename(path_, path_ + ".new");
  EXPECT_EQ(open().open_code(), SQLITE_CORRUPT);
  EXPECT_TRUE(sqlite_log.told("if it was renamed, rename its log in the same way")) << sqlite_log.last();
  EXPECT_FALSE(fs::exists(path_));
  (void)moved.close();
  ASSERT_TRUE(fs::exists(path_ + ".memlith"));
  fs::rename(path_ + ".memlith", path_ + ".new.memlith");
  EXPECT_EQ(Db(path_ + ".new", "memlith").all("select b from u order by b"), "2\n3");
}

TEST_F(Files, AHugeTransactionDoesNotLeaveAHugeLog) {
  {
    Db db = open("log_mib=1");
    ASSERT_RUNS(db, "create table t(a); insert into t values(zeroblob(6000000));");
    EXPECT_GT(fs::file_size(path_ + ".memlith"), 5000000u);
  }
  EXPECT_EQ(fs::file_size(path_ + ".memlith"), kSmallLogBytes) << "as it was made";
  EXPECT_EQ(plain().all("select length(a) from t"), "6000000");
}

// docs/how-to/sizing.md, "What lies on the disk": a log of 1 MiB beside an open database, and nothing beside one that
// was closed cleanly, nor beside what a backup or VACUUM INTO has made.
TEST_F(Files, NoLogIsLeftBesideADatabaseThatWasClosed) {
  {
    Db db = open();
    EXPECT_EQ(fs::file_size(path_ + ".memlith"), kSmallLogBytes);
    ASSERT_RUNS(db, "create table t(a); insert into t values(zeroblob(100000));");
    EXPECT_EQ(fs::file_size(path_ + ".memlith"), kSmallLogBytes);
    ASSERT_RUNS(db, "vacuum into 'file:" + (folder_ / "into.db") + "?vfs=memlith'");
    Db target(folder_ / "backup.db", "memlith");
    sqlite3_backup* const backup = sqlite3_backup_init(target.get(), "main", db.get(), "main");
    ASSERT_NE(backup, nullptr);
    EXPECT_EQ(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    EXPECT_EQ(sqlite3_backup_finish(backup), SQLITE_OK);
    EXPECT_EQ(fs::file_size(copy_as_crashed("crashed.db") + ".memlith"), kSmallLogBytes);
  }
  EXPECT_EQ(Db(folder_ / "crashed.db", "memlith").all("select length(a) from t"), "100000");
  for (const char* const name : {"app.db", "into.db", "backup.db", "crashed.db"}) {
    EXPECT_FALSE(fs::exists((folder_ / name) + ".memlith")) << name;
    EXPECT_FALSE(fs::exists((folder_ / name) + ".memlith-stats")) << name;
    EXPECT_EQ(Db(folder_ / name, nullptr).all("select length(a) from t"), "100000") << name;
  }
}

TEST_F(Files, ALogThatIsTooSmallMakesPlaceForALargerOne) {
  {
    ASSERT_RUNS(open("log_mib=1"), "create table t(a); insert into t values(1);");
  }
  const auto small = fs::file_size(path_ + ".memlith");
  {
    ASSERT_RUNS(open("log_mib=2"), "insert into t values(2);");
  }
  EXPECT_EQ(fs::file_size(path_ + ".memlith"), small);
  {
    ASSERT_RUNS(open("log_mib=8"), "insert into t values(3);");
  }
  EXPECT_FALSE(fs::exists(path_ + ".memlith"));
  {
    ASSERT_RUNS(open("log_mib=8"), "insert into t values(4);");
  }
  EXPECT_GT(fs::file_size(path_ + ".memlith"), 7 * small);
  EXPECT_EQ(plain().all("select sum(a) from t"), "10");
}

}  // namespace
}  // namespace memlith::test
