#include "content.hpp"

#include <algorithm>
#include <cstring>

#include "line_log.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::Extent;
using core::fail;
using core::kFile;
using core::kMiB;
using core::kOk;
using core::kPageBytes;
using core::Lsn;
using core::round_up;
using core::SizeChange;
using core::Status;

namespace {

constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr char kDatabaseMagic[] = MEMLITH_SQLITE_MAGIC;

constexpr std::uint64_t number_of(const char (&text)[9]) {
  std::uint64_t number = 0;
  for (int i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>(text[i]);
  return number;
}
constexpr core::InUseHeader kMark{number_of(MEMLITH_SQLITE_MARK), core::kNoMoment};
static_assert(core::in_use_of(kMark.kind) == core::InUse::caller && sizeof kMark == MEMLITH_SQLITE_MARK_BYTES);

}  // namespace

// ---- opening and closing -------------------------------------------------------------------------------------------

// A forked child has a copy of the memory without the threads that wait in it; destroying the store would wait for them
// forever.
Content::~Content() {
  if (store_ != nullptr && store_->in_forked_child()) (void)store_.release();
}

Status Content::open(core::Volume& volume, const core::StoreOptions& options) {
  MEMLITH_TRY_ASSIGN(store_, core::Store::open(volume, options));
  if (const std::string weakness = store_->weakness(); !weakness.empty()) log_line("{}", weakness);
  if (!store_->read_only()) {
    // A new log gets its permissions from the store; those of the database may have changed since.
    MEMLITH_TRY(store_->match_log_permissions());
  }
  stored_ = store_->find("file")->size_bytes;
  last_lsn_.store(store_->log().head().value, std::memory_order_relaxed);
  MEMLITH_TRY_ASSIGN(const core::Mappable content, store_->mappable_home(kFile, 0, stored_));
  image_ = std::make_unique<Image>(content.descriptor);
  MEMLITH_TRY(image_->cover(std::max<std::uint64_t>(stored_, 1)));
  if (store_->read_only()) MEMLITH_TRY(lay_over());
  return show_magic();
}

// Commits that were not replayed yet are laid over the mapping.
Status Content::lay_over() {
  return store_->overlay().for_each(kFile, [this](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset < stored_) image_->write(offset, bytes.data(), std::min<std::uint64_t>(bytes.size(), stored_ - offset));
    return kOk;
  });
}

Status Content::open_plain(std::unique_ptr<core::Device> file, std::uint64_t bytes) {
  plain_ = std::move(file);
  MEMLITH_TRY_ASSIGN(const core::Mappable content, plain_->mappable(0, bytes));
  image_ = std::make_unique<Image>(content.descriptor);
  MEMLITH_TRY(image_->cover(std::max<std::uint64_t>(bytes, 1)));
  size_ = committed_ = stored_ = bytes;
  return kOk;
}

void Content::undo_creation() {
  image_ = nullptr;
  store_->undo_creation();
}

Status Content::close(bool removes_log) {
  image_ = nullptr;
  MEMLITH_TRY(removes_log ? store_->close_and_remove_log() : store_->close());
  store_ = nullptr;
  return kOk;
}

// ---- memory --------------------------------------------------------------------------------------------------------

core::Result<std::uint64_t> Content::read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  const std::uint64_t end = size();
  const std::uint64_t got = offset < end ? std::min(bytes, end - offset) : 0;
  MEMLITH_TRY(image_->load(offset, got));
  image_->read(offset, target, got);
  return got;
}

const std::byte* Content::fetch(std::uint64_t offset, std::uint64_t bytes) const {
  return offset + bytes <= size() && image_->load(offset, bytes).ok() ? image_->find(offset, bytes) : nullptr;
}

Status Content::write(std::uint64_t offset, const void* source, std::uint64_t bytes, bool undoable) {
  const std::uint64_t now = size();
  const std::uint64_t end = offset + bytes;
  if (end > now) {
    MEMLITH_TRY(reserve(end));
    if (offset > now) zero_between(now, offset, undoable);
  }
  MEMLITH_TRY(image_->load(offset, bytes));
  const std::uint64_t kept = kept_bytes(offset, bytes, undoable);
  const auto* const from = static_cast<const std::byte*>(source);
  undo_.write(*image_, offset, from, kept);
  image_->write(offset + kept, from + kept, bytes - kept);
  if (end > now) size_.store(end, std::memory_order_release);
  return kOk;
}

Status Content::truncate(std::uint64_t bytes, bool undoable) {
  const std::uint64_t now = size();
  if (bytes > now) {
    MEMLITH_TRY(reserve(bytes));
    zero_between(now, bytes, undoable);
  } else {
    stale_end_ = std::max(stale_end_, now);
  }
  size_.store(bytes, std::memory_order_release);
  return kOk;
}

