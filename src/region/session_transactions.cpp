// Transactions and changes of a session.
#include <algorithm>
#include <utility>

#include "region/region_part.hpp"
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
    MEMLITH_ASSERT(open->transaction.empty() && open->changing.empty() && !open->captured);
    return open;
  }
  part.idle.reserve(part.transactions.size() + 1);  // so that it can be given back
  part.transactions.push_back(std::make_unique<OpenTransaction>(*this, part));
  MEMLITH_ASSERT(part.idle.capacity() >= part.transactions.size());
  return part.transactions.back().get();
}

void Session::give_back(OpenTransaction& open) {
  open.transaction.forget();
  open.changing.clear();
  open.captured = false;
  const LockGuard lock(open.part.mutex);
  MEMLITH_ASSERT(open.part.idle.size() < open.part.transactions.size());  // nothing is allocated here
  MEMLITH_ASSERT(std::find(open.part.idle.begin(), open.part.idle.end(), &open) == open.part.idle.end());
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

Status Session::begin_change(OpenTransaction& open, std::span<Region* const> given) {
  if (given.empty()) given = all_open();
  std::vector<Region*> added;
  for (Region* const region : given) {
    const bool known = std::find(open.changing.begin(), open.changing.end(), region) != open.changing.end();
    if (!known && std::find(added.begin(), added.end(), region) == added.end()) added.push_back(region);
  }
  if (added.empty()) return kOk;
  open.changing.reserve(open.changing.size() + added.size());
  MEMLITH_TRY_ASSIGN(const Lsn before, Region::begin_change(added));
  open.changing.insert(open.changing.end(), added.begin(), added.end());
  store_->flush_soon(before);
  return kOk;
}

Result<Lsn> Session::commit(OpenTransaction& open, bool wait) {
  if (open.captured) return store_->failure();  // a commit was tried, and could not make it durable
  const PersistTimer timer;
  Transaction& transaction = open.transaction;
  Lsn end;
  if (!open.changing.empty() && transaction.empty()) {
    MEMLITH_TRY_ASSIGN(end, Region::capture_change(open.changing, wait));
  } else {
    for (Region* const region : open.changing) {
      if (transaction.part_in(Participant::Kind::region, *region) != nullptr) continue;  // the commit is tried again
      MEMLITH_TRY(transaction.add(std::make_unique<RegionPart>(*region, true)));
    }
    MEMLITH_TRY_ASSIGN(end, transaction.capture(wait));
  }
  open.captured = !open.changing.empty();
  MEMLITH_TRY(finish(end, wait, timer));
  give_back(open);
  keep_to_memory();
  return end;
}

Status Session::abort(OpenTransaction& open) {
  open.transaction.abort();
  const bool changes = !open.changing.empty();
  Status undone = kOk;
  if (changes) undone = open.captured ? store_->failure() : Region::undo_change(open.changing);
  give_back(open);
  if (changes) keep_to_memory();
  return undone;
}

}  // namespace memlith::core
