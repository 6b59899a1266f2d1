// The C interface: include/memlith/memlith.h. Floor: capi. Handles own the floors below; codes are made here.
#include "memlith/memlith.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "capi/errors.hpp"
#include "device/posix.hpp"
#include "region/per_thread.hpp"
#include "region/region.hpp"
#include "region/snapshot.hpp"

using namespace memlith::core;

struct memlith_region {
  memlith_store* owner = nullptr;
  std::unique_ptr<Region> region;
};

struct memlith_store {
  std::unique_ptr<Volume> volume;
  std::unique_ptr<Store> store;  // destroyed before the volume
  std::mutex mutex;              // the list of open regions
  std::vector<std::unique_ptr<memlith_region>> regions;
  std::uint64_t incarnation = 0;  // constant after opening
  std::uint64_t memory_max_bytes = 0;
  std::atomic<std::int32_t> memory_error{0};  // how giving memory back went
};

struct memlith_snapshot {
  std::unique_ptr<Snapshot> snapshot;
};

namespace {

static_assert(MEMLITH_TOO_MANY_FILES == static_cast<int>(Errc::too_many_files), "categories are Errc's numbers");
static_assert(MEMLITH_DETAIL_VERSION == static_cast<int>(Detail::version), "details are Detail's numbers");
static_assert(MEMLITH_POISONED == static_cast<int>(Errc::poisoned));
static_assert(MEMLITH_TRACKER_FAULT == static_cast<int>(TrackerKind::fault));
static_assert(MEMLITH_SCOPE_PROCESS == static_cast<int>(Scope::process));
static_assert(MEMLITH_TRACKER_EXPLICIT == static_cast<int>(TrackerKind::touched));

constexpr auto kProgressInterval = std::chrono::milliseconds(50);

Status need(const void* pointer, const char* what) {
  if (pointer != nullptr) return kOk;
  return fail(Errc::invalid, Detail::argument, "{} is null", what);
}

// The same for a handle, which in a forked child is good for nothing but being left alone: whatever it locks may have been locked
// when the child was made, by a thread that is not there to unlock it.
Status need_ours(const memlith_store* store) {
  MEMLITH_TRY(need(store, "store"));
  return store->store->check_process();
}
Status need_ours(const memlith_region* region) {
  MEMLITH_TRY(need(region, "region"));
  return need_ours(region->owner);
}

// Copies what the caller knows of an options struct; a later one may be longer, an earlier one shorter.
template <class Options>
Status read_options(const Options* given, Options& options) {
  options = Options{};
  if (given == nullptr) return kOk;
  if (given->struct_size < sizeof(std::uint64_t) || given->struct_size > 4096) {
    return fail(Errc::invalid, Detail::argument, "struct_size is {}; set it to sizeof the struct", given->struct_size);
  }
  const std::size_t known = std::min<std::size_t>(sizeof(Options), given->struct_size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < given->struct_size; ++i) {
    if (bytes[i] != 0) {
      return fail(Errc::unsupported, Detail::argument, "an option at byte {} of the struct is unknown to this version",
                  i);
    }
  }
  std::memcpy(&options, given, known);
  return kOk;
}

// Fills as much of the caller's struct as it knows of, and leaves its struct_size alone.
template <class Info>
Status write_info(Info* target, Info& info) {
  MEMLITH_TRY(need(target, "info"));
  if (target->struct_size < sizeof(std::uint64_t)) {
    return fail(Errc::invalid, Detail::argument, "struct_size is {}; set it to sizeof the struct", target->struct_size);
  }
  info.struct_size = target->struct_size;
  std::memcpy(target, &info, std::min<std::size_t>(sizeof(Info), info.struct_size));
  return kOk;
}

template <std::size_t N>
void copy_text(char (&target)[N], std::string_view text) {
  const std::size_t count = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), count);
  std::memset(target + count, 0, N - count);
}

Result<FlushWindow> flush_window(std::uint64_t interval_ms, std::uint64_t bytes) {
  constexpr std::uint64_t kIntervalMsMax = 24ull * 60 * 60 * 1000;
  if (interval_ms > kIntervalMsMax) {
    return fail(Errc::invalid, Detail::argument, "a flush interval of {} ms; at most a day", interval_ms);
  }
  FlushWindow window;
  window.interval_ms = interval_ms;
  if (bytes != 0) window.bytes = bytes;
  return window;
}

