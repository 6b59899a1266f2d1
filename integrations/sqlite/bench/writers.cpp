// Several threads, or processes, that commit at once, each with a connection of its own, and readers beside them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include "cli/clock.hpp"
#include "contest.hpp"
#include "kit/random.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace {
std::atomic<std::uint64_t> g_flush_delay_us{0};
}  // namespace

// Both sides flush by fdatasync, which finds this one in place of the C library's: a slower disk for both.
extern "C" int fdatasync(int descriptor) {
  const std::uint64_t us = g_flush_delay_us.load(std::memory_order_relaxed);
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

namespace memlith::sqlite_bench {

namespace {

constexpr std::uint64_t kRowsOfABlock = 32;  // 32 rows of 128 bytes are a transaction of 4 KiB

// The case of one run.
struct Case {
  std::string workload;
  std::uint64_t threads = 1;  // or processes
  std::uint64_t readers = 0;
  bool processes = false;
};

struct Thread {
  std::vector<std::uint64_t> samples_ns;
  std::uint64_t done = 0;
  std::uint64_t refused = 0;  // transactions that SQLite refused as locked
  MaybeFailure failure;
};

// The result of a run.
struct Run {
  std::vector<Thread> writers;
  std::vector<Thread> readers;
  double seconds = 0;
};

// Shared by the processes of a run.
struct Signals {
  std::atomic<std::uint64_t> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> stop{false};
};

bool write_all(int descriptor, const void* bytes, std::size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::write(descriptor, at, count);
    if (done <= 0) return false;
    at += done;
    count -= static_cast<std::size_t>(done);
  }
  return true;
}

bool read_all(int descriptor, void* bytes, std::size_t count) {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::read(descriptor, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<std::size_t>(done);
  }
  return true;
}

// A process that writes or reads, and tells what it did when it ends.
class Process {
 public:
  template <class Body>
  Process(Thread& result, Body body) : result_(&result) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      ::close(ends[0]);
      result.failure = body();
      const std::string message = result.failure ? result.failure->message : std::string();
      const std::uint64_t sizes[4] = {result.done, result.samples_ns.size(), message.size(), result.refused};
      const bool told = write_all(ends[1], sizes, sizeof sizes) &&
                        write_all(ends[1], result.samples_ns.data(), sizes[1] * sizeof(std::uint64_t)) &&
                        write_all(ends[1], message.data(), message.size());
      ::_exit(told ? 0 : 1);
    }
    ::close(ends[1]);
    told_ = ends[0];
  }

  // Reads what it tells, and waits for its end.
  void join() {
    std::uint64_t sizes[4] = {};
    bool told = process_ > 0 && read_all(told_, sizes, sizeof sizes);
    std::string message;
    if (told) {
      result_->done = sizes[0];
      result_->refused = sizes[3];
      result_->samples_ns.resize(sizes[1]);
      message.resize(sizes[2]);
      told = read_all(told_, result_->samples_ns.data(), sizes[1] * sizeof(std::uint64_t)) &&
             read_all(told_, message.data(), message.size());
    }
    if (told_ >= 0) ::close(told_);
    if (process_ > 0) ::waitpid(process_, nullptr, 0);
    if (!told) message = "a process of the benchmark ended without a result";
    if (!message.empty()) result_->failure = tool::tool_failure(MEMLITH_IO, message);
  }

 private:
  Thread* result_;
  pid_t process_ = -1;
  int told_ = -1;
};

class Writers {
 public:
  Writers(const Settings& settings, const WritersSizes& sizes, tool::ScratchFolder scratch)
      : settings_(settings), sizes_(sizes), scratch_(std::move(scratch)) {}

  MaybeFailure make_template() {
    auto connection = Connection::open_plain(template_path());
    if (!connection.ok()) return connection.failure();
    for (const std::string& sql :
         {std::string("BEGIN"),
          std::string("CREATE TABLE item(id INTEGER PRIMARY KEY, changes INTEGER NOT NULL, value BLOB NOT NULL)"),
          fmt::format("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < {}) INSERT INTO item "
                      "SELECT i, 0, randomblob(128) FROM n",
                      sizes_.rows),
          std::string("COMMIT")}) {
      if (MaybeFailure failure = connection->execute(sql)) return failure;
    }
    return connection->close();
  }

