// Commit and checkpoint of a store. Opening is in open.cpp, the directory of objects in directory.cpp, replay in replay.cpp.
#include "store/store.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/mutant.hpp"
#include "base/process.hpp"
#include "store/log_growth.hpp"

namespace memlith::core {

namespace {
constexpr std::chrono::microseconds kLookEvery{100};
constexpr std::chrono::milliseconds kShowEvery{50};
constexpr std::uint64_t kGrowthStepBytes = 8 * kMiB;
}  // namespace

Store::~Store() {
  const KeptSentence why;  // of the close that failed, perhaps
  stop_jobs();
  drop_stats();  // of a store that could not be closed
}

void Store::stop_jobs() {
  if (background_ == nullptr) return;
  if (in_forked_child()) {
    // Their threads stayed with the parent, which may have held their locks: they are left as they are, for ever.
    (void)new (std::nothrow) std::shared_ptr<Background>(std::move(background_));
    return;
  }
  {
    const std::lock_guard lock(flush_mutex_);
    flush_stopping_ = true;
  }
  flush_wake_.notify_one();
  background_->flushes.withdraw(flush_job_);
  {
    const std::lock_guard lock(wake_mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  background_->checkpoints.withdraw(checkpoint_job_);
  background_->shows.withdraw(show_job_);
  background_ = nullptr;  // the threads end with the last store of the process
}

bool Store::in_forked_child() const { return process_mark_ != 0 && process_mark_ != process_mark(); }

Status Store::check_process() const {
  if (!in_forked_child()) return kOk;
  return fail(Errc::invalid, Detail::open,
              "{}: this process was forked from the one that opened the store (process {}); it may use snapshots that "
              "were made before the fork, and the memory that it inherited, which changes with the parent's "
              "checkpoints",
              path(), process_);
}

Status Store::close() {
  MEMLITH_TRY(finish());
  file_lock_ = nullptr;
  lock_ = nullptr;
  return kOk;
}

Status Store::close_and_remove_log() {
  MEMLITH_ASSERT(one_file());
  MEMLITH_TRY(finish());
  // ORDER remove-before-unlock: or who opens the store in between goes on with a log that has no name. [sqlite/files]
  const Status removed = remove_log();
  file_lock_ = nullptr;
  lock_ = nullptr;
  // Whoever gave up the right to remove it leaves it, closed as it is.
  return removed.category == Errc::permission ? kOk : removed;
}

Status Store::finish() {
  MEMLITH_TRY(check_process());
  MEMLITH_ASSERT(!closed_);
  closed_ = true;
  stop_jobs();
  if (read_only()) return kOk;
  MEMLITH_TRY(log_->sync(log_->head()));
  if (!MEMLITH_MUTANT(close_without_checkpoint)) MEMLITH_TRY(checkpoint());
  MEMLITH_TRY(cut_home_to_size());
  MEMLITH_TRY(log_->close(client_bytes()));
  const Status dropped = drop_blocks();  // a clean log needs none, and no later tail is where theirs was
  drop_stats();
  return dropped;
}

// They tell of an open store. Whoever has the lock may take their file away; no harm if it stays.
void Store::drop_stats() {
  if (!stats_.has_value() || in_forked_child()) return;
  stats_->remove();
  stats_.reset();
}

Status Store::cut_home_to_size() {
  if (!one_file()) return kOk;
  const std::lock_guard lock(checkpoint_mutex_);
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size == home_file_record_.size_bytes) return kOk;  // else grown, and never persisted
  MEMLITH_TRY(file->truncate(home_file_record_.size_bytes));
  return MEMLITH_MUTANT(truncate_not_flushed_by_close) ? kOk : file->flush();
}

// ---- statistics --------------------------------------------------------------------------------------------------

std::string Store::stats_name(StoreKind kind, const std::string& file_name) {
  return LiveStats::name_beside(kind == StoreKind::one_file ? file_log_name(file_name) : "log");
}

void Store::publish_stats() {
  if (!stats_.has_value()) return;
  StatsPage& page = **stats_;
  const auto copy = [](Counter& to, std::uint64_t value) { to.store(value, std::memory_order_relaxed); };
  copy(page.frames, log_->counters().frames.load(std::memory_order_relaxed));
  copy(page.batches, log_->counters().batches.load(std::memory_order_relaxed));
  copy(page.logged_bytes, log_->counters().bytes.load(std::memory_order_relaxed));
  copy(page.captured_bytes, counters_.captured_bytes.load(std::memory_order_relaxed));
  copy(page.captured_pages, counters_.captured_pages.load(std::memory_order_relaxed));
  copy(page.last_captured_pages, counters_.last_captured_pages.load(std::memory_order_relaxed));
  copy(page.checkpoints, counters_.checkpoints.load(std::memory_order_relaxed));
  copy(page.home_bytes, counters_.home_bytes.load(std::memory_order_relaxed));
  copy(page.log_bytes, log_->capacity_bytes());
  copy(page.log_used_bytes, log_->used_bytes());
  copy(page.durable_lsn, log_->durable_lsn().value);
  copy(page.poisoned, log_->poisoned() ? 1 : 0);
  note_change_of_stats();
}

void Store::note_change_of_stats() {
  if (background_ == nullptr || !stats_->shown()) return;
  stats_changes_.fetch_add(1);
  if (!show_idle_.load() || !show_idle_.exchange(false)) return;
  if (!background_->shows.want(show_job_, SteadyClock::now())) show_idle_.store(true);
}

// Shows the counters while they change, and costs nothing while they do not.
std::optional<Workers::Time> Store::show_step() {
  const std::uint64_t seen = stats_changes_.load();
  stats_->show();  // may take a while, and commits tell of changes meanwhile
  if (std::exchange(stats_shown_, seen) == seen) {
    // What was counted just behind the last change was shown by now.
    show_idle_.store(true);
    if (stats_changes_.load() == seen || !show_idle_.exchange(false)) return std::nullopt;
  }
  return SteadyClock::now() + kShowEvery;
}

// ---- what others are told --------------------------------------------------------------------------------------

void Store::set_durable_eventfd(int fd) {
  const std::lock_guard lock(durable_eventfd_mutex_);
  durable_eventfd_.store(fd, std::memory_order_relaxed);
}

void Store::tell_durable() {
  publish_stats();
  if (durable_eventfd_.load(std::memory_order_relaxed) < 0) return;
  // Its owner may close it as soon as it is replaced, and the number be another file's then.
  const std::lock_guard lock(durable_eventfd_mutex_);
  const int fd = durable_eventfd_.load(std::memory_order_relaxed);
  if (fd >= 0) (void)::eventfd_write(fd, 1);
}

// ---- homes -----------------------------------------------------------------------------------------------------

Result<Device*> Store::home(ObjectId id) {
  const std::lock_guard lock(homes_mutex_);
  if (const auto found = homes_.find(id); found != homes_.end()) return found->second.get();
  const OpenMode mode = read_only() ? OpenMode::read_only : OpenMode::read_write;
  MEMLITH_TRY_ASSIGN(auto device, volume_.open(home_name(id), mode, Caching::buffered));
  return (homes_[id] = std::move(device)).get();
}

// Null where there is none. One that is open is not looked up by name: the right to do so may have been given up since.
Result<Device*> Store::home_if_there(ObjectId id) {
  auto found = home(id);
  if (!found.ok() && found.error().category == Errc::not_found) return static_cast<Device*>(nullptr);
  return found;
}

Status Store::match_permissions(Device& other) {
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  return other.match_permissions(*file);
}

Result<bool> Store::file_has_its_name() {
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, file->identity());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, volume_.identity_of(options_.file_name));
  return named == own;
}

