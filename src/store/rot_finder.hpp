// Finds rot in a store whose homes are read while a process may write to it. Floor: store. docs/architecture.md, "Rot".
//
// A block that is not as its sum says may be one that a checkpoint was writing home. Then a frame touches it that the
// log had when the reading began, or got since; the reader sees those, because it reads the log along. What is left is
// rot (INVARIANT of store/sums.hpp). One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "store/objects.hpp"
#include "store/store_files.hpp"
#include "store/sums.hpp"

namespace memlith::core {

struct DamagedBytes {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class RotFinder {
 public:
  explicit RotFinder(StoreFiles& files) : files_(files) {}

  // Everything that was noted before is void. The tail of the log was looked at, and no home was read since.
  void begin();
  // The home of an object is read from here on, once.
  Status enter(ObjectId object, std::uint64_t home_bytes);
  // Bytes of it, in order of their offset. What is left out is a hole.
  Status note_home(std::uint64_t offset, std::span<const std::byte> bytes);
  Status leave();
  // A frame between the tail and the head has these bytes.
  void note_frame(ObjectId object, std::uint64_t offset, std::uint64_t bytes);

  // All frames were noted that were durable when the last home was left.
  [[nodiscard]] std::vector<DamagedBytes> damaged(std::span<const ObjectInfo> objects) const;
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t blocks_unknown() const { return unknown_; }

 private:
  Status judge(std::uint64_t offset, std::span<const std::byte> block);
  Status note_hole(std::uint64_t end);

  StoreFiles& files_;
  std::unique_ptr<SumsFile> sums_;  // of the home that is read; null: it has none
  ObjectId object_{};
  std::uint64_t home_bytes_ = 0;
  std::uint64_t next_ = 0;                       // of the home, everything before it was noted
  std::array<std::byte, kSummedBytes> block_{};  // around `next_`
  std::map<ObjectId, std::vector<std::uint64_t>> suspects_;
  std::map<ObjectId, std::map<std::uint64_t, std::uint64_t>> touched_;  // ranges of whole blocks, begin to end
  std::uint64_t blocks_ = 0;
  std::uint64_t unknown_ = 0;
};

}  // namespace memlith::core
