// memlith bench protect: ways to protect the pages of memory again after a persist, so that the next store to each is
// noticed. A round stores to random pages, each a fault, and protects again: the stored pages alone, or all pages.
//
// No file is written, and memlith is not called: its `fault` tracker does what "uffd, each" does, `scan` what "scan"
// does. The faults of mprotect and of "uffd" reach a signal handler, which makes the page writable.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "commands.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"
#include "peers/page_marks.hpp"
#include "peers/page_stores.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kWarmUpRounds = 5;

enum class Means : std::uint8_t { mprotect, handler, kernel, scan };
enum class Again : std::uint8_t { all, each };

struct Way {
  std::string_view name;
  Means means;
  Again again;
};
constexpr std::array kWays{Way{"mprotect, all", Means::mprotect, Again::all},
                           Way{"mprotect, each", Means::mprotect, Again::each},
                           Way{"uffd, all", Means::handler, Again::all},
                           Way{"uffd, each", Means::handler, Again::each},
                           Way{"uffd async, all", Means::kernel, Again::all},
                           Way{"uffd async, each", Means::kernel, Again::each},
                           Way{"scan", Means::scan, Again::all}};

// For the signal handler, which runs in the thread that stores.
struct Faulting {
  std::span<std::byte> memory;
  const PageMarks* marks;  // null: mprotect
};
Faulting g_faulting{};
volatile std::uint64_t g_faults = 0;

// SIGNAL CONTEXT. A fault elsewhere strikes again without a handler.
void make_page_writable(int signal, siginfo_t* info, void*) {
  const auto begin = reinterpret_cast<std::uintptr_t>(g_faulting.memory.data());
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::uint64_t page_bytes = kernel_page_bytes();
  bool made = false;
  if (at >= begin && at < begin + g_faulting.memory.size()) {
    std::byte* const page = g_faulting.memory.data() + (at - begin) / page_bytes * page_bytes;
    made = g_faulting.marks != nullptr ? g_faulting.marks->protect(page, page_bytes, false)
                                       : ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) == 0;
  }
  g_faults = g_faults + 1;
  if (!made) (void)::signal(signal, SIG_DFL);
}

class FaultHandler {
 public:
  explicit FaultHandler(const Faulting& faulting) {
    g_faulting = faulting;
    struct sigaction action{};
    action.sa_sigaction = make_page_writable;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &segv_);
    ::sigaction(SIGBUS, &action, &bus_);
  }
  ~FaultHandler() {
    ::sigaction(SIGSEGV, &segv_, nullptr);
    ::sigaction(SIGBUS, &bus_, nullptr);
  }
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;

 private:
  struct sigaction segv_{};
  struct sigaction bus_{};
};

struct ProtectTimes {
  std::vector<std::uint64_t> protect_ns;  // of a round
  std::vector<std::uint64_t> store_ns;    // of a page
  std::vector<std::uint64_t> together_ns;
};

// One way, over all of the memory. One thread.
class Protection {
 public:
  Protection(const Way& way, const SmallPages& memory, const PageMarks* marks)
      : way_(way),
        memory_(memory.span()),
        marks_(marks),
        handler_({memory.span(), marks}),
        random_(kSeed),
        pages_(memory.span().size() / kernel_page_bytes(), PageOrder::random) {}
  ~Protection() { (void)::mprotect(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE); }
  Protection(const Protection&) = delete;
  Protection& operator=(const Protection&) = delete;

  MaybeFailure protect_all() { return protect({}, Again::all); }

  MaybeFailure round(std::uint64_t pages, ProtectTimes& times) {
    const std::uint64_t faults = faults_so_far();
    const std::span<const std::uint32_t> chosen = pages_.choose(random_, pages);
    std::uint64_t stored_ns = 0;
    for (const std::uint64_t page : chosen) {
      const std::uint64_t start = now_ns();
      // The page's fault is here.
      *reinterpret_cast<volatile std::uint64_t*>(memory_.data() + page * kernel_page_bytes()) = start;
      times.store_ns.push_back(now_ns() - start);
      stored_ns += times.store_ns.back();
    }
    if (faults_so_far() < faults + pages) {
      return tool_failure(MEMLITH_UNSUPPORTED, fmt::format("{}: not every store to a page was a fault", way_.name));
    }
    const std::uint64_t start = now_ns();
    if (MaybeFailure failure = protect(chosen, way_.again)) return failure;
    times.protect_ns.push_back(now_ns() - start);
    times.together_ns.push_back(stored_ns + times.protect_ns.back());
    return {};
  }