StoreOptions store_options(const memlith_store_options& given, FlushWindow window) {
  StoreOptions options;
  options.flush_window = window;
  options.create = (given.flags & MEMLITH_OPEN_CREATE) != 0;
  options.exclusive = (given.flags & MEMLITH_OPEN_EXCLUSIVE) != 0;
  options.read_only = (given.flags & MEMLITH_OPEN_READ_ONLY) != 0;
  options.direct_io = (given.flags & MEMLITH_OPEN_BUFFERED) == 0;
  options.manual_checkpoint = given.manual_checkpoint != 0;
  options.log_bytes = given.log_bytes;
  options.log_max_bytes = given.log_max_bytes;
  options.physical_block_bytes = given.physical_block_bytes;
  if (given.in_flight_max != 0) options.log.in_flight_max = given.in_flight_max;
  if (given.progress != nullptr) {
    options.progress = [progress = given.progress, context = given.progress_context,
                        last = std::chrono::steady_clock::time_point{}](std::uint64_t done,
                                                                        std::uint64_t total) mutable {
      const auto now = std::chrono::steady_clock::now();
      if (now - last < kProgressInterval) return;
      last = now;
      progress(context, done, total);
    };
  }
  return options;
}

Status check_store_options(const memlith_store_options& given) {
  constexpr std::uint32_t kKnown =
      MEMLITH_OPEN_CREATE | MEMLITH_OPEN_READ_ONLY | MEMLITH_OPEN_EXCLUSIVE | MEMLITH_OPEN_BUFFERED;
  if ((given.flags & ~kKnown) != 0)
    return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", given.flags & ~kKnown);
  if (given.io > MEMLITH_IO_URING)
    return fail(Errc::invalid, Detail::argument, "io is {}; see MEMLITH_IO_AUTO", given.io);
  if (given.in_flight_max > 3) {
    return fail(Errc::invalid, Detail::argument, "in_flight_max is {}; it can be 1 to 3, or 0 for the default",
                given.in_flight_max);
  }
  constexpr std::uint64_t kLogBytesLeast = 128 * kKiB;
  constexpr std::uint64_t kLogBytesMost = 1ull << 40;
  for (const std::uint64_t bytes : {given.log_bytes, given.log_max_bytes}) {
    if (bytes != 0 && (bytes < kLogBytesLeast || bytes > kLogBytesMost)) {
      return fail(Errc::invalid, Detail::argument, "a log of {} bytes; it can have {} to {}, or 0 for the default",
                  bytes, kLogBytesLeast, kLogBytesMost);
    }
  }
  if (given.log_max_bytes != 0 && given.log_max_bytes < given.log_bytes) {
    return fail(Errc::invalid, Detail::argument, "log_max_bytes {} is below log_bytes {}", given.log_max_bytes,
                given.log_bytes);
  }
  return kOk;
}

memlith_stats stats_of(const StatsPage& page, bool alive) {
  const auto value = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  memlith_stats stats{};
  stats.process = page.process;
  stats.opened_ns = page.opened_ns;
  stats.persists = page.persists.count();
  stats.persist_p50_ns = page.persists.percentile_ns(0.5);
  stats.persist_p99_ns = page.persists.percentile_ns(0.99);
  stats.persist_p999_ns = page.persists.percentile_ns(0.999);
  stats.persist_max_ns = page.persists.percentile_ns(1);
  stats.captures = page.captures.count();
  stats.capture_p50_ns = page.captures.percentile_ns(0.5);
  stats.capture_p99_ns = page.captures.percentile_ns(0.99);
  stats.capture_p999_ns = page.captures.percentile_ns(0.999);
  stats.capture_max_ns = page.captures.percentile_ns(1);
  stats.frames = value(page.frames);
  stats.batches = value(page.batches);
  stats.captured_bytes = value(page.captured_bytes);
  stats.captured_pages = value(page.captured_pages);
  stats.last_captured_pages = value(page.last_captured_pages);
  stats.logged_bytes = value(page.logged_bytes);
  stats.log_bytes = value(page.log_bytes);
  stats.log_used_bytes = value(page.log_used_bytes);
  stats.durable_lsn = value(page.durable_lsn);
  stats.checkpoints = value(page.checkpoints);
  stats.home_bytes = value(page.home_bytes);
  stats.checkpoint_done_bytes = value(page.checkpoint_done_bytes);
  stats.checkpoint_total_bytes = value(page.checkpoint_total_bytes);
  stats.poisoned = value(page.poisoned);
  stats.alive = alive ? 1 : 0;
  return stats;
}

