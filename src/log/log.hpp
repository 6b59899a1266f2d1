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
// The first thread that syncs while fewer than in_flight_max writes are under way leads: it seals the open batch and
// does the I/O itself, so a lone committer pays no thread switch. Threads that arrive meanwhile fill the next batch
// (group commit); a leader gives the committers of the last batch a moment to come back and share this one, which costs
// a lone committer nothing. Batches are acknowledged in order. Small payloads that no thread syncs at once are packed:
// they share a frame, which stays open until another frame follows or the batch is sealed. A frame too large for a
// batch, or a large one of a lone committer, is streamed: its first pieces are on their way to the device while the
// rest is still being copied.
//
// Errors: the first failed write or flush poisons the log. Commits that were not acknowledged by then get that error
// (whether they are durable is unknown until reopening); later ones get `poisoned`. Threads: begin, put, finish and
// sync from any thread; a thread has one unfinished writer at a time. recover, start and close while no other thread
// uses the log; trim from one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "base/checksum.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "log/copy.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"
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

struct LogOptions {
  std::uint64_t slot_count_max = 128;             // the log grows up to this
  std::uint64_t bytes_max = 0;                    // or, if not 0, to this many bytes
  std::uint32_t in_flight_max = 2;                // batches being written at a time
  std::uint64_t pipeline_bytes_min = 128 * kKiB;  // a smaller batch waits for the batch before it, and grows meanwhile
  std::uint32_t turns_awake = 60;                 // how often a waiting committer yields before it blocks
  std::uint64_t batch_bytes = 1280 * kKiB;
  // The capacity of a batch while all frames are small, so that a log with small frames needs little memory.
  std::uint64_t small_batch_bytes = 64 * kKiB;
  // Payloads up to this size that are begun without `will_sync` share frames of their kind. The owner must be able to
  // tell where each payload of a frame ends; 0: every payload has a frame of its own.
  std::uint64_t packed_bytes_max = 0;
  std::uint64_t stream_bytes_min = 384 * kKiB;  // from this size on, a frame of a single committer is streamed
  std::uint64_t stream_chunk_bytes = 256 * kKiB;
  std::uint64_t window_bytes = 4 * kMiB;            // read ahead by a checkpoint
  std::uint64_t recovery_window_bytes = 32 * kMiB;  // and by recovery
  std::uint64_t follow_window_bytes = 512 * kKiB;   // and by a follower, mostly beyond the end
  // For a follower: the segments from here on are looked for, even before the tail. They may be gone.
  Lsn followed_to{~std::uint64_t{0}};
};

// Counters of a log since it was opened. All only rise.
struct LogCounters {
  std::atomic<std::uint64_t> frames{0};   // a packed payload counts as a frame
  std::atomic<std::uint64_t> batches{0};  // = writes + flushes on the commit path
  std::atomic<std::uint64_t> bytes{0};    // written to the log by frames, headers and padding included
  std::atomic<std::uint64_t> trims{0};
};

class Log;

// A frame, or a payload of a packed frame, that is being filled. It must be finished, because its place in the log is
// taken.
class FrameWriter {
 public:
  FrameWriter(FrameWriter&& other) noexcept;
  FrameWriter& operator=(FrameWriter&&) = delete;
  FrameWriter(const FrameWriter&) = delete;
  ~FrameWriter();

  // Adds bytes to the payload; exactly payload_bytes in all. `next` is the source of the next call; its beginning is
  // fetched into the cache meanwhile.
  void put(const void* bytes, std::uint64_t count, std::span<const std::byte> next = {}) {
    if (count > kFewBytes || way_ == Way::streamed) return put_many(bytes, count, next);
    MEMLITH_ASSERT(count <= payload_bytes_ - put_bytes_);
    copy_few(payload_ + put_bytes_, static_cast<const std::byte*>(bytes), count);
    put_bytes_ += count;
    if (!next.empty()) __builtin_prefetch(next.data());
  }
  // Returns the end of the frame, or of the payload in a packed frame, for sync().
  Result<Lsn> finish();

 private:
  friend class Log;
  enum class Way : std::uint8_t { whole, streamed, packed };
  FrameWriter(Log& log, std::uint32_t sequence, Way way, std::byte* payload, Lsn begin, std::uint64_t payload_bytes,
              std::uint32_t kind)
      : log_(&log),
        sequence_(sequence),
        way_(way),
        kind_(kind),
        begin_(begin),
        payload_bytes_(payload_bytes),
        payload_(payload) {}

  void put_many(const void* bytes, std::uint64_t count, std::span<const std::byte> next);

