// Compiled with -mavx2 where the compiler has it; only called where the processor has it too.
#if defined(__x86_64__)
#include "base/checksum_functions.inc"

namespace memlith::core::detail {
const ChecksumFunctions& avx2_checksum() { return kFunctions; }
}  // namespace memlith::core::detail
#endif
