// Sections: commands of the kernel, KernelQueue, KernelCommands, opening.
#include "device/nvme_kernel.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/descriptor.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/disk_facts.hpp"
#include "device/file_ring.hpp"
#include "device/nvme_abi.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// ---- commands of the kernel ------------------------------------------------------------------------------------

constexpr std::uint32_t kRingSetup = IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
constexpr std::uint32_t kForced = 1U << 30;
constexpr std::uint32_t kDeallocates = 1U << 25;
constexpr std::uint8_t kIdentify = 0x06;
constexpr std::uint8_t kGetFeatures = 0x0a;
constexpr std::uint32_t kOfNamespace = 0;
constexpr std::uint32_t kOfController = 1;
constexpr std::uint32_t kVolatileCacheFeature = 0x06;

struct Namespace {
  std::uint32_t number = 0;
  std::uint32_t block_bytes = 1;  // a power of two
};

// The fields that nvme_uring_cmd and nvme_passthru_cmd64 have in common.
template <class Command>
Command command_of(const NvmeCommand& command, const Namespace& where) {
  Command result{};
  result.opcode = static_cast<std::uint8_t>(command.op);
  result.nsid = where.number;
  if (command.op == NvmeOp::flush) return result;
  const std::uint64_t first = command.offset >> std::countr_zero(where.block_bytes);
  const std::uint64_t blocks = command.bytes >> std::countr_zero(where.block_bytes);
  result.cdw10 = static_cast<std::uint32_t>(first);
  result.cdw11 = static_cast<std::uint32_t>(first >> 32);
  result.cdw12 = static_cast<std::uint32_t>(blocks - 1) | (command.forced ? kForced : 0) |
                 (command.deallocates ? kDeallocates : 0);
  return result;
}

