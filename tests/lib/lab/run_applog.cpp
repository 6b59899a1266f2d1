// The words of a run that are about application logs, and kv stores that agree with them.
#include <fmt/format.h>

#include <utility>

#include "applog_life.hpp"
#include "heap_life.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kKvBytes = 16 * kPageBytes;
}  // namespace

// Whatever `act` puts into the redo log is one commit, after which the model's frames are as `framed` says. `wait`: it
// is durable when `act` is ok.
bool Run::applog_commit(std::string_view text, bool wait, const std::function<Status()>& act,
                        const std::function<void(AppLogModel& framed)>& framed, const Change& also) {
  AppLogLife& life = *applog_;
  // What a commit leaves is known when it has returned; one that brought nothing to the log leaves what was there.
  const auto left = std::make_shared<std::optional<AppLogModel>>();
  const std::size_t commit = history.started(
      std::string(text),
      [left, also, plan = life.plan](Content& content) {
        if (!left->has_value()) return;
        (*left)->put_into(content, plan);
        if (also) also(content);
      },
      now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  const bool ok = passed(act(), text, before);
  if (store_->log().head() != head) {
    framed(life.framed);
    *left = life.framed;
  } else {
    history.wrote_nothing(commit);
  }
  if (!wait) {
    life.soon.push_back(commit);
    return ok;
  }
  settle(commit, ok);
  if (ok) {
    for (const std::size_t each : std::exchange(life.soon, {})) history.acknowledged(each, now());
  }
  return ok;
}

std::unique_ptr<Region> Run::applog_region(const std::string& name, std::uint64_t size, std::uint64_t most) {
  const bool made = find(name).has_value();
  RegionOptions options;
  options.create = true;
  options.tracker = TrackerKind::touched;
  options.size_bytes = size;
  options.reserve_bytes = most;
  options.anywhere = true;
  std::size_t commit = 0;
  if (!made) {
    commit = history.started(
        "create region " + name, [name, size](Content& content) { content.objects[name].resize(size); }, now());
  }
  const std::uint64_t before = fired();
  auto region = Region::open(*store_, name, options);
  const bool ok = passed(region.status(), "opening a region", before);
  if (!made) settle(commit, ok);
  return ok ? std::move(*region) : nullptr;
}

void Run::open_applog(const AppLogPlan& plan) {
  if (store_ == nullptr || applog_ != nullptr) return;
  auto life = std::make_unique<AppLogLife>();
  life->plan = plan;
  life->plan.with_kv = life->plan.with_audit = false;  // until there is one
  const std::uint64_t most = std::max(plan.size, plan.max_size);
  life->log_region = applog_region(kLogName, kPageBytes + plan.size, kPageBytes + most);
  if (life->log_region == nullptr) return;
  applog_ = std::move(life);
  AppLogLife& made = *applog_;
  const auto when_full = most > plan.size ? applog::WhenFull::grow : applog::WhenFull::fail;
  const auto open_log = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(made.log, applog::AppLog::open(*made.log_region, {true, when_full, true}));
    return learn(*made.log, made.framed);
  };
  const auto as_it_is = [](AppLogModel&) {};
  if (!applog_commit("make the log", true, open_log, as_it_is)) return close_applog();
  if (plan.with_kv) {
    made.kv_region = applog_region(kKvName, kKvBytes, kReserve);
    if (made.kv_region == nullptr) return close_applog();
    made.plan.with_kv = true;
    const auto open_kv = [&]() -> Status {
      MEMLITH_TRY_ASSIGN(made.kv, kv::Kv::open(*made.kv_region, {true, {}, true}));
      return learn(*made.kv, made.framed);
    };
    if (!applog_commit("make the kv store", true, open_kv, as_it_is)) return close_applog();
    const auto open_map = [&]() -> Status {
      MEMLITH_TRY_ASSIGN(made.map, made.kv->open_map("map", true, false));
      return kOk;
    };
    if (!applog_commit("make the map", true, open_map, as_it_is)) return close_applog();
  }
  if (plan.with_audit && !open_audit()) return close_applog();
  made.memory = made.framed;
  made.read = made.memory.consumed;
}

