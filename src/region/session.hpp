// A store that this process has open, with the regions that are open in it: what everything above regions stands on. Floor: region.
//
// A session owns the volume, the store and its open regions. A persist through it is timed for the store's statistics, and followed by
// giving memory back where the session's regions hold more private copies than its memory budget allows.
//
// Threads: any, but open() and close() alone, and a region is used by nobody while it is closed. In a forked child a session is good
// for nothing but close(), which leaves it alone: what it locks may have been locked when the child was made, by a thread that is not
// there to unlock it. check_process() tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/memory_budget.hpp"
#include "base/sync.hpp"
#include "region/region.hpp"
#include "store/place.hpp"

namespace memlith::core {

class Session;

// `session` and `region` are constant from opening to closing.
struct OpenRegion {
  Session& session;
  std::unique_ptr<Region> region;
  std::unique_ptr<RegionClient> client = nullptr;  // what stands on the region, if anything does; goes before the region
};

class Session {
 public:
  // Opens the store of `options.kind` at `place`. `memory_max_bytes`: for the private copies of all regions; 0: no limit.
  static Result<std::unique_ptr<Session>> open(Place place, StoreOptions options, std::uint64_t memory_max_bytes = 0);
  // Unmaps the regions and closes the store. In a forked child the session stays in memory, as its parent's threads left it.
  static Status close(std::unique_ptr<Session> session);

  [[nodiscard]] Store& store() const { return *store_; }
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }  // as of opening
  [[nodiscard]] Status check_process() const { return store_->check_process(); }

  // ---- the regions that are open

  // `busy` if the region is open already. The session keeps it until close_region() or close().
  Result<OpenRegion*> open_region(std::string_view name, const RegionOptions& options);
  // Unmaps it; what was not persisted is dropped.
  void close_region(OpenRegion& region);
  // Durable on ok. `busy` while the region is open.
  Status remove_region(std::string_view name);
  // Calls `look` if the region of that object is open, which it stays meanwhile.
  void look_at_region(ObjectId object, const std::function<void(const Region&)>& look);

  // ---- persist

  // Makes the stores to the regions, all of this session, durable in one commit. No regions: ok.
  Status persist(std::span<Region* const> regions, Scope scope);
  // Captures them; a thread of the process makes them durable. wait() waits for what is returned; for no regions that is 0.
  Result<Lsn> persist_async(std::span<Region* const> regions, Scope scope);
  // persist() of all regions that are open. Without one: `poisoned` where the store is.
  Status persist_all(Scope scope);
  // Returns when everything before `lsn` is durable. `invalid` where the store has not come so far.
  Status wait(Lsn lsn);
  Status rollback(std::span<Region* const> regions, Scope scope);

  // How giving memory back went when the budget was used up last. The caller's persist is durable, or captured, whatever came of that.
  [[nodiscard]] Status memory_status() const { return memory_status_.load(std::memory_order_relaxed); }

 private:
  Session(Place place, std::uint64_t memory_max_bytes)
      : volume_(std::move(place.volume)), memory_budget_(memory_max_bytes) {}
  OpenRegion* find_open(ObjectId object) MEMLITH_REQUIRES(regions_mutex_);
  Status release_regions() MEMLITH_REQUIRES(regions_mutex_);
  void keep_to_memory();

  std::unique_ptr<Volume> volume_;
  std::unique_ptr<Store> store_;   // destroyed before the volume
  std::uint64_t incarnation_ = 0;  // constant after open
  Mutex regions_mutex_;            // held while a region is opened, removed, or gives its memory back
  std::vector<std::unique_ptr<OpenRegion>> regions_ MEMLITH_GUARDED_BY(regions_mutex_);
  const MemoryBudget memory_budget_;
  std::atomic<Status> memory_status_{kOk};
  static_assert(std::atomic<Status>::is_always_lock_free);
};

// An empty list, kept for each thread so that persisting allocates nothing once it has grown. Until the next call of the thread, or of its
// persist_all().
std::vector<Region*>& empty_region_list();

}  // namespace memlith::core
