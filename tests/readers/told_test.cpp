// docs/guarantees.md, "Kv transaction", "Kv get", "Transaction of the store", "Heaps and regions" and "Application
// log": what a reader is told while flushes are slow is there after every power cut from then on.
//
// Threads commit, and others read, on a simulated disk whose transfers take a while. What each reader was told is
// written down with the number of operations that the disk had seen by then.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "applog/applog.hpp"
#include "kv/kv.hpp"
#include "kv/part.hpp"
#include "region/transaction.hpp"
#include "sim/power_cuts.hpp"
#include "support/expect.hpp"
#include "world.hpp"

namespace memlith::test::told_test {
namespace {

using applog::AppLog;
using kv::Durability;
using kv::Kv;

constexpr const char* kKey = "n";
constexpr int kWriters = 2;

StoreOptions store_options() {
  StoreOptions options = options_of(StoreKind::folder);
  options.log_bytes = options.log_max_bytes = 1 * kMiB;
  return options;
}

// A kv store with a record that counts, a region with a word that counts, and an application log.
class Counters {
 public:
  explicit Counters(SimVolume& volume) : store_(must(Store::open(volume, store_options()))) {
    kv_ = must(Kv::open(open("kv", 64 * kKiB), {true, {}, true}));
    map_ = must(kv_->open_map("map", true, false));
    log_ = must(AppLog::open(open("log", 64 * kKiB), {true, applog::WhenFull::fail, true}));
    words_ = &open("words", 4 * kPageBytes);
  }
  ~Counters() {
    kv_ = nullptr;
    log_ = nullptr;
  }
  Store& store() { return *store_; }
  Kv& kv() { return *kv_; }
  AppLog& log() { return *log_; }

  // The record, in a transaction. False: a conflict has ended the transaction.
  bool read(kv::Transaction& transaction, std::uint64_t& number) {
    const auto found = transaction.get(map_, kKey);
    if (!found.ok()) return expect_conflict(found.status());
    number = found->has_value() ? std::stoull(std::string(**found)) : 0;
    return true;
  }
  std::uint64_t count(Durability durability) {
    kv::Transaction transaction(*kv_, false);
    for (std::uint64_t number = 0;; std::this_thread::yield()) {
      EXPECT_OK(transaction.begin());
      if (!read(transaction, number)) continue;
      if (const Status put = transaction.put(map_, kKey, std::to_string(++number)); !put.ok()) {
        expect_conflict(put);
        continue;
      }
      EXPECT_OK(transaction.commit(durability, nullptr).status());
      return number;
    }
  }
  // The word, under the program's lock.
  std::uint64_t word(std::uint64_t more = 0) {
    const std::lock_guard lock(words_mutex_);
    auto* const word = reinterpret_cast<std::uint64_t*>(words_->address());
    if (more == 0) return *word;
    *word += more;
    EXPECT_OK(words_->touch(word, sizeof *word));
    return *word;
  }
  Status persist_words() { return Region::persist({&words_, 1}); }
  Result<Lsn> capture_words() { return Region::capture({&words_, 1}, Scope::process, false); }

 private:
  static bool expect_conflict(Status status) {
    EXPECT_ERROR(Errc::conflict, status);
    return false;
  }
  Region& open(const std::string& name, std::uint64_t size) {
    RegionOptions options;
    options.create = store_->find(name) == std::nullopt;
    options.tracker = TrackerKind::touched;
    options.size_bytes = options.create ? size : 0;
    options.reserve_bytes = options.create ? kReserve : 0;
    regions_.push_back(must(Region::open(*store_, name, options)));
    return *regions_.back();
  }

  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::unique_ptr<Kv> kv_;
  std::unique_ptr<AppLog> log_;
  Region* words_ = nullptr;
  kv::MapNumber map_ = 0;
  std::mutex words_mutex_;
};

enum class Face : std::uint8_t { locking, snapshot, joint, memory, entries };

struct Told {
  Face face;
  std::uint64_t number;
  std::size_t operation;  // of the disk, so many by then
};

class Crowd {
 public:
  Crowd() {
    counters_.emplace(volume_);
    made_ = volume_.operations();
    volume_.before_transfer = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); };
  }

