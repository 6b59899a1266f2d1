// LMDB: a write transaction for each change; and, for suite kvcalls, its own ways of the calls.
#include <fmt/format.h>
#include <lmdb.h>

#include <algorithm>

#include "cli/clock.hpp"
#include "kit/try.hpp"
#include "peer.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kLmdbMapBytesMin = 256ull << 20;
constexpr unsigned kLmdbMapsMax = 4;
constexpr unsigned kLmdbFileMode = 0600;

MaybeFailure lmdb_result(int code, std::string_view doing) {
  if (code == MDB_SUCCESS) return {};
  return peer_failure("lmdb", doing, ::mdb_strerror(code));
}

MDB_val lmdb_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }
std::string_view text_of(const MDB_val& value) { return {static_cast<const char*>(value.mv_data), value.mv_size}; }

// A transaction that writes, and one that reads.
template <class Act>
MaybeFailure lmdb_change(MDB_env* env, const Act& act) {
  MDB_txn* transaction = nullptr;
  MEMLITH_TOOL_TRY(lmdb_result(::mdb_txn_begin(env, nullptr, 0, &transaction), "begin"));
  if (auto failure = lmdb_result(act(transaction), "changing")) {
    ::mdb_txn_abort(transaction);
    return failure;
  }
  return lmdb_result(::mdb_txn_commit(transaction), "commit");
}
template <class Act>
MaybeFailure lmdb_read(MDB_env* env, const Act& act) {
  MDB_txn* transaction = nullptr;
  MEMLITH_TOOL_TRY(lmdb_result(::mdb_txn_begin(env, nullptr, MDB_RDONLY, &transaction), "begin"));
  auto failure = lmdb_result(act(transaction), "reading");
  ::mdb_txn_abort(transaction);
  return failure;
}

int lmdb_put(MDB_txn* transaction, MDB_dbi table, std::string_view key, std::string_view value, unsigned flags = 0) {
  MDB_val name = lmdb_value(key);
  MDB_val content = lmdb_value(value);
  return ::mdb_put(transaction, table, &name, &content, flags);
}

class LmdbSession final : public KvSession {
 public:
  LmdbSession(MDB_env* env, MDB_dbi table) : env_(env), table_(table) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) { return lmdb_put(transaction, table_, key, value); });
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      int code = MDB_SUCCESS;
      for (std::size_t i = 0; i < pairs.size() && code == MDB_SUCCESS; ++i) {
        code = lmdb_put(transaction, table_, pairs[i].first, pairs[i].second);
      }
      return code;
    });
  }
  MaybeFailure remove(std::string_view key) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      const int code = ::mdb_del(transaction, table_, &name, nullptr);
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    return lmdb_read(env_, [&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      MDB_val content{};
      const int code = ::mdb_get(transaction, table_, &name, &content);
      found = code == MDB_SUCCESS;
      if (found) value.assign(text_of(content));
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      int code = MDB_SUCCESS;
      found = true;
      for (std::size_t i = 0; i < pairs.size() && code == MDB_SUCCESS; ++i) {
        MDB_val name = lmdb_value(pairs[i].first);
        MDB_val content{};
        code = ::mdb_get(transaction, table_, &name, &content);
        if (code == MDB_SUCCESS) seen.assign(text_of(content));
        found = found && code == MDB_SUCCESS;
        if (code == MDB_SUCCESS || code == MDB_NOTFOUND) {
          code = lmdb_put(transaction, table_, pairs[i].first, pairs[i].second);
        }
      }
      return code;
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return 0; }  // writers wait for each other
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    return lmdb_read(env_, [&](MDB_txn* transaction) {
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
  MDB_env* env_;
  MDB_dbi table_;
};

class LmdbCalls final : public CallSession {
 public:
  LmdbCalls(MDB_env* env, MDB_dbi table) : env_(env), table_(table) {}

  MaybeFailure fill(std::uint64_t count, Values& values, std::vector<std::uint64_t>& samples_ns) override {
    for (std::uint64_t first = 0; first < count; first += kBatchRecords) {
      const std::uint64_t start = now_ns();
      MEMLITH_TOOL_TRY(put_all(first, std::min(kBatchRecords, count - first), values, MDB_APPEND));
      samples_ns.push_back(now_ns() - start);
    }
    return lmdb_result(::mdb_env_sync(env_, 1), "flushing");
  }
  MaybeFailure put(std::string_view key, std::string_view value) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) { return lmdb_put(transaction, table_, key, value); });
  }
  MaybeFailure put_if(std::string_view key, std::string_view expected, std::string_view value, bool& done) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      MDB_val name = lmdb_value(key);
      MDB_val found{};
      const int code = ::mdb_get(transaction, table_, &name, &found);
      if (code != MDB_SUCCESS) return code;
      done = text_of(found) == expected;
      return done ? lmdb_put(transaction, table_, key, value) : MDB_SUCCESS;
    });
  }
  MaybeFailure put_range(std::uint64_t first, std::uint64_t count, Values& values) override {
    return put_all(first, count, values, 0);
  }
  MaybeFailure remove_range(std::string_view from, std::string_view to, std::uint64_t& count) override {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      count = 0;
      MDB_cursor* cursor = nullptr;
      int code = ::mdb_cursor_open(transaction, table_, &cursor);
      if (code != MDB_SUCCESS) return code;
      MDB_val name = lmdb_value(from);
      MDB_val found{};
      code = ::mdb_cursor_get(cursor, &name, &found, MDB_SET_RANGE);
      while (code == MDB_SUCCESS && text_of(name) < to) {
        code = ::mdb_cursor_del(cursor, 0);
        if (code != MDB_SUCCESS) break;
        ++count;
        code = ::mdb_cursor_get(cursor, &name, &found, MDB_NEXT);
      }
      ::mdb_cursor_close(cursor);
      return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
    });
  }
  MaybeFailure remove_map() override {
    return lmdb_change(env_, [&](MDB_txn* transaction) { return ::mdb_drop(transaction, table_, 1); });
  }
  Result<std::uint64_t> data_bytes() override {
    MDB_stat stat{};
    MEMLITH_TOOL_TRY(lmdb_read(env_, [&](MDB_txn* transaction) { return ::mdb_stat(transaction, table_, &stat); }));
    return (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * std::uint64_t{stat.ms_psize};
  }

 private:
  MaybeFailure put_all(std::uint64_t first, std::uint64_t count, Values& values, unsigned flags) {
    return lmdb_change(env_, [&](MDB_txn* transaction) {
      int code = MDB_SUCCESS;
      for (std::uint64_t i = first; i < first + count && code == MDB_SUCCESS; ++i) {
        code = lmdb_put(transaction, table_, number_key(i), values.numbered(i), flags);
      }
      return code;
    });
  }

  MDB_env* env_;
  MDB_dbi table_;
};

