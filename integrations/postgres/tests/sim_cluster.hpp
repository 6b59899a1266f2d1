// A server's files and its page log on the simulated disk, driven by one thread: the keeper works when a process waits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "applog/applog.hpp"
#include "postgres/src/file_calls.hpp"
#include "postgres/src/page_log.hpp"
#include "region/region.hpp"
#include "shared_words.hpp"
#include "sim/sim.hpp"
#include "support/crash_world.hpp"

namespace memlith_postgres::test {

namespace core = memlith::core;

inline Error as_error(core::Status status) {
  return Error(MEMLITH_IO, std::string(core::name_of(status.category)) + ": " + std::string(core::last_error_text()));
}
inline Result<void> as_result(core::Status status) { return status.ok() ? Result<void>() : as_error(status); }

// As on ext4, XFS and Btrfs, the flush of a file makes its name durable. PostgreSQL relies on that, too.
inline core::Status flush_with_name(core::SimVolume& volume, core::Device& device, const std::string& path) {
  const core::Status flushed = device.flush();
  return flushed.ok() ? volume.sync_folder(path.substr(0, path.rfind('/'))) : flushed;
}

class SimHome final : public HomeFile {
 public:
  SimHome(core::SimVolume& volume, std::string path, std::unique_ptr<core::Device> device)
      : volume_(volume), path_(std::move(path)), device_(std::move(device)) {}
  Result<std::uint64_t> blocks() override {
    const auto size = device_->size();
    if (!size.ok()) return as_error(size.status());
    return *size / kPageBytes;
  }
  Result<void> read(std::uint32_t block, std::byte* page) override {
    return as_result(device_->read(std::uint64_t{block} * kPageBytes, {page, kPageBytes}));
  }
  Result<void> write(std::uint32_t block, const std::byte* page) override {
    return as_result(device_->write(std::uint64_t{block} * kPageBytes, {page, kPageBytes}));
  }
  Result<void> cut(std::uint32_t blocks) override {
    return as_result(device_->truncate(std::uint64_t{blocks} * kPageBytes));
  }
  Result<void> flush() override { return as_result(flush_with_name(volume_, *device_, path_)); }

 private:
  core::SimVolume& volume_;
  const std::string path_;
  std::unique_ptr<core::Device> device_;
};

class SimHomes final : public Homes {
 public:
  explicit SimHomes(core::SimVolume& volume) : volume_(volume) {}
  Result<std::unique_ptr<HomeFile>> open(const std::string& path) override {
    const auto there = volume_.exists(path);
    if (!there.ok()) return as_error(there.status());
    if (!*there) return std::unique_ptr<HomeFile>();
    auto device = volume_.open(path, core::OpenMode::read_write, core::Caching::buffered);
    if (!device.ok()) return as_error(device.status());
    return std::unique_ptr<HomeFile>(std::make_unique<SimHome>(volume_, path, std::move(*device)));
  }
  Result<void> flush_folder_of(const std::string& path) override {
    return as_result(volume_.sync_folder(path.substr(0, path.rfind('/'))));
  }

 private:
  core::SimVolume& volume_;
};

// An application log of a store that is small enough for its states to be enumerated.
class SimLog final : public EntryLog {
 public:
  static constexpr std::uint64_t kRingBytes = 64 << 10;

  static std::unique_ptr<SimLog> open(core::SimVolume& volume) {
    auto log = std::make_unique<SimLog>();
    core::StoreOptions options = memlith::test::small_store_options();
    options.slot_bytes = 16384;
    options.log_bytes = 4 * options.slot_bytes;
    options.log_max_bytes = 32 * options.slot_bytes;
    auto store = core::Store::open(volume, options);
    if (!store.ok()) return nullptr;
    log->store_ = std::move(*store);
    core::RegionOptions region;
    region.create = true;
    region.tracker = core::TrackerKind::touched;
    region.size_bytes = core::kPageBytes + kRingBytes;
    region.reserve_bytes = region.size_bytes;
    region.anywhere = true;
    auto opened = core::Region::open(*log->store_, "pages", region);
    if (!opened.ok()) return nullptr;
    log->region_ = std::move(*opened);
    auto made = core::applog::AppLog::open(*log->region_, {.create = true, .manual = true});
    if (!made.ok()) return nullptr;
    log->log_ = std::move(*made);
    return log;
  }

