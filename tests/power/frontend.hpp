// How a kernel reaches the lossy disk: over NBD (a virtual machine's disk) or as a file that FUSE shows (a loop
// device's). Used by power-disk only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "power/lossy_disk.hpp"

namespace memlith::power {

// The disk and the moment at which the power goes. From then on nothing is answered.
class PoweredDisk {
 public:
  explicit PoweredDisk(LossyDisk& disk) : disk_(disk) {}

  // The power goes with the `operations`-th write or flush from now on; 0 = it stays.
  void arm(std::uint64_t operations) { operations_left_ = operations; }
  [[nodiscard]] bool frozen() const { return frozen_; }
  [[nodiscard]] LossyDisk& disk() { return disk_; }

  // True: answer. False: the power went in the middle of it. A write is then among those that a cut keeps or drops; a
  // flush has not happened.
  [[nodiscard]] bool write(std::uint64_t offset, std::span<const std::byte> source, bool durable) {
    const bool on = tick();
    disk_.write(offset, source, durable && on);
    return on;
  }
  [[nodiscard]] bool flush() {
    if (!tick()) return false;
    disk_.flush();
    return true;
  }

 private:
  bool tick() {
    if (operations_left_ == 1) frozen_ = true;
    if (operations_left_ > 0) --operations_left_;
    return !frozen_;
  }

  LossyDisk& disk_;
  std::uint64_t operations_left_ = 0;
  bool frozen_ = false;
};

class Frontend {
 public:
  virtual ~Frontend() = default;
  // Becomes readable when there is something to serve.
  [[nodiscard]] virtual int descriptor() const = 0;
  // Serves what is there, one request at least. False when the other side has gone.
  virtual bool serve() = 0;
};

// Listens on a Unix socket; clients come one after the other. Ends the process if it cannot.
std::unique_ptr<Frontend> make_nbd_frontend(PoweredDisk& disk, const std::string& socket_path);
// Mounts over `mount_point`, an ordinary file, which from then on is the disk. Takes root. Ends the process if it
// cannot.
std::unique_ptr<Frontend> make_fuse_frontend(PoweredDisk& disk, const std::string& mount_point);

}  // namespace memlith::power
