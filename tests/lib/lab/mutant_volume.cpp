#include "mutant_volume.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "log/format.hpp"
#include "mutants/mutants.hpp"

namespace memlith::lab {

using namespace core;

namespace {

// The newest write, for whose sake the next flush is.
enum class Written : std::uint8_t { nothing, superblock, batch, stream, other };

enum class FileKind : std::uint8_t { log, blocks, other };

FileKind kind_of(std::string_view name) {
  if (name.ends_with(".new")) name.remove_suffix(4);
  if (name == "log" || name.ends_with(".memlith")) return FileKind::log;
  if (name == "blocks" || name.ends_with("-blocks")) return FileKind::blocks;
  return FileKind::other;
}

template <class Struct>
bool begins_with(std::span<const std::byte> bytes, decltype(Struct::magic) magic, Struct& found) {
  if (bytes.size() < sizeof found) return false;
  std::memcpy(&found, bytes.data(), sizeof found);
  return found.magic == magic;
}

class MutantQueue;

class MutantDevice final : public DeviceDecorator {
 public:
  MutantDevice(std::unique_ptr<Device> device, FileKind kind) : DeviceDecorator(std::move(device)), kind_(kind) {}

  bool read_cached(std::uint64_t offset, std::span<std::byte> target) override {
    return below().read_cached(offset, target);
  }
  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override;

  [[nodiscard]] FileKind kind() const { return kind_; }
  void wrote(Written what) { last_ = what; }
  void flush_now() { (void)below().flush(); }
  // Transfers that are waited for behind the next flush.
  void wait_behind_flush(IoQueue& queue) { late_ = &queue; }
  // The next flush has been done already.
  void leave_out_flush() { left_out_ = true; }

 protected:
  Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    MEMLITH_TRY(below().read(offset, target));
    Superblock superblock;
    if (kind_ == FileKind::log && offset < kHolderOffset && begins_with(target, kSuperblockMagic, superblock)) {
      incarnation_ = std::max(incarnation_, superblock.incarnation);
    }
    return kOk;
  }
  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    catch_up();
    if (kind_ == FileKind::log) return write_log(offset, pieces);
    wrote(Written::other);
    return below().write_pieces(offset, pieces);
  }
  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    catch_up();
    MEMLITH_TRY(MEMLITH_MUTANT(write_through_not_forced) ? below().write_pieces(offset, pieces)
                                                         : below().write_through(offset, pieces));
    return true;
  }
  Status do_flush() override {
    catch_up();
    if (std::exchange(left_out_, false)) return kOk;
    if (IoQueue* const late = std::exchange(late_, nullptr)) {
      MEMLITH_TRY(below().flush());
      return late->wait_all();
    }
    if (kind_ == FileKind::log) return flush_log();
    if (kind_ == FileKind::blocks && MEMLITH_MUTANT(blocks_not_flushed)) return kOk;
    return below().flush();
  }
  Status do_reserve(std::uint64_t bytes) override {
    catch_up();
    return below().reserve(bytes);
  }
  Status do_truncate(std::uint64_t bytes) override {
    catch_up();
    return below().truncate(bytes);
  }

 private:
  // Does the flush that was put off.
  void catch_up() {
    if (std::exchange(put_off_, false)) flush_now();
  }

  Status write_log(std::uint64_t offset, std::span<const iovec> pieces) {
    const std::span first(static_cast<const std::byte*>(pieces[0].iov_base), pieces[0].iov_len);
    Superblock superblock;
    if (offset < kHolderOffset && begins_with(first, kSuperblockMagic, superblock)) {
      incarnation_ = std::max(incarnation_, superblock.incarnation);
      last_ = Written::superblock;
      ++superblocks_;
      return below().write_pieces(offset, pieces);
    }
    SlotHeader slot;
    const bool enters_slot = begins_with(first, kSlotMagic, slot) && slot.incarnation == incarnation_;
    if (enters_slot && pieces.size() == 1) {  // of a stream, whose frames go another way
      last_ = Written::stream;
      return MEMLITH_MUTANT(stream_without_slot_headers) ? kOk : below().write_pieces(offset, pieces);
    }
    FrameHeader frame;
    const bool frames = begins_with(first, kFrameMagic, frame) && frame.incarnation == incarnation_;
    // A batch that goes on in another slot begins there with the header of the slot, and in the middle of a frame.
    if (!enters_slot && !frames) {
      last_ = Written::other;
      return below().write_pieces(offset, pieces);
    }
    last_ = Written::batch;
    if (MEMLITH_MUTANT(skip_log_write)) return kOk;
    if (MEMLITH_MUTANT(flush_before_write)) flush_now();
    const bool headless = enters_slot && MEMLITH_MUTANT(batch_without_slot_headers);
    const Status status = headless ? below().write_pieces(offset + first.size(), pieces.subspan(1))
                                   : below().write_pieces(offset, pieces);
    return MEMLITH_MUTANT(failed_write_acknowledged) ? kOk : status;
  }

  Status flush_log() {
    switch (std::exchange(last_, Written::nothing)) {
      case Written::batch: return flush_batch();
      case Written::stream:
        if (MEMLITH_MUTANT(stream_not_flushed)) return kOk;
        break;
      case Written::superblock:
        if (MEMLITH_MUTANT(superblock_not_flushed)) return kOk;
        if (MEMLITH_MUTANT(superblock_copies_at_once) && superblocks_ % 2 == 1) return kOk;
        break;
      case Written::nothing:
      case Written::other: break;
    }
    return below().flush();
  }

  Status flush_batch() {
    if (MEMLITH_MUTANT(skip_log_flush) || MEMLITH_MUTANT(flush_before_write)) return kOk;
    if (MEMLITH_MUTANT(acknowledge_before_flush)) {
      put_off_ = true;
      return kOk;
    }
    Status status = below().flush();
    if (!status.ok() && MEMLITH_MUTANT(failed_flush_retried)) status = below().flush();
    return MEMLITH_MUTANT(failed_write_acknowledged) ? kOk : status;
  }

  FileKind kind_;
  Written last_ = Written::nothing;
  std::uint64_t incarnation_ = 0;  // of the log: the latest that was read or written
  std::uint64_t superblocks_ = 0;  // written
  bool put_off_ = false;
  bool left_out_ = false;
  IoQueue* late_ = nullptr;
};