// The second log and the region that counts. The region is made before anything counts, so it is what the model says.
bool Run::open_audit() {
  AppLogLife& life = *applog_;
  life.tally = applog_region(kTallyName, kPageBytes, kPageBytes);
  if (life.tally == nullptr) return false;
  life.audit_region = applog_region(kAuditName, 2 * kPageBytes, 2 * kPageBytes);
  if (life.audit_region == nullptr) return false;
  life.plan.with_audit = true;
  const auto open_log = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(life.audit, applog::AppLog::open(*life.audit_region, {true, applog::WhenFull::fail, true}));
    return learn_audit(*life.audit, life.framed);
  };
  return applog_commit("make the second log", true, open_log, [](AppLogModel&) {});
}

// What a commit that consumes up to `number` does to the second log and to the region.
Status Run::join_audit(Transaction& transaction, std::uint64_t number, const std::string& entry) {
  AppLogLife& life = *applog_;
  std::byte* const words = life.tally->address();
  MEMLITH_TRY(transaction.touch_before(*life.tally, words, sizeof number));
  std::memcpy(words, &number, sizeof number);
  MEMLITH_TRY(life.tally->touch(words + sizeof number, sizeof number));
  std::memcpy(words + sizeof number, &number, sizeof number);
  MEMLITH_TRY(transaction.add(std::make_unique<RegionPart>(*life.tally)));

  applog::AppLog::Entry read;
  std::uint64_t newest = 0;
  for (;;) {
    MEMLITH_TRY_ASSIGN(const bool more, life.audit->read(0, read));
    if (!more) break;
    newest = read.number;
  }
  auto part = std::make_unique<applog::AppLogPart>(*life.audit);
  const auto content = std::as_bytes(std::span(entry));
  MEMLITH_TRY(part->append({&content, 1}));
  if (newest != 0) MEMLITH_TRY(part->consume(newest));
  life.audited = newest;
  return transaction.add(std::move(part));
}

void Run::close_applog() {
  if (applog_ == nullptr) return;
  applog_->log = nullptr;  // neither writes anything
  applog_->audit = nullptr;
  applog_->kv = nullptr;
  applog_ = nullptr;
}

void Run::append_entry(std::uint64_t bytes) {
  if (applog_ == nullptr || poisoned_) return;
  AppLogLife& life = *applog_;
  const std::uint64_t number = life.memory.newest() + 1;
  std::string text = fmt::format("entry {} of step {} ", number, step_ + other_bytes);
  text.resize(std::max<std::uint64_t>(bytes, text.size()), static_cast<char>('a' + number % 26));
  const std::uint64_t before = fired();
  const auto content = std::as_bytes(std::span(text));
  const auto appended = life.log->append({&content, 1});
  if (!appended.ok() && appended.error().category == Errc::full) return;
  if (!passed(appended.status(), "an append", before)) return;
  if (*appended != number) broken(fmt::format("entry {} got number {}", number, *appended));
  life.memory.entries.push_back(std::move(text));
}

void Run::write_applog() {
  if (applog_ == nullptr) return;
  AppLogLife& life = *applog_;
  (void)applog_commit(
      "write the log", true, [&] { return life.log->write(); },
      [&](AppLogModel& framed) {
        while (framed.newest() < life.memory.newest()) {
          framed.entries.push_back(life.memory.entries[framed.newest() - life.memory.consumed]);
        }
      });
}

// Reads so many entries, and compares them with the model.
void Run::read_applog(std::uint64_t entries) {
  if (applog_ == nullptr) return;
  AppLogLife& life = *applog_;
  applog::AppLog::Entry entry;
  for (; entries > 0; --entries) {
    const std::uint64_t before = fired();
    const auto more = life.log->read(0, entry);
    if (!passed(more.status(), "reading an entry", before) || !*more) return;
    if (entry.number != ++life.read) broken(fmt::format("entry {} was read as {}", life.read, entry.number));
    const std::string& expected = life.memory.entries[life.read - life.memory.consumed - 1];
    if (!std::ranges::equal(entry.content, std::as_bytes(std::span(expected)))) {
      broken(fmt::format("entry {} was read with other bytes", entry.number));
    }
  }
}

void Run::consume_applog(std::uint64_t entries) {
  if (applog_ == nullptr || applog_->kv != nullptr) return;
  AppLogLife& life = *applog_;
  read_applog(entries);
  if (life.read == life.memory.consumed) return;
  const bool ok = applog_commit(
      "consume", false, [&] { return life.log->consume(life.read); },
      [&](AppLogModel& framed) { framed.consume_to(life.read); });
  if (ok) life.memory.consume_to(life.read);
}

