// Blocks that nothing leads to: what a program held outside of the heap when it was killed. Floor: heap.
#include "heap/heap.hpp"
#include "heap/reach.hpp"

namespace memlith::core {

Status Heap::for_each_unreached(std::span<const SeenMemory> others,
                                const std::function<void(std::byte* address, std::uint64_t bytes)>& use) {
  Reach reach({base_, region_.size()}, header_->address);
  MEMLITH_TRY(for_each_block([&](const std::byte* block, std::uint64_t bytes) {
    reach.add_block(offset_of(block), bytes);
  }));
  reach.start();
  {
    const LockGuard structure(structure_);
    MEMLITH_TRY(load_names());
    for (const auto& [name, offset] : names_) {
      reach.keep(offset);
      reach.keep(reinterpret_cast<const NameRecord*>(base_ + offset)->object);
    }
  }
  for (const SeenMemory& other : others) reach.look_through(other.bytes, other.address);
  reach.follow();
  reach.for_each_unreached([&](std::uint64_t offset, std::uint64_t bytes) { use(base_ + offset, bytes); });
  return kOk;
}

}  // namespace memlith::core
