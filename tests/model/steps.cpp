// The steps of the model test: each does one thing to the world and to the model beside it.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <thread>

#include "model/world.hpp"
#include "private/inside.h"
#include "support/temp_folder.hpp"

namespace memlith::test {

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxBytes = 1 << 20;

// A range that this thread touched counts as this thread's, even if another thread stored there before.
void own(ModelRegion& region, std::uint64_t offset, std::uint64_t bytes) {
  region.own.push_back({offset, bytes});
  std::erase_if(region.by_others,
                [&](const Range& range) { return range.offset >= offset && range.offset < offset + bytes; });
}
bool owns(const ModelRegion& region, std::uint64_t offset) {
  return std::any_of(region.own.begin(), region.own.end(), [offset](const Range& range) {
    return offset >= range.offset && offset < range.offset + range.bytes;
  });
}

std::uint64_t rounded(const ModelStore& store, std::uint64_t bytes) {
  return store.one_file ? bytes : (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

const std::vector<World::Step>& World::steps() {
  static const std::vector<Step> all = {
      {"open a store", 40, &World::open_store},
      {"open a store wrongly", 10, &World::open_store_wrongly},
      {"close a store", 12, &World::close_store},
      {"look at a store", 120, &World::look_at_store},
      {"look at a store from outside", 12, &World::look_from_outside},
      {"rename a store", 6, &World::rename_store},
      {"change the current folder", 12, &World::change_folder},
      {"open a store in a second process", 1, &World::second_process},
      {"fork", 1, &World::fork_child},
      {"open a region", 60, &World::open_region},
      {"open a region wrongly", 12, &World::open_region_wrongly},
      {"close a region", 12, &World::close_region},
      {"remove a region", 4, &World::remove_region},
      {"grow a region", 10, &World::grow_region},
      {"fill the disk", 6, &World::fill_disk},
      {"store bytes", 600, &World::store_bytes},
      {"store bytes in another thread", 8, &World::store_by_thread},
      {"read from a pipe into a region", 20, &World::read_into_region},
      {"persist", 120, &World::persist},
      {"persist asynchronously", 80, &World::persist_soon},
      {"persist this thread's stores", 40, &World::persist_thread},
      {"persist a range", 40, &World::persist_range},
      {"persist one page often", 12, &World::persist_often},
      {"discard pages", 12, &World::discard_pages},
      {"roll back", 12, &World::roll_back},
      {"a transaction", 40, &World::transact},
      {"a change", 40, &World::change},
      {"write in a transaction", 20, &World::write_in_transaction},
      {"release memory", 4, &World::release},
      {"checkpoint", 6, &World::checkpoint},
      {"look at a region", 200, &World::look_at_region},
      {"take a snapshot", 3, &World::look_at_snapshot},
      {"misuse", 60, &World::misuse},
  };
  return all;
}

// ---- stores ----------------------------------------------------------------------------------------------------

void World::open_store() {
  ModelStore& store = any_store();
  if (store.handle != nullptr) return;
  const bool read_only = store.exists && random_.one_in(5);
  if (!store.exists) {
    memlith_store* none = nullptr;
    if (random_.one_in(3)) expect(open(store, 0, &none), MEMLITH_NOT_FOUND, "opening a store that is not there");
  }
  expect(open(store, read_only ? MEMLITH_OPEN_READ_ONLY : MEMLITH_OPEN_CREATE, &store.handle), MEMLITH_OK,
         "opening a store");
  if (store.handle == nullptr) return;
  store.exists = true;
  store.read_only = read_only;
  if (!read_only && random_.one_in(2)) {
    if (store.event < 0) store.event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    expect(MEMLITH_CALL(memlith_store_set_eventfd, store.handle, store.event), MEMLITH_OK, "set_eventfd");
  }
}

void World::open_store_wrongly() {
  ModelStore& store = any_store();
  memlith_store* none = nullptr;
  if (store.handle != nullptr) {
    if (store.read_only) return;
    expect(open(store, MEMLITH_OPEN_CREATE, &none), MEMLITH_BUSY, "opening a store twice");
    expect(open(store, MEMLITH_OPEN_READ_ONLY, &none), MEMLITH_BUSY, "opening a store twice, read-only");
  } else if (store.exists) {
    expect(open(store, MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE, &none), MEMLITH_EXISTS,
           "creating a store that is there");
  } else {
    expect(open(store, MEMLITH_OPEN_CREATE | MEMLITH_OPEN_READ_ONLY, &none), MEMLITH_INVALID,
           "creating a store read-only");
  }
  EXPECT_EQ(none, nullptr) << story();
}

void World::close_store() {
  if (ModelStore* const store = open_one(false)) close(*store);
}

void World::look_at_store() {
  ModelStore* const store = open_one(false);
  if (store == nullptr) return;
  memlith_store_info info{};
  info.struct_size = sizeof info;
  expect(MEMLITH_CALL(memlith_store_get_info, store->handle, &info), MEMLITH_OK, "get_info");
  EXPECT_EQ(info.read_only, store->read_only ? 1u : 0u) << story();
  EXPECT_EQ(info.poisoned, 0u) << story();
  EXPECT_EQ(info.one_file, store->one_file ? 1u : 0u) << story();
  EXPECT_EQ(info.memory_error, 0) << story();
  EXPECT_TRUE(store->one_file || info.region_count == store->regions.size()) << story();
  const std::uint64_t durable = MEMLITH_CALL(memlith_store_durable, store->handle);
  EXPECT_TRUE(store->read_only || durable >= info.durable_lsn) << story();
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  const std::int32_t code = MEMLITH_CALL(memlith_store_get_stats, store->handle, &stats);
  expect(code, store->read_only ? MEMLITH_READ_ONLY : MEMLITH_OK, "get_stats");
  memlith_region_info region{};
  region.struct_size = sizeof region;
  if (!store->one_file) {
    for (std::uint64_t i = 0; i < store->regions.size(); ++i) {
      expect(MEMLITH_CALL(memlith_store_region_at, store->handle, i, &region), MEMLITH_OK, "region_at");
      EXPECT_EQ(store->regions.count(region.name), 1u) << region.name << "\n" << story();
    }
    expect(MEMLITH_CALL(memlith_store_region_at, store->handle, store->regions.size(), &region), MEMLITH_NOT_FOUND,
           "region_at behind the last");
  }
}

void World::look_from_outside() {
  ModelStore& store = any_store();
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  const std::string path = path_to(store);
  const std::int32_t code = MEMLITH_CALL(memlith_stat, path.c_str(), &stats);
  if (store.handle != nullptr && !store.read_only) {
    expect(code, MEMLITH_OK, "stat of an open store");
    EXPECT_EQ(stats.alive, 1u) << story();
    EXPECT_EQ(stats.process, static_cast<std::uint64_t>(::getpid())) << story();
  } else {
    expect(code, MEMLITH_NOT_FOUND, "stat of a store that no process has open for writing");
  }
  EXPECT_STREQ(MEMLITH_CALL(memlith_version), "0.1.0");
}

// A store goes on working where its descriptors point; new names are found by the next opening only.
void World::rename_store() {
  ModelStore& store = any_store();
  if (!store.exists || store.one_file) return;
  const std::string other = folder_ + "/renamed" + std::to_string(++names_);
  std::filesystem::rename(store.path, other);
  store.path = other;
}

void World::change_folder() {
  standing_ = folders_[random_.below(folders_.size())];
  EXPECT_EQ(::chdir(standing_.c_str()), 0);
}

// ---- processes -------------------------------------------------------------------------------------------------

namespace {
// Runs `body` in a forked child; it ends with the number of the first check that failed, or 0.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    ::_exit(body());
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
}  // namespace

void World::second_process() {
  ModelStore& store = any_store();
  if (!store.exists) return;
  const bool held = store.handle != nullptr;
  const int result = in_child([&] {
    memlith_store* other = nullptr;
    const std::int32_t code = open(store, MEMLITH_OPEN_READ_ONLY, &other);
    if (held && !store.read_only) return memlith_category(code) == MEMLITH_BUSY ? 0 : 1;
    if (code != MEMLITH_OK) return 2;
    for (const auto& [name, region] : store.regions) {
      memlith_region* view = nullptr;
      memlith_region_options given{};
      given.struct_size = sizeof given;
      const std::int32_t opened = memlith_region_open(other, name.c_str(), &given, &view);
      // The child has the parent's mappings: this region's, or one of another store that was given the same addresses.
      if (memlith_category(opened) == MEMLITH_ADDRESS_TAKEN) continue;
      if (opened != MEMLITH_OK) return 3;
      if (memlith_region_size(view) != region.captured.size()) return 4;
      if (std::memcmp(memlith_region_address(view), region.captured.data(), region.captured.size()) != 0) return 5;
    }
    return memlith_store_close(other) == MEMLITH_OK ? 0 : 6;
  });
  EXPECT_EQ(result, 0) << story();
}

// A child has a copy of the memory; every call on the parent's handles that would touch the store is refused.
void World::fork_child() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  ModelRegion* const region = open_region_of(*store);
  const int result = in_child([&] {
    if (memlith_category(memlith_store_checkpoint(store->handle)) != MEMLITH_INVALID) return 1;
    if (region == nullptr) return 0;
    const void* const memory = memlith_region_address(region->handle);
    if (std::memcmp(memory, region->now.data(), region->now.size()) != 0) return 2;
    if (memlith_category(memlith_persist(&region->handle, 1, MEMLITH_SCOPE_PROCESS)) != MEMLITH_INVALID) return 3;
    std::uint64_t ticket = 0;
    if (memlith_category(memlith_persist_async(&region->handle, 1, MEMLITH_SCOPE_PROCESS, &ticket)) != MEMLITH_INVALID)
      return 4;
    return 0;
  });
  EXPECT_EQ(result, 0) << story();
}

// ---- regions ---------------------------------------------------------------------------------------------------

void World::open_region() {
  ModelStore* const store = open_one(false);
  if (store == nullptr) return;
  const std::string name = store->one_file ? "file" : std::string(1, static_cast<char>('a' + random_.below(4)));
  const auto found = store->regions.find(name);
  if (found != store->regions.end() && found->second.handle != nullptr) return;
  const bool is_new = found == store->regions.end();
  if (is_new && store->read_only) return;
  memlith_region_options given{};
  given.struct_size = sizeof given;
  given.flags = MEMLITH_CREATE;
  given.tracker = static_cast<std::uint32_t>(random_.below(4));
  given.size = 1 + random_.below(random_.one_in(3) ? 200'000 : 20'000);
  given.max_size = kMaxBytes;
  ModelRegion region;
  if (!is_new) {
    region = found->second;
    given.flags = random_.one_in(2) ? MEMLITH_CREATE : 0;
    if (store->read_only) given.flags = 0;
  }
  region.process_scope = random_.one_in(2);
  if (region.process_scope) given.flags |= MEMLITH_REGION_PROCESS_SCOPE;
  const bool thread_scope = !region.process_scope && given.tracker != MEMLITH_TRACKER_SCAN && random_.one_in(2);
  if (thread_scope) given.flags |= MEMLITH_REGION_THREAD_SCOPE;
  region.tracker = given.tracker;
  const std::int32_t code = MEMLITH_CALL(memlith_region_open, store->handle, name.c_str(), &given, &region.handle);
  // Stores that never were open together may have been given the same addresses.
  if (!is_new && memlith_category(code) == MEMLITH_ADDRESS_TAKEN) return;
  expect(code, MEMLITH_OK, "opening a region");
  if (region.handle == nullptr) return;
  if (is_new) {
    region.captured.assign(rounded(*store, given.size), 0);
    region.now = region.captured;
  }
  compare(*store, name, region);
  store->regions[name] = std::move(region);
}

void World::open_region_wrongly() {
  ModelStore* const store = open_one(false);
  if (store == nullptr) return;
  memlith_region* none = nullptr;
  memlith_region_options given{};
  given.struct_size = sizeof given;
  expect(MEMLITH_CALL(memlith_region_open, store->handle, "nobody", &given, &none), MEMLITH_NOT_FOUND,
         "opening a region that is not there");
  if (store->one_file) return;
  given.flags = MEMLITH_CREATE;
  given.size = 2 * kPage;
  if (store->read_only) {
    expect(MEMLITH_CALL(memlith_region_open, store->handle, "nobody", &given, &none), MEMLITH_READ_ONLY,
           "creating in a read-only store");
  } else {
    given.max_size = kPage;
    expect(MEMLITH_CALL(memlith_region_open, store->handle, "nobody", &given, &none), MEMLITH_INVALID,
           "a limit below the size");
    expect(MEMLITH_CALL(memlith_region_open, store->handle, "", &given, &none), MEMLITH_INVALID,
           "a region without a name");
  }
  std::string name;
  if (open_region_of(*store, &name) != nullptr) {
    given.max_size = kMaxBytes;
    expect(MEMLITH_CALL(memlith_region_open, store->handle, name.c_str(), &given, &none), MEMLITH_BUSY,
           "opening a region twice");
  }
}

void World::close_region() {
  ModelStore* const store = open_one(false);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  expect(MEMLITH_CALL(memlith_region_close, region->handle), MEMLITH_OK, "closing a region");
  region->handle = nullptr;
  region->now = region->captured;
  region->by_others.clear();
  region->own.clear();
}

void World::remove_region() {
  ModelStore* const store = open_one(true);
  if (store == nullptr || store->one_file) return;
  expect(MEMLITH_CALL(memlith_region_remove, store->handle, "nobody"), MEMLITH_NOT_FOUND,
         "removing a region that is not there");
  if (store->regions.empty()) return;
  const auto chosen =
      std::next(store->regions.begin(), static_cast<std::ptrdiff_t>(random_.below(store->regions.size())));
  const bool open = chosen->second.handle != nullptr;
  expect(MEMLITH_CALL(memlith_region_remove, store->handle, chosen->first.c_str()), open ? MEMLITH_BUSY : MEMLITH_OK,
         "removing a region");
  if (!open) store->regions.erase(chosen);
}

void World::grow_region() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  const std::uint64_t wanted = region->now.size() + random_.below(30'000);
  if (rounded(*store, wanted) > kMaxBytes) return;
  expect(MEMLITH_CALL(memlith_region_grow, region->handle, wanted), MEMLITH_OK, "growing a region");
  region->now.resize(rounded(*store, wanted), 0);
  expect(MEMLITH_CALL(memlith_region_grow, region->handle, kMaxBytes * 4096), MEMLITH_INVALID,
         "growing beyond max_size");
}

// On a full disk a growth, a new region and a new store are refused, and nothing has changed.
void World::fill_disk() {
  ModelStore& store = any_store();
  if (!store.exists) {
    memlith_store* none = nullptr;
    const FullDisk full;
    expect(open(store, MEMLITH_OPEN_CREATE, &none), MEMLITH_NO_SPACE, "creating a store on a full disk");
    EXPECT_TRUE(full.refused()) << story();
    return;
  }
  if (store.handle == nullptr || store.read_only) return;
  if (!store.one_file && store.regions.count("n") == 0) {
    memlith_region* none = nullptr;
    memlith_region_options given{};
    given.struct_size = sizeof given;
    given.flags = MEMLITH_CREATE;
    given.size = kPage;
    given.max_size = kMaxBytes;
    const FullDisk full;
    expect(MEMLITH_CALL(memlith_region_open, store.handle, "n", &given, &none), MEMLITH_NO_SPACE,
           "creating a region on a full disk");
    EXPECT_TRUE(full.refused()) << story();
  }
  ModelRegion* const region = open_region_of(store);
  if (region == nullptr || rounded(store, region->now.size() + kPage) > kMaxBytes) return;
  const FullDisk full;
  const std::int32_t code = MEMLITH_CALL(memlith_region_grow, region->handle, region->now.size() + kPage);
  // There is room already where the region was longer before, and that was never persisted.
  expect(code, full.refused() ? MEMLITH_NO_SPACE : MEMLITH_OK, "growing a region on a full disk");
  if (code == MEMLITH_OK) region->now.resize(rounded(store, region->now.size() + kPage), 0);
  EXPECT_EQ(MEMLITH_CALL(memlith_region_size, region->handle), region->now.size()) << story();
}

void World::store_bytes() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region != nullptr) store_into(*region);
}

