#include "base/host.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <bit>

#include "base/units.hpp"

namespace memlith::core {

std::uint64_t host_page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Status check_page_bytes(std::uint64_t page_bytes) {
  if (page_bytes == kPageBytes) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "this kernel has pages of {} bytes, and memlith needs pages of {} bytes; start the machine with a kernel "
              "that has these (on arm64, Debian's linux-image-arm64 has them, linux-image-arm64-16k has not)",
              page_bytes, kPageBytes);
}

// The kernel puts the stack of a program at the end of its addresses, and these bytes on the stack.
unsigned host_address_bits() {
  static const auto bits = static_cast<unsigned>(std::bit_width(std::uint64_t{::getauxval(AT_RANDOM)}));
  return bits;
}

}  // namespace memlith::core
