// Stopping threads, finding dirty pages, and writing them by this process or by a forked child.
#include "checkpoints.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <numeric>

#include "cli/clock.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

namespace {

// Waking a thread that sleeps would be part of the pause. No checkpoint takes longer than this.
constexpr std::uint64_t kAwakeNs = 20'000'000;
constexpr std::uint64_t kStoreEveryNs = 500;
constexpr timespec kSleep{0, 50'000};
constexpr std::uint64_t kCheckpointsOfFile = 4;

}  // namespace

Storers::Storers(std::size_t threads) : sleep_(threads >= std::thread::hardware_concurrency()), threads_(threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_[i].thread = std::jthread([this, i] { work(i); });
}

Storers::~Storers() {
  ended_.store(true, std::memory_order_relaxed);
  go_on();
}

void Storers::begin(const Memory& memory) {
  memory_ = memory;
  go_on();
  wait_for_a_store();
  longest_ns_.store(0, std::memory_order_relaxed);
}

void Storers::stop() {
  stopped_.store(true, std::memory_order_seq_cst);
  for (const Thread& each : threads_) {
    while (each.storing.load(std::memory_order_seq_cst)) ::sched_yield();
  }
}

void Storers::go_on() {
  stopped_.store(false, std::memory_order_seq_cst);
  stopped_.notify_all();
}

void Storers::wait_for_a_store() {
  const std::uint64_t now = now_ns();
  while (last_ns_.load(std::memory_order_acquire) <= now) ::sched_yield();
}

std::uint64_t Storers::longest_pause_ns() {
  wait_for_a_store();
  return longest_ns_.load(std::memory_order_relaxed);
}

MaybeFailure Storers::failure() const {
  const std::int32_t code = code_.load(std::memory_order_relaxed);
  if (code == MEMLITH_OK) return {};
  return tool_failure(code, "a thread could not touch its page");
}

void Storers::rest() {
  const std::uint64_t asleep_ns = now_ns() + (sleep_ ? 0 : kAwakeNs);
  while (stopped_.load(std::memory_order_acquire)) {
    if (now_ns() > asleep_ns) {
      stopped_.wait(true, std::memory_order_acquire);
    } else {
      ::sched_yield();
    }
  }
}

void Storers::work(std::size_t number) {
  Thread& mine = threads_[number];
  for (std::uint64_t value = 0; !ended_.load(std::memory_order_relaxed); ++value) {
    mine.storing.store(true, std::memory_order_seq_cst);
    if (stopped_.load(std::memory_order_seq_cst)) {
      mine.storing.store(false, std::memory_order_seq_cst);
      rest();
      continue;
    }
    std::byte* const place = memory_.pages + number * kPageBytes;
    std::memcpy(place, &value, sizeof value);
    memlith_region* const touched = memory_.touched;
    mine.storing.store(false, std::memory_order_release);
    if (touched != nullptr) {
      const std::int32_t code = memlith_touch(touched, place, sizeof value);
      if (code != MEMLITH_OK) code_.store(code, std::memory_order_relaxed);
    }
    const std::uint64_t now = now_ns();
    const std::uint64_t before = last_ns_.exchange(now, std::memory_order_acq_rel);
    const std::uint64_t pause = now > before ? now - before : 0;
    std::uint64_t longest = longest_ns_.load(std::memory_order_relaxed);
    while (pause > longest && !longest_ns_.compare_exchange_weak(longest, pause, std::memory_order_relaxed)) {
    }
    if (sleep_) (void)::nanosleep(&kSleep, nullptr);
    while (!sleep_ && now_ns() < now + kStoreEveryNs) {
    }
  }
}

Checkpoints::Checkpoints(SmallPages memory, PageMarks marks, RawFile file, int descriptor, HugeBuffer copy,
                         std::uint64_t bytes_max, Of of, Storers& storers)
    : memory_(std::move(memory)),
      marks_(std::move(marks)),
      file_(std::move(file)),
      descriptor_(descriptor),
      copy_(std::move(copy)),
      bytes_max_(bytes_max),
      of_(of),
      storers_(&storers) {
  written_.reserve(bytes_max / kernel_page_bytes());
  pieces_.reserve(written_.capacity() + 1);
}

Checkpoints::Checkpoints(Checkpoints&& other) noexcept
    : memory_(std::move(other.memory_)),
      marks_(std::move(other.marks_)),
      file_(std::move(other.file_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      copy_(std::move(other.copy_)),
      bytes_max_(other.bytes_max_),
      of_(other.of_),
      storers_(other.storers_),
      written_(std::move(other.written_)),
      pieces_(std::move(other.pieces_)) {}

Checkpoints::~Checkpoints() {
  reap_child();
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<Checkpoints> Checkpoints::create(const std::string& path, std::uint64_t memory_bytes, std::uint64_t bytes_max,
                                        Of of, Storers& storers) {
  Result<SmallPages> memory = SmallPages::make(memory_bytes);
  if (!memory.ok()) return std::move(memory.failure());
  Result<PageMarks> marks = PageMarks::over(memory->span(), MarkedBy::kernel);
  if (!marks.ok()) return std::move(marks.failure());
  const std::uint64_t pages = bytes_max / kernel_page_bytes();
  const std::uint64_t most = bytes_max + round_up(pages * sizeof(PageMarks::Range), kPageBytes);
  Result<RawFile> file = RawFile::create(path, kCheckpointsOfFile * most);
  if (!file.ok()) return std::move(file.failure());
  Result<HugeBuffer> copy = HugeBuffer::zeros(most);
  if (!copy.ok()) return std::move(copy.failure());
  // The fork of a whole process is of this memory alone, not of what else is measured in this process.
  if (of == Of::region && (::madvise(memory->data(), memory_bytes, MADV_DONTFORK) != 0 ||
                           ::madvise(copy->data(), copy->span().size(), MADV_DONTFORK) != 0)) {
    return errno_failure(errno, "keeping memory from forked processes");
  }
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (file->direct() ? O_DIRECT : 0));
  if (descriptor < 0) return errno_failure(errno, fmt::format("cannot open {}", path));
  Checkpoints made(std::move(*memory), std::move(*marks), std::move(*file), descriptor, std::move(*copy), bytes_max, of,
                   storers);
  std::vector<PageMarks::Range> all;  // no page was protected before
  if (MaybeFailure failure = made.marks_.take_written(all)) return std::move(*failure);
  return made;
}

std::uint64_t Checkpoints::table_bytes() const { return round_up(written_.size() * sizeof written_[0], kPageBytes); }

MaybeFailure Checkpoints::find_dirty_pages() {
  written_.clear();
  if (MaybeFailure failure = marks_.take_written(written_)) return failure;
  bytes_ = std::accumulate(written_.begin(), written_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const PageMarks::Range& range) { return sum + range.bytes; });
  if (bytes_ <= bytes_max_) return {};
  return tool_failure(MEMLITH_FULL, fmt::format("{} bytes are dirty; a checkpoint has at most {}", bytes_, bytes_max_));
}

void Checkpoints::copy_pages() {
  std::byte* target = copy_.data();
  for (const PageMarks::Range& range : written_) {
    std::memcpy(target, memory_.data() + range.offset, range.bytes);
    target += range.bytes;
  }
}

int Checkpoints::write() {
  std::byte* const table = copy_.data() + bytes_max_;
  std::memcpy(table, written_.data(), written_.size() * sizeof written_[0]);
  pieces_.clear();
  pieces_.push_back({table, table_bytes()});
  if (of_ == Of::region) {
    pieces_.push_back({copy_.data(), bytes_});
  } else {
    for (const PageMarks::Range& range : written_) pieces_.push_back({memory_.data() + range.offset, range.bytes});
  }
  std::uint64_t offset = offset_;
  for (std::size_t first = 0; first < pieces_.size(); first += IOV_MAX) {
    const auto some = std::span(pieces_).subspan(first, std::min<std::size_t>(IOV_MAX, pieces_.size() - first));
    std::uint64_t bytes = 0;
    for (const iovec& each : some) bytes += each.iov_len;
    ssize_t done = -1;
    do {
      done = ::pwritev(descriptor_, some.data(), static_cast<int>(some.size()), static_cast<off_t>(offset));
    } while (done < 0 && errno == EINTR);
    if (done != static_cast<ssize_t>(bytes)) return done < 0 ? errno : EIO;
    offset += bytes;
  }
  return ::fdatasync(descriptor_) == 0 ? 0 : errno;
}

MaybeFailure Checkpoints::fork_writer() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_failure(errno, "making a pipe");
  child_ = ::fork();
  if (child_ == 0) {
    const int error = write();
    (void)!::write(ends[1], &error, sizeof error);
    ::_exit(0);
  }
  ::close(ends[1]);
  told_ = ends[0];
  return child_ > 0 ? MaybeFailure{} : errno_failure(errno, "forking the process");
}

MaybeFailure Checkpoints::wait_for_child() {
  int error = EIO;
  ssize_t got = -1;
  do {
    got = ::read(told_, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof error) error = EIO;  // the child has ended
  return error == 0 ? MaybeFailure{} : errno_failure(error, "writing a checkpoint");
}

void Checkpoints::reap_child() {
  if (told_ >= 0) ::close(std::exchange(told_, -1));
  while (child_ > 0 && ::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

MaybeFailure Checkpoints::take() {
  reap_child();
  storers_->stop();
  MaybeFailure failure = find_dirty_pages();
  if (!failure && of_ == Of::region) copy_pages();
  if (!failure && of_ == Of::process) failure = fork_writer();
  storers_->go_on();
  if (failure) return failure;
  if (of_ == Of::process) {
    if (MaybeFailure told = wait_for_child()) return told;
  } else if (const int error = write(); error != 0) {
    return errno_failure(error, "writing a checkpoint");
  }
  offset_ += table_bytes() + bytes_;
  if (offset_ + copy_.span().size() > file_.size()) offset_ = 0;
  return {};
}

}  // namespace memlith::tool
