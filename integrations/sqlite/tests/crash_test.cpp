// docs/sqlite.md, "What survives": the VFS on the simulated disk, with the power cut after every operation and what was
// not flushed kept, lost or torn; what comes back passes integrity_check and is exactly one committed state P, last
// acknowledged <= P <= last started. Plain SQLite, given the file alone at the same moment, refuses it or finds such a
// state.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "mutants/mutants.hpp"
#include "sim/power_cuts.hpp"
#include "sim_world.hpp"
#include "sqlite/src/disk_journal.hpp"
#include "support/crash_world.hpp"
#include "support/sanitizers.hpp"

namespace memlith::test {
namespace {

using core::CrashPoints;
using core::PowerCuts;
using core::Random;
using core::SimImage;
using core::SimTrace;
using core::SimVolume;

const std::string kFolder = "/simulated/";

struct Part {
  std::string schema;
  std::string file;
};
const std::vector<Part> kOneDatabase = {{"main", "app.db"}};
const std::vector<Part> kTwoDatabases = {{"main", "app.db"}, {"two", "two.db"}};

// MEMLITH_SQLITE_THOROUGH=36 explores every recovery, for an afternoon.
std::uint64_t thoroughness() {
  const char* const given = std::getenv("MEMLITH_SQLITE_THOROUGH");
  return given != nullptr ? std::clamp<std::uint64_t>(std::strtoull(given, nullptr, 10), 1, 36) : 1;
}

// The view of plain SQLite on a file of this content; nothing if it is refused.
std::optional<std::string> plain_view(const std::vector<std::byte>& file) {
  if (file.empty()) return dump(Db(":memory:", nullptr));
  if (file.size() < 100) return std::nullopt;
  auto* const copy = static_cast<unsigned char*>(sqlite3_malloc64(file.size()));
  std::memcpy(copy, file.data(), file.size());
  copy[18] = std::min<unsigned char>(copy[18], 1);  // a WAL database without a log; memory knows no WAL
  copy[19] = std::min<unsigned char>(copy[19], 1);
  Db db(":memory:", nullptr);
  const auto bytes = static_cast<sqlite3_int64>(file.size());
  EXPECT_EQ(sqlite3_deserialize(db.get(), "main", copy, bytes, bytes, SQLITE_DESERIALIZE_FREEONCLOSE), SQLITE_OK);
  if (db.run("select * from sqlite_schema") == SQLITE_NOTADB) return std::nullopt;
  const std::string verdict = integrity(db);
  return verdict == "ok" ? dump(db) : "integrity_check: " + verdict;
}

// One run on the simulated disk that is written down, and the exploration of it.
class Story {
 public:
  explicit Story(SimImage start = {}, std::vector<Part> parts = kOneDatabase)
      : parts_(std::move(parts)), volume_(std::move(start), true) {
    sim_world().volume = &volume_;
    for (std::size_t i = 1; i < parts_.size(); ++i) EXPECT_RUNS(reference_, "attach ':memory:' as " + parts_[i].schema);
    contents_.push_back(content_of(reference_));
  }
  ~Story() {
    connections_.clear();
    sim_world().volume = nullptr;
  }

  // An ordinary database, made elsewhere, that the story begins with.
  static SimImage ordinary(const std::string& sql) {
    Db db(":memory:", nullptr);
    EXPECT_RUNS(db, sql);
    sqlite3_int64 bytes = 0;
    auto* const content = sqlite3_serialize(db.get(), "main", &bytes, 0);
    const auto* const begin = reinterpret_cast<const std::byte*>(content);
    SimImage image;
    image.files[kOneDatabase[0].file] = std::make_shared<const std::vector<std::byte>>(begin, begin + bytes);
    sqlite3_free(content);
    return image;
  }
  void begin_with(const std::string& sql) {
    ASSERT_RUNS(reference_, sql);
    contents_.back() = content_of(reference_);
  }

