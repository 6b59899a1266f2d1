// Puts checksums right without touching what they cover: else nearly every mutation would be turned away at the door,
// and what lies behind the checksums would never be tried.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "log/format.hpp"
#include "log/geometry.hpp"
#include "store/format.hpp"

namespace memlith::fuzz {

template <class Header>
void mend(std::vector<std::byte>& bytes, std::uint64_t offset, std::uint64_t seed) {
  if (bytes.size() < sizeof(Header) || offset > bytes.size() - sizeof(Header)) return;
  Header header;
  std::memcpy(&header, bytes.data() + offset, sizeof header);
  header.checksum = core::header_checksum(header, seed);
  std::memcpy(bytes.data() + offset, &header, sizeof header);
}

inline void mend_directory(std::vector<std::byte>& bytes, std::uint64_t log_id) {
  mend<core::DirectoryHeader>(bytes, 0, log_id);
  for (std::uint64_t at = core::kDirectoryEntryBytes; at + core::kDirectoryEntryBytes <= bytes.size();
       at += core::kDirectoryEntryBytes) {
    if (bytes[at] != std::byte{0}) mend<core::DirectoryEntry>(bytes, at, log_id);
  }
}

// The trailer and the header of the frame at `at`, if it fits. Returns how long it is, 0 if it does not.
inline std::uint64_t mend_frame(std::vector<std::byte>& log, std::uint64_t at, const core::LogGeometry& geometry,
                                std::uint64_t log_id) {
  core::FrameHeader header;
  std::memcpy(&header, log.data() + at, sizeof header);
  const std::uint64_t rest = log.size() - at;
  std::uint64_t frame_bytes = 0;
  if (header.payload_bytes <= rest && geometry.frame_bytes(header.payload_bytes) <= rest) {
    frame_bytes = geometry.frame_bytes(header.payload_bytes);
    const core::FrameTrailer trailer{
        core::checksum({log.data() + at + sizeof header, header.payload_bytes},
                       core::payload_seed(log_id, core::Lsn{header.lsn}, header.incarnation))};
    std::memcpy(log.data() + at + frame_bytes - sizeof trailer, &trailer, sizeof trailer);
  }
  mend<core::FrameHeader>(log, at, log_id);
  return frame_bytes;
}

}  // namespace memlith::fuzz
