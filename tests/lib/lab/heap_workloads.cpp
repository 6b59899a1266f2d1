// Workloads of heaps.
#include <fmt/format.h>

#include <utility>

#include "heap_life.hpp"
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::uint64_t kSmallBytes = 28 * kKiB;
constexpr std::uint64_t kLimitBytes = 52 * kKiB;

struct HeapSteps : StructureSteps {
  explicit HeapSteps(const HeapPlan& plan) : StructureSteps(step("open the heap", lab::open_heap, plan)) {}

  Step open_heap() const { return opening; }
  Step allocate(std::uint64_t bytes, std::uint64_t alignment = 16) const {
    return word(fmt::format("allocate {} bytes", bytes), &HeapLife::allocate, bytes, alignment);
  }
  Step free(std::size_t which) const { return word(fmt::format("free block {}", which), &HeapLife::free_block, which); }
  Step free_largest() const { return word("free the largest block", &HeapLife::free_largest); }
  Step name(const std::string& text, std::size_t which) const {
    return word(fmt::format("name block {} \"{}\"", which, text), &HeapLife::name_block, text, which);
  }
  Step unname(const std::string& text) const {
    return word(fmt::format("take the name \"{}\" away", text), &HeapLife::unname, text);
  }
  Step persist() const { return word("persist the heap", &HeapLife::persist, true); }
  Step persist_soon() const { return word("persist the heap without waiting", &HeapLife::persist, false); }
  Step rollback() const { return word("roll the heap back", &HeapLife::rollback); }
  Step transact(std::uint64_t draw, std::size_t times, bool undone) const {
    return word(fmt::format("a change of the heap in {} steps, {}", times, undone ? "undone" : "committed"),
                &HeapLife::transact, draw, times, undone);
  }
  Step collect() const { return word("free what nothing leads to", &HeapLife::collect); }
  Step damage() const { return word("store over the heap's structures, and look", &HeapLife::damage); }
  Step change(std::uint64_t draw, std::size_t times) const {
    return word(fmt::format("change the containers {} times", times), &HeapLife::change_containers, draw, times);
  }
  Step threads(std::size_t threads, std::size_t operations, std::uint64_t draw) const {
    return word(fmt::format("{} threads use the heap", threads), &HeapLife::threads, threads, operations, draw);
  }
};

Step close_heap() { return step("close the heap", &HeapLife::close); }
Step wait() { return step("wait for what was persisted", &Run::wait); }

std::vector<Step> threads_of(Random& random, TrackerKind tracker) {
  const HeapSteps heap({kSmallBytes, 128 * kKiB, tracker});
  return {open(),
          heap.open_heap(),
          heap.allocate(100),
          heap.name("root", 0),
          heap.persist(),
          heap.threads(3, 5, random.next()),
          heap.allocate(700),
          heap.persist(),
          abandon(),
          open(),
          heap.open_heap(),
          heap.threads(2, 4, random.next()),
          close()};
}

