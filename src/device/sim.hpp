// The simulated disk of the tests. Floor: device; linked into tests only.
//
// SimVolume lives in memory and behaves as device.hpp and volume.hpp say. It can write down everything that is done
// to it (SimTrace). SimMedium plays a trace again, operation by operation, knows what was flushed and what was not,
// and cuts the power wherever it is asked: it hands out the image in which any chosen subset of the unflushed items
// was kept. An item is one 512-byte sector of a write, one change of a file's length, or one change of a name.
// SimFaults makes the k-th operation of a kind fail, and counts which faults really fired.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/volume.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kSimSectorBytes = 512;

using SimBytes = std::shared_ptr<const std::vector<std::byte>>;

// What is on the medium: names and contents.
struct SimImage {
  std::map<std::string, SimBytes, std::less<>> files;
  [[nodiscard]] std::uint64_t hash() const;
};

enum class SimOp : std::uint8_t { write, flush, reserve, truncate, create, rename, remove, sync_folder };
inline constexpr std::size_t kSimOpCount = 8;
std::string_view name_of(SimOp op);

struct SimRecord {
  SimOp op{};
  std::uint32_t file = 0;  // which file: numbered in the order of appearance, an image's files first, by name
  std::string name;        // create, remove, sync_folder; rename: from
  std::string to;          // rename
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // reserve, truncate: the new length
  std::vector<std::byte> data;
};

struct SimTrace {
  SimImage start;
  std::vector<SimRecord> records;
  [[nodiscard]] std::string describe(std::size_t count) const;  // the first `count` operations, a line each
};

class SimMedium {
 public:
  explicit SimMedium(const SimTrace& trace);
  // Applies the next operation of the trace.
  void step();
  [[nodiscard]] std::size_t position() const { return position_; }

  // How many items a power cut here may keep or lose.
  [[nodiscard]] std::size_t pending_count() const { return pending_.size(); }
  // The image after a power cut here; keep(i) says whether pending item i reached the medium.
  [[nodiscard]] SimImage cut(const std::function<bool(std::size_t)>& keep) const;

 private:
  struct Item {
    SimOp op{};
    std::uint32_t file = 0;
    std::size_t record = 0;
    std::uint64_t skip = 0;  // write: offset into the record's data
    std::uint64_t bytes = 0;
  };
  struct File {
    SimBytes durable;
  };
  static void apply(const SimTrace& trace, const Item& item, std::map<std::string, std::uint32_t, std::less<>>& names,
                    std::vector<std::vector<std::byte>*>& contents);

  const SimTrace& trace_;
  std::size_t position_ = 0;
  std::map<std::string, std::uint32_t, std::less<>> names_;  // durable
  std::vector<File> files_;
  std::vector<Item> pending_;
};

// What goes wrong, and when. Counted per kind over the life of the volume.
struct SimFaults {
  enum class Kind : std::uint8_t {
    fail_write,   // EIO, nothing written
    short_write,  // EIO after half of it was written
    fail_flush,   // EIO; everything unflushed is lost at once, as Linux may do
    fail_read,    // EIO
    flip_bit,     // one bit of what a read returns
    no_space,     // reserve and create say ENOSPC
    fail_resize,  // EIO
  };
  static constexpr std::size_t kKinds = 7;

  void plan(Kind kind, std::uint64_t nth, bool for_ever = false);  // nth from 0
  [[nodiscard]] std::uint64_t fired(Kind kind) const { return fired_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t planned() const { return planned_; }
  [[nodiscard]] bool strikes(Kind kind);
  void clear();

 private:
  struct Plan {
    bool active = false;
    std::uint64_t nth = 0;
    bool for_ever = false;
  };
  std::array<Plan, kKinds> plans_{};
  std::array<std::uint64_t, kKinds> seen_{};
  std::array<std::uint64_t, kKinds> fired_{};
  std::uint64_t planned_ = 0;
};

class SimVolume final : public Volume {
 public:
  explicit SimVolume(SimImage image = {}, bool record = false);
  ~SimVolume() override;

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override;
  Result<bool> exists(std::string_view name) override;
  Result<std::vector<std::string>> list(std::string_view folder) override;
  Status make_folder(std::string_view name) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status remove(std::string_view name) override;
  Status sync_folder(std::string_view name) override;
  Result<std::unique_ptr<VolumeLock>> lock(std::string_view name, bool exclusive) override;
  std::string path_of(std::string_view name) const override;

  [[nodiscard]] const SimTrace& trace() const { return trace_; }
  [[nodiscard]] std::size_t operations() const;  // recorded so far
  [[nodiscard]] SimImage image() const;          // as it is now, flushed or not
  SimFaults& faults() { return faults_; }

  // Called before every write and flush, without any lock: a place to sleep, so that threads meet.
  std::function<void()> before_transfer;

 private:
  friend class SimDevice;
  struct File;
  struct State;
  void record(SimRecord&& record);

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<File>, std::less<>> names_;
  std::uint32_t next_file_ = 0;
  bool recording_;
  SimTrace trace_;
  SimFaults faults_;
};

}  // namespace memlith::core
