#include "store/store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "store/archived.hpp"
#include "store/recovery.hpp"
#include "store/refusal.hpp"

namespace memlith::core {

// ---- open ------------------------------------------------------------------------------------------------------

namespace {
// How often an opening that waits looks whether the store is locked still.
constexpr std::chrono::milliseconds kLookEvery{2};
}  // namespace

Result<std::unique_ptr<Store>> Store::open(Volume& volume, const StoreOptions& options) {
  if (options.create && options.read_only) {
    return fail(Errc::invalid, Detail::argument, "a store cannot be created read-only");
  }
  if (options.physical_block_bytes != 0 && options.physical_block_bytes != 512 &&
      options.physical_block_bytes != 4096) {
    return fail(Errc::invalid, Detail::argument,
                "physical_block_bytes is {}; it can be 512, 4096, or 0 for the default", options.physical_block_bytes);
  }
  MEMLITH_TRY(check_page_bytes(host_page_bytes()));
  const auto end = std::chrono::steady_clock::now() + options.open_wait;
  for (;;) {
    auto opened = try_to_open(volume, options);
    const bool is_locked =
        !opened.ok() && opened.error().category == Errc::busy && opened.error().detail == Detail::lock;
    if (!is_locked || std::chrono::steady_clock::now() >= end) return opened;
    std::this_thread::sleep_for(kLookEvery);
  }
}

Result<std::unique_ptr<Store>> Store::try_to_open(Volume& volume, const StoreOptions& options) {
  auto store = std::unique_ptr<Store>(new Store(volume, options));
  Status status = kOk;
  try {
    status = store->open_it();
  } catch (const std::bad_alloc&) {
    store->undo_creation();
    throw;
  }
  if (status.ok()) {
    store->assert_state();
    return store;
  }
  // After an I/O error it is unknown what is on the medium: the next opening judges it.
  if (status.category != Errc::io && status.category != Errc::poisoned) store->undo_creation();
  return status;
}

std::string Store::weakness() const {
  const DeviceCaps& caps = log().device().caps();
  switch (caps.file_system.medium) {
    case Medium::disk: return "";
    case Medium::memory:
      if (read_only() || log().superblock().incarnation != 1) return "";  // it was told when the store was new
      return fmt::format(
          "{}: {}this store lies on a file system in memory (tmpfs): it survives a crash of the program, "
          "but a power loss or a restart erases it",
          path(), caps.io == IoBackend::dax ? "EMULATED persistent memory: " : "");
    case Medium::program:
      return fmt::format(
          "{}: this store lies on {}, which another program or the host of this machine serves: commits "
          "survive a crash of the program, but a power loss only if that one flushes its disk when it "
          "is asked to",
          path(), caps.file_system.name);
    case Medium::network:
      return fmt::format(
          "{}: this store lies on a network file system ({}): locks may not keep other machines out, and "
          "commits may not survive a power loss of either machine",
          path(), caps.file_system.name);
  }
  return "";
}

Status Store::open_it() {
  if (files_.options.follow) {
    view_ = std::make_unique<View>(files_, opening_, *directory_, replay_);
    MEMLITH_TRY(view_->begin());
    enter(StoreState::following);
    return kOk;
  }
  MEMLITH_TRY(opening_.run());
  enter(StoreState::recovering);
  assert_state();
  MEMLITH_TRY(Recovery(files_, *directory_, replay_).run());
  if (!read_only()) return start();
  enter(StoreState::read_only);
  return kOk;
}

void Store::enter(StoreState next) {
  const StoreState from = state_;
  const auto one_of = [from](std::initializer_list<StoreState> states) {
    return std::find(states.begin(), states.end(), from) != states.end();
  };
  switch (next) {
    case StoreState::opening: MEMLITH_ASSERT(false && "a store is opened once"); break;
    case StoreState::recovering: MEMLITH_ASSERT(from == StoreState::opening); break;
    case StoreState::writable:
    case StoreState::read_only: MEMLITH_ASSERT(from == StoreState::recovering); break;
    case StoreState::following: MEMLITH_ASSERT(from == StoreState::opening); break;
    case StoreState::closing:
      MEMLITH_ASSERT(one_of({StoreState::writable, StoreState::read_only, StoreState::following}));
      break;
    case StoreState::closed: MEMLITH_ASSERT(from == StoreState::closing); break;
    case StoreState::refused:
      MEMLITH_ASSERT(one_of({StoreState::opening, StoreState::recovering, StoreState::writable}));
      break;
  }
  state_ = next;
}

void Store::assert_state() const {
  const bool has_jobs = background_ != nullptr;
  MEMLITH_ASSERT((view_ != nullptr) == files_.options.follow || state_ == StoreState::opening);
  switch (state_) {
    case StoreState::opening:
    case StoreState::refused: MEMLITH_ASSERT(!has_jobs); break;
    case StoreState::recovering:
      MEMLITH_ASSERT(!has_jobs && process_mark_ == 0);
      MEMLITH_ASSERT(files_.log != nullptr && !files_.log->started() && !files_.log->poisoned());
      break;
    case StoreState::writable: {
      MEMLITH_ASSERT(!read_only() && process_mark_ != 0);
      MEMLITH_ASSERT(has_jobs && flusher_ != nullptr && publisher_ != nullptr);
      MEMLITH_ASSERT(files_.log != nullptr && files_.log->started());
      // In this order, because each only moves on.
      const Lsn home = files_.log->tail().lsn;
      const Lsn durable = files_.log->durable_lsn();
      MEMLITH_ASSERT(home <= durable && durable <= files_.log->head());
      break;
    }
    case StoreState::read_only:
      MEMLITH_ASSERT(read_only() && !has_jobs && process_mark_ == 0);
      MEMLITH_ASSERT(files_.log != nullptr && !files_.log->started());
      break;
    case StoreState::following: MEMLITH_ASSERT(read_only() && !has_jobs && process_mark_ == 0); break;
    case StoreState::closing: MEMLITH_ASSERT(read_only() || files_.log->started()); break;  // jobs end on the way
    case StoreState::closed:
      MEMLITH_ASSERT(!has_jobs && publisher_ == nullptr);
      // Nothing that was acknowledged is missing at home, or awaits the archive in the log.
      MEMLITH_ASSERT(read_only() || files_.log->durable_lsn() == files_.log->head());
      break;
  }
}

// The store is recovered, and open for writing.
Status Store::start() {
  MEMLITH_TRY(opening_.leave_holder_note());
  process_mark_ = process_mark();
  process_ = ::getpid();
  MEMLITH_TRY_ASSIGN(Device* const file, directory_->permissions_model());
  MEMLITH_TRY_ASSIGN(publisher_, StatsPublisher::make(files_, file));
  background_ = Background::of_process();
  flusher_ = std::make_unique<Flusher>(files_, *background_, &collectors_);
  if (!files_.options.manual_flush) {
    time_marker_ = std::make_unique<TimeMarker>(files_, *flusher_, SteadyClock::now());
  }
  publisher_->set_on_show([this]() -> std::optional<std::chrono::milliseconds> {
    const bool marks = time_marker_ != nullptr && time_marker_->look(SteadyClock::now(), now_since_1970_ns);
    if (checkpointer_.look_for_idle(newest_ticket())) return IdleWatch::kLookAgain;
    return marks ? std::optional(StatsPublisher::kShowEvery) : std::nullopt;
  });
  checkpointer_.start(*background_, *publisher_);
  publisher_->start(*background_);
  publisher_->publish();
  files_.log->set_on_durable([this] {
    durable_event_.raise();
    collectors_.durable_moved();
    publish_stats();
  });
  enter(StoreState::writable);
  MEMLITH_TRY(take_over_in_use_header());
  return directory_->record_at_home().common.log_id == 0 ? kOk : take_common_commits();
}

void Store::undo_creation() {
  enter(StoreState::refused);
  stop_jobs();
  assert_state();
  KeptFailure told;
  told.keep(kOk);  // the sentence of the failure
  drop_stats();
  if (opening_.made_log() || !replay_.blocks().has_its_name()) (void)replay_.blocks().drop();
  opening_.undo();
  (void)told.tell();
}

// ---- close -----------------------------------------------------------------------------------------------------

Store::~Store() {
  const KeptSentence why;  // possibly of the close that failed
  stop_jobs();
  drop_stats();  // of a store that was not closed
}

void Store::stop_jobs() {
  if (background_ == nullptr) return;
  if (in_forked_child()) {
    // Their threads stayed with the parent, which may have held their locks: in the child they are never touched.
    (void)new (std::nothrow) std::shared_ptr<Background>(std::move(background_));
    return;
  }
  // ORDER caller-before-called: the publisher's thread calls the marker and the checkpointer.
  // [test Background.AnIdleStoreIsClosedWhileItIsLookedAt]
  publisher_->withdraw();
  if (time_marker_ != nullptr) time_marker_->stop();
  flusher_->stop();
  checkpointer_.stop();
  publisher_->stop();
  background_ = nullptr;  // the threads end with the last store of the process
}

Status Store::check_process() const {
  if (!in_forked_child()) return kOk;
  return fail(Errc::invalid, Detail::open,
              "{}: process {} opened the store, and this process was forked from it; a forked process may use "
              "snapshots that were made before the fork, and the inherited memory, which changes with the parent's "
              "checkpoints",
              path(), process_);
}

Status Store::close() {
  if (refused_at_.has_value() && !in_forked_child() && newest_ticket() == *refused_at_) return close_and_remove_log();
  MEMLITH_TRY(finish());
  files_.unlock();
  enter(StoreState::closed);
  assert_state();
  return kOk;
}

Status Store::close_and_remove_log() {
  MEMLITH_ASSERT(one_file());
  // Commits that a living archiver has not read yet are in the log, which also says that the file's history goes on.
  const bool is_archived = has_archiver(files_.volume, files_.names.archived);
  MEMLITH_TRY(finish());
  // ORDER remove-before-unlock: otherwise a process that opens the store in between would continue with a log that has
  // no name. [test Files.NoLogIsLeftBesideADatabaseThatWasClosed]
  const Status removed = is_archived ? kOk : remove_log();
  files_.unlock();
  enter(StoreState::closed);
  assert_state();
  // A process that gave up the right to remove the log leaves it, cleanly closed.
  return removed.category == Errc::permission ? kOk : removed;
}

Status Store::finish() {
  MEMLITH_TRY(check_process());
  assert_state();
  enter(StoreState::closing);
  KeptFailure mark;
  mark.keep(end_in_use_header());
  stop_jobs();
  assert_state();
  if (!mark.ok()) return mark.tell();
  if (read_only()) return kOk;
  Log& log = *files_.log;
  MEMLITH_TRY(log.sync(log.head()));
  LogPosition tail = log.tail();
  MEMLITH_TRY_ASSIGN(tail, checkpointer_.checkpoint_for_close());
  MEMLITH_TRY(cut_home_to_size());
  const auto wait = look_for_archiver(files_.volume, files_.names.archived, log.log_id());
  const bool awaited = wait.has_value() ? wait->archived < tail.lsn
                                        : has_archiver(files_.volume, files_.names.archived);  // not read yet
  MEMLITH_TRY_ASSIGN(const std::uint64_t stamp, directory_->stamp());
  const std::uint64_t slots_kept = awaited ? Log::kAllSlots : checkpointer_.slots_to_keep();
  MEMLITH_TRY(log.close(directory_->client_bytes(stamp), tail, slots_kept));
  const Status dropped = replay_.blocks().drop();  // a clean log needs no blocks, and no later tail equals theirs
  drop_stats();
  MEMLITH_TRY(dropped);
  if (!one_file()) return kOk;
  // ORDER counters-before-log: a process that finds the counters of this file, and no log, takes the log for lost. The
  // log may be removed as soon as the file is closed, so the counters are gone from the medium before. [test
  // CloseOfAFile.TheCountersAreGoneBeforeTheLogMayBe]
  const Status gone = files_.volume.sync_folder("");
  return gone.category == Errc::permission ? kOk : gone;  // as when opening
}

// Its file says that the store is open. The holder of the lock may remove the file; if it stays, it does no harm.
void Store::drop_stats() {
  if (publisher_ == nullptr || in_forked_child()) return;
  publisher_->remove();
  publisher_ = nullptr;
}

// ---- statistics --------------------------------------------------------------------------------------------------

std::string Store::stats_name(StoreKind kind, const std::string& file_name) {
  return StoreNames(kind, file_name).stats;
}

void Store::publish_stats() {
  if (publisher_ != nullptr) publisher_->publish(collectors_.oldest_waiting_ns());
}

// ---- directory -------------------------------------------------------------------------------------------------

Directory::Commit Store::committer() {
  return [this](const Changes& changes) { return commit(changes); };
}

Result<ObjectInfo> Store::create(std::string_view name, std::uint64_t size_bytes, std::uint64_t address,
                                 std::uint64_t reserve_bytes) {
  MEMLITH_TRY(check_process());  // before a home file is created that the parent may have created since
  assert_state();
  MEMLITH_TRY(close_collectors());
  return directory_->create({ObjectId{}, std::string(name), size_bytes, address, reserve_bytes}, committer());
}

Status Store::remove(ObjectId id) {
  MEMLITH_TRY(close_collectors());
  return directory_->remove(id, committer(), [this] { return checkpoint(); });
}

Status Store::set_reserve(ObjectId id, std::uint64_t reserve_bytes) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(close_collectors());
  return directory_->set_reserve(id, reserve_bytes, committer());
}

