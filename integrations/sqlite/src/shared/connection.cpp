#include "connection.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "../wal_format.hpp"
#include "base/process.hpp"
#include "due_flusher.hpp"
#include "write_again.hpp"

namespace memlith::sqlite::shared {

namespace {

// The index begins with two copies of its header. SQLite writes the second copy first; they are equal when it is valid.
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kSaltAt = 32;
constexpr std::size_t kInitialisedAt = 12;
constexpr std::size_t kNameAt = 4;

constexpr int kLockExclusive = SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE;
constexpr int kUnlockExclusive = SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE;
constexpr int kLockShared = SQLITE_SHM_LOCK | SQLITE_SHM_SHARED;
constexpr int kUnlockShared = SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED;

std::uint32_t number_at(const unsigned char* bytes) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// A name of SQLite: four zeros, the path, its parameters, a further zero.
std::string copy_of_name(const char* name, int flags) {
  const char* end = name + std::strlen(name) + 1;
  while ((flags & SQLITE_OPEN_URI) != 0 && *end != '\0') end += std::strlen(end) + 1;
  return std::string(kNameAt, '\0') + std::string(name, end) + std::string(kNameAt, '\0');
}

}  // namespace

// ---- files ---------------------------------------------------------------------------------------------------------

int RealFile::open(sqlite3_vfs& vfs, const char* name, int flags, int* out_flags, bool foreign) {
  if (foreign) {
    name_ = copy_of_name(name, flags);
    name = name_.data() + kNameAt;
  }
  memory_.assign(static_cast<std::size_t>(vfs.szOsFile) / sizeof(std::max_align_t) + 1, std::max_align_t{});
  auto* const file = reinterpret_cast<sqlite3_file*>(memory_.data());
  const int code = vfs.xOpen(&vfs, name, file, flags, out_flags);
  if (code == SQLITE_OK && file->pMethods != nullptr && file->pMethods->iVersion >= 3) {
    file_ = file;
    return SQLITE_OK;
  }
  if (file->pMethods != nullptr) file->pMethods->xClose(file);
  return code != SQLITE_OK ? code : SQLITE_CANTOPEN;
}

int RealFile::close() {
  sqlite3_file* const file = std::exchange(file_, nullptr);
  return file != nullptr ? file->pMethods->xClose(file) : SQLITE_OK;
}

Connection::Connection(const Api& api, sqlite3_vfs& vfs, bool foreign, std::string path, const Options& options)
    : vfs_(vfs),
      foreign_(foreign),
      path_(std::move(path)),
      foresight_(api),
      reads_latest_(options.reads_latest),
      weak_(options.durability == Durability::weak) {
  if (options.window_given || weak_) window_ms_ = options.window.interval_ms;
  foresight_.set_on(foresight_.is_on() && options.foresight);
}

// SQLite's own VFS keeps one list of a process's files, with the locks that it believes to hold. A child holds none,
// but has its parent's list: a connection that it opens beside would take no lock at all. Closing the files empties the
// list; the parent's locks stay, because they are of the parent's process.
void Connection::abandon() {
  if (database_.is_open()) {
    (void)database_->xShmUnmap(database_.file(), 0);
    (void)database_->xUnlock(database_.file(), SQLITE_LOCK_NONE);
  }
  (void)wal_.close();
  (void)database_.close();
  if (node_ != nullptr) node_->sidecar->abandon();
  header_ = nullptr;
  (void)new std::shared_ptr<Node>(std::move(node_));  // never destroyed: its locks may be held by the parent's threads
}

int Connection::close() {
  if (inherited()) return SQLITE_OK;
  if (node_ != nullptr) {
    let_line_go();
    node_->lock_queue.leave(waiter_);
  }
  const int code = database_.close();
  node_ = nullptr;
  return code;
}

// ---- phases --------------------------------------------------------------------------------------------------------

namespace {

template <class... Phases>
constexpr unsigned set_of(Phases... phases) {
  return (0U | ... | (1U << static_cast<unsigned>(phases)));
}

}  // namespace

// Without locks, in SQLite's locking_mode=EXCLUSIVE, and without a control block, a transaction writes and commits
// under no lock that is seen here, or under one that is not given back.
void Connection::enter(Phase next) {
  using enum Phase;
  static constexpr unsigned kNext[] = {
      set_of(written, ahead, begun),                   // idle
      set_of(written, committed, ahead, begun),        // written; a rollback is told by no call
      set_of(flush_wanted, committed, ahead, begun),   // flush_wanted; the same
      set_of(idle, written, ahead, begun),             // committed
      set_of(idle, begun),                             // ahead: the write did not come, or came
      set_of(idle, begun, writes, asks_for_flush),     // begun
      set_of(written, begun, writes, asks_for_flush),  // writes
      set_of(flush_wanted, begun, asks_for_flush),     // asks_for_flush
  };
  MEMLITH_ASSERT((kNext[static_cast<unsigned>(phase_)] & set_of(next)) != 0);
  phase_ = next;
}

bool Connection::end_committed() {
  if (phase_ != Phase::committed) return false;
  enter(Phase::idle);
  return true;
}

// ---- the index -----------------------------------------------------------------------------------------------------

namespace {

using Header = std::array<unsigned char, kHeaderBytes>;

Header header_at(const volatile unsigned char* from) {
  Header header{};
  for (std::size_t at = 0; at < kHeaderBytes; ++at) header[at] = from[at];
  return header;
}

Position position_in(const Header& header) {
  return {number_at(&header[kSaltAt]), number_at(&header[kIndexPublishedAt])};
}

// Its checksum is right.
bool is_intact(const Header& header) {
  constexpr std::size_t kSumAt = kHeaderBytes - 8;
  std::uint32_t one = 0;
  std::uint32_t other = 0;
  for (std::size_t at = 0; at < kSumAt; at += 8) {
    one += number_at(&header[at]) + other;
    other += number_at(&header[at + 4]) + one;
  }
  return header[kInitialisedAt] != 0 && one == number_at(&header[kSumAt]) && other == number_at(&header[kSumAt + 4]);
}

}  // namespace

std::optional<Position> Connection::newest() const {
  if (header_ == nullptr) return std::nullopt;
  for (int i = 0; i < 100; ++i) {
    const Header first = header_at(header_);
    std::atomic_thread_fence(std::memory_order_acquire);
    const Header second = header_at(header_ + kHeaderBytes);
    if (first != second || first[kInitialisedAt] == 0) continue;  // SQLite writes it, or was killed there
    return position_in(first);
  }
  return std::nullopt;
}

// SQLite writes the second copy first, and connections see what both say.
std::optional<Position> Connection::newest_intact() const {
  if (header_ == nullptr) return std::nullopt;
  for (const auto* const copy : {header_ + kHeaderBytes, header_}) {
    if (const Header header = header_at(copy); is_intact(header)) return position_in(header);
  }
  return std::nullopt;
}

// By checkpoints, in the log's generation.
std::uint32_t Connection::frames_left(Position end) const { return end.frame - std::min(frames_stored(), end.frame); }
std::uint32_t Connection::frames_stored() const {
  std::array<unsigned char, sizeof(std::uint32_t)> bytes{};
  for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = header_[kIndexStoredAt + at];
  return number_at(bytes.data());
}

int Connection::real_lock(int first, int count, int flags) {
  return database_->xShmLock(database_.file(), first, count, flags);
}

int Connection::map_index(int region, int bytes, int extend, void volatile** result) {
  if (region == 0 && node_ == nullptr) {
    node_ = Registry::get().node_of(path_);
    note_wal_opened();
  }
  const int code = database_->xShmMap(database_.file(), region, bytes, extend, result);
  if (region == 0 && code == SQLITE_OK) header_ = static_cast<const volatile unsigned char*>(*result);
  if (code != SQLITE_OK) give_up_ahead();
  if (region == 0 && code == SQLITE_OK && window_ms().has_value()) (void)watch();
  return code;
}

int Connection::unmap_index(int remove) {
  header_ = nullptr;
  return database_->xShmUnmap(database_.file(), remove);
}

int Connection::lock_index(int first, int count, int flags) {
  if (node_ == nullptr) return real_lock(first, count, flags);
  if (first == kWriteLock && count == 1) {
    if (flags == kLockExclusive) return lock_ahead();
    if (flags == kUnlockExclusive) return unlock_write();
  }
  if (first >= kFirstReadLock && flags == kUnlockShared) {
    return end_reading(first, count, flags);
  }
  if (first == kCheckpointLock && count == 1) return flags == kLockExclusive ? lock_checkpoint() : end_checkpoint();
  if (first >= kFirstReadLock && flags == kLockExclusive) return lock_readers_out(first, count);
  const int code = real_lock(first, count, flags);
  const bool begins = first >= kFirstReadLock && flags == kLockShared;
  if (begins && code != SQLITE_OK) give_up_ahead();
  if (!begins || code != SQLITE_OK) return code;
  forget_line();
  end_committed();
  ++readings_;
  reading_lock_ = first;
  note_snapshot();
  if (!std::exchange(waits_early_, false) || shows_doubt() || is_seen_durable()) return SQLITE_OK;
  const int durable = node_->group.await(seen_, mark_, *this);
  if (durable != SQLITE_OK) (void)end_reading(first, count, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED);
  return durable;
}

int Connection::end_reading(int first, int count, int flags) {
  if (readings_ > 0) --readings_;
  reading_lock_ = -1;
  const int code = real_lock(first, count, flags);
  if (phase_ != Phase::ahead) return code;
  // The write did not come. What the transaction was shown meanwhile is waited for now, for those that the lock kept
  // waiting not any longer.
  foresight_.note_no_write(node_->sidecar->control());
  (void)release_write();
  if (shows_doubt() || is_seen_durable()) return code;
  // SQLite does not look at the answer, but an error is reported.
  const int durable = node_->group.await(seen_, mark_, *this);
  return durable != SQLITE_OK ? durable : code;
}

// The transaction for which the write lock was taken ahead could not begin. SQLite may try again, or never.
void Connection::give_up_ahead() {
  if (phase_ == Phase::ahead && readings_ == 0) (void)release_write();
}

// SQLite writes without having asked for the lock: in locking_mode=EXCLUSIVE it asks for none, and no other connection
// can have one.
void Connection::give_up_unasked() {
  if (phase_ == Phase::ahead) (void)release_write();
}

// SQLite holds no lock between its two looks at the header. If the header changes meanwhile, SQLite looks again, under
// the write lock, which it gets because this connection has it.
void Connection::barrier() {
  const bool begins = node_ != nullptr && readings_ == 0 && !has_lock() && !checkpoints_;
  if (begins && foresight_.begin(node_->sidecar->control())) {
    while (lock_write(Phase::ahead, true) == SQLITE_BUSY) {
      note_refused(shared_from_this());
      if (!foresight_.wait()) break;
    }
  }
  write_what_is_published();
  database_->xShmBarrier(database_.file());
}

// SQLite has looked at the header before, and looks again after it got the lock: what it sees is no newer than this.
void Connection::note_snapshot() {
  mark_ = node_->group.mark();
  seen_ = newest();
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

namespace {

// A commit makes its checkpoint itself where at most this part of the log, and of the limit, is left to store,
constexpr std::uint64_t kSmallPart = 8;
// and where the log has grown to so many times the limit: commits come faster than the thread stores them. What a
// reader kept from being stored for long is left to the thread all the same.
constexpr std::uint64_t kLimitsMax = 8;

// A longer log may have more left: then the thread does not keep up.
bool is_small(std::uint64_t left, std::uint64_t frames, std::uint64_t limit) {
  return left * kSmallPart <= std::min(frames, limit * kSmallPart);
}

}  // namespace

void Connection::leave_checkpoints(Opener opener) {
  if (Checkpointer::can_use(opener.api)) opener_ = std::move(opener);
}

std::unique_ptr<Handover::Hold> Connection::hold_checkpoints() const {
  if (node_ == nullptr || !opener_.has_value()) return nullptr;
  return std::make_unique<Handover::Hold>(*node_->handover);
}

// PRAGMA wal_autocheckpoint; 0: SQLite makes no checkpoints by itself. A hook of the program's own counts as that.
std::uint32_t Connection::automatic_limit() const {
  sqlite3* const db = foresight_.connection();
  if (db == nullptr) return 0;
  int limit = 0;
  const auto note = [](void* to, int count, char** values, char**) {
    if (count == 1 && values[0] != nullptr) *static_cast<int*>(to) = std::atoi(values[0]);
    return 0;
  };
  const int code = opener_->api.exec(db, "PRAGMA wal_autocheckpoint", note, &limit, nullptr);
  return code == SQLITE_OK && limit > 0 ? static_cast<std::uint32_t>(limit) : 0;
}

// SQLite makes its own checkpoint at the end of the commit, before anything else, if the log has reached the limit.
// Another one is the program's, which finds no other of this process under way.
int Connection::lock_checkpoint() {
  const auto end = newest();
  const bool may_be_automatic = end_committed() && opener_.has_value() && end.has_value();
  if (may_be_automatic) limit_ = automatic_limit();
  const bool is_automatic = may_be_automatic && limit_ > 0 && end->frame >= limit_;
  const auto refuse = [this](int code) {
    let_line_go();
    return code;
  };
  if (node_->handover->take_pinned()) node_->lock_queue.note_pinned();
  if (is_automatic && node_->lock_queue.is_pinned()) return refuse(SQLITE_BUSY);
  const std::uint64_t behind = std::uint64_t{limit_} * kLimitsMax;
  const bool is_behind = is_automatic && end->frame >= behind && frames_left(*end) <= 2 * behind;
  const auto hold = !is_automatic || is_behind ? hold_checkpoints() : nullptr;
  if (hold == nullptr && is_automatic && node_->handover->is_in_hand()) return refuse(SQLITE_BUSY);
  int code = real_lock(kCheckpointLock, 1, kLockExclusive);
  if (code != SQLITE_OK) return refuse(code);
  const bool is_left = is_automatic && !is_behind && !is_small(frames_left(*end), end->frame, limit_);
  if (is_left && node_->handover->begin()) {
    (void)real_lock(kCheckpointLock, 1, kUnlockExclusive);
    let_line_go();
    if (Checkpointer::of_process().take({node_->handover, *opener_, path_, frames_stored()})) return SQLITE_BUSY;
    node_->handover->end();
    code = real_lock(kCheckpointLock, 1, kLockExclusive);
  }
  checkpoints_ = code == SQLITE_OK;
  if (holds_line_) holds_line_ = checkpoints_ && node_->lock_queue.hold(waiter_);
  return code;
}

int Connection::end_checkpoint() {
  checkpoints_ = false;
  const int code = real_lock(kCheckpointLock, 1, kUnlockExclusive);
  let_line_go();
  return code;
}

// SQLite begins the log anew when a writer finds it stored to its end, and no reader that looks into it. Both are never
// so beside busy writers: the next one commits before the end is stored, and those that wait for their flush still
// read. The commit after which little is left keeps the others from the lock, therefore, until one flush has
// sent home those that wait, and its own checkpoint has stored the rest.
bool Connection::begins_anew_next() const {
  const bool has_written = phase_ == Phase::written || phase_ == Phase::flush_wanted;
  const bool has_committed = has_written && made_.has_value() && made_ != seen_;
  if (!has_committed || limit_ == 0 || made_->frame < limit_ || header_ == nullptr) return false;
  return is_small(frames_left(*made_), made_->frame, limit_) && !node_->handover->is_in_hand() &&
         !node_->lock_queue.is_pinned();
}

void Connection::let_line_go() {
  if (std::exchange(holds_line_, false)) node_->lock_queue.let_go(waiter_);
}

// SQLite has made no checkpoint at the end of the commit, and the limit is known when it makes one again.
void Connection::forget_line() {
  if (holds_line_) limit_ = 0;
  let_line_go();
}

// SQLite locks readers out when a checkpoint stores what they may not see, and when a writer begins the log anew. Those
// that were served by the last flush are on their way.
int Connection::lock_readers_out(int first, int count) {
  const bool begins_anew = has_lock() && !checkpoints_ && count > 1 && limit_ > 0;
  const bool waits = begins_anew || (checkpoints_ && holds_line_);
  int code = real_lock(first, count, kLockExclusive);
  const std::uint64_t begun = now_ns();
  const std::uint64_t patience = waits ? node_->lock_queue.hold_ns() / 2 : 0;
  if (code == SQLITE_BUSY && waits && holds_line_) (void)node_->lock_queue.hold(waiter_);
  for (std::uint64_t time = 0; code == SQLITE_BUSY && time < patience; time = now_ns() - begun) {
    constexpr auto kLook = std::chrono::microseconds(100);
    if (time < kAwakeNs)
      core::yield_thread();
    else
      core::shm::sleep(kLook);
    code = real_lock(first, count, kLockExclusive);
  }
  if (code == SQLITE_BUSY && waits) node_->lock_queue.note_pinned();
  return code;
}

// ---- the write lock ------------------------------------------------------------------------------------------------

// SQLite asks for the lock.
int Connection::lock_ahead() {
  if (phase_ == Phase::ahead) {
    if (readings_ > 0) begin_writing(Phase::begun);  // otherwise it reads the header again
    return SQLITE_OK;
  }
  if (readings_ > 0) foresight_.note_write(node_->sidecar->control());
  // A connection that makes the index anew, because a writer was killed, has not had its turn.
  return lock_write(Phase::begun, readings_ > 0 || checkpoints_);
}

void Connection::begin_writing(Phase phase) {
  enter(phase);
  forget_line();
  mark_ = node_->group.mark();
  made_.reset();
  is_stale_ = false;
}

int Connection::lock_write(Phase phase, bool for_a_turn) {
  if (node_->group.failed()) return SQLITE_IOERR_FSYNC;
  int code = SQLITE_BUSY;
  if (node_->lock_queue.may_ask(waiter_)) code = real_lock(kWriteLock, 1, kLockExclusive);
  // The holder before may have promised it to another one since this one looked.
  if (code == SQLITE_OK && node_->lock_queue.is_promised_to_another(waiter_)) {
    (void)real_lock(kWriteLock, 1, kUnlockExclusive);
    node_->lock_queue.call_promised();
    code = SQLITE_BUSY;
  }
  if (code == SQLITE_OK) {
    if (for_a_turn) node_->lock_queue.took(waiter_);
    begin_writing(phase);
    // SQLite finds out, too, and begins again.
    is_stale_ = readings_ > 0 && newest() != seen_;
  } else if (code == SQLITE_BUSY) {
    node_->lock_queue.refused(waiter_);
  }
  return code;
}

int Connection::unlock_write() {
  // SQLite has read the header again, and begins to read next, unless it could not make the index anew.
  const bool begins_next = phase_ == Phase::ahead && readings_ == 0 && newest().has_value();
  return begins_next ? SQLITE_OK : release_write();
}

int Connection::release_write() {
  write_what_is_published();
  // Still under the lock: the newest commit is this connection's, if it has committed.
  const bool asks_for_flush = phase_ == Phase::asks_for_flush;
  const bool has_written = asks_for_flush || phase_ == Phase::writes;
  if (has_written) made_ = newest();
  if (!asks_for_flush && newest() == seen_ && !is_seen_durable()) waits_early_ = true;
  enter(asks_for_flush ? Phase::flush_wanted : has_written ? Phase::written : Phase::idle);
  holds_line_ = begins_anew_next() && node_->lock_queue.hold(waiter_);
  const std::uint32_t next = holds_line_ ? kSlots : node_->lock_queue.choose();
  const int code = real_lock(kWriteLock, 1, kUnlockExclusive);
  node_->lock_queue.call(next);
  return code;
}

void Connection::sleep(std::chrono::microseconds time) {
  if (node_ == nullptr || inherited() || !database_.is_open() || std::exchange(is_stale_, false)) return;
  node_->lock_queue.wait(waiter_, time, [this] {
    if (real_lock(kWriteLock, 1, kLockExclusive) != SQLITE_OK) return false;
    (void)real_lock(kWriteLock, 1, kUnlockExclusive);
    return true;
  });
}

// ---- the log -------------------------------------------------------------------------------------------------------

// SQLite writes the header of a frame, and then its page. Only where it changes the checksum of a frame, which it reads
// before, it writes the header alone.
int Connection::write_wal(const void* bytes, int count, sqlite3_int64 offset) {
  give_up_unasked();
  if (phase_ == Phase::begun) node_->lock_queue.rouse_next();
  wrote_header_ = offset == 0;
  if (phase_ == Phase::begun) enter(Phase::writes);
  if (phase_ == Phase::idle || phase_ == Phase::committed) enter(Phase::written);
  const auto* const from = static_cast<const unsigned char*>(bytes);
  const auto header_bytes = static_cast<sqlite3_int64>(kFrameHeaderBytes);
  if (kept_at_ >= 0 && offset == kept_at_ + header_bytes) {
    frame_.insert(frame_.end(), from, from + count);
    return write_kept();
  }
  if (const int code = write_kept(); code != SQLITE_OK) return code;
  if (!has_lock() || count != header_bytes || offset == read_at_)
    return wal_->xWrite(wal_.file(), bytes, count, offset);
  frame_.assign(from, from + count);
  kept_at_ = offset;
  return SQLITE_OK;
}

int Connection::write_kept() {
  const sqlite3_int64 at = std::exchange(kept_at_, -1);
  return at < 0 ? SQLITE_OK : wal_->xWrite(wal_.file(), frame_.data(), static_cast<int>(frame_.size()), at);
}

// Others see the frames from now on. SQLite does not look at an answer here.
void Connection::write_what_is_published() {
  if (write_kept() != SQLITE_OK) node_->group.poison();
}

int Connection::read_wal(void* target, int count, sqlite3_int64 offset) {
  const int code = write_kept();
  read_at_ = offset;
  return code != SQLITE_OK ? code : wal_->xRead(wal_.file(), target, count, offset);
}

// ---- durability ----------------------------------------------------------------------------------------------------

// Nothing of the log is seen when SQLite has just begun a generation: then all is durable in the database.
bool Connection::is_seen_durable() const {
  return seen_.has_value() && (seen_->frame == 0 || node_->group.is_durable(*seen_));
}

bool Connection::must_wait(bool page_one) const {
  if (node_ == nullptr || page_one) return false;
  if (phase_ == Phase::ahead) return node_->group.failed();  // its COMMIT cannot fail if it changes nothing
  if (shows_doubt() || has_lock() || checkpoints_) return false;
  return !is_seen_durable();
}

int Connection::await_page(bool page_one) {
  return must_wait(page_one) ? node_->group.await(seen_, mark_, *this) : SQLITE_OK;
}

int Connection::flush() {
  if (!wal_.is_open()) return SQLITE_IOERR_FSYNC;
  return wal_->xSync(wal_.file(), wal_flags_);
}

void Connection::note_wal_opened() {
  if (node_ != nullptr) wal_opened_at_ = node_->group.number();
}

// SQLite begins no other generation while a reader looks into the log, or a writer has the lock. The lock is taken
// where the index cannot be read: a live process changes the index for a moment only, and of a killed one the log has
// what SQLite will find when it makes the index anew, so that is written again, too.
int Connection::write_again() {
  if (!wal_.is_open()) return SQLITE_IOERR_FSYNC;
  const Position durable = Position::of(node_->sidecar->control().durable.load(std::memory_order_acquire));
  const auto under_write_lock = [&] {
    const auto end = newest_intact();
    return end.has_value() ? shared::write_again(wal_.file(), durable, *end, true) : SQLITE_BUSY;
  };
  if (has_lock()) return under_write_lock();
  const bool reads = reading_lock_ > kFirstReadLock;
  constexpr std::uint64_t kPatienceNs = 5'000'000'000;  // SQLite holds these locks of readers for moments only
  for (const std::uint64_t begun = now_ns(); now_ns() - begun <= kPatienceNs;) {
    int lock = kFirstReadLock + 1;
    while (!reads && lock < SQLITE_SHM_NLOCK && real_lock(lock, 1, kLockShared) != SQLITE_OK) ++lock;
    if (lock < SQLITE_SHM_NLOCK) {
      const auto end = newest();
      const int code = end.has_value() ? shared::write_again(wal_.file(), durable, *end, false) : SQLITE_BUSY;
      if (!reads) (void)real_lock(lock, 1, kUnlockShared);
      if (end.has_value()) return code;
    }
    if (real_lock(kWriteLock, 1, kLockExclusive) == SQLITE_OK) {
      const int code = under_write_lock();
      (void)real_lock(kWriteLock, 1, kUnlockExclusive);
      if (code != SQLITE_BUSY) return code;
    }
    core::shm::sleep(std::chrono::microseconds(500));
  }
  return SQLITE_BUSY;
}

// SQLite asks for a flush when it has written the header of a new generation, which has to be on the medium before the
// first frame; when it has written a commit; and when a checkpoint begins. Only the commit's can come later.
int Connection::sync_wal(int flags) {
  wal_flags_ = flags;
  give_up_unasked();
  if (const int code = write_kept(); code != SQLITE_OK) return code;
  const bool begins = std::exchange(wrote_header_, false);
  if (node_ != nullptr && has_lock() && !begins && !checkpoints_) {
    enter(Phase::asks_for_flush);
    return SQLITE_OK;
  }
  // A checkpoint stores what is published, and most of that has been waited for by those that committed it.
  const bool stores_durable = node_ != nullptr && checkpoints_ && !begins && !node_->group.failed();
  if (const auto end = stores_durable ? newest() : std::nullopt; end.has_value() && node_->group.is_durable(*end)) {
    return SQLITE_OK;
  }
  return node_ != nullptr ? node_->group.flush(*this) : flush();
}

int Connection::end_commit() {
  const bool flush_wanted = phase_ == Phase::flush_wanted || phase_ == Phase::asks_for_flush;
  const bool has_written = flush_wanted || phase_ == Phase::written || phase_ == Phase::writes;
  if (!has_written) {
    end_committed();
    return SQLITE_OK;
  }
  enter(has_lock() ? Phase::begun : Phase::committed);
  if (node_ == nullptr) return SQLITE_OK;
  if (!flush_wanted || weak_) {
    if (!window_ms().has_value() || promise()) return SQLITE_OK;
  }
  seen_ = made_;
  node_->sidecar->control().commits.fetch_add(1, std::memory_order_relaxed);
  const int code = node_->group.await(made_, mark_, *this);
  if (code != SQLITE_OK) let_line_go();
  if (holds_line_) (void)node_->lock_queue.hold(waiter_);
  return code;
}

std::optional<std::uint64_t> Connection::window_ms() const {
  constexpr std::uint64_t kWeakWindowMs = 100;
  return weak_ && !window_ms_.has_value() ? kWeakWindowMs : window_ms_;
}

bool Connection::watch() {
  if (!watched_ && node_ != nullptr && wal_.is_open()) watched_ = DueFlusher::of_process().watch(node_, vfs_, path_);
  return watched_;
}

// The commit need not be waited for, because it is flushed within its window. False where that cannot be promised.
bool Connection::promise() {
  Group& group = node_->group;
  if (!made_.has_value() || group.failed() || group.in_doubt() || !watch()) return false;
  if (group.promise(*made_, *window_ms() * 1'000'000)) DueFlusher::of_process().wake();
  return true;
}

int Connection::keep_promises() {
  const bool owes = node_ != nullptr && wal_.is_open() && window_ms().has_value() && node_->group.due_ns() != 0;
  return owes ? node_->group.flush(*this) : SQLITE_OK;
}

int Connection::persist() {
  if (!wal_.is_open()) return SQLITE_OK;
  return node_ != nullptr ? node_->group.flush(*this) : flush();
}

std::string Connection::describe() const {
  if (node_ == nullptr) return fmt::format("mode=shared control_block=none database={}", path_);
  const ControlBlock& control = node_->sidecar->control();
  const Position durable = Position::of(control.durable.load());
  return fmt::format(
      "mode=shared control_block=yes commits={} flushes={} durable_frame={} log_frames={} stored_frames={} pinned={} "
      "abandoned={} failed={} checkpoints_behind={} database={}",
      control.commits.load(), control.flushes.load(), durable.frame, newest().value_or(Position{}).frame,
      header_ != nullptr ? frames_stored() : 0, control.pinned.load(), control.abandoned.load(), control.failed.load(),
      node_->handover->ended(), path_);
}

}  // namespace memlith::sqlite::shared
