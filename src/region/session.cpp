#include "region/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/no_throw.hpp"
#include "region/per_thread.hpp"

namespace memlith::core {

namespace {

// A release takes a checkpoint. After one that left too much in memory, the next comes when there is more, or so many
// persists later.
constexpr std::uint32_t kPersistsSkipped = 256;
constexpr std::uint64_t kReplayPart = 8;  // a checkpoint or a recovery gathers a part of the memory for stores

}  // namespace

// ---- open and close --------------------------------------------------------------------------------------------

Result<std::unique_ptr<Session>> Session::open(Place place, StoreOptions options, std::uint64_t memory_max_bytes) {
  options.file_name = std::move(place.file_name);
  const std::uint64_t memory = memory_for_stores();
  options.replay_bytes_max = std::min(options.replay_bytes_max, memory / kReplayPart);
  if (options.read_only) {
    const std::uint64_t most = memory_max_bytes != 0 ? memory_max_bytes : memory;
    options.view_bytes_max = most;
    options.overlay_bytes_max = most / 2;
  }
  auto session = std::unique_ptr<Session>(new Session(std::move(place), memory_max_bytes));
  MEMLITH_TRY_ASSIGN(session->store_, Store::open(*session->volume_, options));
  session->incarnation_ = session->store_->log().superblock().incarnation;  // the store is not shared yet
  return session;
}

Status Session::close(std::unique_ptr<Session> session) {
  // The threads stayed with the parent; destroying the objects in which they wait would wait for them forever.
  if (session->store_->in_forked_child()) return session.release()->store_->close();
  session->stop_releases();
  KeptFailure stopped;  // the first
  {
    const LockGuard lock(session->regions_mutex_);
    for (const auto& each : session->regions_) {
      session->tell_dropped(*each);
      const Status status = each->user != nullptr ? each->user->stop() : kOk;
      if (!status.ok() && stopped.ok()) stopped.keep(status);
      session->remove_place(each->region.get());
    }
    session->regions_.clear();
  }
  const Status closed = session->store_->close();
  return stopped.ok() ? closed : stopped.tell();
}

// Before the regions go, and while no other thread uses the session.
void Session::stop_releases() {
  std::shared_ptr<Background> background;
  {
    const LockGuard lock(regions_mutex_);
    background = background_;
  }
  if (background != nullptr) background->checkpoints.withdraw(release_job_);
}

// Key-value stores and application logs (`anywhere`) persist themselves. A region in which a change is under way, or of
// a store that takes no commits any more, has told its program already.
void Session::tell_dropped(const OpenRegion& open) const {
  Region& region = *open.region;
  if (!tells_dropped_ || region.anywhere() || region.tracker() == nullptr) return;
  const KeptSentence sentence;
  if (!region.is_between_changes() || !store_->failure().ok()) return;
  (void)no_throw([&]() -> Status {
    MEMLITH_TRY_ASSIGN(std::uint64_t bytes, region.unpersisted());
    if (bytes != 0 && open.user != nullptr) {
      MEMLITH_TRY_ASSIGN(bytes, region.unpersisted(open.user->rewritten()));
    }
    if (bytes == 0) return kOk;
    const std::string which = store_->one_file() ? "" : fmt::format("region \"{}\" was ", region.shown_name());
    const std::string told = fmt::format(
        "memlith: {}: {}closed, and {} bytes that no persist had made durable were dropped; persist before the close, "
        "or set tell_dropped to false\n",
        store_->path(), which, bytes);
    (void)std::fputs(told.c_str(), stderr);
    return kOk;
  });
}

// ---- the regions that are open ---------------------------------------------------------------------------------

OpenRegion* Session::find_open(ObjectId object) {
  for (const auto& each : regions_) {
    if (each->region->object() == object) return each.get();
  }
  return nullptr;
}

Result<OpenRegion*> Session::open_region(std::string_view name, const RegionOptions& given) {
  RegionOptions options = given;
  if (given.limited == Limited::if_told && !memory_budget_.told()) options.limited = Limited::never;
  const LockGuard lock(regions_mutex_);
  if (const auto info = store_->find(name); info.has_value() && find_open(info->id) != nullptr) {
    return fail(Errc::busy, Detail::object, "region \"{}\" is open already in this process", name);
  }
  std::unique_ptr<Region> region;
  const auto open_it = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(region, Region::open(*store_, name, options));
    return kOk;
  };
  MEMLITH_TRY(store_->view() != nullptr ? move_view(open_it) : open_it());
  MEMLITH_ASSERT(region != nullptr && find_open(region->object()) == nullptr);
  auto open = std::unique_ptr<OpenRegion>(new OpenRegion{*this, std::move(region), options.limited != Limited::never});
  regions_.reserve(regions_.size() + 1);
  add_place(open->region.get());
  regions_.push_back(std::move(open));
  return regions_.back().get();
}

