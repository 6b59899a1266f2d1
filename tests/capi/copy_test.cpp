// memlith/copy.h: copies of a store that another process writes to; killed copies and killed writers; what a copy
// refuses. And files that were copied one by one. docs/backup.md.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "memlith/copy.hpp"
#include "memlith/files.h"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "support/numbered_pages.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::copy_test {
namespace {

std::int32_t category(const Error& error) { return memlith_category(error.code()); }

void remove_copy(const std::string& path) {
  std::filesystem::remove_all(path);
  std::filesystem::remove_all(path + ".memlith");
}

// One record, durable.
void put(const Kv& kv, const std::string& value) {
  auto map = kv.map("map", {.create = true});
  ASSERT_TRUE(map.ok()) << map.error().message();
  const auto done = kv.transact([&](KvTransaction& txn) { return txn.put(*map, "key", value); }, Durability::sync);
  ASSERT_TRUE(done.ok()) << done.error().message();
}

std::string record_of(const Kv& kv) {
  auto map = kv.map("map");
  auto reader = kv.begin({.read_only = true});
  if (!map.ok() || !reader.ok()) return "none";
  const auto value = reader->get(*map, "key");
  return value.ok() ? std::string(*value) : value.error().message();
}

class CopyOf : public ::testing::TestWithParam<bool> {
 protected:
  TempFolder folder_;
  const bool one_file_ = GetParam();
  const std::string path_ = folder_ / "store";
  const std::string target_ = folder_ / "copy";
};
INSTANTIATE_TEST_SUITE_P(A, CopyOf, ::testing::Values(false, true),
                         [](const auto& given) { return given.param ? "File" : "Folder"; });

// MEMLITH_KILLS: how many copies are killed; every fourth time the writer is.
TEST_P(CopyOf, AStoreInUseWhileCopiesAndWritersAreKilled) {
  const char* const told = std::getenv("MEMLITH_KILLS");
  const int kills = told != nullptr ? std::atoi(told) : 12;
  std::mt19937_64 random(std::random_device{}());
  PersistingProcess writer(path_, one_file_);
  std::uint64_t lsn = 0;
  std::uint64_t copied = 0;
  for (int round = 0; round < kills && !HasFailure(); ++round) {
    if (round % 4 == 3) writer.kill();
    writer.start();
    KilledProcess copier;
    copier.start([this] { (void)copy_store(path_, target_); });
    ::usleep(static_cast<useconds_t>(random() % 60000));
    copier.kill();
    if (std::filesystem::exists(target_)) {
      check_copy(target_, one_file_);
      remove_copy(target_);
    }
    const std::uint64_t least = writer.acknowledged();
    if (round % 8 == 7) writer.kill();  // it is gone while the store is copied
    const auto made = copy_store(path_, target_);
    ASSERT_TRUE(made.ok()) << made.error().message();
    const std::uint64_t count = check_copy(target_, one_file_);
    EXPECT_GE(count, least) << "the copy lacks what was acknowledged";
    EXPECT_GE(count, copied);
    EXPECT_GE(made->ticket, lsn);
    copied = count;
    lsn = made->ticket;
    remove_copy(target_);
    for (const auto& entry : std::filesystem::directory_iterator(std::string(folder_ / ""))) {
      EXPECT_EQ(entry.path().filename().string().find("memlith-copy"), std::string::npos) << entry.path();
    }
  }
}

TEST_P(CopyOf, AClosedStoreIsAStoreOfItsOwn) {
  {
    StoreOptions options;
    options.create = true;
    auto store = open_at(path_, one_file_, options);
    ASSERT_TRUE(store.ok()) << store.error().message();
    auto kv = Kv::open(*store, one_file_ ? "file" : "kv", {.create = true});
    ASSERT_TRUE(kv.ok()) << kv.error().message();
    put(*kv, "value");
  }
  std::uint64_t done = 0;
  const auto copied = copy_store(path_, target_, [&done](std::uint64_t bytes, std::uint64_t total) {
    EXPECT_LE(bytes, total);
    done = bytes;
  });
  ASSERT_TRUE(copied.ok()) << copied.error().message();
  EXPECT_GT(copied->bytes, 0u);
  EXPECT_GT(done, 0u);
  memlith_report report{};
  report.struct_size = sizeof report;
  ASSERT_EQ(memlith_verify(target_.c_str(), &report), MEMLITH_OK);
  EXPECT_EQ(report.kvs, 1u);
  EXPECT_EQ(report.clean, 1u);
  // Both can be written, and neither knows of the other.
  for (const std::string& each : {path_, target_}) {
    auto store = open_at(each, one_file_, {});
    ASSERT_TRUE(store.ok()) << store.error().message();
    auto kv = Kv::open(*store, one_file_ ? "file" : "kv", {});
    ASSERT_TRUE(kv.ok()) << kv.error().message();
    EXPECT_EQ(record_of(*kv), "value");
    put(*kv, "another");
  }
}

TEST_P(CopyOf, RefusesWhatIsThere) {
  StoreOptions options;
  options.create = true;
  {
    ASSERT_TRUE(open_at(path_, one_file_, options).ok());
  }
  const auto refused = [this](const std::string& target, std::int32_t wanted) {
    const auto copied = copy_store(path_, target);
    EXPECT_FALSE(copied.ok()) << target;
    if (!copied.ok()) {
      EXPECT_EQ(category(copied.error()), wanted) << copied.error().message();
    }
  };
  std::ofstream(folder_ / "there") << "something";
  std::filesystem::create_directory(std::string(folder_ / "empty"));
  refused(folder_ / "there", MEMLITH_EXISTS);
  refused(folder_ / "empty", MEMLITH_EXISTS);
  refused(path_, MEMLITH_EXISTS);
  refused(folder_ / "nowhere/copy", MEMLITH_NOT_FOUND);
  refused("", MEMLITH_INVALID);
  if (!one_file_) refused(path_ + "/copy", MEMLITH_INVALID);
  const auto nothing = copy_store(folder_ / "nothing", target_);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(category(nothing.error()), MEMLITH_NOT_FOUND) << nothing.error().message();
  // A file that no copy left is not removed.
  if (one_file_) return;
  std::filesystem::create_directory(target_ + ".memlith-copy");
  std::ofstream(target_ + ".memlith-copy/letter") << "dear";
  refused(target_, MEMLITH_EXISTS);
  EXPECT_TRUE(std::filesystem::exists(target_ + ".memlith-copy/letter"));
}

TEST_P(CopyOf, KeepsThePermissions) {
  StoreOptions options;
  options.create = true;
  {
    ASSERT_TRUE(open_at(path_, one_file_, options).ok());
  }
  ASSERT_EQ(::chmod(path_.c_str(), one_file_ ? 0600 : 0700), 0);
  ASSERT_TRUE(copy_store(path_, target_).ok());
  struct stat info{};
  ASSERT_EQ(::stat(target_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, one_file_ ? 0600u : 0700u);
  if (!one_file_) return;
  ASSERT_EQ(::stat((target_ + ".memlith").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// While it is in use the file begins with the guard's mark. The copy has the file's own bytes.
TEST(Copy, AGuardedFileInUse) {
  const TempFolder folder;
  const std::string path = folder / "letters";
  std::ofstream(path) << std::string(8192, 'a');
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  void* const mapped = memlith_mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MEMLITH_IMAGE_GUARD, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED && errno == EOPNOTSUPP) GTEST_SKIP() << "skip: failure-atomic files need Linux 6.7";
  ASSERT_NE(mapped, MAP_FAILED);
  for (const char letter : {'b', 'c'}) {
    std::memset(mapped, letter, 5000);
    ASSERT_EQ(memlith_msync(mapped, 8192, MS_SYNC), 0);
    std::memset(static_cast<char*>(mapped) + 4096, 'x', 4096);  // is not committed
    ASSERT_EQ(memlith_msync(mapped, 8192, MS_INVALIDATE), 0);
    ASSERT_NE(read_file(path), std::string(5000, letter) + std::string(3192, 'a'));
    const std::string copy = folder / std::string(1, letter);
    const auto made = copy_store(path, copy);
    ASSERT_TRUE(made.ok()) << made.error().message();
    EXPECT_EQ(read_file(copy), std::string(5000, letter) + std::string(3192, 'a'));
  }
  ASSERT_EQ(memlith_munmap(mapped, 8192), 0);
}

// Frames padded to lines must not be written on a disk. The copy has a log for the disk that it lies on.
TEST(Copy, AStoreOfLinesBecomesOneForADisk) {
  const TempFolder memory("/dev/shm");
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  options.io = Io::dax;
  auto store = Store::open(memory / "store", options);
  if (!store.ok() && category(store.error()) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << "skip: /dev/shm is no tmpfs";
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto kv = Kv::open(*store, "kv", {.create = true});
  ASSERT_TRUE(kv.ok()) << kv.error().message();
  put(*kv, "value");
  const auto made = copy_store(memory / "store", folder / "copy");
  ASSERT_TRUE(made.ok()) << made.error().message();
  auto copy = Store::open(folder / "copy", {});
  ASSERT_TRUE(copy.ok()) << copy.error().message();
  auto copied = Kv::open(*copy, "kv", {});
  ASSERT_TRUE(copied.ok()) << copied.error().message();
  EXPECT_EQ(record_of(*copied), "value");
  put(*copied, "another");
}

TEST(Copy, AStoreThatThisProcessHasOpen) {
  const TempFolder folder;
  auto store = Store::open(folder / "store", {.create = true});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto kv = Kv::open(*store, "kv", {.create = true});
  ASSERT_TRUE(kv.ok()) << kv.error().message();
  for (int round = 0; round < 3; ++round) {
    const std::string key = std::to_string(round);
    put(*kv, key);
    const std::string target = folder / ("copy" + key);
    const auto made = copy_store(folder / "store", target);
    ASSERT_TRUE(made.ok()) << made.error().message();
    auto copy = Store::open(target, {});
    ASSERT_TRUE(copy.ok()) << copy.error().message();
    auto copied = Kv::open(*copy, "kv", {});
    ASSERT_TRUE(copied.ok()) << copied.error().message();
    EXPECT_EQ(record_of(*copied), key);
  }
}

TEST(Copy, AWrongStructIsToldBeforeTheWork) {
  const TempFolder folder;
  {
    ASSERT_TRUE(Store::open(folder / "store", {.create = true}).ok());
  }
  const std::string target = folder / "copy";
  memlith_copy_report report{};
  EXPECT_EQ(memlith_category(memlith_store_copy((folder / "store").c_str(), target.c_str(), nullptr, &report)),
            MEMLITH_INVALID);
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_EQ(memlith_category(memlith_store_copy(nullptr, target.c_str(), nullptr, nullptr)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_store_copy((folder / "store").c_str(), target.c_str(), nullptr, nullptr), MEMLITH_OK);
}

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
  void copy_files(const std::string& to) const {
    std::filesystem::copy(path_, to, std::filesystem::copy_options::recursive);
  }
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

// A copy that was accepted once is a store as any other, also after a crash.
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
  std::filesystem::create_directory(std::string(folder_ / "elsewhere"));
  std::filesystem::rename(path_, folder_ / "elsewhere/store");
  EXPECT_GE(check_copy(folder_ / "elsewhere/store", false), least);
}

TEST_F(CopiedFiles, ACopyByMemlithOfACrashedStoreIsAStore) {
  const std::uint64_t least = writer_.acknowledged();
  writer_.kill();
  ASSERT_TRUE(copy_store(path_, copy_).ok());
  EXPECT_GE(check_copy(copy_, false), least);
}

}  // namespace
}  // namespace memlith::test::copy_test
