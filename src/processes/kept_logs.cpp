#include "processes/kept_logs.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "processes/asks.hpp"
#include "processes/open_kept.hpp"

namespace memlith::core::processes {

using applog::AppLog;

Result<std::array<int, 2>> KeptLogs::open(std::uint32_t client, const shared::Request& request,
                                          shared::Answer& answer) {
  MEMLITH_TRY_ASSIGN(KeptLog* const kept, find_or_open(name_in(request), request));
  clients_[client] = kept;
  answer.bytes = kept->log->region().reserve();
  answer.address = kept->log->seed();
  Lsn due;
  answer.set_data(kept->log->place_of(0, 0, due));
  return std::array<int, 2>{kept->board->shown(), kept->board->bell_memory()};
}

Result<KeptLogs::KeptLog*> KeptLogs::find_or_open(const std::string& name, const shared::Request& request) {
  if (const auto found = logs_.find(name); found != logs_.end()) {
    if ((request.creates & kExclusive) == 0) return &found->second;
    return fail(Errc::exists, Detail::object, "there is an application log \"{}\" already", name);
  }
  RegionOptions options;
  options.create = (request.creates & kCreate) != 0;
  options.size_bytes = request.tx;
  options.reserve_bytes = request.bytes;
  options.use_magic = applog::kMagic;
  std::shared_ptr<applog::Board> board;
  const auto make = [&](Region& region) -> Result<std::unique_ptr<AppLog>> {
    MEMLITH_TRY_ASSIGN(board, applog::Board::make(region.reserve()));
    applog::AppLogOptions wanted;
    wanted.create = options.create;
    wanted.exclusive = (request.creates & kExclusive) != 0;
    wanted.when_full = applog::WhenFull::fail;  // the keeper waits for no client
    wanted.board = board;
    return AppLog::open(region, wanted);
  };
  MEMLITH_TRY_ASSIGN(AppLog* const made, open_kept(session_, name, options, make));
  KeptLog& kept = logs_[name];
  kept.board = std::move(board);
  kept.log = made;
  return &kept;
}

void KeptLogs::say_failed() {
  for (auto& [name, kept] : logs_) kept.board->say_ended();
}

Result<std::optional<Lsn>> KeptLogs::serve(std::uint32_t client, const shared::Request& request,
                                           std::string_view payload, shared::Answer& answer) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return fail(Errc::invalid, Detail::argument, "no application log was opened");
  AppLog& log = *found->second->log;
  switch (ask_of<LogAsk>(request)) {
    case LogAsk::append: MEMLITH_TRY(append(log, request, payload, answer)); break;
    case LogAsk::write: {
      MEMLITH_TRY_ASSIGN(const Lsn ticket, request.waits != 0 ? log.begin_write() : log.write_weak());
      answer.ticket = ticket.value;
      if (request.waits != 0) return std::optional(ticket);
      break;
    }
    case LogAsk::wait:
      MEMLITH_TRY(session_.store().check_ticket(Lsn{request.ticket}));
      return std::optional(Lsn{request.ticket});
    case LogAsk::place: return find_place(log, request, answer);
    case LogAsk::truncate_after: MEMLITH_TRY(log.truncate_after(request.address)); break;
    case LogAsk::truncate_before: MEMLITH_TRY(log.truncate_before(request.address)); break;
    case LogAsk::restart: MEMLITH_TRY(log.restart(request.address)); break;
    case LogAsk::info: answer.set_data(log.report()); break;
    case LogAsk::open:
    default: return fail(Errc::invalid, Detail::argument, "a request that this keeper does not know");
  }
  return std::optional<Lsn>();
}

Status KeptLogs::append(AppLog& log, const shared::Request& request, std::string_view payload, shared::Answer& answer) {
  const std::uint64_t count = request.bytes;
  const auto* const bytes = reinterpret_cast<const std::byte*>(payload.data());
  bool is_whole = count <= payload.size() / sizeof(std::uint64_t);
  std::vector<AppLog::Content> entries;
  std::uint64_t at = count * sizeof(std::uint64_t);
  for (std::uint64_t i = 0; is_whole && i < count; ++i) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes + i * sizeof size, sizeof size);
    is_whole = size <= payload.size() - at;
    if (!is_whole) break;
    entries.emplace_back(bytes + at, size);
    at += size;
  }
  if (!is_whole || at != payload.size()) {
    return fail(Errc::invalid, Detail::argument, "the entries of a request are not whole");
  }
  const bool grows = (request.creates & kGrow) != 0;
  const auto appended = log.append(entries, grows ? applog::WhenFull::grow : applog::WhenFull::fail);
  if (appended.ok()) {
    answer.address = *appended;
    return kOk;
  }
  if (appended.error().category == Errc::full) {
    const KeptSentence sentence;
    answer.bytes = log.waits_for_room(entries) ? 1 : 0;
  }
  return appended.error();
}

std::optional<Lsn> KeptLogs::find_place(AppLog& log, const shared::Request& request, shared::Answer& answer) {
  Lsn due;
  const applog::Place place = log.place_of(request.address, request.tx, due);
  answer.set_data(place);
  answer.bytes = log.durable();
  if (request.waits == 0 || due == Lsn{0}) return std::nullopt;
  answer.bytes = place.number;
  return due;
}

}  // namespace memlith::core::processes
