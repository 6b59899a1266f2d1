#include "store/checkpointer.hpp"

#include <algorithm>
#include <new>

#include "base/no_throw.hpp"
#include "store/archived.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kArchiveGrowthBytes = 8 * kMiB;  // of the log at a time, while it waits for an archiver
}  // namespace

// ---- pace ------------------------------------------------------------------------------------------------------

std::uint64_t Checkpointer::room_left(Lsn head) const {
  const std::uint64_t capacity = files_.log->capacity_bytes();
  return capacity - std::min(capacity, bytes_between(files_.log->tail().lsn, head));
}

void Checkpointer::Pacing::keep_pace(bool caller_waits) {
  const Lsn head = owner_.files_.log->head();
  std::uint64_t room = owner_.room_left(head);
  {
    // Mostly the caller wants memory back, which commits take meanwhile.
    const LockGuard lock(owner_.wake_mutex_);
    if (owner_.bringing_home_) room = std::min(room, bytes_between(owner_.files_.log->tail().lsn, head) / 2);
  }
  kept_.emplace(CheckpointPace(room), head, SteadyClock::now(), caller_waits);
}

std::uint64_t Checkpointer::Pacing::write_bytes_max() const {
  return kept_.has_value() ? CheckpointPace::kStepBytes : kWriteBytesMax;
}

std::uint64_t Checkpointer::Pacing::step_bytes(double home) {
  if (!flushes_) return ~0ull;
  owner_.show_progress(home);
  const std::uint64_t step = owner_.files_.options.home_flush_bytes;
  if (!kept_.has_value()) return step;
  kept_->pace.move(home, bytes_between(kept_->head_at_begin, owner_.files_.log->head()));
  return kept_->pace.step_bytes(step);
}

void Checkpointer::Pacing::pause() {
  if (!kept_.has_value()) return;
  if (kept_->caller_waits && owner_.files_.log->head() == kept_->head_at_begin) return;  // there are no commits
  const LockGuard lock(owner_.wake_mutex_);
  if (owner_.rest(kept_->pace.pause(SteadyClock::now() - kept_->begin))) kept_.reset();
}

bool Checkpointer::rest(std::chrono::nanoseconds time) {
  return wake_.wait_for(wake_mutex_, time, [this]() MEMLITH_REQUIRES(wake_mutex_) {
    return log_full_ || hurrying_ > 0 || stopping_ || others_wait();
  });
}

Checkpointer::Haste::Haste(Checkpointer& owner) : owner_(owner) {
  {
    const LockGuard lock(owner_.wake_mutex_);
    ++owner_.hurrying_;
  }
  owner_.wake_.notify_one();
}

Checkpointer::Haste::~Haste() {
  const LockGuard lock(owner_.wake_mutex_);
  MEMLITH_ASSERT(owner_.hurrying_ > 0);
  --owner_.hurrying_;
}

void Checkpointer::show_progress(double home) {
  if (publisher_ == nullptr) return;
  StatsPage& page = publisher_->page();
  const auto total = static_cast<double>(page.checkpoint_total_bytes.load(std::memory_order_relaxed));
  page.checkpoint_done_bytes.store(static_cast<std::uint64_t>(home * total), std::memory_order_relaxed);
  publisher_->note_change();
}

// ---- one checkpoint --------------------------------------------------------------------------------------------

template <typename Work>
Status Checkpointer::unless_poisoned(Work&& work) {
  // A superblock whose write failed may be on the medium nevertheless, and may have freed the frames that a second try
  // would write home: from now on home files are not written.
  MEMLITH_TRY(files_.log->failure());
  Status status = kOk;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = out_of_memory(Detail::object, " in a checkpoint");
  }
  if (is_lack(status)) {
    replay_->forget();
    return status;
  }
  if (!status.ok() && !files_.log->poisoned()) files_.log->poison(status);
  return status;
}

Status Checkpointer::run_unless_poisoned(Pacing& pacing, LogPosition to) {
  return unless_poisoned([&]() MEMLITH_REQUIRES(mutex_) { return run(pacing, to); });
}

