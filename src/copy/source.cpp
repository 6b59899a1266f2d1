#include "copy/source.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/buffer.hpp"

namespace memlith::core {

namespace {
constexpr std::uint32_t kTransfers = 4;  // side by side

StoreOptions options_to_follow(StoreOptions options) {
  options.create = options.exclusive = false;
  options.read_only = options.follow = true;
  return options;
}
}  // namespace

CopySource::CopySource(Volume& volume, StoreOptions options, CopySteps steps)
    : files_(volume, options_to_follow(std::move(options))), steps_(steps) {}

Result<CopiedState> CopySource::walk(CopySink& sink, const CopyProgress& progress) {
  progress_ = progress;
  const auto began = std::chrono::steady_clock::now();
  const auto patience = files_.options.follow_patience;
  for (int tries = 1;; ++tries) {
    const auto walked = try_to_walk(sink);
    replay_.forget();
    follower_.forget();
    if (walked.ok() && *walked) return state();
    if (!walked.ok() && !Follower::may_pass(walked.error())) return walked.error();
    // A small store is walked in no time, so six tries say little about the writer.
    if (tries < Follower::kTries) continue;
    const auto waited = std::chrono::steady_clock::now() - began;
    // A store that a process is opening looks damaged for moments, and one that is damaged does so for ever.
    if (!walked.ok() && waited >= patience / 10) return walked.error();
    if (waited >= patience) break;
    std::this_thread::sleep_for(Follower::kAskEvery);
  }
  return fail(Errc::busy, Detail::frame,
              "{}: each time that the store was copied, a process opened or closed it, or filled its log; try again "
              "when less is written, or give the log more room (log_bytes)",
              files_.path());
}

Result<bool> CopySource::try_to_walk(CopySink& sink) {
  MEMLITH_TRY(look());
  MEMLITH_TRY(sink.begin(state()));
  MEMLITH_ASSERT(read_.empty() && put_.empty());
  MEMLITH_TRY_ASSIGN(std::vector<ObjectId> left, homes_there());
  MEMLITH_TRY_ASSIGN(const bool taken, take_homes(sink, left));
  if (!taken) return false;
  follower_.set_on_full([this, &sink] { return put_gathered(sink); });
  for (const ObjectId object : left) {
    MEMLITH_TRY_ASSIGN(const bool read, read_home(sink, object));
    if (!read) return false;
  }
  // ORDER home-before-log-end: what a checkpoint writes home while it is read must be in the frames that are put on
  // top, so the log is read to its end last. [mutant copy_reads_log_first]
  MEMLITH_TRY_ASSIGN(const bool followed, follower_.finish());
  if (!followed) return false;
  MEMLITH_TRY(put_gathered(sink));
  MEMLITH_TRY(load_directory());
  MEMLITH_TRY(check_objects());
  return true;
}

// ---- homes -----------------------------------------------------------------------------------------------------

Status CopySource::look() {
  follower_.set_on_full({});
  put_.clear();
  read_.clear();
  directory_changes_.clear();
  done_bytes_ = total_bytes_ = bytes_since_look_ = 0;
  MEMLITH_TRY(follower_.look(Lsn{~std::uint64_t{0}}));
  follower_.start_at(files_.log->tail());
  rot_.begin();
  StoreHeader header;
  std::memcpy(&header, files_.log->superblock().client, sizeof header);
  record_ = {header.file, header.own, header.common, header.recoveries};
  return directory_->look_at_home();
}

// The objects that have a home now. What is created later has all of its bytes in frames that are yet to be read.
Result<std::vector<ObjectId>> CopySource::homes_there() {
  std::vector<ObjectId> objects;
  if (files_.one_file()) {
    objects.push_back(kFile);
  } else {
    MEMLITH_TRY_ASSIGN(const std::vector<std::string> names, files_.volume.list("objects"));
    for (const std::string& name : names) {
      const std::optional<ObjectId> object = StoreNames::object_named(name);
      if (object.has_value() && *object != kDirectory) objects.push_back(*object);
    }
    std::sort(objects.begin(), objects.end());
    MEMLITH_ASSERT(std::adjacent_find(objects.begin(), objects.end()) == objects.end());
  }
  for (const ObjectId object : objects) {
    MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get_if_there(object));
    if (home == nullptr) continue;
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
    total_bytes_ += size;
  }
  return objects;
}

// The sink first takes the files that it takes by itself, before anything is put. Leaves the others in `left`.
Result<bool> CopySource::take_homes(CopySink& sink, std::vector<ObjectId>& left) {
  MEMLITH_ASSERT(put_.empty());
  std::vector<ObjectId> to_read;
  for (const ObjectId object : left) {
    MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get_if_there(object));
    if (home == nullptr) continue;  // removed meanwhile
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
    MEMLITH_TRY_ASSIGN(const bool taken, sink.take(object, *home));
    if (!taken) {
      to_read.push_back(object);
      continue;
    }
    read_.insert(object);
    tell(size);
    MEMLITH_TRY_ASSIGN(const bool followed, read_along(size));
    if (!followed) return false;
  }
  left = std::move(to_read);
  return true;
}

