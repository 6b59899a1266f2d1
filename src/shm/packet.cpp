#include "shm/packet.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"

namespace memlith::core::shm {

namespace {

union Room {
  cmsghdr header;
  std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> bytes{};
};

void take(msghdr& message, std::span<Descriptor> wanted) {
  std::size_t place = 0;
  for (const cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(each))) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kDescriptorsMax> sent{};
    const std::size_t bytes = std::min(each->cmsg_len - CMSG_LEN(0), sizeof sent);
    std::memcpy(sent.data(), CMSG_DATA(each), bytes);
    for (std::size_t i = 0; i < bytes / sizeof(int); ++i) {
      Descriptor one(above_standard(sent[i]));
      if (place < wanted.size()) wanted[place++] = std::move(one);
    }
  }
}

}  // namespace

bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors, bool waits) {
  MEMLITH_ASSERT(descriptors.size() <= kDescriptorsMax);
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  Room room;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = room.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  const int flags = MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT);
  return uninterrupted([&] { return ::sendmsg(socket, &message, flags); }) == static_cast<ssize_t>(bytes.size());
}

ssize_t receive_packet(int socket, std::span<std::byte> room, std::span<Descriptor> descriptors, bool waits) {
  iovec piece{room.data(), room.size()};
  Room control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const int flags = MSG_CMSG_CLOEXEC | MSG_TRUNC | (waits ? 0 : MSG_DONTWAIT);
  const ssize_t got = uninterrupted([&] { return ::recvmsg(socket, &message, flags); });
  if (got > 0) take(message, descriptors);
  return got;
}

}  // namespace memlith::core::shm
