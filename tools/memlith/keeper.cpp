// memlith keeper STORE: the process that has a store open for those that share its regions (docs/shared-regions.md).
//
// memlith_shared_open starts it with --ready-fd. It then leaves the process that has started it: it is a child of
// nobody there, and no signal to that process's group or terminal reaches it.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>

#include "cli/store_path.hpp"
#include "commands.hpp"
#include "memlith/shared.h"

namespace memlith::tool {

namespace {

// What was told, once: "ready", or the failure.
void tell(int descriptor, const std::string& text) {
  if (descriptor < 0) return;
  [[maybe_unused]] const ssize_t told = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
}

std::string told_of(std::int32_t code) {
  std::array<char, 1024> message{};
  memlith_last_error(message.data(), message.size());
  return fmt::format("{} {} {}", memlith_category(code), memlith_detail(code), message.data());
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

struct Told {
  int descriptor = -1;
};

}  // namespace

MaybeFailure run_keeper(const KeeperArguments& arguments) {
  Told told{static_cast<int>(arguments.ready_fd)};
  if (told.descriptor >= 0 && !leave(told.descriptor)) return {};
  memlith_keeper_options options{};
  options.struct_size = sizeof options;
  options.flags = arguments.create ? MEMLITH_SHARED_CREATE : 0;
  options.grace_ms = static_cast<std::uint64_t>(arguments.grace_s * 1000);
  options.ready = [](void* context) {
    auto& listener = *static_cast<Told*>(context);
    tell(listener.descriptor, "ready");
    listener.descriptor = -1;
  };
  options.ready_context = &told;
  const std::int32_t code = memlith_shared_keep(arguments.path.c_str(), &options);
  if (code == MEMLITH_OK) {
    if (arguments.format == Format::json) {
      write_json({{"path", arguments.path}, {"closed", true}});
    } else {
      write_line(fmt::format("{}: closed, because no process shares its regions any more", printable(arguments.path)));
    }
    return {};
  }
  tell(told.descriptor, told_of(code));
  return library_failure(code, {});
}

}  // namespace memlith::tool
