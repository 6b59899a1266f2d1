// Blocks that nothing leads to: what a program held outside of the heap when it was killed. Floor: heap.
#include "heap/heap.hpp"
#include "heap/reach.hpp"

namespace memlith::core {

Status Heap::for_each_unreached(std::span<const SeenMemory> others,
                                const std::function<void(std::byte* address, std::uint64_t bytes)>& use) {
  Reach reach({memory_.base(), region().size()}, memory_.header().address);
  MEMLITH_TRY(for_each_block([&](const std::byte* block, std::uint64_t bytes) {
    reach.add_block(memory_.offset_of(block), bytes);
  }));
  reach.start();
  MEMLITH_TRY(names_.for_each_block([&](std::uint64_t offset) { reach.keep(offset); }));
  for (const SeenMemory& other : others) reach.look_through(other.bytes, other.address);
  reach.follow();
  reach.for_each_unreached([&](std::uint64_t offset, std::uint64_t bytes) { use(memory_.base() + offset, bytes); });
  return kOk;
}

}  // namespace memlith::core
