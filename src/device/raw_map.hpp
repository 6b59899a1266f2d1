// The map of a raw volume: which extents of the device each file has. Floor: device.
//
// RawMap is the content, in memory. RawMapCopies keeps it on the device in three copies, which are equal when the
// volume is at rest. A change is a new generation:
//
//   1. It is written to one copy, unconfirmed, and flushed. The two others have the generation before.
//   2. It is written to the two others, confirmed, and flushed. Only then the change is acknowledged.
//
// A confirmed copy proves that its generation is on the medium in an unconfirmed one. A crash in step 1 spoils one
// copy; the two others are right. A crash in step 2 spoils at most those two; the first is right. A program that finds
// a newest generation without a confirmed copy does not know whether it is on the medium. That generation was never
// acknowledged, so the program may write over that copy, and must write and flush the map before it relies on the map.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/raw_format.hpp"

namespace memlith::core {

struct RawFileEntry {
  std::uint64_t number = 0;
  std::uint64_t size_bytes = 0;
  std::vector<RawExtent> extents;

  [[nodiscard]] std::uint64_t room_bytes() const;
  friend bool operator==(const RawFileEntry&, const RawFileEntry&) = default;
};

struct RawMap {
  std::uint64_t generation = 0;
  std::uint64_t next_number = 1;
  std::map<std::string, RawFileEntry, std::less<>> files;

  // Adds extents until the file has room for `bytes`: `file` is one of `files`. `held` are extents that no file has
  // and that are not free either. Errors: no_space, and the file is as it was.
  Status make_room(const RawHeader& header, RawFileEntry& file, std::uint64_t bytes, std::span<const RawExtent> held);
  // Gives back the extents that the file needs no more.
  static void cut(const RawHeader& header, RawFileEntry& file, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t free_bytes(const RawHeader& header, std::span<const RawExtent> held) const;

 private:
  [[nodiscard]] std::vector<RawExtent> free_runs(const RawHeader& header, std::span<const RawExtent> held) const;
};

class RawMapCopies {
 public:
  // Reads the header of the volume. Errors: incompatible (no raw volume, or one of a later version), corrupt.
  static Result<RawHeader> read_header(Device& device);

  explicit RawMapCopies(const RawHeader& header) : header_(header) {}

  // Reads the newest map that is complete. Errors: corrupt: there is none.
  Result<RawMap> read(Device& device);
  // True if the device has another generation by now than read() or write() saw last.
  Result<bool> changed(Device& device) const;
  // True if the map that was read or written last is known to be on the medium.
  [[nodiscard]] bool proven() const { return proven_; }
  // Makes the map, with a generation of its own, durable. After a failure the medium has the map before or this one.
  // Errors: no_space: the map is too large for its room; nothing was written. `flush` flushes the device.
  using Flush = std::function<Status()>;
  Status write(Device& device, RawMap& map, const Flush& flush);

 private:
  struct Copy {
    bool valid = false;
    std::uint64_t generation = 0;
    bool confirmed = false;
  };
  Result<RawMap> read_copy(Device& device, std::size_t index, Copy& copy) const;
  Status write_copy(Device& device, std::size_t index, std::span<std::byte> bytes, bool confirmed);
  [[nodiscard]] std::size_t first_to_write() const;
  [[nodiscard]] std::uint64_t offset_of(std::size_t index) const { return kRawMapsOffset + index * header_.map_bytes; }

  RawHeader header_;
  std::array<Copy, kRawMapCopies> copies_;
  std::uint64_t newest_ = 0;
  bool proven_ = false;
};

struct RawFormat {
  std::uint64_t unit_bytes = 0;  // 0: chosen from the size of the device
  std::uint64_t map_bytes = 0;   // likewise
};

// Makes an empty raw volume of the device, durably. What the device holds is lost. Errors: invalid (too small).
Status format_raw(Device& device, const RawFormat& format);

}  // namespace memlith::core
