// The benchmarks, and what each takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "systems.hpp"

namespace memlith::sqlite_bench {

struct UpdateSizes {
  std::uint64_t rows = 100'000;
  std::uint64_t commits = 4000;  // a repetition
  std::uint64_t indexes = 0;     // on what the update changes: 0 or 1
};
[[nodiscard]] MaybeFailure run_update(const Settings& settings, const UpdateSizes& sizes);

struct DbbenchSizes {
  std::uint64_t keys = 1'000'000;
  std::uint64_t value_bytes = 128;
  std::uint64_t writes = 32'768;  // a repetition, and at least four transactions
  std::vector<std::uint64_t> transaction_kib{4, 64, 1024};
  std::vector<std::string> patterns{"random", "sequential"};
};
[[nodiscard]] MaybeFailure run_dbbench(const Settings& settings, const DbbenchSizes& sizes);

struct TatpSizes {
  std::vector<std::uint64_t> subscribers{1000, 10'000, 100'000, 1'000'000};
  double seconds = 1;              // a repetition
  std::uint64_t transactions = 0;  // a repetition; 0: as many as the seconds allow
};
[[nodiscard]] MaybeFailure run_tatp(const Settings& settings, const TatpSizes& sizes);

struct WritersSizes {
  std::vector<std::uint64_t> threads{1, 2, 4, 8, 16};  // that write
  std::vector<std::uint64_t> processes;                // the same with processes of one thread each
  std::vector<std::uint64_t> readers{0};               // beside them
  std::vector<std::string> workloads{"one-row", "4-kib"};
  double seconds = 2;  // a run
  std::uint64_t rows = 100'000;
  std::uint64_t busy_timeout_ms = 10'000;
  std::uint64_t flush_delay_us = 0;  // added to each fdatasync of both sides
  std::uint64_t think_us = 0;        // between a writer's transactions
};
[[nodiscard]] MaybeFailure run_writers(const Settings& settings, const WritersSizes& sizes);

// The same with processes: on each mode of memlith and plain SQLite.
struct ProcessesSizes : WritersSizes {
  ProcessesSizes() {
    threads.clear();
    processes = {1, 2, 4, 8};
    workloads = {"one-row", "select-update"};
  }
};
[[nodiscard]] MaybeFailure run_processes(const Settings& settings, const ProcessesSizes& sizes);

struct SpeedSizes {
  std::uint64_t size = 20;
};
[[nodiscard]] MaybeFailure run_speed(const Settings& settings, const SpeedSizes& sizes);

}  // namespace memlith::sqlite_bench
