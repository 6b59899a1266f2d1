// memlith bench recovery: how fast opening recovers a store whose user died, against writing as many bytes in sequence.
//
// A forked child fills the log and leaves with _exit(), so that nothing is closed. Before each timed open the store's
// files are dropped from the page cache, as a restart of the machine would. A recovery counts only if it replayed
// frames and brought the region back to the child's last persist: a checksum of the whole region says so.
// The region is written once all over beforehand, as the raw file is: both sides write to blocks that exist.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/io_names.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kPagesPerPersist = 64;
constexpr std::uint64_t kLogLimitBytes = kGiB;
constexpr std::uint64_t kRecoveries = 3;
constexpr std::uint64_t kLapsMax = 3;
constexpr char kRegionName[] = "bench";
constexpr std::string_view kStoreName = "store";
constexpr double kMegabyte = 1e6;

struct StoreShape {
  std::uint64_t log_bytes = 0;
  std::uint64_t region_bytes = 0;
  std::uint32_t io = MEMLITH_IO_AUTO;  // of the recovery
};

// The child's report to the parent, in memory that both share.
struct ChildReport {
  std::uint64_t log_used_bytes;
  std::uint64_t region_checksum;
  std::int32_t code;  // of the failure below
  char category[64];
  char message[1024];  // empty: it did all it should
};

void put(char* target, std::size_t target_bytes, const std::string& text) {
  const std::size_t count = std::min(text.size(), target_bytes - 1);
  std::memcpy(target, text.data(), count);
  target[count] = '\0';
}

// A checksum that notices any one word that differs; speed matters more than strength.
std::uint64_t checksum_of(memlith_region* region) {
  const auto* const bytes = static_cast<const std::byte*>(memlith_region_address(region));
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < memlith_region_size(region); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

Result<memlith_region*> open_region(memlith_store* store, std::uint64_t region_bytes) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.tracker = MEMLITH_TRACKER_EXPLICIT;
  options.size = region_bytes;
  memlith_region* region = nullptr;
  const std::int32_t code = memlith_region_open(store, kRegionName, &options, &region);
  if (code != MEMLITH_OK) return library_failure(code, "opening the region");
  return region;
}

// ---- the child -------------------------------------------------------------------------------------------------

// Persists until about 90 % of the log are in use. In manual mode nothing checkpoints before the log is full, but a log
// counts in segments, and a segment is given back as a whole: one that begins in the middle of a segment, as after a
// checkpoint, is full up to a segment earlier. Then the next lap stops short of what this one reached. Each lap but the
// first begins where the one before found no room, at the end of a segment, so it reaches as far but for one persist.
Result<memlith_store_info> fill_log(memlith_store* store, Workload& workload) {
  Result<memlith_store_info> info = info_of(store);
  if (!info.ok()) return info;
  std::uint64_t goal_bytes = info->log_bytes / 10 * 9;
  std::uint64_t persist_bytes = 0;
  for (std::uint64_t laps = 0; laps < kLapsMax;) {
    if (interrupted()) return interrupted_failure();
    const std::uint64_t used_before = info->log_used_bytes;
    std::uint64_t ignored_ns = 0;
    if (MaybeFailure failure = workload.round(ignored_ns)) return *failure;
    info = info_of(store);
    if (!info.ok()) return info;
    if (info->log_used_bytes > used_before) {
      persist_bytes = info->log_used_bytes - used_before;
      if (info->log_used_bytes + persist_bytes > goal_bytes) return info;
    } else {
      goal_bytes = used_before - std::min(used_before, persist_bytes);
      ++laps;
    }
  }
  return tool_failure(MEMLITH_INVALID,
                      fmt::format("a log of {} cannot be filled: {} times a checkpoint ran before {} were in use",
                                  human_bytes(info->log_bytes), kLapsMax, human_bytes(goal_bytes)),
                      "Raise --log-mib.");
}

// Leaves the store open in every case: closing it is what must not happen.
MaybeFailure write_without_closing(const std::string& path, const StoreShape& shape, std::uint64_t repetition,
                                   ChildReport& report) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.log_bytes = shape.log_bytes;
  options.log_max_bytes = std::max(kLogLimitBytes, shape.log_bytes);
  options.manual_checkpoint = 1;
  memlith_store* store = nullptr;
  const std::int32_t opened = memlith_store_open(path.c_str(), &options, &store);
  if (opened != MEMLITH_OK) return library_failure(opened, {});
  Result<memlith_region*> region = open_region(store, shape.region_bytes);
  if (!region.ok()) return std::move(region.failure());

  RoundShape round;
  round.pages = kPagesPerPersist;
  Workload workload(store, *region, round, repetition);
  if (repetition == 0) {
    if (MaybeFailure failure = workload.fill()) return failure;
  }
  const std::int32_t checkpointed = memlith_store_checkpoint(store);
  if (checkpointed != MEMLITH_OK) return library_failure(checkpointed, "checkpointing");
  Result<memlith_store_info> info = fill_log(store, workload);
  if (!info.ok()) return std::move(info.failure());
  report.log_used_bytes = info->log_used_bytes;
  report.region_checksum = checksum_of(*region);
  return {};
}

