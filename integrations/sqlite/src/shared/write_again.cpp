#include "write_again.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "../wal_format.hpp"

namespace memlith::sqlite::shared {

namespace {

constexpr std::uint32_t kWalMagic = 0x377f0682;  // the last bit: checksums of big-endian words
constexpr std::size_t kPageBytesAt = 8;
constexpr std::size_t kSaltsAt = 16;  // in the log's header
constexpr std::size_t kHeaderSumAt = 24;
constexpr std::size_t kFrameSaltsAt = 8;
constexpr std::size_t kFrameSumAt = 16;
constexpr std::size_t kSummedBytes = 8;  // of a frame's header

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}
std::uint32_t little_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[3]} << 24 | std::uint32_t{bytes[2]} << 16 | std::uint32_t{bytes[1]} << 8 | bytes[0];
}

// SQLite's checksum, which goes on from frame to frame.
struct Sum {
  std::uint32_t one;
  std::uint32_t other;

  static Sum at(const unsigned char* bytes) { return {big_endian(bytes), big_endian(bytes + 4)}; }
  void add(const unsigned char* bytes, std::size_t count, bool big) {
    const auto word = big ? big_endian : little_endian;
    for (std::size_t at = 0; at < count; at += 8) {
      one += word(bytes + at) + other;
      other += word(bytes + at + 4) + one;
    }
  }
  bool operator==(const Sum&) const = default;
};

}  // namespace

int write_again(sqlite3_file* log, Position durable, Position newest, bool rest) {
  const std::uint32_t first = durable.generation == newest.generation ? durable.frame + 1 : 1;
  if (first > newest.frame && !rest) return SQLITE_OK;
  const int code_of_no_log = newest.frame == 0 ? SQLITE_OK : SQLITE_CORRUPT;  // a generation may have no frame yet
  const auto& methods = *log->pMethods;
  std::array<unsigned char, kWalHeaderBytes> head{};
  if (const int code = methods.xRead(log, head.data(), static_cast<int>(head.size()), 0); code != SQLITE_OK) {
    return code == SQLITE_IOERR_SHORT_READ ? code_of_no_log : code;
  }
  const std::uint32_t magic = big_endian(head.data());
  const std::uint32_t page_bytes = big_endian(&head[kPageBytesAt]);
  std::uint32_t generation = 0;
  std::memcpy(&generation, &head[kSaltsAt], sizeof generation);  // as it is in the index
  const bool is_log = (magic & ~1u) == kWalMagic && std::has_single_bit(page_bytes) && page_bytes >= 512 &&
                      page_bytes <= 65536 && generation == newest.generation;
  if (!is_log) return code_of_no_log;

  const std::size_t frame_bytes = kFrameHeaderBytes + page_bytes;
  const std::unique_ptr<unsigned char[]> frame(new (std::nothrow) unsigned char[frame_bytes]);
  if (frame == nullptr) return SQLITE_NOMEM;
  const auto offset_of = [&](std::uint32_t number) {
    return static_cast<sqlite3_int64>(kWalHeaderBytes + std::uint64_t{number - 1} * frame_bytes);
  };
  Sum sum = Sum::at(&head[kHeaderSumAt]);
  int code = SQLITE_OK;
  if (first > 1) {
    code = methods.xRead(log, frame.get(), static_cast<int>(kFrameHeaderBytes), offset_of(first - 1));
    sum = Sum::at(&frame[kFrameSumAt]);
  } else {
    code = methods.xWrite(log, head.data(), static_cast<int>(head.size()), 0);
  }
  for (std::uint32_t number = first; code == SQLITE_OK && (rest || number <= newest.frame); ++number) {
    code = methods.xRead(log, frame.get(), static_cast<int>(frame_bytes), offset_of(number));
    const bool is_rest = number > newest.frame;
    if (code == SQLITE_IOERR_SHORT_READ && is_rest) return SQLITE_OK;
    if (code != SQLITE_OK) break;
    sum.add(frame.get(), kSummedBytes, (magic & 1) != 0);
    sum.add(&frame[kFrameHeaderBytes], page_bytes, (magic & 1) != 0);
    const bool same_salts = std::memcmp(&frame[kFrameSaltsAt], &head[kSaltsAt], 8) == 0;
    if (!same_salts || sum != Sum::at(&frame[kFrameSumAt])) return is_rest ? SQLITE_OK : SQLITE_CORRUPT;
    code = methods.xWrite(log, frame.get(), static_cast<int>(frame_bytes), offset_of(number));
  }
  return code == SQLITE_IOERR_SHORT_READ ? SQLITE_CORRUPT : code;
}

}  // namespace memlith::sqlite::shared
