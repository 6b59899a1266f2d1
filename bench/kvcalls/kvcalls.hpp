// The benchmark of single calls of the kv store: each beside what a program does without it, and beside LMDB.
// Floor: kvcalls-bench.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/scratch.hpp"

namespace memlith::tool {

struct KvCallsArguments {
  std::string folder = ".";
  std::vector<std::string> calls{"remove-map", "fairness", "append", "put-if", "remove-range"};
  std::vector<std::string> sides;              // empty: all
  std::uint64_t records = 1'000'000;           // of the map that is removed or filled
  std::uint64_t value_bytes = 100;             // of a value; at least 8
  std::uint64_t range_records = 1000;          // removed by one remove-range
  std::uint64_t long_records = 200;            // that a long transaction reads and writes
  std::uint64_t short_writers = 7;             // beside it
  std::vector<std::uint64_t> think_us{0, 50};  // between reading and writing a record, of fairness
  std::uint64_t wait_ms = 10'000;              // of memlith-wait
  std::uint64_t repetitions = 5;               // of each side; figures are their medians
  double seconds = 2;                          // of each side in a repetition, of fairness, put-if and remove-range
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_kvcalls(const KvCallsArguments& arguments);

// ---- what is compared ------------------------------------------------------------------------------------------

inline constexpr std::uint64_t kBatchRecords = 1000;  // of a transaction, and of a sample, of filling

// Eight bytes whose order is that of the numbers.
std::string key_of(std::uint64_t number);

// Values of so many bytes: a number, and bytes that are always the same.
class Values {
 public:
  explicit Values(std::uint64_t bytes);
  // Valid until the next call.
  std::string_view at(std::uint64_t number);

 private:
  std::string content_;
};

// An open store. Transactions are not waited for: memlith's are weak, LMDB's are not flushed. One thread at a time,
// but for put, beside which another thread may remove another map.
class CallsStore {
 public:
  virtual ~CallsStore() = default;
  // Makes the map if it is missing.
  [[nodiscard]] virtual MaybeFailure open_map(const std::string& map) = 0;
  // Puts the records first, first + 1, ... into the map, which has none behind them. `samples_ns` gets the time of
  // each kBatchRecords. They are durable on return.
  [[nodiscard]] virtual MaybeFailure fill(const std::string& map, std::uint64_t count, Values& values,
                                          std::vector<std::uint64_t>& samples_ns) = 0;
  // Each of these is one transaction.
  [[nodiscard]] virtual MaybeFailure put(const std::string& map, std::string_view key, std::string_view value) = 0;
  [[nodiscard]] virtual MaybeFailure put_if(const std::string& map, std::string_view key, std::string_view expected,
                                            std::string_view value, bool& done) = 0;
  [[nodiscard]] virtual MaybeFailure put_range(const std::string& map, std::uint64_t first, std::uint64_t count,
                                               Values& values) = 0;
  [[nodiscard]] virtual MaybeFailure remove_range(const std::string& map, std::string_view from, std::string_view to,
                                                  std::uint64_t& count) = 0;
  [[nodiscard]] virtual MaybeFailure remove_map(const std::string& map) = 0;
  // Of memlith: bytes that the log took. Everything that was committed is in it then.
  virtual Result<std::optional<std::uint64_t>> logged_bytes() = 0;
  // Of pages in use.
  virtual Result<std::uint64_t> data_bytes() = 0;
};

enum class Call : std::uint8_t { remove_map, append, put_if, remove_range };

struct CallsSide {
  std::string name;
  std::string version;
  std::array<std::string, 4> does;  // for each Call; empty: the side does not take part
  Result<std::unique_ptr<CallsStore>> (*open)(const std::string& folder, std::uint64_t bytes_expected);
};

// memlith with its calls, memlith without them, and LMDB where its library was there.
std::vector<CallsSide> calls_sides();
CallsSide memlith_calls_side();
CallsSide memlith_without_side();
CallsSide lmdb_calls_side();

// ---- what is printed -------------------------------------------------------------------------------------------

// One repetition of one side.
struct Repetition {
  std::vector<std::uint64_t> samples_ns;  // of one operation each
  std::uint64_t operations = 0;
  std::uint64_t wall_ns = 0;
  std::uint64_t call_ns = 0;   // remove-map: of the removal
  std::uint64_t attempts = 0;  // fairness: of the long transaction
  std::uint64_t successes = 0;
  std::optional<double> logged_bytes_per_op;
  std::optional<double> data_bytes_per_record;

  [[nodiscard]] double operations_per_s() const;
  [[nodiscard]] double longest_us() const;
};

// One side of one workload. `ratio` is of the repetitions, one by one, to those of `base`.
struct CallsLine {
  std::string workload;
  std::string side;
  std::string version;
  std::string durability;
  std::string does;
  std::uint64_t threads = 1;
  std::uint64_t records = 0;
  std::optional<std::uint64_t> think_us;  // of fairness
  std::vector<Repetition> repetitions;
};

enum class RatioOf : std::uint8_t { operations_per_s, longest };
// Both lines have as many repetitions, taken in turns.
void print_line(const KvCallsArguments& arguments, const CallsLine& line, const CallsLine& base, RatioOf what);
void print_calls_heading(const KvCallsArguments& arguments, std::string_view what);

// ---- the suites ------------------------------------------------------------------------------------------------

[[nodiscard]] MaybeFailure measure_removal(const KvCallsArguments& arguments, const ScratchFolder& scratch);
[[nodiscard]] MaybeFailure measure_append(const KvCallsArguments& arguments, const ScratchFolder& scratch);
[[nodiscard]] MaybeFailure measure_put_if(const KvCallsArguments& arguments, const ScratchFolder& scratch);
[[nodiscard]] MaybeFailure measure_remove_range(const KvCallsArguments& arguments, const ScratchFolder& scratch);
[[nodiscard]] MaybeFailure measure_fairness(const KvCallsArguments& arguments, const ScratchFolder& scratch);

}  // namespace memlith::tool
