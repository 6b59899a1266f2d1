#include "contest.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"

namespace memlith::sqlite_bench {

using tool::median_of;
using tool::nearest_rank;
using tool::rounded;

namespace {

// With fewer in a turn the 99th percentile is its slowest one, and so is the 99.9th: the largest of a handful, by
// nearest rank.
constexpr std::size_t kSamplesForP99 = 100;
constexpr std::size_t kSamplesForP999 = 1000;

// The percentiles of each turn; then their medians, and the largest maximum. Percentiles that some turn has too few
// samples for are left out of all.
struct Spread {
  std::vector<double> p50, p99, p999, max;
  std::size_t samples = 0;  // of the turn that has the fewest
};

Spread spread_of(const std::vector<Turn>& turns, std::vector<std::uint64_t> Turn::* samples) {
  Spread spread;
  for (const Turn& turn : turns) {
    std::vector<std::uint64_t> sorted = turn.*samples;
    if (sorted.empty()) continue;
    spread.samples = spread.max.empty() ? sorted.size() : std::min(spread.samples, sorted.size());
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&sorted](double rank) {
      return rounded(static_cast<double>(nearest_rank(sorted, rank)) / 1000.0);
    };
    spread.p50.push_back(at(0.5));
    spread.p99.push_back(at(0.99));
    spread.p999.push_back(at(0.999));
    spread.max.push_back(at(1));
  }
  if (spread.samples < kSamplesForP99) spread.p99.clear();
  if (spread.samples < kSamplesForP999) spread.p999.clear();
  return spread;
}

Json rounded_all(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(rounded(value));
  return array;
}

Json median_or_null(const std::vector<double>& values) {
  return values.empty() ? Json(nullptr) : Json(rounded(median_of(values)));
}

void add_spread(Json& row, const Spread& spread) {
  row["samples_per_turn"] = spread.samples;
  row["p50_us"] = median_or_null(spread.p50);
  row["p99_us"] = median_or_null(spread.p99);
  row["p999_us"] = median_or_null(spread.p999);
  row["max_us"] = spread.max.empty() ? Json(nullptr) : Json(*std::max_element(spread.max.begin(), spread.max.end()));
}

// PRAGMA memlith_stats: name=value, separated by blanks. Of its numbers.
Json parse_stats(const std::string& text) {
  Json object = Json::object();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    if (at == std::string::npos || at + 1 == word.size()) continue;
    if (word.find_first_not_of("0123456789", at + 1) != std::string::npos) continue;
    object[word.substr(0, at)] = std::stoull(word.substr(at + 1));
  }
  return object;
}

// A missing file is no failure; a file that cannot be removed shows when the next one is copied there.
void remove_database(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal", ".memlith", ".memlith-stats"}) {
    std::error_code ignored;
    std::filesystem::remove(path + suffix, ignored);
  }
}

CallCounts since(const CallCounts& before) {
  CallCounts result = calls_so_far();
  for (std::size_t i = 0; i < kCalls; ++i) {
    result[i].calls -= before[i].calls;
    result[i].ns -= before[i].ns;
  }
  return result;
}

// Means over all turns, an operation; and how long one call took.
Json calls_of(const Lane& lane) {
  Json result = Json::object();
  double operations = 0;
  double wall_ns = 0;
  for (const Turn& turn : lane.turns) {
    operations += static_cast<double>(turn.operations);
    wall_ns += static_cast<double>(turn.wall_ns);
  }
  if (operations == 0) return nullptr;
  result["us_per_operation"] = rounded(wall_ns / 1000 / operations);
  for (std::size_t i = 0; i < kCalls; ++i) {
    double calls = 0;
    double ns = 0;
    for (const CallCounts& turn : lane.calls) {
      calls += static_cast<double>(turn[i].calls);
      ns += static_cast<double>(turn[i].ns);
    }
    result[std::string(name_of(static_cast<Call>(i)))] = {{"per_operation", rounded(calls / operations)},
                                                          {"us_each", calls > 0 ? rounded(ns / 1000 / calls) : 0.0},
                                                          {"us_per_operation", rounded(ns / 1000 / operations)}};
  }
  return result;
}