// `to` is a durable place between two frames.
Status Checkpointer::run(Pacing& pacing, LogPosition to) {
  Log& log = *files_.log;
  const LogPosition tail = log.tail();
  MEMLITH_ASSERT(tail.lsn <= to.lsn);
  if (tail == to) {
    // The frames that requested it are not durable yet: the next commit asks again.
    ask_again_after(to.lsn, log.capacity_bytes() / 2);
    return kOk;
  }
  // Publishes the progress, and the end in every case.
  struct Progress {
    StatsPage* page;
    ~Progress() {
      if (page != nullptr) page->checkpoint_total_bytes.store(0, std::memory_order_relaxed);
    }
  } const progress{publisher_ != nullptr ? &publisher_->page() : nullptr};
  if (progress.page != nullptr) {
    progress.page->checkpoint_done_bytes.store(0, std::memory_order_relaxed);
    progress.page->checkpoint_total_bytes.store(bytes_between(tail.lsn, to.lsn), std::memory_order_relaxed);
  }
  MEMLITH_TRY_ASSIGN(to, write_homes(pacing, to));
  return free_frames(to);
}

LogPosition Checkpointer::written() const {
  const LogPosition tail = files_.log->tail();
  return written_.lsn > tail.lsn ? written_ : tail;
}

// Writes into the home files what they do not have yet, from where the last call ended. Older bytes are never written
// over newer ones: memory may be mapped to the home files, whose copy was given back. Returns how far, as gather().
Result<LogPosition> Checkpointer::write_homes(Pacing& pacing, LogPosition to) {
  MEMLITH_ASSERT(to.lsn <= files_.log->durable_lsn());  // log before home
  const LogPosition from = written();
  if (to.lsn <= from.lsn) return to;
  // ORDER shown-before-home: a process that follows the store takes what it sees to be durable, and copies home files.
  // It must not find bytes there of commits that it does not know to be durable. [mutant durable_not_shown]
  if (publisher_ != nullptr) publisher_->show_now();
  MEMLITH_TRY_ASSIGN(to, gather(from, to, pacing));
  // ORDER moment-before-home: a file that holds anything of these commits must say so. Otherwise an older log could be
  // replayed over them. [test Crash.EveryOperation]
  MEMLITH_TRY(replay_->note_moment(files_.log->tail(), to));
  MEMLITH_TRY(replay_->write_home(&pacing));
  if (!replay_->unreachable().empty()) {
    return fail(Errc::corrupt, Detail::object, "{}: the home file was removed or cut short while the store was open",
                files_.volume.path_of(files_.names.home(replay_->unreachable().begin()->first)));
  }
  files_.dead.forget_before(to.lsn);
  written_ = to;
  return to;
}

// Reads the frames back into the overlay, and writes the overlay home whenever it is too large for memory. Returns how
// far: to the end of a frame, which lies before `to` if the pace limits the pages.
Result<LogPosition> Checkpointer::gather(LogPosition from, LogPosition to, Pacing& pacing) {
  replay_->begin();
  LogReader reader = files_.log->reader(from, to.lsn);
  const DeadBytes::ByCommit dead = files_.dead.all();
  auto next_dead = dead.begin();
  while (reader.position().lsn < to.lsn) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame.has_value()) {
      return fail(Errc::corrupt, Detail::frame, "{}: the log cannot be read back at LSN {}, which was durable: {}",
                  files_.log_device->path(), reader.position().lsn.value, reader.why());
    }
    // ORDER dead-in-its-place: bytes are dropped where the commit stands that gave them up, and before the rest of its
    // frame, which may use them again. A commit that this checkpoint does not reach may be lost, and then the bytes
    // that it gave up are needed. [mutant dead_bytes_early] [mutant dead_bytes_late]
    for (; next_dead != dead.end() && next_dead->first <= reader.position().lsn; ++next_dead) {
      replay_->drop(next_dead->second);
    }
    MEMLITH_TRY(replay_->gather(*frame).status());
    replay_->note_gathered(static_cast<double>(bytes_between(from.lsn, reader.position().lsn)) /
                           static_cast<double>(bytes_between(from.lsn, to.lsn)));
    if (replay_->overlay().page_count() >= pacing.pages()) {
      replay_->note_gathered(1);
      return reader.position();
    }
    if (replay_->is_full()) {
      MEMLITH_TRY(replay_->note_moment(files_.log->tail(), to));
      MEMLITH_TRY(replay_->write_home(&pacing));
    }
  }
  MEMLITH_ASSERT(reader.position() == to);
  return to;
}

