// docs/guarantees.md, "Call by call": what is acknowledged before it is durable, on a disk that is full. It waits in
// memory, within its bounds, or is refused; and what was acknowledged becomes durable when there is space again.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/full_disk.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kMegabyte = 1 << 20;

// Collects what went wrong.
struct Wrong {
  std::string text;
  void operator()(bool holds, const std::string& what) {
    if (!holds) text += what + "\n";
  }
  template <class T>
  void must(const Result<T>& outcome, const std::string& what) {
    if (!outcome) text += what + ": " + std::string(outcome.error().message()) + "\n";
  }
  template <class T>
  void must_be_refused(const Result<T>& outcome, const std::string& what) {
    if (outcome.ok()) text += what + ": ok\n";
    if (!outcome.ok() && outcome.error().category() != MEMLITH_NO_SPACE) {
      text += what + ": " + std::string(outcome.error().message()) + "\n";
    }
  }
};

class FullDisk : public ::testing::Test {
 protected:
  // A store with a log of 1 MiB, which may grow, on a disk of 24 MiB. What the test does may be tried on a second disk.
  static StoreOptions options() { return {.create = true, .log_bytes = kMegabyte, .log_max_bytes = 64 * kMegabyte}; }
  void on_small_disk(const std::function<void(const std::string& folder, Wrong& wrong)>& act) {
    EXPECT_IN_CHILD([&]() -> std::string {
      if (auto reason = own_tmpfs(folder_.path(), "size=24m"); !reason.empty()) return reason;
      Wrong wrong;
      act(folder_.path(), wrong);
      return wrong.text;
    });
  }
  TempFolder folder_{"/tmp"};
};

std::string last_message() {
  char buffer[1024];
  memlith_last_error(buffer, sizeof buffer);
  return buffer;
}

Result<std::uint64_t> put(const Kv& kv, KvMap map, const std::string& key, const std::string& value,
                          Durability durability = Durability::weak) {
  return kv.transact([&](KvTransaction& txn) { return txn.put(map, key, value); }, durability);
}

// A closed store whose kv store has room for a value of 3 MiB in its region, but not in its log.
const std::string kLarge(3 * kMegabyte, 'l');
void make_with_room_for_large(const std::string& path, const StoreOptions& options, Wrong& wrong) {
  auto store = Store::open(path, options);
  auto kv = Kv::open(*store, "kv", {.create = true, .max_size = 16 * kMegabyte});
  const KvMap map = *kv->map("map", {.create = true});
  wrong.must(put(*kv, map, "large", kLarge), "put");
  wrong.must(kv->transact([&](KvTransaction& txn) { return txn.remove(map, "large"); }, Durability::weak), "remove");
  wrong.must(put(*kv, map, "small", "before"), "put");
  wrong.must(kv->close(), "close");
  wrong.must(store->close(), "close the store");
}

// Small weak commits need no more log than there is: they go on, and become durable.
TEST_F(FullDisk, SmallWeakCommitsGoOn) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    constexpr int kRecords = 500;
    constexpr int kCommits = 20'000;
    const auto value_of = [](int commit) { return std::to_string(commit) + std::string(400, 'v'); };
    {
      auto store = Store::open(folder + "/store", options());
      auto kv = Kv::open(*store, "kv", {.create = true, .max_size = 8 * kMegabyte, .window_ms = 20});
      wrong.must(kv, "open");
      const KvMap map = *kv->map("map", {.create = true});
      for (int i = 0; i < kRecords; ++i) wrong.must(put(*kv, map, std::to_string(i), value_of(0)), "put");
      wrong.must(kv->persist(), "persist");
      const Filler filler(folder);
      for (int i = 1; i <= kCommits && wrong.text.empty(); ++i) {
        wrong.must(put(*kv, map, std::to_string(i % kRecords), value_of(i)), "a weak commit");
      }
      wrong.must(kv->persist(), "persist on a full disk");
      wrong.must(kv->close(), "close on a full disk");
    }
    auto store = Store::open(folder + "/store", options());
    auto kv = Kv::open(*store);
    auto txn = kv->begin({.read_only = true});
    for (int i = kCommits - kRecords + 1; i <= kCommits; ++i) {
      auto found = txn->get(*kv->map("map"), std::to_string(i % kRecords));
      wrong(found && *found == value_of(i), "record " + std::to_string(i % kRecords) + " is not as committed");
    }
  });
}

