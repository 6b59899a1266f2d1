#include "shared/channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "shm/packet.hpp"

namespace memlith::core::shared {

namespace {

constexpr int kBacklog = 256;

Descriptor make_socket(int flags) {
  return Descriptor(above_standard(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)));
}

sockaddr_un address_of(int folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  fmt::format_to_n(address.sun_path, sizeof address.sun_path - 1, "/proc/self/fd/{}/{}", folder, kSocketName);
  return address;
}

const sockaddr* plain(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

void Answer::set(Status status) {
  category = static_cast<std::uint8_t>(status.category);
  detail = static_cast<std::uint8_t>(status.detail);
  os_errno = status.os_errno;
  if (status.ok()) return;
  const std::string_view said = last_error_text();
  text_bytes = static_cast<std::uint16_t>(said.copy(text.data(), text.size()));
  MEMLITH_ASSERT(text_bytes <= text.size() && category != 0);
}

Status Answer::status() const {
  if (category == 0) return kOk;
  set_error_text({text.data(), std::min<std::size_t>(text_bytes, text.size())});
  return Status{static_cast<Errc>(category), static_cast<Detail>(detail), 0, os_errno};
}

Result<Meeting> Meeting::at(const std::string& folder) {
  Descriptor descriptor(above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (descriptor.get() >= 0) return Meeting(folder, std::move(descriptor));
  if (errno == ENOTDIR) {
    return fail(Errc::unsupported, Detail::open, "{}: shared regions need a store that is a folder", folder);
  }
  return fail_errno(errno, Detail::open, "{}: cannot open the folder of the store", folder);
}

Result<Descriptor> Meeting::connect() const {
  MEMLITH_ASSERT(descriptor_.get() >= 0);
  Descriptor socket = make_socket(0);
  if (socket.get() < 0) return fail_errno(errno, Detail::open, "cannot make a socket");
  const sockaddr_un address = address_of(descriptor_.get());
  if (shm::uninterrupted([&] { return ::connect(socket.get(), plain(address), sizeof address); }) == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return fail(Errc::not_found, Detail::open, "{}: no keeper listens", folder_);
  }
  return fail_errno(errno, Detail::open, "{}/{}: cannot connect to the keeper", folder_, kSocketName);
}

Result<Descriptor> Meeting::listen() const {
  MEMLITH_ASSERT(descriptor_.get() >= 0);
  Descriptor socket = make_socket(SOCK_NONBLOCK);
  if (socket.get() < 0) return fail_errno(errno, Detail::open, "cannot make a socket");
  remove();  // what a keeper that was killed has left
  const sockaddr_un address = address_of(descriptor_.get());
  if (::bind(socket.get(), plain(address), sizeof address) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return fail_errno(errno, Detail::open, "{}/{}: cannot listen there", folder_, kSocketName);
  }
  return socket;
}

void Meeting::remove() const { ::unlinkat(descriptor_.get(), kSocketName, 0); }

Result<bool> Meeting::lock() const {
  MEMLITH_ASSERT(descriptor_.get() >= 0);
  if (shm::uninterrupted([&] { return ::flock(descriptor_.get(), LOCK_EX | LOCK_NB); }) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return fail_errno(errno, Detail::lock, "{}: cannot lock the folder", folder_);
}

// Shared, so that two that look at once do not see each other.
Result<bool> Meeting::is_locked() const {
  if (shm::uninterrupted([&] { return ::flock(descriptor_.get(), LOCK_SH | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK) return true;
    return fail_errno(errno, Detail::lock, "{}: cannot lock the folder", folder_);
  }
  ::flock(descriptor_.get(), LOCK_UN);
  return false;
}

bool send_request(int socket, const Request& request, int life, std::string_view payload) {
  MEMLITH_ASSERT(payload.size() <= kPieceBytes);
  const std::span<const int> descriptors(&life, life >= 0 ? 1 : 0);
  const std::span<const std::byte> head = std::as_bytes(std::span(&request, 1));
  if (payload.empty()) return shm::send_packet(socket, head, descriptors, true);
  std::vector<std::byte> packet(head.begin(), head.end());
  const auto* const rest = reinterpret_cast<const std::byte*>(payload.data());
  packet.insert(packet.end(), rest, rest + payload.size());
  return shm::send_packet(socket, packet, descriptors, true);
}

bool send_answer(int socket, const Answer& answer, std::span<const int> memories) {
  MEMLITH_ASSERT(answer.text_bytes <= answer.text.size());  // no byte behind the answer is sent
  const std::size_t bytes = offsetof(Answer, text) + answer.text_bytes;
  return shm::send_packet(socket, std::as_bytes(std::span(&answer, 1)).first(bytes), memories, false);
}

Received receive_request(int socket, Request& request, std::string& payload, Descriptor& life) {
  std::array<std::byte, sizeof(Request) + kPieceBytes> packet;
  const ssize_t got = shm::receive_packet(socket, packet, {&life, 1}, false);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::nothing_yet;
  if (got < static_cast<ssize_t>(sizeof request.protocol)) return Received::end;
  const auto bytes = static_cast<std::size_t>(got);
  std::memcpy(&request, packet.data(), std::min(bytes, sizeof request));
  // From another protocol only its number is known.
  if (request.protocol != kProtocol) return Received::message;
  if (bytes < sizeof request || bytes > packet.size()) return Received::end;
  payload.append(reinterpret_cast<const char*>(packet.data()) + sizeof request, bytes - sizeof request);
  return Received::message;
}

bool receive_answer(int socket, Answer& answer, Memories* memories) {
  std::array<Descriptor, 2> sent;
  const ssize_t got = shm::receive_packet(socket, std::as_writable_bytes(std::span(&answer, 1)), sent, true);
  if (memories != nullptr) *memories = {std::move(sent[0]), std::move(sent[1])};
  return got >= static_cast<ssize_t>(offsetof(Answer, text));
}

}  // namespace memlith::core::shared