Status Store::reserve_home(ObjectId id, std::uint64_t size_bytes) {
  MEMLITH_TRY(check_process());
  return directory_->reserve_home(id, size_bytes);
}

// ---- tickets ---------------------------------------------------------------------------------------------------

Status Store::check_ticket(Lsn ticket) {
  const Lsn newest = newest_ticket();
  if (ticket <= newest) return kOk;
  return fail(Errc::invalid, Detail::argument, "{}: there is no ticket {} yet; the newest is {}", path(), ticket.value,
              newest.value);
}

Status Store::wait(Lsn ticket) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(check_ticket(ticket));
  if (ticket <= durable_ticket()) return kOk;
  const auto end = collectors_.bring_to_log(ticket);
  if (!end.ok()) {
    const KeptSentence sentence;
    if (is_refusal(end.error())) want_closing(SteadyClock::now() + Flusher::kTryAgainAfter);
    return end.error();
  }
  return sync(*end);
}

// ---- homes -----------------------------------------------------------------------------------------------------

Status Store::cut_home_to_size() {
  return checkpointer_.between_checkpoints([this] { return directory_->cut_home_to_size(); });
}

Result<bool> Store::file_has_its_name() {
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, file->identity());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, files_.volume.identity_of(files_.names.file));
  return named == own;
}