void World::store_into(ModelRegion& region) {
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region.handle));
  for (std::uint64_t i = random_.below(4); i < 5; ++i) {
    const std::uint64_t bytes =
        1 + random_.below(std::min<std::uint64_t>(region.now.size(), random_.one_in(20) ? 9000 : 40));
    const std::uint64_t offset = random_.below(region.now.size() - bytes + 1);
    const auto value = static_cast<unsigned char>(random_.below(256));
    std::memset(memory + offset, value, bytes);
    std::fill_n(region.now.begin() + static_cast<std::ptrdiff_t>(offset), bytes, value);
    own(region, offset, bytes);
    expect(MEMLITH_CALL(memlith_touch, region.handle, memory + offset, bytes), MEMLITH_OK, "touch");
  }
}

// Another thread's stores count with process scope, and not with this thread's.
void World::store_by_thread() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr || region->tracker != MEMLITH_TRACKER_EXPLICIT) return;
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  const Range range{random_.below(region->now.size()), 1};
  const auto value = static_cast<unsigned char>(random_.below(256));
  // Bytes that this thread stored to as well would be in its persist, too.
  if (range.offset >= region->captured.size() || owns(*region, range.offset)) return;
  std::int32_t code = MEMLITH_OK;
  std::thread([&] {
    memory[range.offset] = value;
    code = memlith_touch(region->handle, memory + range.offset, 1);
  }).join();
  ++calls()["memlith_touch"];
  expect(code, MEMLITH_OK, "touch by another thread");
  region->now[range.offset] = value;
  region->by_others.push_back(range);
}

