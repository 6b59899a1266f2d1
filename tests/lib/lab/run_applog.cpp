// The words about an application log, and about a kv store that agrees with it.
#include <fmt/format.h>

#include <utility>

#include "applog_life.hpp"
#include "heap_life.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kKvBytes = 16 * kPageBytes;

std::unique_ptr<Region> region_of(Run& run, const std::string& name, std::uint64_t size, std::uint64_t most) {
  RegionOptions options;
  options.tracker = TrackerKind::touched;
  options.size_bytes = size;
  options.reserve_bytes = most;
  options.anywhere = true;
  return run.open_region(name, options);
}
}  // namespace

// All that `act` puts into the redo log is one commit, after which the model's frames are as `frame` says. `wait`: it
// is durable when `act` is ok.
bool AppLogLife::commit(std::string_view text, bool wait, const std::function<Status()>& act, const Framing& frame,
                        const Change& also) {
  // A commit's result is known when it has returned; one that brought nothing to the log leaves what was there.
  const auto left = std::make_shared<std::optional<AppLogModel>>();
  const std::size_t commit = run.history.started(
      std::string(text),
      [left, also, plan = plan](Content& content) {
        if (!left->has_value()) return;
        (*left)->put_into(content, plan);
        if (also) also(content);
      },
      run.now());
  const std::uint64_t before = run.fired();
  const Lsn head = run.store->log().head();
  const bool ok = run.passed(act(), text, before);
  if (run.store->log().head() != head) {
    frame(framed);
    *left = framed;
  } else {
    run.history.wrote_nothing(commit);
  }
  if (!wait) {
    soon.push_back(commit);
    return ok;
  }
  run.note_outcome(commit, ok);
  if (ok) {
    for (const std::size_t each : std::exchange(soon, {})) run.history.acknowledged(each, run.now());
  }
  return ok;
}

// One commit of these records, and of what `join` adds beside the kv store's part. `captured`: it is in memory now.
bool AppLogLife::commit_kv(std::string_view text, bool wait, const Records& puts,
                           const std::function<Status(Transaction&, std::unique_ptr<Participant>)>& join,
                           const std::function<void()>& captured, const Change& also) {
  kv::Transaction records_transaction(*kv, false);
  auto records = memory.records;
  const auto act = [&]() -> Status {
    MEMLITH_TRY(records_transaction.begin());
    for (const auto& [key, value] : puts) {
      records[key] = value;
      MEMLITH_TRY(records_transaction.put(map, key, value));
    }
    Transaction transaction(*run.store);
    MEMLITH_TRY(join(transaction, std::make_unique<kv::KvPart>(records_transaction)));
    const auto end = transaction.capture(wait);
    if (!end.ok()) {
      transaction.abort();
      return end.error();
    }
    transaction.forget();
    memory.records = std::move(records);
    captured();
    return wait ? run.store->sync(*end) : kOk;
  };
  return commit(text, wait, act, [&](AppLogModel&) { frame_memory(); }, also);
}

// A frame now has all that is in memory, but for entries that wait.
void AppLogLife::frame_memory() {
  framed.consume_to(memory.consumed);
  framed.records = memory.records;
  framed.audit_consumed = memory.audit_consumed;
  framed.audit = memory.audit;
}

void open_applog(Run& run, const AppLogPlan& plan) {
  if (run.store == nullptr || run.find<AppLogLife>() != nullptr) return;
  AppLogLife& life = run.keep(std::make_unique<AppLogLife>(run));
  if (!life.make(plan)) return run.drop<AppLogLife>();
  life.memory = life.framed;
  life.read_to = life.memory.consumed;
}

bool AppLogLife::make(const AppLogPlan& wanted) {
  plan = wanted;
  plan.with_kv = plan.with_audit = false;  // until there is one
  const std::uint64_t most = std::max(plan.size, plan.max_size);
  log_region = region_of(run, kLogName, kPageBytes + plan.size, kPageBytes + most);
  if (log_region == nullptr) return false;
  const auto when_full = most > plan.size ? applog::WhenFull::grow : applog::WhenFull::fail;
  const auto open_log = [&]() -> Status {
    applog::AppLogOptions options{true, when_full, true};
    if (plan.on_board) {
      MEMLITH_TRY_ASSIGN(options.board, applog::Board::make(log_region->reserve()));
    }
    MEMLITH_TRY_ASSIGN(log, applog::AppLog::open(*log_region, options));
    return learn(*log, framed);
  };
  const auto as_it_is = [](AppLogModel&) {};
  if (!commit("make the log", true, open_log, as_it_is)) return false;
  if (wanted.with_kv) {
    kv_region = region_of(run, kKvName, kKvBytes, kReserve);
    if (kv_region == nullptr) return false;
    plan.with_kv = true;
    const auto open_kv = [&]() -> Status {
      MEMLITH_TRY_ASSIGN(kv, kv::Kv::open(*kv_region, {true, {}, true}));
      return learn(*kv, framed);
    };
    if (!commit("make the kv store", true, open_kv, as_it_is)) return false;
    const auto open_map = [&]() -> Status {
      MEMLITH_TRY_ASSIGN(map, kv->open_map("map", true, false));
      return kOk;
    };
    if (!commit("make the map", true, open_map, as_it_is)) return false;
  }
  if (!wanted.with_audit) return true;
  // The region that counts is made before anything counts, so it is what the model says.
  tally = region_of(run, kTallyName, kPageBytes, kPageBytes);
  if (tally == nullptr) return false;
  audit_region = region_of(run, kAuditName, 2 * kPageBytes, 2 * kPageBytes);
  if (audit_region == nullptr) return false;
  plan.with_audit = true;
  const auto open_audit = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(audit, applog::AppLog::open(*audit_region, {true, applog::WhenFull::fail, true}));
    return learn_audit(*audit, framed);
  };
  return commit("make the second log", true, open_audit, as_it_is);
}

