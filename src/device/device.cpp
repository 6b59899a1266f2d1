#include "device/device.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "base/mutant.hpp"
#include "device/volume.hpp"

namespace memlith::core {

Status cut_short(const std::string& path, std::uint64_t offset, std::uint64_t wanted, std::uint64_t got) {
  return fail(Errc::corrupt, Detail::read,
              "{}: wanted {} bytes at offset {}, but the file ends after {} of them; it was cut short", path, wanted,
              offset, got);
}

Status Device::latch(Status status) {
  if (status.ok() || status.category == Errc::poisoned) return status;
  status.category = Errc::io;
  const std::lock_guard lock(latch_mutex_);
  if (why_.ok()) why_.keep(status);
  latched_.store(true, std::memory_order_release);
  return status;
}

Status Device::check_latch() const {
  if (!latched() || MEMLITH_MUTANT(failed_flush_retried) || MEMLITH_MUTANT(poisoned_log_goes_on)) return kOk;
  const std::lock_guard lock(latch_mutex_);
  return fail(Errc::poisoned, Detail::write,
              "{}: an earlier write or flush failed, so nothing more is written; close and reopen to get back the last "
              "durable state. It was: {}",
              path_, why_.text());
}

namespace {

// One transfer at a time, done when it is asked for.
class SerialQueue final : public IoQueue {
 public:
  SerialQueue(Device& device, std::uint32_t depth) : device_(device), results_(depth) {}
  Status read(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> target) override {
    MEMLITH_TRY(wait(slot));
    results_[slot] = device_.read(offset, target);
    return kOk;
  }
  Status write(std::uint32_t slot, std::uint64_t offset, std::span<const std::byte> source) override {
    MEMLITH_TRY(wait(slot));
    MEMLITH_TRY(device_.check_latch());
    results_[slot] = device_.write(offset, source);
    return kOk;
  }
  Status wait(std::uint32_t slot) override { return std::exchange(results_[slot], kOk); }
  Status wait_all() override {
    Status first = kOk;
    for (Status& result : results_) {
      const Status status = std::exchange(result, kOk);
      if (first.ok()) first = status;
    }
    return first;
  }

 private:
  Device& device_;
  std::vector<Status> results_;
};

}  // namespace

// ---- names ------------------------------------------------------------------------------------------------------

Status Volume::remove_own(std::string_view name, Device& device) {
  MEMLITH_TRY_ASSIGN(const FileIdentity own, device.identity());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> there, identity_of(name));
  return there == own ? remove(name) : kOk;
}

// ---- notices ----------------------------------------------------------------------------------------------------

std::unique_ptr<Notice> Volume::make_notice(std::string_view, std::span<const std::byte>, Device*) { return nullptr; }

Result<SeenNotice> Volume::look_at_notice(std::string_view name, std::uint64_t) {
  return fail(Errc::not_found, Detail::open, "{}: this volume has no notices", path_of(name));
}

// ---- queues -----------------------------------------------------------------------------------------------------

std::unique_ptr<IoQueue> Device::make_queue(std::uint32_t depth) { return std::make_unique<SerialQueue>(*this, depth); }

}  // namespace memlith::core