  Db& connection(std::size_t index) {
    while (connections_.size() <= index) {
      connections_.push_back(open());
      EXPECT_OPEN(connections_.back());
      pending_.emplace_back();
    }
    return connections_[index];
  }
  // A statement of a transaction that is open, or one that changes nothing.
  void run(std::size_t index, const std::string& sql) {
    ASSERT_RUNS(connection(index), sql);
    pending_[index] += sql + ";";
  }
  void look(std::size_t index, const std::string& sql) { ASSERT_RUNS(connection(index), sql); }
  // A statement that commits what the connection has pending, and itself.
  void commit(std::size_t index, const std::string& sql) {
    (void)connection(index);
    const std::size_t started = volume_.operations();
    ASSERT_RUNS(connection(index), sql);
    ASSERT_RUNS(reference_, pending_[index] + sql);
    pending_[index].clear();
    contents_.push_back(content_of(reference_));
    started_.push_back(started);
    acknowledged_.push_back(kNever);
    if (!weak_ || (parts_.size() > 1 && is_joint(contents_.size() - 1))) acknowledge();
  }
  // From now on a commit that returned may be lost, but not without those behind it in the same database. One over all
  // databases, if there are several, is durable, and with it what is before it.
  void commit_weakly(std::size_t index) {
    for (const Part& part : parts_) look(index, "pragma " + part.schema + ".memlith_durability = weak");
    weak_ = true;
  }
  void persist(std::size_t index) {
    for (const Part& part : parts_) look(index, "pragma " + part.schema + ".memlith_persist");
    acknowledge();
  }
  void transaction(std::size_t index, const std::vector<std::string>& statements) {
    begin(index, statements);
    commit(index, "commit");
  }
  void undone_transaction(std::size_t index, const std::vector<std::string>& statements) {
    begin(index, statements);
    roll_back(index);
  }
  void begin(std::size_t index, const std::vector<std::string>& statements) {
    run(index, "begin");
    for (const std::string& sql : statements) run(index, sql);
  }
  void roll_back(std::size_t index) {
    (void)connections_[index].run("rollback");
    pending_[index].clear();
    EXPECT_EQ(content_of(connections_[index]), contents_.back());
  }
  void close(std::size_t index) { ASSERT_EQ(connections_[index].close(), SQLITE_OK); }
  void reopen(std::size_t index) {
    close(index);
    connections_[index] = open();
    EXPECT_OPEN(connections_[index]);
  }
  // The n-th flush from here on fails while the connection is closed, and what it was for stays in the page cache only.
  // True if there were this many flushes.
  bool close_with_forgotten_flush(std::size_t index, std::uint64_t nth, bool half) {
    core::SimFaults& faults = volume_.faults();
    faults.plan(core::SimFaults::Kind::forget_flush, nth);
    faults.done_nevertheless = half;
    (void)connections_[index].close();
    faults.clear();
    if (faults.fired() == 0) return false;
    connections_[index] = open();
    EXPECT_OPEN(connections_[index]);
    return true;
  }
  [[nodiscard]] std::string content() const { return joined(contents_.back()); }
  [[nodiscard]] SimVolume& volume() { return volume_; }

  struct Options {
    std::size_t exhaustive_items_max = scaled(6);
    std::size_t samples = scaled(12);
    std::uint64_t recovery_every = 36 / thoroughness();  // explore the recovery of every n-th distinct state
    std::uint64_t life_every = 36 / thoroughness();      // likewise a second life, with a commit
    std::uint64_t kill_every = 8;                        // cut the recovery after every n-th kill -9
  };

  // The number of violations; each is reported unless a mutant is being looked for.
  std::uint64_t explore(const Options& options, std::uint64_t seed, bool expect_failures = false) {
    quiet_ = expect_failures;
    connections_.clear();
    Random random(seed);
    const SimTrace trace = volume_.trace();
    for (CrashPoints points(trace); violations_ < 3 && points.next();) {
      ++crash_points_;
      const std::size_t at = points.at();
      const auto [first, last] = allowed(at);
      const std::size_t pending = points.medium().pending_count();
      for (PowerCuts cuts(points.medium(), {options.exhaustive_items_max, options.samples}, random); cuts.next();) {
        check(cuts.image(), first, last, options, random,
              fmt::format("power cut after operation {} of {}, {} unflushed items, subset {}, seed {}", at,
                          trace.records.size(), pending, cuts.number(), seed));
      }
      if (pending > 0)
        check_kill(trace, at, first, last, options, random, fmt::format("kill -9 after operation {}", at));
    }
    std::printf(
        "  crash points %llu, states %llu, distinct %llu, recoveries cut %llu, second lives %llu, refused by plain "
        "SQLite %llu, taken %llu\ndistinct crash states: %llu\n",
        number(crash_points_), number(states_), number(seen_.size()), number(recovery_cuts_), number(second_lives_),
        number(plain_refused_), number(plain_taken_), number(seen_.size()));
    EXPECT_GT(seen_.size(), crash_points_ / 2);
    return violations_;
  }
  [[nodiscard]] std::uint64_t plain_refused() const { return plain_refused_; }
  [[nodiscard]] std::uint64_t plain_taken() const { return plain_taken_; }
  [[nodiscard]] std::size_t lost_max() const { return lost_max_; }  // commits that had been started, in one state
  [[nodiscard]] std::uint64_t apart() const { return apart_; }      // states whose databases are not at one commit
  [[nodiscard]] std::uint64_t super_journals() const { return super_journals_; }  // that recovery had to remove

