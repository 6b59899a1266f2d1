#include "sim/sim.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checksum.hpp"
#include "device/lines.hpp"

namespace memlith::core {

// ---- SimFaults -------------------------------------------------------------------------------------------------

void SimFaults::plan(Kind kind, std::uint64_t nth, bool for_ever) {
  const auto index = static_cast<std::size_t>(kind);
  plans_[index] = {true, seen_[index] + nth, for_ever};
  ++planned_;
}

bool SimFaults::strikes(Kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  const std::uint64_t now = seen_[index]++;
  Plan& plan = plans_[index];
  if (!plan.active || now < plan.nth) return false;
  if (now > plan.nth && !plan.for_ever) return false;
  ++fired_[index];
  return true;
}

std::uint64_t SimFaults::fired() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t each : fired_) sum += each;
  return sum;
}

void SimFaults::clear() { plans_ = {}; }

// ---- SimVolume -------------------------------------------------------------------------------------------------

// A file: the bytes that programs see, and in their place, where the two differ, the bytes that are durable.
struct SimVolume::File {
  std::uint32_t number = 0;
  std::uint64_t birth = 0;
  bool sparse = false;          // has holes: pages without space
  std::vector<bool> has_space;  // of the pages that it had when it became so
  int holders = 0;              // of locks: -1 exclusive, else the number of readers
  int descriptor = -1;          // a memfd that mirrors the content, once it is mapped