// The effect of a commit that consumes up to `number` on the second log and on the region.
Status AppLogLife::join_audit(Transaction& transaction, std::uint64_t number, const std::string& entry) {
  std::byte* const words = tally->address();
  MEMLITH_TRY(transaction.touch_before(*tally, words, sizeof number));
  std::memcpy(words, &number, sizeof number);
  MEMLITH_TRY(tally->touch(words + sizeof number, sizeof number));
  std::memcpy(words + sizeof number, &number, sizeof number);
  MEMLITH_TRY(transaction.add(std::make_unique<RegionPart>(*tally)));

  applog::AppLog::Entry read;
  std::uint64_t newest = 0;
  for (;;) {
    MEMLITH_TRY_ASSIGN(const bool more, audit->read(0, read));
    if (!more) break;
    newest = read.number;
  }
  auto part = std::make_unique<applog::AppLogPart>(*audit);
  const auto content = std::as_bytes(std::span(entry));
  MEMLITH_TRY(part->append({&content, 1}));
  if (newest != 0) MEMLITH_TRY(part->consume(newest));
  audited = newest;
  return transaction.add(std::move(part));
}

void AppLogLife::append(std::uint64_t bytes) {
  if (run.poisoned) return;
  const std::uint64_t number = memory.newest() + 1;
  std::string text = fmt::format("entry {} of step {} ", number, run.step_index() + run.other_bytes);
  text.resize(std::max<std::uint64_t>(bytes, text.size()), static_cast<char>('a' + number % 26));
  const std::uint64_t before = run.fired();
  const auto content = std::as_bytes(std::span(text));
  const auto appended = log->append({&content, 1});
  if (!appended.ok() && appended.error().category == Errc::full) return;
  if (!run.passed(appended.status(), "an append", before)) return;
  if (*appended != number) run.broken(fmt::format("entry {} got number {}", number, *appended));
  memory.entries.push_back(std::move(text));
}

void AppLogLife::write() {
  (void)commit(
      "write the log", true, [&] { return log->write().status(); },
      [&](AppLogModel& model) {
        while (model.newest() < memory.newest()) {
          model.entries.push_back(memory.entries[model.newest() - memory.consumed]);
        }
      });
}

const std::string& AppLogLife::entry(std::uint64_t number) const {
  return memory.entries[number - memory.consumed - 1];
}

// Reads so many entries, and compares them with the model.
void AppLogLife::read(std::uint64_t entries) {
  applog::AppLog::Entry found;
  for (; entries > 0; --entries) {
    const std::uint64_t before = run.fired();
    const auto more = log->read(0, found);
    if (!run.passed(more.status(), "reading an entry", before) || !*more) return;
    if (found.number != ++read_to) run.broken(fmt::format("entry {} was read as {}", read_to, found.number));
    if (!std::ranges::equal(found.content, std::as_bytes(std::span(entry(read_to))))) {
      run.broken(fmt::format("entry {} was read with other bytes", found.number));
    }
  }
}

void AppLogLife::consume(std::uint64_t entries) {
  if (kv != nullptr) return;
  read(entries);
  if (read_to == memory.consumed) return;
  const bool ok = commit(
      "consume", false, [&] { return log->consume(read_to); }, [&](AppLogModel& model) { model.consume_to(read_to); });
  if (ok) memory.consume_to(read_to);
}

// Reads entries, counts them in the kv store, and commits both.
void AppLogLife::consume_with_kv(std::uint64_t entries, bool wait) {
  if (kv == nullptr) return;
  read(entries);
  if (read_to == memory.consumed) return;
  Records puts{{"consumed", std::to_string(read_to)}};
  for (std::uint64_t number = memory.consumed + 1; number <= read_to; ++number) {
    puts.emplace_back(fmt::format("{}", number % 7), entry(number));
  }
  const std::string line = fmt::format("consumed {} in step {}", read_to, run.step_index() + run.other_bytes);
  const auto join = [&](Transaction& transaction, std::unique_ptr<Participant> records) -> Status {
    auto part = std::make_unique<applog::AppLogPart>(*log);
    MEMLITH_TRY(part->consume(read_to));
    MEMLITH_TRY(transaction.add(std::move(records)));
    MEMLITH_TRY(transaction.add(std::move(part)));
    return audit != nullptr ? join_audit(transaction, read_to, line) : kOk;
  };
  (void)commit_kv(wait ? "commit both" : "commit both, weakly", wait, puts, join, [&] {
    memory.consume_to(read_to);
    if (audit != nullptr) memory.audit_to(audited, line);
  });
}

