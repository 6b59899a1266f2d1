// A map of strings on a heap as a key-value store: some twenty lines are the store itself. The program calls no touch:
// the tracker finds what the map changed. Threads share the map under one lock, and persist as docs/threads.md says.
// The map is a memlith::map, or one of the maps that are made for pages, with keys that lie in their elements.
//
// Also compiled with memlith-c++ and with memlith-g++, each into a library of its own (instrumented.cmake), in which
// the compiler records the stores.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>

#include "kit/raw_device.hpp"
#include "kit/try.hpp"
#include "memlith/btree.hpp"
#include "memlith/flat_hash.hpp"
#include "memlith/heap.hpp"
#include "peer.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kWindowMs = 1000;
constexpr std::uint64_t kHeapBytesMaxMin = kGiB;

enum class Persisting : std::uint8_t { each, never, window };

// A key that lies in the element, as a program has it whose keys are never longer.
class ShortKey {
 public:
  static constexpr std::size_t kBytesMax = 23;
  ShortKey(std::string_view text)  // NOLINT(google-explicit-constructor): a conversion
      : bytes_(static_cast<std::uint8_t>(std::min(text.size(), kBytesMax))) {
    std::memcpy(text_.data(), text.data(), bytes_);
  }
  operator std::string_view() const { return {text_.data(), bytes_}; }  // NOLINT(google-explicit-constructor)
  friend bool operator==(const ShortKey& a, std::string_view b) { return std::string_view(a) == b; }
  friend bool operator==(const ShortKey& a, const ShortKey& b) { return a == std::string_view(b); }
  friend std::strong_ordering operator<=>(const ShortKey& a, std::string_view b) { return std::string_view(a) <=> b; }
  friend std::strong_ordering operator<=>(const ShortKey& a, const ShortKey& b) { return a <=> std::string_view(b); }

 private:
  std::uint8_t bytes_;
  std::array<char, kBytesMax> text_{};
};

using Map = memlith::map<memlith::string, memlith::string>;
using BtreeMap = memlith::btree_map<ShortKey, memlith::string>;
using FlatHashMap = memlith::flat_hash_map<ShortKey, memlith::string>;

template <class Map, Tracker kTracker, bool kWindow>
class HeapMapStore final : public KvStore {
 public:
  ~HeapMapStore() override {
    if (heap_) (void)heap_->close();
    if (store_) (void)store_->close();
  }
  HeapMapStore() = default;
  HeapMapStore(const HeapMapStore&) = delete;
  HeapMapStore& operator=(const HeapMapStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    if (kWindow) {
      persisting_ = Persisting::window;
    } else if (options.durability == KvDurability::none) {
      persisting_ = Persisting::never;
    }
    const StoreOptions store{.create = true, .tell_dropped = false};
    MEMLITH_TOOL_GET(store_, checked(Store::open(options.folder + "/store", store), "opening a store"));
    if (kWindow) MEMLITH_TOOL_TRY(failure_of(store_->set_window(kWindowMs), "setting the window"));
    const RegionOptions heap{
        .create = true, .tracker = kTracker, .max_size = std::max(kHeapBytesMaxMin, options.bytes_expected * 4)};
    MEMLITH_TOOL_GET(heap_, checked(Heap::open(*store_, "map", heap), "opening a heap"));
    MEMLITH_TOOL_GET(map_, checked(heap_->root<Map>(), "making the map"));
    return failure_of(heap_->persist(), "persisting the empty map");
  }
  Result<std::unique_ptr<KvSession>> session() override { return make_session<Session>(*this); }

  // A load without durability is made durable as a whole, as a program would that fills a map.
  [[nodiscard]] MaybeFailure finish() {
    MEMLITH_TOOL_TRY(failure_of(heap_->verify(), "verifying the heap"));
    return persisting_ == Persisting::each ? MaybeFailure() : failure_of(heap_->persist(), "persisting the heap");
  }

  template <class Act>
  [[nodiscard]] MaybeFailure change(const Act& act) {
    std::unique_lock lock(mutex_);
    try {
      act(*map_);
    } catch (const heap_error& error) {
      return library_failure(error.code(), "changing the map");
    }
    if (persisting_ == Persisting::never) return {};
    if (persisting_ == Persisting::each) return failure_of(heap_->persist(lock), "persisting");
    return failure_of(heap_->persist_async(), "persisting");
  }
  template <class Act>
  void read(const Act& act) {
    const std::lock_guard lock(mutex_);
    act(*map_);
  }

