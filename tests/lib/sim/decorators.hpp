// A volume and a device over another one, for tests that change a part of what these do. Whatever is not overridden
// goes on to the other one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/volume.hpp"

namespace memlith::core {

class VolumeDecorator : public Volume {
 public:
  // `below` outlives the decorator.
  explicit VolumeDecorator(Volume& below) : below_(below) {}

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override {
    before("open a file");
    MEMLITH_TRY_ASSIGN(auto device, below_.open(name, mode, caching));
    return decorate(std::move(device), name, mode != OpenMode::read_only);
  }
  Result<bool> exists(std::string_view name) override {
    before("look whether a file is there");
    return below_.exists(name);
  }
  Result<std::optional<FileIdentity>> identity_of(std::string_view name) override {
    before("look which file it is");
    return below_.identity_of(name);
  }
  Result<std::vector<std::string>> list(std::string_view folder) override {
    before("list a folder");
    return below_.list(folder);
  }
  Status make_folder(std::string_view name) override {
    before("make a folder");
    return below_.make_folder(name);
  }
  Status rename(std::string_view from, std::string_view to) override {
    before("rename a file");
    return below_.rename(from, to);
  }
  Status remove(std::string_view name) override {
    before("remove a file");
    return below_.remove(name);
  }
  Status sync_folder(std::string_view name) override {
    before("flush a folder");
    return below_.sync_folder(name);
  }
  Result<std::unique_ptr<OpenFile>> open_file(std::string_view name, bool writable) override {
    before("open a file");
    MEMLITH_TRY_ASSIGN(auto file, below_.open_file(name, writable));
    return std::unique_ptr<OpenFile>(std::make_unique<File>(*this, std::move(file), writable));
  }
  Result<std::uint64_t> free_bytes() override { return below_.free_bytes(); }
  Result<std::optional<DeviceUse>> device_use() override { return below_.device_use(); }
  std::unique_ptr<Notice> make_notice(std::string_view name, std::span<const std::byte> first, Device* like) override {
    return below_.make_notice(name, first, like);
  }
  Result<SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes) override {
    return below_.look_at_notice(name, bytes);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override { return below_.path_of(name); }

 protected:
  // Before each call that looks at names, changes them or opens a file, and before each lock. `what` it is about to do.
  virtual void before(const char* /*what*/) {}
  // Takes each device that is opened, and returns what the caller gets.
  virtual std::unique_ptr<Device> decorate(std::unique_ptr<Device> device, std::string_view /*name*/,
                                           bool /*writable*/) {
    return device;
  }

 private:
  class File final : public OpenFile {
   public:
    File(VolumeDecorator& volume, std::unique_ptr<OpenFile> below, bool writable)
        : volume_(volume), below_(std::move(below)), writable_(writable) {}
    Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
      volume_.before("lock a file");
      return below_->lock(exclusive);
    }
    Result<std::unique_ptr<Device>> device(std::string_view name, Caching caching) override {
      MEMLITH_TRY_ASSIGN(auto device, below_->device(name, caching));
      return volume_.decorate(std::move(device), name, writable_);
    }

   private:
    VolumeDecorator& volume_;
    std::unique_ptr<OpenFile> below_;
    bool writable_;
  };

  Volume& below_;
};

// Its reads and writes all come to do_read() and do_write(), also those of queues.
class DeviceDecorator : public Device {
 public:
  explicit DeviceDecorator(std::unique_ptr<Device> below)
      : Device(below->caps(), below->path(), below->direct()), below_(std::move(below)) {}

  Result<std::uint64_t> size() override { return below_->size(); }
  Result<FileIdentity> identity() override { return below_->identity(); }
  FileBirth birth() override { return below_->birth(); }
  Result<std::uint64_t> stamp() override { return below_->stamp(); }
  std::optional<DiskFacts> disk() override { return below_->disk(); }
  Result<bool> removed() override { return below_->removed(); }
  Status match_permissions(Device& file) override { return below_->match_permissions(file); }
  Result<Mappable> mappable(std::uint64_t offset, std::uint64_t bytes) override {
    return below_->mappable(offset, bytes);
  }
  std::uint64_t skip_hole(std::uint64_t offset) override { return below_->skip_hole(offset); }
  std::optional<Hole> next_hole(std::uint64_t offset) override { return below_->next_hole(offset); }

 protected:
  [[nodiscard]] Device& below() const { return *below_; }

  Status do_read(std::uint64_t offset, std::span<std::byte> target) override { return below_->read(offset, target); }
  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    return below_->write_pieces(offset, pieces);
  }
  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    MEMLITH_TRY(below_->write_through(offset, pieces));
    return true;
  }
  Status do_flush() override { return below_->flush(); }
  Status do_reserve(std::uint64_t bytes) override { return below_->reserve(bytes); }
  Status do_fill_holes() override { return below_->fill_holes(); }
  Status do_truncate(std::uint64_t bytes) override { return below_->truncate(bytes); }
  Status do_discard(std::uint64_t offset, std::uint64_t bytes) override { return below_->discard(offset, bytes); }
  Status do_undiscard(std::uint64_t offset, std::uint64_t bytes) override { return below_->undiscard(offset, bytes); }

 private:
  std::unique_ptr<Device> below_;
};

}  // namespace memlith::core