  Log* log_;
  std::uint32_t sequence_;  // of the batch
  Way way_;
  std::uint32_t kind_;
  Lsn begin_;  // of the frame, or of the payload in a packed frame
  std::uint64_t payload_bytes_;
  std::uint64_t put_bytes_ = 0;
  std::byte* payload_;  // its place in the batch's buffer, unless the frame is streamed
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
  Status sync(Lsn lsn);

  // begin + put + finish + sync.
  Result<Lsn> append(std::span<const std::byte> payload, std::uint32_t kind);

  // Frees everything before `tail`. Durable on ok; the space is reused only after that.
  Status trim(LogPosition tail, const ClientBytes& client);

  // Adds slots, filled with zeros that are durable before the superblock counts them; does nothing beyond
  // slot_count_max. Any thread, also during commits. Errors: no_space (nothing changed), poisoned.
  Status grow(std::uint64_t more_slots);

  // Makes everything durable and marks the log clean, so that opening it reads only the superblock. Removes the slots
  // that grow() added, unless another process has yet to read them. `home`: also frees everything before it, as trim()
  // does.
  enum class GrownSlots : std::uint8_t { removed, left };
  Status close(const ClientBytes& client, std::optional<LogPosition> home = {},
               GrownSlots grown_slots = GrownSlots::removed);

  // From now on nothing is acknowledged. For the floor above, when its own work with the log failed.
  void poison(Status cause);
  [[nodiscard]] bool poisoned() const { return failed_.load(std::memory_order_acquire); }
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
  [[nodiscard]] Lsn durable_lsn() const { return Lsn{durable_lsn_.load(std::memory_order_acquire)}; }
  // The end of the newest frame or packed payload. Never behind what durable_lsn() has told: both are in one order
  // with the marks of collectors (store/collectors.hpp).
  [[nodiscard]] Lsn head() const { return Lsn{head_lsn_.load(std::memory_order_seq_cst)}; }
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
  friend class FrameWriter;

  // A part of a batch that is consecutive on the device.
  struct Stretch {
    std::uint64_t device_offset = 0;
    std::uint64_t begin = 0;  // in the batch
    std::uint64_t bytes = 0;
    std::uint64_t segment = 0;
    bool with_slot_header = false;
  };
  // The pieces of a stretch that are written, and their places.
  struct Pieces {
    iovec vectors[2];
    std::size_t first = 0;
    std::uint64_t offset = 0;
    [[nodiscard]] std::span<const iovec> used() const { return std::span(vectors).subspan(first); }
  };
  // While it is open, the fields belong to mutex_; once it is sealed, to the thread that leads it.
  struct Batch {
    std::byte* buffer = nullptr;
    std::uint64_t capacity = 0;  // of the buffer; changed only while the batch is open and empty
    Lsn begin;
    std::uint64_t used = 0;
    std::uint32_t committers = 0;  // threads that wait for a frame in it
    std::uint64_t after_checksum = 0;
    Atomic<std::uint32_t> unfinished{0};  // writers still copying; release on finish, acquire by the leader
    Atomic<std::uint32_t> word{0};        // changes when waiters of the batch have to check again
    std::vector<Stretch> stretches;
    AlignedBuffer slot_header;
  };
  // The streamed frame; at most one at a time, besides the batches. While streaming_, this belongs to the thread that
  // streams; otherwise to mutex_.
  struct Stream {
    std::unique_ptr<IoQueue> queue;  // from the first stream on
    StreamingChecksum payload_checksum;
    FrameHeader header{};
    std::byte* memory = nullptr;  // kStreamChunks buffers, in memory_.large
    std::uint64_t buffer_bytes = 0;
    std::uint64_t chunk_bytes = 0;  // of this frame; at most buffer_bytes
    std::uint64_t chunk = 0;        // being filled, counted from the start of the frame
    std::uint64_t chunk_used = 0;
    std::uint32_t sequence = 0;  // it is a batch of its own
    Lsn begin;
    std::vector<Stretch> stretches;
    Status status = kOk;
    AlignedBuffer slot_header;
  };
  static constexpr std::uint32_t kStreamChunks = 4;
  // In the place of the header's checksum until the batch is sealed: the pack has no trailer yet.
  static constexpr std::uint64_t kUnsealedPack = 1;

  // The frame at the end of the open batch that takes further payloads. Its checksum is computed by the leader.
  struct Pack {
    std::byte* frame = nullptr;  // in the batch's buffer; null: there is none
    std::uint32_t kind = 0;
    Lsn begin;
    std::uint64_t payload_bytes = 0;  // taken so far
  };