// Only if the size was larger before, memory holds old bytes instead of zeros there.
void Content::zero_between(std::uint64_t begin, std::uint64_t end, bool undoable) {
  end = std::min(end, stale_end_);
  if (begin >= end) return;
  const std::uint64_t kept = kept_bytes(begin, end - begin, undoable);
  undo_.zero(*image_, begin, kept);
  image_->zero(begin + kept, end - begin - kept);
}

// How many bytes of a store a rollback would have to undo.
std::uint64_t Content::kept_bytes(std::uint64_t offset, std::uint64_t bytes, bool undoable) const {
  return undoable && offset < committed() ? std::min(bytes, committed() - offset) : 0;
}

Status Content::reserve(std::uint64_t bytes) {
  if (bytes <= reserved_.load(std::memory_order_acquire)) return kOk;
  const std::lock_guard lock(growth_mutex_);
  if (bytes <= reserved_.load(std::memory_order_relaxed)) return kOk;
  // ORDER mark-before-growth: a file that plain SQLite may open must have the length that SQLite gave it.
  // [test Crash.EveryOperation]
  MEMLITH_TRY(mark());
  const std::uint64_t ahead =
      std::clamp(bytes / 8, options_.growth_bytes_min, std::max(kGrowthBytesMax, options_.growth_bytes_min));
  std::uint64_t wanted = round_up(bytes + ahead, kPageBytes);
  Status status = store_->reserve_home(kFile, wanted);
  if (status.category == Errc::no_space) {
    wanted = round_up(bytes, kPageBytes);
    status = store_->reserve_home(kFile, wanted);
  }
  MEMLITH_TRY(status);
  MEMLITH_TRY(image_->cover(wanted));
  reserved_.store(wanted, std::memory_order_release);
  return kOk;
}

void Content::roll_back() {
  undo_.roll_back(*image_);
  show_committed_size();
}

void Content::show_committed_size() {
  stale_end_ = std::max(stale_end_, size());
  size_.store(committed(), std::memory_order_release);
}

Status Content::keep_to_memory() {
  if (!memory_budget_.used_up(captured_bytes_)) return kOk;
  captured_bytes_ = 0;
  MEMLITH_TRY(persist());
  MEMLITH_TRY(store_->checkpoint());
  return image_->release();
}

// ---- commits -------------------------------------------------------------------------------------------------------

// An empty database has no bytes of its own, but the mark needs a place.
std::uint64_t Content::stored_size(std::uint64_t logical) const {
  return logical == 0 && marked_ ? kMarkBytes : logical;
}

bool Content::collect() {
  const std::uint64_t now = size();
  const std::uint64_t before = committed();
  changes_.clear();
  const std::uint64_t kept_end = std::min(now, before);
  std::uint64_t counted_end = 0;  // of the pages that are counted as captured
  for (const UndoLog::Change& change : undo_.merge(*image_)) {
    if (change.offset >= kept_end) break;
    const std::uint64_t bytes = std::min(change.bytes, kept_end - change.offset);
    changes_.add(change.offset, bytes, image_->find(change.offset, bytes));
    const std::uint64_t pages_begin = std::max(counted_end, change.offset / kPageBytes * kPageBytes);
    const std::uint64_t pages_end = round_up(change.offset + bytes, kPageBytes);
    captured_bytes_ += pages_end - std::min(pages_begin, pages_end);
    counted_end = pages_end;
  }
  // Bytes beyond the committed size of the home file are arbitrary, so the new part is logged completely.
  if (now > before) {
    changes_.add_image(*image_, before, now);
    captured_bytes_ += now - before;
  }
  return !changes_.empty() || now != before;
}

Status Content::commit(std::uint64_t new_size, Wait wait, bool splits) {
  // ORDER mark-before-commit: plain SQLite must not accept the file as a database while it lacks commits that are in
  // the log. [mutant skip_mark]
  MEMLITH_TRY(mark());
  MEMLITH_TRY(commit_frame(changes_.extents(), changes_.sources(), stored_size(new_size), wait, splits));
  committed_.store(new_size, std::memory_order_relaxed);
  return kOk;
}

Status Content::commit_frame(std::span<const Extent> extents, std::span<const std::byte* const> sources,
                             std::uint64_t new_stored_size, Wait wait, bool splits) {
  const SizeChange change{kFile, new_stored_size};
  const bool resized = change.size_bytes != stored_;
  const auto committed = store_->commit_weak({extents, sources, {&change, resized ? 1u : 0u}}, wait != Wait::never);
  const bool no_room = committed.status().category == Errc::full || committed.status().category == Errc::no_space;
  if (no_room && splits && extents.size() > 1) {
    const std::size_t half = extents.size() / 2;
    MEMLITH_TRY(commit_frame(extents.first(half), sources.first(half), std::max(stored_, new_stored_size), wait, true));
    return commit_frame(extents.subspan(half), sources.subspan(half), new_stored_size, wait, true);
  }
  MEMLITH_TRY(committed.status());
  const Lsn end = *committed;
  last_lsn_.store(end.value, std::memory_order_relaxed);
  if (wait == Wait::now) {
    MEMLITH_TRY(store_->sync(end));
  } else if (wait == Wait::never) {
    store_->flush_soon(end);
  }
  stored_ = change.size_bytes;
  return kOk;
}