 private:
  using Content = std::vector<std::string>;  // of each database

  static constexpr std::size_t kNever = ~std::size_t{0};
  static unsigned long long number(std::uint64_t value) { return value; }

  // The connection that did not open, if one of the databases did not.
  [[nodiscard]] Db open() const {
    Db db(kFolder + parts_[0].file, kSimVfs);
    for (std::size_t i = 1; i < parts_.size() && db.open_code() == SQLITE_OK; ++i) {
      const std::string uri = "file:" + kFolder + parts_[i].file + "?vfs=" + kSimVfs;
      if (db.run("attach '" + uri + "' as " + parts_[i].schema) != SQLITE_OK) {
        sqlite3_log(sqlite3_errcode(db.get()), "%s: %s", uri.c_str(), db.message().c_str());
        return {kFolder + "nowhere", kSimVfs, SQLITE_OPEN_READWRITE};
      }
    }
    return db;
  }
  [[nodiscard]] Content content_of(const Db& db) const {
    Content content;
    for (const Part& part : parts_) content.push_back(dump(db, part.schema));
    return content;
  }
  static std::string joined(const Content& content) {
    std::string text = content[0];
    for (std::size_t i = 1; i < content.size(); ++i) text += "\n== the next database\n" + content[i];
    return text;
  }

  [[nodiscard]] std::pair<std::size_t, std::size_t> allowed(std::size_t at) const {
    std::size_t first = 0;
    for (std::size_t i = 0; i < acknowledged_.size(); ++i) {
      if (acknowledged_[i] <= at) first = i + 1;
    }
    std::size_t last = first;
    while (last < started_.size() && started_[last] <= at) ++last;
    return {first, last};
  }
  void acknowledge() {
    for (std::size_t& each : acknowledged_) each = std::min(each, volume_.operations());
  }
  // True if the commit changed all databases. In a story of weak ones each changes one or all.
  [[nodiscard]] bool is_joint(std::size_t commit) const {
    std::size_t changed = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) changed += contents_[commit][i] != contents_[commit - 1][i] ? 1 : 0;
    EXPECT_TRUE(changed <= 1 || changed == parts_.size());
    return changed == parts_.size();
  }
  // The states that may be found, and how many commits up to `last` each has in all databases. Weak ones are a prefix
  // in each database, and the prefixes agree on the commits over both.
  using Allowed = std::unordered_map<std::string, std::size_t>;
  const Allowed& allowed_contents(std::size_t first, std::size_t last) {
    const auto [found, is_new] = allowed_.try_emplace({first, last});
    Allowed& allowed = found->second;
    if (!is_new) return allowed;
    for (std::size_t i = first; i <= last; ++i) allowed[joined(contents_[i])] = i;
    if (!weak_ || parts_.size() != 2) return allowed;
    for (std::size_t begin = first; begin <= last; ++begin) {
      std::size_t end = begin;  // of a stretch without a commit over both
      while (end < last && !is_joint(end + 1)) ++end;
      for (std::size_t i = begin; i <= end; ++i) {
        for (std::size_t j = begin; j <= end; ++j) {
          std::size_t& commits = allowed[joined({contents_[i][0], contents_[j][1]})];
          commits = std::max(commits, std::min(i, j));
        }
      }
      begin = end;
    }
    return allowed;
  }
  [[nodiscard]] bool is_one_of(const std::string& content, std::size_t first, std::size_t last) {
    return allowed_contents(first, last).contains(content);
  }
  [[nodiscard]] bool part_is_one_of(std::size_t part, const std::string& content, std::size_t first,
                                    std::size_t last) const {
    const auto begin = contents_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = contents_.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    return std::any_of(begin, end, [&](const Content& each) { return each[part] == content; });
  }
  void violation(const std::string& where, const std::string& what) {
    ++violations_;
    if (!quiet_) ADD_FAILURE() << where << "\n  " << what << "\n" << volume_.trace().describe(~std::size_t{0});
  }

  // The VFS's view of the volume, which it closes cleanly. `last_first`: the last of several databases is opened
  // alone before, and written to.
  std::string recover(SimVolume& volume, bool last_first = false) {
    sim_world().volume = &volume;
    sqlite_log.clear();
    std::string found;
    if (last_first && parts_.size() > 1) {
      Db alone(kFolder + parts_.back().file, kSimVfs);
      (void)alone.run("pragma user_version = 7");
    }
    {
      const Db db = open();
      if (db.open_code() != SQLITE_OK) {
        found = fmt::format("open failed with {}: {}", db.open_code(), sqlite_log.all());
      } else {
        const std::string verdict = integrity(db);  // of all databases
        found = verdict == "ok" ? joined(content_of(db)) : "integrity_check: " + verdict;
      }
    }
    sim_world().volume = &volume_;
    return found;
  }

