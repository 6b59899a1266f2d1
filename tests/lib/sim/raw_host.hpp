// One file of a simulated disk, or of a volume over it, as the device of a raw volume. Floor: device; tests only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/raw_volume.hpp"
#include "sim/sim.hpp"

namespace memlith::core {

inline constexpr std::string_view kSimDeviceName = "device";

// `volume` outlives the host. There are no notices.
class SimRawHost final : public RawHost {
 public:
  explicit SimRawHost(Volume& volume, std::string_view name = kSimDeviceName) : volume_(volume), name_(name) {}
  Result<std::unique_ptr<OpenFile>> open(bool writable) override { return volume_.open_file(name_, writable); }
  std::unique_ptr<Notice> make_notice(std::uint64_t, std::span<const std::byte>) override { return nullptr; }
  Result<SeenNotice> look_at_notice(std::uint64_t, std::uint64_t) override {
    return fail(Errc::not_found, Detail::open, "{}: there are no notices", path());
  }
  [[nodiscard]] std::string path() const override { return volume_.path_of(name_); }

 private:
  Volume& volume_;
  const std::string name_;
};

// A disk with a device of zeros, and the device formatted.
inline SimImage formatted_sim_device(std::uint64_t bytes, const RawFormat& format) {
  SimImage zeros;
  zeros.files[std::string(kSimDeviceName)] = std::make_shared<const std::vector<std::byte>>(bytes);
  SimVolume volume(std::move(zeros));
  const auto device = volume.open(kSimDeviceName, OpenMode::read_write, Caching::direct);
  MEMLITH_ASSERT(device.ok() && format_raw(**device, format).ok());
  return volume.image();
}

}  // namespace memlith::core