// One extent, durable on ok.
Status Content::commit_directly(const Extent* extent, const std::byte* bytes, const std::uint64_t* new_stored_size) {
  const SizeChange change{kFile, new_stored_size != nullptr ? *new_stored_size : 0};
  MEMLITH_TRY(store_->commit({{extent, extent != nullptr ? 1u : 0u},
                              {&bytes, extent != nullptr ? 1u : 0u},
                              {&change, new_stored_size != nullptr ? 1u : 0u}}));
  if (new_stored_size != nullptr) stored_ = *new_stored_size;
  return kOk;
}

Status Content::persist() {
  if (store_ == nullptr || store_->read_only()) return kOk;
  MEMLITH_TRY(store_->check_process());
  return store_->sync(Lsn{last_lsn()});
}

// ---- the mark ------------------------------------------------------------------------------------------------------

// Memory shows SQLite's own first bytes, whatever the home file holds.
Status Content::show_magic() {
  std::byte found[kChangedBytes] = {};
  const std::uint64_t count = std::min(stored_, kChangedBytes);
  image_->read(0, found, count);
  marked_ = stored_ >= kMarkBytes && std::memcmp(found, &kMark.kind, sizeof kMark.kind) == 0;
  mark_is_home_ = marked_;
  const bool is_empty = stored_ == 0 || (marked_ && stored_ == kMarkBytes);
  if (!is_empty && !marked_ && std::memcmp(found, kDatabaseMagic, sizeof kDatabaseMagic) != 0) {
    return fail(Errc::incompatible, Detail::open, "{}: is not a SQLite database", path_);
  }
  if (marked_ && !is_empty) {
    memlith_sqlite_unmark(found, count);
    image_->write(0, found, count);
  }
  const std::uint64_t size = is_empty ? 0 : stored_;
  size_.store(size, std::memory_order_release);
  committed_.store(size, std::memory_order_relaxed);
  reserved_.store(stored_, std::memory_order_release);
  stale_end_ = stored_;
  return kOk;
}

Status Content::mark() {
  if (mark_is_home_) return kOk;
  const std::uint64_t size = kMarkBytes;
  const bool is_empty = stored_ == 0;
  if (is_empty) {
    MEMLITH_TRY(store_->reserve_home(kFile, kMarkBytes));
  } else {
    MEMLITH_TRY(image_->own(0, kMarkBytes));  // memory continues to show SQLite's bytes
  }
  // Writes what is committed, completely home: memory may hold a transaction already.
  std::byte bytes[kChangedBytes] = {};
  const Extent extent{kFile, 0, is_empty ? kMarkBytes : std::min(stored_, kChangedBytes)};
  if (!is_empty) MEMLITH_TRY(store_->read_home_into(kFile, 0, {bytes, extent.bytes}));
  memlith_sqlite_unmark(bytes, extent.bytes);  // an attempt before this one ran out of memory
  std::memcpy(bytes, &kMark, sizeof kMark);
  bytes[MEMLITH_SQLITE_TURNED_AT] ^= std::byte{MEMLITH_SQLITE_TURNED_BIT};
  stale_end_ = std::max(stale_end_, kMarkBytes);
  marked_ = true;  // if not at home, possibly in the log, from which closing would write it home
  MEMLITH_TRY(commit_directly(&extent, bytes, is_empty ? &size : nullptr));
  MEMLITH_TRY(store_->checkpoint());
  mark_is_home_ = true;
  on_mark_();
  return kOk;
}

Status Content::make_ordinary() {
  MEMLITH_TRY(unmark());
  image_->note_cut(committed());
  reserved_.store(stored_, std::memory_order_release);
  return kOk;
}

Status Content::unmark() {
  if (!marked_) return kOk;
  const std::uint64_t size = committed();
  if (size == 0) return commit_directly(nullptr, nullptr, &size);  // the mark goes with the last byte
  // ORDER home-before-magic: when the file says that it is complete, it must be complete, including its length.
  // [mutant unmark_too_early]
  MEMLITH_TRY(persist());
  MEMLITH_TRY(store_->checkpoint());
  MEMLITH_TRY(store_->cut_home_to_size());
  // One extent in one sector: SQLite's magic and SQLite's own change counter are written together.
  const Extent extent{kFile, 0, std::min(size, kChangedBytes)};
  std::byte first[kChangedBytes];
  MEMLITH_TRY(store_->read_home_into(kFile, 0, {first, extent.bytes}));
  memlith_sqlite_unmark(first, extent.bytes);
  MEMLITH_TRY(commit_directly(&extent, first, nullptr));
  MEMLITH_TRY(store_->checkpoint());
  marked_ = false;
  mark_is_home_ = false;
  return kOk;
}

}  // namespace memlith::sqlite