// Where a store at `path` lies: the volume, and in it the file of a one-file store.
struct Place {
  std::unique_ptr<Volume> volume;
  std::string file_name;
};

// A folder store's volume is its folder; a one-file store's is the folder that holds the file.
Result<Place> place_of(const char* path, StoreKind kind, IoBackend io = IoBackend::automatic) {
  MEMLITH_TRY(need(path, "path"));
  if (*path == 0) return fail(Errc::invalid, Detail::argument, "the path is empty");
  if (kind == StoreKind::folder) return Place{make_posix_volume(path, io), ""};
  std::filesystem::path whole(path);
  // The log lies beside the file itself, whatever link leads there.
  std::error_code unresolved;
  if (std::filesystem::is_symlink(whole, unresolved)) {
    if (auto real = std::filesystem::canonical(whole, unresolved); !unresolved) whole = std::move(real);
  }
  std::string file_name = whole.filename().string();
  if (file_name.empty() || file_name == "." || file_name == "..") {
    return fail(Errc::invalid, Detail::argument, "{}: is not the path of a file", path);
  }
  const std::filesystem::path folder = whole.parent_path();
  return Place{make_posix_volume(folder.empty() ? "." : folder.string(), io), std::move(file_name)};
}

StoreKind kind_at(const char* path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? StoreKind::folder : StoreKind::one_file;
}

Status open_store(const char* path, StoreKind kind, StoreOptions options, IoBackend io,
                  std::unique_ptr<memlith_store>& result) {
  MEMLITH_TRY_ASSIGN(Place place, place_of(path, kind, io));
  auto store = std::make_unique<memlith_store>();
  options.kind = kind;
  options.file_name = std::move(place.file_name);
  store->volume = std::move(place.volume);
  MEMLITH_TRY_ASSIGN(store->store, Store::open(*store->volume, std::move(options)));
  store->incarnation = store->store->log().superblock().incarnation;  // nobody else has the store yet
  result = std::move(store);
  return kOk;
}

std::int32_t open_entry(const char* path, StoreKind kind, const memlith_store_options* options,
                        memlith_store** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(result, "store"));
    memlith_store_options given;
    MEMLITH_TRY(read_options(options, given));
    MEMLITH_TRY(check_store_options(given));
    std::unique_ptr<memlith_store> store;
    MEMLITH_TRY_ASSIGN(const FlushWindow window, flush_window(given.flush_interval_ms, given.flush_bytes));
    MEMLITH_TRY(open_store(path, kind, store_options(given, window), static_cast<IoBackend>(given.io), store));
    store->memory_max_bytes = given.memory_max_bytes;
    const bool made = !store->store->read_only() && store->incarnation == 1;
    if (made && given.notice != nullptr && store->store->log().device().caps().forgets) {
      const std::string sentence = store->store->path() +
                                   ": this store lies on a file system in memory (tmpfs): it survives a crash of the "
                                   "program, and is lost with the power or at a restart";
      given.notice(given.notice_context, sentence.c_str());
    }
    *result = store.release();
    return kOk;
  });
}

memlith_region_info region_info(const ObjectInfo& object) {
  memlith_region_info info{};
  copy_text(info.name, object.name);
  info.address = object.address;
  info.size = object.size_bytes;
  info.max_size = object.reserve_bytes;
  return info;
}

void add_tracker(const memlith_region& region, memlith_region_info& info) {
  info.address = reinterpret_cast<std::uintptr_t>(region.region->address());
  info.size = region.region->size();
  const Tracker* const tracker = region.region->tracker();
  info.tracker = tracker != nullptr ? static_cast<std::uint32_t>(tracker->kind()) : 0;
  copy_text(info.tracker_detail, tracker != nullptr ? tracker->describe() : "none: read-only");
}

