#include "schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>

#include "support/temp_folder.hpp"

namespace memlith::test::exploration {

namespace {

constexpr int kActorsMax = 4;
constexpr std::uint64_t kPatienceNs = 1'000'000'000;  // for a process that was killed
// In memory: the control block is a real file.
class Folder {
 public:
  Folder() {
    if (::mkdtemp(name_.data()) == nullptr) std::abort();
    write_file(name_ + "/app.db", "");  // for what looks at the file's identity
  }
  ~Folder() {
    if (::getpid() == made_by_) std::filesystem::remove_all(name_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string database() const { return name_ + "/app.db"; }

 private:
  pid_t made_by_ = ::getpid();
  std::string name_ = "/dev/shm/memlith-exploration-XXXXXX";
};
const std::string& path() {
  static const Folder folder;
  static const std::string path = folder.database();
  return path;
}
ModelDisk::Image& prepared() {
  static auto* const image = new ModelDisk::Image;
  return *image;
}

std::string select_all() {
  std::string text = "select (select v from s)";
  for (int i = 0; i < kActorsMax; ++i) text += fmt::format(",(select v from c{})", i);
  return text;
}
// Empty: it could not be read.
std::vector<int> numbers_of(const std::string& row) {
  std::vector<int> numbers;
  if (row.empty() || row.starts_with("error")) return numbers;
  std::size_t at = 0;
  while (at <= row.size()) {
    const std::size_t end = std::min(row.find('|', at), row.size());
    numbers.push_back(std::atoi(row.substr(at, end - at).c_str()));
    at = end + 1;
  }
  return numbers;
}

bool is_whole(const std::vector<int>& numbers) {
  return numbers.size() == kActorsMax + 1 && numbers[0] == std::accumulate(numbers.begin() + 1, numbers.end(), 0);
}

}  // namespace

void Schedule::prepare() {
  ModelDisk& disk = ModelDisk::get();
  disk.install();
  (void)registered_vfs();
  {
    const Db db(path(), "model");
    std::string sql = "pragma page_size=4096; pragma journal_mode=wal; create table s(v int); insert into s values(0);";
    for (int i = 0; i < kActorsMax; ++i) sql += fmt::format("create table c{0}(v int); insert into c{0} values(0);", i);
    EXPECT_RUNS(db, sql);
  }
  // A log with a few commits.
  Db db(path(), "model");
  EXPECT_RUNS(db, "update s set v = 0; update s set v = 0");
  ModelDisk::Image image = disk.image();
  (void)db.close();
  prepared() = std::move(image);
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SAVE);
}

std::string Schedule::name(int actor) const {
  constexpr const char* kKinds[] = {"shared", "shared, NORMAL", "plain", "shared, automatic checkpoints",
                                    "no connection"};
  return fmt::format("thread {} (process {}, {})", actor, at(actor).process,
                     kKinds[static_cast<std::size_t>(at(actor).kind)]);
}

void Schedule::wrong(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

// ---- words ---------------------------------------------------------------------------------------------------------

Schedule::Word::Word(Schedule& its, int actor) : schedule(its), begun(its.now_ns()) {
  its.came_[static_cast<std::size_t>(actor)] = 0;
  its.slept_at_[static_cast<std::size_t>(actor)] = 0;
}
Schedule::Word::~Word() {
  // The time of a process beside a killed one, or of any where none was killed; not beside a stopped one.
  const std::uint64_t took = schedule.now_ns() - begun;
  if (schedule.scheduler_.has_stopped()) return;
  schedule.blocked_max_ns_ = std::max(schedule.blocked_max_ns_, took);
  if (took > kPatienceNs) schedule.wrong(fmt::format("an operation took {} ms", took / 1'000'000));
}

void Schedule::open(int actor) {
  const bool plain = at(actor).kind == Actor::Kind::plain;
  db(actor) = Db("file:" + path() + (plain ? "" : "?share=1"), plain ? "model" : "memlith");
  sqlite3_busy_timeout(db(actor).get(), 1100);
  sqlite3_db_config(db(actor).get(), SQLITE_DBCONFIG_LOOKASIDE, nullptr, 0, 0);
  const char* const synchronous = at(actor).kind == Actor::Kind::normal ? "normal" : "full";
  const int limit = at(actor).kind == Actor::Kind::automatic ? 4 : 0;  // frames: two transactions
  told(actor, db(actor).run(fmt::format("pragma synchronous={}; pragma wal_autocheckpoint={}", synchronous, limit)),
       "open");
}

void Schedule::pause(std::uint64_t microseconds) { core::shm::sleep(std::chrono::microseconds(microseconds)); }

void Schedule::close(int actor) { told(actor, db(actor).close(), "close"); }

void Schedule::close_last(int actor) {
  close(actor);
  if (!ModelDisk::get().bytes_of(path() + "-wal").empty()) wrong(name(actor) + " closed the database and left its log");
}

void Schedule::make_checkpoints(int actor) {
  constexpr auto kLook = std::chrono::microseconds(20);
  constexpr auto kLookMax = std::chrono::microseconds(5000);  // beside a stopped process the others wait for seconds
  for (auto look = kLook;;) {
    bool others_work = false;
    for (int i = 0; i < static_cast<int>(has_ended_.size()); ++i) {
      others_work |= i != actor && at(i).process == at(actor).process && !has_ended_[static_cast<std::size_t>(i)];
    }
    if (auto& wanted = here().checkpoints; !wanted.empty()) {
      const auto next = wanted.front();
      wanted.pop_front();
      sqlite::shared::make_checkpoint(next);
      check_cuts(name(actor) + " made a checkpoint");
      look = kLook;
    } else if (others_work) {
      core::shm::sleep(look);
      look = std::min(2 * look, kLookMax);
    } else {
      return;
    }
  }
}

bool Schedule::take_checkpoint(const sqlite::shared::Checkpoint& checkpoint) {
  if (here().has_checkpointer) here().checkpoints.push_back(checkpoint);
  return here().has_checkpointer;
}

void Schedule::takes_write_lock(bool is_promised_to_another) {
  if (is_promised_to_another) wrong(name(running()) + " took the write lock that was promised to another one");
}

void Schedule::tell(const std::string& line) {
  if (scheduler_.story != nullptr) scheduler_.story->push_back(line);
}

void Schedule::told(int actor, int code, const std::string& what) {
  tell(fmt::format("{}: {} returned {}", name(actor), what, code));
  if (code == SQLITE_OK) return;
  if (code == SQLITE_IOERR_FSYNC && ModelDisk::get().log_flushes > case_.failing_log_flush &&
      case_.failing_log_flush >= 0) {
    return;
  }
  // A process that is stopped with a lock of SQLite's, or while it writes the header of the index.
  if (((code & 0xff) == SQLITE_BUSY || code == SQLITE_PROTOCOL) && scheduler_.has_stopped()) return;
  wrong(fmt::format("{}: {} returned {} ({})", name(actor), what, code, db(actor).message()));
}

// The kernel tells a failure to descriptors that were open. If the only process that was told is killed before it says
// so, one that comes later believes its own flushes (docs/sqlite.md, "Mode shared").
bool Schedule::can_know(int actor) const {
  return !at(actor).comes_late || case_.failing_log_flush < 0 || !scheduler_.has_died();
}

bool Schedule::write(int actor, const char* begin) {
  const Word word(*this, actor);
  const auto me = static_cast<std::size_t>(actor);
  const std::string counter = fmt::format("c{}", actor);
  begun_[me] = acknowledged_[me] + 1;
  const bool reads_first = std::string_view(begin) == "begin";
  int code = db(actor).run(begin);
  if (code == SQLITE_OK && reads_first) code = db(actor).run(fmt::format("select v from {}", counter));
  if (code == SQLITE_OK) {
    code = db(actor).run(fmt::format("update {} set v = {}; update s set v = v + 1; commit", counter, begun_[me]));
  }
  if (code == SQLITE_OK) {
    tell(fmt::format("{}: wrote {}", name(actor), begun_[me]));
    acknowledged_[me] = begun_[me];
    if (at(actor).kind != Actor::Kind::normal && can_know(actor)) must_[me] = begun_[me];
    check_cuts(name(actor) + " acknowledged a commit");
    return true;
  }
  if (sqlite3_get_autocommit(db(actor).get()) == 0) (void)db(actor).run("rollback");
  if (!reads_first || (code & 0xff) != SQLITE_BUSY) told(actor, code, "a write");
  return false;
}

// Everything that was acknowledged before is shown, and nothing of what was not begun.
void Schedule::shown(int actor, const std::string& row, bool is_durable) {
  const std::vector<int> numbers = numbers_of(row);
  if (!is_whole(numbers)) return wrong(fmt::format("{} is shown {}", name(actor), row));
  for (std::size_t i = 0; i < dbs_.size(); ++i) {
    if (numbers[i + 1] > begun_[i]) wrong(fmt::format("{} is shown {}: not begun", name(actor), row));
    if (is_durable) must_[i] = std::max(must_[i], numbers[i + 1]);
  }
  if (is_durable) check_cuts(fmt::format("{} was shown {}", name(actor), row));
}

void Schedule::read(int actor) {
  const Word word(*this, actor);
  const std::vector<int> before = acknowledged_;
  const std::string row = db(actor).all(select_all());
  const int code = sqlite3_extended_errcode(db(actor).get());
  if (row.starts_with("error")) return told(actor, code, "a read");
  shown(actor, row, at(actor).kind != Actor::Kind::plain && can_know(actor));
  const std::vector<int> numbers = numbers_of(row);
  for (std::size_t i = 0; i < before.size() && i + 1 < numbers.size(); ++i) {
    if (numbers[i + 1] < before[i]) wrong(fmt::format("{} is shown {}: older than acknowledged", name(actor), row));
  }
}

void Schedule::read_and_roll_back(int actor) {
  const Word word(*this, actor);
  const int code = db(actor).run("begin immediate;" + select_all() + "; rollback");
  if (sqlite3_get_autocommit(db(actor).get()) == 0) (void)db(actor).run("rollback");
  told(actor, code, "a transaction that is rolled back");
}

void Schedule::checkpoint(int actor, const char* how) {
  const Word word(*this, actor);
  const int code = db(actor).run(fmt::format("pragma wal_checkpoint({})", how));
  if ((code & 0xff) != SQLITE_LOCKED) told(actor, code, "a checkpoint");
  check_cuts(name(actor) + " made a checkpoint");
}

// ---- what must be true ---------------------------------------------------------------------------------------------

// The numbers after a power cut; empty: the database is damaged.
std::vector<int> Schedule::recover(const std::pair<std::string, std::string>& image) {
  static auto* const known = new std::map<std::pair<std::size_t, std::size_t>, std::vector<int>>;
  const std::hash<std::string> hash;
  const auto key = std::make_pair(hash(image.first), hash(image.second));
  if (const auto found = known->find(key); found != known->end()) return found->second;
  const lab::Unobserved aside;
  ModelDisk& disk = ModelDisk::get();
  const auto hooks = std::exchange(disk.hooks, {});
  const std::uint64_t changes = disk.changes;
  const std::string cut = path() + "-cut";
  disk.put(cut, image.first);
  disk.put(cut + "-wal", image.second);
  std::vector<int> numbers;
  {
    const Db db(cut, "model");
    numbers = numbers_of(db.all(select_all()));
    if (!is_whole(numbers)) numbers.clear();
  }
  for (const char* const suffix : {"", "-wal", "-journal"}) disk.remove(cut + suffix);
  disk.hooks = hooks;
  disk.changes = changes;
  return (*known)[key] = numbers;
}

void Schedule::check_cuts(const std::string& when) {
  if (!wrong_.empty()) return;
  for (const bool newest : {false, true}) {
    Cut& cut = cuts_[newest ? 1 : 0];
    if (cut.changes != ModelDisk::get().changes) {
      cut.numbers = recover(ModelDisk::get().after_cut(path(), newest));
      cut.changes = ModelDisk::get().changes;
    }
    const std::vector<int>& numbers = cut.numbers;
    const char* const what = newest ? ", of which the kernel wrote the database" : "";
    if (numbers.empty()) return wrong(fmt::format("{}: a power cut{} damages the database", when, what));
    for (std::size_t i = 0; i < must_.size(); ++i) {
      if (numbers[i + 1] >= must_[i]) continue;
      return wrong(fmt::format("{}: a power cut{} leaves {}; of thread {} it must leave {}", when, what,
                               fmt::join(numbers, "|"), i, must_[i]));
    }
  }
}

void Schedule::asked_for_write_lock(bool granted) {
  if (running() < 0) return;
  const auto me = static_cast<std::size_t>(running());
  if (came_[me] == 0) came_[me] = now_ns();
  got_it_[me] = granted;
}

void Schedule::waits() {
  if (running() < 0) return;
  const auto me = static_cast<std::size_t>(running());
  if (came_[me] != 0 && slept_at_[me] == 0) slept_at_[me] = now_ns();
}

void Schedule::wrote_log() {
  if (running() < 0) return;
  const auto me = static_cast<std::size_t>(running());
  if (!got_it_[me]) return;
  got_it_[me] = false;
  if (at(running()).kind != Actor::Kind::plain) {
    for (std::size_t i = 0; i < came_.size(); ++i) {
      if (i != me && slept_at_[i] != 0 && slept_at_[i] < came_[me]) ++passed_[i];
      if (passed_[i] <= case_.passed_over_max || scheduler_.has_stopped()) continue;
      wrong(fmt::format("{} was passed over {} times", name(static_cast<int>(i)), passed_[i]));
    }
  }
  came_[me] = 0;
  slept_at_[me] = 0;
  passed_[me] = 0;
}

void Schedule::kill(int process) {
  ModelDisk::get().kill(process);
  Process& dead = processes_.at(process);
  dead.registry->abandon_all();
  (void)dead.registry.release();  // its lock may be held for ever
  dead = {};
  for (std::size_t i = 0; i < dbs_.size(); ++i) {
    if (case_.actors[i].process != process) continue;
    (void)new Db(std::move(dbs_[i]));  // its memory is gone with the process
    dbs_[i] = Db();
    came_[i] = 0;
    slept_at_[i] = 0;
  }
}

void Schedule::open_all() {
  const std::size_t count = case_.actors.size();
  ModelDisk& disk = ModelDisk::get();
  disk.hooks = {};
  disk.restore(prepared());
  ::unlink((path() + "-memlith").c_str());
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_RESTORE);
  dbs_.resize(count);
  begun_.assign(count, 0);
  acknowledged_ = must_ = passed_ = begun_;
  came_.assign(count, 0);
  slept_at_.assign(count, 0);
  got_it_.assign(count, false);
  has_ended_.assign(count, false);
  sqlite::shared::processes = this;
  sqlite::shared::forget_threads();
  disk.hooks.process = [this] { return process(); };
  for (const Actor& each : case_.actors) {
    processes_[each.process].has_checkpointer |= each.kind == Actor::Kind::checkpointer;
  }
  for (for_ = 0; for_ < static_cast<int>(count); ++for_) {
    if (at(for_).comes_late) continue;
    open(for_);
    (void)db(for_).all(select_all());
  }
  for_ = -1;
}

void Schedule::set_hooks() {
  ModelDisk& disk = ModelDisk::get();
  disk.log_flushes = 0;
  disk.failing_log_flush = case_.failing_log_flush;
  disk.hooks.point = [this](const char* what) {
    if (core::controller != nullptr) scheduler_.here(what);
  };
  disk.hooks.sleep = [](std::uint64_t nanoseconds) { core::shm::sleep(std::chrono::nanoseconds(nanoseconds)); };
  disk.hooks.wrote = [this](const std::string&) { check_cuts("something was written or flushed"); };
  disk.hooks.asked_for_write_lock = [this](bool granted) { asked_for_write_lock(granted); };
  disk.hooks.wrote_log = [this] { wrote_log(); };
}

std::string Schedule::run() {
  constexpr auto kStop = std::chrono::milliseconds(2);
  scheduler_.keeps_time = true;
  scheduler_.steps_max = 1'000'000;
  if (case_.stops) scheduler_.stops = {kStop, core::kForEver};
  if (case_.takes_turns) scheduler_.sees = [](const void*) { return false; };
  scheduler_.waits = [this] { waits(); };
  core::shm::sleep(std::chrono::milliseconds(1));  // no time is 0
  open_all();
  set_hooks();
  std::vector<core::Thread> threads;
  bool begins = false;
  for (int i = 0; i < static_cast<int>(case_.actors.size()); ++i) {
    threads.emplace_back([this, i, &begins] {
      const int process = at(i).process;
      const auto number = static_cast<std::uint32_t>(process) + 1;
      if (!case_.takes_turns) scheduler_.may_die([this, process] { kill(process); }, number);
      scheduler_.block("begin", nullptr, core::kForEver, [&begins] { return begins; });
      at(i).act(*this, i);
      has_ended_[static_cast<std::size_t>(i)] = true;
    });
  }
  scheduler_.let_others_run();  // a thread that has not begun is of no process yet
  begins = true;
  scheduler_.begin_deciding();
  for (core::Thread& each : threads) each.join();
  scheduler_.end_deciding();
  ModelDisk& disk = ModelDisk::get();
  disk.hooks.point = nullptr;
  disk.hooks.sleep = nullptr;
  disk.hooks.asked_for_write_lock = nullptr;
  disk.hooks.wrote_log = nullptr;
  check_end();
  disk.hooks = {};
  sqlite::shared::processes = nullptr;
  return wrong_;
}

// All close; the database has everything that was acknowledged, also by those that were killed.
void Schedule::check_end() {
  // After a failed flush plain SQLite may read from the kernel's cache what is not on the medium (docs/sqlite.md).
  if (case_.failing_log_flush >= 0) ModelDisk::get().hooks.wrote = nullptr;
  ModelDisk::get().failing_log_flush = -1;
  for (for_ = 0; for_ < static_cast<int>(dbs_.size()); ++for_) (void)db(for_).close();
  for_ = -1;
  const Db db(path(), "model");
  const std::string verdict = integrity(db);
  if (verdict != "ok") wrong("at the end: " + verdict);
  const std::string row = db.all(select_all());
  const std::vector<int> numbers = numbers_of(row);
  if (!is_whole(numbers)) return wrong("at the end: " + row);
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    const bool fits = acknowledged_[i] <= numbers[i + 1] && numbers[i + 1] <= begun_[i];
    if (!fits) wrong(fmt::format("at the end: {}; {} acknowledged, {} begun", row, acknowledged_[i], begun_[i]));
  }
}

}  // namespace memlith::test::exploration
