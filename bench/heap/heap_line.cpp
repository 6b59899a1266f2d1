// What memlith-heap-bench prints.
#include <fmt/format.h>

#include <algorithm>

#include "heap_bench.hpp"
#include "heap_map.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

bool HeapBenchArguments::wants(const std::string& side) const {
  return sides.empty() || std::find(sides.begin(), sides.end(), side) != sides.end();
}

MaybeFailure check_sides(const HeapBenchArguments& arguments, const std::vector<std::string>& there) {
  for (const std::string& side : arguments.sides) {
    if (std::find(there.begin(), there.end(), side) != there.end()) continue;
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("there is no side {}; there are: {}", side, fmt::join(there, ", ")),
                        "A side whose library was missing when this program was built is left out: "
                        "`./dev bench heap` installs all of them.");
  }
  return {};
}

std::vector<KvDurability> durabilities_of(const HeapBenchArguments& arguments) {
  if (arguments.durability == "sync") return {KvDurability::sync};
  if (arguments.durability == "none") return {KvDurability::none};
  return {KvDurability::sync, KvDurability::none};
}

std::vector<KvPeer> kv_sides(const HeapBenchArguments& arguments, KvDurability durability) {
  std::vector<KvPeer> sides = heap_map_sides();
  if (durability == KvDurability::none) std::ranges::move(heap_map_window_sides(), std::back_inserter(sides));
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  std::erase_if(sides, [&](const KvPeer& side) { return !arguments.wants(side.name); });
  return sides;
}

void print_heading(const HeapBenchArguments& arguments, const std::string& what) {
  if (arguments.format == Format::json) return;
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(what);
}

void print_lines(Format format, const std::string& base, const std::vector<HeapLine>& lines) {
  const auto at = std::find_if(lines.begin(), lines.end(), [&](const HeapLine& line) { return line.side == base; });
  const double base_ops = at == lines.end() ? 0 : at->ops_per_s;
  if (format == Format::text && !lines.empty()) {
    write_line(fmt::format("\n{}, {}, durability {}, {} thread{}", lines[0].suite, lines[0].workload,
                           lines[0].durability, lines[0].threads, lines[0].threads == 1 ? "" : "s"));
    write_line(fmt::format("{:<22}{:>12}{:>14}{:>11}{:>11}{:>11}", "side", "ops/s", "over " + base, "p50 us", "p99 us",
                           "p99.9 us"));
  }
  for (const HeapLine& line : lines) {
    const Percentiles percentiles = percentiles_of(line.samples_ns);
    const double over_base = ratio_of(line.ops_per_s, base_ops);
    if (format == Format::text) {
      std::string more;
      for (const auto& [key, value] : line.more.items()) {
        if (line.suite == "allocate" || line.suite == "open")
          more += fmt::format("  {} {:.3g}", key, value.get<double>());
      }
      write_line(fmt::format("{:<22}{:>12.0f}{:>14.2f}{:>11.3f}{:>11.3f}{:>11.3f}{}", line.side, line.ops_per_s,
                             over_base, percentiles.p50_us, percentiles.p99_us, percentiles.p999_us, more));
      continue;
    }
    Json object{{"suite", line.suite},
                {"side", line.side},
                {"workload", line.workload},
                {"durability", line.durability},
                {"threads", line.threads},
                {"ops_per_s", rounded(line.ops_per_s)},
                {"p50_us", percentiles.p50_us},
                {"p99_us", percentiles.p99_us},
                {"p999_us", percentiles.p999_us},
                {"samples", line.samples_ns.size()},
                {"over_" + base, base_ops > 0 ? Json(rounded(over_base)) : Json()}};
    for (const auto& [key, value] : line.more.items()) object[key] = value;
    object["side_version"] = line.version;
    object["does"] = line.done;
    object["kernel"] = kernel_release();
    object["version"] = memlith_version();
    write_json(object);
  }
}

}  // namespace memlith::tool