void add_turn(Lane& lane, Turn turn, const Reading& before, const Reading& after) {
  lane.operations_per_s.push_back(static_cast<double>(turn.operations) / tool::seconds_of(turn.wall_ns));
  const auto commits = static_cast<double>(std::max<std::uint64_t>(turn.commits, 1));
  for (const auto& [target, bytes] : {std::pair{&lane.process_bytes_per_commit, &Reading::process_bytes},
                                      std::pair{&lane.device_bytes_per_commit, &Reading::device_bytes}}) {
    if (before.*bytes && after.*bytes)
      target->push_back(static_cast<double>(*(after.*bytes) - *(before.*bytes)) / commits);
  }
  lane.turns.push_back(std::move(turn));
}

Failure lane_failure(const Lane& lane, Failure failure) {
  failure.message = fmt::format("{}: {}", lane.system.name, failure.message);
  return failure;
}

}  // namespace

MaybeFailure reason_to_stop() {
  if (tool::interrupted()) return tool::interrupted_failure();
  if (tool::output_failed()) return tool::tool_failure(MEMLITH_IO, "cannot write to standard output");
  return {};
}

MaybeFailure repeat(Turn& turn, std::uint64_t count, const std::function<MaybeFailure()>& operation) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    if (MaybeFailure failure = operation()) return failure;
  }
  turn.operations = count;
  return {};
}

MaybeFailure check_count(std::uint64_t rows, std::uint64_t expected) {
  if (rows == expected) return {};
  return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("found {} rows; expected {}", rows, expected));
}

Result<Contest> Contest::make(const Settings& settings) {
  auto systems = systems_of(settings);
  if (!systems.ok()) return systems.failure();
  if (MaybeFailure failure = load_plugin(settings.plugin)) return *failure;
  auto scratch = tool::ScratchFolder::make(settings.folder);
  if (!scratch.ok()) return scratch.failure();
  return Contest(settings, std::move(*scratch), std::move(*systems));
}

MaybeFailure Contest::copy_template(const Lane& lane) const {
  remove_database(lane.path);
  std::error_code error;
  std::filesystem::copy_file(template_path(), lane.path, error);
  if (error) return tool::errno_failure(error.value(), fmt::format("cannot copy {}", template_path()));
  return {};
}

MaybeFailure Contest::enter(const std::function<MaybeFailure(Connection&)>& build, Make make) {
  auto connection = Connection::open_plain(template_path());
  if (!connection.ok()) return connection.failure();
  if (MaybeFailure failure = connection->execute("BEGIN")) return failure;
  if (MaybeFailure failure = build(*connection)) return failure;
  if (MaybeFailure failure = connection->execute("COMMIT")) return failure;
  if (MaybeFailure failure = connection->close()) return failure;
  make_ = std::move(make);
  lanes_.clear();
  for (const System& system : systems_) {
    Lane lane;
    lane.system = system;
    lane.path = scratch_.path_of(fmt::format("{}.db", lanes_.size()));
    lane.workload = make_();
    if (MaybeFailure failure = copy_template(lane)) return failure;
    lanes_.push_back(std::move(lane));
  }
  Lane raw;
  raw.system.name = "raw";
  raw.system.durable_at_return = true;
  raw.system.durability = "each write when it returns";
  raw.path = scratch_.path_of("raw");
  lanes_.push_back(std::move(raw));
  return {};
}

void Contest::leave() {
  for (const Lane& lane : lanes_) remove_database(lane.path);
  lanes_.clear();
  scratch_.remove("template.db");
}

MaybeFailure Contest::raw_turn(const Shape& shape, Lane& lane) {
  std::error_code ignored;
  std::filesystem::remove(lane.path, ignored);
  auto writer = tool::RawWriter::create(lane.path, 4 * tool::kMiB, shape.raw_bytes);
  if (!writer.ok()) return writer.failure();
  writer->set_round_bytes(shape.raw_bytes);
  auto before = meter_.read();
  if (!before.ok()) return before.failure();
  Turn turn;
  for (std::uint64_t i = 0; i < shape.raw_rounds; ++i) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    std::uint64_t took_ns = 0;
    if (MaybeFailure failure = writer->round(took_ns)) return failure;
    turn.samples_ns.push_back(took_ns);
    turn.wall_ns += took_ns;
  }
  auto after = meter_.read();
  if (!after.ok()) return after.failure();
  turn.operations = turn.commits = shape.raw_rounds;
  add_turn(lane, std::move(turn), *before, *after);
  return {};
}

