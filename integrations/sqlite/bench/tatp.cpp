// TATP, the telecom benchmark: seven short transactions on four tables, four in five of them only reading.
//
// Everything that may change is kept in arrays beside the database, so that each answer of a read is checked as it
// comes and the whole content at the end.
#include <fmt/format.h>

#include <array>

#include "cli/clock.hpp"
#include "contest.hpp"
#include "kit/random.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace memlith::sqlite_bench {

namespace {

constexpr std::uint8_t kNone = 255;
constexpr double kWarmUpShare = 0.2;
constexpr std::uint64_t kTypes = 4;   // of access information, of special facilities
constexpr std::uint64_t kStarts = 3;  // of call forwardings: 0, 8, 16 o'clock

std::string number_of(std::uint64_t subscriber) { return fmt::format("{:015}", subscriber); }
std::int64_t signed_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

// The state of all tables, as far as it is not the same for ever. Subscribers count from 0 here, from 1 in the
// database.
struct State {
  explicit State(std::uint64_t subscribers)
      : bit(subscribers),
        location(subscribers),
        access(subscribers),
        data_a(subscribers * kTypes, kNone),
        active(subscribers * kTypes),
        end_time(subscribers * kTypes * kStarts, kNone) {
    tool::Random random(subscribers);
    for (std::uint64_t s = 0; s < subscribers; ++s) {
      bit[s] = static_cast<std::uint8_t>(random.below(2));
      location[s] = static_cast<std::uint32_t>(random.next() >> 32);
      access[s] = some_types(random);
      const std::uint8_t facilities = some_types(random);
      for (std::uint64_t type = 0; type < kTypes; ++type) {
        if ((facilities >> type & 1) == 0) continue;
        data_a[s * kTypes + type] = static_cast<std::uint8_t>(random.below(255));
        active[s * kTypes + type] = random.below(100) < 85 ? 1 : 0;
        const std::uint64_t wanted = random.below(4);
        const std::uint64_t first = random.below(kStarts);
        for (std::uint64_t i = 0; i < wanted; ++i) {
          const std::uint64_t start = (first + i) % kStarts;
          end_time[(s * kTypes + type) * kStarts + start] = static_cast<std::uint8_t>(start * 8 + 1 + random.below(8));
        }
      }
    }
  }

  std::vector<std::uint8_t> bit;
  std::vector<std::uint32_t> location;
  std::vector<std::uint8_t> access;    // a bit a type
  std::vector<std::uint8_t> data_a;    // a special facility each; kNone: there is none
  std::vector<std::uint8_t> active;    // likewise
  std::vector<std::uint8_t> end_time;  // a call forwarding each; kNone: there is none

 private:
  // One to four of the four.
  static std::uint8_t some_types(tool::Random& random) {
    std::array<std::uint64_t, kTypes> types{0, 1, 2, 3};
    const std::uint64_t count = 1 + random.below(kTypes);
    std::uint8_t bits = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::swap(types[i], types[i + random.below(kTypes - i)]);
      bits = static_cast<std::uint8_t>(bits | 1u << types[i]);
    }
    return bits;
  }
};

enum Sql : std::uint8_t {
  kBegin,
  kCommit,
  kRollback,
  kGetSubscriber,
  kGetDestination,
  kGetAccess,
  kSetBit,
  kSetData,
  kSetLocation,
  kFindSubscriber,
  kFindFacilities,
  kInsertForwarding,
  kDeleteForwarding,
  kSqlCount
};
constexpr std::array<const char*, kSqlCount> kSql{
    "BEGIN IMMEDIATE",
    "COMMIT",
    "ROLLBACK",
    "SELECT * FROM subscriber WHERE s_id = ?1",
    "SELECT cf.numberx FROM special_facility AS sf, call_forwarding AS cf WHERE sf.s_id = ?1 AND sf.sf_type = ?2 AND "
    "sf.is_active = 1 AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= ?3 AND ?4 < cf.end_time",
    "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = ?1 AND ai_type = ?2",
    "UPDATE subscriber SET bit_1 = ?2 WHERE s_id = ?1",
    "UPDATE special_facility SET data_a = ?3 WHERE s_id = ?1 AND sf_type = ?2",
    "UPDATE subscriber SET vlr_location = ?2 WHERE sub_nbr = ?1",
    "SELECT s_id FROM subscriber WHERE sub_nbr = ?1",
    "SELECT sf_type FROM special_facility WHERE s_id = ?1",
    "INSERT OR IGNORE INTO call_forwarding SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM special_facility "
    "WHERE s_id = ?1 AND sf_type = ?2)",
    "DELETE FROM call_forwarding WHERE s_id = ?1 AND sf_type = ?2 AND start_time = ?3",
};

