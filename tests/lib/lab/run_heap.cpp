// The words of a run that are about heaps.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.hpp"
#include "base/sync.hpp"
#include "heap_life.hpp"
#include "region/thread_number.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr ObjectType kObjectType{"object of the laboratory", 1, 1, 1};

}  // namespace

void Run::close_heap() {
  if (heap_ != nullptr) soon_.clear();
  heap_ = nullptr;
}

void Run::check_heap(std::string_view when) {
  if (heap_ == nullptr) return;
  const Unobserved looking;
  note_captured(heap_->bytes());
  if (const std::string wrong = heap_->wrong(); !wrong.empty()) broken(fmt::format("the heap {}: {}", when, wrong));
}

void Run::open_heap(const HeapPlan& plan) {
  if (store_ == nullptr || heap_ != nullptr) return;
  const bool one_file = options_.kind == StoreKind::one_file;
  const std::string name = one_file ? "file" : "heap";
  const auto object = find(name);
  const bool made = object.has_value() && (!one_file || object->size_bytes > 0);
  RegionOptions options;
  options.create = true;
  options.tracker = plan.tracker;
  options.size_bytes = plan.size;
  options.reserve_bytes = plan.max_size;
  if (!made) options.address = kAddress;
  std::size_t commit = 0;
  if (!made) {
    commit = history.started(
        fmt::format("create the region of a heap, {} bytes", plan.size),
        [name, size = plan.size](Content& content) { content.objects[name].resize(size); }, now());
  }
  const std::uint64_t before = fired();
  Status status = Heap::place_as_made(*store_, name, options);
  auto life = std::make_unique<HeapLife>();
  life->name = name;
  if (status.ok()) {
    auto region = Region::open(*store_, name, options);
    status = region.status();
    if (status.ok()) life->region = std::move(*region);
  }
  const bool mapped = passed(status, "opening the region of a heap", before);
  if (!made) settle(commit, mapped);
  if (store_->log().poisoned()) now_poisoned();
  if (!mapped) return;
  life->captured = life->bytes();  // before the heap stores to a region of zeros
  if (const auto known = region_content_.find(name);
      known != region_content_.end() && known->second != life->captured && known->second.size() >= kPageBytes &&
      volume.faults().fired(SimFaults::Kind::flip_bit) == 0) {
    broken("the region of a heap is mapped with other bytes than were persisted last");
  }
  if (!open_in_region(*life, plan, before)) return;
  containers_heap = life->heap.get();
  if (!passed(life->learn(), "looking at a heap", before)) return;
  life->captured_model = life->model.copy();
  heap_ = std::move(life);
}

// A larger limit is a commit of its own. Which bytes it has is known when it is made.
bool Run::open_in_region(HeapLife& life, const HeapPlan& plan, std::uint64_t fired_before) {
  if (plan.max_size <= limit_of(life.captured)) {
    auto heap = Heap::open(*life.region);
    if (!passed(heap.status(), "opening a heap", fired_before)) return false;
    life.heap = std::move(*heap);
    return true;
  }
  auto bytes = std::make_shared<std::vector<std::byte>>(life.captured);
  const std::size_t commit = history.started(
      fmt::format("let the heap grow to {} bytes", plan.max_size),
      [name = life.name, bytes](Content& content) { content.objects[name] = *bytes; }, now());
  const Lsn head = store_->log().head();
  auto heap = Heap::open(*life.region, {.reserve_bytes = plan.max_size});
  *bytes = life.bytes();
  if (store_->log().head() == head) history.wrote_nothing(commit);
  const bool ok = passed(heap.status(), "opening a heap that may grow further", fired_before);
  settle(commit, ok);
  if (!ok) return false;
  if (limit_of(*bytes) < plan.max_size) broken("a heap was given a larger limit, and has the old one");
  life.heap = std::move(*heap);
  life.captured = region_content_[life.name] = *bytes;
  return true;
}

