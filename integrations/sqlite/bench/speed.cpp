// A mix of everything that programs do with SQLite, each part timed by itself, from an empty database to a checked one.
#include <fmt/format.h>

#include <array>
#include <functional>

#include "cli/clock.hpp"
#include "contest.hpp"
#include "kit/random.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace memlith::sqlite_bench {

namespace {

// A number in words, so that text has something to be searched for.
std::string words_of(std::uint64_t number) {
  constexpr std::array<const char*, 10> kDigits{"zero", "one", "two",   "three", "four",
                                                "five", "six", "seven", "eight", "nine"};
  std::string text;
  for (const char digit : std::to_string(number)) {
    if (!text.empty()) text += ' ';
    text += kDigits[static_cast<std::size_t>(digit - '0')];
  }
  return text;
}

class Speed final : public Workload {
 public:
  explicit Speed(const SpeedSizes& sizes)
      : rows_(sizes.size * 500),
        singles_(sizes.size * 5),
        blobs_(std::max<std::uint64_t>(sizes.size / 4, 1)),
        random_(11) {}

  MaybeFailure attach(Connection& connection) override {
    connection_ = &connection;
    return {};
  }
  void detach() override { connection_ = nullptr; }
  MaybeFailure warm_up(Turn&) override { return {}; }

  MaybeFailure measure(Turn& turn) override {
    turn_ = &turn;
    Json parts = Json::object();
    for (const auto& [name, body] : parts_of()) {
      if (MaybeFailure stop = reason_to_stop()) return stop;
      const std::uint64_t begin_ns = tool::now_ns();
      if (MaybeFailure failure = body()) {
        failure->message = fmt::format("{}: {}", name, failure->message);
        return failure;
      }
      parts[name] = static_cast<double>((tool::now_ns() - begin_ns) / 1000) / 1e6;
    }
    turn.operations = 1;
    turn.more = Json{{"parts_s", parts}};
    return {};
  }

  MaybeFailure verify(Connection& connection, Checksum& checksum, std::uint64_t& rows) override {
    for (const char* sql : {"SELECT * FROM single ORDER BY id", "SELECT * FROM plain ORDER BY rowid",
                            "SELECT * FROM indexed ORDER BY id", "SELECT * FROM blobs ORDER BY id"}) {
      const auto add = [&](const Statement& row) -> MaybeFailure {
        checksum.add_row(row);
        ++rows;
        return {};
      };
      if (MaybeFailure failure = connection.for_each_row(sql, add)) return failure;
    }
    // The answers of the queries must be the same, too.
    checksum.add(answers_.value());
    return check_count(rows, singles_ + rows_ + rows_ / 2 + blobs_);
  }

 private:
  using Part = std::pair<const char*, std::function<MaybeFailure()>>;

  std::vector<Part> parts_of() {
    const auto sql = [this](std::string text) { return [this, text] { return connection_->execute(text); }; };
    const auto query = [this](std::string text, std::uint64_t times) {
      return [this, text, times] { return ask(text, times); };
    };
    const std::uint64_t few = std::max<std::uint64_t>(singles_ / 5, 1);
    return {
        {"tables", sql("CREATE TABLE single(id INTEGER PRIMARY KEY, number INTEGER, words TEXT);"
                       "CREATE TABLE plain(number INTEGER, other INTEGER, words TEXT);"
                       "CREATE TABLE indexed(id INTEGER PRIMARY KEY, number INTEGER, other INTEGER, words TEXT);"
                       "CREATE TABLE blobs(id INTEGER PRIMARY KEY, content BLOB)")},
        {"inserts, each a transaction",
         [this] { return insert("single(number, words) VALUES(?1, ?3 || ?2 * 0)", singles_, false); }},
        {"inserts in one transaction", [this] { return insert("plain VALUES(?1, ?2, ?3)", rows_, true); }},
        {"inserts, indexed",
         [this]() -> MaybeFailure {
           if (MaybeFailure failure = connection_->execute("CREATE INDEX indexed_number ON indexed(number)"))
             return failure;
           return insert("indexed(number, other, words) VALUES(?1, ?2, ?3)", rows_, true);
         }},
        {"an index made afterwards", sql("CREATE INDEX indexed_words ON indexed(words)")},
        {"selects without an index",
         query("SELECT count(*), sum(other) FROM plain WHERE number BETWEEN ?1 AND ?1 + 1000", few)},
        {"text search",
         query("SELECT count(*), max(words) FROM plain WHERE words LIKE '%seven%' || (?1 % 10 + 0) || '%' OR "
               "instr(words, 'eight nine') > 0",
               few)},
        {"selects by an index",
         query("SELECT count(*), sum(other) FROM indexed WHERE number BETWEEN ?1 AND ?1 + 1000", rows_ / 10)},
        {"selects by key",
         query("SELECT number, words FROM indexed WHERE id = ?1 % (SELECT max(id) FROM indexed) + 1", rows_)},
        {"order by", query("SELECT words FROM plain ORDER BY words LIMIT 1 OFFSET ?1 % 100", few)},
        {"joins", query("SELECT count(*), sum(a.other) FROM indexed AS a, plain AS b WHERE a.number = b.number + ?1 % "
                        "7 AND b.other < 250000",
                        1)},
        {"updates, each a transaction",
         [this] { return update("UPDATE single SET number = number + ?2 WHERE id = ?1", singles_, false); }},
        {"updates without an index",
         [this] {
           return update(
               "UPDATE plain SET other = other + ?2 % 10 WHERE number BETWEEN ?1 * 100 AND "
               "?1 * 100 + 1000",
               singles_ / 5 + 1, true);
         }},
        {"updates by key", [this] { return update("UPDATE indexed SET number = ?2 WHERE id = ?1", rows_ / 2, true); }},
        {"text updates",
         sql("UPDATE plain SET words = upper(substr(words, 1, 8)) || replace(substr(words, 9), 'one', 'eins')")},
        {"big blobs", [this] { return write_blobs(); }},
        {"big blobs read",
         query("SELECT sum(length(content)), max(substr(content, 1000, 8)) FROM blobs WHERE id > ?1 * 0", few)},
        {"a transaction rolled back",
         sql("BEGIN; UPDATE indexed SET words = words || '!'; DELETE FROM plain; ROLLBACK")},
        {"savepoints", sql("BEGIN; SAVEPOINT a; UPDATE indexed SET other = other + 1; SAVEPOINT b; DELETE FROM indexed "
                           "WHERE id % 3 = 0; ROLLBACK TO b; RELEASE a; COMMIT")},
        {"deletes", sql("DELETE FROM indexed WHERE id % 2 = 0")},
        {"ANALYZE", sql("ANALYZE")},
        {"VACUUM", sql("VACUUM")},
        {"integrity check", [this] { return check_integrity(*connection_); }},
    };
  }

