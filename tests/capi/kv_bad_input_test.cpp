// docs/kv.md, "Errors": what a kv store cannot take is an error that says which, and nothing is lost by it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::kv_bad_input_test {
namespace {

constexpr std::size_t kPageBytes = 4096;

// A store with map "map", whose records key0 to key2999 hold their own names, 100 times.
class KvBadInput : public ::testing::Test {
 protected:
  void open(const StoreOptions& store_options = {.create = true}, const KvOptions& options = {.create = true}) {
    auto opened_store = Store::open(folder_ / "store", store_options);
    ASSERT_TRUE(opened_store) << opened_store.error().message();
    store.emplace(std::move(*opened_store));
    auto opened = Kv::open(*store, "kv", options);
    ASSERT_TRUE(opened) << opened.error().message();
    kv.emplace(std::move(*opened));
    auto found = kv->map("map", {.create = true});
    ASSERT_TRUE(found) << found.error().message();
    map = *found;
  }
  void close() {
    ASSERT_TRUE(kv->close());
    ASSERT_TRUE(store->close());
    kv.reset();
    store.reset();
  }
  static std::string key_of(int i) { return "key" + std::to_string(i); }
  static std::string value_of(int i) {
    std::string value;
    for (int n = 0; n < 100; ++n) value += key_of(i);
    return value;
  }
  void fill(int records) {
    for (int i = 0; i < records; ++i) {
      ASSERT_TRUE(kv->transact([&](KvTransaction& txn) { return txn.put(map, key_of(i), value_of(i)); },
                               Durability::weak));
    }
  }
  // How many of the records are there, each whole; -1: one is not.
  int count(int records) {
    auto reader = kv->begin({.read_only = true});
    int found = 0;
    for (int i = 0; i < records; ++i) {
      auto value = reader->find(map, key_of(i));
      if (!value) continue;
      if (!*value || **value != value_of(i)) return -1;
      ++found;
    }
    return found;
  }
  template <class T>
  static void expect_error(const memlith::Result<T>& result, std::int32_t category, const std::string& said) {
    ASSERT_FALSE(result.ok()) << "wanted: " << said;
    EXPECT_EQ(result.error().category(), category) << result.error().message();
    EXPECT_NE(result.error().message().find(said), std::string::npos) << result.error().message();
  }