void Run::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  if (heap_ == nullptr) return;
  HeapLife& life = *heap_;
  const std::uint64_t before = fired();
  const std::vector<std::byte> bytes_before = life.bytes();
  const auto given = life.heap->arenas().allocate(bytes, alignment);
  if (!given.ok()) {
    // At its limit a heap refuses, and nothing of it changes. Below its limit it may grow before it refuses.
    const bool full =
        given.error().category == Errc::no_space && life.region->size() + kSegmentBytes > life.region->reserve();
    const bool grown = life.region->size() != bytes_before.size();
    if (full && !grown && fired() == before && life.bytes() != bytes_before) {
      broken("a heap at its limit refused, and changed");
    }
    if (!full) (void)passed(given.status(), "allocating", before);
    if (store_->log().poisoned()) now_poisoned();
    check_heap("after a refusal");
    return;
  }
  const std::uint64_t offset = life.offset_of(*given);
  if (offset % alignment != 0) broken(fmt::format("a block of alignment {} lies at offset {}", alignment, offset));
  HeapModel::Block block;
  block.content = bytes_of(fill_of(part_++), {"", offset, bytes});
  std::memcpy(*given, block.content.data(), bytes);
  if (!life.region->touch(*given, bytes).ok()) broken("touch failed");
  const auto real = life.heap->arenas().block_bytes(*given);
  block.bytes = real.ok() ? *real : 0;
  if (block.bytes < bytes) broken(fmt::format("a block of {} bytes was asked for, and has {}", bytes, block.bytes));
  life.model.blocks[offset] = std::move(block);
}

void Run::free_block(std::size_t which) {
  if (heap_ == nullptr || heap_->model.blocks.empty()) return;
  HeapLife& life = *heap_;
  auto chosen = life.model.blocks.begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(which % life.model.blocks.size()));
  const std::uint64_t offset = chosen->first;
  for (const auto& [name, object] : life.model.names) {
    if (object == offset) return;
  }
  const std::uint64_t before = fired();
  if (!passed(life.heap->arenas().free(life.region->address() + offset), "freeing a block", before)) return;
  life.model.blocks.erase(chosen);
}

void Run::free_largest() {
  if (heap_ == nullptr || heap_->model.blocks.empty()) return;
  const auto& blocks = heap_->model.blocks;
  const auto largest = std::max_element(blocks.begin(), blocks.end(),
                                        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  free_block(static_cast<std::size_t>(std::distance(blocks.begin(), largest)));
}

void Run::name_block(const std::string& name, std::size_t which) {
  if (heap_ == nullptr || heap_->model.blocks.empty() || heap_->model.names.contains(name)) return;
  HeapLife& life = *heap_;
  auto chosen = life.model.blocks.begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(which % life.model.blocks.size()));
  const std::uint64_t before = fired();
  const Status named = life.heap->names().set(name, life.region->address() + chosen->first, kObjectType);
  if (named.category == Errc::no_space) return check_heap("after a refusal");
  if (passed(named, "naming an object", before)) life.model.names[name] = chosen->first;
}

void Run::unname(const std::string& name) {
  if (heap_ == nullptr || !heap_->model.names.contains(name)) return;
  const std::uint64_t before = fired();
  if (passed(heap_->heap->names().remove(name), "taking a name away", before)) heap_->model.names.erase(name);
}

void Run::change_containers(std::uint64_t draw, std::size_t times) {
  if (heap_ == nullptr || !heap_->model.blocks.empty()) return;
  HeapLife& life = *heap_;
  if (life.containers == nullptr) {
    const auto block = life.heap->arenas().allocate(sizeof(Containers), alignof(Containers));
    const ObjectType type{kContainersName, sizeof(Containers), alignof(Containers), 1};
    if (!block.ok() || !life.heap->names().set(kContainersName, *block, type).ok()) {
      return broken("no room for the containers");
    }
    std::memset(*block, 0, sizeof(Containers));  // of what lay there nothing is left between the members
    life.containers = new (*block) Containers;
    life.model.names[kContainersName] = life.offset_of(*block);
    life.model.containers = std::make_shared<ModelContainers>();
  }
  Random random(draw);
  for (std::size_t i = 0; i < times; ++i) {
    const std::uint64_t drawn = random.next() >> 8;
    life.containers->change(drawn);
    life.model.containers->change(drawn);
  }
}