class Tatp final : public Workload {
 public:
  Tatp(const TatpSizes& sizes, const State& start)
      : sizes_(sizes), state_(start), subscribers_(start.bit.size()), random_(7) {}

  MaybeFailure attach(Connection& connection) override {
    connection_ = &connection;
    for (std::size_t i = 0; i < kSqlCount; ++i) {
      if (MaybeFailure failure = connection.prepare(sql_[i], kSql[i])) return failure;
    }
    return {};
  }
  void detach() override {
    for (Statement& statement : sql_) statement = Statement();
    connection_ = nullptr;
  }
  MaybeFailure warm_up(Turn& turn) override {
    Turn unmeasured;
    MaybeFailure failure = go_on(unmeasured, kWarmUpShare);
    turn.commits += unmeasured.commits;
    return failure;
  }
  MaybeFailure measure(Turn& turn) override { return go_on(turn, 1); }

  MaybeFailure verify(Connection& connection, Checksum& checksum, std::uint64_t& rows) override {
    const auto wrong = [](const char* table, std::uint64_t subscriber) {
      return tool::tool_failure(MEMLITH_CORRUPT,
                                fmt::format("{} of subscriber {} is not what was written", table, subscriber + 1));
    };
    auto subscribers = connection.prepare("SELECT s_id, sub_nbr, bit_1, vlr_location FROM subscriber ORDER BY s_id");
    auto access = connection.prepare("SELECT s_id, ai_type FROM access_info ORDER BY s_id, ai_type");
    auto facilities =
        connection.prepare("SELECT s_id, sf_type, data_a, is_active FROM special_facility ORDER BY s_id, sf_type");
    auto forwardings =
        connection.prepare("SELECT s_id, sf_type, start_time, end_time FROM call_forwarding ORDER BY 1, 2, 3");
    for (auto* statement : {&subscribers, &access, &facilities, &forwardings}) {
      if (!statement->ok()) return statement->failure();
    }
    // The next row has to be this one.
    const auto expect = [&](Statement& statement, std::initializer_list<std::int64_t> values,
                            bool& same) -> MaybeFailure {
      if (MaybeFailure failure = statement.step(same)) return failure;
      int column = 0;
      for (const std::int64_t value : values) same = same && statement.integer(column++) == value;
      if (same) checksum.add_row(statement);
      ++rows;
      return {};
    };
    bool same = false;
    for (std::uint64_t s = 0; s < subscribers_; ++s) {
      const std::int64_t id = signed_of(s + 1);
      if (MaybeFailure failure = expect(*subscribers, {id, id, state_.bit[s], state_.location[s]}, same))
        return failure;
      if (!same) return wrong("the row", s);
      for (std::uint64_t type = 0; type < kTypes; ++type) {
        const std::int64_t shown = signed_of(type + 1);
        if ((state_.access[s] >> type & 1) != 0) {
          if (MaybeFailure failure = expect(*access, {id, shown}, same)) return failure;
          if (!same) return wrong("the access information", s);
        }
        const std::uint64_t facility = s * kTypes + type;
        if (state_.data_a[facility] == kNone) continue;
        if (MaybeFailure failure =
                expect(*facilities, {id, shown, state_.data_a[facility], state_.active[facility]}, same)) {
          return failure;
        }
        if (!same) return wrong("a special facility", s);
        for (std::uint64_t start = 0; start < kStarts; ++start) {
          const std::uint8_t end = state_.end_time[facility * kStarts + start];
          if (end == kNone) continue;
          if (MaybeFailure failure = expect(*forwardings, {id, shown, signed_of(start * 8), end}, same)) return failure;
          if (!same) return wrong("a call forwarding", s);
        }
      }
    }
    for (auto* statement : {&subscribers, &access, &facilities, &forwardings}) {
      bool more = false;
      if (MaybeFailure failure = (*statement)->step(more)) return failure;
      if (more) return tool::tool_failure(MEMLITH_CORRUPT, "a table has more rows than were written");
    }
    return {};
  }

