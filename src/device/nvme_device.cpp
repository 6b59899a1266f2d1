// Sections: NvmeDevice, NvmeTransfers.
#include "device/nvme_device.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace memlith::core {

namespace {

// ---- NvmeDevice ------------------------------------------------------------------------------------------------

constexpr std::uint64_t kBufferBytes = 256 * kKiB;

std::uint64_t bytes_in(std::span<const iovec> pieces) {
  std::uint64_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

DeviceCaps caps_of(const NvmeCommands& commands, Caching caching) {
  const NvmeFacts& facts = commands.facts();
  DeviceCaps caps;
  caps.block_bytes = caching == Caching::direct ? facts.block_bytes : 1;
  if (facts.block_bytes > caps.log_block_bytes) caps.log_block_bytes = static_cast<std::uint32_t>(kPageBytes);
  const bool forces = facts.has_cache && facts.cache_is_on && caching == Caching::direct;
  caps.through_bytes_max = forces ? facts.transfer_bytes_max : 0;
  caps.io = commands.io();
  return caps;
}

class NvmeDevice final : public Device {
 public:
  NvmeDevice(std::shared_ptr<NvmeCommands> commands, std::shared_ptr<NvmeShared> shared, std::string path,
             Caching caching)
      : Device(caps_of(*commands, caching), std::move(path), caching == Caching::direct),
        commands_(std::move(commands)),
        shared_(std::move(shared)),
        facts_(commands_->facts()) {}

  Result<std::uint64_t> size() override { return facts_.bytes; }
  Result<FileIdentity> identity() override { return commands_->identity(); }
  Result<bool> removed() override { return false; }
  Status match_permissions(Device&) override { return kOk; }

  std::optional<DiskFacts> disk() override {
    DiskFacts disk;
    disk.name = commands_->name();
    disk.passthrough = true;
    disk.volatile_cache = facts_.has_cache && facts_.cache_is_on;
    disk.forced_unit_access = true;  // every NVMe device has it
    disk.logical_sector_bytes = facts_.block_bytes;
    disk.physical_sector_bytes = facts_.physical_bytes;
    disk.request_bytes_max = facts_.transfer_bytes_max;
    disk.atomic_write_bytes = facts_.atomic_bytes;
    return disk;
  }

  Result<Mappable> mappable(std::uint64_t offset, std::uint64_t bytes) override {
    MEMLITH_ASSERT(!direct());
    return shared_->pages.map(offset, bytes, [this](std::uint64_t at, std::span<std::byte> target) {
      return read_blocks(at, target);
    });
  }

  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override;

  [[nodiscard]] bool whole_blocks(std::uint64_t offset, std::uint64_t bytes) const {
    return offset % facts_.block_bytes == 0 && bytes % facts_.block_bytes == 0;
  }
  [[nodiscard]] const NvmeFacts& facts() const { return facts_; }
  [[nodiscard]] NvmePages& pages() const { return shared_->pages; }

 protected:
  Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    if (offset > facts_.bytes || target.size() > facts_.bytes - offset) {
      return cut_short(path_, offset, target.size(), facts_.bytes - std::min(facts_.bytes, offset));
    }
    if (whole_blocks(offset, target.size())) return read_blocks(offset, target);
    MEMLITH_TRY_ASSIGN(const AlignedBuffer buffer,
                       AlignedBuffer::allocate(std::min(kBufferBytes,
                                                        round_up(target.size(), kPageBytes) + kPageBytes)));
    while (!target.empty()) {
      const std::uint64_t begin = round_down(offset, facts_.block_bytes);
      const std::uint64_t end = round_up(offset + target.size(), facts_.block_bytes);
      const std::span<std::byte> blocks = buffer.span().first(std::min(buffer.size(), end - begin));
      MEMLITH_TRY(read_blocks(begin, blocks));
      const std::span<std::byte> found = blocks.subspan(offset - begin);
      const std::uint64_t step = std::min(found.size(), target.size());
      std::memcpy(target.data(), found.data(), step);
      offset += step;
      target = target.subspan(step);
    }
    return kOk;
  }

  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    const std::uint64_t bytes = bytes_in(pieces);
    if (bytes == 0) return kOk;
    if (offset > facts_.bytes || bytes > facts_.bytes - offset) {
      return fail(Errc::io, Detail::write, "{}: {} bytes at offset {} lie outside of the namespace, which has {}",
                  path_, bytes, offset, facts_.bytes);
    }
    if (!whole_blocks(offset, bytes)) return write_gathered(offset, pieces, bytes);
    if (pieces.size() == 1) return write_piece(offset, pieces.front());
    if (bytes > facts_.transfer_bytes_max || pieces.size() > IOV_MAX) return write_gathered(offset, pieces, bytes);
    return write_now(offset, pieces, bytes);
  }

  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    const std::uint64_t bytes = bytes_in(pieces);
    if (!can_write_through(bytes) || pieces.size() > IOV_MAX) return false;
    MEMLITH_TRY(run({.op = NvmeOp::write, .forced = true, .offset = offset, .bytes = bytes, .memory = pieces}));
    MEMLITH_TRY(shared_->pages.wrote(offset, pieces));
    return true;
  }

  // A device without a volatile cache has nothing to flush. One whose cache is off now may have it on by then.
  Status do_flush() override {
    if (!facts_.has_cache) return kOk;
    return run({.op = NvmeOp::flush});
  }

  Status do_reserve(std::uint64_t bytes) override {
    if (bytes <= facts_.bytes) return kOk;
    return fail(Errc::no_space, Detail::resize, "{}: the namespace has {} bytes, not {}", path_, facts_.bytes, bytes);
  }
  Status do_fill_holes() override { return kOk; }
  Status do_truncate(std::uint64_t) override {
    return fail(Errc::unsupported, Detail::resize, "{}: the size of a namespace does not change", path_);
  }

  Status do_discard(std::uint64_t offset, std::uint64_t bytes) override {
    if (facts_.zeroes_bytes_max == 0) return Device::do_discard(offset, bytes);
    MEMLITH_ASSERT(whole_blocks(offset, bytes));
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t step = std::min(facts_.zeroes_bytes_max, bytes - done);
      MEMLITH_TRY(run({.op = NvmeOp::write_zeroes,
                       .deallocates = facts_.deallocates,
                       .offset = offset + done,
                       .bytes = step}));
      MEMLITH_TRY(shared_->pages.zeroed(offset + done, step));
      done += step;
    }
    return kOk;
  }

 private:
  Status run(const NvmeCommand& command) {
    const NvmeOutcome outcome = commands_->run(command);
    return outcome == 0 ? kOk : nvme_failure(command, outcome, path_);
  }

  Status read_blocks(std::uint64_t offset, std::span<std::byte> target) {
    while (!target.empty()) {
      const iovec piece{target.data(), std::min(facts_.transfer_bytes_max, target.size())};
      MEMLITH_TRY(run({.op = NvmeOp::read, .offset = offset, .bytes = piece.iov_len, .memory = {&piece, 1}}));
      offset += piece.iov_len;
      target = target.subspan(piece.iov_len);
    }
    return kOk;
  }

  Status write_now(std::uint64_t offset, std::span<const iovec> pieces, std::uint64_t bytes) {
    MEMLITH_TRY(run({.op = NvmeOp::write, .offset = offset, .bytes = bytes, .memory = pieces}));
    return shared_->pages.wrote(offset, pieces);
  }

  Status write_piece(std::uint64_t offset, iovec piece) {
    auto* source = static_cast<std::byte*>(piece.iov_base);
    for (std::uint64_t left = piece.iov_len; left > 0;) {
      const iovec now{source, std::min(facts_.transfer_bytes_max, left)};
      MEMLITH_TRY(write_now(offset, {&now, 1}, now.iov_len));
      source += now.iov_len;
      offset += now.iov_len;
      left -= now.iov_len;
    }
    return kOk;
  }

  // By way of a buffer of whole blocks. The other bytes of the first and of the last block are read before: what the
  // device writes is a block.
  Status write_gathered(std::uint64_t offset, std::span<const iovec> pieces, std::uint64_t bytes) {
    const LockGuard lock(shared_->block_mutex);
    AlignedBuffer& buffer = shared_->blocks;
    if (buffer.size() == 0) {
      MEMLITH_TRY_ASSIGN(buffer, AlignedBuffer::allocate(kBufferBytes));
    }
    std::uint64_t skip = 0;  // of the first piece
    while (bytes > 0) {
      const std::uint64_t begin = round_down(offset, facts_.block_bytes);
      const std::uint64_t end = round_up(offset + bytes, facts_.block_bytes);
      const std::uint64_t most = round_down(std::min(buffer.size(), facts_.transfer_bytes_max), facts_.block_bytes);
      const std::span<std::byte> blocks = buffer.span().first(std::min(most, end - begin));
      const std::uint64_t step = std::min(bytes, blocks.size() - (offset - begin));
      MEMLITH_TRY(read_rest(begin, blocks, offset, offset + step));
      gather(blocks.subspan(offset - begin, step), pieces, skip);
      const iovec now{blocks.data(), blocks.size()};
      MEMLITH_TRY(write_now(begin, {&now, 1}, now.iov_len));
      offset += step;
      bytes -= step;
    }
    return kOk;
  }

  // Reads the first and the last of the blocks, as far as [from, to) leaves bytes of them.
  Status read_rest(std::uint64_t begin, std::span<std::byte> blocks, std::uint64_t from, std::uint64_t to) {
    const std::uint64_t block = facts_.block_bytes;
    const std::uint64_t last = blocks.size() - block;
    const bool in_last = to < begin + blocks.size();
    if (from > begin && !(in_last && last == 0)) MEMLITH_TRY(read_block(begin, blocks.first(block)));
    return in_last ? read_block(begin + last, blocks.subspan(last, block)) : kOk;
  }
  Status read_block(std::uint64_t offset, std::span<std::byte> target) {
    return shared_->pages.take(offset, target) ? kOk : read_blocks(offset, target);
  }

  // Takes the next bytes of the pieces, of whose first `skip` are taken.
  static void gather(std::span<std::byte> target, std::span<const iovec>& pieces, std::uint64_t& skip) {
    while (!target.empty()) {
      const iovec& piece = pieces.front();
      const std::uint64_t step = std::min<std::uint64_t>(target.size(), piece.iov_len - skip);
      std::memcpy(target.data(), static_cast<const std::byte*>(piece.iov_base) + skip, step);
      target = target.subspan(step);
      skip += step;
      if (skip == piece.iov_len) {
        pieces = pieces.subspan(1);
        skip = 0;
      }
    }
  }

  std::shared_ptr<NvmeCommands> commands_;
  std::shared_ptr<NvmeShared> shared_;
  const NvmeFacts facts_;
};

