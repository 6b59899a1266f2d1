// Suite applog: the application log. Entries of several sizes beside the raw disk; several writers; logs of several
// sizes with a kv store that consumes them; bytes to the disk per byte that was appended.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "cli/clock.hpp"
#include "kit/bare_capture.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "kv_bench.hpp"
#include "peers/memlith.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kLogBytes = 64 * kMiB;
constexpr std::uint64_t kBareMib = 16;
constexpr std::uint64_t kRawSeed = 11;
constexpr std::uint64_t kSmallBytes = 100;
constexpr std::uint64_t kCountedBytes = 1024;
constexpr std::uint64_t kRedoLogBytes = 128 * kMiB;  // as a store that is in use has it
constexpr std::int64_t kReadMs = 20;
constexpr std::uint64_t kConsumedRecords = 10'000;  // of the kv store
constexpr std::uint64_t kContentSeed = 7;

// The pages, and the bytes changed in each, that make this number of bytes.
RoundShape shape_of(std::uint64_t bytes) {
  RoundShape shape;
  shape.pages = (bytes + kPageBytes - 1) / kPageBytes;
  shape.bytes_per_page = bytes / shape.pages;
  return shape;
}

// Bytes that this process has sent to disks so far, as the kernel counts them: pages that it has dirtied in the cache,
// and direct transfers. Always 0 where the kernel does not count.
std::uint64_t device_bytes() {
  std::ifstream told("/proc/self/io");
  std::string name;
  for (std::uint64_t bytes = 0; told >> name >> bytes;) {
    if (name == "write_bytes:") return bytes;
  }
  return 0;
}

// The raw disk, one file a thread: a copy of as many bytes and its checksum, then write and flush.
class RawSide {
 public:
  [[nodiscard]] MaybeFailure open(const ScratchFolder& scratch, std::uint64_t bytes, std::size_t threads) {
    const RoundShape shape = shape_of(bytes);
    writers_.reserve(threads);  // the captures keep their addresses
    for (std::size_t i = 0; i < threads; ++i) {
      const std::string path = scratch.path_of(fmt::format("raw{}", i));
      MEMLITH_TOOL_GET(RawWriter writer, RawWriter::create(path, kRawFileBytes, shape.bytes()));
      writers_.push_back(std::move(writer));
      writers_.back().set_round_bytes(shape.bytes());
      MEMLITH_TOOL_GET(auto capture, BareCapture::create(writers_.back(), kBareMib, shape, kRawSeed + i));
      captures_.push_back(std::move(capture));
    }
    return {};
  }
  [[nodiscard]] MaybeFailure round(std::size_t thread, std::uint64_t& elapsed_ns) {
    return captures_[thread].round(elapsed_ns);
  }
  void remove(const ScratchFolder& scratch) const {
    for (std::size_t i = 0; i < writers_.size(); ++i) scratch.remove(fmt::format("raw{}", i));
  }

 private:
  std::vector<RawWriter> writers_;
  std::vector<BareCapture> captures_;
};

// A log in a store of its own; with `consumed`, a thread moves the entries into a kv store.
class LogSide {
 public:
  struct Options {
    std::uint64_t log_bytes = 0;
    std::uint64_t entry_bytes = 0;
    bool consumed = false;
    bool wait = true;      // an entry is durable when its round ends
    bool dropped = false;  // with `consumed`: a thread consumes the entries, and does nothing with them
    std::uint64_t redo_log_bytes = 0;
  };
  explicit LogSide(const Options& options) : options_(options) {}
  ~LogSide() { (void)stop(); }
  LogSide(const LogSide&) = delete;
  LogSide& operator=(const LogSide&) = delete;