void World::read_into_region() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  std::array<unsigned char, 3000> bytes{};
  const std::uint64_t count = std::min<std::uint64_t>(region->now.size(), 1 + random_.below(bytes.size()));
  const std::uint64_t offset = random_.below(region->now.size() - count + 1);
  for (std::uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(random_.below(256));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], bytes.data(), count), static_cast<ssize_t>(count));
  const memlith_bytes part{memory + offset, count};
  expect(MEMLITH_CALL(memlith_announce, region->handle, &part, 1), MEMLITH_OK, "announce");
  expect(MEMLITH_CALL(memlith_prepare, region->handle, memory + offset, count), MEMLITH_OK, "prepare");
  EXPECT_EQ(::read(ends[0], memory + offset, count), static_cast<ssize_t>(count)) << story();
  expect(MEMLITH_CALL(memlith_touch, region->handle, memory + offset, count), MEMLITH_OK, "touch");
  std::copy_n(bytes.begin(), count, region->now.begin() + static_cast<std::ptrdiff_t>(offset));
  own(*region, offset, count);
  ::close(ends[0]);
  ::close(ends[1]);
}

// ---- persist ---------------------------------------------------------------------------------------------------

void World::persist() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  if (random_.one_in(4)) {
    expect(MEMLITH_CALL(memlith_persist_all, store->handle, MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "persist_all");
    for (auto& [name, region] : store->regions) {
      if (region.handle != nullptr) captured_all(region);
    }
    return;
  }
  std::vector<memlith_region*> handles;
  const auto chosen = choose_regions(*store, handles);
  if (chosen.empty()) return;
  expect(MEMLITH_CALL(memlith_persist, handles.data(), handles.size(), MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "persist");
  for (ModelRegion* const region : chosen) captured_all(*region);
}

void World::persist_soon() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  if (random_.one_in(6)) {
    expect(MEMLITH_CALL(memlith_store_set_window, store->handle, random_.below(2), random_.below(3) * 4096), MEMLITH_OK,
           "set_flush_window");
  }
  std::vector<memlith_region*> handles;
  const auto chosen = choose_regions(*store, handles);
  if (chosen.empty()) return;
  std::uint64_t ticket = 0;
  const std::uint64_t before = MEMLITH_CALL(memlith_store_durable, store->handle);
  expect(MEMLITH_CALL(memlith_persist_async, handles.data(), handles.size(), MEMLITH_SCOPE_PROCESS, &ticket),
         MEMLITH_OK, "persist_async");
  for (ModelRegion* const region : chosen) captured_all(*region);
  if (random_.one_in(3)) return;
  expect(MEMLITH_CALL(memlith_wait, store->handle, ticket), MEMLITH_OK, "wait");
  const std::uint64_t durable = MEMLITH_CALL(memlith_store_durable, store->handle);
  EXPECT_GE(durable, std::max(ticket, before)) << story();
  EXPECT_GE(MEMLITH_CALL(memlith_store_newest, store->handle), durable) << story();
}

