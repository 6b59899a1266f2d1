// memlith's kv store as a side: each change is a transaction; a session uses one handle again and again.
#include "memlith.hpp"

#include "cli/clock.hpp"
#include "private/options.h"
#include "records.hpp"

namespace memlith::tool {

namespace {

class MemlithCalls : public CallSession {
 public:
  MemlithCalls(const KvUse& use, std::string map, KvTransaction txn)
      : use_(use), name_(std::move(map)), txn_(std::move(txn)) {}

  MaybeFailure fill(std::uint64_t count, Values& values, std::vector<std::uint64_t>& samples_ns) override {
    std::uint64_t next = 0;
    std::uint64_t start = now_ns();
    std::string key;
    const auto record = [&]() -> std::optional<KvRecord> {
      if (next > 0 && (next % kBatchRecords == 0 || next == count)) {
        const std::uint64_t now = now_ns();
        samples_ns.push_back(now - start);
        start = now;
      }
      if (next == count) return std::nullopt;
      key = number_key(next);
      return KvRecord{key, values.numbered(next++)};
    };
    return failure_of(use_.kv->append(use_.map, record), "appending");
  }
  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change([&] { return txn_.put(use_.map, key, value); });
  }
  MaybeFailure put_if(std::string_view key, std::string_view expected, std::string_view value, bool& done) override {
    return change([&]() -> memlith::Result<void> {
      auto put = txn_.put_if(use_.map, key, expected, value);
      if (!put) return put.error();
      done = *put;
      return {};
    });
  }
  MaybeFailure put_range(std::uint64_t first, std::uint64_t count, Values& values) override {
    return change([&]() -> memlith::Result<void> {
      for (std::uint64_t i = first; i < first + count; ++i) {
        if (auto put = txn_.put(use_.map, number_key(i), values.numbered(i)); !put) return put;
      }
      return {};
    });
  }
  MaybeFailure remove_range(std::string_view from, std::string_view to, std::uint64_t& count) override {
    return change([&]() -> memlith::Result<void> {
      auto removed = txn_.remove_range(use_.map, from, to);
      if (!removed) return removed.error();
      count = *removed;
      return {};
    });
  }
  MaybeFailure remove_map() override { return failure_of(use_.kv->remove_map(name_), "removing"); }
  Result<std::optional<std::uint64_t>> logged_bytes() override {
    MEMLITH_TOOL_TRY(failure_of(use_.kv->persist(), "persisting"));
    MEMLITH_TOOL_GET(const memlith_kv_info info, checked(use_.kv->info(), "looking at a kv store"));
    return std::optional(info.logged_bytes);
  }
  Result<std::uint64_t> data_bytes() override {
    MEMLITH_TOOL_GET(const memlith_kv_info info, checked(use_.kv->info(), "looking at a kv store"));
    return (info.pages - info.free_pages) * info.page_bytes;
  }

 protected:
  template <class Act>
  MaybeFailure change(const Act& act) {
    return use_.change(txn_, act);
  }
  KvUse use_;
  std::string name_;
  KvTransaction txn_;
};

// A program that does not know the calls does this.
class MemlithWithoutCalls final : public MemlithCalls {
 public:
  using MemlithCalls::MemlithCalls;