  [[nodiscard]] MaybeFailure open(const std::string& folder, const Backend& backend) {
    content_.resize((options_.entry_bytes + 7) / 8 * 8);
    Random(kContentSeed).fill(std::as_writable_bytes(std::span(content_)));
    content_.resize(options_.entry_bytes);
    MEMLITH_TOOL_GET(const std::string place, backend.make_place(folder));
    const StoreOptions store{.create = true, .log_bytes = options_.redo_log_bytes, .io = backend.io};
    if (options_.consumed && !options_.dropped) {
      MEMLITH_TOOL_TRY(opened_.open(place, store));
    } else {
      MEMLITH_TOOL_GET(opened_.store, checked(Store::open(place, store), "opening a store"));
    }
    const AppLogOptions log{
        .create = true, .when_full = options_.consumed ? WhenFull::block : WhenFull::fail, .size = options_.log_bytes};
    MEMLITH_TOOL_GET(log_, checked(AppLog::open(*opened_.store, "log", log), "opening a log"));
    if (options_.dropped) {
      dropper_ = std::thread([this] { drop_all(); });
    } else if (options_.consumed) {
      mover_.start(*opened_.store, *log_, *opened_.kv, [this](KvTransaction& txn, const LogEntry& entry) {
        return txn.put(opened_.map, IntegerKey(entry.number % kConsumedRecords), entry.content);
      });
    }
    return {};
  }
  // Appends an entry and writes the log. Without a consumer a full log is emptied first, and that is not timed.
  [[nodiscard]] MaybeFailure round(std::uint64_t& elapsed_ns) {
    for (;;) {
      const std::uint64_t start = now_ns();
      if (auto done = log_->append(content_); !done) {
        if (options_.consumed || done.error().category() != MEMLITH_FULL) return failure_of(done, "appending");
        MEMLITH_TOOL_TRY(empty());
        continue;
      }
      MEMLITH_TOOL_TRY(options_.wait ? failure_of(log_->write(), "writing the log")
                                     : failure_of(log_->write_weak(), "writing the log"));
      elapsed_ns = now_ns() - start;
      return {};
    }
  }
  // Ends the consumer; its failure, if it had one.
  [[nodiscard]] MaybeFailure stop() {
    stopping_ = true;
    if (dropper_.joinable()) dropper_.join();
    return options_.dropped ? dropped_ : mover_.stop();
  }
  // The rest goes home.
  [[nodiscard]] MaybeFailure close() {
    MEMLITH_TOOL_TRY(failure_of(log_->close(), "closing the log"));
    return failure_of(opened_.store->close(), "closing the store");
  }
  [[nodiscard]] std::uint64_t appended_bytes() const { return log_->info()->newest * options_.entry_bytes; }
  // Bytes appended over the log's size.
  [[nodiscard]] double laps() const {
    const auto info = log_->info();
    const std::uint64_t each = (options_.entry_bytes + 24 + 7) / 8 * 8;
    return static_cast<double>(info->newest * each) / static_cast<double>(info->size);
  }

 private:
  void drop_all() {
    while (!stopping_ && !dropped_) {
      std::uint64_t newest = 0;
      for (auto entry = log_->read(kReadMs);; entry = log_->read()) {
        if (!entry) {
          dropped_ = failure_of(entry, "reading the log");
          return;
        }
        if (!*entry) break;
        newest = (*entry)->number;
      }
      if (newest != 0) dropped_ = failure_of(log_->consume(newest), "consuming");
    }
  }
  [[nodiscard]] MaybeFailure empty() {
    const std::lock_guard lock(emptying_);
    MEMLITH_TOOL_TRY(failure_of(log_->write(), "writing the log"));
    std::uint64_t newest = 0;
    for (;;) {
      MEMLITH_TOOL_GET(const std::optional<LogEntry> entry, checked(log_->read(), "reading the log"));
      if (!entry) break;
      newest = entry->number;
    }
    return newest == 0 ? MaybeFailure() : failure_of(log_->consume(newest), "consuming");
  }

  const Options options_;
  std::string content_;
  OpenedKv opened_;
  std::optional<AppLog> log_;
  std::mutex emptying_;
  std::atomic<bool> stopping_ = false;
  MaybeFailure dropped_;
  std::thread dropper_;
  LogMover mover_;  // ends first
};

class LogSuites {
 public:
  LogSuites(const KvBenchArguments& arguments, const ScratchFolder& scratch, const Backend& backend)
      : arguments_(arguments), scratch_(scratch), backend_(backend) {}

