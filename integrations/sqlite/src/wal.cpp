// WAL mode: SQLite's write-ahead log in memory, and commits out of it.
//
// SQLite appends to the log a header of 24 bytes and a page for each page changed; the last one of a commit says so in
// its header, and its page is the last that is written. The commit is logged right there, before SQLite publishes it to
// other connections, and whatever `synchronous` is: a write that fails fails the commit. It is durable before SQLite
// returns (in_doubt.cpp).
#include <algorithm>
#include <cstring>

#include "database.hpp"
#include "wal_format.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::Status;

namespace {

constexpr std::uint64_t kPieceBytes = 4096;
// How much memory a restarted log keeps: SQLite checkpoints at 4 MB by default, and writes as much again.
constexpr std::uint64_t kKeptBytes = 8 * core::kMiB;
constexpr std::size_t kKeptSlots = 8192;

std::uint32_t big_endian(const std::byte* at) {
  return std::to_integer<std::uint32_t>(at[0]) << 24 | std::to_integer<std::uint32_t>(at[1]) << 16 |
         std::to_integer<std::uint32_t>(at[2]) << 8 | std::to_integer<std::uint32_t>(at[3]);
}

// True if two versions of page 1 differ in more than the counters that SQLite keeps there: of changes, pages and free
// pages (24 to 39), and the version that wrote them (92 to 99).
bool says_something_else(const std::byte* was, const std::byte* is, std::uint64_t page_bytes) {
  const auto differ = [&](std::uint64_t begin, std::uint64_t end) {
    return std::memcmp(was + begin, is + begin, end - begin) != 0;
  };
  return differ(0, 24) || differ(40, 92) || differ(100, page_bytes);
}

}  // namespace

std::uint64_t Database::wal_read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  return wal_.file->read(offset, target, bytes);
}

Status Database::wal_write(Holder* holder, std::uint64_t offset, const void* source, std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  const auto* from = static_cast<const std::byte*>(source);
  if (offset == 0 && bytes >= kWalHeaderBytes) {
    // The log restarts: everything in it that SQLite knows of was stored in the database.
    if (!wal_is_stored()) return memory_lags();
    forget_slots();
    wal_.page_bytes = big_endian(from + 8);
    wal_.file->keep_at_most(kKeptBytes);  // a long reader may have made it much longer
    wal_.file->write(offset, source, bytes);
    return kOk;
  }
  const std::uint64_t frame_bytes = kFrameHeaderBytes + wal_.page_bytes;
  if (offset < kWalHeaderBytes) {
    wal_.file->write(offset, source, bytes);
    return kOk;
  }
  const std::uint64_t slot = (offset - kWalHeaderBytes) / frame_bytes;
  const std::uint64_t inside = (offset - kWalHeaderBytes) % frame_bytes;
  if (inside == 0 && bytes == frame_bytes) {
    MEMLITH_TRY(wal_write(holder, offset, source, kFrameHeaderBytes));
    return wal_write(holder, offset + kFrameHeaderBytes, from + kFrameHeaderBytes, wal_.page_bytes);
  }
  if (slot < wal_.committed_slots) {
    // SQLite may write the headers of a commit again with other checksums. Any other change would take back a durable
    // commit: SQLite ran out of memory between the commit and its publication.
    const Wal::Slot& was = wal_.slots[slot];
    const bool checksum = inside == 0 && bytes == kFrameHeaderBytes && was.page == big_endian(from) &&
                          was.commit_pages == big_endian(from + 4);
    if (!checksum) return memory_lags();
  } else if (inside == 0 && bytes == kFrameHeaderBytes) {
    wal_.unpublished_slots.store(0, std::memory_order_relaxed);  // it continues after the last commit
    if (wal_.slots.size() <= slot) wal_.slots.resize(slot + 1);
    wal_.slots[slot] = {big_endian(from), big_endian(from + 4)};
  } else if (inside == kFrameHeaderBytes && bytes == wal_.page_bytes && slot < wal_.slots.size() &&
             wal_.slots[slot].commit_pages != 0) {
    // ORDER commit-before-frame: a page that completes a commit is in SQLite's log only if memlith's log has the
    // commit. Otherwise a connection that reads the log again would find a commit that was reported as failed.
    // [mutant wal_after_ack]
    NewestSlots newest;
    for (std::uint64_t i = wal_.committed_slots; i <= slot; ++i) newest[wal_.slots[i].page] = i;
    // Room before the commit: once a commit is durable, memory has to follow, so the steps after it must not allocate.
    wal_.file->reserve(offset + bytes);
    wal_.latest.reserve(wal_.latest.size() + newest.size());
    const bool shared_index = index_.map(0, kIndexRegionBytes, false) != nullptr;
    if (shared_index) {
      const auto region = static_cast<int>((slot + kIndexFramesLess) / kIndexFrames);
      (void)index_.map(region, kIndexRegionBytes, true);
    }
    Holder* const later = shared_index && holder != nullptr && holder->writes ? holder : nullptr;
    MEMLITH_TRY(commit_wal(later, slot, from, newest));
    wal_.file->write(offset, source, bytes);
    while (!newest.empty()) {
      auto node = newest.extract(newest.begin());
      if (const auto found = wal_.latest.find(node.key()); found != wal_.latest.end()) {
        found->second = node.mapped();
      } else {
        wal_.latest.insert(std::move(node));
      }
    }
    wal_.committed_slots = slot + 1;
    wal_.unpublished_slots.store(slot + 1, std::memory_order_relaxed);
    return kOk;
  }
  wal_.file->write(offset, source, bytes);
  return kOk;
}