  explicit File(SimBytes bytes = std::make_shared<std::vector<std::byte>>())
      : content_(std::move(bytes)), flushed_size_(content_->size()) {}
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return *content_; }
  [[nodiscard]] const SimBytes& content() const { return content_; }

  void make_sparse() {
    sparse = true;
    has_space.assign((bytes().size() + kPageBytes - 1) / kPageBytes, false);
  }
  [[nodiscard]] bool has_room(std::uint64_t offset, std::uint64_t bytes) const {
    if (!sparse || bytes == 0) return true;
    const std::uint64_t end = std::min<std::uint64_t>((offset + bytes - 1) / kPageBytes + 1, has_space.size());
    for (std::uint64_t page = offset / kPageBytes; page < end; ++page) {
      if (!has_space[page]) return false;
    }
    return true;
  }
  void give_room(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t end = std::min<std::uint64_t>((offset + bytes) / kPageBytes, has_space.size());
    for (std::uint64_t page = offset / kPageBytes; page < end; ++page) has_space[page] = true;
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) {
    auto& content = mutable_bytes();
    const std::uint64_t end = offset + bytes.size();
    if (content.size() < end) content.resize(end);
    remember(offset, end);
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
  }
  void resize(std::uint64_t size) {
    if (size < content_->size()) remember(size, content_->size());
    mutable_bytes().resize(size);
  }
  // All of it is durable.
  void flush() {
    before_.clear();
    flushed_size_ = content_->size();
  }
  // These bytes are durable as they are now.
  void make_durable(std::uint64_t offset, std::uint64_t count) {
    const std::uint64_t end = offset + count;
    MEMLITH_ASSERT(end <= content_->size());
    for (Before& before : before_) {
      const std::uint64_t from = std::max(offset, before.offset);
      const std::uint64_t to = std::min<std::uint64_t>(end, before.offset + before.bytes.size());
      if (from < to) std::memcpy(before.bytes.data() + (from - before.offset), content_->data() + from, to - from);
    }
    flushed_size_ = std::max(flushed_size_, end);
  }
  // Programs see the durable bytes again.
  void drop() {
    auto& content = mutable_bytes();
    for (auto before = before_.rbegin(); before != before_.rend(); ++before) {
      const std::uint64_t end = before->offset + before->bytes.size();
      if (content.size() < end) content.resize(end);
      std::memcpy(content.data() + before->offset, before->bytes.data(), before->bytes.size());
    }
    content.resize(flushed_size_);
    before_.clear();
  }

  void mirror(std::uint64_t offset, std::uint64_t count) const {
    if (descriptor < 0) return;
    MEMLITH_ASSERT(::pwrite(descriptor, content_->data() + offset, count, static_cast<off_t>(offset)) ==
                   static_cast<ssize_t>(count));
  }
  void mirror_size() const {
    if (descriptor >= 0) MEMLITH_ASSERT(::ftruncate(descriptor, static_cast<off_t>(content_->size())) == 0);
  }

 private:
  // The bytes before a change since the last flush.
  struct Before {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  void remember(std::uint64_t begin, std::uint64_t end) {
    before_.push_back({begin,
                       {content_->begin() + static_cast<std::ptrdiff_t>(begin),
                        content_->begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  std::vector<std::byte>& mutable_bytes() {
    if (own_ == nullptr || own_.use_count() > 2) {  // ours and `content_`
      own_ = std::make_shared<std::vector<std::byte>>(*content_);
      content_ = own_;
    }
    return *own_;
  }

  SimBytes content_;  // copied before the first write when an image shares it
  std::shared_ptr<std::vector<std::byte>> own_;
  std::vector<Before> before_;  // the oldest first
  std::uint64_t flushed_size_;
};

namespace {

// The writes of a LineWriter: the lines that it streams, one behind the other, and whether a fence follows.
class SimLines {
 public:
  explicit SimLines(const std::vector<std::byte>& content) : content_(content) {}
  void stream(std::uint64_t offset, const std::byte* line) {
    MEMLITH_ASSERT(offset % kLineBytes == 0 && (streamed.empty() || offset == begin + streamed.size()));
    if (streamed.empty()) begin = offset;
    streamed.insert(streamed.end(), line, line + kLineBytes);
  }
  void cache(std::uint64_t offset, const std::byte* line) {
    cached_at = offset;
    cached.assign(line, line + kLineBytes);
  }
  void read(std::uint64_t offset, std::byte* line) const {
    const std::uint64_t there = content_.size() - std::min<std::uint64_t>(content_.size(), offset);
    std::memset(line, 0, kLineBytes);
    if (there > 0) std::memcpy(line, content_.data() + offset, std::min(there, kLineBytes));
  }
  void fence() { fenced = true; }

  std::uint64_t begin = 0;
  std::vector<std::byte> streamed;
  std::uint64_t cached_at = 0;
  std::vector<std::byte> cached;
  bool fenced = false;

 private:
  const std::vector<std::byte>& content_;
};

}  // namespace

// Transfers that are done as late as they may be.
class SimQueue final : public IoQueue {
 public:
  SimQueue(Device& device, std::uint32_t depth) : device_(device), transfers_(depth) {}
  // A write without a wait never happens.
  ~SimQueue() override = default;
  Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) override {
    MEMLITH_TRY(wait(number));
    std::fill(target.begin(), target.end(), std::byte{0xa5});
    transfers_[number] = {Transfer::Kind::read, offset, target};
    return kOk;
  }
  Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) override {
    MEMLITH_TRY(wait(number));
    MEMLITH_TRY(device_.check_latch());
    transfers_[number] = {Transfer::Kind::write, offset, {const_cast<std::byte*>(source.data()), source.size()}};
    return kOk;
  }
  Status wait(std::uint32_t number) override {
    const Transfer transfer = std::exchange(transfers_[number], {});
    switch (transfer.kind) {
      case Transfer::Kind::none: break;
      case Transfer::Kind::read: return device_.read(transfer.offset, transfer.memory);
      case Transfer::Kind::write: return device_.write(transfer.offset, transfer.memory);
    }
    return kOk;
  }
  Status wait_all() override {
    Status first = kOk;
    for (auto number = static_cast<std::uint32_t>(transfers_.size()); number-- > 0;) {
      if (const Status status = wait(number); first.ok()) first = status;
    }
    return first;
  }

 private:
  struct Transfer {
    enum class Kind : std::uint8_t { none, read, write } kind = Kind::none;
    std::uint64_t offset = 0;
    std::span<std::byte> memory;
  };
  Device& device_;
  std::vector<Transfer> transfers_;
};

class SimDevice final : public Device {
 public:
  SimDevice(SimVolume& volume, std::shared_ptr<SimVolume::File> file, DeviceCaps caps, std::string path, bool direct,
            bool writable)
      : Device(caps, std::move(path), direct), volume_(volume), file_(std::move(file)), writable_(writable) {}

  Result<std::uint64_t> size() override {
    const std::lock_guard lock(volume_.mutex_);
    return static_cast<std::uint64_t>(file_->bytes().size());
  }

  Result<FileIdentity> identity() override { return FileIdentity{0, file_->number}; }
  FileBirth birth() override { return {file_->birth, file_->birth}; }
  Result<std::uint64_t> stamp() override {
    const std::lock_guard lock(volume_.mutex_);
    return std::max<std::uint64_t>(1, checksum(file_->bytes(), 0));
  }
  Result<bool> removed() override {
    const std::lock_guard lock(volume_.mutex_);
    return std::none_of(volume_.names_.begin(), volume_.names_.end(),
                        [this](const auto& each) { return each.second == file_; });
  }
  Status match_permissions(Device&) override { return kOk; }

  Result<Mappable> mappable(std::uint64_t offset, std::uint64_t) override {
    const std::lock_guard lock(volume_.mutex_);
    MEMLITH_ASSERT(!direct());
    if (file_->descriptor < 0) {
      file_->descriptor = ::memfd_create("memlith-sim", MFD_CLOEXEC);
      if (file_->descriptor < 0) return fail_errno(errno, Detail::mapping, "{}: no memory to map", path_);
      file_->mirror_size();
      if (!file_->bytes().empty()) file_->mirror(0, file_->bytes().size());
    }
    return Mappable{file_->descriptor, offset};
  }

  // No part of a sparse file has space at first; its bytes need not be zeros.
  std::optional<Hole> next_hole(std::uint64_t offset) override {
    const std::lock_guard lock(volume_.mutex_);
    return file_->sparse ? std::optional(Hole{offset, file_->bytes().size()}) : std::nullopt;
  }

  bool read_cached(std::uint64_t offset, std::span<std::byte> target) override {
    const std::lock_guard lock(volume_.mutex_);
    const auto& content = file_->bytes();
    if (direct() || offset > content.size() || target.size() > content.size() - offset) return false;
    std::memcpy(target.data(), content.data() + offset, target.size());
    return true;
  }

  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override { return std::make_unique<SimQueue>(*this, depth); }

 protected:
  Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    const std::lock_guard lock(volume_.mutex_);
    check_alignment(offset, target.size());
    if (volume_.faults_.strikes(SimFaults::Kind::fail_read)) {
      return fail_errno(EIO, Detail::read, "{}: cannot read {} bytes at offset {}", path_, target.size(), offset);
    }
    if (volume_.faults_.strikes(SimFaults::Kind::no_memory)) {
      return fail_errno(ENOMEM, Detail::read, "{}: cannot read {} bytes at offset {}", path_, target.size(), offset);
    }
    const auto& content = file_->bytes();
    if (offset > content.size() || target.size() > content.size() - offset) {
      return fail(Errc::corrupt, Detail::read,
                  "{}: wanted {} bytes at offset {}, but the file has {}; it was cut short", path_, target.size(),
                  offset, content.size());
    }
    if (!target.empty()) std::memcpy(target.data(), content.data() + offset, target.size());
    SimFaults& faults = volume_.faults_;
    const bool may_flip = !target.empty() && (!faults.flips_in || faults.flips_in(path_));
    if (may_flip && faults.strikes(SimFaults::Kind::flip_bit)) {
      target[target.size() / 2] ^= std::byte{0x10};
    }
    return kOk;
  }

  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    if (volume_.before_transfer) volume_.before_transfer();
    const Status status = write_now(offset, pieces);
    if (volume_.after_write) volume_.after_write();
    return status;
  }

  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    if (caps_.through_bytes_max == 0) return false;
    if (volume_.before_transfer) volume_.before_transfer();
    const Status status = write_now(offset, pieces, true);
    if (volume_.after_write) volume_.after_write();
    MEMLITH_TRY(status);
    return true;
  }

  Status write_now(std::uint64_t offset, std::span<const iovec> pieces, bool through = false) {
    const std::lock_guard lock(volume_.mutex_);
    MEMLITH_ASSERT(writable_);
    SimRecord record;
    record.op = SimOp::write;
    record.file = file_->number;
    record.offset = offset;
    for (const iovec& piece : pieces) {
      const auto* base = static_cast<const std::byte*>(piece.iov_base);
      record.data.insert(record.data.end(), base, base + piece.iov_len);
    }
    check_alignment(offset, record.data.size());
    if (record.data.empty()) return kOk;
    if (!file_->has_room(offset, record.data.size())) return failed_write(offset, ENOSPC);
    if (volume_.edit_write) volume_.edit_write(path_, offset, record.data);
    const bool failed = volume_.faults_.strikes(SimFaults::Kind::fail_write);
    const bool full = volume_.faults_.strikes(SimFaults::Kind::full_write);
    if ((failed || full) && !volume_.faults_.done_nevertheless) return failed_write(offset, full ? ENOSPC : EIO);
    const bool cut_short = volume_.faults_.strikes(SimFaults::Kind::short_write);
    if (cut_short || full) record.data.resize(record.data.size() / 2);
    const std::uint64_t bytes = record.data.size();
    if (volume_.lines_) {
      write_lines(std::move(record));
    } else {
      keep(std::move(record));
    }
    if (cut_short || failed || full) return failed_write(offset, full ? ENOSPC : EIO);
    if (through) {
      SimRecord written;
      written.op = SimOp::written_through;
      written.file = file_->number;
      written.offset = offset;
      written.bytes = bytes;
      volume_.record(std::move(written));
      file_->make_durable(offset, bytes);
    }
    return kOk;
  }

  void keep(SimRecord&& record) {
    const std::size_t size = file_->bytes().size();
    file_->write(record.offset, record.data);
    if (file_->bytes().size() > size) file_->mirror_size();
    file_->mirror(record.offset, record.data.size());
    volume_.record(std::move(record));
  }

  // The write as lines, with the fence behind it if there is one. A line that is only in the cache is pending.
  void write_lines(SimRecord&& given) {
    const std::uint64_t size = std::max<std::uint64_t>(file_->bytes().size(), given.offset + given.data.size());
    SimLines lines(file_->bytes());
    LineWriter writer(lines, given.offset);
    writer.put(given.data);
    writer.finish();
    const auto keep_lines = [&](std::uint64_t offset, std::vector<std::byte>&& bytes) {
      if (bytes.empty()) return;
      SimRecord record;
      record.op = SimOp::write;
      record.file = file_->number;
      record.offset = offset;
      record.data = std::move(bytes);
      record.data.resize(std::min<std::uint64_t>(record.data.size(), size - offset));
      keep(std::move(record));
    };
    keep_lines(lines.begin, std::move(lines.streamed));
    if (lines.fenced) record_flush();
    keep_lines(lines.cached_at, std::move(lines.cached));
  }

  void record_flush() {
    file_->flush();
    SimRecord record;
    record.op = SimOp::flush;
    record.file = file_->number;
    volume_.record(std::move(record));
  }

  Status do_flush() override {
    if (volume_.before_transfer) volume_.before_transfer();
    const std::lock_guard lock(volume_.mutex_);
    if (volume_.faults_.strikes(SimFaults::Kind::fail_flush)) {
      if (!volume_.faults_.done_nevertheless) {
        file_->drop();
        file_->mirror_size();
        if (!file_->bytes().empty()) file_->mirror(0, file_->bytes().size());
      }
      SimRecord record;
      record.op = SimOp::failed_flush;
      record.file = file_->number;
      record.bytes =
          static_cast<std::uint64_t>(volume_.faults_.done_nevertheless ? FailedFlush::unflushed : FailedFlush::dropped);
      volume_.record(std::move(record));
      return fail_errno(EIO, Detail::flush, "{}: flush failed", path_);
    }
    if (volume_.faults_.strikes(SimFaults::Kind::forget_flush)) {
      SimRecord record;
      record.op = SimOp::failed_flush;
      record.file = file_->number;
      record.offset = volume_.faults_.seen(SimFaults::Kind::forget_flush);  // what the halves are drawn from
      record.bytes = static_cast<std::uint64_t>(volume_.faults_.done_nevertheless ? FailedFlush::half_forgotten
                                                                                  : FailedFlush::forgotten);
      volume_.record(std::move(record));
      return fail_errno(EIO, Detail::flush, "{}: flush failed", path_);
    }
    // Lines are durable as soon as they are written; a length is not.
    if (!volume_.lines_ || std::exchange(length_changed_, false)) record_flush();
    return kOk;
  }

  Status do_reserve(std::uint64_t bytes) override { return resize(bytes, SimOp::reserve); }
  Status do_fill_holes() override {
    const std::lock_guard lock(volume_.mutex_);
    MEMLITH_ASSERT(writable_);
    if (!file_->sparse) return kOk;
    if (volume_.faults_.strikes(SimFaults::Kind::no_space)) {
      return fail_errno(ENOSPC, Detail::resize, "{}: the file has holes, and the disk has no space for them", path_);
    }
    file_->sparse = false;
    return kOk;
  }
  Status do_undiscard(std::uint64_t offset, std::uint64_t bytes) override {
    const std::lock_guard lock(volume_.mutex_);
    MEMLITH_ASSERT(writable_);
    if (file_->has_room(offset, bytes)) return kOk;
    if (volume_.faults_.strikes(SimFaults::Kind::no_space)) {
      return fail_errno(ENOSPC, Detail::resize, "{}: the file has a hole, and the disk has no space for it", path_);
    }
    file_->give_room(offset, bytes);
    return kOk;
  }
  Status do_truncate(std::uint64_t bytes) override { return resize(bytes, SimOp::truncate); }

 private:
  Status failed_write(std::uint64_t offset, int error) {
    return fail_errno(error, Detail::write, "{}: write at offset {} failed", path_, offset);
  }

  Status resize(std::uint64_t bytes, SimOp op) {
    const std::lock_guard lock(volume_.mutex_);
    MEMLITH_ASSERT(writable_);
    if (op == SimOp::reserve && bytes <= file_->bytes().size()) return kOk;
    if (bytes > file_->bytes().size() && volume_.faults_.strikes(SimFaults::Kind::no_space)) {
      return fail_errno(ENOSPC, Detail::resize, "{}: cannot reserve {} bytes", path_, bytes);
    }
    const bool failed = volume_.faults_.strikes(SimFaults::Kind::fail_resize);
    if (failed && !volume_.faults_.done_nevertheless) return failed_resize(bytes);
    file_->resize(bytes);
    file_->mirror_size();
    SimRecord record;
    record.op = op;
    record.file = file_->number;
    record.bytes = bytes;
    volume_.record(std::move(record));
    length_changed_ = true;
    return failed ? failed_resize(bytes) : kOk;
  }
  Status failed_resize(std::uint64_t bytes) {
    return fail_errno(EIO, Detail::resize, "{}: cannot set its size to {} bytes", path_, bytes);
  }

  void check_alignment(std::uint64_t offset, std::uint64_t bytes) const {
    MEMLITH_ASSERT(offset % caps_.block_bytes == 0 && bytes % caps_.block_bytes == 0);
  }

  SimVolume& volume_;
  std::shared_ptr<SimVolume::File> file_;
  bool writable_;
  bool length_changed_ = true;  // perhaps by a program that was killed
};

