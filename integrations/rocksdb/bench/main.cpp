// memlith-rocksdb-bench: synced writes to RocksDB, stock and on memlith, and to a bare log; and how long an open takes
// that has so much log to read. Prints one JSON object. bench.py runs it in turns. Before and after measuring it
// waits for a line.
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bare_log.hpp"
#include "memlith/rocksdb.hpp"

namespace memlith_rocksdb::bench {

namespace {

using Clock = std::chrono::steady_clock;

struct Given {
  std::string side;
  std::string folder;
  std::uint64_t threads = 1;
  std::uint64_t value_bytes = 100;
  std::uint64_t keys = 1000000;
  double seconds = 3;
  std::uint64_t operations = 0;
  std::uint64_t warm_up = 0;
  std::uint64_t fill_mib = 0;
  bool open_only = false;
};

void check(const rocksdb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// A log, or a database.
class Side {
 public:
  explicit Side(const Given& given) {
    if (given.side == "bare") {
      bare_ = std::make_unique<BareLog>(given.folder + "/bare.log", 128 << 20);
      return;
    }
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.enable_pipelined_write = true;
    if (given.fill_mib > 0 || given.open_only) options.write_buffer_size = 2 * (given.fill_mib + 64) << 20;
    if (given.open_only) options.avoid_flush_during_recovery = true;
    if (given.side == "recycle") {  // which RocksDB 7.8 does with this mode only
      options.recycle_log_file_num = 4;
      options.write_buffer_size = 2 << 20;  // or no log would end, to be recycled, before measuring
      options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
    }
    if (given.side.starts_with("memlith")) {
      std::shared_ptr<rocksdb::FileSystem> file_system;
      check(memlith::NewRocksdbFileSystem(rocksdb::FileSystem::Default(), {}, &file_system));
      env_ = rocksdb::NewCompositeEnv(file_system);
      options.env = env_.get();
    }
    rocksdb::DB* db = nullptr;
    if (given.side == "memlith-memtable") {
      std::vector<rocksdb::ColumnFamilyHandle*> handles;
      check(memlith::OpenRocksdbWithMemtables(options, given.folder + "/db",
                                              {{rocksdb::kDefaultColumnFamilyName, options}}, {}, &handles, &db));
      check(db->DestroyColumnFamilyHandle(handles.front()));
      db_.reset(db);
      return;
    }
    check(rocksdb::DB::Open(options, given.folder + "/db", &db));
    db_.reset(given.side == "memlith-late" ? memlith::WaitOutsideWriteQueue(db) : db);
  }

  void put(const std::string& key, const std::string& value, bool sync = true) {
    if (bare_ != nullptr) return bare_->append(std::string(kOverheadBytes, 'h') + key + value);
    rocksdb::WriteOptions options;
    options.sync = sync;
    check(db_->Put(options, key, value));
  }

 private:
  static constexpr std::size_t kOverheadBytes = 23;  // of a record and of a batch with one key
  std::unique_ptr<BareLog> bare_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
};

std::string key_of(std::uint64_t number) {
  char key[32];
  std::snprintf(key, sizeof key, "%016llu", static_cast<unsigned long long>(number));
  return key;
}

// Random, so that nothing gains by compressing it.
std::string value_of(std::uint64_t bytes, std::mt19937_64& random) {
  std::string value(bytes, '\0');
  for (char& each : value) each = static_cast<char>(random());
  return value;
}

constexpr std::uint64_t kWarmUpThreads = 12;

// Files that grow with the first writes have grown then.
void warm_up(Side& side, const Given& given) {
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kWarmUpThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(1000 + thread);
      const std::string value = value_of(given.value_bytes, random);
      for (std::uint64_t each = 0; each < given.warm_up / kWarmUpThreads; ++each) {
        side.put(key_of(random() % given.keys), value);
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

void fill_random(const Given& given) {
  Side side(given);
  std::atomic<bool> ends{false};
  std::vector<std::vector<double>> took_us(given.threads);
  std::vector<std::thread> threads;
  warm_up(side, given);
  // The flush of the new database is not measured.
  ::sync();
  std::puts("ready");
  std::fflush(stdout);
  (void)std::getchar();
  const Clock::time_point began = Clock::now();
  for (std::uint64_t thread = 0; thread < given.threads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread + 1);
      const std::string value = value_of(given.value_bytes, random);
      const std::uint64_t most = given.operations == 0 ? UINT64_MAX : given.operations / given.threads;
      while (!ends.load(std::memory_order_relaxed) && took_us[thread].size() < most) {
        const Clock::time_point start = Clock::now();
        side.put(key_of(random() % given.keys), value);
        took_us[thread].push_back(1e6 * seconds_since(start));
      }
    });
  }
  if (given.operations == 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(given.seconds));
    ends.store(true);
  }
  for (std::thread& each : threads) each.join();
  const double seconds = seconds_since(began);
  std::vector<double> all;
  for (const auto& each : took_us) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  const auto at = [&](double share) {
    return all.empty() ? 0 : all[static_cast<std::size_t>(share * double(all.size() - 1))];
  };
  std::printf("{\"ops\": %zu, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n", all.size(),
              seconds, at(0.5), at(0.99), at(0.999));
  std::fflush(stdout);
  (void)std::getchar();  // until the disk's counts are read
}

// Leaves so much log as a killed process does; every thousandth write is synced.
void fill_log(const Given& given) {
  auto* side = new Side(given);
  std::mt19937_64 random(1);
  std::uint64_t number = 0;
  for (std::uint64_t bytes = 0; bytes < given.fill_mib << 20; bytes += 1000, ++number) {
    side->put(key_of(number), value_of(965, random), number % 1000 == 999);
  }
  side->put("end", "end");
  ::_exit(0);
}

void open_only(const Given& given) {
  const Clock::time_point began = Clock::now();
  auto* side = new Side(given);
  std::printf("{\"seconds\": %.3f}\n", seconds_since(began));
  std::fflush(stdout);
  delete side;
}

}  // namespace

}  // namespace memlith_rocksdb::bench

int main(int count, char** words) {
  using namespace memlith_rocksdb::bench;
  Given given;
  CLI::App app("Synced writes to RocksDB, stock and on memlith, and to a bare log");
  app.add_option("--side", given.side)
      ->check(CLI::IsMember({"stock", "recycle", "memlith", "memlith-late", "memlith-memtable", "bare"}))
      ->required();
  app.add_option("--dir", given.folder)->required();
  app.add_option("--threads", given.threads);
  app.add_option("--value-bytes", given.value_bytes);
  app.add_option("--keys", given.keys);
  app.add_option("--seconds", given.seconds);
  app.add_option("--warm-up", given.warm_up, "Operations before measuring");
  app.add_option("--operations", given.operations, "Of all threads, instead of --seconds");
  app.add_option("--fill-mib", given.fill_mib, "Leaves so much log, as a killed process does");
  app.add_flag("--open", given.open_only, "Tells how long opening takes; with the --fill-mib of before");
  CLI11_PARSE(app, count, words);
  given.open_only ? open_only(given) : given.fill_mib > 0 ? fill_log(given) : fill_random(given);
}
