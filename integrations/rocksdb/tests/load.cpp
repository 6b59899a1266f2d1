// A database under load, whose content tells which writes it has: memlith-rocksdb-load --help. The program prints
// "state M0 M1 ...", the last operation of each thread that the database has; then "T N" for each operation that is
// acknowledged, until it is killed. It ends with 1, if the state is none that acknowledged operations may leave, and
// with 2, if the database cannot be opened.
#include <rocksdb/db.h>
#include <rocksdb/file_system.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rocksdb/utilities/write_batch_with_index.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memlith/rocksdb.hpp"

namespace {

using rocksdb::Status;

struct Given {
  std::string path;
  std::string mode = "plain";
  bool stock = false;
  bool unsynced = false;
  bool check_only = false;
  bool prefix = false;  // any earlier state will do
  bool absolute = false;
  std::uint64_t operations = 0;
  std::vector<std::uint64_t> acknowledged;
};

constexpr std::uint64_t kSlots = 40;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::string slot_key(std::uint64_t thread, std::uint64_t slot) {
  return "thread" + std::to_string(thread) + "/" + std::to_string(slot);
}
std::string last_key(std::uint64_t thread) { return "thread" + std::to_string(thread) + "/last"; }

// Operation `number` of a thread: three slots set, in both families, and one deleted; now and then a large value.
struct Change {
  std::uint64_t slot[3];
  std::uint64_t deleted;
  std::string value;

  Change(std::uint64_t thread, std::uint64_t number) {
    const std::uint64_t chance = mixed(thread * 1000003 + number);
    for (std::uint64_t at = 0; at < 3; ++at) slot[at] = mixed(chance + at) % kSlots;
    deleted = mixed(chance + 7) % kSlots;
    const std::uint64_t bytes = chance % 97 == 0 ? 300000 : chance % 13 == 0 ? 40000 : chance % 300;
    value = std::to_string(number) + ":" + std::string(bytes, static_cast<char>('a' + chance % 26));
  }
};

class Load {
 public:
  explicit Load(Given given) : given_(std::move(given)) {}

  Status open() {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.write_buffer_size = 512 << 10;
    options.max_total_wal_size = 2 << 20;
    options.enable_pipelined_write = given_.mode == "pipelined" || given_.mode == "memtable-pipelined";
    options.two_write_queues = given_.mode == "two-queues";
    options.avoid_flush_during_recovery = given_.mode == "late";
    if (given_.absolute) options.wal_recovery_mode = rocksdb::WALRecoveryMode::kAbsoluteConsistency;
    const bool with_memtables = given_.mode.starts_with("memtable") && !given_.stock;
    if (!given_.stock && !with_memtables) {
      std::shared_ptr<rocksdb::FileSystem> file_system;
      // Small enough that checkpoints happen all the time.
      const Status made = memlith::NewRocksdbFileSystem(rocksdb::FileSystem::Default(),
                                                        {.entry_bytes_max = 64 << 10,
                                                         .checkpoint_bytes = 128 << 10,
                                                         .journal_bytes = 4 << 20},
                                                        &file_system);
      if (!made.ok()) return made;
      env_ = rocksdb::NewCompositeEnv(file_system);
      options.env = env_.get();
    }
    const std::vector<rocksdb::ColumnFamilyDescriptor> families{{"default", options}, {"second", options}};
    if (with_memtables) {
      return memlith::OpenRocksdbWithMemtables(options, given_.path, families, {}, &families_, &db_);
    }
    if (given_.mode == "two-phase") {
      const Status opened =
          rocksdb::TransactionDB::Open(options, {}, given_.path, families, &families_, &transactions_);
      db_ = transactions_;
      return opened.ok() ? finish_prepared() : opened;
    }
    Status opened = rocksdb::DB::Open(options, given_.path, families, &families_, &db_);
    if (opened.ok() && given_.mode == "late" && !given_.stock) {
      rocksdb::DB* const late = memlith::WaitOutsideWriteQueue(db_);
      if (late == nullptr) return Status::NotSupported("cannot wait outside of the queue");
      db_ = late;
    }
    return opened;
  }

  // A prepared transaction is there as a whole or not at all; it was not acknowledged.
  Status finish_prepared() {
    std::vector<rocksdb::Transaction*> prepared;
    transactions_->GetAllPreparedTransactions(&prepared);
    for (rocksdb::Transaction* each : prepared) {
      const Status done = each->Commit();
      delete each;
      if (!done.ok()) return done;
    }
    return Status::OK();
  }