SimVolume::SimVolume(SimImage image, bool record)
    : recording_(record),
      lines_(image.lines),
      forced_unit_access_(image.forced_unit_access),
      whole_sectors_(image.whole_sectors) {
  for (const auto& [name, bytes] : image.files) {
    auto file = std::make_shared<File>(bytes);
    file->number = next_file_++;
    const auto birth = image.births.find(name);
    if (birth != image.births.end()) file->birth = birth->second;
    next_birth_ = std::max(next_birth_, file->birth + 1);
    names_[name] = std::move(file);
  }
  if (record) trace_.start = std::move(image);
}

SimVolume::SimVolume(const SimTrace& trace, std::size_t count) : SimVolume(trace.start, true) {
  std::vector<std::shared_ptr<File>> files;
  for (const auto& [name, file] : names_) files.push_back(file);
  trace_.records.assign(trace.records.begin(), trace.records.begin() + static_cast<std::ptrdiff_t>(count));
  for (const SimRecord& record : trace_.records) {
    switch (record.op) {
      case SimOp::write: files[record.file]->write(record.offset, record.data); break;
      case SimOp::flush: files[record.file]->flush(); break;
      case SimOp::written_through: files[record.file]->make_durable(record.offset, record.bytes); break;
      case SimOp::failed_flush:
        if (record.bytes == static_cast<std::uint64_t>(FailedFlush::dropped)) files[record.file]->drop();
        break;
      case SimOp::reserve:
      case SimOp::truncate: files[record.file]->resize(record.bytes); break;
      case SimOp::create:
        MEMLITH_ASSERT(record.file == files.size());
        files.push_back(std::make_shared<File>());
        files.back()->number = next_file_++;
        files.back()->birth = record.offset;
        next_birth_ = std::max(next_birth_, record.offset + 1);
        names_[record.name] = files.back();
        break;
      case SimOp::rename:
        names_[record.to] = names_.at(record.name);
        names_.erase(record.name);
        break;
      case SimOp::remove: names_.erase(record.name); break;
      case SimOp::make_folder: folders_.insert(record.name); break;
      case SimOp::sync_folder: break;
    }
  }
}

