// Berkeley DB: a B-tree in a transactional environment, a transaction for each change.
#include <db.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>

#include "kit/try.hpp"
#include "peer.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kCacheBytesMin = 64ull << 20;
constexpr std::uint32_t kLocksMax = 200'000;
constexpr std::uint32_t kLogBufferBytes = 1u << 20;
constexpr std::uint32_t kCheckpointKib = 64 * 1024;  // of log between two checkpoints
constexpr auto kCheckpointLook = std::chrono::milliseconds(100);
constexpr int kFileMode = 0600;
constexpr std::uint32_t kTakenBytes = 64 * 1024;  // the longest key or value that is read

MaybeFailure db_result(int code, std::string_view doing) {
  if (code == 0) return {};
  return peer_failure("berkeleydb", doing, ::db_strerror(code));
}

DBT db_text(std::string_view text) {
  DBT item{};
  item.data = const_cast<char*>(text.data());
  item.size = static_cast<std::uint32_t>(text.size());
  return item;
}

// Memory into which the library copies a key or a value.
class Taken {
 public:
  Taken() : memory_(kTakenBytes, '\0') {}
  DBT* item() {
    item_ = {};
    item_.data = memory_.data();
    item_.ulen = kTakenBytes;
    item_.flags = DB_DBT_USERMEM;
    return &item_;
  }
  // An item that begins as this text, and may be replaced by a longer one.
  DBT* item_with(std::string_view text) {
    DBT* const result = item();
    text.copy(memory_.data(), memory_.size());
    result->size = static_cast<std::uint32_t>(std::min(text.size(), memory_.size()));
    return result;
  }
  [[nodiscard]] std::string_view text() const { return {memory_.data(), item_.size}; }

 private:
  std::string memory_;
  DBT item_{};
};

class BerkeleySession final : public KvSession {
 public:
  BerkeleySession(DB_ENV* env, DB* db) : env_(env), db_(db) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change([&](DB_TXN* transaction) { return put_in(transaction, key, value); });
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    return change([&](DB_TXN* transaction) {
      int code = 0;
      for (std::size_t i = 0; i < pairs.size() && code == 0; ++i) {
        code = put_in(transaction, pairs[i].first, pairs[i].second);
      }
      return code;
    });
  }
  MaybeFailure remove(std::string_view key) override {
    return change([&](DB_TXN* transaction) {
      DBT name = db_text(key);
      const int code = db_->del(db_, transaction, &name, 0);
      return code == DB_NOTFOUND ? 0 : code;
    });
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    int code = DB_LOCK_DEADLOCK;
    while (code == DB_LOCK_DEADLOCK) {
      DBT name = db_text(key);
      code = db_->get(db_, nullptr, &name, value_.item(), 0);
    }
    found = code == 0;
    if (found) value.assign(value_.text());
    return code == DB_NOTFOUND ? MaybeFailure() : db_result(code, "get");
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    return change([&](DB_TXN* transaction) {
      int code = 0;
      found = true;
      for (std::size_t i = 0; i < pairs.size() && code == 0; ++i) {
        DBT name = db_text(pairs[i].first);
        code = db_->get(db_, transaction, &name, value_.item(), DB_RMW);
        if (code == 0) seen.assign(value_.text());
        found = found && code == 0;
        if (code == 0 || code == DB_NOTFOUND) code = put_in(transaction, pairs[i].first, pairs[i].second);
      }
      return code;
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return aborts_; }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    DBC* cursor = nullptr;
    MEMLITH_TOOL_TRY(db_result(db_->cursor(db_, nullptr, &cursor, 0), "cursor"));
    int code = cursor->get(cursor, key_.item_with(from), value_.item(), DB_SET_RANGE);
    while (code == 0 && count > 0) {
      visit(key_.text(), value_.text());
      if (--count > 0) code = cursor->get(cursor, key_.item(), value_.item(), DB_NEXT);
    }
    (void)cursor->close(cursor);
    const bool ended = code == DB_NOTFOUND || code == DB_LOCK_DEADLOCK;  // a scan that met a writer is shorter
    return ended ? MaybeFailure() : db_result(code, "scan");
  }

 private:
  int put_in(DB_TXN* transaction, std::string_view key, std::string_view value) {
    DBT name = db_text(key);
    DBT content = db_text(value);
    return db_->put(db_, transaction, &name, &content, 0);
  }
  template <class Act>
  MaybeFailure change(const Act& act) {
    for (;;) {
      DB_TXN* transaction = nullptr;
      MEMLITH_TOOL_TRY(db_result(env_->txn_begin(env_, nullptr, &transaction, 0), "begin"));
      const int code = act(transaction);
      if (code == 0) return db_result(transaction->commit(transaction, 0), "commit");
      (void)transaction->abort(transaction);
      if (code != DB_LOCK_DEADLOCK) return db_result(code, "changing");
      ++aborts_;
    }
  }

  std::uint64_t aborts_ = 0;
  DB_ENV* env_;
  DB* db_;
  Taken key_;
  Taken value_;
};