  void check(const SimImage& image, std::size_t first, std::size_t last, const Options& options, Random& random,
             const std::string& where) {
    ++states_;
    const std::uint64_t hash = image.hash();
    if (const auto known = seen_.find(hash); known != seen_.end()) {
      if (!is_one_of(known->second, first, last)) violation(where, "recovered: " + known->second);
      return;
    }
    check_plain(image, first, last, where);
    SimVolume volume(image, true);
    const std::string found = recover(volume, hash % 2 == 0);
    seen_[hash] = found;
    if (!is_one_of(found, first, last)) {
      return violation(where, fmt::format("expected commit {} to {}; recovered: {}", first, last, found));
    }
    lost_max_ = std::max(lost_max_, last - allowed_contents(first, last).at(found));
    if (std::none_of(contents_.begin(), contents_.end(), [&](const Content& each) { return joined(each) == found; }))
      ++apart_;
    // They were closed cleanly: now the files are ordinary ones, and nothing of a transaction is left.
    const SimImage closed = volume.image();
    Content plain;
    for (const Part& part : parts_) {
      const auto file = closed.files.find(part.file);
      plain.push_back(file != closed.files.end() ? plain_view(*file->second).value_or("no database") : "");
      if (closed.files.contains(part.file + ".memlith-journal")) violation(where, "a journal is left: " + part.file);
    }
    for (const std::string& name : super_journals_named(image)) {
      if (closed.files.contains(name)) violation(where, "a super-journal is left: " + name);
    }
    if (joined(plain) != found) violation(where, "after a clean close plain SQLite finds: " + joined(plain));
    if (seen_.size() % options.recovery_every == 0) check_recovery(volume.trace(), 0, {found}, random, where);
    if (seen_.size() % options.life_every == 0) check_second_life(image, found, random, where);
  }

  // Those that a whole journal on the disk names, unless its database was empty: there SQLite drops the journal without
  // reading it. One that was made and not named yet stays: it cannot be told from that of a commit under way.
  std::set<std::string> super_journals_named(const SimImage& image) {
    std::set<std::string> names;
    SimVolume volume(image);
    for (const Part& part : parts_) {
      const auto left = sqlite::read_disk_journal(volume, part.file);
      if (!left.ok() || !left->has_value() || (*left)->content == nullptr) continue;
      const sqlite::MemoryFile& journal = *(*left)->content;
      if (!sqlite::names_super_journal(journal)) continue;
      unsigned char bytes[4] = {};
      (void)journal.read(16, bytes, sizeof bytes);  // the pages before the transaction
      if (std::all_of(std::begin(bytes), std::end(bytes), [](unsigned char byte) { return byte == 0; })) continue;
      // The name is in front of its length, its sum and the magic number of journals.
      (void)journal.read(journal.size() - 16, bytes, sizeof bytes);
      std::string path(bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3], '\0');
      (void)journal.read(journal.size() - 16 - path.size(), path.data(), path.size());
      names.insert(path.substr(path.rfind('/') + 1));
    }
    super_journals_ += names.size();
    return names;
  }

