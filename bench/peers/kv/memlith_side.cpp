// A kv store of memlith as a side: each change is a transaction; a session uses one handle again and again.
#include <optional>

#include "memlith/kv.hpp"
#include "memlith_side.hpp"
#include "private/options.h"

namespace memlith::tool {

namespace {

template <class T>
MaybeFailure kv_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

class MemlithKvStore final : public CountedKvStore {
 public:
  MemlithKvStore(Durability durability, bool waits) : durability_(durability), waits_(waits) {}

  [[nodiscard]] MaybeFailure open(const KvOptions& options, const Backend& backend, bool is_volatile) {
    Result<std::string> place = backend.make_place(options.folder + "/store");
    if (!place.ok()) return std::move(place.failure());
    auto store = Store::open(*place, {.create = true, .memory_max_bytes = options.cache_bytes, .io = backend.io});
    if (MaybeFailure failure = kv_failure(store, "opening a store")) return failure;
    store_.emplace(std::move(*store));
    memlith_kv_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags = MEMLITH_CREATE | (is_volatile ? MEMLITH_KV_VOLATILE : 0);
    memlith_kv* kv = nullptr;
    if (const std::int32_t code = memlith_kv_open(store_->handle(), "kv", &plain, &kv); code != MEMLITH_OK) {
      return library_failure(code, "opening a kv store");
    }
    kv_.emplace(kv);
    auto map = kv_->map("map", {.create = true});
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
  MaybeFailure set_window(std::uint64_t ms, std::uint64_t bytes) override {
    return kv_failure(kv_->set_window(ms, bytes), "setting the window");
  }
  [[nodiscard]] Kv& kv() { return *kv_; }
  [[nodiscard]] memlith::Result<void> wait(Ticket ticket) const { return store_->wait(ticket); }
  [[nodiscard]] bool waits() const { return waits_; }
  [[nodiscard]] KvMap map() const { return map_; }
  [[nodiscard]] Durability durability() const { return durability_; }

 private:
  std::optional<Store> store_;  // closed after the kv store
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  Durability durability_;
  bool waits_;
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
      if (done) return commit();
      if (done.error().category() != MEMLITH_CONFLICT) return kv_failure(done, "changing a record");
    }
  }
  MaybeFailure commit() {
    const auto ticket = writer_.commit(store_.durability());
    if (!ticket || !store_.waits()) return kv_failure(ticket, "committing");
    return kv_failure(store_.wait(*ticket), "waiting for a commit");
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
  auto reader = kv_->begin({.read_only = true});
  if (MaybeFailure failure = kv_failure(writer, "beginning a transaction")) return *failure;
  if (MaybeFailure failure = kv_failure(reader, "beginning a transaction")) return *failure;
  return std::unique_ptr<KvSession>(std::make_unique<MemlithKvSession>(*this, std::move(*writer), std::move(*reader)));
}

Result<std::unique_ptr<MemlithKvStore>> open_side(const KvOptions& options, const Backend& backend, bool is_volatile,
                                                  bool waits) {
  const bool sync = options.durability == KvDurability::sync;
  auto store = std::make_unique<MemlithKvStore>(sync && !waits ? Durability::sync : Durability::weak, sync && waits);
  if (MaybeFailure failure = store->open(options, backend, is_volatile)) return *failure;
  return store;
}

template <bool kVolatile, bool kWaits>
Result<std::unique_ptr<KvStore>> open_memlith(const KvOptions& options) {
  Result<std::unique_ptr<MemlithKvStore>> store = open_side(options, {}, kVolatile, kWaits);
  if (!store.ok()) return std::move(store.failure());
  return std::unique_ptr<KvStore>(std::move(*store));
}

}  // namespace

KvPeer memlith_side() {
  return {"memlith", memlith_version(), "each operation is a transaction with a sync commit: durable when it returns",
          "each operation is a transaction with a weak commit: durable in order, within the window",
          open_memlith<false, false>};
}

KvPeer waiting_side() {
  const std::string text = "each operation is a transaction with a weak commit, and waits for its ticket";
  return {"memlith-wait", memlith_version(), text, text, open_memlith<false, true>};
}

Result<std::unique_ptr<KvStore>> open_memlith_kv(const KvOptions& options, const Backend& backend) {
  Result<std::unique_ptr<MemlithKvStore>> store = open_side(options, backend, false, false);
  if (!store.ok()) return std::move(store.failure());
  if (MaybeFailure failure = (*store)->set_window(kWeakWindowMs, 0)) return *failure;
  return std::unique_ptr<KvStore>(std::move(*store));
}

KvPeer volatile_side() {
  const std::string text = "the same tree and transactions, opened volatile: nothing is logged, nothing is durable";
  return {"memlith-no-durability", memlith_version(), text, text, open_memlith<true, false>};
}

}  // namespace memlith::tool
