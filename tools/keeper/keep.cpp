#include "keep.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>

#include "memlith/shared.h"

namespace memlith::tool {

namespace {

// Tells, once: "ready", or the failure.
void tell(int descriptor, const std::string& text) {
  if (descriptor < 0) return;
  [[maybe_unused]] const ssize_t told = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
}

std::string told_of(std::int32_t code) {
  std::array<char, 1024> message{};
  memlith_last_error(message.data(), message.size());
  return std::to_string(memlith_category(code)) + " " + std::to_string(memlith_detail(code)) + " " + message.data();
}

// False in the process that was started, which ends. The program's other descriptors were inherited by mistake.
bool leave(int descriptor) {
  ::syscall(SYS_close_range, static_cast<unsigned>(descriptor) + 1, UINT_MAX, 0);
  if (::fork() != 0) return false;
  ::setsid();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "memlith-keeper");
  return ::chdir("/") == 0;
}

}  // namespace

std::optional<std::int32_t> keep(const Keeping& keeping) {
  int told = keeping.ready_fd;
  if (told >= 0 && !leave(told)) return std::nullopt;
  memlith_keeper_options options{};
  options.struct_size = sizeof options;
  options.flags = keeping.create ? MEMLITH_CREATE : 0;
  options.grace_ms = keeping.grace_ms;
  options.ready = [](void* context) {
    int& listener = *static_cast<int*>(context);
    tell(listener, "ready");
    listener = -1;
  };
  options.ready_context = &told;
  const std::int32_t code = memlith_shared_keep(keeping.store.c_str(), &options);
  if (code != MEMLITH_OK) tell(told, told_of(code));
  return code;
}

}  // namespace memlith::tool