  // Each file alone, as it is at this moment.
  void check_plain(const SimImage& image, std::size_t first, std::size_t last, const std::string& where) {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const auto file = image.files.find(parts_[part].file);
      if (file == image.files.end()) continue;
      const auto view = plain_view(*file->second);
      ++(view.has_value() ? plain_taken_ : plain_refused_);
      note_version(part, *file->second, view.has_value(), where);
      if (!view.has_value() || part_is_one_of(part, *view, first, last)) continue;
      violation(where, "plain SQLite finds in " + parts_[part].file + ": " + *view);
    }
  }

  // A connection of plain SQLite that has pages of the file cached believes them as long as these bytes stay as they
  // are, and its first page says "SQLite format 3". None that it may have seen in a database may be under the mark.
  void note_version(std::size_t part, const std::vector<std::byte>& file, bool taken, const std::string& where) {
    constexpr std::size_t kVersionAt = 24;
    constexpr std::size_t kVersionBytes = 16;
    if (file.size() < kVersionAt + kVersionBytes) return;
    const std::string version(reinterpret_cast<const char*>(file.data()) + kVersionAt, kVersionBytes);
    versions_[taken ? 1 : 0].insert({part, version});
    if (versions_[taken ? 0 : 1].contains({part, version})) {
      violation(where, "a cached first page of " + parts_[part].file + " counts, or does not, as before");
    }
  }

  // The power goes again, at each operation of what came after the crash; what comes back is one of `wanted`, or, from
  // the operation `acknowledged` on, the last of them.
  void check_recovery(const SimTrace& trace, std::size_t from, const std::vector<std::string>& wanted, Random& random,
                      const std::string& where, std::size_t acknowledged = ~std::size_t{0}) {
    if (trace.records.size() == from) return;
    for (CrashPoints points(trace, from + 1); violations_ < 3 && points.next();) {
      const std::size_t at = points.at();
      for (PowerCuts cuts(points.medium(), {2, 4}, random); cuts.next();) {
        const SimImage image = cuts.image();
        ++states_;
        ++recovery_cuts_;
        SimVolume volume(image);
        const std::uint64_t hash = image.hash();
        const std::string found = recover(volume, hash % 2 == 0);
        seen_.emplace(hash, found);
        const bool right = at >= acknowledged ? found == wanted.back()
                                              : std::find(wanted.begin(), wanted.end(), found) != wanted.end();
        if (!right) violation(where + fmt::format(", then another after operation {}", at), "recovered: " + found);
      }
    }
  }

  // Two commits; of all databases, if there are several.
  [[nodiscard]] std::vector<std::string> second_life() const {
    std::string create = "begin;";
    std::string insert = "begin;";
    for (const Part& part : parts_) {
      create += "create table if not exists " + part.schema + ".life(x);";
      insert += "insert into " + part.schema + ".life values(2);";
    }
    return {create + "commit", insert + "commit"};
  }

  void check_second_life(const SimImage& image, const std::string& found, Random& random, const std::string& where) {
    ++second_lives_;
    SimVolume volume(image, true);
    sim_world().volume = &volume;
    std::vector<std::string> wanted = {found};
    std::size_t acknowledged = 0;
    {
      const Db db = open();
      for (const std::string& sql : second_life()) {
        if (db.run(sql) != SQLITE_OK) return violation(where, "second life: " + db.message());
        wanted.push_back(joined(content_of(db)));
      }
      acknowledged = volume.operations();
    }
    sim_world().volume = &volume_;
    check_recovery(volume.trace(), 0, wanted, random, where + ", then a second life", acknowledged);
  }

  // All writes are there, flushed or not; the power is cut during the recovery that follows.
  void check_kill(const SimTrace& trace, std::size_t at, std::size_t first, std::size_t last, const Options& options,
                  Random& random, const std::string& where) {
    SimVolume killed(trace, at);
    const std::string found = recover(killed, random.one_in(2));
    if (!is_one_of(found, first, last)) return violation(where, "recovered: " + found);
    if (!random.one_in(options.kill_every)) return;
    std::vector<std::string> wanted;
    for (const auto& each : allowed_contents(first, last)) wanted.push_back(each.first);
    check_recovery(killed.trace(), at, wanted, random, where);
  }

  std::vector<Part> parts_;
  Db reference_{":memory:", nullptr};
  SimVolume volume_;
  std::deque<Db> connections_;
  std::vector<std::string> pending_;
  std::vector<Content> contents_;  // [0] before any commit
  std::vector<std::size_t> started_;
  std::vector<std::size_t> acknowledged_;
  bool weak_ = false;
  std::map<std::pair<std::size_t, std::size_t>, Allowed> allowed_;  // by the first and the last commit
  std::unordered_map<std::uint64_t, std::string> seen_;
  bool quiet_ = false;
  std::uint64_t violations_ = 0;
  std::uint64_t crash_points_ = 0;
  std::uint64_t states_ = 0;
  std::uint64_t recovery_cuts_ = 0;
  std::uint64_t second_lives_ = 0;
  std::uint64_t plain_refused_ = 0;
  std::uint64_t plain_taken_ = 0;
  std::set<std::pair<std::size_t, std::string>> versions_[2];  // of files that plain SQLite refused, and took
  std::uint64_t super_journals_ = 0;
  std::size_t lost_max_ = 0;
  std::uint64_t apart_ = 0;
};

std::string rows(int first, int count, int bytes) {
  return fmt::format(
      "insert into t with recursive n(i) as (values({}) union all select i + 1 from n where i + 1 < {}) select i, i % "
      "7, printf('%.*c', {}, char(65 + i % 26)) from n",
      first, first + count, bytes);
}