class MutantQueue final : public IoQueue {
 public:
  MutantQueue(MutantDevice& device, std::unique_ptr<IoQueue> queue, std::uint32_t depth)
      : device_(device), queue_(std::move(queue)), writes_(depth, false) {}

  Status read(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> target) override {
    writes_[slot] = false;
    return queue_->read(slot, offset, target);
  }
  Status write(std::uint32_t slot, std::uint64_t offset, std::span<const std::byte> source) override {
    writes_[slot] = true;
    last_ = slot;
    device_.wrote(Written::stream);
    return queue_->write(slot, offset, source);
  }
  Status wait(std::uint32_t slot) override {
    const bool log = device_.kind() == FileKind::log;
    if (log && writes_[slot] && MEMLITH_MUTANT(stream_buffer_used_early)) return kOk;
    if (log && !writes_[slot] && MEMLITH_MUTANT(log_read_not_waited)) return kOk;
    const Status status = queue_->wait(slot);
    return writes_[slot] ? device_.latch(status) : status;  // a read that fails latches nothing
  }
  Status wait_all() override {
    if (std::find(writes_.begin(), writes_.end(), true) == writes_.end()) return queue_->wait_all();
    if (device_.kind() == FileKind::log) {
      if (MEMLITH_MUTANT(stream_end_not_waited)) return kOk;
      if (MEMLITH_MUTANT(stream_end_waited_late)) {
        device_.wait_behind_flush(*queue_);
        return kOk;
      }
      if (MEMLITH_MUTANT(stream_end_after_flush)) {
        for (std::uint32_t slot = 0; slot < writes_.size(); ++slot) {
          if (slot != last_) MEMLITH_TRY(device_.latch(queue_->wait(slot)));
        }
        device_.flush_now();
        device_.leave_out_flush();
      }
    }
    return device_.latch(queue_->wait_all());
  }

 private:
  MutantDevice& device_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<bool> writes_;  // by slot: what its transfer is
  std::uint32_t last_ = 0;
};

std::unique_ptr<IoQueue> MutantDevice::make_queue(std::uint32_t depth) {
  return std::make_unique<MutantQueue>(*this, below().make_queue(depth), depth);
}

}  // namespace

Volume& MutantVolume::over(Volume& volume, std::optional<MutantVolume>& mutated) {
  constexpr Mutant kHere[] = {
#define MEMLITH_DEVICE_MUTANT(name, floor, what) Mutant::name,
      MEMLITH_DEVICE_MUTANT_LIST(MEMLITH_DEVICE_MUTANT)
#undef MEMLITH_DEVICE_MUTANT
  };
  if (std::find(std::begin(kHere), std::end(kHere), active_mutant) == std::end(kHere)) return volume;
  return mutated.emplace(volume);
}

std::unique_ptr<Device> MutantVolume::decorate(std::unique_ptr<Device> device, std::string_view name, bool) {
  return std::make_unique<MutantDevice>(std::move(device), kind_of(name));
}

}  // namespace memlith::lab
