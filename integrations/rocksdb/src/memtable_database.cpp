// A database whose memtables lie in a region and are durable, so that it needs no log. Floor: rocksdb.
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/utilities/options_util.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "batch_database.hpp"
#include "file_system.hpp"
#include "memlith/rocksdb.hpp"
#include "node_store.hpp"
#include "region_memtable.hpp"

namespace memlith_rocksdb {

namespace {

using rocksdb::ColumnFamilyDescriptor;
using rocksdb::ColumnFamilyHandle;
using rocksdb::ColumnFamilyOptions;
using rocksdb::DBOptions;
using rocksdb::Slice;
using rocksdb::Status;

constexpr const char* kFolderOfNodes = "/memlith-memtables";
constexpr std::uint64_t kEntryOverheadMax = 32;       // beside key and value
constexpr std::uint64_t kUnpersistedMax = 512 << 10;  // then a persist begins, though no write waits for it
constexpr std::uint64_t kBatchBytes = 1 << 20;        // of an opening's writes
constexpr std::uint64_t kBlocksOfWriters = 64;        // for batches under way
constexpr const char* kFlushAtEnd = "avoid_flush_during_shutdown";
constexpr const char* kMempurge = "experimental_mempurge_threshold";

Status refused(const std::string& what) { return Status::NotSupported("memtables of memlith", what); }

// ---- options -------------------------------------------------------------------------------------------------------

Status check(const DBOptions& options) {
  // The sequence number is published before all of a batch is in the memtables.
  if (options.unordered_write) return refused("unordered_write");
  if (options.two_write_queues) return refused("two_write_queues");
  if (options.allow_2pc) return refused("allow_2pc: two-phase commits need a log");
  if (options.persist_stats_to_disk) return refused("persist_stats_to_disk writes to a log");
  return Status::OK();
}

Status check(const ColumnFamilyOptions& options) {
  if (options.inplace_update_support) return refused("inplace_update_support");
  if (options.experimental_mempurge_threshold > 0) return refused(kMempurge);
  if (options.comparator->timestamp_size() > 0) return refused("user-defined timestamps");
  return Status::OK();
}

// RocksDB stops writes when max_write_buffer_number memtables wait for their flush. One more is written to, and one may
// be flushed and still be read.
std::uint64_t bytes_of(const ColumnFamilyOptions& options) {
  const std::uint64_t blocks = options.write_buffer_size * 4 / 3 / NodeStore::kBlockBytes + 2;
  return blocks * (static_cast<std::uint64_t>(std::max(options.max_write_buffer_number, 1)) + 2) *
         NodeStore::kBlockBytes;
}

// ---- batches -------------------------------------------------------------------------------------------------------

// An opening writes entries again that a file may have already: they have to be the same twice over.
class Scan final : public rocksdb::WriteBatch::Handler {
 public:
  Scan(const std::set<std::uint32_t>& families, bool ignores_missing)
      : families_(families), ignores_missing_(ignores_missing) {}
  [[nodiscard]] const NodeStore::Room& room() const { return room_; }

  Status PutCF(std::uint32_t family, const Slice& key, const Slice& value) override {
    const std::uint64_t bytes = key.size() + value.size() + kEntryOverheadMax;
    if (bytes > NodeStore::kEntryBytesMax) return refused("an entry of more than 1 MiB");
    if (families_.contains(family)) {
      room_.add(family, bytes);
      return Status::OK();
    }
    // RocksDB would find out when a part of the batch is in the memtables.
    return ignores_missing_ ? Status::OK() : Status::InvalidArgument("Invalid column family specified in write batch");
  }
  Status DeleteCF(std::uint32_t family, const Slice& key) override { return PutCF(family, key, {}); }
  Status PutEntityCF(std::uint32_t, const Slice&, const Slice&) override { return refused("PutEntity"); }
  Status SingleDeleteCF(std::uint32_t, const Slice&) override { return refused("SingleDelete: use Delete"); }
  Status DeleteRangeCF(std::uint32_t, const Slice&, const Slice&) override { return refused("DeleteRange"); }
  Status MergeCF(std::uint32_t, const Slice&, const Slice&) override { return refused("Merge"); }
  Status PutBlobIndexCF(std::uint32_t, const Slice&, const Slice&) override { return refused("blob indexes"); }
  Status MarkBeginPrepare(bool) override { return two_phase(); }
  Status MarkEndPrepare(const Slice&) override { return two_phase(); }
  Status MarkNoop(bool) override { return two_phase(); }
  Status MarkRollback(const Slice&) override { return two_phase(); }
  Status MarkCommit(const Slice&) override { return two_phase(); }
  Status MarkCommitWithTimestamp(const Slice&, const Slice&) override { return two_phase(); }

