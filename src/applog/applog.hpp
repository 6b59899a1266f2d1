// An application log in a region: a bounded, circular list of entries. Floor: applog. include/memlith/applog.h states
// the contract of each call.
//
// Appending copies an entry into the ring in memory. What was appended goes to the redo log as the bytes of the ring
// that changed, several entries a frame, in order; replay brings the bytes home like all others. So entries outlive
// checkpoints, a crash leaves a prefix of the entries, and an overwritten entry is overwritten in that order, too.
//
// The position of the first entry that is not consumed moves with a commit of its own, or in the frame of a transaction
// of the store (AppLogPart). The bytes before it are used again as soon as the frame that moved it is in the redo log,
// because whatever overwrites them comes behind it.
//
// Threads: any number append and write; one reads and consumes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "applog/board.hpp"
#include "applog/open_log.hpp"
#include "applog/position_index.hpp"
#include "applog/ring.hpp"
#include "base/sync.hpp"
#include "region/region.hpp"
#include "region/region_user.hpp"
#include "store/collectors.hpp"
#include "store/logged_numbers.hpp"

namespace memlith::core {
struct OpenRegion;
}

namespace memlith::core::applog {

struct AppLogOptions {
  bool create = false;
  WhenFull when_full = WhenFull::block;
  bool manual = false;     // closing writes nothing
  bool exclusive = false;  // with `create`: refuse one that is there
  // Its bytes are to lie there, where other processes read them. Null: no process does. The region has no limit of
  // memory then.
  std::shared_ptr<Board> board = nullptr;
};

// The check of memlith_verify for a region.
bool holds_applog(const Region& region);

class AppLog final : public OpenLog, public RegionUser, private Collector {
 public:
  // The region is open; it is new, or holds an application log.
  static Result<std::unique_ptr<AppLog>> open(Region& region, const AppLogOptions& options);
  ~AppLog() override;

  [[nodiscard]] Status check_process() const override { return region_.store().check_process(); }
  [[nodiscard]] AppLog* alone() override { return this; }

  Result<std::uint64_t> append(std::span<const Content> entries) override {
    return append(entries, options_.when_full);
  }
  Result<std::uint64_t> append(std::span<const Content> entries, WhenFull when_full);
  // True if such entries were refused because others are not consumed: that makes room for them.
  bool waits_for_room(std::span<const Content> entries);
  Result<Lsn> write() override;
  Result<Lsn> write_weak() override;
  // For a caller who waits for the ticket at once: brings what was appended to the redo log.
  Result<Lsn> begin_write();
  Status wait(Lsn ticket) override { return region_.store().wait(ticket); }
  std::uint64_t durable();

  Result<bool> read(std::uint64_t wait_ms, Entry& entry) override;
  void rewind() override;
  Status consume(std::uint64_t number) override;

  Result<bool> read_at(std::uint64_t number, std::vector<std::byte>& content) override;
  Status truncate_after(std::uint64_t last) override;
  Status truncate_before(std::uint64_t first) override;
  Status restart(std::uint64_t next) override;
  // With a board: the place of that entry, or of the nearest one that is in the redo log and not consumed, or behind
  // the newest of these. If entries at or before it were dropped since the board had `changes`, the first of these
  // counts instead, as for the reader of this process. `due`: how far the redo log has to be durable for the entry to
  // be; 0: it is, or there is none.
  Place place_of(std::uint64_t number, std::uint64_t changes, Lsn& due);

  Result<AppLogReport> info() override { return report(); }
  // Makes durable what was appended. Nothing else is done with the log then but to destroy it. When the redo log has no
  // room for it, nothing has ended: the log goes on, and can be stopped later. Destroying it loses those entries.
  Status stop() override;
  Status release_for_limit(Region& region) override;
  [[nodiscard]] bool stopped() const { return stopped_; }
  AppLogReport report();
  [[nodiscard]] Region& region() const { return region_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }  // of the entries' checksums
  [[nodiscard]] bool read_only() const { return region_.store().read_only(); }
  void set_open_region(OpenRegion* region) { open_region_ = region; }
  [[nodiscard]] OpenRegion* open_region() const { return open_region_; }

  // The next entry to be read stays, unless it was consumed meanwhile.
  void view_moved() override;

