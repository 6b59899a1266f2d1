// A client of a kv store that does random things in transactions, one step at a time, and records them.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/random.hpp"
#include "isolation/history.hpp"
#include "kv/kv.hpp"
#include "support/expect.hpp"

namespace memlith::test {

// Shared by the clients of one kv store.
class Journal {
 public:
  struct Counters {
    std::atomic<std::uint64_t> clock{0};
    std::atomic<std::uint64_t> values{0};
    std::atomic<std::uint64_t> ended{0};  // transactions
  };

  Journal() : Journal(nullptr) {}
  // With counters that several processes share.
  explicit Journal(Counters* counters) : counters_(counters != nullptr ? *counters : own_counters_) {
    for (const char* map : {"a", "b"}) {
      for (int i = 0; i < kKeysOfMap; ++i) history_.keys.push_back(key_of(map, i));
    }
  }
  virtual ~Journal() = default;
  static constexpr int kKeysOfMap = 7;
  static constexpr int kMaps = 2;
  static std::string map_of(int map) { return map == 0 ? "a" : "b"; }
  static std::string key_of(const std::string& map, int i) { return map + "/" + std::to_string(i); }

  std::uint64_t now() { return ++counters_.clock; }
  // A value that no other write has. The lengths make pages split and merge.
  std::string fresh_value() {
    const std::uint64_t number = ++counters_.values;
    return "v" + std::to_string(number) + std::string(number * 7919 % 1200, '.');
  }
  // The transaction is about to be committed. If add() does not follow, how that went is unknown.
  virtual void commits(const Recorded& /*recorded*/) {}
  virtual void add(Recorded recorded) {
    ++counters_.ended;
    const std::lock_guard lock(mutex_);
    history_.transactions.push_back(std::move(recorded));
  }
  History& history() { return history_; }
  // A new history begins with that content.
  void go_on_from(std::map<std::string, std::string> content) {
    history_.transactions.clear();
    history_.before = std::move(content);
  }

 protected:
  [[nodiscard]] Counters& counters() const { return counters_; }

 private:
  std::mutex mutex_;
  History history_;
  Counters own_counters_;
  Counters& counters_;
};

class Client {
 public:
  Client(core::kv::OpenKv& kv, Journal& journal, std::uint64_t seed)
      : kv_(kv), journal_(journal), random_(seed), writer_(kv, false), reader_(kv, true) {
    for (int i = 0; i < Journal::kMaps; ++i) {
      const auto map = kv.open_map(Journal::map_of(i), true, false);
      if (!goes_on(map.status())) return;
      maps_[i] = *map;
    }
  }
  // Begins a transaction, does something in it, or ends it.
  void step() {
    if (has_ended_) return;
    if (!active_) return appends_ && random_.one_in(4) ? append() : begin();
    ++done_;
    if (random_.below(8) + 2 < done_) return random_.one_in(8) ? abort() : commit();
    switch (random_.below(transaction_->read_only() ? 6 : 14)) {
      case 0:
      case 1:
      case 8: return read();
      case 2:
      case 3: return scan();
      case 4:
      case 5: return scan_within();
      case 6: return remove();
      case 7: return remove_range();
      case 9:
      case 10: return put_if();
      default: return put();
    }
  }
  void end() {
    if (active_) abort();
  }
  // The newest sync commit that returned.
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_; }
  void set_sync_one_in(std::uint64_t share) { sync_one_in_ = share; }
  // Each transaction that writes writes that record, too, by which it can be told from all others.
  void set_marker(core::kv::MapNumber map, const std::string& name) {
    marker_map_ = map;
    marker_ = name;
  }
  // The kv store's keeper has ended.
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  // Also appends to maps. What others commit has to stand still during a step, because an append tells no number.
  void set_appends() { appends_ = true; }
  // How often each call has done what it is for.
  struct Counts {
    std::uint64_t swaps = 0;
    std::uint64_t refused_swaps = 0;
    std::uint64_t removed_ranges = 0;
    std::uint64_t appends = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Record {
    int map;
    int index;
    [[nodiscard]] std::string name() const { return std::to_string(index); }
    [[nodiscard]] std::string key() const { return Journal::key_of(Journal::map_of(map), index); }
  };
  Record draw() {
    return {static_cast<int>(random_.below(Journal::kMaps)), static_cast<int>(random_.below(Journal::kKeysOfMap))};
  }