Status Store::remove_log() { return files_.volume.remove_own(files_.names.log, *files_.log_device); }

Result<Mappable> Store::mappable_home(ObjectId id, std::uint64_t offset, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(id));
  return device->mappable(offset, bytes);
}

Result<std::string> Store::home_path(ObjectId id) {
  MEMLITH_TRY_ASSIGN(const Device* const device, files_.homes.get(id));
  return device->path();
}

Result<std::vector<std::byte>> Store::read_home(ObjectId id) {
  const std::optional<ObjectInfo> info = directory_->find(id);
  if (!info.has_value()) return fail(Errc::not_found, Detail::object, "{}: there is no object {}", path(), id.value);
  std::vector<std::byte> bytes(info->size_bytes);
  MEMLITH_TRY(read_home_into(id, 0, bytes));
  return bytes;
}

Status Store::read_home_into(ObjectId id, std::uint64_t offset, std::span<std::byte> target) {
  MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(id));
  MEMLITH_TRY(device->read(offset, target));
  if (files_.options.in_use != InUse::guard || id != kFile || offset >= kInUseHeaderBytes) return kOk;
  const OwnBytes own = directory_->record_at_home().own;
  const std::uint64_t count = std::min<std::uint64_t>(target.size(), kInUseHeaderBytes - offset);
  if (own.marked != InUse::none) std::memcpy(target.data(), own.bytes + offset, count);
  return kOk;
}

