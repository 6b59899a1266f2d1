#include "region/address.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>

#include "base/random.hpp"

namespace memlith::core {

namespace {

struct Arena {
  std::uint64_t begin;
  std::uint64_t end;
};
// Free where programs have 47 bits of addresses or more (x86-64, arm64): below the places of executables, libraries and
// stacks, and above the addresses that other runtimes take at random or from a hint (docs/guarantees.md, "Addresses").
// ThreadSanitizer and MemorySanitizer let a program map nothing of the wide range.
constexpr unsigned kUsualBits = 47;
constexpr Arena kWide{0x400000000000, 0x540000000000};
constexpr Arena kNarrow{0x550000000000, 0x555000000000};
// Free where programs have 39 bits (arm64): below executables, and below the heap of Go, from 0x4000000000 on. On arm64
// ThreadSanitizer lets a program map this range only (LLVM 18).
constexpr Arena kLow{0x1000000000, 0x4000000000};
constexpr std::uint64_t kGrain = 64 * kMiB;
constexpr int kTries = 64;
constexpr int kNoMemory = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// False if the runtime of a sanitizer refuses such mappings to the program. The runtime looks at the address first, and
// the kernel then refuses the missing descriptor, so that nothing is mapped or replaced. The runtime must be asked:
// ThreadSanitizer takes MAP_FIXED_NOREPLACE for a hint, maps memory elsewhere, and may end the process for that.
bool program_may_map(std::uint64_t address, std::uint64_t bytes) {
  void* const got = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_FIXED, -1, 0);
  return got == MAP_FAILED && errno != EINVAL;
}

// The bytes that RLIMIT_AS allows the process, if it limits anything.
std::optional<std::uint64_t> addresses_allowed() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

Status no_addresses(int error, std::uint64_t bytes) {
  const auto allowed = addresses_allowed();
  if (error == ENOMEM && allowed.has_value()) {
    return fail(Errc::no_memory, Detail::mapping,
                "cannot reserve {} bytes of addresses: the process may have {} in all (RLIMIT_AS, `ulimit -v`); raise "
                "that limit, or make the region with a smaller max_size",
                bytes, *allowed);
  }
  return fail_errno(error, Detail::mapping, "cannot reserve {} bytes of addresses", bytes);
}

bool free_in(const Arena& arena, unsigned address_bits) {
  if (address_bits < kUsualBits) return arena.begin == kLow.begin;
  if (arena.begin == kLow.begin && program_may_map(kNarrow.begin, kNarrow.end - kNarrow.begin)) return false;
  return program_may_map(arena.begin, arena.end - arena.begin);
}

}  // namespace

Status check_unclaimed(std::uint64_t address, std::uint64_t bytes, const std::vector<ObjectInfo>& objects) {
  for (const ObjectInfo& object : objects) {
    if (object.address == 0) continue;  // it lies wherever there is room
    if (address >= object.address + object.reserve_bytes || object.address >= address + bytes) continue;
    return fail(Errc::address_taken, Detail::mapping,
                "{} bytes at {:#x} overlap region \"{}\", which lies at {:#x} and may grow to {} bytes", bytes, address,
                object.name, object.address, object.reserve_bytes);
  }
  return kOk;
}

Status check_mappable(std::uint64_t address, std::uint64_t bytes) {
  if (program_may_map(address, bytes)) return kOk;
  return fail(Errc::unsupported, Detail::mapping,
              "the region lies at {:#x}, and the sanitizer that this program was compiled with (ThreadSanitizer, "
              "MemorySanitizer) lets no program map memory there. Open the store with a program that was compiled "
              "without it; or make the region anew with this program: every program can open that region",
              address);
}