// A weak commit that is larger than the log: those behind it are refused until there is space.
TEST_F(FullDisk, WeakCommitsBehindALargeOneAreRefused) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    make_with_room_for_large(folder + "/store", options(), wrong);
    {
      auto store = Store::open(folder + "/store", options());
      Filler filler(folder);
      auto kv = Kv::open(*store, "kv", {.window_ms = 20});
      const KvMap map = *kv->map("map");
      wrong.must(kv->transact(
                     [&](KvTransaction& txn) -> Result<void> {
                       if (auto done = txn.put(map, "large", kLarge); !done) return done;
                       return txn.put(map, "small", "with it");
                     },
                     Durability::weak),
                 "a large weak commit");
      wrong.must_be_refused(kv->persist(), "persist on a full disk");
      for (int i = 0; i < 1000; ++i) wrong.must_be_refused(put(*kv, map, "small", "refused"), "a commit behind it");
      wrong.must_be_refused(put(*kv, map, "small", "refused", Durability::sync), "a sync commit behind it");
      wrong.must_be_refused(kv->map("other", {.create = true}), "a new map");
      std::int32_t told = MEMLITH_OK;
      wrong(kv->info()->durable < kv->info()->commits && kv->durable() < store->newest(),
            "what is in memory only is called durable");
      wrong.must_be_refused(kv->close(), "close on a full disk");
      wrong(last_message().find("commits behind number") != std::string::npos, "the message does not say what waits");
      {
        auto txn = kv->begin({.read_only = true});
        wrong(txn && *txn->get(map, "small") == "with it", "a refused commit is visible, or an acknowledged one not");
      }
      filler.release();
      wrong.must(kv->persist(), "persist with space again");
      wrong.must(put(*kv, map, "small", "after"), "a commit with space again");
      wrong.must(kv->on_durable(store->newest(), [&](std::int32_t code) { told = code; }), "on_durable");
      wrong.must(kv->close(), "close");
      wrong(told == MEMLITH_OK, "a commit was not called durable");
    }
    auto store = Store::open(folder + "/store", options());
    auto kv = Kv::open(*store);
    auto txn = kv->begin({.read_only = true});
    const KvMap map = *kv->map("map");
    wrong(*txn->get(map, "large") == kLarge && *txn->get(map, "small") == "after", "a commit is lost");
  });
}

// A commit without room in the log holds up every structure of the store, because none may lie before it; all go on
// when there is space.
TEST_F(FullDisk, ACommitWithoutRoomHoldsUpTheWholeStore) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    make_with_room_for_large(folder + "/store", options(), wrong);
    {
      auto store = Store::open(folder + "/store", options());
      auto region = store->region("region", {.create = true, .tracker = Tracker::touched, .size = 4096});
      auto other = Kv::open(*store, "other", {.create = true, .max_size = 4 * kMegabyte, .window_ms = 20});
      const KvMap in_other = *other->map("map", {.create = true});
      auto log = AppLog::open(*store, "log", {.create = true, .size = kMegabyte});
      auto kv = Kv::open(*store, "kv", {.window_ms = 20});
      const KvMap map = *kv->map("map");
      Filler filler(folder);
      wrong.must(put(*kv, map, "large", kLarge), "a large weak commit");
      auto* const word = static_cast<std::uint64_t*>(region->address());
      *word = 1;
      wrong.must(region->touch(word, sizeof *word), "touch");
      wrong.must_be_refused(region->persist(), "a persist behind it");
      wrong.must_be_refused(region->persist_async(), "an asynchronous persist behind it");
      wrong.must_be_refused(put(*other, in_other, "key", "refused"), "a weak commit of another kv store");
      wrong.must_be_refused(log->append("refused"), "an entry of a log");
      wrong.must_be_refused(store->region("more", {.create = true, .size = 4096}), "a new region");
      wrong(kv->info()->durable < kv->info()->commits && kv->durable() < store->newest(),
            "what is in memory only is called durable");
      filler.release();
      wrong.must(region->persist(), "a persist with space again");
      wrong(kv->info()->durable == kv->info()->commits, "a persist is durable without the commit before it");
      wrong.must(put(*other, in_other, "key", "after"), "a weak commit with space again");
      wrong.must(log->append("after"), "an entry with space again");
      wrong.must(log->close(), "close the log");
      wrong.must(other->close(), "close the other");
      wrong.must(kv->close(), "close");
    }
    auto store = Store::open(folder + "/store", options());
    auto kv = Kv::open(*store);
    auto txn = kv->begin({.read_only = true});
    wrong(*txn->get(*kv->map("map"), "large") == kLarge, "a commit is lost");
  });
}