MaybeFailure Contest::take_turn(const Shape& shape, Lane& lane) {
  if (lane.workload == nullptr) return shape.raw_bytes > 0 ? raw_turn(shape, lane) : MaybeFailure{};
  if (shape.fresh_each_turn) {
    lane.workload = make_();
    if (MaybeFailure failure = copy_template(lane)) return failure;
  }
  auto opened = Connection::open(lane.path, lane.system, settings_);
  if (!opened.ok()) return opened.failure();
  Connection& connection = *opened;
  // Bytes count from the opened database until everything is where it belongs: what the closing checkpoint writes too.
  auto before = meter_.read();
  if (!before.ok()) return before.failure();
  if (MaybeFailure failure = lane.workload->attach(connection)) return failure;
  Turn turn;
  MaybeFailure failure = lane.workload->warm_up(turn);
  if (!failure) {
    const CallCounts calls = calls_so_far();
    const ProcessorTime processor = processor_time();
    const std::uint64_t begin_ns = tool::now_ns();
    failure = lane.workload->measure(turn);
    turn.wall_ns = tool::now_ns() - begin_ns;
    const ProcessorTime now = processor_time();
    if (settings_.calls) lane.calls.push_back(since(calls));
    const auto operations = static_cast<double>(std::max<std::uint64_t>(turn.operations, 1));
    lane.user_us_per_operation.push_back(static_cast<double>(now.user_us - processor.user_us) / operations);
    lane.system_us_per_operation.push_back(static_cast<double>(now.system_us - processor.system_us) / operations);
  }
  lane.workload->detach();
  if (failure) return failure;
  if (lane.system.memlith) {
    auto stats = connection.text_of("PRAGMA memlith_stats");
    if (!stats.ok()) return stats.failure();
    lane.memlith = parse_stats(*stats);
  }
  if (MaybeFailure closing = connection.close()) return closing;
  auto after = meter_.read();
  if (!after.ok()) return after.failure();
  add_turn(lane, std::move(turn), *before, *after);
  return {};
}

MaybeFailure Contest::verify(const Shape& shape) {
  const Lane* first = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.workload == nullptr) continue;
    auto opened = Connection::open_plain(lane.path);
    if (!opened.ok()) return lane_failure(lane, opened.failure());
    Checksum checksum;
    lane.rows = 0;
    if (MaybeFailure failure = check_integrity(*opened)) return lane_failure(lane, *failure);
    if (MaybeFailure failure = lane.workload->verify(*opened, checksum, lane.rows)) return lane_failure(lane, *failure);
    if (MaybeFailure failure = opened->close()) return lane_failure(lane, *failure);
    lane.checksum = fmt::format("{:016x}", checksum.value());
    if (first == nullptr) first = &lane;
    if (shape.same_content && lane.checksum != first->checksum) {
      return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("{} holds other content than {} after the same statements",
                                                             lane.system.name, first->system.name));
    }
  }
  return {};
}

MaybeFailure Contest::run(const Shape& shape) {
  for (Lane& lane : lanes_) {
    lane.turns.clear();
    lane.calls.clear();
    for (auto* values : {&lane.operations_per_s, &lane.process_bytes_per_commit, &lane.device_bytes_per_commit,
                         &lane.user_us_per_operation, &lane.system_us_per_operation}) {
      values->clear();
    }
  }
  for (std::uint64_t repetition = 0; repetition < settings_.repetitions; ++repetition) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[(i + repetition) % lanes_.size()];
      if (MaybeFailure stop = reason_to_stop()) return stop;
      if (MaybeFailure failure = take_turn(shape, lane)) {
        return failure->exit_code == tool::kExitInterrupted ? failure : lane_failure(lane, *failure);
      }
    }
  }
  if (MaybeFailure failure = verify(shape)) return failure;
  return print(shape);
}

const Lane* Contest::lane_named(std::string_view name) const {
  for (const Lane& lane : lanes_) {
    if (lane.system.name == name && !lane.turns.empty()) return &lane;
  }
  return nullptr;
}

