#include "sidecar.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>
#include <string_view>

#include "step.hpp"

namespace memlith::sqlite::shared {

namespace {

// Bytes of the file behind the control block that are locked. INVARIANT: the holder of kComing does not wait meanwhile.
constexpr off_t kComing = 1 << 20;       // attaching or leaving
constexpr off_t kPresent = kComing + 1;  // shared, by every process that uses the control block
constexpr off_t kFirstSlot = kComing + 16;
constexpr off_t kProcesses = kComing + 256;  // a byte for the number of each process that uses the control block
constexpr std::uint32_t kProcessesMax = 4096;

constexpr std::string_view kSuffix = "-memlith";

bool lock_byte(int fd, int type, off_t at) {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// True if another open file description has the lock.
bool is_locked(int fd, off_t at) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// The file may have been removed, and made anew, since it was opened.
bool is_named(int fd, const std::string& file) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(fd, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// As SQLite does with its index: the users of the database may use the file.
int open_beside(const std::string& database, const std::string& file) {
  struct stat info{};
  if (::stat(database.c_str(), &info) != 0) return -1;
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, info.st_mode & 0666);
  struct stat made{};
  if (fd >= 0 && ::fstat(fd, &made) == 0 && made.st_size == 0) {
    (void)::fchmod(fd, info.st_mode & 0666);
    if (::geteuid() == 0) (void)!::fchown(fd, info.st_uid, info.st_gid);
  }
  return fd;
}

// Through a descriptor of its own: a forked child has the mapping, which would keep the locks of `fd` with its file.
ControlBlock* map(int fd, const std::string& file) {
  const int own = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (own < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (is_named(fd, file)) memory = ::mmap(nullptr, kControlFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
  ::close(own);
  return memory != MAP_FAILED ? static_cast<ControlBlock*>(memory) : nullptr;
}

// The control block takes no block that SQLite's own index may need.
bool disk_has_room(int fd) {
  constexpr std::uint64_t kForSqliteBytes = 64 * 1024;
  struct statvfs disk{};
  const bool is_known = ::fstatvfs(fd, &disk) == 0 && disk.f_blocks > 0;
  return !is_known || disk.f_bavail * disk.f_frsize >= kControlFileBytes + kForSqliteBytes;
}

// The zeros are written and not left as a hole: a store to a mapped hole for which the disk has no block is SIGBUS.
bool write_zeros(int fd) {
  constexpr std::array<char, kControlFileBytes> kZeros{};
  return ::pwrite(fd, kZeros.data(), kZeros.size(), 0) == static_cast<ssize_t>(kZeros.size());
}

// The caller holds kComing. Null where no control block can be had.
ControlBlock* map_valid(int fd, const std::string& file) {
  const bool alone = lock_byte(fd, F_WRLCK, kPresent);
  struct stat left{};
  if (alone && ::fstat(fd, &left) != 0) return nullptr;
  const bool is_new = left.st_size == 0;
  if (alone && ((is_new && !disk_has_room(fd)) || !write_zeros(fd))) {
    if (is_new) (void)::unlink(file.c_str());
    return nullptr;
  }
  if (!lock_byte(fd, F_RDLCK, kPresent)) return nullptr;
  struct stat info{};
  if (::fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(kControlFileBytes)) return nullptr;
  ControlBlock* const control = map(fd, file);
  if (control == nullptr) return nullptr;
  if (alone) {
    MEMLITH_SHARED_STEP();
    // Content that another boot or a killed process left is ignored. Zeros are a control block on which nothing is
    // known to be durable. Who left it may have been killed in a flush that failed.
    control->flush_ns.store(1'000'000, std::memory_order_relaxed);
    if (!is_new) {
      control->begun.store(1, std::memory_order_relaxed);
      control->doubt.store(Doubt{1}.word(), std::memory_order_relaxed);
    }
    control->magic.store(kControlMagic, std::memory_order_release);
  } else if (control->magic.load(std::memory_order_acquire) != kControlMagic) {
    ::munmap(control, kControlFileBytes);
    return nullptr;
  }
  return control;
}

// A number for this process; 0: there is none. A killed process that had the number leads no more.
std::uint32_t take_number(int fd, ControlBlock& control) {
  std::uint32_t number = 1;
  while (number < kProcessesMax && !lock_byte(fd, F_WRLCK, kProcesses + static_cast<off_t>(number))) ++number;
  if (number == kProcessesMax) return 0;
  for (Flight& each : control.flights) {
    std::uint32_t leader = number;
    (void)each.leader.compare_exchange_strong(leader, 0);
  }
  return number;
}

timespec timespec_of(std::uint64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
}

}  // namespace

std::unique_ptr<Sidecar> Sidecar::attach(const std::string& path) {
  const std::string file = path + std::string(kSuffix);
  const std::uint64_t begun = now_ns();
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;  // a process may be stopped while it comes or leaves
  while (now_ns() - begun < kPatienceNs) {
    const int fd = open_beside(path, file);
    if (fd < 0) return nullptr;
    MEMLITH_SHARED_OPENED(fd);
    if (!lock_byte(fd, F_WRLCK, kComing)) {
      ::close(fd);
      sleep_ns(200'000);
      continue;
    }
    if (!is_named(fd, file)) {
      ::close(fd);
      continue;
    }
    ControlBlock* const control = map_valid(fd, file);
    MEMLITH_SHARED_STEP();
    const std::uint32_t number = control != nullptr ? take_number(fd, *control) : 0;
    if (number == 0) {
      if (control != nullptr) ::munmap(control, kControlFileBytes);
      ::close(fd);
      return nullptr;
    }
    (void)lock_byte(fd, F_UNLCK, kComing);
    return std::unique_ptr<Sidecar>(new Sidecar(file, fd, control, number));
  }
  return nullptr;
}

Sidecar::~Sidecar() {
  if (control_ == nullptr) return;
  const std::string log = file_.substr(0, file_.size() - kSuffix.size()) + "-wal";
  const auto is_in_doubt = [&] {
    struct stat info{};
    const bool has_log = ::stat(log.c_str(), &info) == 0 && info.st_size > 0;
    const bool in_flight = std::any_of(std::begin(control_->flights), std::end(control_->flights),
                                       [](const Flight& each) { return each.number.load() != 0; });
    return has_log && (control_->failed.load() != 0 || control_->doubt.load() != 0 || in_flight);
  };
  MEMLITH_SHARED_STEP();
  // Looked at when no other process is there any more: one that dies in a flush leaves its doubt.
  if (lock_byte(fd_, F_WRLCK, kComing) && lock_byte(fd_, F_WRLCK, kPresent) && is_named(fd_, file_) && !is_in_doubt()) {
    (void)::unlink(file_.c_str());
  }
  MEMLITH_SHARED_STEP();
  ::munmap(control_, kControlFileBytes);
  not_for_children_.reset();
  ::close(fd_);
}

std::uint32_t Sidecar::try_lead(bool looks) {
  for (std::uint32_t i = 0; i < kLeaders; ++i) {
    Flight& flight = control_->flights[i];
    std::uint32_t leader = flight.leader.load(std::memory_order_acquire);
    const bool may_be_gone = leader != 0 && leader != process_ && (looks || !seems_in_flight(*control_, flight));
    if (leader != 0 && !(may_be_gone && !is_locked(fd_, kProcesses + static_cast<off_t>(leader)))) continue;
    if (flight.leader.compare_exchange_strong(leader, process_)) return i;
  }
  return kLeaders;
}

void Sidecar::end_leading(std::uint32_t leader) { control_->flights[leader].leader.store(0); }

std::uint32_t Sidecar::take_slot() {
  const std::lock_guard guard(slots_mutex_);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    if ((my_slots_ >> i & 1) != 0 || !lock_byte(fd_, F_WRLCK, kFirstSlot + i)) continue;
    my_slots_ |= std::uint64_t{1} << i;
    Slot& slot = control_->slots[i];  // of a process that was killed, perhaps
    slot.waiting.store(0, std::memory_order_relaxed);
    slot.process.store(process_, std::memory_order_relaxed);
    slot.ticket.store(0, std::memory_order_relaxed);
    slot.passed.store(0, std::memory_order_relaxed);
    slot.wake.store(0, std::memory_order_relaxed);
    std::uint32_t used = control_->slots_used.load(std::memory_order_relaxed);
    while (used < i + 1 && !control_->slots_used.compare_exchange_weak(used, i + 1)) {
    }
    return i;
  }
  return kSlots;
}

void Sidecar::give_slot(std::uint32_t slot) {
  const std::lock_guard guard(slots_mutex_);
  control_->slots[slot].waiting.store(0, std::memory_order_relaxed);
  my_slots_ &= ~(std::uint64_t{1} << slot);
  (void)lock_byte(fd_, F_UNLCK, kFirstSlot + slot);
}

bool Sidecar::is_alive(std::uint32_t slot) const {
  const std::lock_guard guard(slots_mutex_);
  // Its own locks are no hindrance, so a slot of this process would look free.
  return (my_slots_ >> slot & 1) != 0 || is_locked(fd_, kFirstSlot + static_cast<off_t>(slot));
}

void Sidecar::abandon() {
  ::munmap(control_, kControlFileBytes);
  not_for_children_.reset();
  ::close(fd_);
  control_ = nullptr;
}

void wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds,
                     std::uint32_t bits) {
  MEMLITH_SHARED_ON_MACHINE(wait_for_change(word, seen, nanoseconds, bits));
  const timespec until = timespec_of(now_ns() + nanoseconds);
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &until, nullptr, bits);
}

void wake(std::atomic<std::uint32_t>& word, int count, std::uint32_t bits) {
  MEMLITH_SHARED_ON_MACHINE(wake(word, count, bits));
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, count, nullptr, nullptr, bits);
}

void give_way() {
  MEMLITH_SHARED_ON_MACHINE(give_way());
  ::sched_yield();
}

void sleep_ns(std::uint64_t nanoseconds) {
  MEMLITH_SHARED_ON_MACHINE(sleep(nanoseconds));
  const timespec time = timespec_of(nanoseconds);
  (void)::nanosleep(&time, nullptr);
}

std::uint64_t now_ns() {
  MEMLITH_SHARED_ON_MACHINE(now_ns());
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace memlith::sqlite::shared
