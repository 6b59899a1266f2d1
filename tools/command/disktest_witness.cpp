#include "disktest_witness.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "cli/interrupt.hpp"
#include "cli/output.hpp"

namespace memlith::tool::disktest {

namespace {

constexpr const char* kFormat = "memlith-disktest 1";
constexpr int kSilenceSeconds = 10;  // after it, a machine without power is taken for gone

void set(int socket, int level, int name, int value) {
  (void)::setsockopt(socket, level, name, &value, sizeof value);  // only the time until the end is told depends on it
}

Result<Descriptor> connect_to(const std::string& host, const std::string& port, const std::string& where) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0) {
    return tool_failure(MEMLITH_INVALID, fmt::format("cannot find {}: {}", where, ::gai_strerror(error)),
                        "Name the witness as HOST:PORT, where `memlith disktest listen PORT FILE` runs.");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Descriptor socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    if (socket.ok() && ::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) {
      set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    error = errno;
  }
  Failure failure = errno_failure(error, fmt::format("connect to {}", where));
  failure.advice = "Start `memlith disktest listen PORT FILE` on a machine whose power stays on.";
  return failure;
}

Result<Descriptor> create_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_DSYNC | O_CLOEXEC, 0644));
  if (file.ok()) return file;
  Failure failure = errno_failure(errno, fmt::format("create {}", printable(path)));
  if (errno == EEXIST) failure.advice = "Name a new file: each run has its own.";
  return failure;
}

MaybeFailure check_other_disk(const std::string& file, const std::string& folder) {
  const std::size_t slash = file.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  struct stat theirs{};
  struct stat ours{};
  if (::stat(parent.c_str(), &theirs) != 0) return errno_failure(errno, fmt::format("look at {}", printable(parent)));
  if (::stat(folder.c_str(), &ours) != 0) return errno_failure(errno, fmt::format("look at {}", printable(folder)));
  if (theirs.st_dev != ours.st_dev) return {};
  return tool_failure(MEMLITH_INVALID,
                      fmt::format("{} lies on the disk that is tested, which may lose it too", printable(file)),
                      "Name a file on another disk, or HOST:PORT of a machine whose power stays on.");
}

// The port of HOST:PORT; empty for the name of a file.
std::string port_of(const std::string& where) {
  const std::size_t colon = where.rfind(':');
  if (colon == std::string::npos || where.find('/') != std::string::npos) return {};
  const std::string port = where.substr(colon + 1);
  const bool digits = std::all_of(port.begin(), port.end(), [](char each) { return each >= '0' && each <= '9'; });
  return digits ? port : std::string();
}

Result<Descriptor> bind_to(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool both = socket.ok();
  if (!both) socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return errno_failure(errno, "make a socket");
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  if (both) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* const address = both ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  if (::bind(socket.get(), address, both ? sizeof six : sizeof four) != 0 || ::listen(socket.get(), 1) != 0) {
    return errno_failure(errno, fmt::format("listen at port {}", port));
  }
  return socket;
}

// False once the user asked to stop.
bool wait_for(int descriptor) {
  pollfd waiting{descriptor, POLLIN, 0};
  while (!interrupted()) {
    if (::poll(&waiting, 1, 200) > 0) return true;
  }
  return false;
}

MaybeFailure write_all(int descriptor, const char* from, std::size_t bytes, const std::string& where) {
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor, from, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return errno_failure(errno, fmt::format("write to {}", printable(where)));
    from += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return {};
}

}  // namespace

Result<Witness> Witness::reach(const std::string& where, const std::string& folder, const Plan& plan) {
  const std::string port = port_of(where);
  if (port.empty()) {
    if (MaybeFailure failure = check_other_disk(where, folder)) return std::move(*failure);
  }
  const std::string host = port.empty() ? where : where.substr(0, where.size() - port.size() - 1);
  Result<Descriptor> reached = port.empty() ? create_file(where) : connect_to(host, port, where);
  if (!reached.ok()) return std::move(reached.failure());
  Witness witness(std::move(*reached), where);
  if (MaybeFailure failure = witness.send(fmt::format("{} {:016x} {}\n", kFormat, plan.run, plan.blocks))) {
    return std::move(*failure);
  }
  return witness;
}

MaybeFailure Witness::tell(std::uint64_t round) { return send(fmt::format("{}\n", round)); }

MaybeFailure Witness::send(const std::string& line) {
  return write_all(descriptor_.get(), line.data(), line.size(), where_);
}

Result<Testimony> read_testimony(const std::string& path) {
  std::ifstream file(path);
  if (!file) return errno_failure(errno, fmt::format("read {}", printable(path)));
  Testimony testimony;
  std::string line;
  // getline() sets eof for a line without its end.
  if (!std::getline(file, line) || file.eof() ||
      std::sscanf(line.c_str(), "memlith-disktest 1 %16" SCNx64 " %" SCNu64, &testimony.plan.run,
                  &testimony.plan.blocks) != 2 ||
      testimony.plan.blocks < kBlocksMin) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is no record of a disk test", printable(path)),
                        "Name the file that `disktest write --tell` or `disktest listen` has written.");
  }
  while (std::getline(file, line) && !file.eof()) {
    std::uint64_t round = 0;
    if (std::sscanf(line.c_str(), "%" SCNu64, &round) != 1 || round != (testimony.any ? testimony.round + 1 : 0)) {
      return tool_failure(MEMLITH_CORRUPT,
                          fmt::format("{}: \"{}\" is not the round that follows", printable(path), printable(line)),
                          "The record itself is damaged; nothing can be said about the disk.");
    }
    testimony.any = true;
    testimony.round = round;
  }
  return testimony;
}

Result<std::uint64_t> listen_to_writer(const Listening& listening) {
  Result<Descriptor> file = create_file(listening.file);
  if (!file.ok()) return std::move(file.failure());
  Result<Descriptor> listener = bind_to(listening.port);
  if (!listener.ok()) return std::move(listener.failure());
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  ::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&bound), &length);
  listening.bound(ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port));
  if (!wait_for(listener->get())) return interrupted_failure();
  const Descriptor writer(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!writer.ok()) return errno_failure(errno, "accept the writer");
  set(writer.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(writer.get(), IPPROTO_TCP, TCP_KEEPIDLE, kSilenceSeconds / 2);
  set(writer.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(writer.get(), IPPROTO_TCP, TCP_KEEPCNT, kSilenceSeconds / 2);
  std::uint64_t lines = 0;
  std::array<char, 4096> bytes{};
  while (wait_for(writer.get())) {
    const ssize_t got = ::read(writer.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;  // the writer has ended, or its machine is gone
    const auto count = static_cast<std::size_t>(got);
    if (MaybeFailure failure = write_all(file->get(), bytes.data(), count, listening.file)) {
      return std::move(*failure);
    }
    lines += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.begin() + got, '\n'));
  }
  return lines;
}

}  // namespace memlith::tool::disktest