// Transactions of several statements, savepoints, rollbacks, spills, growth, VACUUM, a second connection, a clean
// reopening.
void tell(Story& story, const std::string& mode, int page_bytes) {
  story.look(0, fmt::format("pragma page_size = {}; pragma cache_size = 6", page_bytes));
  story.commit(0, "create table t(id integer primary key, k int, v text)");
  story.look(0, "pragma journal_mode = " + mode);
  story.commit(0, "create index tk on t(k)");
  story.commit(0, rows(1, 12, 90));
  story.transaction(0, {"update t set k = k + 1 where id % 2 = 0", "delete from t where id = 5"});
  if (mode != "off") {
    story.transaction(0, {rows(100, 4, 50), "savepoint a", "update t set v = 'x'", "rollback to a",
                          "insert into t values(200, 1, 'kept')", "release a"});
    story.undone_transaction(0, {rows(300, 40, 200),  // spills
                                 "update t set v = v || 'y'"});
  }
  story.look(1, "pragma cache_size = 6");
  story.commit(1, "update t set k = 99 where id = 1");
  story.commit(0, rows(400, 20, 150));
  story.commit(1, "delete from t where id > 405");
  story.commit(0, "vacuum");
  story.close(1);
  story.commit(0, "update t set v = 'short' where id < 4");
  story.reopen(0);
  story.commit(0, rows(500, 3, 20));
  story.close(0);
}

class Crash : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { seed_ = seed_for_this_run(); }
  void TearDown() override { core::active_mutant = core::Mutant::none; }
  static std::uint64_t seed_;
};
std::uint64_t Crash::seed_ = 0;

TEST_P(Crash, EveryOperation) {
  const bool alike = GetParam() == "truncate" || GetParam() == "persist" || GetParam() == "memory";
  for (const int page_bytes : {512, 4096}) {
    if (alike && page_bytes != 512) continue;  // as with "delete"
    Story story;
    tell(story, GetParam(), page_bytes);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(story.explore({}, seed_), 0u);
    EXPECT_GT(story.plain_refused(), 0u);
    EXPECT_GT(story.plain_taken(), 0u);
  }
}

// An ordinary database is taken over in place.
TEST_P(Crash, ATakenOverDatabaseIsAtOneCommit) {
  const std::string begin = "pragma page_size = 1024; create table t(id integer primary key, k int, v text); " +
                            rows(1, 20, 100) + "; create table pad(x); insert into pad values(zeroblob(5000));";
  Story story(Story::ordinary(begin));
  story.begin_with(begin);
  story.look(0, "pragma journal_mode = " + GetParam());
  story.commit(0, "update t set k = 50 where id = 3");
  story.commit(0, "drop table pad");
  story.commit(0, rows(50, 30, 100));
  story.commit(0, "vacuum");
  story.close(0);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(story.explore({}, seed_), 0u);
}

// A flush fails while the database is closed, and what it was for is in the page cache only. The next opening sees
// that, and a power cut takes it away again. The violations found.
std::uint64_t explore_forgotten_flushes(bool expect_failures) {
  std::uint64_t violations = 0;
  std::uint64_t flushes = 0;
  for (const bool half : {false, true}) {
    for (std::uint64_t nth = 0;; ++nth, ++flushes) {
      Story story;
      story.look(0, "pragma page_size = 512");
      story.commit(0, "create table t(id integer primary key, k int, v text)");
      story.commit(0, rows(1, 12, 90));
      if (!story.close_with_forgotten_flush(0, nth, half)) break;
      story.commit(0, "update t set k = 7");
      story.close(0);
      Story::Options options;
      options.exhaustive_items_max = scaled(4);
      options.samples = scaled(5);
      violations += story.explore(options, 1, expect_failures);
    }
  }
  EXPECT_GT(flushes, 4u);
  return violations;
}

TEST(CrashClosing, AForgottenFlush) { EXPECT_EQ(explore_forgotten_flushes(false), 0u); }

class CrashWeak : public Crash {};

// A crash leaves a prefix of weak commits, and those before PRAGMA memlith_persist in any case.
TEST_P(CrashWeak, CommitsAreAPrefix) {
  Story story;
  story.look(0, "pragma page_size = 512; pragma cache_size = 6");
  story.commit(0, "create table t(id integer primary key, k int, v text)");
  story.look(0, "pragma journal_mode = " + GetParam());
  story.commit_weakly(0);
  for (int i = 0; i < 5; ++i) story.commit(0, rows(10 * i, 4, 90));
  story.persist(0);
  story.transaction(0, {"update t set k = k + 1", "delete from t where id % 3 = 0"});
  for (int i = 5; i < 9; ++i) story.commit(0, rows(10 * i, 4, 200));
  story.persist(0);
  story.commit(0, "update t set v = 'last'");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(story.explore({}, seed_), 0u);
  EXPECT_GT(story.lost_max(), 2u);
}

// The others commit as "delete" does.
INSTANTIATE_TEST_SUITE_P(All, CrashWeak, ::testing::Values("delete", "wal"),
                         [](const auto& each) { return each.param; });