Status Store::remove_log() { return volume_.remove_own(log_name(), *log_device_); }

Result<int> Store::home_descriptor(ObjectId id) {
  MEMLITH_TRY_ASSIGN(Device* const device, home(id));
  return device->mapping_descriptor();
}

std::shared_ptr<Atomic<std::uint64_t>> Store::committed_lsn(ObjectId id) {
  const std::lock_guard lock(directory_mutex_);
  const Entry* const entry = find_entry(id);
  MEMLITH_ASSERT(entry != nullptr);
  return entry->committed_lsn;
}

Result<std::vector<std::byte>> Store::read_home(ObjectId id) {
  std::uint64_t size = 0;
  {
    const std::lock_guard lock(directory_mutex_);
    const Entry* const entry = find_entry(id);
    if (entry == nullptr) return fail(Errc::not_found, Detail::object, "{}: there is no object {}", path(), id.value);
    size = entry->info.size_bytes;
  }
  MEMLITH_TRY_ASSIGN(Device* const device, home(id));
  std::vector<std::byte> bytes(size);
  MEMLITH_TRY(device->read(0, bytes));
  return bytes;
}

Status Store::read_home_into(ObjectId id, std::uint64_t offset, std::span<std::byte> target) {
  MEMLITH_TRY_ASSIGN(Device* const device, home(id));
  return device->read(offset, target);
}

