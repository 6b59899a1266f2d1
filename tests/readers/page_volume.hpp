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

#include "sim/decorators.hpp"
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

// Calls `before` before each read, or part of a read, and `after` with each sector that was read.
class ReadingDevice final : public core::DeviceDecorator {
 public:
  using After = std::function<void(std::span<std::byte> sector)>;
  ReadingDevice(std::unique_ptr<core::Device> inner, std::function<void()>& before, After& after)
      : DeviceDecorator(std::move(inner)), before_(before), after_(after) {}

 protected:
  core::Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    // By sectors, so that the writer may come in between.
    for (std::uint64_t done = 0; done < target.size(); done += core::kSimSectorBytes) {
      const std::uint64_t step = std::min<std::uint64_t>(core::kSimSectorBytes, target.size() - done);
      if (before_ && (offset + done) % 2048 == 0) before_();
      MEMLITH_TRY(below().read(offset + done, target.subspan(done, step)));
      if (after_) after_(target.subspan(done, step));
    }
    return core::kOk;
  }

 private:
  std::function<void()>& before_;
  After& after_;
};

class PageVolume final : public core::VolumeDecorator {
 public:
  PageVolume(core::SimVolume& inner, Pages& pages) : VolumeDecorator(inner), pages_(pages) {}

  // For files that are open to be read only.
  std::function<void()> before_read;
  ReadingDevice::After after_read;

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

  std::unique_ptr<core::Device> decorate(std::unique_ptr<core::Device> device, std::string_view,
                                         bool writable) override {
    if ((!before_read && !after_read) || writable) return device;
    return std::make_unique<ReadingDevice>(std::move(device), before_read, after_read);
  }

  Pages& pages_;
};

// The work of the writer's background thread.
inline void show_page(Pages& pages, core::Store& store, const std::string& name) {
  store.publish_stats();
  core::StatsPage& page = *store.stats();
  page.durable_checksum = core::durable_checksum(page.incarnation, page.durable_lsn.load());
  const auto bytes = std::as_bytes(std::span(&page, 1));
  pages.pages.at(name)->bytes.assign(bytes.begin(), bytes.end());
}

}  // namespace memlith::test
