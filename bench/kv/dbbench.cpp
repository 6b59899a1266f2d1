// Suite dbbench: small records, as LevelDB's db_bench puts and reads them and FASL's Tables 2 and 3 use it; with and
// without an application log, on each backend. One side after the other, each with a fresh store: two stores never
// share a device.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/clock.hpp"
#include "contender.hpp"
#include "kit/try.hpp"
#include "memory_limit.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kDbSpaceFactor = 8;  // of the space that a store may take for its records
constexpr std::uint64_t kReadAtOnce = 1000;

struct DbContender : Contender {
  Backend backend;
};

class DbBench {
 public:
  DbBench(const KvBenchArguments& arguments, const ScratchFolder& scratch)
      : arguments_(arguments), scratch_(scratch), values_(arguments.value_bytes) {}

  // The records that are there were put unsynchronised and not timed: nothing depends on what was durable when.
  [[nodiscard]] Result<Line> measure(const std::string& workload, DbContender& contender, const LimitMemory& limit) {
    const bool fills = workload.starts_with("fill");
    const bool puts = fills || workload == "overwrite";
    contender.durability = puts ? KvDurability::sync : KvDurability::none;
    contender.told = name_of(contender.durability);
    KvOptions options{.durability = fills ? KvDurability::sync : KvDurability::none,
                      .bytes_expected = arguments_.records * (kTextKeyBytes + arguments_.value_bytes),
                      .cache_bytes = arguments_.cgroup_mib / 2 << 20,
                      .memory_bytes = arguments_.cgroup_mib << 20,
                      .backend = contender.backend};
    MEMLITH_TOOL_TRY(contender.make(scratch_, options));
    for (std::uint64_t i = 0; !fills && i < arguments_.records; ++i) {
      MEMLITH_TOOL_TRY(contender.session->put(decimal_key(i), value()));
    }
    if (!fills) MEMLITH_TOOL_TRY(contender.session->finish());
    if ((puts && !fills) || arguments_.cgroup_mib > 0) {
      if (!contender.backend.device.empty()) {
        return tool_failure(MEMLITH_INVALID, "overwrite and --cgroup-mib are of files only");
      }
      MEMLITH_TOOL_TRY(contender.close());
      MEMLITH_TOOL_TRY(limit());
      options.durability = contender.durability;
      MEMLITH_TOOL_TRY(contender.open(scratch_, options));
    }
    Random random(kSeed);
    std::uint64_t next = 0;
    const bool in_order = workload.ends_with("seq");
    const auto number = [&] { return in_order ? next++ % arguments_.records : random.below(arguments_.records); };
    const bool scans = !fills && in_order;
    std::array<Side, 1> sides;
    sides[0].round = [&](std::size_t, std::uint64_t& elapsed_ns) {
      if (scans) return scan(contender, next, elapsed_ns);
      return puts ? put(contender, number(), elapsed_ns) : get(contender, number(), elapsed_ns);
    };
    const auto ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9);
    MEMLITH_TOOL_TRY(arguments_.rounds > 0 ? measure_in_turns(sides, {arguments_.rounds, 0})
                                           : measure_in_phases(sides, {1, 1, ns}));
    MEMLITH_TOOL_TRY(contender.close());
    scratch_.remove(contender.folder_name());
    Line line = contender.line("dbbench", workload);
    line.does = contender.peer.sync_text;
    line.found = {{"backend", contender.backend.name}};
    line.requested = {{"records", arguments_.records},
                      {"value_bytes", arguments_.value_bytes},
                      {"cgroup_mib", arguments_.cgroup_mib}};
    const std::uint64_t each = scans ? std::min(kReadAtOnce, arguments_.records) : 1;
    line.repetitions.push_back(repetition_of(sides[0], static_cast<double>(each)));
    for (std::uint64_t& sample_ns : line.repetitions.back().samples_ns) sample_ns /= each;
    return line;
  }

 private:
  [[nodiscard]] std::string_view value() const { return values_.at(0); }
  [[nodiscard]] MaybeFailure put(const Contender& contender, std::uint64_t number, std::uint64_t& elapsed_ns) const {
    const std::string key = decimal_key(number);
    const std::uint64_t start = now_ns();
    auto failure = contender.session->put(key, value());
    elapsed_ns = now_ns() - start;
    return failure;
  }
  [[nodiscard]] MaybeFailure get(const Contender& contender, std::uint64_t number, std::uint64_t& elapsed_ns) const {
    const std::string key = decimal_key(number);
    std::string found_value;
    bool found = false;
    const std::uint64_t start = now_ns();
    MEMLITH_TOOL_TRY(contender.session->get(key, found_value, found));
    elapsed_ns = now_ns() - start;
    return found && found_value == value() ? MaybeFailure() : wrong(contender, key);
  }
  // A run of records, from where the one before ended.
  [[nodiscard]] MaybeFailure scan(const Contender& contender, std::uint64_t& next, std::uint64_t& elapsed_ns) const {
    const std::string from = decimal_key(next);
    const std::uint64_t count = std::min(kReadAtOnce, arguments_.records - next);
    std::uint64_t seen = 0;
    std::uint64_t bytes = 0;
    const std::uint64_t start = now_ns();
    MEMLITH_TOOL_TRY(contender.session->scan(from, count, [&](std::string_view, std::string_view content) {
      ++seen;
      bytes += content.size();
    }));
    elapsed_ns = now_ns() - start;
    next = (next + count) % arguments_.records;
    return seen == count && bytes == count * arguments_.value_bytes ? MaybeFailure() : wrong(contender, from);
  }
  static MaybeFailure wrong(const Contender& contender, const std::string& key) {
    return tool_failure(MEMLITH_CORRUPT,
                        fmt::format("{} does not have the record {} as it was put", contender.peer.name, key));
  }

  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  Values values_;
};

}  // namespace

MaybeFailure run_dbbench(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_GET(const std::vector<Backend> backends, backends_of(arguments.backends, arguments.devices));
  std::vector<DbContender> contenders;
  for (const Backend& backend : backends) {
    contenders.push_back({{.peer = logged_side()}, backend});
    contenders.push_back({{.peer = memlith_side()}, backend});
  }
  for (KvPeer& peer : kv_peers()) contenders.push_back({{.peer = std::move(peer)}, {}});
  std::vector<std::string> names;
  for (const DbContender& each : contenders) names.push_back(each.peer.name);
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names));
  std::erase_if(contenders, [&](const DbContender& each) { return !arguments.wants(each.peer.name); });
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + kTextKeyBytes) * kDbSpaceFactor;
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes + kStoreSlackBytes));
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} records, keys of 16 bytes, values of {} bytes; fills are synchronous{}",
                            arguments.records, arguments.value_bytes, memory_text(arguments.cgroup_mib)));
  DbBench bench(arguments, scratch);
  for (const std::string& workload : arguments.workloads) {
    std::vector<Line> lines;
    for (DbContender& contender : contenders) {
      if (arguments.cgroup_mib > 0) {
        MEMLITH_TOOL_TRY(with_limited_memory(arguments.cgroup_mib << 20, [&](const LimitMemory& limit) -> MaybeFailure {
          MEMLITH_TOOL_GET(Line line, bench.measure(workload, contender, limit));
          print_lines(arguments.format, workload, {std::move(line)}, "memlith");
          return {};
        }));
        continue;
      }
      MEMLITH_TOOL_GET(Line line, bench.measure(workload, contender, [] { return MaybeFailure(); }));
      lines.push_back(std::move(line));
    }
    print_lines(arguments.format, workload, lines, "memlith");
  }
  return {};
}

}  // namespace memlith::tool