// ---- commit ----------------------------------------------------------------------------------------------------

namespace {

std::uint64_t captured_bytes(std::span<const Extent> extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

std::uint64_t captured_pages(std::span<const Extent> extents) {
  std::uint64_t pages = 0;
  ObjectId object = kDirectory;
  std::uint64_t uncounted = 0;  // its first page that is not counted yet
  for (const Extent& extent : extents) {
    const std::uint64_t begin = extent.offset / kPageBytes;
    const std::uint64_t end = (extent.offset + extent.bytes - 1) / kPageBytes + 1;
    // Those of a region come in order; several may lie in a page.
    pages += end - (extent.object == object && begin + 1 == uncounted ? uncounted : begin);
    object = extent.object;
    uncounted = end;
  }
  return pages;
}

}  // namespace

std::uint64_t Store::commit_bytes(std::span<const Extent> extents, std::span<const SizeChange> sizes) const {
  const std::uint64_t size_record_bytes = one_file() ? sizeof(ObjectRecord) : kDirectoryEntryBytes;
  const std::uint64_t count = extents.size() + sizes.size();
  return sizeof(CommitHeader) + count * sizeof(ExtentRecord) + sizes.size() * size_record_bytes +
         captured_bytes(extents);
}

Result<FrameWriter> Store::begin_commit(std::span<const Extent> extents, std::span<const SizeChange> sizes,
                                        bool will_sync) {
  MEMLITH_TRY(check_process());
  if (MEMLITH_MUTANT(size_not_logged)) sizes = {};
  MEMLITH_TRY_ASSIGN(FrameWriter writer, log_->begin(commit_bytes(extents, sizes), kFrameKindCommit, will_sync));
  put_commit_header(writer, extents, sizes);
  return writer;
}

Result<Lsn> Store::put_bytes(FrameWriter& writer, const Changes& changes) {
  const std::size_t count = changes.extents.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t ahead = std::min(i + 1, count - 1);
    writer.put(changes.sources[i], changes.extents[i].bytes, {changes.sources[ahead], changes.extents[ahead].bytes});
  }
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  finished(end);
  return end;
}

Result<Lsn> Store::commit_async(const Changes& changes, bool will_sync) {
  MEMLITH_TRY_ASSIGN(FrameWriter writer, begin_commit(changes.extents, changes.sizes, will_sync));
  return put_bytes(writer, changes);
}

Result<std::optional<Lsn>> Store::commit_async_at_once(const Changes& changes, bool will_sync) {
  MEMLITH_TRY(check_process());
  const auto sizes = MEMLITH_MUTANT(size_not_logged) ? std::span<const SizeChange>{} : changes.sizes;
  MEMLITH_TRY_ASSIGN(std::optional<FrameWriter> writer,
                     log_->begin_at_once(commit_bytes(changes.extents, sizes), kFrameKindCommit, will_sync));
  if (!writer.has_value()) return std::optional<Lsn>();
  put_commit_header(*writer, changes.extents, sizes);
  MEMLITH_TRY_ASSIGN(const Lsn end, put_bytes(*writer, changes));
  return std::optional(end);
}

Status Store::commit(const Changes& changes) {
  MEMLITH_TRY_ASSIGN(const Lsn end, commit_async(changes, true));
  return sync(end);
}

