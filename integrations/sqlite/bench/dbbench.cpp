// Many writes a transaction to a table of keys and values, at random or in order.
#include <fmt/format.h>

#include "cli/clock.hpp"
#include "contest.hpp"
#include "kit/random.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace memlith::sqlite_bench {

namespace {

constexpr std::uint64_t kTransactionsMin = 4;

std::string key_of(std::uint64_t number) { return fmt::format("{:016}", number); }

// A value differs in each of its bytes from the one before it.
void fill_value(std::uint64_t key, std::uint32_t version, std::vector<std::byte>& value) {
  tool::Random random(key << 32 | version);
  random.fill(value);
}

struct Cell {
  bool random = true;
  std::uint64_t transactions = 0;
  std::uint64_t writes_each = 0;
};

class Dbbench final : public Workload {
 public:
  explicit Dbbench(const DbbenchSizes& sizes)
      : sizes_(sizes), random_(1), versions_(sizes.keys), value_(sizes.value_bytes) {}

  void set_cell(const Cell& cell) { cell_ = cell; }

  MaybeFailure attach(Connection& connection) override {
    for (const auto& [statement, sql] : {std::pair<Statement*, const char*>{&begin_, "BEGIN IMMEDIATE"},
                                         {&commit_, "COMMIT"},
                                         {&write_,
                                          "INSERT INTO kv VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = "
                                          "excluded.value"}}) {
      if (MaybeFailure failure = connection.prepare(*statement, sql)) return failure;
    }
    return {};
  }
  void detach() override {
    for (Statement* statement : {&begin_, &commit_, &write_}) *statement = Statement();
  }
  MaybeFailure warm_up(Turn& turn) override { return once(turn, false); }
  MaybeFailure measure(Turn& turn) override {
    return repeat(turn, cell_.transactions, [&] { return once(turn, true); });
  }
  MaybeFailure verify(Connection& connection, Checksum& checksum, std::uint64_t& rows) override {
    const auto check = [&](const Statement& row) -> MaybeFailure {
      if (rows < sizes_.keys) fill_value(rows, versions_[rows], value_);
      const auto stored = row.blob(1);
      if (rows >= sizes_.keys || row.text(0) != key_of(rows) ||
          !std::equal(stored.begin(), stored.end(), value_.begin(), value_.end())) {
        return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("key {} is not what was written", row.text(0)));
      }
      checksum.add_row(row);
      ++rows;
      return {};
    };
    if (MaybeFailure failure = connection.for_each_row("SELECT key, value FROM kv ORDER BY key", check)) return failure;
    return check_count(rows, sizes_.keys);
  }

 private:
  MaybeFailure once(Turn& turn, bool measured) {
    const std::uint64_t begin_ns = tool::now_ns();
    if (MaybeFailure failure = begin_.run()) return failure;
    for (std::uint64_t i = 0; i < cell_.writes_each; ++i) {
      const std::uint64_t number = cell_.random ? random_.below(sizes_.keys) : next_++ % sizes_.keys;
      fill_value(number, ++versions_[number], value_);
      const std::string key = key_of(number);
      write_.bind(1, key);
      write_.bind(2, std::span<const std::byte>(value_));
      if (MaybeFailure failure = write_.run()) return failure;
    }
    const std::uint64_t commit_ns = tool::now_ns();
    if (MaybeFailure failure = commit_.run()) return failure;
    const std::uint64_t end_ns = tool::now_ns();
    if (measured) {
      turn.samples_ns.push_back(end_ns - begin_ns);
      turn.further_ns.push_back(end_ns - commit_ns);
    }
    ++turn.commits;
    return {};
  }

  DbbenchSizes sizes_;
  Cell cell_;
  tool::Random random_;
  std::uint64_t next_ = 0;
  std::vector<std::uint32_t> versions_;
  std::vector<std::byte> value_;
  Statement begin_;
  Statement commit_;
  Statement write_;
};

MaybeFailure build(Connection& connection, const DbbenchSizes& sizes) {
  if (MaybeFailure failure =
          connection.execute("CREATE TABLE kv(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")) {
    return failure;
  }
  auto insert = connection.prepare("INSERT INTO kv VALUES(?1, ?2)");
  if (!insert.ok()) return insert.failure();
  std::vector<std::byte> value(sizes.value_bytes);
  for (std::uint64_t number = 0; number < sizes.keys; ++number) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    fill_value(number, 0, value);
    const std::string key = key_of(number);
    insert->bind(1, key);
    insert->bind(2, std::span<const std::byte>(value));
    if (MaybeFailure failure = insert->run()) return failure;
  }
  return {};
}

}  // namespace

MaybeFailure run_dbbench(const Settings& settings, const DbbenchSizes& sizes) {
  auto contest = Contest::make(settings);
  if (!contest.ok()) return contest.failure();
  if (MaybeFailure failure = contest->enter([&](Connection& connection) { return build(connection, sizes); },
                                            [&] { return std::make_unique<Dbbench>(sizes); })) {
    return failure;
  }
  for (const std::string& pattern : sizes.patterns) {
    for (const std::uint64_t kib : sizes.transaction_kib) {
      Cell cell;
      cell.random = pattern == "random";
      cell.writes_each = std::max<std::uint64_t>(kib * 1024 / sizes.value_bytes, 1);
      cell.transactions = std::max(sizes.writes / cell.writes_each, kTransactionsMin);
      for (Lane& lane : contest->lanes()) {
        if (lane.workload != nullptr) static_cast<Dbbench&>(*lane.workload).set_cell(cell);
      }
      Shape shape;
      shape.fields = Json{{"benchmark", "dbbench"},          {"pattern", pattern}, {"transaction_kib", kib},
                          {"writes_each", cell.writes_each}, {"keys", sizes.keys}, {"value_bytes", sizes.value_bytes}};
      shape.latency = "a transaction, BEGIN to COMMIT";
      shape.further = "COMMIT alone";
      shape.same_content = true;
      shape.raw_bytes = kib * 1024;
      shape.raw_rounds = std::min<std::uint64_t>(cell.transactions, 500);
      if (MaybeFailure failure = contest->run(shape)) return failure;
    }
  }
  return {};
}

}  // namespace memlith::sqlite_bench