std::vector<Step> heap(Random& random) {
  const std::uint64_t shift = random.below(60);
  const HeapSteps heap({28 * kKiB, 112 * kKiB, TrackerKind::touched});
  return {open(),
          heap.open_heap(),
          heap.allocate(40 + shift),
          heap.allocate(600),
          heap.persist(),
          heap.allocate(40 + shift),
          heap.name("one", 0),
          heap.persist(),
          heap.allocate(5000, 256),
          heap.name("two", 1),
          heap.free(2),
          heap.persist(),
          heap.allocate(33'000 + shift),  // an extent
          heap.name("three", 1),
          heap.persist(),
          heap.unname("two"),
          heap.free(9),
          heap.damage(),
          heap.persist(),
          heap.free(1),
          heap.unname("one"),
          heap.allocate(200),
          heap.rollback(),
          heap.unname("three"),
          heap.free(3),
          heap.persist(),
          close_heap(),
          heap.open_heap(),
          heap.allocate(40),
          heap.free(0),
          heap.persist_soon(),
          heap.allocate(700),
          heap.persist_soon(),
          wait(),
          checkpoint(),
          heap.free(1),
          heap.free(0),
          heap.persist(),
          abandon(),
          open(),
          heap.open_heap(),
          heap.free(0),
          heap.free(0),
          heap.damage(),
          heap.persist(),
          close()};
}

std::vector<Step> heap_at_its_limit(Random& random) {
  const std::uint64_t shift = random.below(200);
  const HeapSteps heap({kSmallBytes, kLimitBytes, TrackerKind::touched});
  std::vector<Step> steps{open(), heap.open_heap(), heap.allocate(3000), heap.persist()};
  for (std::uint64_t i = 0; i < 9; ++i) {
    steps.push_back(heap.allocate(3500 + shift * i));
    if (i % 3 == 0) steps.push_back(heap.persist());
  }
  for (const Step& step : {heap.allocate(30'000),
                           heap.persist(),
                           heap.free(2),
                           heap.allocate(3500),
                           heap.allocate(3500),
                           heap.free(1),
                           heap.free(1),
                           heap.free(1),
                           heap.allocate(9'000),
                           heap.name("it", 3),
                           heap.persist(),
                           heap.free(0),
                           heap.rollback(),
                           heap.allocate(9'000),
                           heap.persist(),
                           abandon(),
                           open(),
                           heap.open_heap(),
                           heap.allocate(30'000),
                           heap.free(0),
                           heap.free(0),
                           heap.allocate(3500),
                           heap.persist(),
                           close()}) {
    steps.push_back(step);
  }
  return steps;
}

std::vector<Step> heap_segments(Random&) {
  const HeapSteps heap({kSmallBytes, 6 * kMiB, TrackerKind::touched});
  return {open(),
          heap.open_heap(),
          heap.allocate(1000),
          heap.persist(),
          heap.allocate(900'000),  // the segments come into use one by one
          heap.allocate(60'000),
          heap.persist(),
          heap.allocate(2'200'000),  // two segments, and the beginning of a third
          heap.persist(),
          heap.allocate(500),
          heap.free(1),
          heap.persist(),
          heap.free(2),
          heap.persist(),
          heap.allocate(500'000),
          heap.allocate(500'000),
          heap.allocate(500'000),
          heap.damage(),
          heap.allocate(1'000'000),
          heap.persist(),
          heap.rollback(),
          heap.free(2),
          heap.free(2),
          heap.free(2),
          heap.allocate(2'000'000),
          abandon(),
          open(),
          heap.open_heap(),
          heap.free(1),
          heap.allocate(700'000),
          heap.persist(),
          heap.free_largest(),  // blocks of pages come to lie where the block lay
          heap.allocate(900'000),
          heap.allocate(900'000),
          heap.allocate(900'000),
          heap.persist(),
          close()};
}

// In its table, then with a table of its own, then with one of two segments. A smaller limit changes nothing.
std::vector<Step> heap_raised(Random& random) {
  const std::uint64_t shift = random.below(100);
  const HeapSteps first({kSmallBytes, kLimitBytes, TrackerKind::touched});
  const HeapSteps second({kSmallBytes, 2 * kLimitBytes, TrackerKind::touched});
  const HeapSteps third({kSmallBytes, 1 * kGiB, TrackerKind::touched});
  const HeapSteps fourth({kSmallBytes, 200 * kGiB, TrackerKind::touched});
  return {open(),
          first.open_heap(),
          first.allocate(3000 + shift),
          first.name("one", 0),
          first.persist(),
          first.allocate(30'000),  // no room
          close(),
          open(),
          second.open_heap(),
          second.allocate(30'000),
          second.persist(),
          abandon(),
          open(),
          third.open_heap(),
          third.damage(),
          third.allocate(700 + shift),
          third.allocate(40'000),
          third.rollback(),
          third.allocate(200'000),
          third.persist(),
          checkpoint(),
          close_heap(),
          third.open_heap(),
          third.free(1),
          third.persist(),
          close_heap(),
          fourth.open_heap(),
          fourth.damage(),
          fourth.allocate(900'000),  // where the table was
          fourth.persist(),
          abandon(),
          open(),
          first.open_heap(),
          first.free_largest(),
          first.allocate(1'000'000),
          first.unname("one"),
          first.persist(),
          close()};
}

std::vector<Step> heap_of_containers(Random& random, bool pages) {
  const HeapSteps heap({160 * kKiB, 160 * kKiB, TrackerKind::scan, pages});
  std::vector<Step> steps{open(), heap.open_heap()};
  for (int i = 0; i < 4; ++i) {
    steps.push_back(heap.change(random.next(), 1 + random.below(30)));
    steps.push_back(heap.persist());
    steps.push_back(heap.change(random.next(), 1 + random.below(9)));
    steps.push_back(i % 2 == 0 ? heap.persist() : heap.rollback());
  }
  steps.push_back(close_heap());
  steps.push_back(heap.open_heap());
  steps.push_back(heap.change(random.next(), 20));
  steps.push_back(heap.persist());
  steps.push_back(abandon());
  steps.push_back(open());
  steps.push_back(heap.open_heap());
  steps.push_back(heap.change(random.next(), 9));
  steps.push_back(heap.persist());
  steps.push_back(close());
  return steps;
}

std::vector<Step> heap_containers(Random& random) { return heap_of_containers(random, false); }

// Trees and tables in pages: what is searched has to be what was persisted, also after a change that was undone.
std::vector<Step> heap_btree(Random& random) {
  std::vector<Step> steps = heap_of_containers(random, true);
  const HeapSteps heap({160 * kKiB, 160 * kKiB, TrackerKind::scan, true});
  steps.push_back(open());
  steps.push_back(heap.open_heap());
  for (const bool undone : {true, false, true}) {
    steps.push_back(heap.transact(random.next(), 1 + random.below(20), undone));
    steps.push_back(heap.change(random.next(), 1));
  }
  steps.push_back(heap.persist());
  steps.push_back(close());
  return steps;
}

std::vector<Step> heap_collect(Random& random) {
  const HeapSteps heap({kSmallBytes, 256 * kKiB, TrackerKind::touched});
  std::vector<Step> steps{open(), heap.open_heap(), heap.allocate(100), heap.name("a", 0), heap.persist()};
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 3 + random.below(6); ++i) {
      steps.push_back(heap.allocate(8 + random.below(random.one_in(4) ? 9'000 : 300)));
    }
    if (random.one_in(2)) steps.push_back(heap.name("b", random.below(64)));
    steps.push_back(heap.persist());
    steps.push_back(abandon()), steps.push_back(open()), steps.push_back(heap.open_heap());
    steps.push_back(heap.collect());
    if (round == 1) steps.push_back(heap.unname("b")), steps.push_back(heap.collect());
  }
  steps.push_back(close());
  return steps;
}

// Half of the steps leave something behind that is not persisted when the change begins.
std::vector<Step> heap_changes(Random& random, TrackerKind tracker, bool containers) {
  const std::uint64_t bytes = containers ? 160 * kKiB : kSmallBytes;
  const HeapSteps heap({bytes, containers ? bytes : 128 * kKiB, tracker});
  std::vector<Step> steps{open(), heap.open_heap()};
  const auto change = [&] {
    return containers ? heap.change(random.next(), 5) : heap.allocate(1 + random.below(3000));
  };
  for (int i = 0; i < 8; ++i) {
    steps.push_back(change());
    if (random.one_in(2)) steps.push_back(heap.persist());
    steps.push_back(heap.transact(random.next(), 1 + random.below(9), random.one_in(2)));
    if (i == 3) steps.push_back(checkpoint());
    if (i == 5) steps.push_back(abandon()), steps.push_back(open()), steps.push_back(heap.open_heap());
  }
  steps.push_back(heap.transact(random.next(), 5, true));
  steps.push_back(heap.persist());
  steps.push_back(close());
  return steps;
}
std::vector<Step> changes_of_blocks(Random& random) { return heap_changes(random, TrackerKind::touched, false); }
std::vector<Step> changes_of_containers(Random& random) { return heap_changes(random, TrackerKind::scan, true); }

std::vector<Step> heap_threads(Random& random) { return threads_of(random, TrackerKind::touched); }
std::vector<Step> heap_page_threads(Random& random) { return threads_of(random, TrackerKind::scan); }

std::vector<Step> heap_history(Random& random, TrackerKind tracker) {
  const HeapSteps heap({random.one_in(2) ? kSmallBytes : kLimitBytes, kLimitBytes, tracker});
  std::vector<Step> steps{open(), heap.open_heap()};
  while (steps.size() < 44) {
    const std::size_t which = random.below(64);
    const std::string name = random.one_in(2) ? "a" : "b";
    switch (random.below(20)) {
      case 0: steps.push_back(checkpoint()); break;
      case 1: steps.push_back(close()), steps.push_back(open()), steps.push_back(heap.open_heap()); break;
      case 2: steps.push_back(abandon()), steps.push_back(open()), steps.push_back(heap.open_heap()); break;
      case 3: steps.push_back(close_heap()), steps.push_back(heap.open_heap()); break;
      case 4: steps.push_back(heap.rollback()); break;
      case 5: steps.push_back(heap.name(name, which)); break;
      case 6: steps.push_back(heap.unname(name)); break;
      case 7: steps.push_back(heap.persist_soon()), steps.push_back(wait()); break;
      case 8: steps.push_back(heap.allocate(1 + random.below(9'000), std::uint64_t{16} << random.below(9))); break;
      case 9:
      case 10:
      case 11:
      case 12: steps.push_back(heap.allocate(1 + random.below(random.one_in(3) ? 3000 : 120))); break;
      case 13:
      case 14:
      case 15: steps.push_back(heap.free(which)); break;
      default: steps.push_back(heap.persist()); break;
    }
  }
  steps.push_back(heap.persist());
  return steps;
}

std::vector<Step> random_heap_history(Random& random) { return heap_history(random, TrackerKind::touched); }
std::vector<Step> random_heap_page_history(Random& random) { return heap_history(random, TrackerKind::scan); }

constexpr Workload::How kHeap{.dear = true, .about = "heap"};
constexpr Workload::How kHeapWithoutFaults{.with_call_faults = false, .dear = true, .about = "heap"};

const Workload kHeapWorkloads[] = {
    {"heap", "a heap: blocks, names, rollback, damage, reopening", stores::wide_slots, heap, kHeap},
    {"heap-limit", "a heap that grows to its limit and refuses", stores::wide_slots, heap_at_its_limit, kHeap},
    {"heap-segments",
     "a heap of several segments: large blocks, segments that come into use and out of it",
     stores::wide_slots,
     heap_segments,
     {.every_seed_differs = false, .with_call_faults = false, .dear = true, .about = "heap"}},
    {"heap-raised",
     "a heap that is given larger limits, when it is opened again",
     stores::wide_slots,
     heap_raised,
     {.every_seed_differs = false, .dear = true, .about = "heap"}},
    {"heap-containers", "containers of the standard library in a heap", stores::wide_slots, heap_containers,
     kHeapWithoutFaults},
    {"heap-btree", "containers made for pages, searched after each persist, rollback and undone change",
     stores::wide_slots, heap_btree, kHeapWithoutFaults},
    {"heap-collect", "blocks that nothing leads to are freed, after a crash each time", stores::wide_slots,
     heap_collect, kHeap},
    {"heap-changes", "changes of a heap that are committed as a whole or undone", stores::wide_slots, changes_of_blocks,
     kHeap},
    {"heap-container-changes", "the same with containers, tracked by pages", stores::wide_slots, changes_of_containers,
     kHeapWithoutFaults},
    {"heap-threads",
     "three threads allocate, free each other's blocks, and persist",
     stores::roomy,
     heap_threads,
     {.turns = Turns::drawn, .dear = true, .about = "heap"}},
    {"heap-page-threads",
     "the same, tracked by pages",
     stores::roomy,
     heap_page_threads,
     {.turns = Turns::drawn, .with_call_faults = false, .dear = true, .about = "heap"}},
    {"heap-random", "histories of a heap drawn by seed", stores::wide_slots, random_heap_history, kHeap},
    {"heap-pieces", "such histories, replayed by pieces", stores::in_pieces, random_heap_history, kHeap},
    {"heap-file", "histories of a heap in an ordinary file", stores::file_wide_slots, random_heap_history, kHeap},
    {"heap-pages", "histories of a heap, tracked by pages", stores::wide_slots, random_heap_page_history,
     kHeapWithoutFaults},
};

}  // namespace

std::span<const Workload> heap_workloads() { return kHeapWorkloads; }

}  // namespace memlith::lab
