// Suite allocate: allocation alone, beside malloc, Boost.Interprocess and pmemobj, on the same random sizes.
//
// Speed: blocks of random sizes come and go at random, in turns of a few hundred operations of each side. Metadata:
// all memory of the allocator is compared before and after single operations; what differs are bytes that a log would
// have to hold. Space: a longer trace, after which the bytes that are kept from everyone else are set against the
// bytes that were asked for and not freed.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "allocators/allocators.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/random.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
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
  // Counts what differs from the copy, and copies the memory as it is now.
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
  MEMLITH_TOOL_GET(auto made, kind.open(folder, bytes));
  return Opened{kind, std::move(made)};
}

Failure no_room(const AllocatorKind& kind) {
  return tool_failure(MEMLITH_NO_SPACE, fmt::format("{} has no room for another block", kind.name));
}

std::vector<AllocatorKind> wanted_kinds(const KvBenchArguments& arguments) {
  std::vector<AllocatorKind> kinds = allocator_kinds();
  std::erase_if(kinds, [&](const AllocatorKind& kind) { return !arguments.wants(kind.name); });
  return kinds;
}

Line allocate_line(const char* suite, const AllocatorKind& kind, const std::string& workload) {
  Line line;
  line.suite = suite;
  line.side = kind.name;
  line.version = kind.version;
  line.workload = workload;
  line.durability = kind.name == "pmemobj" ? "at return" : "none";
  line.does = kind.text;
  return line;
}

// ---- metadata --------------------------------------------------------------------------------------------------

MaybeFailure count_metadata(const AllocatorKind& kind, const Sizes& sizes, const ScratchFolder& scratch,
                            std::uint64_t count, Json& result) {
  MEMLITH_TOOL_GET(const Opened opened, open_allocator(kind, scratch, kMetadataBytesMax));
  Churn churn(*opened.allocator, sizes, sizes.metadata_slots, kSeed);
  if (!churn.steps(sizes.metadata_slots * 4)) return no_room(kind);
  std::vector<std::uint64_t> samples[2];
  std::uint64_t pages = 0;
  for (auto& each : samples) each.reserve(count);
  Shadow shadow(opened.allocator->memory());
  MEMLITH_TOOL_TRY(shadow.make());
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
  MEMLITH_TOOL_GET(const Opened opened, open_allocator(kind, scratch, live_bytes * 4 + kTraceSlackBytes));
  TestedAllocator& allocator = *opened.allocator;
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

// The allocators that take part, and what goes on in each of them: a churn for each thread.
struct Crews {
  std::vector<Opened> opened;
  std::vector<std::vector<std::unique_ptr<Churn>>> churns;
  std::vector<Side> sides;

  // A round is a batch of operations; its time is the mean of them.
  [[nodiscard]] MaybeFailure open(const KvBenchArguments& arguments, const Sizes& sizes, const ScratchFolder& scratch,
                                  std::uint64_t threads, bool warm) {
    for (const AllocatorKind& kind : wanted_kinds(arguments)) {
      MEMLITH_TOOL_GET(Opened one, open_allocator(kind, scratch, kSpeedBytesMax));
      std::vector<std::unique_ptr<Churn>>& crew = churns.emplace_back();
      for (std::uint64_t thread = 0; thread < threads; ++thread) {
        crew.push_back(std::make_unique<Churn>(*one.allocator, sizes, sizes.slots, kSeed + thread));
      }
      opened.push_back(std::move(one));
    }
    sides.resize(churns.size());
    for (std::size_t i = 0; i < sides.size(); ++i) {
      sides[i].round = [this, i, warm](std::size_t thread, std::uint64_t& elapsed_ns) -> MaybeFailure {
        Churn& churn = *churns[i][thread];
        if (warm && !churn.steps(kBatch)) return no_room(opened[i].kind);  // the caches are the side's own again
        const std::uint64_t start = now_ns();
        const bool room = churn.steps(kBatch);
        elapsed_ns = (now_ns() - start) / kBatch;
        return room ? MaybeFailure() : no_room(opened[i].kind);
      };
    }
    return {};
  }
};

MaybeFailure measure_speed(const KvBenchArguments& arguments, const Sizes& sizes, const ScratchFolder& scratch,
                           std::vector<Line>& lines) {
  Crews crews;
  MEMLITH_TOOL_TRY(crews.open(arguments, sizes, scratch, 1, true));
  for (std::size_t i = 0; i < crews.churns.size(); ++i) {
    if (!crews.churns[i].front()->steps(sizes.slots * 4)) return no_room(crews.opened[i].kind);
  }
  Random order(kSeed);
  MEMLITH_TOOL_TRY(measure_in_turns(crews.sides, {.rounds_min = arguments.rounds, .order_of_sides = &order}));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].repetitions.push_back({std::move(crews.sides[i].samples_ns)});
    lines[i].repetitions.back().count_samples();
  }
  return {};
}

}  // namespace

MaybeFailure run_allocate(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, allocator_names()));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder,
                fmt::format("blocks of random sizes that come and go; a time is the mean of {} operations; "
                            "the trace keeps {} MiB in use",
                            kBatch, arguments.trace_mib));
  const std::uint64_t samples = std::min(arguments.rounds, kMetadataSamplesMax);
  for (const Sizes& sizes : kSizes) {
    std::vector<Line> lines;
    for (const AllocatorKind& kind : wanted_kinds(arguments)) {
      Line& line = lines.emplace_back(allocate_line("allocate", kind, sizes.name));
      MEMLITH_TOOL_TRY(count_metadata(kind, sizes, scratch, samples, line.found));
      MEMLITH_TOOL_TRY(count_space(kind, sizes, scratch, arguments.trace_mib * kMiB, line.found));
    }
    MEMLITH_TOOL_TRY(measure_speed(arguments, sizes, scratch, lines));
    print_lines(arguments.format, fmt::format("allocate, {}", sizes.name), lines, "malloc");
  }
  return {};
}

MaybeFailure measure_allocators_with_threads(const KvBenchArguments& arguments, const ScratchFolder& scratch,
                                             std::uint64_t threads) {
  Crews crews;
  MEMLITH_TOOL_TRY(crews.open(arguments, kSizes[0], scratch, threads, false));
  // The first phases fill the slots, and are not counted.
  const auto phases = static_cast<std::uint64_t>(std::max(1.0, arguments.seconds * 1e9 / kAllocatePhaseNs));
  MEMLITH_TOOL_TRY(measure_in_phases(crews.sides, {threads, 1 + phases / 10, kAllocatePhaseNs}));
  for (Side& side : crews.sides) side.clear();
  MEMLITH_TOOL_TRY(measure_in_phases(crews.sides, {threads, phases, kAllocatePhaseNs}));
  std::vector<Line> lines;
  for (std::size_t i = 0; i < crews.sides.size(); ++i) {
    Line& line = lines.emplace_back(allocate_line("threads", crews.opened[i].kind, "allocate"));
    line.threads = threads;
    line.repetitions.push_back(repetition_of(crews.sides[i], kBatch));
  }
  print_lines(arguments.format, fmt::format("threads, allocate, {} thread{}", threads, threads == 1 ? "" : "s"), lines,
              "malloc");
  return {};
}

}  // namespace memlith::tool
