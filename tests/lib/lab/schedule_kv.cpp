// The cases of schedule_workloads.cpp in which threads commit to a kv store. The oracle holds the region's bytes
// against the commits in the order of their numbers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "kv/kv.hpp"
#include "schedule_workloads.hpp"

namespace memlith::lab {

using namespace core;

namespace {

// Not kKvName: its bytes are compared, not only its records.
constexpr const char* kName = "tree";
constexpr const char* kOtherName = "twig";
constexpr std::uint64_t kBeside = 1;  // commits side by side: their order is that of their numbers
constexpr int kTriesMax = 4;

// The content of a kv store: a record of each key, all values of the same length.
struct Shape {
  std::string_view keys = "abc";
  std::uint64_t value_bytes = 24;
  std::uint64_t region_bytes = 40 * kPageBytes;  // room for what a commit may need, so that it never grows
  const char* name = kName;
  std::uint64_t group = kBeside;  // 0: one thread commits, and all of its commits are one sequence
  bool with_regions = false;      // one commit, beside commits of regions: its place among their frames is its ticket
};

// A kv store in the session's store.
class KvCase {
 public:
  enum class Thread : std::uint8_t { none, window };
  KvCase(Session& session, Thread thread, const Shape& shape = {}) : s_(session), shape_(shape) {
    if (s_.store == nullptr) s_.open();
    RegionOptions options;
    options.create = true;
    options.tracker = TrackerKind::touched;
    options.size_bytes = shape_.region_bytes;
    options.reserve_bytes = shape_.region_bytes;
    options.address = kAddress + (shape_.name == std::string_view(kName) ? 64 : 128) * kReserve;
    alone("create a region", [&]() -> Status {
      MEMLITH_TRY_ASSIGN(region_, Region::open(*s_.store, shape_.name, options));
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
    for (const char& key : shape_.keys) {
      alone("put a record", [&]() -> Status {
        kv::Transaction transaction(*kv_, false);
        MEMLITH_TRY(transaction.begin());
        MEMLITH_TRY(transaction.put(map_, {&key, 1}, first_value(key)));
        return transaction.commit(kv::Durability::sync, nullptr).status();
      });
    }
    find_values();
  }
  KvCase(const KvCase&) = delete;
  ~KvCase() {
    persist();
    if (const auto sound = kv_->verify(); !sound.ok()) told("verify", sound.status());
    told("stopping", kv_->stop());
  }

  // One transaction that writes these records, with values of the same length. It begins anew while others are in its
  // way, a few times. Returns its ticket, 0 without one.
  Lsn commit(std::string_view keys, kv::Durability durability) {
    const char fill = static_cast<char>('A' + fills_++);
    const std::string value(shape_.value_bytes, fill);
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
    if (!transaction.active()) return Lsn{0};
    const std::size_t number = s_.history.started(
        fmt::format("write {} to records {}", fill, keys),
        [this_places = places_, keys = std::string(keys), value, name = shape_.name](Content& content) {
          std::vector<std::byte>& bytes = content.objects[name];
          for (const char key : keys) std::memcpy(bytes.data() + this_places.at(key), value.data(), value.size());
          std::uint64_t commits = 0;
          std::byte* const counter = bytes.data() + kv::kHeaderOffset + offsetof(kv::StoreHeader, commits);
          std::memcpy(&commits, counter, sizeof commits);
          ++commits;
          std::memcpy(counter, &commits, sizeof commits);
        },
        now(), shape_.group);
    Lsn ticket;
    const auto place = transaction.commit(durability, &ticket);
    told("committing", place.status());
    if (!place.ok()) {
      // A weak commit that fails has no effect.
      if (durability == kv::Durability::weak) s_.history.cancelled(number);
      return Lsn{0};
    }
    if (shape_.group != 0) s_.history.placed(number, shape_.with_regions ? ticket : Lsn{*place});
    committed_.push_back({ticket, number});
    if (durability == kv::Durability::sync) s_.history.acknowledged(number, now());
    return ticket;
  }
  // Older states of pages are let go as soon as no snapshot needs them.
  void forget_soon() { kv_->pages().kept.forget_from(1); }
  // A transaction that only reads, from here on until it is destroyed.
  std::unique_ptr<kv::Transaction> view() {
    auto made = std::make_unique<kv::Transaction>(*kv_, true);
    told("beginning to read", made->begin());
    return made;
  }
  // The transaction sees in the record what it saw at its beginning, or what it sees for the first time.
  void look(kv::Transaction& view, char key, std::optional<std::string>& seen) {
    const auto found = view.get(map_, {&key, 1});
    told("reading", found.status());
    if (!found.ok()) return;
    if (!found->has_value()) return s_.broken(fmt::format("record {} is missing", key));
    if (!seen.has_value()) seen = std::string(**found);
    if (*seen != **found) s_.broken(fmt::format("record {} was {}, and is {} in the same view", key, *seen, **found));
  }
  // In the role of a thread that is about to commit something that is to lie behind.
  void close_what_waits() { told("closing what waits", s_.store->close_collectors()); }
  // Earlier commits are durable afterwards.
  bool persist() {
    const std::vector<Committed> before = committed_;
    const Status done = kv_->persist();
    told("persisting", done);
    if (done.ok()) acknowledge(before, Lsn{~std::uint64_t{0}});
    return done.ok();
  }
  // From now on files cannot grow.
  void fill_disk() {
    s_.checkpoint();
    s_.volume.faults().plan(SimFaults::Kind::no_space, 0, true);
  }
  void free_disk() { s_.volume.faults().clear(); }
  void must(bool holds, const char* what) {
    if (!holds) s_.broken(fmt::format("{}: {}", what, last_error_text()));
  }
  // The commits that the store calls durable, of those made before or since.
  void look_at_durable_ticket() {
    const Lsn durable = s_.store->durable_ticket();
    acknowledge(committed_, durable);
  }
  void wait(Lsn ticket) {
    const std::vector<Committed> before = committed_;
    const Status done = kv_->wait(ticket);
    told("waiting", done);
    if (done.ok()) acknowledge(before, ticket);
  }

 private:
  void find_values() {
    for (kv::PageNumber page = kv::kCatalogue + 1; page < kv_->pages().words.count(); ++page) {
      const std::byte* const bytes = kv_->pages().words.bytes_of(page);
      const kv::PageHeader header = kv::header_of(bytes);
      if (header.kind != kv::PageKind::leaf) continue;
      for (std::uint32_t i = 0; i < header.count; ++i) {
        const kv::Cell cell = kv::cell_of(bytes, i);
        const auto* const value = reinterpret_cast<const std::byte*>(cell.value.data());
        places_[cell.key.front()] = static_cast<std::size_t>(value - region_->address());
      }
    }
    MEMLITH_ASSERT(places_.size() == shape_.keys.size());
  }
  [[nodiscard]] std::string first_value(char key) const {
    return std::string(shape_.value_bytes, static_cast<char>(key - 'a' + '0'));
  }
  struct Committed {
    Lsn ticket;
    std::size_t number = 0;
  };
  [[nodiscard]] std::size_t now() const { return s_.volume.operations(); }
  void told(const char* doing, const Status& status) {
    if (!status.ok() && s_.volume.faults().fired() == 0) {
      s_.broken(fmt::format("{} failed although nothing had: {}", doing, last_error_text()));
    }
  }
  void acknowledge(const std::vector<Committed>& committed, Lsn up_to) {
    for (const Committed& each : committed) {
      if (each.ticket <= up_to) s_.history.acknowledged(each.number, now());
    }
  }
  // Without other threads: what the memory is afterwards is what this commit leaves.
  template <class Act>
  void alone(const char* text, Act&& act) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(shape_.region_bytes);
    const std::size_t number =
        s_.history.started(text, [bytes, name = shape_.name](Content& c) { c.objects[name] = *bytes; }, now());
    const Status done = act();
    told(text, done);
    MEMLITH_ASSERT(done.ok());
    bytes->assign(region_->address(), region_->address() + region_->size());
    s_.history.acknowledged(number, now());
  }

  Session& s_;
  const Shape shape_;
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
                    if (const Lsn ticket = kv.commit("b", kv::Durability::weak); ticket != Lsn{0}) kv.wait(ticket);
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

// An old view needs the page as it was while commits change it, and while another view ends.
void kv_views(Session& s) {
  KvCase kv(s, KvCase::Thread::none);
  kv.forget_soon();
  const auto old = kv.view();
  std::optional<std::string> first;
  kv.look(*old, 'a', first);
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    kv.commit("ab", kv::Durability::weak);
                  },
                  [&] {
                    const auto newer = kv.view();
                    std::optional<std::string> seen;
                    kv.look(*newer, 'a', seen);
                    kv.look(*newer, 'a', seen);
                  },
                  [&] { kv.look(*old, 'a', first); }});
  kv.look(*old, 'a', first);
}

// A weak commit for which the log would have to grow, and cannot: it stays in memory, no further commit is taken, and
// with space again it becomes durable before those that follow.
void kv_refused(Session& s) {
  constexpr std::string_view kKeys = "abcdefghijkl";
  KvCase kv(s, KvCase::Thread::none, {kKeys, 1100, 120 * kPageBytes});
  kv.fill_disk();
  kv.must(kv.commit(kKeys, kv::Durability::weak) != Lsn{0}, "a weak commit was refused that fits memory");
  kv.must(!kv.persist(), "a commit was called durable that the log has no room for");
  s.side_by_side({[&] {
                    kv.must(kv.commit("a", kv::Durability::weak) == Lsn{0},
                            "a commit was taken although those before it cannot become durable");
                    kv.free_disk();
                    kv.must(kv.persist(), "there was space again, and a persist failed");
                    kv.must(kv.commit("b", kv::Durability::weak) != Lsn{0},
                            "there was space again, and a commit failed");
                  },
                  [&] { kv.commit("c", kv::Durability::weak); }});
  kv.must(kv.persist(), "there was space again, and a persist failed");
}

// Weak commits that together are larger than a log that cannot grow go there in several frames, in their order.
void kv_small_frames(Session& s) {
  KvCase kv(s, KvCase::Thread::none, {.keys = "abc", .value_bytes = 1000});
  kv.fill_disk();
  for (int i = 0; i < 5; ++i) kv.commit("abc", kv::Durability::weak);
  s.side_by_side({[&] {
                    kv.commit("ab", kv::Durability::weak);
                    kv.must(kv.persist(), "the disk was full, and commits found no room in the log that there is");
                  },
                  [&] { kv.commit("c", kv::Durability::weak); }});
}

// Weak commits of one thread to two kv stores are one sequence, whichever of the two brings them to the log. The one
// that is made durable first lies behind the other in the list of collectors.
void kv_two_stores(Session& s) {
  KvCase second(s, KvCase::Thread::none, {.keys = "ab", .name = kOtherName, .group = 0});
  KvCase first(s, KvCase::Thread::none, {.keys = "ab", .group = 0});
  s.side_by_side({[&] {
                    first.commit("a", kv::Durability::weak);
                    second.commit("a", kv::Durability::weak);
                    first.commit("b", kv::Durability::weak);
                    second.commit("b", kv::Durability::sync);
                  },
                  [&] { first.persist(); }});
}

// A persist lies behind the weak commits before it, also while another thread has set them aside for a frame that is
// not in the log yet.
void kv_before_persist(Session& s) {
  KvCase kv(s, KvCase::Thread::none, {.keys = "ab", .group = 0});
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    kv.close_what_waits();
                    s.commit("a", 0, 600);
                  },
                  [&] { kv.persist(); }});
}

// A commit of a region that a weak commit of a kv store may come before, while it waits for its frame. What the store
// then calls durable survives.
void kv_tickets(Session& s) {
  KvCase kv(s, KvCase::Thread::none, {.keys = "ab", .with_regions = true});
  s.side_by_side({[&] {
                    kv.commit("a", kv::Durability::weak);
                    kv.look_at_durable_ticket();
                    kv.close_what_waits();
                    kv.look_at_durable_ticket();
                  },
                  [&] {
                    s.commit("a", 0, 600);
                    kv.look_at_durable_ticket();
                  }});
  kv.look_at_durable_ticket();
}

}  // namespace memlith::lab
