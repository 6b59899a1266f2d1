#include "processes/log_client.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "applog/ring.hpp"
#include "base/process.hpp"

namespace memlith::core::processes {

using applog::AppLogReport;
using applog::EntryHeader;
using applog::Place;

namespace {
constexpr std::uint64_t kWaitMsMax = 365ull * 24 * 3600 * 1000;  // as good as for ever, and no clock overflows
// A waiting client looks at this interval whether the keeper lives.
constexpr std::chrono::milliseconds kLookAgainAfter{50};
constexpr std::uint64_t kNoCut = ~std::uint64_t{0};  // changes, behind which no entry was dropped
}  // namespace

LogClient::LogClient(std::string name, applog::WhenFull when_full, std::uint64_t process)
    : name_(std::move(name)), when_full_(when_full), process_(process), line_(name_) {}

Result<std::unique_ptr<LogClient>> LogClient::open(const LogClientOptions& options) {
  shared::Request request = request_for(LogAsk::open);
  request.bytes = options.reserve_bytes;
  request.tx = options.size_bytes;
  MEMLITH_TRY_ASSIGN(shared::Joined joined, join_keeper(options, Kind::applog, request));
  return join(options.name, options.when_full, std::move(joined));
}

Result<std::unique_ptr<LogClient>> LogClient::join(const std::string& name, applog::WhenFull when_full,
                                                   shared::Joined joined) {
  auto client = std::unique_ptr<LogClient>(new LogClient(name, when_full, process_mark()));
  client->line_.connect(std::move(joined.socket));
  MEMLITH_TRY_ASSIGN(client->board_, applog::Board::join(joined.memories.region.get(),
                                                         std::move(joined.memories.control), joined.answer.bytes));
  client->seed_ = joined.answer.address;
  client->next_ = joined.answer.data<Place>();
  return client;
}

// A forked child has not the memory.
LogClient::~LogClient() {
  if (process_ != process_mark() && board_ != nullptr) board_->forget_memory();
}

Status LogClient::check_process() const {
  if (process_ == process_mark()) return kOk;
  return fail(Errc::invalid, Detail::thread,
              "application log \"{}\": this handle is of the process that forked this one; open the log here, too",
              name_);
}

Status LogClient::check() const {
  if (board_->has_keeper() && !line_.has_ended()) return kOk;
  return fail(Errc::poisoned, Detail::object,
              "application log \"{}\": its keeper has ended, and with it what was not durable; close the handle and "
              "open the log again, which is as the last durable write left it",
              name_);
}

Result<shared::Answer> LogClient::ask(const shared::Request& request, std::string_view payload) {
  MEMLITH_TRY(check());
  return line_.ask(request, payload);
}

Status LogClient::tell(LogAsk what, std::uint64_t number) {
  shared::Request request = request_for(what);
  request.address = number;
  has_unwritten_ = true;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  return answer.status();
}

// ---- writers ---------------------------------------------------------------------------------------------------

Result<std::uint64_t> LogClient::append(std::span<const Content> entries) {
  std::uint64_t bytes = 0;
  MEMLITH_TRY(applog::check_sizes(entries, board_->head().append_bytes_max, bytes));
  shared::Request request = request_for(LogAsk::append);
  request.bytes = entries.size();
  request.creates = when_full_ == applog::WhenFull::grow ? kGrow : 0;
  std::string payload;
  payload.reserve(bytes);  // no less than that
  for (const Content& each : entries) {
    const std::uint64_t size = each.size();
    payload.append(reinterpret_cast<const char*>(&size), sizeof size);
  }
  for (const Content& each : entries) payload.append(reinterpret_cast<const char*>(each.data()), each.size());
  for (;;) {
    const std::uint32_t before = board_->bells().freed.ticket();
    has_unwritten_ = true;
    MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request, payload));
    const Status done = answer.status();
    if (done.ok()) return std::uint64_t{answer.address};
    const bool waits = done.category == Errc::full && when_full_ == applog::WhenFull::block && answer.bytes != 0;
    if (!waits) return done;
    // The reader may wait for what was appended and not written.
    MEMLITH_TRY(write_weak().status());
    board_->bells().freed.wait(before, kLookAgainAfter);
  }
}

Result<Lsn> LogClient::write(bool waits) {
  shared::Request request = request_for(LogAsk::write);
  request.waits = waits ? 1 : 0;
  const bool before = waits && has_unwritten_.exchange(false);
  const auto answered = ask(request);
  const Status done = answered.ok() ? answered->status() : answered.error();
  if (done.ok()) return Lsn{answered->ticket};
  if (before) has_unwritten_ = true;
  return done;
}