  MaybeFailure run(const Case& what, const System& system) {
    path_ = scratch_.path_of("writers.db");
    for (const char* ending : {"", "-wal", "-shm", "-journal", ".memlith", "-memlith"})
      scratch_.remove(std::string("writers.db") + ending);
    std::error_code error;
    std::filesystem::copy_file(template_path(), path_, error);
    if (error) return tool::errno_failure(error.value(), fmt::format("cannot copy {}", template_path()));
    Run run;
    if (what.processes) {
      g_flush_delay_us = sizes_.flush_delay_us;
      MaybeFailure failure = measure_processes(what, system, run);
      g_flush_delay_us = 0;
      if (failure) return failure;
    } else {
      // As a program has it: the first connection chooses the journal mode.
      auto first = Connection::open(path_, system, settings_);
      if (!first.ok()) return first.failure();
      g_flush_delay_us = sizes_.flush_delay_us;
      MaybeFailure failure = measure(what, system, run);
      g_flush_delay_us = 0;
      if (failure) return failure;
      if (MaybeFailure closed = first->close()) return closed;
    }
    if (MaybeFailure failure = verify(what, run)) return failure;
    return print(what, system, run);
  }

 private:
  using Start = std::function<void()>;  // returns when all are ready
  [[nodiscard]] std::string template_path() const { return scratch_.path_of("template.db"); }

