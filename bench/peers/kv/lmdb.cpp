// LMDB: a write transaction for each change.
#include <fmt/format.h>
#include <lmdb.h>

#include <algorithm>

#include "kv.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kLmdbMapBytesMin = 256ull << 20;
constexpr unsigned kLmdbReaders = 126;  // LMDB's own default
constexpr unsigned kLmdbFileMode = 0600;

MaybeFailure lmdb_result(int code, std::string_view doing) {
  if (code == MDB_SUCCESS) return {};
  return peer_failure("lmdb", doing, ::mdb_strerror(code));
}

MDB_val lmdb_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }
std::string_view text_of(const MDB_val& value) { return {static_cast<const char*>(value.mv_data), value.mv_size}; }

class LmdbSession final : public KvSession {
 public:
  LmdbSession(MDB_env* env, MDB_dbi table) : env_(env), table_(table) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change([&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      MDB_val content = lmdb_value(value);
      return ::mdb_put(transaction, table_, &name, &content, 0);
    });
  }
  MaybeFailure remove(std::string_view key) override {
    return change([&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      const int code = ::mdb_del(transaction, table_, &name, nullptr);
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    return read([&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      MDB_val content{};
      const int code = ::mdb_get(transaction, table_, &name, &content);
      found = code == MDB_SUCCESS;
      if (found) value.assign(text_of(content));
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    return read([&](MDB_txn* transaction) {
      MDB_cursor* cursor = nullptr;
      int code = ::mdb_cursor_open(transaction, table_, &cursor);
      if (code != MDB_SUCCESS) return code;
      MDB_val name = lmdb_value(from);
      MDB_val content{};
      for (code = ::mdb_cursor_get(cursor, &name, &content, MDB_SET_RANGE); code == MDB_SUCCESS && count > 0;
           code = ::mdb_cursor_get(cursor, &name, &content, MDB_NEXT), --count) {
        visit(text_of(name), text_of(content));
      }
      ::mdb_cursor_close(cursor);
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }

 private:
  template <class Act>
  MaybeFailure change(const Act& act) {
    MDB_txn* transaction = nullptr;
    if (auto failure = lmdb_result(::mdb_txn_begin(env_, nullptr, 0, &transaction), "begin")) return failure;
    if (auto failure = lmdb_result(act(transaction), "changing")) {
      ::mdb_txn_abort(transaction);
      return failure;
    }
    return lmdb_result(::mdb_txn_commit(transaction), "commit");
  }
  template <class Act>
  MaybeFailure read(const Act& act) {
    MDB_txn* transaction = nullptr;
    if (auto failure = lmdb_result(::mdb_txn_begin(env_, nullptr, MDB_RDONLY, &transaction), "begin")) return failure;
    auto failure = lmdb_result(act(transaction), "reading");
    ::mdb_txn_abort(transaction);
    return failure;
  }

  MDB_env* env_;
  MDB_dbi table_;
};

class LmdbStore final : public KvStore {
 public:
  LmdbStore(MDB_env* env) : env_(env) {}
  ~LmdbStore() override { ::mdb_env_close(env_); }
  LmdbStore(const LmdbStore&) = delete;
  LmdbStore& operator=(const LmdbStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    const std::uint64_t map_bytes = std::max(kLmdbMapBytesMin, options.bytes_expected * 4);
    if (auto failure = lmdb_result(::mdb_env_set_mapsize(env_, map_bytes), "mapsize")) return failure;
    if (auto failure = lmdb_result(::mdb_env_set_maxreaders(env_, kLmdbReaders), "maxreaders")) return failure;
    const unsigned flags = options.durability == KvDurability::sync ? 0 : MDB_NOSYNC;
    if (auto failure = lmdb_result(::mdb_env_open(env_, options.folder.c_str(), flags, kLmdbFileMode), "open")) {
      return failure;
    }
    MDB_txn* transaction = nullptr;
    if (auto failure = lmdb_result(::mdb_txn_begin(env_, nullptr, 0, &transaction), "begin")) return failure;
    if (auto failure = lmdb_result(::mdb_dbi_open(transaction, nullptr, 0, &table_), "opening the table")) {
      ::mdb_txn_abort(transaction);
      return failure;
    }
    return lmdb_result(::mdb_txn_commit(transaction), "commit");
  }
  Result<std::unique_ptr<KvSession>> session() override {
    return std::unique_ptr<KvSession>(std::make_unique<LmdbSession>(env_, table_));
  }

 private:
  MDB_env* env_;
  MDB_dbi table_ = 0;
};

Result<std::unique_ptr<KvStore>> open_lmdb(const KvOptions& options) {
  MDB_env* env = nullptr;
  if (auto failure = lmdb_result(::mdb_env_create(&env), "create")) return *failure;
  auto store = std::make_unique<LmdbStore>(env);
  if (auto failure = store->open(options)) return *failure;
  return std::unique_ptr<KvStore>(std::move(store));
}

}  // namespace

KvPeer lmdb_peer() {
  return {"lmdb", fmt::format("{}.{}.{}", MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH),
          "no flags: each commit writes its pages, calls fdatasync, and writes the new root through O_DSYNC",
          "MDB_NOSYNC: nothing is flushed", open_lmdb};
}

}  // namespace memlith::tool
