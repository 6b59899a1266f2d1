// The output of benchmarks: lines of text or JSON, each with the same figures of one side of one workload.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "measure.hpp"

namespace memlith::tool {

struct Repetition {
  std::vector<std::uint64_t> samples_ns;  // of one operation each
  double ops_per_s = 0;
  std::map<std::string, double> more = {};  // fields of some workloads

  // From the samples alone, one after the other; a sample is the mean time of an operation.
  void count_samples();
  [[nodiscard]] double longest_us() const;
};

// The result of a side's phases or turns; a round was `each` operations. Takes the samples.
Repetition repetition_of(Side& side, double each = 1);

// One side of one workload. The figures are the medians of those of its repetitions.
struct Line {
  std::string suite;
  std::string side;
  std::string version;
  std::string workload;
  std::string durability;
  std::string does;  // what the side does for that
  std::uint64_t threads = 1;
  std::vector<Repetition> repetitions;
  Json found = Json::object();      // further fields: what was found,
  Json requested = Json::object();  // and what was asked for, which text leaves out
};

enum class RatioOf : std::uint8_t { operations_per_s, longest };

// Where and when, and what is measured; text only.
void print_heading(Format format, const std::string& folder, std::string_view what);
// The lines of one table, below its title. Each has a ratio: the median of what its repetitions have, one by one, over
// those of the first line of side `base`, which took turns with them.
void print_lines(Format format, std::string_view title, const std::vector<Line>& lines, std::string_view base,
                 RatioOf what = RatioOf::operations_per_s);

// INVALID if a side that was asked for by name is none of those that are there.
[[nodiscard]] MaybeFailure check_sides(const std::vector<std::string>& sides, const std::vector<std::string>& there);

}  // namespace memlith::tool
