// memlith's kv store behind an application log as a side.
#include <cstring>

#include "memlith.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kEntriesPerCommit = 100;
constexpr std::uint64_t kLoggedBytes = 64ull << 20;
constexpr std::uint64_t kWaitMs = 20;

// An entry: one letter, 4 bytes with the length of the key, the key, the value.
enum EntryKind : char { kPut = 'p', kRemove = 'd' };

class LoggedStore final : public KvStore {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    waits_ = options.durability == KvDurability::sync;
    MEMLITH_TOOL_GET(const std::string place, options.backend.make_place(options.folder + "/store"));
    MEMLITH_TOOL_TRY(opened_.open(place,
                                  {.create = true, .memory_max_bytes = options.cache_bytes, .io = options.backend.io}));
    const AppLogOptions log{.create = true, .when_full = WhenFull::block, .size = kLoggedBytes};
    MEMLITH_TOOL_GET(log_, checked(AppLog::open(*opened_.store, "log", log), "opening a log"));
    mover_.start(*opened_.store, *log_, *opened_.kv, [this](KvTransaction& txn, const LogEntry& entry) {
      std::uint32_t bytes = 0;
      std::memcpy(&bytes, entry.content.data() + 1, sizeof bytes);
      const std::string_view key = entry.content.substr(5, bytes);
      if (entry.content[0] == kPut) return txn.put(opened_.map, key, entry.content.substr(5 + bytes));
      auto gone = txn.remove(opened_.map, key);
      return !gone && gone.error().category() == MEMLITH_NOT_FOUND ? memlith::Result<void>() : gone;
    });
    return {};
  }
  Result<std::unique_ptr<KvSession>> session() override;

  [[nodiscard]] MaybeFailure log(EntryKind kind, std::string_view key, std::string_view value) {
    char head[5] = {kind};
    const auto bytes = static_cast<std::uint32_t>(key.size());
    std::memcpy(head + 1, &bytes, sizeof bytes);
    std::string entry;
    entry.reserve(sizeof head + key.size() + value.size());
    entry.append(head, sizeof head).append(key).append(value);
    MEMLITH_TOOL_GET(newest_, checked(log_->append(entry), "appending"));
    return waits_ ? failure_of(log_->write(), "writing the log") : failure_of(log_->write_weak(), "writing the log");
  }
  // Everything that was logged is in the kv store.
  [[nodiscard]] MaybeFailure wait_until_moved() {
    MEMLITH_TOOL_TRY(failure_of(log_->write(), "writing the log"));
    return mover_.wait(newest_);
  }

 private:
  bool waits_ = true;
  OpenedKv opened_;
  std::optional<AppLog> log_;
  std::atomic<std::uint64_t> newest_{0};
  LogMover mover_;  // ends first
};

class LoggedSession final : public MemlithSession {
 public:
  LoggedSession(LoggedStore& store, const KvUse& use, KvTransaction writer, KvTransaction reader)
      : MemlithSession(use, std::move(writer), std::move(reader)), store_(store) {}
  MaybeFailure put(std::string_view key, std::string_view value) override { return store_.log(kPut, key, value); }
  MaybeFailure put_all(std::span<const KvPair>) override {
    return tool_failure(MEMLITH_INVALID, "an application log takes changes one by one");
  }
  MaybeFailure remove(std::string_view key) override { return store_.log(kRemove, key, {}); }
  MaybeFailure finish() override { return store_.wait_until_moved(); }

 private:
  LoggedStore& store_;
};

Result<std::unique_ptr<KvSession>> LoggedStore::session() {
  const KvUse use{&*opened_.store, &*opened_.kv, opened_.map};
  MEMLITH_TOOL_GET(KvTransaction writer, use.transaction(false));
  MEMLITH_TOOL_GET(KvTransaction reader, use.transaction(true));
  return make_session<LoggedSession>(*this, use, std::move(writer), std::move(reader));
}

}  // namespace

void LogMover::start(Store& store, AppLog& log, Kv& kv, Apply apply) {
  apply_ = std::move(apply);
  thread_ = std::thread([this, &store, &log, &kv] {
    failure_ = move_all(store, log, kv);
    failed_ = failure_.has_value();
  });
}

MaybeFailure LogMover::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  return failure_;
}

MaybeFailure LogMover::wait(std::uint64_t number) const {
  while (moved_ < number && !failed_) std::this_thread::yield();
  return failed_ ? failure_ : MaybeFailure();
}

MaybeFailure LogMover::move_all(Store& store, AppLog& log, Kv& kv) {
  MEMLITH_TOOL_GET(KvTransaction txn, checked(kv.begin(), "beginning a transaction"));
  while (!stopping_) {
    std::uint64_t newest = 0;
    MEMLITH_TOOL_TRY(failure_of(move_some(store, log, txn, newest), "consuming the log"));
    if (newest == 0) continue;
    moved_ = newest;
    MEMLITH_TOOL_TRY(failure_of(txn.renew(), "beginning a transaction"));
  }
  return {};
}

memlith::Result<void> LogMover::move_some(Store& store, AppLog& log, KvTransaction& txn, std::uint64_t& newest) {
  for (std::uint64_t moved = 0; moved < kEntriesPerCommit; ++moved) {
    auto entry = log.read(moved == 0 ? kWaitMs : 0);
    if (!entry) return entry.error();
    if (!*entry) break;
    if (auto done = apply_(txn, **entry); !done) return done;
    newest = (*entry)->number;
  }
  if (newest == 0) return {};
  auto both = store.begin();
  if (!both) return both.error();
  if (auto joined = txn.join(*both); !joined) return joined;
  if (auto consumed = log.consume_in(*both, newest); !consumed) return consumed;
  if (auto done = both->commit_weak(); !done) return done.error();
  return {};
}

KvPeer logged_side() {
  return {"memlith-log", memlith_version(),
          "an operation is an entry of an application log, durable when the call returns; a thread moves the entries "
          "into the kv store",
          "the same, and the log is written without waiting", open_as<LoggedStore>};
}

}  // namespace memlith::tool
