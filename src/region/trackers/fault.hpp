// The fault tracker: clean pages are read-only, the first store to one faults, and the handler keeps the page as it was
// (its twin), notes the thread, and lets the store through. A capture compares each page with its twin, so that only
// changed words are logged; a rollback copies the twin back. Works on every kernel, and faster where there is
// userfaultfd (Linux 5.11; how pages are protected is in fault_handler.hpp). Floor: region, private to the trackers.
//
// Threads are known by page: of two threads that store to one page between captures, the first counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "region/tracker.hpp"
#include "region/trackers/replaceable.hpp"
#include "region/trackers/userfaultfd.hpp"

namespace memlith::core {

class FaultTracker final : public Tracker {
 public:
  FaultTracker(const TrackedMemory& memory, std::string reason);
  ~FaultTracker() override;
  FaultTracker(const FaultTracker&) = delete;
  FaultTracker& operator=(const FaultTracker&) = delete;

  Status attach();
  // Instead: finds stores from now on, and what `before` has not collected counts as stored to, by an unknown thread.
  // On failure `before` goes on.
  Status attach_in_place_of(ReplaceableTracker& before, const TwinOf& twin_of);

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override;
  void accept_part(Range part) override;
  void give_back() override;
  bool rollback_needs_home(ThreadNumber thread) override;
  Status rollback(ThreadNumber thread, std::vector<Range>& others) override;
  Status restore(Range range, const ReadHome& read, bool at_home) override;
  void give_pages(Range pages, ThreadNumber thread) override;
  void note_captured(Range range) override;
  Status grow(std::uint64_t bytes) override;
  Status prepare(Range range) override;
  void announce(std::span<const Range> ranges) override;
  void forget_threads() override;
  LeftOpen leave_open(std::uint64_t page, std::byte* twin) override;
  Status track_again(std::uint64_t page, const std::byte* twin) override;
  Status release_clean() override;
  [[nodiscard]] bool knows_threads() const override { return knows_threads_; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::fault; }
  [[nodiscard]] std::string describe() const override;

 private:
  struct Taken {
    std::uint32_t page = 0;
    PageMark mark;
    bool changed = true;  // collect() has found something in it
  };

  [[nodiscard]] std::uint64_t chunks_max() const { return (pages_max_ + kChunkPages - 1) / kChunkPages; }
  [[nodiscard]] bool is_of(ThreadNumber thread, std::uint32_t page) const;
  [[nodiscard]] const std::byte* twin(PageMark mark) const {
    MEMLITH_ASSERT(mark.twin > 0 && mark.twin <= pages_.next_twin);
    return pages_.twins + std::uint64_t{mark.twin - 1} * kPageBytes;
  }
  Status map_arrays();
  Status prepare_adoption();
  Status restore_pages(std::uint64_t first, std::uint64_t end, Range range, const ReadHome& read);
  void report_shared_pages();
  void hold_with_room(std::optional<FaultHold>& hold, std::vector<Range>& ranges);
  Status pick(ThreadNumber thread);
  void unpick();
  Status seal();
  void note_stored();
  void mark_again(const Taken& each);
  void free_twin(PageMark mark);
  [[nodiscard]] bool protected_in_one(std::uint64_t page, std::uint64_t next) const;
  Status protect(std::uint64_t first, std::uint64_t end) const;
  Status protect_all() const;
  Status release_pages(std::uint64_t first, std::uint64_t end);

  std::uint64_t pages_max_;
  std::function<Status(std::uint64_t, std::uint64_t)> map_home_;
  std::string reason_;
  std::string slow_because_;  // why chunks are not adopted
  bool knows_threads_ = true;
  const ThreadCheck* thread_check_;  // null: pages that threads share are not reported
  FileDescriptor uffd_;
  FaultPages pages_;
  FaultRegion* region_ = nullptr;
  std::vector<Taken> taken_;
  std::vector<std::byte> home_;  // of a unit that is being restored
};

}  // namespace memlith::core
