// Sections: FileDevice, FileQueue.
#include "device/raw_file.hpp"

#include <algorithm>
#include <utility>

#include "base/host.hpp"

namespace memlith::core {

// ---- FileDevice ------------------------------------------------------------------------------------------------

template <class Act>
Status RawVolume::FileDevice::each_stretch(std::uint64_t offset, std::uint64_t bytes, const Act& act) {
  for (std::uint64_t done = 0; done < bytes;) {
    Stretch stretch = stretch_at(offset + done);
    if (stretch.bytes == 0) return cut_short(path_, offset, bytes, done);
    stretch.bytes = std::min(stretch.bytes, bytes - done);
    MEMLITH_TRY(act(stretch, done));
    done += stretch.bytes;
  }
  return kOk;
}

Result<std::uint64_t> RawVolume::FileDevice::size() {
  MEMLITH_TRY(volume_.refresh_if_unlocked());
  const LockGuard lock(node_->mutex);
  return node_->size_bytes;
}

Result<FileIdentity> RawVolume::FileDevice::identity() {
  const LockGuard lock(volume_.mutex_);
  return FileIdentity{volume_.header_->device_id, node_->number};
}

Result<bool> RawVolume::FileDevice::removed() {
  MEMLITH_TRY(volume_.refresh_if_unlocked());
  const LockGuard lock(node_->mutex);
  return node_->gone;
}

Result<Mappable> RawVolume::FileDevice::mappable(std::uint64_t offset, std::uint64_t bytes) {
  const Stretch stretch = stretch_at(offset);
  if ((stretch.offset | stretch.bytes) % host_page_bytes() != 0) {
    return fail(Errc::unsupported, Detail::mapping,
                "{}: this kernel has pages of {} bytes, and what the device is divided into is smaller; copy the store "
                "(`memlith copy`) to a device of 256 MiB or more",
                path_, host_page_bytes());
  }
  MEMLITH_TRY_ASSIGN(Mappable found, host_.mappable(stretch.offset, std::min(bytes, stretch.bytes)));
  found.bytes = std::min(found.bytes, stretch.bytes);
  return found;
}

RawVolume::FileDevice::Stretch RawVolume::FileDevice::stretch_at(std::uint64_t offset) {
  const LockGuard lock(node_->mutex);
  for (const RawExtent& extent : node_->extents) {
    if (offset < extent.bytes) return {extent.offset + offset, extent.bytes - offset};
    offset -= extent.bytes;
  }
  return {};
}

// For the opener that has the file open for writing: no other one then changes the map.
bool RawVolume::FileDevice::read_cached(std::uint64_t offset, std::span<std::byte> target) {
  const Stretch stretch = stretch_at(offset);
  return writable_ && stretch.bytes >= target.size() && host_.read_cached(stretch.offset, target);
}

// Another process that writes may give the extents to another file while they are read; the map tells.
Status RawVolume::FileDevice::do_read(std::uint64_t offset, std::span<std::byte> target) {
  for (;;) {
    std::uint64_t before = 0;
    {
      const LockGuard lock(node_->mutex);
      before = node_->version;
      if (node_->lost) return fail(Errc::not_found, Detail::read, "{}: was removed while it was in use", path_);
      if (offset > node_->size_bytes || target.size() > node_->size_bytes - offset) {
        return cut_short(path_, offset, target.size(), node_->size_bytes - std::min(node_->size_bytes, offset));
      }
    }
    MEMLITH_TRY(each_stretch(offset, target.size(), [&](const Stretch& stretch, std::uint64_t done) {
      return host_.read(stretch.offset, target.subspan(done, stretch.bytes));
    }));
    MEMLITH_TRY(volume_.refresh_if_unlocked());
    const LockGuard lock(node_->mutex);
    if (node_->version == before && !node_->lost) return kOk;
  }
}

Status RawVolume::FileDevice::do_write(std::uint64_t offset, std::span<const iovec> pieces) {
  MEMLITH_ASSERT(writable_);
  std::uint64_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  if (bytes == 0) return kOk;
  MEMLITH_TRY(volume_.resize(*node_, offset + bytes, host_, false));
  if (const Stretch stretch = stretch_at(offset); stretch.bytes >= bytes) {
    return host_.write_pieces(stretch.offset, pieces);
  }
  for (const iovec& piece : pieces) {
    const std::span<const std::byte> source{static_cast<const std::byte*>(piece.iov_base), piece.iov_len};
    MEMLITH_TRY(each_stretch(offset, source.size(), [&](const Stretch& stretch, std::uint64_t done) {
      return host_.write(stretch.offset, source.subspan(done, stretch.bytes));
    }));
    offset += source.size();
  }
  return kOk;
}

// Only within the file's length: a longer file is a change of the map, which takes a flush.
Result<bool> RawVolume::FileDevice::do_write_through(std::uint64_t offset, std::span<const iovec> pieces) {
  MEMLITH_ASSERT(writable_);
  std::uint64_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  const Stretch stretch = stretch_at(offset);
  MEMLITH_TRY_ASSIGN(const std::uint64_t present, size());
  if (stretch.bytes < bytes || offset + bytes > present) return false;
  MEMLITH_TRY(host_.write_through(stretch.offset, pieces));
  return true;
}

Status RawVolume::FileDevice::do_flush() {
  if (writable_) MEMLITH_TRY(volume_.prove_map());
  return volume_.flush_host(host_);
}

Status RawVolume::FileDevice::do_discard(std::uint64_t offset, std::uint64_t bytes) {
  return each_stretch(offset, bytes, [&](const Stretch& stretch, std::uint64_t) {
    return host_.discard(stretch.offset, stretch.bytes);
  });
}

// ---- FileQueue -------------------------------------------------------------------------------------------------

// Transfers of one piece go to the device's queue. Those that lie across extents are done at once.
class RawVolume::FileQueue final : public IoQueue {
 public:
  FileQueue(FileDevice& file, std::uint32_t depth)
      : file_(file), queue_(file.host().make_queue(depth)), transfers_(depth) {}

  Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) override {
    MEMLITH_TRY(wait(number));
    const auto stretch = file_.stretch_at(offset);
    if (stretch.bytes >= target.size()) {
      transfers_[number].queued = true;
      return queue_->read(number, stretch.offset, target);
    }
    transfers_[number].result = file_.read(offset, target);
    return kOk;
  }
  Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) override {
    MEMLITH_TRY(wait(number));
    MEMLITH_TRY(file_.check_latch());
    const auto stretch = file_.stretch_at(offset);
    if (stretch.bytes >= source.size()) {
      transfers_[number] = {.queued = true, .writes = true};
      return queue_->write(number, stretch.offset, source);
    }
    transfers_[number].result = file_.write(offset, source);
    return kOk;
  }
  Status wait(std::uint32_t number) override {
    const Transfer transfer = std::exchange(transfers_[number], {});
    if (!transfer.queued) return transfer.result;
    const Status status = queue_->wait(number);
    return transfer.writes ? file_.latch(status) : status;
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
    bool queued = false;
    bool writes = false;
    Status result = kOk;
  };
  FileDevice& file_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<Transfer> transfers_;
};

std::unique_ptr<IoQueue> RawVolume::FileDevice::make_queue(std::uint32_t depth) {
  return std::make_unique<FileQueue>(*this, depth);
}

}  // namespace memlith::core