[[noreturn]] void run_child(const std::string& path, const StoreShape& shape, std::uint64_t repetition,
                            ChildReport& report) noexcept {
  const MaybeFailure failure = write_without_closing(path, shape, repetition, report);
  if (failure) {
    report.code = failure->code;
    put(report.category, sizeof report.category, failure->category);
    put(report.message, sizeof report.message, failure->message);
  }
  ::_exit(failure ? failure->exit_code : 0);  // no destructor of ours, no exit handler of the library's
}

// ---- the parent ------------------------------------------------------------------------------------------------

class SharedReport {
 public:
  SharedReport()
      : memory_(::mmap(nullptr, sizeof(ChildReport), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  ~SharedReport() {
    if (ok()) ::munmap(memory_, sizeof(ChildReport));
  }
  [[nodiscard]] bool ok() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] ChildReport& operator*() const { return *static_cast<ChildReport*>(memory_); }

 private:
  void* memory_;
};

// Lets a child leave a store behind that was not closed, with its log about 90 % full.
Result<ChildReport> leave_a_store_open(const std::string& path, const StoreShape& shape, std::uint64_t repetition) {
  const SharedReport report;
  if (!report.ok()) return errno_failure(errno, "no memory to share with a child");
  std::fflush(nullptr);  // or the child would have what is buffered, too
  const pid_t child = ::fork();
  if (child < 0) return errno_failure(errno, "cannot start a child process");
  if (child == 0) run_child(path, shape, repetition, *report);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno_failure(errno, "cannot wait for the child process");
  }
  if (interrupted()) return interrupted_failure();
  if (!WIFEXITED(status)) {
    return tool_failure(MEMLITH_IO, fmt::format("the child that fills the log died of signal {}", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    const ChildReport& told = *report;
    return Failure{told.category, told.code, told.message, std::string(advice_for(told.code)), WEXITSTATUS(status)};
  }
  return *report;
}

struct Recovery {
  std::uint64_t log_used_bytes = 0;
  std::uint64_t recovery_ns = 0;
  std::uint64_t write_ns = 0;
  std::uint64_t read_ns = 0;  // 0: not measured
  std::uint64_t replayed_frames = 0;
  std::uint64_t replayed_bytes = 0;
  bool direct_io = false;
};

MaybeFailure time_recovery(const std::string& path, const StoreShape& shape, const ChildReport& left,
                           Recovery& result) {
  if (MaybeFailure failure = drop_page_cache(path)) return failure;
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.manual_checkpoint = 1;
  options.io = shape.io;
  const std::uint64_t start = now_ns();
  Result<StoreHandle> store = open_store({path, StoreKind::folder}, options);
  result.recovery_ns = now_ns() - start;
  if (!store.ok()) return std::move(store.failure());

  Result<memlith_store_info> info = info_of(store->get());
  if (!info.ok()) return std::move(info.failure());
  result.replayed_frames = info->replayed_frames;
  result.replayed_bytes = info->replayed_bytes;
  result.direct_io = info->direct_io != 0;
  if (info->replayed_frames == 0) return tool_failure(MEMLITH_CORRUPT, "the recovery replayed nothing");
  Result<memlith_region*> region = open_region(store->get(), shape.region_bytes);
  if (!region.ok()) return std::move(region.failure());
  if (checksum_of(*region) != left.region_checksum) {
    return tool_failure(MEMLITH_CORRUPT, "the recovered region is not as it was last persisted");
  }
  return close_store(std::move(*store));
}

Result<Recovery> repeat_once(const ScratchFolder& scratch, const RawFile& raw, const HugeBuffer& source,
                             const StoreShape& shape, std::uint64_t repetition) {
  const std::string path = scratch.path_of(kStoreName);
  Result<ChildReport> left = leave_a_store_open(path, shape, repetition);
  if (!left.ok()) return std::move(left.failure());
  Recovery result;
  result.log_used_bytes = left->log_used_bytes;
  // The order changes from one repetition to the next: a disk that gets slower or faster favours neither.
  const bool write_first = repetition % 2 == 1;
  if (write_first) {
    if (MaybeFailure failure = write_sequentially(raw, source, left->log_used_bytes, result.write_ns)) return *failure;
  }
  if (MaybeFailure failure = time_recovery(path, shape, *left, result)) return *failure;
  if (!write_first) {
    if (MaybeFailure failure = write_sequentially(raw, source, left->log_used_bytes, result.write_ns)) return *failure;
  }
  // Reads back the raw side's writes. A cached file would tell of the cache.
  if (raw.direct()) {
    if (MaybeFailure failure = read_sequentially(raw, source, left->log_used_bytes, result.read_ns)) return *failure;
  }
  return result;
}

// ---- results ---------------------------------------------------------------------------------------------------

template <class Value>
auto median_over(const std::vector<Recovery>& repetitions, Value value) {
  std::vector<decltype(value(repetitions.front()))> values;
  for (const Recovery& repetition : repetitions) values.push_back(value(repetition));
  return median_of(std::move(values));
}

double megabytes_per_second(const Recovery& repetition, std::uint64_t ns) {
  return ratio_of(static_cast<double>(repetition.log_used_bytes) / kMegabyte, seconds_of(ns));
}

void report(const BenchRecoveryArguments& arguments, const std::vector<Recovery>& repetitions, bool raw_direct) {
  using R = Recovery;
  const auto log_bytes = median_over(repetitions, [](const R& r) { return r.log_used_bytes; });
  const double recovery_s = median_over(repetitions, [](const R& r) { return seconds_of(r.recovery_ns); });
  const double write_s = median_over(repetitions, [](const R& r) { return seconds_of(r.write_ns); });
  const double recovery = median_over(repetitions, [](const R& r) { return megabytes_per_second(r, r.recovery_ns); });
  const double write = median_over(repetitions, [](const R& r) { return megabytes_per_second(r, r.write_ns); });
  const double read = median_over(repetitions, [](const R& r) { return megabytes_per_second(r, r.read_ns); });
  if (arguments.format == Format::json) {
    write_json({{"log_mib", arguments.log_mib},
                {"region_mib", arguments.region_mib},
                {"io", arguments.io},
                {"log_bytes", log_bytes},
                {"recovery_s", recovery_s},
                {"recovery_mb_per_s", recovery},
                {"write_s", write_s},
                {"write_mb_per_s", write},
                {"read_mb_per_s", read},
                {"ratio", ratio_of(recovery, write)},
                {"ratio_read", ratio_of(recovery, read)},
                {"replayed_frames", median_over(repetitions, [](const R& r) { return r.replayed_frames; })},
                {"replayed_bytes", median_over(repetitions, [](const R& r) { return r.replayed_bytes; })},
                {"repetitions", repetitions.size()},
                {"page_cache", "dropped"},
                {"kernel", kernel_release()},
                {"direct_io", repetitions.front().direct_io},
                {"raw_direct_io", raw_direct},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(
      "compared: memlith_store_open() after a crash with a cold page cache, which reads the log, writes it home");
  write_line(
      "and flushes; and a sequential write of as many bytes as the log held, 1 MiB a write, one flush at the end");
  write_line(fmt::format("medians of {} repetitions, in turn; io {}; MB = 1,000,000 bytes", repetitions.size(),
                         arguments.io));
  if (!raw_direct) write_line("# no direct I/O in this folder: the raw side goes through the page cache");
  const double share = ratio_of(static_cast<double>(log_bytes), static_cast<double>(arguments.log_mib * kMiB));
  write_line(fmt::format("log held   {} bytes, {:.0f} % of {} MiB", log_bytes, share * 100, arguments.log_mib));
  write_line(fmt::format("recovery   {:8.3f} s  {:8.1f} MB/s", recovery_s, recovery));
  write_line(fmt::format("raw write  {:8.3f} s  {:8.1f} MB/s", write_s, write));
  if (raw_direct) write_line(fmt::format("raw read             {:8.1f} MB/s, the minimum of a recovery", read));
  write_line(fmt::format("ratio      {:.2f} (recovery speed over raw write speed)", ratio_of(recovery, write)));
}

}  // namespace

MaybeFailure run_bench_recovery(const BenchRecoveryArguments& arguments) {
  catch_interrupts();
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const StoreShape shape{arguments.log_mib * kMiB, arguments.region_mib * kMiB, io_of(arguments.io)};
  // The log, the raw file, the region, and as much again for what the store needs besides.
  if (MaybeFailure failure = require_space(scratch->path(), 2 * shape.log_bytes + 2 * shape.region_bytes))
    return failure;
  Result<RawFile> raw = RawFile::create(scratch->path_of("raw"), shape.log_bytes);
  if (!raw.ok()) return std::move(raw.failure());
  Result<HugeBuffer> source = HugeBuffer::random(kSequentialBytes);
  if (!source.ok()) return std::move(source.failure());

  std::vector<Recovery> repetitions;
  for (std::uint64_t i = 0; i < kRecoveries; ++i) {
    Result<Recovery> repetition = repeat_once(*scratch, *raw, *source, shape, i);
    if (!repetition.ok()) return std::move(repetition.failure());
    repetitions.push_back(*repetition);
  }
  report(arguments, repetitions, raw->direct());
  return {};
}

}  // namespace memlith::tool