// Transactions over two databases: committed, rolled back, spilled, of one of them only, and with a second connection.
void tell_of_two(Story& story, const std::string& mode) {
  story.look(
      0, "pragma main.page_size = 512; pragma two.page_size = 1024; pragma cache_size = 6; pragma two.cache_size = 6");
  story.transaction(0, {"create table t(id integer primary key, k int, v text)",
                        "create table two.u(id integer primary key, v text)"});
  story.look(0, "pragma main.journal_mode = " + mode + "; pragma two.journal_mode = " + mode);
  story.transaction(0, {rows(1, 12, 90), "insert into u select id, v from t"});
  story.commit(0, "update t set k = 1 where id = 3");
  story.commit(0, "update u set v = 'one alone' where id = 4");
  story.undone_transaction(0, {"update t set v = 'never'", "delete from u"});
  story.look(1, "pragma cache_size = 6");
  story.transaction(1, {rows(100, 20, 150),  // spills
                        "insert into u select id, v || 'u' from t where id > 99", "delete from t where id < 5"});
  story.commit(0, "update t set v = 'after' where id < 8");
  story.close(1);
  story.reopen(0);
  story.transaction(0, {"delete from t where id > 110", "delete from u where id < 110"});
  story.close(0);
}

// Weak commits of one database or the other, and between them some over both.
void tell_of_two_weakly(Story& story, const std::string& mode) {
  story.look(
      0, "pragma main.page_size = 512; pragma two.page_size = 1024; pragma cache_size = 6; pragma two.cache_size = 6");
  story.transaction(0, {"create table t(id integer primary key, k int, v text)",
                        "create table two.u(id integer primary key, v text)"});
  story.look(0, "pragma main.journal_mode = " + mode + "; pragma two.journal_mode = " + mode);
  story.commit_weakly(0);
  story.commit(0, rows(1, 8, 90));
  story.commit(0, "insert into u values(1, 'one alone')");
  story.transaction(0, {"update t set v = 'both' where id < 4", "insert into u select id + 10, v from t"});
  for (int i = 1; i < 3; ++i) {
    story.commit(0, rows(10 * i, 4, 200));
    story.commit(0, fmt::format("update u set v = v || {}", i));
  }
  story.undone_transaction(0, {"update t set v = 'never'", "delete from u"});
  story.transaction(0, {"delete from t where id % 3 = 0", "delete from u where id % 3 = 0"});
  story.commit(0, "update u set v = 'last but one'");
  story.persist(0);
  story.commit(0, "update t set v = 'last'");
  story.transaction(0, {"update t set k = 7", "update u set v = 'both'"});
  story.commit(0, "delete from u where id > 12");
}

// The last database has no room for its part: the parts before are undone, and what is committed then stays.
void tell_of_a_part_that_fails(Story& story) {
  story.look(0, "pragma main.page_size = 512; pragma two.page_size = 65536");
  story.transaction(0, {"create table t(id integer primary key, k int, v text)", "create table two.u(v)"});
  story.commit(0, rows(1, 5, 90));
  story.begin(0, {"update t set v = 'undone'",
                  "insert into u values(randomblob(1200000))"});  // more than the log may grow to
  EXPECT_EQ(story.connection(0).run("commit"), SQLITE_FULL);
  story.roll_back(0);
  story.commit(0, "update t set v = 'stays' where id > 2");
  story.commit(0, "insert into u values(7)");
  story.close(0);
}

TEST(CrashSeveralParts, OneFails) {
  Story story({}, kTwoDatabases);
  tell_of_a_part_that_fails(story);
  ASSERT_FALSE(HasFatalFailure());
  if (kSanitized) return;  // the recoveries take minutes; release explores them
  EXPECT_EQ(story.explore({}, seed_for_this_run()), 0u);
}

class CrashSeveral : public Crash {};

TEST_P(CrashSeveral, EveryOperation) {
  Story story({}, kTwoDatabases);
  tell_of_two(story, GetParam());
  ASSERT_FALSE(HasFatalFailure());
  Story::Options options;
  if (GetParam() == "delete" && !kSanitized) {
    options.life_every = 12;  // a second life is one of commits over both
  } else {
    options.exhaustive_items_max = scaled(4);  // the others only end their journals in another way
    options.samples = scaled(5);
  }
  EXPECT_EQ(story.explore(options, seed_), 0u);
  EXPECT_GT(story.super_journals(), 0u);
}

