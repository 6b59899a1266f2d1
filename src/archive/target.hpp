// Where an archive lies: a folder, or whatever a command reaches. Floor: archive.
//
// A target holds objects under names. An object that was put is there whole when finish() has returned ok; before that
// it may be there in part, and its checksums tell. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/volume.hpp"

namespace memlith::core {

class ArchiveSink {
 public:
  virtual ~ArchiveSink() = default;  // without finish(): the object does not appear, or only in part
  virtual Status write(std::span<const std::byte> bytes) = 0;
  // Durable on ok, as far as the target can promise that.
  virtual Status finish() = 0;
};

class ArchiveStream {
 public:
  virtual ~ArchiveStream() = default;
  // Fewer bytes than wanted: the object ends there.
  virtual Result<std::uint64_t> read(std::span<std::byte> target) = 0;
};

class ArchiveTarget {
 public:
  virtual ~ArchiveTarget() = default;
  // Replaces an object of that name.
  virtual Result<std::unique_ptr<ArchiveSink>> put(const std::string& name) = 0;
  // Error: not_found.
  virtual Result<std::unique_ptr<ArchiveStream>> get(const std::string& name) = 0;
  // Ok if there is no such object.
  virtual Status remove(const std::string& name) = 0;
  // Held until it is destroyed: no other archiver uses the target. Null: the target has no locks. Error: busy.
  virtual Result<std::unique_ptr<VolumeLock>> lock() = 0;
  // For messages.
  [[nodiscard]] virtual std::string path_of(const std::string& name) const = 0;
};

// A folder, which need not exist yet. The volume outlives the target.
std::unique_ptr<ArchiveTarget> make_folder_target(Volume& volume);

// Commands of the shell, in which %n is the name of the object, quoted. `put` gets the object as its input, `get`
// writes the object to its output; `remove` may be empty: then nothing is removed. A command fails by its exit code.
struct TargetCommands {
  std::string put;
  std::string get;
  std::string remove;
};
std::unique_ptr<ArchiveTarget> make_command_target(TargetCommands commands);

// All of an object.
Result<std::vector<std::byte>> get_whole(ArchiveTarget& target, const std::string& name, std::uint64_t bytes_max);
Status put_whole(ArchiveTarget& target, const std::string& name, std::span<const std::byte> bytes);

}  // namespace memlith::core