void Run::persist_heap(bool wait) {
  if (heap_ == nullptr) return;
  Region* const region = heap_->region.get();
  (void)capture_heap(wait ? "persist the heap" : "persist the heap without waiting", wait,
                     [&] { return Region::capture({&region, 1}, Scope::process, wait); });
}

bool Run::capture_heap(const std::string& what, bool wait, const std::function<Result<Lsn>()>& capture) {
  HeapLife& life = *heap_;
  const std::string name = life.name;
  auto bytes = life.bytes();
  check_heap("before a persist");
  const std::size_t commit = history.started(
      what,
      [name, bytes, text = life.model.text()](Content& content) {
        content.objects[name] = bytes;
        content.objects[inventory_name(name)] = text;
      },
      now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  const auto end = capture();
  Status status = end.status();
  if (end.ok() && wait) status = store_->sync(*end);
  if (end.ok() && !wait) soon_.emplace_back(commit, *end);
  if (store_->log().head() == head) history.wrote_nothing(commit);
  const bool ok = status.category == Errc::full ? false : passed(status, "persisting a heap", before);
  if (wait || !ok) settle(commit, ok);
  if (ok) {
    heap_was_captured(std::move(bytes));
  } else if (poisoned_) {
    destroy_everything();
  }
  return ok;
}

void Run::heap_was_captured(std::vector<std::byte> bytes) {
  HeapLife& life = *heap_;
  region_content_[life.name] = bytes;
  life.captured = std::move(bytes);
  life.captured_model = life.model.copy();
}

// What destructors do after a persist that failed. Nothing of it reaches the disk.
void Run::destroy_everything() {
  HeapLife& life = *heap_;
  for (const auto& [name, object] : life.model.names) {
    if (!life.heap->names().remove(name).ok()) broken("a name cannot be taken away after a failed persist");
  }
  for (const auto& [offset, block] : life.model.blocks) {
    if (!life.heap->arenas().free(life.region->address() + offset).ok())
      broken("a block cannot be freed after a failed persist");
  }
  life.model.names.clear();
  life.model.blocks.clear();
  if (life.containers != nullptr) {
    std::destroy_at(life.containers);
    if (!life.heap->arenas().free(life.containers).ok())
      broken("the containers cannot be freed after a failed persist");
    life.containers = nullptr;
    life.model.containers = nullptr;
  }
  check_heap("after a failed persist, when everything was destroyed");
}

void Run::rollback_heap() {
  if (heap_ == nullptr) return;
  if (poisoned_) return close_heap();  // what was captured last is what a failed persist may have captured
  HeapLife& life = *heap_;
  const std::uint64_t before = fired();
  Region* const region = life.region.get();
  heap_is_undone(passed(Region::rollback({&region, 1}, Scope::process), "rolling a heap back", before));
}

void Run::heap_is_undone(bool ok) {
  if (store_->log().poisoned()) now_poisoned();
  if (!ok) return close_heap();  // some of it may be undone
  HeapLife& life = *heap_;
  life.model = life.captured_model.copy();
  std::vector<std::byte> wanted = life.captured;
  wanted.resize(life.region->size());  // a growth stays
  if (holds_heap(wanted) && life.bytes() != wanted && volume.faults().fired(SimFaults::Kind::flip_bit) == 0) {
    broken("after a rollback a heap has other bytes than were captured last");
  }
  const auto found = life.model.names.find(kContainersName);
  life.containers =
      found == life.model.names.end() ? nullptr : reinterpret_cast<Containers*>(life.region->address() + found->second);
  check_heap("after a rollback");
}

void Run::transact_heap(std::uint64_t draw, std::size_t times, bool undone) {
  if (heap_ == nullptr || poisoned_) return;
  Region* const region = heap_->region.get();
  const std::vector<std::byte> bytes = heap_->bytes();
  const HeapModel model = heap_->model.copy();
  if (!capture_heap("begin a change of the heap", false, [&] { return Region::begin_change({&region, 1}); })) return;
  Random random(draw);
  for (std::size_t i = 0; i < times && !poisoned_; ++i) {
    if (heap_->containers != nullptr) {
      change_containers(random.next(), 1);
    } else if (random.one_in(3)) {
      free_block(random.below(64));
    } else {
      allocate(1 + random.below(2000), 16);
    }
  }
  // What this would capture is half of the change.
  if (Region::capture({&region, 1}, Scope::process, true).status().category != Errc::busy) {
    broken("a change that was under way could be captured");
  }
  const std::uint64_t before = fired();
  const bool committed = !undone && !poisoned_ && capture_heap("commit a change of the heap", true, [&] {
    return Region::capture_change({&region, 1}, true);
  });
  if (committed) return wait();
  if (poisoned_) return close_heap();  // whether the change became durable is unknown
  heap_->captured = bytes;
  heap_->captured_model = model.copy();
  heap_is_undone(passed(Region::undo_change({&region, 1}), "undoing a change of a heap", before));
  wait();
}

void Run::collect_heap() {
  if (heap_ == nullptr || heap_->containers != nullptr) return;
  HeapLife& life = *heap_;
  const auto holder = std::find_if(life.model.names.begin(), life.model.names.end(), [&](const auto& name) {
    return life.model.blocks.at(name.second).content.size() >= sizeof(std::uint64_t);
  });
  std::uint64_t held = 0;
  if (holder != life.model.names.end()) {
    const auto& [offset, block] = *life.model.blocks.rbegin();
    held = offset;
    std::byte* const at = life.region->address() + holder->second;
    const std::uint64_t pointer = reinterpret_cast<std::uintptr_t>(life.region->address()) + offset + block.bytes / 2;
    std::memcpy(at, &pointer, sizeof pointer);
    std::memcpy(life.model.blocks.at(holder->second).content.data(), &pointer, sizeof pointer);
    if (!life.region->touch(at, sizeof pointer).ok()) broken("touch failed");
  }
  std::vector<std::uint64_t> unreached;
  const std::uint64_t before = fired();
  const Status looked = life.heap->for_each_unreached({}, [&](const std::byte* block, std::uint64_t) {
    unreached.push_back(life.offset_of(block));
  });
  if (!passed(looked, "looking for blocks that nothing leads to", before)) return;
  for (const std::uint64_t offset : unreached) {
    const bool named = std::any_of(life.model.names.begin(), life.model.names.end(),
                                   [&](const auto& name) { return name.second == offset; });
    if (named || offset == held || !life.model.blocks.contains(offset)) {
      return broken(fmt::format("the block at offset {} is needed, and would be collected", offset));
    }
    if (!passed(life.heap->arenas().free(life.region->address() + offset), "freeing what nothing leads to", before))
      return;
    life.model.blocks.erase(offset);
  }
  persist_heap(true);
}

// Stores through a wrong pointer: each must be found and named. What was there is put back.
void Run::damage_heap() {
  if (heap_ == nullptr) return;
  HeapLife& life = *heap_;
  std::byte* const base = life.region->address();
  const std::uint64_t moved = reinterpret_cast<const HeapHeader*>(base + kHeapHeaderOffset)->table_offset;
  auto& table = *reinterpret_cast<SegmentEntry*>(base + (moved == 0 ? kSegmentTableOffset : moved));
  if (table.kind != SegmentKind::headed) return;
  auto& header = *reinterpret_cast<SegmentHeader*>(base + table.header_page * kPageBytes);
  const auto named = [&](std::string_view what, void* place, const auto& value) {
    std::vector<std::byte> kept(sizeof value);
    std::memcpy(kept.data(), place, sizeof value);
    std::memcpy(place, &value, sizeof value);
    const auto report = life.heap->verify();
    if (report.ok()) broken(fmt::format("{}, and verify() says nothing", what));
    if (!report.ok() && report.error().category != Errc::corrupt) {
      broken(fmt::format("{}, and verify() says {}", what, last_error_text()));
    }
    std::memcpy(place, kept.data(), kept.size());
  };
  auto& heap = *reinterpret_cast<HeapHeader*>(base + kHeapHeaderOffset);
  named("the heap's header was stored over", &heap.segments_max, heap.segments_max + 1);
  named("the table's place was stored over", &heap.table_offset, heap.table_offset + kSegmentBytes);
  named("the table was stored over", &table.header_page, static_cast<std::uint8_t>(table.header_page + 1));
  named("a segment's header was stored over", &header.number, std::uint64_t{77});
  named("names are missing", &heap.names_count, heap.names_count + 1);
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
class Run::HeapThreads final : public CaptureGuard {
 public:
  HeapThreads(Run& run, std::size_t threads) : run_(run), life_(*run.heap_), under_way_(threads) {
    life_.region->set_guard(this);
  }
  ~HeapThreads() { life_.region->set_guard(life_.heap.get()); }

  void hold() override {
    model_.lock();
    life_.heap->hold();
    head_ = run_.store_->log().head();
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
  // What a capture has: taken down while it holds the heap.
  struct Capture {
    std::vector<std::byte> bytes;
    std::vector<std::byte> text;
    bool framed = false;  // nothing stored since the last capture: it has no frame, and vouches for none before
  };
  // What a thread is about to do to the heap, and may have done.
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
      auto chosen = life_.model.blocks.begin();
      std::advance(chosen, static_cast<std::ptrdiff_t>(which % life_.model.blocks.size()));
      offset = chosen->first;
      for (const auto& [name, object] : life_.model.names) {
        if (object == offset) return;
      }
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
    Region* const region = life_.region.get();
    captures_[this_thread_number()] = captured;
    const auto end = Region::capture({&region, 1}, Scope::process, true);
    captures_.erase(this_thread_number());
    if (!end.ok()) {
      failed = true;
      if (!run_.store_->log().poisoned()) run_.history.cancelled(commit);
      return;
    }
    run_.history.placed(commit, *end);
    if (!captured->framed) run_.history.wrote_nothing(commit);
    if (!run_.store_->sync(*end).ok()) {
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
    now.framed = run_.store_->log().head() != head_;  // captures of the one region come one after the other
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
        run_.broken(fmt::format("a capture beside other threads has a block at offset {} that is nobody's", offset));
      } else {
        *whose = {};
      }
    }
  }
  // Whoever frees the block, or allocates the most that fits into it: the others may have smaller ones.
  static UnderWay* owner_of(std::vector<UnderWay>& left, std::uint64_t offset, std::uint64_t bytes) {
    UnderWay* owner = nullptr;
    for (UnderWay& each : left) {
      if (each.frees == std::pair(offset, bytes)) return &each;
      const bool fits = each.allocates > 0 && each.allocates <= bytes;
      if (fits && (owner == nullptr || owner->allocates < each.allocates)) owner = &each;
    }
    return owner;
  }
  // Of the thread that holds the heap, also while the laboratory looks.
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

void Run::heap_threads(std::size_t threads, std::size_t operations, std::uint64_t draw) {
  if (heap_ == nullptr || !holds_heap(heap_->captured)) return;
  region_content_.erase(heap_->name);
  const std::uint64_t group = ++groups_;
  {
    HeapThreads watch(*this, threads);
    std::vector<Thread> started;
    for (std::size_t i = 0; i < threads; ++i) {
      started.emplace_back([&, i] { watch.act(i, Random(draw * 16 + i), operations, group, fill_of(i * 50)); });
    }
    for (Thread& each : started) each.join();
    if (watch.failed && fired() == 0) broken("a thread's call of a heap failed although nothing had");
  }
  if (store_->log().poisoned()) {
    now_poisoned();
    return;
  }
  check_heap("after threads");
  persist_heap(true);
}

}  // namespace memlith::lab
