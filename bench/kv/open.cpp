// Suite open: how long a program waits for a large, populated and fragmented heap, after a clean close and after a
// crash.
//
// Blocks of random sizes are allocated, and a quarter of them, chosen at random, are freed. Nothing is stored to the
// blocks: what opening reads is the heap's own. The files are dropped from the page cache before each opening, as a
// restart of the machine would.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/store_path.hpp"
#include "kit/killed_process.hpp"
#include "kit/random.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "kv_bench.hpp"
#include "memlith/heap.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kSmallest = 16;
constexpr std::uint64_t kFirstBytes = 100;    // of the block that is allocated after an opening
constexpr std::uint64_t kChangedOneIn = 100;  // blocks that come and go before a crash
constexpr char kHeapName[] = "heap";

// The heap in the store at `path`, and what it took to open each.
struct OpenHeap {
  StoreHandle store;
  memlith_heap* heap = nullptr;
  std::uint64_t store_ns = 0;
  std::uint64_t heap_ns = 0;
};

Result<OpenHeap> open_heap(const KvBenchArguments& arguments, const std::string& path, bool create) {
  memlith_store_options store_options{};
  store_options.struct_size = sizeof store_options;
  store_options.flags = create ? MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE : 0;
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = create ? MEMLITH_CREATE | MEMLITH_EXCLUSIVE : 0;
  options.size = options.max_size = create ? arguments.heap_mib * kMiB : 0;
  OpenHeap open;
  const std::uint64_t start = now_ns();
  MEMLITH_TOOL_GET(open.store, open_store({path, StoreKind::folder}, store_options));
  const std::uint64_t store_opened = now_ns();
  const std::int32_t code = memlith_heap_open(open.store.get(), kHeapName, &options, &open.heap);
  if (code != MEMLITH_OK) return library_failure(code, "opening the heap");
  open.store_ns = store_opened - start;
  open.heap_ns = now_ns() - store_opened;
  return open;
}

// Sizes with which all blocks together fill four fifths of the heap before a quarter of them goes.
std::uint64_t largest_of(const KvBenchArguments& arguments) {
  const std::uint64_t mean = arguments.heap_mib * kMiB / 5 * 3 / arguments.blocks;
  return std::max(2 * mean, 2 * kSmallest) - kSmallest;
}

MaybeFailure churn(const KvBenchArguments& arguments, memlith_heap* heap, std::uint64_t count) {
  Random random(kSeed);
  std::vector<void*> blocks(count + count / 3);
  const std::uint64_t sizes = largest_of(arguments) - kSmallest + 1;
  for (void*& block : blocks) {
    const std::int32_t code = memlith_heap_allocate(heap, kSmallest + random.below(sizes), 0, &block);
    if (code != MEMLITH_OK) return library_failure(code, "allocating a block");
  }
  while (blocks.size() > count) {
    std::swap(blocks[random.below(blocks.size())], blocks.back());
    const std::int32_t code = memlith_heap_free(heap, blocks.back());
    if (code != MEMLITH_OK) return library_failure(code, "freeing a block");
    blocks.pop_back();
  }
  const std::int32_t code = memlith_heap_persist(heap);
  if (code != MEMLITH_OK) return library_failure(code, "persisting the heap");
  return {};
}

MaybeFailure open_once(const KvBenchArguments& arguments, const std::string& path, Line& line) {
  MEMLITH_TOOL_TRY(drop_page_cache(path));
  MEMLITH_TOOL_GET(OpenHeap open, open_heap(arguments, path, false));
  void* block = nullptr;
  const std::uint64_t start = now_ns();
  const std::int32_t code = memlith_heap_allocate(open.heap, kFirstBytes, 0, &block);
  const std::uint64_t end = now_ns();
  if (code != MEMLITH_OK) return library_failure(code, "allocating a block");
  Repetition& one = line.repetitions.emplace_back();
  one.samples_ns.push_back(open.heap_ns);
  one.count_samples();
  one.more["store_open_ms"] = seconds_of(open.store_ns) * 1000;
  one.more["first_allocate_us"] = seconds_of(end - start) * 1e6;
  return close_store(std::move(open.store));  // that block was not persisted
}

MaybeFailure verify(const KvBenchArguments& arguments, const std::string& path, std::uint64_t& blocks) {
  MEMLITH_TOOL_GET(OpenHeap open, open_heap(arguments, path, false));
  memlith_heap_report report{};
  report.struct_size = sizeof report;
  const std::int32_t code = memlith_heap_verify(open.heap, &report);
  if (code != MEMLITH_OK) return library_failure(code, "verifying the heap");
  blocks = report.blocks;
  return close_store(std::move(open.store));
}

}  // namespace

MaybeFailure run_open(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  MEMLITH_TOOL_TRY(require_space(scratch.path(), arguments.heap_mib * kMiB + kStoreSlackBytes));
  if (largest_of(arguments) * arguments.blocks < arguments.blocks * 2 * kSmallest) {
    return tool_failure(MEMLITH_INVALID, "a heap of that number of blocks is larger");
  }
  print_heading(arguments.format, arguments.folder,
                fmt::format("a heap of {} MiB with {} blocks of {} to {} bytes, page cache cold", arguments.heap_mib,
                            arguments.blocks, kSmallest, largest_of(arguments)));
  const std::string path = scratch.path_of("store");
  MEMLITH_TOOL_TRY(in_a_killed_process([&]() -> MaybeFailure {
    MEMLITH_TOOL_GET(OpenHeap open, open_heap(arguments, path, true));
    if (MaybeFailure failed = churn(arguments, open.heap, arguments.blocks)) return failed;
    return close_store(std::move(open.store));
  }));
  const auto crash = [&]() -> MaybeFailure {
    MEMLITH_TOOL_GET(OpenHeap open, open_heap(arguments, path, false));
    return churn(arguments, open.heap, arguments.blocks / kChangedOneIn);
  };
  for (const bool crashed : {false, true}) {
    Line line;
    line.suite = "open";
    line.side = "memlith";
    line.version = memlith_version();
    line.workload = crashed ? "after a crash" : "after a clean close";
    line.durability = "sync";
    line.does = "opens the heap; the log was replayed when its store was opened";
    for (std::uint64_t i = 0; i < arguments.repetitions; ++i) {
      if (interrupted()) return interrupted_failure();
      if (crashed) MEMLITH_TOOL_TRY(in_a_killed_process(crash));
      MEMLITH_TOOL_TRY(open_once(arguments, path, line));
    }
    const std::uint64_t added = crashed ? arguments.repetitions * (arguments.blocks / kChangedOneIn) : 0;
    std::uint64_t blocks = 0;
    MEMLITH_TOOL_TRY(verify(arguments, path, blocks));
    if (blocks != arguments.blocks + added) {
      return tool_failure(MEMLITH_CORRUPT,
                          fmt::format("the heap has {} blocks, not {}", blocks, arguments.blocks + added));
    }
    line.found = {{"heap_mib", arguments.heap_mib}, {"blocks", blocks}};
    print_lines(arguments.format, crashed ? "" : "opening", {line}, "memlith");
  }
  return {};
}

}  // namespace memlith::tool
