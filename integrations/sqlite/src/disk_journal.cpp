#include "disk_journal.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/checksum.hpp"
#include "database.hpp"

namespace memlith::sqlite {

using core::Caching;
using core::Detail;
using core::Device;
using core::Errc;
using core::fail;
using core::kOk;
using core::OpenMode;
using core::Result;
using core::Status;
using core::Volume;

namespace {

constexpr char kJournalMagic[8] = {'M', 'E', 'M', 'L', 'J', 'R', 'N', 'L'};
constexpr std::uint64_t kHeaderBytes = 512;  // one sector, which is written completely or not at all
constexpr std::uint64_t kStepBytes = 1 << 20;

std::uint64_t checksum_of(const DiskJournalHeader& header) {
  return core::checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(DiskJournalHeader, header_checksum)),
                        header.log_id);
}

}  // namespace

std::string disk_journal_name(const std::string& database) { return database + ".memlith-journal"; }

Result<std::unique_ptr<Device>> make_disk_journal(Volume& volume, const std::string& database) {
  const std::string name = disk_journal_name(database);
  MEMLITH_TRY(volume.remove(name));
  return volume.open(name, OpenMode::create, Caching::buffered);
}

Status write_disk_journal(Volume& volume, Device& device, JournalOrigin origin, const MemoryFile& content) {
  DiskJournalHeader header{};
  std::memcpy(header.magic, kJournalMagic, sizeof kJournalMagic);
  header.log_id = origin.log_id;
  header.lsn = origin.lsn;
  header.content_bytes = content.size();
  core::StreamingChecksum sum;
  sum.reset(origin.log_id);
  std::vector<std::byte> step(std::min(header.content_bytes, kStepBytes));
  for (std::uint64_t done = 0; done < header.content_bytes; done += step.size()) {
    step.resize(std::min(header.content_bytes - done, kStepBytes));
    if (content.read(done, step.data(), step.size()) != step.size()) {
      return fail(Errc::io, Detail::read, "{}: the journal in memory ends too early", device.path());
    }
    sum.update(step);
    MEMLITH_TRY(device.write(kHeaderBytes + done, step));
  }
  header.content_checksum = sum.digest();
  header.header_checksum = checksum_of(header);
  std::byte sector[kHeaderBytes] = {};
  std::memcpy(sector, &header, sizeof header);
  MEMLITH_TRY(device.write(0, sector));
  MEMLITH_TRY(device.flush());
  return volume.sync_folder("");
}

Result<std::optional<LeftJournal>> read_disk_journal(Volume& volume, const std::string& database) {
  const std::string name = disk_journal_name(database);
  MEMLITH_TRY_ASSIGN(const bool there, volume.exists(name));
  if (!there) return std::optional<LeftJournal>();
  MEMLITH_TRY_ASSIGN(const auto device, volume.open(name, OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  LeftJournal left;
  if (size < kHeaderBytes) return std::optional(std::move(left));
  std::byte sector[kHeaderBytes];
  MEMLITH_TRY(device->read(0, sector));
  if (core::is_zero(sector)) return std::optional(std::move(left));
  DiskJournalHeader header;
  std::memcpy(&header, sector, sizeof header);
  if (std::memcmp(header.magic, kJournalMagic, sizeof kJournalMagic) != 0 ||
      header.header_checksum != checksum_of(header)) {
    return fail(Errc::corrupt, Detail::open,
                "{}: the journal of a transaction over several databases is damaged (offset 0, no valid header); it "
                "decides whether that transaction took effect, so the database cannot be opened without it. Nothing "
                "was changed",
                volume.path_of(name));
  }
  left.origin = {header.log_id, header.lsn};
  if (header.content_bytes > size - kHeaderBytes) return std::optional(std::move(left));
  auto content = std::make_shared<MemoryFile>();
  core::StreamingChecksum sum;
  sum.reset(header.log_id);
  std::vector<std::byte> step(std::min(header.content_bytes, kStepBytes));
  for (std::uint64_t done = 0; done < header.content_bytes; done += step.size()) {
    step.resize(std::min(header.content_bytes - done, kStepBytes));
    MEMLITH_TRY(device->read(kHeaderBytes + done, step));
    sum.update(step);
    content->write(done, step.data(), step.size());
  }
  if (sum.digest() == header.content_checksum) left.content = std::move(content);
  return std::optional(std::move(left));
}

Status remove_disk_journal(Volume& volume, const std::string& database, Device* own) {
  const std::string name = disk_journal_name(database);
  MEMLITH_TRY_ASSIGN(const bool there, volume.exists(name));
  if (!there) return kOk;
  MEMLITH_TRY(own != nullptr ? volume.remove_own(name, *own) : volume.remove(name));
  return volume.sync_folder("");
}

// The end of such a journal: the name, its length and a sum of its bytes, 4 bytes each, and the magic number of
// journals.
bool names_super_journal(const MemoryFile& journal) {
  constexpr unsigned char kSqliteMagic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  unsigned char end[16];
  const std::uint64_t size = journal.size();
  if (size < sizeof end || journal.read(size - sizeof end, end, sizeof end) != sizeof end) return false;
  const std::uint64_t length = std::uint64_t{end[0]} << 24 | end[1] << 16 | end[2] << 8 | end[3];
  return std::memcmp(end + 8, kSqliteMagic, sizeof kSqliteMagic) == 0 && length > 0 && length + sizeof end < size;
}

// "-mj", six digits, a nine, two digits.
bool is_super_journal(std::string_view path) {
  constexpr std::size_t kSuffixBytes = 12;
  if (path.size() <= kSuffixBytes) return false;
  const std::string_view suffix = path.substr(path.size() - kSuffixBytes);
  return suffix.starts_with("-mj") && suffix[9] == '9' &&
         suffix.find_first_not_of("0123456789ABCDEF", 3) == std::string_view::npos;
}

}  // namespace memlith::sqlite
