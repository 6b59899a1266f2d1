// The findings of an opening in a log: its slots, the frames that survived, and those that nothing proves. Floor: log.
//
// One thread uses this, before the log is started. The log takes over the slots and the end of the frames, under its
// own lock, and asks for the rest as long as it is open.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "log/format.hpp"
#include "log/geometry.hpp"
#include "log/reader.hpp"
#include "log/superblocks.hpp"

namespace memlith::core {

class LogRecovery {
 public:
  struct Found {
    SlotMap slots;                       // of the live segments
    std::uint64_t slot_count = 0;        // secure() may add some
    std::vector<std::uint64_t> claims;   // by slot: the segment that its header names, if that may still matter
    std::vector<SlotHeader> headers;     // of the slots; both until forget_slots()
    std::uint64_t incarnation_seen = 0;  // the latest of slots and frames; constant after recover()
    LogPosition end;                     // of the frames that survived; constant after recover()
    Lsn proven;                          // constant after secure()
    char row = 0;                        // of log/recovery_table.hpp; constant after recover()
  };
  // Adds slots to the log, as Log::grow() does, with a superblock that says so.
  using AddSlots = std::function<Status(LogPosition tail, LogPosition head, std::uint64_t more)>;

  LogRecovery(Device& device, Superblocks& superblocks) : device_(device), superblocks_(superblocks) {}

  // Reads the slot headers; the superblocks were read. `followed_to`: LogOptions.
  Status read_slots(Lsn followed_to);
  // As Log::recover(), reading so many bytes ahead.
  Status recover(std::uint64_t window_bytes, const std::function<Status(const Frame&)>& visit);
  // As Log::secure_superblock().
  Status secure_superblock();
  // As Log::secure(). Whatever the outcome, found() has all slots that there are.
  Status secure(const AddSlots& add_slots);
  // As Log::break_chain().
  void break_chain();
  // As Log::hold().
  Status hold(const ClientBytes& client);

  [[nodiscard]] const Found& found() const { return found_; }
  [[nodiscard]] LogPosition tail() const { return tail_; }
  // The log is started, and knows its slots itself.
  void forget_slots();

 private:
  Status read_in_slots(std::span<const std::uint32_t> slots, std::uint64_t begin, std::uint64_t bytes,
                       const std::function<void(std::uint32_t slot, std::span<const std::byte>)>& visit);
  // A frame behind the end that says that more had been durable.
  struct LaterProof {
    std::uint64_t lsn = 0;
    std::uint64_t file_offset = 0;
    std::uint64_t durable_lsn = 0;
  };
  Status decide(LogPosition end, LogPosition told, const char* why);
  Result<std::optional<LaterProof>> find_later_proof(LogPosition end);
  Result<std::vector<std::uint32_t>> slots_to_move_to(std::uint64_t first_segment, std::uint64_t end_segment,
                                                      const AddSlots& add_slots);
  Status erase_headers(std::span<const std::uint32_t> slots, const AlignedBuffer& buffer);
  Status copy_segment(std::uint64_t segment, std::uint32_t slot, const AlignedBuffer& buffer);
  [[nodiscard]] const Superblock& superblock() const { return superblocks_.unshared(); }
  // The end of the log as the superblock has it: if the log was closed or held, otherwise how far it was durable.
  [[nodiscard]] LogPosition told_end() const { return {Lsn{superblock().head_lsn}, superblock().head_previous}; }

  Device& device_;
  Superblocks& superblocks_;
  LogGeometry geometry_;  // this and the next two: constant after read_slots()
  std::uint64_t log_id_ = 0;
  LogPosition tail_;
  Found found_;
  bool superblock_is_secure_ = false;
};

}  // namespace memlith::core