  [[nodiscard]] MaybeFailure append() {
    title_ = title("append + write of one entry, one thread, in turns with the raw disk");
    for (const std::uint64_t bytes : arguments_.entry_bytes) {
      const auto measure = [this](std::span<Side> sides) {
        return measure_in_turns(sides, {10, static_cast<std::uint64_t>(arguments_.seconds * 2e9)});
      };
      MEMLITH_TOOL_TRY(beside_raw(fmt::format("append-{}", bytes), bytes, 1, measure));
    }
    return {};
  }

  [[nodiscard]] MaybeFailure writers() {
    title_ = title("append + write of 100 bytes by several threads, in phases with the raw disk, a file for each");
    for (const std::uint64_t threads : arguments_.threads) {
      const auto measure = [this, threads](std::span<Side> sides) {
        const double ns = arguments_.seconds * 1e9 / static_cast<double>(arguments_.rounds);
        return measure_in_phases(sides, {threads, arguments_.rounds, static_cast<std::uint64_t>(ns)});
      };
      MEMLITH_TOOL_TRY(beside_raw("writers", kSmallBytes, threads, measure));
    }
    return {};
  }

  // The consumer takes a processor; where it cannot keep up, the log fills, and the writer has its pace.
  [[nodiscard]] MaybeFailure size() {
    title_ = title("append + write of 100 bytes by one thread, while another moves the entries into a kv store");
    for (const bool wait : {true, false}) {
      for (const std::uint64_t mib : arguments_.log_mib) {
        scratch_.remove("store");  // of the size before, which is closed
        LogSide log({mib * kMiB, kSmallBytes, true, wait});
        MEMLITH_TOOL_TRY(log.open(scratch_.path_of("store"), backend_));
        std::array<Side, 1> sides;
        sides[0].round = [&log](std::size_t, std::uint64_t& elapsed_ns) { return log.round(elapsed_ns); };
        MEMLITH_TOOL_TRY(measure_in_phases(sides, {1, 1, static_cast<std::uint64_t>(arguments_.seconds * 1e9)}));
        MEMLITH_TOOL_TRY(log.stop());
        Line line = line_of(fmt::format("consumed-{}MiB", mib), kSmallBytes, 1, sides[0]);
        if (!wait) line.durability = "weak";
        tell(line, mib, log);
        print_lines(arguments_.format, std::exchange(title_, {}), {line}, "memlith");
      }
    }
    return {};
  }

  // Each side by itself, from the opened store to the closed one: other writers of this process would be counted, too.
  [[nodiscard]] MaybeFailure device() {
    title_ = title("bytes to the disk per byte appended: entries of 1 KiB by several threads, another consumes them");
    for (const std::uint64_t threads : arguments_.threads) {
      scratch_.remove("store");  // of another suite, or of fewer threads
      std::array<Side, 2> sides;
      const PhaseLimits limits{threads, 1, static_cast<std::uint64_t>(arguments_.seconds * 1e9)};
      const auto ratio = [](std::uint64_t before, std::uint64_t appended) {
        return rounded(static_cast<double>(device_bytes() - before) /
                       static_cast<double>(std::max<std::uint64_t>(1, appended)));
      };
      std::vector<Line> lines;
      {
        LogSide log({kLogBytes, kCountedBytes, true, true, true, kRedoLogBytes});
        MEMLITH_TOOL_TRY(log.open(scratch_.path_of("store"), backend_));
        const std::uint64_t before = device_bytes();
        sides[0].round = [&log](std::size_t, std::uint64_t& elapsed_ns) { return log.round(elapsed_ns); };
        MEMLITH_TOOL_TRY(measure_in_phases(std::span(sides).first(1), limits));
        MEMLITH_TOOL_TRY(log.stop());
        const std::uint64_t appended = log.appended_bytes();
        lines.push_back(line_of("device", kCountedBytes, threads, sides[0]));
        tell(lines.back(), kLogBytes / kMiB, log);
        MEMLITH_TOOL_TRY(log.close());
        lines.back().found["device_bytes_per_byte"] = ratio(before, appended);
      }
      RawSide raw;
      MEMLITH_TOOL_TRY(raw.open(scratch_, kCountedBytes, threads));
      std::atomic<std::uint64_t> rounds = 0;
      const std::uint64_t before = device_bytes();
      sides[1].round = [&](std::size_t thread, std::uint64_t& elapsed_ns) {
        ++rounds;
        return raw.round(thread, elapsed_ns);
      };
      MEMLITH_TOOL_TRY(measure_in_phases(std::span(sides).last(1), limits));
      lines.push_back(line_of("device", kCountedBytes, threads, sides[1]));
      lines.back().found["device_bytes_per_byte"] = ratio(before, rounds * kCountedBytes);
      describe_raw(lines.back());
      print_lines(arguments_.format, std::exchange(title_, {}), lines, "raw-captured");
      raw.remove(scratch_);
    }
    return {};
  }