  // The last operation that the database has; nothing, if it is none that may be.
  std::optional<std::uint64_t> check(std::uint64_t thread) {
    std::string text;
    const Status got = db_->Get({}, last_key(thread), &text);
    if (!got.ok() && !got.IsNotFound()) return fail(thread, got.ToString());
    const std::uint64_t last = got.ok() ? std::stoull(text) : 0;
    const std::uint64_t acknowledged = thread < given_.acknowledged.size() ? given_.acknowledged[thread] : 0;
    if (last > acknowledged + 1 || (last < acknowledged && !given_.prefix)) {
      return fail(thread, "operation " + std::to_string(acknowledged) + " was acknowledged, and the database has " +
                              std::to_string(last));
    }
    std::map<std::uint64_t, std::string> expected;
    for (std::uint64_t number = 1; number <= last; ++number) {
      const Change change(thread, number);
      for (const std::uint64_t slot : change.slot) expected[slot] = change.value;
      expected.erase(change.deleted);
    }
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
      const Status found = db_->Get({}, families_[slot % 2], slot_key(thread, slot), &text);
      const auto wanted = expected.find(slot);
      if (wanted == expected.end() ? !found.IsNotFound() : (!found.ok() || text != wanted->second)) {
        return fail(thread, "slot " + std::to_string(slot) + " is not as operation " + std::to_string(last) +
                                " left it: " + found.ToString() + " " + text.substr(0, 20));
      }
    }
    return last;
  }

  Status fill(rocksdb::WriteBatchBase& batch, std::uint64_t thread, std::uint64_t number) {
    const Change change(thread, number);
    Status done = batch.Put(last_key(thread), std::to_string(number));
    for (const std::uint64_t slot : change.slot) {
      if (done.ok()) done = batch.Put(families_[slot % 2], slot_key(thread, slot), change.value);
    }
    return done.ok() ? batch.Delete(families_[change.deleted % 2], slot_key(thread, change.deleted)) : done;
  }

  Status write(std::uint64_t thread, std::uint64_t number) {
    rocksdb::WriteOptions options;
    options.sync = !given_.unsynced;
    if (transactions_ == nullptr) {
      rocksdb::WriteBatch batch;
      const Status filled = fill(batch, thread, number);
      return filled.ok() ? db_->Write(options, &batch) : filled;
    }
    const std::unique_ptr<rocksdb::Transaction> transaction(transactions_->BeginTransaction(options));
    Status done = transaction->SetName(std::to_string(thread) + "-" + std::to_string(number));
    if (done.ok()) done = fill(*transaction->GetWriteBatch(), thread, number);
    if (done.ok()) done = transaction->Prepare();
    return done.ok() ? transaction->Commit() : done;
  }

  int run(std::uint64_t threads) {
    if (const Status opened = open(); !opened.ok()) {
      std::printf("cannot open: %s\n", opened.ToString().c_str());
      return 2;
    }
    std::vector<std::uint64_t> states;
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      const std::optional<std::uint64_t> state = check(thread);
      if (!state) return 1;
      states.push_back(*state);
    }
    std::string line = "state";
    for (const std::uint64_t each : states) line += " " + std::to_string(each);
    std::puts(line.c_str());
    std::fflush(stdout);
    if (!given_.check_only) write_until_killed(states);
    for (auto* family : families_) (void)db_->DestroyColumnFamilyHandle(family);
    const Status closed = db_->Close();
    delete db_;
    return closed.ok() ? 0 : 3;
  }

 private:
  static std::optional<std::uint64_t> fail(std::uint64_t thread, const std::string& what) {
    std::printf("wrong: thread %llu: %s\n", static_cast<unsigned long long>(thread), what.c_str());
    return std::nullopt;
  }

  void write_until_killed(const std::vector<std::uint64_t>& states) {
    std::vector<std::thread> running;
    for (std::uint64_t thread = 0; thread < states.size(); ++thread) {
      running.emplace_back([this, thread, last = states[thread]] {
        for (std::uint64_t number = last + 1; given_.operations == 0 || number <= last + given_.operations; ++number) {
          const Status written = write(thread, number);
          if (!written.ok()) return;
          const std::string line = std::to_string(thread) + " " + std::to_string(number) + "\n";
          if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return;
        }
      });
    }
    for (std::thread& each : running) each.join();
  }

  const Given given_;
  std::unique_ptr<rocksdb::Env> env_;
  rocksdb::DB* db_ = nullptr;
  rocksdb::TransactionDB* transactions_ = nullptr;  // db_, or null
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
};

}  // namespace

int main(int count, char** words) {
  Given given;
  std::uint64_t threads = 3;
  CLI::App app("A database under load, whose content tells which writes it has");
  app.add_option("DB", given.path)->required();
  app.add_option("--mode", given.mode)
      ->check(CLI::IsMember({"plain", "pipelined", "two-queues", "late", "two-phase", "memtable",
                             "memtable-pipelined"}));
  app.add_option("--threads", threads);
  app.add_option("--operations", given.operations, "Of each thread; 0: until killed");
  app.add_option("--acknowledged", given.acknowledged, "The last operation of each thread that was acknowledged");
  app.add_flag("--stock", given.stock, "RocksDB without memlith");
  app.add_flag("--unsynced", given.unsynced, "Writes without sync");
  app.add_flag("--prefix", given.prefix, "Acknowledged writes may be lost, but no write before one that is kept");
  app.add_flag("--absolute", given.absolute, "Opens with kAbsoluteConsistency: a torn log is an error");
  app.add_flag("--check", given.check_only, "Checks the state and ends");
  CLI11_PARSE(app, count, words);
  return Load(given).run(threads);
}
