// The stores to a region since they were last captured: found, taken for a frame, undone. Floor: region.
//
// Under the capture lock, the tracker says which ranges were stored to, and the bytes that have to be logged are pieces
// of memory, or of copies (twins, hot pages). What was taken is then kept, if a frame has it, or given back.
//
// A rollback restores the ranges to what was last captured: from the tracker's copies of pages, or else from home and
// from what the log has that is not home yet. For many bytes, a checkpoint brings that home first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/sync.hpp"
#include "region/captured_pages.hpp"
#include "region/copied_pages.hpp"
#include "region/equal_pages.hpp"
#include "region/hot_pages.hpp"
#include "region/region_home.hpp"
#include "region/region_mapping.hpp"
#include "region/tracker.hpp"
#include "region/tracker_choice.hpp"
#include "region/twins.hpp"

namespace memlith::core {

struct RegionOptions;  // region/region.hpp

class RegionCapture {
 public:
  RegionCapture(RegionHome& home, RegionMapping& mapping) : home_(home), mapping_(mapping) {}

  // Guards what was taken, and the growth of the region. A region with a guard takes the guard's locks first.
  Mutex mutex;

  // Finds stores from now on.
  Status begin(const RegionOptions& options) MEMLITH_REQUIRES(mutex);
  // No capture asks which thread stored where, from now on if `process_scope`: pages may become hot.
  Status allow_hot_pages(bool process_scope) MEMLITH_REQUIRES(mutex);

  // ---- any thread, without the lock
  // Null in a read-only store. A tracker whose place another one took stays until the region is closed.
  [[nodiscard]] Tracker* tracker() const { return tracker_.load(std::memory_order_acquire); }
  // A commit that is no capture has these bytes.
  void note_copied(Range range) {
    if (copied_ != nullptr) copied_->note(range);
  }
  // How many pages a release could give back, as far as known.
  [[nodiscard]] std::uint64_t copied_pages() const;

  // ---- a capture
  // Adds the bytes to the frame that were stored to by `thread` in `part`, and those of `shared`, whichever thread
  // stored to them. keep() or give_back() follows, also after a failure.
  Status take(ThreadNumber thread, Range part, std::span<const Range> shared, JointFrame& frame)
      MEMLITH_REQUIRES(mutex);
  // The pieces of memory, and of copies, that were taken. Until the next call.
  [[nodiscard]] const std::vector<SourceExtent>& pieces() const MEMLITH_REQUIRES(mutex) { return pieces_; }
  // The frame ends there in the log. Lsn 0: nothing had to be logged.
  void keep(Range part, Lsn end) MEMLITH_REQUIRES(mutex);
  void give_back() MEMLITH_REQUIRES(mutex);
  // How many bytes a capture would take now, those of `but` left out.
  Result<std::uint64_t> bytes_due(Range but) MEMLITH_REQUIRES(mutex);
  // True if a capture of the thread would take nothing.
  bool has_nothing_of(ThreadNumber thread) MEMLITH_REQUIRES(mutex);
  // Not reported by MEMLITH_CHECK_THREADS: pages of which `but` says so, within the guard's locks.
  void leave_out_of_check(std::function<bool(std::uint64_t page)> but) MEMLITH_REQUIRES(mutex);

  // ---- memory becomes that of the last capture
  // The bytes of `shared`, too.
  Status roll_back(ThreadNumber thread, std::span<const Range> shared) MEMLITH_REQUIRES(mutex);
  // Whole pages are zeros from now on, durably on ok. Earlier stores to them count as captured.
  Status discard(Range part) MEMLITH_REQUIRES(mutex);

  // ---- releases of memory; everything captured is home, and no transaction has ranges in the region
  // Gives the memory of clean pages back to the system.
  Status release_clean() MEMLITH_REQUIRES(mutex);
  // True if the tracker cannot tell which pages are clean: copied pages are compared with home instead, and stores to
  // them wait meanwhile.
  [[nodiscard]] bool compares_with_home() const { return copied_ != nullptr; }
  Status release_equal() MEMLITH_REQUIRES(mutex);
  // The same for the copied pages of [first, end) of which `is_home` says so; see Region.
  Result<std::uint64_t> release_copies(std::uint64_t first, std::uint64_t end,
                                       const std::function<bool(std::uint64_t page)>& is_home);

  [[nodiscard]] std::uint64_t hot_pages() const MEMLITH_REQUIRES(mutex) { return hot_ != nullptr ? hot_->count() : 0; }

 private:
  static constexpr std::uint64_t kReleasedAtOnce = 256;  // pages
  static constexpr std::uint64_t kLookedAtOnce = 64 * kReleasedAtOnce;
  [[nodiscard]] TrackedMemory tracked_memory();
  void change_tracker() MEMLITH_REQUIRES(mutex);
  Status collect(ThreadNumber thread, Range part, std::span<const Range> shared = {}) MEMLITH_REQUIRES(mutex);
  void cut_to_size() MEMLITH_REQUIRES(mutex);
  void cut_to_part(Range part) MEMLITH_REQUIRES(mutex);
  void find_pieces(Range part) MEMLITH_REQUIRES(mutex);
  void accept(Range part) MEMLITH_REQUIRES(mutex);
  Status restore_stored() MEMLITH_REQUIRES(mutex);

  RegionHome& home_;
  RegionMapping& mapping_;
  std::unique_ptr<ThreadCheck> thread_check_;  // where the environment asks for it, if persists may have thread scope
  std::unique_ptr<Tracker> first_tracker_;
  std::unique_ptr<Tracker> second_tracker_ MEMLITH_GUARDED_BY(mutex);  // took the place of the first
  Atomic<Tracker*> tracker_{nullptr};  // release in begin() and change_tracker(), acquire in tracker()
  std::optional<TrackerChoice> choice_ MEMLITH_GUARDED_BY(mutex);  // while the tracker may change
  bool change_is_due_ MEMLITH_GUARDED_BY(mutex) = false;
  // With equal_, only if the tracker cannot tell which pages are clean.
  std::unique_ptr<CopiedPages> copied_;
  std::unique_ptr<EqualPages> equal_ MEMLITH_GUARDED_BY(mutex);
  // Only if the tracker finds pages and not bytes:
  std::unique_ptr<Twins> twins_ MEMLITH_GUARDED_BY(mutex);
  std::unique_ptr<CapturedPages> captured_ MEMLITH_GUARDED_BY(mutex);
  // Only if no tracker finds bytes and no persist has thread scope.
  std::unique_ptr<HotPages> hot_ MEMLITH_GUARDED_BY(mutex);
  std::vector<Range> stored_ MEMLITH_GUARDED_BY(mutex);         // collected by the running capture
  std::vector<Range> shared_ MEMLITH_GUARDED_BY(mutex);         // those that were given to it
  std::vector<SourceExtent> pieces_ MEMLITH_GUARDED_BY(mutex);  // the parts of stored_ that have to be logged
};

}  // namespace memlith::core