// The home files are written, now and since the last checkpoint: everything before `to` leaves the log.
Status Checkpointer::free_frames(LogPosition to) {
  // ORDER home-before-tail: frames are freed only when their bytes are durable in the home files. [mutant
  // home_not_flushed_by_checkpoint] [mutant written_home_not_flushed]
  MEMLITH_TRY(replay_->flush_homes());
  has_unflushed_homes_.store(false, std::memory_order_relaxed);
  MEMLITH_TRY(replay_->flush_sums());
  replay_->assert_at_rest();
  MEMLITH_ASSERT(to.lsn >= files_.log->tail().lsn);
  // ORDER home-before-moment, moment-before-tail: the log frees only commits that the file holds and says that it
  // holds. [test Crash.EveryOperation]
  MEMLITH_TRY(replay_->note_moment(to, written()));
  if (closing_) {
    MEMLITH_ASSERT(!home_.has_value() || home_->lsn <= to.lsn);
    home_ = to;
  } else {
    MEMLITH_TRY(files_.log->trim(to, directory_.client_bytes()));
  }
  files_.counters.checkpoints.fetch_add(1, std::memory_order_relaxed);
  if (publisher_ != nullptr) publisher_->publish();
  ask_again_after(to.lsn, files_.log->capacity_bytes() / 2);
  return kOk;
}

// ---- for callers -----------------------------------------------------------------------------------------------

Status Checkpointer::checkpoint() {
  return checkpoint_and([] { return kOk; });
}

Status Checkpointer::checkpoint_and(const std::function<Status()>& act) {
  const Haste haste(*this);
  const LockGuard lock(mutex_);
  if (!files_.read_only()) {
    Pacing hurried(*this);
    MEMLITH_TRY(run_unless_poisoned(hurried, files_.log->durable()));
  }
  return act();
}

Result<LogPosition> Checkpointer::checkpoint_for_close() {
  const LockGuard lock(mutex_);
  const Log& log = *files_.log;
  if (!home_.has_value() || *home_ != log.durable()) {
    closing_ = true;
    Pacing hurried(*this);
    const Status status = run_unless_poisoned(hurried, log.durable());
    closing_ = false;
    MEMLITH_TRY(status);
  }
  const LogPosition tail = log.tail();
  MEMLITH_ASSERT(!home_.has_value() || home_->lsn <= log.durable_lsn());
  return home_.has_value() && home_->lsn > tail.lsn ? *home_ : tail;
}

Status Checkpointer::between_checkpoints(const std::function<Status()>& act) {
  const LockGuard lock(mutex_);
  return act();
}

void Checkpointer::set_bringing_home(bool now) {
  const LockGuard lock(wake_mutex_);
  bringing_home_ = now;
}

Status Checkpointer::bring_home(Lsn end) {
  std::optional<Haste> waits(std::in_place, *this);  // for the end of a checkpoint that runs
  const LockGuard lock(mutex_);
  waits.reset();
  if (files_.log->tail().lsn >= end) return kOk;
  set_bringing_home(true);
  Pacing pacing(*this);
  pacing.keep_pace(true);
  const Status status = run_unless_poisoned(pacing, files_.log->durable());
  set_bringing_home(false);
  return status;
}

Status Checkpointer::write_home(Lsn end) {
  std::optional<Haste> waits(std::in_place, *this);  // for the end of a checkpoint that runs
  const LockGuard lock(mutex_);
  waits.reset();
  if (written().lsn >= end) return kOk;
  Pacing pacing(*this);
  pacing.leave_unflushed();
  has_unflushed_homes_.store(true, std::memory_order_relaxed);
  return unless_poisoned([&]()
                             MEMLITH_REQUIRES(mutex_) { return write_homes(pacing, files_.log->durable()).status(); });
}

// ---- for commits -----------------------------------------------------------------------------------------------

