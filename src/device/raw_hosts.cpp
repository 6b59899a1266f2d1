#include "device/raw_hosts.hpp"

#include <algorithm>
#include <utility>

#include "base/buffer.hpp"
#include "base/units.hpp"
#include "device/block_host.hpp"
#include "device/nvme_host.hpp"

namespace memlith::core {

namespace {

// Signatures of file systems, partition tables and volume managers lie in the first or in the last MiB.
Result<bool> seems_empty(Device& device) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, device.size());
  MEMLITH_TRY_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::allocate(1 * kMiB));
  const std::uint64_t part = std::min<std::uint64_t>(bytes, buffer.size());
  for (const std::uint64_t offset : {std::uint64_t{0}, bytes - part}) {
    const std::span<std::byte> read = buffer.span().first(part);
    MEMLITH_TRY(device.read(offset, read));
    if (std::any_of(read.begin(), read.end(), [](std::byte b) { return b != std::byte{0}; })) return false;
  }
  return true;
}

}  // namespace

bool is_raw_device(const std::string& path) { return is_block_device(path) || is_nvme_namespace(path); }

Result<std::unique_ptr<RawHost>> make_raw_host(std::string path, IoBackend io) {
  if (is_nvme_namespace(path)) return make_nvme_host(std::move(path), io);
  return make_block_host(std::move(path), io);
}

Status format_raw_device(const std::string& path, bool overwrite) {
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<RawHost> host, make_raw_host(path, IoBackend::posix));
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, host->open(true));
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<VolumeLock> lock, file->lock(true));
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Device> device, file->device("", Caching::buffered));
  if (!overwrite) {
    if (RawMapCopies::read_header(*device).ok()) {
      return fail(Errc::exists, Detail::open,
                  "{}: the device is prepared for a memlith store already. If what it holds is not needed any more, "
                  "format it with --force (MEMLITH_FORMAT_FORCE)",
                  path);
    }
    MEMLITH_TRY_ASSIGN(const bool empty, seems_empty(*device));
    if (!empty) {
      return fail(Errc::exists, Detail::open,
                  "{}: the device holds something: its first or last MiB is not all zeros. If what it holds is not "
                  "needed any more, format it with --force (MEMLITH_FORMAT_FORCE)",
                  path);
    }
  }
  return format_raw(*device, {});
}

}  // namespace memlith::core