 private:
  static Status two_phase() { return refused("markers of transactions"); }
  const std::set<std::uint32_t>& families_;
  const bool ignores_missing_;
  NodeStore::Room room_;
};

// ---- persists ------------------------------------------------------------------------------------------------------

class Persister final : public rocksdb::EventListener {
 public:
  explicit Persister(std::shared_ptr<NodeStore> nodes) : nodes_(std::move(nodes)) {}
  // ORDER rocksdb-persist-before-flush: the entries that a flush takes are durable before its file counts. Else the
  // file could have a part of a batch whose other part is lost with another memtable. If the persist fails, the
  // database ends its background work, and the flush with it. [test RocksdbMemtable.AFlushTearsNoBatch]
  void OnFlushBegin(rocksdb::DB* db, const rocksdb::FlushJobInfo&) override { (void)persist(*db, true); }

  Status persist(rocksdb::DB& db, bool wait) {
    // Before the capture: each entry up to this number is part of its list by now. A number that is read later could
    // cover entries that were not captured.
    const std::uint64_t sequence = db.GetLatestSequenceNumber();
    const memlith::Result<void> persisted = nodes_->persist(sequence, wait);
    if (persisted) return Status::OK();
    {
      const std::lock_guard lock(mutex_);
      if (!failed_) failure_ = status_of(persisted.error());
      failed_ = true;
    }
    rocksdb::CancelAllBackgroundWork(&db, false);
    return failure();
  }
  Status failure() {
    if (!failed_) return Status::OK();
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  const std::shared_ptr<NodeStore> nodes_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status failure_;
};

// ---- the database --------------------------------------------------------------------------------------------------

class MemtableDatabase final : public BatchDatabase {
 public:
  MemtableDatabase(rocksdb::DB* db, std::shared_ptr<NodeStore> nodes, std::shared_ptr<Persister> persister,
                   std::shared_ptr<RegionMemtables> memtables, bool flushes_at_end)
      : BatchDatabase(db),
        nodes_(std::move(nodes)),
        persister_(std::move(persister)),
        memtables_(std::move(memtables)),
        flushes_at_end_(flushes_at_end) {}
  ~MemtableDatabase() override { (void)Close(); }

  // Writes what the last opening left, and gives it up.
  Status begin(const std::vector<ColumnFamilyHandle*>& handles) {
    std::map<std::uint32_t, ColumnFamilyHandle*> families;
    for (ColumnFamilyHandle* const each : handles) families[each->GetID()] = each;
    for (const auto& [number, handle] : families) families_.insert(number);
    rocksdb::WriteBatch batch;
    for (const NodeStore::Left& each : nodes_->left()) {
      const auto family = families.find(each.family);
      if (family == families.end()) continue;  // was dropped
      const Slice key(each.key.data(), each.key.size());
      if (each.type > 1) return Status::Corruption("memtables of memlith", "an entry of another type");
      const Status added = each.type == 0 ? batch.Delete(family->second, key)
                                          : batch.Put(family->second, key, Slice(each.value.data(), each.value.size()));
      if (!added.ok()) return added;
      if (batch.GetDataSize() < kBatchBytes) continue;
      if (const Status written = Write({}, &batch); !written.ok()) return written;
      batch.Clear();
    }
    const Status written = Write({}, &batch);
    if (!written.ok()) return written;
    const memlith::Result<void> begun = nodes_->begin(db_->GetLatestSequenceNumber());
    return begun ? Status::OK() : Status(status_of(begun.error()));
  }

