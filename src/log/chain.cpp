#include "log/chain.hpp"

#include <cstring>

#include "base/checksum.hpp"

namespace memlith::core {

FrameHeader FrameChain::header(Lsn lsn, std::uint32_t kind, std::uint64_t payload_bytes) const {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.kind = kind;
  header.lsn = lsn.value;
  header.payload_bytes = payload_bytes;
  header.incarnation = incarnation_;
  return header;
}

void FrameChain::end(std::byte* payload, std::uint64_t payload_bytes, Lsn begin) const {
  const std::uint64_t bytes = geometry_.frame_bytes(payload_bytes) - sizeof(FrameHeader);
  MEMLITH_DCHECK(bytes >= payload_bytes + sizeof(FrameTrailer));
  std::memset(payload + payload_bytes, 0, bytes - payload_bytes);
  const FrameTrailer trailer{checksum({payload, payload_bytes}, seed(begin))};
  std::memcpy(payload + bytes - sizeof trailer, &trailer, sizeof trailer);
}

void FrameChain::fill_slot_header(std::span<std::byte> block, std::uint64_t segment) const {
  core::fill_slot_header(block, segment, incarnation_, log_id_);
}

void FrameChain::link(FrameHeader& header, std::uint64_t durable_lsn) const {
  header.previous = last_checksum_;
  header.durable_lsn = durable_lsn;
  header.checksum = header_checksum(header, log_id_);
}

}  // namespace memlith::core
