// The chain of frames: each frame has the checksum of the frame before it. Floor: log.
//
// Batches, and the streamed frame, which is a batch of its own, have numbers and are sealed in their order: the thread
// that seals a batch waits for its turn, links the frames, and gives the turn to the next batch. Threads: header() and
// end() are for any thread; link(), add() and last() for the thread whose turn it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

class FrameChain {
 public:
  explicit FrameChain(const LogGeometry& geometry) : geometry_(geometry) {}
  // `previous`: chain_value() of the frame before the first one.
  void start(std::uint64_t log_id, std::uint64_t incarnation, std::uint64_t previous) {
    log_id_ = log_id;
    incarnation_ = incarnation;
    last_checksum_ = previous;
  }

  // The header without its link.
  [[nodiscard]] FrameHeader header(Lsn lsn, std::uint32_t kind, std::uint64_t payload_bytes) const;
  // Writes what follows the payload: zeros and the trailer.
  void end(std::byte* payload, std::uint64_t payload_bytes, Lsn begin) const;
  // That of the slot in which the segment lies.
  void fill_slot_header(std::span<std::byte> block, std::uint64_t segment) const;
  [[nodiscard]] std::uint64_t seed(Lsn begin) const { return payload_seed(log_id_, begin, incarnation_); }

  // Until every batch before this one is sealed.
  void await_turn(std::uint32_t sequence) const {
    for (std::uint32_t now = 0; (now = sealed_sequence_.load(std::memory_order_acquire)) != sequence;) {
      sealed_sequence_.wait(now, std::memory_order_acquire);
    }
  }
  void end_turn(std::uint32_t sequence) {
    MEMLITH_ASSERT(sealed() == sequence);                             // in order
    sealed_sequence_.store(sequence + 1, std::memory_order_seq_cst);  // before notify_all() looks for waiters
    sealed_sequence_.notify_all();
  }
  // Links the frame to the frame before it. Called in LSN order.
  void link(FrameHeader& header, std::uint64_t durable_lsn) const;
  // The frame is the newest one from now on.
  void add(const FrameHeader& header, const FrameTrailer& trailer) {
    MEMLITH_ASSERT(header.previous == last_checksum_);
    last_checksum_ = chain_value(header, trailer, log_id_);
  }
  [[nodiscard]] std::uint64_t last() const { return last_checksum_; }
  // Batches before it are sealed.
  [[nodiscard]] std::uint32_t sealed() const { return sealed_sequence_.load(std::memory_order_relaxed); }

 private:
  const LogGeometry& geometry_;
  std::uint64_t log_id_ = 0;       // constant after start()
  std::uint64_t incarnation_ = 0;  // likewise
  std::uint64_t last_checksum_ = 0;
  Atomic<std::uint32_t> sealed_sequence_{0};  // release/acquire
};

}  // namespace memlith::core