// Each database has a prefix of its weak commits, and none has a part of one over both that another lacks.
TEST_P(CrashSeveral, WeakCommits) {
  Story story({}, kTwoDatabases);
  tell_of_two_weakly(story, GetParam());
  ASSERT_FALSE(HasFatalFailure());
  Story::Options options;
  options.exhaustive_items_max = scaled(4);
  EXPECT_EQ(story.explore(options, seed_), 0u);
  EXPECT_GT(story.lost_max(), 2u);
  EXPECT_GT(story.apart(), 0u);
  EXPECT_GT(story.super_journals(), 0u);
}

// The others have no journals that SQLite could join.
INSTANTIATE_TEST_SUITE_P(All, CrashSeveral, ::testing::Values("delete", "truncate", "persist"),
                         [](const auto& each) { return each.param; });

INSTANTIATE_TEST_SUITE_P(All, Crash, ::testing::Values("delete", "truncate", "persist", "memory", "off", "wal"),
                         [](const auto& each) { return each.param; });

// WAL: readers of an older snapshot go on reading it from pages that a checkpoint of the store has written home since.
bool reads_an_old_snapshot(Story& story) {
  story.look(0, "pragma page_size = 512");
  story.commit(0, "create table t(id integer primary key, k int, v text)");
  story.commit(0, rows(1, 100, 100));
  story.reopen(0);  // so that pages come from home
  story.look(0, "pragma journal_mode = wal");
  story.look(1, "pragma cache_size = 2; begin; select count(*) from t where id = 1");
  const std::string before = story.content();
  for (int i = 0; i < 20; ++i) story.commit(0, fmt::format("update t set v = upper(v) || {}, k = {}", i, i));
  const bool right = dump(story.connection(1)) == before && integrity(story.connection(1)) == "ok";
  story.look(1, "commit");
  return right && dump(story.connection(1)) == story.content();
}

TEST(CrashWal, OldSnapshotsStay) {
  Story story;
  EXPECT_TRUE(reads_an_old_snapshot(story));
}

// Each mutant is noticed; a test that notices none of them would prove nothing.
TEST(CrashMutants, AreNoticed) {
  if (kSanitized) GTEST_SKIP() << "what is noticed without a sanitizer is noticed with one, in minutes";
  using core::Mutant;
  struct Case {
    const char* name;
    Mutant mutant;
    std::vector<Part> parts;
    std::function<void(Story&)> tell;
  };
  const auto one = [](const std::string& mode) { return [mode](Story& story) { tell(story, mode, 512); }; };
  const auto two = [](Story& story) { tell_of_two(story, "delete"); };
  const auto two_weakly = [](Story& story) { tell_of_two_weakly(story, "delete"); };
  for (const Case& each :
       {Case{"skip_persist", Mutant::skip_persist, kOneDatabase, one("delete")},
        Case{"skip_persist in WAL", Mutant::skip_persist, kOneDatabase, one("wal")},
        Case{"persist_each_write", Mutant::persist_each_write, kOneDatabase, one("memory")},
        Case{"skip_mark", Mutant::skip_mark, kOneDatabase, one("delete")},
        Case{"keep_counter", Mutant::keep_counter, kOneDatabase, one("delete")},
        Case{"unmark_too_early", Mutant::unmark_too_early, kOneDatabase, one("delete")},
        Case{"wal_after_ack", Mutant::wal_after_ack, kOneDatabase, one("wal")},
        Case{"skip_disk_journal", Mutant::skip_disk_journal, kTwoDatabases, two},
        Case{"skip_journal_flush", Mutant::skip_journal_flush, kTwoDatabases, two},
        Case{"skip_disk_journal of weak commits", Mutant::skip_disk_journal, kTwoDatabases, two_weakly},
        Case{"skip_earlier_sync", Mutant::skip_earlier_sync, kTwoDatabases, two_weakly},
        Case{"skip_part_persist", Mutant::skip_part_persist, kTwoDatabases, two_weakly},
        Case{"skip_super_flush", Mutant::skip_super_flush, kTwoDatabases, two},
        Case{"keep_disk_journal", Mutant::keep_disk_journal, kTwoDatabases, tell_of_a_part_that_fails}}) {
    core::active_mutant = each.mutant;
    Story story({}, each.parts);
    each.tell(story);
    Story::Options options;
    core::active_mutant = Mutant::none;
    EXPECT_GT(story.explore(options, 1, true), 0u) << each.name;
  }
  core::active_mutant = Mutant::share_pages;
  {
    Story story;
    EXPECT_FALSE(reads_an_old_snapshot(story)) << "share_pages";
  }
  core::active_mutant = Mutant::believe_cached_head;
  EXPECT_GT(explore_forgotten_flushes(true), 0u) << "believe_cached_head";
  core::active_mutant = Mutant::none;
}

}  // namespace
}  // namespace memlith::test
