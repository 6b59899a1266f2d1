// Suite allocate: allocation alone, beside malloc, Boost.Interprocess and pmemobj, on the same random sizes.
//
// Speed: blocks of random sizes come and go at random, in turns of a few hundred operations of each side. Metadata:
// all memory of the allocator is compared before and after single operations; what differs are bytes that a log would
// have to hold. Space: a longer trace, after which the bytes that are kept from everyone else are set against the
// bytes that were asked for and not freed.
#include "allocate_suite.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "allocators.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/measure.hpp"
#include "kit/random.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "kit/workload.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kBatch = 256;  // operations of a turn
constexpr std::uint64_t kAllocatePhaseNs = 20'000'000;
constexpr std::uint64_t kMetadataSamplesMax = 250;
constexpr std::uint64_t kMetadataBytesMax = 32 * kMiB;  // of an allocator whose memory is compared
constexpr std::uint64_t kSpeedBytesMax = 256 * kMiB;
constexpr std::uint64_t kTraceSlackBytes = 128 * kMiB;  // for those that keep chunks for each size
constexpr std::uint64_t kTraceTurns = 5;                // so often everything is replaced
constexpr int kFill = 0xa5;                             // no page of a block is all zeros

struct Sizes {
  const char* name;
  std::uint64_t low;
  std::uint64_t high;
  bool logarithmic;
  std::uint64_t slots;           // blocks in use are half of them
  std::uint64_t metadata_slots;  // where memory is compared

  [[nodiscard]] std::uint64_t draw(Random& random) const {
    if (!logarithmic) return low + random.below(high - low + 1);
    const double share = static_cast<double>(random.below(1 << 20)) / (1 << 20);
    return static_cast<std::uint64_t>(static_cast<double>(low) *
                                      std::pow(static_cast<double>(high) / static_cast<double>(low), share));
  }
};
constexpr Sizes kSizes[] = {{"small, 16 to 256 bytes", 16, 256, false, 20'000, 4000},
                            {"mixed, 16 bytes to 32 KiB", 16, 32 * 1024, true, 4000, 400}};

// Blocks that come and go at random.
class Churn {
 public:
  Churn(TestedAllocator& allocator, const Sizes& sizes, std::uint64_t slots, std::uint64_t seed)
      : allocator_(allocator), sizes_(sizes), slots_(slots), random_(seed) {
    draws_.resize(kDraws);
    for (std::uint64_t& draw : draws_) draw = sizes_.draw(random_);
  }
  ~Churn() {
    for (void* const block : slots_) {
      if (block != nullptr) allocator_.free(block);
    }
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  // Allocates or frees one; the blocks of a program are stored to.
  [[nodiscard]] bool step() {
    void*& slot = slots_[random_.below(slots_.size())];
    if (slot != nullptr) {
      allocator_.free(std::exchange(slot, nullptr));
      return true;
    }
    slot = allocator_.allocate(draws_[next_++ % kDraws]);
    if (slot == nullptr) return false;
    std::memset(slot, kFill, sizeof(std::uint64_t));
    return true;
  }
  [[nodiscard]] bool steps(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!step()) return false;
    }
    return true;
  }
  // As step(), with `before` and `after` around the call of the allocator; says which call it was.
  template <class Before, class After>
  [[nodiscard]] bool watched_step(const Before& before, const After& after) {
    void*& slot = slots_[random_.below(slots_.size())];
    const std::uint64_t bytes = draws_[next_++ % kDraws];
    const bool frees = slot != nullptr;
    before();
    if (frees) {
      allocator_.free(slot);
    } else {
      slot = allocator_.allocate(bytes);
    }
    after(frees);
    if (frees) return slot = nullptr, true;
    if (slot == nullptr) return false;
    std::memset(slot, kFill, bytes);
    return true;
  }

 private:
  static constexpr std::size_t kDraws = 1 << 14;
  TestedAllocator& allocator_;
  const Sizes& sizes_;
  std::vector<void*> slots_;
  Random random_;
  std::vector<std::uint64_t> draws_;  // drawn beforehand, so that drawing is not timed
  std::size_t next_ = 0;
};