SimVolume::~SimVolume() = default;

std::string SimVolume::path_of(std::string_view name) const { return "sim:" + std::string(name); }

SimTrace SimVolume::copy_trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

std::size_t SimVolume::operations() const {
  const std::lock_guard lock(mutex_);
  return trace_.records.size();
}

void SimVolume::make_sparse(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  MEMLITH_ASSERT(found != names_.end());
  found->second->make_sparse();
}

bool SimVolume::sparse(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  return found != names_.end() && found->second->sparse;
}

SimImage SimVolume::image() const {
  const std::lock_guard lock(mutex_);
  SimImage image;
  image.lines = lines_;
  image.forced_unit_access = forced_unit_access_;
  image.whole_sectors = whole_sectors_;
  for (const auto& [name, file] : names_) {
    image.files[name] = file->content();
    image.births[name] = file->birth;
  }
  return image;
}

void SimVolume::record(SimRecord&& record) {
  if (recording_) trace_.records.push_back(std::move(record));
}

Result<std::unique_ptr<Device>> SimVolume::open(std::string_view name, OpenMode mode, Caching caching) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  std::shared_ptr<File> file;
  if (mode == OpenMode::create) {
    if (found != names_.end()) return fail_errno(EEXIST, Detail::open, "{}: cannot create it", path_of(name));
    if (faults_.strikes(SimFaults::Kind::no_space)) {
      return fail_errno(ENOSPC, Detail::open, "{}: cannot create it", path_of(name));
    }
    file = std::make_shared<File>();
    file->number = next_file_++;
    file->birth = next_birth_++;
    names_[std::string(name)] = file;
    SimRecord entry;
    entry.op = SimOp::create;
    entry.file = file->number;
    entry.offset = file->birth;
    entry.name = std::string(name);
    record(std::move(entry));
  } else {
    if (found == names_.end()) return fail_errno(ENOENT, Detail::open, "{}: cannot open it", path_of(name));
    file = found->second;
  }
  return make_device(std::move(file), name, mode != OpenMode::read_only, caching);
}

