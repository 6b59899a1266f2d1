// The memory in which several processes have one kv store: its pages, their words, copies of older pages, the numbers
// of maps, and the snapshots that are read. Floor: kv.
//
// The keeper alone writes the shown part, which its clients cannot even write to: they map it for reading. A client
// writes to its own snapshots in the slots, a second memory, and nowhere else. So a client that dies, at whatever
// instruction, leaves its snapshots, which the keeper ends, and nothing else.
//
// Both memories are sparse: what was never used takes addresses only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "kv/maps.hpp"
#include "kv/page.hpp"
#include "kv/page_state.hpp"
#include "kv/snapshots.hpp"
#include "shm/keeper_life.hpp"
#include "shm/segment.hpp"
#include "shm/words.hpp"

namespace memlith::core::kv {

// Which commits there are.
struct Moment {
  std::atomic<Stamp> beginning{kCheckedStamp};  // of the commit under way, or the newest
  std::atomic<Stamp> newest{kCheckedStamp};
};

// The first bytes of the shown part.
struct BoardHead {
  std::uint64_t pages_max = 0;  // constant, as are the next two
  std::uint64_t log_bytes_max = 0;
  std::uint64_t base_commit = 0;
  alignas(64) std::atomic<PageNumber> pages;  // those of the header
  std::atomic<std::uint32_t> maps;
  std::atomic<std::uint64_t> durable;  // the number of the newest commit that is known to be durable, and its ticket
  std::atomic<std::uint64_t> durable_ticket;
  std::atomic<std::uint64_t> ticket_commit;  // a commit, the newest but for one under way, and a ticket from it on
  std::atomic<std::uint64_t> ticket;
  std::atomic<std::uint64_t> changes;  // of the table of copies, but for copies that are added; odd during one
  alignas(64) Moment moment;
  alignas(64) shm::KeeperLife life;
};

class Board {
 public:
  static constexpr std::uint32_t kClientsMax = 256;
  static constexpr std::uint32_t kMapsMax = 1u << 16;
  static constexpr std::size_t kSlots = 128;  // of a client: snapshots at a time

  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // ---- the keeper

  // The calling thread is the keeper's, which lives until the board ends, in that thread.
  static Result<std::unique_ptr<Board>> make(std::uint64_t pages_max);
  // The descriptors: of the shown part, for reading, and of the slots.
  [[nodiscard]] int shown() const { return shown_.get(); }
  [[nodiscard]] int slots() const { return slot_memory_.get(); }
  // Keeps a copy of the page, whose state has the stamp `stamp`. No memory, as an exception. The writer's mutex is
  // held, as for forget().
  void keep(PageNumber page, Stamp stamp);
  // Drops copies that no snapshot needs, if there are so many that this pays.
  void forget();
  [[nodiscard]] std::uint64_t copies() const { return copies_.load(std::memory_order_relaxed); }
  // That client's snapshots end: it has ended, or a new one gets the slots.
  void end_snapshots(std::uint32_t client);
  // A snapshot of the newest state for a client, which has taken the slot. No commit is under way.
  bool settle(std::uint32_t client, std::size_t slot);
  // 0: there is none.
  [[nodiscard]] Stamp newest_snapshot() const;
  [[nodiscard]] Stamp oldest_snapshot() const;  // kNewest: there is none
  // As long as this object lives, that snapshot counts for nothing: its transaction is being committed, and reads no
  // more. The snapshots of all transactions that are committed would else make each commit keep copies.
  class Ignoring {
   public:
    Ignoring(Board& board, std::uint32_t client, std::size_t slot) : board_(board) {
      if (slot < kSlots) board_.ignored_ = &board_.slot_of(client, slot);
    }
    ~Ignoring() { board_.ignored_ = nullptr; }
    Ignoring(const Ignoring&) = delete;
    Ignoring& operator=(const Ignoring&) = delete;

   private:
    Board& board_;
  };

  // ---- a client

  // `client`: its number, from 1 on, which gives it its slots; 0 is the keeper.
  static Result<std::unique_ptr<Board>> join(int shown, int slots, std::uint64_t pages_max, std::uint32_t client);
  // A snapshot; nothing if the client has kSlots already.
  std::optional<Snapshots::StampSlot> add(Stamp stamp);
  void remove(const Snapshots::StampSlot& at);
  // The keeper lives: nothing committed behind its back up to now.
  [[nodiscard]] bool has_keeper() const { return head().life.lasts(); }
  [[nodiscard]] Stamp stamp_of(std::size_t slot) const { return slot_of(client_, slot).load(); }