 private:
  MaybeFailure go_on(Turn& turn, double part) {
    const auto limit_ns = static_cast<std::uint64_t>(sizes_.seconds * part * 1e9);
    const auto count = static_cast<std::uint64_t>(static_cast<double>(sizes_.transactions) * part);
    const std::uint64_t begin_ns = tool::now_ns();
    std::uint64_t now_ns = begin_ns;
    while (sizes_.transactions > 0 ? turn.operations < count : now_ns - begin_ns < limit_ns) {
      if (MaybeFailure stop = reason_to_stop()) return stop;
      bool wrote = false;
      if (MaybeFailure failure = transaction(wrote)) return failure;
      const std::uint64_t end_ns = tool::now_ns();
      (wrote ? turn.samples_ns : turn.further_ns).push_back(end_ns - now_ns);
      now_ns = end_ns;
      ++turn.operations;
      turn.commits += wrote ? 1 : 0;
    }
    return {};
  }

  // Some subscribers are asked for more often than others, as the benchmark has it.
  std::uint64_t subscriber() { return (random_.below(65536) | (1 + random_.below(subscribers_))) % subscribers_; }

  MaybeFailure transaction(bool& wrote) {
    const std::uint64_t kind = random_.below(100);
    const std::uint64_t s = subscriber();
    if (kind < 35) return get_subscriber(s);
    if (kind < 45) return get_destination(s);
    if (kind < 80) return get_access(s);
    if (kind < 82) return in_transaction(wrote, [&](bool& done) { return update_data(s, done); });
    if (kind < 96) return update_location(s, wrote);
    if (kind < 98) return in_transaction(wrote, [&](bool& done) { return insert_forwarding(s, done); });
    return in_transaction(wrote, [&](bool& done) { return delete_forwarding(s, done); });
  }

