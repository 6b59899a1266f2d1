// Records of the page log: what a page or the length of a file became. Floor: postgres.
//
// A record of a page holds the ranges of bytes that changed, or, for a page whose earlier content nothing vouches for,
// what is not zeros. Applying all records of a page in order to any mixture of its states since the first of them gives
// the last state: each byte that ever changed is in a record, and all others are the same in every state.
//
// A batch is what the log takes as one entry: a head, the names of its files, and records in the order in which the
// changes were made. Bytes of a batch that was read are checked before they are believed.
//
//   BatchHead | files x (FileHead, path) | records x (RecordHead, content)
//   content of a page's record: ranges x (begin, bytes: 2 bytes each; the bytes)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "names.hpp"

namespace memlith_postgres {

enum class RecordKind : std::uint16_t {
  change = 1,  // ranges replace bytes of the page
  whole = 2,   // the page is zeros but for the ranges; a shorter file grows
  length = 3,  // the file has `block` pages and no more
  longer = 4,  // the file has `block` pages at least; new ones are zeros
};

struct RecordHead {
  std::uint32_t file = 0;  // FileHead::number of the batch
  std::uint32_t block = 0;
  RecordKind kind{};
  std::uint16_t ranges = 0;
  std::uint32_t bytes = 0;  // of the content
};
static_assert(sizeof(RecordHead) == 16);

struct BatchHead {
  std::uint32_t magic = 0;
  std::uint32_t files = 0;
  std::uint32_t records = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(BatchHead) == 16);
inline constexpr std::uint32_t kBatchMagic = 0x4c504750;  // "PGPL"

struct FileHead {
  std::uint32_t number = 0;
  std::uint32_t path_bytes = 0;
};
static_assert(sizeof(FileHead) == 8);

// The most that the content of a record takes: ranges are at least 16 bytes apart.
inline constexpr std::size_t kContentBytesMax = kPageBytes + 4 * (kPageBytes / 16 + 1);

struct Encoded {
  std::uint16_t ranges = 0;
  std::uint32_t bytes = 0;
};
// Puts into `target`, of kContentBytesMax bytes, the ranges in which `page` differs from `base`, both of kPageBytes;
// from zeros, if `base` is null. Nothing if they take more than `limit` bytes.
std::optional<Encoded> encode(std::byte* target, const std::byte* base, const std::byte* page, std::size_t limit);

// The parts of a batch, in order. A view: the bytes outlive it.
class BatchReader {
 public:
  struct Record {
    RecordHead head;
    std::string_view path;
    std::string_view content;
  };
  // Nothing if the bytes are no batch.
  static std::optional<BatchReader> open(std::string_view bytes);
  [[nodiscard]] std::uint32_t records() const { return records_; }
  // The next record. Nothing if the bytes are damaged; call it records() times.
  std::optional<Record> next();
  // True if nothing is left, after the last record.
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  std::uint32_t records_ = 0;
  std::map<std::uint32_t, std::string_view> paths_;
};

// Brings the content of a record into the page. False if a range lies outside of it.
bool apply(const RecordHead& head, std::string_view content, std::byte* page);

}  // namespace memlith_postgres