  void begin() {
    recorded_ = {};
    recorded_.began = journal_.now();
    transaction_ = random_.one_in(5) ? &reader_ : &writer_;
    recorded_.from = kv_.newest();
    if (!goes_on(transaction_->begin())) return;
    recorded_.to = kv_.newest();
    active_ = true;
    done_ = 0;
  }
  void finish() {
    active_ = false;
    recorded_.ended = journal_.now();
    journal_.add(std::move(recorded_));
  }
  // False: a conflict has ended the transaction, or the keeper's end, behind which the outcome of a commit is unknown.
  bool goes_on(core::Status status) {
    if (status.ok()) return true;
    const bool io = status.category == core::Errc::io || status.category == core::Errc::poisoned;
    if (io && kv_.alone() == nullptr) {
      has_ended_ = true;
      active_ = false;
      transaction_->abort();
      return false;
    }
    EXPECT_ERROR(core::Errc::conflict, status);
    EXPECT_FALSE(transaction_->active());
    finish();
    return false;
  }
  void commit() {
    const bool sync = random_.one_in(sync_one_in_);
    const bool read_only = transaction_->read_only();
    if (recorded_.wrote && !marker_.empty()) {
      const std::string value = journal_.fresh_value();
      if (!goes_on(transaction_->put(marker_map_, marker_, value))) return;
      recorded_.actions.push_back({Action::Kind::write, "m/" + marker_, value, {}, {}});
    }
    journal_.commits(recorded_);
    const auto made = transaction_->commit(sync ? core::kv::Durability::sync : core::kv::Durability::weak, nullptr);
    if (!goes_on(made.status())) return;  // a client of a keeper learns of a conflict here
    recorded_.committed = true;
    if (sync) recorded_.durable = *made;
    if (recorded_.wrote) {
      recorded_.number = *made;
      recorded_.from = recorded_.to = *made - 1;
      if (sync) acknowledged_ = std::max(acknowledged_, *made);
    } else if (!read_only) {
      recorded_.from = recorded_.to = *made;  // its locks kept what it saw until then
    }
    finish();
  }
  void abort() {
    transaction_->abort();
    finish();
  }
  void read() {
    const Record drawn = draw();
    const auto value = transaction_->get(maps_[drawn.map], drawn.name());
    if (!goes_on(value.status())) return;
    Seen seen;
    if (value->has_value()) seen.emplace(**value);
    recorded_.actions.push_back({Action::Kind::read, drawn.key(), seen, {}, {}});
  }
  void put() {
    const Record drawn = draw();
    const std::string value = journal_.fresh_value();
    if (!goes_on(transaction_->put(maps_[drawn.map], drawn.name(), value))) return;
    wrote(drawn, value);
  }
  void remove() {
    const Record drawn = draw();
    const auto removed = transaction_->remove(maps_[drawn.map], drawn.name());
    if (!goes_on(removed.status())) return;
    // A record that was not there was read; nothing was written.
    if (*removed) {
      wrote(drawn, std::nullopt);
    } else {
      recorded_.actions.push_back({Action::Kind::read, drawn.key(), std::nullopt, {}, {}});
    }
  }
  // Expects what the client read before, no value, or a value that any client wrote once.
  void put_if() {
    const Record drawn = draw();
    Seen expected;
    if (random_.one_in(2)) {
      const auto value = transaction_->get(maps_[drawn.map], drawn.name());
      if (!goes_on(value.status())) return;
      if (value->has_value()) expected.emplace(**value);
      recorded_.actions.push_back({Action::Kind::read, drawn.key(), expected, {}, {}});
    } else if (random_.one_in(2)) {
      expected = stale_;
    }
    const Seen value = random_.one_in(4) ? Seen() : Seen(journal_.fresh_value());
    const auto done = transaction_->put_if(maps_[drawn.map], drawn.name(), expected, value);
    if (!goes_on(done.status())) return;
    ++(*done ? counts_.swaps : counts_.refused_swaps);
    recorded_.actions.push_back({*done ? Action::Kind::read : Action::Kind::differs, drawn.key(), expected, {}, {}});
    if (*done && (expected || value)) wrote(drawn, value);
  }
  void remove_range() {
    const Record drawn = draw();
    const int other = static_cast<int>(random_.below(Journal::kKeysOfMap));
    const Bounds bounds = bounds_of(std::min(drawn.index, other), std::max(drawn.index, other));
    std::uint64_t count = 0;
    if (!goes_on(transaction_->remove_range(maps_[drawn.map], bounds.from, bounds.to, count))) return;
    const std::string map = Journal::map_of(drawn.map);
    const std::string first = Journal::key_of(map, bounds.low);
    const std::string last = Journal::key_of(map, bounds.high);
    if (count == 0) {  // that is a scan, which found nothing
      recorded_.actions.push_back({Action::Kind::scan, first, std::nullopt, last, {}});
      return;
    }
    ++counts_.removed_ranges;
    recorded_.wrote = true;
    recorded_.actions.push_back({Action::Kind::removal, first, std::nullopt, last, {}, count});
  }
  // A commit of its own, of some records behind all that there are; mostly a transaction uses the map.
  void append() {
    const Record drawn = draw();
    const std::string map = Journal::map_of(drawn.map);
    recorded_ = {};
    recorded_.began = journal_.now();
    const std::string last = Journal::key_of(map, Journal::kKeysOfMap - 1);
    recorded_.actions.push_back({Action::Kind::scan, drawn.key(), std::nullopt, last, {}});
    int next = drawn.index;
    std::string name;
    std::string value;
    const auto source = [&](std::string_view& key, std::string_view& content) {
      if (next == Journal::kKeysOfMap) return false;
      name = std::to_string(next);
      value = journal_.fresh_value();
      recorded_.actions.push_back({Action::Kind::write, Journal::key_of(map, next), value, {}, {}});
      ++next;
      key = name;
      content = value;
      return true;
    };
    std::uint64_t count = 0;
    const core::Status done = kv_.append(maps_[drawn.map], source, count);
    recorded_.ended = journal_.now();
    if (!done.ok()) {
      EXPECT_EQ(count, 0u);
      EXPECT_TRUE(done.category == core::Errc::conflict || done.category == core::Errc::invalid);
    } else {
      ++counts_.appends;
      recorded_.committed = recorded_.wrote = true;
      recorded_.number = kv_.newest();
      recorded_.from = recorded_.to = recorded_.number - 1;
      acknowledged_ = std::max(acknowledged_, recorded_.number);
    }
    journal_.add(std::move(recorded_));
  }
  void wrote(const Record& drawn, Seen value) {
    if (value) stale_ = value;
    recorded_.wrote = true;
    recorded_.actions.push_back({Action::Kind::write, drawn.key(), std::move(value), {}, {}});
  }
  // Places from `low` to `high`, both included, as a range: the last key has no other behind it.
  struct Bounds {
    int low;
    int high;
    std::optional<std::string> from;
    std::optional<std::string> to;
  };
  Bounds bounds_of(int low, int high) {
    Bounds bounds{low, high, std::to_string(low), std::to_string(high + 1)};
    if (low == 0 && random_.one_in(2)) bounds.from.reset();
    if (high == Journal::kKeysOfMap - 1 && random_.one_in(2)) bounds.to.reset();
    return bounds;
  }
  // All records that a cursor has which is kept to a range or to a prefix, in one of the two directions.
  void scan_within() {
    const Record drawn = draw();
    const bool forward = random_.one_in(2);
    const int other = random_.one_in(3) ? drawn.index : static_cast<int>(random_.below(Journal::kKeysOfMap));
    const Bounds bounds = bounds_of(std::min(drawn.index, other), std::max(drawn.index, other));
    const std::string map = Journal::map_of(drawn.map);
    core::kv::Cursor cursor(*transaction_, maps_[drawn.map]);
    if (bounds.low == bounds.high) {
      ASSERT_OK(cursor.set_prefix(drawn.name()));
    } else {
      ASSERT_OK(cursor.set_bounds(bounds.from, bounds.to));
    }
    Action action{
        Action::Kind::scan, Journal::key_of(map, bounds.low), std::nullopt, Journal::key_of(map, bounds.high), {}};
    for (;;) {
      const auto more = forward ? cursor.next() : cursor.prev();
      if (!goes_on(more.status())) return;
      if (!*more) break;
      const auto record = cursor.current();
      if (!goes_on(record.status())) return;
      ASSERT_TRUE(record->has_value());
      action.found.emplace(map + "/" + std::string((*record)->key), std::string((*record)->value));
    }
    const auto outside = [&](const auto& each) { return each.first < action.key || each.first > action.end; };
    EXPECT_TRUE(std::none_of(action.found.begin(), action.found.end(), outside));
    recorded_.actions.push_back(std::move(action));
  }
  // Records from a key on, in both directions, as many as it likes.
  void scan() {
    const Record drawn = draw();
    const bool forward = random_.one_in(2);
    const int last = static_cast<int>(random_.below(Journal::kKeysOfMap));
    const int low = forward ? std::min(drawn.index, last) : 0;
    const int high = forward ? std::max(drawn.index, last) : last;
    core::kv::Cursor cursor(*transaction_, maps_[drawn.map]);
    Action action{Action::Kind::scan,
                  Journal::key_of(Journal::map_of(drawn.map), low),
                  std::nullopt,
                  Journal::key_of(Journal::map_of(drawn.map), high),
                  {}};
    // Forward from `low` to above `high`; backward from the end to below the first record.
    for (bool started = false;; started = true) {
      const auto more = started   ? (forward ? cursor.next() : cursor.prev())
                        : forward ? cursor.seek(std::to_string(low))
                                  : cursor.last();
      if (!goes_on(more.status())) return;
      if (!*more) break;
      const auto record = cursor.current();
      if (!goes_on(record.status())) return;
      ASSERT_TRUE(record->has_value());
      const std::string key = Journal::map_of(drawn.map) + "/" + std::string((*record)->key);
      if (forward && key > action.end) break;
      if (key <= action.end) action.found.emplace(key, std::string((*record)->value));
    }
    recorded_.actions.push_back(std::move(action));
  }

  core::kv::OpenKv& kv_;
  Journal& journal_;
  core::Random random_;
  core::kv::Transaction writer_;
  core::kv::Transaction reader_;
  core::kv::Transaction* transaction_ = &writer_;
  core::kv::PageNumber maps_[Journal::kMaps] = {};
  Recorded recorded_;
  Seen stale_;  // a value that it wrote once
  Counts counts_;
  core::kv::MapNumber marker_map_ = 0;
  std::string marker_;  // empty: none
  bool appends_ = false;
  bool active_ = false;
  bool has_ended_ = false;
  std::uint64_t done_ = 0;
  std::uint64_t sync_one_in_ = 1000;
  std::uint64_t acknowledged_ = 0;
};

}  // namespace memlith::test
