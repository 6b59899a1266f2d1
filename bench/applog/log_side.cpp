#include "applog_bench.hpp"
#include "cli/clock.hpp"
#include "kit/random.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kEntriesPerCommit = 100;
constexpr std::uint64_t kRecords = 10'000;  // of the kv store
constexpr std::uint64_t kContentSeed = 7;

template <class T>
MaybeFailure log_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

}  // namespace

Result<std::unique_ptr<LogSide>> LogSide::open(const std::string& folder, const Backend& backend,
                                               const Options& options) {
  auto side = std::unique_ptr<LogSide>(new LogSide(options));
  side->content_.resize((options.entry_bytes + 7) / 8 * 8);
  Random(kContentSeed).fill(std::as_writable_bytes(std::span(side->content_)));
  side->content_.resize(options.entry_bytes);
  Result<std::string> place = backend.make_place(folder);
  if (!place.ok()) return std::move(place.failure());
  auto store = Store::open(*place, {.create = true, .io = backend.io});
  if (MaybeFailure failure = log_failure(store, "opening a store")) return *failure;
  side->store_.emplace(std::move(*store));
  const WhenFull when_full = options.consumed ? WhenFull::block : WhenFull::fail;
  auto log = AppLog::open(*side->store_, "log", {.create = true, .when_full = when_full, .size = options.log_bytes});
  if (MaybeFailure failure = log_failure(log, "opening a log")) return *failure;
  side->log_.emplace(std::move(*log));
  if (!options.consumed) return side;
  auto kv = Kv::open(*side->store_, "kv", {.create = true});
  if (MaybeFailure failure = log_failure(kv, "opening a kv store")) return *failure;
  side->kv_.emplace(std::move(*kv));
  auto map = side->kv_->map("map", {.create = true});
  if (MaybeFailure failure = log_failure(map, "opening a map")) return *failure;
  side->map_ = *map;
  side->consumer_ = std::thread([raw = side.get()] { raw->consume(); });
  return side;
}

LogSide::~LogSide() { (void)stop(); }

MaybeFailure LogSide::stop() {
  stopping_ = true;
  if (consumer_.joinable()) consumer_.join();
  return consumer_failure_;
}

MaybeFailure LogSide::round(std::uint64_t& elapsed_ns) {
  for (;;) {
    const std::uint64_t start = now_ns();
    if (auto done = log_->append(content_); !done) {
      if (options_.consumed || done.error().category() != MEMLITH_FULL) return log_failure(done, "appending");
      if (MaybeFailure failure = empty()) return failure;
      continue;
    }
    if (options_.wait) {
      if (MaybeFailure failure = log_failure(log_->write(), "writing the log")) return failure;
    } else {
      if (MaybeFailure failure = log_failure(log_->write_weak(), "writing the log")) return failure;
    }
    elapsed_ns = now_ns() - start;
    return {};
  }
}

MaybeFailure LogSide::empty() {
  const std::lock_guard lock(emptying_);
  if (MaybeFailure failure = log_failure(log_->write(), "writing the log")) return failure;
  std::uint64_t newest = 0;
  for (;;) {
    auto entry = log_->read();
    if (MaybeFailure failure = log_failure(entry, "reading the log")) return failure;
    if (!*entry) break;
    newest = (*entry)->number;
  }
  return newest == 0 ? MaybeFailure() : log_failure(log_->consume(newest), "consuming");
}

void LogSide::consume() {
  auto txn = kv_->begin();
  consumer_failure_ = log_failure(txn, "beginning a transaction");
  while (!consumer_failure_ && !stopping_) {
    bool any = false;
    if (auto moved = move_some(*txn, any); !moved) consumer_failure_ = log_failure(moved, "consuming the log");
    if (any && !consumer_failure_) consumer_failure_ = log_failure(txn->renew(), "beginning a transaction");
  }
}

memlith::Result<void> LogSide::move_some(KvTransaction& txn, bool& any) {
  std::uint64_t newest = 0;
  for (std::uint64_t moved = 0; moved < kEntriesPerCommit; ++moved) {
    auto entry = log_->read(moved == 0 ? 20 : 0);
    if (!entry) return entry.error();
    if (!*entry) break;
    newest = (*entry)->number;
    auto put = txn.put(map_, IntegerKey(newest % kRecords), (*entry)->content);
    if (!put) return put;
  }
  any = newest != 0;
  if (!any) return {};
  auto both = store_->begin();
  if (!both) return both.error();
  if (auto joined = txn.join(*both); !joined) return joined;
  if (auto consumed = log_->consume_in(*both, newest); !consumed) return consumed;
  if (auto done = both->commit_weak(); !done) return done.error();
  return {};
}

double LogSide::laps() const {
  const auto info = log_->info();
  const std::uint64_t each = (options_.entry_bytes + 24 + 7) / 8 * 8;
  return static_cast<double>(info->newest * each) / static_cast<double>(info->size);
}

}  // namespace memlith::tool