bool Store::read_cached_home(ObjectId id, std::uint64_t offset, std::span<std::byte> target) {
  // The home has the in-use header there.
  if (files_.options.in_use == InUse::guard && id == kFile && offset < kInUseHeaderBytes) return false;
  const auto device = files_.homes.get(id);
  return device.ok() && (*device)->read_cached(offset, target);
}

// ---- checkpoint ------------------------------------------------------------------------------------------------

Status Store::checkpoint() {
  MEMLITH_TRY(check_process());
  assert_state();
  if (read_only()) return fail(Errc::read_only, Detail::open, "{}: the store was opened read-only", path());
  return checkpointer_.checkpoint();
}

Status Store::bring_all_home() {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(failure());
  MEMLITH_TRY(sync(files_.log->head()));
  return checkpointer_.checkpoint_for_close().status();
}

Status Store::bring_home(Lsn end) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(failure());
  if (home_lsn() >= end) return kOk;
  MEMLITH_TRY(sync(end));  // a checkpoint takes what is durable
  return checkpointer_.bring_home(end);
}

Status Store::write_home(Lsn end) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY(failure());
  MEMLITH_TRY(sync(end));  // only what is durable goes home
  return checkpointer_.write_home(end);
}

Status Store::older_homes() const {
  return fail(Errc::poisoned, Detail::object,
              "{}: a write or a flush failed, and the files may have lost pages whose memory was given back; close the "
              "store and open it again, which recovers everything that is durable",
              path());
}

