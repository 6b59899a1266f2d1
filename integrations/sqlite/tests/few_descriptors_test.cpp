// docs/sqlite.md, "Errors": a process without descriptors cannot open a database, hears why, and leaves no file behind.
#include "support/few_descriptors.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

TEST(FewDescriptorsSqlite, AnOpeningThatFailsLeavesNoFile) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own checks need descriptors";
  (void)registered_vfs();
  unsigned more = 0;
  for (bool opened = false; !opened; ++more) {
    ASSERT_LT(more, 60u);
    const TempFolder folder;
    const std::string path = folder / "app.db";
    {
      const FewDescriptors few(more);
      const Db db("file:" + path, "memlith");
      const int code = db.open_code() != SQLITE_OK ? db.open_code() : db.run("create table t(a)");
      opened = code == SQLITE_OK;
      if (!opened) {
        EXPECT_EQ(code & 0xff, SQLITE_CANTOPEN) << more << ": " << db.message();
        EXPECT_TRUE(sqlite_log.told("RLIMIT_NOFILE")) << sqlite_log.all();
      }
    }
    if (opened) continue;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "with " << more << " descriptors";
    const Db db("file:" + path, "memlith");
    EXPECT_RUNS(db, "create table t(a); insert into t values(1)");
  }
  EXPECT_GT(more, 4u) << "nothing failed";
}

}  // namespace
}  // namespace memlith::test
