#include "region/address.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "base/random.hpp"

namespace memlith::core {

namespace {

// AddressSanitizer lets a program map from 0x100080000000 on, ThreadSanitizer only some ranges, of which this one is below
// every place where Linux puts executables, heaps, libraries and stacks. Regions too large for it go to the second, which
// ThreadSanitizer does not know.
struct Arena {
  std::uint64_t begin;
  std::uint64_t end;
};
constexpr Arena kArenas[] = {{0x550000000000, 0x555000000000}, {0x200000000000, 0x540000000000}};
constexpr std::uint64_t kGrain = 64 * kMiB;
constexpr int kTries = 64;

}  // namespace

Status check_unclaimed(std::uint64_t address, std::uint64_t bytes, const std::vector<ObjectInfo>& objects) {
  for (const ObjectInfo& object : objects) {
    if (address >= object.address + object.reserve_bytes || object.address >= address + bytes) continue;
    return fail(Errc::address_taken, Detail::mapping,
                "{} bytes at {:#x} overlap region \"{}\", which lies at {:#x} and may grow to {} bytes", bytes, address,
                object.name, object.address, object.reserve_bytes);
  }
  return kOk;
}

Status reserve_addresses(std::uint64_t address, std::uint64_t bytes) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got =
      ::mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) return kOk;
  if (got != MAP_FAILED) ::munmap(got, bytes);  // a kernel before 4.17 takes the address for a hint
  if (got == MAP_FAILED && errno != EEXIST) {
    return fail_errno(errno, Detail::mapping, "cannot reserve the addresses {:#x} to {:#x}", address, address + bytes);
  }
  return fail(Errc::address_taken, Detail::mapping,
              "something else of this process lies between {:#x} and {:#x}, where the region belongs. A copy of a "
              "store "
              "has its original's addresses: close the original first, or open the copy in another process. If neither "
              "is open here, open the region earlier, before other memory takes the addresses",
              address, address + bytes);
}

void release_addresses(std::uint64_t address, std::uint64_t bytes) {
  ::munmap(reinterpret_cast<void*>(address), bytes);
}

Result<std::uint64_t> choose_addresses(std::uint64_t bytes, const std::vector<ObjectInfo>& objects) {
  // Random, so that two stores made apart can be open in one process.
  Random random(random_identity());
  for (const Arena& arena : kArenas) {
    if (bytes > (arena.end - arena.begin) / 2) continue;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const std::uint64_t address = arena.begin + random.below((arena.end - arena.begin - bytes) / kGrain + 1) * kGrain;
      if (check_unclaimed(address, bytes, objects).ok() && reserve_addresses(address, bytes).ok()) return address;
    }
  }
  return fail(Errc::address_taken, Detail::mapping,
              "found no free range of {} bytes of addresses; ask for a smaller max_size", bytes);
}

}  // namespace memlith::core
