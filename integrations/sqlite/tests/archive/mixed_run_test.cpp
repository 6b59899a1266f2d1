// docs/backup.md, "Archive" and "Restore": a program commits to a SQLite database and to a store that holds a kv store,
// a heap and an application log, and archives both. Restored to moments of this run, both are found as they were
// recorded then, and the database is an ordinary one. The archive of a database that is closed and opened, also by
// plain SQLite, goes on; a database in mode shared is refused.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memlith/archive.h"
#include "memlith/copy.hpp"
#include "memlith/files.h"
#include "support/mixed_store.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

std::uint64_t seed() {
  const char* const given = std::getenv("MEMLITH_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

std::string last_error() {
  char text[1024] = "";
  (void)memlith_last_error(text, sizeof text);
  return text;
}

using Rows = std::map<std::int64_t, std::string>;

struct SqliteCloser {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using Database = std::unique_ptr<sqlite3, SqliteCloser>;

void run(const Database& db, const std::string& sql) {
  char* why = nullptr;
  EXPECT_EQ(sqlite3_exec(db.get(), sql.c_str(), nullptr, nullptr, &why), SQLITE_OK) << sql << ": " << why;
  sqlite3_free(why);
}

void load_plugin() {
  sqlite3* memory = nullptr;
  ASSERT_EQ(sqlite3_open(":memory:", &memory), SQLITE_OK);
  const Database closed(memory);
  ASSERT_EQ(sqlite3_enable_load_extension(memory, 1), SQLITE_OK);
  char* why = nullptr;
  ASSERT_EQ(sqlite3_load_extension(memory, MEMLITH_SQLITE_PLUGIN, nullptr, &why), SQLITE_OK) << why;
}

Database open_database(const std::string& path, const char* vfs) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs), SQLITE_OK) << path;
  return Database(db);
}

Rows rows_of(const std::string& path) {
  const Database db = open_database(path, "unix");
  Rows rows;
  const auto note = [](void* all, int, char** values, char**) {
    (*static_cast<Rows*>(all))[std::strtoll(values[0], nullptr, 10)] = values[1];
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db.get(), "select k, v from t", note, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(db.get());
  std::string verdict;
  const auto judge = [](void* text, int, char** values, char**) {
    *static_cast<std::string*>(text) += values[0];
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db.get(), "pragma integrity_check", judge, &verdict, nullptr), SQLITE_OK);
  EXPECT_EQ(verdict, "ok");
  return rows;
}

// One transaction.
void change_rows(const Database& db, Rows& rows, std::mt19937_64& random) {
  run(db, "begin");
  for (std::uint64_t i = 0; i <= random() % 3; ++i) {
    const auto key = static_cast<std::int64_t>(random() % 90);
    if (random() % 4 == 0) {
      run(db, "delete from t where k=" + std::to_string(key));
      rows.erase(key);
      continue;
    }
    const std::string value(1 + random() % 400, static_cast<char>('a' + random() % 26));
    run(db, "insert or replace into t values(" + std::to_string(key) + ",'" + value + "')");
    rows[key] = value;
  }
  run(db, "commit");
}

// Behind the newest commit, as a process that follows the database sees it.
std::uint64_t lsn_of(const std::string& path) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_FOLLOW;
  memlith_store* store = nullptr;
  EXPECT_EQ(memlith_file_open(path.c_str(), &options, &store), MEMLITH_OK) << last_error();
  const std::uint64_t lsn = memlith_store_durable(store);
  EXPECT_EQ(memlith_store_close(store), MEMLITH_OK);
  return lsn;
}

struct Moment {
  std::uint64_t store_lsn = 0;
  std::uint64_t database_lsn = 0;
  MixedContent content;
  Rows rows;
};

