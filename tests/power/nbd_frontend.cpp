// The NBD protocol's fixed newstyle handshake and its simple replies, as far as QEMU's client needs them.
#include <linux/nbd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "power/frontend.hpp"

namespace memlith::power {

namespace {

static_assert(std::endian::native == std::endian::little);  // the protocol is big-endian
constexpr std::uint16_t big(std::uint16_t value) { return __builtin_bswap16(value); }
constexpr std::uint32_t big(std::uint32_t value) { return __builtin_bswap32(value); }
constexpr std::uint64_t big(std::uint64_t value) { return __builtin_bswap64(value); }

constexpr std::uint64_t kGreeting = 0x4e42444d41474943;     // "NBDMAGIC"
constexpr std::uint64_t kOptionMagic = 0x49484156454f5054;  // "IHAVEOPT"
constexpr std::uint64_t kOptionReplyMagic = 0x3e889045565a9;
constexpr std::uint16_t kFixedNewstyle = 1, kNoZeroes = 2;
constexpr std::uint32_t kOptExportName = 1, kOptAbort = 2, kOptInfo = 6, kOptGo = 7;
constexpr std::uint32_t kReplyAck = 1, kReplyInfo = 3, kReplyUnsupported = 0x80000001;
constexpr std::uint16_t kInfoExport = 0;
constexpr std::uint16_t kExportFlags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA;
constexpr std::uint32_t kCommandFua = 1u << 16;
constexpr std::uint32_t kTransferBytesMax = 64u << 20;

struct [[gnu::packed]] OptionReply {
  std::uint64_t magic = big(kOptionReplyMagic);
  std::uint32_t option = 0;
  std::uint32_t type = 0;
  std::uint32_t length = 0;
};
struct [[gnu::packed]] ExportInfo {
  std::uint16_t type = big(kInfoExport);
  std::uint64_t size = 0;
  std::uint16_t flags = big(kExportFlags);
};
struct [[gnu::packed]] Request {
  std::uint32_t magic;
  std::uint32_t command;  // flags above, type below
  std::uint64_t cookie;
  std::uint64_t offset;
  std::uint32_t bytes;
};
struct [[gnu::packed]] Reply {
  std::uint32_t magic = big(std::uint32_t{NBD_REPLY_MAGIC});
  std::uint32_t error = 0;
  std::uint64_t cookie = 0;
};

class NbdFrontend final : public Frontend {
 public:
  NbdFrontend(PoweredDisk& disk, int listener) : disk_(disk), listener_(listener) {}
  ~NbdFrontend() override {
    drop();
    ::close(listener_);
  }

  [[nodiscard]] int descriptor() const override { return client_ >= 0 ? client_ : listener_; }

  bool serve() override {
    if (client_ < 0) {
      client_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client_ >= 0 && !greet()) drop();
    } else if (!serve_request()) {
      drop();
    }
    return true;  // another client may come
  }

 private:
  void drop() {
    if (client_ >= 0) ::close(client_);
    client_ = -1;
  }

  bool receive(void* target, std::size_t bytes) const {
    auto* at = static_cast<std::byte*>(target);
    while (bytes > 0) {
      const ssize_t got = ::recv(client_, at, bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }
  bool send(const void* source, std::size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(source);
    while (bytes > 0) {
      const ssize_t done = ::send(client_, at, bytes, MSG_NOSIGNAL);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
    return true;
  }
  template <class T>
  bool receive(T& target) const {
    return receive(&target, sizeof target);
  }
  template <class T>
  bool send(const T& source) const {
    return send(&source, sizeof source);
  }

  [[nodiscard]] bool reply(std::uint32_t option, std::uint32_t type, std::span<const std::byte> payload = {}) const {
    OptionReply head;
    head.option = big(option);
    head.type = big(type);
    head.length = big(static_cast<std::uint32_t>(payload.size()));
    return send(head) && send(payload.data(), payload.size());
  }

  // Everything up to the first request. False: the client went, or talks something else.
  bool greet() {
    struct [[gnu::packed]] {
      std::uint64_t greeting = big(kGreeting);
      std::uint64_t option_magic = big(kOptionMagic);
      std::uint16_t flags = big(static_cast<std::uint16_t>(kFixedNewstyle | kNoZeroes));
    } const hello;
    std::uint32_t client_flags = 0;
    if (!send(hello) || !receive(client_flags)) return false;
    const bool zeroes = (big(client_flags) & kNoZeroes) == 0;
    ExportInfo info;
    info.size = big(disk_.disk().size());
    for (;;) {
      struct [[gnu::packed]] {
        std::uint64_t magic;
        std::uint32_t option;
        std::uint32_t length;
      } head{};
      if (!receive(head) || big(head.magic) != kOptionMagic || big(head.length) > 4096) return false;
      std::vector<std::byte> payload(big(head.length));
      if (!receive(payload.data(), payload.size())) return false;
      const std::uint32_t option = big(head.option);
      if (option == kOptExportName) {
        // The old way in: no reply header.
        const std::vector<std::byte> padding(zeroes ? 124 : 0);
        return send(info.size) && send(info.flags) && send(padding.data(), padding.size());
      }
      if (option == kOptGo || option == kOptInfo) {
        if (!reply(option, kReplyInfo, std::as_bytes(std::span(&info, 1))) || !reply(option, kReplyAck)) return false;
        if (option == kOptGo) return true;
      } else if (option == kOptAbort) {
        (void)reply(option, kReplyAck);
        return false;
      } else if (!reply(option, kReplyUnsupported)) {
        return false;
      }
    }
  }

  // False: the client has gone or asked to go.
  bool serve_request() {
    Request request{};
    if (!receive(request) || big(request.magic) != NBD_REQUEST_MAGIC) return false;
    const std::uint32_t type = big(request.command) & 0xffff;
    const std::uint64_t offset = big(request.offset);
    const std::uint32_t bytes = big(request.bytes);
    if (type == NBD_CMD_DISC) return false;
    Reply answer;
    answer.cookie = request.cookie;
    const bool transfers = type == NBD_CMD_READ || type == NBD_CMD_WRITE;
    if (transfers && bytes > kTransferBytesMax) return false;
    buffer_.resize(transfers ? bytes : 0);
    if (type == NBD_CMD_WRITE && !receive(buffer_.data(), bytes)) return false;
    if ((transfers && !disk_.disk().valid(offset, bytes)) || (!transfers && type != NBD_CMD_FLUSH)) {
      answer.error = big(std::uint32_t{EINVAL});
      return send(answer);
    }
    if (type == NBD_CMD_READ) {
      disk_.disk().read(offset, buffer_);
      return send(answer) && send(buffer_.data(), bytes);
    }
    const Answer answered =
        type == NBD_CMD_WRITE ? disk_.write(offset, buffer_, (big(request.command) & kCommandFua) != 0) : disk_.flush();
    if (answered == Answer::failed) answer.error = big(std::uint32_t{EIO});
    return answered == Answer::none || send(answer);
  }

  PoweredDisk& disk_;
  int listener_;
  int client_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<Frontend> make_nbd_frontend(PoweredDisk& disk, const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_path.size() >= sizeof address.sun_path) {
    std::fprintf(stderr, "power-disk: %s: too long for a socket's name\n", socket_path.c_str());
    std::exit(2);
  }
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  ::unlink(socket_path.c_str());
  if (listener < 0 || ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    std::perror(("power-disk: " + socket_path).c_str());
    std::exit(2);
  }
  return std::make_unique<NbdFrontend>(disk, listener);
}

}  // namespace memlith::power
