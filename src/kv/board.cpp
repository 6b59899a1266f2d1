#include "kv/board.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kHeadBytes = kPageBytes;
constexpr std::uint64_t kReleasedFrom = 1024;  // copies

std::uint64_t round_up(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }
}  // namespace

Board::Layout::Layout(std::uint64_t pages_max) {
  maps = kHeadBytes;
  chains = maps + round_up(kMapsMax * sizeof(MapEntry));
  entries = chains + round_up(kChains * sizeof(std::uint32_t));
  states = entries + round_up(kCopiesMax * sizeof(CopyEntry));
  tags = states + round_up(pages_max * sizeof(PageState));
  copies = tags + round_up(LeafTags::lines_for(pages_max) * sizeof(LeafTags));
  pages = copies + kCopiesMax * kPageBytes;
  end = pages + pages_max * kPageBytes;
}

Board::~Board() {
  if (keeps_) head().life.end();
}

// A forked child has neither of the two: it opens the kv store itself.
Status Board::map(int shown, int slots, bool for_reading) {
  shm::Mapping::Options options;
  options.for_reading = for_reading;
  options.is_sparse = true;
  auto mapped = shm::Mapping::map(shown, layout_.end, options);
  if (!mapped.ok()) {
    return fail(mapped.error().category, Detail::mapping,
                "cannot map {} bytes of addresses for a kv store of several processes; make it with a smaller max_size "
                "or raise the limit of the process (ulimit -v)",
                layout_.end);
  }
  shown_mapping_ = std::move(*mapped);
  base_ = shown_mapping_.data();
  MEMLITH_TRY_ASSIGN(slot_mapping_, shm::Mapping::map(slots, kClientsMax * sizeof(ClientSlots), {}));
  clients_ = reinterpret_cast<ClientSlots*>(slot_mapping_.data());
  return kOk;
}

Result<std::unique_ptr<Board>> Board::make(std::uint64_t pages_max) {
  auto board = std::unique_ptr<Board>(new Board(pages_max));
  MEMLITH_TRY_ASSIGN(Descriptor memory, shm::make_memory("memlith-kv", board->layout_.end));
  MEMLITH_TRY_ASSIGN(board->slot_memory_, shm::make_memory("memlith-kv-snapshots", kClientsMax * sizeof(ClientSlots)));
  MEMLITH_TRY(board->map(memory.get(), board->slot_memory_.get(), false));
  MEMLITH_TRY_ASSIGN(board->shown_, shm::open_for_reading(memory.get()));
  auto* const head = new (board->base_) BoardHead{};
  head->pages_max = pages_max;
  head->moment.beginning = head->moment.newest = kCheckedStamp;
  MEMLITH_TRY(head->life.begin());
  board->keeps_ = true;
  return board;
}

Result<std::unique_ptr<Board>> Board::join(int shown, int slots, std::uint64_t pages_max, std::uint32_t client) {
  MEMLITH_ASSERT(client > 0 && client < kClientsMax);
  auto board = std::unique_ptr<Board>(new Board(pages_max));
  board->client_ = client;
  MEMLITH_TRY(board->map(shown, slots, true));
  MEMLITH_ASSERT(board->head().pages_max == pages_max);
  return board;
}

// ---- snapshots -------------------------------------------------------------------------------------------------

std::optional<Snapshots::StampSlot> Board::add(Stamp stamp) {
  MEMLITH_ASSERT(stamp != 0);
  const std::size_t first = this_thread_number() % kSlots;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::size_t at = (first + i) % kSlots;
    shm::Shared<Stamp>& slot = slot_of(client_, at);
    Stamp none = 0;
    if (slot.load(std::memory_order_relaxed) != 0) continue;
    if (!slot.compare_exchange_strong(none, stamp)) continue;
    shm::Shared<std::size_t>& end = clients_[client_].end;
    for (std::size_t now = end.load(); now <= at && !end.compare_exchange_weak(now, at + 1);) {
    }
    return Snapshots::StampSlot{at, stamp};
  }
  return std::nullopt;
}

void Board::remove(const Snapshots::StampSlot& at) {
  MEMLITH_ASSERT(at.slot < kSlots);
  slot_of(client_, at.slot).store(0);
}

template <class See>
void Board::for_each_snapshot(See&& see) const {
  for (std::uint32_t client = 0; client < clients_end_.load(); ++client) {
    const std::size_t end = std::min(clients_[client].end.load(), kSlots);  // whatever a faulty program wrote there
    for (std::size_t slot = 0; slot < end; ++slot) {
      const shm::Shared<Stamp>& at = slot_of(client, slot);
      if (const Stamp stamp = at.load(); stamp != 0 && &at != ignored_) see(stamp);
    }
  }
}

Stamp Board::newest_snapshot() const {
  Stamp found = 0;
  for_each_snapshot([&](Stamp stamp) { found = std::max(found, stamp); });
  return found;
}

Stamp Board::oldest_snapshot() const {
  Stamp found = kNewest;
  for_each_snapshot([&](Stamp stamp) { found = std::min(found, stamp); });
  return found;
}

void Board::end_snapshots(std::uint32_t client) {
  MEMLITH_ASSERT(client > 0 && client < kClientsMax);
  for (std::size_t slot = 0; slot < kSlots; ++slot) slot_of(client, slot).store(0);
  if (clients_end_.load() <= client) clients_end_.store(client + 1);
}