  // In a forked child, which has no such memory.
  void forget_memory() {
    shown_mapping_.forget();
    slot_mapping_.forget();
  }

  // ---- both

  [[nodiscard]] BoardHead& head() const { return *reinterpret_cast<BoardHead*>(base_); }
  [[nodiscard]] MapEntry* maps() const { return reinterpret_cast<MapEntry*>(base_ + layout_.maps); }
  [[nodiscard]] PageState* states() const { return reinterpret_cast<PageState*>(base_ + layout_.states); }
  [[nodiscard]] LeafTags* tags() const { return reinterpret_cast<LeafTags*>(base_ + layout_.tags); }
  [[nodiscard]] std::byte* pages() const { return base_ + layout_.pages; }
  [[nodiscard]] std::uint64_t pages_max() const { return pages_max_; }
  // The page as of `view`, which is older than the page's word. It stays as long as that snapshot. Null: there is no
  // such copy. Nothing: the keeper was taking copies out all the while; it rests in the middle of that, or has died.
  [[nodiscard]] std::optional<const std::byte*> find(PageNumber page, Stamp view) const;

 private:
  // A copy of a page; the number of the next in the chain is 0 at its end, as those of copies begin at 1.
  struct CopyEntry {
    std::atomic<PageNumber> page;
    std::atomic<std::uint32_t> next;
    std::atomic<Stamp> stamp;  // of the commit that had made the page so
  };
  struct alignas(64) SlotLine {
    shm::Shared<Stamp> stamp;  // 0: free
  };
  struct ClientSlots {
    alignas(64) shm::Shared<std::size_t> end;  // no slot from here on was ever taken
    std::array<SlotLine, kSlots> lines;
  };
  struct Layout {
    explicit Layout(std::uint64_t pages_max);
    std::uint64_t maps = 0;
    std::uint64_t chains = 0;
    std::uint64_t entries = 0;
    std::uint64_t states = 0;
    std::uint64_t tags = 0;
    std::uint64_t copies = 0;
    std::uint64_t pages = 0;
    std::uint64_t end = 0;
  };
  // The keeper's notes of a copy.
  struct Version {
    Stamp stamp = 0;
    std::uint32_t copy = 0;
  };

  explicit Board(std::uint64_t pages_max) : pages_max_(pages_max), layout_(pages_max) {}
  Status map(int shown, int slots, bool for_reading);
  [[nodiscard]] shm::Shared<Stamp>& slot_of(std::uint32_t client, std::size_t slot) const {
    return clients_[client].lines[slot].stamp;
  }
  [[nodiscard]] std::atomic<std::uint32_t>& chain_of_page(PageNumber page) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.chains)[page % kChains];
  }
  [[nodiscard]] CopyEntry& entry(std::uint32_t copy) const {
    return reinterpret_cast<CopyEntry*>(base_ + layout_.entries)[copy];
  }
  [[nodiscard]] std::byte* copy_at(std::uint32_t copy) const { return base_ + layout_.copies + copy * kPageBytes; }
  template <class See>
  void for_each_snapshot(See&& see) const;
  void forget_all();
  void take_out(PageNumber page, std::uint32_t copy);

  static constexpr std::uint32_t kChains = 1u << 16;
  static constexpr std::uint32_t kCopiesMax = 1u << 24;
  static constexpr std::uint64_t kForgetFrom = 256;  // copies
  static constexpr unsigned kLookTries = 100;

  const std::uint64_t pages_max_;
  const Layout layout_;
  Descriptor shown_;
  Descriptor slot_memory_;
  shm::Mapping shown_mapping_;
  shm::Mapping slot_mapping_;
  std::byte* base_ = nullptr;
  ClientSlots* clients_ = nullptr;
  std::uint32_t client_ = 0;
  bool keeps_ = false;  // is the keeper's

  // The keeper's, under the writer's mutex.
  std::unordered_map<PageNumber, std::vector<Version>> versions_;
  std::vector<std::uint32_t> free_;  // copies
  std::uint32_t copies_end_ = 1;     // no copy from here on was ever used
  std::uint64_t forget_at_ = kForgetFrom;
  std::atomic<std::uint64_t> copies_{0};
  const shm::Shared<Stamp>* ignored_ = nullptr;
  std::atomic<std::uint32_t> clients_end_{1};  // no client from here on was there
};

}  // namespace memlith::core::kv