// Persists until the page becomes hot, and sometimes without a change until it cools.
void World::persist_often() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  const std::uint64_t page = random_.below((region->now.size() + kPage - 1) / kPage) * kPage;
  const std::uint64_t bytes = std::min<std::uint64_t>(kPage, region->now.size() - page);
  const std::uint64_t idle = random_.one_in(3) ? 17 : 0;
  for (std::uint64_t i = 0; i < 8 + idle; ++i) {
    if (i < 8) {
      const std::uint64_t offset = page + random_.below(bytes);
      const auto value = static_cast<unsigned char>(random_.below(256));
      memory[offset] = value;
      region->now[offset] = value;
      own(*region, offset, 1);
      expect(MEMLITH_CALL(memlith_touch, region->handle, memory + offset, 1), MEMLITH_OK, "touch");
    }
    expect(MEMLITH_CALL(memlith_persist, &region->handle, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "persist");
    captured_all(*region);
  }
  std::uint64_t left = 1;
  EXPECT_TRUE(MEMLITH_CALL(memlith_region_unpersisted, region->handle, &left) == MEMLITH_OK && left == 0) << story();
}

// With a tracker that finds stores by page, the pages of the range are persisted.
void World::persist_range() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  const std::uint64_t size = region->now.size();
  const std::uint64_t bytes = 1 + random_.below(std::min<std::uint64_t>(size, 20'000));
  Range range{random_.below(size - bytes + 1), bytes};
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  expect(MEMLITH_CALL(memlith_persist_range, region->handle, memory + range.offset, bytes, MEMLITH_SCOPE_PROCESS),
         MEMLITH_OK, "persist_range");
  if (!finds_no_stores(*region)) {
    const std::uint64_t end = std::min(size, (range.offset + bytes + kPage - 1) / kPage * kPage);
    range.offset -= range.offset % kPage;
    range.bytes = end - range.offset;
  }
  captured_range(*region, range);
  std::erase_if(region->by_others, [&range](const Range& other) {
    return other.offset >= range.offset && other.offset < range.offset + range.bytes;
  });
}

void World::discard_pages() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  const std::uint64_t pages = region->now.size() / kPage;
  if (pages == 0) return;
  const std::uint64_t first = random_.below(pages);
  const Range range{first * kPage, (1 + random_.below(std::min<std::uint64_t>(pages - first, 20))) * kPage};
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  expect(MEMLITH_CALL(memlith_region_discard, region->handle, memory + range.offset, range.bytes), MEMLITH_OK,
         "discard");
  std::fill_n(region->now.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, 0);
  captured_range(*region, range);
  std::erase_if(region->by_others, [&range](const Range& other) {
    return other.offset >= range.offset && other.offset < range.offset + range.bytes;
  });
}

