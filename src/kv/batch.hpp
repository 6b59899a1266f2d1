// Bytes that commits changed, copied as the commits left them, on their way to the log. Floor: kv.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/units.hpp"
#include "store/objects.hpp"

namespace memlith::core::kv {

// Whole commits only; the later of two extents lies over the earlier. The batch goes to the log in one frame, or in
// several, each of which ends at a cut.
class Batch {
 public:
  void add(ObjectId object, std::uint64_t offset, const std::byte* from, std::uint64_t bytes) {
    MEMLITH_ASSERT(bytes > 0);
    bytes_.insert(bytes_.end(), from, from + bytes);
    if (extents_.size() > cut_.extents && extents_.back().object == object &&
        extents_.back().offset + extents_.back().bytes == offset) {
      extents_.back().bytes += bytes;
    } else {
      extents_.push_back({object, offset, bytes});
    }
  }
  // Room for so much more, so that add() of bytes allocates nothing.
  void reserve(std::uint64_t bytes, std::uint64_t extents) {
    grow(bytes_, bytes);
    grow(extents_, extents);
    grow(cuts_, 1);
  }
  // Commit number `commit` is complete: a frame may end here. Room was reserved.
  void cut(std::uint64_t commit) {
    MEMLITH_ASSERT(commit >= cut_.commit && extents_.size() > cut_.extents);
    cut_ = {bytes_.size(), extents_.size(), commit};
    cuts_.push_back(cut_);
  }
  [[nodiscard]] std::uint64_t uncut_bytes() const { return bytes_.size() - cut_.bytes; }
  [[nodiscard]] bool ends_in_cut() const { return extents_.size() == cut_.extents; }
  // Removes the pieces that were added since the mark was taken.
  struct Mark {
    std::size_t bytes = 0;
    std::size_t extents = 0;
    std::uint64_t last_bytes = 0;
  };
  [[nodiscard]] Mark mark() const {
    return {bytes_.size(), extents_.size(), extents_.empty() ? 0 : extents_.back().bytes};
  }
  void undo_to(const Mark& mark) {
    MEMLITH_ASSERT(cut_.bytes <= mark.bytes && mark.bytes <= bytes_.size());
    MEMLITH_ASSERT(cut_.extents <= mark.extents && mark.extents <= extents_.size());
    bytes_.resize(mark.bytes);
    extents_.resize(mark.extents);
    if (!extents_.empty()) extents_.back().bytes = mark.last_bytes;
  }
  // Room for front() of all that is here and a header, so that it allocates nothing. Returns for how many extents.
  std::size_t reserve_front() {
    sources_.reserve(extents_.size() + 1);
    return extents_.size() + 1;
  }
  // The first commits that are still here, as many as fit so many bytes, but up to a cut at least. Valid until the
  // batch changes. The last commit is followed by a cut.
  struct Front {
    std::span<const Extent> extents;
    std::span<const std::byte* const> sources;
    std::uint64_t bytes = 0;
    std::uint64_t commit = 0;  // the last
    std::size_t cuts = 0;
  };
  Front front(std::uint64_t bytes_max) {
    MEMLITH_ASSERT(sent_cuts_ < cuts_.size());
    const Cut begin = begin_of_rest();
    std::size_t last = sent_cuts_;
    while (last + 1 < cuts_.size() && bytes_between(begin, cuts_[last + 1]) <= bytes_max) ++last;
    const Cut& end = cuts_[last];
    const auto extents = std::span(extents_).subspan(begin.extents, end.extents - begin.extents);
    sources_.clear();
    const std::byte* at = bytes_.data() + begin.bytes;
    for (const Extent& extent : extents) {
      sources_.push_back(at);
      at += extent.bytes;
    }
    MEMLITH_ASSERT(!extents.empty() && at == bytes_.data() + end.bytes);
    return {extents, sources_, bytes_between(begin, end), end.commit, last + 1 - sent_cuts_};
  }
  // The front is in the log.
  void drop_front(const Front& front) {
    MEMLITH_ASSERT(front.cuts > 0 && sent_cuts_ + front.cuts <= cuts_.size());
    sent_cuts_ += front.cuts;
    if (sent_cuts_ == cuts_.size()) clear();
  }
  // Size of the pieces that are still here.
  [[nodiscard]] std::uint64_t bytes() const {
    return bytes_between(begin_of_rest(), {bytes_.size(), extents_.size(), 0});
  }
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  // A batch that was large gives its memory back.
  void clear() {
    if (bytes_.capacity() > kKeptBytes) {
      *this = {};
      return;
    }
    bytes_.clear();
    extents_.clear();
    cuts_.clear();
    cut_ = {};
    sent_cuts_ = 0;
  }

 private:
  struct Cut {
    std::size_t bytes = 0;
    std::size_t extents = 0;
    std::uint64_t commit = 0;
  };
  [[nodiscard]] Cut begin_of_rest() const { return sent_cuts_ == 0 ? Cut{} : cuts_[sent_cuts_ - 1]; }
  static std::uint64_t bytes_between(const Cut& begin, const Cut& end) {
    return end.bytes - begin.bytes + (end.extents - begin.extents) * sizeof(Extent);
  }
  static constexpr std::uint64_t kKeptBytes = 8 * kMiB;
  template <class T>
  static void grow(std::vector<T>& all, std::uint64_t more) {
    if (all.capacity() - all.size() < more) all.reserve(std::max(all.size() + more, 2 * all.capacity()));
  }
  std::vector<std::byte> bytes_;
  std::vector<Extent> extents_;
  std::vector<Cut> cuts_;
  Cut cut_;                    // the last
  std::size_t sent_cuts_ = 0;  // what lies before is in the log
  std::vector<const std::byte*> sources_;
};

}  // namespace memlith::core::kv