// An archive of one of the two.
class ArchiveOf {
 public:
  ArchiveOf(const std::string& store, std::string target) : place_(std::move(target)) {
    target_.struct_size = sizeof target_;
    target_.folder = place_.c_str();
    memlith_archive_options options{};
    options.struct_size = sizeof options;
    options.wait_ms = 1;
    EXPECT_EQ(memlith_archive_open(store.c_str(), &target_, &options, &archive_), MEMLITH_OK) << last_error();
  }
  void step(std::mt19937_64& random) const {
    EXPECT_EQ(memlith_archive_step(archive_, nullptr), MEMLITH_OK) << last_error();
    if (random() % 30 != 0) return;
    EXPECT_EQ(memlith_archive_copy(archive_), MEMLITH_OK) << last_error();
  }
  // Archives what was durable when the call began.
  void flush() const { EXPECT_EQ(memlith_archive_flush(archive_, nullptr), MEMLITH_OK) << last_error(); }
  void close() const { EXPECT_EQ(memlith_archive_close(archive_), MEMLITH_OK) << last_error(); }
  // 0: the newest state.
  void restore(const std::string& dest, std::uint64_t lsn) const {
    memlith_restore_options options{};
    options.struct_size = sizeof options;
    options.at = lsn == 0 ? MEMLITH_AT_LATEST : MEMLITH_AT_LSN;
    options.value = lsn;
    ASSERT_EQ(memlith_restore(&target_, dest.c_str(), &options, nullptr), MEMLITH_OK) << last_error();
  }

 private:
  const std::string place_;
  memlith_archive_target target_{};
  memlith_archive* archive_ = nullptr;
};

TEST(ArchiveOfAMixedRun, RestoresFiftyRandomMoments) {
  const std::uint64_t start = seed();
  SCOPED_TRACE("MEMLITH_SEED=" + std::to_string(start));
  std::mt19937_64 random(start);
  const TempFolder folder;
  const std::string path = folder / "store";
  const std::string app = folder / "app.db";
  load_plugin();
  constexpr std::size_t kSteps = 500;
  std::set<std::size_t> chosen{kSteps - 1};
  while (chosen.size() < 50) chosen.insert(random() % kSteps);
  std::vector<Moment> moments;
  std::unique_ptr<ArchiveOf> store_archive;
  std::unique_ptr<ArchiveOf> app_archive;
  {
    auto opened = MixedStore::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    Database db = open_database(app, "memlith");
    run(db, "create table t(k integer primary key, v)");
    store_archive = std::make_unique<ArchiveOf>(path, folder / "store-archive");
    app_archive = std::make_unique<ArchiveOf>(app, folder / "app-archive");
    Moment now;
    for (std::size_t i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
      if (random() % 2 == 0) {
        commit_something(*opened, now.content, random);
      } else {
        change_rows(db, now.rows, random);
      }
      if (random() % 8 == 0) store_archive->step(random);
      if (random() % 8 == 0) app_archive->step(random);
      if (random() % 50 == 0) ASSERT_DONE(opened->store.checkpoint());
      if (!chosen.contains(i)) continue;
      now.store_lsn = opened->store.durable();
      now.database_lsn = lsn_of(app);
      moments.push_back(now);
    }
    // While the writers are there: the last connection removes the log of a database that is complete.
    store_archive->close();
    app_archive->close();
  }
  for (std::size_t i = 0; i < moments.size() && !::testing::Test::HasFailure(); ++i) {
    const Moment& wanted = moments[i];
    SCOPED_TRACE("moment " + std::to_string(i) + ", LSN " + std::to_string(wanted.store_lsn) + " and " +
                 std::to_string(wanted.database_lsn));
    const std::string store = folder / ("store" + std::to_string(i));
    const std::string database = folder / (std::to_string(i) + ".db");
    store_archive->restore(store, wanted.store_lsn);
    app_archive->restore(database, wanted.database_lsn);
    const auto data = check_data(store);
    ASSERT_TRUE(data.ok()) << data.error().message();
    EXPECT_EQ(data->blocks_damaged, 0u);
    EXPECT_EQ(data->blocks_unknown, 0u);
    MixedContent found;
    read_content(store, found);
    EXPECT_TRUE(found == wanted.content) << found.records.size() << " records, " << found.numbers.size() << " numbers, "
                                         << found.entries.size() << " entries; recorded were "
                                         << wanted.content.records.size() << ", " << wanted.content.numbers.size()
                                         << ", " << wanted.content.entries.size();
    EXPECT_FALSE(std::filesystem::exists(database + ".memlith"));
    EXPECT_TRUE(rows_of(database) == wanted.rows) << "of the database";
    std::filesystem::remove_all(store);
    std::filesystem::remove(database);
  }
}