  MaybeFailure fill(std::uint64_t count, Values& values, std::vector<std::uint64_t>& samples_ns) override {
    for (std::uint64_t first = 0; first < count; first += kBatchRecords) {
      const std::uint64_t start = now_ns();
      MEMLITH_TOOL_TRY(put_range(first, std::min(kBatchRecords, count - first), values));
      samples_ns.push_back(now_ns() - start);
    }
    return failure_of(use_.kv->persist(), "persisting");
  }
  MaybeFailure put_if(std::string_view key, std::string_view expected, std::string_view value, bool& done) override {
    return change([&]() -> memlith::Result<void> {
      auto found = txn_.get(use_.map, key);
      if (!found) return found.error();
      done = *found == expected;
      return done ? txn_.put(use_.map, key, value) : memlith::Result<void>();
    });
  }
  MaybeFailure remove_range(std::string_view from, std::string_view to, std::uint64_t& count) override {
    return change([&]() -> memlith::Result<void> {
      count = 0;
      auto cursor = txn_.cursor(use_.map);
      if (!cursor) return cursor.error();
      auto there = cursor->seek(from);
      for (; there && *there; there = cursor->next(), ++count) {
        auto record = cursor->current();
        if (!record) return record.error();
        if (record->key >= to) break;
        if (auto removed = cursor->remove(); !removed) return removed;
      }
      return there ? memlith::Result<void>() : there.error();
    });
  }
};

enum class Variant : std::uint8_t { plain, waiting, group, is_volatile, without_calls };

template <Variant kVariant>
class MemlithStore final : public KvStore {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    const bool sync = options.durability == KvDurability::sync;
    if (sync && kVariant == Variant::waiting) waiting_ = Waiting::hurrying;
    if (sync && kVariant == Variant::group) waiting_ = Waiting::told;
    durability_ = sync && waiting_ == Waiting::none ? Durability::sync : Durability::weak;
    MEMLITH_TOOL_GET(const std::string place, options.backend.make_place(options.folder + "/store"));
    const StoreOptions store{.create = true, .memory_max_bytes = options.cache_bytes, .io = options.backend.io};
    return opened_.open(place, store, kVariant == Variant::is_volatile);
  }
  Result<std::unique_ptr<KvSession>> session() override {
    const KvUse use = use_of(opened_.map);
    MEMLITH_TOOL_GET(KvTransaction writer, use.transaction(false));
    MEMLITH_TOOL_GET(KvTransaction reader, use.transaction(true));
    return make_session<MemlithSession>(use, std::move(writer), std::move(reader));
  }
  Result<std::unique_ptr<CallSession>> calls(const std::string& map) override {
    using Calls = std::conditional_t<kVariant == Variant::without_calls, MemlithWithoutCalls, MemlithCalls>;
    MEMLITH_TOOL_GET(const KvMap number, checked(opened_.kv->map(map, {.create = true}), "opening a map"));
    const KvUse use = use_of(number);
    MEMLITH_TOOL_GET(KvTransaction txn, use.transaction(false));
    return std::unique_ptr<CallSession>(std::make_unique<Calls>(use, map, std::move(txn)));
  }
  std::optional<KvCounts> counts() override {
    KvCounts counts{.checkpoints = opened_.store->info().checkpoints};
    if (auto info = opened_.kv->info()) {
      counts.logged_bytes = info->logged_bytes;
      counts.data_bytes = (info->pages - info->free_pages) * info->page_bytes;
      counts.records = info->records;
    }
    if (const auto stats = opened_.store->stats()) {
      counts.weak_wait_p50_ns = stats->kv_weak_wait_p50_ns;
      counts.weak_wait_p99_ns = stats->kv_weak_wait_p99_ns;
      counts.weak_wait_max_ns = stats->kv_weak_wait_max_ns;
    }
    return counts;
  }
  MaybeFailure set_window(std::uint64_t ms, std::uint64_t bytes) override {
    return failure_of(opened_.kv->set_window(ms, bytes), "setting the window");
  }

 private:
  KvUse use_of(KvMap map) { return {&*opened_.store, &*opened_.kv, map, durability_, waiting_}; }

  OpenedKv opened_;
  Durability durability_ = Durability::weak;
  Waiting waiting_ = Waiting::none;
};

}  // namespace

MaybeFailure OpenedKv::open(const std::string& path, const StoreOptions& options, bool is_volatile) {
  MEMLITH_TOOL_GET(store, checked(Store::open(path, options), "opening a store"));
  memlith_kv_options kv_options{};
  kv_options.struct_size = sizeof kv_options;
  kv_options.flags = (options.create ? MEMLITH_CREATE : 0) | (is_volatile ? MEMLITH_KV_VOLATILE : 0);
  memlith_kv* handle = nullptr;
  if (const std::int32_t code = memlith_kv_open(store->handle(), "kv", &kv_options, &handle); code != MEMLITH_OK) {
    return failure_of(memlith::Result<void>(memlith::Error(code)), "opening a kv store");
  }
  kv.emplace(handle);
  MEMLITH_TOOL_GET(map, checked(kv->map("map", {.create = options.create}), "opening a map"));
  return {};
}

