// The redo log: circular, append-only, one write and one flush per commit. Floor: log. docs/format.md,
// docs/architecture.md.
//
// Life of a log:   format() once; open(); recover() hands out every frame that survived; secure() makes sure that all
// of them are on the medium; start() begins a new incarnation; then any number of threads append; close().
//
// Appending takes three steps, so that the caller's bytes are copied once, straight into the buffer that is written:
//     begin(payload_bytes)   reserves the place and, in LSN order, the bytes
//     writer.put(...)        copies; several threads copy side by side
//     writer.finish()        the frame is complete in memory; returns the LSN behind it
//     sync(lsn)              returns when everything before the LSN is durable
// How frames share a write and a flush: log/batches.hpp.
//
// Errors: the first failed write or flush poisons the log. Commits that were not acknowledged by then get that error
// (whether they are durable is unknown until reopening); later ones get `poisoned`. Threads: begin, put, finish and
// sync from any thread; a thread has one unfinished writer at a time. recover, start and close while no other thread
// uses the log; trim from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "log/batches.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"
#include "log/options.hpp"
#include "log/reader.hpp"
#include "log/recovery.hpp"
#include "log/slots.hpp"
#include "log/superblocks.hpp"

namespace memlith::core {

struct LogFormat {
  std::uint32_t block_bytes = 512;
  std::uint64_t slot_bytes = 8 * kMiB;
  std::uint64_t slot_count = 8;
};

// For a log that continues another one: its place and the incarnation before. The log is empty.
struct LogBeginning {
  LogPosition position;
  std::uint64_t incarnation = 0;
  LogEnd end = LogEnd::open;
};

class Log {
 public:
  // Writes an empty log onto the device. Durable on ok.
  static Status format(Device& device, const LogFormat& format, const ClientBytes& client, std::uint64_t log_id,
                       const std::optional<LogBeginning>& beginning = {});

  // Reads the superblock and the slot headers; changes nothing. The device outlives the log.
  static Result<std::unique_ptr<Log>> open(Device& device, const LogOptions& options);
  ~Log();

  // Passes every surviving frame to `visit`, in order, and finds the end. Damage before the last acknowledged frame is
  // `corrupt`, never taken for the end; every frame of a log that was closed cleanly was acknowledged. Changes nothing
  // on the medium.
  Status recover(const std::function<Status(const Frame&)>& visit);

  // Frames before this LSN are known to be on the medium. Later frames that recover() found may be only in a page cache
  // whose flush had failed.
  [[nodiscard]] Lsn proven() const { return recovery_.found().proven; }

  // Makes the other frames durable, too, by writing them again to free slots. Must be called before anything relies on
  // these frames; start() calls it. Durable on ok. Errors: no_space (no free slot, and no space for one; nothing was
  // lost).
  Status secure();

  // The superblock that was found may be in the page cache only, and a power cut would bring an older one back. Writes
  // it again, once, unless start() has. Must be called before anything outside the log relies on it. Durable on ok.
  Status secure_superblock() { return started_ ? kOk : recovery_.secure_superblock(); }

  // Before start(), for an empty log: its next frame does not follow what is before it in the chain, so that no reader
  // takes the two for one history.
  void break_chain();

  // Instead of start(), for a held log: everything that recover() found is home, and is freed. Durable on ok.
  Status hold(const ClientBytes& client) { return recovery_.hold(client); }

  // Begins a new incarnation with `tail` as the oldest frame kept (position `recovered()` to keep nothing). Durable on
  // ok. `is_flushed`: the caller has formatted the log, and no other code has written to it.
  Status start(LogPosition tail, const ClientBytes& client, bool is_flushed = false);

  // `will_sync`: the caller waits for this frame at once, so a large one may be written while it is still being filled,
  // and leaders may expect the caller to come back.
  Result<FrameWriter> begin(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync = true);
  // For callers with a lock for which other threads must not wait during I/O: begins the frame only if that needs
  // neither waiting nor writing. Otherwise make_room() waits and writes, and the caller tries again.
  Result<std::optional<FrameWriter>> begin_at_once(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync);
  Status make_room(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync);
  Status sync(Lsn lsn) { return batches_.sync(lsn); }

  // begin + put + finish + sync.
  Result<Lsn> append(std::span<const std::byte> payload, std::uint32_t kind);

  // Frees everything before `tail`. Durable on ok; the space is reused only after that.
  Status trim(LogPosition tail, const ClientBytes& client);

  // Adds slots, filled with zeros that are durable before the superblock counts them; does nothing beyond
  // slot_count_max. Any thread, also during commits. Errors: no_space (nothing changed), poisoned.
  Status grow(std::uint64_t more_slots);

  // Makes everything durable and marks the log clean, so that opening it reads only the superblock. Removes slots that
  // grow() added until there are `slots_kept`. `home`: also frees everything before it, as trim() does.
  static constexpr std::uint64_t kAllSlots = ~std::uint64_t{0};  // for another process, which has yet to read them
  Status close(const ClientBytes& client, std::optional<LogPosition> home = {}, std::uint64_t slots_kept = 0);

  // From now on nothing is acknowledged. For the floor above, when its own work with the log failed.
  void poison(Status cause);
  [[nodiscard]] bool poisoned() const { return batches_.poisoned(); }
  // The failure of every call once the log is poisoned; ok before.
  [[nodiscard]] Status failure() const;

  // Sets the function that begin() calls, without any lock, when the log is full: it causes a trim(), now or soon.
  void set_relieve(std::function<Status()> relieve) { relieve_ = std::move(relieve); }

