// One file of a simulated disk as an NVMe namespace: commands do to it what the specification says, and the engine's
// own host and device are above. Floor: device; tests only.
#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "device/nvme_host.hpp"
#include "sim/raw_host.hpp"
#include "sim/sim.hpp"

namespace memlith::core {

inline constexpr std::string_view kSimNamespaceName = "namespace";
inline constexpr NvmeOutcome kSimWriteFault = 0x280;
inline constexpr NvmeOutcome kSimReadFault = 0x281;
inline constexpr NvmeOutcome kSimFlushFault = 0x006;

// Limits are small, so that transfers are cut. `volume` outlives the commands.
class SimNvme final : public NvmeCommands {
 public:
  SimNvme(SimVolume& volume, std::unique_ptr<Device> device, bool writable)
      : volume_(volume), device_(std::move(device)), writable_(writable) {
    const Result<std::uint64_t> bytes = device_->size();
    MEMLITH_ASSERT(bytes.ok());
    facts_.bytes = *bytes;
    facts_.block_bytes = static_cast<std::uint32_t>(kSimSectorBytes);
    facts_.physical_bytes = facts_.block_bytes;
    facts_.atomic_bytes = facts_.block_bytes;
    facts_.transfer_bytes_max = kSimThroughBytes;
    facts_.zeroes_bytes_max = 2 * kSimThroughBytes;
    facts_.has_cache = true;
    facts_.cache_is_on = true;
  }
  static Result<std::unique_ptr<NvmeCommands>> open(SimVolume& volume, bool writable) {
    const OpenMode mode = writable ? OpenMode::read_write : OpenMode::read_only;
    MEMLITH_TRY_ASSIGN(auto device, volume.open(kSimNamespaceName, mode, Caching::direct));
    return std::unique_ptr<NvmeCommands>(std::make_unique<SimNvme>(volume, std::move(device), writable));
  }

  [[nodiscard]] const NvmeFacts& facts() const override { return facts_; }
  [[nodiscard]] std::string name() const override { return "ng9n1"; }
  [[nodiscard]] FileIdentity identity() const override { return {9, 1}; }
  [[nodiscard]] IoBackend io() const override { return IoBackend::uring; }
  std::unique_ptr<NvmeQueue> make_queue(std::uint32_t depth) override;

  // A device goes on after a command that failed.
  NvmeOutcome run(const NvmeCommand& command) override {
    std::shared_ptr<Device> device;
    {
      const std::lock_guard lock(mutex_);
      if (device_->latched()) {
        device_ = std::move(*volume_.open(kSimNamespaceName, OpenMode::read_write, Caching::direct));
      }
      device = device_;
    }
    MEMLITH_ASSERT(command.offset % facts_.block_bytes == 0 && command.bytes % facts_.block_bytes == 0);
    MEMLITH_ASSERT(command.offset + command.bytes <= facts_.bytes);
    switch (command.op) {
      case NvmeOp::flush: return outcome_of(device->flush(), kSimFlushFault);
      case NvmeOp::read: return outcome_of(read(*device, command), kSimReadFault);
      case NvmeOp::write: {
        MEMLITH_ASSERT(writable_ && command.bytes <= facts_.transfer_bytes_max);
        return outcome_of(command.forced ? device->write_through(command.offset, command.memory)
                                         : device->write_pieces(command.offset, command.memory),
                          kSimWriteFault);
      }
      case NvmeOp::write_zeroes: {
        MEMLITH_ASSERT(writable_ && command.bytes <= facts_.zeroes_bytes_max);
        const std::vector<std::byte> zeros(command.bytes);
        return outcome_of(device->write(command.offset, zeros), kSimWriteFault);
      }
    }
    return -EINVAL;
  }

 private:
  static NvmeOutcome outcome_of(Status status, NvmeOutcome failed) {
    if (status.ok()) return 0;
    return status.os_errno == ENOMEM ? -ENOMEM : failed;
  }
  Status read(Device& device, const NvmeCommand& command) const {
    MEMLITH_ASSERT(command.memory.size() == 1 && command.bytes <= facts_.transfer_bytes_max);
    return device.read(command.offset, {static_cast<std::byte*>(command.memory.front().iov_base), command.bytes});
  }

  SimVolume& volume_;
  std::mutex mutex_;
  std::shared_ptr<Device> device_;
  const bool writable_;
  NvmeFacts facts_;
};

// Commands that are done as late as they may be, the last one first.
class SimNvmeQueue final : public NvmeQueue {
 public:
  explicit SimNvmeQueue(SimNvme& commands) : commands_(commands) {}
  void start(std::uint32_t number, const NvmeCommand& command) override {
    if (command.op == NvmeOp::read) {
      auto* const target = static_cast<std::byte*>(command.memory.front().iov_base);
      std::fill_n(target, command.bytes, std::byte{0xa5});
    }
    waiting_.emplace_back(number, command);
  }
  Done wait() override {
    MEMLITH_ASSERT(!waiting_.empty());
    const auto [number, command] = waiting_.back();
    waiting_.pop_back();
    return {number, commands_.run(command)};
  }

 private:
  SimNvme& commands_;
  std::vector<std::pair<std::uint32_t, NvmeCommand>> waiting_;
};

inline std::unique_ptr<NvmeQueue> SimNvme::make_queue(std::uint32_t) { return std::make_unique<SimNvmeQueue>(*this); }

// `volume` outlives the host.
inline std::unique_ptr<RawHost> make_sim_nvme_host(SimVolume& volume) {
  NvmeParts parts;
  parts.path = volume.path_of(kSimNamespaceName);
  parts.claims = std::make_unique<SimRawHost>(volume, kSimNamespaceName);
  parts.commands = [&volume](bool writable) { return SimNvme::open(volume, writable); };
  parts.flush_others = [](bool) { return kOk; };
  return make_nvme_host(std::move(parts));
}

// The file that `image` has for a raw device, as that for a namespace.
inline SimImage as_sim_namespace(SimImage image) {
  auto file = image.files.extract(image.files.find(kSimDeviceName));
  file.key() = kSimNamespaceName;
  image.files.insert(std::move(file));
  image.forced_unit_access = true;
  image.whole_sectors = true;  // NVM Express: the atomic write unit at a power failure is a block at least
  return image;
}

}  // namespace memlith::core