bool released_by_itself(const memlith_region& region) {
  const Tracker* const tracker = region.region->tracker();
  return tracker != nullptr && tracker->releases_any_time();
}

// One region that cannot be released does not keep the others; the first failure is told.
Status release_regions(memlith_store& store) {
  Status first = kOk;
  for (const auto& each : store.regions) {
    if (!released_by_itself(*each)) continue;
    const Status status = each->region->release_clean();
    if (first.ok()) first = status;
  }
  return first;
}

// What was taken since the last time stands in memory twice, here and at home. The caller's persist is durable, or
// captured, whatever comes of this; so a failure is no failure of the persist, and shows in the store's info.
void keep_to_memory(memlith_store& store) {
  if (store.memory_max_bytes == 0) return;
  // Who releases, opens or closes a region has it; the next persist looks again.
  const std::unique_lock lock(store.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::uint64_t taken = 0;
  for (const auto& each : store.regions) {
    if (released_by_itself(*each)) taken += each->region->tracker()->pages_taken() * kPageBytes;
  }
  if (taken < store.memory_max_bytes / 2) return;
  store.memory_error.store(guarded([&] { return release_regions(store); }), std::memory_order_relaxed);
}

// An empty list, kept per thread so that persisting allocates nothing once it has grown.
std::vector<Region*>& region_list() {
  std::vector<Region*>& list = of_this_thread<std::vector<Region*>>();
  list.clear();
  return list;
}

Status check_scope(std::uint32_t scope) {
  if (scope <= MEMLITH_SCOPE_THREAD) return kOk;
  return fail(Errc::invalid, Detail::argument, "there is no scope {}", scope);
}

Result<std::span<Region* const>> regions_of(memlith_region* const* regions, std::uint64_t count, std::uint32_t scope) {
  MEMLITH_TRY(check_scope(scope));
  std::vector<Region*>& all = region_list();
  if (count > 0) MEMLITH_TRY(need(regions, "regions"));
  for (std::uint64_t i = 0; i < count; ++i) {
    MEMLITH_TRY(need_ours(regions[i]));
    all.push_back(regions[i]->region.get());
  }
  return std::span<Region* const>(all);
}

// Without a ticket to fill, waits.
Status persist(memlith_store& store, std::span<Region* const> regions, std::uint32_t scope, std::uint64_t* ticket) {
  const auto begin = std::chrono::steady_clock::now();
  if (ticket == nullptr) {
    MEMLITH_TRY(Region::persist(regions, static_cast<Scope>(scope)));
  } else {
    MEMLITH_TRY_ASSIGN(const Lsn end, Region::capture(regions, static_cast<Scope>(scope), false));
    store.store->flush_soon(end);
    *ticket = end.value;
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  StatsPage& page = *store.store->stats();
  (ticket == nullptr ? page.persists : page.captures).add(static_cast<std::uint64_t>(took.count()));
  keep_to_memory(store);
  return kOk;
}

memlith_region* find_open(memlith_store& store, ObjectId id) {
  for (const auto& each : store.regions) {
    if (each->region->object() == id) return each.get();
  }
  return nullptr;
}

}  // namespace

extern "C" {

// ---- errors ----------------------------------------------------------------------------------------------------

size_t memlith_last_error(char* buffer, size_t bytes) {
  const std::string_view text = last_error_text();
  if (buffer != nullptr && bytes > 0) {
    const std::size_t count = std::min(text.size(), bytes - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = 0;
  }
  return text.size();
}

const char* memlith_category_name(int32_t code) {
  return name_of(static_cast<Errc>(memlith_category(code))).data();  // literals, ended with a zero
}

const char* memlith_version(void) { return "0.1.0"; }

// ---- stores ----------------------------------------------------------------------------------------------------

int32_t memlith_store_open(const char* path, const memlith_store_options* options, memlith_store** store) {
  return open_entry(path, StoreKind::folder, options, store);
}

int32_t memlith_file_open(const char* path, const memlith_store_options* options, memlith_store** store) {
  return open_entry(path, StoreKind::one_file, options, store);
}

int32_t memlith_store_close(memlith_store* store) {
  if (store == nullptr) return 0;
  return guarded([&]() -> Status {
    // The threads stayed with the parent, and taking down what they wait in would wait for them for ever: the child keeps it.
    if (store->store->in_forked_child()) return store->store->close();
    const std::unique_ptr<memlith_store> owned(store);
    owned->regions.clear();
    return owned->store->close();
  });
}

int32_t memlith_store_set_flush_window(memlith_store* store, uint64_t interval_ms, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY_ASSIGN(const FlushWindow window, flush_window(interval_ms, bytes));
    store->store->set_flush_window(window);
    return kOk;
  });
}

uint64_t memlith_store_durable(const memlith_store* store) {
  return store == nullptr ? 0 : store->store->log().durable_lsn().value;
}

int32_t memlith_store_set_eventfd(memlith_store* store, int fd) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    store->store->set_durable_eventfd(fd);
    return kOk;
  });
}