std::unique_ptr<Device> SimVolume::make_device(std::shared_ptr<File> file, std::string_view name, bool writable,
                                               Caching caching) {
  DeviceCaps caps;
  const bool direct = caching == Caching::direct && !lines_;
  caps.block_bytes = direct ? direct_block_bytes : 1;
  if (caps.block_bytes > caps.log_block_bytes) caps.log_block_bytes = 4096;
  if (forced_unit_access_ && direct) caps.through_bytes_max = kSimThroughBytes;
  if (lines_) {
    caps.io = IoBackend::dax;
    caps.atomic_bytes = kWordBytes;
    caps.log_block_bytes = kLineBytes;
  }
  return std::make_unique<SimDevice>(*this, std::move(file), caps, path_of(name), direct, writable);
}

Result<bool> SimVolume::exists(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return name.empty() || names_.contains(name) || is_folder(name);
}

Result<std::optional<FileIdentity>> SimVolume::identity_of(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return std::optional<FileIdentity>();
  return std::optional(FileIdentity{0, found->second->number});
}

bool SimVolume::is_folder(std::string_view name) const {
  if (folders_.contains(name)) return true;
  const std::string prefix = std::string(name) + "/";
  const auto first = names_.lower_bound(prefix);
  return first != names_.end() && first->first.starts_with(prefix);
}

