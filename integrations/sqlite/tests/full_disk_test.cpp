// Databases in mode shared on a disk that has next to no space left: memlith works where plain SQLite does, and no
// store to a mapped file ends the process.
#include <string>

#include "files_fixture.hpp"
#include "support/full_disk.hpp"

namespace memlith::test {
namespace {

constexpr int kStepKib = 4;
constexpr int kSpareKibMax = 128;

class FullDisk : public Files {
 protected:
  // The findings of a new process that opens the database where `spare_kib` are left. "skip: ..." without a disk.
  std::string with_left(int spare_kib, const char* vfs) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::string found = own_tmpfs(folder_ / "", "size=2m");
      if (found.empty()) found = look(spare_kib, vfs);
      ::_exit(::write(ends[1], found.data(), found.size()) == static_cast<ssize_t>(found.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string found(1024, 0);
    found.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], found.data(), found.size()), 0)));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    return found;
  }

 private:
  std::string look(int spare_kib, const char* vfs) const {
    make_plain("pragma journal_mode = wal");
    {
      const std::string spare(static_cast<std::size_t>(spare_kib) * 1024, 's');
      write_file(folder_ / "spare", spare);
      const Filler filler(folder_ / "");
      ::unlink((folder_ / "spare").c_str());
      const Db db("file:" + path_ + "?share=1", vfs);
      const std::string rows = db.open_code() == SQLITE_OK ? db.all("select * from t") : db.message();
      const int inserted = db.run("insert into t values(2)");
      return rows + (inserted == SQLITE_OK ? ", inserts" : "") +
             (db.all("pragma memlith_stats").find("control_block=none") != std::string::npos ? ", no page" : "");
    }
  }
};

TEST_F(FullDisk, ModeSharedOpensWherePlainSqliteDoes) {
  int without_page = 0;
  for (int spare_kib = 0; spare_kib <= kSpareKibMax; spare_kib += kStepKib) {
    const std::string plain = with_left(spare_kib, "unix");
    if (plain.starts_with("skip")) GTEST_SKIP() << plain;
    std::string shared = with_left(spare_kib, "memlith");
    const std::size_t note = shared.find(", no page");
    if (note != std::string::npos) {
      shared.resize(note);
      ++without_page;
    }
    EXPECT_EQ(shared, plain) << spare_kib << " KiB left";
  }
  EXPECT_GT(without_page, 0);
  EXPECT_LT(without_page, kSpareKibMax / kStepKib);
}

}  // namespace
}  // namespace memlith::test
