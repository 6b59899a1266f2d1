// Kyoto Cabinet's TreeDB: a transaction for each change, as the paper on failure-atomic msync measured it.
#include <kcdb.h>
#include <kcdbext.h>
#include <kchashdb.h>

#include <algorithm>
#include <mutex>

#include "peer.hpp"

namespace memlith::tool {

namespace {

class KyotoStore final : public KvStore {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    using kyotocabinet::TreeDB;
    sync_ = options.durability == KvDurability::sync;
    // The map holds what is expected, so that the peer reads and writes memory; all else as it comes.
    const std::uint64_t map = std::max<std::uint64_t>(64ull << 20, options.bytes_expected * 2);
    db_.tune_map(static_cast<std::int64_t>(options.cache_bytes != 0 ? options.cache_bytes : map));
    if (options.cache_bytes != 0) db_.tune_page_cache(static_cast<std::int64_t>(options.cache_bytes));
    if (db_.open(options.folder + "/peer.kct", TreeDB::OWRITER | TreeDB::OCREATE)) return {};
    return failed("open");
  }
  Result<std::unique_ptr<KvSession>> session() override;

  // Transactions belong to the database, not to a thread.
  template <class Act>
  [[nodiscard]] MaybeFailure change(const Act& act) {
    const std::lock_guard lock(mutex_);
    if (!db_.begin_transaction(sync_)) return failed("begin_transaction");
    const bool done = act(db_);
    if (!db_.end_transaction(done) || !done) return failed("end_transaction");
    return {};
  }
  [[nodiscard]] MaybeFailure failed(std::string_view doing) {
    return peer_failure("kyoto-tree-tran", doing, db_.error().name());
  }
  [[nodiscard]] kyotocabinet::TreeDB& db() { return db_; }

 private:
  kyotocabinet::TreeDB db_;  // closes itself
  bool sync_ = false;
  std::mutex mutex_;
};

class KyotoSession final : public KvSession {
 public:
  explicit KyotoSession(KyotoStore& store) : store_(store) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return store_.change([&](kyotocabinet::TreeDB& db) {
      return db.set(key.data(), key.size(), value.data(), value.size());
    });
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    return store_.change([&](kyotocabinet::TreeDB& db) {
      return std::ranges::all_of(pairs, [&](const KvPair& pair) {
        return db.set(pair.first.data(), pair.first.size(), pair.second.data(), pair.second.size());
      });
    });
  }
  MaybeFailure remove(std::string_view key) override {
    return store_.change([&](kyotocabinet::TreeDB& db) {
      return db.remove(key.data(), key.size()) || db.error() == kyotocabinet::BasicDB::Error::NOREC;
    });
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    value.resize(kValueBytesMax);
    const std::int32_t bytes = store_.db().get(key.data(), key.size(), value.data(), value.size());
    found = bytes >= 0;
    value.resize(found ? static_cast<std::size_t>(bytes) : 0);
    if (!found && store_.db().error() != kyotocabinet::BasicDB::Error::NOREC) return store_.failed("get");
    return {};
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    return store_.change([&](kyotocabinet::TreeDB& db) {
      found = true;
      return std::ranges::all_of(pairs, [&](const KvPair& pair) {
        const bool there = db.get(pair.first, &seen);
        found = found && there;
        return (there || db.error() == kyotocabinet::BasicDB::Error::NOREC) &&
               db.set(pair.first.data(), pair.first.size(), pair.second.data(), pair.second.size());
      });
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return 0; }  // writers wait for each other
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    const std::unique_ptr<kyotocabinet::DB::Cursor> cursor(store_.db().cursor());
    std::string key;
    std::string value;
    for (bool there = cursor->jump(from.data(), from.size()); there && count > 0; --count) {
      there = cursor->get(&key, &value, true);
      if (there) visit(key, value);
    }
    return {};
  }

 private:
  static constexpr std::size_t kValueBytesMax = 64 * 1024;
  KyotoStore& store_;
};

Result<std::unique_ptr<KvSession>> KyotoStore::session() { return make_session<KyotoSession>(*this); }

}  // namespace

KvPeer kyoto_peer() {
  return {"kyoto-tree-tran", kyotocabinet::VERSION,
          "begin_transaction(hard): before-images go to a log that is flushed, then the file is",
          "begin_transaction(soft): the same writes, and nothing is flushed", open_as<KyotoStore>};
}

}  // namespace memlith::tool
