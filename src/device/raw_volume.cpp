// Sections: File and Lock, the map, changes, names.
#include "device/raw_volume.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "device/raw_file.hpp"

namespace memlith::core {

// ---- File and Lock ---------------------------------------------------------------------------------------------

class RawVolume::Lock final : public VolumeLock {
 public:
  Lock(RawVolume& volume, std::unique_ptr<OpenFile> file, std::unique_ptr<VolumeLock> lock)
      : volume_(volume), file_(std::move(file)), lock_(std::move(lock)) {}
  ~Lock() override { volume_.unlock(); }

 private:
  RawVolume& volume_;
  std::unique_ptr<OpenFile> file_;
  std::unique_ptr<VolumeLock> lock_;
};

class RawVolume::File final : public OpenFile {
 public:
  File(RawVolume& volume, std::shared_ptr<Node> node, std::string name, bool writable)
      : volume_(volume), node_(std::move(node)), name_(std::move(name)), writable_(writable) {}

  Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
    return volume_.lock_for(*node_, name_, exclusive);
  }
  Result<std::unique_ptr<Device>> device(std::string_view name, Caching caching) override {
    const LockGuard lock(volume_.mutex_);
    return volume_.make_device(node_, name, writable_, caching);
  }

 private:
  RawVolume& volume_;
  const std::shared_ptr<Node> node_;
  const std::string name_;
  const bool writable_;
};

Result<std::unique_ptr<VolumeLock>> RawVolume::lock_for(const Node& node, const std::string& name, bool exclusive) {
  const LockGuard lock(mutex_);
  if (held_ != HeldLock::nothing) {
    return fail(Errc::busy, Detail::lock, "{}: cannot lock it: this program has a lock on the device", path_of(name));
  }
  MEMLITH_TRY_ASSIGN(std::unique_ptr<OpenFile> file, host_->open(exclusive));
  MEMLITH_TRY_ASSIGN(std::unique_ptr<VolumeLock> held, lock_host(*file, exclusive));
  held_ = exclusive ? HeldLock::exclusive : HeldLock::shared;
  Status status = reload();
  if (status.ok()) {
    const auto found = map_.files.find(name);
    if (found == map_.files.end() || found->second.number != node.number) {
      status = fail(Errc::not_found, Detail::lock, "{}: was replaced while it was being locked", path_of(name));
    }
  }
  if (!status.ok()) {
    held_ = HeldLock::nothing;
    return status;
  }
  return std::unique_ptr<VolumeLock>(std::make_unique<Lock>(*this, std::move(file), std::move(held)));
}

void RawVolume::unlock() {
  const LockGuard lock(mutex_);
  held_ = HeldLock::nothing;
}

Result<std::unique_ptr<Device>> RawVolume::make_device(std::shared_ptr<Node> node, std::string_view name, bool writable,
                                                       Caching caching) {
  MEMLITH_TRY_ASSIGN(std::shared_ptr<HostDevice> host, host_device(caching, writable));
  return std::unique_ptr<Device>(std::make_unique<FileDevice>(*this, std::move(node), std::move(host), path_of(name),
                                                              writable));
}

// ---- the map ---------------------------------------------------------------------------------------------------

Result<std::shared_ptr<RawVolume::HostDevice>> RawVolume::host_device(Caching caching, bool writable) {
  std::shared_ptr<HostDevice>& known = devices_[(caching == Caching::direct ? 2 : 0) + (writable ? 1 : 0)];
  if (known == nullptr) {
    auto opened = std::make_shared<HostDevice>();
    MEMLITH_TRY_ASSIGN(opened->file, host_->open(writable));
    MEMLITH_TRY_ASSIGN(opened->device, opened->file->device("", caching));
    known = std::move(opened);
  }
  return known;
}

Result<Device*> RawVolume::device_of_map() {
  MEMLITH_TRY_ASSIGN(const std::shared_ptr<HostDevice> host, host_device(Caching::direct, true));
  return host->device.get();  // which devices_ keeps
}