Json Contest::row_of(const Shape& shape, const Lane& lane) const {
  const bool raw = lane.workload == nullptr;
  Json row = shape.fields;
  row["system"] = lane.system.name;
  row["memlith"] = lane.system.memlith;
  row["journal_mode"] = raw ? Json(nullptr) : Json(lane.system.journal_mode);
  row["synchronous"] = raw || lane.system.memlith ? Json(nullptr) : Json(lane.system.synchronous);
  row["durable_at_return"] = lane.system.durable_at_return;
  row["durability"] = lane.system.durability;
  row["repetitions"] = lane.turns.size();
  std::uint64_t operations = 0;
  std::uint64_t commits = 0;
  for (const Turn& turn : lane.turns) {
    operations += turn.operations;
    commits += turn.commits;
  }
  row["operations"] = operations;
  row["commits"] = commits;
  row["operations_per_s"] = median_or_null(lane.operations_per_s);
  // The ratio of neighbours in time, a repetition each; then the median.
  const auto paired = [&lane](const std::vector<double>& mine, const Lane* other, const std::vector<double>* theirs) {
    std::vector<double> ratios;
    for (std::size_t i = 0; other != nullptr && other != &lane && i < std::min(mine.size(), theirs->size()); ++i) {
      if ((*theirs)[i] > 0) ratios.push_back(mine[i] / (*theirs)[i]);
    }
    return median_or_null(ratios);
  };
  for (const auto& [name, field] : {std::pair{"wal-full", "throughput_over_wal_full"},
                                    {"wal-off", "throughput_over_wal_off"},
                                    {"delete-full", "throughput_over_delete_full"}}) {
    const Lane* const other = raw ? nullptr : lane_named(name);
    row[field] = paired(lane.operations_per_s, other, other == nullptr ? nullptr : &other->operations_per_s);
  }
  const Spread spread = spread_of(lane.turns, &Turn::samples_ns);
  row["latency_of"] = raw ? fmt::format("write + fdatasync of {} bytes", shape.raw_bytes) : shape.latency;
  add_spread(row, spread);
  // The least that a durable commit can take: the device's part and SQLite's.
  std::vector<double> over_floor;
  std::vector<double> tail_over_wal;
  const Lane* const device = lane_named("raw");
  const Lane* const off = lane_named("wal-off");
  if (const Lane* const wal = lane_named("wal-full"); wal != nullptr && wal != &lane && !raw) {
    const Spread theirs = spread_of(wal->turns, &Turn::samples_ns);
    for (std::size_t i = 0; i < std::min(spread.p999.size(), theirs.p999.size()); ++i) {
      tail_over_wal.push_back(spread.p999[i] / theirs.p999[i]);
    }
  }
  if (device != nullptr && off != nullptr && !raw) {
    const Spread flush = spread_of(device->turns, &Turn::samples_ns);
    const Spread statement = spread_of(off->turns, &Turn::samples_ns);
    for (std::size_t i = 0; i < std::min({spread.p50.size(), flush.p50.size(), statement.p50.size()}); ++i) {
      over_floor.push_back(spread.p50[i] / (flush.p50[i] + statement.p50[i]));
    }
  }
  row["p50_over_raw_plus_off"] = median_or_null(over_floor);
  row["p999_over_wal_full"] = median_or_null(tail_over_wal);
  if (!shape.further.empty() && !raw) {
    Json further{{"latency_of", shape.further}};
    add_spread(further, spread_of(lane.turns, &Turn::further_ns));
    row["further"] = further;
  }
  row["process_bytes_per_commit"] = median_or_null(lane.process_bytes_per_commit);
  row["device_bytes_per_commit"] = median_or_null(lane.device_bytes_per_commit);
  row["user_us_per_operation"] = median_or_null(lane.user_us_per_operation);
  row["system_us_per_operation"] = median_or_null(lane.system_us_per_operation);
  if (!lane.calls.empty()) row["calls"] = calls_of(lane);
  row["verified"] = raw ? Json(nullptr) : Json(true);  // else the run had failed
  row["rows"] = raw ? Json(nullptr) : Json(lane.rows);
  row["checksum"] = raw ? Json(nullptr) : Json(lane.checksum);
  row["same_content"] = raw ? Json(nullptr) : Json(shape.same_content);
  row["each"] = Json{{"operations_per_s", rounded_all(lane.operations_per_s)},
                     {"p50_us", spread.p50},
                     {"p99_us", spread.p99},
                     {"p999_us", spread.p999},
                     {"max_us", spread.max}};
  Json more = Json::array();
  for (const Turn& turn : lane.turns) {
    if (!turn.more.empty()) more.push_back(turn.more);
  }
  if (!more.empty()) row["turns"] = more;
  row["memlith_stats"] = lane.memlith;
  row["sqlite"] = sqlite3_libversion();
  row["kernel"] = tool::kernel_release();
  row["time"] = tool::utc_now();
  return row;
}

