#include "processes/kept_kvs.hpp"

#include <algorithm>
#include <memory_resource>
#include <utility>

#include "processes/asks.hpp"
#include "processes/open_kept.hpp"

namespace memlith::core::processes {

namespace {

constexpr std::uint64_t kFirstBytes = 1 * kMiB;
constexpr std::uint64_t kReserveBytes = 1024 * kGiB;
constexpr std::uint64_t kLoadedAhead = 256;  // pages

kv::Window window_of(const shared::Request& request, kv::Window otherwise) {
  if (request.ticket != 0) otherwise.interval_ms = request.ticket;
  if (request.tx != 0) otherwise.bytes = request.tx;
  return otherwise;
}

Result<std::unique_ptr<kv::Kv>> open_on_board(Region& region, const shared::Request& request,
                                              std::shared_ptr<kv::Board>& board) {
  MEMLITH_TRY_ASSIGN(auto own, kv::Board::make(region.reserve() / kPageBytes));
  board = std::move(own);
  kv::KvOptions options;
  options.create = (request.creates & kCreate) != 0;
  options.exclusive = (request.creates & kExclusive) != 0;
  options.window = window_of(request, {});
  options.board = board;
  return kv::Kv::open(region, options);
}

}  // namespace

Result<std::array<int, 2>> KeptKvs::open(std::uint32_t client, const shared::Request& request, shared::Answer& answer) {
  const std::string name = name_in(request);
  MEMLITH_TRY_ASSIGN(KeptKv* const kept, find_or_open(name, request));
  const auto free = std::find(kept->taken.begin() + 1, kept->taken.end(), false);
  if (free == kept->taken.end()) {
    return fail(Errc::busy, Detail::kv, "kv store \"{}\" is open {} times, as often as it may be; close it somewhere",
                name, kv::Board::kClientsMax - 1);
  }
  const auto slots = static_cast<std::uint32_t>(free - kept->taken.begin());
  kept->board->end_snapshots(slots);
  clients_[client] = {kept, slots};
  *free = true;
  show(*kept);
  answer.client = slots;
  answer.bytes = kept->board->pages_max();
  return std::array<int, 2>{kept->board->shown(), kept->board->slots()};
}

Result<KeptKvs::KeptKv*> KeptKvs::find_or_open(const std::string& name, const shared::Request& request) {
  if (const auto found = kvs_.find(name); found != kvs_.end()) {
    if ((request.creates & kExclusive) == 0) return &found->second;
    return fail(Errc::exists, Detail::kv, "there is a kv store \"{}\" already", name);
  }
  RegionOptions options;
  options.create = (request.creates & kCreate) != 0;
  options.reserve_bytes = request.bytes > 0 ? request.bytes : kReserveBytes;
  options.size_bytes = std::min(kFirstBytes, options.reserve_bytes);
  options.use_magic = kv::kMagic;
  std::shared_ptr<kv::Board> board;
  MEMLITH_TRY_ASSIGN(kv::Kv* const made, open_kept(session_, name, options, [&](Region& region) {
                       return open_on_board(region, request, board);
                     }));
  KeptKv& kept = kvs_[name];
  kept.board = std::move(board);
  kept.kv = made;
  return &kept;
}

bool KeptKvs::work() {
  bool has_worked = false;
  for (auto& [name, kept] : kvs_) {
    if (!kept.kv->free_some()) continue;
    show(kept);
    has_worked = true;
  }
  return has_worked;
}

void KeptKvs::leave(std::uint32_t client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const Client& left = found->second;
  left.kept->board->end_snapshots(left.slots);
  left.kept->taken[left.slots] = false;
  clients_.erase(found);
}

void KeptKvs::say_failed() {
  for (auto& [name, kept] : kvs_) kept.board->head().life.say_ended();
}

// Tells the clients how far commits have come. Between commits.
void KeptKvs::show(KeptKv& kept) {
  kv::BoardHead& head = kept.board->head();
  const std::uint64_t newest = kept.kv->newest();
  head.ticket.store(kept.kv->newest_ticket().value, std::memory_order_relaxed);
  head.ticket_commit.store(newest, std::memory_order_release);
  head.durable_ticket.store(kept.kv->durable_ticket().value, std::memory_order_relaxed);
  head.durable.store(kept.kv->durable(), std::memory_order_release);
}

Result<std::optional<Lsn>> KeptKvs::serve(std::uint32_t client, const shared::Request& request,
                                          std::string_view payload, shared::Answer& answer) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return fail(Errc::invalid, Detail::argument, "no kv store was opened");
  KeptKv& kept = *found->second.kept;
  kv::Kv& kv = *kept.kv;
  struct Show {
    KeptKv& kept;
    ~Show() { show(kept); }
  } const shown{kept};
  switch (ask_of<Ask>(request)) {
    case Ask::load: MEMLITH_TRY(load(kept, request.address)); break;
    case Ask::settle:
      if (kept.board->settle(found->second.slots, request.address)) break;
      return fail(Errc::invalid, Detail::argument, "no such snapshot");
    case Ask::open_map: {
      MEMLITH_TRY_ASSIGN(answer.address,
                         kv.open_map(payload, (request.creates & kCreate) != 0, (request.creates & kExclusive) != 0));
      break;
    }
    case Ask::remove_map: MEMLITH_TRY(kv.remove_map(payload)); break;
    case Ask::commit: return commit(found->second, request, payload, answer);
    case Ask::durable: {
      const Lsn newest = kv.newest_ticket();
      const Lsn ticket = request.ticket == 0 ? newest : Lsn{request.ticket};
      if (ticket > newest) return fail(Errc::invalid, Detail::argument, "there is no ticket {} yet", ticket.value);
      return std::optional(ticket);
    }
    case Ask::window: MEMLITH_TRY(kv.set_window(window_of(request, {}))); break;
    case Ask::info: {
      MEMLITH_TRY_ASSIGN(const kv::KvInfo info, kv.info());
      answer.set_data(info);
      break;
    }
    case Ask::verify: {
      MEMLITH_TRY_ASSIGN(const kv::KvReport report, kv.verify());
      answer.set_data(report);
      break;
    }
    case Ask::open:
    default: return fail(Errc::invalid, Detail::argument, "a request that this keeper does not know");
  }
  return std::optional<Lsn>();
}

