// Memory that processes share. Floor: shm.
//
// One process makes it; the others map it from its descriptor, which they inherit or are sent (SCM_RIGHTS). It has no
// name and is on no disk: it lasts as long as a process has the descriptor or the mapping, and never beyond a boot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "shm/participant.hpp"

namespace memlith::core::shm {

// New memory of zeros, whose size is final: a process that cut it would end the others by SIGBUS. `name` is for /proc.
// A helper can keep the descriptor (shm/helper.hpp).
Result<Descriptor> make_memory(const char* name, std::uint64_t bytes);
// The same memory for reading alone: a process that has no other descriptor of it cannot write to it.
Result<Descriptor> open_for_reading(int memory);

// A process's mapping of such memory.
class Mapping {
 public:
  struct Options {
    std::byte* address = nullptr;  // null: anywhere. Something else there: ADDRESS_TAKEN
    bool replaces = false;         // takes the place of what is mapped at `address`, in one step
    bool populates = false;        // now, so that no page faults later
    bool for_children = false;     // forked children have it, too
    bool for_reading = false;      // alone; the descriptor may be open for no more
    bool is_sparse = false;        // mostly never used: it is in no dump of memory
  };
  static Result<Mapping> map(int memory, std::uint64_t bytes, Options options);
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // The mapping is not there any more, as in a forked child, or is another object's.
  void forget() { data_ = nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

inline constexpr std::uint64_t kSegmentMagic = 0x31304d48534c4d4d;  // "MMLSHM01": changes with SegmentHead

// The head of a segment: what lies behind it, and who shares it.
struct SegmentHead {
  Shared<std::uint64_t> magic;  // release: the segment is whole; pairs with the load in check_segment()
  std::uint64_t layout = 0;
  std::uint64_t bytes = 0;
  Places places;
};
void finish_segment(SegmentHead& head, std::uint64_t layout, std::uint64_t bytes);
// Errors of both: incompatible (of another layout), corrupt (not a whole segment).
Status check_segment_size(int memory, std::uint64_t bytes);
Status check_segment(const SegmentHead& head, std::uint64_t layout, std::uint64_t bytes);

// A T in memory that processes share. Zeros are a T: nothing is constructed, and pages that no process stores to take
// no memory. T::kLayout is a number that changes with the meaning of T's bytes, so that a process of another build is
// refused.
template <class T>
class Segment {
 public:
  Segment() = default;

  // Makes one: `fill(T&)`, which returns a Status, is called before any other process can map it.
  template <class Fill>
  static Result<Segment> make(const char* name, bool for_children, Fill&& fill) {
    MEMLITH_TRY_ASSIGN(Descriptor memory, make_memory(name, bytes()));
    return make(std::move(memory), for_children, std::forward<Fill>(fill));
  }
  // The same in memory of zeros that has bytes() bytes.
  template <class Fill>
  static Result<Segment> make(Descriptor memory, bool for_children, Fill&& fill) {
    Segment made(std::move(memory));
    MEMLITH_TRY(made.map_content(for_children));
    MEMLITH_TRY(std::forward<Fill>(fill)(made.content()->content));
    finish_segment(made.content()->head, T::kLayout, sizeof(T));
    return made;
  }
  // Maps one of another process. Errors: also those of check_segment_size() and check_segment().
  static Result<Segment> map(Descriptor memory, bool for_children) {
    Segment mapped(std::move(memory));
    MEMLITH_TRY(check_segment_size(mapped.descriptor(), bytes()));
    MEMLITH_TRY(mapped.map_content(for_children));
    MEMLITH_TRY(check_segment(mapped.content()->head, T::kLayout, sizeof(T)));
    return mapped;
  }

  // The size of the memory, which holds more than a T.
  static constexpr std::uint64_t bytes() { return sizeof(Content); }
  explicit operator bool() const { return mapping_.data() != nullptr; }
  T* operator->() const { return &content()->content; }
  T& operator*() const { return content()->content; }
  [[nodiscard]] int descriptor() const { return memory_.get(); }
  // A place among the processes that share it; for as long as the segment is mapped.
  [[nodiscard]] Result<Participant> join() const { return Participant::join(memory_.get(), content()->head.places); }
  // The same, with an open file description of its own (participant.hpp).
  [[nodiscard]] Result<Participant> join(Descriptor own) const {
    return Participant::join(std::move(own), content()->head.places);
  }
  // In a forked child, if the mapping is not for children.
  void forget() { mapping_.forget(); }

 private:
  struct Content {
    SegmentHead head;
    alignas(64) alignas(T) T content;
  };
  explicit Segment(Descriptor memory) : memory_(std::move(memory)) {}
  Status map_content(bool for_children) {
    Mapping::Options options;
    options.populates = !for_children;
    options.for_children = for_children;
    MEMLITH_TRY_ASSIGN(Mapping mapping, Mapping::map(memory_.get(), bytes(), options));
    mapping_ = std::move(mapping);
    return kOk;
  }
  [[nodiscard]] Content* content() const { return reinterpret_cast<Content*>(mapping_.data()); }

  Descriptor memory_;
  Mapping mapping_;
};

}  // namespace memlith::core::shm
