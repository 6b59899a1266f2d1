#include "processes/client.hpp"

#include <algorithm>
#include <utility>

#include "base/process.hpp"
#include "kv/board.hpp"
#include "kv/proposal.hpp"
#include "processes/asks.hpp"

namespace memlith::core::processes {

namespace {

constexpr std::uint64_t kStepBytes = 128 * kKiB;  // of keys and values in one commit of append()
constexpr unsigned kTicketTries = 1000;

}  // namespace

KvClient::KvClient(std::string name, std::uint64_t process) : OpenKv(true), process_(process), line_(std::move(name)) {}

Result<std::unique_ptr<KvClient>> KvClient::open(const KvClientOptions& options) {
  shared::Request request = request_for(Ask::open);
  request.bytes = options.max_size;
  request.ticket = options.window_ms;
  request.tx = options.window_bytes;
  MEMLITH_TRY_ASSIGN(shared::Joined joined, join_keeper(options, Kind::kv, request));
  return join(options.name, std::move(joined));
}

Result<std::unique_ptr<KvClient>> KvClient::join(const std::string& name, shared::Joined joined) {
  auto client = std::unique_ptr<KvClient>(new KvClient(name, process_mark()));
  client->line_.connect(std::move(joined.socket));
  MEMLITH_TRY_ASSIGN(auto board, kv::Board::join(joined.memories.region.get(), joined.memories.control.get(),
                                                 joined.answer.bytes, joined.answer.client));
  client->board_ = std::move(board);
  client->pages_.words.attach(*client->board_, *client, name);
  client->pages_.kept.share();
  client->numbers_.share(client->board_->maps(), kv::Board::kMapsMax, client->board_->head().maps);
  client->base_commit_ = client->board_->head().base_commit;
  return client;
}

// A forked child has not the memory.
KvClient::~KvClient() {
  if (process_ == process_mark()) {
    end_transactions();
  } else if (board_ != nullptr) {
    board_->forget_memory();
  }
}

Status KvClient::check_process() const {
  if (process_ == process_mark()) return kOk;
  return fail(Errc::invalid, Detail::thread,
              "kv store \"{}\": this handle is of the process that forked this one; open the kv store here, too",
              pages_.words.name());
}

Status KvClient::check() const {
  if (board_->has_keeper() && !line_.has_ended()) return kOk;
  return fail(Errc::poisoned, Detail::kv,
              "kv store \"{}\": its keeper has ended, and with it what was not durable; close the handle and open the "
              "kv store again, which is as the last durable commit left it",
              pages_.words.name());
}

Status KvClient::check_begin(bool /*only_reads*/) { return check(); }

Result<shared::Answer> KvClient::ask(const shared::Request& request, std::string_view payload) {
  MEMLITH_TRY(check());
  return line_.ask(request, payload);
}

// ---- pages -----------------------------------------------------------------------------------------------------

Status KvClient::load(kv::PageNumber page) {
  shared::Request request = request_for(Ask::load);
  request.address = page;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  return answer.status();
}

Status KvClient::settle(std::size_t slot) {
  shared::Request request = request_for(Ask::settle);
  request.address = slot;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  return answer.status();
}

// ---- maps ------------------------------------------------------------------------------------------------------

Result<kv::MapNumber> KvClient::open_map(std::string_view name, bool create, bool exclusive) {
  MEMLITH_TRY(check_name(name));
  shared::Request request = request_for(Ask::open_map);
  request.creates = flags_of(create, exclusive);
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request, name));
  MEMLITH_TRY(answer.status());
  return static_cast<kv::MapNumber>(answer.address);
}

Status KvClient::remove_map(std::string_view name) {
  MEMLITH_TRY(check_name(name));
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request_for(Ask::remove_map), name));
  return answer.status();
}

// In transactions like any other, each of which finds that its records come last.
Status KvClient::append(kv::MapNumber number, const NextRecord& next, std::uint64_t& appended) {
  appended = 0;
  const std::uint64_t step_bytes = std::min(kStepBytes, log_bytes_max() / 16);
  for (bool more = true; more;) {
    kv::Transaction transaction(*this, false);
    MEMLITH_TRY(check());
    MEMLITH_TRY(transaction.begin());
    std::string before;
    {
      kv::Cursor cursor(transaction, number);
      MEMLITH_TRY_ASSIGN(const bool found, cursor.last());
      if (found) before = cursor.key();
    }
    std::uint64_t count = 0;
    for (std::uint64_t bytes = 0; bytes < step_bytes;) {
      std::string_view key;
      std::string_view value;
      more = next(key, value);
      if (!more) break;
      if (key <= before) {
        return fail(Errc::invalid, Detail::argument,
                    "a key is not above the one before it, or the last of the map; append records in the order of "
                    "their keys, behind those that are there");
      }
      MEMLITH_TRY(transaction.put(number, key, value));
      before = key;
      bytes += key.size() + value.size();
      ++count;
    }
    MEMLITH_TRY(transaction.commit(kv::Durability::weak, nullptr).status());
    appended += count;
  }
  return persist();
}

