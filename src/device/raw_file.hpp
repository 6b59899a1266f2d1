// An open file of a raw volume. Floor: device.
#pragma once

#include "device/raw_volume.hpp"

namespace memlith::core {

// Its bytes are those of the file's extents, on a device that all files of the volume share.
class RawVolume::FileDevice final : public Device {
 public:
  struct Stretch {
    std::uint64_t offset = 0;  // on the device
    std::uint64_t bytes = 0;   // from there on, in one piece
  };

  FileDevice(RawVolume& volume, std::shared_ptr<Node> node, std::shared_ptr<HostDevice> host, std::string path,
             bool writable)
      : Device(host->device->caps(), std::move(path), host->device->direct()),
        volume_(volume),
        node_(std::move(node)),
        kept_host_(std::move(host)),
        host_(*kept_host_->device),
        writable_(writable) {}

  Result<std::uint64_t> size() override;
  Result<FileIdentity> identity() override;
  std::optional<DiskFacts> disk() override { return host_.disk(); }
  Result<bool> removed() override;
  Status match_permissions(Device&) override { return kOk; }
  Result<Mappable> mappable(std::uint64_t offset, std::uint64_t bytes) override;
  bool read_cached(std::uint64_t offset, std::span<std::byte> target) override;
  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override;

  // Empty behind the end of the file's room.
  [[nodiscard]] Stretch stretch_at(std::uint64_t offset);
  [[nodiscard]] Device& host() const { return host_; }

 protected:
  Status do_read(std::uint64_t offset, std::span<std::byte> target) override;
  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override;
  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override;
  Status do_flush() override;
  Status do_reserve(std::uint64_t bytes) override { return volume_.resize(*node_, bytes, host_, false); }
  Status do_fill_holes() override { return kOk; }
  Status do_truncate(std::uint64_t bytes) override { return volume_.resize(*node_, bytes, host_, true); }
  Status do_discard(std::uint64_t offset, std::uint64_t bytes) override;

 private:
  template <class Act>
  Status each_stretch(std::uint64_t offset, std::uint64_t bytes, const Act& act);

  RawVolume& volume_;
  const std::shared_ptr<Node> node_;
  const std::shared_ptr<HostDevice> kept_host_;
  Device& host_;
  const bool writable_;
};

}  // namespace memlith::core
