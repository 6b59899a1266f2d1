// Group commit: frames are put into batches, and a batch takes one write and one flush. Floor: log.
//
// One batch is open and takes frames; up to in_flight_max others are on their way to the device. Life of a frame:
//     obstacle()             finds what prevents the frame from being begun; work_on() takes a step to remove it
//     place()                gives the frame its place and, in LSN order, the bytes
//     FrameWriter::put, finish
//     sync(lsn)              returns when everything before the LSN is durable
// The first thread that syncs while fewer than in_flight_max writes are under way leads: it seals the open batch and
// does the I/O itself, so a lone committer pays no thread switch. Threads that arrive meanwhile fill the next batch; a
// leader gives the committers of the last batch a moment to come back and share this one, which costs a lone committer
// nothing. Batches are acknowledged in order. Small payloads that wait for a batch anyway are packed: they share a
// frame, which stays open until another frame follows or the batch is sealed. A frame too large for a batch, or a large
// one of a lone committer, is streamed (log/stream.hpp).
//
// The first failed write or flush poisons the batches: nothing is acknowledged from then on.
//
// Threads: any. mutex() guards the state that several threads change, and is never held across I/O. The fields of an
// open batch belong to mutex(), those of a sealed batch to the thread that leads it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "log/chain.hpp"
#include "log/copy.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"
#include "log/options.hpp"
#include "log/reader.hpp"
#include "log/slots.hpp"
#include "log/stream.hpp"

namespace memlith::core {

class Batches;

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
  friend class Batches;
  enum class Way : std::uint8_t { whole, streamed, packed };
  FrameWriter(Batches& batches, std::uint32_t sequence, Way way, std::byte* payload, Lsn begin,
              std::uint64_t payload_bytes, std::uint32_t kind)
      : batches_(&batches),
        sequence_(sequence),
        way_(way),
        kind_(kind),
        begin_(begin),
        payload_bytes_(payload_bytes),
        payload_(payload) {}

  void put_many(const void* bytes, std::uint64_t count, std::span<const std::byte> next);

  Batches* batches_;
  std::uint32_t sequence_;  // of the batch
  Way way_;
  std::uint32_t kind_;
  Lsn begin_;  // of the frame, or of the payload in a packed frame
  std::uint64_t payload_bytes_;
  std::uint64_t put_bytes_ = 0;
  std::byte* payload_;  // its place in the batch's buffer, unless the frame is streamed
};

class Batches {
 public:
  // `slots` are guarded by mutex(). The geometry is constant from start() on.
  Batches(Device& device, const LogGeometry& geometry, const LogOptions& options, LogCounters& counters, Slots& slots);

  [[nodiscard]] Mutex& mutex() const MEMLITH_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // ---- before any frame

  // Everything before `end` is durable, and the next frame begins there.
  void set_end(LogPosition end) MEMLITH_REQUIRES(mutex_);
  Status allocate() MEMLITH_REQUIRES(mutex_);
  void start(std::uint64_t log_id, std::uint64_t incarnation, LogPosition end) MEMLITH_REQUIRES(mutex_);
  // Sets the function that is called, without any lock, whenever more has become durable, and after a failure.
  void set_on_progress(std::function<void()> on_progress) { on_progress_ = std::move(on_progress); }

  // ---- frames; work_on() unlocks the mutex meanwhile: the caller checks everything again

  // How far the head moves for this payload.
  [[nodiscard]] std::uint64_t bytes_to_take(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) const
      MEMLITH_REQUIRES(mutex_);
  enum class Obstacle : std::uint8_t { none, small_memory, full_batch, other_stream, all_in_flight, full_log };
  // `streamed`: how the frame would be written.
  [[nodiscard]] Obstacle obstacle(std::uint64_t frame_bytes, bool will_sync, bool& streamed) MEMLITH_REQUIRES(mutex_);
  // Takes one step to remove the obstacle, which is not full_log: slots are the owner's.
  Status work_on(Obstacle obstacle, bool streamed) MEMLITH_REQUIRES(mutex_);
  // There is no obstacle.
  FrameWriter place(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync, bool streamed)
      MEMLITH_REQUIRES(mutex_);
  Status sync(Lsn lsn) MEMLITH_EXCLUDES(mutex_);

  // ---- state

