// The persistent memtable of MemSnap's RocksDB as a side: a skip list in a region, whose changes each thread persists
// for itself (integrations/rocksdb/src/skip_list.hpp).
#include <algorithm>
#include <utility>
#include <vector>

#include "kit/try.hpp"
#include "memlith/memlith.hpp"
#include "peer.hpp"
#include "rocksdb/src/skip_list.hpp"

namespace memlith::tool {

namespace {

using memlith_rocksdb::SkipList;

class MemtableSession final : public KvSession {
 public:
  MemtableSession(Store& store, SkipList& list, bool sync) : store_(store), list_(list), writer_(list), sync_(sync) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change({&key, 1}, [value](std::size_t, std::optional<std::string>& content) { content.emplace(value); });
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    return change_all(pairs, [](const std::optional<std::string>&) {});
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    auto seen = list_.get(key);
    found = seen.has_value();
    if (found) value = std::move(*seen);
    return {};
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    found = true;
    return change_all(pairs, [&](const std::optional<std::string>& content) {
      found = found && content.has_value();
      if (content) seen.assign(*content);
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return 0; }  // writers wait for each other
  MaybeFailure remove(std::string_view key) override {
    return change({&key, 1}, [](std::size_t, std::optional<std::string>& content) { content.reset(); });
  }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    if (count == 0) return {};
    list_.scan(from, [&](std::string_view key, std::string_view value) {
      visit(key, value);
      return --count > 0;
    });
    return {};
  }
  MaybeFailure finish() override { return failure_of(store_.wait(newest_), "waiting for the last transaction"); }

 private:
  // `look` at each old value.
  template <class Look>
  MaybeFailure change_all(std::span<const KvPair> pairs, const Look& look) {
    std::vector<const KvPair*> order;
    for (const KvPair& each : pairs) order.push_back(&each);
    std::ranges::stable_sort(order, {}, &KvPair::first);
    std::vector<std::string_view> keys;
    std::vector<std::string_view> values;
    for (const KvPair* const each : order) {
      if (keys.empty() || keys.back() != each->first) {
        keys.push_back(each->first);
        values.push_back(each->second);
      }
      values.back() = each->second;  // of several with the same key, the last
    }
    return change(keys, [&](std::size_t place, std::optional<std::string>& content) {
      look(content);
      content.emplace(values[place]);
    });
  }
  MaybeFailure change(std::span<const std::string_view> keys, const SkipList::Writer::Change& act) {
    MEMLITH_TOOL_GET(newest_, checked(writer_.transact(keys, act), "changing the list"));
    return sync_ ? failure_of(store_.wait(newest_), "waiting for a transaction") : MaybeFailure();
  }

  Store& store_;
  SkipList& list_;
  SkipList::Writer writer_;
  bool sync_;
  Ticket newest_ = 0;
};

class MemtableStore final : public KvStore {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    constexpr std::uint64_t kSizeMin = 64ull << 20;
    sync_ = options.durability == KvDurability::sync;
    const StoreOptions settings{.create = true, .memory_max_bytes = options.cache_bytes};
    MEMLITH_TOOL_GET(store_, checked(Store::open(options.folder + "/store", settings), "opening a store"));
    MEMLITH_TOOL_GET(list_, checked(SkipList::open(*store_, "list", std::max(kSizeMin, options.bytes_expected * 2)),
                                    "opening a list"));
    return {};
  }
  MaybeFailure set_window(std::uint64_t ms, std::uint64_t bytes) override {
    return failure_of(store_->set_window(ms, bytes), "setting the window");
  }
  Result<std::unique_ptr<KvSession>> session() override {
    return make_session<MemtableSession>(*store_, *list_, sync_);
  }

 private:
  std::optional<Store> store_;
  std::unique_ptr<SkipList> list_;  // closed before the store
  bool sync_ = false;
};

}  // namespace

KvPeer memtable_side() {
  return {"memlith-memtable", memlith_version(),
          "a skip list in a region: each operation is a persist of its thread's stores, and waits until it is durable",
          "the same persist, which is not waited for: durable in order, within the store's window",
          open_as<MemtableStore>};
}

}  // namespace memlith::tool
