#include "bare_capture.hpp"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cli/clock.hpp"

namespace memlith::tool {

BareCapture::BareCapture(RawWriter& writer, std::unique_ptr<std::byte[]> memory, std::uint64_t region_bytes,
                         HugeBuffer buffers, const RoundShape& shape, std::uint64_t seed)
    : writer_(&writer),
      memory_(std::move(memory)),
      base_(reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(memory_.get()), kPageBytes))),
      buffers_(std::move(buffers)),
      shape_(shape),
      random_(seed),
      pages_(region_bytes / kPageBytes),
      changed_(shape.pages),
      source_(2 * kPageBytes) {
  (void)::madvise(base_, region_bytes, MADV_NOHUGEPAGE);  // before the first touch, which is what allocates
  std::memset(base_, 1, region_bytes);
  random_.fill(source_);
}

Result<BareCapture> BareCapture::create(RawWriter& writer, std::uint64_t region_mib, const RoundShape& shape,
                                        std::uint64_t seed) {
  const std::uint64_t region_bytes = region_mib * kMiB;
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[region_bytes + kPageBytes]);
  if (memory == nullptr) return errno_failure(ENOMEM, fmt::format("no memory for {} MiB to capture from", region_mib));
  Result<HugeBuffer> buffers = HugeBuffer::zeros(kBuffers * writer.round_bytes());
  if (!buffers.ok()) return std::move(buffers.failure());
  return BareCapture(writer, std::move(memory), region_bytes, std::move(*buffers), shape, seed);
}

MaybeFailure BareCapture::round(std::uint64_t& elapsed_ns) {
  const std::uint64_t bytes = shape_.bytes_per_page;
  std::size_t next = 0;
  for (const std::uint64_t page : pages_.choose(random_, shape_.pages)) {
    changed_[next++] = base_ + page * kPageBytes;
    std::memcpy(changed_[next - 1], source_.data() + random_.below(kPageBytes / 8) * 8, bytes);
  }
  std::byte* const copy = buffers_.data() + rounds_++ % kBuffers * writer_->round_bytes();

  const std::uint64_t start = now_ns();
  std::sort(changed_.begin(), changed_.end());
  for (std::size_t i = 0; i < changed_.size(); ++i) std::memcpy(copy + i * bytes, changed_[i], bytes);
  const std::uint64_t checksum = XXH3_64bits(copy, shape_.bytes());
  if (MaybeFailure failure = writer_->write({copy, writer_->round_bytes()})) return failure;
  elapsed_ns = now_ns() - start;
  source_[random_.below(kPageBytes)] = static_cast<std::byte>(checksum);  // used, or a compiler may leave it out
  return {};
}

}  // namespace memlith::tool