  void run(int commits) {
    left_ = kWriters * commits;
    std::vector<std::thread> threads;
    for (int i = 0; i < kWriters; ++i) {
      threads.emplace_back([this] {
        while (left_.fetch_sub(1) > 0) counters_->count(Durability::sync);
      });
    }
    for (const bool read_only : {false, true}) {
      threads.emplace_back([this, read_only] { look(read_only ? Face::snapshot : Face::locking); });
    }
    threads.emplace_back([this] { look(Face::joint); });
    threads.emplace_back([this] {
      while (left_ > 0) {
        counters_->word(1);
        EXPECT_OK(counters_->persist_words());
      }
    });
    threads.emplace_back([this] {
      while (left_ > 0) {
        const std::uint64_t number = counters_->word();
        EXPECT_OK(counters_->persist_words());
        tell(Face::memory, number);
      }
    });
    threads.emplace_back([this] {
      const std::string text = "entry";
      const AppLog::Content content = std::as_bytes(std::span(text.data(), text.size()));
      while (left_ > 0) {
        EXPECT_OK(counters_->log().append({&content, 1}).status());
        EXPECT_OK(counters_->log().write());
      }
    });
    threads.emplace_back([this] {
      for (AppLog::Entry entry; left_ > 0;) {
        if (must(counters_->log().read(5, entry))) tell(Face::entries, entry.number);
      }
    });
    for (std::thread& thread : threads) thread.join();
    volume_.before_transfer = nullptr;
    counters_.reset();
  }

  // How many power cuts take back what a reader was told.
  std::uint64_t explore(std::uint64_t& cuts_made) {
    Random random(random_identity());
    std::uint64_t violations = 0;
    for (CrashPoints points(volume_.trace(), made_); points.next();) {
      if (points.medium().pending_count() == 0) continue;
      std::uint64_t promised[3] = {};
      for (const Told& each : told_) {
        std::uint64_t& newest = promised[place_of(each.face)];
        if (each.operation <= points.at()) newest = std::max(newest, each.number);
      }
      for (PowerCuts cuts(points.medium(), {1, 1}, random); cuts.next(); ++cuts_made) {
        SimVolume cut(cuts.image());
        if (!keeps(cut, promised)) ++violations;
      }
    }
    return violations;
  }
  [[nodiscard]] std::size_t told(Face face) const {
    return static_cast<std::size_t>(std::count_if(told_.begin(), told_.end(),
                                                  [face](const Told& each) { return each.face == face; }));
  }

 private:
  static std::size_t place_of(Face face) { return face == Face::memory ? 1 : face == Face::entries ? 2 : 0; }
  static bool keeps(SimVolume& volume, const std::uint64_t (&promised)[3]) {
    Counters counters(volume);
    kv::Transaction reader(counters.kv(), true);
    EXPECT_OK(reader.begin());
    std::uint64_t number = 0;
    EXPECT_TRUE(counters.read(reader, number));
    return number >= promised[0] && counters.word() >= promised[1] && counters.log().durable() >= promised[2];
  }
  void tell(Face face, std::uint64_t number) {
    const std::size_t operation = volume_.operations();
    const std::lock_guard lock(mutex_);
    told_.push_back({face, number, operation});
  }
  void look(Face face) {
    kv::Transaction reader(counters_->kv(), face == Face::snapshot);
    for (std::uint64_t number = 0; left_ > 0;) {
      EXPECT_OK(reader.begin());
      if (!counters_->read(reader, number)) continue;
      if (face == Face::joint) {
        Transaction together(counters_->store());
        EXPECT_OK(together.add(std::make_unique<kv::KvPart>(reader)));
        EXPECT_OK(counters_->store().sync(must(together.capture(true))));
        together.forget();
      } else {
        EXPECT_OK(reader.commit(Durability::sync, nullptr).status());
      }
      tell(face, number);
    }
  }

  SimVolume volume_{{}, true};
  std::optional<Counters> counters_;
  std::size_t made_ = 0;
  std::atomic<int> left_{0};
  std::mutex mutex_;
  std::vector<Told> told_;
};

TEST(KvReaders, ADurableReadIsThereAfterEveryCut) {
  Crowd crowd;
  crowd.run(60);
  for (const Face face : {Face::locking, Face::snapshot, Face::joint, Face::memory, Face::entries}) {
    EXPECT_GT(crowd.told(face), 5u) << static_cast<int>(face);
  }
  std::uint64_t cuts = 0;
  EXPECT_EQ(crowd.explore(cuts), 0u);
  EXPECT_GT(cuts, 150u) << "30 of each face";
}

