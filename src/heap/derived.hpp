// Objects that are derived from a heap's bytes and kept in ordinary memory, by the address that they were derived for:
// include/memlith/derived.h. Floor: heap.
//
// A table of lists. Places are never freed before the table, and objects are replaced by one atomic exchange, so that
// no call needs a lock; a child of fork() can go on with its copy at any moment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.hpp"
#include "heap/heap_memory.hpp"

namespace memlith::core {

// The beginning of memlith_derived, which has the comments.
struct Derived {
  std::uint64_t struct_size;
  void (*drop)(Derived* derived);
  const void* (*check)(const Derived* derived, char* sentence, std::size_t bytes);
};

class DerivedObjects {
 public:
  DerivedObjects() = default;
  ~DerivedObjects();
  DerivedObjects(const DerivedObjects&) = delete;
  DerivedObjects& operator=(const DerivedObjects&) = delete;

  [[nodiscard]] Derived* find(const void* address) const;
  Derived* set(const void* address, Derived* old, Derived* made);
  // While no other thread uses the heap.
  void drop_all();
  // Likewise, in a child of fork(), which allocates and frees nothing.
  void leave_all();
  // `corrupt`: what an object was derived from is not sound.
  [[nodiscard]] Status check(const HeapMemory& memory) const;

 private:
  struct Place {
    const void* const address;
    Place* const next;
    std::atomic<Derived*> object;
  };
  static constexpr std::size_t kLists = 4096;
  using Lists = std::atomic<Place*>;

  [[nodiscard]] Place* place_of(const void* address) const;
  template <class Use>
  void for_each(const Use& use) const;

  std::atomic<Lists*> lists_{nullptr};  // acquire pairs with the release that publishes them, and with that of a place
};

}  // namespace memlith::core
