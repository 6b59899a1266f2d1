// Packs: the objects of an archive that hold the log's frames and full copies. Floor: archive.
//
// Bytes of an archive are input: a pack that is cut, changed, of another archive or in another's place is CORRUPT, and
// the message names it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "archive/format.hpp"
#include "archive/target.hpp"
#include "base/status.hpp"

namespace memlith::core {

std::string segment_name(std::uint64_t number);
std::string full_name(std::uint64_t number);

class PackWriter {
 public:
  // Completes `header`, and puts it.
  static Result<std::unique_ptr<PackWriter>> begin(ArchiveTarget& target, PackHeader header);
  ~PackWriter();
  Status write(std::span<const std::byte> bytes);
  // The pack is in the target, as ArchiveSink::finish() says.
  Status finish();
  [[nodiscard]] std::uint64_t stored_bytes() const { return stored_bytes_; }

 private:
  explicit PackWriter(const PackHeader& header);
  Status put_chunk();

  struct Compressor;
  const PackHeader header_;
  std::unique_ptr<ArchiveSink> sink_;
  std::unique_ptr<Compressor> compressor_;
  std::vector<std::byte> content_;
  std::uint32_t index_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

class PackReader {
 public:
  // Errors: not_found, corrupt, io. `kind` and `number`: the pack that is expected under the name.
  static Result<std::unique_ptr<PackReader>> open(ArchiveTarget& target, std::uint32_t kind, std::uint64_t archive_id,
                                                  std::uint64_t number);
  [[nodiscard]] const PackHeader& header() const { return header_; }
  // The content of the next chunk, until the next call; empty at the end of the pack.
  Result<std::span<const std::byte>> next();
  // Fills the target with content, from wherever the last call ended; `corrupt` if there is less.
  Status read(std::span<std::byte> target);
  // Everything was read, and the pack is whole.
  Status finish();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  PackReader() = default;
  Status damaged(const char* how) const;
  Status fill(std::span<std::byte> target);

  std::string path_;
  PackHeader header_{};
  std::unique_ptr<ArchiveStream> stream_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> content_;
  std::span<const std::byte> rest_;  // of the content, for read()
  std::uint32_t index_ = 0;
  std::uint64_t at_ = 0;  // in the object
  bool ended_ = false;
};

}  // namespace memlith::core
