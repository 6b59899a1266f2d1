#include "wal_journal.hpp"

#include <algorithm>
#include <cstring>

#include "wal_format.hpp"

namespace memlith::sqlite {

namespace {

constexpr std::uint64_t kPieceBytes = 4096;
// How much memory a restarted log keeps: SQLite checkpoints at 4 MB by default, and writes as much again.
constexpr std::uint64_t kKeptBytes = 8 * core::kMiB;
constexpr std::size_t kKeptSlots = 8192;

std::uint32_t big_endian(const std::byte* at) {
  return std::to_integer<std::uint32_t>(at[0]) << 24 | std::to_integer<std::uint32_t>(at[1]) << 16 |
         std::to_integer<std::uint32_t>(at[2]) << 8 | std::to_integer<std::uint32_t>(at[3]);
}

}  // namespace

std::uint64_t WalJournal::frame_bytes() const { return kFrameHeaderBytes + page_bytes_; }

std::uint64_t WalJournal::page_at(std::uint64_t slot) const {
  return kWalHeaderBytes + slot * frame_bytes() + kFrameHeaderBytes;
}

std::uint64_t WalJournal::slot_at(std::uint64_t offset) const { return (offset - kWalHeaderBytes) / frame_bytes(); }

// ---- writes --------------------------------------------------------------------------------------------------------

WalJournal::Write WalJournal::what_is(std::uint64_t offset, const std::byte* source, std::uint64_t bytes) const {
  if (offset == 0 && bytes >= kWalHeaderBytes) return Write::begins_anew;
  if (offset < kWalHeaderBytes) return Write::other;
  const std::uint64_t slot = slot_at(offset);
  const std::uint64_t inside = (offset - kWalHeaderBytes) % frame_bytes();
  if (inside == 0 && bytes == frame_bytes()) return Write::two_parts;
  if (slot < committed_slots_) {
    // SQLite may write the headers of a commit again with other checksums. Any other change would take back a durable
    // commit: SQLite ran out of memory between the commit and its publication.
    const Slot& was = slots_[slot];
    const bool checksum = inside == 0 && bytes == kFrameHeaderBytes && was.page == big_endian(source) &&
                          was.commit_pages == big_endian(source + 4);
    return checksum ? Write::other : Write::takes_back;
  }
  const bool ends_commit =
      inside == kFrameHeaderBytes && bytes == page_bytes_ && slot < slots_.size() && slots_[slot].commit_pages != 0;
  return ends_commit ? Write::ends_commit : Write::other;
}

void WalJournal::begin_anew(const std::byte* source, std::uint64_t bytes) {
  forget_slots();
  page_bytes_ = big_endian(source + 8);
  file_.keep_at_most(kKeptBytes);  // a long reader may have made it much longer
  file_.write(0, source, bytes);
}

void WalJournal::write(std::uint64_t offset, const std::byte* source, std::uint64_t bytes) {
  const bool is_header =
      offset >= kWalHeaderBytes && bytes == kFrameHeaderBytes && (offset - kWalHeaderBytes) % frame_bytes() == 0;
  if (const std::uint64_t slot = is_header ? slot_at(offset) : 0; is_header && slot >= committed_slots_) {
    unpublished_slots_.store(0, std::memory_order_relaxed);  // it continues after the last commit
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot] = {big_endian(source), big_endian(source + 4)};
  }
  file_.write(offset, source, bytes);
}

WalJournal::NewestSlots WalJournal::prepare_commit(std::uint64_t offset) {
  NewestSlots newest;
  for (std::uint64_t i = committed_slots_; i <= slot_at(offset); ++i) newest[slots_[i].page] = i;
  file_.reserve(offset + page_bytes_);
  latest_.reserve(latest_.size() + newest.size());
  return newest;
}

void WalJournal::add_commit(std::uint64_t offset, const std::byte* page, NewestSlots&& newest) {
  file_.write(offset, page, page_bytes_);
  while (!newest.empty()) {
    auto node = newest.extract(newest.begin());
    if (const auto found = latest_.find(node.key()); found != latest_.end()) {
      found->second = node.mapped();
    } else {
      latest_.insert(std::move(node));
    }
  }
  committed_slots_ = slot_at(offset) + 1;
  unpublished_slots_.store(committed_slots_, std::memory_order_relaxed);
}

void WalJournal::forget_slots() {
  if (slots_.capacity() > kKeptSlots) {
    std::vector<Slot>().swap(slots_);
    NewestSlots().swap(latest_);
  }
  slots_.clear();
  committed_slots_ = 0;
  latest_.clear();
  unpublished_slots_.store(0, std::memory_order_relaxed);
}

// ---- commits -------------------------------------------------------------------------------------------------------

const std::byte* WalJournal::page(std::uint64_t slot, std::vector<std::vector<std::byte>>& copies) const {
  const std::uint64_t at = page_at(slot);
  if (const std::byte* const found = file_.find(at, page_bytes_); found != nullptr) return found;
  std::vector<std::byte>& copy = copies.emplace_back(page_bytes_);
  (void)file_.read(at, copy.data(), copy.size());
  return copy.data();
}

const std::uint64_t* WalJournal::latest(std::uint32_t page) const {
  const auto found = latest_.find(page);
  return found != latest_.end() ? &found->second : nullptr;
}

bool WalJournal::holds_page_one(std::uint64_t offset) const {
  std::byte number[4] = {};
  if (offset < kWalHeaderBytes + kFrameHeaderBytes) return false;
  return read(offset - kFrameHeaderBytes, number, sizeof number) == sizeof number && big_endian(number) == 1;
}

// Takes no memory: the log may be removed at a close.
bool WalJournal::is_stored(const Content& content) const {
  if (unpublished() != 0) return false;
  for (const auto& [page, slot] : latest_) {
    const std::uint64_t offset = (page - 1) * page_bytes_;
    if (page == 0 || offset >= content.committed()) continue;
    if (offset + page_bytes_ > content.size()) return false;
    for (std::uint64_t done = 0; done < page_bytes_; done += kPieceBytes) {
      std::byte piece[kPieceBytes];
      const std::uint64_t count = std::min(kPieceBytes, page_bytes_ - done);
      (void)file_.read(page_at(slot) + done, piece, count);
      if (std::memcmp(content.find(offset + done, count), piece, count) != 0) return false;
    }
  }
  return true;
}

}  // namespace memlith::sqlite