class BerkeleyStore final : public KvStore {
 public:
  ~BerkeleyStore() override {
    checkpoints_ = {};
    if (db_ != nullptr) (void)db_->close(db_, 0);
    if (opened_) (void)env_->txn_checkpoint(env_, 0, 0, DB_FORCE);
    if (env_ != nullptr) (void)env_->close(env_, 0);
  }
  BerkeleyStore() = default;
  BerkeleyStore(const BerkeleyStore&) = delete;
  BerkeleyStore& operator=(const BerkeleyStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    MEMLITH_TOOL_TRY(db_result(::db_env_create(&env_, 0), "db_env_create"));
    const std::uint64_t cache =
        options.cache_bytes != 0 ? options.cache_bytes : std::max(kCacheBytesMin, options.bytes_expected * 2);
    const auto gib = static_cast<std::uint32_t>(cache >> 30);
    const auto rest = static_cast<std::uint32_t>(cache & ((1u << 30) - 1));
    MEMLITH_TOOL_TRY(db_result(env_->set_cachesize(env_, gib, rest, 1), "cachesize"));
    MEMLITH_TOOL_TRY(db_result(env_->set_lg_bsize(env_, kLogBufferBytes), "lg_bsize"));
    MEMLITH_TOOL_TRY(db_result(env_->set_lk_detect(env_, DB_LOCK_DEFAULT), "lk_detect"));
    MEMLITH_TOOL_TRY(db_result(env_->set_lk_max_locks(env_, kLocksMax), "lk_max_locks"));
    MEMLITH_TOOL_TRY(db_result(env_->log_set_config(env_, DB_LOG_AUTO_REMOVE, 1), "log_set_config"));
    if (options.durability == KvDurability::none) {
      MEMLITH_TOOL_TRY(db_result(env_->set_flags(env_, DB_TXN_NOSYNC, 1), "set_flags"));
    }
    constexpr std::uint32_t kParts = DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK;
    constexpr std::uint32_t kFlags = DB_CREATE | DB_RECOVER | DB_PRIVATE | DB_THREAD | kParts;
    MEMLITH_TOOL_TRY(db_result(env_->open(env_, options.folder.c_str(), kFlags, kFileMode), "open"));
    opened_ = true;
    MEMLITH_TOOL_TRY(db_result(::db_create(&db_, env_, 0), "db_create"));
    constexpr std::uint32_t kOpen = DB_CREATE | DB_AUTO_COMMIT | DB_THREAD;
    MEMLITH_TOOL_TRY(db_result(db_->open(db_, nullptr, "peer.db", nullptr, DB_BTREE, kOpen, kFileMode), "open"));
    // The library makes no checkpoints by itself; its manual has the application run such a thread.
    checkpoints_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        (void)env_->txn_checkpoint(env_, kCheckpointKib, 0, 0);
        std::this_thread::sleep_for(kCheckpointLook);
      }
    });
    return {};
  }
  Result<std::unique_ptr<KvSession>> session() override { return make_session<BerkeleySession>(env_, db_); }

 private:
  DB_ENV* env_ = nullptr;
  DB* db_ = nullptr;
  bool opened_ = false;
  std::jthread checkpoints_;
};

}  // namespace

KvPeer berkeleydb_peer() {
  return {"berkeleydb", fmt::format("{}.{}.{}", DB_VERSION_MAJOR, DB_VERSION_MINOR, DB_VERSION_PATCH),
          "transactions as they come: each commit writes its log records and flushes them",
          "DB_TXN_NOSYNC: log records stay in the library's buffer until it is full, and are not flushed",
          open_as<BerkeleyStore>};
}

}  // namespace memlith::tool
