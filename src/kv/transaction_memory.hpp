// The memory of a transaction: its keys, values and locks, which go together when it ends. Floor: kv.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

#include "base/units.hpp"

namespace memlith::core::kv {

// Large blocks have mappings of their own: the kernel has their memory back at once when they are freed. Otherwise the
// heap of the program may keep it, which a small box has no room for.
class MappedBlocks final : public std::pmr::memory_resource {
 public:
  static MappedBlocks* of_process() {
    static MappedBlocks all;
    return &all;
  }

 private:
  static constexpr std::size_t kMappedFrom = 4 * kMiB;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes < kMappedFrom) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    return made;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    if (bytes < kMappedFrom) return std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
    ::munmap(block, bytes);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

// Counts what it gave.
class TransactionMemory final : public std::pmr::memory_resource {
 public:
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  void release() {
    blocks_.release();
    bytes_ = 0;
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    bytes_ += bytes;
    return blocks_.allocate(bytes, alignment);
  }
  void do_deallocate(void* /*place*/, std::size_t /*bytes*/, std::size_t /*alignment*/) override {}
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  alignas(16) std::byte first_room_[2048];
  std::pmr::monotonic_buffer_resource blocks_{first_room_, sizeof first_room_, MappedBlocks::of_process()};
  std::uint64_t bytes_ = 0;
};

}  // namespace memlith::core::kv
