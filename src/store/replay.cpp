// Replay: the only code that writes home files. Used by checkpoints and by recovery, which is the same thing at open.
#include <algorithm>
#include <climits>
#include <cstring>

#include "base/mutant.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kWriteBytesMax = 1 * kMiB;  // one write of neighbouring pieces
constexpr std::size_t kWritePiecesMax = 256;
constexpr std::uint32_t kDirectDepth = 64;  // transfers at a time: scattered pages go twice as fast as with 16
constexpr std::uint64_t kDirectBytes = 64 * kKiB;

// Collects neighbouring whole pages and writes them past the page cache, many transfers at a time.
class DirectHome {
 public:
  // To the file of `buffered`. Nothing where the file system refuses direct I/O.
  static Result<std::unique_ptr<DirectHome>> open(Volume& volume, const std::string& name, Device& buffered) {
    auto home = std::make_unique<DirectHome>();
    MEMLITH_TRY_ASSIGN(home->device_, volume.open(name, OpenMode::read_write, Caching::direct));
    const bool fits = kPageBytes % home->device_->caps().block_bytes == 0;
    if (!home->device_->direct() || !fits) return std::unique_ptr<DirectHome>();
    MEMLITH_TRY_ASSIGN(const FileIdentity opened, home->device_->identity());
    MEMLITH_TRY_ASSIGN(const FileIdentity wanted, buffered.identity());
    if (opened != wanted) return std::unique_ptr<DirectHome>();  // the name leads to another file by now
    MEMLITH_TRY_ASSIGN(home->memory_, AlignedBuffer::allocate(kDirectDepth * kDirectBytes));
    home->queue_ = home->device_->make_queue(kDirectDepth);
    home->queue_->register_memory(home->memory_.span());
    return home;
  }
  static bool takes(std::uint64_t offset, std::uint64_t bytes) {
    return offset % kPageBytes == 0 && bytes % kPageBytes == 0;
  }

  Status put(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (used_ == kDirectBytes || (used_ > 0 && offset != begin_ + used_)) MEMLITH_TRY(send());
      if (used_ == 0) {
        MEMLITH_TRY(queue_->wait(slot_));
        begin_ = offset;
      }
      const std::uint64_t step = std::min<std::uint64_t>(bytes.size(), kDirectBytes - used_);
      std::memcpy(buffer() + used_, bytes.data(), step);
      used_ += step;
      offset += step;
      bytes = bytes.subspan(step);
    }
    return kOk;
  }
  Status finish() {
    if (used_ > 0) MEMLITH_TRY(send());
    if (MEMLITH_MUTANT(direct_home_not_waited)) return kOk;
    return queue_->wait_all();
  }

 private:
  [[nodiscard]] std::byte* buffer() const { return memory_.data() + slot_ * kDirectBytes; }
  Status send() {
    MEMLITH_TRY(queue_->write(slot_, begin_, {buffer(), used_}));
    slot_ = (slot_ + 1) % kDirectDepth;
    used_ = 0;
    return kOk;
  }

  std::unique_ptr<Device> device_;
  AlignedBuffer memory_;
  std::unique_ptr<IoQueue> queue_;
  std::uint32_t slot_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t used_ = 0;
};

Status bad_commit(const Log& log, const Frame& frame, const char* what) {
  return fail(Errc::corrupt, Detail::frame,
              "{}: the commit at LSN {} makes no sense although its checksum is right: {}", log.device().path(),
              frame.lsn.value, what);
}
}  // namespace

// Lays one commit into the overlay.
Status Store::gather(const Frame& frame) {
  if (frame.kind != kFrameKindCommit) return bad_commit(*log_, frame, "unknown kind");
  std::span<const std::byte> rest = frame.payload;
  CommitHeader header;
  if (rest.size() < sizeof header) return bad_commit(*log_, frame, "too short");
  std::memcpy(&header, rest.data(), sizeof header);
  rest = rest.subspan(sizeof header);
  if (header.extent_count > rest.size() / sizeof(ExtentRecord)) return bad_commit(*log_, frame, "too many extents");
  std::span<const std::byte> bytes = rest.subspan(header.extent_count * sizeof(ExtentRecord));
#ifdef MEMLITH_MUTANTS
  for (std::uint32_t i = header.extent_count; MEMLITH_MUTANT(extents_reversed) && i-- > 0;) {
    ExtentRecord extent;
    std::memcpy(&extent, rest.data() + i * sizeof extent, sizeof extent);
    MEMLITH_TRY(overlay_.apply(ObjectId{extent.object}, extent.offset, bytes.last(extent.bytes)));
    bytes = bytes.first(bytes.size() - extent.bytes);
    if (i == 0) return kOk;
  }
#endif
  for (std::uint32_t i = 0; i < header.extent_count; ++i) {
    ExtentRecord extent;
    std::memcpy(&extent, rest.data() + i * sizeof extent, sizeof extent);
    if (extent.bytes > bytes.size()) return bad_commit(*log_, frame, "its extents hold more bytes than it has");
    if (extent.offset > (1ull << 62)) return bad_commit(*log_, frame, "an extent lies beyond all files");
    const bool dropped = MEMLITH_MUTANT(last_extent_dropped) && i > 0 && i + 1 == header.extent_count;
    if (!dropped) MEMLITH_TRY(overlay_.apply(ObjectId{extent.object}, extent.offset, bytes.first(extent.bytes)));
    bytes = bytes.subspan(extent.bytes);
  }
  if (!bytes.empty()) return bad_commit(*log_, frame, "bytes are left over");
  return kOk;
}

