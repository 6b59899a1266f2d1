// What a process has from its machine and kernel, and what memlith needs of it. Floor: base.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace memlith::core {

std::uint64_t host_page_bytes();

// Ok for pages of kPageBytes. `unsupported` for others: changes are found, protected and dropped page by page, and a
// larger page would lose its neighbours' changes with its own.
Status check_page_bytes(std::uint64_t page_bytes);

// Addresses of a program lie below 2 to the power of this: 47 on x86-64; 48 on most arm64 kernels, 39 or 42 on others.
// A kernel may map more to a program that asks for it by address.
unsigned host_address_bits();

}  // namespace memlith::core
