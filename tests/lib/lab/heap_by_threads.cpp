// A heap for thread scope: threads allocate, free each other's blocks, and persist by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/random.hpp"
#include "heap_life.hpp"
#include "sim/worker.hpp"
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::size_t kThreads = 3;
constexpr std::uint64_t kReserve = 256 * kKiB;
constexpr ObjectType kNamedType{"object of a thread", 1, 1, 1};

// The region asks it instead of the heap, so that it sees what a capture takes.
struct ThreadHeapLife final : Structure, CaptureGuard {
  using Structure::Structure;
  ~ThreadHeapLife() override {
    if (region != nullptr) region->set_guard(nullptr);
  }

  // ---- words
  void use(std::size_t thread, std::uint64_t draw, std::size_t operations);
  void persist(std::size_t thread, bool wait);
  void persist_all();
  void rollback();
  void name_one(const std::string& name);
  void use_and_persist_all(std::uint64_t draw, std::size_t operations) {
    name_one(fmt::format("name {}", draw % 5));
    use(0, draw, operations);
    persist_all();
  }

  // ---- CaptureGuard
  void hold() override { heap->hold(); }
  void let_go() override { heap->let_go(); }
  void rolled_back() override { heap->rolled_back(); }
  [[nodiscard]] bool knows_threads() const override { return true; }
  Status before_capture(ThreadNumber thread, std::vector<Range>& shared) override {
    return heap->before_capture(thread, shared);
  }
  void captured() override {
    if (taken != nullptr) *taken = image();
    heap->captured();
  }
  // The log may have the frame nevertheless: its flush failed.
  void not_captured() override {
    if (taken != nullptr) *taken = image();
    heap->not_captured();
  }
  void add_shared(std::vector<Range>& shared) override { heap->add_shared(shared); }
  [[nodiscard]] bool shares_page(std::uint64_t page) const override { return heap->shares_page(page); }
  [[nodiscard]] std::string_view what() const override { return heap->what(); }
  std::vector<std::string> where(std::span<const std::uint64_t> offsets) override { return heap->where(offsets); }

  // ---- what they need
  struct Due {
    std::set<std::uint64_t> allocated;
    std::set<std::uint64_t> freed;
    std::vector<Range> stored;
  };
  using Bytes = std::vector<std::byte>;

  std::string name = "heap";
  std::unique_ptr<Region> region;
  std::unique_ptr<Heap> heap;
  std::array<test::Worker, kThreads> workers;
  HeapModel model;
  HeapModel committed;
  Bytes last;  // the region's bytes, as a persist took them last
  std::array<Due, kThreads> due;
  std::map<std::uint64_t, HeapModel::Block> handed_out;  // last at an offset
  std::shared_ptr<Bytes> taken;                          // by the capture under way
  std::optional<std::size_t> whose;                      // the capture is; none: of all threads

  [[nodiscard]] Bytes bytes() const { return {region->address(), region->address() + region->size()}; }
  [[nodiscard]] Bytes image() const;
  bool capture(std::optional<std::size_t> thread, const std::string& what, bool wait);
  void allocate(std::size_t thread, std::uint64_t bytes);
  void free(std::size_t thread, std::uint64_t offset);
  void take_due(std::size_t thread, HeapModel& into, std::array<Due, kThreads>& all) const;
  void check(std::string_view when);
  void learn();
};

// Structures are in the region as the capture commits them; of data, the frame has the stores of its thread.
ThreadHeapLife::Bytes ThreadHeapLife::image() const {
  Bytes now = bytes();
  if (!whose.has_value()) return now;
  Bytes made = last;
  made.resize(now.size());
  const auto copy = [&](std::uint64_t offset, std::uint64_t count) {
    std::memcpy(made.data() + offset, now.data() + offset, count);
  };
  for (std::uint64_t page = 0; page < now.size() / kPageBytes; ++page) {
    if (heap->shares_page(page)) copy(page * kPageBytes, kPageBytes);
  }
  for (const Range& range : due[*whose].stored) copy(range.offset, range.bytes);
  return made;
}

void ThreadHeapLife::take_due(std::size_t thread, HeapModel& into, std::array<Due, kThreads>& all) const {
  for (const std::uint64_t offset : all[thread].allocated) into.blocks[offset] = handed_out.at(offset);
  for (const std::uint64_t offset : all[thread].freed) {
    into.blocks.erase(offset);
    for (Due& each : all) each.allocated.erase(offset);
  }
  all[thread] = {};
}