// Where an operation's time went: how many calls of the VFS, and the time in all of each kind.
void Contest::print_calls(const std::vector<Json>& rows) const {
  tool::write_line(fmt::format("{:<16} {:>11} {:>8} {:>10} {:>8} {:>10} {:>8} {:>10} {:>8} {:>10} {:>10} {:>10}",
                               "an operation's", "us", "reads", "us", "writes", "us", "durable", "us", "names", "us",
                               "user us", "system us"));
  for (const Json& row : rows) {
    if (!row.contains("calls") || row["calls"].is_null()) continue;
    const Json& calls = row["calls"];
    std::string line =
        fmt::format("{:<16} {:>11.1f}", row["system"].get<std::string>(), calls["us_per_operation"].get<double>());
    for (const char* kind : {"read", "write", "durable", "name"}) {
      line += fmt::format(" {:>8.2f} {:>10.1f}", calls[kind]["per_operation"].get<double>(),
                          calls[kind]["us_per_operation"].get<double>());
    }
    tool::write_line(line + fmt::format(" {:>10.1f} {:>10.1f}", row["user_us_per_operation"].get<double>(),
                                        row["system_us_per_operation"].get<double>()));
  }
  tool::write_line("");
}

void Contest::print_table(const std::vector<Json>& rows) const {
  std::string title;
  for (const auto& [name, value] : rows.front().items()) {
    if (name == "system") break;
    if (!title.empty()) title += ", ";
    title += name == "benchmark" ? value.get<std::string>() : fmt::format("{} {}", name, value.dump());
  }
  tool::write_line(title);
  tool::write_line(fmt::format("{:<16} {:>11} {:>9} {:>8} {:>9} {:>9} {:>10} {:>10} {:>10} {:>9}  {}", "system",
                               "per s", "x wal-full", "a turn", "p50 us", "p99 us", "p99.9 us", "max us", "device B",
                               "process B", "durable"));
  const auto number = [](const Json& value, int places) {
    return value.is_null() ? std::string("-") : fmt::format("{:.{}f}", value.get<double>(), places);
  };
  for (const Json& row : rows) {
    tool::write_line(fmt::format("{:<16} {:>11} {:>9} {:>8} {:>9} {:>9} {:>10} {:>10} {:>10} {:>9}  {}",
                                 row["system"].get<std::string>(), number(row["operations_per_s"], 1),
                                 number(row["throughput_over_wal_full"], 2), number(row["samples_per_turn"], 0),
                                 number(row["p50_us"], 1), number(row["p99_us"], 1), number(row["p999_us"], 1),
                                 number(row["max_us"], 1), number(row["device_bytes_per_commit"], 0),
                                 number(row["process_bytes_per_commit"], 0), row["durability"].get<std::string>()));
  }
  for (const Json& row : rows) {
    if (row["system"] == "memlith" && !row["p50_over_raw_plus_off"].is_null()) {
      tool::write_line(fmt::format("memlith's p50 over raw's + wal-off's: {:.2f}; its p99.9 over wal-full's: {}",
                                   row["p50_over_raw_plus_off"].get<double>(), number(row["p999_over_wal_full"], 2)));
    }
  }
  tool::write_line("");
}

MaybeFailure Contest::print(const Shape& shape) const {
  std::vector<Json> rows;
  for (const Lane& lane : lanes_) {
    if (!lane.turns.empty()) rows.push_back(row_of(shape, lane));
  }
  if (!settings_.record.empty()) {
    std::ofstream record(settings_.record, std::ios::app);
    for (const Json& row : rows) record << row.dump() << '\n';
    record.flush();
    if (!record) return tool::errno_failure(EIO, fmt::format("cannot write {}", settings_.record));
  }
  if (settings_.format == Format::json) {
    for (const Json& row : rows) tool::write_json(row);
  } else if (!rows.empty()) {
    print_table(rows);
    if (settings_.calls) print_calls(rows);
  }
  return {};
}

}  // namespace memlith::sqlite_bench
