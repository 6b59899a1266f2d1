// Messages between clients and the keeper of a store, over a unix socket in the store's folder. Floor: shared.
//
// Client and keeper may be of different builds, so a message begins with the protocol's number. Each message is one
// packet (SOCK_SEQPACKET). A socket that ends is how each side learns of the other's death.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace memlith::core::shared {

inline constexpr std::uint32_t kProtocol = 3;
inline constexpr std::size_t kRegionNameBytes = 200;
inline constexpr const char* kSocketName = "keeper.sock";

enum class Ask : std::uint32_t {
  open = 1,      // the first request of a connection: name, bytes, address, flags; with the life of the process
  commit = 2,    // tx, waits
  wait = 3,      // ticket
  piece = 4,     // of a payload that is too long for one packet: the next request of the client has the rest. No answer
  service = 16,  // from here on the requests of a Service; the first opens what it keeps, like `open`
};
inline constexpr std::size_t kPieceBytes = 64 * 1024;  // of a payload, in one packet

struct Request {
  std::uint32_t protocol = kProtocol;
  Ask ask = Ask::open;
  std::uint64_t number = 0;  // the answer has the same
  std::uint64_t tx = 0;
  std::uint64_t ticket = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;
  std::uint32_t creates = 0;
  std::uint32_t waits = 0;  // the answer comes when the commit is durable
  std::array<char, kRegionNameBytes> name{};
};
static_assert(std::is_trivially_copyable_v<Request>);

struct Answer {
  std::uint32_t protocol = kProtocol;
  std::uint32_t client = 0;
  std::uint64_t number = 0;
  std::uint64_t ticket = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint8_t category = 0;  // Errc, Detail
  std::uint8_t detail = 0;
  std::uint16_t text_bytes = 0;
  std::int32_t os_errno = 0;
  std::array<char, kErrorTextBytes> text{};

  void set(Status status);  // with last_error_text()
  // Sets the message of the calling thread.
  [[nodiscard]] Status status() const;
  // An answer without a failure may tell this beside its numbers.
  template <class T>
  void set_data(const T& data) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof data <= kErrorTextBytes);
    std::memcpy(text.data(), &data, sizeof data);
    text_bytes = sizeof data;
  }
  template <class T>
  [[nodiscard]] T data() const {
    T data{};
    if (category == 0 && text_bytes == sizeof data) std::memcpy(&data, text.data(), sizeof data);
    return data;
  }
};
static_assert(std::is_trivially_copyable_v<Answer>);

// The two memories that an answer to `open` carries: of a region, its bytes and its control segment.
struct Memories {
  Descriptor region;
  Descriptor control;
};

// A folder that is open, and where its socket lies. A path to a socket has at most 107 bytes, so it leads through the
// open folder.
class Meeting {
 public:
  static Result<Meeting> at(const std::string& folder);

  // `not_found`: no keeper listens.
  [[nodiscard]] Result<Descriptor> connect() const;
  [[nodiscard]] Result<Descriptor> listen() const;
  void remove() const;
  // Keepers exclude each other by this lock, from before they open the store until they have closed it. False: one
  // lives, begins or ends. The lock goes with the object.
  [[nodiscard]] Result<bool> lock() const;
  // True if a keeper has the lock.
  [[nodiscard]] Result<bool> is_locked() const;

 private:
  Meeting(std::string folder, Descriptor descriptor) : folder_(std::move(folder)), descriptor_(std::move(descriptor)) {}

  std::string folder_;
  Descriptor descriptor_;
};

// False: the other side has ended. `life`: life_of_this_process(), or negative for none. `payload`: kPieceBytes at
// most.
bool send_request(int socket, const Request& request, int life = -1, std::string_view payload = {});
bool send_answer(int socket, const Answer& answer, std::span<const int> memories = {});
enum class Received { message, nothing_yet, end };
// Does not wait. `life` is set if the request brings one; the payload is appended.
Received receive_request(int socket, Request& request, std::string& payload, Descriptor& life);
// Waits. `memories` may be null. False: the other side has ended, or is no keeper.
bool receive_answer(int socket, Answer& answer, Memories* memories);

}  // namespace memlith::core::shared
