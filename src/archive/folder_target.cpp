// A folder as the target of an archive: an object is a file, which gets its name when it is complete and flushed.
#include <algorithm>

#include "archive/target.hpp"

namespace memlith::core {

namespace {

constexpr const char* kFresh = ".new";
constexpr const char* kLockName = "lock";

class FolderSink final : public ArchiveSink {
 public:
  FolderSink(Volume& volume, std::string name, std::unique_ptr<Device> device)
      : volume_(volume), name_(std::move(name)), device_(std::move(device)) {}
  ~FolderSink() override {
    if (device_ == nullptr) return;
    const KeptSentence why;
    (void)volume_.remove(name_ + kFresh);
  }
  Status write(std::span<const std::byte> bytes) override {
    MEMLITH_ASSERT(device_ != nullptr);  // not behind finish()
    MEMLITH_TRY(device_->write(at_, bytes));
    at_ += bytes.size();
    return kOk;
  }
  Status finish() override {
    MEMLITH_ASSERT(device_ != nullptr && at_ > 0);
    // ORDER content-before-name: an object that has its name is complete after a power cut. [mutant
    // archive_named_unflushed]
    MEMLITH_TRY(device_->flush());
    MEMLITH_TRY(volume_.rename(name_ + kFresh, name_));
    device_ = nullptr;
    // ORDER name-before-next: the manifest that names this object is put after it. [mutant archive_name_unflushed]
    return volume_.sync_folder("");
  }

 private:
  Volume& volume_;
  const std::string name_;
  std::unique_ptr<Device> device_;
  std::uint64_t at_ = 0;
};

class FolderStream final : public ArchiveStream {
 public:
  FolderStream(std::unique_ptr<Device> device, std::uint64_t size) : device_(std::move(device)), size_(size) {}
  Result<std::uint64_t> read(std::span<std::byte> target) override {
    MEMLITH_ASSERT(at_ <= size_);
    const std::uint64_t count = std::min<std::uint64_t>(target.size(), size_ - at_);
    if (count > 0) MEMLITH_TRY(device_->read(at_, target.first(count)));
    at_ += count;
    return count;
  }

 private:
  std::unique_ptr<Device> device_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
};

class FolderTarget final : public ArchiveTarget {
 public:
  explicit FolderTarget(Volume& volume) : volume_(volume) {}

  Result<std::unique_ptr<ArchiveSink>> put(const std::string& name) override {
    const std::string fresh = name + kFresh;
    MEMLITH_TRY_ASSIGN(const bool left_over, volume_.exists(fresh));
    if (left_over) MEMLITH_TRY(volume_.remove(fresh));
    MEMLITH_TRY_ASSIGN(auto device, volume_.open(fresh, OpenMode::create, Caching::buffered));
    return std::unique_ptr<ArchiveSink>(std::make_unique<FolderSink>(volume_, name, std::move(device)));
  }
  Result<std::unique_ptr<ArchiveStream>> get(const std::string& name) override {
    MEMLITH_TRY_ASSIGN(auto device, volume_.open(name, OpenMode::read_only, Caching::buffered));
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
    return std::unique_ptr<ArchiveStream>(std::make_unique<FolderStream>(std::move(device), size));
  }
  Status remove(const std::string& name) override {
    MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(name));
    return there ? volume_.remove(name) : kOk;
  }
  Result<std::unique_ptr<VolumeLock>> lock() override {
    MEMLITH_TRY(volume_.make_folder(""));
    MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(kLockName));
    if (!there) {
      const auto made = volume_.open(kLockName, OpenMode::create, Caching::buffered);
      if (!made.ok() && made.error().category != Errc::exists) return made.error();
    }
    auto lock = volume_.lock(kLockName, true);
    if (lock.ok() || lock.error().category != Errc::busy) return lock;
    return fail(Errc::busy, Detail::lock,
                "{}: another process archives to this folder; stop it there, or archive to a folder of its own",
                volume_.path_of(""));
  }
  [[nodiscard]] std::string path_of(const std::string& name) const override { return volume_.path_of(name); }

 private:
  Volume& volume_;
};

}  // namespace

std::unique_ptr<ArchiveTarget> make_folder_target(Volume& volume) { return std::make_unique<FolderTarget>(volume); }

Result<std::vector<std::byte>> get_whole(ArchiveTarget& target, const std::string& name, std::uint64_t bytes_max) {
  constexpr std::size_t kStep = 64 * 1024;
  MEMLITH_TRY_ASSIGN(const auto stream, target.get(name));
  std::vector<std::byte> bytes;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kStep);
    MEMLITH_TRY_ASSIGN(const std::uint64_t count, stream->read(std::span(bytes).subspan(before)));
    MEMLITH_ASSERT(count <= kStep);
    bytes.resize(before + count);
    if (count < kStep) return bytes;
    if (bytes.size() > bytes_max) {
      return fail(Errc::corrupt, Detail::read, "{}: it has more than {} bytes, which no such object has",
                  target.path_of(name), bytes_max);
    }
  }
}

Status put_whole(ArchiveTarget& target, const std::string& name, std::span<const std::byte> bytes) {
  MEMLITH_TRY_ASSIGN(const auto sink, target.put(name));
  MEMLITH_TRY(sink->write(bytes));
  return sink->finish();
}

}  // namespace memlith::core
