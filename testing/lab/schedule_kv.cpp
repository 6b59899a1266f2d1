// The cases of schedule_workloads.cpp in which threads commit to a kv store. The oracle holds the region's bytes
// against the commits in the order of their tickets.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kv/kv.hpp"
#include "schedule_workloads.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr const char* kName = "tree";                    // not kKvName: its bytes are compared, not only its records
constexpr std::uint64_t kRegionBytes = 40 * kPageBytes;  // room for what a commit may need, so that it never grows
constexpr std::uint64_t kValueBytes = 24;
constexpr std::uint64_t kTickets = 1;  // commits side by side: their order is that of their tickets
constexpr int kTriesMax = 4;

// A kv store with the records a, b and c in the session's store.
class KvCase {
 public:
  enum class Thread : std::uint8_t { none, window };
  KvCase(Session& session, Thread thread) : s_(session) {
    s_.open();
    RegionOptions options;
    options.create = true;
    options.tracker = TrackerKind::touched;
    options.size_bytes = kRegionBytes;
    options.reserve_bytes = kRegionBytes;
    options.address = kAddress + 64 * kReserve;
    alone("create a region", [&]() -> Status {
      MEMLITH_TRY_ASSIGN(region_, Region::open(*s_.store, kName, options));
      return kOk;
    });
    alone("make a kv store", [&]() -> Status {
      MEMLITH_TRY_ASSIGN(kv_, kv::Kv::open(*region_, {true, {10, kMiB}, thread == Thread::none}));
      return kOk;
    });
    alone("make a map", [&]() -> Status {
      MEMLITH_TRY_ASSIGN(map_, kv_->open_map("map", true, false));
      return kOk;
    });
    alone("put three records", [&]() -> Status {
      kv::Transaction transaction(*kv_, false);
      MEMLITH_TRY(transaction.begin());
      for (const char key : kKeys) MEMLITH_TRY(transaction.put(map_, {&key, 1}, first_value(key)));
      return transaction.commit(kv::Durability::sync, nullptr).status();
    });
    const std::string_view bytes(reinterpret_cast<const char*>(region_->address()), region_->size());
    for (const char key : kKeys) places_[key] = bytes.find(first_value(key));
  }
  KvCase(const KvCase&) = delete;
  ~KvCase() {
    persist();
    if (const auto sound = kv_->verify(); !sound.ok()) told("verify", sound.status());
    told("stopping", kv_->stop());
  }

  // One transaction that writes these records, with values of the same length. It begins anew while others are in its
  // way, a few times. Returns its ticket, 0 without one.
  std::uint64_t commit(std::string_view keys, kv::Durability durability) {
    const char fill = static_cast<char>('A' + fills_++);
    const std::string value(kValueBytes, fill);
    kv::Transaction transaction(*kv_, false);
    for (int tries = 0; tries < kTriesMax; ++tries) {
      told("beginning", transaction.begin());
      const bool in_the_way = std::any_of(keys.begin(), keys.end(), [&](const char& key) {
        const Status put = transaction.put(map_, {&key, 1}, value);
        if (put.category != Errc::conflict) told("putting a record", put);
        return !put.ok();
      });
      if (!in_the_way) break;
      yield_thread();
    }
    if (!transaction.active()) return 0;
    const std::size_t number = s_.history.started(
        fmt::format("write {} to records {}", fill, keys),
        [this_places = places_, keys = std::string(keys), value](Content& content) {
          std::vector<std::byte>& bytes = content.objects[kName];
          for (const char key : keys) std::memcpy(bytes.data() + this_places.at(key), value.data(), value.size());
          std::uint64_t commits = 0;
          std::byte* const counter = bytes.data() + kv::kHeaderOffset + offsetof(kv::StoreHeader, commits);
          std::memcpy(&commits, counter, sizeof commits);
          ++commits;
          std::memcpy(counter, &commits, sizeof commits);
        },
        now(), kTickets);
    const auto ticket = transaction.commit(durability, nullptr);
    told("committing", ticket.status());
    if (!ticket.ok()) return 0;
    s_.history.placed(number, Lsn{*ticket});
    committed_.push_back({*ticket, number});
    if (durability == kv::Durability::sync) s_.history.acknowledged(number, now());
    return *ticket;
  }
  // What was committed before is durable afterwards.
  void persist() {
    const std::vector<Committed> before = committed_;
    const Status done = kv_->persist();
    told("persisting", done);
    if (done.ok()) acknowledge(before, ~std::uint64_t{0});
  }
  void wait(std::uint64_t ticket) {
    const std::vector<Committed> before = committed_;
    const Status done = kv_->wait(ticket);
    told("waiting", done);
    if (done.ok()) acknowledge(before, ticket);
  }

