// The orders in which names and flushes reach the disk.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "rocksdb/src/give_back.hpp"
#include "words.hpp"

namespace {
std::mutex mutex;
std::vector<std::string>* events = nullptr;  // guarded by mutex; null: nothing is noted

void note(const std::string& what, const std::string& path) {
  const std::lock_guard lock(mutex);
  if (events != nullptr) events->push_back(what + " " + path);
}
}  // namespace

// The plugin's own calls go through these; not those of librocksdb.so.
extern "C" {
int __real_fsync(int file);
int __wrap_fsync(int file) {
  char path[4096] = {};
  (void)!::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path - 1);
  note("fsync", path);
  return __real_fsync(file);
}
int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  note("rename", to);
  return __real_rename(from, to);
}
int __real_symlink(const char* text, const char* path);
int __wrap_symlink(const char* text, const char* path) {
  note("symlink", path);
  return __real_symlink(text, path);
}
}

namespace memlith_rocksdb::test {

namespace fs = std::filesystem;

class Noting {
 public:
  Noting() {
    const std::lock_guard lock(mutex);
    events = &noted_;
  }
  ~Noting() { end(); }
  void end() {
    const std::lock_guard lock(mutex);
    events = nullptr;
  }
  // Where it was last; -1: never.
  long last(const std::string& event) const {
    const auto found = std::find(noted_.rbegin(), noted_.rend(), event);
    return noted_.rend() - found - 1;
  }

 private:
  std::vector<std::string> noted_;
};

TEST(RocksdbOrders, NamesAreDurableBeforeALogIsWritten) {
  const TempFolder folder;
  const std::string path = fs::canonical(folder.path()).string() + "/db";
  Noting noting;
  const auto db = open(path, with_memlith());
  noting.end();
  const long link = noting.last("symlink " + plain_path(path, kept_logs(path).at(0)));
  EXPECT_GE(link, 0);
  EXPECT_GT(noting.last("fsync " + memlith_folder(path)), link);
  EXPECT_GT(noting.last("fsync " + path), link);
}

TEST(RocksdbOrders, NamesAreDurableBeforeTheStoreGoes) {
  const TempFolder folder;
  run_step("write_100", folder);
  const std::string path = fs::canonical(folder.path()).string() + "/db";
  const std::uint64_t log = kept_logs(path).at(0);
  Noting noting;
  ASSERT_TRUE(give_back(path).ok());
  noting.end();
  const long renamed = noting.last("rename " + plain_path(path, log));
  EXPECT_GE(renamed, 0);
  EXPECT_GT(noting.last("fsync " + path), renamed);
  EXPECT_GT(noting.last("fsync " + memlith_folder(path)), renamed);
}

// A kill amid the removal leaves a part of the store, under another name.
TEST(RocksdbOrders, TheStoreIsPutAwayBeforeItIsRemoved) {
  const TempFolder folder;
  run_step("write_100", folder);
  const std::string path = fs::canonical(folder.path()).string() + "/db";
  Noting noting;
  ASSERT_TRUE(give_back(path).ok());
  noting.end();
  const long away = noting.last("rename " + removed_path(path));
  EXPECT_GE(away, 0);
  EXPECT_GT(noting.last("fsync " + memlith_folder(path)), away);  // which fails when it is gone
  fs::create_directories(removed_path(path) + "/objects");
  memlith::test::write_file(removed_path(path) + "/objects/1", "part");
  EXPECT_EQ(count(*open(path, with_memlith())), 100);
  EXPECT_FALSE(fs::exists(memlith_folder(path)));
}

// Giving back stops at the renaming; then the log goes, as RocksDB without memlith removes it once it is obsolete.
TEST(RocksdbOrders, AReleasedJournalMissesNothing) {
  const TempFolder folder;
  run_step("write_checkpointed", folder);
  const std::uint64_t log = kept_logs(folder / "db").at(0);
  const std::string plain = plain_path(folder / "db", log);
  fs::remove(plain);
  fs::create_directory(plain);
  EXPECT_FALSE(give_back(folder / "db").ok());
  fs::remove(plain);
  fs::remove(kept_path(folder / "db", log));
  const auto given = give_back(folder / "db");
  EXPECT_TRUE(given.ok()) << given.error().message();
  EXPECT_FALSE(fs::exists(memlith_folder(folder / "db")));
}

}  // namespace memlith_rocksdb::test