// Closing the store without having closed the kv store cannot be tried again, and says what is lost.
TEST_F(FullDisk, ClosingTheStoreTellsWhatIsLost) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    make_with_room_for_large(folder + "/store", options(), wrong);
    {
      auto store = Store::open(folder + "/store", options());
      const Filler filler(folder);
      // Not destroyed: the store's close frees what it holds.
      auto opened = Kv::open(*store);
      auto* const kv = new Kv(std::move(*opened));
      wrong.must(put(*kv, *kv->map("map"), "large", kLarge), "a large weak commit");
      std::int32_t told = MEMLITH_OK;
      wrong.must(kv->on_durable(store->newest(), [&](std::int32_t code) { told = code; }), "on_durable");
      wrong.must_be_refused(store->close(), "closing the store");
      wrong(last_message().find("commits behind number") != std::string::npos, "the message does not say what waits");
      wrong(memlith_category(told) == MEMLITH_NO_SPACE, "a callback was not told that its commit is lost");
    }
    auto store = Store::open(folder + "/store", options());
    auto kv = Kv::open(*store);
    auto txn = kv->begin({.read_only = true});
    wrong(*txn->get(*kv->map("map"), "small") == "before", "a durable commit is lost");
    wrong(!txn->get(*kv->map("map"), "large").ok(), "the commit that was called lost is there");
  });
}

// Application logs: small entries go on; those larger than the redo log wait, and the appends behind them are refused.
TEST_F(FullDisk, ApplicationLogs) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    std::vector<std::string> appended;
    {
      auto store = Store::open(folder + "/store", options());
      auto log = AppLog::open(*store, "log", {.create = true, .size = 12 * kMegabyte});
      wrong.must(log, "open");
      Filler filler(folder);
      const auto append = [&](std::string entry) -> Result<std::uint64_t> {
        auto number = log->append(entry);
        if (number) appended.push_back(std::move(entry));
        return number;
      };
      for (int i = 0; i < 5000; ++i) wrong.must(append(std::to_string(i) + std::string(600, 'e')), "an append");
      wrong.must(log->write(), "write on a full disk");
      wrong.must(append(std::string(3 * kMegabyte, 'l')), "an entry that is larger than the redo log");
      wrong.must_be_refused(log->write(), "its write");
      wrong.must_be_refused(log->write_weak(), "its asynchronous write");
      for (int i = 0; i < 1000; ++i) wrong.must_be_refused(append("refused"), "an append behind it");
      wrong(log->durable() == 5000, "an entry that is in memory only is called durable");
      wrong.must_be_refused(log->close(), "close on a full disk");
      filler.release();
      wrong.must(append("after"), "an append with space again");
      wrong.must(log->close(), "close");
    }
    auto store = Store::open(folder + "/store", options());
    auto log = AppLog::open(*store);
    for (const std::string& each : appended) {
      auto entry = log->read();
      wrong(entry && entry->has_value() && (*entry)->content == each, "an entry is lost or another one");
      if (!wrong.text.empty()) return;
    }
    wrong(!(*log->read()).has_value(), "an entry that was refused is there");
  });
}

// Asynchronous persists are acknowledged when the log has taken them: then they need no more space. One that the log
// cannot take is refused, and what was stored stays due.
TEST_F(FullDisk, AsynchronousPersists) {
  on_small_disk([](const std::string& folder, Wrong& wrong) {
    constexpr std::uint64_t kBytes = 4 * kMegabyte;
    const auto value_at = [](std::uint64_t i) { return static_cast<unsigned char>(i * 31 + i / 4096); };
    // Ends as by a kill: nothing is closed.
    wrong.text += in_child([&]() -> std::string {
      Wrong inner;
      auto opened = Store::open(folder + "/store", options());
      auto* const store = new Store(std::move(*opened));
      auto made = store->region("region", {.create = true, .size = kBytes});
      auto* const region = new Region(std::move(*made));
      auto* const bytes = static_cast<unsigned char*>(region->address());
      Filler filler(folder);
      for (std::uint64_t i = 1; i <= 2000 && inner.text.empty(); ++i) {
        bytes[i * 1021] = static_cast<unsigned char>(i);
        inner.must(region->persist_async(), "a small asynchronous persist");
      }
      for (std::uint64_t i = 0; i < kBytes; ++i) bytes[i] = value_at(i);
      for (int i = 0; i < 100; ++i) inner.must_be_refused(region->persist_async(), "one that is larger than the log");
      filler.release();
      const auto ticket = region->persist_async();
      inner.must(ticket, "with space again");
      if (ticket) inner.must(store->wait(*ticket), "wait");
      return inner.text;
    });
    auto store = Store::open(folder + "/store", options());
    auto region = store->region("region");
    const auto* const bytes = static_cast<const unsigned char*>(region->address());
    for (std::uint64_t i = 0; i < kBytes && wrong.text.empty(); ++i) {
      wrong(bytes[i] == value_at(i), "byte " + std::to_string(i) + " is not as persisted");
    }
  });
}

}  // namespace
}  // namespace memlith::test
