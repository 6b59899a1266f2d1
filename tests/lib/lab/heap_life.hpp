// A heap of a run, beside a model of what it has to hold; and what a heap holds, as text that the oracle can compare.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heap/heap.hpp"
#include "heap_pages.hpp"
#include "region/region.hpp"
#include "run.hpp"
#include "sim/history.hpp"

namespace memlith::lab {

// ---- containers in a heap --------------------------------------------------------------------------------------

// Where containers of the laboratory allocate. Not in the allocator: bytes of the heap must be the same in each run.
inline core::Heap* containers_heap = nullptr;

template <class T>
struct InHeap {
  using value_type = T;
  InHeap() = default;
  template <class U>
  InHeap(const InHeap<U>&) {}  // NOLINT(google-explicit-constructor): as the standard's allocators
  T* allocate(std::size_t count) {
    const auto block = containers_heap->arenas().allocate(count * sizeof(T), alignof(T));
    if (!block.ok()) throw std::bad_alloc();
    return static_cast<T*>(*block);
  }
  void deallocate(T* block, std::size_t) { (void)containers_heap->arenas().free(block); }
  friend bool operator==(InHeap, InHeap) { return true; }
};

template <template <class> class Allocator, class Pages>
struct ContainersOf {
  using Text = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
  std::map<std::uint32_t, Text, std::less<>, Allocator<std::pair<const std::uint32_t, Text>>> texts;
  std::vector<std::uint32_t, Allocator<std::uint32_t>> numbers;
  std::list<std::uint32_t, Allocator<std::uint32_t>> order;
  std::unordered_map<std::uint32_t, std::uint32_t, std::hash<std::uint32_t>, std::equal_to<>,
                     Allocator<std::pair<const std::uint32_t, std::uint32_t>>>
      places;
  Pages pages;

  // One operation on one of them, drawn by a number.
  void change(std::uint64_t draw);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::uint64_t blocks() const;  // that the containers own
};
using Containers = ContainersOf<InHeap, PagesInHeap>;
using ModelContainers = ContainersOf<std::allocator, PagesModel>;
inline constexpr const char* kContainersName = "containers";

// ---- what a heap holds -----------------------------------------------------------------------------------------

struct HeapContent {
  std::map<std::uint64_t, std::uint64_t> blocks;  // offset, bytes; without those that hold names
  std::map<std::string, std::uint64_t> names;     // to the object's offset
};

// The name beside an object's under which a Content has what the heap in the object holds.
std::string inventory_name(const std::string& object);
bool holds_heap(std::span<const std::byte> bytes);
// From the region's bytes, by code that the engine has no part in.
HeapContent parse_heap(std::span<const std::byte> bytes);
std::uint64_t limit_of(std::span<const std::byte> bytes);  // what the heap may grow to; of no heap, anything
std::vector<std::byte> text_of(const HeapContent& content);
std::vector<std::byte> text_of(const std::string& containers);
// Containers are followed only in bytes that a persist captured: no check of theirs would stop at a mixture.
void note_captured(std::span<const std::byte> bytes);
// As the engine sees it, when verify() has found every structure sound: blocks and names or, where there are containers
// in the heap, what they hold. `corrupt`: a structure is not sound, or a block has no owner.
core::Result<std::vector<std::byte>> inventory_of(core::Heap& heap);
// Adds each heap among the store's objects to the content, which has the objects' bytes already.
core::Status add_inventories(core::Store& store, Content& content);
Content without_inventories(Content content);

// ---- a heap and its model --------------------------------------------------------------------------------------

// The heap of a workload: in the region "heap", or in the file of a one-file store.
struct HeapPlan {
  std::uint64_t size = 0;
  std::uint64_t max_size = 0;
  core::TrackerKind tracker = core::TrackerKind::touched;
  bool pages = false;  // containers are those made for pages
};

struct HeapModel {
  struct Block {
    std::uint64_t bytes = 0;         // of the block
    std::vector<std::byte> content;  // as many as were asked for
  };
  std::map<std::uint64_t, Block> blocks;
  std::map<std::string, std::uint64_t> names;
  std::shared_ptr<ModelContainers> containers;

  [[nodiscard]] HeapContent content() const;
  [[nodiscard]] std::vector<std::byte> text() const;
  [[nodiscard]] HeapModel copy() const;
  // One of the blocks, of which there is one at least.
  [[nodiscard]] std::map<std::uint64_t, Block>::const_iterator block(std::size_t which) const;
  [[nodiscard]] bool has_name(std::uint64_t offset) const;
};

void open_heap(Run& run, const HeapPlan& plan);

struct HeapLife final : Structure {
  using Structure::Structure;

  // ---- words
  void close();
  void allocate(std::uint64_t bytes, std::uint64_t alignment);
  void free_block(std::size_t which);  // of those that have no name, modulo their number
  void free_largest();
  void name_block(const std::string& object, std::size_t which);
  void unname(const std::string& object);
  void change_containers(std::uint64_t draw, std::size_t times);
  void persist(bool wait);
  void rollback();
  // In a change, which is committed or undone: containers are changed, or else blocks come and go.
  void transact(std::uint64_t draw, std::size_t times, bool undone);
  // Stores a pointer to the inside of a block into an object with a name, frees what nothing leads to, and persists.
  void collect();
  void damage();
  // Threads that allocate, free each other's blocks, and persist.
  void threads(std::size_t threads, std::size_t operations, std::uint64_t draw);

  // ---- what they need
  std::string name;
  bool pages = false;
  std::unique_ptr<core::Region> region;
  std::unique_ptr<core::Heap> heap;
  Containers* containers = nullptr;
  HeapModel model;
  HeapModel captured_model;
  std::vector<std::byte> captured;  // the region's bytes, as a persist took them last

  [[nodiscard]] std::vector<core::Region*> regions() const { return {region.get()}; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {region->address(), region->address() + region->size()}; }
  [[nodiscard]] std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - region->address());
  }
  bool open_in_region(const HeapPlan& plan, std::uint64_t fired_before);
  void check(std::string_view when);
  // The fault of the heap or of what it holds; empty: none.
  [[nodiscard]] std::string wrong();
  // The model of a heap that was there before.
  core::Status learn();
  // The content that a capture of the heap as it is now commits.
  [[nodiscard]] Change change() const;
  // The capture takes the heap as it is now. False: it failed.
  bool capture(const std::string& what, bool wait, const std::function<core::Result<core::Lsn>()>& act);
  void was_captured(std::vector<std::byte> taken);
  void is_undone(bool ok);
  void destroy_everything();

 private:
  class Threads;
};

}  // namespace memlith::lab