  [[nodiscard]] Lsn next_frame() const MEMLITH_REQUIRES(mutex_) { return head_; }  // where it begins
  [[nodiscard]] LogPosition durable() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Lsn durable_lsn() const { return Lsn{durable_lsn_.load(std::memory_order_acquire)}; }
  // The end of the newest frame or packed payload.
  [[nodiscard]] Lsn head() const { return Lsn{head_lsn_.load(std::memory_order_seq_cst)}; }
  void poison(Status cause) MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] bool poisoned() const { return failed_.load(std::memory_order_acquire); }
  // The failure for calls that come after it; ok before.
  [[nodiscard]] Status failure() const MEMLITH_REQUIRES(mutex_);

  // Memory that later frames do not need; freed with this object.
  struct Spare {
    std::unique_ptr<IoQueue> queue;
    AlignedBuffer memory;
  };
  Spare take_spare() MEMLITH_REQUIRES(mutex_);

 private:
  friend class FrameWriter;

  // The pieces of a stretch that are written, and their places.
  struct Pieces {
    iovec vectors[2];
    std::size_t first = 0;
    std::uint64_t offset = 0;
    [[nodiscard]] std::span<const iovec> used() const { return std::span(vectors).subspan(first); }
  };
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
  // In the place of the header's checksum until the batch is sealed: the pack has no trailer yet.
  static constexpr std::uint64_t kUnsealedPack = 1;

  // The frame at the end of the open batch that takes further payloads. Its checksum is computed by the leader.
  struct Pack {
    std::byte* frame = nullptr;  // in the batch's buffer; null: there is none
    Lsn begin;
    std::uint64_t payload_bytes = 0;  // taken so far
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

  // append.cpp
  Status make_large(bool with_queue) MEMLITH_REQUIRES(mutex_);
  FrameWriter place_packed(std::uint64_t payload_bytes) MEMLITH_REQUIRES(mutex_);
  void take(std::uint64_t bytes) MEMLITH_REQUIRES(mutex_);
  void tell_head() MEMLITH_REQUIRES(mutex_);
  // The frame of a lone committer is written at once. A payload that waits for a batch in flight, or shares the open
  // batch, takes fewer blocks of the log in a pack, and is durable no later.
  [[nodiscard]] bool is_packed(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) const
      MEMLITH_REQUIRES(mutex_) {
    if (kind != options_.packed_kind || payload_bytes > options_.packed_bytes_max ||
        geometry_.frame_bytes(payload_bytes) > options_.batch_bytes) {
      return false;
    }
    return !will_sync || in_flight() > 0 || batches_[open_sequence_ % batches_.size()]->used > 0;
  }
  void close_pack() MEMLITH_REQUIRES(mutex_);
  void place_buffer(std::uint32_t sequence) MEMLITH_REQUIRES(mutex_);
  Result<Lsn> finish_streamed(const FrameWriter& writer);
  // batch.cpp
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
  // These three unlock the mutex meanwhile, too.
  void gather() MEMLITH_REQUIRES(mutex_);
  void lead() MEMLITH_REQUIRES(mutex_);
  void wait_for(std::uint32_t sequence) MEMLITH_REQUIRES(mutex_);
  void open_next_batch() MEMLITH_REQUIRES(mutex_);
  void lay_out(Lsn begin, std::uint64_t bytes, std::vector<Stretch>& stretches) const MEMLITH_REQUIRES(mutex_);
  void seal(Batch& batch, std::uint32_t sequence);
  Pieces pieces_of(Batch& sealed, const Stretch& stretch);
  Status make_durable(Batch& sealed);
  void await_done(std::uint32_t sequence);
  [[nodiscard]] LogPosition end_of(std::uint32_t sequence);
  // Called without mutex_, returns with it.
  void complete(std::uint32_t sequence, Status status, std::chrono::nanoseconds io_time) MEMLITH_ACQUIRE(mutex_);
  void keep_failure(Status cause) MEMLITH_REQUIRES(mutex_);
  // The invariants between any two calls once the log is started (docs/states.md).
  void assert_state() const MEMLITH_REQUIRES(mutex_);
  static void await(const Atomic<std::uint32_t>& word, std::uint32_t value) {
    word.wait(value, std::memory_order_acquire);
  }

  Device& device_;
  const LogGeometry& geometry_;
  LogOptions options_;  // constant after allocate()
  LogCounters& counters_;
  std::function<void()> on_progress_;  // constant while several threads use the log

  mutable Mutex mutex_;
  Slots& slots_ MEMLITH_GUARDED_BY(mutex_);
  LogPosition durable_position_ MEMLITH_GUARDED_BY(mutex_);
  Lsn head_ MEMLITH_GUARDED_BY(mutex_);                         // where the next frame begins
  std::uint32_t open_sequence_ MEMLITH_GUARDED_BY(mutex_) = 0;  // of the batch that takes frames
  Gathering gathering_ MEMLITH_GUARDED_BY(mutex_);
  Pack pack_ MEMLITH_GUARDED_BY(mutex_);
  Memory memory_ MEMLITH_GUARDED_BY(mutex_);
  KeptFailure failure_ MEMLITH_GUARDED_BY(mutex_);  // the first

  std::vector<std::unique_ptr<Batch>> batches_;  // the pointers are constant after allocate()
  FrameChain chain_;
  bool streaming_ MEMLITH_GUARDED_BY(mutex_) = false;
  Stream stream_;                           // belongs to the thread that streams while streaming_, else to mutex_
  Atomic<std::uint32_t> done_sequence_{0};  // batches before it are durable or failed
  Atomic<std::uint64_t> durable_lsn_{0};    // release in complete(), acquire in sync()
  std::atomic<std::uint64_t> head_lsn_{0};  // what head() tells; stored with mutex_ held, before the batch is sealed
  Atomic<bool> failed_{false};              // release in keep_failure(), acquire in poisoned()
};

}  // namespace memlith::core