// ---- NvmeTransfers ---------------------------------------------------------------------------------------------

// Transfers of whole blocks are commands in flight, each of a part if it is larger than a command may be. Others are
// done at once.
class NvmeTransfers final : public IoQueue {
 public:
  NvmeTransfers(NvmeDevice& device, std::unique_ptr<NvmeQueue> queue, std::uint32_t depth)
      : device_(device), queue_(std::move(queue)), transfers_(depth) {}
  ~NvmeTransfers() override { (void)wait_all(); }

  Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) override {
    return start(number, offset, target, NvmeOp::read);
  }
  Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) override {
    return start(number, offset, {const_cast<std::byte*>(source.data()), source.size()}, NvmeOp::write);
  }

  Status wait(std::uint32_t number) override {
    while (transfers_[number].in_flight) reap();
    return std::exchange(transfers_[number].result, kOk);
  }
  Status wait_all() override {
    Status first = kOk;
    for (auto number = static_cast<std::uint32_t>(transfers_.size()); number-- > 0;) {
      if (const Status status = wait(number); first.ok()) first = status;
    }
    return first;
  }
  void register_memory(std::span<std::byte> memory) override { queue_->register_memory(memory); }

 private:
  struct Transfer {
    iovec piece{};  // of the command in flight
    NvmeCommand command;
    std::span<std::byte> rest;  // behind it
    bool in_flight = false;
    Status result = kOk;
  };

  Status start(std::uint32_t number, std::uint64_t offset, std::span<std::byte> memory, NvmeOp op) {
    MEMLITH_TRY(wait(number));
    if (op == NvmeOp::write) MEMLITH_TRY(device_.check_latch());
    Transfer& transfer = transfers_[number];
    if (memory.empty() || !device_.whole_blocks(offset, memory.size()) ||
        offset + memory.size() > device_.facts().bytes) {
      transfer.result = op == NvmeOp::write ? device_.write(offset, memory) : device_.read(offset, memory);
      return kOk;
    }
    transfer.command = {.op = op, .offset = offset};
    transfer.rest = memory;
    begin(number);
    return kOk;
  }

  void begin(std::uint32_t number) {
    Transfer& transfer = transfers_[number];
    const std::uint64_t bytes = std::min(device_.facts().transfer_bytes_max, transfer.rest.size());
    transfer.piece = {transfer.rest.data(), bytes};
    transfer.command.bytes = bytes;
    transfer.command.memory = {&transfer.piece, 1};
    transfer.rest = transfer.rest.subspan(bytes);
    transfer.in_flight = true;
    queue_->start(number, transfer.command);
  }

  void reap() {
    const NvmeQueue::Done done = queue_->wait();
    Transfer& transfer = transfers_[done.number];
    transfer.in_flight = false;
    const bool writes = transfer.command.op == NvmeOp::write;
    Status status = done.outcome == 0 ? kOk : nvme_failure(transfer.command, done.outcome, device_.path());
    if (status.ok() && writes) status = device_.pages().wrote(transfer.command.offset, transfer.command.memory);
    if (status.ok() && !transfer.rest.empty()) {
      transfer.command.offset += transfer.command.bytes;
      return begin(done.number);
    }
    transfer.result = writes ? device_.latch(status) : status;
  }

  NvmeDevice& device_;
  std::unique_ptr<NvmeQueue> queue_;
  std::vector<Transfer> transfers_;  // of constant size: commands point into it
};

std::unique_ptr<IoQueue> NvmeDevice::make_queue(std::uint32_t depth) {
  auto queue = commands_->make_queue(depth);
  if (queue == nullptr) return Device::make_queue(depth);
  return std::make_unique<NvmeTransfers>(*this, std::move(queue), depth);
}

}  // namespace

std::unique_ptr<Device> make_nvme_device(std::shared_ptr<NvmeCommands> commands, std::shared_ptr<NvmeShared> shared,
                                         std::string path, Caching caching) {
  return std::make_unique<NvmeDevice>(std::move(commands), std::move(shared), std::move(path), caching);
}

}  // namespace memlith::core
