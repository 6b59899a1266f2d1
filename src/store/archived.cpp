#include "store/archived.hpp"

#include <cstddef>
#include <cstring>
#include <new>
#include <span>

#include "base/checksum.hpp"

namespace memlith::core {

namespace {

std::uint64_t checksum_of(const ArchivedPage& page) {
  return checksum(std::as_bytes(std::span(&page, 1)).first(offsetof(ArchivedPage, checksum)), ArchivedPage::kMagic);
}

}  // namespace

std::string ArchivedNotice::name_beside(const std::string& log_name) {
  return log_name == "log" ? "archived" : log_name + "-archived";
}

std::unique_ptr<ArchivedNotice> ArchivedNotice::make(Volume& volume, const std::string& name, Device* file,
                                                     std::uint64_t log_id, std::uint64_t keep_bytes) {
  // A volume on a device of its own has one place for a notice, which is the writer's.
  const auto use = volume.device_use();
  if (!use.ok() || use->has_value()) return nullptr;
  ArchivedPage page{ArchivedPage::kMagic, log_id, 0, keep_bytes, 0};
  page.checksum = checksum_of(page);
  std::unique_ptr<ArchivedNotice> made(new ArchivedNotice(page));
  made->notice_ = volume.make_notice(name, std::as_bytes(std::span(&page, 1)), file);
  if (made->notice_ == nullptr) return nullptr;
  return made;
}

void ArchivedNotice::show(Lsn archived) {
  if (page_.archived_lsn == archived.value) return;
  page_.archived_lsn = archived.value;
  page_.checksum = checksum_of(page_);
  notice_->show(std::as_bytes(std::span(&page_, 1)));
}

namespace {

// Empty: no living archiver has a notice there.
std::optional<ArchivedPage> look_at_page(Volume& volume, const std::string& name) try {
  const KeptSentence unchanged;
  constexpr int kLooks = 3;  // a page may be read while it is written
  for (int looks = 0; looks < kLooks; ++looks) {
    const auto seen = volume.look_at_notice(name, sizeof(ArchivedPage));
    if (!seen.ok() || !seen->held) return std::nullopt;
    ArchivedPage page;
    std::memcpy(&page, seen->bytes.data(), sizeof page);
    if (page.magic != ArchivedPage::kMagic) return std::nullopt;
    if (page.checksum == checksum_of(page)) return page;
  }
  return std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;  // the store can do without
}

}  // namespace

std::optional<ArchiveWait> look_for_archiver(Volume& volume, const std::string& name, std::uint64_t log_id) {
  const std::optional<ArchivedPage> page = look_at_page(volume, name);
  if (!page.has_value() || page->log_id != log_id) return std::nullopt;
  return ArchiveWait{Lsn{page->archived_lsn}, page->keep_bytes};
}

bool has_archiver(Volume& volume, const std::string& name) { return look_at_page(volume, name).has_value(); }

}  // namespace memlith::core
