// The words about a heap.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.hpp"
#include "base/sync.hpp"
#include "heap_life.hpp"
#include "region/thread_number.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr ObjectType kObjectType{"object of the laboratory", 1, 1, 1};

}  // namespace

void HeapLife::close() {
  run.soon.clear();
  run.drop<HeapLife>();
}

void HeapLife::check(std::string_view when) {
  const Unobserved looking;
  note_captured(bytes());
  if (const std::string wrong = this->wrong(); !wrong.empty()) run.broken(fmt::format("the heap {}: {}", when, wrong));
}

void open_heap(Run& run, const HeapPlan& plan) {
  if (run.store == nullptr || run.find<HeapLife>() != nullptr) return;
  const bool one_file = run.options().kind == StoreKind::one_file;
  const std::string name = one_file ? "file" : "heap";
  const auto object = run.info_of(name);
  RegionOptions options;
  options.create = true;
  options.tracker = plan.tracker;
  options.size_bytes = plan.size;
  options.reserve_bytes = plan.max_size;
  if (!object.has_value() || (one_file && object->size_bytes == 0)) options.address = kAddress;
  const std::uint64_t before = run.fired();
  constexpr std::string_view kOpening = "opening the region of a heap";
  if (!run.passed(Heap::place_as_made(*run.store, name, options), kOpening, before)) return;
  auto life = std::make_unique<HeapLife>(run);
  life->name = name;
  life->pages = plan.pages;
  life->region = run.open_region(name, options, kOpening);
  if (life->region == nullptr) return;
  life->captured = life->bytes();  // before the heap stores to a region of zeros
  run.expect_persisted(name, life->captured,
                       "the region of a heap is mapped with other bytes than were persisted last");
  if (!life->open_in_region(plan, before)) return;
  containers_heap = life->heap.get();
  if (!run.passed(life->learn(), "looking at a heap", before)) return;
  life->captured_model = life->model.copy();
  run.keep(std::move(life));
}

// A larger limit is a commit of its own. Which bytes it has is known when it is made.
bool HeapLife::open_in_region(const HeapPlan& plan, std::uint64_t fired_before) {
  if (plan.max_size <= limit_of(captured)) {
    auto opened = Heap::open(*region);
    if (!run.passed(opened.status(), "opening a heap", fired_before)) return false;
    heap = std::move(*opened);
    return true;
  }
  auto made = std::make_shared<std::vector<std::byte>>(captured);
  const bool ok = run.capture(
      fmt::format("let the heap grow to {} bytes", plan.max_size),
      [name = name, made](Content& content) { content.objects[name] = *made; }, "opening a heap that may grow further",
      true,
      [&]() -> Result<Lsn> {
        auto opened = Heap::open(*region, {.reserve_bytes = plan.max_size});
        *made = bytes();
        if (!opened.ok()) return opened.error();
        heap = std::move(*opened);
        return Lsn{};
      });
  if (!ok) return false;
  if (limit_of(*made) < plan.max_size) run.broken("a heap was given a larger limit, and has the old one");
  captured = run.region_content[name] = *made;
  return true;
}

void HeapLife::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t before = run.fired();
  const std::vector<std::byte> bytes_before = this->bytes();
  const auto given = heap->arenas().allocate(bytes, alignment);
  if (!given.ok()) {
    // At its limit a heap refuses, and nothing of it changes. Below its limit it may grow before it refuses.
    const bool full = given.error().category == Errc::no_space && region->size() + kSegmentBytes > region->reserve();
    const bool grown = region->size() != bytes_before.size();
    if (full && !grown && run.fired() == before && this->bytes() != bytes_before) {
      run.broken("a heap at its limit refused, and changed");
    }
    if (!full) (void)run.passed(given.status(), "allocating", before);
    check("after a refusal");
    return;
  }
  const std::uint64_t offset = offset_of(*given);
  if (offset % alignment != 0) run.broken(fmt::format("a block of alignment {} lies at offset {}", alignment, offset));
  HeapModel::Block block;
  block.content = run.next_bytes({"", offset, bytes});
  std::memcpy(*given, block.content.data(), bytes);
  if (!region->touch(*given, bytes).ok()) run.broken("touch failed");
  const auto real = heap->arenas().block_bytes(*given);
  block.bytes = real.ok() ? *real : 0;
  if (block.bytes < bytes) run.broken(fmt::format("a block of {} bytes was asked for, and has {}", bytes, block.bytes));
  model.blocks[offset] = std::move(block);
}