  // The slots, and the threads that wait for free ones.
  struct Space {
    Slots slots;
    std::uint32_t waiters = 0;   // threads that wait for room since space_word_ changed last
    KeptFailure refusal;         // the last of refuse_room(), and
    std::uint32_t refusals = 0;  // how many there were
  };
  // A leader of the open batch that waits for more frames.
  struct Gathering {
    bool active = false;
    bool room_wanted = false;  // a thread waits until the open batch is sealed
    // Committers of the last batch, who may come back soon, and those of the next.
    std::uint32_t expected_committers = 0;
    std::chrono::nanoseconds io_time{0};  // of a batch, smoothed
  };
  struct Memory {
    AlignedBuffer small;      // of the batches
    AlignedBuffer large;      // of the batches and the stream, in huge pages; empty while no frame needs it
    bool large_used = false;  // since the last trim
  };

  Log(Device& device, const LogOptions& options)
      : device_(device), options_(options), superblocks_(device), recovery_(device, superblocks_) {}

  // Memory that later frames do not need; freed with this object.
  struct Spare {
    std::unique_ptr<IoQueue> queue;
    AlignedBuffer memory;
  };
  Spare take_spare() MEMLITH_REQUIRES(mutex_);

  // space.cpp
  Status add_slots(LogPosition tail, LogPosition head, std::uint64_t more) MEMLITH_REQUIRES(superblocks_.mutex());
  // Unlocks mutex_ meanwhile: the caller checks everything again. So do make_large, work_on, wait_for, gather and lead.
  Status make_space(Lsn end) MEMLITH_REQUIRES(mutex_);
  // Makes threads that wait for room check again. The word is notified afterwards.
  void change_space() MEMLITH_REQUIRES(mutex_) {
    space_.waiters = 0;
    space_word_.fetch_add(1, std::memory_order_release);
  }
  // log.cpp
  // The slots are those that opening has found, or has added.
  void take_over_slots() MEMLITH_REQUIRES(mutex_);
  Status use_found_slots(LogPosition tail) MEMLITH_REQUIRES(superblocks_.mutex(), mutex_);
  void keep_failure(Status cause) MEMLITH_REQUIRES(mutex_);
  // The invariants between any two calls once the log is started (docs/states.md).
  void assert_state() const MEMLITH_REQUIRES(mutex_);
  Status failure_for_late_comer() const MEMLITH_REQUIRES(mutex_);

  // append.cpp
  Status allocate_buffers() MEMLITH_REQUIRES(mutex_);  // by start()
  Status make_large(bool with_queue) MEMLITH_REQUIRES(mutex_);
  Batch& batch(std::uint32_t sequence) { return *batches_[sequence % batches_.size()]; }
  [[nodiscard]] std::uint32_t in_flight() const MEMLITH_REQUIRES(mutex_) {
    return open_sequence_ - done_sequence_.load(std::memory_order_relaxed);
  }
  // A small batch takes as long as a flush, however full it is: one batch for all committers is better than two that
  // overlap. Large batches are dominated by transfers, which run side by side.
  [[nodiscard]] bool may_lead() MEMLITH_REQUIRES(mutex_) {
    if (gathering_.active || in_flight() >= options_.in_flight_max) return false;
    return in_flight() == 0 || batch(open_sequence_).used >= options_.pipeline_bytes_min;
  }
  enum class Obstacle : std::uint8_t { none, small_memory, full_batch, other_stream, all_in_flight, full_log };
  [[nodiscard]] Obstacle obstacle(std::uint64_t frame_bytes, bool will_sync, bool& streamed) MEMLITH_REQUIRES(mutex_);
  Status work_on(Obstacle obstacle, std::uint64_t frame_bytes, bool streamed) MEMLITH_REQUIRES(mutex_);
  FrameWriter place(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync, bool streamed)
      MEMLITH_REQUIRES(mutex_);
  FrameWriter place_packed(std::uint64_t payload_bytes, std::uint32_t kind) MEMLITH_REQUIRES(mutex_);
  void take(std::uint64_t bytes) MEMLITH_REQUIRES(mutex_);
  void tell_head() MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool is_packed(std::uint64_t payload_bytes, bool will_sync) const {
    return !will_sync && payload_bytes <= options_.packed_bytes_max &&
           geometry_.frame_bytes(payload_bytes) <= options_.batch_bytes;
  }
  [[nodiscard]] std::uint64_t bytes_to_take(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) const
      MEMLITH_REQUIRES(mutex_);
  void end_frame(std::byte* payload, std::uint64_t payload_bytes, Lsn begin) const;
  void close_pack() MEMLITH_REQUIRES(mutex_);
  // batch.cpp
  void gather() MEMLITH_REQUIRES(mutex_);
  void lead() MEMLITH_REQUIRES(mutex_);
  void wait_for(std::uint32_t sequence) MEMLITH_REQUIRES(mutex_);
  void seal(Batch& batch, std::uint32_t sequence);
  void await_sealed(std::uint32_t sequence);
  void publish_sealed(std::uint32_t sequence);
  void chain(FrameHeader& header, std::uint64_t durable_lsn);
  Pieces pieces_of(Batch& sealed, const Stretch& stretch);
  Status make_durable(Batch& sealed);
  void await_done(std::uint32_t sequence);
  [[nodiscard]] LogPosition end_of(std::uint32_t sequence);
  // Called without mutex_, returns with it.
  void complete(std::uint32_t sequence, Status status, std::chrono::nanoseconds io_time) MEMLITH_ACQUIRE(mutex_);
  void lay_out(Lsn begin, std::uint64_t bytes, std::vector<Stretch>& stretches) const MEMLITH_REQUIRES(mutex_);
  void open_next_batch() MEMLITH_REQUIRES(mutex_);
  void place_buffer(std::uint32_t sequence) MEMLITH_REQUIRES(mutex_);
  // stream.cpp
  void stream_put(const std::byte* bytes, std::uint64_t count, std::span<const std::byte> next);
  void stream_hash(std::uint64_t payload_end);
  void stream_send();
  [[nodiscard]] std::byte* stream_buffer(std::uint64_t chunk) const;
  static std::uint32_t stream_slot(std::uint64_t chunk) { return static_cast<std::uint32_t>(chunk % kStreamChunks); }
  Status stream_write();
  Result<Lsn> finish_stream(const FrameWriter& writer);
  FrameHeader compose_header(Lsn lsn, std::uint32_t kind, std::uint64_t payload_bytes) const;
  static void await(const Atomic<std::uint32_t>& word, std::uint32_t value);