  MaybeFailure measure(const Case& what, const System& system, Run& run) {
    run.writers.resize(what.threads);
    run.readers.resize(what.readers);
    stop_ = false;
    stopped_ = &stop_;
    std::barrier barrier(static_cast<std::ptrdiff_t>(what.threads + what.readers + 1));
    const Start wait = [&barrier] { barrier.arrive_and_wait(); };
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < what.threads; ++i) {
      threads.emplace_back([&, i] { run.writers[i].failure = write(what, system, i, wait, run.writers[i]); });
    }
    for (std::uint64_t i = 0; i < what.readers; ++i) {
      threads.emplace_back([&, i] { run.readers[i].failure = read(system, i, wait, run.readers[i]); });
    }
    barrier.arrive_and_wait();
    run_for_a_while(run);
    for (std::thread& thread : threads) thread.join();
    return failure_of(run);
  }

  void run_for_a_while(Run& run) {
    const std::uint64_t begin_ns = tool::now_ns();
    const auto end_ns = begin_ns + static_cast<std::uint64_t>(sizes_.seconds * static_cast<double>(tool::kNsPerSecond));
    while (tool::now_ns() < end_ns && !reason_to_stop()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    *stopped_ = true;
    run.seconds = tool::seconds_of(tool::now_ns() - begin_ns);
  }

  // This process opens no database, and has no other threads, while it forks.
  MaybeFailure measure_processes(const Case& what, const System& system, Run& run) {
    run.writers.resize(what.threads);
    run.readers.resize(what.readers);
    void* const shared = ::mmap(nullptr, sizeof(Signals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return tool::errno_failure(errno, "cannot share memory with the processes");
    auto* const signals = new (shared) Signals;
    stopped_ = &signals->stop;
    const Start wait = [signals] {
      signals->ready.fetch_add(1);
      while (!signals->go.load() && !signals->stop.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Thread first;
    Process(first, [&]() -> MaybeFailure {
      auto connection = Connection::open(path_, system, settings_);
      return connection.ok() ? connection->close() : MaybeFailure(connection.failure());
    }).join();
    std::vector<Process> processes;
    for (std::uint64_t i = 0; i < what.threads && !first.failure; ++i) {
      processes.emplace_back(run.writers[i], [&] { return write(what, system, i, wait, run.writers[i]); });
    }
    for (std::uint64_t i = 0; i < what.readers && !first.failure; ++i) {
      processes.emplace_back(run.readers[i], [&] { return read(system, i, wait, run.readers[i]); });
    }
    while (signals->ready.load() < processes.size() && !reason_to_stop()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    signals->go = true;
    if (!first.failure) run_for_a_while(run);
    for (Process& each : processes) each.join();
    ::munmap(shared, sizeof(Signals));
    return first.failure ? first.failure : failure_of(run);
  }

  static MaybeFailure failure_of(const Run& run) {
    for (const auto* side : {&run.writers, &run.readers}) {
      for (const Thread& each : *side) {
        if (each.failure) return each.failure;
      }
    }
    return reason_to_stop();
  }

  // Opens the connection, which waits as long as any of them for the lock.
  Result<Connection> open(const System& system) {
    auto connection = Connection::open(path_, system, settings_);
    if (!connection.ok()) return connection.failure();
    const std::string timeout = fmt::format("PRAGMA busy_timeout={}", sizes_.busy_timeout_ms);
    if (MaybeFailure failure = connection->execute(timeout)) return *failure;
    return connection;
  }

  MaybeFailure write(const Case& what, const System& system, std::uint64_t number, const Start& start, Thread& result) {
    tool::Random random(number + 1);
    Statement statement;
    Statement select;
    auto connection = open(system);
    MaybeFailure failure = connection.ok() ? MaybeFailure{} : MaybeFailure(connection.failure());
    const bool one_row = what.workload != "4-kib";
    const bool reads_first = what.workload == "select-update";
    if (!failure) {
      failure =
          connection->prepare(statement, one_row ? "UPDATE item SET changes = changes + 1 WHERE id = ?1"
                                                 : "UPDATE item SET changes = changes + 1, value = randomblob(128) "
                                                   "WHERE id BETWEEN ?1 AND ?1 + 31");
    }
    if (!failure && reads_first) failure = connection->prepare(select, "SELECT changes FROM item WHERE id = ?1");
    start();
    while (!failure && !stopped_->load(std::memory_order_relaxed)) {
      if (sizes_.think_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(sizes_.think_us));
      const std::uint64_t row =
          one_row ? random.below(sizes_.rows) : random.below(sizes_.rows / kRowsOfABlock) * kRowsOfABlock;
      statement.bind(1, static_cast<std::int64_t>(row + 1));
      const std::uint64_t begin_ns = tool::now_ns();
      if (reads_first) {
        select.bind(1, static_cast<std::int64_t>(row + 1));
        bool refused = false;
        failure = select_and_update(*connection, select, statement, refused);
        if (refused) ++result.refused;
        if (refused) continue;
      } else {
        failure = statement.run();
      }
      if (failure) break;
      result.samples_ns.push_back(tool::now_ns() - begin_ns);
      ++result.done;
    }
    statement = Statement();
    select = Statement();
    if (connection.ok() && !failure) failure = connection->close();
    return failure;
  }

  // A transaction that reads before it writes. `refused`: SQLite said that the database is locked.
  static MaybeFailure select_and_update(Connection& connection, Statement& select, Statement& update, bool& refused) {
    MaybeFailure failure = connection.execute("BEGIN");
    if (!failure) failure = select.run();
    if (!failure) failure = update.run();
    if (!failure) failure = connection.execute("COMMIT");
    refused = failure && failure->message.find("locked") != std::string::npos;
    if (!refused) return failure;
    update.reset();
    select.reset();
    return connection.execute("ROLLBACK");
  }

  MaybeFailure read(const System& system, std::uint64_t number, const Start& start, Thread& result) {
    tool::Random random(number + 1001);
    Statement statement;
    auto connection = open(system);
    MaybeFailure failure = connection.ok() ? MaybeFailure{} : MaybeFailure(connection.failure());
    if (!failure) failure = connection->prepare(statement, "SELECT changes, value FROM item WHERE id = ?1");
    start();
    while (!failure && !stopped_->load(std::memory_order_relaxed)) {
      statement.bind(1, static_cast<std::int64_t>(random.below(sizes_.rows) + 1));
      failure = statement.run();
      ++result.done;
    }
    statement = Statement();
    if (connection.ok() && !failure) failure = connection->close();
    return failure;
  }

  // Every commit that was reported is there, and no other: plain SQLite counts them.
  MaybeFailure verify(const Case& what, const Run& run) {
    auto connection = Connection::open_plain(path_);
    if (!connection.ok()) return connection.failure();
    if (MaybeFailure failure = check_integrity(*connection)) return failure;
    auto found = connection->text_of("SELECT sum(changes) FROM item");
    if (!found.ok()) return found.failure();
    std::uint64_t expected = 0;
    for (const Thread& each : run.writers) expected += each.done * (what.workload == "4-kib" ? kRowsOfABlock : 1);
    if (*found == std::to_string(expected)) return connection->close();
    return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("found {} changes; expected {}", *found, expected));
  }

  MaybeFailure print(const Case& what, const System& system, const Run& run) {
    std::vector<std::uint64_t> samples;
    std::uint64_t reads = 0;
    std::uint64_t refused = 0;
    std::uint64_t slowest = ~std::uint64_t{0};
    std::uint64_t fastest = 0;
    for (const Thread& each : run.writers) {
      samples.insert(samples.end(), each.samples_ns.begin(), each.samples_ns.end());
      refused += each.refused;
      slowest = std::min(slowest, each.done);
      fastest = std::max(fastest, each.done);
    }
    for (const Thread& each : run.readers) reads += each.done;
    const auto count = samples.size();
    const std::uint64_t longest = samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
    const tool::Percentiles at = tool::percentiles_of(std::move(samples));
    const auto per_s = [&run](std::uint64_t number) {
      return tool::rounded(static_cast<double>(number) / run.seconds);
    };
    const double fairness =
        fastest == 0 ? 0 : tool::rounded(static_cast<double>(slowest) / static_cast<double>(fastest));
    Json row{{"suite", "sqlite-writers"},
             {"side", system.name},
             {"workload", what.workload},
             {"durability", system.durability},
             {"durable_at_return", system.durable_at_return},
             {"threads", what.processes ? 1 : what.threads},
             {"processes", what.processes ? what.threads : 1},
             {"readers", what.readers},
             {"flush_delay_us", sizes_.flush_delay_us},
             {"think_us", sizes_.think_us},
             {"refused", refused},
             {"ops_per_s", per_s(count)},
             {"throughput_over_wal_full", over_wal_full(what, system, static_cast<double>(count) / run.seconds)},
             {"reads_per_s", per_s(reads)},
             {"p50_us", at.p50_us},
             {"p99_us", at.p99_us},
             {"p999_us", at.p999_us},
             {"max_us", static_cast<double>(longest) / 1000},
             {"fairness", fairness},
             {"busy_timeout_ms", sizes_.busy_timeout_ms},
             {"seconds", tool::rounded(run.seconds)},
             {"verified", true},  // else the run had failed
             {"sqlite", sqlite3_libversion()},
             {"kernel", tool::kernel_release()},
             {"time", tool::utc_now()}};
    if (!settings_.record.empty()) {
      std::ofstream record(settings_.record, std::ios::app);
      record << row.dump() << '\n';
      record.flush();
      if (!record) return tool::errno_failure(EIO, fmt::format("cannot write {}", settings_.record));
    }
    if (settings_.format == Format::json) {
      tool::write_json(row);
      return {};
    }
    const Json& over = row["throughput_over_wal_full"];
    tool::write_line(fmt::format(
        "{:<13} {:>4} {:<9} {:>7} {:<18} {:>10.0f} {:>10} {:>10.0f} {:>9.0f} {:>9.0f} {:>10.0f} {:>10.0f} {:>8.2f} "
        "{:>8}",
        what.workload, what.threads, what.processes ? "processes" : "threads", what.readers, system.name,
        row["ops_per_s"].get<double>(), over.is_null() ? "-" : fmt::format("{:.2f}", over.get<double>()),
        row["reads_per_s"].get<double>(), at.p50_us, at.p99_us, at.p999_us, row["max_us"].get<double>(), fairness,
        refused));
    return {};
  }

  // Against plain SQLite in the same turn; null where its run has not come.
  Json over_wal_full(const Case& what, const System& system, double per_s) {
    if (system.name == "wal-full") wal_full_ = {what, per_s};
    const Case& known = wal_full_.first;
    const bool is_same = known.workload == what.workload && known.threads == what.threads &&
                         known.readers == what.readers && known.processes == what.processes;
    return is_same && wal_full_.second > 0 ? Json(tool::rounded(per_s / wal_full_.second)) : Json(nullptr);
  }

  Settings settings_;
  WritersSizes sizes_;
  tool::ScratchFolder scratch_;
  std::string path_;
  std::pair<Case, double> wal_full_;  // the newest run of plain SQLite, and its commits a second
  std::atomic<bool> stop_{false};
  std::atomic<bool>* stopped_ = &stop_;  // of the run under way
};

}  // namespace

MaybeFailure run_writers(const Settings& given, const WritersSizes& sizes) {
  Settings settings = given;
  // Only in WAL mode do readers run beside a writer, and writers share flushes.
  if (given.systems == Settings{}.systems)
    settings.systems = {"wal-full", "wal-normal", "memlith/wal", "memlith-weak/wal"};
  if (settings.calls) return tool::tool_failure(MEMLITH_INVALID, "--calls counts for one thread only");
  auto systems = systems_of(settings);
  if (!systems.ok()) return systems.failure();
  if (MaybeFailure failure = load_plugin(settings.plugin)) return failure;
  auto scratch = tool::ScratchFolder::make(settings.folder);
  if (!scratch.ok()) return scratch.failure();
  Writers writers(settings, sizes, std::move(*scratch));
  if (MaybeFailure failure = writers.make_template()) return failure;
  if (settings.format == Format::text) {
    tool::write_line(fmt::format("flush delayed by {} us, busy timeout {} ms, {} s a run", sizes.flush_delay_us,
                                 sizes.busy_timeout_ms, sizes.seconds));
    tool::
        write_line(fmt::format("{:<13} {:>14} {:>7} {:<18} {:>10} {:>10} {:>10} {:>9} {:>9} {:>10} {:>10} {:>8} {:>8}",
                               "work", "writers", "readers", "system", "commits/s", "x wal-full", "reads/s", "p50 us",
                               "p99 us", "p99.9 us", "max us", "fairness", "refused"));
  }
  for (std::uint64_t repetition = 0; repetition < settings.repetitions; ++repetition) {
    for (const std::string& workload : sizes.workloads) {
      for (const std::uint64_t readers : sizes.readers) {
        std::vector<Case> cases;
        for (const std::uint64_t threads : sizes.threads) cases.push_back({workload, threads, readers, false});
        for (const std::uint64_t processes : sizes.processes) cases.push_back({workload, processes, readers, true});
        for (const Case& each : cases) {
          for (const System& system : *systems) {
            // The engine is for one process.
            const bool alone = !each.processes || each.threads + each.readers == 1;
            if (system.memlith && !system.shared && !alone) continue;
            if (MaybeFailure stop = reason_to_stop()) return stop;
            MaybeFailure failure = writers.run(each, system);
            if (failure) failure->message = fmt::format("{}: {}", system.name, failure->message);
            if (failure) return failure;
          }
        }
      }
    }
  }
  return {};
}

MaybeFailure run_processes(const Settings& given, const ProcessesSizes& sizes) {
  Settings settings = given;
  if (given.systems == Settings{}.systems)
    settings.systems = {"wal-full", "wal-normal", "memlith/wal", "memlith-shared"};
  return run_writers(settings, sizes);
}

}  // namespace memlith::sqlite_bench