Status Store::make_room(const Changes& changes, bool will_sync) {
  return log_->make_room(commit_bytes(changes.extents, changes.sizes), will_sync);
}

Status Store::failure() const {
  if (!log_->poisoned()) return kOk;
  MEMLITH_TRY(check_process());
  return log_->failure();
}

// The commit's records, and the sizes. The caller's bytes follow.
void Store::put_commit_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes) {
  const std::uint64_t size_record_bytes = one_file() ? sizeof(ObjectRecord) : kDirectoryEntryBytes;
  const std::uint64_t count = extents.size() + sizes.size();
  const std::uint64_t pages = captured_pages(extents);
  counters_.captured_bytes.fetch_add(captured_bytes(extents), std::memory_order_relaxed);
  counters_.captured_pages.fetch_add(pages, std::memory_order_relaxed);
  counters_.last_captured_pages.store(pages, std::memory_order_relaxed);

  // The sizes go first, so that the caller's bytes follow everything that is written here.
  const CommitHeader header{static_cast<std::uint32_t>(count), 0};
  writer.put(&header, sizeof header);
  std::unique_lock<Mutex> directory_lock(directory_mutex_, std::defer_lock);
  if (!sizes.empty()) directory_lock.lock();
  for (const SizeChange& change : sizes) {
    const Entry* const entry = find_entry(change.object);
    MEMLITH_ASSERT(entry != nullptr);
    const ExtentRecord record{kDirectory.value, static_cast<std::uint32_t>(size_record_bytes),
                              one_file() ? 0 : entry->slot * kDirectoryEntryBytes};
    writer.put(&record, sizeof record);
  }
  for (const Extent& extent : extents) {
    MEMLITH_ASSERT(extent.bytes <= ~std::uint32_t{0});
    const ExtentRecord record{extent.object.value, static_cast<std::uint32_t>(extent.bytes), extent.offset};
    writer.put(&record, sizeof record);
  }
  for (const SizeChange& change : sizes) {
    Entry* const entry = find_entry(change.object);
    entry->info.size_bytes = change.size_bytes;
    if (one_file()) {
      file_record_.size_bytes = change.size_bytes;
      writer.put(&file_record_, sizeof file_record_);
    } else {
      const DirectoryEntry bytes = entry_bytes(entry->info);
      writer.put(&bytes, sizeof bytes);
    }
  }
}

void Store::finished(Lsn end) {
  if (options_.manual_checkpoint || end.value < trigger_lsn_.load(std::memory_order_relaxed)) return;
  trigger_lsn_.store(~0ull, std::memory_order_relaxed);  // once; the checkpoint sets the next
  want_checkpoint(end);
}

void Store::want_checkpoint(Lsn end) {
  if (background_->checkpoints.want(checkpoint_job_, SteadyClock::now())) return;
  // No thread is to be had: some commits later, perhaps. A commit that finds the log full needs none.
  trigger_lsn_.store(end.value + log_->capacity_bytes() / 8, std::memory_order_relaxed);
}

// ---- flushing in the background ------------------------------------------------------------------------------------

void Store::flush_soon(Lsn lsn) {
  if (options_.manual_flush || log_->durable_lsn() >= lsn) return;
  bool taken = true;
  bool wake = false;
#ifdef MEMLITH_MUTANTS
  const bool queued_before = flush_queued_;
#endif
  {
    const std::lock_guard lock(flush_mutex_);
    flush_target_ = std::max(flush_target_, lsn);
    const bool too_much =
        bytes_between(std::min(log_->durable_lsn(), flush_target_), flush_target_) > flush_window_.bytes;
    bool queued = flush_queued_;
#ifdef MEMLITH_MUTANTS
    if (MEMLITH_MUTANT(asleep_asked_outside_lock)) queued = queued_before;
#endif
    if (!queued || (too_much && !flush_now_)) {
      flush_now_ = flush_now_ || too_much;
      const std::chrono::milliseconds window(flush_now_ ? 0 : flush_window_.interval_ms);
      taken = background_->flushes.want(flush_job_, SteadyClock::now() + window);
      flush_queued_ = taken;
      wake = queued;
    }
  }
  if (wake) flush_wake_.notify_one();
  if (!taken) (void)log_->sync(lsn);  // no thread is to be had: sooner than it need be, and a failure poisons
}

