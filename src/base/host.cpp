#include "base/host.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <bit>

namespace memlith::core {

namespace {
std::uint64_t& page_bytes_now() {
  static auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}
}  // namespace

std::uint64_t host_page_bytes() { return page_bytes_now(); }

void assume_host_pages(std::uint64_t page_bytes) { page_bytes_now() = page_bytes; }

Status check_page_bytes(std::uint64_t page_bytes) {
  if (page_bytes >= kPageBytes && page_bytes <= kHostPageBytesMax && is_power_of_two(page_bytes)) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "this kernel has pages of {} bytes, and memlith needs pages of {} to {} bytes; start the machine with a "
              "kernel that has these",
              page_bytes, kPageBytes, kHostPageBytesMax);
}

// The kernel puts the stack of a program at the end of its addresses, and these bytes on the stack.
unsigned host_address_bits() {
  static const auto bits = static_cast<unsigned>(std::bit_width(std::uint64_t{::getauxval(AT_RANDOM)}));
  return bits;
}

}  // namespace memlith::core