// The log of a database comes and goes with the program that has it open; its archive goes on.
TEST(ArchiveOfADatabase, GoesOnWhileItIsClosedAndOpened) {
  ::unsetenv("MEMLITH_SQLITE_LOG_MIB");  // a log of a size that the user names stays
  const TempFolder folder;
  const std::string app = folder / "app.db";
  const std::string log = app + ".memlith";
  load_plugin();
  std::mt19937_64 random(1);
  Rows rows;
  const auto insert = [&rows](const Database& db) {
    const auto key = static_cast<std::int64_t>(rows.size());
    run(db, "insert into t values(" + std::to_string(key) + ",'v')");
    rows[key] = "v";
  };
  int restored = 0;
  const auto expect_rows = [&](const ArchiveOf& archive) {
    SCOPED_TRACE("restore " + std::to_string(restored));
    const std::string dest = folder / ("restored" + std::to_string(restored++) + ".db");
    archive.restore(dest, 0);
    EXPECT_TRUE(rows_of(dest) == rows) << rows_of(dest).size() << " of " << rows.size() << " rows";
  };
  Database db = open_database(app, "memlith");
  run(db, "create table t(k integer primary key, v)");
  const auto archive = std::make_unique<ArchiveOf>(app, folder / "target");
  for (int round = 0; round < 3; ++round) {
    insert(db);
    db = nullptr;  // at once
    archive->flush();
    expect_rows(*archive);
    EXPECT_TRUE(std::filesystem::exists(log)) << "the archiver lives";
    db = open_database(app, "memlith");
    archive->step(random);
  }
  // Plain SQLite writes to the closed database.
  db = nullptr;
  archive->step(random);
  db = open_database(app, "unix");
  insert(db);
  run(db, "create index by_v on t(v)");
  db = nullptr;
  db = open_database(app, "memlith");
  insert(db);
  archive->flush();
  expect_rows(*archive);
  // The archiver ends first, and begins while no program has the database open.
  archive->close();
  insert(db);
  db = nullptr;
  EXPECT_FALSE(std::filesystem::exists(log));
  const ArchiveOf again(app, folder / "target");
  again.step(random);
  db = open_database(app, "memlith");
  insert(db);
  db = nullptr;
  again.flush();
  expect_rows(again);
  again.close();
  // A database that was restored from the archive, under another name.
  const std::string other = folder / "other.db";
  again.restore(other, 0);
  db = open_database(other, "memlith");
  insert(db);
  const ArchiveOf of_restored(other, folder / "target");
  of_restored.close();
  expect_rows(of_restored);
}

TEST(ArchiveOfADatabase, InModeSharedIsRefused) {
  const TempFolder folder;
  const std::string app = folder / "app.db";
  const std::string target_path = folder / "target";
  load_plugin();
  sqlite3* opened = nullptr;
  const std::string uri = "file:" + app + "?share=1";
  ASSERT_EQ(sqlite3_open_v2(uri.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                            "memlith"),
            SQLITE_OK);
  const Database db(opened);
  run(db, "pragma journal_mode = wal");
  run(db, "create table t(k integer primary key, v)");
  ASSERT_TRUE(std::filesystem::exists(app + "-memlith"));
  memlith_archive_target target{};
  target.struct_size = sizeof target;
  target.folder = target_path.c_str();
  memlith_archive* archive = nullptr;
  EXPECT_EQ(memlith_category(memlith_archive_open(app.c_str(), &target, nullptr, &archive)), MEMLITH_UNSUPPORTED);
  EXPECT_NE(last_error().find("mode shared"), std::string::npos) << last_error();
}

}  // namespace
}  // namespace memlith::test
