// The medium of a store of the laboratory: the simulated disk; or, if the disk has the file `device`, a raw volume on
// that file; if it has the file `namespace`, one on that file as an NVMe namespace. Between the store and the volume
// stands the active mutant of writes and flushes, if there is one.
#pragma once

#include <memory>
#include <optional>

#include "mutant_volume.hpp"
#include "sim/nvme_host.hpp"

namespace memlith::lab {

// Outlives the store.
class StoreVolume {
 public:
  core::Volume& over(core::SimVolume& disk) {
    core::Volume* volume = &disk;
    if (const auto raw = disk.exists(core::kSimDeviceName); raw.ok() && *raw) {
      volume = &raw_.emplace(std::make_unique<core::SimRawHost>(disk));
    } else if (const auto nvme = disk.exists(core::kSimNamespaceName); nvme.ok() && *nvme) {
      volume = &raw_.emplace(core::make_sim_nvme_host(disk));
    }
    return MutantVolume::over(*volume, mutated_);
  }

 private:
  std::optional<core::RawVolume> raw_;
  std::optional<MutantVolume> mutated_;
};

}  // namespace memlith::lab
