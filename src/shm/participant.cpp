#include "shm/participant.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/process.hpp"

namespace memlith::core::shm {

namespace {

constexpr std::uint32_t kUsesMask = (1U << (kIdBits - kPlaceBits)) - 1;

ParticipantId id_of(std::uint32_t place, std::uint32_t uses) { return (uses & kUsesMask) << kPlaceBits | place; }

struct flock byte_of(std::uint32_t place) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place);
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<Participant> Participant::join(int memory, Places& places) {
  const std::string path = fmt::format("/proc/self/fd/{}", memory);
  Descriptor own(above_standard(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
  if (own.get() < 0) return fail_errno(errno, Detail::open, "cannot open the memory that processes share anew");
  return join(std::move(own), places);
}

Result<Participant> Participant::join(Descriptor own, Places& places) {
  Participant self;
  self.lock_ = std::move(own);
  self.not_for_children_ = std::make_unique<NotForChildren>(self.lock_.get());
  for (std::uint32_t place = 0; place < kPlaces; ++place) {
    struct flock lock = byte_of(place);
    if (::fcntl(self.lock_.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) continue;
      return fail_errno(errno, Detail::lock, "cannot lock the memory that processes share");
    }
    // Id 0 is none. Until the store, a place whose process has died looks as if that process lived.
    std::uint32_t uses = places.uses[place].load(std::memory_order_relaxed) + 1;
    if ((uses & kUsesMask) == 0) ++uses;
    places.uses[place].store(uses, std::memory_order_release);
    self.places_ = &places;
    self.id_ = id_of(place, uses);
    self.process_ = process_mark();
    return self;
  }
  return fail(Errc::busy, Detail::lock, "{} participants share this memory, which is as many as can be", kPlaces);
}

bool Participant::lives(ParticipantId id) const {
  if (id == 0) return false;
  if (id == id_) return true;
  const std::uint32_t place = id & (kPlaces - 1);
  if (id != id_of(place, places_->uses[place].load(std::memory_order_acquire))) return false;
  struct flock lock = byte_of(place);
  return ::fcntl(lock_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool Participant::is_of_this_process() const { return id_ != 0 && process_ == process_mark(); }

Result<Descriptor> life_of_this_process() {
  Descriptor life(above_standard(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))));
  if (life.get() >= 0) return life;
  if (errno == EMFILE || errno == ENFILE)
    return fail_errno(errno, Detail::open, "cannot make a descriptor of a process");
  return fail(Errc::unsupported, Detail::open, "this kernel has no descriptors of processes");
}

}  // namespace memlith::core::shm