  [[nodiscard]] bool has_room(std::uint64_t bytes) const override { return log_->report().room >= bytes + 64; }
  Result<void> append(std::string_view batch) override {
    const core::applog::AppLog::Content content = std::as_bytes(std::span(batch));
    return as_result(log_->append({&content, 1}).status());
  }
  Result<void> write() override { return as_result(log_->write().status()); }
  Result<std::uint64_t> newest() override { return log_->report().newest; }
  Result<std::optional<std::string_view>> next() override {
    core::applog::AppLog::Entry entry;
    const auto there = log_->read(0, entry);
    if (!there.ok()) return as_error(there.status());
    if (!*there) return std::optional<std::string_view>();
    return std::optional(std::string_view(reinterpret_cast<const char*>(entry.content.data()), entry.content.size()));
  }
  Result<void> give_up(std::uint64_t upto) override {
    if (const core::Status dropped = log_->truncate_before(upto + 1); !dropped.ok()) return as_error(dropped);
    if (const auto written = log_->write(); !written.ok()) return as_error(written.status());
    return as_result(store_->checkpoint());
  }

 private:
  std::unique_ptr<core::Store> store_;
  std::unique_ptr<core::Region> region_;
  std::unique_ptr<core::applog::AppLog> log_;
};

// A file as a process has it open.
class SimAccess final : public FileAccess {
 public:
  SimAccess(core::SimVolume& volume, std::string path) : volume_(volume), path_(std::move(path)) {
    device_ = std::move(*volume_.open(path_, core::OpenMode::read_write, core::Caching::buffered));
  }
  std::uint32_t blocks() override { return static_cast<std::uint32_t>(*device_->size() / kPageBytes); }
  bool read_cached(std::uint32_t block, std::byte* page) override {
    return device_->read(std::uint64_t{block} * kPageBytes, {page, kPageBytes}).ok();
  }
  int write(std::uint32_t block, const std::byte* page) override {
    return device_->write(std::uint64_t{block} * kPageBytes, {page, kPageBytes}).ok() ? 0 : EIO;
  }
  int flush() override { return flush_with_name(volume_, *device_, path_).ok() ? 0 : EIO; }
  int cut(std::uint32_t blocks) override {
    return device_->truncate(std::uint64_t{blocks} * kPageBytes).ok() ? 0 : EIO;
  }
  int lengthen(std::uint32_t blocks) override { return blocks > this->blocks() ? cut(blocks) : 0; }

 private:
  core::SimVolume& volume_;
  std::string path_;
  std::unique_ptr<core::Device> device_;
};

class SteppingWaiting final : public Waiting {
 public:
  SteppingWaiting(Pages& pages, PageLog& log) : pages_(pages), log_(log) {}
  bool wait(For what, std::uint64_t batch) override {
    const SharedMemory& memory = pages_.memory();
    const auto& counter = what == For::checkpointed ? memory.checkpointed
                          : what == For::home       ? memory.home
                                                    : memory.durable;
    if (counter.load() < batch && what != For::checkpointed) pages_.want(batch);
    while (counter.load() < batch) {
      if (!log_.step(pages_).ok() || !log_.settle(pages_).ok()) return false;
    }
    return true;
  }

 private:
  Pages& pages_;
  PageLog& log_;
};

// The pages of all files after a crash and a replay; nothing if the replay failed.
using Contents = std::map<std::pair<std::string, std::uint32_t>, PageBytes>;
inline std::optional<Contents> recover(core::SimVolume& volume, const std::vector<std::string>& paths) {
  {
    const auto log = SimLog::open(volume);
    if (log == nullptr) return {};
    SimHomes homes(volume);
    PageLog pages(*log, homes, SimLog::kRingBytes / 2);
    if (!pages.replay().ok()) return {};
  }
  Contents contents;
  for (const std::string& path : paths) {
    if (!*volume.exists(path)) continue;
    SimAccess file(volume, path);
    for (std::uint32_t block = 0; block < file.blocks(); ++block) {
      PageBytes page(kPageBytes);
      file.read_cached(block, page.data());
      contents[{path, block}] = std::move(page);
    }
  }
  return contents;
}

}  // namespace memlith_postgres::test