  Status Write(const Options& options, rocksdb::WriteBatch* batch) override {
    if (batch == nullptr || (options.sync && options.disableWAL)) return db_->Write(options, batch);  // refuses
    if (const Status failure = persister_->failure(); !failure.ok()) return failure;
    {
      const std::shared_lock lock(families_mutex_);
      Scan scan(families_, options.ignore_missing_column_families);
      if (const Status scanned = batch->Iterate(&scan); !scanned.ok()) return scanned;
      if (const memlith::Result<void> reserved = nodes_->reserve(scan.room()); !reserved) {
        return status_of(reserved.error());
      }
      Options without_log = options;
      without_log.sync = false;
      without_log.disableWAL = true;
      const Status written = db_->Write(without_log, batch);
      nodes_->release(scan.room());
      if (!written.ok()) return written;
    }
    if (!options.sync && nodes_->unpersisted() < kUnpersistedMax) return Status::OK();
    return persister_->persist(*db_, options.sync);
  }
  Status SyncWAL() override { return persister_->persist(*db_, true); }
  Status FlushWAL(bool sync) override { return sync ? SyncWAL() : Status::OK(); }

  // Flushes the memtables, unless the options say otherwise: then the next opening writes their entries again.
  Status Close() override {
    if (closed_) return Status::OK();
    Status done = SyncWAL();
    std::uint64_t snapshots = 0;
    if (db_->GetIntProperty(DB::Properties::kNumSnapshots, &snapshots) && snapshots > 0) {
      return Status::Aborted("Cannot close DB with unreleased snapshot.");  // as RocksDB
    }
    closed_ = true;
    if (done.ok() && flushes_at_end_) done = db_->SetDBOptions({{kFlushAtEnd, "false"}});
    const std::uint64_t sequence = db_->GetLatestSequenceNumber();
    nodes_->stop();
    const Status closed = db_->Close();
    const memlith::Result<void> persisted = nodes_->close(sequence);
    if (done.ok()) done = closed;
    return !done.ok() || persisted ? done : Status(status_of(persisted.error()));
  }

  // A backup takes files only.
  Status GetLiveFilesStorageInfo(const rocksdb::LiveFilesStorageInfoOptions& options,
                                 std::vector<rocksdb::LiveFileStorageInfo>* files) override {
    rocksdb::LiveFilesStorageInfoOptions flushing = options;
    flushing.wal_size_for_flush = 0;
    return db_->GetLiveFilesStorageInfo(flushing, files);
  }

  using Changes = std::unordered_map<std::string, std::string>;
  using StackableDB::SetOptions;
  Status SetOptions(Handle family, const Changes& changes) override {
    return changes.contains(kMempurge) ? refused(kMempurge) : db_->SetOptions(family, changes);
  }
  Status SetDBOptions(const Changes& changes) override {
    return changes.contains(kFlushAtEnd) ? refused(kFlushAtEnd) : db_->SetDBOptions(changes);
  }

  Status CreateColumnFamily(const ColumnFamilyOptions& options, const std::string& name, Handle* handle) override {
    if (const Status checked = check(options); !checked.ok()) return checked;
    ColumnFamilyOptions own = options;
    own.memtable_factory = memtables_;
    nodes_->add_limit(bytes_of(options));
    const std::unique_lock lock(families_mutex_);
    const Status made = db_->CreateColumnFamily(own, name, handle);
    if (made.ok()) families_.insert((*handle)->GetID());
    return made;
  }
  Status CreateColumnFamilies(const ColumnFamilyOptions& options, const std::vector<std::string>& names,
                              std::vector<Handle>* handles) override {
    std::vector<ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, options);
    return CreateColumnFamilies(families, handles);
  }
  Status CreateColumnFamilies(const std::vector<ColumnFamilyDescriptor>& families,
                              std::vector<Handle>* handles) override {
    for (const ColumnFamilyDescriptor& each : families) {
      Handle handle = nullptr;
      if (const Status made = CreateColumnFamily(each.options, each.name, &handle); !made.ok()) return made;
      handles->push_back(handle);
    }
    return Status::OK();
  }
  Status DropColumnFamily(Handle family) override {
    const std::unique_lock lock(families_mutex_);
    const Status dropped = db_->DropColumnFamily(family);
    if (dropped.ok()) families_.erase(family->GetID());
    return dropped;
  }
  Status DropColumnFamilies(const std::vector<Handle>& families) override {
    for (const Handle each : families) {
      if (const Status dropped = DropColumnFamily(each); !dropped.ok()) return dropped;
    }
    return Status::OK();
  }

  // Entries that an opening writes again would lie over the files.
  using StackableDB::IngestExternalFile;
  Status IngestExternalFile(Handle, const std::vector<std::string>&,
                            const rocksdb::IngestExternalFileOptions&) override {
    return refused("IngestExternalFile");
  }
  Status IngestExternalFiles(const std::vector<rocksdb::IngestExternalFileArg>&) override {
    return refused("IngestExternalFiles");
  }
  Status CreateColumnFamilyWithImport(const ColumnFamilyOptions&, const std::string&,
                                      const rocksdb::ImportColumnFamilyOptions&,
                                      const rocksdb::ExportImportFilesMetaData&, Handle*) override {
    return refused("CreateColumnFamilyWithImport");
  }

