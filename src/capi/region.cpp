// Regions: opening, closing, growing, touch and prepare; include/memlith/memlith.h. Floor: capi.
#include <array>
#include <string>
#include <vector>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "private/inside.h"

using namespace memlith::core;

static_assert(MEMLITH_TRACKER_FAULT == static_cast<int>(TrackerKind::fault));
static_assert(MEMLITH_TRACKER_INSTRUMENTED == static_cast<int>(TrackerKind::instrumented));
static_assert(MEMLITH_TRACKER_EXPLICIT == static_cast<int>(TrackerKind::touched));

namespace {

memlith_region_info region_info(const ObjectInfo& object) {
  memlith_region_info info{};
  copy_text(info.name, object.name);
  info.address = object.address;
  info.size = object.size_bytes;
  info.max_size = object.reserve_bytes;
  return info;
}

void add_tracker(const Region& region, memlith_region_info& info) {
  info.address = reinterpret_cast<std::uintptr_t>(region.address());
  info.size = region.size();
  const Tracker* const tracker = region.tracker();
  info.tracker = tracker != nullptr ? static_cast<std::uint32_t>(tracker->kind()) : 0;
  copy_text(info.tracker_detail, tracker != nullptr ? tracker->describe() : "none: read-only");
}

}  // namespace

namespace memlith::core {

Result<RegionOptions> region_options(const memlith_region_options& given) {
  constexpr std::uint32_t kFlags =
      MEMLITH_CREATE | MEMLITH_EXCLUSIVE | MEMLITH_REGION_PROCESS_SCOPE | MEMLITH_REGION_THREAD_SCOPE;
  if ((given.flags & ~kFlags) != 0 || given.tracker > MEMLITH_TRACKER_INSTRUMENTED) {
    return fail(Errc::invalid, Detail::argument, "unknown flags {:#x} or tracker {}", given.flags, given.tracker);
  }
  RegionOptions options;
  options.create = (given.flags & MEMLITH_CREATE) != 0;
  options.exclusive = (given.flags & MEMLITH_EXCLUSIVE) != 0;
  options.process_scope = (given.flags & MEMLITH_REGION_PROCESS_SCOPE) != 0;
  options.thread_scope = (given.flags & MEMLITH_REGION_THREAD_SCOPE) != 0;
  options.tracker = static_cast<TrackerKind>(given.tracker);
  options.size_bytes = given.size;
  options.reserve_bytes = given.max_size;
  options.address = given.address;
  return options;
}

}  // namespace memlith::core

extern "C" {

int32_t memlith_region_open(memlith_store* store, const char* name, const memlith_region_options* options,
                            memlith_region** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "region"));
    memlith_region_options given;
    MEMLITH_TRY(read_options(options, given));
    const bool anywhere = (given.flags & MEMLITH_REGION_ANYWHERE) != 0;
    if (anywhere && !session_of(store).store().read_only()) {
      return fail(Errc::invalid, Detail::argument,
                  "region \"{}\": MEMLITH_REGION_ANYWHERE is for stores that are open read-only; a region that is "
                  "written has addresses of its own",
                  name);
    }
    given.flags &= ~static_cast<std::uint32_t>(MEMLITH_REGION_ANYWHERE);
    MEMLITH_TRY_ASSIGN(RegionOptions inner, region_options(given));
    inner.limited = Limited::if_told;
    inner.anywhere = anywhere;
    MEMLITH_TRY_ASSIGN(OpenRegion* const region, session_of(store).open_region(name, inner));
    *result = handle_of(region);
    return kOk;
  });
}

int32_t memlith_region_close(memlith_region* region) {
  if (region == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    OpenRegion& open = open_region_of(region);
    return open.session.close_region(open);
  });
}

void* memlith_region_address(const memlith_region* region) {
  return region == nullptr ? nullptr : region_of(region).address();
}

uint64_t memlith_region_size(const memlith_region* region) { return region == nullptr ? 0 : region_of(region).size(); }

int32_t memlith_region_grow(memlith_region* region, uint64_t size) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region_of(region).grow(size);
  });
}

int32_t memlith_region_unpersisted(memlith_region* region, uint64_t* bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    MEMLITH_TRY(need(bytes, "bytes"));
    MEMLITH_TRY_ASSIGN(*bytes, region_of(region).unpersisted());
    return kOk;
  });
}

int32_t memlith_region_remove(memlith_store* store, const char* name) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    return session_of(store).remove_region(name);
  });
}

int32_t memlith_region_get_info(memlith_region* region, memlith_region_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    memlith_region_info info{};
    const Region& open = region_of(region);
    copy_text(info.name, open.name());
    info.max_size = open.reserve();
    add_tracker(open, info);
    return write_info(target, info);
  });
}

int32_t memlith_store_region_at(memlith_store* store, uint64_t index, memlith_region_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    Session& session = session_of(store);
    const std::vector<ObjectInfo> objects = session.store().objects();
    if (index >= objects.size()) {
      return fail(Errc::not_found, Detail::object, "{0}: there is no region number {2}; the store has {1} regions",
                  session.store().path(), objects.size(), index);
    }
    memlith_region_info info = region_info(objects[index]);
    session.look_at_region(objects[index].id, [&info](const Region& open) { add_tracker(open, info); });
    return write_info(target, info);
  });
}

int32_t memlith_touch(memlith_region* region, const void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region_of(region).touch(address, bytes);
  });
}

int32_t memlith_prepare(memlith_region* region, void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region_of(region).prepare(address, bytes);
  });
}

int32_t memlith_announce(memlith_region* region, const memlith_bytes* parts, uint64_t count) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    if (count > 0) MEMLITH_TRY(need(parts, "parts"));
    Region& target = region_of(region);
    std::array<Range, 64> ranges;
    for (uint64_t part = 0; part < count;) {
      std::size_t known = 0;
      for (; part < count && known < ranges.size(); ++part) {
        const auto range = target.range_of(parts[part].data, parts[part].size);
        if (range.ok() && range->bytes > 0) ranges[known++] = *range;
        if (range.ok()) continue;
        target.announce({ranges.data(), known});
        return range.error();
      }
      target.announce({ranges.data(), known});
    }
    return kOk;
  });
}

int32_t memlith_region_discard(memlith_region* region, void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region_of(region).discard(address, bytes);
  });
}

int32_t memlith_region_release(memlith_region* region) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    return region_of(region).release_clean();
  });
}

int32_t memlith_tracker_describe(uint32_t tracker, char* buffer, size_t bytes) {
  return guarded([&]() -> Status {
    if (tracker > MEMLITH_TRACKER_INSTRUMENTED)
      return fail(Errc::invalid, Detail::argument, "tracker is {}; see MEMLITH_TRACKER_AUTO", tracker);
    const std::string text = describe_tracker(static_cast<TrackerKind>(tracker));
    if (buffer == nullptr || bytes == 0) return fail(Errc::invalid, Detail::argument, "the buffer is empty");
    copy_text(std::span(buffer, bytes), text);
    return kOk;
  });
}

}  // extern "C"