void World::roll_back() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  std::vector<memlith_region*> handles;
  const auto chosen = choose_regions(*store, handles);
  if (chosen.empty()) return;
  expect(MEMLITH_CALL(memlith_rollback, handles.data(), handles.size(), MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "rollback");
  for (ModelRegion* const region : chosen) undone(*region);
}

void World::undone(ModelRegion& region) {
  const std::uint64_t size = region.now.size();  // a growth stays
  region.now = region.captured;
  region.now.resize(size, 0);
  region.by_others.clear();
  region.own.clear();
  compare_part(region);
}

// Captured whole or undone; meanwhile nothing else captures, undoes or closes its regions.
void World::change() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  std::vector<memlith_region*> handles;
  auto chosen = choose_regions(*store, handles);
  if (chosen.empty()) return;
  if (random_.one_in(4)) {
    handles.clear();
    chosen.clear();
    for (auto& [name, region] : store->regions) {
      if (region.handle != nullptr) chosen.push_back(&region);
    }
  }
  memlith_txn* change = nullptr;
  expect(MEMLITH_CALL(memlith_begin, store->handle, &change), MEMLITH_OK, "begin");
  if (handles.empty()) handles.push_back(nullptr);  // all that are open
  for (memlith_region* const each : handles) {
    expect(MEMLITH_CALL(memlith_txn_add_region, change, each, MEMLITH_UNDO), MEMLITH_OK, "add a region with undo");
  }
  for (ModelRegion* const region : chosen) captured_all(*region);
  for (ModelRegion* const region : chosen) store_into(*region);
  memlith_region* const one = chosen.front()->handle;
  memlith_txn* other = nullptr;
  expect(MEMLITH_CALL(memlith_persist_all, store->handle, MEMLITH_SCOPE_PROCESS), MEMLITH_BUSY, "persist_all, inside");
  expect(MEMLITH_CALL(memlith_rollback, &one, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_BUSY, "rollback, inside");
  expect(MEMLITH_CALL(memlith_begin, store->handle, &other), MEMLITH_OK, "begin, inside");
  expect(MEMLITH_CALL(memlith_txn_add_region, other, one, MEMLITH_UNDO), MEMLITH_BUSY, "undo, inside");
  expect(MEMLITH_CALL(memlith_abort, other), MEMLITH_OK, "abort, inside");
  expect(MEMLITH_CALL(memlith_region_close, one), MEMLITH_BUSY, "closing a region, inside");
  if (random_.one_in(2)) {
    expect(MEMLITH_CALL(memlith_abort, change), MEMLITH_OK, "undo");
    for (ModelRegion* const region : chosen) undone(*region);
    return;
  }
  std::uint64_t ticket = 0;
  const bool waits = random_.one_in(2);
  expect(MEMLITH_CALL(memlith_commit, change, waits ? MEMLITH_COMMIT_SYNC : MEMLITH_COMMIT_WEAK, &ticket), MEMLITH_OK,
         "commit of a change");
  for (ModelRegion* const region : chosen) captured_all(*region);
  if (!waits && random_.one_in(2)) expect(MEMLITH_CALL(memlith_wait, store->handle, ticket), MEMLITH_OK, "wait");
}