Result<bool> CopySource::read_home(CopySink& sink, ObjectId object) {
  struct Transfer {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get(object));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
  MEMLITH_TRY_ASSIGN(const AlignedBuffer memory, AlignedBuffer::allocate(kTransfers * steps_.transfer_bytes));
  const std::unique_ptr<IoQueue> queue = home->make_queue(kTransfers);
  queue->register_memory(memory.span());
  std::array<Transfer, kTransfers> transfers;
  const auto memory_of = [this, &memory](std::uint64_t number, std::uint64_t bytes) {
    MEMLITH_ASSERT(bytes <= steps_.transfer_bytes);
    return memory.span().subspan(number % kTransfers * steps_.transfer_bytes, bytes);
  };
  MEMLITH_TRY(rot_.enter(object, size));
  std::uint64_t started = 0;
  std::uint64_t next = 0;
  for (std::uint64_t arrived = 0;; ++arrived) {
    while (next < size && started - arrived < kTransfers) {
      const std::uint64_t begin = std::min(size, std::max(next, round_down(home->skip_hole(next), kPageBytes)));
      tell(begin - next);
      MEMLITH_ASSERT(next <= begin && begin <= size);
      const std::uint64_t bytes = std::min(steps_.transfer_bytes, size - begin);
      next = begin + bytes;
      if (bytes == 0) break;
      MEMLITH_TRY(queue->read(static_cast<std::uint32_t>(started % kTransfers), begin, memory_of(started, bytes)));
      transfers[started++ % kTransfers] = {begin, bytes};
    }
    MEMLITH_ASSERT(arrived <= started && started - arrived <= kTransfers);
    if (arrived == started) break;
    const Transfer transfer = transfers[arrived % kTransfers];
    MEMLITH_TRY(queue->wait(static_cast<std::uint32_t>(arrived % kTransfers)));
    MEMLITH_TRY(rot_.note_home(transfer.offset, memory_of(arrived, transfer.bytes)));
    MEMLITH_TRY(put_read(sink, object, transfer.offset, memory_of(arrived, transfer.bytes)));
    tell(transfer.bytes);
    MEMLITH_TRY_ASSIGN(const bool followed, read_along(transfer.bytes));
    if (!followed) return false;
  }
  MEMLITH_ASSERT(next == size);
  read_.insert(object);
  put_.erase(object);
  MEMLITH_TRY(rot_.leave());
  return true;
}

// The log is read along, so that only the time of one step counts against the writer's log.
Result<bool> CopySource::read_along(std::uint64_t bytes) {
  bytes_since_look_ += bytes;
  if (!follower_.writes() || bytes_since_look_ < steps_.look_bytes) return true;
  bytes_since_look_ = 0;
  return follower_.gather();
}

// ---- what goes to the sink -------------------------------------------------------------------------------------

// A home may be older than the frames that were put.
Status CopySource::put_read(CopySink& sink, ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_ASSERT(!read_.contains(object));
  const auto found = put_.find(object);
  if (found == put_.end()) return sink.put(object, offset, bytes);
  return found->second.for_each_gap(offset, offset + bytes.size(), [&](std::uint64_t begin, std::uint64_t end) {
    MEMLITH_ASSERT(offset <= begin && begin < end && end - offset <= bytes.size());
    return sink.put(object, begin, bytes.subspan(begin - offset, end - begin));
  });
}

Status CopySource::put_gathered(CopySink& sink) {
  const Overlay& overlay = replay_.overlay();
  for (const ObjectId object : overlay.objects()) {
    if (object == kDirectory) {
      MEMLITH_TRY(overlay.for_each(object, [this](std::uint64_t offset, std::span<const std::byte> bytes) {
        return directory_changes_.apply(kDirectory, offset, bytes);
      }));
      continue;
    }
    MEMLITH_ASSERT(!files_.one_file() || object == kFile);
    ByteRanges* const ranges = read_.contains(object) ? nullptr : &put_[object];
    MEMLITH_TRY(overlay.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      if (ranges != nullptr) ranges->add(offset, offset + bytes.size());
      rot_.note_frame(object, offset, bytes.size());
      return sink.put(object, offset, bytes);
    }));
  }
  replay_.forget();
  return kOk;
}

// ---- the state -------------------------------------------------------------------------------------------------

Status CopySource::load_directory() {
  MEMLITH_ASSERT(replay_.overlay().objects().empty());  // every frame was put
  directory_->read_record(record_);
  MEMLITH_TRY(directory_->take_record(directory_changes_));
  if (!follower_.writes()) MEMLITH_TRY(directory_->check_has_all_commits());
  return directory_->load(directory_changes_);
}

// Every object has a home that is long enough. An object that a later commit removed may have lost it: the walk is
// repeated then.
Status CopySource::check_objects() { return directory_->check_homes({}); }

CopiedState CopySource::state() const {
  const Superblock& superblock = files_.log->superblock();
  CopiedState state;
  state.position = follower_.at();
  MEMLITH_ASSERT(state.position.lsn >= Lsn{superblock.tail_lsn});
  state.log_id = superblock.log_id;
  state.origin = files_.origin;
  state.incarnation = superblock.incarnation;
  state.kind = files_.options.kind;
  state.physical_block_bytes = files_.physical_block_bytes;
  state.marked_by_caller = files_.in_use == InUse::caller;
  state.file = directory_->record_at_home();
  state.slot_bytes = superblock.slot_bytes;
  state.slot_count = superblock.slot_count_made;
  state.next_id = directory_->next_id();
  state.objects = directory_->objects();
  state.damaged = rot_.damaged(state.objects);
  state.blocks = rot_.blocks();
  state.blocks_unknown = rot_.blocks_unknown();
  return state;
}

void CopySource::tell(std::uint64_t bytes) {
  done_bytes_ += bytes;
  total_bytes_ = std::max(total_bytes_, done_bytes_);
  if (progress_ && bytes > 0) progress_(done_bytes_, total_bytes_);
}

}  // namespace memlith::core