 private:
  const std::shared_ptr<NodeStore> nodes_;
  const std::shared_ptr<Persister> persister_;
  const std::shared_ptr<RegionMemtables> memtables_;
  const bool flushes_at_end_;
  bool closed_ = false;
  std::shared_mutex families_mutex_;  // shared while a batch is written
  std::set<std::uint32_t> families_;
};

// Each opening writes a file of the options that it was given.
Status check_last_opening(rocksdb::Env* env, const std::string& path, std::uint64_t entries) {
  std::string name;
  std::string text;
  Status read = rocksdb::GetLatestOptionsFileName(path, env, &name);
  if (read.ok()) read = rocksdb::ReadFileToString(env, path + "/" + name, &text);
  if (!read.ok() || text.find(RegionMemtables::kClassName()) != std::string::npos) return read;
  return refused(
      "a RocksDB without them has opened the database since it crashed. What it wrote does not go together "
      "with the " +
      std::to_string(entries) + " entries in " + path + kFolderOfNodes + ". Remove that folder to go on without these");
}

Status open(const DBOptions& options, const std::string& path, const std::vector<ColumnFamilyDescriptor>& families,
            std::uint64_t bytes_max, std::vector<ColumnFamilyHandle*>* handles, rocksdb::DB** result) {
  DBOptions own = options;
  std::vector<ColumnFamilyDescriptor> own_families = families;
  Status done = check(options);
  std::uint64_t bytes = kBlocksOfWriters * NodeStore::kBlockBytes;
  for (const ColumnFamilyDescriptor& each : families) {
    if (done.ok()) done = check(each.options);
    bytes += bytes_of(each.options);
  }
  if (done.ok() && options.create_if_missing) done = options.env->CreateDirIfMissing(path);
  if (!done.ok()) return done;
  auto opened = NodeStore::open(path + kFolderOfNodes, bytes_max == 0 ? bytes : bytes_max);
  if (!opened) return status_of(opened.error());
  const std::shared_ptr<NodeStore> nodes = std::move(*opened);
  if (!nodes->left().empty()) {
    done = check_last_opening(options.env, path, nodes->left().size());
    if (!done.ok()) return done;
  }
  const auto memtables = std::make_shared<RegionMemtables>(nodes);
  const auto persister = std::make_shared<Persister>(nodes);
  own.listeners.push_back(persister);
  own.allow_concurrent_memtable_write = false;
  own.avoid_flush_during_recovery = false;
  // A failed persist ends the background work, which would flush otherwise.
  own.avoid_flush_during_shutdown = true;
  own.fail_if_options_file_error = true;  // check_last_opening() reads it
  for (ColumnFamilyDescriptor& each : own_families) each.options.memtable_factory = memtables;
  rocksdb::DB* db = nullptr;
  done = rocksdb::DB::Open(own, path, own_families, handles, &db);
  if (!done.ok()) return done;
  // The name of the options' file is durable before the first entry. Else a power cut could leave entries that
  // check_last_opening() refuses.
  std::unique_ptr<rocksdb::Directory> folder;
  done = options.env->NewDirectory(path, &folder);
  if (done.ok()) done = folder->Fsync();
  auto database =
      std::make_unique<MemtableDatabase>(db, nodes, persister, memtables, !options.avoid_flush_during_shutdown);
  if (done.ok()) done = database->begin(*handles);
  if (!done.ok()) {
    for (ColumnFamilyHandle* const each : *handles) (void)db->DestroyColumnFamilyHandle(each);
    handles->clear();
    return done;
  }
  *result = database.release();
  return done;
}

}  // namespace

}  // namespace memlith_rocksdb

rocksdb::Status memlith::OpenRocksdbWithMemtables(const rocksdb::DBOptions& options, const std::string& path,
                                                  const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
                                                  const RocksdbMemtableOptions& own,
                                                  std::vector<rocksdb::ColumnFamilyHandle*>* handles,
                                                  rocksdb::DB** db) {
  return memlith_rocksdb::open(options, path, families, own.bytes_max, handles, db);
}
