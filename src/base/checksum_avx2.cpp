// Compiled with -mavx2 if the compiler has it; only called if the processor has AVX2.
#if defined(__x86_64__)
#include "base/checksum_functions.inc"

namespace memlith::core::detail {
const ChecksumFunctions& avx2_checksum() { return kFunctions; }
}  // namespace memlith::core::detail
#endif