// A copy of an allocator's memory that is none of the allocator's.
class Shadow {
 public:
  explicit Shadow(std::vector<std::span<const std::byte>> memory) : memory_(std::move(memory)) {
    for (const auto& part : memory_) bytes_ += part.size();
  }
  ~Shadow() {
    if (copy_ != nullptr) ::munmap(copy_, bytes_);
  }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  [[nodiscard]] MaybeFailure make() {
    void* const copy = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return errno_failure(errno, "mapping memory");
    copy_ = static_cast<std::byte*>(copy);
    (void)compare();
    return {};
  }
  struct Difference {
    std::uint64_t bytes = 0;
    std::uint64_t pages = 0;
  };
  // What differs from the copy, which is as the memory is now from here on.
  Difference compare() {
    Difference found;
    std::byte* copy = copy_;
    for (const auto& part : memory_) {
      for (std::size_t at = 0; at < part.size(); at += kPageBytes, copy += kPageBytes) {
        const std::byte* const page = part.data() + at;
        if (std::memcmp(page, copy, kPageBytes) == 0) continue;
        ++found.pages;
        for (std::size_t i = 0; i < kPageBytes; ++i) found.bytes += page[i] != copy[i] ? 1u : 0u;
        std::memcpy(copy, page, kPageBytes);
      }
    }
    return found;
  }

 private:
  std::vector<std::span<const std::byte>> memory_;
  std::uint64_t bytes_ = 0;
  std::byte* copy_ = nullptr;
};

struct Opened {
  AllocatorKind kind;
  std::unique_ptr<TestedAllocator> allocator;
};

Result<Opened> open_allocator(const AllocatorKind& kind, const ScratchFolder& scratch, std::uint64_t bytes) {
  scratch.remove(kind.name);
  const std::string folder = scratch.path_of(kind.name);
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return errno_failure(error.value(), "making a folder");
  Result<std::unique_ptr<TestedAllocator>> made = kind.open(folder, bytes);
  if (!made.ok()) return std::move(made.failure());
  return Opened{kind, std::move(*made)};
}

Failure no_room(const AllocatorKind& kind) {
  return tool_failure(MEMLITH_NO_SPACE, fmt::format("{} has no room for another block", kind.name));
}

std::vector<AllocatorKind> wanted_kinds(const HeapBenchArguments& arguments) {
  std::vector<AllocatorKind> kinds = allocator_kinds();
  std::erase_if(kinds, [&](const AllocatorKind& kind) { return !arguments.wants(kind.name); });
  return kinds;
}

HeapLine allocate_line(const char* suite, const AllocatorKind& kind, const std::string& workload) {
  HeapLine line;
  line.suite = suite;
  line.side = kind.name;
  line.version = kind.version;
  line.workload = workload;
  line.durability = kind.name == "pmemobj" ? "at return" : "none";
  line.done = kind.text;
  return line;
}

// ---- metadata --------------------------------------------------------------------------------------------------