class LmdbStore final : public KvStore {
 public:
  ~LmdbStore() override { ::mdb_env_close(env_); }
  LmdbStore() = default;
  LmdbStore(const LmdbStore&) = delete;
  LmdbStore& operator=(const LmdbStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    const std::uint64_t map_bytes = std::max(kLmdbMapBytesMin, options.bytes_expected * 4);
    unsigned flags = options.durability == KvDurability::sync ? 0 : MDB_NOSYNC;
    const bool is_larger = options.memory_bytes != 0 && options.bytes_expected > options.memory_bytes;
    if (is_larger) flags |= MDB_NORDAHEAD;  // as its documentation advises for data larger than memory
    MEMLITH_TOOL_TRY(lmdb_result(::mdb_env_create(&env_), "create"));
    MEMLITH_TOOL_TRY(lmdb_result(::mdb_env_set_mapsize(env_, map_bytes), "mapsize"));
    MEMLITH_TOOL_TRY(lmdb_result(::mdb_env_set_maxreaders(env_, kThreadsMax + 100), "maxreaders"));
    MEMLITH_TOOL_TRY(lmdb_result(::mdb_env_set_maxdbs(env_, kLmdbMapsMax), "maxdbs"));
    return lmdb_result(::mdb_env_open(env_, options.folder.c_str(), flags, kLmdbFileMode), "open");
  }
  Result<std::unique_ptr<KvSession>> session() override {
    MEMLITH_TOOL_GET(const MDB_dbi table, table_of(nullptr, 0));
    return make_session<LmdbSession>(env_, table);
  }
  Result<std::unique_ptr<CallSession>> calls(const std::string& map) override {
    MEMLITH_TOOL_GET(const MDB_dbi table, table_of(map.c_str(), MDB_CREATE));
    return std::unique_ptr<CallSession>(std::make_unique<LmdbCalls>(env_, table));
  }

 private:
  Result<MDB_dbi> table_of(const char* name, unsigned flags) {
    MDB_dbi table = 0;
    MEMLITH_TOOL_TRY(lmdb_change(env_, [&](MDB_txn* transaction) {
      return ::mdb_dbi_open(transaction, name, flags, &table);
    }));
    return table;
  }

  MDB_env* env_ = nullptr;
};

}  // namespace

KvPeer lmdb_peer() {
  return {"lmdb",
          fmt::format("{}.{}.{}", MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH),
          "no flags: each commit writes its pages, calls fdatasync, and writes the new root through O_DSYNC",
          "MDB_NOSYNC: nothing is flushed",
          open_as<LmdbStore>,
          {"mdb_drop beside transactions of one mdb_put each, MDB_NOSYNC",
           "MDB_APPEND, transactions of 1,000 mdb_put each, MDB_NOSYNC, and mdb_env_sync at the end",
           "mdb_get, a comparison and mdb_put, MDB_NOSYNC", "mdb_cursor_del, one record after the other, MDB_NOSYNC"}};
}

}  // namespace memlith::tool