// Tells the structures in the regions that their memory is that of another commit.
Status Session::move_view(const std::function<Status()>& move) {
  MEMLITH_ASSERT(store_->view() != nullptr);
  for (const auto& each : regions_) {
    if (each->user != nullptr) MEMLITH_TRY(each->user->check_idle());
  }
  const Status status = move();
  const KeptSentence sentence;
  for (const auto& each : regions_) {
    if (each->user != nullptr) each->user->view_moved();
  }
  incarnation_ = store_->log().superblock().incarnation;
  return status;
}

Result<Lsn> Session::refresh() {
  const LockGuard lock(regions_mutex_);
  View* const view = store_->view();
  if (view == nullptr) {
    return fail(Errc::invalid, Detail::open,
                "{}: only a store that was opened to be followed (MEMLITH_OPEN_FOLLOW) can be refreshed",
                store_->path());
  }
  MEMLITH_TRY(move_view([view] { return view->refresh(); }));
  return view->lsn();
}

Status Session::close_region(OpenRegion& region) {
  if (!region.region->transactions().any()) tell_dropped(region);
  return drop_region(region);
}

Status Session::drop_region(OpenRegion& region) {
  const LockGuard lock(regions_mutex_);
  if (region.region->changing()) {
    return fail(Errc::busy, Detail::object,
                "region \"{}\" cannot be closed while a change is under way in it; commit or abort its transaction "
                "first",
                region.region->name());
  }
  const bool closed = region.region->transactions().if_none([&]() MEMLITH_REQUIRES(regions_mutex_) {
    remove_place(region.region.get());
  });
  if (!closed) {
    return fail(Errc::busy, Detail::object,
                "region \"{}\" cannot be closed while a transaction is open in it; commit or abort it first",
                region.region->shown_name());
  }
  const std::size_t ended = std::erase_if(regions_, [&region](const auto& each) { return each.get() == &region; });
  MEMLITH_ASSERT(ended == 1);
  return kOk;
}

Status Session::remove_region(std::string_view name) {
  const LockGuard lock(regions_mutex_);
  const auto info = store_->find(name);
  if (!info.has_value()) {
    return fail(Errc::not_found, Detail::object, "{}: there is no region \"{}\"", store_->path(), name);
  }
  if (store_->read_only()) {
    return fail(Errc::read_only, Detail::object, "{}: the store was opened read-only", store_->path());
  }
  if (find_open(info->id) != nullptr) {
    return fail(Errc::busy, Detail::object, "region \"{}\" is open; close it first", name);
  }
  return store_->remove(info->id);
}

void Session::look_at_region(ObjectId object, const std::function<void(const Region&)>& look) {
  const LockGuard lock(regions_mutex_);
  if (const OpenRegion* const open = find_open(object)) look(*open->region);
}

std::vector<Region*>& empty_region_list() {
  struct List {
    std::vector<Region*> regions;
  };
  std::vector<Region*>& list = of_this_thread<List>().regions;
  list.clear();
  return list;
}

// ---- persist ---------------------------------------------------------------------------------------------------

Status Session::persist(std::span<Region* const> regions, Scope scope) {
  if (regions.empty()) return kOk;
  const PersistTimer timer;
  MEMLITH_TRY(Region::persist(regions, scope));
  timer.note_persist(*store_->stats());
  keep_to_memory();
  return kOk;
}

Status Session::persist_range(Region& region, const void* address, std::uint64_t bytes, Scope scope) {
  const PersistTimer timer;
  MEMLITH_TRY(region.persist_range(address, bytes, scope));
  timer.note_persist(*store_->stats());
  keep_to_memory();
  return kOk;
}

Result<Lsn> Session::persist_async(std::span<Region* const> regions, Scope scope) {
  if (regions.empty()) return Lsn{};
  const PersistTimer timer;
  MEMLITH_TRY_ASSIGN(const Lsn end, Region::capture(regions, scope, false));
  store_->flush_soon(end);
  timer.note_capture(*store_->stats());
  keep_to_memory();
  return end;
}