Status LogClient::wait(Lsn ticket) {
  shared::Request request = request_for(LogAsk::wait);
  request.ticket = ticket.value;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  return answer.status();
}

Status LogClient::stop() { return has_unwritten_ ? write(true).status() : kOk; }

// ---- the reader ------------------------------------------------------------------------------------------------

Result<LogClient::Known> LogClient::place_of(std::uint64_t number, std::uint64_t changes, bool waits) {
  shared::Request request = request_for(LogAsk::place);
  request.address = number;
  request.tx = changes;
  request.waits = waits ? 1 : 0;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  MEMLITH_TRY(answer.status());
  return Known{answer.data<Place>(), answer.bytes};
}

// A copy counts only if the entry lay there all the while, so nothing of it is believed before that.
LogClient::Copied LogClient::copy(const Place& place, std::vector<std::byte>& content) const {
  const applog::Ring ring(board_->region(), {place.capacity, place.base, 0});
  const EntryHeader header = ring.header_at(place.at);
  const bool is_possible = header.kind == applog::EntryKind::entry && header.number == place.number &&
                           applog::stored_bytes(header.bytes) <= place.capacity;
  if (is_possible) {
    content.resize(header.bytes);
    std::byte* to = content.data();
    ring.for_each_run(place.at + sizeof header, header.bytes, [&](std::uint64_t offset, std::uint64_t run) {
      shm::copy_bytes(to, board_->region() + offset, run);
      to += run;
    });
  }
  // ORDER copied-before-confirmed: the keeper may have written over the entry meanwhile. [mutant applog_not_confirmed]
  if (!board_->still_lies(place)) return Copied::moved;
  const bool is_whole =
      is_possible && header.checksum == applog::entry_sum(header, applog::content_sum(content, seed_), seed_);
  return is_whole ? Copied::entry : Copied::damaged;
}

Status LogClient::damaged(std::uint64_t number) const {
  return fail(Errc::corrupt, Detail::object,
              "application log \"{}\": entry {} is damaged in memory; end all programs that have the log open, and "
              "open it again",
              name_, number);
}

Result<bool> LogClient::read(std::uint64_t wait_ms, Entry& entry) {
  const auto until = SteadyClock::now() + std::chrono::milliseconds(std::min(wait_ms, kWaitMsMax));
  const applog::BoardHead& head = board_->head();
  for (;;) {
    MEMLITH_TRY(check());
    const std::uint32_t before = board_->bells().logged.ticket();
    const bool is_there = next_.number != 0 && board_->still_lies(next_);
    const bool is_durable = is_there && next_.number <= std::max(known_durable_, head.durable.load());
    if (is_durable) {
      const Copied copied = copy(next_, content_);
      if (copied == Copied::moved) continue;
      if (copied == Copied::damaged) return damaged(next_.number);
      entry = {next_.number++, content_};
      read_to_ = entry.number;
      next_.at += applog::stored_bytes(content_.size());
      return true;
    }
    const bool is_logged = is_there && next_.number <= head.logged.load();
    if (!is_there || is_logged) {
      MEMLITH_TRY_ASSIGN(const Known known, place_of(next_.number, next_.changes, is_logged && wait_ms > 0));
      next_ = known.place;
      known_durable_ = known.durable;
      if (is_logged && wait_ms == 0 && next_.number > known_durable_) return false;
      continue;
    }
    const auto now = SteadyClock::now();
    if (now >= until) return false;
    board_->bells().logged.wait(before, std::min<std::chrono::nanoseconds>(until - now, kLookAgainAfter));
  }
}

void LogClient::rewind() {
  next_.number = 0;
  read_to_ = 0;
}

Status LogClient::consume(std::uint64_t number) {
  const std::uint64_t read_to = std::max(read_to_.load(), board_->head().consumed.load());
  if (number > read_to) {
    return fail(Errc::invalid, Detail::argument, "entry {} was not read; the newest that was read is {}", number,
                read_to);
  }
  return tell(LogAsk::truncate_before, number + 1);
}

Result<bool> LogClient::read_at(std::uint64_t number, std::vector<std::byte>& content) {
  for (;;) {
    MEMLITH_TRY_ASSIGN(const Known known, place_of(number, kNoCut, false));
    if (known.place.number != number || number > known.durable) return false;
    const Copied copied = copy(known.place, content);
    if (copied == Copied::entry) return true;
    if (copied == Copied::damaged) return damaged(number);
  }
}

Result<AppLogReport> LogClient::info() {
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request_for(LogAsk::info)));
  MEMLITH_TRY(answer.status());
  auto report = answer.data<AppLogReport>();
  report.read = std::max(read_to_.load(), report.consumed);
  return report;
}

}  // namespace memlith::core::processes
