// Disks that are full or fail: nothing is acknowledged that is not durable.
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "memtables.hpp"
#include "rocksdb/src/give_back.hpp"
#include "support/child.hpp"
#include "support/full_disk.hpp"
#include "words.hpp"

namespace {
std::atomic<int> calls_left{-1};  // until flushes and the journal's writes fail; negative: never

bool fails_now() {
  if (calls_left.load() < 0) return false;
  if (calls_left.load() > 0 && calls_left.fetch_sub(1) > 0) return false;
  errno = EIO;
  return true;
}
}  // namespace

// The library's own calls, and the plugin's, go through these; not those of librocksdb.so.
extern "C" {
ssize_t __real_pwritev(int file, const iovec* pieces, int count, off_t offset);
int __real_fdatasync(int file);
ssize_t __wrap_pwritev(int file, const iovec* pieces, int count, off_t offset) {
  return fails_now() ? -1 : __real_pwritev(file, pieces, count, offset);
}
int __wrap_fdatasync(int file) { return fails_now() ? -1 : __real_fdatasync(file); }
}

namespace memlith_rocksdb::test {

// The disk fails after the so-manieth call, for good. What is said to be written before is there after a power cut.
const Step fail{"fail", [](const std::string& folder) {
                  const std::string told = memlith::test::read_file(folder + "/after");
                  auto* db = open(folder + "/db", with_memlith()).release();
                  calls_left.store(std::stoi(told));
                  int acknowledged = 0;
                  bool failed = false;
                  for (int each = 0; each < 40; ++each) {
                    const bool fine = db->Put(synced(), key_of(each), value_of(each)).ok();
                    EXPECT_FALSE(failed && fine) << "a write behind a failed one was acknowledged";
                    failed = failed || !fine;
                    if (fine) ++acknowledged;
                  }
                  memlith::test::write_file(folder + "/acknowledged", std::to_string(acknowledged));
                }};

TEST(RocksdbFailingDisk, NothingIsAcknowledgedAfterAFailure) {
  for (const int after : {0, 1, 2, 5, 20, 1000}) {
    const TempFolder folder;
    memlith::test::write_file(folder / "after", std::to_string(after));
    run_step("fail", folder);
    const int acknowledged = std::stoi(memlith::test::read_file(folder / "acknowledged"));
    EXPECT_EQ(acknowledged == 40, after == 1000) << after;
    EXPECT_EQ(acknowledged == 0, after <= 1) << after;
    std::filesystem::resize_file(kept_path(folder / "db", kept_logs(folder / "db").at(0)), 0);
    EXPECT_GE(count(*open(folder / "db", with_memlith())), acknowledged) << after;
  }
}

// A persist that fails ends the database: nothing is acknowledged or flushed any more, and it can be read and closed.
const Step fail_memtables{"fail-memtables", [](const std::string& folder) {
                            Families opened = open_memtables(folder + "/db");
                            ASSERT_FINE(opened.status);
                            ASSERT_FINE(opened.db->Put(synced(), opened.handles[1], "first", "value"));
                            calls_left.store(std::stoi(memlith::test::read_file(folder + "/after")));
                            int acknowledged = 0;
                            bool failed = false;
                            for (int each = 0; each < 40; ++each) {
                              rocksdb::WriteBatch batch;
                              for (auto* family : opened.handles)
                                ASSERT_FINE(batch.Put(family, key_of(each), value_of(each)));
                              const bool fine = opened.db->Write(synced(), &batch).ok();
                              EXPECT_FALSE(failed && fine) << "a write behind a failed one was acknowledged";
                              failed = failed || !fine;
                              if (fine) ++acknowledged;
                            }
                            EXPECT_EQ(opened.db->Flush({}, opened.handles[0]).ok(), !failed);
                            std::string value;
                            ASSERT_FINE(opened.db->Get({}, opened.handles[1], "first", &value));
                            EXPECT_EQ(opened.close().ok(), !failed);
                            memlith::test::write_file(folder + "/acknowledged", std::to_string(acknowledged));
                          }};

TEST(RocksdbFailingDisk, MemtablesAcknowledgeAndFlushNothingAfterAFailure) {
  for (const int after : {0, 1, 2, 5, 20, 1000}) {
    const TempFolder folder;
    memlith::test::write_file(folder / "after", std::to_string(after));
    run_step("fail-memtables", folder);
    const int acknowledged = std::stoi(memlith::test::read_file(folder / "acknowledged"));
    EXPECT_EQ(acknowledged == 40, after == 1000) << after;
    Families opened = open_memtables(folder / "db");
    ASSERT_FINE(opened.status);
    const int found = count(*opened.db);
    EXPECT_GE(found, acknowledged) << after;
    EXPECT_LE(found, acknowledged + 1) << after;
    std::string value;
    EXPECT_TRUE(opened.db->Get({}, opened.handles[1], key_of(found), &value).IsNotFound()) << after;
  }
}

// docs/guarantees.md, "RocksDB": a write with sync shows when it is durable; if it waits outside of the queue, before.
const Step seen{"seen", [](const std::string& folder) {
                  for (const bool outside : {false, true}) {
                    auto* db = open(folder + (outside ? "/late" : "/db"), with_memlith()).release();
                    if (outside) db = memlith::WaitOutsideWriteQueue(db);
                    ASSERT_FINE(db->Put(synced(), key_of(0), value_of(0)));
                    calls_left.store(0);
                    EXPECT_FALSE(db->Put(synced(), key_of(1), value_of(1)).ok());
                    calls_left.store(-1);
                    std::string value;
                    EXPECT_EQ(db->Get({}, key_of(1), &value).IsNotFound(), !outside);
                    ASSERT_FINE(db->Get({}, key_of(0), &value));
                  }
                }};

TEST(RocksdbFailingDisk, AReaderIsToldOfNoWriteThatFailed) {
  const TempFolder folder;
  run_step("seen", folder);
}

// Fills the disk under a database, goes on when there is room, and loses nothing of what was acknowledged.
const Step full{
    "full", [](const std::string& folder) {
      const std::string path = folder + "/disk";
      std::filesystem::create_directory(path);
      if (const std::string why = memlith::test::own_tmpfs(path, "size=80m"); !why.empty()) {
        memlith::test::write_file(folder + "/skipped", why);
        return;
      }
      // Debian's library has assertions, and ends the process when its LOG cannot be written.
      rocksdb::Options options = with_memlith();
      options.db_log_dir = folder;
      auto db = open(path + "/db", options);
      put(*db, 0, 100);
      int acknowledged = 100;
      {
        memlith::test::Filler filler(path);
        while (acknowledged < 100000 && db->Put(synced(), key_of(acknowledged), value_of(acknowledged)).ok()) {
          ++acknowledged;
        }
        EXPECT_LT(acknowledged, 100000);
      }
      db.reset();
      db = open(path + "/db", options);
      const int found = count(*db);
      EXPECT_GE(found, acknowledged);
      EXPECT_LE(found, acknowledged + 1);
      put(*db, found, found + 100);
      db.reset();
      EXPECT_EQ(count(*open(path + "/db", plain())), found + 100);
    }};

TEST(RocksdbFailingDisk, AFullDiskLosesNothingAcknowledged) {
  const TempFolder folder;
  run_step("full", folder);
  if (std::filesystem::exists(folder / "skipped")) GTEST_SKIP() << memlith::test::read_file(folder / "skipped");
}

}  // namespace memlith_rocksdb::test
