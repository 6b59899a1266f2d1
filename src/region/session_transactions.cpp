// Transactions and changes of a session.
#include <algorithm>
#include <utility>

#include "region/per_thread.hpp"
#include "region/session.hpp"

namespace memlith::core {

OpenTransaction::OpenTransaction(Session& of, SessionPart& in) : session(of), part(in), transaction(of.store()) {}

void Session::add_place(Region* region) {
  try {
    parts_.for_each([region](SessionPart& part) {
      const LockGuard lock(part.mutex);
      part.places.push_back(region);
    });
  } catch (...) {
    remove_place(region);
    throw;
  }
}

void Session::remove_place(const Region* region) {
  parts_.for_each([region](SessionPart& part) {
    const LockGuard lock(part.mutex);
    std::erase(part.places, region);
  });
}

Result<Region*> Session::region_at(const void* address) {
  SessionPart& part = parts_.mine();
  const LockGuard lock(part.mutex);
  for (Region* const region : part.places) {
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - region->address());
    if (offset < region->reserve()) return region;
  }
  return fail(Errc::invalid, Detail::argument, "{}: address {} lies in no open region of this store", store_->path(),
              address);
}

OpenTransaction* Session::begin() {
  SessionPart& part = parts_.mine();
  const LockGuard lock(part.mutex);
  if (!part.idle.empty()) {
    OpenTransaction* const open = part.idle.back();
    part.idle.pop_back();
    return open;
  }
  part.idle.reserve(part.transactions.size() + 1);  // so that it can be given back
  part.transactions.push_back(std::make_unique<OpenTransaction>(*this, part));
  MEMLITH_ASSERT(part.idle.capacity() >= part.transactions.size());
  return part.transactions.back().get();
}

void Session::give_back(OpenTransaction& open) {
  open.transaction.forget();
  const LockGuard lock(open.part.mutex);
  MEMLITH_ASSERT(open.part.idle.size() < open.part.transactions.size());  // nothing is allocated here
  open.part.idle.push_back(&open);
}

Status Session::touch_before(OpenTransaction& open, const void* address, std::uint64_t bytes) {
  Region* region = open.transaction.joined(address);
  if (region == nullptr) {
    MEMLITH_TRY_ASSIGN(region, region_at(address));
  }
  return open.transaction.touch_before(*region, address, bytes);
}

// Waits, or has the background thread make it durable.
Status Session::finish(Lsn end, bool wait, const PersistTimer& timer) {
  if (wait) {
    MEMLITH_TRY(store_->sync(end));
    timer.note_persist(*store_->stats());
  } else {
    store_->flush_soon(end);
    timer.note_capture(*store_->stats());
  }
  return kOk;
}

Result<Lsn> Session::commit(OpenTransaction& open, bool wait) {
  const PersistTimer timer;
  MEMLITH_TRY_ASSIGN(const Lsn end, open.transaction.capture(wait));
  MEMLITH_TRY(finish(end, wait, timer));
  give_back(open);
  keep_to_memory();
  return end;
}

void Session::abort(OpenTransaction& open) {
  open.transaction.abort();
  give_back(open);
}

Result<Lsn> Session::commit_buffers(std::span<const BufferedWrite> writes, bool wait) {
  const PersistTimer timer;
  std::vector<Region*>& regions = empty_region_list();
  for (const BufferedWrite& write : writes) {
    MEMLITH_TRY_ASSIGN(Region* const region, region_at(write.target));
    regions.push_back(region);
  }
  // Ends the transaction on every path.
  struct Used {
    Session& session;
    OpenTransaction& open;
    ~Used() {
      session.give_back(open);
      session.keep_to_memory();
    }
  } used{*this, *begin()};
  MEMLITH_TRY_ASSIGN(const Lsn end, used.open.transaction.capture_buffers(writes, regions, wait));
  MEMLITH_TRY(finish(end, wait, timer));
  return end;
}

// ---- changes ---------------------------------------------------------------------------------------------------

Result<std::unique_ptr<OpenChange>> Session::begin_change(std::span<Region* const> given) {
  if (given.empty()) given = all_open();
  auto open = std::make_unique<OpenChange>(OpenChange{*this, {given.begin(), given.end()}});
  // A region that is named twice is in the change once.
  std::sort(open->regions.begin(), open->regions.end());
  open->regions.erase(std::unique(open->regions.begin(), open->regions.end()), open->regions.end());
  if (open->regions.empty()) return open;
  MEMLITH_TRY_ASSIGN(const Lsn before, Region::begin_change(open->regions));
  store_->flush_soon(before);
  return open;
}

Result<Lsn> Session::commit_change(OpenChange& open, bool wait) {
  if (open.regions.empty()) return Lsn{};
  const PersistTimer timer;
  MEMLITH_TRY_ASSIGN(const Lsn end, Region::capture_change(open.regions, wait));
  open.captured = true;
  MEMLITH_TRY(finish(end, wait, timer));
  keep_to_memory();
  return end;
}

Status Session::undo_change(OpenChange& open) {
  if (open.regions.empty()) return kOk;
  if (open.captured) return store_->failure();
  MEMLITH_TRY(Region::undo_change(open.regions));
  keep_to_memory();
  return kOk;
}

}  // namespace memlith::core
