// base/host.hpp: the size of pages, and how far addresses reach.
#include "base/host.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "base/units.hpp"

namespace memlith::core {
namespace {

TEST(Host, PagesOf4To64KiBAreTaken) {
  for (const std::uint64_t bytes : {4 * kKiB, 16 * kKiB, 64 * kKiB}) EXPECT_TRUE(check_page_bytes(bytes).ok());
  for (const std::uint64_t bytes : {2 * kKiB, 12 * kKiB, 128 * kKiB}) {
    const Status refused = check_page_bytes(bytes);
    EXPECT_EQ(refused.category, Errc::unsupported);
    const std::string_view text = last_error_text();
    EXPECT_NE(text.find(std::to_string(bytes)), std::string_view::npos) << text;
    EXPECT_NE(text.find("needs pages of 4096 to 65536 bytes"), std::string_view::npos) << text;
  }
}

TEST(Host, EveryMappingLiesWithinTheAddresses) {
  const unsigned bits = host_address_bits();
  ASSERT_GE(bits, 36u);
  ASSERT_LE(bits, 52u);
  const auto within = [bits](const void* place) { return reinterpret_cast<std::uintptr_t>(place) >> bits == 0; };
  const int on_stack = 0;
  EXPECT_TRUE(within(&on_stack));
  EXPECT_TRUE(within(std::make_unique<int>().get()));
  EXPECT_TRUE(within(reinterpret_cast<const void*>(&host_address_bits)));
  void* const mapped = ::mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_TRUE(within(mapped));
  ::munmap(mapped, kMiB);
  // And not one bit too many: the stack is in the upper half.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&on_stack) >> (bits - 1), 1u);
}

}  // namespace
}  // namespace memlith::core