void ThreadHeapLife::allocate(std::size_t thread, std::uint64_t count) {
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const std::uint64_t before = run.fired();
  const std::uint64_t no_space_before = no_space();
  const auto given = heap->arenas().allocate(count, 16);
  if (given.status().category == Errc::no_space) return;
  // On a full disk it asks for less, or finds a place in another thread's arena.
  if (given.ok()) run.forgiven = no_space() - no_space_before;
  if (!run.passed(given.status(), "allocating", before)) return;
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(*given) - region->address());
  HeapModel::Block block;
  block.content = run.next_bytes({"", offset, count});
  block.bytes = *heap->arenas().block_bytes(*given);
  std::memcpy(*given, block.content.data(), count);
  if (!region->touch(*given, count).ok()) run.broken("touch failed");
  if (!model.blocks.emplace(offset, block).second) run.broken("a block was handed out twice");
  handed_out[offset] = std::move(block);
  due[thread].allocated.insert(offset);
  due[thread].freed.erase(offset);
  due[thread].stored.push_back({offset, count});
}

void ThreadHeapLife::free(std::size_t thread, std::uint64_t offset) {
  const std::uint64_t before = run.fired();
  if (!run.passed(heap->arenas().free(region->address() + offset), "freeing a block", before)) return;
  model.blocks.erase(offset);
  // A block of pages goes back to a thread that has not persisted it.
  const auto owner =
      std::find_if(due.begin(), due.end(), [offset](const Due& each) { return each.allocated.contains(offset); });
  if (handed_out.at(offset).bytes > kSmallBytesMax && owner != due.end()) {
    owner->allocated.erase(offset);
  } else {
    due[thread].freed.insert(offset);
  }
}