Result<std::optional<Lsn>> KeptKvs::commit(const Client& client, const shared::Request& request,
                                           std::string_view payload, shared::Answer& answer) {
  alignas(16) std::array<std::byte, 4096> room;
  std::pmr::monotonic_buffer_resource memory(room.data(), room.size());
  kv::Proposal proposal(&memory);
  MEMLITH_TRY(proposal.read(payload));
  const bool waits = request.waits != 0;
  const kv::Board::Ignoring proposer(*client.kept->board, client.slots, request.address);
  Lsn ticket;
  MEMLITH_TRY_ASSIGN(answer.bytes,
                     client.kept->kv->commit_proposal(proposal, waits ? kv::Durability::sync : kv::Durability::weak,
                                                      ticket));
  answer.ticket = ticket.value;
  return waits ? std::optional(ticket) : std::nullopt;
}

// A reader of this page mostly wants soon what the page leads to.
Status KeptKvs::load(KeptKv& kept, std::uint64_t page) {
  kv::Words& words = kept.kv->pages().words;
  const auto wanted = static_cast<kv::PageNumber>(page);
  if (page >= words.count()) return words.corrupt(wanted, "there is no such page");
  if (words.word(wanted) == 0) MEMLITH_TRY(words.check(wanted));
  const std::byte* const bytes = words.bytes_of(wanted);
  const kv::PageKind kind = kv::header_of(bytes).kind;
  if (words.use(wanted) != kv::PageUse::own || kind == kv::PageKind::overflow) return kOk;
  const KeptSentence sentence;
  kv::Cell cell;
  std::uint64_t loaded = 0;
  for (std::uint32_t i = 0; i < kv::count_of(bytes) && loaded < kLoadedAhead && kv::read_cell(bytes, i, cell); ++i) {
    const auto reference = kv::reference_in(cell);
    if (kind == kv::PageKind::leaf && !reference.has_value()) continue;
    const kv::PageNumber next = kind == kv::PageKind::leaf ? reference->first : kv::child_in(cell);
    if (next >= words.count() || words.word(next) != 0) continue;
    (void)words.check(next);
    loaded += reference.has_value() ? kv::pages_of_value(reference->bytes) : 1;
  }
  return kOk;
}

}  // namespace memlith::core::processes