 private:
  class Session final : public KvSession {
   public:
    explicit Session(HeapMapStore& store) : store_(store) {}

    MaybeFailure put(std::string_view key, std::string_view value) override {
      return store_.change([&](Map& map) { put_in(map, key, value); });
    }
    MaybeFailure put_all(std::span<const KvPair> pairs) override {
      return store_.change([&](Map& map) {
        for (const auto& [key, value] : pairs) put_in(map, key, value);
      });
    }
    MaybeFailure remove(std::string_view key) override {
      return store_.change([&](Map& map) {
        if (const auto at = map.find(key); at != map.end()) map.erase(at);
      });
    }
    MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
      store_.read([&](Map& map) {
        const auto at = map.find(key);
        found = at != map.end();
        if (found) value.assign(at->second);
      });
      return {};
    }
    MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
      if constexpr (requires(Map& map) { map.lower_bound(from); }) {
        store_.read([&](Map& map) {
          for (auto at = map.lower_bound(from); at != map.end() && count > 0; ++at, --count) {
            visit(at->first, at->second);
          }
        });
        return {};
      } else {
        return tool_failure(MEMLITH_INVALID, "a hash table has no order to scan");
      }
    }
    MaybeFailure finish() override { return store_.finish(); }

   private:
    static void put_in(Map& map, std::string_view key, std::string_view value) {
      const auto [at, inserted] = map.try_emplace(key, value);
      if (!inserted) at->second.assign(value);
    }

    HeapMapStore& store_;
  };

  Persisting persisting_ = Persisting::each;
  std::optional<Store> store_;
  std::optional<Heap> heap_;
  Map* map_ = nullptr;
  std::mutex mutex_;
};

// `kind`: empty for a memlith::map, else with a hyphen at its end.
template <class Map, Tracker kTracker>
KvPeer heap_map_side(std::string_view kind, std::string_view tracker) {
  return {
      fmt::format("memlith-{}{}", kind, tracker), memlith_version(),
      fmt::format("tracker {}: each operation ends with a persist, which writes the log and calls fdatasync", tracker),
      fmt::format("tracker {}: nothing is persisted", tracker), open_as<HeapMapStore<Map, kTracker, false>>};
}

template <Tracker kTracker>
[[maybe_unused]] KvPeer heap_map_window_side(const char* tracker) {
  const std::string text =
      fmt::format("tracker {}: each operation ends with an asynchronous persist, flushed within {} ms", tracker,
                  kWindowMs);
  return {fmt::format("memlith-{}-window", tracker), memlith_version(), text, text,
          open_as<HeapMapStore<Map, kTracker, true>>};
}

}  // namespace

#ifdef MEMLITH_RECORDED_SIDE
__attribute__((visibility("default"))) KvPeer MEMLITH_RECORDED_SIDE() {
  return heap_map_side<Map, Tracker::instrumented>("", MEMLITH_RECORDED_NAME);
}
#else
std::vector<KvPeer> heap_map_sides() {
  return {
#ifdef MEMLITH_WITH_INSTRUMENTED
      heap_map_instrumented_side(),
#endif
      heap_map_side<Map, Tracker::fault>("", "fault"),
      heap_map_side<Map, Tracker::scan>("", "scan"),
      heap_map_side<BtreeMap, Tracker::fault>("btree-", "fault"),
      heap_map_side<BtreeMap, Tracker::scan>("btree-", "scan"),
      heap_map_side<FlatHashMap, Tracker::fault>("hash-", "fault"),
      heap_map_side<FlatHashMap, Tracker::scan>("hash-", "scan")};
}

std::vector<KvPeer> heap_map_default_sides() {
  return {
      heap_map_side<Map, Tracker::automatic>("", "auto"),
      heap_map_side<BtreeMap, Tracker::automatic>("btree-", "auto"),
      heap_map_side<FlatHashMap, Tracker::automatic>("hash-", "auto"),
#ifdef MEMLITH_WITH_GCC
      heap_map_gcc_side(),
#endif
#ifdef MEMLITH_WITH_INSTRUMENTED
      heap_map_instrumented_side(),
#endif
  };
}

std::vector<KvPeer> heap_map_window_sides() {
  return {heap_map_window_side<Tracker::fault>("fault"), heap_map_window_side<Tracker::scan>("scan")};
}
#endif

}  // namespace memlith::tool