Result<Device*> RawVolume::device_to_read() {
  if (held_ == HeldLock::exclusive) return device_of_map();
  MEMLITH_TRY_ASSIGN(const std::shared_ptr<HostDevice> host, host_device(Caching::buffered, false));
  return host->device.get();
}

// Devices with rings carry a lock, for whose end an exclusive lock waits. So those of this volume go before.
Result<std::unique_ptr<VolumeLock>> RawVolume::lock_host(OpenFile& file, bool exclusive) {
  devices_ = {};
  return file.lock(exclusive);
}

Status RawVolume::reload() {
  MEMLITH_TRY_ASSIGN(Device* const device, device_to_read());
  if (!header_.has_value()) {
    MEMLITH_TRY_ASSIGN(header_, RawMapCopies::read_header(*device));
    copies_.emplace(*header_);
  }
  MEMLITH_TRY_ASSIGN(map_, copies_->read(*device));
  publish(true);
  return kOk;
}

Status RawVolume::refresh() {
  if (!header_.has_value()) return reload();
  if (held_ != HeldLock::nothing) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const device, device_to_read());
  MEMLITH_TRY_ASSIGN(const bool changed, copies_->changed(*device));
  return changed ? reload() : kOk;
}

Status RawVolume::refresh_if_unlocked() {
  const LockGuard lock(mutex_);
  return refresh();
}

// Gives open files their extents as of the map.
void RawVolume::publish(bool was_read) {
  std::map<std::uint64_t, const RawFileEntry*> there;
  for (const auto& [name, file] : map_.files) there[file.number] = &file;
  std::erase_if(nodes_, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [number, weak] : nodes_) {
    const std::shared_ptr<Node> node = weak.lock();
    const auto found = there.find(number);
    const LockGuard lock(node->mutex);
    if (found == there.end()) {
      node->version += node->gone ? 0 : 1;
      node->gone = true;
      node->lost = node->lost || was_read;
    } else if (node->size_bytes != found->second->size_bytes || node->extents != found->second->extents) {
      ++node->version;
      node->size_bytes = found->second->size_bytes;
      node->extents = found->second->extents;
    }
  }
}

Result<std::shared_ptr<RawVolume::Node>> RawVolume::node_of(std::string_view name, std::string_view verb) {
  MEMLITH_TRY(refresh());
  const auto found = map_.files.find(name);
  if (found == map_.files.end()) return fail_errno(ENOENT, Detail::open, "{}: cannot {} it", path_of(name), verb);
  std::weak_ptr<Node>& known = nodes_[found->second.number];
  std::shared_ptr<Node> node = known.lock();
  if (node == nullptr) {
    known = node = std::make_shared<Node>(found->second.number);
    const LockGuard lock(node->mutex);
    node->size_bytes = found->second.size_bytes;
    node->extents = found->second.extents;
  }
  return node;
}

// Extents of files that are open and have no name any more.
std::vector<RawExtent> RawVolume::held_extents() {
  std::vector<RawExtent> held;
  for (const auto& [number, weak] : nodes_) {
    const std::shared_ptr<Node> node = weak.lock();
    if (node == nullptr) continue;
    const LockGuard lock(node->mutex);
    if (node->gone) held.insert(held.end(), node->extents.begin(), node->extents.end());
  }
  return held;
}

// ---- changes ---------------------------------------------------------------------------------------------------

// Durable on ok. Without an exclusive lock, takes one for as long as the change lasts.
Status RawVolume::change(const Change& change) {
  if (held_ == HeldLock::exclusive) return change_locked(change);
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, host_->open(true));
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<VolumeLock> lock, lock_host(*file, true));
  const HeldLock before = std::exchange(held_, HeldLock::exclusive);
  Status status = reload();
  if (status.ok()) status = change_locked(change);
  held_ = before;
  return status;
}