  // The owner could not make the requested room, for lack of memory or descriptors. Each begin() that waits for room
  // returns this failure and has changed nothing. The log continues, and the next begin() asks again.
  void refuse_room(Status cause);
  // True if a begin() has asked for room that was neither made nor refused since.
  [[nodiscard]] bool room_is_waited_for() const;

  // Sets the function that is called, without any lock, whenever more has become durable and when the log is poisoned.
  // Call this while no other thread uses the log.
  void set_on_durable(std::function<void()> on_durable) { on_durable_ = std::move(on_durable); }

  [[nodiscard]] LogReader reader(LogPosition from, Lsn limit) const;
  // The frames from `from` on, of a log that another process writes. What is not durable yet comes, too.
  // One thread at a time, and not once the log is started.
  [[nodiscard]] LogReader follower(LogPosition from) const;

  [[nodiscard]] LogPosition tail() const;
  [[nodiscard]] LogPosition durable() const;
  [[nodiscard]] Lsn durable_lsn() const { return batches_.durable_lsn(); }
  // The end of the newest frame or packed payload. Never behind what durable_lsn() has told: both are in one order
  // with the marks of collectors (store/collectors.hpp).
  [[nodiscard]] Lsn head() const { return batches_.head(); }
  [[nodiscard]] LogPosition recovered() const { return recovery_.found().end; }
  [[nodiscard]] char recovery_row() const { return recovery_.found().row; }  // also if recover() refused
  [[nodiscard]] bool started() const { return started_; }                    // not during start()
  // True if this file is a copy of the file that was written to when the log was in use.
  [[nodiscard]] bool is_copy() const {
    return device_.birth().differs_from({superblock().file_birth_ns, superblock().file_number});
  }
  [[nodiscard]] bool closed_cleanly() const {
    return superblocks_.found_end() == LogEnd::closed;
  }  // as found by open()
  [[nodiscard]] bool held() const { return superblocks_.found_end() == LogEnd::held; }  // likewise
  [[nodiscard]] std::uint32_t superblock_copies() const {
    return superblocks_.copies();
  }  // intact copies found by open()
  [[nodiscard]] std::uint64_t capacity_bytes() const;  // as it is now
  [[nodiscard]] std::uint64_t mapped_bytes() const;    // from the tail to the end of the last segment found
  [[nodiscard]] std::uint64_t used_bytes() const { return bytes_between(tail().lsn, head()); }
  [[nodiscard]] const Superblock& superblock() const { return superblocks_.unshared(); }  // while no thread writes
  [[nodiscard]] std::uint64_t log_id() const { return log_id_; }
  [[nodiscard]] const LogGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::uint64_t slot_count_max() const { return slot_count_max_.load(std::memory_order_relaxed); }
  // Lets the log grow to this many bytes from now on. Any thread. `invalid` if the log is larger already.
  Status set_bytes_max(std::uint64_t bytes);
  [[nodiscard]] const LogCounters& counters() const { return counters_; }
  [[nodiscard]] Device& device() const { return device_; }

 private:
  // The slots, and the threads that wait for free ones.
  struct Space {
    Slots slots;
    std::uint32_t waiters = 0;   // threads that wait for room since space_word_ changed last
    KeptFailure refusal;         // the last of refuse_room(), and
    std::uint32_t refusals = 0;  // how many there were
  };
  Log(Device& device, const LogOptions& options)
      : device_(device),
        options_(options),
        superblocks_(device),
        recovery_(device, superblocks_),
        batches_(device, geometry_, options, counters_, space_.slots) {
    batches_.set_on_progress([this] { note_progress(); });
  }

  void note_progress();
  // The slots are those that opening has found, or has added.
  void take_over_slots() MEMLITH_REQUIRES(batches_.mutex());
  Status use_found_slots(LogPosition tail) MEMLITH_REQUIRES(superblocks_.mutex(), batches_.mutex());
  // space.cpp
  Status add_slots(LogPosition tail, LogPosition head, std::uint64_t more) MEMLITH_REQUIRES(superblocks_.mutex());
  // Unlocks the mutex meanwhile: the caller checks everything again.
  Status make_space(Lsn end) MEMLITH_REQUIRES(batches_.mutex());
  // Makes threads that wait for room check again. The word is notified afterwards.
  void change_space() MEMLITH_REQUIRES(batches_.mutex()) {
    space_.waiters = 0;
    space_word_.fetch_add(1, std::memory_order_release);
  }

  Device& device_;
  const LogOptions options_;
  LogGeometry geometry_;  // constant after open()
  Superblocks superblocks_;
  LogRecovery recovery_;              // constant after start()
  std::uint64_t log_id_ = 0;          // constant after open()
  std::uint64_t incarnation_ = 0;     // constant after start()
  Lsn begun_lsn_;                     // likewise
  bool started_ = false;              // likewise
  std::function<Status()> relieve_;   // constant while several threads use the log
  std::function<void()> on_durable_;  // likewise
  LogCounters counters_;

  Batches batches_;
  Space space_ MEMLITH_GUARDED_BY(batches_.mutex());
  LogPosition tail_ MEMLITH_GUARDED_BY(batches_.mutex());
  Atomic<std::uint32_t> space_word_{0};      // changes when space came free or was refused, or the log failed
  Atomic<std::uint64_t> slot_count_max_{0};  // the log grows up to this
};

}  // namespace memlith::core
