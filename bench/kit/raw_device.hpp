// The baseline of every comparison: the least that a durable write of so many bytes can cost through the kernel.
//
// It is as strict as we know how to make it. The file is preallocated and written once, so that a flush moves no
// file-system metadata. Writes bypass the page cache. The source lies in huge pages, because a virtio disk cuts a
// transfer out of 4 KiB pages into one segment a page. Nothing is copied, checksummed or locked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/failure.hpp"

namespace memlith::tool {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

inline constexpr std::uint64_t kRawFileBytes = 64 * kMiB;  // of the file that is written, at least

// `unit` > 0.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Memory aligned to 2 MiB, in huge pages where the kernel has them.
class HugeBuffer {
 public:
  // At least `bytes` of random content: what a disk might compress or drop as zeros would not be a baseline.
  static Result<HugeBuffer> random(std::uint64_t bytes);
  static Result<HugeBuffer> zeros(std::uint64_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&&) = delete;
  ~HugeBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  static Result<HugeBuffer> allocate(std::uint64_t bytes);
  HugeBuffer(void* mapping, std::uint64_t mapping_bytes, std::uint64_t bytes);
  void* mapping_;
  std::uint64_t mapping_bytes_;
  std::byte* data_;
  std::uint64_t bytes_;
};

// A preallocated file of zeros, open for direct I/O where the file system has it.
class RawFile {
 public:
  // Creates `path`, which must not exist, writes it whole and flushes it. `bytes` is rounded up to 1 MiB.
  static Result<RawFile> create(const std::string& path, std::uint64_t bytes);
  RawFile(RawFile&& other) noexcept;
  RawFile& operator=(RawFile&&) = delete;
  ~RawFile();

  // Writes all of `source`, whose address, length and offset are multiples of alignment(). Not durable by itself.
  [[nodiscard]] MaybeFailure write(std::uint64_t offset, std::span<const std::byte> source) const;
  // Fills all of `target`, under the same conditions.
  [[nodiscard]] MaybeFailure read(std::uint64_t offset, std::span<std::byte> target) const;
  // On success everything written before survives power loss.
  [[nodiscard]] MaybeFailure flush() const;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }
  [[nodiscard]] bool direct() const { return direct_; }

 private:
  RawFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  [[nodiscard]] MaybeFailure choose_alignment(std::span<const std::byte> zeros);
  [[nodiscard]] MaybeFailure leave_direct_io();
  [[nodiscard]] MaybeFailure preallocate(std::span<const std::byte> zeros);

  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
  std::uint64_t alignment_ = 512;
  bool direct_ = true;
};

// Rounds of write + flush, at offsets that advance through a file and wrap round. One thread.
class RawWriter {
 public:
  // For rounds of up to `round_bytes_max`. The file has at least `file_bytes`, and room for four such rounds.
  static Result<RawWriter> create(const std::string& path, std::uint64_t file_bytes, std::uint64_t round_bytes_max);

  // From now on a round writes `bytes`, rounded up to what direct I/O takes.
  void set_round_bytes(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t round_bytes() const { return round_bytes_; }
  [[nodiscard]] const RawFile& file() const { return file_; }

  // One write and one flush. The time is that of both.
  [[nodiscard]] MaybeFailure round(std::uint64_t& elapsed_ns);
  // The same for a caller's buffer of round_bytes(), aligned like the file.
  [[nodiscard]] MaybeFailure write(std::span<const std::byte> source);

 private:
  RawWriter(RawFile file, HugeBuffer source) : file_(std::move(file)), source_(std::move(source)) {}

  RawFile file_;
  HugeBuffer source_;
  std::uint64_t round_bytes_ = 0;
  std::uint64_t offset_ = 0;
};

// Writes `bytes`, rounded up to the alignment, from the start of the file, 1 MiB a write, with one flush at the end.
[[nodiscard]] MaybeFailure write_sequentially(const RawFile& file, const HugeBuffer& source, std::uint64_t bytes,
                                              std::uint64_t& elapsed_ns);
// Reads as much, 1 MiB a read.
[[nodiscard]] MaybeFailure read_sequentially(const RawFile& file, const HugeBuffer& target, std::uint64_t bytes,
                                             std::uint64_t& elapsed_ns);
inline constexpr std::uint64_t kSequentialBytes = kMiB;  // a transfer, and the least the buffer must hold

}  // namespace memlith::tool