// `registered`: the memory is in the ring's buffer 0.
void prepare(io_uring_sqe* entry, int fd, const NvmeCommand& command, const Namespace& where, bool registered) {
  auto built = command_of<nvme_uring_cmd>(command, where);
  const bool several = command.memory.size() > 1;
  if (several) {
    built.addr = reinterpret_cast<std::uintptr_t>(command.memory.data());
    built.data_len = static_cast<std::uint32_t>(command.memory.size());
  } else if (!command.memory.empty()) {
    built.addr = reinterpret_cast<std::uintptr_t>(command.memory.front().iov_base);
    built.data_len = static_cast<std::uint32_t>(command.bytes);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(entry);
  std::memset(bytes, 0, kUringEntryBytes);
  entry->opcode = kUringCommandOp;
  entry->fd = fd;
  entry->off = several ? NVME_URING_CMD_IO_VEC : NVME_URING_CMD_IO;
  entry->rw_flags = registered ? static_cast<int>(IORING_URING_CMD_FIXED) : 0;
  std::memcpy(bytes + kUringCommandAt, &built, sizeof built);
}

// The same without io_uring: the thread waits in the call.
NvmeOutcome run_by_call(int fd, const NvmeCommand& command, const Namespace& where) {
  auto built = command_of<nvme_passthru_cmd64>(command, where);
  iovec piece{};
  AlignedBuffer gathered;
  if (command.memory.size() == 1) {
    piece = command.memory.front();
  } else if (command.memory.size() > 1) {
    auto buffer = AlignedBuffer::allocate(command.bytes);
    if (!buffer.ok()) return -ENOMEM;
    gathered = std::move(*buffer);
    std::byte* target = gathered.data();
    for (const iovec& each : command.memory) {
      std::memcpy(target, each.iov_base, each.iov_len);
      target += each.iov_len;
    }
    piece = {gathered.data(), command.bytes};
  }
  built.addr = reinterpret_cast<std::uintptr_t>(piece.iov_base);
  built.data_len = static_cast<std::uint32_t>(piece.iov_len);
  const int done = ::ioctl(fd, NVME_IOCTL_IO64_CMD, &built);
  return done < 0 ? -errno : done;
}

// True if the kernel takes such commands, and liburing knows entries of this size.
bool rings_work() {
  static const bool works = [] {
    FileRing ring(-1, 2, kRingSetup);
    if (!ring.ready()) return false;
    const auto* const first = reinterpret_cast<const std::byte*>(::io_uring_get_sqe(ring.get()));
    const auto* const second = reinterpret_cast<const std::byte*>(::io_uring_get_sqe(ring.get()));
    if (second - first != static_cast<std::ptrdiff_t>(kUringEntryBytes)) return false;
    io_uring_probe* const probe = ::io_uring_get_probe_ring(ring.get());
    const bool known = probe != nullptr && ::io_uring_opcode_supported(probe, kUringCommandOp) != 0;
    ::io_uring_free_probe(probe);
    return known;
  }();
  return works;
}

// ---- KernelQueue -----------------------------------------------------------------------------------------------

class KernelQueue final : public NvmeQueue {
 public:
  KernelQueue(std::shared_ptr<const RingFile> file, const Namespace& where, std::uint32_t depth)
      : file_(std::move(file)), where_(where), ring_(file_->fd(), depth, kRingSetup), commands_(depth) {}
  [[nodiscard]] bool ready() const { return ring_.ready(); }

  void start(std::uint32_t number, const NvmeCommand& command) override {
    commands_[number] = {command, true};
    submit(number);
  }

  Done wait() override {
    for (;;) {
      if (!done_.empty()) {
        const Done done = done_.back();
        done_.pop_back();
        commands_[done.number].in_flight = false;
        return done;
      }
      FileRing::Completion completion;
      if (const int error = ring_.wait(completion); error != 0) {
        const auto any =
            std::find_if(commands_.begin(), commands_.end(), [](const InFlight& each) { return each.in_flight; });
        MEMLITH_ASSERT(any != commands_.end());
        finish(static_cast<std::uint32_t>(any - commands_.begin()), -error);
        continue;
      }
      const auto number = static_cast<std::uint32_t>(completion.user_data);
      const bool refused = completion.result == -EINVAL || completion.result == -EOPNOTSUPP;
      if (completion.result == -EAGAIN) {
        submit(number);
      } else if (completion.result == kNoThread) {
        finish(number, run_by_call(file_->fd(), commands_[number].command, where_));
      } else if (refused && !registered_.empty() && is_registered(commands_[number].command)) {
        register_memory({});  // a kernel before 6.1 knows no such flag
        submit(number);
      } else {
        finish(number, completion.result);
      }
    }
  }

  // The kernel pins the memory, as far as RLIMIT_MEMLOCK allows, and then looks up no pages for a command.
  void register_memory(std::span<std::byte> memory) override {
    if (!registered_.empty()) (void)::io_uring_unregister_buffers(ring_.get());
    const iovec piece{memory.data(), memory.size()};
    const bool taken = !memory.empty() && ::io_uring_register_buffers(ring_.get(), &piece, 1) == 0;
    registered_ = taken ? memory : std::span<std::byte>();
  }

 private:
  struct InFlight {
    NvmeCommand command;
    bool in_flight = false;
  };

  [[nodiscard]] bool is_registered(const NvmeCommand& command) const {
    const auto* const begin = static_cast<const std::byte*>(command.memory.front().iov_base);
    return begin >= registered_.data() && begin + command.bytes <= registered_.data() + registered_.size();
  }

  void submit(std::uint32_t number) {
    const NvmeCommand& command = commands_[number].command;
    const int error = ring_.submit(number, [&](io_uring_sqe* entry, int file) {
      prepare(entry, file, command, where_, is_registered(command));
    });
    // Refused, for example by a sandbox that was installed after the ring was created.
    if (error != 0) finish(number, run_by_call(file_->fd(), command, where_));
  }

  void finish(std::uint32_t number, NvmeOutcome outcome) { done_.push_back({number, outcome}); }

  std::shared_ptr<const RingFile> file_;
  const Namespace where_;
  FileRing ring_;
  std::vector<InFlight> commands_;
  std::vector<Done> done_;  // and not told yet
  std::span<std::byte> registered_;
};

// ---- KernelCommands --------------------------------------------------------------------------------------------

class KernelCommands final : public NvmeCommands {
 public:
  // `rings` is null where commands go by system calls.
  KernelCommands(Descriptor descriptor, std::shared_ptr<RingFile> rings, std::string name, FileIdentity identity,
                 const Namespace& where, const NvmeFacts& facts)
      : descriptor_(std::move(descriptor)),
        rings_(std::move(rings)),
        name_(std::move(name)),
        identity_(identity),
        where_(where),
        facts_(facts) {}

  [[nodiscard]] const NvmeFacts& facts() const override { return facts_; }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] FileIdentity identity() const override { return identity_; }
  [[nodiscard]] IoBackend io() const override { return rings_ != nullptr ? IoBackend::uring : IoBackend::posix; }

  // One system call.
  NvmeOutcome run(const NvmeCommand& command) override {
    std::unique_ptr<Ring> ring = rings_ != nullptr ? take() : nullptr;
    FileRing::Completion completion;
    do {
      const bool begun =
          ring != nullptr &&
          ring->submit(0, [&](io_uring_sqe* entry, int file) { prepare(entry, file, command, where_, false); }, 1) == 0;
      if (!begun) return run_by_call(descriptor_.get(), command, where_);
      if (const int error = ring->wait(completion); error != 0) return -error;
    } while (completion.result == -EAGAIN);
    give_back(std::move(ring));
    if (completion.result == kNoThread) return run_by_call(descriptor_.get(), command, where_);
    return completion.result;
  }

  std::unique_ptr<NvmeQueue> make_queue(std::uint32_t depth) override {
    if (rings_ == nullptr) return nullptr;
    auto queue = std::make_unique<KernelQueue>(rings_, where_, depth);
    return queue->ready() ? std::move(queue) : nullptr;
  }

 private:
  class Ring : public FileRing {
   public:
    explicit Ring(int fd) : FileRing(fd, 1, kRingSetup) {}
    std::unique_ptr<Ring> next;
  };

  std::unique_ptr<Ring> take() {
    {
      const LockGuard lock(mutex_);
      if (idle_ != nullptr) {
        auto ring = std::move(idle_);
        idle_ = std::move(ring->next);
        return ring;
      }
    }
    // The caller may be in the middle of a commit, which must not throw.
    std::unique_ptr<Ring> ring(new (std::nothrow) Ring(rings_->fd()));
    return ring != nullptr && ring->ready() ? std::move(ring) : nullptr;
  }
  void give_back(std::unique_ptr<Ring> ring) {
    const LockGuard lock(mutex_);
    ring->next = std::move(idle_);
    idle_ = std::move(ring);
  }

  const Descriptor descriptor_;
  const std::shared_ptr<RingFile> rings_;
  const std::string name_;
  const FileIdentity identity_;
  const Namespace where_;
  const NvmeFacts facts_;
  Mutex mutex_;
  // A list of as many rings as there ever were concurrent commands.
  std::unique_ptr<Ring> idle_ MEMLITH_GUARDED_BY(mutex_);
};

