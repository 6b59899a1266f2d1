#include "archive/pack.hpp"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

namespace {

constexpr int kLevel = 1;  // the archiver shares the machine with the writer

std::uint64_t chunk_checksum(const ChunkHeader& chunk, std::span<const std::byte> stored, std::uint64_t seed) {
  StreamingChecksum sum;
  sum.reset(seed);
  sum.update(std::as_bytes(std::span(&chunk, 1)).first(offsetof(ChunkHeader, checksum)));
  sum.update(stored);
  return sum.digest();
}

std::string pack_name(std::uint32_t kind, std::uint64_t number) {
  return kind == kPackFull ? full_name(number) : segment_name(number);
}

}  // namespace

std::string segment_name(std::uint64_t number) { return fmt::format("segment-{:012}", number); }
std::string full_name(std::uint64_t number) { return fmt::format("full-{:06}", number); }

struct PackWriter::Compressor {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<std::byte> stored = std::vector<std::byte>(ZSTD_compressBound(kChunkBytesMax));
  Compressor() = default;
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ~Compressor() { (void)ZSTD_freeCCtx(context); }
};

PackWriter::PackWriter(const PackHeader& header) : header_(header) {}
PackWriter::~PackWriter() = default;

Result<std::unique_ptr<PackWriter>> PackWriter::begin(ArchiveTarget& target, PackHeader header) {
  MEMLITH_ASSERT(header.archive_id != 0 && header.log_id != 0 && header.number != 0 && header.run != 0);
  MEMLITH_ASSERT(header.kind == kPackFull || (header.kind == kPackSegment && header.begin_lsn < header.end_lsn));
  header.magic = kPackMagic;
  header.version = kPackVersion;
  header.checksum = header_checksum(header, header.archive_id);
  auto writer = std::unique_ptr<PackWriter>(new PackWriter(header));
  writer->compressor_ = std::make_unique<Compressor>();
  if (writer->compressor_->context == nullptr) {
    return fail(Errc::no_memory, Detail::none, "no memory to compress the archive");
  }
  writer->content_.reserve(kChunkBytesMax);
  MEMLITH_TRY_ASSIGN(writer->sink_, target.put(pack_name(header.kind, header.number)));
  MEMLITH_TRY(writer->sink_->write(std::as_bytes(std::span(&writer->header_, 1))));
  writer->stored_bytes_ = sizeof header;
  return writer;
}

Status PackWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), kChunkBytesMax - content_.size());
    MEMLITH_ASSERT(count > 0 && content_.size() + count <= kChunkBytesMax);
    content_.insert(content_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (content_.size() == kChunkBytesMax) MEMLITH_TRY(put_chunk());
  }
  return kOk;
}

Status PackWriter::put_chunk() {
  std::span<const std::byte> stored = content_;
  const std::size_t packed = ZSTD_compressCCtx(compressor_->context, compressor_->stored.data(),
                                               compressor_->stored.size(), content_.data(), content_.size(), kLevel);
  if (ZSTD_isError(packed) == 0 && packed < content_.size()) stored = std::span(compressor_->stored).first(packed);
  MEMLITH_ASSERT(stored.size() <= content_.size());
  ChunkHeader chunk{kChunkMagic, index_++, static_cast<std::uint32_t>(content_.size()),
                    static_cast<std::uint32_t>(stored.size()), 0};
  chunk.checksum = chunk_checksum(chunk, stored, header_.checksum);
  MEMLITH_TRY(sink_->write(std::as_bytes(std::span(&chunk, 1))));
  if (!stored.empty()) MEMLITH_TRY(sink_->write(stored));
  stored_bytes_ += sizeof chunk + stored.size();
  MEMLITH_ASSERT(stored_bytes_ > sizeof(PackHeader));
  content_.clear();
  return kOk;
}