MaybeFailure count_metadata(const AllocatorKind& kind, const Sizes& sizes, const ScratchFolder& scratch,
                            std::uint64_t count, Json& result) {
  Result<Opened> opened = open_allocator(kind, scratch, kMetadataBytesMax);
  if (!opened.ok()) return std::move(opened.failure());
  Churn churn(*opened->allocator, sizes, sizes.metadata_slots, kSeed);
  if (!churn.steps(sizes.metadata_slots * 4)) return no_room(kind);
  std::vector<std::uint64_t> samples[2];
  std::uint64_t pages = 0;
  for (auto& each : samples) each.reserve(count);
  Shadow shadow(opened->allocator->memory());
  if (MaybeFailure failure = shadow.make()) return failure;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (interrupted()) return interrupted_failure();
    const bool room = churn.watched_step([&] { (void)shadow.compare(); },
                                         [&](bool frees) {
                                           const Shadow::Difference found = shadow.compare();
                                           samples[frees ? 1 : 0].push_back(found.bytes);
                                           pages += found.pages;
                                         });
    if (!room) return no_room(kind);
  }
  std::vector<std::uint64_t> all = samples[0];
  all.insert(all.end(), samples[1].begin(), samples[1].end());
  std::sort(all.begin(), all.end());
  result["metadata_bytes_per_op"] = nearest_rank(all, 0.5);
  result["metadata_bytes_p99"] = nearest_rank(all, 0.99);
  result["metadata_bytes_allocate"] = median_of(samples[0]);
  result["metadata_bytes_free"] = median_of(samples[1]);
  result["metadata_pages_per_op"] = rounded(static_cast<double>(pages) / static_cast<double>(all.size()));
  return {};
}

// ---- space -----------------------------------------------------------------------------------------------------

MaybeFailure count_space(const AllocatorKind& kind, const Sizes& sizes, const ScratchFolder& scratch,
                         std::uint64_t live_bytes, Json& result) {
  Result<Opened> opened = open_allocator(kind, scratch, live_bytes * 4 + kTraceSlackBytes);
  if (!opened.ok()) return std::move(opened.failure());
  TestedAllocator& allocator = *opened->allocator;
  struct Block {
    void* address;
    std::uint64_t bytes;
  };
  std::vector<Block> blocks;
  blocks.reserve(live_bytes / sizes.low);
  const std::uint64_t others = allocator.others_bytes();
  Random random(kSeed);
  std::uint64_t asked = 0;
  for (std::uint64_t allocated = 0; allocated < live_bytes * kTraceTurns || asked < live_bytes;) {
    if (asked >= live_bytes) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      allocator.free(blocks.back().address);
      asked -= blocks.back().bytes;
      blocks.pop_back();
      continue;
    }
    if (interrupted()) return interrupted_failure();
    const std::uint64_t bytes = sizes.draw(random);
    void* const block = allocator.allocate(bytes);
    if (block == nullptr) return no_room(kind);
    std::memset(block, kFill, bytes);
    blocks.push_back({block, bytes});
    asked += bytes;
    allocated += bytes;
  }
  result["space_ratio"] =
      rounded(ratio_of(static_cast<double>(allocator.footprint_bytes() - others), static_cast<double>(asked)));
  for (const Block& block : blocks) allocator.free(block.address);
  return {};
}

// ---- speed -----------------------------------------------------------------------------------------------------

MaybeFailure measure_speed(const HeapBenchArguments& arguments, const Sizes& sizes, const ScratchFolder& scratch,
                           std::vector<HeapLine>& lines) {
  std::vector<Opened> opened;
  std::vector<std::unique_ptr<Churn>> churns;
  for (const AllocatorKind& kind : wanted_kinds(arguments)) {
    Result<Opened> one = open_allocator(kind, scratch, kSpeedBytesMax);
    if (!one.ok()) return std::move(one.failure());
    opened.push_back(std::move(*one));
    churns.push_back(std::make_unique<Churn>(*opened.back().allocator, sizes, sizes.slots, kSeed));
    if (!churns.back()->steps(sizes.slots * 4)) return no_room(kind);
  }
  std::vector<std::size_t> order(churns.size());
  std::iota(order.begin(), order.end(), 0);
  Random random(kSeed);
  for (std::uint64_t turn = 0; turn < arguments.rounds; ++turn) {
    if (interrupted()) return interrupted_failure();
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::size_t side : order) {
      if (!churns[side]->steps(kBatch)) return no_room(opened[side].kind);  // the caches are the side's own again
      const std::uint64_t start = now_ns();
      const bool room = churns[side]->steps(kBatch);
      lines[side].samples_ns.push_back((now_ns() - start) / kBatch);
      if (!room) return no_room(opened[side].kind);
    }
  }
  for (HeapLine& line : lines) {
    const double sum_ns = std::accumulate(line.samples_ns.begin(), line.samples_ns.end(), 0.0);
    line.ops_per_s = ratio_of(static_cast<double>(line.samples_ns.size()) * 1e9, sum_ns);
  }
  return {};
}

}  // namespace

