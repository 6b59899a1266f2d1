// Single-row updates, each a transaction of its own: the time of a durable commit and little else.
#include <fmt/format.h>

#include "cli/clock.hpp"
#include "contest.hpp"
#include "kit/random.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace memlith::sqlite_bench {

namespace {

constexpr std::uint64_t kWarmUpCommits = 200;

std::string note_of(std::uint64_t id) {
  tool::Random random(id);
  return fmt::format("{:016x}{:016x}{:016x}{:016x}", random.next(), random.next(), random.next(), random.next());
}

class Update final : public Workload {
 public:
  explicit Update(const UpdateSizes& sizes) : sizes_(sizes), random_(1), balances_(sizes.rows), changes_(sizes.rows) {}

  MaybeFailure attach(Connection& connection) override {
    return connection.prepare(update_,
                              "UPDATE account SET balance = balance + ?1, changes = changes + 1 WHERE id = ?2");
  }
  void detach() override { update_ = Statement(); }
  MaybeFailure warm_up(Turn& turn) override {
    for (std::uint64_t i = 0; i < std::min(kWarmUpCommits, sizes_.commits); ++i) {
      if (MaybeFailure failure = once(turn, false)) return failure;
    }
    return {};
  }
  MaybeFailure measure(Turn& turn) override {
    turn.samples_ns.reserve(sizes_.commits);
    return repeat(turn, sizes_.commits, [&] { return once(turn, true); });
  }
  MaybeFailure verify(Connection& connection, Checksum& checksum, std::uint64_t& rows) override {
    const auto check = [&](const Statement& row) -> MaybeFailure {
      const std::uint64_t i = rows;
      if (i >= sizes_.rows || row.integer(0) != static_cast<std::int64_t>(i + 1) || row.integer(1) != balances_[i] ||
          row.integer(2) != changes_[i] || row.text(3) != note_of(i + 1)) {
        return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("row {} is not what was written", row.integer(0)));
      }
      checksum.add_row(row);
      ++rows;
      return {};
    };
    if (MaybeFailure failure =
            connection.for_each_row("SELECT id, balance, changes, note FROM account ORDER BY id", check)) {
      return failure;
    }
    return check_count(rows, sizes_.rows);
  }

 private:
  MaybeFailure once(Turn& turn, bool measured) {
    const std::uint64_t row = random_.below(sizes_.rows);
    const auto amount = static_cast<std::int64_t>(random_.below(2001)) - 1000;
    update_.bind(1, amount);
    update_.bind(2, static_cast<std::int64_t>(row + 1));
    const std::uint64_t begin_ns = tool::now_ns();
    if (MaybeFailure failure = update_.run()) return failure;
    if (measured) turn.samples_ns.push_back(tool::now_ns() - begin_ns);
    balances_[row] += amount;
    ++changes_[row];
    ++turn.commits;
    return {};
  }

  UpdateSizes sizes_;
  tool::Random random_;
  std::vector<std::int64_t> balances_;
  std::vector<std::int64_t> changes_;
  Statement update_;
};

MaybeFailure build(Connection& connection, const UpdateSizes& sizes) {
  if (MaybeFailure failure =
          connection.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, changes INTEGER "
                             "NOT NULL, note TEXT NOT NULL)")) {
    return failure;
  }
  auto insert = connection.prepare("INSERT INTO account VALUES(?1, 0, 0, ?2)");
  if (!insert.ok()) return insert.failure();
  for (std::uint64_t id = 1; id <= sizes.rows; ++id) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    const std::string note = note_of(id);
    insert->bind(1, static_cast<std::int64_t>(id));
    insert->bind(2, note);
    if (MaybeFailure failure = insert->run()) return failure;
  }
  return sizes.indexes > 0 ? connection.execute("CREATE INDEX account_balance ON account(balance)") : MaybeFailure{};
}

}  // namespace

MaybeFailure run_update(const Settings& settings, const UpdateSizes& sizes) {
  auto contest = Contest::make(settings);
  if (!contest.ok()) return contest.failure();
  if (MaybeFailure failure = contest->enter([&](Connection& connection) { return build(connection, sizes); },
                                            [&] { return std::make_unique<Update>(sizes); })) {
    return failure;
  }
  Shape shape;
  shape.fields = Json{{"benchmark", "update"}, {"table_rows", sizes.rows}, {"indexes", sizes.indexes}};
  shape.latency = "UPDATE of one row, a transaction of its own";
  shape.same_content = true;
  shape.raw_rounds = sizes.commits;
  return contest->run(shape);
}

}  // namespace memlith::sqlite_bench
