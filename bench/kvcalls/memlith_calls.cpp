// A kv store of memlith as a side: with the calls that are measured, and without them.
#include <map>

#include "cli/clock.hpp"
#include "kvcalls.hpp"
#include "opened_kv.hpp"

namespace memlith::tool {

namespace {

class MemlithCalls : public CallsStore {
 public:
  [[nodiscard]] MaybeFailure open(const std::string& folder) { return opened_.open(folder + "/store"); }
  MaybeFailure open_map(const std::string& map) override {
    auto opened = kv().map(map, {.create = true});
    if (MaybeFailure failure = kv_failure(opened, "opening a map")) return failure;
    maps_[map] = *opened;
    return {};
  }
  MaybeFailure fill(const std::string& map, std::uint64_t count, Values& values,
                    std::vector<std::uint64_t>& samples_ns) override {
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
      key = key_of(next);
      return KvRecord{key, values.at(next++)};
    };
    return kv_failure(kv().append(number_of(map), record), "appending");
  }
  MaybeFailure put(const std::string& map, std::string_view key, std::string_view value) override {
    return change([&](KvTransaction& txn) { return txn.put(number_of(map), key, value); });
  }
  MaybeFailure put_if(const std::string& map, std::string_view key, std::string_view expected, std::string_view value,
                      bool& done) override {
    return change([&](KvTransaction& txn) -> memlith::Result<void> {
      auto put = txn.put_if(number_of(map), key, expected, value);
      if (!put) return put.error();
      done = *put;
      return {};
    });
  }
  MaybeFailure put_range(const std::string& map, std::uint64_t first, std::uint64_t count, Values& values) override {
    return change([&](KvTransaction& txn) -> memlith::Result<void> {
      for (std::uint64_t i = first; i < first + count; ++i) {
        if (auto put = txn.put(number_of(map), key_of(i), values.at(i)); !put) return put;
      }
      return {};
    });
  }
  MaybeFailure remove_range(const std::string& map, std::string_view from, std::string_view to,
                            std::uint64_t& count) override {
    return change([&](KvTransaction& txn) -> memlith::Result<void> {
      auto removed = txn.remove_range(number_of(map), from, to);
      if (!removed) return removed.error();
      count = *removed;
      return {};
    });
  }
  MaybeFailure remove_map(const std::string& map) override { return kv_failure(kv().remove_map(map), "removing"); }
  Result<std::optional<std::uint64_t>> logged_bytes() override {
    if (MaybeFailure failure = kv_failure(kv().persist(), "persisting")) return *failure;
    auto info = kv().info();
    if (MaybeFailure failure = kv_failure(info, "looking at a kv store")) return *failure;
    return std::optional(info->logged_bytes);
  }
  Result<std::uint64_t> data_bytes() override {
    auto info = kv().info();
    if (MaybeFailure failure = kv_failure(info, "looking at a kv store")) return *failure;
    return (info->pages - info->free_pages) * info->page_bytes;
  }

 protected:
  template <class Act>
  MaybeFailure change(const Act& act) {
    if (!txn_.has_value()) {
      auto begun = kv().begin();
      if (MaybeFailure failure = kv_failure(begun, "beginning a transaction")) return failure;
      txn_.emplace(std::move(*begun));
    } else if (MaybeFailure failure = kv_failure(txn_->renew(), "beginning a transaction")) {
      return failure;
    }
    if (MaybeFailure failure = kv_failure(act(*txn_), "changing records")) return failure;
    return kv_failure(txn_->commit(Durability::weak), "committing");
  }
  [[nodiscard]] KvMap number_of(const std::string& map) const { return maps_.at(map); }
  [[nodiscard]] Kv& kv() { return *opened_.kv; }

 private:
  OpenedKv opened_;
  std::optional<KvTransaction> txn_;  // of the thread that changes records
  std::map<std::string, KvMap> maps_;
};

// What a program does that does not know the calls.
class MemlithWithout final : public MemlithCalls {
 public:
  MaybeFailure fill(const std::string& map, std::uint64_t count, Values& values,
                    std::vector<std::uint64_t>& samples_ns) override {
    for (std::uint64_t first = 0; first < count; first += kBatchRecords) {
      const std::uint64_t start = now_ns();
      if (auto failure = put_range(map, first, std::min(kBatchRecords, count - first), values)) return failure;
      samples_ns.push_back(now_ns() - start);
    }
    return kv_failure(kv().persist(), "persisting");
  }
  MaybeFailure put_if(const std::string& map, std::string_view key, std::string_view expected, std::string_view value,
                      bool& done) override {
    return change([&](KvTransaction& txn) -> memlith::Result<void> {
      auto found = txn.get(number_of(map), key);
      if (!found) return found.error();
      done = *found == expected;
      return done ? txn.put(number_of(map), key, value) : memlith::Result<void>();
    });
  }
  MaybeFailure remove_range(const std::string& map, std::string_view from, std::string_view to,
                            std::uint64_t& count) override {
    return change([&](KvTransaction& txn) -> memlith::Result<void> {
      count = 0;
      auto cursor = txn.cursor(number_of(map));
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

template <class Side>
Result<std::unique_ptr<CallsStore>> open_memlith(const std::string& folder, std::uint64_t) {
  auto side = std::make_unique<Side>();
  if (MaybeFailure failure = side->open(folder)) return *failure;
  return std::unique_ptr<CallsStore>(std::move(side));
}

}  // namespace

CallsSide memlith_calls_side() {
  return {"memlith",
          memlith_version(),
          {"memlith_kv_map_remove, durable on return, beside weak commits of one put each",
           "memlith_kv_map_append, durable on return", "memlith_kv_put_if and a weak commit",
           "memlith_kv_remove_range and a weak commit"},
          open_memlith<MemlithCalls>};
}

CallsSide memlith_without_side() {
  return {"memlith-without",
          memlith_version(),
          {"", "weak commits of 1,000 puts each, and memlith_kv_persist at the end",
           "memlith_kv_get, a comparison, memlith_kv_put and a weak commit",
           "a cursor that removes one record after the other, and a weak commit"},
          open_memlith<MemlithWithout>};
}

}  // namespace memlith::tool
