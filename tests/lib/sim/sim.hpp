// The simulated disk of the tests. Floor: device; linked into tests only.
//
// SimVolume lives in memory and behaves as device.hpp and volume.hpp say. It can write down everything that is done
// to it (SimTrace). SimMedium plays a trace again, operation by operation, knows what was flushed and what was not,
// and cuts the power wherever it is asked: it hands out the image in which any chosen subset of the unflushed items
// was kept. An item is one 512-byte sector of a write, one change of a file's length, or one change of a name. An item
// may also meet a worse fate (SimFate) than being lost. SimFaults makes the k-th operation of a kind fail, and counts
// which faults really fired.
//
// The image may be that of a byte-addressable medium (SimImage::lines): then an item is a word of 8 bytes that a write
// changes, and writes go through the engine's own LineWriter: its lines are pending until its fence.
//
// A queue's transfers happen when they are waited for and no sooner, the last one first, with the content that the
// memory has then. Until then, the memory of a read holds garbage. Code that waits too late, or not at all, or reuses
// the memory too early, therefore fails.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/volume.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kSimSectorBytes = 512;
inline constexpr std::uint64_t kSimPhysicalBlockBytes = 4096;
inline constexpr std::uint64_t kSimThroughBytes = 8192;  // of one command with forced unit access

using SimBytes = std::shared_ptr<const std::vector<std::byte>>;

// The content of the medium: names and bytes.
struct SimImage {
  std::map<std::string, SimBytes, std::less<>> files;
  // The births of files (FileBirth); unknown if a file is not named. Not hashed: a log has its own in its superblock.
  std::map<std::string, std::uint64_t, std::less<>> births;
  bool lines = false;  // the medium is written by lines, and torn between words
  bool forced_unit_access = false;
  bool whole_sectors = false;  // a sector that is being written has the old bytes or the new ones
  [[nodiscard]] std::uint64_t hash() const;
};

enum class SimOp : std::uint8_t {
  write,
  flush,
  reserve,
  truncate,
  create,
  rename,
  remove,
  sync_folder,
  failed_flush,
  make_folder,
  written_through,  // what was written to these bytes of the file is durable: the end of a write_through()
};
inline constexpr std::size_t kSimOpCount = 11;
// A change of a name, which the flush of its folder makes durable.
inline bool is_name_change(SimOp op) {
  return op == SimOp::create || op == SimOp::rename || op == SimOp::remove || op == SimOp::make_folder;
}
std::string_view name_of(SimOp op);
// The folder that a name lies in; empty for the volume's own.
std::string_view sim_folder_of(std::string_view name);

struct SimRecord {
  SimOp op{};
  std::uint32_t file = 0;    // which file: numbered in the order of appearance, an image's files first, by name
  std::string name;          // create, remove, sync_folder, make_folder; rename: from
  std::string to;            // rename
  std::uint64_t offset = 0;  // create: the birth
  std::uint64_t bytes = 0;   // reserve, truncate: the new length; written_through: how many
  std::vector<std::byte> data;
};

// The effect of a failed flush (SimRecord::bytes) on unflushed writes.
enum class FailedFlush : std::uint8_t {
  dropped,        // gone, and reads say so
  unflushed,      // as it was
  forgotten,      // in the page cache only, for good
  half_forgotten  // some of it reached the medium, the rest is in the page cache only
};

struct SimTrace {
  SimImage start;
  std::vector<SimRecord> records;
  // The disk's operations when the program was killed after `count` of these, and another one, which found the
  // files as the kernel had them, did those of `next`. No power was cut in between.
  [[nodiscard]] SimTrace continued(std::size_t count, const SimTrace& next) const;
  [[nodiscard]] std::string describe(std::size_t count) const;  // the first `count` operations, a line each
};