// ---- copies of homes: what a checkpoint left, before the next one begins ---------------------------------------

Result<HomeCopies> Store::copy_homes(std::span<const ObjectId> objects) {
  MEMLITH_TRY(check_process());
  HomeCopies result;
  result.copies.resize(objects.size());
  // ORDER checkpoint-and-copy: no other checkpoint may begin between the one that brings the home files to the commit
  // and the last copy. Otherwise the copies would be of two commits. [test Snapshots.ShowOnePersistBesideCommitters]
  const auto copy_all = [&]() -> Status {
    result.lsn = read_only() ? files_.log->durable_lsn() : files_.log->tail().lsn;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      HomeCopies::Copy& copy = result.copies[i];
      MEMLITH_TRY_ASSIGN(copy.size_bytes, directory_->size_at_home(objects[i]));
      MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(objects[i]));
      MEMLITH_TRY_ASSIGN(copy.memory, device->copy_to_memory(copy.size_bytes));
      if (read_only()) MEMLITH_TRY(lay_overlay_over(objects[i], copy));
    }
    return kOk;
  };
  MEMLITH_TRY(checkpointer_.checkpoint_and(copy_all));
  return result;
}

// The content of a read-only store's log, which is not written home.
Status Store::lay_overlay_over(ObjectId id, const HomeCopies::Copy& copy) {
  return overlay().for_each(id, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset >= copy.size_bytes) return kOk;
    bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), copy.size_bytes - offset));
    return write_to_memory(copy.memory.get(), offset, bytes);
  });
}

}  // namespace memlith::core
