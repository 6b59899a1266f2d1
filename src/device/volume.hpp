// A volume: the folder that a store's files live in, as a namespace of devices. Floor: device.
//
// The folder is found by its path once and stays the same folder, even if it is renamed or moved or the program changes
// its working directory. Names are relative paths with '/' ("objects/3"). Creating, renaming and removing a name is
// durable only after sync_folder() of the folder that holds the name; a crash before that may undo or keep each of
// these changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace memlith::core {

enum class OpenMode : std::uint8_t { read_only, read_write, create };  // create: must not exist yet
enum class Caching : std::uint8_t { direct, buffered };                // direct if the file system supports it

// A lock, held until the object is destroyed; the kernel releases it when the process dies.
class VolumeLock {
 public:
  virtual ~VolumeLock() = default;
};

// A file that was looked up by its name once. Its lock and its devices share one descriptor, and each of them may
// outlive this object. The volume outlives all of them.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  // Any number may hold a shared lock on the file, or one an exclusive lock. Otherwise `busy`, at once. An exclusive
  // lock is had when nothing is being written any more that a process wrote which was killed. At most one lock at a
  // time. Errors: not_found: the name leads to another file by now.
  virtual Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) = 0;
  // `name` is for messages: the file may have been renamed. At most one device for direct I/O at a time, and then no
  // other.
  virtual Result<std::unique_ptr<Device>> device(std::string_view name, Caching caching) = 0;
};

// A small file that other processes may read while its owner changes it. Only for advisory content: the file is never
// flushed, and its failures are not reported.
class Notice {
 public:
  virtual ~Notice() = default;  // leaves the file
  // Removes the file, unless the name leads to another file by now.
  virtual void remove() = 0;
  // Replaces the content; `bytes` has the size that the notice was created with.
  virtual void show(std::span<const std::byte> bytes) = 0;
};

// For a volume that has a device for itself.
struct DeviceUse {
  std::uint64_t device_bytes = 0;
  std::uint64_t used_bytes = 0;
};

struct SeenNotice {
  std::vector<std::byte> bytes;
  bool held = false;  // the process that made it is alive and has it open
};

class Volume {
 public:
  virtual ~Volume() = default;

  virtual Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) = 0;
  virtual Result<bool> exists(std::string_view name) = 0;
  // Empty if there is no such name.
  virtual Result<std::optional<FileIdentity>> identity_of(std::string_view name) = 0;
  virtual Result<std::vector<std::string>> list(std::string_view folder) = 0;  // names in it, unsorted
  virtual Status make_folder(std::string_view name) = 0;                       // ok if it exists already; durable on ok
  virtual Status rename(std::string_view from, std::string_view to) = 0;
  virtual Status remove(std::string_view name) = 0;
  // Removes the name if it leads to the file of that device. Ok if it leads to another file that took its place: that
  // file is left alone.
  Status remove_own(std::string_view name, Device& device);
  virtual Status sync_folder(std::string_view name) = 0;  // "" is the volume's own folder

  // The free space of the file system for unprivileged users.
  virtual Result<std::uint64_t> free_bytes() = 0;

  // Empty if the volume shares a file system with other files.
  virtual Result<std::optional<DeviceUse>> device_use();

  virtual Result<std::unique_ptr<OpenFile>> open_file(std::string_view name, bool writable) = 0;
  // A lock on a descriptor of its own.
  Result<std::unique_ptr<VolumeLock>> lock(std::string_view name, bool exclusive);

  // Creates a notice with this name and content, replacing an existing one. The first eight bytes must not all be
  // zeros. Copies the permissions of `like` if that is not null. Null if that is impossible. The volume must outlive
  // the notice.
  virtual std::unique_ptr<Notice> make_notice(std::string_view name, std::span<const std::byte> first,
                                              Device* like = nullptr);
  // Reads the notice of another process. Errors: not_found (also while the notice is being created), incompatible (too
  // short).
  virtual Result<SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes);

  // For messages.
  [[nodiscard]] virtual std::string path_of(std::string_view name) const = 0;
};

}  // namespace memlith::core
