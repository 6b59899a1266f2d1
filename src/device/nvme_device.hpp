// A namespace as a device, by commands. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "base/buffer.hpp"
#include "base/sync.hpp"
#include "device/nvme.hpp"
#include "device/nvme_pages.hpp"
#include "device/volume.hpp"

namespace memlith::core {

// Shared by the devices of one namespace in one process.
struct NvmeShared {
  explicit NvmeShared(const std::string& path) : pages(path) {}
  NvmePages pages;
  // Held by a write of bytes that are no whole blocks from the reading of the other bytes until their writing.
  Mutex block_mutex;
  AlignedBuffer blocks MEMLITH_GUARDED_BY(block_mutex);  // of such a write
};

// With Caching::direct, transfers are whole blocks; else anything, and content can be mapped. In both cases each write
// is a command at once.
std::unique_ptr<Device> make_nvme_device(std::shared_ptr<NvmeCommands> commands, std::shared_ptr<NvmeShared> shared,
                                         std::string path, Caching caching);

}  // namespace memlith::core