int32_t memlith_store_checkpoint(memlith_store* store) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    return store->store->checkpoint();
  });
}

int32_t memlith_store_get_info(memlith_store* store, memlith_store_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    const Store& inner = *store->store;
    const Log& log = inner.log();
    memlith_store_info info{};
    info.region_count = inner.objects().size();
    info.log_bytes = log.capacity_bytes();
    info.log_used_bytes = log.used_bytes();
    info.durable_lsn = log.durable().lsn.value;
    info.frames = log.counters().frames.load(std::memory_order_relaxed);
    info.batches = log.counters().batches.load(std::memory_order_relaxed);
    info.logged_bytes = log.counters().bytes.load(std::memory_order_relaxed);
    info.captured_bytes = inner.counters().captured_bytes.load(std::memory_order_relaxed);
    info.checkpoints = inner.counters().checkpoints.load(std::memory_order_relaxed);
    info.home_bytes = inner.counters().home_bytes.load(std::memory_order_relaxed);
    info.replayed_frames = inner.counters().replayed_frames;
    info.replayed_bytes = inner.counters().replayed_bytes;
    info.read_only = inner.read_only() ? 1 : 0;
    info.poisoned = log.poisoned() ? 1 : 0;
    info.one_file = inner.one_file() ? 1 : 0;
    info.direct_io = log.device().direct() ? 1 : 0;
    info.was_clean = inner.was_clean() ? 1 : 0;
    info.memory_error = store->memory_error.load(std::memory_order_relaxed);
    info.incarnation = store->incarnation;
    info.log_id = log.log_id();
    info.forgets = log.device().caps().forgets ? 1 : 0;
    info.io = static_cast<std::uint32_t>(log.device().caps().io);
    return write_info(target, info);
  });
}

int32_t memlith_store_get_stats(memlith_store* store, memlith_stats* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    const StatsPage* const page = store->store->stats();
    if (page == nullptr) return fail(Errc::read_only, Detail::open, "a store that is only read has no statistics");
    store->store->publish_stats();
    memlith_stats stats = stats_of(*page, true);
    return write_info(target, stats);
  });
}

int32_t memlith_stat(const char* path, memlith_stats* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    const StoreKind kind = kind_at(path);
    MEMLITH_TRY_ASSIGN(const Place place, place_of(path, kind));
    const auto seen = SeenStats::look(*place.volume, Store::stats_name(kind, place.file_name));
    if (!seen.ok() && seen.error().category == Errc::not_found) {
      return fail(Errc::not_found, Detail::open, "{}: nobody has a store open for writing there", path);
    }
    MEMLITH_TRY(seen.status());
    memlith_stats stats = stats_of(**seen, seen->held());
    return write_info(target, stats);
  });
}

// ---- regions ---------------------------------------------------------------------------------------------------