Status reserve_addresses(std::uint64_t address, std::uint64_t bytes) {
  MEMLITH_ASSERT(address % host_page_bytes() == 0 && bytes > 0);
  const unsigned bits = host_address_bits();
  const bool beyond = (address + bytes - 1) >> bits != 0;
  const Status mappable = check_mappable(address, bytes);
  if (!mappable.ok() && !beyond) return mappable;
  int error = ENOMEM;
  if (mappable.ok()) {
    void* const wanted = reinterpret_cast<void*>(address);
    void* const got = ::mmap(wanted, bytes, PROT_NONE, kNoMemory | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) return kOk;
    error = got == MAP_FAILED ? errno : EEXIST;
    if (got != MAP_FAILED) ::munmap(got, bytes);  // a kernel before 4.17 treats the address as a hint
  }
  if (error == ENOMEM && beyond) {
    return fail(Errc::unsupported, Detail::mapping,
                "the region lies at {:#x} and may grow to {} bytes, and this kernel gives programs no addresses from "
                "{:#x} on: they have {} bits. Open the store on a machine whose kernel has at least {} (on arm64: "
                "CONFIG_ARM64_VA_BITS_48)",
                address, bytes, std::uint64_t{1} << bits, bits, std::bit_width(address + bytes - 1));
  }
  if (error != EEXIST) return no_addresses(error, bytes);
  return fail(Errc::address_taken, Detail::mapping,
              "something else of this process lies between {:#x} and {:#x}, where the region belongs. A copy of a "
              "store has its original's addresses: close the original first, or open the copy in another process. The "
              "same helps where two stores share addresses by chance. If no other store is open here, open the region "
              "earlier, before other memory takes the addresses",
              address, address + bytes);
}

std::uint64_t addresses_up_to_end(std::uint64_t address) {
  for (const Arena& arena : {kWide, kNarrow}) {
    if (address >= arena.begin && address < arena.end) return arena.end - address;
  }
  return ~std::uint64_t{0};  // the program has named the address
}

void release_addresses(std::uint64_t address, std::uint64_t bytes) {
  MEMLITH_ASSERT(address % host_page_bytes() == 0);
  ::munmap(reinterpret_cast<void*>(address), bytes);
}

Result<std::uint64_t> choose_addresses(std::uint64_t bytes, const std::vector<ObjectInfo>& objects,
                                       unsigned address_bits) {
  // Random, and in the wide range if possible, so that two stores that were created independently can be open in one
  // process: two regions of 1 GiB overlap with a probability of 1 in 10,240 there, of 1 in 160 in the narrow range, and
  // of 1 in 96 in the low one.
  Random random(random_identity());
  for (const Arena& arena : {kWide, kNarrow, kLow}) {
    if (bytes > (arena.end - arena.begin) / 2 || !free_in(arena, address_bits)) continue;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const std::uint64_t address = arena.begin + random.below((arena.end - arena.begin - bytes) / kGrain + 1) * kGrain;
      MEMLITH_ASSERT(arena.begin <= address && address + bytes <= arena.end);
      if (!check_unclaimed(address, bytes, objects).ok()) continue;
      const Status reserved = reserve_addresses(address, bytes);
      if (reserved.ok()) return address;
      if (reserved.category != Errc::address_taken) return reserved;
    }
  }
  return fail(Errc::address_taken, Detail::mapping,
              "found no free range of {} bytes among the addresses of programs, which have {} bits; ask for a smaller "
              "max_size",
              bytes, address_bits);
}

Result<Room> find_room(std::uint64_t least, std::uint64_t most) {
  MEMLITH_ASSERT(least > 0);
  std::uint64_t bytes = std::max(least, most);
  // A process whose addresses are limited needs most of them for its own memory.
  if (const auto allowed = addresses_allowed(); allowed.has_value()) {
    bytes = std::max(least, std::min(bytes, round_down(*allowed / 4, kPageBytes)));
  }
  for (;;) {
    void* const got = ::mmap(nullptr, bytes, PROT_NONE, kNoMemory, -1, 0);
    if (got != MAP_FAILED) return Room{reinterpret_cast<std::uintptr_t>(got), bytes};
    // EINVAL is valgrind's answer where its own map of addresses has no room.
    if ((errno != ENOMEM && errno != EINVAL) || bytes == least) return no_addresses(errno, bytes);
    bytes = std::max(least, round_down(bytes / 2, kPageBytes));
  }
}

}  // namespace memlith::core
