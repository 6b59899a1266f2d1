// Reading a log of arbitrary bytes: every frame handed out lies in the log and is found again, and what is appended
// behind them is found behind them (docs/guarantees.md, "After a crash").
//
// Input: a byte of options, then the bytes from slot 0 on. Options 1: checksums of slots and frames are put right; 2:
// the frames are chained as well, each behind the one before it, so that the reader goes on to the last of them.
#include "mend.hpp"
#include "small_log.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

namespace {

void mend_log(std::vector<std::byte>& bytes, bool chained) {
  Superblock superblock;
  std::memcpy(&superblock, bytes.data(), sizeof superblock);
  const LogGeometry geometry{superblock.block_bytes, superblock.slot_bytes};
  const std::uint64_t log_id = superblock.log_id;
  LogPosition here{Lsn{0}, log_id};
  for (std::uint32_t slot = 0; slot < superblock.slot_count; ++slot) {
    const std::uint64_t begin = geometry.slot_offset(slot);
    mend<SlotHeader>(bytes, begin, log_id);
    for (std::uint64_t at = begin + geometry.block_bytes; at < begin + geometry.slot_bytes;) {
      std::uint32_t magic = 0;
      std::memcpy(&magic, bytes.data() + at, sizeof magic);
      if (magic != kFrameMagic) {
        at += geometry.block_bytes;
        continue;
      }
      FrameHeader header;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      if (chained) {
        header.lsn = here.lsn.value;
        header.previous = here.previous;
        std::memcpy(bytes.data() + at, &header, sizeof header);
      }
      const std::uint64_t frame_bytes = mend_frame(bytes, at, geometry, log_id);
      if (frame_bytes == 0) {
        at += geometry.block_bytes;
        continue;
      }
      FrameTrailer trailer;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      std::memcpy(&trailer, bytes.data() + at + frame_bytes - sizeof trailer, sizeof trailer);
      here = {here.lsn.advance(frame_bytes), chain_value(header, trailer, log_id)};
      at += frame_bytes;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  static const std::vector<std::byte> real = *small_log_image().files.at("log");
  std::vector<std::byte> bytes = real;
  const std::size_t count = std::min<std::size_t>(size - 1, bytes.size() - kSlotsOffset);
  std::memcpy(bytes.data() + kSlotsOffset, data + 1, count);
  if ((data[0] & 3) != 0) mend_log(bytes, (data[0] & 2) != 0);
  try_log(std::move(bytes), Superblocks::real);
  return 0;
}
