#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "memlith/memlith.h"
#include "stats.hpp"

namespace memlith::tool {

namespace {

template <class Value>
double median_over(const Line& line, const Value& value) {
  std::vector<double> values;
  for (const Repetition& each : line.repetitions) values.push_back(value(each));
  return median_of(std::move(values));
}

double ratio_to(const Line& line, const Line& base, RatioOf what) {
  const auto value = [what](const Repetition& each) {
    return what == RatioOf::longest ? each.longest_us() : each.ops_per_s;
  };
  std::vector<double> ratios;
  for (std::size_t i = 0; i < line.repetitions.size(); ++i) {
    ratios.push_back(ratio_of(value(line.repetitions[i]), value(base.repetitions[i])));
  }
  return median_of(std::move(ratios));
}

// The figures of a line, in the order of docs/json.md.
Json figures_of(const Line& line, const Line* base, std::string_view base_name, RatioOf what) {
  std::vector<Percentiles> each;
  std::size_t samples = 0;
  for (const Repetition& repetition : line.repetitions) {
    each.push_back(percentiles_of(repetition.samples_ns));
    samples += repetition.samples_ns.size();
  }
  const auto percentile = [&each](double Percentiles::* rank) {
    std::vector<double> values;
    for (const Percentiles& percentiles : each) values.push_back(percentiles.*rank);
    return median_of(std::move(values));
  };
  return {{"ops_per_s", rounded(median_over(line, [](const Repetition& one) { return one.ops_per_s; }))},
          {"p50_us", percentile(&Percentiles::p50_us)},
          {"p99_us", percentile(&Percentiles::p99_us)},
          {"p999_us", percentile(&Percentiles::p999_us)},
          {"max_us", median_over(line, [](const Repetition& one) { return one.longest_us(); })},
          {"samples", samples},
          {"ratio", base == nullptr ? Json() : Json(rounded(ratio_to(line, *base, what)))},
          {"ratio_of", what == RatioOf::longest ? "max_us" : "ops_per_s"},
          {"base", base_name}};
}

}  // namespace

void Repetition::count_samples() {
  const double sum_ns = std::accumulate(samples_ns.begin(), samples_ns.end(), 0.0);
  ops_per_s = ratio_of(static_cast<double>(samples_ns.size()) * 1e9, sum_ns);
}

Repetition repetition_of(Side& side, double each) {
  Repetition repetition;
  repetition.ops_per_s = side.rounds_per_second() * each;
  repetition.samples_ns = std::move(side.samples_ns);
  side.clear();
  return repetition;
}

double Repetition::longest_us() const {
  return samples_ns.empty() ? 0 : static_cast<double>(*std::ranges::max_element(samples_ns)) / 1000;
}

MaybeFailure check_sides(const std::vector<std::string>& sides, const std::vector<std::string>& there) {
  for (const std::string& side : sides) {
    if (std::ranges::find(there, side) != there.end()) continue;
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("there is no side {}; there are: {}", side, fmt::join(there, ", ")),
                        "A side whose library was missing when this program was built is left out: `./dev bench` "
                        "installs all of them.");
  }
  return {};
}

void print_heading(Format format, const std::string& folder, std::string_view what) {
  if (format == Format::json) return;
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(), printable(folder),
                         utc_now()));
  if (!what.empty()) write_line(what);
}

void print_lines(Format format, std::string_view title, const std::vector<Line>& lines, std::string_view base,
                 RatioOf what) {
  if (lines.empty()) return;
  if (format == Format::text && !title.empty()) {
    write_line(fmt::format("\n{}", title));
    write_line(fmt::format("{:<18}{:<22}{:<7}{:>12}{:>11}{:>11}{:>11}{:>11}{:>8}", "workload", "side", "", "ops/s",
                           "p50 us", "p99 us", "p99.9 us", "max us", "ratio"));
  }
  const auto at = std::ranges::find(lines, base, &Line::side);
  for (const Line& line : lines) {
    const Json figures = figures_of(line, at == lines.end() ? nullptr : &*at, base, what);
    Json found = line.found;
    for (const auto& [name, ignored] : line.repetitions.front().more) {
      found[name] = rounded(median_over(line, [&name](const Repetition& one) { return one.more.at(name); }));
    }
    if (format == Format::text) {
      std::string tail;
      for (const auto& [name, value] : found.items()) tail += fmt::format("  {} {}", name, value.dump());
      const auto figure = [&figures](const char* name) { return figures[name].get<double>(); };
      const std::string ratio = figures["ratio"].is_null() ? "-" : fmt::format("{:.2f}", figure("ratio"));
      write_line(fmt::format("{:<18}{:<22}{:<7}{:>12.0f}{:>11.3f}{:>11.3f}{:>11.3f}{:>11.0f}{:>8}{}", line.workload,
                             line.side, line.durability, figure("ops_per_s"), figure("p50_us"), figure("p99_us"),
                             figure("p999_us"), figure("max_us"), ratio, tail));
      continue;
    }
    Json object{{"suite", line.suite},
                {"side", line.side},
                {"workload", line.workload},
                {"durability", line.durability},
                {"threads", line.threads}};
    for (const Json& part : {figures, line.requested, found}) object.update(part);
    object["side_version"] = line.version;
    object["does"] = line.does;
    object["kernel"] = kernel_release();
    object["version"] = memlith_version();
    write_json(object);
  }
}

}  // namespace memlith::tool