 private:
  // The kernel counts only those that it resolves.
  [[nodiscard]] std::uint64_t faults_so_far() const {
    if (way_.means == Means::mprotect || way_.means == Means::handler) return g_faults;
    rusage usage{};
    (void)::getrusage(RUSAGE_THREAD, &usage);
    return static_cast<std::uint64_t>(usage.ru_minflt);
  }
  MaybeFailure protect(std::span<const std::uint32_t> pages, Again again) {
    if (way_.means == Means::scan) {
      written_.clear();
      return marks_->take_written(written_);
    }
    bool done = true;
    if (again == Again::all) done = protect_range(0, memory_.size());
    for (const std::uint64_t page : pages) {
      if (again == Again::each) done = protect_range(page * kernel_page_bytes(), kernel_page_bytes()) && done;
    }
    return done ? MaybeFailure{} : errno_failure(errno, fmt::format("protecting pages by {}", way_.name));
  }
  [[nodiscard]] bool protect_range(std::uint64_t offset, std::uint64_t bytes) const {
    std::byte* const begin = memory_.data() + offset;
    return marks_ != nullptr ? marks_->protect(begin, bytes, true) : ::mprotect(begin, bytes, PROT_READ) == 0;
  }

  const Way& way_;
  std::span<std::byte> memory_;
  const PageMarks* marks_;
  FaultHandler handler_;
  Random random_;
  ChosenPages pages_;
  std::vector<PageMarks::Range> written_;
};

void write_protect_line(const Way& way, std::uint64_t pages, const BenchProtectArguments& arguments,
                        const ProtectTimes& times) {
  const Percentiles protect = percentiles_of(times.protect_ns);
  const Percentiles store = percentiles_of(times.store_ns);
  const Percentiles together = percentiles_of(times.together_ns);
  if (arguments.format == Format::json) {
    write_json({{"bench", "protect"},
                {"side", way.name},
                {"pages", pages},
                {"region_mib", arguments.region_mib},
                {"rounds", times.protect_ns.size()},
                {"protect_p50_us", rounded(protect.p50_us)},
                {"protect_p99_us", rounded(protect.p99_us)},
                {"store_p50_us", rounded(store.p50_us)},
                {"store_p99_us", rounded(store.p99_us)},
                {"together_p50_us", rounded(together.p50_us)},
                {"together_p99_us", rounded(together.p99_us)},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::format("{:<16} {:>6} {:>11.1f} {:>11.1f} {:>9.2f} {:>9.2f} {:>12.1f} {:>7}", way.name, pages,
                         protect.p50_us, protect.p99_us, store.p50_us, store.p99_us, together.p50_us,
                         times.protect_ns.size()));
}

void write_protect_heading(const BenchProtectArguments& arguments) {
  write_line(fmt::format("kernel {}, {}; {} MiB of private memory in small pages, random pages stored to, one thread",
                         kernel_release(), utc_now(), arguments.region_mib));
  write_line("# all: one call for all of the memory; each: a call for each page that was stored to");
  write_line("# mprotect, uffd: a signal handler makes the page writable; uffd async, scan: the kernel does");
  write_line("# scan: PAGEMAP_SCAN finds the pages that were stored to and protects them");
  write_line(fmt::format("{:<16} {:>6} {:>11} {:>11} {:>9} {:>9} {:>12} {:>7}", "way", "pages", "protect p50",
                         "protect p99", "store p50", "store p99", "together p50", "rounds"));
}

MaybeFailure measure_way(const Way& way, const SmallPages& memory, const BenchProtectArguments& arguments) {
  std::optional<PageMarks> marks;
  if (way.means != Means::mprotect) {
    Result<PageMarks> made =
        PageMarks::over(memory.span(), way.means == Means::handler ? MarkedBy::handler : MarkedBy::kernel);
    if (!made.ok() && made.failure().code == MEMLITH_UNSUPPORTED) {
      fmt::print(stderr, "# {} is left out: {}\n", way.name, made.failure().message);
      return {};
    }
    if (!made.ok()) return std::move(made.failure());
    marks.emplace(std::move(*made));
  }
  Protection protection(way, memory, marks ? &*marks : nullptr);
  if (MaybeFailure failure = protection.protect_all()) return failure;
  for (const std::uint64_t pages : arguments.pages) {
    ProtectTimes times;
    for (std::uint64_t round = 0; round < arguments.rounds + kWarmUpRounds; ++round) {
      if (round == kWarmUpRounds) times = {};
      if (interrupted()) return interrupted_failure();
      if (MaybeFailure failure = protection.round(pages, times)) return failure;
    }
    write_protect_line(way, pages, arguments, times);
  }
  return {};
}

}  // namespace

MaybeFailure run_bench_protect(const BenchProtectArguments& arguments) {
  const std::uint64_t pages_max = *std::max_element(arguments.pages.begin(), arguments.pages.end());
  const std::uint64_t memory_pages = arguments.region_mib * kMiB / kernel_page_bytes();
  if (pages_max > memory_pages) {
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("{} distinct pages do not fit {} MiB, {} pages", pages_max, arguments.region_mib,
                                    memory_pages),
                        "Lower --pages or raise --region-mib.");
  }
  catch_interrupts();
  Result<SmallPages> memory = SmallPages::make(arguments.region_mib * kMiB);
  if (!memory.ok()) return std::move(memory.failure());
  if (arguments.format == Format::text) write_protect_heading(arguments);
  for (const Way& way : kWays) {
    if (MaybeFailure failure = measure_way(way, *memory, arguments)) return failure;
  }
  return {};
}

}  // namespace memlith::tool
