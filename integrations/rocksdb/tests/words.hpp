// Shared by the tests of RocksDB on memlith.
#pragma once

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memlith/rocksdb.hpp"
#include "rocksdb/src/names.hpp"
#include "support/temp_folder.hpp"

namespace memlith_rocksdb::test {

using memlith::test::TempFolder;

// Outlives every database of the process.
inline rocksdb::Env* memlith_env(const memlith::RocksdbOptions& options = {}) {
  static auto* const kept = new std::vector<std::unique_ptr<rocksdb::Env>>;
  std::shared_ptr<rocksdb::FileSystem> file_system;
  const rocksdb::Status status = memlith::NewRocksdbFileSystem(rocksdb::FileSystem::Default(), options, &file_system);
  EXPECT_TRUE(status.ok()) << status.ToString();
  kept->push_back(rocksdb::NewCompositeEnv(file_system));
  return kept->back().get();
}

inline rocksdb::Options with_memlith() {
  static rocksdb::Env* const env = memlith_env();
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env;
  return options;
}

inline rocksdb::Options plain() {
  rocksdb::Options options;
  options.create_if_missing = true;
  return options;
}

#define ASSERT_FINE(expression)                                             \
  do {                                                                      \
    const rocksdb::Status status_ = (expression);                           \
    ASSERT_TRUE(status_.ok()) << #expression << ": " << status_.ToString(); \
  } while (false)

inline rocksdb::WriteOptions synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

inline std::unique_ptr<rocksdb::DB> open(const std::string& path, const rocksdb::Options& options) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return std::unique_ptr<rocksdb::DB>(db);
}

inline std::string key_of(int number) { return "key" + std::to_string(1000000 + number); }
inline std::string value_of(int number) { return "value" + std::to_string(number) + std::string(number % 200, 'v'); }

inline void put(rocksdb::DB& db, int from, int to, const rocksdb::WriteOptions& options = synced()) {
  for (int each = from; each < to; ++each) ASSERT_FINE(db.Put(options, key_of(each), value_of(each)));
}

// The numbers from 0 on that the database has, without a gap; -1: a gap, or something else.
inline int count(rocksdb::DB& db) {
  int found = 0;
  const std::unique_ptr<rocksdb::Iterator> at(db.NewIterator({}));
  for (at->SeekToFirst(); at->Valid(); at->Next(), ++found) {
    if (at->key() != key_of(found) || at->value() != value_of(found)) return -1;
  }
  return at->status().ok() ? found : -1;
}

// A step runs in a process of its own, which ends with the step and closes nothing: it is killed, as far as RocksDB and
// memlith can see. `folder` is the test's.
struct Step {
  Step(const char* name, std::function<void(const std::string& folder)> body);
};
void run_step(const char* name, const TempFolder& folder);

inline std::vector<std::uint64_t> kept_logs(const std::string& folder) {
  std::vector<std::uint64_t> numbers;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(memlith_folder(folder), error)) {
    if (const auto name = log_name_of(each.path().string())) numbers.push_back(name->number);
  }
  return numbers;
}

}  // namespace memlith_rocksdb::test
