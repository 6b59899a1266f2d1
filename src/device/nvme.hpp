// Commands to an NVMe namespace, and what it says of itself. Floor: device.
//
// The numbers are those of the NVM Express Base and NVM Command Set specifications (revision 2.0). What carries the
// commands is an NvmeCommands: the kernel (nvme_kernel.hpp), or the simulated disk of the tests.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.hpp"
#include "device/device.hpp"

namespace memlith::core {

enum class NvmeOp : std::uint8_t { flush = 0x00, write = 0x01, read = 0x02, write_zeroes = 0x08 };

struct NvmeCommand {
  NvmeOp op{};
  bool forced = false;                 // write: durable when the command is done (forced unit access)
  bool deallocates = false;            // write_zeroes: the device may take the space back
  std::uint64_t offset = 0;            // in bytes, a multiple of NvmeFacts::block_bytes; so is the next
  std::uint64_t bytes = 0;             // at most NvmeFacts::transfer_bytes_max, or for write_zeroes zeroes_bytes_max
  std::span<const iovec> memory = {};  // read and write: as many bytes
};

// 0: done. Positive: the status that the device has given, as in a completion (code, type, "do not retry"). Negative:
// -errno of the kernel; the command may have been done or not.
using NvmeOutcome = int;

struct NvmeFacts {
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 0;     // of a logical block
  std::uint32_t physical_bytes = 0;  // what the device prefers to write as a whole
  std::uint64_t atomic_bytes = 0;    // a write of up to so much is whole after a power cut, or not there
  std::uint64_t transfer_bytes_max = 0;
  std::uint64_t zeroes_bytes_max = 0;  // 0: the device has no such command
  bool has_cache = false;              // a volatile one, which a flush empties
  bool cache_is_on = false;
  bool deallocates = false;  // blocks that are deallocated read as zeros
};

// Reads the two structures that identify the device, 4096 bytes each. Sets all but cache_is_on. Errors:
// unsupported: blocks that memlith cannot use (with metadata, or larger than a page). `path` is for messages.
inline constexpr std::size_t kNvmeIdentifyBytes = 4096;
Result<NvmeFacts> read_nvme_identity(std::span<const std::byte> of_controller, std::span<const std::byte> name_space,
                                     const std::string& path);

// A sentence about the failure: the meaning of the device's status, or the fate of the namespace.
Status nvme_failure(const NvmeCommand& command, NvmeOutcome outcome, const std::string& path);

// Transfers in flight. Not for use by two threads at a time.
class NvmeQueue {
 public:
  struct Done {
    std::uint32_t number = 0;
    NvmeOutcome outcome = 0;
  };
  virtual ~NvmeQueue() = default;
  // Begins a read or a write of one piece, which the caller keeps until wait() has named the number. Each number is in
  // flight once. A command that cannot begin is done as a call, and wait() names it nevertheless.
  virtual void start(std::uint32_t number, const NvmeCommand& command) = 0;
  // Waits for any command in flight.
  virtual Done wait() = 0;
  // As IoQueue::register_memory().
  virtual void register_memory(std::span<std::byte>) {}
};

class NvmeCommands {
 public:
  virtual ~NvmeCommands() = default;
  [[nodiscard]] virtual const NvmeFacts& facts() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // such as "ng0n1"
  [[nodiscard]] virtual FileIdentity identity() const = 0;
  [[nodiscard]] virtual IoBackend io() const = 0;  // what carries them: uring, or posix
  // Any thread.
  virtual NvmeOutcome run(const NvmeCommand& command) = 0;
  // Null where there is none.
  virtual std::unique_ptr<NvmeQueue> make_queue(std::uint32_t depth) = 0;
};

}  // namespace memlith::core
