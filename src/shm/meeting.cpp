#include "shm/meeting.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace memlith::core::shm {

namespace {

// Bytes of the file that are locked, behind the places of the participants and whatever the memory's size is.
// INVARIANT: the holder of kComing waits for nothing.
constexpr off_t kComing = 1 << 20;       // comes or goes
constexpr off_t kPresent = kComing + 1;  // shared, by all that are there
static_assert(kComing >= kPlaces);

constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kLookAgain = std::chrono::microseconds(200);

bool lock_byte(int door, int type, off_t at) {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(door, F_OFD_SETLK, &lock) == 0;
}

// False: the file was removed, and perhaps made anew, since it was opened.
bool is_named(int door, const std::string& file) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(door, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

Result<Descriptor> open_file(const MeetingPlace& place, int more, mode_t mode) {
  Descriptor file(above_standard(::open(place.file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | more, mode)));
  if (file.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", place.file);
  return file;
}

Result<Descriptor> open_or_make(const MeetingPlace& place) {
  struct stat like{};
  if (::stat(place.like.c_str(), &like) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot look at it", place.like);
  }
  MEMLITH_TRY_ASSIGN(Descriptor door, open_file(place, O_CREAT, like.st_mode & 0666));
  struct stat made{};
  if (::fstat(door.get(), &made) == 0 && made.st_size == 0) {
    (void)::fchmod(door.get(), like.st_mode & 0666);
    if (::geteuid() == 0) (void)!::fchown(door.get(), like.st_uid, like.st_gid);
  }
  return door;
}

// The zeros are written and not left as a hole: a store to a mapped hole for which the disk has no block is SIGBUS. A
// file of remains is one until they are gone.
Status clear(int door, const MeetingPlace& place, std::uint64_t bytes, bool is_new) {
  struct statvfs disk{};
  const bool is_known = ::fstatvfs(door, &disk) == 0 && disk.f_blocks > 0;
  if (is_new && is_known && disk.f_bavail * disk.f_frsize < bytes + place.spare_bytes) {
    return fail(Errc::no_space, Detail::write, "{}: the disk has less than {} bytes left for it", place.file,
                bytes + place.spare_bytes);
  }
  const std::string zeros(bytes, '\0');
  const ssize_t written = ::pwrite(door, zeros.data(), zeros.size(), 0);
  if (written != static_cast<ssize_t>(zeros.size())) {
    return fail_errno(written < 0 ? errno : ENOSPC, Detail::write, "{}: cannot write {} bytes", place.file, bytes);
  }
  if (::ftruncate(door, static_cast<off_t>(bytes)) == 0) return kOk;
  return fail_errno(errno, Detail::resize, "{}: cannot cut it", place.file);
}

}  // namespace

Result<Descriptor> come(const MeetingPlace& place) {
  const auto end = SteadyClock::now() + kPatience;
  do {
    MEMLITH_TRY_ASSIGN(Descriptor door, open_or_make(place));
    if (lock_byte(door.get(), F_WRLCK, kComing)) {
      if (is_named(door.get(), place.file)) return door;
    } else {
      std::this_thread::sleep_for(kLookAgain);
    }
  } while (SteadyClock::now() < end);
  return fail(Errc::busy, Detail::lock, "{}: another process comes or goes and gets nowhere; was it stopped?",
              place.file);
}

Result<Found> enter(int door, const MeetingPlace& place, std::uint64_t bytes) {
  Found found = Found::others;
  if (lock_byte(door, F_WRLCK, kPresent)) {
    struct stat left{};
    const bool is_new = ::fstat(door, &left) == 0 && left.st_size == 0;
    found = is_new ? Found::nothing : Found::remains;
    if (const Status cleared = clear(door, place, bytes, is_new); !cleared.ok()) {
      if (is_new) (void)::unlink(place.file.c_str());
      return cleared;
    }
  }
  if (!lock_byte(door, F_RDLCK, kPresent)) return fail_errno(errno, Detail::lock, "{}: cannot lock it", place.file);
  return found;
}

Result<Descriptor> open_again(int door, const MeetingPlace& place) {
  MEMLITH_TRY_ASSIGN(Descriptor again, open_file(place, 0, 0));
  if (is_named(door, place.file)) return again;
  return fail(Errc::busy, Detail::open, "{}: another program has removed it", place.file);
}

void let_others(int door) { (void)lock_byte(door, F_UNLCK, kComing); }

bool is_last(int door, const MeetingPlace& place) {
  return lock_byte(door, F_WRLCK, kComing) && lock_byte(door, F_WRLCK, kPresent) && is_named(door, place.file);
}

}  // namespace memlith::core::shm