// Announced bytes are committed as they are then; of regions that take part, what a persist would commit.
void World::transact() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  memlith_txn* tx = nullptr;
  expect(MEMLITH_CALL(memlith_begin, store->handle, &tx), MEMLITH_OK, "begin");
  const bool announces = finds_no_stores(*region);
  if (!announces) expect(MEMLITH_CALL(memlith_touch_before, tx, memory, 1), MEMLITH_UNSUPPORTED, "of another tracker");
  const std::vector<unsigned char> before = region->now;
  std::vector<Range> ranges;
  for (std::uint64_t i = random_.below(4); announces && i < 4; ++i) {
    const std::uint64_t bytes = 1 + random_.below(std::min<std::uint64_t>(region->now.size(), 60));
    const Range range{random_.below(region->now.size() - bytes + 1), bytes};
    expect(MEMLITH_CALL(memlith_touch_before, tx, memory + range.offset, bytes), MEMLITH_OK, "touch_before");
    const auto value = static_cast<unsigned char>(random_.below(256));
    std::memset(memory + range.offset, value, bytes);
    std::fill_n(region->now.begin() + static_cast<std::ptrdiff_t>(range.offset), bytes, value);
    ranges.push_back(range);
  }
  std::vector<memlith_region*> handles;
  std::vector<ModelRegion*> parts;
  if (random_.one_in(2)) parts = choose_regions(*store, handles);
  for (memlith_region* const each : handles) {
    expect(MEMLITH_CALL(memlith_txn_add_region, tx, each, 0), MEMLITH_OK, "tx_add_region");
  }
  if (random_.one_in(3)) {
    expect(MEMLITH_CALL(memlith_abort, tx), MEMLITH_OK, "abort");
    region->now = before;
    compare_part(*region);
    return;
  }
  std::uint64_t ticket = 0;
  const bool waits = random_.one_in(2);
  expect(MEMLITH_CALL(memlith_commit, tx, waits ? MEMLITH_COMMIT_SYNC : MEMLITH_COMMIT_WEAK, &ticket), MEMLITH_OK,
         "commit");
  for (const Range& range : ranges) captured_range(*region, range);
  for (ModelRegion* const each : parts) captured_all(*each);
  if (!waits && random_.one_in(2)) expect(MEMLITH_CALL(memlith_wait, store->handle, ticket), MEMLITH_OK, "wait");
}