std::uint64_t Database::page_at(std::uint64_t slot) const {
  return kWalHeaderBytes + slot * (kFrameHeaderBytes + wal_.page_bytes) + kFrameHeaderBytes;
}

// A page of the log; copied where it does not lie in one piece.
const std::byte* Database::wal_page(std::uint64_t slot, std::vector<std::vector<std::byte>>& copies) const {
  const std::uint64_t at = page_at(slot);
  if (const std::byte* const found = wal_.file->find(at, wal_.page_bytes); found != nullptr) return found;
  std::vector<std::byte>& copy = copies.emplace_back(wal_.page_bytes);
  (void)wal_.file->read(at, copy.data(), copy.size());
  return copy.data();
}

// The page as the last commit left it; null if it is new.
const std::byte* Database::committed_page(std::uint32_t page, std::vector<std::vector<std::byte>>& copies) const {
  const std::uint64_t page_bytes = wal_.page_bytes;
  const std::uint64_t end = page * page_bytes;
  if (end > content_.committed()) return nullptr;
  if (const auto latest = wal_.latest.find(page); latest != wal_.latest.end()) return wal_page(latest->second, copies);
  return end <= content_.size() ? content_.find(end - page_bytes, page_bytes) : nullptr;
}

Status Database::commit_wal(Holder* later, std::uint64_t last_slot, const std::byte* last_page,
                            const NewestSlots& changed) {
  wal_.in_use.store(true, std::memory_order_release);
  const std::uint64_t page_bytes = wal_.page_bytes;
  const std::uint64_t new_size = wal_.slots[last_slot].commit_pages * page_bytes;
  const std::uint64_t before = content_.committed();
  MEMLITH_TRY(content_.reserve(new_size));

  std::vector<std::vector<std::byte>> copies;
  ChangeList& changes = content_.changes();
  changes.clear();
  bool page_one = false;
  for (const auto& [page, slot] : changed) {
    if (page == 0 || (page - 1) * page_bytes >= new_size) continue;
    const std::uint64_t offset = (page - 1) * page_bytes;
    const std::byte* const after = slot == last_slot ? last_page : wal_page(slot, copies);
    const bool shown = offset + page_bytes <= content_.size();
    const std::byte* const was = committed_page(page, copies);
    if (was == nullptr) {
      changes.add(offset, page_bytes, after);
    } else {
      changes.add_difference(offset, was, after, page_bytes);
    }
    if (page == 1) page_one = was == nullptr || says_something_else(was, after, page_bytes);
    // ORDER own-before-commit: from the commit on a checkpoint may write the page home, and readers of older snapshots
    // still look at this one. [mutant share_pages]
    if (shown) MEMLITH_TRY(content_.own(offset, page_bytes));
    content_.count_captured(page_bytes);
  }
  if (changes.empty() && new_size == before) return kOk;
  MEMLITH_TRY(commit_changes(new_size, later));
  // Before SQLite publishes the commit: what a connection sees is never newer than this.
  const std::uint64_t lsn = content_.last_lsn();
  if (page_one) page_one_lsn_.store(lsn, std::memory_order_release);
  visible_lsn_.store(lsn, std::memory_order_release);
  return kOk;
}