// Valid until the thread's next list.
std::vector<Region*>& Session::all_open() {
  std::vector<Region*>& all = empty_region_list();
  // Not regions_mutex_, which is held while a region is opened or releases memory.
  SessionPart& part = parts_.mine();
  const LockGuard lock(part.mutex);
  all.assign(part.places.begin(), part.places.end());
  return all;
}

Status Session::persist_all(Scope scope) {
  const std::vector<Region*>& all = all_open();
  if (!all.empty()) return persist(all, scope);
  // There is nothing to capture; a poisoned store is reported nevertheless.
  return store_->failure();
}

Status Session::rollback(std::span<Region* const> regions, Scope scope) {
  MEMLITH_TRY(Region::rollback(regions, scope));
  if (!regions.empty()) keep_to_memory();
  return kOk;
}

// ---- memory ----------------------------------------------------------------------------------------------------

// A region that cannot be released does not prevent the release of the others; the first failure is returned.
Status Session::release_regions() {
  Status first = kOk;
  for (const auto& each : regions_) {
    if (!each->limited) continue;
    Region& region = *each->region;
    const Status status = each->user != nullptr ? each->user->release_for_limit(region) : region.release_for_limit();
    if (first.ok()) first = status;
  }
  return first;
}

std::uint64_t Session::copied_bytes() const {
  std::uint64_t pages = 0;
  for (const auto& each : regions_) {
    if (each->limited) pages += each->region->copied_pages();
  }
  return pages * kPageBytes;
}

std::uint64_t Session::copied_beside() {
  std::uint64_t pages = 0;
  SessionPart& part = parts_.mine();
  const LockGuard lock(part.mutex);
  for (const Region* const region : part.places) {
    if (region->anywhere()) pages += region->copied_pages();
  }
  return pages * kPageBytes;
}

void Session::release_now() {
  memory_status_.store(no_throw([this]() MEMLITH_REQUIRES(regions_mutex_) { return release_regions(); }),
                       std::memory_order_relaxed);
  release_from_ = copied_bytes() + memory_budget_.step();
  persists_skipped_ = 0;
}

std::optional<Workers::Time> Session::run_release() {
  const KeptSentence sentence;
  const LockGuard lock(regions_mutex_);
  release_now();
  end_release();
  return std::nullopt;
}

void Session::end_release() {
  releasing_.store(false, std::memory_order_relaxed);
  release_pace_.end();
}

// Regions of a program are released by its own threads: their tracker may stop stores meanwhile.
bool Session::releases_in_background() const {
  return std::ranges::all_of(regions_, [](const auto& each) { return !each->limited || each->region->anywhere(); });
}

bool Session::release_in_background() {
  if (background_ == nullptr) background_ = Background::of_process();
  release_pace_.begin(copied_beside());
  releasing_.store(true, std::memory_order_relaxed);
  const bool asked = background_->checkpoints.want(release_job_, SteadyClock::now());
  if (!asked) end_release();
  return asked;
}

void Session::release_if_used_up() {
  if (releasing_.load(std::memory_order_relaxed)) {
    const auto rest = release_pace_.after(copied_beside(), memory_budget_.copied_max(), SteadyClock::now());
    if (rest.count() > 0) release_pace_.take(rest);
    return;
  }
  // A thread that releases, opens or closes a region holds the lock; the next persist checks again.
  if (!regions_mutex_.try_lock()) return;
  const LockGuard lock(regions_mutex_, std::adopt_lock);
  const std::uint64_t copied = copied_bytes();
  const bool in_background = releases_in_background();
  // Early, so that commits can go on meanwhile.
  if (!memory_budget_.used_up(in_background ? copied + memory_budget_.step() : copied)) return;
  if (copied < release_from_ && ++persists_skipped_ < kPersistsSkipped) return;
  if (!in_background || !release_in_background()) release_now();
}

void Session::make_memory(std::uint64_t bytes, std::uint64_t most_bytes) {
  const auto fits = [&](std::uint64_t copied) { return copied + bytes <= most_bytes; };
  if (fits(copied_beside())) return;
  const LockGuard lock(regions_mutex_);
  if (!fits(copied_bytes())) release_now();
}

}  // namespace memlith::core