void Store::set_flush_window(FlushWindow window) {
  {
    const std::lock_guard lock(flush_mutex_);
    flush_window_ = window;
    if (!flush_queued_) return;
    flush_now_ = true;  // what waits under the old window waits no longer
    (void)background_->flushes.want(flush_job_, SteadyClock::now());
  }
  flush_wake_.notify_one();
}

// The window of a commit begins when the job hears of it, with nothing else waiting; at the latest at its next look.
// A failed flush has poisoned the log, which tells everybody; there is nothing left to do then.
std::optional<Workers::Time> Store::flush_step() {
  UniqueLock lock(flush_mutex_);
  const auto wanted = [this] { return flush_stopping_ || flush_target_ > log_->durable_lsn(); };
  while (!flush_stopping_ && !log_->poisoned()) {
    flush_now_ = false;
    const Lsn target = flush_target_;
    lock.unlock();
    (void)log_->sync(target);
    lock.lock();
    // Not done yet: nobody has to wake a thread for the next one, which takes longer than all the rest of an asynchronous persist.
    for (std::uint32_t look = 0; look < options_.flusher_looks && !wanted(); ++look) {
      if (background_->flushes.crowded()) break;
      flush_wake_.wait_for(flush_mutex_, kLookEvery, wanted);
    }
    if (!wanted()) {
      flush_queued_ = false;
      return std::nullopt;
    }
    if (flush_window_.interval_ms > 0 && !flush_now_) {
      return SteadyClock::now() + std::chrono::milliseconds(flush_window_.interval_ms) - kLookEvery;
    }
    if (background_->flushes.crowded()) return SteadyClock::now();
  }
  return std::nullopt;
}

// ---- checkpoint ------------------------------------------------------------------------------------------------

Status Store::checkpoint() {
  MEMLITH_TRY(check_process());
  if (read_only()) return fail(Errc::read_only, Detail::open, "{}: the store was opened read-only", path());
  const Haste haste(*this);
  const std::lock_guard lock(checkpoint_mutex_);
  return checkpoint_unless_poisoned();
}

Status Store::bring_home(Lsn end) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(failure());
  if (home_lsn() >= end) return kOk;
  MEMLITH_TRY(sync(end));  // a checkpoint takes what is durable
  const std::lock_guard checkpoint_lock(checkpoint_mutex_);
  if (home_lsn() >= end) return kOk;
  const auto bringing = [this](bool now) {
    const std::lock_guard lock(wake_mutex_);
    bringing_home_ = now;
  };
  bringing(true);
  const Lsn head = log_->head();
  const std::uint64_t capacity = log_->capacity_bytes();
  const std::uint64_t used = std::min(capacity, bytes_between(log_->tail().lsn, head));
  pacing_.emplace(CheckpointPace(capacity - used), head, SteadyClock::now(), true);
  const Status status = checkpoint_unless_poisoned();
  pacing_.reset();
  bringing(false);
  return status;
}

Status Store::checkpoint_unless_poisoned() {
  // A superblock whose write failed may be on the medium nevertheless, and give up the frames that a second try would
  // write home: from now on homes are left alone.
  if (!MEMLITH_MUTANT(poisoned_homes_written)) MEMLITH_TRY(failure());
  Status status = kOk;
  try {
    status = checkpoint_locked();
  } catch (const std::bad_alloc&) {
    status = fail(Errc::no_memory, Detail::object, "out of memory in a checkpoint");
  }
  if (is_lack(status)) {
    // Nothing is lost: the log has everything still, and homes may be written in part.
    overlay_.clear();
    return status;
  }
  if (MEMLITH_MUTANT(failed_checkpoint_goes_on)) return status;
  if (!status.ok() && !log_->poisoned()) log_->poison(status);
  return status;
}