MaybeFailure MemlithSession::put(std::string_view key, std::string_view value) {
  return change([&] { return writer_.put(use_.map, key, value); });
}

MaybeFailure MemlithSession::put_all(std::span<const KvPair> pairs) {
  return change([&]() -> memlith::Result<void> {
    for (const auto& [key, value] : pairs) {
      if (auto put = writer_.put(use_.map, key, value); !put) return put;
    }
    return {};
  });
}

MaybeFailure MemlithSession::remove(std::string_view key) {
  return change([&]() -> memlith::Result<void> {
    auto removed = writer_.remove(use_.map, key);
    if (!removed && removed.error().category() == MEMLITH_NOT_FOUND) return {};
    return removed;
  });
}

MaybeFailure MemlithSession::modify(std::span<const KvPair> pairs, std::string& seen, bool& found) {
  return change([&]() -> memlith::Result<void> {
    found = true;
    for (const auto& [key, value] : pairs) {
      const auto there = writer_.find(use_.map, key);
      if (!there) return there.error();
      if (there->has_value()) seen.assign(**there);
      found = found && there->has_value();
      if (auto put = writer_.put(use_.map, key, value); !put) return put;
    }
    return {};
  });
}

MaybeFailure MemlithSession::get(std::string_view key, std::string& value, bool& found) {
  return read([&]() -> memlith::Result<void> {
    const auto seen = reader_.find(use_.map, key);
    if (!seen) return seen.error();
    found = seen->has_value();
    if (found) value.assign(**seen);
    return {};
  });
}

MaybeFailure MemlithSession::scan(std::string_view from, std::uint64_t count, const Visit& visit) {
  return read([&] {
    return reader_.get_range(use_.map, from, {}, [&](std::string_view key, std::string_view value) {
      if (count == 0) return false;
      visit(key, value);
      return --count > 0;
    });
  });
}

template <class Act>
MaybeFailure MemlithSession::read(const Act& act) {
  MEMLITH_TOOL_TRY(failure_of(reader_.renew(), "beginning a transaction"));
  auto failure = failure_of(act(), "reading");
  (void)reader_.abort();
  return failure;
}

KvPeer memlith_side() {
  return {"memlith",
          memlith_version(),
          "each operation is a transaction with a sync commit: durable when it returns",
          "each operation is a transaction with a weak commit: durable in order, within the window",
          open_as<MemlithStore<Variant::plain>>,
          {"memlith_kv_map_remove, durable on return, beside weak commits of one put each",
           "memlith_kv_map_append, durable on return", "memlith_kv_put_if and a weak commit",
           "memlith_kv_remove_range and a weak commit"}};
}

KvPeer waiting_side() {
  const std::string text = "each operation is a transaction with a weak commit, and waits for its ticket";
  return {"memlith-wait", memlith_version(), text, text, open_as<MemlithStore<Variant::waiting>>};
}

KvPeer group_side() {
  const std::string text =
      "each operation is a transaction with a weak commit, and waits until it hears that it is durable, which does not "
      "hurry the window";
  return {"memlith-group", memlith_version(), text, text, open_as<MemlithStore<Variant::group>>};
}

KvPeer volatile_side() {
  const std::string text = "the same tree and transactions, opened volatile: nothing is logged, nothing is durable";
  return {"memlith-no-durability", memlith_version(), text, text, open_as<MemlithStore<Variant::is_volatile>>};
}

KvPeer without_calls_side() {
  return {"memlith-without",
          memlith_version(),
          {},
          {},
          open_as<MemlithStore<Variant::without_calls>>,
          {"", "weak commits of 1,000 puts each, and memlith_kv_persist at the end",
           "memlith_kv_get, a comparison, memlith_kv_put and a weak commit",
           "a cursor that removes one record after the other, and a weak commit"}};
}

}  // namespace memlith::tool
