#include "witness.hpp"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "engine_files.hpp"
#include "helpers.hpp"
#include "real.hpp"

namespace memlith::preload {

void Witness::watch(int fd) {
  const int error = errno;
  stop();
  const int made = ::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY);
  if (made >= 0 &&
      ::fanotify_mark(made, FAN_MARK_ADD, FAN_MODIFY | FAN_CLOSE_WRITE, AT_FDCWD, link_of(fd).c_str()) == 0) {
    events_ = engine_descriptor(made);
  } else if (made >= 0) {
    real().close(made);
  }
  errno = error;
}

bool Witness::another_wrote() const {
  if (events_ < 0) return false;
  const int error = errno;
  bool seen = false;
  alignas(fanotify_event_metadata) std::array<char, 4096> events{};
  for (;;) {
    ssize_t left = ::read(events_, events.data(), events.size());
    if (left <= 0) break;
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(events.data());
    for (; FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) {
      seen = seen || ((event->mask & (FAN_MODIFY | FAN_CLOSE_WRITE)) != 0 && event->pid != ::getpid());
    }
  }
  errno = error;
  return seen;
}

void Witness::stop() {
  if (events_ >= 0) close_engine_descriptor(events_);
  events_ = -1;
}

}  // namespace memlith::preload
