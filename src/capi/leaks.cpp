// Blocks of heaps that nothing leads to: found, and freed; include/memlith/heap.h. Floor: capi.
#include <memory>
#include <utility>
#include <vector>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/read_store.hpp"
#include "heap/heap.hpp"
#include "memlith/heap.h"

using namespace memlith::core;

namespace {

using Found = void (*)(void* context, const char* heap, std::uint64_t offset, std::uint64_t bytes);

// A region of the store, and the heap in it, which is sound; null: none.
struct Opened {
  Region* region = nullptr;
  std::uint64_t address = 0;  // where programs have the region
  std::unique_ptr<Heap> heap;
};

Status open_heap_in(Opened& opened) {
  MEMLITH_TRY(opened.region->load({0, opened.region->size()}));  // every word may be a pointer
  if (!holds_heap(*opened.region)) return kOk;
  MEMLITH_TRY_ASSIGN(opened.heap, Heap::open(*opened.region));
  return opened.heap->verify().status();
}

// The blocks of a heap to which nothing in the store leads. Pointers may lie in any region.
struct Leak {
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
};
Result<std::vector<Leak>> leaks_of(const std::vector<Opened>& all, const Opened& one) {
  std::vector<SeenMemory> others;
  for (const Opened& other : all) {
    if (&other == &one) continue;
    others.push_back({{other.region->address(), other.region->size()}, other.address});
  }
  std::vector<Leak> leaks;
  MEMLITH_TRY(one.heap->for_each_unreached(others, [&](std::byte* address, std::uint64_t bytes) {
    leaks.push_back({address, bytes});
  }));
  return leaks;
}

void tell(Found found, void* context, const Opened& opened, const std::vector<Leak>& leaks) {
  if (found == nullptr) return;
  for (const Leak& leak : leaks) {
    found(context, opened.region->name().c_str(), static_cast<std::uint64_t>(leak.address - opened.region->address()),
          leak.bytes);
  }
}

Status collect(Session& session, Found found, void* context) {
  std::vector<Opened> all;
  std::vector<Region*> heaps;
  for (const ObjectInfo& object : session.store().objects()) {
    if (object.size_bytes == 0) continue;
    RegionOptions options;
    options.tracker = TrackerKind::touched;  // a heap tells of its own structures, and nothing else changes
    MEMLITH_TRY(Heap::place_as_made(session.store(), object.name, options));
    MEMLITH_TRY_ASSIGN(OpenRegion* const region, session.open_region(object.name, options));
    Opened opened{region->region.get(), reinterpret_cast<std::uintptr_t>(region->region->address()), nullptr};
    MEMLITH_TRY(open_heap_in(opened));
    if (opened.heap != nullptr) heaps.push_back(opened.region);
    all.push_back(std::move(opened));
  }
  // Everything is looked at before anything is freed: a leak of one heap may lead to blocks of another.
  std::vector<std::pair<const Opened*, std::vector<Leak>>> found_leaks;
  for (const Opened& opened : all) {
    if (opened.heap == nullptr) continue;
    MEMLITH_TRY_ASSIGN(std::vector<Leak> leaks, leaks_of(all, opened));
    if (!leaks.empty()) found_leaks.emplace_back(&opened, std::move(leaks));
  }
  if (found_leaks.empty()) return kOk;
  for (const auto& [opened, leaks] : found_leaks) {
    for (const Leak& leak : leaks) MEMLITH_TRY(opened->heap->arenas().free(leak.address));
  }
  MEMLITH_TRY(Region::persist(heaps));
  for (const auto& [opened, leaks] : found_leaks) tell(found, context, *opened, leaks);
  return kOk;
}

}  // namespace

extern "C" {

int32_t memlith_verify_leaks(const char* path, Found found, void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(reinterpret_cast<const void*>(found), "found"));
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<Session> session, open_to_read(path));
    std::vector<std::unique_ptr<Region>> regions;  // outlive the heaps in them
    std::vector<Opened> all;
    for (const ObjectInfo& object : session->store().objects()) {
      if (object.size_bytes == 0) continue;
      RegionOptions options;
      options.anywhere = true;  // the program may have the store open in this process
      MEMLITH_TRY_ASSIGN(std::unique_ptr<Region> region, Region::open(session->store(), object.name, options));
      Opened opened{region.get(), object.address, nullptr};
      regions.push_back(std::move(region));
      MEMLITH_TRY(open_heap_in(opened));
      all.push_back(std::move(opened));
    }
    for (const Opened& opened : all) {
      if (opened.heap == nullptr) continue;
      MEMLITH_TRY_ASSIGN(const std::vector<Leak> leaks, leaks_of(all, opened));
      tell(found, context, opened, leaks);
    }
    return kOk;
  });
}

int32_t memlith_collect_leaks(const char* path, uint32_t promise, Found freed, void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    if (promise != MEMLITH_PLAIN_POINTERS) {
      return fail(Errc::invalid, Detail::argument,
                  "{}: nothing was freed. Collecting frees only what is not needed if plain pointers lead to every "
                  "block that is needed: no pointer is compressed, combined with another (XOR lists) or tagged in its "
                  "upper bytes, and no other store or file leads into the heaps. If that is so, say it: "
                  "--collect=plain-pointers (MEMLITH_PLAIN_POINTERS)",
                  path);
    }
    StoreOptions options;
    options.kind = kind_at(path);
    MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, options.kind));
    MEMLITH_TRY_ASSIGN(std::unique_ptr<Session> session, Session::open(std::move(place), std::move(options)));
    const Status done = collect(*session, freed, context);
    if (done.ok()) return Session::close(std::move(session));
    const KeptSentence sentence;
    (void)Session::close(std::move(session));  // what was not persisted is dropped
    return done;
  });
}

}  // extern "C"