// The fate of an unflushed item at a power cut. The last four are for sectors of writes only.
enum class SimFate : std::uint8_t {
  kept,
  lost,           // the medium keeps its old content
  garbage,        // neither the old bytes nor the new ones
  torn_block,     // all of the physical block of 4096 bytes around it is garbage, whatever else is in that block
  elsewhere,      // written at SimChoice::offset of the same file instead of its own place
  elsewhere_too,  // written at both places
};

struct SimChoice {
  SimFate fate = SimFate::kept;
  std::uint64_t offset = 0;
};

class SimMedium {
 public:
  struct Item {
    SimOp op{};
    std::uint32_t file = 0;
    std::size_t record = 0;
    std::uint64_t skip = 0;   // write: offset into the record's data
    std::uint64_t bytes = 0;  // write: at most a sector, or a word
  };

  // Behind the first `position` operations of the trace.
  explicit SimMedium(const SimTrace& trace, std::size_t position = 0);
  // Applies the next operation of the trace.
  void step();
  [[nodiscard]] std::size_t position() const { return position_; }

  // True if writes are torn between words, not between sectors.
  [[nodiscard]] bool lines() const { return trace_.start.lines; }
  [[nodiscard]] bool whole_sectors() const { return trace_.start.whole_sectors; }
  // How many items a power cut here may keep or lose.
  [[nodiscard]] std::size_t pending_count() const { return pending_.size(); }
  [[nodiscard]] const Item& pending(std::size_t index) const { return pending_[index]; }
  [[nodiscard]] const SimRecord& record_of(const Item& item) const { return trace_.records[item.record]; }
  // The file's name, as the running program sees it; empty once it was removed.
  [[nodiscard]] std::string_view name_of_file(std::uint32_t file) const { return latest_names_[file]; }

  // The kernel's view: the medium, pending writes, and bytes that only the page cache has.
  [[nodiscard]] SimImage cached() const;

  // The image after a power cut here; keep(i) says whether pending item i reached the medium.
  [[nodiscard]] SimImage cut(const std::function<bool(std::size_t)>& keep) const;
  // The same with a fate for each pending item. The garbage follows from the seed.
  [[nodiscard]] SimImage cut(std::span<const SimChoice> choices, std::uint64_t garbage_seed) const;
  // A power cut here that keeps nothing of what is pending.
  [[nodiscard]] SimImage durable() const {
    return cut([](std::size_t) { return false; });
  }

 private:
  struct File {
    SimBytes durable;
    std::uint64_t birth = 0;
  };
  void make_durable(const std::function<bool(const Item&)>& covered, std::uint32_t file);
  void forget(const SimRecord& failed);
  void add_items(const SimRecord& record, std::size_t index);
  static void apply(const SimTrace& trace, const Item& item, std::map<std::string, std::uint32_t, std::less<>>& names,
                    std::vector<std::vector<std::byte>*>& contents);

  const SimTrace& trace_;
  std::size_t position_ = 0;
  std::map<std::string, std::uint32_t, std::less<>> names_;  // durable
  std::vector<File> files_;
  std::vector<std::string> latest_names_;
  std::vector<Item> pending_;
  bool forgot_ = false;  // something is in the page cache only
};

// The planned faults, and their times. Counted per kind over the life of the volume.
struct SimFaults {
  enum class Kind : std::uint8_t {
    fail_write,   // EIO, nothing written
    short_write,  // EIO after half of it was written
    fail_flush,   // EIO; everything unflushed is lost at once, as Linux may do, and reads say so
    fail_read,    // EIO
    flip_bit,     // one bit of what a read returns
    no_space,     // reserve, create, make_folder, and fill_holes where there are some, say ENOSPC
    fail_resize,  // EIO
    fail_folder,  // sync_folder says EIO
    fail_name,    // rename and remove say EIO
    full_write,   // ENOSPC, nothing written
    no_memory,    // a read says ENOMEM
    // EIO; what was unflushed is still read, and later flushes return ok and pass it by: it is in the page cache only,
    // and a power cut loses it (Linux)
    forget_flush,
  };
  static constexpr std::size_t kKinds = 12;

