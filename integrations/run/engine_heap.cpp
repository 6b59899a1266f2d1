// The memory of this library. The linker leads all calls of malloc and free within the library here (--wrap,
// CMakeLists.txt), those of the C++ library among them. A program may write and sync files in a handler of signals
// (POSIX.1-2017, 2.4.3), and the signal may have come within the program's malloc, whose lock the handler's thread
// holds: so the engine must not call that malloc. This heap is locked with all signals blocked.
//
// Blocks are of size classes, four to each power of two. Freed ones are kept in a list for each class, and never given
// back; larger ones are mappings of their own.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine_heap.hpp"
#include "images.hpp"
#include "real.hpp"

extern "C" void __real_free(void* bytes);

namespace memlith::preload {

namespace {

// In a block of glibc's, the upper half of its length lies at the place of the mark.
constexpr std::uint32_t kMark = 0xb10c0fe0;

// Before the bytes that the caller gets.
struct alignas(16) Header {
  std::uint64_t block_bytes;  // of a class, or of a mapping
  std::uint32_t offset;       // of the caller's bytes within the block
  std::uint32_t mark = kMark;
};
struct FreeBlock {
  FreeBlock* next;
};

constexpr std::uint64_t kClassBytesMin = 64;
constexpr std::uint64_t kClassBytesMax = 4 << 20;
constexpr std::uint64_t kSlabBytes = 256 << 10;  // blocks of up to an eighth of it are cut from slabs
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kSteps = 4;
constexpr std::size_t kClasses = (std::bit_width(kClassBytesMax) - std::bit_width(kClassBytesMin)) * kSteps + 1;

constexpr std::uint64_t round_up_to(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The bytes of the smallest class that holds `bytes`.
constexpr std::uint64_t class_bytes(std::uint64_t bytes) {
  if (bytes <= kClassBytesMin) return kClassBytesMin;
  return round_up_to(bytes, std::bit_floor(bytes - 1) / kSteps);
}
constexpr std::size_t class_of(std::uint64_t block_bytes) {
  const std::uint64_t power = std::bit_floor(block_bytes);
  const auto powers = static_cast<std::size_t>(std::bit_width(power) - std::bit_width(kClassBytesMin));
  return powers * kSteps + static_cast<std::size_t>((block_bytes - power) / (power / kSteps));
}
static_assert(class_of(kClassBytesMin) == 0 && class_of(kClassBytesMax) == kClasses - 1);
static_assert(class_bytes(65) == 80 && class_bytes(80) == 80 && class_bytes(129) == 160 && class_of(80) == 1);

struct Heap {
  std::mutex mutex;
  std::array<FreeBlock*, kClasses> free{};
  std::byte* slab = nullptr;
  std::uint64_t slab_left = 0;

  void* take(std::uint64_t block_bytes);
};

constinit Heap heap;

class Locked {
 public:
  Locked() {
    if (!NoSignals::held()) no_signals_.emplace();
    heap.mutex.lock();
  }
  ~Locked() { heap.mutex.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::optional<NoSignals> no_signals_;
};

void* map_bytes(std::uint64_t bytes) {
  void* const found = real().mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

void* Heap::take(std::uint64_t block_bytes) {
  FreeBlock*& first = free[class_of(block_bytes)];
  if (first != nullptr) return std::exchange(first, first->next);
  if (block_bytes > kSlabBytes / 8) return map_bytes(round_up_to(block_bytes, kPage));
  if (slab_left < block_bytes) {
    void* const mapped = map_bytes(kSlabBytes);
    if (mapped == nullptr) return nullptr;
    slab = static_cast<std::byte*>(mapped);  // what was left of the one before is given up
    slab_left = kSlabBytes;
  }
  slab_left -= block_bytes;
  return std::exchange(slab, slab + block_bytes);
}

void* take_bytes(std::uint64_t alignment, std::uint64_t bytes) {
  // With malloc's alignment the header is all that comes before.
  const std::uint64_t before = alignment <= sizeof(Header) ? sizeof(Header) : sizeof(Header) + alignment;
  if (bytes > PTRDIFF_MAX - before - kPage || before > UINT32_MAX) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::uint64_t needed = bytes + before;
  const bool is_large = needed > kClassBytesMax;
  const std::uint64_t block_bytes = is_large ? round_up_to(needed, kPage) : class_bytes(needed);
  std::byte* block = nullptr;
  {
    const Locked locked;
    block = static_cast<std::byte*>(is_large ? map_bytes(block_bytes) : heap.take(block_bytes));
  }
  if (block == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  const std::uint64_t offset = round_up_to(begin + sizeof(Header), std::max(alignment, sizeof(Header))) - begin;
  const Header header{block_bytes, static_cast<std::uint32_t>(offset)};
  std::memcpy(block + offset - sizeof header, &header, sizeof header);
  return block + offset;
}

Header header_of(const void* bytes) {
  Header header{};
  std::memcpy(&header, static_cast<const std::byte*>(bytes) - sizeof header, sizeof header);
  return header;
}

void give_back(void* bytes) {
  const Header header = header_of(bytes);
  if (header.mark != kMark) {  // of a function of the C library that gives memory, and has no --wrap
    __real_free(bytes);
    return;
  }
  std::byte* const block = static_cast<std::byte*>(bytes) - header.offset;
  if (header.block_bytes > kClassBytesMax) {
    real().munmap(block, header.block_bytes);
    return;
  }
  const Locked locked;
  FreeBlock*& first = heap.free[class_of(header.block_bytes)];
  first = std::construct_at(reinterpret_cast<FreeBlock*>(block), first);
}

}  // namespace

void lock_heap() { heap.mutex.lock(); }
void unlock_heap() { heap.mutex.unlock(); }
void unlock_heap_in_child() { std::construct_at(&heap.mutex); }

}  // namespace memlith::preload

extern "C" {

void* __wrap_malloc(std::size_t bytes) { return memlith::preload::take_bytes(sizeof(void*), bytes); }
void __wrap_free(void* bytes) {
  const int error = errno;
  if (bytes != nullptr) memlith::preload::give_back(bytes);
  errno = error;
}
void* __wrap_calloc(std::size_t count, std::size_t each_bytes) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, each_bytes, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const made = __wrap_malloc(bytes);
  return made == nullptr ? nullptr : std::memset(made, 0, bytes);
}
void* __wrap_realloc(void* bytes, std::size_t wanted) {
  if (bytes == nullptr) return __wrap_malloc(wanted);
  const memlith::preload::Header header = memlith::preload::header_of(bytes);
  const std::uint64_t room = header.block_bytes - header.offset;
  if (wanted > 0 && wanted <= room) return bytes;
  void* const made = wanted > 0 ? __wrap_malloc(wanted) : nullptr;
  if (made != nullptr) std::memcpy(made, bytes, std::min<std::uint64_t>(room, wanted));
  if (made != nullptr || wanted == 0) __wrap_free(bytes);
  return made;
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memlith::preload::take_bytes(alignment, bytes);
}
char* __wrap_strdup(const char* text) {
  const std::size_t bytes = std::strlen(text) + 1;
  void* const made = __wrap_malloc(bytes);
  return made == nullptr ? nullptr : static_cast<char*>(std::memcpy(made, text, bytes));
}
// These two give memory if they are given none.
char* __real_realpath(const char* path, char* found);
char* __real_getcwd(char* path, std::size_t bytes);
char* __wrap_realpath(const char* path, char* found) {
  char* const room = found != nullptr ? found : static_cast<char*>(__wrap_malloc(PATH_MAX));
  char* const result = room == nullptr ? nullptr : __real_realpath(path, room);
  if (result == nullptr && found == nullptr) __wrap_free(room);
  return result;
}
char* __wrap_getcwd(char* path, std::size_t bytes) {
  if (path == nullptr && bytes == 0) bytes = PATH_MAX;
  char* const room = path != nullptr ? path : static_cast<char*>(__wrap_malloc(bytes));
  char* const result = room == nullptr ? nullptr : __real_getcwd(room, bytes);
  if (result == nullptr && path == nullptr) __wrap_free(room);
  return result;
}

}  // extern "C"
