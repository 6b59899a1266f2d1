#include "device/nvme.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/units.hpp"

namespace memlith::core {

namespace {

// Offsets in the structure of the controller.
constexpr std::size_t kTransferMax = 77;  // a power of two, of pages
constexpr std::size_t kOptionalCommands = 520;
constexpr std::uint16_t kHasWriteZeroes = 1 << 3;
constexpr std::size_t kVolatileCache = 525;
constexpr std::size_t kAtomicUnit = 528;  // AWUPF: blocks less one

// In the structure of the namespace.
constexpr std::size_t kBlocks = 0;
constexpr std::size_t kFeatures = 24;
constexpr std::uint8_t kHasOwnAtomicUnit = 1 << 1;
constexpr std::uint8_t kHasPreferredSizes = 1 << 4;
constexpr std::size_t kFormat = 26;
constexpr std::size_t kDeallocation = 33;
constexpr std::size_t kOwnAtomicUnit = 36;   // NAWUPF
constexpr std::size_t kAtomicBoundary = 44;  // NABSPF
constexpr std::size_t kPreferredWrite = 64;  // NPWG
constexpr std::size_t kFormats = 128;        // four bytes each

constexpr std::uint64_t kZeroesBlocksMax = 65536;
constexpr std::uint64_t kTransferBytesMax = 1 * kMiB;  // nothing is gained by more

template <class T>
T at(std::span<const std::byte> structure, std::size_t offset) {
  T value{};
  std::memcpy(&value, structure.data() + offset, sizeof value);
  return value;
}

struct Meaning {
  int status;  // type and code
  std::string_view text;
};
constexpr Meaning kMeanings[] = {
    {0x002, "a field of the command is not valid"},
    {0x004, "data transfer error"},
    {0x005, "aborted because the device is losing power"},
    {0x006, "internal error of the device"},
    {0x007, "aborted on request"},
    {0x00b, "the namespace does not exist any more"},
    {0x020, "the namespace is write-protected"},
    {0x080, "the blocks lie outside the namespace"},
    {0x081, "the device has no room for what it promised"},
    {0x082, "the namespace is not ready"},
    {0x083, "the blocks are reserved for another host"},
    {0x084, "the namespace is being formatted"},
    {0x182, "the blocks may only be read"},
    {0x280, "write fault of the medium"},
    {0x281, "the medium cannot be read"},
    {0x286, "access is denied"},
    {0x287, "the blocks were never written or were deallocated"},
    {0x370, "the controller cannot be reached"},
    {0x371, "aborted by the kernel, which reset the controller"},
};

std::string_view verb_of(NvmeOp op) {
  switch (op) {
    case NvmeOp::flush: return "the flush";
    case NvmeOp::write: return "the write";
    case NvmeOp::read: return "the read";
    case NvmeOp::write_zeroes: return "the writing of zeros";
  }
  return "the command";
}

Detail detail_of(NvmeOp op) {
  switch (op) {
    case NvmeOp::flush: return Detail::flush;
    case NvmeOp::read: return Detail::read;
    case NvmeOp::write: return Detail::write;
    case NvmeOp::write_zeroes: return Detail::resize;
  }
  return Detail::none;
}

}  // namespace

Result<NvmeFacts> read_nvme_identity(std::span<const std::byte> of_controller, std::span<const std::byte> name_space,
                                     const std::string& path) {
  MEMLITH_ASSERT(of_controller.size() >= kNvmeIdentifyBytes && name_space.size() >= kNvmeIdentifyBytes);
  const auto chosen = at<std::uint8_t>(name_space, kFormat);
  const std::size_t format = (chosen & 0xfU) | (chosen >> 1 & 0x30U);
  const auto metadata_bytes = at<std::uint16_t>(name_space, kFormats + 4 * format);
  const auto shift = at<std::uint8_t>(name_space, kFormats + 4 * format + 2);
  if (metadata_bytes != 0 || shift < 9 || shift > 12) {
    return fail(Errc::unsupported, Detail::open,
                "{}: the namespace has blocks of 2^{} bytes with {} bytes of metadata; format it (`nvme format`) with "
                "blocks of 512 or 4096 bytes and no metadata",
                path, shift, metadata_bytes);
  }
  NvmeFacts facts;
  facts.block_bytes = 1U << shift;
  facts.bytes = at<std::uint64_t>(name_space, kBlocks) << shift;
  const auto features = at<std::uint8_t>(name_space, kFeatures);
  std::uint64_t atomic_blocks = at<std::uint16_t>(of_controller, kAtomicUnit) + std::uint64_t{1};
  if ((features & kHasOwnAtomicUnit) != 0) {
    atomic_blocks = at<std::uint16_t>(name_space, kOwnAtomicUnit) + std::uint64_t{1};
    // A write that crosses such a boundary may be torn there, and ours do not keep to them.
    if (at<std::uint16_t>(name_space, kAtomicBoundary) != 0) atomic_blocks = 1;
  }
  facts.atomic_bytes = atomic_blocks << shift;
  const bool prefers = (features & kHasPreferredSizes) != 0;
  const std::uint64_t preferred_blocks =
      prefers ? at<std::uint16_t>(name_space, kPreferredWrite) + std::uint64_t{1} : 1;
  facts.physical_bytes = static_cast<std::uint32_t>(preferred_blocks << shift);
  const auto pages_shift = at<std::uint8_t>(of_controller, kTransferMax);
  const bool limited = pages_shift != 0 && pages_shift < 32;
  facts.transfer_bytes_max = limited ? std::min(kPageBytes << pages_shift, kTransferBytesMax) : kTransferBytesMax;
  const bool writes_zeroes = (at<std::uint16_t>(of_controller, kOptionalCommands) & kHasWriteZeroes) != 0;
  facts.zeroes_bytes_max = writes_zeroes ? kZeroesBlocksMax << shift : 0;
  facts.has_cache = (at<std::uint8_t>(of_controller, kVolatileCache) & 1U) != 0;
  const auto deallocation = at<std::uint8_t>(name_space, kDeallocation);
  facts.deallocates = (deallocation & 7U) == 1 && (deallocation >> 3 & 1U) != 0;
  return facts;
}

Status nvme_failure(const NvmeCommand& command, NvmeOutcome outcome, const std::string& path) {
  const Detail detail = detail_of(command.op);
  const std::string_view verb = verb_of(command.op);
  if (outcome > 0) {
    const int status = outcome & 0x7ff;
    const auto* const known = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                           [&](const Meaning& meaning) { return meaning.status == status; });
    return fail(Errc::io, detail, "{}: {} of {} bytes at offset {} failed: {} (NVMe status {:#05x})", path, verb,
                command.bytes, command.offset,
                known != std::end(kMeanings) ? known->text : "the device reports an error", status);
  }
  switch (-outcome) {
    case ENODEV:
    case ENXIO:
      return fail_errno(-outcome, detail,
                        "{}: {} failed: the namespace is gone; it was removed, or its controller has failed", path,
                        verb);
    case EINTR:
    case ECANCELED:
      return fail(Errc::io, detail,
                  "{}: {} of {} bytes at offset {} was cancelled, as when the controller is reset; whether it was done "
                  "is not known",
                  path, verb, command.bytes, command.offset);
    case EACCES:
    case EPERM:
      return fail_errno(-outcome, detail,
                        "{}: the kernel refuses {}; commands to a namespace take write permission for it, and before "
                        "Linux 6.2 the capability CAP_SYS_ADMIN",
                        path, verb);
    default:
      return fail_errno(-outcome, detail, "{}: {} of {} bytes at offset {} failed", path, verb, command.bytes,
                        command.offset);
  }
}

}  // namespace memlith::core