// ---- commits ---------------------------------------------------------------------------------------------------

void KvClient::raise(std::atomic<std::uint64_t>& known, std::uint64_t to) {
  std::uint64_t before = known.load(std::memory_order_relaxed);
  while (before < to && !known.compare_exchange_weak(before, to, std::memory_order_relaxed)) {
  }
}

Result<std::uint64_t> KvClient::commit(kv::Transaction& transaction, kv::Durability durability, Lsn* ticket) {
  if (!writes(transaction)) return commit_read(transaction, durability, ticket);
  // The snapshot is active until the keeper has compared it with what is there now.
  struct End {
    kv::Transaction& transaction;
    ~End() { end(transaction); }
  };
  const bool waits = durability == kv::Durability::sync;
  const auto answered = [&]() -> Result<shared::Answer> {
    const End ends{transaction};
    shared::Request request = request_for(Ask::commit);
    request.waits = waits ? 1 : 0;
    request.address = snapshot_of(transaction).slot;
    return ask(request, kv::Proposal::bytes_of(snapshot_of(transaction).stamp, locks_of(transaction)));
  }();
  MEMLITH_TRY(answered.status());
  if (ticket != nullptr && answered->ticket != 0) *ticket = Lsn{answered->ticket};
  const Status done = answered->status();
  if (done.category == Errc::conflict) conflicts_.fetch_add(1, std::memory_order_relaxed);
  MEMLITH_TRY(done);
  if (waits) {
    raise(known_durable_, answered->bytes);
    raise(known_durable_ticket_, answered->ticket);
  }
  return std::uint64_t{answered->bytes};
}

// Without a message, if what it may have read is known to be durable, or need not be.
Result<std::uint64_t> KvClient::commit_read(kv::Transaction& transaction, kv::Durability durability, Lsn* ticket) {
  const kv::BoardHead& head = board_->head();
  const std::uint64_t number = commit_of(snapshot_of(transaction).stamp);
  end(transaction);
  for (unsigned tries = 0; head.ticket_commit.load(std::memory_order_acquire) < number; ++tries) {
    if (tries >= kTicketTries) MEMLITH_TRY(check());
    yield_thread();
  }
  const Lsn newest{head.ticket.load(std::memory_order_relaxed)};
  if (ticket != nullptr) *ticket = newest;
  if (durability == kv::Durability::weak || known_durable_.load(std::memory_order_relaxed) >= number ||
      head.durable.load(std::memory_order_acquire) >= number) {
    return number;
  }
  MEMLITH_TRY(wait(newest));
  raise(known_durable_, number);
  return number;
}

Status KvClient::wait(Lsn ticket) {
  shared::Request request = request_for(Ask::durable);
  request.ticket = ticket.value;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  MEMLITH_TRY(answer.status());
  raise(known_durable_ticket_, ticket.value);
  return {};
}

Lsn KvClient::durable_ticket() {
  const std::uint64_t told = board_->head().durable_ticket.load(std::memory_order_relaxed);
  return Lsn{std::max(told, known_durable_ticket_.load(std::memory_order_relaxed))};
}

Status KvClient::set_window(kv::Window window) {
  shared::Request request = request_for(Ask::window);
  request.ticket = window.interval_ms;
  request.tx = window.bytes;
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request));
  return answer.status();
}

// ---- looking inside --------------------------------------------------------------------------------------------

Result<kv::KvInfo> KvClient::info() {
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request_for(Ask::info)));
  MEMLITH_TRY(answer.status());
  kv::KvInfo info = answer.data<kv::KvInfo>();
  info.conflicts = conflicts();
  info.transactions = transactions();
  return info;
}

Result<kv::KvReport> KvClient::verify() {
  MEMLITH_TRY_ASSIGN(const shared::Answer answer, ask(request_for(Ask::verify)));
  MEMLITH_TRY(answer.status());
  return answer.data<kv::KvReport>();
}

}  // namespace memlith::core::processes