Status RawVolume::change_locked(const Change& change) {
  MEMLITH_TRY_ASSIGN(Device* const device, device_of_map());
  RawMap next = map_;
  MEMLITH_TRY(change(next));
  if (next.files == map_.files && copies_->proven()) return kOk;
  MEMLITH_TRY(copies_->write(*device, next, [&] { return flush_host(*device); }));
  map_ = std::move(next);
  publish(false);
  return kOk;
}

Status RawVolume::prove_map() {
  const LockGuard lock(mutex_);
  if (held_ != HeldLock::exclusive || copies_->proven()) return kOk;
  return change_locked([](RawMap&) { return kOk; });
}

// All files lie on one disk: a flush that fails may lose what was written to any of them. So flushes run one at a time,
// as those of one device do (Device::flush), and after the first failure none is believed. [schedule/flush-fails]
Status RawVolume::flush_host(Device& host) {
  const LockGuard lock(flush_mutex_);
  if (!flush_failure_.ok()) {
    return fail(Errc::poisoned, Detail::flush,
                "{}: an earlier flush of the device failed, so none is believed any more; close and reopen to get back "
                "the last durable state. The failure was: {}",
                host_->path(), flush_failure_.text());
  }
  const Status status = host.flush();
  if (!status.ok() && status.category != Errc::poisoned) flush_failure_.keep(status);
  return status;
}

Result<RawFileEntry*> RawVolume::entry_of(RawMap& map, const Node& node) const {
  for (auto& [name, file] : map.files) {
    if (file.number == node.number) return &file;
  }
  return fail(Errc::not_found, Detail::resize, "{}: the file was removed; its length cannot change", host_->path());
}

// The new bytes read as zeros.
Status RawVolume::extend(RawMap& map, RawFileEntry& file, std::uint64_t bytes, Device& host) {
  MEMLITH_TRY(map.make_room(*header_, file, bytes, held_extents()));
  const std::uint64_t page_end = round_up(file.size_bytes, kPageBytes);
  std::uint64_t at = 0;
  for (const RawExtent& extent : file.extents) {
    // [begin, end) of this extent is new.
    const std::uint64_t begin = std::max(at, file.size_bytes);
    const std::uint64_t end = std::min(at + extent.bytes, round_up(bytes, kPageBytes));
    const std::uint64_t part = std::min(end, page_end);  // of a page that has content already
    if (begin < part) {
      const std::array<std::byte, kPageBytes> zeros{};
      MEMLITH_TRY(host.write(extent.offset + begin - at, std::span(zeros).first(part - begin)));
    }
    const std::uint64_t pages = std::max(begin, page_end);
    if (pages < end) MEMLITH_TRY(host.discard(extent.offset + pages - at, end - pages));
    at += extent.bytes;
  }
  file.size_bytes = bytes;
  // ORDER zeros-before-name: the map names bytes only when their zeros are on the medium; the bytes of a file that was
  // removed would come back otherwise. [test RawVolumeTest.CrashesLeaveEveryAcknowledgedChange]
  return flush_host(host);
}

Status RawVolume::resize(Node& node, std::uint64_t bytes, Device& host, bool may_shrink) {
  {
    const LockGuard lock(node.mutex);
    if (bytes == node.size_bytes || (bytes < node.size_bytes && !may_shrink)) return kOk;
  }
  const LockGuard lock(mutex_);
  return change([&](RawMap& map) MEMLITH_REQUIRES(mutex_) -> Status {
    MEMLITH_TRY_ASSIGN(RawFileEntry* const file, entry_of(map, node));
    if (bytes > file->size_bytes) return extend(map, *file, bytes, host);
    if (may_shrink) RawMap::cut(*header_, *file, bytes);
    return kOk;
  });
}