void AppLogLife::commit_heap(bool wait) {
  HeapLife* const heap = run.find<HeapLife>();
  if (heap == nullptr || kv == nullptr || run.poisoned) return;
  const std::vector<std::byte> bytes = heap->bytes();
  const Change change = heap->change();
  heap->check("before a commit with a kv store");
  const auto join = [&](Transaction& transaction, std::unique_ptr<Participant> records) -> Status {
    MEMLITH_TRY(transaction.add(std::make_unique<RegionPart>(*heap->region)));
    return transaction.add(std::move(records));
  };
  (void)commit_kv(
      wait ? "commit the heap and the kv store" : "commit the heap and the kv store, weakly", wait,
      {{"heap", fmt::format("{} blocks", heap->model.blocks.size())},
       {"step", fmt::format("{} and other bytes of {}", run.step_index(), run.other_bytes)}},
      join, [&] { heap->was_captured(bytes); }, change);
  if (run.poisoned) heap->destroy_everything();
}

void AppLogLife::persist_kv() {
  if (kv == nullptr) return;
  (void)commit("persist the kv store", true, [&] { return kv->persist(); }, [&](AppLogModel&) { frame_memory(); });
}

// ---- cuts, and the term that a consensus engine keeps beside the log -------------------------------------------

// Waiting entries go to the log in a frame before that of a cut, which is a commit of its own here. False: it failed.
bool AppLogLife::write_before_cut() {
  if (memory.newest() > framed.newest()) write();
  return !run.poisoned;
}

// Drops so many of the newest entries, whether they were written or not.
void AppLogLife::truncate_after(std::uint64_t entries) {
  if (run.poisoned || memory.entries.empty()) return;
  const std::uint64_t last = memory.newest() - std::min<std::uint64_t>(entries, memory.entries.size());
  if (last < framed.newest() && !write_before_cut()) return;
  const auto cut = [last](AppLogModel& model) {
    if (model.newest() > last) model.entries.resize(last - model.consumed);
  };
  if (!commit("truncate the newer end", false, [&] { return log->truncate_after(last); }, cut)) return;
  cut(memory);
  read_to = std::min(read_to, last);
}

// Drops so many of the oldest entries of those that were written.
void AppLogLife::truncate_before(std::uint64_t entries) {
  if (run.poisoned || !write_before_cut()) return;
  const std::uint64_t first = memory.consumed + 1 + std::min<std::uint64_t>(entries, framed.newest() - memory.consumed);
  const auto cut = [first](AppLogModel& model) { model.consume_to(first - 1); };
  if (!commit("truncate the older end", false, [&] { return log->truncate_before(first); }, cut)) return;
  cut(memory);
  read_to = std::max(read_to, first - 1);
}

// Drops all entries, and goes on with a number that leaves out so many.
void AppLogLife::restart(std::uint64_t skipped) {
  if (run.poisoned || !write_before_cut()) return;
  const std::uint64_t next = memory.newest() + 1 + skipped;
  const auto restart = [next](AppLogModel& model) {
    model.entries.clear();
    model.consumed = next - 1;
  };
  if (!commit("restart the log", false, [&] { return log->restart(next); }, restart)) return;
  restart(memory);
  read_to = next - 1;
}

// Each durable entry by its number, from the oldest to the newest or back, and what is not there.
void AppLogLife::read_by_number(bool backwards) {
  if (run.poisoned) return;
  const std::uint64_t durable = log->durable();
  std::vector<std::byte> content;
  for (std::uint64_t i = memory.consumed; i <= durable + 1; ++i) {
    const std::uint64_t number = backwards ? durable + 1 - (i - memory.consumed) : i;
    const std::uint64_t before = run.fired();
    const auto found = log->read_at(number, content);
    if (!run.passed(found.status(), "reading an entry by its number", before)) return;
    const bool expected = number > memory.consumed && number <= durable;
    if (*found != expected) run.broken(fmt::format("entry {} was {}found", number, expected ? "not " : ""));
    if (expected && !std::ranges::equal(content, std::as_bytes(std::span(entry(number))))) {
      run.broken(fmt::format("entry {} was read by its number with other bytes", number));
    }
  }
}

// A record of the kv store, durable before any entry that is appended behind it.
void AppLogLife::set_term(std::uint64_t term) {
  if (kv == nullptr || run.poisoned || !write_before_cut()) return;
  (void)commit_kv(
      "set the term", true, {{"term", fmt::format("{} set in step {}", term, run.step_index() + run.other_bytes)}},
      [](Transaction& transaction, std::unique_ptr<Participant> records) {
        return transaction.add(std::move(records));
      },
      [] {});
}

}  // namespace memlith::lab
