// SQLite's write-ahead log, in memory. Part of the SQLite plugin.
//
// SQLite appends to the log a header of 24 bytes and a page for each page changed; the last one of a commit says so in
// its header, and its page is the last that is written. A frame's place is its slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "content.hpp"
#include "memory_file.hpp"

namespace memlith::sqlite {

// Threads: reading by any number; the rest by the holder of WAL's WRITE lock, or alone.
class WalJournal {
 public:
  using NewestSlots = std::unordered_map<std::uint32_t, std::uint64_t>;  // of pages

  [[nodiscard]] std::uint64_t size() const { return file_.size(); }
  std::uint64_t read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
    return file_.read(offset, target, bytes);
  }
  [[nodiscard]] bool exists() const { return exists_.load(std::memory_order_acquire); }
  void make() { exists_.store(true, std::memory_order_release); }
  bool remove_name() { return exists_.exchange(false, std::memory_order_acq_rel); }  // whether it was there
  [[nodiscard]] bool in_use() const { return in_use_.load(std::memory_order_acquire); }
  void set_in_use(bool in_use) { in_use_.store(in_use, std::memory_order_release); }

  // ---- writes
  enum class Write : std::uint8_t {
    begins_anew,  // the log's header
    two_parts,    // a frame's header and page at once
    ends_commit,  // the page that completes a commit
    takes_back,   // something else where a commit is
    other
  };
  [[nodiscard]] Write what_is(std::uint64_t offset, const std::byte* source, std::uint64_t bytes) const;
  void begin_anew(const std::byte* source, std::uint64_t bytes);
  void write(std::uint64_t offset, const std::byte* source, std::uint64_t bytes);
  // The newest slots of the pages of the commit that the page at `offset` completes. Once the commit is durable, memory
  // has to follow, so add_commit() must not allocate: this reserves what it takes.
  NewestSlots prepare_commit(std::uint64_t offset);
  void add_commit(std::uint64_t offset, const std::byte* page, NewestSlots&& newest);
  void truncate(std::uint64_t bytes) { file_.truncate(bytes); }
  void forget_slots();

  // ---- commits
  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] std::uint64_t slot_at(std::uint64_t offset) const;
  // After the commit that the slot ends.
  [[nodiscard]] std::uint64_t size_after(std::uint64_t slot) const { return slots_[slot].commit_pages * page_bytes_; }
  // A page of the log; copied where it does not lie in one piece.
  const std::byte* page(std::uint64_t slot, std::vector<std::vector<std::byte>>& copies) const;
  // The newest committed slot of the page; null if it is not in the log.
  [[nodiscard]] const std::uint64_t* latest(std::uint32_t page) const;
  [[nodiscard]] bool holds_page_one(std::uint64_t offset) const;
  // True if memory shows all commits of the log. SQLite may lack a commit: it ran out of memory before publishing it,
  // or it read the log again to rebuild its index, and the checksums there are wrong. (SQLite 3.40 does not renew all
  // of them if a transaction spilled a page twice and then rolled back to a savepoint.)
  [[nodiscard]] bool is_stored(const Content& content) const;
  // How many slots are committed, until SQLite is known to have published them; then 0.
  [[nodiscard]] std::uint64_t unpublished() const { return unpublished_slots_.load(std::memory_order_relaxed); }
  // Another connection may have committed since, and SQLite may not have published that commit yet.
  void note_published(std::uint64_t slots) {
    unpublished_slots_.compare_exchange_strong(slots, 0, std::memory_order_relaxed);
  }

 private:
  struct Slot {
    std::uint32_t page = 0;
    std::uint32_t commit_pages = 0;  // 0, or the frame ends a commit: the pages of the database after it
  };
  [[nodiscard]] std::uint64_t frame_bytes() const;
  [[nodiscard]] std::uint64_t page_at(std::uint64_t slot) const;

  MemoryFile file_;
  std::atomic<bool> exists_{false};
  std::atomic<bool> in_use_{false};  // holds commits, or held some since it was made
  std::uint64_t page_bytes_ = 0;
  std::vector<Slot> slots_;            // [0] is slot 1
  std::uint64_t committed_slots_ = 0;  // those before are committed
  NewestSlots latest_;                 // the last committed versions
  std::atomic<std::uint64_t> unpublished_slots_{0};
};

}  // namespace memlith::sqlite
