#include "base/checksum.hpp"

#include "base/checksum_functions.inc"

namespace memlith::core {

namespace detail {
const ChecksumFunctions& baseline_checksum() { return kFunctions; }
}  // namespace detail

namespace {
const detail::ChecksumFunctions& chosen() {
#if defined(__x86_64__)
  static const detail::ChecksumFunctions& functions =
      __builtin_cpu_supports("avx2") ? detail::avx2_checksum() : detail::baseline_checksum();
  return functions;
#else
  return detail::baseline_checksum();
#endif
}
}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return chosen().hash(bytes.data(), bytes.size(), seed);
}

struct alignas(64) StreamingChecksum::State {
  std::byte bytes[sizeof(XXH3_state_t)];
};

StreamingChecksum::StreamingChecksum() : state_(std::make_unique<State>()) {}
StreamingChecksum::~StreamingChecksum() = default;
void StreamingChecksum::reset(std::uint64_t seed) { chosen().reset(state_.get(), seed); }
void StreamingChecksum::update(std::span<const std::byte> bytes) {
  chosen().update(state_.get(), bytes.data(), bytes.size());
}
std::uint64_t StreamingChecksum::digest() const { return chosen().digest(state_.get()); }

}  // namespace memlith::core