bool Board::settle(std::uint32_t client, std::size_t slot) {
  if (slot >= kSlots || slot_of(client, slot).load() == 0) return false;
  slot_of(client, slot).store(head().moment.newest.load());
  return true;
}

// ---- copies ----------------------------------------------------------------------------------------------------

// As Kept::keep(): the entry is complete before the chain leads to it.
void Board::keep(PageNumber page, Stamp stamp) {
  std::vector<Version>& versions = versions_[page];
  MEMLITH_ASSERT(versions.empty() || versions.back().stamp < stamp);
  versions.reserve(versions.size() + 1);
  if (free_.empty()) {
    if (copies_end_ == kCopiesMax) throw std::bad_alloc();
    // Forgetting all of them allocates nothing.
    if (free_.capacity() < copies_end_) free_.reserve(std::size_t{2} * copies_end_);
    free_.push_back(copies_end_++);
  }
  const std::uint32_t copy = free_.back();
  free_.pop_back();
  std::memcpy(copy_at(copy), pages() + page * kPageBytes, kPageBytes);
  CopyEntry& made = entry(copy);
  std::atomic<std::uint32_t>& chain = chain_of_page(page);
  made.page.store(page, std::memory_order_relaxed);
  made.stamp.store(stamp, std::memory_order_relaxed);
  made.next.store(chain.load(std::memory_order_relaxed), std::memory_order_relaxed);
  chain.store(copy, std::memory_order_release);  // pairs with find()
  versions.push_back({stamp, copy});
  copies_.fetch_add(1, std::memory_order_relaxed);
}

// The chain has the copies of a page in the order of their stamps, the newest first. A copy that was taken out may get
// another page, so what was found counts only if none was taken out meanwhile.
std::optional<const std::byte*> Board::find(PageNumber page, Stamp view) const {
  const std::atomic<std::uint64_t>& changes = head().changes;
  for (unsigned tries = 0; tries < kLookTries; ++tries) {
    const std::uint64_t before = changes.load(std::memory_order_acquire);
    const std::byte* found = nullptr;
    std::uint32_t steps = 0;
    for (std::uint32_t at = chain_of_page(page).load(std::memory_order_acquire);
         at != 0 && at < kCopiesMax && steps < kCopiesMax; at = entry(at).next.load(std::memory_order_acquire)) {
      if (entry(at).page.load(std::memory_order_relaxed) == page &&
          entry(at).stamp.load(std::memory_order_relaxed) <= view) {
        found = copy_at(at);
        break;
      }
      // A walk that leaves its chain might not end.
      if (++steps % 64 == 0 && changes.load(std::memory_order_acquire) != before) break;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if ((before & 1) == 0 && changes.load(std::memory_order_relaxed) == before) return found;
    yield_thread();
  }
  return std::nullopt;
}

void Board::take_out(PageNumber page, std::uint32_t copy) {
  std::atomic<std::uint32_t>* at = &chain_of_page(page);
  while (at->load(std::memory_order_relaxed) != copy) at = &entry(at->load(std::memory_order_relaxed)).next;
  at->store(entry(copy).next.load(std::memory_order_relaxed), std::memory_order_release);
  free_.push_back(copy);
}

// No snapshot is active, and none that is added from here on needs a copy: its stamp is the newest.
void Board::forget_all() {
  for (const auto& [page, versions] : versions_) {
    chain_of_page(page).store(0, std::memory_order_release);
    for (const Version& each : versions) free_.push_back(each.copy);
  }
  versions_.clear();
  copies_.store(0, std::memory_order_relaxed);
  forget_at_ = kForgetFrom;
  if (copies_end_ < kReleasedFrom) return;
  ::madvise(copy_at(0), copies_end_ * kPageBytes, MADV_REMOVE);
  copies_end_ = 1;
  free_.clear();
}

// As Kept: a copy is needed by the snapshots from its own stamp on, up to the stamp of the page's next state.
void Board::forget() {
  if (copies() == 0) return;
  std::vector<Stamp> users;
  const bool pays = copies() >= forget_at_;
  const Stamp newest = newest_snapshot();
  if (newest != 0 && !pays) return;
  if (newest != 0) for_each_snapshot([&](Stamp stamp) { users.push_back(stamp); });
  head().changes.fetch_add(1);
  std::atomic_thread_fence(std::memory_order_release);
  if (newest == 0) {
    forget_all();
  } else {
    for (auto at = versions_.begin(); at != versions_.end();) {
      auto& [page, all] = *at;
      for (std::size_t i = 0; i < all.size();) {
        const Stamp next = i + 1 < all.size() ? all[i + 1].stamp : states()[page].word.load() >> 1;
        const bool needed =
            std::any_of(users.begin(), users.end(), [&](Stamp user) { return all[i].stamp <= user && user < next; });
        if (needed) {
          ++i;
          continue;
        }
        take_out(page, all[i].copy);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        copies_.fetch_sub(1, std::memory_order_relaxed);
      }
      at = all.empty() ? versions_.erase(at) : std::next(at);
    }
    forget_at_ = std::max(kForgetFrom, 2 * copies());
  }
  head().changes.fetch_add(1, std::memory_order_release);
}

}  // namespace memlith::core::kv
