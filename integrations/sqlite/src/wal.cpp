// WAL mode: commits out of SQLite's write-ahead log in memory.
//
// A commit is logged right where SQLite writes the page that completes it, before SQLite publishes it to other
// connections, and whatever `synchronous` is: a write that fails fails the commit. It is durable before SQLite returns
// (in_doubt.cpp).
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

// True if two versions of page 1 differ in more than the counters that SQLite keeps there: of changes, pages and free
// pages (24 to 39), and the version that wrote them (92 to 99).
bool says_something_else(const std::byte* was, const std::byte* is, std::uint64_t page_bytes) {
  const auto differ = [&](std::uint64_t begin, std::uint64_t end) {
    return std::memcmp(was + begin, is + begin, end - begin) != 0;
  };
  return differ(0, 24) || differ(40, 92) || differ(100, page_bytes);
}

}  // namespace

Status Database::wal_write(Holder* holder, std::uint64_t offset, const void* source, std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  const auto* const from = static_cast<const std::byte*>(source);
  switch (wal_.what_is(offset, from, bytes)) {
    case WalJournal::Write::begins_anew:
      // Everything in the log that SQLite knows of was stored in the database.
      if (!wal_.is_stored(content_)) return memory_lags();
      wal_.begin_anew(from, bytes);
      return kOk;
    case WalJournal::Write::two_parts:
      MEMLITH_TRY(wal_write(holder, offset, from, kFrameHeaderBytes));
      return wal_write(holder, offset + kFrameHeaderBytes, from + kFrameHeaderBytes, bytes - kFrameHeaderBytes);
    case WalJournal::Write::ends_commit: return end_wal_commit(holder, offset, from);
    case WalJournal::Write::takes_back: return memory_lags();
    case WalJournal::Write::other: wal_.write(offset, from, bytes); return kOk;
  }
  return kOk;
}

// ORDER commit-before-frame: a page that completes a commit is in SQLite's log only if memlith's log has the commit.
// Otherwise a connection that reads the log again would find a commit that was reported as failed. [mutant
// wal_after_ack]
Status Database::end_wal_commit(Holder* holder, std::uint64_t offset, const std::byte* page) {
  WalJournal::NewestSlots newest = wal_.prepare_commit(offset);
  const std::uint64_t slot = wal_.slot_at(offset);
  const bool shared_index = index_.map(0, kIndexRegionBytes, false) != nullptr;
  if (shared_index) {
    const auto region = static_cast<int>((slot + kIndexFramesLess) / kIndexFrames);
    (void)index_.map(region, kIndexRegionBytes, true);
  }
  Holder* const later = shared_index && holder != nullptr && holder->writes ? holder : nullptr;
  MEMLITH_TRY(commit_wal(later, slot, page, newest));
  wal_.add_commit(offset, page, std::move(newest));
  return kOk;
}

// The page as the last commit left it; null if it is new.
const std::byte* Database::committed_page(std::uint32_t page, std::vector<std::vector<std::byte>>& copies) const {
  const std::uint64_t page_bytes = wal_.page_bytes();
  const std::uint64_t end = page * page_bytes;
  if (end > content_.committed()) return nullptr;
  if (const std::uint64_t* const latest = wal_.latest(page); latest != nullptr) return wal_.page(*latest, copies);
  return end <= content_.size() ? content_.find(end - page_bytes, page_bytes) : nullptr;
}

Status Database::commit_wal(Holder* later, std::uint64_t last_slot, const std::byte* last_page,
                            const WalJournal::NewestSlots& changed) {
  wal_.set_in_use(true);
  const std::uint64_t page_bytes = wal_.page_bytes();
  const std::uint64_t new_size = wal_.size_after(last_slot);
  const std::uint64_t before = content_.committed();
  MEMLITH_TRY(content_.reserve(new_size));

  std::vector<std::vector<std::byte>> copies;
  ChangeList& changes = content_.changes();
  changes.clear();
  bool page_one = false;
  for (const auto& [page, slot] : changed) {
    if (page == 0 || (page - 1) * page_bytes >= new_size) continue;
    const std::uint64_t offset = (page - 1) * page_bytes;
    const std::byte* const after = slot == last_slot ? last_page : wal_.page(slot, copies);
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
    if (!wal_.is_stored(content_)) lags_.store(true, std::memory_order_relaxed);
    wal_.forget_slots();
  }
  wal_.truncate(bytes);
}

// SQLite would build its next commit without a commit that is durable.
Status Database::memory_lags() {
  lags_.store(true, std::memory_order_relaxed);
  return fail(Errc::poisoned, Detail::write,
              "{}: a commit became durable, but SQLite does not know of it; close all connections and reopen", path_);
}

void Database::note_publication(bool told) {
  const std::uint64_t wanted = wal_.unpublished();
  if (wanted == 0) return;
  bool published = told;
  if (const volatile void* const index = index_.map(0, kIndexRegionBytes, false); index != nullptr) {
    const auto* const at = static_cast<const volatile std::byte*>(index) + kIndexPublishedAt;
    published = *reinterpret_cast<const volatile std::uint32_t*>(at) >= wanted;
  }
  if (published) wal_.note_published(wanted);
}

bool Database::wal_remove() {
  const bool existed = wal_.remove_name();
  forget_wal();
  return existed;
}

// SQLite has stored everything in the database and leaves WAL mode, or there is no reader left.
void Database::forget_wal() {
  wal_truncate(0);
  if (!in_wal()) return;
  wal_.set_in_use(false);
  content_.show_committed_size();
}

}  // namespace memlith::sqlite