// Writes the overlay into the home files, not flushed yet, and empties it.
Status Store::write_home() {
  const std::uint64_t pieces = std::max<std::uint64_t>(1, overlay_.piece_count());
  work_.piece = (work_.gathered - work_.home) / static_cast<double>(pieces);
  MEMLITH_TRY(keep_blocks());
  for (const ObjectId object : overlay_.objects()) MEMLITH_TRY(write_object_home(object));
  overlay_.clear();
  kept_blocks_.clear();
  return kOk;
}

Status Store::write_object_home(ObjectId object) {
  if (one_file() && object.value == 0) {
    return overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
      if (offset > sizeof home_file_record_ || bytes.size() > sizeof home_file_record_ - offset) {
        return fail(Errc::corrupt, Detail::directory,
                    "{}: a commit changes the file's record at offset {}, beyond its end", log_device_->path(), offset);
      }
      std::memcpy(reinterpret_cast<std::byte*>(&home_file_record_) + offset, bytes.data(), bytes.size());
      return kOk;
    });
  }
  MEMLITH_TRY_ASSIGN(Device* const device, home_if_there(object));
  bool removed = device == nullptr;
  if (!removed) {
    MEMLITH_TRY_ASSIGN(removed, device->removed());
  }
  if (removed) {
    unreachable_.emplace(object, 0);
    return kOk;
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  if (std::find(written_homes_.begin(), written_homes_.end(), object) == written_homes_.end()) {
    written_homes_.push_back(object);
  }
  // At open nobody has the home mapped, so it may be written past the page cache. That pays when there is much to write.
  std::unique_ptr<DirectHome> direct;
  if (options_.direct_io && !log_->started() && overlay_.bytes_held() >= options_.direct_replay_bytes_min) {
    MEMLITH_TRY_ASSIGN(direct, DirectHome::open(volume_, home_name(object), *device));
  }
  const std::uint64_t write_bytes_max = pacing_.has_value() ? CheckpointPace::kStepBytes : kWriteBytesMax;
  iovec pieces[kWritePiecesMax];
  std::size_t count = 0;
  std::uint64_t begin = 0;
  std::uint64_t bytes_held = 0;
  std::uint64_t pages_end = 0;  // the pages before it are counted
  const auto write_out = [&]() -> Status {
    if (count == 0) return kOk;
    counters_.home_bytes.fetch_add(bytes_held, std::memory_order_relaxed);
    MEMLITH_TRY(device->write_pieces(begin, {pieces, count}));
    // The page cache writes whole pages, however little of each has changed.
    const std::uint64_t pages_begin = std::max(pages_end, round_down(begin, kPageBytes));
    pages_end = round_up(begin + bytes_held, kPageBytes);
    home_bytes_unflushed_ += pages_end - std::min(pages_begin, pages_end);
    count = 0;
    bytes_held = 0;
    return give_way(object);
  };
  MEMLITH_TRY(overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset + bytes.size() > size) {
      unreachable_.emplace(object, offset + bytes.size());  // check_homes() says whether it matters
      // A user's file may have shrunk later in the log, and an earlier recovery cut it; what is left of the bytes counts.
      if (!one_file() || offset >= size || MEMLITH_MUTANT(bytes_over_the_end_dropped)) return kOk;
      bytes = bytes.first(size - offset);
    }
    work_.home += work_.piece;
    if (direct != nullptr && DirectHome::takes(offset, bytes.size())) {
      counters_.home_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
      return direct->put(offset, bytes);
    }
    if (count == kWritePiecesMax || bytes_held >= write_bytes_max || (count > 0 && offset != begin + bytes_held)) {
      MEMLITH_TRY(write_out());
    }
    if (count == 0) begin = offset;
    pieces[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    bytes_held += bytes.size();
    return kOk;
  }));
  if (direct != nullptr) MEMLITH_TRY(direct->finish());
  return write_out();
}

// A commit's flush waits for all that the device holds: what a checkpoint puts there is kept short, and while nobody waits for the
// checkpoint, handed out slowly.
Status Store::give_way(ObjectId object) {
  if (!log_->started()) return kOk;  // nobody commits yet
  if (StatsPage* const page = stats(); page != nullptr) {
    const auto total = static_cast<double>(page->checkpoint_total_bytes.load(std::memory_order_relaxed));
    page->checkpoint_done_bytes.store(static_cast<std::uint64_t>(work_.home * total), std::memory_order_relaxed);
    note_change_of_stats();
  }
  std::uint64_t step = options_.home_flush_bytes;
  if (pacing_.has_value()) {
    pacing_->pace.move(work_.home, bytes_between(pacing_->head_at_begin, log_->head()));
    step = pacing_->pace.step_bytes(step);
  }
  if (home_bytes_unflushed_ < step) return kOk;
  MEMLITH_TRY(flush_homes());
  if (!MEMLITH_MUTANT(checkpoint_forgets_home)) written_homes_.push_back(object);  // there may be more of it
  if (!pacing_.has_value()) return kOk;
  if (pacing_->caller_waits && log_->head() == pacing_->head_at_begin) return kOk;  // nobody commits
  const LockGuard lock(wake_mutex_);
  const bool hurry = wake_.wait_for(wake_mutex_, pacing_->pace.pause(SteadyClock::now() - pacing_->begin),
                                    [this] { return log_full_ || hurrying_ > 0 || stopping_ || others_wait(); });
  if (hurry) pacing_.reset();
  return kOk;
}

Status Store::flush_homes() {
  for (const ObjectId object : written_homes_) {
    MEMLITH_TRY_ASSIGN(Device* const device, home(object));
    MEMLITH_TRY(device->flush());
  }
  written_homes_.clear();
  home_bytes_unflushed_ = 0;
  return kOk;
}

}  // namespace memlith::core