// ---- names -----------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Device>> RawVolume::open(std::string_view name, OpenMode mode, Caching caching) {
  const LockGuard lock(mutex_);
  if (mode == OpenMode::create) {
    MEMLITH_TRY(change([&](RawMap& map) -> Status {
      if (name.empty() || name.size() >= sizeof RawFileRecord{}.name) {
        return fail(Errc::invalid, Detail::argument, "{}: the name does not fit a raw device", path_of(name));
      }
      if (map.files.contains(name)) return fail_errno(EEXIST, Detail::open, "{}: cannot create it", path_of(name));
      map.files.emplace(name, RawFileEntry{map.next_number++, 0, {}});
      return kOk;
    }));
  }
  MEMLITH_TRY_ASSIGN(std::shared_ptr<Node> node, node_of(name, "open"));
  return make_device(std::move(node), name, mode != OpenMode::read_only, caching);
}

Result<std::unique_ptr<OpenFile>> RawVolume::open_file(std::string_view name, bool writable) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY_ASSIGN(std::shared_ptr<Node> node, node_of(name, "open"));
  return std::unique_ptr<OpenFile>(std::make_unique<File>(*this, std::move(node), std::string(name), writable));
}

Result<bool> RawVolume::exists(std::string_view name) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  return map_.files.contains(name);
}

Result<std::optional<FileIdentity>> RawVolume::identity_of(std::string_view name) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  const auto found = map_.files.find(name);
  if (found == map_.files.end()) return std::optional<FileIdentity>();
  return std::optional(FileIdentity{header_->device_id, found->second.number});
}

Result<std::vector<std::string>> RawVolume::list(std::string_view folder) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  const std::string before = folder.empty() ? "" : std::string(folder) + "/";
  std::vector<std::string> names;
  for (const auto& [name, file] : map_.files) {
    if (!name.starts_with(before)) continue;
    std::string rest = name.substr(before.size());
    rest = rest.substr(0, rest.find('/'));
    if (names.empty() || names.back() != rest) names.push_back(std::move(rest));
  }
  return names;
}

// A folder is the names that begin with its name.
Status RawVolume::make_folder(std::string_view) { return kOk; }

Status RawVolume::rename(std::string_view from, std::string_view to) {
  const LockGuard lock(mutex_);
  return change([&](RawMap& map) -> Status {
    const auto found = map.files.find(from);
    if (found == map.files.end()) {
      return fail_errno(ENOENT, Detail::write, "{}: cannot be renamed to {}", path_of(from), path_of(to));
    }
    RawFileEntry file = std::move(found->second);
    map.files.erase(found);
    map.files.insert_or_assign(std::string(to), std::move(file));
    return kOk;
  });
}

Status RawVolume::remove(std::string_view name) {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  if (!map_.files.contains(name)) return kOk;
  return change([&](RawMap& map) -> Status {
    if (const auto found = map.files.find(name); found != map.files.end()) map.files.erase(found);
    return kOk;
  });
}

Status RawVolume::sync_folder(std::string_view) { return prove_map(); }

Result<std::uint64_t> RawVolume::free_bytes() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  return map_.free_bytes(*header_, held_extents());
}

Result<std::optional<DeviceUse>> RawVolume::device_use() {
  const LockGuard lock(mutex_);
  MEMLITH_TRY(refresh());
  return std::optional(DeviceUse{header_->device_bytes, header_->device_bytes - map_.free_bytes(*header_, {})});
}

std::unique_ptr<Notice> RawVolume::make_notice(std::string_view, std::span<const std::byte> first, Device*) {
  return first.size() <= kRawNoticeBytes ? host_->make_notice(kRawNoticeOffset, first) : nullptr;
}

Result<SeenNotice> RawVolume::look_at_notice(std::string_view, std::uint64_t bytes) {
  return host_->look_at_notice(kRawNoticeOffset, std::min(bytes, kRawNoticeBytes));
}

std::string RawVolume::path_of(std::string_view name) const {
  return name.empty() ? host_->path() : host_->path() + ":" + std::string(name);
}

}  // namespace memlith::core