  TempFolder folder_;
  std::optional<Store> store;
  std::optional<Kv> kv;
  KvMap map = 0;
};

TEST_F(KvBadInput, KeysAndValuesThatAreTooLong) {
  open();
  auto txn = std::optional(std::move(*kv->begin()));
  ASSERT_TRUE(txn->put(map, "a", "1"));
  expect_error(txn->put(map, "", "1"), MEMLITH_INVALID, "1 to 1024 bytes; this one has 0");
  expect_error(txn->put(map, std::string(1025, 'k'), "1"), MEMLITH_INVALID, "this one has 1025");
  expect_error(txn->get(map, std::string(1025, 'k')), MEMLITH_INVALID, "this one has 1025");
  expect_error(txn->remove(map, std::string(1025, 'k')), MEMLITH_INVALID, "this one has 1025");
  expect_error(txn->cursor(map)->seek(std::string(1025, 'k')), MEMLITH_INVALID, "this one has 1025");
  const std::string longest(MEMLITH_KV_VALUE_BYTES_MAX, 'v');
  expect_error(txn->put(map, "b", longest + "v"), MEMLITH_INVALID, "up to 16777216 bytes; this one has 16777217");
  expect_error(txn->put(map + 1000, "b", "1"), MEMLITH_INVALID, "no map number");
  expect_error(kv->map(std::string(256, 'm'), {.create = true}), MEMLITH_INVALID, "255");
  // The transaction goes on, with the longest that there may be.
  ASSERT_TRUE(txn->put(map, std::string(1024, 'k'), longest));
  const auto done = txn->commit(Durability::sync);
  ASSERT_TRUE(done) << done.error().message();
  txn.reset();
  close();
  open();
  auto reader = kv->begin({.read_only = true});
  EXPECT_EQ(*reader->get(map, "a"), "1");
  EXPECT_EQ(*reader->get(map, std::string(1024, 'k')), longest);
}

TEST_F(KvBadInput, ATransactionLargerThanTheLog) {
  open({.create = true, .log_bytes = 1 << 20, .log_max_bytes = 1 << 20});
  fill(20);
  // The put that makes it too large says so, and what was put before it can be committed.
  for (const Durability durability : {Durability::weak, Durability::sync}) {
    auto txn = kv->begin();
    int i = durability == Durability::weak ? 100 : 500;
    const int first = i;
    auto put = txn->put(map, key_of(i), std::string(10'000, 'x'));
    while (put && i < first + 100) put = txn->put(map, key_of(++i), std::string(10'000, 'x'));
    expect_error(put, MEMLITH_FULL, "log_max_bytes");
    EXPECT_GT(i, first + 10);
    EXPECT_TRUE(txn->active());
    EXPECT_FALSE(*txn->find(map, key_of(i)));
    EXPECT_TRUE(txn->commit(durability));
  }
  EXPECT_EQ(count(20), 20);
  auto txn = kv->begin();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(txn->put(map, key_of(i), value_of(i)));
  EXPECT_TRUE(txn->commit(Durability::sync)) << "one that fits";
  // Together the weak commits are far more than the log.
  for (int round = 0; round < 200; ++round) {
    const auto done = kv->transact(
        [&](KvTransaction& big) -> memlith::Result<void> {
          for (int i = 0; i < 20; ++i) {
            if (auto put = big.put(map, key_of(i), value_of(i) + std::to_string(round)); !put) return put;
          }
          return {};
        },
        Durability::weak);
    ASSERT_TRUE(done) << done.error().message();
  }
  EXPECT_TRUE(kv->persist());
  EXPECT_TRUE(kv->verify());
}

// Records that are rewritten with values of the same length change where they are: that takes no pages, and of the log
// little more than the values.
TEST_F(KvBadInput, RewritesInPlaceTakeNoRoom) {
  constexpr int kRecords = 16'000;
  open({.create = true, .log_bytes = 2 << 20, .log_max_bytes = 2 << 20}, {.create = true, .max_size = 4 << 20});
  for (int i = 0; i < kRecords; i += 50) {
    ASSERT_TRUE(kv->transact(
        [&](KvTransaction& txn) -> memlith::Result<void> {
          for (int k = i; k < i + 50; ++k) {
            if (auto put = txn.put(map, key_of(k), std::string(100, 'a')); !put) return put;
          }
          return {};
        },
        Durability::weak));
  }
  const auto before = kv->info();
  EXPECT_GT(before->pages * kPageBytes, std::uint64_t{4} << 19) << "more than half of the room is used";
  const auto done = kv->transact(
      [&](KvTransaction& txn) -> memlith::Result<void> {
        for (int k = 0; k < kRecords; k += 3) {
          if (auto put = txn.put(map, key_of(k), std::string(100, 'b')); !put) return put;
        }
        return {};
      },
      Durability::sync);
  ASSERT_TRUE(done) << done.error().message();
  const auto after = kv->info();
  EXPECT_EQ(after->pages, before->pages);  // the region may have grown ahead of need
  EXPECT_TRUE(kv->verify());
}

// Transactions that remove, grow, shrink and add records, in a region with hardly more room than they need: what was
// reckoned before suffices, or the commit is refused.
TEST_F(KvBadInput, ACommitHasTheRoomThatWasReservedOrIsRefused) {
  open({.create = true}, {.create = true, .max_size = 1 << 20});
  std::uint64_t draw = 88172645463325252u;
  const auto next = [&draw](std::uint64_t below) {
    draw ^= draw << 13;
    draw ^= draw >> 7;
    draw ^= draw << 17;
    return draw % below;
  };
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    const bool shrinks = round % 100 >= 70;
    const auto done = kv->transact(
        [&](KvTransaction& txn) -> memlith::Result<void> {
          for (std::uint64_t n = 1 + next(40); n-- > 0;) {
            std::string key = std::to_string(next(900));
            if (next(4) == 0) key += std::string(1 + next(900), 'k');
            if (shrinks ? next(4) > 0 : next(4) == 0) {
              if (auto gone = txn.remove(map, key); !gone && gone.error().category() != MEMLITH_NOT_FOUND) return gone;
            } else if (auto put = txn.put(map, key, std::string(next(next(9) == 0 ? 9000 : 1200), 'v')); !put) {
              return put;
            }
          }
          return {};
        },
        Durability::weak);
    if (done) continue;
    expect_error(done, MEMLITH_NO_SPACE, "max_size");
    ++refused;
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 500);
  EXPECT_TRUE(kv->verify());
}

TEST_F(KvBadInput, AForkedChild) {
  open();
  fill(3);
  auto txn = kv->begin();
  auto cursor = txn->cursor(map);
  ASSERT_TRUE(cursor->first());
  EXPECT_IN_CHILD([&]() -> std::string {
    const std::int32_t refused = txn->get(map, "key1").error().category();
    if (refused == MEMLITH_OK) return "get is not refused";
    for (auto* step : {memlith_kv_cursor_first, memlith_kv_cursor_last, memlith_kv_cursor_next, memlith_kv_cursor_prev,
                       memlith_kv_cursor_remove}) {
      memlith_kv_cursor* raw = nullptr;
      std::memcpy(&raw, &*cursor, sizeof raw);  // the handle is all that a Cursor has
      if (memlith_category(step(raw)) != refused) return "a step is not refused";
    }
    const auto current = cursor->current();
    if (current || current.error().category() != refused) return "current is not refused";
    const auto sought = cursor->seek("key1");
    if (sought || sought.error().category() != refused) return "seek is not refused";
    return "";
  });
  EXPECT_TRUE(cursor->next());
}

// A kv store that is not closed, because transactions are left, can be used on, and closed later.
TEST_F(KvBadInput, ACloseThatIsRefused) {
  open();
  auto txn = std::optional(std::move(*kv->begin()));
  expect_error(kv->close(), MEMLITH_BUSY, "transactions were not freed");
  ASSERT_TRUE(txn->put(map, "a", "1"));
  ASSERT_TRUE(txn->commit(Durability::weak));
  txn.reset();
  EXPECT_TRUE(kv->close());
  EXPECT_TRUE(Kv::open(*store, "kv"));
}

TEST_F(KvBadInput, ARegionThatIsFull) {
  open({.create = true}, {.create = true, .max_size = 2 << 20});
  int put = 0;
  for (;; ++put) {
    const auto done =
        kv->transact([&](KvTransaction& txn) { return txn.put(map, key_of(put), value_of(put)); }, Durability::weak);
    if (done) continue;
    expect_error(done, MEMLITH_NO_SPACE, "max_size");
    break;
  }
  EXPECT_GT(put, 1000);
  EXPECT_EQ(count(put), put);
  EXPECT_TRUE(kv->verify());
  // Removed records make room again.
  for (int i = 0; i < put; i += 2) {
    const auto done = kv->transact([&](KvTransaction& txn) { return txn.remove(map, key_of(i)); }, Durability::weak);
    ASSERT_TRUE(done) << done.error().message();
  }
  EXPECT_TRUE(kv->transact([&](KvTransaction& txn) { return txn.put(map, "more", "1"); }, Durability::weak));
  close();
  open();
  EXPECT_TRUE(kv->verify());
  auto reader = kv->begin({.read_only = true});
  EXPECT_EQ(*reader->get(map, key_of(1)), value_of(1));
}

// A full disk, in a child whose files may not grow any more (RLIMIT_FSIZE): the commit that needs room fails, all
// others hold, and when there is room again the same commit succeeds.
TEST_F(KvBadInput, ADiskThatIsFull) {
  const auto live = [&]() -> std::string {
    open({.create = true, .log_bytes = 1 << 20, .log_max_bytes = 8 << 20});
    fill(1000);
    if (!kv->persist()) return "persist";
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit full{kv->info()->region_bytes, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
    int put = 1000;
    for (; put < 20'000; ++put) {
      const auto done =
          kv->transact([&](KvTransaction& txn) { return txn.put(map, key_of(put), value_of(put)); }, Durability::weak);
      if (done) continue;
      if (done.error().category() != MEMLITH_NO_SPACE) return done.error().message();
      break;
    }
    if (put == 20'000) return "the disk was never full";
    if (count(put) != put) return "records were lost";
    if (auto sound = kv->verify(); !sound) return sound.error().message();
    ::setrlimit(RLIMIT_FSIZE, &before);
    const auto again =
        kv->transact([&](KvTransaction& txn) { return txn.put(map, key_of(put), value_of(put)); }, Durability::sync);
    if (!again) return again.error().message();
    close();
    open();
    if (count(put + 1) != put + 1) return "records were lost by reopening";
    return kv->verify() ? "" : "damaged";
  };
  EXPECT_IN_CHILD(live);
}

TEST_F(KvBadInput, CorruptPages) {
  constexpr int kRecords = 3000;
  open();
  fill(kRecords);
  const std::uint64_t pages = kv->info()->pages;
  close();
  const std::string file = folder_ / "store/objects/1";
  const std::string sound = read_file(file);
  // All files: the region may have grown ahead by now, or grows in what follows.
  const auto restore = [&](const char* from, const char* to) {
    std::filesystem::remove_all(folder_ / to);
    std::filesystem::copy(folder_ / from, folder_ / to, std::filesystem::copy_options::recursive);
  };
  restore("store", "sound");
  ASSERT_GE(sound.size(), pages * kPageBytes);
  // A leaf in the middle of the file.
  std::size_t page = pages / 2;
  while (sound[page * kPageBytes + 4] != 1) ++page;
  for (const bool zeros : {true, false}) {
    std::string damaged = sound;
    std::memset(damaged.data() + page * kPageBytes + (zeros ? 0 : 16), zeros ? 0 : 0x77, zeros ? kPageBytes : 600);
    restore("sound", "store");
    write_file(file, damaged);
    open();
    auto txn = std::optional(std::move(*kv->begin()));
    int corrupt = 0;
    for (int i = 0; i < kRecords; ++i) {
      const auto value = txn->get(map, key_of(i));
      if (value) {
        ASSERT_EQ(*value, value_of(i));
        continue;
      }
      expect_error(value, MEMLITH_CORRUPT, "page " + std::to_string(page) + " of the kv store is damaged");
      ++corrupt;
      EXPECT_TRUE(txn->active());
    }
    EXPECT_GT(corrupt, 0);
    EXPECT_LT(corrupt, 40);
    EXPECT_TRUE(txn->commit(Durability::weak));
    txn.reset();
    // A commit that has to change the page fails as a whole; others do not.
    for (int i = 0; i < kRecords; ++i) {
      auto other = kv->begin();
      ASSERT_TRUE(other->put(map, "another", "1") && other->put(map, key_of(i), value_of(i)));
      const auto done = other->commit(Durability::weak);
      if (!done) expect_error(done, MEMLITH_CORRUPT, "page " + std::to_string(page));
      corrupt -= done ? 0 : 1;
    }
    EXPECT_EQ(corrupt, 0);
    expect_error(kv->verify(), MEMLITH_CORRUPT, "page " + std::to_string(page));
    kv.reset();
    store.reset();
  }
  std::string other = sound;
  other[16] ^= 1;  // behind the bytes of the in-use header
  restore("sound", "store");
  write_file(file, other);
  auto damaged_store = Store::open(folder_ / "store", {});
  ASSERT_TRUE(damaged_store);
  expect_error(Kv::open(*damaged_store, "kv"), MEMLITH_INCOMPATIBLE, "holds no kv store");
}

// A region of another making, smaller than any kv store.
TEST_F(KvBadInput, ARegionOfOnePage) {
  open();
  ASSERT_TRUE(store->region("small", {.create = true, .size = kPageBytes}));
  for (const bool create : {false, true}) {
    expect_error(Kv::open(*store, "small", {.create = create}), MEMLITH_INCOMPATIBLE, "has 4096 bytes");
  }
  EXPECT_TRUE(store->region("small")) << "it was closed again";
}

TEST_F(KvBadInput, UseAfterTheEnd) {
  open();
  fill(3);
  auto txn = kv->begin();
  auto cursor = txn->cursor(map);
  ASSERT_TRUE(cursor->first());
  ASSERT_TRUE(txn->commit(Durability::weak));
  const std::string ended = "has ended";
  expect_error(txn->get(map, "key1"), MEMLITH_INVALID, ended);
  expect_error(txn->put(map, "key1", "1"), MEMLITH_INVALID, ended);
  expect_error(txn->remove(map, "key1"), MEMLITH_INVALID, ended);
  expect_error(txn->commit(Durability::weak), MEMLITH_INVALID, ended);
  expect_error(txn->savepoint(), MEMLITH_INVALID, ended);
  expect_error(txn->undo_to(1), MEMLITH_INVALID, ended);
  expect_error(txn->cursor(map), MEMLITH_INVALID, ended);
  expect_error(cursor->next(), MEMLITH_INVALID, ended);
  expect_error(cursor->current(), MEMLITH_INVALID, ended);
  expect_error(cursor->remove(), MEMLITH_INVALID, ended);
  ASSERT_TRUE(txn->renew());
  expect_error(txn->renew(), MEMLITH_INVALID, "active");
  expect_error(cursor->next(), MEMLITH_INVALID, ended);  // it was of the earlier one
  EXPECT_TRUE(txn->get(map, "key1"));
  ASSERT_TRUE(txn->abort());
  expect_error(txn->get(map, "key1"), MEMLITH_INVALID, ended);
  // A map that was removed.
  ASSERT_TRUE(kv->remove_map("map"));
  ASSERT_TRUE(txn->renew());
  expect_error(txn->get(map, "key1"), MEMLITH_INVALID, "no map number");
  expect_error(txn->put(map, "key1", "1"), MEMLITH_INVALID, "no map number");
  // A transaction that uses a map keeps others from removing it.
  auto fresh = kv->map("fresh", {.create = true});
  ASSERT_TRUE(fresh && txn->put(*fresh, "a", "1"));
  expect_error(kv->remove_map("fresh"), MEMLITH_CONFLICT, "uses map");
  ASSERT_TRUE(txn->commit(Durability::weak));
  EXPECT_TRUE(kv->remove_map("fresh"));
}

}  // namespace
}  // namespace memlith::test::kv_bad_input_test
