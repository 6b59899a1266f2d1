// How a kernel reaches the lossy disk: over NBD (a virtual machine's disk) or as a file that FUSE shows (a loop
// device's). Used by power-disk only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "base/random.hpp"
#include "power/lossy_disk.hpp"

namespace memlith::power {

enum class Answer {
  done,
  failed,  // an error: the flush has not happened
  none,    // the power went in the middle of it
};

// The disk, how slow and how broken the disk is, and the moment at which the power goes. From then on nothing is
// answered.
class PoweredDisk {
 public:
  explicit PoweredDisk(LossyDisk& disk) : disk_(disk) {}

  // The power goes with the `operations`-th write or flush from now on; 0 = it stays.
  void arm(std::uint64_t operations) { operations_left_ = operations; }
  [[nodiscard]] bool frozen() const { return frozen_; }
  [[nodiscard]] LossyDisk& disk() { return disk_; }

  // Each write and flush from now on takes a time between these, one after the other; reads do not wait for their own.
  void slow_down(std::chrono::milliseconds least, std::chrono::milliseconds most) {
    slow_least_ = least;
    slow_most_ = most;
  }
  // This many flushes from now on fail, and do nothing. What was written stays readable, and a cut may drop it.
  void fail_flushes(std::uint64_t count) { failures_left_ = count; }
  [[nodiscard]] std::uint64_t failed_flushes() const { return failed_; }

  // Where the power went in the middle of a write, the write is among those that a cut keeps or drops. A write does not
  // fail. One with forced unit access is its own flush, and is not counted among those that do.
  [[nodiscard]] Answer write(std::uint64_t offset, std::span<const std::byte> source, bool durable) {
    take_time();
    const bool on = tick();
    disk_.write(offset, source, durable && on);
    return on ? Answer::done : Answer::none;
  }
  [[nodiscard]] Answer flush() {
    take_time();
    if (!tick()) return Answer::none;
    if (failures_left_ > 0) {
      --failures_left_;
      ++failed_;
      return Answer::failed;
    }
    disk_.flush();
    return Answer::done;
  }

 private:
  void take_time() {
    if (slow_most_.count() == 0) return;
    const auto range = static_cast<std::uint64_t>((slow_most_ - slow_least_).count()) + 1;
    std::this_thread::sleep_for(slow_least_ + std::chrono::milliseconds(times_.below(range)));
  }
  bool tick() {
    if (operations_left_ == 1) frozen_ = true;
    if (operations_left_ > 0) --operations_left_;
    return !frozen_;
  }

  LossyDisk& disk_;
  std::uint64_t operations_left_ = 0;
  bool frozen_ = false;
  std::chrono::milliseconds slow_least_{0};
  std::chrono::milliseconds slow_most_{0};
  core::Random times_{1};
  std::uint64_t failures_left_ = 0;
  std::uint64_t failed_ = 0;
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