Status Store::checkpoint_locked() {
  const LogPosition from = log_->tail();
  const LogPosition to = log_->durable();
  if (from == to) {
    // The frames that asked for it are not durable yet: the next commit asks again.
    trigger_lsn_.store(to.lsn.value + log_->capacity_bytes() / 2, std::memory_order_relaxed);
    return kOk;
  }
  // Shows how far it is, and that it is over in whatever way.
  struct Progress {
    StatsPage* page;
    ~Progress() {
      if (page != nullptr) page->checkpoint_total_bytes.store(0, std::memory_order_relaxed);
    }
  } const progress{stats()};
  if (progress.page != nullptr) {
    progress.page->checkpoint_done_bytes.store(0, std::memory_order_relaxed);
    progress.page->checkpoint_total_bytes.store(bytes_between(from.lsn, to.lsn), std::memory_order_relaxed);
  }
  work_ = {};
  LogReader reader = log_->reader(from, to.lsn);
  while (reader.position().lsn < to.lsn) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame.has_value()) {
      return fail(Errc::corrupt, Detail::frame, "{}: the log cannot be read back at LSN {}, which was durable: {}",
                  log_device_->path(), reader.position().lsn.value, reader.why());
    }
    const bool missed = MEMLITH_MUTANT(checkpoint_misses_last_frame) && reader.position() == to;
    if (!missed) MEMLITH_TRY(gather(*frame));
    work_.gathered = static_cast<double>(bytes_between(from.lsn, reader.position().lsn)) /
                     static_cast<double>(bytes_between(from.lsn, to.lsn));
    if (overlay_.bytes_held() > options_.replay_bytes_max) {
      MEMLITH_TRY(note_moment(from, to));
      MEMLITH_TRY(write_home());
    }
  }
  MEMLITH_ASSERT(reader.position() == to);
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(trim_before_homes)) MEMLITH_TRY(log_->trim(to, client_bytes()));
#endif
  // ORDER moment-before-home: a file that holds anything of these commits says so, or an older log would be replayed over them.
  // [sqlite/moments]
  MEMLITH_TRY(note_moment(from, to));
  MEMLITH_TRY(write_home());
  if (!unreachable_.empty()) {
    return fail(Errc::corrupt, Detail::object, "{}: the home file was removed or cut short while the store was open",
                volume_.path_of(home_name(unreachable_.begin()->first)));
  }
  // ORDER home-before-tail: the frames are given up only when what they say is durable at home. [crash/checkpoint]
  if (!MEMLITH_MUTANT(home_not_flushed_by_checkpoint)) MEMLITH_TRY(flush_homes());
  // ORDER home-before-moment, moment-before-tail: the log gives up only what the file says that it holds, and it does.
  MEMLITH_TRY(note_moment(to, to));
  MEMLITH_TRY(log_->trim(to, client_bytes()));
  counters_.checkpoints.fetch_add(1, std::memory_order_relaxed);
  publish_stats();
  trigger_lsn_.store(to.lsn.value + log_->capacity_bytes() / 2, std::memory_order_relaxed);
  return kOk;
}