std::vector<std::string> allocator_names() {
  std::vector<std::string> names;
  for (const AllocatorKind& kind : allocator_kinds()) names.push_back(kind.name);
  return names;
}

MaybeFailure run_heap_allocate(const HeapBenchArguments& arguments) {
  if (MaybeFailure failure = check_sides(arguments, allocator_names())) return failure;
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  print_heading(arguments, fmt::format("blocks of random sizes that come and go; a time is the mean of {} operations; "
                                       "the trace keeps {} MiB in use",
                                       kBatch, arguments.trace_mib));
  for (const Sizes& sizes : kSizes) {
    std::vector<HeapLine> lines;
    for (const AllocatorKind& kind : wanted_kinds(arguments)) {
      lines.push_back(allocate_line("allocate", kind, sizes.name));
      if (auto failure =
              count_metadata(kind, sizes, *scratch, std::min(arguments.rounds, kMetadataSamplesMax), lines.back().more))
        return failure;
      if (auto failure = count_space(kind, sizes, *scratch, arguments.trace_mib * kMiB, lines.back().more)) {
        return failure;
      }
    }
    if (MaybeFailure failure = measure_speed(arguments, sizes, *scratch, lines)) return failure;
    print_lines(arguments.format, "malloc", lines);
  }
  return {};
}

MaybeFailure measure_allocators_with_threads(const HeapBenchArguments& arguments, const ScratchFolder& scratch,
                                             std::uint64_t threads) {
  const Sizes& sizes = kSizes[0];
  std::vector<Opened> opened;
  std::vector<std::vector<std::unique_ptr<Churn>>> churns;
  std::vector<HeapLine> lines;
  for (const AllocatorKind& kind : wanted_kinds(arguments)) {
    Result<Opened> one = open_allocator(kind, scratch, kSpeedBytesMax);
    if (!one.ok()) return std::move(one.failure());
    opened.push_back(std::move(*one));
    churns.emplace_back();
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      churns.back().push_back(std::make_unique<Churn>(*opened.back().allocator, sizes, sizes.slots, kSeed + thread));
    }
    lines.push_back(allocate_line("threads", kind, "allocate"));
    lines.back().threads = threads;
  }
  std::vector<Side> sides(churns.size());
  for (std::size_t side = 0; side < sides.size(); ++side) {
    sides[side].round = [&crew = churns[side], &kind = opened[side].kind](std::size_t thread,
                                                                          std::uint64_t& elapsed_ns) -> MaybeFailure {
      const std::uint64_t start = now_ns();
      const bool room = crew[thread]->steps(kBatch);
      elapsed_ns = (now_ns() - start) / kBatch;
      return room ? MaybeFailure() : no_room(kind);
    };
  }
  // The first phases fill the slots, and are not counted.
  const auto phases = static_cast<std::uint64_t>(std::max(1.0, arguments.seconds * 1e9 / kAllocatePhaseNs));
  if (MaybeFailure failure = measure_in_phases(sides, {threads, 1 + phases / 10, kAllocatePhaseNs})) return failure;
  for (Side& side : sides) side.clear();
  if (MaybeFailure failure = measure_in_phases(sides, {threads, phases, kAllocatePhaseNs})) return failure;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    lines[side].samples_ns = std::move(sides[side].samples_ns);
    lines[side].ops_per_s =
        ratio_of(static_cast<double>(lines[side].samples_ns.size() * kBatch), seconds_of(sides[side].wall_ns));
  }
  print_lines(arguments.format, "malloc", lines);
  return {};
}

}  // namespace memlith::tool
