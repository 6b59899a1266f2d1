#include "heap/heap.hpp"

#include <algorithm>

#include "base/host.hpp"
#include "heap/checks.hpp"
#include "heap/open_heaps.hpp"

namespace memlith::core {

// ---- open ------------------------------------------------------------------------------------------------------

std::uint64_t Heap::size_min(std::uint64_t reserve_bytes) { return size_with_header(header_pages_for(reserve_bytes)); }

bool holds_heap(const Region& region) {
  return region.size() >= kHeapHeaderEnd &&
         reinterpret_cast<const HeapHeader*>(region.address() + kHeapHeaderOffset)->magic == kHeapMagic;
}

Heap::Heap(Region& region, bool thread_scope)
    : memory_(region, thread_scope ? &shared_stores_ : nullptr),
      segments_(memory_),
      arenas_(memory_, segments_),
      names_(memory_, arenas_) {}

Result<std::unique_ptr<Heap>> Heap::open(Region& region, const HeapOptions& options) {
  MEMLITH_TRY(check_limit(region.shown_name(), region.reserve()));
  const bool thread_scope = options.thread_scope && region.tracker() != nullptr;
  MEMLITH_ASSERT(!thread_scope || region.tracker()->knows_threads());
  if (thread_scope && region.tracker()->kind() == TrackerKind::fault && host_page_bytes() > kPageBytes) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\": with this kernel's pages of {} bytes, blocks of two threads share a page; open the "
                "heap with the explicit or the instrumented tracker, or without MEMLITH_REGION_THREAD_SCOPE",
                region.shown_name(), host_page_bytes());
  }
  auto heap = std::unique_ptr<Heap>(new Heap(region, thread_scope));
  if (thread_scope) heap->segments_.set_commons(heap->arenas_.commons());
  MEMLITH_TRY_ASSIGN(const bool empty, region.is_for_making("a heap", options.create, options.exclusive));
  if (const std::uint64_t least = size_min(region.reserve()); empty && region.size() < least) {
    if (least > region.reserve()) {
      return fail(Errc::invalid, Detail::argument,
                  "region \"{}\" may grow to {} bytes; a heap needs {} for its own structures", region.shown_name(),
                  region.reserve(), least);
    }
    MEMLITH_TRY(region.grow(least));
  }
  {
    const LockGuard structure(heap->segments_.structure);
    if (empty) {
      heap->create();
    } else {
      MEMLITH_TRY(heap->check_header());
    }
    heap->segments_.follow_header();
    MEMLITH_TRY(heap->segments_.table().check());
    if (region.tracker() != nullptr) MEMLITH_TRY(heap->raise_limit(options.reserve_bytes));
  }
  heap->opened_ = true;
  if (!region.anywhere()) add_open_heap(region.address(), region.reserve(), heap.get());
  region.set_guard(heap.get());
  return heap;
}

Heap::~Heap() {
  if (!opened_) return;
  remove_open_heap(this);
  region().set_guard(nullptr);
}

Range Heap::rewritten() {
  const auto resource = names_.find(kResourceName);
  if (!resource.ok()) return {};
  return {static_cast<std::uint64_t>(static_cast<std::byte*>(resource->address) - memory_.base()), resource->size};
}

Status Heap::check_limit(std::string_view region, std::uint64_t reserve_bytes) {
  if (reserve_bytes <= kHeapBytesMax) return kOk;
  return fail(Errc::invalid, Detail::argument, "region \"{}\" may grow to {} bytes; a heap has {} at most", region,
              reserve_bytes, kHeapBytesMax);
}