void Database::wal_truncate(std::uint64_t bytes) {
  if (bytes == 0) {
    if (!wal_is_stored()) lags_.store(true, std::memory_order_relaxed);
    forget_slots();
  }
  wal_.file->truncate(bytes);
}

// Checks whether memory shows all commits of the log. SQLite may lack a commit: it ran out of memory before publishing
// it, or it read the log again to rebuild its index, and the checksums there are wrong. (SQLite 3.40 does not renew all
// of them if a transaction spilled a page twice and then rolled back to a savepoint.)
bool Database::wal_is_stored() const {
  if (wal_.unpublished_slots.load(std::memory_order_relaxed) != 0) return false;
  const std::uint64_t committed = content_.committed();
  const std::uint64_t page_bytes = wal_.page_bytes;
  for (const auto& [page, slot] : wal_.latest) {
    const std::uint64_t offset = (page - 1) * page_bytes;
    if (page == 0 || offset >= committed) continue;
    if (offset + page_bytes > content_.size()) return false;
    for (std::uint64_t done = 0; done < page_bytes;
         done += kPieceBytes) {  // takes no memory: the log may be removed at a close
      std::byte piece[kPieceBytes];
      const std::uint64_t count = std::min(kPieceBytes, page_bytes - done);
      (void)wal_.file->read(page_at(slot) + done, piece, count);
      if (std::memcmp(content_.find(offset + done, count), piece, count) != 0) return false;
    }
  }
  return true;
}

void Database::forget_slots() {
  if (wal_.slots.capacity() > kKeptSlots) {
    std::vector<Wal::Slot>().swap(wal_.slots);
    NewestSlots().swap(wal_.latest);
  }
  wal_.slots.clear();
  wal_.committed_slots = 0;
  wal_.latest.clear();
  wal_.unpublished_slots.store(0, std::memory_order_relaxed);
}

// SQLite would build its next commit without a commit that is durable.
Status Database::memory_lags() {
  lags_.store(true, std::memory_order_relaxed);
  return fail(Errc::poisoned, Detail::write,
              "{}: a commit became durable, but SQLite does not know of it; close all connections and reopen", path_);
}

void Database::note_publication(bool told) {
  std::uint64_t wanted = wal_.unpublished_slots.load(std::memory_order_relaxed);
  if (wanted == 0) return;
  bool published = told;
  if (const volatile void* const index = index_.map(0, kIndexRegionBytes, false); index != nullptr) {
    const auto* const at = static_cast<const volatile std::byte*>(index) + kIndexPublishedAt;
    published = *reinterpret_cast<const volatile std::uint32_t*>(at) >= wanted;
  }
  // Another connection may have committed since, and SQLite may not have published that commit yet.
  if (published) wal_.unpublished_slots.compare_exchange_strong(wanted, 0, std::memory_order_relaxed);
}

bool Database::wal_holds_page_one(std::uint64_t offset) const {
  std::byte number[4] = {};
  if (offset < kWalHeaderBytes + kFrameHeaderBytes) return false;
  return wal_.file->read(offset - kFrameHeaderBytes, number, sizeof number) == sizeof number && big_endian(number) == 1;
}

bool Database::wal_remove() {
  const bool existed = wal_.exists.exchange(false, std::memory_order_acq_rel);
  forget_wal();
  return existed;
}

// SQLite has stored everything in the database and leaves WAL mode, or there is no reader left.
void Database::forget_wal() {
  wal_truncate(0);
  if (!in_wal()) return;
  wal_.in_use.store(false, std::memory_order_release);
  content_.show_committed_size();
}

}  // namespace memlith::sqlite
