#include "heap_life.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/checksum.hpp"

namespace memlith::lab {

using namespace core;

// ---- containers ------------------------------------------------------------------------------------------------

template <template <class> class Allocator, class Pages>
void ContainersOf<Allocator, Pages>::change(std::uint64_t draw) {
  const auto key = static_cast<std::uint32_t>(draw / 16 % 24);
  const auto value = static_cast<std::uint32_t>(draw / 1024 % 90);
  switch (draw % 12) {
    case 0:
    case 1:
    case 2: texts[key] = Text(value, static_cast<char>('a' + key)); break;
    case 3: texts[key].append(value, static_cast<char>('A' + key)); break;
    case 4: texts.erase(key); break;
    case 5:
    case 6: numbers.insert(numbers.end(), value / 4, key); break;
    case 7:
      if (numbers.size() > 40) numbers = {key, value};
      numbers.shrink_to_fit();
      break;
    case 8: order.push_front(value); break;
    case 9:
      if (order.size() > 2) order.pop_back();
      break;
    case 10:
      for (std::uint32_t i = 0; i < 4; ++i) places[key + i * 31] = value;
      break;
    default: places.erase(key); break;
  }
}

template <template <class> class Allocator, class Pages>
std::string ContainersOf<Allocator, Pages>::text() const {
  std::string all;
  for (const auto& [key, each] : texts) all += fmt::format("{}:{};", key, std::string_view(each.data(), each.size()));
  for (const std::uint32_t each : numbers) all += fmt::format(" {}", each);
  for (const std::uint32_t each : order) all += fmt::format("<{}", each);
  for (const auto& [key, each] : std::map<std::uint32_t, std::uint32_t>(places.begin(), places.end())) {
    all += fmt::format(">{}={}", key, each);
  }
  return all + pages.text();
}

template <template <class> class Allocator, class Pages>
std::uint64_t ContainersOf<Allocator, Pages>::blocks() const {
  std::uint64_t count = texts.size() + order.size() + places.size() + pages.blocks();
  for (const auto& [key, each] : texts) count += each.capacity() > Text().capacity() ? 1 : 0;
  return count + (numbers.capacity() > 0 ? 1 : 0) + (places.bucket_count() > 1 ? 1 : 0);
}

template struct ContainersOf<InHeap, PagesInHeap>;
template struct ContainersOf<std::allocator, PagesModel>;

// ---- what a heap holds -----------------------------------------------------------------------------------------

std::string inventory_name(const std::string& object) { return object + " (what the heap holds)"; }

bool holds_heap(std::span<const std::byte> bytes) {
  return bytes.size() >= kHeapHeaderEnd &&
         std::memcmp(bytes.data() + kHeapHeaderOffset, &kHeapMagic, sizeof kHeapMagic) == 0;
}

namespace {

template <class T>
T at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void parse_segment(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t header_at,
                   HeapContent& content) {
  const auto header = at<SegmentHeader>(bytes, header_at);
  for (std::uint32_t page = 0; page < kSegmentPages && begin + page * kPageBytes < bytes.size();) {
    const std::uint32_t kind = header.pages[page] & 0xff;
    const std::uint32_t pages = std::max(1, header.pages[page] >> 8);
    const std::uint64_t offset = begin + page * kPageBytes;
    if (kind == kPageExtent) content.blocks[offset] = pages * kPageBytes;
    if (kind >= kPageSlab && kind < kPageExtent) {
      const SizeClass& size = kSizeClasses[kind - kPageSlab];
      for (std::uint32_t block = 0; block < size.blocks; ++block) {
        const std::uint64_t word = header.blocks[page + block / 256][block % 256 / 64];
        if ((word >> block % 64 & 1) != 0) content.blocks[offset + std::uint64_t{block} * size.bytes] = size.bytes;
      }
    }
    page += pages;
  }
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The records of names, which are blocks too; the heap was found sound.
void take_names(std::span<const std::byte> bytes, HeapContent& content) {
  for (auto offset = at<HeapHeader>(bytes, kHeapHeaderOffset).names_first; offset != 0;) {
    const auto record = at<NameRecord>(bytes, offset);
    const auto* const text = reinterpret_cast<const char*>(bytes.data() + offset + sizeof record);
    content.names[std::string(text, record.name_bytes)] = record.object;
    content.blocks.erase(offset);
    offset = record.next;
  }
}

}  // namespace

HeapContent parse_heap(std::span<const std::byte> bytes) {
  HeapContent content;
  const std::uint64_t moved = at<HeapHeader>(bytes, kHeapHeaderOffset).table_offset;
  const std::uint64_t table = moved == 0 ? kSegmentTableOffset : moved;
  for (std::uint64_t begin = 0; begin < bytes.size(); begin += kSegmentBytes) {
    const auto entry = at<SegmentEntry>(bytes, table + begin / kSegmentBytes * sizeof(SegmentEntry));
    if (entry.kind == SegmentKind::huge) content.blocks[begin] = entry.pages * kPageBytes;
    if (entry.kind == SegmentKind::headed) {
      parse_segment(bytes, begin, begin + entry.header_page * kPageBytes, content);
    }
  }
  take_names(bytes, content);
  return content;
}

std::uint64_t limit_of(std::span<const std::byte> bytes) {
  return holds_heap(bytes) ? at<HeapHeader>(bytes, kHeapHeaderOffset).reserve_bytes : ~std::uint64_t{0};
}

std::vector<std::byte> text_of(const HeapContent& content) {
  std::string text;
  for (const auto& [offset, bytes] : content.blocks) text += fmt::format("{}+{};", offset, bytes);
  for (const auto& [name, offset] : content.names) text += fmt::format("{}={};", name, offset);
  return bytes_of_text(text);
}

std::vector<std::byte> text_of(const std::string& containers) { return bytes_of_text(containers); }

namespace {
constexpr std::string_view kMixture = "a mixture";
std::unordered_set<std::uint64_t> g_captured;                             // checksums
std::unordered_map<std::uint64_t, std::vector<std::byte>> g_inventories;  // by checksum: the same bytes hold the same
}  // namespace

void note_captured(std::span<const std::byte> bytes) { g_captured.insert(checksum(bytes, 0)); }

Result<std::vector<std::byte>> inventory_of(Heap& heap) {
  struct TheHeap {
    ~TheHeap() { containers_heap = before; }
    Heap* const before;
  } const restored{std::exchange(containers_heap, &heap)};
  MEMLITH_TRY_ASSIGN(const HeapReport report, heap.verify());
  Region& region = heap.region();
  HeapContent content;
  MEMLITH_TRY(heap.for_each_block([&](std::byte* block, std::uint64_t bytes) {
    content.blocks[static_cast<std::uint64_t>(block - region.address())] = bytes;
  }));
  const std::uint64_t blocks = content.blocks.size();
  take_names({region.address(), region.size()}, content);
  const auto found = content.names.find(kContainersName);
  if (found == content.names.end()) {
    if (blocks == report.blocks && blocks == content.blocks.size() + content.names.size()) return text_of(content);
    return fail(Errc::corrupt, Detail::heap, "verify() counted {} blocks and {} names, and there are {} and {}",
                report.blocks, report.names, content.blocks.size(), content.names.size());
  }
  if (!g_captured.contains(checksum({region.address(), region.size()}, 0))) return text_of(std::string(kMixture));
  const auto& containers = *reinterpret_cast<const Containers*>(region.address() + found->second);
  const std::uint64_t wanted = containers.blocks() + 1 + content.names.size();
  if (wanted == report.blocks) return text_of(containers.text());
  return fail(Errc::corrupt, Detail::heap, "the heap has {} blocks, and the containers in it own {}", report.blocks,
              wanted);
}

Status add_inventories(Store& store, Content& content) {
  for (const ObjectInfo& object : store.objects()) {
    const std::vector<std::byte>& bytes = content.objects[object.name];
    if (!holds_heap(bytes)) continue;
    const std::uint64_t sum = checksum(bytes, bytes.size());
    std::vector<std::byte>& inventory = content.objects[inventory_name(object.name)];
    if (const auto known = g_inventories.find(sum); known != g_inventories.end()) {
      inventory = known->second;
      continue;
    }
    RegionOptions options;
    options.tracker = TrackerKind::touched;
    options.anywhere = store.read_only() && store.one_file();
    MEMLITH_TRY(Heap::place_as_made(store, object.name, options));
    MEMLITH_TRY_ASSIGN(const auto region, Region::open(store, object.name, options));
    MEMLITH_TRY_ASSIGN(const auto heap, Heap::open(*region));
    MEMLITH_TRY_ASSIGN(inventory, inventory_of(*heap));
    if (inventory != bytes_of_text(kMixture)) g_inventories[sum] = inventory;
  }
  return kOk;
}

Content without_inventories(Content content) {
  std::erase_if(content.objects, [&](const auto& each) { return each.first.ends_with(inventory_name(std::string())); });
  return content;
}

// ---- the model -------------------------------------------------------------------------------------------------

HeapContent HeapModel::content() const {
  HeapContent all;
  for (const auto& [offset, block] : blocks) all.blocks[offset] = block.bytes;
  all.names = names;
  return all;
}

std::vector<std::byte> HeapModel::text() const {
  return containers != nullptr ? text_of(containers->text()) : text_of(content());
}

HeapModel HeapModel::copy() const {
  HeapModel result = *this;
  if (containers != nullptr) result.containers = std::make_shared<ModelContainers>(*containers);
  return result;
}

std::map<std::uint64_t, HeapModel::Block>::const_iterator HeapModel::block(std::size_t which) const {
  return std::next(blocks.begin(), static_cast<std::ptrdiff_t>(which % blocks.size()));
}

bool HeapModel::has_name(std::uint64_t offset) const {
  return std::any_of(names.begin(), names.end(), [offset](const auto& each) { return each.second == offset; });
}

std::string HeapLife::wrong() {
  const auto inventory = inventory_of(*heap);
  if (!inventory.ok()) return fmt::format("verify() says: {}", last_error_text());
  if (*inventory != model.text()) {
    const auto words = [](const std::vector<std::byte>& bytes) {
      return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    return fmt::format("it holds {}, not {}", words(*inventory), words(model.text()));
  }
  for (const auto& [offset, block] : model.blocks) {
    if (std::memcmp(region->address() + offset, block.content.data(), block.content.size()) != 0) {
      return fmt::format("the block at offset {} does not hold what was stored there", offset);
    }
  }
  return {};
}

Status HeapLife::learn() {
  model = {};
  containers = nullptr;
  MEMLITH_TRY(inventory_of(*heap).status());
  const HeapContent content = parse_heap(bytes());
  model.names = content.names;
  if (const auto found = content.names.find(kContainersName); found != content.names.end()) {
    containers = reinterpret_cast<Containers*>(region->address() + found->second);
    model.containers = std::make_shared<ModelContainers>();
    ModelContainers& copy = *model.containers;
    for (const auto& [key, text] : containers->texts) copy.texts[key] = ModelContainers::Text(text.data(), text.size());
    copy.numbers.assign(containers->numbers.begin(), containers->numbers.end());
    copy.order.assign(containers->order.begin(), containers->order.end());
    copy.places.insert(containers->places.begin(), containers->places.end());
    copy.pages = containers->pages.model();
    return kOk;
  }
  for (const auto& [offset, bytes] : content.blocks) {
    const std::byte* const begin = region->address() + offset;
    model.blocks[offset] = {bytes, {begin, begin + bytes}};
  }
  return kOk;
}

}  // namespace memlith::lab