// Reads entries, counts them in the kv store, and commits both.
void Run::consume_with_kv(std::uint64_t entries, bool wait) {
  if (applog_ == nullptr || applog_->kv == nullptr) return;
  AppLogLife& life = *applog_;
  read_applog(entries);
  if (life.read == life.memory.consumed) return;
  kv::Transaction records_transaction(*life.kv, false);
  auto records = life.memory.records;
  const auto put = [&](const std::string& key, const std::string& value) {
    records[key] = value;
    return records_transaction.put(life.map, key, value);
  };
  const auto act = [&]() -> Status {
    MEMLITH_TRY(records_transaction.begin());
    MEMLITH_TRY(put("consumed", std::to_string(life.read)));
    for (std::uint64_t number = life.memory.consumed + 1; number <= life.read; ++number) {
      const std::string& entry = life.memory.entries[number - life.memory.consumed - 1];
      MEMLITH_TRY(put(fmt::format("{}", number % 7), entry));
    }
    auto part = std::make_unique<applog::AppLogPart>(*life.log);
    MEMLITH_TRY(part->consume(life.read));
    Transaction transaction(*store_);
    MEMLITH_TRY(transaction.add(std::make_unique<kv::KvPart>(records_transaction)));
    MEMLITH_TRY(transaction.add(std::move(part)));
    const std::string line = fmt::format("consumed {} in step {}", life.read, step_ + other_bytes);
    if (life.audit != nullptr) MEMLITH_TRY(join_audit(transaction, life.read, line));
    const auto captured = transaction.capture(wait);
    if (!captured.ok()) {
      transaction.abort();
      return captured.error();
    }
    transaction.forget();
    life.memory.consume_to(life.read);
    life.memory.records = std::move(records);
    if (life.audit != nullptr) life.memory.audit_to(life.audited, line);
    return wait ? store_->sync(*captured) : kOk;
  };
  (void)applog_commit(wait ? "commit both" : "commit both, weakly", wait, act, [&](AppLogModel& framed) {
    framed.consume_to(life.memory.consumed);
    framed.records = life.memory.records;
    framed.audit_consumed = life.memory.audit_consumed;
    framed.audit = life.memory.audit;
  });
}

void Run::commit_heap_with_kv(bool wait) {
  if (heap_ == nullptr || applog_ == nullptr || applog_->kv == nullptr || poisoned_) return;
  AppLogLife& life = *applog_;
  const std::vector<std::byte> bytes = heap_->bytes();
  const std::vector<std::byte> text = heap_->model.text();
  check_heap("before a commit with a kv store");
  auto records = life.memory.records;
  kv::Transaction records_transaction(*life.kv, false);
  const auto act = [&]() -> Status {
    MEMLITH_TRY(records_transaction.begin());
    for (const auto& [key, value] : {std::pair("heap", fmt::format("{} blocks", heap_->model.blocks.size())),
                                     std::pair("step", fmt::format("{} and other bytes of {}", step_, other_bytes))}) {
      records[key] = value;
      MEMLITH_TRY(records_transaction.put(life.map, key, value));
    }
    Transaction transaction(*store_);
    MEMLITH_TRY(transaction.add(std::make_unique<RegionPart>(*heap_->region)));
    MEMLITH_TRY(transaction.add(std::make_unique<kv::KvPart>(records_transaction)));
    const auto captured = transaction.capture(wait);
    if (!captured.ok()) {
      transaction.abort();
      return captured.error();
    }
    transaction.forget();
    life.memory.records = std::move(records);
    heap_was_captured(bytes);
    return wait ? store_->sync(*captured) : kOk;
  };
  (void)applog_commit(
      wait ? "commit the heap and the kv store" : "commit the heap and the kv store, weakly", wait, act,
      [&](AppLogModel& framed) { framed.records = life.memory.records; },
      [name = heap_->name, bytes, text](Content& content) {
        content.objects[name] = bytes;
        content.objects[inventory_name(name)] = text;
      });
  if (poisoned_) destroy_everything();
}

void Run::persist_kv() {
  if (applog_ == nullptr || applog_->kv == nullptr) return;
  AppLogLife& life = *applog_;
  (void)applog_commit(
      "persist the kv store", true, [&] { return life.kv->persist(); },
      [&](AppLogModel& framed) {
        framed.consume_to(life.memory.consumed);
        framed.records = life.memory.records;
      });
}

}  // namespace memlith::lab