Status PackWriter::finish() {
  if (!content_.empty()) MEMLITH_TRY(put_chunk());
  MEMLITH_ASSERT(index_ > 0);  // no pack is empty
  MEMLITH_TRY(put_chunk());    // the end
  return sink_->finish();
}

// ---- reading ---------------------------------------------------------------------------------------------------

Status PackReader::damaged(const char* how) const {
  return fail(Errc::corrupt, Detail::read, "{}: this part of the archive is damaged at byte {}: {}", path_, at_, how);
}

Result<std::unique_ptr<PackReader>> PackReader::open(ArchiveTarget& target, std::uint32_t kind,
                                                     std::uint64_t archive_id, std::uint64_t number) {
  auto reader = std::unique_ptr<PackReader>(new PackReader());
  const std::string name = pack_name(kind, number);
  reader->path_ = target.path_of(name);
  MEMLITH_TRY_ASSIGN(reader->stream_, target.get(name));
  PackHeader& header = reader->header_;
  MEMLITH_TRY(reader->fill(std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kPackMagic) return reader->damaged("it is not a part of an archive");
  if (header.version != kPackVersion) {
    return fail(Errc::incompatible, Detail::version, "{}: written in version {}; this memlith reads version {}",
                reader->path_, header.version, kPackVersion);
  }
  if (header.archive_id != archive_id) return reader->damaged("it is part of another archive");
  if (header.checksum != header_checksum(header, archive_id)) return reader->damaged("its header has a wrong checksum");
  if (header.kind != kind || header.number != number) return reader->damaged("it is another part of this archive");
  return reader;
}

Status PackReader::fill(std::span<std::byte> target) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t count, stream_->read(target));
  MEMLITH_ASSERT(count <= target.size());
  at_ += count;
  return count == target.size() ? kOk : damaged("it ends there; it was cut short");
}

Result<std::span<const std::byte>> PackReader::next() {
  content_.clear();
  rest_ = {};
  if (ended_) return rest_;
  ChunkHeader chunk;
  MEMLITH_TRY(fill(std::as_writable_bytes(std::span(&chunk, 1))));
  if (chunk.magic != kChunkMagic || chunk.index != index_ || chunk.bytes > kChunkBytesMax ||
      chunk.stored_bytes > chunk.bytes) {
    return damaged("no chunk starts there");
  }
  stored_.resize(chunk.stored_bytes);
  MEMLITH_TRY(fill(stored_));
  if (chunk.checksum != chunk_checksum(chunk, stored_, header_.checksum)) return damaged("a checksum is wrong");
  ++index_;
  if (chunk.bytes == 0) {
    ended_ = true;
    return rest_;
  }
  content_.resize(chunk.bytes);
  if (chunk.stored_bytes == chunk.bytes) {
    content_.swap(stored_);
  } else if (ZSTD_decompress(content_.data(), content_.size(), stored_.data(), stored_.size()) != content_.size()) {
    return damaged("it cannot be decompressed");
  }
  MEMLITH_ASSERT(content_.size() == chunk.bytes);
  rest_ = content_;
  return rest_;
}

Status PackReader::read(std::span<std::byte> target) {
  while (!target.empty()) {
    if (rest_.empty()) {
      MEMLITH_TRY_ASSIGN(const std::span<const std::byte> more, next());
      if (more.empty()) return damaged("its content ends there");
    }
    MEMLITH_ASSERT(!rest_.empty() && rest_.size() <= content_.size());
    const std::size_t count = std::min(target.size(), rest_.size());
    std::memcpy(target.data(), rest_.data(), count);
    target = target.subspan(count);
    rest_ = rest_.subspan(count);
  }
  return kOk;
}

Status PackReader::finish() {
  const bool read_all = rest_.empty();
  MEMLITH_TRY_ASSIGN(const std::span<const std::byte> more, next());
  return read_all && more.empty() ? kOk : damaged("its content goes on behind its end");
}

}  // namespace memlith::core