Status Heap::place_as_made(Store& store, std::string_view name, RegionOptions& options) {
  MEMLITH_TRY(check_limit(name, options.reserve_bytes));
  if (!store.one_file() || options.address != 0) return kOk;
  const std::optional<ObjectInfo> info = store.find(name);
  if (!info.has_value() || info->address != 0 || info->size_bytes < kHeapHeaderEnd) return kOk;
  HeapHeader header{};
  MEMLITH_TRY(store.read_home_into(info->id, kHeapHeaderOffset, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kHeapMagic || header.check != header_check(header)) return kOk;  // for open() to tell
  options.address = header.address;
  options.reserve_bytes = std::max(options.reserve_bytes, header.reserve_bytes);
  return kOk;
}

void Heap::create() {
  SegmentTable& table = segments_.table();
  HeapHeader header{};
  header.magic = kHeapMagic;
  header.version = kHeapVersion;
  header.header_pages = header_pages_for(region().reserve());
  header.address = reinterpret_cast<std::uintptr_t>(memory_.base());
  header.reserve_bytes = region().reserve();
  header.segments_max = segments_for(region().reserve());
  header.check = header_check(header);
  MEMLITH_ASSERT(region().size() >= size_with_header(header.header_pages));
  memory_.header() = header;
  memory_.wrote(&memory_.header(), sizeof header);
  const HeaderExtent extent = header_extent(header.header_pages);
  for (std::uint32_t segment = 0; segment < extent.segments; ++segment) table.set(segment, SegmentKind::table);
  SegmentHeader& first = *memory_.header_at(extent.segments, extent.pages);
  first.magic = kSegmentMagic;
  first.number = extent.segments;
  if (extent.pages > 0) first.pages[0] = page_word(kPageTable, extent.pages);
  first.pages[extent.pages] = page_word(kPageHeader, kSegmentHeaderPages);
  memory_.wrote(&first, offsetof(SegmentHeader, unused));
  table.set(extent.segments, SegmentKind::headed, extent.pages);
}

Status Heap::check_header() {
  const HeapHeader& header = memory_.header();
  if (region().size() < kHeapHeaderEnd || header.magic != kHeapMagic) {
    return fail(Errc::incompatible, Detail::heap,
                "region \"{}\": its first bytes are not those of a heap; open it as what it was made as",
                region().shown_name());
  }
  if (header.version != kHeapVersion) {
    return fail(Errc::incompatible, Detail::version,
                "{}: its format has version {}, this library reads version {}; open it with the library that made it",
                memory_.shown(), header.version, kHeapVersion);
  }
  if (header.check != header_check(header))
    return memory_.corrupt(kHeapHeaderOffset, "the heap's header does not fit its checksum");
  // A copy of the file, or one file opened without its log, may have another limit; the table was made for the first
  // one.
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.base());
  if (header.address != base && !region().anywhere()) {
    return fail(Errc::incompatible, Detail::heap,
                "{}: it was made at address {:#x} and is mapped at {:#x}, so that pointers in it lead nowhere; open it "
                "with that address",
                memory_.shown(), header.address, base);
  }
  return segments_.table().check_place();
}

// Durable on ok. When the heap is opened: no segment is loaded, and no other thread knows the heap.
Status Heap::raise_limit(std::uint64_t reserve_bytes) {
  const std::uint64_t reserve = round_up(reserve_bytes, kPageBytes);
  if (reserve <= memory_.header().reserve_bytes) return kOk;
  MEMLITH_TRY(segments_.table().raise_limit(reserve));
  segments_.follow_header();
  Region* const region = &memory_.region();
  return Region::persist({&region, 1}, Scope::process);
}

// ---- what the region and its session ask -----------------------------------------------------------------------

void Heap::hold() {
  names_.mutex.lock();
  segments_.structure.lock();
  arenas_.hold();
}

void Heap::let_go() {
  arenas_.let_go();
  segments_.structure.unlock();
  names_.mutex.unlock();
}

// ---- thread scope ----------------------------------------------------------------------------------------------

Status Heap::before_capture(ThreadNumber thread, std::vector<Range>& shared) {
  if (!memory_.by_thread()) return kOk;
  if (thread != kAllThreads && names_.changed()) {
    return fail(Errc::busy, Detail::heap,
                "{}: a name was given or taken away, which a persist of thread scope does not have; persist with "
                "process scope first, while no thread is in the middle of a change",
                memory_.shown());
  }
  capturing_ = thread;
  shared_stores_.begin();
  arenas_.store_changes(thread, true);
  shared_stores_.add_to(shared, false);
  return kOk;
}

void Heap::captured() {
  if (!memory_.by_thread()) return;
  shared_stores_.captured();
  arenas_.changes_are_captured(capturing_);
  if (capturing_ == kAllThreads) names_.are_captured();
}

void Heap::not_captured() {
  if (memory_.by_thread()) shared_stores_.put_back();
}

void Heap::add_shared(std::vector<Range>& shared) {
  if (memory_.by_thread()) shared_stores_.add_to(shared, true);
}

// The header of the heap, the table and the headers of segments; also pages of segments that are not in use.
bool Heap::shares_page(std::uint64_t page) const MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  const auto segment = static_cast<std::uint32_t>(page / kSegmentPages);
  const SegmentEntry& entry = segments_.table()[segment];
  if (entry.kind == SegmentKind::unused || entry.kind == SegmentKind::table) return true;
  if (entry.kind != SegmentKind::headed) return false;
  const std::uint64_t first = page % kSegmentPages;
  const bool before = segment == header_extent(memory_.header().header_pages).segments && first < entry.header_page;
  return before || (first >= entry.header_page && first < entry.header_page + kSegmentHeaderPages);
}

void Heap::forget() {
  shared_stores_.forget();
  derived_.drop_all();
  names_.forget();
  arenas_.forget();
  segments_.forget();
}

void Heap::rolled_back() {
  forget();
  // A heap that no persist has captured is gone; a heap is there for as long as it is open.
  if (memory_.header().magic == 0) create();
  if (check_header().ok()) segments_.follow_header();
}

void Heap::view_moved() {
  const AllLocks locks(*this);
  forget();
  // The writer may have given the heap a larger limit, and its table another place.
  if (check_header().ok()) segments_.follow_header();
}

}  // namespace memlith::core
