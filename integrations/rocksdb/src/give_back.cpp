#include "give_back.hpp"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "entries.hpp"
#include "memlith/applog.hpp"
#include "names.hpp"

namespace memlith_rocksdb {

namespace {

constexpr const char* kLogName = "rocksdb";
constexpr std::uint64_t kStepBytes = 1 << 20;

Error damaged(const std::string& what) {
  return Error(MEMLITH_CORRUPT, what +
                                    "; acknowledged writes would be lost without a word. Restore a backup, or run "
                                    "`memlith rocksdb release --accept-damage DB` to keep what there is");
}

struct LoggedBytes {
  std::uint64_t offset = 0;
  std::string bytes;
};
struct Known {
  Claim claim;
  std::vector<LoggedBytes> pieces;
  bool is_gone = false;
};
// The journal's knowledge of each log.
using Knowledge = std::map<std::uint64_t, Known>;

void learn(Knowledge& knowledge, const JournalEntry& entry) {
  switch (entry.head.kind) {
    case Kind::data:
      knowledge[entry.head.number].pieces.push_back({entry.head.offset, std::string(entry.content)});
      break;
    case Kind::checkpoint:
      for (const Claim& each : claims_of(entry)) {
        Claim& claim = knowledge[each.number].claim;
        if (each.bytes >= claim.bytes) claim = each;
      }
      break;
    case Kind::gone: knowledge[entry.head.number].is_gone = true; break;
    case Kind::released: knowledge.clear(); break;
  }
}

class GiveBack {
 public:
  GiveBack(std::string folder, Damage damage) : folder_(std::move(folder)), damage_(damage) {}

  Result<GivenBack> run() {
    Result<FolderLock> lock = FolderLock::take(folder_);
    if (!lock) return lock.error();
    if (Result<void> found = find_kept(); !found) return found.error();
    if (Result<void> read = read_journal(); !read) return read.error();
    for (const auto& [number, known] : knowledge_) {
      if (Result<void> done = restore(number, known); !done) return done.error();
    }
    if (Result<void> done = end_journal(); !done) return done.error();
    if (Result<void> done = rename_logs(); !done) return done.error();
    return result_;
  }

 private:
  Result<void> find_kept() {
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator(memlith_folder(folder_), error)) {
      if (const std::optional<LogName> name = log_name_of(each.path().string())) kept_.push_back(name->number);
    }
    if (!error) return {};
    return Error(MEMLITH_IO, "cannot list the folder " + memlith_folder(folder_) + ": " + error.message());
  }

  // Nothing is acknowledged before the store and the journal are there, and they go last.
  Result<void> without_journal(const Error& error) {
    const bool is_damage = error.category() == MEMLITH_CORRUPT || error.category() == MEMLITH_INCOMPATIBLE;
    if (error.category() != MEMLITH_NOT_FOUND && (!is_damage || damage_ == Damage::refuse)) return error;
    log_.reset();
    store_.reset();
    if (kept_.empty() || damage_ == Damage::accept) return {};
    return damaged("the journal in " + store_path(folder_) + " is missing, but logs of the database are there");
  }

  Result<void> read_journal() {
    Result<memlith::Store> store = memlith::Store::open(store_path(folder_));
    if (!store) return without_journal(store.error());
    store_.emplace(std::move(*store));
    Result<memlith::AppLog> log = memlith::AppLog::open(*store_, kLogName);
    if (!log) return without_journal(log.error());
    log_.emplace(std::move(*log));
    while (true) {
      const Result<std::optional<memlith::LogEntry>> read = log_->read();
      if (!read) return without_journal(read.error());
      if (!read->has_value()) return {};
      const std::optional<JournalEntry> entry = entry_in((*read)->content);
      if (!entry) {
        return Error(MEMLITH_INCOMPATIBLE, "entry " + std::to_string((*read)->number) + " of the journal in " +
                                               store_path(folder_) + " is of another version of memlith");
      }
      learn(knowledge_, *entry);
    }
  }

  Result<void> restore(std::uint64_t number, const Known& known) {
    const std::string kept = kept_path(folder_, number);
    const std::string plain = plain_path(folder_, number);
    std::error_code error;
    const bool is_plain = !is_there(kept) && std::filesystem::is_regular_file(plain, error);
    const std::string& path = is_plain ? plain : kept;
    if (!is_there(path)) return known.is_gone ? Result<void>() : judge("the log " + plain + " is missing");
    Result<File> file = File::open(path, O_RDWR);
    if (!file) return file.error();
    std::uint64_t covered = known.claim.bytes;
    for (const LoggedBytes& piece : known.pieces) {
      if (piece.offset > covered && !known.is_gone) {
        const std::string what = "the journal lacks bytes " + std::to_string(covered) + " to " +
                                 std::to_string(piece.offset) + " of the log " + plain;
        if (Result<void> judged = judge(what); !judged) return judged;
      }
      if (Result<void> written = file->write_at(piece.offset, piece.bytes); !written) return written;
      covered = std::max(covered, piece.offset + piece.bytes.size());
      result_.replayed_bytes += piece.bytes.size();
    }
    // RocksDB does not need a log that was to be removed, and the journal may lack bytes of it.
    if (!known.is_gone) {
      if (Result<void> right = check(*file, plain, known.claim, covered); !right) return right;
    }
    return file->sync_data();
  }