int32_t memlith_region_open(memlith_store* store, const char* name, const memlith_region_options* options,
                            memlith_region** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "region"));
    memlith_region_options given;
    MEMLITH_TRY(read_options(options, given));
    if ((given.flags & ~std::uint32_t{MEMLITH_REGION_CREATE | MEMLITH_REGION_EXCLUSIVE}) != 0 ||
        given.tracker > MEMLITH_TRACKER_FAULT) {
      return fail(Errc::invalid, Detail::argument, "unknown flags {:#x} or tracker {}", given.flags, given.tracker);
    }
    RegionOptions inner;
    inner.create = (given.flags & MEMLITH_REGION_CREATE) != 0;
    inner.exclusive = (given.flags & MEMLITH_REGION_EXCLUSIVE) != 0;
    inner.tracker = static_cast<TrackerKind>(given.tracker);
    inner.size_bytes = given.size;
    inner.reserve_bytes = given.max_size;
    inner.address = given.address;
    const std::lock_guard lock(store->mutex);
    if (const auto info = store->store->find(name); info.has_value() && find_open(*store, info->id) != nullptr) {
      return fail(Errc::busy, Detail::object, "region \"{}\" is open already in this process", name);
    }
    auto handle = std::make_unique<memlith_region>();
    handle->owner = store;
    MEMLITH_TRY_ASSIGN(handle->region, Region::open(*store->store, name, inner));
    store->regions.push_back(std::move(handle));
    *result = store->regions.back().get();
    return kOk;
  });
}

int32_t memlith_region_close(memlith_region* region) {
  if (region == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    memlith_store& store = *region->owner;
    const std::lock_guard lock(store.mutex);
    std::erase_if(store.regions, [region](const auto& each) { return each.get() == region; });
    return kOk;
  });
}

void* memlith_region_address(const memlith_region* region) {
  return region == nullptr ? nullptr : region->region->address();
}

uint64_t memlith_region_size(const memlith_region* region) { return region == nullptr ? 0 : region->region->size(); }

int32_t memlith_region_grow(memlith_region* region, uint64_t size) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region->region->grow(size);
  });
}

int32_t memlith_region_remove(memlith_store* store, const char* name) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    const std::lock_guard lock(store->mutex);
    const auto info = store->store->find(name);
    if (!info.has_value()) {
      return fail(Errc::not_found, Detail::object, "{}: there is no region \"{}\"", store->store->path(), name);
    }
    if (store->store->read_only()) {
      return fail(Errc::read_only, Detail::object, "{}: the store was opened read-only", store->store->path());
    }
    if (find_open(*store, info->id) != nullptr) {
      return fail(Errc::busy, Detail::object, "region \"{}\" is open; close it first", name);
    }
    return store->store->remove(info->id);
  });
}

int32_t memlith_region_get_info(memlith_region* region, memlith_region_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    memlith_region_info info{};
    copy_text(info.name, region->region->name());
    info.max_size = region->region->reserve();
    add_tracker(*region, info);
    return write_info(target, info);
  });
}

int32_t memlith_store_region_at(memlith_store* store, uint64_t index, memlith_region_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    const std::vector<ObjectInfo> objects = store->store->objects();
    if (index >= objects.size()) {
      return fail(Errc::not_found, Detail::object, "{}: it has {} regions, so there is no number {}",
                  store->store->path(), objects.size(), index);
    }
    memlith_region_info info = region_info(objects[index]);
    const std::lock_guard lock(store->mutex);
    if (const memlith_region* const open = find_open(*store, objects[index].id)) add_tracker(*open, info);
    return write_info(target, info);
  });
}

int32_t memlith_touch(memlith_region* region, const void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region->region->touch(address, bytes);
  });
}

int32_t memlith_prepare(memlith_region* region, void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region->region->prepare(address, bytes);
  });
}

int32_t memlith_region_release(memlith_region* region) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region->region->release_clean();
  });
}

int32_t memlith_tracker_describe(uint32_t tracker, char* buffer, size_t bytes) {
  return guarded([&]() -> Status {
    if (tracker > MEMLITH_TRACKER_FAULT)
      return fail(Errc::invalid, Detail::argument, "there is no tracker {}", tracker);
    const std::string text = describe_tracker(static_cast<TrackerKind>(tracker));
    if (buffer == nullptr || bytes == 0) return fail(Errc::invalid, Detail::argument, "the buffer is empty");
    const std::size_t count = std::min(text.size(), bytes - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = 0;
    return kOk;
  });
}

// ---- persist ---------------------------------------------------------------------------------------------------

int32_t memlith_persist(memlith_region* const* regions, uint64_t count, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(const std::span<Region* const> all, regions_of(regions, count, scope));
    return all.empty() ? kOk : persist(*regions[0]->owner, all, scope, nullptr);
  });
}

