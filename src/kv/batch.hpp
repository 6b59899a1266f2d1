// Bytes that commits changed, copied as the commits left them, on their way to the log. Floor: kv.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "region/companion.hpp"
#include "store/objects.hpp"

namespace memlith::core::kv {

// Whole commits only; the later of two extents lies over the earlier.
class Batch {
 public:
  void add(ObjectId object, std::uint64_t offset, const std::byte* from, std::uint64_t bytes) {
    bytes_.insert(bytes_.end(), from, from + bytes);
    if (!extents_.empty() && extents_.back().object == object &&
        extents_.back().offset + extents_.back().bytes == offset) {
      extents_.back().bytes += bytes;
    } else {
      extents_.push_back({object, offset, bytes});
    }
  }
  // Bytes of another structure, which is told when they are in the log.
  void add(const Ride& ride) {
    rides_.push_back({ride.companion, ride.mark});
    add(ride.object, ride.offset, ride.bytes.data(), ride.bytes.size());
  }
  // Room for so much more, so that add() of bytes allocates nothing.
  void reserve(std::uint64_t bytes, std::uint64_t extents) {
    grow(bytes_, bytes);
    grow(extents_, extents);
    grow(rides_, 1);
  }
  void append(const Batch& later) {
    reserve(later.bytes_.size(), later.extents_.size());
    bytes_.insert(bytes_.end(), later.bytes_.begin(), later.bytes_.end());
    extents_.insert(extents_.end(), later.extents_.begin(), later.extents_.end());
    rides_.insert(rides_.end(), later.rides_.begin(), later.rides_.end());
  }
  // What was added since the mark was taken goes away again.
  struct Mark {
    std::size_t bytes = 0;
    std::size_t extents = 0;
    std::uint64_t last_bytes = 0;
    std::size_t rides = 0;
  };
  [[nodiscard]] Mark mark() const {
    return {bytes_.size(), extents_.size(), extents_.empty() ? 0 : extents_.back().bytes, rides_.size()};
  }
  void undo_to(const Mark& mark) {
    bytes_.resize(mark.bytes);
    extents_.resize(mark.extents);
    if (!extents_.empty()) extents_.back().bytes = mark.last_bytes;
    rides_.resize(mark.rides);
  }
  // Of each extent the address of its bytes. Valid until the batch changes.
  const std::vector<const std::byte*>& sources() {
    sources_.clear();
    const std::byte* at = bytes_.data();
    for (const Extent& extent : extents_) {
      sources_.push_back(at);
      at += extent.bytes;
    }
    return sources_;
  }
  [[nodiscard]] const std::vector<Extent>& extents() const { return extents_; }
  // The batch is in the log, in a frame that ends there.
  void tell_companions(Lsn end) const {
    for (const Passenger& each : rides_) each.companion->captured(each.mark, end);
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.size() + extents_.size() * sizeof(Extent); }
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  // A batch that was large gives its memory back.
  void clear() {
    if (bytes_.capacity() > kKeptBytes) bytes_ = {};
    bytes_.clear();
    extents_.clear();
    rides_.clear();
  }

 private:
  struct Passenger {
    std::shared_ptr<Companion> companion;
    std::uint64_t mark = 0;
  };
  static constexpr std::uint64_t kKeptBytes = 8 * kMiB;
  template <class T>
  static void grow(std::vector<T>& all, std::uint64_t more) {
    if (all.capacity() - all.size() < more) all.reserve(std::max(all.size() + more, 2 * all.capacity()));
  }
  std::vector<std::byte> bytes_;
  std::vector<Extent> extents_;
  std::vector<Passenger> rides_;
  std::vector<const std::byte*> sources_;
};

}  // namespace memlith::core::kv
