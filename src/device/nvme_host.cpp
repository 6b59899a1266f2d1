#include "device/nvme_host.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "device/block_host.hpp"
#include "device/nvme_device.hpp"
#include "device/nvme_kernel.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// ---- NvmeHost --------------------------------------------------------------------------------------------------

class NvmeFile final : public OpenFile {
 public:
  NvmeFile(const NvmeParts& parts, std::shared_ptr<NvmeShared> shared, bool writable)
      : parts_(parts), shared_(std::move(shared)), writable_(writable) {}

  Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, parts_.claims->open(exclusive));
    MEMLITH_TRY_ASSIGN(std::unique_ptr<VolumeLock> lock, file->lock(exclusive));
    MEMLITH_TRY(parts_.flush_others(exclusive));
    return lock;
  }
  // The commands have rings, which an exclusive lock waits for; so they begin with the device and no sooner.
  Result<std::unique_ptr<Device>> device(std::string_view, Caching caching) override {
    if (commands_ == nullptr) {
      MEMLITH_TRY_ASSIGN(commands_, parts_.commands(writable_));
    }
    return make_nvme_device(commands_, shared_, parts_.path, caching);
  }

 private:
  const NvmeParts& parts_;
  const std::shared_ptr<NvmeShared> shared_;
  std::shared_ptr<NvmeCommands> commands_;
  const bool writable_;
};

class NvmeHost final : public RawHost {
 public:
  explicit NvmeHost(NvmeParts parts) : parts_(std::move(parts)), shared_(std::make_shared<NvmeShared>(parts_.path)) {}

  std::string path() const override { return parts_.path; }
  Result<std::unique_ptr<OpenFile>> open(bool writable) override {
    return std::unique_ptr<OpenFile>(std::make_unique<NvmeFile>(parts_, shared_, writable));
  }
  std::unique_ptr<Notice> make_notice(std::uint64_t offset, std::span<const std::byte> first) override {
    return parts_.claims->make_notice(offset, first);
  }
  Result<SeenNotice> look_at_notice(std::uint64_t offset, std::uint64_t bytes) override {
    return parts_.claims->look_at_notice(offset, bytes);
  }

 private:
  const NvmeParts parts_;
  const std::shared_ptr<NvmeShared> shared_;
};

// ---- of the kernel ---------------------------------------------------------------------------------------------

// The name of a namespace's character device, "ng0n1", whatever its node is called.
std::optional<std::string> name_of_namespace(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISCHR(info.st_mode)) return std::nullopt;
  std::error_code error;
  const std::filesystem::path device =
      std::filesystem::canonical(fmt::format("/sys/dev/char/{}:{}", major(info.st_rdev), minor(info.st_rdev)), error);
  if (error) return std::nullopt;
  const auto subsystem = std::filesystem::canonical(device / "subsystem", error);
  if (error || subsystem.filename() != "nvme-generic") return std::nullopt;
  return device.filename().string();
}

// The kernel gives both devices the same numbers: ng0n1 and nvme0n1.
Result<std::string> block_device_of(const std::string& path, const std::string& name) {
  const std::string block = "nvme" + name.substr(2);
  std::string node = (std::filesystem::path(path).parent_path() / block).string();
  if (!is_block_device(node)) node = "/dev/" + block;
  struct stat info{};
  std::error_code error;
  if (::stat(node.c_str(), &info) == 0 && S_ISBLK(info.st_mode)) {
    const auto device =
        std::filesystem::canonical(fmt::format("/sys/dev/block/{}:{}", major(info.st_rdev), minor(info.st_rdev)),
                                   error);
    if (!error && device.filename() == block) return node;
  }
  return fail(Errc::unsupported, Detail::open,
              "{}: there is no block device {} of the same namespace, which memlith takes its lock on; give the "
              "program that device, too",
              path, node);
}

// Writes of programs to the block device lie in its page cache until a program flushes it, and what its page
// cache has may be older than what commands have written.
Status flush_block_device(const std::string& path) {
  const Descriptor block(above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (block.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
  if (::fsync(block.get()) != 0) return fail_errno(errno, Detail::flush, "{}: flush failed", path);
  (void)::ioctl(block.get(), BLKFLSBUF, 0);  // only for readers of the block device
  return kOk;
}

Status wait_for_rings(const std::string& path) {
  const Descriptor descriptor(above_standard(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
  if (descriptor.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
  return RingFile::wait_for_transfers(descriptor.get(), path);
}

}  // namespace

std::unique_ptr<RawHost> make_nvme_host(NvmeParts parts) { return std::make_unique<NvmeHost>(std::move(parts)); }

bool is_nvme_namespace(const std::string& path) { return name_of_namespace(path).has_value(); }

Result<std::unique_ptr<RawHost>> make_nvme_host(std::string path, IoBackend io) {
  std::error_code unknown;  // later changes of the working directory do not count
  const auto absolute = std::filesystem::absolute(path, unknown);
  if (!unknown) path = absolute.string();
  const std::optional<std::string> name = name_of_namespace(path);
  if (!name.has_value()) return fail(Errc::not_found, Detail::open, "{}: there is no NVMe namespace", path);
  MEMLITH_TRY_ASSIGN(const std::string block, block_device_of(path, *name));
  NvmeParts parts;
  parts.path = path;
  parts.claims = make_block_host(block, IoBackend::posix);
  parts.commands = [path, name = *name, block, io](bool writable) {
    return open_nvme(path, name, block, io, writable);
  };
  parts.flush_others = [path, block](bool exclusive) -> Status {
    if (exclusive) MEMLITH_TRY(wait_for_rings(path));
    return flush_block_device(block);
  };
  return make_nvme_host(std::move(parts));
}

}  // namespace memlith::core