  Result<void> check(const File& file, const std::string& plain, const Claim& claim, std::uint64_t covered) {
    const Result<std::uint64_t> size = file.size();
    if (!size) return size.error();
    if (*size < covered) {
      return judge("the log " + plain + " has " + std::to_string(*size) + " bytes, but " + std::to_string(covered) +
                   " were acknowledged");
    }
    const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(), XXH3_freeState);
    XXH3_64bits_reset(hash.get());
    std::string buffer(kStepBytes, '\0');
    file.read_ahead(claim.bytes);  // many requests at a time, and RocksDB reads the same bytes next
    for (std::uint64_t at = 0; at < claim.bytes;) {
      const Result<std::string_view> bytes =
          file.read_at(at, buffer.data(), std::min<std::uint64_t>(kStepBytes, claim.bytes - at));
      if (!bytes) return bytes.error();
      if (bytes->empty()) return errno_error("cannot read " + plain);
      XXH3_64bits_update(hash.get(), bytes->data(), bytes->size());
      at += bytes->size();
    }
    if (claim.bytes == 0 || XXH3_64bits_digest(hash.get()) == claim.checksum) return {};
    return judge("the log " + plain + " is damaged: its first " + std::to_string(claim.bytes) +
                 " bytes are not those that were written");
  }

  Result<void> judge(const std::string& what) {
    if (damage_ == Damage::refuse) return damaged(what);
    std::fprintf(stderr, "memlith: %s; accepted\n", what.c_str());
    return {};
  }

  // ORDER rocksdb-released-before-rename: from the first renaming on a RocksDB without memlith may open the database,
  // and remove logs. The journal must not miss them later. [test RocksdbOrders.AReleasedJournalMissesNothing]
  Result<void> end_journal() {
    if (!log_) return {};
    const Result<std::uint64_t> number = log_->append(entry_of({.kind = Kind::released}));
    if (!number) return number.error();
    if (Result<void> written = log_->write(); !written) return written;
    if (Result<void> closed = log_->close(); !closed) return closed;
    return store_->close();
  }

  Result<void> rename_logs() {
    for (const std::uint64_t number : kept_) {
      Result<void> renamed = rename_file(kept_path(folder_, number), plain_path(folder_, number));
      if (!renamed) return renamed;
      ++result_.logs;
    }
    // ORDER rocksdb-names-before-removal: the store is the sign that names may not be there yet. [test
    // RocksdbOrders.NamesAreDurableBeforeTheStoreGoes]
    if (Result<void> durable = sync_folder(folder_); !durable) return durable;
    if (Result<void> durable = sync_folder(memlith_folder(folder_)); !durable) return durable;
    if (Result<void> removed = remove_dangling(); !removed) return removed;
    if (Result<void> removed = put_store_away(); !removed) return removed;
    return remove_folder_tree(memlith_folder(folder_));
  }

  // ORDER rocksdb-away-before-removal: a store of which a crash leaves a part would be taken for a damaged one. [test
  // RocksdbOrders.TheStoreIsPutAwayBeforeItIsRemoved]
  Result<void> put_store_away() {
    if (!is_there(store_path(folder_))) return {};
    if (Result<void> removed = remove_folder_tree(removed_path(folder_)); !removed) return removed;
    if (Result<void> renamed = rename_file(store_path(folder_), removed_path(folder_)); !renamed) return renamed;
    return sync_folder(memlith_folder(folder_));
  }

  // Links of logs whose file is gone, or never came.
  Result<void> remove_dangling() {
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator(folder_, error)) {
      const std::string path = each.path().string();
      std::error_code why;
      if (!log_name_of(path) || !each.is_symlink(why) || std::filesystem::read_symlink(path, why) != kLinkText)
        continue;
      if (Result<void> removed = remove_file(path); !removed) return removed;
    }
    if (!error) return {};
    return Error(MEMLITH_IO, "cannot list the folder " + folder_ + ": " + error.message());
  }

  const std::string folder_;
  const Damage damage_;
  std::vector<std::uint64_t> kept_;
  Knowledge knowledge_;
  std::optional<memlith::Store> store_;
  std::optional<memlith::AppLog> log_;
  GivenBack result_;
};

}  // namespace

Result<GivenBack> give_back(const std::string& folder, Damage damage) {
  if (!is_there(memlith_folder(folder))) return GivenBack{};
  return GiveBack(folder, damage).run();
}

}  // namespace memlith_rocksdb
