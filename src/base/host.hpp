// Facts about the machine and the kernel that memlith needs. Floor: base.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "base/units.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kHostPageBytesMax = 64 * kKiB;

// The kernel maps, protects and drops memory in such pages: kPageBytes on x86-64; that, 16 or 64 KiB on arm64.
std::uint64_t host_page_bytes();

// For tests: as if the kernel's pages were as large, for what is opened from now on.
void assume_host_pages(std::uint64_t page_bytes);

// Ok for powers of two from kPageBytes to kHostPageBytesMax. `unsupported` for others.
Status check_page_bytes(std::uint64_t page_bytes);

// Addresses of a program lie below 2 to the power of this: 47 on x86-64; 48 on most arm64 kernels, 39 or 42 on others.
// A kernel may map more to a program that asks for it by address.
unsigned host_address_bits();

}  // namespace memlith::core
