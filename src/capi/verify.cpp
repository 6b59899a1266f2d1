// Verifying a store that is not open; include/memlith/memlith.h. Floor: capi.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "applog/applog.hpp"
#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/read_store.hpp"
#include "heap/heap.hpp"
#include "kv/kv.hpp"
#include "region/pointer_check.hpp"

using namespace memlith::core;

namespace {

// The structure that the region holds; the structure is sound then.
enum class Holds : std::uint8_t { bytes, heap, kv, applog };

// Looks at a region of a store that this opened for reading only, and at the heap in it, which is sound; null: none.
using Look = std::function<Status(Region& region, Heap* heap, Holds holds)>;

Status look_at(Store& store, const ObjectInfo& object, const Look& look) {
  RegionOptions options;
  options.anywhere = true;  // the program may have the store open in this process
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Region> region, Region::open(store, object.name, options));
  MEMLITH_TRY(region->load({0, std::min(region->size(), kPageBytes)}));
  if (kv::holds_kv(*region)) {
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<kv::Kv> found, kv::Kv::open(*region, {}));
    MEMLITH_TRY(found->verify().status());
    return look(*region, nullptr, Holds::kv);
  }
  if (applog::holds_applog(*region)) {
    MEMLITH_TRY(applog::AppLog::open(*region, {}).status());
    return look(*region, nullptr, Holds::applog);
  }
  if (!holds_heap(*region)) return look(*region, nullptr, Holds::bytes);
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Heap> heap, Heap::open(*region));
  MEMLITH_TRY(heap->verify().status());
  return look(*region, heap.get(), Holds::heap);
}

// The damage that a look at each of a store's objects has found. That of one says nothing about the others.
class DamagedObjects {
 public:
  // Ok: the next can be looked at.
  Status pass(const std::string& name, Status found) {
    if (found.category != Errc::corrupt && found.category != Errc::io) return found;
    if (first_.ok()) {
      first_ = found;
      sentence_ = last_error_text();
    } else {
      others_.push_back(fmt::format("\"{}\"", name));
    }
    return kOk;
  }
  [[nodiscard]] Status tell() const {
    if (first_.ok()) return kOk;
    const std::string more = others_.empty() ? "" : fmt::format(" (damaged, too: {})", fmt::join(others_, ", "));
    return fail(first_.category, first_.detail, "{}{}", sentence_, more);
  }

 private:
  Status first_ = kOk;
  std::string sentence_;
  std::vector<std::string> others_;
};

}  // namespace

extern "C" {

int32_t memlith_verify(const char* path, memlith_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<Session> session, open_to_read(path));
    const Store& inner = session->store();
    memlith_report report{};
    report.frames = inner.counters().replayed_commits;
    report.frame_bytes = inner.counters().replayed_bytes;
    DamagedObjects damaged;
    for (const ObjectInfo& object : inner.objects()) {
      ++report.regions;
      report.region_bytes += object.size_bytes;
      if (object.size_bytes < sizeof(std::uint64_t)) continue;
      MEMLITH_TRY(damaged.pass(object.name, look_at(session->store(), object, [&](Region&, const Heap*, Holds holds) {
                                 report.heaps += holds == Holds::heap ? 1 : 0;
                                 report.kvs += holds == Holds::kv ? 1 : 0;
                                 return kOk;
                               })));
    }
    MEMLITH_TRY(damaged.tell());
    report.clean = inner.was_clean() ? 1 : 0;
    report.one_file = inner.one_file() ? 1 : 0;
    report.log_bytes = inner.log().capacity_bytes();
    report.superblock_copies = inner.log().superblock_copies();
    report.incarnation = session->incarnation();
    return write_info(target, report);
  });
}

int32_t memlith_verify_pointers(const char* path, void (*found)(void* context, const char* sentence), void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(reinterpret_cast<const void*>(found), "found"));
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<Session> session, open_to_read(path));
    for (const ObjectInfo& object : session->store().objects()) {
      if (object.size_bytes < sizeof(std::uint64_t)) continue;
      MEMLITH_TRY(look_at(session->store(), object, [&](const Region& region, Heap*, Holds holds) -> Status {
        if (holds == Holds::kv || holds == Holds::applog) return kOk;  // keys, values and entries are no pointers
        MEMLITH_TRY(region.load({0, region.size()}));
        for (const std::string& sentence : addresses_of_processes(region)) found(context, sentence.c_str());
        return kOk;
      }));
    }
    return kOk;
  });
}

}  // extern "C"
