// LMDB as a side, without a flush for each transaction (MDB_NOSYNC), as memlith's weak commits have none.
#include <fmt/format.h>
#include <lmdb.h>

#include <algorithm>
#include <map>

#include "cli/clock.hpp"
#include "kvcalls.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kMapBytesMin = 256ull << 20;
constexpr unsigned kMapsMax = 4;
constexpr unsigned kFileMode = 0600;

MaybeFailure lmdb_result(int code, std::string_view doing) {
  if (code == MDB_SUCCESS) return {};
  return tool_failure(MEMLITH_IO, fmt::format("lmdb: {}: {}", doing, ::mdb_strerror(code)));
}

MDB_val lmdb_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }
std::string_view text_of(const MDB_val& value) { return {static_cast<const char*>(value.mv_data), value.mv_size}; }

class LmdbCalls final : public CallsStore {
 public:
  explicit LmdbCalls(MDB_env* env) : env_(env) {}
  ~LmdbCalls() override { ::mdb_env_close(env_); }
  LmdbCalls(const LmdbCalls&) = delete;
  LmdbCalls& operator=(const LmdbCalls&) = delete;

  [[nodiscard]] MaybeFailure open(const std::string& folder, std::uint64_t bytes_expected) {
    const std::uint64_t map_bytes = std::max(kMapBytesMin, bytes_expected * 4);
    if (auto failure = lmdb_result(::mdb_env_set_mapsize(env_, map_bytes), "mapsize")) return failure;
    if (auto failure = lmdb_result(::mdb_env_set_maxdbs(env_, kMapsMax), "maxdbs")) return failure;
    return lmdb_result(::mdb_env_open(env_, folder.c_str(), MDB_NOSYNC, kFileMode), "open");
  }
  MaybeFailure open_map(const std::string& map) override {
    return change([&](MDB_txn* txn) { return ::mdb_dbi_open(txn, map.c_str(), MDB_CREATE, &maps_[map]); });
  }
  MaybeFailure fill(const std::string& map, std::uint64_t count, Values& values,
                    std::vector<std::uint64_t>& samples_ns) override {
    for (std::uint64_t first = 0; first < count; first += kBatchRecords) {
      const std::uint64_t start = now_ns();
      if (auto failure = put_all(map, first, std::min(kBatchRecords, count - first), values, MDB_APPEND)) {
        return failure;
      }
      samples_ns.push_back(now_ns() - start);
    }
    return lmdb_result(::mdb_env_sync(env_, 1), "flushing");
  }
  MaybeFailure put(const std::string& map, std::string_view key, std::string_view value) override {
    return change([&](MDB_txn* txn) { return put_one(txn, maps_.at(map), key, value, 0); });
  }
  MaybeFailure put_if(const std::string& map, std::string_view key, std::string_view expected, std::string_view value,
                      bool& done) override {
    return change([&](MDB_txn* txn) {
      MDB_val name = lmdb_value(key);
      MDB_val found{};
      const int code = ::mdb_get(txn, maps_.at(map), &name, &found);
      if (code != MDB_SUCCESS) return code;
      done = text_of(found) == expected;
      return done ? put_one(txn, maps_.at(map), key, value, 0) : MDB_SUCCESS;
    });
  }
  MaybeFailure put_range(const std::string& map, std::uint64_t first, std::uint64_t count, Values& values) override {
    return put_all(map, first, count, values, 0);
  }
  MaybeFailure remove_range(const std::string& map, std::string_view from, std::string_view to,
                            std::uint64_t& count) override {
    return change([&](MDB_txn* txn) {
      count = 0;
      MDB_cursor* cursor = nullptr;
      int code = ::mdb_cursor_open(txn, maps_.at(map), &cursor);
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
  MaybeFailure remove_map(const std::string& map) override {
    return change([&](MDB_txn* txn) { return ::mdb_drop(txn, maps_.at(map), 1); });
  }
  Result<std::optional<std::uint64_t>> logged_bytes() override { return std::optional<std::uint64_t>(); }
  Result<std::uint64_t> data_bytes() override {
    std::uint64_t bytes = 0;
    auto failure = change([&](MDB_txn* txn) {
      for (const auto& [name, map] : maps_) {
        MDB_stat stat{};
        if (const int code = ::mdb_stat(txn, map, &stat); code != MDB_SUCCESS) return code;
        bytes += (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * stat.ms_psize;
      }
      return MDB_SUCCESS;
    });
    if (failure) return *failure;
    return bytes;
  }

 private:
  static int put_one(MDB_txn* txn, MDB_dbi map, std::string_view key, std::string_view value, unsigned flags) {
    MDB_val name = lmdb_value(key);
    MDB_val content = lmdb_value(value);
    return ::mdb_put(txn, map, &name, &content, flags);
  }
  MaybeFailure put_all(const std::string& map, std::uint64_t first, std::uint64_t count, Values& values,
                       unsigned flags) {
    return change([&](MDB_txn* txn) {
      int code = MDB_SUCCESS;
      for (std::uint64_t i = first; i < first + count && code == MDB_SUCCESS; ++i) {
        code = put_one(txn, maps_.at(map), key_of(i), values.at(i), flags);
      }
      return code;
    });
  }
  template <class Act>
  MaybeFailure change(const Act& act) {
    MDB_txn* txn = nullptr;
    if (auto failure = lmdb_result(::mdb_txn_begin(env_, nullptr, 0, &txn), "begin")) return failure;
    if (auto failure = lmdb_result(act(txn), "changing")) {
      ::mdb_txn_abort(txn);
      return failure;
    }
    return lmdb_result(::mdb_txn_commit(txn), "commit");
  }

  MDB_env* env_;
  std::map<std::string, MDB_dbi> maps_;
};

Result<std::unique_ptr<CallsStore>> open_lmdb(const std::string& folder, std::uint64_t bytes_expected) {
  MDB_env* env = nullptr;
  if (auto failure = lmdb_result(::mdb_env_create(&env), "create")) return *failure;
  auto store = std::make_unique<LmdbCalls>(env);
  if (auto failure = store->open(folder, bytes_expected)) return *failure;
  return std::unique_ptr<CallsStore>(std::move(store));
}

}  // namespace

CallsSide lmdb_calls_side() {
  return {"lmdb",
          fmt::format("{}.{}.{}", MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH),
          {"mdb_drop beside transactions of one mdb_put each, MDB_NOSYNC",
           "MDB_APPEND, transactions of 1,000 mdb_put each, MDB_NOSYNC, and mdb_env_sync at the end",
           "mdb_get, a comparison and mdb_put, MDB_NOSYNC", "mdb_cursor_del, one record after the other, MDB_NOSYNC"},
          open_lmdb};
}

}  // namespace memlith::tool
