// Opening a heap whose structures are arbitrary bytes gives a heap or an error. A heap that verify() finds sound hands
// out no byte twice: blocks, old and new, lie apart, and the heap is sound after that, too (docs/heap.md, "Damage").
//
// Input: a byte of options (1: checksums are put right), then patches of a real heap: two bytes say which page, two
// where in it, one how many bytes follow.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "heap/checks.hpp"
#include "heap/heap.hpp"
#include "small_store.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

namespace {

constexpr std::uint64_t kAddress = 0x550000000000;
constexpr std::uint64_t kBytes = 9 * kMiB / 4;  // the last segment is shorter than the others; there is no room to grow

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "%s\n%s\n", what, std::string(last_error_text()).c_str());
  std::abort();
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) wrong("the heap to be patched cannot be made");
  return std::move(*result);
}

void must(Status status) {
  if (!status.ok()) wrong("the heap cannot be made, or rolled back");
}

// A heap of three segments with blocks of several sizes, a block that spans segments, holes and names; persisted.
struct World {
  SimVolume volume;
  std::unique_ptr<Store> store;
  std::unique_ptr<Region> region;

  World() {
    StoreOptions options = small_store_options(false);
    options.slot_bytes = 4 * kMiB;
    options.log_bytes = 8 * kMiB;
    store = must(Store::open(volume, options));
    RegionOptions place;
    place.create = true;
    place.tracker = TrackerKind::touched;
    place.size_bytes = place.reserve_bytes = kBytes;
    place.address = kAddress;
    region = must(Region::open(*store, "heap", place));
    const auto heap = must(Heap::open(*region));
    std::vector<void*> blocks;
    for (const std::uint64_t bytes : {16, 40, 200, 3000, 20'000, 50'000, 1'100'000, 64, 700}) {
      for (int i = 0; i < (bytes < 1000 ? 5 : 1); ++i) blocks.push_back(must(heap->arenas().allocate(bytes, 16)));
    }
    must(heap->names().set("a", blocks[0], {"A", 16, 1, 1}));
    must(heap->names().set("b", blocks[5], {"B", 40, 1, 1}));
    must(heap->arenas().free(blocks[2]));
    must(heap->arenas().free(blocks[16]));
    Region* const one = region.get();
    must(Region::persist({&one, 1}));
  }

  void put_checksums_right() const {
    std::byte* const base = region->address();
    auto& header = *reinterpret_cast<HeapHeader*>(base + kHeapHeaderOffset);
    header.check = header_check(header);
    auto* const table = reinterpret_cast<SegmentEntry*>(base + kSegmentTableOffset);
    for (std::uint32_t i = 0; i < (kBytes + kSegmentBytes - 1) / kSegmentBytes; ++i) {
      if (table[i].kind != SegmentKind::unused) table[i].check = entry_check(i, table[i]);
    }
    std::uint64_t at = header.names_first;
    for (int i = 0; i < 8 && at != 0 && at % alignof(NameRecord) == 0 && at <= kBytes - 2 * kPageBytes; ++i) {
      auto& record = *reinterpret_cast<NameRecord*>(base + at);
      if (record_bytes(record) > kPageBytes) break;
      record.check = record_check(record);
      at = record.next;
    }
  }
};

void patch(std::byte* base, std::span<const std::uint8_t> input) {
  while (input.size() >= 5) {
    const std::uint64_t page = (input[0] | input[1] << 8u) % (kBytes / kPageBytes);
    const std::uint64_t at = page * kPageBytes + (input[2] | input[3] << 8u) % kPageBytes;
    const std::size_t count = std::min<std::size_t>({input[4], input.size() - 5, kBytes - at});
    std::memcpy(base + at, input.data() + 5, count);
    input = input.subspan(5 + count);
  }
}

// Offsets and bytes of blocks that must lie apart, and within the region.
class Blocks {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes) {
    if (offset < kHeapHeaderEnd || bytes == 0 || bytes > kBytes || offset > kBytes - bytes)
      wrong("a block lies outside");
    const auto after = blocks_.lower_bound(offset);
    if (after != blocks_.end() && after->first < offset + bytes) wrong("a block reaches into the next one");
    if (after != blocks_.begin() && std::prev(after)->first + std::prev(after)->second > offset) {
      wrong("a block lies in another one");
    }
    blocks_.emplace(offset, bytes);
  }
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

 private:
  std::map<std::uint64_t, std::uint64_t> blocks_;
};

void use_sound_heap(Heap& heap) {
  std::byte* const base = heap.region().address();
  Blocks blocks;
  const auto add = [&](const std::byte* block, std::uint64_t bytes) {
    blocks.add(static_cast<std::uint64_t>(block - base), bytes);
  };
  if (!heap.for_each_block(add).ok()) wrong("the blocks of a sound heap cannot be listed");
  const std::size_t before = blocks.size();
  std::vector<void*> made;
  for (const std::uint64_t bytes : {16, 40, 200, 3000, 50'000, 200, 1'000'000, 16, 4096}) {
    const auto block = heap.arenas().allocate(bytes, 16);
    if (!block.ok()) {
      if (block.error().category != Errc::no_space) wrong("a sound heap allocates nothing");
      continue;
    }
    const auto real = heap.arenas().block_bytes(*block);
    if (!real.ok() || *real < bytes) wrong("a block is shorter than was asked for");
    add(static_cast<std::byte*>(*block), *real);
    std::memset(*block, 0xab, *real);
    made.push_back(*block);
  }
  if (!heap.verify().ok()) wrong("a sound heap is not sound after it was used");
  for (void* const block : made) {
    if (!heap.arenas().free(block).ok()) wrong("a new block cannot be freed");
  }
  const auto report = heap.verify();
  if (!report.ok() || report->blocks != before) wrong("a sound heap is not as it was");
}

// Each call answers.
void use_unsound_heap(Heap& heap, std::span<const std::uint8_t> input) {
  (void)heap.names().all();
  (void)heap.names().find("a");
  (void)heap.names().set("c", heap.region().address() + input[0] * kGrainBytes, {"C", 1, 1, 1});
  for (const std::uint64_t bytes : {16, 50'000, 300, 1'000'000}) (void)heap.arenas().allocate(bytes, 16);
  for (std::size_t i = 0; i < std::min<std::size_t>(input.size(), 64); ++i) {
    (void)heap.arenas().free(heap.region().address() + i * 3 * kPageBytes + input[i] * kGrainBytes);
  }
  (void)heap.names().remove("a");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  static World world;
  Region& region = *world.region;
  must(region.touch(region.address(), kBytes));
  patch(region.address(), std::span(data, size).subspan(1));
  if ((data[0] & 1) != 0) world.put_checksums_right();
  if (auto heap = Heap::open(region); heap.ok()) {
    if ((*heap)->verify().ok()) {
      use_sound_heap(**heap);
    } else {
      if (last_error_text().find("damaged") == std::string_view::npos) wrong("damage is told as something else");
      use_unsound_heap(**heap, std::span(data, size).subspan(1));
    }
  }
  Region* const one = &region;
  must(Region::rollback({&one, 1}, Scope::process));
  return 0;
}
