#include "late_commits.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "engine_threads.hpp"
#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

std::string seconds_of(std::uint64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text += '.' + std::to_string(1000 + ms % 1000).substr(1);
  return text;
}

const char* committing_call(const Image& image) {
  const bool msync_commits =
      settings().commit == CommitAt::msync || (settings().commit == CommitAt::automatic && !image.was_fsynced);
  return msync_commits ? "fsync or msync" : "fsync";
}

}  // namespace

// ---- the thread ------------------------------------------------------------------------------------------------

LateCommits& late_commits() {
  static LateCommits& all = *new LateCommits;
  return all;
}

void* LateCommits::look(void*) {
  const std::uint64_t every_ms = settings().commit_every_ms > 0 ? settings().commit_every_ms : 1000;
  for (;;) {
    const timespec pause{static_cast<time_t>(every_ms / 1000), static_cast<long>(every_ms % 1000 * 1'000'000)};
    ::nanosleep(&pause, nullptr);
    images().look_for_late_commits();
  }
}

void LateCommits::begin() {
  if (begun_) return;
  const int error = errno;
  pthread_t thread{};
  const int failed = engine_threads().start(thread, &look, nullptr);
  begun_ = failed == 0;
  if (begun_) ::pthread_detach(thread);
  if (!begun_ && settings().commit_every_ms > 0) {
    say(std::string("no thread can be made that commits every ") + seconds_of(settings().commit_every_ms) +
        " s, so only the program's own calls commit: " + std::strerror(failed));
  }
  errno = error;
}

// ---- what it does with each file -------------------------------------------------------------------------------

void Images::look_for_late_commits() {
  std::vector<ImagePtr> all;
  {
    const NoSignals no_signals;
    const std::shared_lock lock(lock_);
    all = images_;
  }
  for (const ImagePtr& image : all) {
    if (image->owner != ::getpid()) continue;
    if (settings().commit_every_ms > 0) {
      commit_between_calls(image);
    } else if (!image->told_late) {
      look_if_late(*image);
    }
  }
}

// The commit waits for the calls that write to the file, so each of them is in the commit as a whole, or not at all. A
// call that takes longer than a second waits for something itself (splice, for a pipe), and is not waited for.
void Images::commit_between_calls(const ImagePtr& committed) {
  Image& image = *committed;
  const NoSignals no_signals;
  if (image.untouched) {
    const std::unique_lock lock(lock_);
    if (image.handle != nullptr && was_written_unseen(image)) keep_unseen_writes(committed);
  }
  std::unique_lock alone(image.life, std::defer_lock);
  std::shared_lock shared(image.life, std::defer_lock);
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  ++until.tv_sec;
  auto* const life = static_cast<pthread_rwlock_t*>(image.life.native_handle());
  if (::pthread_rwlock_timedwrlock(life, &until) == 0) {
    alone = std::unique_lock(image.life, std::adopt_lock);
  } else {
    shared.lock();
  }
  if (!image.attached || image.broken) return;
  const std::int32_t code = commit_held(image, true);
  if (code == 0 || image.told_late.exchange(true)) return;
  say(image.path() + " was not committed by --commit-every: " + why());
}

void Images::look_if_late(Image& image) {
  const NoSignals no_signals;
  const std::shared_lock alive(image.life);
  if (image.handle == nullptr || (!image.attached && !image.untouched)) return;
  Image::Look& last = image.last_look;
  const auto now = std::chrono::steady_clock::now();
  struct stat memory{};
  real().fstat(memlith_image_descriptor(image.handle), &memory);
  const bool was_written =
      memory.st_mtim.tv_sec != last.written.tv_sec || memory.st_mtim.tv_nsec != last.written.tv_nsec;
  last.written = memory.st_mtim;
  std::uint64_t bytes = 0;
  if (image.untouched) {
    bytes = is_unwritten(memory) ? 0 : 1;
  } else {
    // Writes that these functions do not see are found by comparing the file with its image, which takes long.
    const bool may_be_stored_to = image.is_unwatched && ++last.count % kLate.count() == 0;
    if (image.has_unseen && (was_written || may_be_stored_to)) memlith_image_suspect(image.handle);
    if (memlith_image_changed(image.handle, &bytes) != 0) return;
  }
  const std::uint64_t commits = image.commits;
  if (bytes == 0 || commits != last.commits || last.changed_since == Image::Look::Time{}) {
    last.commits = commits;
    last.changed_since = bytes == 0 ? Image::Look::Time{} : now;
  }
  if (bytes >= kLateBytes) {
    tell_late(image, std::to_string(bytes >> 20) + " MiB were changed");
  } else if (bytes > 0 && now - last.changed_since >= kLate) {
    tell_late(image, "it was changed " + std::to_string(kLate.count()) + " seconds ago or earlier");
  }
}

void Images::tell_late(Image& image, const std::string& what) {
  if (image.told_late.exchange(true)) return;
  say(image.path() + ": " + what + ", and the program has not called " + committing_call(image) +
      " since. If the program is killed now, these changes are lost. `memlith run --commit-every SECONDS` commits them "
      "without such a call; a change that takes several calls may then be cut in two");
}

}  // namespace memlith::preload