  void plan(Kind kind, std::uint64_t nth, bool for_ever = false);  // nth from 0
  [[nodiscard]] std::uint64_t fired(Kind kind) const { return fired_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t fired() const;                                                           // of all kinds
  [[nodiscard]] std::uint64_t seen(Kind kind) const { return seen_[static_cast<std::size_t>(kind)]; }  // chances so far
  [[nodiscard]] std::uint64_t planned() const { return planned_; }
  [[nodiscard]] bool strikes(Kind kind);
  void clear();

  // A call that fails has an effect nevertheless: a failed write is written (for lack of space by half), a failed flush
  // leaves everything unflushed, and a forgotten flush brought a part of it to the medium.
  bool done_nevertheless = false;

  // The files, by path, whose reads flip_bit counts and spoils; all files unless it is set.
  std::function<bool(std::string_view path)> flips_in;

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
  // The state that a kill -9 after the first `count` operations of the trace leaves: all writes are visible, and
  // unflushed ones are not durable yet. Continues to record after them.
  SimVolume(const SimTrace& trace, std::size_t count);
  ~SimVolume() override;

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override;
  Result<bool> exists(std::string_view name) override;
  Result<std::optional<FileIdentity>> identity_of(std::string_view name) override;
  Result<std::vector<std::string>> list(std::string_view folder) override;
  Status make_folder(std::string_view name) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status remove(std::string_view name) override;
  Status sync_folder(std::string_view name) override;
  Result<std::uint64_t> free_bytes() override { return free_bytes_told.load(); }
  Result<std::unique_ptr<OpenFile>> open_file(std::string_view name, bool writable) override;
  std::string path_of(std::string_view name) const override;

  [[nodiscard]] const SimTrace& trace() const { return trace_; }
  [[nodiscard]] SimTrace copy_trace() const;     // beside threads that use the volume
  [[nodiscard]] std::size_t operations() const;  // recorded so far
  [[nodiscard]] SimImage image() const;          // as it is now, flushed or not
  SimFaults& faults() { return faults_; }
  // The file has holes from now on, until a device fills them: a chance for no_space. What is written to a page of them
  // that nothing has reserved fails.
  void make_sparse(std::string_view name);
  [[nodiscard]] bool sparse(std::string_view name) const;

  // Transfers of a direct device are multiples of this.
  std::uint32_t direct_block_bytes = static_cast<std::uint32_t>(kSimSectorBytes);
  // The answer of free_bytes(); writes are not held against it.
  std::atomic<std::uint64_t> free_bytes_told{~std::uint64_t{0}};
  // Called before every write and flush, without any lock: a place to sleep, so that threads meet.
  std::function<void()> before_transfer;
  // Called after every write, without any lock.
  std::function<void()> after_write;
  // May change the bytes of a write on their way: takes out what differs from run to run, such as process numbers.
  std::function<void(std::string_view path, std::uint64_t offset, std::span<std::byte> bytes)> edit_write;

 private:
  friend class SimDevice;
  struct File;
  struct State;
  class SimFile;
  void record(SimRecord&& record);
  std::unique_ptr<Device> make_device(std::shared_ptr<File> file, std::string_view name, bool writable,
                                      Caching caching);

  mutable std::mutex mutex_;
  [[nodiscard]] bool is_folder(std::string_view name) const;

  std::map<std::string, std::shared_ptr<File>, std::less<>> names_;
  std::set<std::string, std::less<>> folders_;  // made here; others are implied by names
  std::uint32_t next_file_ = 0;
  std::uint64_t next_birth_ = 1;
  bool recording_;
  bool lines_;
  bool forced_unit_access_;
  bool whole_sectors_;
  SimTrace trace_;
  SimFaults faults_;
};

}  // namespace memlith::core
