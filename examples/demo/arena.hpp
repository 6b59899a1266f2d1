// An allocator that lives inside the memory it hands out, so that std containers can live there too.
//
// Arena keeps free lists, one a size class, and a mark behind which nothing was handed out yet. All of it is plain
// data in the region: no pointer to code, hence no virtual functions and no std::pmr, because code lies elsewhere in
// the next process while the region does not. Pointers are ordinary: a region is always at the same address.
//
// Nothing here knows of crashes. A persist captures the containers and the arena together, so that what comes back
// after a crash is an allocator that agrees with its blocks. An arena that runs out grows its region up to the
// region's limit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <type_traits>

#include "memlith/memlith.hpp"

namespace demo {

// Block sizes: 16, 32, ... 128, then four a doubling (160, 192, 224, 256, 320, ...), so that at most a fifth is wasted.
struct SizeClasses {
  static constexpr std::uint64_t kStep = 16;
  static constexpr std::uint32_t kSmall = 8;      // classes up to 128 bytes,
  static constexpr std::uint32_t kSmallLog2 = 7;  // which is 1 << 7,
  static constexpr std::uint32_t kLargestLog2 = 40;
  static constexpr std::uint32_t kCount = kSmall + 4 * (kLargestLog2 - kSmallLog2);

  static constexpr std::uint32_t of(std::uint64_t bytes) {
    if (bytes <= kStep) return 0;
    const std::uint64_t last = bytes - 1;
    if (bytes <= kSmall * kStep) return static_cast<std::uint32_t>(last / kStep);
    const auto doubling = static_cast<std::uint32_t>(std::bit_width(last) - 1);
    const auto quarter = static_cast<std::uint32_t>((last >> (doubling - 2)) & 3);
    return kSmall + 4 * (doubling - kSmallLog2) + quarter;
  }
  static constexpr std::uint64_t bytes(std::uint32_t size_class) {
    if (size_class < kSmall) return (size_class + 1) * kStep;
    const std::uint32_t doubling = (size_class - kSmall) / 4 + kSmallLog2;
    const std::uint64_t quarter = (size_class - kSmall) % 4;
    return (std::uint64_t{1} << doubling) + ((quarter + 1) << (doubling - 2));
  }
  // Each size goes to the smallest class that holds it.
  static constexpr bool fit() {
    for (std::uint64_t size = 1; size < 5000; ++size) {
      const std::uint32_t size_class = of(size);
      if (bytes(size_class) < size || bytes(size_class) % kStep != 0) return false;
      if (size_class > 0 && bytes(size_class - 1) >= size) return false;
    }
    return true;
  }
};
static_assert(SizeClasses::fit());

class Arena {
 public:
  // The arena hands out [begin, end); it need not lie there itself.
  Arena(std::byte* begin, std::byte* end) : next_(aligned(begin)), end_(end) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Names the region that an arena of this process may grow. The handle is good for one process only, so it is kept
  // here and not in the arena. Null, the default, means that no arena can grow.
  static void let_grow(memlith_region* region) { growing_region_ = region; }

  // At least `bytes`, aligned to 16. Ends the process if there is no room left: a container has no way to hear of it
  // without an exception, and leaving loses nothing that was persisted.
  void* allocate(std::uint64_t bytes) {
    if (bytes >= kLargestBytes) leave("the index requested a block that is too large");
    const std::uint32_t size_class = SizeClasses::of(bytes);
    const std::uint64_t size = SizeClasses::bytes(size_class);
    used_bytes_ += size;
    if (FreeBlock* block = free_[size_class]; block != nullptr) {
      free_[size_class] = block->next;
      return block;
    }
    if (room() < size) grow(size);
    std::byte* block = next_;
    next_ += size;
    return block;
  }

  void deallocate(void* memory, std::uint64_t bytes) noexcept {
    const std::uint32_t size_class = SizeClasses::of(bytes);
    used_bytes_ -= SizeClasses::bytes(size_class);
    free_[size_class] = new (memory) FreeBlock{free_[size_class]};
  }

  // Bytes in blocks that are in use.
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  static constexpr std::uint64_t kAlignment = SizeClasses::kStep;

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  static constexpr std::uint64_t kLargestBytes = std::uint64_t{1} << SizeClasses::kLargestLog2;
  static constexpr std::uint64_t kGrowthBytes = std::uint64_t{4} << 20;

  static std::byte* aligned(std::byte* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    return address + (kAlignment - number % kAlignment) % kAlignment;
  }
  [[nodiscard]] std::uint64_t room() const { return next_ < end_ ? static_cast<std::uint64_t>(end_ - next_) : 0; }

  // Makes room for `bytes`, or does not return.
  void grow(std::uint64_t bytes) {
    memlith_region* region = growing_region_;
    memlith_region_info info{};
    info.struct_size = sizeof info;
    if (region == nullptr || memlith_region_get_info(region, &info) != MEMLITH_OK) leave("the index is out of memory");
    const std::uint64_t size = std::min(info.size + std::max(bytes, kGrowthBytes), info.max_size);
    if (size - info.size + room() < bytes) leave("the index has filled its region; index less text (--limit)");
    if (memlith_region_grow(region, size) != MEMLITH_OK) {
      char message[512];
      memlith_last_error(message, sizeof message);
      leave(message);
    }
    end_ = static_cast<std::byte*>(memlith_region_address(region)) + memlith_region_size(region);
  }

  [[noreturn]] static void leave(const char* reason) {
    std::fprintf(stderr, "memlith-demo: %s\n", reason);
    std::_Exit(EXIT_FAILURE);
  }

  static inline memlith_region* growing_region_ = nullptr;

  std::byte* next_;
  std::byte* end_;
  std::uint64_t used_bytes_ = 0;
  std::array<FreeBlock*, SizeClasses::kCount> free_{};
};

// The face that std containers see. It carries the address of its arena, so that several arenas can be in use at once.
template <class T>
class ArenaAllocator {
 public:
  static_assert(alignof(T) <= Arena::kAlignment);
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit ArenaAllocator(Arena* arena) noexcept : arena_(arena) {}
  template <class U>
  ArenaAllocator(const ArenaAllocator<U>& other) noexcept
      : arena_(other.arena()) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(arena_->allocate(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { arena_->deallocate(memory, count * sizeof(T)); }
  [[nodiscard]] Arena* arena() const noexcept { return arena_; }

  template <class U>
  bool operator==(const ArenaAllocator<U>& other) const noexcept {
    return arena_ == other.arena();
  }

 private:
  Arena* arena_;
};

}  // namespace demo
