// Packets between processes, with descriptors, over a unix socket (SOCK_SEQPACKET). Floor: shm.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "base/descriptor.hpp"

namespace memlith::core::shm {

inline constexpr std::size_t kDescriptorsMax = 4;  // of a packet

// Sends the bytes as one packet. False: the other side has ended or, if this call does not wait, takes no packets.
bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors, bool waits);
// Receives one packet, with the descriptors that came with it: as many as are wanted, in order; others are closed.
// Returns its size, which may be more than there was room for; 0 - the other side has ended; -1 - errno (EAGAIN: none
// is there, and this call does not wait).
ssize_t receive_packet(int socket, std::span<std::byte> room, std::span<Descriptor> descriptors, bool waits);

// Calls until the call is not interrupted by a signal.
template <class Call>
ssize_t uninterrupted(Call call) {
  for (;;) {
    const ssize_t result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace memlith::core::shm