  MaybeFailure timed_commit(const std::function<MaybeFailure()>& body) {
    const std::uint64_t begin_ns = tool::now_ns();
    if (MaybeFailure failure = body()) return failure;
    turn_->samples_ns.push_back(tool::now_ns() - begin_ns);
    ++turn_->commits;
    return {};
  }

  // `one` transaction, or one for each.
  MaybeFailure insert(const std::string& target, std::uint64_t count, bool one) {
    return each("INSERT INTO " + target, count, one, [this](Statement& statement, std::uint64_t) {
      const std::uint64_t number = random_.below(1'000'000);
      words_ = words_of(number);
      statement.bind(1, static_cast<std::int64_t>(number));
      statement.bind(2, static_cast<std::int64_t>(random_.below(1'000'000)));
      statement.bind(3, words_);
    });
  }
  MaybeFailure update(const std::string& sql, std::uint64_t count, bool one) {
    return each(sql, count, one, [this](Statement& statement, std::uint64_t i) {
      statement.bind(1, static_cast<std::int64_t>(i + 1));
      statement.bind(2, static_cast<std::int64_t>(random_.below(1'000'000)));
    });
  }
  template <class Bind>
  MaybeFailure each(const std::string& sql, std::uint64_t count, bool one, Bind bind) {
    auto statement = connection_->prepare(sql);
    if (!statement.ok()) return statement.failure();
    if (one) {
      if (MaybeFailure failure = connection_->execute("BEGIN")) return failure;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      bind(*statement, i);
      MaybeFailure failure = one ? statement->run() : timed_commit([&] { return statement->run(); });
      if (failure) return failure;
    }
    return one ? connection_->execute("COMMIT") : MaybeFailure{};
  }
  MaybeFailure ask(const std::string& sql, std::uint64_t times) {
    auto statement = connection_->prepare(sql);
    if (!statement.ok()) return statement.failure();
    for (std::uint64_t i = 0; i < times; ++i) {
      statement->bind(1, static_cast<std::int64_t>(random_.below(1'000'000)));
      for (bool found = true;;) {
        if (MaybeFailure failure = statement->step(found)) return failure;
        if (!found) break;
        answers_.add_row(*statement);
      }
    }
    return {};
  }
  MaybeFailure write_blobs() {
    std::vector<std::byte> content(tool::kMiB);
    return each("INSERT INTO blobs(content) VALUES(?1)", blobs_, true, [&](Statement& statement, std::uint64_t) {
      random_.fill(content);
      statement.bind(1, std::span<const std::byte>(content));
    });
  }

  std::uint64_t rows_;
  std::uint64_t singles_;
  std::uint64_t blobs_;
  tool::Random random_;
  Connection* connection_ = nullptr;
  Turn* turn_ = nullptr;
  std::string words_;
  Checksum answers_;
};

}  // namespace

MaybeFailure run_speed(const Settings& settings, const SpeedSizes& sizes) {
  auto contest = Contest::make(settings);
  if (!contest.ok()) return contest.failure();
  // Without tables, but a file.
  const auto build = [](Connection& connection) { return connection.execute("PRAGMA user_version = 1"); };
  if (MaybeFailure failure = contest->enter(build, [&] { return std::make_unique<Speed>(sizes); })) return failure;
  Shape shape;
  shape.fields = Json{{"benchmark", "speed"}, {"size", sizes.size}};
  shape.latency = "the statements that are transactions of their own";
  shape.same_content = true;
  shape.fresh_each_turn = true;
  shape.raw_rounds = std::min<std::uint64_t>(sizes.size * 10, 1000);
  return contest->run(shape);
}

}  // namespace memlith::sqlite_bench
