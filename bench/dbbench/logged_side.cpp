#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "dbbench.hpp"
#include "memlith/applog.hpp"
#include "memlith/kv.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kEntriesPerCommit = 100;
constexpr std::uint64_t kLogBytes = 64ull << 20;
constexpr std::uint64_t kWaitMs = 20;

template <class T>
MaybeFailure side_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

// An entry: one letter, 4 bytes with the length of the key, the key, the value.
enum Kind : char { kPut = 'p', kRemove = 'd' };

class LoggedKvStore final : public KvStore {
 public:
  ~LoggedKvStore() override {
    stopping_ = true;
    if (consumer_.joinable()) consumer_.join();
  }
  LoggedKvStore() = default;
  LoggedKvStore(const LoggedKvStore&) = delete;
  LoggedKvStore& operator=(const LoggedKvStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options, const Backend& backend) {
    waits_ = options.durability == KvDurability::sync;
    Result<std::string> place = backend.make_place(options.folder + "/store");
    if (!place.ok()) return std::move(place.failure());
    auto store = Store::open(*place, {.create = true, .io = backend.io});
    if (auto failure = side_failure(store, "opening a store")) return failure;
    store_.emplace(std::move(*store));
    auto log = AppLog::open(*store_, "log", {.create = true, .when_full = WhenFull::block, .size = kLogBytes});
    if (auto failure = side_failure(log, "opening a log")) return failure;
    log_.emplace(std::move(*log));
    auto kv = Kv::open(*store_, "kv", {.create = true});
    if (auto failure = side_failure(kv, "opening a kv store")) return failure;
    kv_.emplace(std::move(*kv));
    auto map = kv_->map("map", {.create = true});
    if (auto failure = side_failure(map, "opening a map")) return failure;
    map_ = *map;
    consumer_ = std::thread([this] { consume(); });
    return {};
  }

  Result<std::unique_ptr<KvSession>> session() override;

  [[nodiscard]] MaybeFailure log(Kind kind, std::string_view key, std::string_view value) {
    char head[5] = {kind};
    const auto bytes = static_cast<std::uint32_t>(key.size());
    std::memcpy(head + 1, &bytes, sizeof bytes);
    std::string entry;
    entry.reserve(sizeof head + key.size() + value.size());
    entry.append(head, sizeof head).append(key).append(value);
    auto number = log_->append(entry);
    if (auto failure = side_failure(number, "appending")) return failure;
    newest_ = *number;
    return waits_ ? side_failure(log_->write(), "writing the log")
                  : side_failure(log_->write_weak(), "writing the log");
  }
  // Everything that was logged is in the kv store.
  [[nodiscard]] MaybeFailure settle() {
    if (auto failure = side_failure(log_->write(), "writing the log")) return failure;
    while (consumed_ < newest_ && !failed_) std::this_thread::yield();
    return failed_ ? failure_ : MaybeFailure();
  }
  [[nodiscard]] Kv& kv() { return *kv_; }
  [[nodiscard]] KvMap map() const { return map_; }

 private:
  void consume() {
    auto txn = kv_->begin();
    failure_ = side_failure(txn, "beginning a transaction");
    while (!failure_ && !stopping_) {
      std::uint64_t newest = 0;
      if (auto moved = move_some(*txn, newest); !moved) failure_ = side_failure(moved, "consuming the log");
      if (newest == 0 || failure_) continue;
      consumed_ = newest;
      failure_ = side_failure(txn->renew(), "beginning a transaction");
    }
    failed_ = failure_.has_value();
  }
  memlith::Result<void> move_some(KvTransaction& txn, std::uint64_t& newest) {
    for (std::uint64_t moved = 0; moved < kEntriesPerCommit; ++moved) {
      auto entry = log_->read(moved == 0 ? kWaitMs : 0);
      if (!entry) return entry.error();
      if (!*entry) break;
      std::string_view content = (*entry)->content;
      std::uint32_t bytes = 0;
      std::memcpy(&bytes, content.data() + 1, sizeof bytes);
      const std::string_view key = content.substr(5, bytes);
      if (content[0] == kPut) {
        if (auto put = txn.put(map_, key, content.substr(5 + bytes)); !put) return put;
      } else if (auto gone = txn.remove(map_, key); !gone && gone.error().category() != MEMLITH_NOT_FOUND) {
        return gone;
      }
      newest = (*entry)->number;
    }
    if (newest == 0) return {};
    auto both = store_->begin();
    if (!both) return both.error();
    if (auto joined = txn.join(*both); !joined) return joined;
    if (auto consumed = log_->consume_in(*both, newest); !consumed) return consumed;
    if (auto done = both->commit_weak(); !done) return done.error();
    return {};
  }

  bool waits_ = true;
  std::optional<Store> store_;
  std::optional<AppLog> log_;
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  std::atomic<std::uint64_t> newest_{0};
  std::atomic<std::uint64_t> consumed_{0};
  std::atomic<bool> stopping_{false};
  MaybeFailure failure_;  // the consumer's; others look at it when failed_
  std::atomic<bool> failed_{false};
  std::thread consumer_;
};

class LoggedKvSession final : public KvSession {
 public:
  LoggedKvSession(LoggedKvStore& store, KvTransaction reader) : store_(store), reader_(std::move(reader)) {
    (void)reader_.abort();
  }
  MaybeFailure put(std::string_view key, std::string_view value) override { return store_.log(kPut, key, value); }
  MaybeFailure remove(std::string_view key) override { return store_.log(kRemove, key, {}); }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    return read([&]() -> memlith::Result<void> {
      const auto seen = reader_.find(store_.map(), key);
      if (!seen) return seen.error();
      found = seen->has_value();
      if (found) value.assign(**seen);
      return {};
    });
  }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    return read([&] {
      return reader_.get_range(store_.map(), from, {}, [&](std::string_view key, std::string_view value) {
        if (count == 0) return false;
        visit(key, value);
        return --count > 0;
      });
    });
  }
  MaybeFailure finish() override { return store_.settle(); }

 private:
  template <class Act>
  MaybeFailure read(const Act& act) {
    if (auto failure = side_failure(reader_.renew(), "beginning a transaction")) return failure;
    auto failure = side_failure(act(), "reading");
    (void)reader_.abort();
    return failure;
  }
  LoggedKvStore& store_;
  KvTransaction reader_;
};

Result<std::unique_ptr<KvSession>> LoggedKvStore::session() {
  auto reader = kv_->begin({.read_only = true});
  if (auto failure = side_failure(reader, "beginning a transaction")) return *failure;
  return std::unique_ptr<KvSession>(std::make_unique<LoggedKvSession>(*this, std::move(*reader)));
}

}  // namespace

Result<std::unique_ptr<KvStore>> open_logged_kv(const KvOptions& options, const Backend& backend) {
  auto store = std::make_unique<LoggedKvStore>();
  if (auto failure = store->open(options, backend)) return *failure;
  return std::unique_ptr<KvStore>(std::move(store));
}

}  // namespace memlith::tool