  Device& device_;
  LogOptions options_;    // constant after start()
  LogGeometry geometry_;  // constant after open()
  Superblocks superblocks_;
  LogRecovery recovery_;              // constant after start()
  std::uint64_t log_id_ = 0;          // constant after open()
  std::uint64_t incarnation_ = 0;     // constant after start()
  Lsn begun_lsn_;                     // likewise
  std::function<Status()> relieve_;   // constant while several threads use the log
  std::function<void()> on_durable_;  // likewise
  LogCounters counters_;

  mutable Mutex mutex_;  // never held across I/O
  Space space_ MEMLITH_GUARDED_BY(mutex_);
  LogPosition tail_ MEMLITH_GUARDED_BY(mutex_);
  LogPosition durable_position_ MEMLITH_GUARDED_BY(mutex_);
  Lsn head_ MEMLITH_GUARDED_BY(mutex_);                         // where the next frame begins
  std::uint32_t open_sequence_ MEMLITH_GUARDED_BY(mutex_) = 0;  // of the batch that takes frames
  Gathering gathering_ MEMLITH_GUARDED_BY(mutex_);
  bool streaming_ MEMLITH_GUARDED_BY(mutex_) = false;
  Pack pack_ MEMLITH_GUARDED_BY(mutex_);
  Memory memory_ MEMLITH_GUARDED_BY(mutex_);
  KeptFailure failure_ MEMLITH_GUARDED_BY(mutex_);  // the first

  bool started_ = false;  // constant after start()
  Stream stream_;
  std::vector<std::unique_ptr<Batch>> batches_;  // the pointers are constant after start()
  std::uint64_t last_checksum_ = 0;  // the chain; owned by the thread that seals, passed on by sealed_sequence_
  Atomic<std::uint32_t> sealed_sequence_{0};  // batches before it have their headers; release/acquire
  Atomic<std::uint32_t> done_sequence_{0};    // batches before it are durable or failed
  Atomic<std::uint64_t> durable_lsn_{0};      // release in complete(), acquire in sync()
  std::atomic<std::uint64_t> head_lsn_{0};    // what head() tells; stored with mutex_ held, before the batch is sealed
  Atomic<bool> failed_{false};                // release in keep_failure(), acquire in poisoned()
  Atomic<std::uint32_t> space_word_{0};       // changes when space came free or was refused, or the log failed
  Atomic<std::uint64_t> slot_count_max_{0};   // the log grows up to this
};

}  // namespace memlith::core