void HeapLife::free_block(std::size_t which) {
  if (model.blocks.empty()) return;
  const std::uint64_t offset = model.block(which)->first;
  if (model.has_name(offset)) return;
  const std::uint64_t before = run.fired();
  if (run.passed(heap->arenas().free(region->address() + offset), "freeing a block", before))
    model.blocks.erase(offset);
}

void HeapLife::free_largest() {
  if (model.blocks.empty()) return;
  const auto& blocks = model.blocks;
  const auto largest = std::max_element(blocks.begin(), blocks.end(),
                                        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  free_block(static_cast<std::size_t>(std::distance(blocks.begin(), largest)));
}

void HeapLife::name_block(const std::string& object, std::size_t which) {
  if (model.blocks.empty() || model.names.contains(object)) return;
  const std::uint64_t offset = model.block(which)->first;
  const std::uint64_t before = run.fired();
  const Status named = heap->names().set(object, region->address() + offset, kObjectType);
  if (named.category == Errc::no_space) return check("after a refusal");
  if (run.passed(named, "naming an object", before)) model.names[object] = offset;
}

void HeapLife::unname(const std::string& object) {
  if (!model.names.contains(object)) return;
  const std::uint64_t before = run.fired();
  if (run.passed(heap->names().remove(object), "taking a name away", before)) model.names.erase(object);
}

void HeapLife::change_containers(std::uint64_t draw, std::size_t times) {
  if (!model.blocks.empty()) return;
  if (containers == nullptr) {
    const auto block = heap->arenas().allocate(sizeof(Containers), alignof(Containers));
    const ObjectType type{kContainersName, sizeof(Containers), alignof(Containers), 1};
    if (!block.ok() || !heap->names().set(kContainersName, *block, type).ok()) {
      return run.broken("no room for the containers");
    }
    std::memset(*block, 0, sizeof(Containers));  // of what lay there nothing is left between the members
    containers = new (*block) Containers;
    model.names[kContainersName] = offset_of(*block);
    model.containers = std::make_shared<ModelContainers>();
  }
  Random random(draw);
  for (std::size_t i = 0; i < times; ++i) {
    const std::uint64_t drawn = random.next() >> 8;
    if (pages) {
      containers->pages.change(drawn);
      model.containers->pages.change(drawn);
    } else {
      containers->change(drawn);
      model.containers->change(drawn);
    }
  }
}

void HeapLife::persist(bool wait) {
  (void)capture(wait ? "persist the heap" : "persist the heap without waiting", wait,
                [&] { return Region::capture(regions(), Scope::process, wait); });
}

Change HeapLife::change() const {
  return [name = name, bytes = bytes(), text = model.text()](Content& content) {
    content.objects[name] = bytes;
    content.objects[inventory_name(name)] = text;
  };
}

bool HeapLife::capture(const std::string& what, bool wait, const std::function<Result<Lsn>()>& act) {
  auto before = bytes();
  check("before a persist");
  const bool ok = run.capture(what, change(), "persisting a heap", wait, [&] { return run.durable(act(), wait); });
  if (ok) was_captured(std::move(before));
  if (!ok && run.poisoned) destroy_everything();
  return ok;
}

void HeapLife::was_captured(std::vector<std::byte> taken) {
  run.region_content[name] = taken;
  captured = std::move(taken);
  captured_model = model.copy();
}

// Destructors run after a persist that failed. Nothing of it reaches the disk.
void HeapLife::destroy_everything() {
  for (const auto& [object, offset] : model.names) {
    if (!heap->names().remove(object).ok()) run.broken("a name cannot be taken away after a failed persist");
  }
  for (const auto& [offset, block] : model.blocks) {
    if (!heap->arenas().free(region->address() + offset).ok())
      run.broken("a block cannot be freed after a failed persist");
  }
  model.names.clear();
  model.blocks.clear();
  if (containers != nullptr) {
    std::destroy_at(containers);
    if (!heap->arenas().free(containers).ok()) run.broken("the containers cannot be freed after a failed persist");
    containers = nullptr;
    model.containers = nullptr;
  }
  check("after a failed persist, when everything was destroyed");
}

void HeapLife::rollback() {
  if (run.poisoned) return close();  // what was captured last is what a failed persist may have captured
  const std::uint64_t before = run.fired();
  is_undone(run.passed(Region::rollback(regions(), Scope::process), "rolling a heap back", before));
}

void HeapLife::is_undone(bool ok) {
  if (!ok) return close();  // some of it may be undone
  model = captured_model.copy();
  std::vector<std::byte> wanted = captured;
  wanted.resize(region->size());  // a growth stays
  if (holds_heap(wanted) && bytes() != wanted && !run.flipped()) {
    run.broken("after a rollback a heap has other bytes than were captured last");
  }
  const auto found = model.names.find(kContainersName);
  containers = found == model.names.end() ? nullptr : reinterpret_cast<Containers*>(region->address() + found->second);
  check("after a rollback");
}

void HeapLife::transact(std::uint64_t draw, std::size_t times, bool undone) {
  if (run.poisoned) return;
  Run& its_run = run;
  const std::vector<std::byte> bytes_before = bytes();
  const HeapModel model_before = model.copy();
  if (!capture("begin a change of the heap", false, [&] { return Region::begin_change(regions()); })) return;
  Random random(draw);
  for (std::size_t i = 0; i < times && !run.poisoned; ++i) {
    if (containers != nullptr) {
      change_containers(random.next(), 1);
    } else if (random.one_in(3)) {
      free_block(random.below(64));
    } else {
      allocate(1 + random.below(2000), 16);
    }
  }
  // A capture here would take half of the change.
  if (Region::capture(regions(), Scope::process, true).status().category != Errc::busy) {
    run.broken("a change that was under way could be captured");
  }
  const std::uint64_t before = run.fired();
  const bool committed = !undone && !run.poisoned && capture("commit a change of the heap", true, [&] {
    return Region::capture_change(regions(), true);
  });
  if (committed) return run.wait();
  if (run.poisoned) return close();  // whether the change became durable is unknown
  captured = bytes_before;
  captured_model = model_before.copy();
  is_undone(run.passed(Region::undo_change(regions()), "undoing a change of a heap", before));
  its_run.wait();  // the heap may be closed
}

void HeapLife::collect() {
  if (containers != nullptr) return;
  const auto holder = std::find_if(model.names.begin(), model.names.end(), [&](const auto& object) {
    return model.blocks.at(object.second).content.size() >= sizeof(std::uint64_t);
  });
  std::uint64_t held = 0;
  if (holder != model.names.end()) {
    const auto& [offset, block] = *model.blocks.rbegin();
    held = offset;
    std::byte* const at = region->address() + holder->second;
    const std::uint64_t pointer = reinterpret_cast<std::uintptr_t>(region->address()) + offset + block.bytes / 2;
    std::memcpy(at, &pointer, sizeof pointer);
    std::memcpy(model.blocks.at(holder->second).content.data(), &pointer, sizeof pointer);
    if (!region->touch(at, sizeof pointer).ok()) run.broken("touch failed");
  }
  std::vector<std::uint64_t> unreached;
  const std::uint64_t before = run.fired();
  const Status looked = heap->for_each_unreached({}, [&](const std::byte* block, std::uint64_t) {
    unreached.push_back(offset_of(block));
  });
  if (!run.passed(looked, "looking for blocks that nothing leads to", before)) return;
  for (const std::uint64_t offset : unreached) {
    if (model.has_name(offset) || offset == held || !model.blocks.contains(offset)) {
      return run.broken(fmt::format("the block at offset {} is needed, and would be collected", offset));
    }
    if (!run.passed(heap->arenas().free(region->address() + offset), "freeing what nothing leads to", before)) return;
    model.blocks.erase(offset);
  }
  persist(true);
}

// Stores through a wrong pointer: each must be found and named. What was there is put back.
void HeapLife::damage() {
  std::byte* const base = region->address();
  const std::uint64_t moved = reinterpret_cast<const HeapHeader*>(base + kHeapHeaderOffset)->table_offset;
  auto& table = *reinterpret_cast<SegmentEntry*>(base + (moved == 0 ? kSegmentTableOffset : moved));
  if (table.kind != SegmentKind::headed) return;
  auto& header = *reinterpret_cast<SegmentHeader*>(base + table.header_page * kPageBytes);
  const auto named = [&](std::string_view what, void* place, const auto& value) {
    std::vector<std::byte> kept(sizeof value);
    std::memcpy(kept.data(), place, sizeof value);
    std::memcpy(place, &value, sizeof value);
    const auto report = heap->verify();
    if (report.ok()) run.broken(fmt::format("{}, and verify() says nothing", what));
    if (!report.ok() && report.error().category != Errc::corrupt) {
      run.broken(fmt::format("{}, and verify() says {}", what, last_error_text()));
    }
    std::memcpy(place, kept.data(), kept.size());
  };
  auto& whole = *reinterpret_cast<HeapHeader*>(base + kHeapHeaderOffset);
  named("the heap's header was stored over", &whole.segments_max, whole.segments_max + 1);
  named("the table's place was stored over", &whole.table_offset, whole.table_offset + kSegmentBytes);
  named("the table was stored over", &table.header_page, static_cast<std::uint8_t>(table.header_page + 1));
  named("a segment's header was stored over", &header.number, std::uint64_t{77});
  named("names are missing", &whole.names_count, whole.names_count + 1);
  for (std::uint32_t page = 0; page < kSegmentPages; ++page) {
    const PageWord word = header.pages[page];
    if (word == 0) continue;
    const std::uint32_t kind = word & 0xff;
    named("a run has no pages", &header.pages[page], page_word(kind, 0));
    named("a run reaches beyond the segment", &header.pages[page], page_word(kind, 255));
    if ((word >> 8) > 1) named("two runs overlap", &header.pages[page + 1], page_word(kPageExtent, 1));
    if (kind == kPageExtent || kind == kPageHeader) {
      named("a block is marked where there is none", &header.blocks[page][0], std::uint64_t{1});
    }
  }
}

// ---- several threads -------------------------------------------------------------------------------------------

// The region asks it instead of the heap, so that it sees the heap at the moment of each capture.
class HeapLife::Threads final : public CaptureGuard {
 public:
  Threads(HeapLife& life, std::size_t threads) : run_(life.run), life_(life), under_way_(threads) {
    life_.region->set_guard(this);
  }
  ~Threads() { life_.region->set_guard(life_.heap.get()); }

  void hold() override {
    model_.lock();
    life_.heap->hold();
    head_ = run_.store->log().head();
  }
  void let_go() override {
    look();
    life_.heap->let_go();
    model_.unlock();
  }
  void rolled_back() override { life_.heap->rolled_back(); }
  [[nodiscard]] std::string_view what() const override { return life_.heap->what(); }
  std::vector<std::string> where(std::span<const std::uint64_t> offsets) override { return life_.heap->where(offsets); }

  void act(std::size_t self, Random random, std::size_t operations, std::uint64_t group, std::uint64_t fill) {
    for (std::size_t i = 0; i < operations && !failed; ++i) {
      switch (random.below(6)) {
        case 0: persist(group); break;
        case 1:
        case 2: give(self, random.next()); break;
        default: {
          constexpr std::uint64_t kSizes[] = {24, 90, 300, 1000};
          take(self, kSizes[random.below(std::size(kSizes))], fill + i * 7);
          break;
        }
      }
    }
    if (!failed) persist(group);
  }
  bool failed = false;

 private:
  // The capture's content: taken down while it holds the heap.
  struct Capture {
    std::vector<std::byte> bytes;
    std::vector<std::byte> text;
    bool framed = false;  // nothing stored since the last capture: it has no frame, and vouches for none before
  };
  // The change that a thread is about to make to the heap, and may have made.
  struct UnderWay {
    std::uint64_t allocates = 0;  // bytes
    std::pair<std::uint64_t, std::uint64_t> frees{};
  };

  void take(std::size_t self, std::uint64_t bytes, std::uint64_t fill) {
    {
      const LockGuard lock(model_);
      under_way_[self].allocates = bytes;
    }
    const auto given = life_.heap->arenas().allocate(bytes, 16);
    const LockGuard lock(model_);
    under_way_[self] = {};
    if (!given.ok()) {
      failed = true;
      return;
    }
    const std::uint64_t offset = life_.offset_of(*given);
    HeapModel::Block block;
    block.content = bytes_of(fill, {"", offset, bytes});
    std::memcpy(*given, block.content.data(), bytes);
    (void)life_.region->touch(*given, bytes);
    const Unobserved looking;
    block.bytes = parse_heap(life_.bytes()).blocks[offset];
    if (!life_.model.blocks.emplace(offset, std::move(block)).second) run_.broken("a block was handed out twice");
  }
  void give(std::size_t self, std::uint64_t which) {
    std::uint64_t offset = 0;
    {
      const LockGuard lock(model_);
      if (life_.model.blocks.empty()) return;
      const auto chosen = life_.model.block(which);
      offset = chosen->first;
      if (life_.model.has_name(offset)) return;
      under_way_[self].frees = {offset, chosen->second.bytes};
      life_.model.blocks.erase(chosen);
    }
    const Status done = life_.heap->arenas().free(life_.region->address() + offset);
    const LockGuard lock(model_);
    under_way_[self] = {};
    if (!done.ok()) run_.broken(fmt::format("a block of another thread cannot be freed: {}", last_error_text()));
  }
  void persist(std::uint64_t group) {
    auto captured = std::make_shared<Capture>();
    const std::size_t commit = run_.history.started(
        "persist the heap, beside other threads",
        [captured, name = life_.name](Content& content) {
          if (captured->bytes.empty()) return;
          content.objects[name] = captured->bytes;
          content.objects[inventory_name(name)] = captured->text;
        },
        run_.now(), group);
    captures_[this_thread_number()] = captured;
    const auto end = Region::capture(life_.regions(), Scope::process, true);
    captures_.erase(this_thread_number());
    if (!end.ok()) {
      failed = true;
      if (!run_.store->log().poisoned()) run_.history.cancelled(commit);
      return;
    }
    run_.history.placed(commit, *end);
    if (!captured->framed) run_.history.wrote_nothing(commit);
    if (!run_.store->sync(*end).ok()) {
      failed = true;
      return;
    }
    run_.history.acknowledged(commit, run_.now());
  }
  // With everything held. The heap may be ahead of the model, or behind it, by what the threads are just about.
  void look() {
    const Unobserved looking;
    const auto capture = captures_.find(this_thread_number_here());
    if (capture == captures_.end()) return;
    Capture& now = *capture->second;
    now.framed = run_.store->log().head() != head_;  // captures of the one region come one after the other
    now.bytes = life_.bytes();
    const HeapContent content = parse_heap(now.bytes);
    now.text = text_of(content);
    std::vector<UnderWay> left = under_way_;
    for (const auto& [offset, block] : life_.model.blocks) {
      const auto found = content.blocks.find(offset);
      if (found == content.blocks.end() || found->second != block.bytes ||
          std::memcmp(now.bytes.data() + offset, block.content.data(), block.content.size()) != 0) {
        run_.broken(fmt::format("a capture beside other threads lacks the block at offset {}", offset));
      }
    }
    for (const auto& [offset, bytes] : content.blocks) {
      if (life_.model.blocks.contains(offset)) continue;
      UnderWay* const whose = owner_of(left, offset, bytes);
      if (whose == nullptr) {
        run_.broken(fmt::format("a capture beside other threads has a block at offset {} without an owner", offset));
      } else {
        *whose = {};
      }
    }
  }
  // The thread that frees the block, or allocates the most that fits into it: the others may have smaller ones.
  static UnderWay* owner_of(std::vector<UnderWay>& left, std::uint64_t offset, std::uint64_t bytes) {
    UnderWay* owner = nullptr;
    for (UnderWay& each : left) {
      if (each.frees == std::pair(offset, bytes)) return &each;
      const bool fits = each.allocates > 0 && each.allocates <= bytes;
      if (fits && (owner == nullptr || owner->allocates < each.allocates)) owner = &each;
    }
    return owner;
  }
  // Belongs to the thread that holds the heap, also while the laboratory looks.
  [[nodiscard]] ThreadNumber this_thread_number_here() const {
    return run_.scheduler != nullptr ? run_.scheduler->thread() : this_thread_number();
  }

  Run& run_;
  HeapLife& life_;
  Mutex model_;  // before the heap's locks
  Lsn head_;     // of the log when the heap was held
  std::vector<UnderWay> under_way_;
  std::map<ThreadNumber, std::shared_ptr<Capture>> captures_;
};

void HeapLife::threads(std::size_t threads, std::size_t operations, std::uint64_t draw) {
  if (!holds_heap(captured)) return;
  run.region_content.erase(name);
  const std::uint64_t group = ++run.groups;
  {
    Threads watch(*this, threads);
    std::vector<Thread> started;
    for (std::size_t i = 0; i < threads; ++i) {
      started.emplace_back([&, i] { watch.act(i, Random(draw * 16 + i), operations, group, run.fill_of(i * 50)); });
    }
    for (Thread& each : started) each.join();
    if (watch.failed && run.fired() == 0) run.broken("a thread's call of a heap failed although nothing had");
  }
  if (run.is_poisoned()) return;
  check("after threads");
  persist(true);
}

}  // namespace memlith::lab