TEST(KvReaders, NoticesAReaderThatDoesNotWait) {
  std::uint64_t violations = 0;
  for (int tries = 0; tries < 20 && violations == 0; ++tries) {
    Crowd crowd;
    active_mutant = Mutant::kv_read_not_waited;
    crowd.run(10);
    active_mutant = Mutant::none;
    std::uint64_t cuts = 0;
    violations = crowd.explore(cuts);
  }
  EXPECT_GT(violations, 0u);
}

// Nothing makes a weak commit durable but a call that asks for it.
class KvReads : public ::testing::Test {
 protected:
  std::uint64_t look(kv::Transaction& reader, Durability durability) {
    std::uint64_t number = 0;
    EXPECT_TRUE(counters_.read(reader, number));
    EXPECT_OK(reader.commit(durability, nullptr).status());
    return number;
  }
  SimVolume volume_{{}, true};
  Counters counters_{volume_};
};

TEST_F(KvReads, OnlyDurableOnesWait) {
  for (const bool read_only : {false, true}) {
    const std::uint64_t number = counters_.count(Durability::weak);
    kv::Transaction reader(counters_.kv(), read_only);
    const std::size_t before = volume_.operations();
    EXPECT_OK(reader.begin());
    EXPECT_EQ(look(reader, Durability::weak), number);
    EXPECT_OK(reader.begin());
    std::uint64_t seen = 0;
    EXPECT_TRUE(counters_.read(reader, seen));
    reader.abort();
    EXPECT_EQ(volume_.operations(), before) << "a weak end and an abort write and flush nothing";
    EXPECT_LT(counters_.kv().durable(), counters_.kv().newest());
    EXPECT_OK(reader.begin());
    EXPECT_EQ(look(reader, Durability::sync), number);
    EXPECT_EQ(counters_.kv().durable(), counters_.kv().newest());
    const std::size_t after = volume_.operations();
    EXPECT_OK(reader.begin());
    EXPECT_EQ(look(reader, Durability::sync), number);
    EXPECT_EQ(volume_.operations(), after) << "free when it is durable";
  }
}

TEST_F(KvReads, ASnapshotWaitsForItsOwnStateOnly) {
  const std::uint64_t number = counters_.count(Durability::sync);
  kv::Transaction reader(counters_.kv(), true);
  EXPECT_OK(reader.begin());
  counters_.count(Durability::weak);
  const std::size_t before = volume_.operations();
  EXPECT_EQ(look(reader, Durability::sync), number);
  EXPECT_EQ(volume_.operations(), before);
}

TEST_F(KvReads, AFailedFlushIsTheReadersError) {
  const std::uint64_t number = counters_.count(Durability::sync);
  kv::Transaction durable(counters_.kv(), true);
  EXPECT_OK(durable.begin());
  counters_.count(Durability::weak);
  volume_.faults().plan(SimFaults::Kind::fail_flush, 0);
  kv::Transaction reader(counters_.kv(), true);
  EXPECT_OK(reader.begin());
  EXPECT_ERROR(Errc::io, reader.commit(Durability::sync, nullptr).status());
  EXPECT_OK(reader.begin());
  EXPECT_ERROR(Errc::io, reader.commit(Durability::sync, nullptr).status());
  EXPECT_EQ(look(durable, Durability::sync), number) << "it is durable, whatever failed later";
}

// A get tells at once, and the ticket of the newest commit is for callers that want to wait.
TEST_F(KvReads, ATicketMakesAWeakReadDurable) {
  counters_.count(Durability::weak);
  kv::Transaction reader(counters_.kv(), true);
  EXPECT_OK(reader.begin());
  Lsn ticket;
  EXPECT_OK(reader.commit(Durability::weak, &ticket).status());
  EXPECT_LT(counters_.kv().durable(), counters_.kv().newest());
  EXPECT_OK(counters_.kv().wait(ticket));
  EXPECT_EQ(counters_.kv().durable(), counters_.kv().newest());
}

// Regions: the stores of others that were captured and not flushed are waited for by a persist without own stores.
TEST_F(KvReads, APersistWithoutStoresWaitsForTheCapturesOfOthers) {
  counters_.word(1);
  const Lsn captured = must(counters_.capture_words());
  EXPECT_LT(counters_.store().durable_lsn(), captured);
  EXPECT_OK(counters_.persist_words());
  EXPECT_GE(counters_.store().durable_lsn(), captured);
}

}  // namespace
}  // namespace memlith::test::told_test
