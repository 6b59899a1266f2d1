#include "witness.hpp"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "engine_files.hpp"
#include "helpers.hpp"
#include "real.hpp"

namespace memlith::preload {

struct Witness::Group {
  std::mutex mutex;
  int events = -1;
  std::vector<Witness*> members;

  void read();
  void note(const fanotify_event_metadata& event);
};

Witness::Group& Witness::group() {
  static Group& all = *new Group;
  return all;
}

void Witness::watch(int fd) {
  const int error = errno;
  stop();
  Group& all = group();
  const std::lock_guard lock(all.mutex);
  struct statfs volume{};
  alignas(file_handle) std::array<char, sizeof(file_handle) + MAX_HANDLE_SZ> space{};
  auto* const handle = reinterpret_cast<file_handle*>(space.data());
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  const bool known = ::fstatfs(fd, &volume) == 0 && ::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) == 0;
  if (known && all.events < 0) {
    const int made = ::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY);
    if (made >= 0) all.events = engine_descriptor(made);
  }
  if (known && all.events >= 0 &&
      ::fanotify_mark(all.events, FAN_MARK_ADD, FAN_MODIFY | FAN_CLOSE_WRITE, AT_FDCWD, link_of(fd).c_str()) == 0) {
    file_ = fd;
    std::memcpy(volume_.data(), &volume.f_fsid, sizeof volume_);
    handle_.assign(space.begin(), space.begin() + sizeof(file_handle) + handle->handle_bytes);
    another_wrote_ = false;
    all.members.push_back(this);
  }
  errno = error;
}

void Witness::Group::note(const fanotify_event_metadata& event) {
  if ((event.mask & (FAN_MODIFY | FAN_CLOSE_WRITE)) == 0 || event.pid == ::getpid()) return;
  const auto* const begin = reinterpret_cast<const char*>(&event);
  const auto* const info = reinterpret_cast<const fanotify_event_info_fid*>(begin + event.metadata_len);
  std::size_t found = 0;
  for (Witness* const each : members) {
    const std::size_t bytes = each->handle_.size();
    const bool fits = event.metadata_len + sizeof *info + bytes <= event.event_len;
    if (!fits || std::memcmp(&info->fsid, each->volume_.data(), sizeof each->volume_) != 0) continue;
    if (std::memcmp(info->handle, each->handle_.data(), bytes) != 0) continue;
    each->another_wrote_ = true;
    ++found;
  }
  if (found > 0) return;
  for (Witness* const each : members) each->another_wrote_ = true;  // of one of them, which the kernel names otherwise
}

void Witness::Group::read() {
  alignas(fanotify_event_metadata) std::array<char, 4096> space{};
  for (;;) {
    ssize_t left = ::read(events, space.data(), space.size());
    if (left <= 0) break;
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(space.data());
    for (; FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) note(*event);
  }
}

bool Witness::another_wrote() {
  Group& all = group();
  const std::lock_guard lock(all.mutex);
  if (file_ < 0) return false;
  const int error = errno;
  all.read();
  errno = error;
  return std::exchange(another_wrote_, false);
}

void Witness::stop() {
  Group& all = group();
  const std::lock_guard lock(all.mutex);
  if (file_ < 0) return;
  const int error = errno;
  ::fanotify_mark(all.events, FAN_MARK_REMOVE, FAN_MODIFY | FAN_CLOSE_WRITE, AT_FDCWD, link_of(file_).c_str());
  all.read();  // its events are not to be taken for those of another file
  std::erase(all.members, this);
  if (all.members.empty()) close_engine_descriptor(std::exchange(all.events, -1));
  file_ = -1;
  errno = error;
}

void Witness::in_child() {
  Group& all = group();
  for (Witness* const each : all.members) each->file_ = -1;
  if (all.events >= 0) close_engine_descriptor(all.events);
  std::construct_at(&all);  // a thread that the child does not have may have held the lock
}

}  // namespace memlith::preload