int32_t memlith_persist_all(memlith_store* store, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(check_scope(scope));
    std::vector<Region*>& all = region_list();
    {
      const std::lock_guard lock(store->mutex);
      for (const auto& each : store->regions) all.push_back(each->region.get());
    }
    if (!all.empty()) return persist(*store, all, scope, nullptr);
    // Nothing to capture; a store that can persist nothing any more says so all the same.
    return store->store->log().poisoned() ? store->store->begin_commit({}, {}).status() : kOk;
  });
}

int32_t memlith_persist_async(memlith_region* const* regions, uint64_t count, uint32_t scope, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(ticket, "ticket"));
    MEMLITH_TRY_ASSIGN(const std::span<Region* const> all, regions_of(regions, count, scope));
    if (!all.empty()) return persist(*regions[0]->owner, all, scope, ticket);
    *ticket = 0;
    return kOk;
  });
}

int32_t memlith_wait(memlith_store* store, uint64_t ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    if (store->store->read_only() || ticket > store->store->log().head().value) {
      return fail(Errc::invalid, Detail::argument, "there is no ticket {} in this store", ticket);
    }
    return store->store->sync(Lsn{ticket});
  });
}

int32_t memlith_rollback(memlith_region* const* regions, uint64_t count, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(const std::span<Region* const> all, regions_of(regions, count, scope));
    MEMLITH_TRY(Region::rollback(all, static_cast<Scope>(scope)));
    if (!all.empty()) keep_to_memory(*regions[0]->owner);
    return kOk;
  });
}

// ---- snapshots -------------------------------------------------------------------------------------------------

int32_t memlith_region_snapshot(memlith_region* const* regions, uint64_t count, memlith_snapshot** snapshot) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(snapshot, "snapshot"));
    MEMLITH_TRY_ASSIGN(const std::span<Region* const> all, regions_of(regions, count, MEMLITH_SCOPE_PROCESS));
    auto handle = std::make_unique<memlith_snapshot>();
    MEMLITH_TRY_ASSIGN(handle->snapshot, Snapshot::make(all));
    *snapshot = handle.release();
    return kOk;
  });
}

const void* memlith_snapshot_address(const memlith_snapshot* snapshot, uint64_t index) {
  return snapshot == nullptr ? nullptr : snapshot->snapshot->address(index);
}

uint64_t memlith_snapshot_size(const memlith_snapshot* snapshot, uint64_t index) {
  return snapshot == nullptr ? 0 : snapshot->snapshot->size(index);
}

uint64_t memlith_snapshot_lsn(const memlith_snapshot* snapshot) {
  return snapshot == nullptr ? 0 : snapshot->snapshot->lsn().value;
}

int32_t memlith_snapshot_place(memlith_snapshot* snapshot) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(snapshot, "snapshot"));
    return snapshot->snapshot->place();
  });
}

void memlith_snapshot_close(memlith_snapshot* snapshot) { delete snapshot; }

// ---- from outside ----------------------------------------------------------------------------------------------

int32_t memlith_verify(const char* path, memlith_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    StoreOptions options;
    options.read_only = true;
    std::unique_ptr<memlith_store> store;
    // A read-only open reads and checks everything that there is to check, and keeps the result in memory.
    MEMLITH_TRY(open_store(path, kind_at(path), std::move(options), IoBackend::automatic, store));
    const Store& inner = *store->store;
    memlith_report report{};
    report.frames = inner.counters().replayed_frames;
    report.frame_bytes = inner.counters().replayed_bytes;
    for (const ObjectInfo& object : inner.objects()) {
      ++report.regions;
      report.region_bytes += object.size_bytes;
    }
    report.clean = inner.was_clean() ? 1 : 0;
    report.one_file = inner.one_file() ? 1 : 0;
    report.log_bytes = inner.log().capacity_bytes();
    report.superblock_copies = inner.log().superblock_copies();
    report.incarnation = store->incarnation;
    return write_info(target, report);
  });
}

}  // extern "C"