// Lets a log that commits fill quickly grow, step by step, and no faster than they fill it. True: it has room again, so that
// nothing needs to go home yet.
bool Store::grow_log() {
  const Woken before = std::exchange(woken_, Woken{log_->head(), SteadyClock::now()});
  const std::uint64_t capacity = log_->capacity_bytes();
  LogLoad load;
  load.slot_bytes = log_->geometry().slot_bytes;
  load.slots = capacity / log_->geometry().segment_bytes();
  load.slots_max = busy_slots_max_;
  load.filled = static_cast<double>(bytes_between(before.head, woken_.head)) / static_cast<double>(capacity);
  load.took = woken_.time - before.time;
  load.home_bytes = counters_.home_bytes.load(std::memory_order_relaxed);
  load.grown_bytes = grown_bytes_;
  load.given_bytes = log_bytes_given();
  if (const Result<std::uint64_t> free_bytes = volume_.free_bytes(); free_bytes.ok()) load.free_bytes = *free_bytes;
  const std::uint64_t wanted = slots_to_add(load);
  if (wanted == 0) return false;
  const std::uint64_t used = bytes_between(log_->tail().lsn, woken_.head);
  CheckpointPace pace(capacity - std::min(capacity, used));
  const std::uint64_t step_slots = std::max<std::uint64_t>(1, kGrowthStepBytes / load.slot_bytes);
  for (std::uint64_t done = 0; done < wanted;) {
    const std::uint64_t step = std::min(step_slots, wanted - done);
    if (!log_->grow(step).ok()) {
      busy_slots_max_ = 0;  // the volume is full, or the log poisoned: a checkpoint goes on from here
      return false;
    }
    done += step;
    const std::uint64_t bytes = (load.slots + done) * load.slot_bytes;
    grown_bytes_ += std::min(step * load.slot_bytes, bytes - std::min(bytes, load.given_bytes));
    pace.move(static_cast<double>(done) / static_cast<double>(wanted), bytes_between(woken_.head, log_->head()));
    const LockGuard lock(wake_mutex_);
    (void)wake_.wait_for(wake_mutex_, pace.pause(SteadyClock::now() - woken_.time),
                         [this] { return log_full_ || hurrying_ > 0 || stopping_ || others_wait(); });
    if (hurrying_ > 0 || stopping_) break;
  }
  publish_stats();
  const Lsn tail = log_->tail().lsn;
  const std::uint64_t half = log_->capacity_bytes() / 2;
  if (bytes_between(tail, log_->head()) >= half) return false;
  trigger_lsn_.store(tail.value + half, std::memory_order_relaxed);
  return true;
}

Status Store::checkpoint_in_background(bool hurry) {
  if (grow_log()) return kOk;
  const Lsn head = log_->head();
  const std::uint64_t capacity = log_->capacity_bytes();
  const std::uint64_t used = std::min(capacity, bytes_between(log_->tail().lsn, head));
  if (!hurry) pacing_.emplace(CheckpointPace(capacity - used), head, SteadyClock::now());
  return checkpoint_unless_poisoned();
}

// One checkpoint, for commits that wait for room or for those to come.
Status Store::checkpoint_once(bool hurry) {
  const std::lock_guard checkpoint_lock(checkpoint_mutex_);
  Status status = kOk;
  try {
    status = checkpoint_in_background(hurry);
  } catch (const std::bad_alloc&) {
    status = fail(Errc::no_memory, Detail::object, "out of memory before a checkpoint");
  }
  pacing_.reset();
  if (is_lack(status) && !MEMLITH_MUTANT(lack_poisons)) {
    // Some commits later there may be memory again. Commits that wait for room are told, and lose nothing.
    log_->refuse_room(status);
    trigger_lsn_.store(log_->head().value + log_->capacity_bytes() / 8, std::memory_order_relaxed);
  } else if (!status.ok() && !log_->poisoned()) {
    log_->poison(status);  // which tells those who wait
  }
  return status;
}

// Checkpoints until no commit waits for room. The caller has set checkpointing_.
Status Store::checkpoint_for_all(bool hurry) {
  for (;;) {
    const Status status = checkpoint_once(hurry);
    const std::lock_guard lock(wake_mutex_);
    log_full_ = false;
    if (stopping_ || log_->poisoned() || (!log_->room_is_waited_for() || MEMLITH_MUTANT(late_waiter_forgotten))) {
      checkpointing_ = false;
      return status;
    }
    hurry = true;
  }
}

std::optional<Workers::Time> Store::checkpoint_step() {
  {
    const std::lock_guard lock(wake_mutex_);
    if (stopping_ || checkpointing_) return std::nullopt;
    checkpointing_ = true;
  }
  (void)checkpoint_for_all(false);
  return std::nullopt;
}

// For a commit that found the log full: it waits for the checkpoint under way, or does one itself. So it needs no thread, and waits
// for no other store's.
Status Store::make_room() {
  {
    const std::lock_guard lock(wake_mutex_);
    log_full_ = checkpointing_ || bringing_home_;
    if (log_full_) wake_.notify_one();
    if (checkpointing_) return kOk;
    checkpointing_ = true;
  }
  return checkpoint_for_all(true);
}

}  // namespace memlith::core