void World::write_in_transaction() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr || !finds_no_stores(*region)) return;
  if (random_.one_in(8)) {
    expect(MEMLITH_CALL(memlith_store_set_log_max, store->handle, std::uint64_t{2} << 30), MEMLITH_OK, "set_log_max");
  }
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  memlith_txn* txn = nullptr;
  expect(MEMLITH_CALL(memlith_begin, store->handle, &txn), MEMLITH_OK, "begin");
  std::array<unsigned char, 50> bytes{};
  std::array<Range, 2> ranges{};
  for (Range& range : ranges) {
    bytes.fill(static_cast<unsigned char>(random_.below(256)));
    const std::uint64_t count = 1 + random_.below(std::min<std::uint64_t>(region->now.size(), bytes.size()));
    range = {random_.below(region->now.size() - count + 1), count};
    expect(MEMLITH_CALL(memlith_txn_write, txn, memory + range.offset, bytes.data(), count), MEMLITH_OK, "txn_write");
    std::copy_n(bytes.begin(), count, region->now.begin() + static_cast<std::ptrdiff_t>(range.offset));
  }
  expect(MEMLITH_CALL(memlith_commit, txn, MEMLITH_COMMIT_SYNC, nullptr), MEMLITH_OK, "commit");
  for (const Range& range : ranges) captured_range(*region, range);
  compare_part(*region);
}

void World::release() {
  ModelStore* const store = open_one(true);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  expect(MEMLITH_CALL(memlith_region_release, region->handle), MEMLITH_OK, "release");
  compare_part(*region);
}

void World::checkpoint() {
  ModelStore* const store = open_one(false);
  if (store == nullptr) return;
  expect(MEMLITH_CALL(memlith_store_checkpoint, store->handle), store->read_only ? MEMLITH_READ_ONLY : MEMLITH_OK,
         "checkpoint");
  // No store of the model is followed; readers beside a writer have tests of their own.
  expect(MEMLITH_CALL(memlith_store_refresh, store->handle, nullptr), MEMLITH_INVALID, "refresh");
}

void World::look_at_region() {
  ModelStore* const store = open_one(false);
  std::string name;
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store, &name);
  if (region == nullptr) return;
  memlith_region_info info{};
  info.struct_size = sizeof info;
  expect(MEMLITH_CALL(memlith_region_get_info, region->handle, &info), MEMLITH_OK, "region_get_info");
  EXPECT_EQ(info.name, name) << story();
  EXPECT_EQ(info.size, region->now.size()) << story();
  EXPECT_EQ(reinterpret_cast<void*>(info.address), MEMLITH_CALL(memlith_region_address, region->handle)) << story();
  EXPECT_EQ(MEMLITH_CALL(memlith_region_size, region->handle), region->now.size()) << story();
  compare_part(*region);
}

