// docs/sqlite.md, journal modes: what a write-ahead log took while a reader kept SQLite from beginning it anew goes
// back to the system.
#include <gtest/gtest.h>

#include <string>

#include "support/process_memory.hpp"
#include "support/temp_folder.hpp"
#include "words.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMLITH_KEEPS_FREED_MEMORY 1
#endif

namespace memlith::test {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

class WalMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(WalMemory, IsGivenBackAfterALongReader) {
#ifdef MEMLITH_KEEPS_FREED_MEMORY
  GTEST_SKIP() << "the sanitizer's heap keeps what is freed";
#endif
  (void)registered_vfs();
  const TempFolder folder;
  const std::string path = "file:" + (folder / "app.db");
  const Db writer(path, "memlith");
  ASSERT_RUNS(writer, "pragma journal_mode = wal; create table t(a integer primary key, v)");
  ASSERT_RUNS(writer, "insert into t values(1, randomblob(2000000))");
  Db reader(path, "memlith");
  ASSERT_RUNS(reader, "begin; select count(*) from t");
  const std::uint64_t before = anonymous_bytes();
  for (int i = 0; i < 40; ++i) ASSERT_RUNS(writer, "update t set v = randomblob(2000000)");
  const std::uint64_t grown = anonymous_bytes();
  ASSERT_GT(grown, before + 60 * kMiB) << "the log did not grow";
  ASSERT_RUNS(reader, "commit");
  ASSERT_RUNS(writer, GetParam());
  ASSERT_RUNS(writer, "insert into t values(2, 'x')");  // begins the log anew
  EXPECT_LT(anonymous_bytes(), before + 25 * kMiB);
  EXPECT_EQ(integrity(writer), "ok");
}
INSTANTIATE_TEST_SUITE_P(After, WalMemory,
                         ::testing::Values("pragma wal_checkpoint(passive)", "pragma wal_checkpoint(truncate)"),
                         [](const auto& each) { return each.index == 0 ? "Passive" : "Truncate"; });

// A journal whose end lies behind the small chunks, and across the borders of chunks of both sizes.
TEST(MemoryFile, KeepsBytesInChunksOfBothSizes) {
  sqlite::MemoryFile file;
  std::string content;
  for (std::uint64_t i = 0; content.size() < 5 * kMiB; ++i) content += std::to_string(i * 7919) + ",";
  constexpr std::uint64_t kStep = 9973;
  for (std::uint64_t at = 0; at < content.size(); at += kStep) {
    file.write(at, content.data() + at, std::min<std::uint64_t>(kStep, content.size() - at));
  }
  const auto read_back = [&] {
    std::string found(file.size(), '?');
    EXPECT_EQ(file.read(0, found.data(), found.size()), found.size());
    return found;
  };
  EXPECT_TRUE(read_back() == content);
  for (const std::uint64_t bytes : {4 * kMiB + 1, 4 * kMiB, 1 * kMiB + 4096, 1 * kMiB, 65536 + 1ul, 65536ul, 100ul}) {
    file.keep_at_most(bytes);
    content.resize(bytes);
    EXPECT_TRUE(read_back() == content) << bytes;
    file.keep_at_most(content.size() + 1);
    EXPECT_EQ(file.size(), bytes);
  }
  file.truncate(3 * kMiB);
  content.resize(3 * kMiB);
  EXPECT_TRUE(read_back() == content) << "zeros behind what was cut";
  EXPECT_NE(file.find(1 * kMiB, 4096), nullptr);
  EXPECT_EQ(file.find(1 * kMiB - 1, 2), nullptr) << "two chunks";
  EXPECT_EQ(file.find(3 * kMiB - 1, 2), nullptr) << "beyond the end";
  file.truncate(0);
  EXPECT_EQ(file.size(), 0u);
}

}  // namespace
}  // namespace memlith::test