  static MaybeFailure check(bool right, const char* what) {
    if (right) return {};
    return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("{} read other content than was written", what));
  }

  MaybeFailure get_subscriber(std::uint64_t s) {
    Statement& statement = sql_[kGetSubscriber];
    statement.bind(1, signed_of(s + 1));
    bool found = false;
    if (MaybeFailure failure = statement.step(found)) return failure;
    const bool right = found && statement.integer(2) == state_.bit[s] && statement.integer(33) == state_.location[s];
    statement.reset();
    return check(right, "GET_SUBSCRIBER_DATA");
  }

  MaybeFailure get_destination(std::uint64_t s) {
    const std::uint64_t type = random_.below(kTypes);
    const std::uint64_t start = random_.below(kStarts) * 8;
    const std::uint64_t end = 1 + random_.below(24);
    std::uint64_t expected = 0;
    const std::uint64_t facility = s * kTypes + type;
    for (std::uint64_t i = 0; i < kStarts && state_.data_a[facility] != kNone && state_.active[facility] != 0; ++i) {
      const std::uint8_t until = state_.end_time[facility * kStarts + i];
      if (until != kNone && i * 8 <= start && end < until) ++expected;
    }
    Statement& statement = sql_[kGetDestination];
    statement.bind(1, signed_of(s + 1));
    statement.bind(2, signed_of(type + 1));
    statement.bind(3, signed_of(start));
    statement.bind(4, signed_of(end));
    std::uint64_t rows = 0;
    if (MaybeFailure failure = statement.run(&rows)) return failure;
    return check(rows == expected, "GET_NEW_DESTINATION");
  }

  MaybeFailure get_access(std::uint64_t s) {
    const std::uint64_t type = random_.below(kTypes);
    Statement& statement = sql_[kGetAccess];
    statement.bind(1, signed_of(s + 1));
    statement.bind(2, signed_of(type + 1));
    std::uint64_t rows = 0;
    if (MaybeFailure failure = statement.run(&rows)) return failure;
    return check(rows == (state_.access[s] >> type & 1), "GET_ACCESS_DATA");
  }

  // `body` says whether there was something to do; what there was not is rolled back.
  template <class Body>
  MaybeFailure in_transaction(bool& wrote, Body body) {
    if (MaybeFailure failure = sql_[kBegin].run()) return failure;
    if (MaybeFailure failure = body(wrote)) return failure;
    return sql_[wrote ? kCommit : kRollback].run();
  }

  MaybeFailure update_data(std::uint64_t s, bool& done) {
    const std::uint64_t facility = s * kTypes + random_.below(kTypes);
    const auto bit = static_cast<std::uint8_t>(random_.below(2));
    const auto data = static_cast<std::uint8_t>(random_.below(255));
    sql_[kSetBit].bind(1, signed_of(s + 1));
    sql_[kSetBit].bind(2, std::int64_t{bit});
    if (MaybeFailure failure = sql_[kSetBit].run()) return failure;
    sql_[kSetData].bind(1, signed_of(s + 1));
    sql_[kSetData].bind(2, signed_of(facility % kTypes + 1));
    sql_[kSetData].bind(3, std::int64_t{data});
    if (MaybeFailure failure = sql_[kSetData].run()) return failure;
    done = connection_->changes() == 1;
    if (MaybeFailure failure = check(done == (state_.data_a[facility] != kNone), "UPDATE_SUBSCRIBER_DATA"))
      return failure;
    if (!done) return {};
    state_.bit[s] = bit;
    state_.data_a[facility] = data;
    return {};
  }

  MaybeFailure update_location(std::uint64_t s, bool& wrote) {
    const auto location = static_cast<std::uint32_t>(random_.next() >> 32);
    const std::string number = number_of(s + 1);
    sql_[kSetLocation].bind(1, number);
    sql_[kSetLocation].bind(2, std::int64_t{location});
    if (MaybeFailure failure = sql_[kSetLocation].run()) return failure;
    state_.location[s] = location;
    wrote = true;
    return check(connection_->changes() == 1, "UPDATE_LOCATION");
  }

  MaybeFailure find(std::uint64_t s) {
    const std::string number = number_of(s + 1);
    Statement& statement = sql_[kFindSubscriber];
    statement.bind(1, number);
    bool found = false;
    if (MaybeFailure failure = statement.step(found)) return failure;
    const bool right = found && statement.integer(0) == signed_of(s + 1);
    statement.reset();
    return check(right, "the search by number");
  }

  MaybeFailure insert_forwarding(std::uint64_t s, bool& done) {
    if (MaybeFailure failure = find(s)) return failure;
    sql_[kFindFacilities].bind(1, signed_of(s + 1));
    if (MaybeFailure failure = sql_[kFindFacilities].run()) return failure;
    const std::uint64_t facility = s * kTypes + random_.below(kTypes);
    const std::uint64_t start = random_.below(kStarts);
    const auto end = static_cast<std::uint8_t>(start * 8 + 1 + random_.below(8));
    const std::string number = number_of(random_.below(1'000'000'000));
    Statement& statement = sql_[kInsertForwarding];
    statement.bind(1, signed_of(s + 1));
    statement.bind(2, signed_of(facility % kTypes + 1));
    statement.bind(3, signed_of(start * 8));
    statement.bind(4, std::int64_t{end});
    statement.bind(5, number);
    if (MaybeFailure failure = statement.run()) return failure;
    done = connection_->changes() == 1;
    std::uint8_t& slot = state_.end_time[facility * kStarts + start];
    const bool expected = state_.data_a[facility] != kNone && slot == kNone;
    if (done) slot = end;
    return check(done == expected, "INSERT_CALL_FORWARDING");
  }

  MaybeFailure delete_forwarding(std::uint64_t s, bool& done) {
    if (MaybeFailure failure = find(s)) return failure;
    const std::uint64_t facility = s * kTypes + random_.below(kTypes);
    const std::uint64_t start = random_.below(kStarts);
    Statement& statement = sql_[kDeleteForwarding];
    statement.bind(1, signed_of(s + 1));
    statement.bind(2, signed_of(facility % kTypes + 1));
    statement.bind(3, signed_of(start * 8));
    if (MaybeFailure failure = statement.run()) return failure;
    done = connection_->changes() == 1;
    std::uint8_t& slot = state_.end_time[facility * kStarts + start];
    const bool expected = slot != kNone;
    slot = kNone;
    return check(done == expected, "DELETE_CALL_FORWARDING");
  }

  TatpSizes sizes_;
  State state_;
  std::uint64_t subscribers_;
  tool::Random random_;
  Connection* connection_ = nullptr;
  std::array<Statement, kSqlCount> sql_;
};

std::string numbered(const char* name, const char* type) {
  std::string columns;
  for (int i = 1; i <= 10; ++i) columns += fmt::format("{}_{} {}, ", name, i, type);
  return columns;
}

MaybeFailure build(Connection& connection, const State& state) {
  const std::string schema =
      "CREATE TABLE subscriber(s_id INTEGER PRIMARY KEY, sub_nbr TEXT NOT NULL UNIQUE, " + numbered("bit", "INTEGER") +
      numbered("hex", "INTEGER") + numbered("byte2", "INTEGER") +
      "msc_location INTEGER, vlr_location INTEGER);"
      "CREATE TABLE access_info(s_id INTEGER, ai_type INTEGER, data1 INTEGER, data2 INTEGER, data3 TEXT, data4 TEXT, "
      "PRIMARY KEY(s_id, ai_type)) WITHOUT ROWID;"
      "CREATE TABLE special_facility(s_id INTEGER, sf_type INTEGER, is_active INTEGER, error_cntrl INTEGER, data_a "
      "INTEGER, data_b TEXT, PRIMARY KEY(s_id, sf_type)) WITHOUT ROWID;"
      "CREATE TABLE call_forwarding(s_id INTEGER, sf_type INTEGER, start_time INTEGER, end_time INTEGER, numberx TEXT, "
      "PRIMARY KEY(s_id, sf_type, start_time)) WITHOUT ROWID; PRAGMA cache_size=-262144";
  if (MaybeFailure failure = connection.execute(schema)) return failure;
  std::string marks = "INSERT INTO subscriber VALUES(?1";
  for (int i = 2; i <= 34; ++i) marks += fmt::format(", ?{}", i);
  auto subscriber = connection.prepare(marks + ")");
  auto access = connection.prepare("INSERT INTO access_info VALUES(?1, ?2, ?3, ?4, 'ABC', 'ABCDE')");
  auto facility = connection.prepare("INSERT INTO special_facility VALUES(?1, ?2, ?3, ?4, ?5, 'ABCDE')");
  auto forwarding = connection.prepare("INSERT INTO call_forwarding VALUES(?1, ?2, ?3, ?4, ?5)");
  for (auto* statement : {&subscriber, &access, &facility, &forwarding}) {
    if (!statement->ok()) return statement->failure();
  }
  tool::Random random(3);
  for (std::uint64_t s = 0; s < state.bit.size(); ++s) {
    if (MaybeFailure stop = reason_to_stop()) return stop;
    const std::int64_t id = signed_of(s + 1);
    const std::string number = number_of(s + 1);
    subscriber->bind(1, id);
    subscriber->bind(2, number);
    subscriber->bind(3, std::int64_t{state.bit[s]});
    for (int i = 4; i <= 32; ++i) subscriber->bind(i, signed_of(random.below(i <= 12 ? 2 : i <= 22 ? 16 : 256)));
    subscriber->bind(33, signed_of(random.next() >> 32));
    subscriber->bind(34, std::int64_t{state.location[s]});
    if (MaybeFailure failure = subscriber->run()) return failure;
    for (std::uint64_t type = 0; type < kTypes; ++type) {
      const std::int64_t shown = signed_of(type + 1);
      if ((state.access[s] >> type & 1) != 0) {
        access->bind(1, id);
        access->bind(2, shown);
        access->bind(3, signed_of(random.below(256)));
        access->bind(4, signed_of(random.below(256)));
        if (MaybeFailure failure = access->run()) return failure;
      }
      const std::uint64_t index = s * kTypes + type;
      if (state.data_a[index] == kNone) continue;
      facility->bind(1, id);
      facility->bind(2, shown);
      facility->bind(3, std::int64_t{state.active[index]});
      facility->bind(4, signed_of(random.below(256)));
      facility->bind(5, std::int64_t{state.data_a[index]});
      if (MaybeFailure failure = facility->run()) return failure;
      for (std::uint64_t start = 0; start < kStarts; ++start) {
        const std::uint8_t end = state.end_time[index * kStarts + start];
        if (end == kNone) continue;
        const std::string target = number_of(random.below(1'000'000'000));
        forwarding->bind(1, id);
        forwarding->bind(2, shown);
        forwarding->bind(3, signed_of(start * 8));
        forwarding->bind(4, std::int64_t{end});
        forwarding->bind(5, target);
        if (MaybeFailure failure = forwarding->run()) return failure;
      }
    }
  }
  return {};
}

}  // namespace

MaybeFailure run_tatp(const Settings& settings, const TatpSizes& sizes) {
  auto contest = Contest::make(settings);
  if (!contest.ok()) return contest.failure();
  for (const std::uint64_t subscribers : sizes.subscribers) {
    const State start(subscribers);
    if (MaybeFailure failure = contest->enter([&](Connection& connection) { return build(connection, start); },
                                              [&] { return std::make_unique<Tatp>(sizes, start); })) {
      return failure;
    }
    Shape shape;
    shape.fields = Json{{"benchmark", "tatp"}, {"subscribers", subscribers}, {"seconds", sizes.seconds}};
    shape.latency = "a transaction that changed something";
    shape.further = "any other transaction";
    shape.same_content = sizes.transactions > 0;
    if (sizes.transactions > 0) shape.raw_rounds = std::min<std::uint64_t>(sizes.transactions, 1000);
    if (MaybeFailure failure = contest->run(shape)) return failure;
    contest->leave();
  }
  return {};
}

}  // namespace memlith::sqlite_bench
