// A simulated volume with the page of counters by which a writer tells readers how far its log is durable. The page is
// shown when the writer shows it at once, or when the test says so, never by a thread of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/sim.hpp"
#include "store/stats.hpp"
#include "store/store.hpp"

namespace memlith::test {

struct Pages {
  struct Page {
    std::vector<std::byte> bytes;
    bool held = true;
  };
  std::map<std::string, std::shared_ptr<Page>, std::less<>> pages;
  std::thread::id writer;
};

// Calls `before_read` before each read, or part of a read.
class ReadingDevice final : public core::Device {
 public:
  ReadingDevice(std::unique_ptr<core::Device> inner, std::function<void()>& before_read)
      : core::Device(inner->caps(), inner->path(), inner->direct()), inner_(std::move(inner)), before_(before_read) {}
  core::Result<std::uint64_t> size() override { return inner_->size(); }
  core::Result<core::FileIdentity> identity() override { return inner_->identity(); }
  core::Result<bool> removed() override { return inner_->removed(); }
  core::Status match_permissions(core::Device& file) override { return inner_->match_permissions(file); }
  core::Result<core::Mappable> mappable(std::uint64_t offset, std::uint64_t bytes) override {
    return inner_->mappable(offset, bytes);
  }

 protected:
  core::Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    // By sectors, so that the writer may come in between.
    for (std::uint64_t done = 0; done < target.size(); done += core::kSimSectorBytes) {
      const std::uint64_t step = std::min<std::uint64_t>(core::kSimSectorBytes, target.size() - done);
      if (before_ && (offset + done) % 2048 == 0) before_();
      MEMLITH_TRY(inner_->read(offset + done, target.subspan(done, step)));
    }
    return core::kOk;
  }
  core::Status do_write(std::uint64_t, std::span<const iovec>) override { return not_here(); }
  core::Status do_flush() override { return inner_->flush(); }
  core::Status do_reserve(std::uint64_t) override { return not_here(); }
  core::Status do_fill_holes() override { return not_here(); }
  core::Status do_truncate(std::uint64_t) override { return not_here(); }

 private:
  static core::Status not_here() {
    return core::fail(core::Errc::read_only, core::Detail::open, "a reader changes nothing");
  }
  std::unique_ptr<core::Device> inner_;
  std::function<void()>& before_;
};

class ReadingFile final : public core::OpenFile {
 public:
  ReadingFile(std::unique_ptr<core::OpenFile> inner, std::function<void()>& before_read)
      : inner_(std::move(inner)), before_(before_read) {}
  core::Result<std::unique_ptr<core::VolumeLock>> lock(bool exclusive) override { return inner_->lock(exclusive); }
  core::Result<std::unique_ptr<core::Device>> device(std::string_view name, core::Caching caching) override {
    MEMLITH_TRY_ASSIGN(auto device, inner_->device(name, caching));
    return std::unique_ptr<core::Device>(std::make_unique<ReadingDevice>(std::move(device), before_));
  }

 private:
  std::unique_ptr<core::OpenFile> inner_;
  std::function<void()>& before_;
};

class PageVolume final : public core::Volume {
 public:
  PageVolume(core::SimVolume& inner, Pages& pages) : inner_(inner), pages_(pages) {}

  std::function<void()> before_read;  // of a file that is open to be read only

  core::Result<std::unique_ptr<core::Device>> open(std::string_view name, core::OpenMode mode,
                                                   core::Caching caching) override {
    auto device = inner_.open(name, mode, caching);
    if (!device.ok() || !before_read || mode != core::OpenMode::read_only) return device;
    return std::unique_ptr<core::Device>(std::make_unique<ReadingDevice>(std::move(*device), before_read));
  }
  core::Result<bool> exists(std::string_view name) override { return inner_.exists(name); }
  core::Result<std::optional<core::FileIdentity>> identity_of(std::string_view name) override {
    return inner_.identity_of(name);
  }
  core::Result<std::vector<std::string>> list(std::string_view folder) override { return inner_.list(folder); }
  core::Status make_folder(std::string_view name) override { return inner_.make_folder(name); }
  core::Status rename(std::string_view from, std::string_view to) override { return inner_.rename(from, to); }
  core::Status remove(std::string_view name) override { return inner_.remove(name); }
  core::Status sync_folder(std::string_view name) override { return inner_.sync_folder(name); }
  core::Result<std::uint64_t> free_bytes() override { return inner_.free_bytes(); }
  core::Result<std::unique_ptr<core::OpenFile>> open_file(std::string_view name, bool writable) override {
    auto file = inner_.open_file(name, writable);
    if (!file.ok() || !before_read || writable) return file;
    return std::unique_ptr<core::OpenFile>(std::make_unique<ReadingFile>(std::move(*file), before_read));
  }
  std::string path_of(std::string_view name) const override { return inner_.path_of(name); }

  std::unique_ptr<core::Notice> make_notice(std::string_view name, std::span<const std::byte> first,
                                            core::Device*) override {
    auto page = std::make_shared<Pages::Page>();
    page->bytes.assign(first.begin(), first.end());
    pages_.pages[std::string(name)] = page;
    return std::make_unique<PageNotice>(pages_, std::string(name), std::move(page));
  }
  core::Result<core::SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes) override {
    const auto found = pages_.pages.find(name);
    if (found == pages_.pages.end() || found->second->bytes.size() < bytes) {
      return core::fail(core::Errc::not_found, core::Detail::open, "{}: there is no page", path_of(name));
    }
    return core::SeenNotice{found->second->bytes, found->second->held};
  }

 private:
  class PageNotice final : public core::Notice {
   public:
    PageNotice(Pages& pages, std::string name, std::shared_ptr<Pages::Page> page)
        : pages_(pages), name_(std::move(name)), page_(std::move(page)) {}
    ~PageNotice() override { page_->held = false; }
    void remove() override {
      const auto found = pages_.pages.find(name_);
      if (found != pages_.pages.end() && found->second == page_) pages_.pages.erase(found);
    }
    void show(std::span<const std::byte> bytes) override {
      if (std::this_thread::get_id() == pages_.writer) page_->bytes.assign(bytes.begin(), bytes.end());
    }

   private:
    Pages& pages_;
    std::string name_;
    std::shared_ptr<Pages::Page> page_;
  };

  core::SimVolume& inner_;
  Pages& pages_;
};

// What the writer's background thread does when it gets to it.
inline void show_page(Pages& pages, core::Store& store, const std::string& name) {
  store.publish_stats();
  core::StatsPage& page = *store.stats();
  page.durable_checksum = core::durable_checksum(page.incarnation, page.durable_lsn.load());
  const auto bytes = std::as_bytes(std::span(&page, 1));
  pages.pages.at(name)->bytes.assign(bytes.begin(), bytes.end());
}

}  // namespace memlith::test