Result<std::vector<std::string>> SimVolume::list(std::string_view folder) {
  const std::lock_guard lock(mutex_);
  const std::string prefix = folder.empty() ? "" : std::string(folder) + "/";
  std::set<std::string> result;
  const auto add = [&](std::string_view name) {
    if (!name.starts_with(prefix)) return;
    const std::string_view rest = name.substr(prefix.size());
    result.emplace(rest.substr(0, rest.find('/')));
  };
  for (const auto& [name, file] : names_) add(name);
  for (const std::string& name : folders_) add(name);
  return std::vector<std::string>(result.begin(), result.end());
}

// Durable on ok, also if another process made it.
Status SimVolume::make_folder(std::string_view name) {
  if (name.empty()) return kOk;
  {
    const std::lock_guard lock(mutex_);
    if (!is_folder(name)) {
      if (faults_.strikes(SimFaults::Kind::no_space)) {
        return fail_errno(ENOSPC, Detail::open, "{}: cannot create it", path_of(name));
      }
      folders_.emplace(name);
      SimRecord entry;
      entry.op = SimOp::make_folder;
      entry.name = std::string(name);
      record(std::move(entry));
    }
  }
  return sync_folder(sim_folder_of(name));
}

Status SimVolume::rename(std::string_view from, std::string_view to) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(from);
  if (found == names_.end()) return fail_errno(ENOENT, Detail::write, "{}: cannot be renamed", path_of(from));
  const bool failed = faults_.strikes(SimFaults::Kind::fail_name);
  const auto error = [&] { return fail_errno(EIO, Detail::write, "{}: cannot be renamed", path_of(from)); };
  if (failed && !faults_.done_nevertheless) return error();
  auto file = found->second;
  names_.erase(found);
  SimRecord entry;
  entry.op = SimOp::rename;
  entry.file = file->number;
  entry.name = std::string(from);
  entry.to = std::string(to);
  names_[std::string(to)] = std::move(file);
  record(std::move(entry));
  return failed ? error() : kOk;
}