 private:
  friend class AppLogPart;
  AppLog(Region& region, const AppLogOptions& options)
      : Collector(region.store().collectors()), region_(region), options_(options), memory_(region.address()) {}
  // Entries to be appended: they exist as long as this does, and were checked.
  struct Entries {
    std::vector<Content> all;
    std::vector<std::uint64_t> sums;
    std::uint64_t bytes = 0;  // in the ring
    void clear() {
      all.clear();
      sums.clear();
      bytes = 0;
    }
  };
  // Bytes of the region for one commit.
  struct Changes {
    std::vector<Extent> extents;
    std::vector<const std::byte*> sources;
  };

  Status format();
  Status check_first_page();
  Status find_end();
  // The ring's bytes up to that position are about to be used, the first time maybe. Errors: io.
  Status load_to(std::uint64_t position) MEMLITH_REQUIRES(mutex_);
  Status load(const Ring& ring, std::uint64_t from, std::uint64_t to) const;
  void move_to_board();
  [[nodiscard]] Status damaged(std::uint64_t offset, std::string_view what) const;
  [[nodiscard]] Status need_writable() const;
  [[nodiscard]] std::uint64_t frame_bytes_max() const { return region_.store().log_limit_bytes() / 2; }

  // Adds the entries, if they can be appended at all.
  Status check_entries(std::span<const Content> given, Entries& entries) const;
  // Where bytes of the ring are still in use.
  [[nodiscard]] std::uint64_t in_use_from() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool has_room(std::uint64_t bytes) const MEMLITH_REQUIRES(mutex_);
  void place(const Entries& entries) MEMLITH_REQUIRES(mutex_);  // there is room
  [[nodiscard]] Status no_room(std::uint64_t bytes, std::uint64_t capacity) const;
  Status make_room(std::uint64_t bytes, WhenFull when_full);
  Status grow(std::uint64_t bytes);
  Status move_to_larger(std::uint64_t capacity) MEMLITH_REQUIRES(mutex_);
  // Brings entries to the redo log, up to that one at least. Returns what has to be durable for that one to be durable.
  Result<Lsn> hand_over(std::uint64_t number, bool will_sync);
  // Into the ring, in memory.
  void put(std::uint64_t position, const void* bytes, std::uint64_t count) MEMLITH_REQUIRES(mutex_);
  // Entries that were appended and are not in the redo log yet, and the mark behind it, which is also put into the
  // ring.
  void add_waiting(Changes& changes, EntryHeader& mark) MEMLITH_REQUIRES(mutex_);
  // It is in the redo log, in a frame that ends there.
  void note_handed(const EntryHeader& mark, std::uint64_t to, Lsn end) MEMLITH_REQUIRES(mutex_);

  // Entries that wait go to the redo log with what waits in the rest of the store.
  Result<KeptLock> pause() override;
  void set_aside(const Closing& closing) noexcept override;
  CommitBatch first(std::uint64_t bytes_max) override;
  bool in_log(Lsn end) noexcept override;
  [[nodiscard]] std::string what_waits() const override;

  // For AppLogPart, with the mutex of the collectors held but in grow_for(), which makes room if the log may grow.
  // hold_for() holds the log, which has room for the entries; place_held() appends them; held_in_log(), when their
  // frame is in the redo log, lets the log go; end_hold() does that without a frame.
  Status grow_for(const Entries& entries);
  Status hold_for(const Entries& entries);
  void place_held(const Entries& entries, Changes& changes, EntryHeader& mark);
  void held_in_log(const EntryHeader& mark, Lsn end);
  void end_hold() { part_hold_.release(); }
  // There is more room.
  void tell_freed() MEMLITH_REQUIRES(mutex_);
  // The board's numbers, which a change of places may set back.
  void show_numbers() MEMLITH_REQUIRES(mutex_);
  // The entries from that one on are dropped, in a change of the board. There is room for a cut.
  void note_cut(std::uint64_t first) MEMLITH_REQUIRES(mutex_);
  // As it is logged when everything up to that entry is consumed, and what follows when it is in the redo log.
  Result<Position> position_of(std::uint64_t number);
  // `end`: of its commit.
  void move_consumed(const Position& position, Lsn end);
  // The bytes before that position need not go home any more, from the commit that ends there on.
  void give_up(std::uint64_t before, Lsn end) MEMLITH_REQUIRES(mutex_);
  Status make_durable(std::uint64_t number);
  std::uint64_t newest();
  // The newest durable entry.
  std::uint64_t durable_number() MEMLITH_REQUIRES(mutex_);
  Result<bool> copy_next(Entry& entry) MEMLITH_REQUIRES(mutex_);
  Result<Position> position_behind(std::uint64_t number) MEMLITH_REQUIRES(mutex_);
  void add(Changes& changes, std::uint64_t offset, const void* bytes, std::uint64_t count) const;
  void add_ring(Changes& changes, std::uint64_t from, std::uint64_t to) const MEMLITH_REQUIRES(mutex_);
  void add_end_mark(Changes& changes, std::uint64_t position, const EntryHeader& mark) const MEMLITH_REQUIRES(mutex_);

