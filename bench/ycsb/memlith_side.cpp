// A kv store of memlith as a side: each change is a transaction; a session uses one handle again and again.
#include <fmt/format.h>

#include <optional>

#include "memlith/kv.hpp"
#include "ycsb.hpp"

namespace memlith::tool {

namespace {

template <class T>
MaybeFailure kv_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

class MemlithKvStore final : public CountedKvStore {
 public:
  explicit MemlithKvStore(Durability durability) : durability_(durability) {}

  [[nodiscard]] MaybeFailure open(const KvOptions& options, std::uint64_t window_ms, bool is_volatile) {
    auto store = Store::open(options.folder + "/store", {.create = true});
    if (MaybeFailure failure = kv_failure(store, "opening a store")) return failure;
    store_.emplace(std::move(*store));
    auto kv = Kv::open(*store_, "kv", {.create = true, .is_volatile = is_volatile, .window_ms = window_ms});
    if (MaybeFailure failure = kv_failure(kv, "opening a kv store")) return failure;
    kv_.emplace(std::move(*kv));
    auto map = kv_->map("map", true);
    if (MaybeFailure failure = kv_failure(map, "opening a map")) return failure;
    map_ = *map;
    return {};
  }
  Result<std::unique_ptr<KvSession>> session() override;
  KvCounts counts() override {
    KvCounts counts;
    if (auto info = kv_->info()) {
      counts.logged_bytes = info->logged_bytes;
      counts.data_bytes = (info->pages - info->free_pages) * info->page_bytes;
      counts.records = info->records;
    }
    counts.checkpoints = store_->info().checkpoints;
    return counts;
  }
  [[nodiscard]] Kv& kv() { return *kv_; }
  [[nodiscard]] KvMap map() const { return map_; }
  [[nodiscard]] Durability durability() const { return durability_; }

 private:
  std::optional<Store> store_;  // closed after the kv store
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  Durability durability_;
};

class MemlithKvSession final : public KvSession {
 public:
  MemlithKvSession(MemlithKvStore& store, KvTransaction writer, KvTransaction reader)
      : store_(store), writer_(std::move(writer)), reader_(std::move(reader)) {
    (void)writer_.abort();
    (void)reader_.abort();
  }
  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change([&] { return writer_.put(store_.map(), key, value); });
  }
  MaybeFailure remove(std::string_view key) override {
    return change([&]() -> memlith::Result<void> {
      auto removed = writer_.remove(store_.map(), key);
      if (!removed && removed.error().category() == MEMLITH_NOT_FOUND) return {};
      return removed;
    });
  }
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
  MaybeFailure finish() override { return kv_failure(store_.kv().persist(), "persisting"); }

 private:
  template <class Act>
  MaybeFailure change(const Act& act) {
    for (;;) {
      if (auto failure = kv_failure(writer_.renew(), "beginning a transaction")) return failure;
      const auto done = act();
      if (done) return kv_failure(writer_.commit(store_.durability()), "committing");
      if (done.error().category() != MEMLITH_CONFLICT) return kv_failure(done, "changing a record");
    }
  }
  template <class Act>
  MaybeFailure read(const Act& act) {
    if (auto failure = kv_failure(reader_.renew(), "beginning a transaction")) return failure;
    auto failure = kv_failure(act(), "reading");
    (void)reader_.abort();
    return failure;
  }
  MemlithKvStore& store_;
  KvTransaction writer_;
  KvTransaction reader_;
};

Result<std::unique_ptr<KvSession>> MemlithKvStore::session() {
  auto writer = kv_->begin();
  auto reader = kv_->begin(true);
  if (MaybeFailure failure = kv_failure(writer, "beginning a transaction")) return *failure;
  if (MaybeFailure failure = kv_failure(reader, "beginning a transaction")) return *failure;
  return std::unique_ptr<KvSession>(std::make_unique<MemlithKvSession>(*this, std::move(*writer), std::move(*reader)));
}

std::uint64_t window_of_sides_ms = 0;

template <bool kVolatile>
Result<std::unique_ptr<KvStore>> open_memlith(const KvOptions& options) {
  const bool sync = options.durability == KvDurability::sync;
  auto store = std::make_unique<MemlithKvStore>(sync ? Durability::sync : Durability::weak);
  if (MaybeFailure failure = store->open(options, window_of_sides_ms, kVolatile)) return *failure;
  return std::unique_ptr<KvStore>(std::move(store));
}

}  // namespace

KvPeer memlith_side(std::uint64_t window_ms) {
  window_of_sides_ms = window_ms;
  return {"memlith", memlith_version(), "each operation is a transaction with a sync commit: durable when it returns",
          fmt::format("each operation is a transaction with a weak commit: durable in order, within {} ms", window_ms),
          open_memlith<false>};
}

KvPeer volatile_side() {
  const std::string text = "the same tree and transactions, opened volatile: nothing is logged, nothing is durable";
  return {"memlith-no-durability", memlith_version(), text, text, open_memlith<true>};
}

}  // namespace memlith::tool
