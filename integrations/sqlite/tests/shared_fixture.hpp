// Connections in mode shared over a medium that loses what was not flushed, and two accounts to move amounts between.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "medium.hpp"
#include "mutants/mutants.hpp"
#include "shm/words.hpp"
#include "sqlite/src/shared/sidecar.hpp"
#include "words.hpp"

namespace memlith::test {

// Called before each use of a word of the control block.
inline std::function<void()>& at_step() {
  static auto* const hook = new std::function<void()>;
  return *hook;
}

// A process of its own, as far as the others can tell.
inline std::unique_ptr<sqlite::shared::Sidecar> attach(const std::string& path) {
  auto made = sqlite::shared::Sidecar::attach(path);
  EXPECT_TRUE(made.ok()) << core::last_error_text();
  return std::move(*made);
}

// Waits for the work of a thread of the plugin as long as the test may take.
template <class Test>
bool comes(Test test) {
  for (int i = 0; i < 20000 && !test(); ++i) ::usleep(1000);
  return test();
}

class SharedPage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Medium::get().install();
    (void)registered_vfs();
  }
  void SetUp() override {
    Medium::get().clear();
    core::active_mutant = core::Mutant::none;
    core::shm::observer = [] {
      const core::shm::Unseen itself(true);
      if (at_step()) at_step()();
    };
  }
  void TearDown() override {
    at_step() = nullptr;
    core::shm::observer = nullptr;
    Medium::get().clear();
    core::active_mutant = core::Mutant::none;
  }

  [[nodiscard]] Db open(const std::string& parameters = "", const char* synchronous = "full") const {
    Db db("file:" + path_ + "?share=1" + (parameters.empty() ? "" : "&" + parameters), "memlith");
    EXPECT_OPEN(db);
    sqlite3_busy_timeout(db.get(), 20000);
    EXPECT_RUNS(db, std::string("pragma synchronous=") + synchronous + "; pragma wal_autocheckpoint=0");
    return db;
  }
  // Two accounts on pages of their own, whose sum is 0, and a counter.
  [[nodiscard]] Db make() const {
    Db db = open();
    EXPECT_RUNS(db,
                "pragma page_size=1024; pragma journal_mode=wal;"
                "create table a(v int, pad); create table b(v int, pad); create table n(v int);"
                "insert into a values(0, zeroblob(900)); insert into b values(0, zeroblob(900));"
                "insert into n values(0); pragma wal_checkpoint(truncate)");
    return db;
  }
  // The index of its write-ahead log.
  static volatile unsigned char* index_of(const Db& db) {
    sqlite3_file* file = nullptr;
    volatile void* index = nullptr;
    EXPECT_EQ(sqlite3_file_control(db.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file), SQLITE_OK);
    EXPECT_EQ(file->pMethods->xShmMap(file, 0, 32768, 0, &index), SQLITE_OK);
    return static_cast<volatile unsigned char*>(index);
  }
  static std::string transfer(int to) {
    return "begin immediate; update a set v = v - 1; update b set v = v + 1; update n set v = " + std::to_string(to) +
           "; commit";
  }
  // The counter after a power cut; -1: the database is damaged.
  int after_cut(bool database_is_newest = false) {
    const std::string copy = folder_ / "cut.db";
    Medium::get().cut(path_, copy, database_is_newest);
    const Db db(copy, "unix");
    if (integrity(db) != "ok" || db.all("select (select v from a) + (select v from b)") != "0") return -1;
    return std::stoi(db.all("select v from n"));
  }

  TempFolder folder_;
  std::string path_ = folder_ / "app.db";
};

}  // namespace memlith::test
