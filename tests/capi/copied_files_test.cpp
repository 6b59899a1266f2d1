// docs/backup.md, "Copies by other means": the files of a folder store that were copied one by one while it was not
// closed are refused until `memlith recover --accept-copy`; those of a closed store are a store.
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <filesystem>
#include <set>
#include <string>

#include "memlith/copy.hpp"
#include "memlith/memlith.hpp"
#include "support/numbered_pages.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::copied_files_test {
namespace {

namespace fs = std::filesystem;

std::string last_error() {
  char text[1024] = "";
  (void)memlith_last_error(text, sizeof text);
  return text;
}

std::int32_t open_with(const std::string& path, std::uint32_t flags) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = flags;
  memlith_store* store = nullptr;
  const std::int32_t code = memlith_store_open(path.c_str(), &options, &store);
  if (code == MEMLITH_OK) {
    EXPECT_EQ(memlith_store_close(store), MEMLITH_OK) << last_error();
  }
  return memlith_category(code);
}

bool tells_files_from_copies(const std::string& folder) {
  struct statfs system{};
  const std::set<std::uint32_t> known{EXT4_SUPER_MAGIC, 0x58465342, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, 0x794c7630};
  return ::statfs(folder.c_str(), &system) == 0 && known.contains(static_cast<std::uint32_t>(system.f_type));
}

class CopiedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tells_files_from_copies(folder_.path())) {
      GTEST_SKIP() << "skip: this file system keeps neither birth times nor numbers of files";
    }
    writer_.start();
  }
  void copy_files(const std::string& to) const { fs::copy(path_, to, fs::copy_options::recursive); }
  void expect_refused(const std::string& path) const {
    const std::string log = read_file(path + "/log");
    for (const std::uint32_t flags :
         {0, int{MEMLITH_OPEN_READ_ONLY}, int{MEMLITH_OPEN_FOLLOW}, int{MEMLITH_OPEN_CREATE}}) {
      EXPECT_EQ(open_with(path, flags), MEMLITH_CORRUPT) << flags << ": " << last_error();
      EXPECT_NE(last_error().find("memlith recover --accept-copy " + path), std::string::npos) << last_error();
    }
    const auto copied = copy_store(path, folder_ / "copy of the copy");
    ASSERT_FALSE(copied.ok());
    EXPECT_EQ(copied.error().category(), MEMLITH_CORRUPT) << copied.error().message();
    EXPECT_TRUE(read_file(path + "/log") == log) << "it was changed";
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "store";
  const std::string copy_ = folder_ / "copy";
  PersistingProcess writer_{path_, false};
};

TEST_F(CopiedFiles, OfAStoreInUseAreRefused) {
  copy_files(copy_);
  expect_refused(copy_);
  writer_.kill();
  expect_refused(copy_);
  check_copy(path_, false);  // the original is as the crash left it
}

TEST_F(CopiedFiles, OfACrashedStoreAreTakenOnRequest) {
  const std::uint64_t least = writer_.acknowledged();
  writer_.kill();
  copy_files(copy_);
  expect_refused(copy_);
  EXPECT_EQ(open_with(copy_, MEMLITH_OPEN_ACCEPT_COPY | MEMLITH_OPEN_READ_ONLY), MEMLITH_OK) << last_error();
  expect_refused(copy_);
  EXPECT_EQ(open_with(copy_, MEMLITH_OPEN_ACCEPT_COPY), MEMLITH_OK) << last_error();
  EXPECT_GE(check_copy(copy_, false), least);
}

// What was accepted once is a store as any other, also after a crash.
TEST_F(CopiedFiles, ThatWereAcceptedAreAStoreOfTheirOwn) {
  writer_.kill();
  copy_files(copy_);
  EXPECT_EQ(open_with(copy_, MEMLITH_OPEN_ACCEPT_COPY), MEMLITH_OK) << last_error();
  PersistingProcess writer(copy_, false);
  writer.start();
  writer.kill();
  EXPECT_GE(check_copy(copy_, false), writer.acknowledged());
}

TEST_F(CopiedFiles, OfAClosedStoreAreAStoreAndSurviveACrashThen) {
  writer_.kill();
  EXPECT_EQ(open_with(path_, 0), MEMLITH_OK) << last_error();  // recovers and closes it
  copy_files(copy_);
  check_copy(copy_, false);
  PersistingProcess writer(copy_, false);
  writer.start();
  writer.kill();
  EXPECT_GE(check_copy(copy_, false), writer.acknowledged());
}

TEST_F(CopiedFiles, ACrashedStoreMayBeRenamedAndMoved) {
  const std::uint64_t least = writer_.acknowledged();
  writer_.kill();
  fs::create_directory(std::string(folder_ / "elsewhere"));
  fs::rename(path_, folder_ / "elsewhere/store");
  EXPECT_GE(check_copy(folder_ / "elsewhere/store", false), least);
}

TEST_F(CopiedFiles, ACopyByMemlithOfACrashedStoreIsAStore) {
  const std::uint64_t least = writer_.acknowledged();
  writer_.kill();
  ASSERT_TRUE(copy_store(path_, copy_).ok());
  EXPECT_GE(check_copy(copy_, false), least);
}

}  // namespace
}  // namespace memlith::test::copied_files_test