// ---- opening ---------------------------------------------------------------------------------------------------

Status identify(int fd, std::uint32_t number, std::uint32_t what, std::span<std::byte> target,
                const std::string& path) {
  nvme_admin_cmd command{};
  command.opcode = kIdentify;
  command.nsid = what == kOfNamespace ? number : 0;
  command.addr = reinterpret_cast<std::uintptr_t>(target.data());
  command.data_len = static_cast<std::uint32_t>(target.size());
  command.cdw10 = what;
  const int done = ::ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command);
  if (done == 0) return kOk;
  if (done < 0) {
    return fail_errno(errno, Detail::open, "{}: the kernel does not let the device identify itself", path);
  }
  return fail(Errc::io, Detail::open, "{}: the device does not identify itself (NVMe status {:#05x})", path,
              done & 0x7ff);
}

// Taken for on where the device does not say.
bool cache_is_on(int fd) {
  nvme_admin_cmd command{};
  command.opcode = kGetFeatures;
  command.cdw10 = kVolatileCacheFeature;
  return ::ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command) != 0 || (command.result & 1U) != 0;
}

Result<NvmeFacts> facts_of(int fd, std::uint32_t number, const std::string& path, const std::string& block) {
  std::array<std::byte, kNvmeIdentifyBytes> of_controller{};
  std::array<std::byte, kNvmeIdentifyBytes> name_space{};
  MEMLITH_TRY(identify(fd, number, kOfController, of_controller, path));
  MEMLITH_TRY(identify(fd, number, kOfNamespace, name_space, path));
  MEMLITH_TRY_ASSIGN(NvmeFacts facts, read_nvme_identity(of_controller, name_space, path));
  facts.cache_is_on = facts.has_cache && cache_is_on(fd);
  if (const std::uint64_t most = command_bytes_max_of(block); most != 0) {
    facts.transfer_bytes_max = std::max(kPageBytes, round_down(std::min(facts.transfer_bytes_max, most), kPageBytes));
  }
  return facts;
}

}  // namespace

Result<std::unique_ptr<NvmeCommands>> open_nvme(const std::string& path, const std::string& name,
                                                const std::string& block, IoBackend io, bool writable) {
  if (io == IoBackend::dax || (io == IoBackend::uring && !rings_work())) {
    return fail(Errc::unsupported, Detail::open, "{}: {}; let memlith choose (MEMLITH_IO_AUTO)", path,
                io == IoBackend::dax ? "an NVMe namespace is no byte-addressable memory"
                                     : "io_uring was requested, but this kernel or a sandbox refuses it for NVMe "
                                       "commands, which it has from Linux 5.19 on");
  }
  Descriptor descriptor(above_standard(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC)));
  if (descriptor.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
  struct stat info{};
  const int number = ::ioctl(descriptor.get(), NVME_IOCTL_ID);
  if (number < 0 || ::fstat(descriptor.get(), &info) != 0) {
    return fail_errno(errno, Detail::open, "{}: the kernel does not tell the number of the namespace", path);
  }
  MEMLITH_TRY_ASSIGN(const NvmeFacts facts,
                     facts_of(descriptor.get(), static_cast<std::uint32_t>(number), path, block));
  std::shared_ptr<RingFile> rings;
  if (io != IoBackend::posix && rings_work()) rings = RingFile::open(descriptor.get(), false);
  const Namespace where{static_cast<std::uint32_t>(number), facts.block_bytes};
  return std::unique_ptr<NvmeCommands>(std::make_unique<KernelCommands>(std::move(descriptor), std::move(rings), name,
                                                                        FileIdentity{info.st_dev, info.st_ino}, where,
                                                                        facts));
}

}  // namespace memlith::core
