// A map on a heap as a key-value store: some twenty lines are the store itself.
//
// Compiled twice: with everything else, and with memlith-c++ into a library of its own (instrumented.cmake), in which
// the compiler records the stores.
#include "heap_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "kit/raw_device.hpp"
#include "memlith/heap.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kWindowMs = 1000;
constexpr std::uint64_t kHeapBytesMaxMin = kGiB;

enum class Persisting : std::uint8_t { each, never, window };

// Of a call of the library that failed in this thread just now.
template <class T>
MaybeFailure heap_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

using Map = memlith::map<memlith::string, memlith::string>;

class HeapMapStore final : public KvStore {
 public:
  HeapMapStore(Tracker tracker, Persisting persisting) : tracker_(tracker), persisting_(persisting) {}
  ~HeapMapStore() override {
    if (heap_) (void)heap_->close();
    if (store_) (void)store_->close();
  }
  HeapMapStore(const HeapMapStore&) = delete;
  HeapMapStore& operator=(const HeapMapStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    auto store = Store::open(options.folder + "/store", {.create = true});
    if (MaybeFailure failure = heap_failure(store, "opening a store")) return failure;
    store_.emplace(std::move(*store));
    if (persisting_ == Persisting::window) {
      if (auto failure = heap_failure(store_->set_window(kWindowMs), "setting the window")) return failure;
    }
    auto heap = Heap::open(*store_, "map",
                           {.create = true,
                            .tracker = tracker_,
                            .max_size = std::max(kHeapBytesMaxMin, options.bytes_expected * 4)});
    if (MaybeFailure failure = heap_failure(heap, "opening a heap")) return failure;
    heap_.emplace(std::move(*heap));
    auto map = heap_->root<Map>();
    if (MaybeFailure failure = heap_failure(map, "making the map")) return failure;
    map_ = *map;
    return heap_failure(heap_->persist(), "persisting the empty map");
  }
  Result<std::unique_ptr<KvSession>> session() override;

  // A load without durability is made durable as a whole, as a program would that fills a map.
  [[nodiscard]] MaybeFailure finish() {
    if (MaybeFailure failure = heap_failure(heap_->verify(), "verifying the heap")) return failure;
    return persisting_ == Persisting::each ? MaybeFailure() : heap_failure(heap_->persist(), "persisting the heap");
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
    if (persisting_ == Persisting::each) return heap_failure(heap_->persist(lock), "persisting");
    return heap_failure(heap_->persist_async(), "persisting");
  }
  template <class Act>
  void read(const Act& act) {
    const std::lock_guard lock(mutex_);
    act(*map_);
  }

 private:
  Tracker tracker_;
  Persisting persisting_;
  std::optional<Store> store_;
  std::optional<Heap> heap_;
  Map* map_ = nullptr;
  std::mutex mutex_;
};

class HeapMapSession final : public KvSession {
 public:
  explicit HeapMapSession(HeapMapStore& store) : store_(store) {}

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return store_.change([&](Map& map) {
      const auto at = map.lower_bound(key);
      if (at != map.end() && at->first == key) {
        at->second.assign(value);
      } else {
        map.emplace_hint(at, key, value);
      }
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
    store_.read([&](Map& map) {
      for (auto at = map.lower_bound(from); at != map.end() && count > 0; ++at, --count) visit(at->first, at->second);
    });
    return {};
  }
  MaybeFailure finish() override { return store_.finish(); }

 private:
  HeapMapStore& store_;
};

Result<std::unique_ptr<KvSession>> HeapMapStore::session() {
  return std::unique_ptr<KvSession>(std::make_unique<HeapMapSession>(*this));
}

template <Tracker kTracker, bool kWindow>
Result<std::unique_ptr<KvStore>> open_heap_map(const KvOptions& options) {
  const bool sync = options.durability == KvDurability::sync;
  auto store = std::make_unique<HeapMapStore>(kTracker, kWindow ? Persisting::window
                                                        : sync  ? Persisting::each
                                                                : Persisting::never);
  if (MaybeFailure failure = store->open(options)) return *failure;
  return std::unique_ptr<KvStore>(std::move(store));
}

template <Tracker kTracker>
KvPeer heap_map_side(const char* tracker) {
  return {
      fmt::format("memlith-{}", tracker), memlith_version(),
      fmt::format("tracker {}: each operation ends with a persist, which writes the log and calls fdatasync", tracker),
      fmt::format("tracker {}: nothing is persisted", tracker), open_heap_map<kTracker, false>};
}

template <Tracker kTracker>
[[maybe_unused]] KvPeer heap_map_window_side(const char* tracker) {
  const std::string text =
      fmt::format("tracker {}: each operation ends with an asynchronous persist, flushed within {} ms", tracker,
                  kWindowMs);
  return {fmt::format("memlith-{}-window", tracker), memlith_version(), text, text, open_heap_map<kTracker, true>};
}

}  // namespace

#ifdef MEMLITH_STORES_ARE_RECORDED
__attribute__((visibility("default"))) KvPeer heap_map_instrumented_side() {
  return heap_map_side<Tracker::instrumented>("instrumented");
}
#else
std::vector<KvPeer> heap_map_sides() {
  return {
#ifdef MEMLITH_WITH_INSTRUMENTED
      heap_map_instrumented_side(),
#endif
      heap_map_side<Tracker::fault>("fault"), heap_map_side<Tracker::scan>("scan")};
}

std::vector<KvPeer> heap_map_window_sides() {
  return {heap_map_window_side<Tracker::fault>("fault"), heap_map_window_side<Tracker::scan>("scan")};
}
#endif

}  // namespace memlith::tool
