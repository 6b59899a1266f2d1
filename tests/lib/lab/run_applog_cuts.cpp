// The words of a run that cut an application log by numbers, and the term that a consensus engine keeps beside it.
#include <fmt/format.h>

#include "applog_life.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

// What waits goes to the log in a frame before that of a cut, and is a commit of its own here.
void Run::write_before_cut() {
  AppLogLife& life = *applog_;
  if (life.memory.newest() > life.framed.newest()) write_applog();
}

// Drops so many of the newest entries, whether they were written or not.
void Run::truncate_applog_after(std::uint64_t entries) {
  if (applog_ == nullptr || poisoned_) return;
  AppLogLife& life = *applog_;
  if (life.memory.entries.empty()) return;
  const std::uint64_t last = life.memory.newest() - std::min<std::uint64_t>(entries, life.memory.entries.size());
  if (last < life.framed.newest()) write_before_cut();
  if (poisoned_) return;
  const auto cut = [last](AppLogModel& model) {
    if (model.newest() > last) model.entries.resize(last - model.consumed);
  };
  const bool ok = applog_commit("truncate the newer end", false, [&] { return life.log->truncate_after(last); }, cut);
  if (!ok) return;
  cut(life.memory);
  life.read = std::min(life.read, last);
}

// Drops so many of the oldest entries of those that were written.
void Run::truncate_applog_before(std::uint64_t entries) {
  if (applog_ == nullptr || poisoned_) return;
  write_before_cut();
  if (poisoned_) return;
  AppLogLife& life = *applog_;
  const std::uint64_t first =
      life.memory.consumed + 1 + std::min<std::uint64_t>(entries, life.framed.newest() - life.memory.consumed);
  const bool ok = applog_commit(
      "truncate the older end", false, [&] { return life.log->truncate_before(first); },
      [first](AppLogModel& framed) { framed.consume_to(first - 1); });
  if (!ok) return;
  life.memory.consume_to(first - 1);
  life.read = std::max(life.read, first - 1);
}

// Drops all entries, and goes on with a number that leaves out so many.
void Run::restart_applog(std::uint64_t skipped) {
  if (applog_ == nullptr || poisoned_) return;
  write_before_cut();
  if (poisoned_) return;
  AppLogLife& life = *applog_;
  const std::uint64_t next = life.memory.newest() + 1 + skipped;
  const auto restart = [next](AppLogModel& model) {
    model.entries.clear();
    model.consumed = next - 1;
  };
  const bool ok = applog_commit("restart the log", false, [&] { return life.log->restart(next); }, restart);
  if (!ok) return;
  restart(life.memory);
  life.read = next - 1;
}

// Each durable entry by its number, from the oldest to the newest or back, and what is not there.
void Run::read_applog_by_number(bool backwards) {
  if (applog_ == nullptr || poisoned_) return;
  AppLogLife& life = *applog_;
  const std::uint64_t durable = life.log->durable();
  std::vector<std::byte> content;
  for (std::uint64_t i = life.memory.consumed; i <= durable + 1; ++i) {
    const std::uint64_t number = backwards ? durable + 1 - (i - life.memory.consumed) : i;
    const std::uint64_t before = fired();
    const auto found = life.log->read_at(number, content);
    if (!passed(found.status(), "reading an entry by its number", before)) return;
    const bool expected = number > life.memory.consumed && number <= durable;
    if (*found != expected) broken(fmt::format("entry {} was {}found", number, expected ? "not " : ""));
    if (!expected) continue;
    const std::string& text = life.memory.entries[number - life.memory.consumed - 1];
    if (!std::ranges::equal(content, std::as_bytes(std::span(text)))) {
      broken(fmt::format("entry {} was read by its number with other bytes", number));
    }
  }
}

// A record of the kv store, durable before any entry that is appended behind it.
void Run::set_term(std::uint64_t term) {
  if (applog_ == nullptr || applog_->kv == nullptr || poisoned_) return;
  write_before_cut();
  if (poisoned_) return;
  AppLogLife& life = *applog_;
  auto records = life.memory.records;
  records["term"] = fmt::format("{} set in step {}", term, step_ + other_bytes);
  kv::Transaction records_transaction(*life.kv, false);
  const auto act = [&]() -> Status {
    MEMLITH_TRY(records_transaction.begin());
    MEMLITH_TRY(records_transaction.put(life.map, "term", records["term"]));
    Transaction transaction(*store_);
    MEMLITH_TRY(transaction.add(std::make_unique<kv::KvPart>(records_transaction)));
    const auto captured = transaction.capture(true);
    if (!captured.ok()) {
      transaction.abort();
      return captured.error();
    }
    transaction.forget();
    life.memory.records = std::move(records);
    return store_->sync(*captured);
  };
  (void)applog_commit("set the term", true, act, [&](AppLogModel& framed) { framed.records = life.memory.records; });
}

}  // namespace memlith::lab