void ThreadHeapLife::use(std::size_t thread, std::uint64_t draw, std::size_t operations) {
  if (run.poisoned) return;
  workers[thread].run([&] {
    Random random(draw);
    for (std::size_t i = 0; i < operations; ++i) {
      constexpr std::uint64_t kSizes[] = {24, 90, 300, 1000, 5000, 33'000};
      if (model.blocks.empty() || random.below(3) > 0) {
        allocate(thread, kSizes[random.below(std::size(kSizes))]);
        continue;
      }
      const std::uint64_t offset = model.block(random.next())->first;
      if (!model.has_name(offset)) free(thread, offset);
    }
  });
  check("between persists");
}

bool ThreadHeapLife::capture(std::optional<std::size_t> thread, const std::string& what, bool wait) {
  HeapModel next = committed.copy();
  std::array<Due, kThreads> left = due;
  for (std::size_t i = 0; i < kThreads; ++i) {
    if (!thread.has_value() || *thread == i) take_due(i, next, left);
  }
  if (!thread.has_value()) next = model.copy();
  auto bytes_taken = std::make_shared<Bytes>();
  const auto change = [name = name, bytes_taken, text = next.text()](Content& content) {
    if (bytes_taken->empty()) return;
    content.objects[name] = *bytes_taken;
    content.objects[inventory_name(name)] = text;
  };
  taken = bytes_taken;
  whose = thread;
  Region* const one = region.get();
  const Scope scope = thread.has_value() ? Scope::thread : Scope::process;
  const bool ok = run.capture(what, change, "persisting a heap", wait, [&]() -> Result<Lsn> {
    MEMLITH_TRY_ASSIGN(const Lsn end, Region::capture({&one, 1}, scope, wait));
    return run.durable(end, wait);
  });
  taken = nullptr;
  if (!ok) return false;
  note_captured(*bytes_taken);
  last = run.region_content[name] = *bytes_taken;
  committed = std::move(next);
  due = std::move(left);
  return true;
}

void ThreadHeapLife::persist(std::size_t thread, bool wait) {
  if (run.poisoned) return;
  workers[thread].run([&] { (void)capture(thread, fmt::format("persist the heap of thread {}", thread), wait); });
}

void ThreadHeapLife::persist_all() {
  if (!run.poisoned && capture(std::nullopt, "persist the heap", true)) check("after a persist of all threads");
}

void ThreadHeapLife::rollback() {
  if (run.poisoned) return;
  const std::uint64_t before = run.fired();
  Region* const one = region.get();
  if (!run.passed(Region::rollback({&one, 1}, Scope::process), "rolling a heap back", before)) {
    run.drop<ThreadHeapLife>();
    return;
  }
  std::vector<std::byte> wanted = last;
  wanted.resize(region->size());  // a growth stays
  if (lab::holds_heap(wanted) && bytes() != wanted && !run.flipped()) {
    run.broken("after a rollback a heap has other bytes than were captured last");
  }
  model = committed.copy();
  due = {};
  check("after a rollback");
}

void ThreadHeapLife::name_one(const std::string& text) {
  if (run.poisoned || model.blocks.empty() || model.names.contains(text)) return;
  const std::uint64_t offset = model.blocks.begin()->first;
  const std::uint64_t before = run.fired();
  const Status named = heap->names().set(text, region->address() + offset, kNamedType);
  if (named.category != Errc::no_space && run.passed(named, "naming an object", before)) model.names[text] = offset;
}

// Blocks that are freed and not persisted are in use still.
void ThreadHeapLife::check(std::string_view when) {
  const Unobserved looking;
  std::map<std::uint64_t, std::uint64_t> found;
  const Status sound = heap->verify().status();
  if (!sound.ok()) return run.broken(fmt::format("the heap {}: verify() says: {}", when, last_error_text()));
  (void)heap->for_each_block([&](const std::byte* block, std::uint64_t count) {
    found[static_cast<std::uint64_t>(block - region->address())] = count;
  });
  for (const auto& [offset, block] : model.blocks) {
    if (!found.contains(offset) || found.at(offset) != block.bytes ||
        std::memcmp(region->address() + offset, block.content.data(), block.content.size()) != 0) {
      run.broken(fmt::format("the heap {} lacks the block at offset {}", when, offset));
    }
  }
}

void ThreadHeapLife::learn() {
  const HeapContent content = parse_heap(bytes());
  for (const auto& [offset, count] : content.blocks) {
    const std::byte* const begin = region->address() + offset;
    model.blocks[offset] = handed_out[offset] = {count, {begin, begin + count}};
  }
  model.names = content.names;
  committed = model.copy();
}

void open_heap_for_threads(Run& run, TrackerKind tracker) {
  if (run.store == nullptr || run.find<ThreadHeapLife>() != nullptr) return;
  auto life = std::make_unique<ThreadHeapLife>(run);
  RegionOptions options;
  options.create = true;
  options.tracker = tracker;
  options.thread_scope = true;
  options.size_bytes = 40 * kKiB;
  options.reserve_bytes = kReserve;
  if (!run.info_of(life->name).has_value()) options.address = kAddress;
  const std::uint64_t before = run.fired();
  life->region = run.open_region(life->name, options, "opening the region of a heap");
  if (life->region == nullptr) return;
  life->last = life->bytes();  // before the heap stores to a region of zeros
  run.expect_persisted(life->name, life->last,
                       "the region of a heap is mapped with other bytes than were persisted last");
  auto opened = Heap::open(*life->region, {.thread_scope = true});
  if (!run.passed(opened.status(), "opening a heap", before)) return;
  life->heap = std::move(*opened);
  life->region->set_guard(life.get());
  life->learn();
  run.keep(std::move(life));
}

struct ThreadHeapSteps : StructureSteps {
  explicit ThreadHeapSteps(TrackerKind tracker)
      : StructureSteps(step("open the heap for threads", open_heap_for_threads, tracker)) {}
  Step use(std::size_t thread, std::uint64_t draw, std::size_t operations) const {
    return word(fmt::format("thread {} allocates and frees", thread), &ThreadHeapLife::use, thread, draw, operations);
  }
  Step persist(std::size_t thread, bool wait = true) const {
    return word(fmt::format("thread {} persists", thread), &ThreadHeapLife::persist, thread, wait);
  }
  Step persist_all() const { return word("persist the heap", &ThreadHeapLife::persist_all); }
  Step rollback() const { return word("roll the heap back", &ThreadHeapLife::rollback); }
  Step name_and_persist_all(std::uint64_t draw) const {
    return word("name a block, and persist the heap", &ThreadHeapLife::use_and_persist_all, draw, std::size_t{1});
  }
};

std::vector<Step> heap_by_threads(Random& random, TrackerKind tracker) {
  const ThreadHeapSteps heap(tracker);
  std::vector<Step> steps{open(), heap.opening, heap.use(0, random.next(), 3),
                          heap.name_and_persist_all(random.next())};
  for (int part = 0; part < 3; ++part) {
    for (int i = 0; i < 7; ++i) {
      const std::size_t thread = random.below(kThreads);
      steps.push_back(heap.use(thread, random.next(), 3));
      if (random.one_in(2)) steps.push_back(heap.persist(random.below(kThreads), !random.one_in(4)));
    }
    if (part == 0) steps.push_back(heap.rollback());
    if (part == 1) {
      steps.push_back(heap.name_and_persist_all(random.next()));
      steps.push_back(checkpoint());
      steps.push_back(heap.use(1, random.next(), 3));
      steps.push_back(heap.persist(1));
    }
    if (part < 2) {
      for (const Step& each : {abandon(), open(), heap.opening}) steps.push_back(each);
    }
  }
  steps.push_back(heap.persist_all());
  steps.push_back(close());
  return steps;
}

std::vector<Step> heap_scopes(Random& random) { return heap_by_threads(random, TrackerKind::touched); }
std::vector<Step> heap_page_scopes(Random& random) { return heap_by_threads(random, TrackerKind::fault); }

const Workload kThreadHeapWorkloads[] = {
    {"heap-scopes",
     "threads persist what they stored, allocated and freed in a heap",
     stores::wide_slots,
     heap_scopes,
     {.dear = true, .about = "heap"}},
    {"heap-page-scopes",
     "the same, tracked by pages",
     stores::wide_slots,
     heap_page_scopes,
     {.with_call_faults = false, .dear = true, .about = "heap"}},
};

}  // namespace

std::span<const Workload> thread_heap_workloads() { return kThreadHeapWorkloads; }

}  // namespace memlith::lab
