// A frame that is written while it is being filled, so that its first pieces are on their way to the device while the
// rest is still being copied. Floor: log.
//
// There is one such frame at a time; it is a batch of its own (log/batches.hpp). Its bytes pass through a few buffers.
// Life of a frame:   begin(); any number of put(); finish(). Threads: one thread fills the frame; use_memory(),
// use_queue() and take_queue() are for the owner, while no frame is filled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/checksum.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "log/chain.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

// A part of a batch that is consecutive on the device.
struct Stretch {
  std::uint64_t device_offset = 0;
  std::uint64_t begin = 0;  // in the batch
  std::uint64_t bytes = 0;
  std::uint64_t segment = 0;
  bool with_slot_header = false;
};

class Stream {
 public:
  // For the owner: the places of bytes of the log, and how far the log is durable.
  struct Owner {
    std::function<void(Lsn begin, std::uint64_t bytes, std::vector<Stretch>& stretches)> lay_out;
    std::function<std::uint64_t()> durable_lsn;
  };
  Stream(Device& device, const LogGeometry& geometry, FrameChain& chain, Owner owner)
      : device_(device), geometry_(geometry), chain_(chain), owner_(std::move(owner)) {}

  // By the start of the log. A chunk has a little more or less than `chunk_bytes`, which are whole pages.
  Status allocate(std::uint64_t chunk_bytes, std::size_t stretches_max);
  [[nodiscard]] std::uint64_t chunk_bytes_max() const { return buffer_bytes_; }
  [[nodiscard]] std::uint64_t memory_bytes() const { return kChunks * buffer_bytes_; }
  // memory_bytes() of them, until take_queue().
  void use_memory(std::byte* memory) { memory_ = memory; }
  [[nodiscard]] std::unique_ptr<IoQueue> make_queue() const { return device_.make_queue(kChunks); }
  [[nodiscard]] bool has_queue() const { return queue_ != nullptr; }
  void use_queue(std::unique_ptr<IoQueue> queue);  // with the memory there
  std::unique_ptr<IoQueue> take_queue();

  void begin(std::uint32_t sequence, Lsn begin, std::uint32_t kind, std::uint64_t payload_bytes);
  [[nodiscard]] std::uint32_t sequence() const { return sequence_; }  // of the batch
  void put(const std::byte* bytes, std::uint64_t count, std::span<const std::byte> next);
  // Ends the frame, whose turn in the chain comes meanwhile, and sends the rest. Returns the link of what follows.
  std::uint64_t finish();
  // Durable on ok. Later frames may be sealed meanwhile.
  Status make_durable();

 private:
  static constexpr std::uint32_t kChunks = 4;
  [[nodiscard]] std::byte* buffer(std::uint64_t chunk) const;
  static std::uint32_t slot(std::uint64_t chunk) { return static_cast<std::uint32_t>(chunk % kChunks); }
  void fill_to(std::uint64_t end);
  void hash(std::uint64_t payload_end);
  void send();
  Status write();

  Device& device_;
  const LogGeometry& geometry_;
  FrameChain& chain_;
  const Owner owner_;
  std::unique_ptr<IoQueue> queue_;
  std::byte* memory_ = nullptr;  // kChunks buffers
  std::uint64_t wished_chunk_bytes_ = 0;
  std::uint64_t buffer_bytes_ = 0;

  // The frame that is being filled.
  std::uint32_t sequence_ = 0;
  Lsn begin_;
  FrameHeader header_{};
  StreamingChecksum payload_checksum_;
  std::uint64_t chunk_bytes_ = 0;  // at most buffer_bytes_
  std::uint64_t chunk_ = 0;        // being filled, counted from the start of the frame
  std::uint64_t chunk_used_ = 0;
  std::vector<Stretch> stretches_;
  Status status_ = kOk;
  AlignedBuffer slot_header_;
};

}  // namespace memlith::core
