// A raw volume: the files of a store on a block device without a file system. Floor: device.
//
// Every change of a name or of a length is durable when the call returns, so flushing a folder changes nothing. The
// exception is what a killed program left: a volume that is locked exclusively makes the map that it found durable
// before its first change and before its first flush of a file (raw_map.hpp).
//
// One lock is for the whole volume, whatever file it was asked for. While this object holds it exclusively, the map in
// memory is right. Otherwise another process may change the map, so each call looks whether it did; and a change takes
// the lock for as long as it lasts, which is `busy` while another process has it.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sync.hpp"
#include "device/raw_map.hpp"
#include "device/volume.hpp"

namespace memlith::core {

// The host of a raw volume: something with the devices and locks of one file.
class RawHost {
 public:
  virtual ~RawHost() = default;
  virtual Result<std::unique_ptr<OpenFile>> open(bool writable) = 0;
  // A notice whose content lies there on the device.
  virtual std::unique_ptr<Notice> make_notice(std::uint64_t offset, std::span<const std::byte> first) = 0;
  virtual Result<SeenNotice> look_at_notice(std::uint64_t offset, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual std::string path() const = 0;  // for messages
};

class RawVolume final : public Volume {
 public:
  explicit RawVolume(std::unique_ptr<RawHost> host) : host_(std::move(host)) {}

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override;
  Result<bool> exists(std::string_view name) override;
  Result<std::optional<FileIdentity>> identity_of(std::string_view name) override;
  Result<std::vector<std::string>> list(std::string_view folder) override;
  Status make_folder(std::string_view name) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status remove(std::string_view name) override;
  Status sync_folder(std::string_view name) override;
  Result<std::uint64_t> free_bytes() override;
  Result<std::unique_ptr<OpenFile>> open_file(std::string_view name, bool writable) override;
  std::unique_ptr<Notice> make_notice(std::string_view name, std::span<const std::byte> first, Device* like) override;
  Result<SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes) override;
  Result<std::optional<DeviceUse>> device_use() override;
  [[nodiscard]] std::string path_of(std::string_view name) const override;

 private:
  class File;
  class FileDevice;
  class FileQueue;
  class Lock;

  // A file that is open, or was a moment ago. Its extents are not given to other files as long as it is open.
  struct Node {
    explicit Node(std::uint64_t file_number) : number(file_number) {}
    const std::uint64_t number;
    Mutex mutex;
    std::uint64_t size_bytes MEMLITH_GUARDED_BY(mutex) = 0;
    std::vector<RawExtent> extents MEMLITH_GUARDED_BY(mutex);
    std::uint64_t version MEMLITH_GUARDED_BY(mutex) = 0;  // rises when another process has changed the file
    bool gone MEMLITH_GUARDED_BY(mutex) = false;          // has no name any more
    // Gone, and another process may have given its extents to other files.
    bool lost MEMLITH_GUARDED_BY(mutex) = false;
  };
  enum class HeldLock : std::uint8_t { nothing, shared, exclusive };
  // One for all files that are opened in the same way: what fails for one of them fails for all.
  struct HostDevice {
    std::unique_ptr<OpenFile> file;
    std::unique_ptr<Device> device;
  };
  using Change = std::function<Status(RawMap& map)>;

  Result<std::shared_ptr<HostDevice>> host_device(Caching caching, bool writable) MEMLITH_REQUIRES(mutex_);
  Result<Device*> device_to_read() MEMLITH_REQUIRES(mutex_);
  Result<Device*> device_of_map() MEMLITH_REQUIRES(mutex_);
  Result<std::unique_ptr<VolumeLock>> lock_host(OpenFile& file, bool exclusive) MEMLITH_REQUIRES(mutex_);
  Status reload() MEMLITH_REQUIRES(mutex_);
  Status refresh() MEMLITH_REQUIRES(mutex_);
  Status change(const Change& change) MEMLITH_REQUIRES(mutex_);
  Status change_locked(const Change& change) MEMLITH_REQUIRES(mutex_);
  void publish(bool was_read) MEMLITH_REQUIRES(mutex_);
  Result<std::shared_ptr<Node>> node_of(std::string_view name, std::string_view verb) MEMLITH_REQUIRES(mutex_);
  std::vector<RawExtent> held_extents() MEMLITH_REQUIRES(mutex_);
  Result<RawFileEntry*> entry_of(RawMap& map, const Node& node) const;
  Status extend(RawMap& map, RawFileEntry& file, std::uint64_t bytes, Device& host) MEMLITH_REQUIRES(mutex_);
  Result<std::unique_ptr<Device>> make_device(std::shared_ptr<Node> node, std::string_view name, bool writable,
                                              Caching caching) MEMLITH_REQUIRES(mutex_);

  // For open files.
  Status resize(Node& node, std::uint64_t bytes, Device& host, bool may_shrink);
  Status prove_map();
  Status flush_host(Device& host);
  Status refresh_if_unlocked();
  Result<std::unique_ptr<VolumeLock>> lock_for(const Node& node, const std::string& name, bool exclusive);
  void unlock();

  const std::unique_ptr<RawHost> host_;
  Mutex flush_mutex_;  // held by the flush that is under way; taken after mutex_
  KeptFailure flush_failure_ MEMLITH_GUARDED_BY(flush_mutex_);  // the first
  Mutex mutex_;
  std::array<std::shared_ptr<HostDevice>, 4> devices_
      MEMLITH_GUARDED_BY(mutex_);                               // by caching, then whether for writing
  std::optional<RawHeader> header_ MEMLITH_GUARDED_BY(mutex_);  // constant once it was read
  std::optional<RawMapCopies> copies_ MEMLITH_GUARDED_BY(mutex_);
  RawMap map_ MEMLITH_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::weak_ptr<Node>> nodes_ MEMLITH_GUARDED_BY(mutex_);
  HeldLock held_ MEMLITH_GUARDED_BY(mutex_) = HeldLock::nothing;
};

}  // namespace memlith::core