 private:
  static constexpr char kKeys[] = {'a', 'b', 'c'};
  static std::string first_value(char key) { return std::string(kValueBytes, static_cast<char>(key - 'a' + '0')); }
  struct Committed {
    std::uint64_t ticket = 0;
    std::size_t number = 0;
  };
  [[nodiscard]] std::size_t now() const { return s_.volume.operations(); }
  void told(const char* doing, const Status& status) {
    if (!status.ok() && s_.volume.faults().fired() == 0) {
      s_.broken(fmt::format("{} failed although nothing had: {}", doing, last_error_text()));
    }
  }
  void acknowledge(const std::vector<Committed>& committed, std::uint64_t up_to) {
    for (const Committed& each : committed) {
      if (each.ticket <= up_to) s_.history.acknowledged(each.number, now());
    }
  }
  // Without other threads: what the memory is afterwards is what this commit leaves.
  template <class Act>
  void alone(const char* text, Act&& act) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(kRegionBytes);
    const std::size_t number =
        s_.history.started(text, [bytes](Content& content) { content.objects[kName] = *bytes; }, now());
    const Status done = act();
    told(text, done);
    MEMLITH_ASSERT(done.ok());
    bytes->assign(region_->address(), region_->address() + region_->size());
    s_.history.acknowledged(number, now());
  }

  Session& s_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<kv::Kv> kv_;
  kv::PageNumber map_ = 0;
  std::map<char, std::size_t> places_;  // of the values, in the region
  std::vector<Committed> committed_;
  int fills_ = 0;
};

}  // namespace

void kv_two_commits(Session& s) {
  KvCase kv(s, KvCase::Thread::none);
  s.side_by_side({[&] { kv.commit("a", kv::Durability::sync); }, [&] { kv.commit("b", kv::Durability::sync); }});
}

// Each waits for what the other has, or takes with it what the other left.
void kv_conflicts(Session& s) {
  KvCase kv(s, KvCase::Thread::none);
  s.side_by_side({[&] { kv.commit("ab", kv::Durability::sync); },
                  [&] {
                    kv.commit("bc", kv::Durability::weak);
                    kv.persist();
                  }});
}

void kv_weak_beside_sync(Session& s) {
  KvCase kv(s, KvCase::Thread::none);
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    kv.commit("a", kv::Durability::weak);
                  },
                  [&] { kv.commit("b", kv::Durability::sync); }, [&] { kv.commit("c", kv::Durability::sync); }});
}

// The kv store's own thread makes weak commits durable.
void kv_window(Session& s) {
  KvCase kv(s, KvCase::Thread::window);
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    if (const std::uint64_t ticket = kv.commit("b", kv::Durability::weak); ticket != 0) kv.wait(ticket);
                  },
                  [&] { kv.commit("c", kv::Durability::sync); }});
}

void kv_beside_checkpoint(Session& s) {
  KvCase kv(s, KvCase::Thread::none);
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    kv.commit("bc", kv::Durability::sync);
                  },
                  [&] { s.checkpoint(); }});
}

}  // namespace memlith::lab