  Region& region_;
  const AppLogOptions options_;
  OpenRegion* open_region_ = nullptr;
  std::byte* memory_;       // the region's, or what the board shows in its place; constant after open()
  std::uint64_t seed_ = 0;  // constant after open()
  bool stopped_ = false;
  std::uint64_t frame_bytes_ = 0;  // so much of smaller entries goes to the redo log in one frame

  // Under the mutex of the collectors, which is held while entries go to the redo log.
  Changes going_;             // entries that were set aside
  EntryHeader going_mark_{};  // behind them
  std::uint64_t going_to_ = 0;
  std::optional<SizeChange> going_size_;  // of the region, in the same frame
  KeptLock part_hold_;                    // of mutex_, for a part

  bool collects_ = false;      // is one of the store's collectors
  Mutex mutex_;                // taken behind the mutex of the collectors
  ConditionVariable arrived_;  // entries in the redo log
  ConditionVariable freed_;    // bytes of the ring
  Ring ring_ MEMLITH_GUARDED_BY(mutex_);
  std::uint64_t appended_ MEMLITH_GUARDED_BY(mutex_) = 0;  // the position behind the newest entry
  std::uint64_t number_ MEMLITH_GUARDED_BY(mutex_) = 0;    // of the newest entry
  std::uint64_t handed_ MEMLITH_GUARDED_BY(mutex_) = 0;    // the position behind what is in the redo log
  // Everything before it was given up, or lies where it was before the log grew.
  std::uint64_t given_up_ MEMLITH_GUARDED_BY(mutex_) = 0;
  // Bytes are used first in the order of their positions, from `loaded_from_` on, and each of them was after a lap.
  std::uint64_t loaded_from_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::uint64_t loaded_to_ MEMLITH_GUARDED_BY(mutex_) = 0;
  // The lowest position that was the end of what is in the redo log since a release began.
  std::uint64_t lowest_handed_ MEMLITH_GUARDED_BY(mutex_) = 0;
  LoggedNumbers numbers_ MEMLITH_GUARDED_BY(mutex_);  // of entries
  // The end of the newest frame that dropped entries. A write that waits for entries before it waits for it, too.
  Lsn dropped_end_ MEMLITH_GUARDED_BY(mutex_);
  bool reader_waits_ MEMLITH_GUARDED_BY(mutex_) = false;
  std::uint32_t writers_wait_ MEMLITH_GUARDED_BY(mutex_) = 0;
  Position consumed_ MEMLITH_GUARDED_BY(mutex_){};  // as the redo log has it
  Position read_ MEMLITH_GUARDED_BY(mutex_){};
  PositionIndex index_ MEMLITH_GUARDED_BY(mutex_);
  // For readers of other processes: which entries were dropped at the newer end, in which change of the board. A cut
  // that drops what an earlier one dropped, too, takes its place, so that both numbers rise.
  struct Cut {
    std::uint64_t changes = 0;
    std::uint64_t first = 0;
  };
  std::vector<Cut> cuts_ MEMLITH_GUARDED_BY(mutex_);

  // The reader's.
  std::vector<std::byte> content_;
  KeptFailure not_followed_;  // what the log is now cannot be read
};

}  // namespace memlith::core::applog
