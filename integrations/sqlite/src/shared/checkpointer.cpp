#include "checkpointer.hpp"

#include <pthread.h>

#include <chrono>
#include <climits>
#include <mutex>
#include <new>
#include <utility>

#include "connection.hpp"

namespace memlith::sqlite::shared {

using core::LockGuard;

namespace {

// One round leaves the commits that came meanwhile, and the next has only those.
constexpr int kRounds = 8;
// For how long connections do what SQLite does where something failed: a full disk, a file that has no descriptor.
constexpr std::uint64_t kFailurePauseNs = 60'000'000'000;
// How long the thread waits for the next one before it ends.
constexpr auto kIdle = std::chrono::seconds(1);
// How long a process that ends waits for a checkpoint under way.
constexpr auto kExit = std::chrono::seconds(1);

OneOfProcess<Checkpointer> g_checkpointer;
// Held while the thread is in SQLite, and while the process forks: otherwise the child would have mutexes of SQLite
// that no thread of its own unlocks.
std::mutex g_in_sqlite;
thread_local bool t_opens = false;

// Ends the handover.
void checkpoint_in_rounds(const Checkpoint& checkpoint) {
  const Api& api = checkpoint.opener.api;
  sqlite3* db = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  t_opens = true;
  int code = api.open_v2(checkpoint.path.c_str(), &db, kFlags, checkpoint.opener.vfs.c_str());
  t_opens = false;
  // SQLite opens the log with the first transaction.
  if (code == SQLITE_OK) code = api.exec(db, "PRAGMA schema_version", nullptr, nullptr, nullptr);
  int stored = static_cast<int>(checkpoint.stored);
  int frames = INT_MAX;
  bool advances = true;
  for (int i = 0; i < kRounds && code == SQLITE_OK && advances && stored < frames; ++i) {
    if (i > 0 && checkpoint.handover->is_held()) break;
    const int before = stored;
    code = api.wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, &frames, &stored);
    advances = stored != before;
  }
  (void)api.close(db);
  const bool failed = code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY;
  const bool pinned = code == SQLITE_OK && stored < frames && stored == static_cast<int>(checkpoint.stored);
  checkpoint.handover->end(failed ? kFailurePauseNs : 0, pinned);
}

}  // namespace

// ---- handover ------------------------------------------------------------------------------------------------------

bool Handover::begin() {
  if (now_ns() < not_before_ns_.load(std::memory_order_relaxed) || in_hand_.exchange(true)) return false;
  // Hold looks in the other order.
  if (!is_held()) return true;
  in_hand_ = false;
  return false;
}

void Handover::end(std::uint64_t pause_ns, bool pinned) {
  if (pinned) pinned_ = true;
  not_before_ns_.store(pause_ns != 0 ? now_ns() + pause_ns : 0, std::memory_order_relaxed);
  ended_.fetch_add(1, std::memory_order_relaxed);
  in_hand_ = false;
}

void Handover::wait() const {
  constexpr auto kLook = std::chrono::microseconds(50);
  while (is_in_hand()) core::shm::sleep(kLook);
}

Handover::Hold::Hold(Handover& handover) : handover_(handover) {
  handover_.holds_.fetch_add(1);
  handover_.wait();
}

// ---- the thread ----------------------------------------------------------------------------------------------------

bool take_opens_for_checkpoint() { return std::exchange(t_opens, false); }

void make_checkpoint(const Checkpoint& checkpoint) {
  try {
    checkpoint_in_rounds(checkpoint);
  } catch (const std::bad_alloc&) {
    checkpoint.handover->end(kFailurePauseNs);
  }
}

Checkpointer& Checkpointer::of_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    (void)Registry::get();  // whose lock the thread takes inside of SQLite: it is taken after this one in a fork, too
    ::pthread_atfork([] { g_in_sqlite.lock(); }, [] { g_in_sqlite.unlock(); }, [] { g_in_sqlite.unlock(); });
  });
  return g_checkpointer.get();
}

bool Checkpointer::can_use(const Api& api) {
  if (api.open_v2 == nullptr || api.close == nullptr || api.exec == nullptr || api.wal_checkpoint_v2 == nullptr ||
      api.threadsafe == nullptr || api.mutex_alloc == nullptr || api.threadsafe() == 0) {
    return false;
  }
  // With SQLITE_CONFIG_SINGLETHREAD all mutexes are this one.
  constexpr std::uintptr_t kNoMutex = 8;
  return reinterpret_cast<std::uintptr_t>(api.mutex_alloc(SQLITE_MUTEX_STATIC_MASTER)) > kNoMutex;
}

bool Checkpointer::take(Checkpoint checkpoint) {
  const LockGuard guard(mutex_);
  if (ends_) return false;
  if (!runs_) runs_ = start_thread([this] { run(); });
  if (!runs_) return false;
  wanted_.push_back(std::move(checkpoint));
  changed_.notify_all();
  return true;
}

void Checkpointer::run() {
  const LockGuard guard(mutex_);
  const auto is_wanted = [this]() MEMLITH_REQUIRES(mutex_) { return !wanted_.empty(); };
  while (changed_.wait_for(mutex_, kIdle, is_wanted)) make_next();
  runs_ = false;
}

void Checkpointer::make_next() {
  const Checkpoint next = std::move(wanted_.front());
  wanted_.pop_front();
  works_ = true;
  mutex_.unlock();
  {
    const std::lock_guard in_sqlite(g_in_sqlite);
    make_checkpoint(next);
  }
  mutex_.lock();
  works_ = false;
  changed_.notify_all();
}

// The process may destroy objects at its end that SQLite still uses.
void Checkpointer::at_exit() {
  Checkpointer* const self = g_checkpointer.find();
  if (self == nullptr || !self->mutex_.try_lock()) return;
  const LockGuard guard(self->mutex_, std::adopt_lock);
  self->ends_ = true;
  for (const Checkpoint& each : self->wanted_) each.handover->end();
  self->wanted_.clear();
  (void)self->changed_.wait_for(self->mutex_, kExit, [self]() MEMLITH_REQUIRES(self->mutex_) { return !self->works_; });
}

}  // namespace memlith::sqlite::shared