void Checkpointer::start(Background& background, StatsPublisher& publisher) {
  background_ = &background;
  publisher_ = &publisher;
  if (files_.options.manual_checkpoint) {
    files_.log->set_relieve([this] { return run_once(Need::now); });
    return;
  }
  files_.log->set_relieve([this] { return make_room(); });
  ask_again_after(files_.log->tail().lsn, files_.log->capacity_bytes() / 2);
  const LockGuard lock(mutex_);
  grower_.start();
}

void Checkpointer::stop() {
  if (background_ == nullptr) return;
  {
    const LockGuard lock(wake_mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  background_->checkpoints.withdraw(job_);
  background_ = nullptr;
}

void Checkpointer::wake_at(Lsn end) {
  if (files_.options.manual_checkpoint || end.value < trigger_lsn_.load(std::memory_order_relaxed)) return;
  trigger_lsn_.store(kAsked, std::memory_order_relaxed);  // once; the checkpoint sets the next
  if (background_->checkpoints.want(job_, SteadyClock::now())) return;
  // No thread can be started: a later commit tries again. A commit that finds the log full needs none.
  ask_again_after(end, files_.log->capacity_bytes() / 8);
}

bool Checkpointer::look_for_idle(Lsn newest) {
  const Log& log = *files_.log;
  if (files_.options.manual_checkpoint || log.poisoned()) return false;
  const Lsn head = log.head();
  const std::uint64_t waiting = bytes_between(log.tail().lsn, head);
  const auto next = idle_watch_.look(newest, log.durable_lsn(), waiting, log.capacity_bytes());
  if (next == IdleWatch::Next::begin) {
    idle_at_.store(head.value, std::memory_order_relaxed);
    (void)background_->checkpoints.want(job_, SteadyClock::now());  // without a thread, later
  }
  return next == IdleWatch::Next::look_again;
}

Status Checkpointer::run_while_idle() {
  idle_at_.store(files_.log->head().value, std::memory_order_relaxed);
  return run_unless_running(Need::idle);
}

std::optional<Workers::Time> Checkpointer::work() {
  const bool asked = trigger_lsn_.load(std::memory_order_relaxed) == kAsked;
  (void)run_unless_running(asked ? Need::soon : Need::idle);
  return std::nullopt;
}

Status Checkpointer::run_unless_running(Need need) {
  {
    const LockGuard lock(wake_mutex_);
    if (stopping_ || running_) return kOk;
    running_ = true;
  }
  return run_for_all(need);
}

Status Checkpointer::make_room() {
  {
    const LockGuard lock(wake_mutex_);
    log_full_ = running_ || bringing_home_;
    if (log_full_) wake_.notify_one();
    if (running_) return kOk;
    running_ = true;
  }
  return run_for_all(Need::now);
}

// Checkpoints until no commit waits for room, nor an idle store for the next piece. The caller has set running_.
Status Checkpointer::run_for_all(Need need) {
  for (;;) {
    const Lsn tail = files_.log->tail().lsn;
    const Status status = need == Need::idle && !is_idle() ? kOk : run_once(need);
    const LockGuard lock(wake_mutex_);
    assert_state();
    log_full_ = false;
    const bool goes_on = need == Need::idle && status.ok() && is_idle() && files_.log->tail().lsn > tail &&
                         hurrying_ == 0 && !others_wait();
    const bool waits = files_.log->room_is_waited_for();
    if (stopping_ || files_.log->poisoned() || !(waits || goes_on)) {
      running_ = false;
      return status;
    }
    if (waits) need = Need::now;
  }
}

// One checkpoint, for commits that wait for room or for those to come, or one piece of one.
Status Checkpointer::run_once(Need need) {
  const LockGuard lock(mutex_);
  Log& log = *files_.log;
  Status status = kOk;
  try {
    status = need == Need::idle ? run_piece() : grow_or_run(need);
  } catch (const std::bad_alloc&) {
    status = out_of_memory(Detail::object, " before a checkpoint");
  }
  if (is_lack(status)) {
    // A later commit may find memory again. Commits that wait for room get the failure, and lose nothing.
    log.refuse_room(status);
    ask_again_after(log.head(), log.capacity_bytes() / 8);
  } else if (!status.ok() && !log.poisoned()) {
    log.poison(status);  // which informs the waiting threads
  }
  return status;
}

// A commit that comes meanwhile finds a checkpoint that gives way to it, and that is over soon.
Status Checkpointer::run_piece() {
  Log& log = *files_.log;
  const LogPosition durable = log.durable();
  const auto wait = look_for_archiver(files_.volume, files_.names.archived, log.log_id());
  if (wait.has_value() && wait->keep_bytes > 0 && wait->archived < durable.lsn) return kOk;  // the log is to keep that
  if (log.tail() == durable) return kOk;
  Pacing pacing(*this);
  pacing.keep_pace(true);
  pacing.set_pages(files_.options.idle_pages);
  return run_unless_poisoned(pacing, durable);
}

Status Checkpointer::grow_or_run(Need need) {
  if (grow_log()) return kOk;
  const std::optional<LogPosition> to = end_for_commits();
  if (!to.has_value()) return kOk;
  Pacing pacing(*this);
  if (need == Need::soon) pacing.keep_pace(false);
  return run_unless_poisoned(pacing, *to);
}

// True: there is room again, so that nothing needs to go home yet.
bool Checkpointer::grow_log() {
  const bool has_room = grower_.grow([this](std::chrono::nanoseconds time) {
    const LockGuard lock(wake_mutex_);
    (void)rest(time);
    return hurrying_ > 0 || stopping_;
  });
  if (!has_room) return false;
  if (publisher_ != nullptr) publisher_->publish();
  ask_again_after(files_.log->tail().lsn, files_.log->capacity_bytes() / 2);
  return true;
}

// ---- for an archiver -------------------------------------------------------------------------------------------

std::optional<LogPosition> Checkpointer::end_for_commits() {
  Log& log = *files_.log;
  const LogPosition durable = log.durable();
  const auto wait = look_for_archiver(files_.volume, files_.names.archived, log.log_id());
  if (!wait.has_value() || wait->keep_bytes == 0 || wait->archived >= durable.lsn) return durable;
  // A checkpoint to there frees at least one slot, so commits that wait for room do not wait in vain.
  const bool frees = log.geometry().segment_of(wait->archived) > log.geometry().segment_of(log.tail().lsn);
  const bool enough = frees && bytes_between(wait->archived, log.head()) <= log.capacity_bytes() / 2;
  if (!enough && grow_for_archive(wait->keep_bytes)) return std::nullopt;
  if (!frees) return durable;  // the limit: what is overwritten from now on is a gap in the archive, which names it
  const LogPosition to = last_before(wait->archived);
  MEMLITH_ASSERT(log.tail().lsn <= to.lsn && to.lsn <= durable.lsn);
  return log.geometry().segment_of(to.lsn) > log.geometry().segment_of(log.tail().lsn) ? to : durable;
}

// A step at a time. False: the log has the size that the archiver asked for, or that it may have, or the disk is full.
bool Checkpointer::grow_for_archive(std::uint64_t keep_bytes) {
  Log& log = *files_.log;
  const std::uint64_t slot_bytes = log.geometry().slot_bytes;
  const std::uint64_t slots = log.capacity_bytes() / log.geometry().segment_bytes();
  const std::uint64_t most = std::min(keep_bytes / slot_bytes, log.slot_count_max());
  if (slots >= most) return false;
  const std::uint64_t step = std::min(std::max<std::uint64_t>(1, kArchiveGrowthBytes / slot_bytes), most - slots);
  MEMLITH_ASSERT(step > 0 && slots + step <= log.slot_count_max());
  if (!log.grow(step).ok()) return false;
  if (publisher_ != nullptr) publisher_->publish();
  ask_again_after(log.head(), step * slot_bytes / 2);
  return true;
}

// The end of the newest frame before `end`.
LogPosition Checkpointer::last_before(Lsn end) const {
  LogReader reader = files_.log->reader(files_.log->tail(), end);
  for (;;) {
    const auto frame = reader.next();
    if (!frame.ok() || !frame->has_value()) return reader.position();  // what is damaged, the checkpoint finds
  }
}

// A commit waits only while a checkpoint makes room for it.
void Checkpointer::assert_state() const { MEMLITH_ASSERT(running_); }

}  // namespace memlith::core