 private:
  static void describe_raw(Line& line) {
    line.side = "raw-captured";
    line.version = kernel_release();
    line.does = "copies as many bytes, with a checksum, writes and flushes them; a file for each thread";
  }
  template <class Measure>
  [[nodiscard]] MaybeFailure beside_raw(const std::string& workload, std::uint64_t bytes, std::uint64_t threads,
                                        const Measure& measure) {
    RawSide raw;
    MEMLITH_TOOL_TRY(raw.open(scratch_, bytes, threads));
    std::vector<Line> lines;
    {
      LogSide log({kLogBytes, bytes, false, true});
      MEMLITH_TOOL_TRY(log.open(scratch_.path_of("store"), backend_));
      std::array<Side, 2> sides;
      sides[0].round = [&log](std::size_t, std::uint64_t& elapsed_ns) { return log.round(elapsed_ns); };
      sides[1].round = [&raw](std::size_t thread, std::uint64_t& elapsed_ns) { return raw.round(thread, elapsed_ns); };
      MEMLITH_TOOL_TRY(measure(std::span<Side>(sides)));
      for (Side& side : sides) lines.push_back(line_of(workload, bytes, threads, side));
      tell(lines.front(), kLogBytes / kMiB, log);
    }
    describe_raw(lines.back());
    print_lines(arguments_.format, std::exchange(title_, {}), lines, "raw-captured");
    scratch_.remove("store");
    raw.remove(scratch_);
    return {};
  }

  [[nodiscard]] std::string title(std::string_view what) const {
    return fmt::format("{}; backend {}", what, backend_.name);
  }
  [[nodiscard]] static Line line_of(const std::string& workload, std::uint64_t bytes, std::uint64_t threads,
                                    Side& side) {
    Line line;
    line.suite = "applog";
    line.side = "memlith";
    line.version = memlith_version();
    line.workload = workload;
    line.durability = "sync";
    line.does = "memlith_applog_append, and a write of the log";
    line.threads = threads;
    line.requested = {{"entry_bytes", bytes}};
    line.repetitions.push_back(repetition_of(side));
    return line;
  }
  void tell(Line& line, std::uint64_t log_mib, const LogSide& log) const {
    line.requested["backend"] = backend_.name;
    line.requested["log_mib"] = log_mib;
    line.found["laps"] = rounded(log.laps());
  }

  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  const Backend& backend_;
  std::string title_;  // of the next table
};

}  // namespace

MaybeFailure run_applog(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_GET(const std::vector<Backend> backends, backends_of(arguments.backends, arguments.devices));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t threads = *std::ranges::max_element(arguments.threads);
  const std::uint64_t log_mib = *std::ranges::max_element(arguments.log_mib);
  const std::uint64_t bytes = threads * kRawFileBytes + 4 * std::max(kLogBytes, log_mib * kMiB);
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes + kStoreSlackBytes));
  print_heading(arguments.format, arguments.folder, {});
  for (const Backend& backend : backends) {
    LogSuites suites(arguments, scratch, backend);
    for (const std::string& name : arguments.workloads) {
      MEMLITH_TOOL_TRY(name == "append"    ? suites.append()
                       : name == "writers" ? suites.writers()
                       : name == "device"  ? suites.device()
                                           : suites.size());
    }
  }
  return {};
}

}  // namespace memlith::tool