Status SimVolume::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return kOk;
  const bool failed = faults_.strikes(SimFaults::Kind::fail_name);
  const auto error = [&] { return fail_errno(EIO, Detail::write, "{}: cannot be removed", path_of(name)); };
  if (failed && !faults_.done_nevertheless) return error();
  SimRecord entry;
  entry.op = SimOp::remove;
  entry.file = found->second->number;
  entry.name = std::string(name);
  names_.erase(found);
  record(std::move(entry));
  return failed ? error() : kOk;
}

Status SimVolume::sync_folder(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const bool failed = faults_.strikes(SimFaults::Kind::fail_folder);
  const auto error = [&] { return fail_errno(EIO, Detail::flush, "{}: flush failed", path_of(name)); };
  if (failed && !faults_.done_nevertheless) return error();
  SimRecord entry;
  entry.op = SimOp::sync_folder;
  entry.name = std::string(name);
  record(std::move(entry));
  return failed ? error() : kOk;
}

namespace {
class SimLock final : public VolumeLock {
 public:
  explicit SimLock(std::function<void()> release) : release_(std::move(release)) {}
  ~SimLock() override { release_(); }

 private:
  std::function<void()> release_;
};
}  // namespace

class SimVolume::SimFile final : public OpenFile {
 public:
  SimFile(SimVolume& volume, std::shared_ptr<File> file, std::string name, bool writable)
      : volume_(volume), file_(std::move(file)), name_(std::move(name)), writable_(writable) {}

  Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
    const std::lock_guard lock(volume_.mutex_);
    const auto named = volume_.names_.find(name_);
    if (named == volume_.names_.end() || named->second != file_) {
      return fail(Errc::not_found, Detail::lock, "{}: was replaced while it was being locked", volume_.path_of(name_));
    }
    int& holders = file_->holders;
    if (holders < 0 || (exclusive && holders > 0)) {
      return fail(Errc::busy, Detail::lock, "{}: cannot lock it: it is held", volume_.path_of(name_));
    }
    holders = exclusive ? -1 : holders + 1;
    auto release = [&volume = volume_, file = file_, exclusive] {
      const std::lock_guard relock(volume.mutex_);
      file->holders = exclusive ? 0 : file->holders - 1;
    };
    return std::unique_ptr<VolumeLock>(std::make_unique<SimLock>(std::move(release)));
  }
  Result<std::unique_ptr<Device>> device(std::string_view name, Caching caching) override {
    return volume_.make_device(file_, name, writable_, caching);
  }

 private:
  SimVolume& volume_;
  std::shared_ptr<File> file_;
  std::string name_;
  bool writable_;
};

Result<std::unique_ptr<OpenFile>> SimVolume::open_file(std::string_view name, bool writable) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return fail_errno(ENOENT, Detail::open, "{}: cannot open it", path_of(name));
  return std::unique_ptr<OpenFile>(std::make_unique<SimFile>(*this, found->second, std::string(name), writable));
}

}  // namespace memlith::core
