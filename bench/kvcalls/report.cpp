// Keys, values, the sides that take part, and lines of text or JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cli/clock.hpp"
#include "kit/random.hpp"
#include "kit/stats.hpp"
#include "kvcalls.hpp"
#include "memlith/kv.h"

namespace memlith::tool {

std::string key_of(std::uint64_t number) {
  unsigned char key[8];
  memlith_kv_key_of_u64(number, key);
  return {reinterpret_cast<const char*>(key), sizeof key};
}

Values::Values(std::uint64_t bytes) : content_((bytes + 7) / 8 * 8, '\0') {
  Random(kSeed).fill(std::as_writable_bytes(std::span(content_)));
  content_.resize(bytes);
}

std::string_view Values::at(std::uint64_t number) {
  std::memcpy(content_.data(), &number, sizeof number);
  return content_;
}

std::vector<CallsSide> calls_sides() {
  std::vector<CallsSide> sides{memlith_calls_side(), memlith_without_side()};
#ifdef MEMLITH_PEER_LMDB
  sides.push_back(lmdb_calls_side());
#endif
  return sides;
}

double Repetition::operations_per_s() const { return ratio_of(static_cast<double>(operations), seconds_of(wall_ns)); }

double Repetition::longest_us() const {
  return samples_ns.empty() ? 0 : static_cast<double>(*std::ranges::max_element(samples_ns)) / 1000;
}

namespace {

// The median of what `value` says of each repetition.
template <class Value>
double median_over(const CallsLine& line, const Value& value) {
  std::vector<double> values;
  for (const Repetition& each : line.repetitions) values.push_back(value(each));
  return median_of(std::move(values));
}

double ratio_to(const CallsLine& line, const CallsLine& base, RatioOf what) {
  const auto value = [what](const Repetition& each) {
    return what == RatioOf::longest ? each.longest_us() : each.operations_per_s();
  };
  std::vector<double> ratios;
  for (std::size_t i = 0; i < line.repetitions.size(); ++i) {
    ratios.push_back(ratio_of(value(line.repetitions[i]), value(base.repetitions[i])));
  }
  return median_of(std::move(ratios));
}

// What only some workloads have.
Json more_of(const CallsLine& line) {
  Json more = Json::object();
  const Repetition& first = line.repetitions.front();
  if (first.call_ns > 0) {
    more["removal_ms"] = rounded(median_over(line, [](const Repetition& r) { return seconds_of(r.call_ns) * 1000; }));
  }
  if (line.think_us) more["think_us"] = *line.think_us;
  if (first.attempts > 0) {
    std::uint64_t attempts = 0;
    std::uint64_t successes = 0;
    for (const Repetition& each : line.repetitions) attempts += each.attempts, successes += each.successes;
    more["attempts"] = attempts;
    more["successes"] = successes;
  }
  if (first.logged_bytes_per_op) {
    more["logged_bytes_per_op"] =
        rounded(median_over(line, [](const Repetition& r) { return *r.logged_bytes_per_op; }));
  }
  if (first.data_bytes_per_record) {
    more["data_bytes_per_record"] =
        rounded(median_over(line, [](const Repetition& r) { return *r.data_bytes_per_record; }));
  }
  return more;
}

}  // namespace

void print_calls_heading(const KvCallsArguments& arguments, std::string_view what) {
  if (arguments.format != Format::text) return;
  write_line(fmt::format("\n{}", what));
  write_line(fmt::format("{:<14}{:<22}{:>12}{:>11}{:>11}{:>11}{:>11}{:>9}", "workload", "side", "ops/s", "p50 us",
                         "p99 us", "p99.9 us", "max us", "ratio"));
}

void print_line(const KvCallsArguments& arguments, const CallsLine& line, const CallsLine& base, RatioOf what) {
  std::vector<Percentiles> each;
  std::uint64_t samples = 0;
  for (const Repetition& repetition : line.repetitions) {
    each.push_back(percentiles_of(repetition.samples_ns));
    samples += repetition.samples_ns.size();
  }
  const auto percentile = [&each](double Percentiles::* rank) {
    std::vector<double> values;
    for (const Percentiles& percentiles : each) values.push_back(percentiles.*rank);
    return median_of(std::move(values));
  };
  const double ops = median_over(line, [](const Repetition& r) { return r.operations_per_s(); });
  const double p50 = percentile(&Percentiles::p50_us);
  const double p99 = percentile(&Percentiles::p99_us);
  const double p999 = percentile(&Percentiles::p999_us);
  const double longest = median_over(line, [](const Repetition& r) { return r.longest_us(); });
  const double ratio = ratio_to(line, base, what);
  const Json more = more_of(line);
  if (arguments.format == Format::text) {
    std::string tail;
    for (const auto& [name, value] : more.items()) tail += fmt::format("  {} {}", name, value.dump());
    write_line(fmt::format("{:<14}{:<22}{:>12.0f}{:>11.3f}{:>11.3f}{:>11.3f}{:>11.0f}{:>9.2f}{}", line.workload,
                           line.side, ops, p50, p99, p999, longest, ratio, tail));
    return;
  }
  Json object{{"suite", "kvcalls"},
              {"side", line.side},
              {"workload", line.workload},
              {"durability", line.durability},
              {"threads", line.threads},
              {"ops_per_s", rounded(ops)},
              {"p50_us", p50},
              {"p99_us", p99},
              {"p999_us", p999},
              {"max_us", longest},
              {"samples", samples},
              {"repetitions", line.repetitions.size()},
              {"records", line.records},
              {"value_bytes", arguments.value_bytes},
              {"ratio", rounded(ratio)},
              {"ratio_of", what == RatioOf::longest ? "max_us" : "ops_per_s"},
              {"base", base.side}};
  object.update(more);
  object["side_version"] = line.version;
  object["does"] = line.does;
  object["kernel"] = kernel_release();
  object["version"] = memlith_version();
  write_json(object);
}

}  // namespace memlith::tool