// A snapshot shows what is durable, and goes on showing it when that changes; a forked child sees the same.
void World::look_at_snapshot() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  expect(MEMLITH_CALL(memlith_persist_all, store->handle, MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "persist_all");
  for (auto& [name, region] : store->regions) {
    if (region.handle != nullptr) captured_all(region);
  }
  std::vector<memlith_region*> handles;
  const auto chosen = choose_regions(*store, handles);
  if (chosen.empty()) return;
  memlith_snapshot* snapshot = nullptr;
  expect(MEMLITH_CALL(memlith_region_snapshot, handles.data(), handles.size(), &snapshot), MEMLITH_OK, "snapshot");
  if (snapshot == nullptr) return;
  EXPECT_LE(MEMLITH_CALL(memlith_snapshot_ticket, snapshot), MEMLITH_CALL(memlith_store_durable, store->handle))
      << story();
  store_bytes();
  expect(MEMLITH_CALL(memlith_persist_all, store->handle, MEMLITH_SCOPE_PROCESS), MEMLITH_OK, "persist_all");
  const auto shows = [&] {
    for (std::uint64_t i = 0; i < chosen.size(); ++i) {
      const std::vector<unsigned char>& wanted = chosen[i]->captured;
      if (memlith_snapshot_size(snapshot, i) != wanted.size()) return 1;
      if (std::memcmp(memlith_snapshot_address(snapshot, i), wanted.data(), wanted.size()) != 0) return 2;
    }
    return 0;
  };
  expect(MEMLITH_CALL(memlith_store_checkpoint, store->handle), MEMLITH_OK, "checkpoint");
  calls()["memlith_snapshot_size"] += chosen.size();
  calls()["memlith_snapshot_address"] += chosen.size();
  EXPECT_EQ(shows(), 0) << story();
  if (random_.one_in(8)) {
    EXPECT_EQ(in_child(shows), 0) << story();
  }
  expect(MEMLITH_CALL(memlith_snapshot_place, snapshot), MEMLITH_INVALID, "placing a snapshot where it was made");
  MEMLITH_CALL(memlith_snapshot_close, snapshot);
  // Stores meanwhile are in the persist behind it, and in no snapshot.
  for (auto& [name, region] : store->regions) {
    if (region.handle != nullptr) captured_all(region);
  }
}

// Calls that are refused and change nothing.
void World::misuse() {
  ModelStore* const store = open_one(false);
  ModelRegion* const region = store == nullptr ? nullptr : open_region_of(*store);
  if (region == nullptr) return;
  auto* const memory = static_cast<unsigned char*>(MEMLITH_CALL(memlith_region_address, region->handle));
  expect(MEMLITH_CALL(memlith_persist, &region->handle, 1, 77), MEMLITH_INVALID, "a scope that there is not");
  // The sentence is the last failure's, whole or cut, and its length is told.
  std::array<char, 16> cut{};
  EXPECT_GT(MEMLITH_CALL(memlith_last_error, cut.data(), cut.size()), cut.size()) << story();
  EXPECT_EQ(std::strlen(cut.data()), cut.size() - 1) << story();
  EXPECT_STREQ(MEMLITH_CALL(memlith_category_name, MEMLITH_OK), "ok");
  for (const char* const no_block_device : {store->path.c_str(), "/dev/null"}) {
    expect(MEMLITH_CALL(memlith_device_format, no_block_device, MEMLITH_FORMAT_FORCE), MEMLITH_INVALID,
           "formatting what is no block device");
  }
  if (store->read_only) {
    expect(MEMLITH_CALL(memlith_persist, &region->handle, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_READ_ONLY,
           "persist, read-only");
    expect(MEMLITH_CALL(memlith_region_grow, region->handle, kMaxBytes), MEMLITH_READ_ONLY, "grow, read-only");
    return;
  }
  expect(MEMLITH_CALL(memlith_touch, region->handle, memory + region->now.size(), 1), MEMLITH_INVALID, "touch outside");
  expect(MEMLITH_CALL(memlith_prepare, region->handle, memory - 1, 2), MEMLITH_INVALID, "prepare outside");
  const memlith_bytes outside{memory - 1, 2};
  expect(MEMLITH_CALL(memlith_announce, region->handle, &outside, 1), MEMLITH_INVALID, "announce outside");
  expect(MEMLITH_CALL(memlith_wait, store->handle, ~std::uint64_t{0}), MEMLITH_INVALID, "a ticket of no commit");
  if (region->now.size() > 1) {
    expect(MEMLITH_CALL(memlith_region_grow, region->handle, region->now.size() / 2 > kPage ? 1 : 0), MEMLITH_INVALID,
           "shrinking");
  }
}

}  // namespace memlith::test
