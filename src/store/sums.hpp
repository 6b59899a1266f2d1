// Checksums of the blocks of home files, by which rot is found. Floor: store. docs/format.md, "Checksums of homes";
// docs/architecture.md, "Rot".
//
// Beside the home file of an object lies a file with a sum for each of its blocks. Replay, the only writer of homes,
// puts the sums of the blocks that it writes there.
//
// INVARIANT: of a block that no frame between tail and head touches, the sum on the medium is that of the block, or is
// unknown. Another sum, and no such frame, is therefore rot. It holds because replay writes both before
// the tail moves, and after a crash writes both again. Therefore nothing needs to be marked before homes are written,
// and the only cost is one more flush, of a small file, for each object that a checkpoint writes.
//
// A sums file that is missing, or parts of it that are torn, say nothing: the blocks are unknown, and no data is lost.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sync.hpp"
#include "device/volume.hpp"
#include "store/format.hpp"
#include "store/names.hpp"
#include "store/objects.hpp"
#include "store/overlay.hpp"

namespace memlith::core {

// The sum of a block of an object, which has kSummedBytes, or fewer at the end of its home.
std::uint32_t sum_of_block(ObjectId object, std::uint64_t offset, std::span<const std::byte> block);

// The sums file of one object. One thread at a time.
class SumsFile {
 public:
  // A new file, with the sums of a home of zeros, or with sums that are unknown. What an interrupted creation left is
  // replaced. Durable after flush() and a flush of the folder.
  enum class Home : std::uint32_t { unknown = 0, zeros = 1 };
  static Result<std::unique_ptr<SumsFile>> make(Volume& volume, const std::string& name, std::uint64_t log_id,
                                                ObjectId object, Home home);
  // Null: there is none, or it is of another store or damaged at its head.
  static Result<std::unique_ptr<SumsFile>> open(Volume& volume, const std::string& name, std::uint64_t log_id,
                                                ObjectId object, OpenMode mode);

  // kSumUnknown: of a block that nothing is known of.
  Result<std::uint32_t> get(std::uint64_t offset);
  Status set(std::uint64_t offset, std::uint32_t sum);
  // True if the block is as its sum says, or nothing is known of it.
  enum class Verdict : std::uint8_t { right, wrong, unknown };
  Result<Verdict> judge(std::uint64_t offset, std::span<const std::byte> block);
  // Reserves the space of the sums of a home of that many bytes. What the home has grown by since is zeros.
  Status reserve(std::uint64_t home_bytes);
  // The same for a file that was found: of what it lacks nothing is known.
  Status fit(std::uint64_t home_bytes);
  // Writes what set() has changed; a flush makes it durable.
  Status write();
  Status flush();
  // The next flush() is not left out: the content that was found may be in the page cache only.
  void flush_again() { flushed_ = false; }

 private:
  static constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
  SumsFile(std::unique_ptr<Device> device, std::uint64_t log_id, ObjectId object, Home home)
      : device_(std::move(device)), log_id_(log_id), object_(object), home_(home) {}
  [[nodiscard]] std::uint64_t seed(std::uint64_t number) const;
  Status turn_to(std::uint64_t number);

  std::unique_ptr<Device> device_;
  const std::uint64_t log_id_;
  const ObjectId object_;
  const Home home_;
  SumsPage page_{};
  std::uint64_t number_ = kNoPage;  // of the page
  bool changed_ = false;            // it was not written yet
  bool flushed_ = true;
};

// The sums files that a store has open. Threads: any.
class Sums {
 public:
  Sums(Volume& volume, const StoreNames& names) : volume_(volume), names_(names) {}

  // From here on objects without a sums file get one; without this call only those files are kept that are there.
  // `was_clean`: those that are found were flushed.
  void begin(bool makes, bool was_clean, std::uint64_t log_id) MEMLITH_EXCLUDES(mutex_);
  // Before the folder of the new home is flushed, which consists of zeros.
  Status make(ObjectId object, std::uint64_t home_bytes) MEMLITH_EXCLUDES(mutex_);
  // For a home that is there: opens its sums, or makes unknown ones, and reserves their space.
  Status keep(ObjectId object, std::uint64_t home_bytes) MEMLITH_EXCLUDES(mutex_);
  Status reserve(ObjectId object, std::uint64_t home_bytes) MEMLITH_EXCLUDES(mutex_);
  // The object is removed.
  Status remove(ObjectId object) MEMLITH_EXCLUDES(mutex_);
  // The overlay was written to the home.
  Status note(ObjectId object, Device& home, const Overlay& overlay) MEMLITH_EXCLUDES(mutex_);
  Status flush() MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] bool all_flushed() MEMLITH_EXCLUDES(mutex_);
  // Gives unknown blocks the sums of what is there. Everything is home, and no checkpoint runs. Returns their number.
  Result<std::uint64_t> complete(ObjectId object, Device& home) MEMLITH_EXCLUDES(mutex_);
  // Compares the home with its sums; likewise.
  using Visit = std::function<Status(std::uint64_t offset, SumsFile::Verdict verdict)>;
  Status judge(ObjectId object, Device& home, const Visit& visit) MEMLITH_EXCLUDES(mutex_);

 private:
  Result<SumsFile*> find(ObjectId object) MEMLITH_REQUIRES(mutex_);

  Volume& volume_;
  const StoreNames& names_;
  Mutex mutex_;
  bool makes_ MEMLITH_GUARDED_BY(mutex_) = false;
  bool found_flushed_ MEMLITH_GUARDED_BY(mutex_) = false;
  std::uint64_t log_id_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::map<ObjectId, std::unique_ptr<SumsFile>> files_ MEMLITH_GUARDED_BY(mutex_);  // null: there is none
  std::map<ObjectId, SumsFile*> unflushed_ MEMLITH_GUARDED_BY(mutex_);
};

// The sums of a home that is being written for the first time, in any order, and more than once in places.
class NewSums {
 public:
  explicit NewSums(ObjectId object) : object_(object) {}
  void note(std::uint64_t offset, std::span<const std::byte> bytes);
  // Nothing is known of the home so far, as its bytes came by another way.
  void note_unknown(std::uint64_t home_bytes);
  // Writes the file; the home is complete. Durable when the folder is flushed.
  Status finish(Volume& volume, const std::string& name, std::uint64_t log_id, Device& home);

 private:
  ObjectId object_;
  std::vector<std::uint32_t> sums_;   // of blocks that were written whole; beyond them, of blocks of zeros
  std::vector<bool> partly_written_;  // blocks of which only the home has everything
};

}  // namespace memlith::core
