// Opening a log whose superblocks are arbitrary bytes gives a log or an error (docs/guarantees.md: any bytes on the
// disk give data or an error). Unless a checksum was put right, a log that opens takes a frame, and opens again with
// what it had and that one.
//
// Input: a byte of options (1 and 2: the checksum of copy 0, of copy 1, is put right), then the two copies, 512 bytes
// each. The slots behind them are those of a real log.
#include "mend.hpp"
#include "small_log.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  static const std::vector<std::byte> real = *small_log_image().files.at("log");
  std::vector<std::byte> bytes = real;
  const unsigned options = data[0];
  std::size_t at = 1;
  for (const std::uint64_t copy : {std::uint64_t{0}, kSuperblockStrideBytes}) {
    const std::size_t count = std::min(sizeof(Superblock), size - at);
    std::memcpy(bytes.data() + copy, data + at, count);
    at += count;
  }
  if ((options & 1) != 0) mend<Superblock>(bytes, 0, kSuperblockSeed);
  if ((options & 2) != 0) mend<Superblock>(bytes, kSuperblockStrideBytes, kSuperblockSeed);
  try_log(std::move(bytes), (options & 3) == 0 ? Superblocks::real : Superblocks::made_up);
  return 0;
}
