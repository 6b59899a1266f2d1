// Structures of the kernel for NVMe passthrough (Linux 5.19; registered buffers: 6.1). Older headers lack parts of it,
// which are defined here and nowhere else; whether the kernel has it is asked at run time. Floor: device.
#pragma once

#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

#ifndef NVME_IOCTL_IO64_CMD_VEC
#define NVME_IOCTL_IO64_CMD_VEC _IOWR('N', 0x49, struct nvme_passthru_cmd64)
#endif

#ifndef NVME_URING_CMD_IO
struct nvme_uring_cmd {
  __u8 opcode;
  __u8 flags;
  __u16 rsvd1;
  __u32 nsid;
  __u32 cdw2;
  __u32 cdw3;
  __u64 metadata;
  __u64 addr;
  __u32 metadata_len;
  __u32 data_len;
  __u32 cdw10;
  __u32 cdw11;
  __u32 cdw12;
  __u32 cdw13;
  __u32 cdw14;
  __u32 cdw15;
  __u32 timeout_ms;
  __u32 rsvd2;
};
#define NVME_URING_CMD_IO _IOWR('N', 0x80, struct nvme_uring_cmd)
#define NVME_URING_CMD_IO_VEC _IOWR('N', 0x81, struct nvme_uring_cmd)
#endif

#ifndef IORING_SETUP_SQE128
#define IORING_SETUP_SQE128 (1U << 10)
#define IORING_SETUP_CQE32 (1U << 11)
#endif

#ifndef IORING_URING_CMD_FIXED
#define IORING_URING_CMD_FIXED (1U << 0)
#endif

namespace memlith::core {

inline constexpr std::uint8_t kUringCommandOp = 46;  // IORING_OP_URING_CMD
// In an entry of 128 bytes: where the command of the driver begins. io_uring_sqe::off has the number of the call, and
// io_uring_sqe::rw_flags the flags.
inline constexpr std::size_t kUringCommandAt = 48;
inline constexpr std::size_t kUringEntryBytes = 128;
static_assert(kUringCommandAt + sizeof(nvme_uring_cmd) <= kUringEntryBytes);

}  // namespace memlith::core
