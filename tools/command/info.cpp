// memlith info STORE: what a store holds, whether it was closed, and how memlith would work with it on this machine.
//
// Changes nothing: the store is opened read-only, which replays what waits in its log in memory alone, and says how
// much it was.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "cli/io_names.hpp"
#include "cli/store_path.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"

namespace memlith::tool {

namespace {

// Sizes of direct writes that a power cut does not tear if they ask for that (RWF_ATOMIC); 0: there are none.
struct UntornWrites {
  std::uint32_t bytes_min = 0;
  std::uint32_t bytes_max = 0;
};

struct StoreFacts {
  StorePath path;
  memlith_store_info info{};
  UntornWrites untorn;
  std::vector<memlith_region_info> regions;
};

// Linux 6.11 has these fields; Debian 12's headers do not.
UntornWrites untorn_writes_to(const std::string& path) {
  constexpr std::uint32_t kAsked = 0x10000;  // STATX_WRITE_ATOMIC
  constexpr std::size_t kSizes = 0xa8;       // stx_atomic_write_unit_min and _max
  struct statx file{};
  UntornWrites sizes;
  if (::statx(AT_FDCWD, path.c_str(), 0, kAsked, &file) != 0 || (file.stx_mask & kAsked) == 0) return sizes;
  static_assert(sizeof file >= kSizes + sizeof sizes);
  std::memcpy(&sizes, reinterpret_cast<const char*>(&file) + kSizes, sizeof sizes);
  return sizes;
}

std::string name_of(const memlith_region_info& region) {
  return {region.name, ::strnlen(region.name, sizeof region.name)};
}

MaybeFailure list_regions(memlith_store* store, std::vector<memlith_region_info>& regions) {
  for (std::uint64_t index = 0;; ++index) {
    memlith_region_info region{};
    region.struct_size = sizeof region;
    const std::int32_t code = memlith_store_region_at(store, index, &region);
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return {};
    if (code != MEMLITH_OK) return library_failure(code, fmt::format("region number {}", index));
    regions.push_back(region);
  }
}

Result<StoreFacts> gather(const std::string& path) {
  Result<StorePath> resolved = resolve_store_path(path);
  if (!resolved.ok()) return std::move(resolved.failure());
  StoreFacts facts;
  facts.path = *resolved;
  Result<StoreHandle> store = open_store_to_look(facts.path);
  if (!store.ok()) return std::move(store.failure());
  Result<memlith_store_info> info = info_of(store->get());
  if (!info.ok()) return std::move(info.failure());
  facts.info = *info;
  if (MaybeFailure failure = list_regions(store->get(), facts.regions)) return *failure;
  const bool is_folder = facts.path.kind == StoreKind::folder && facts.info.device_bytes == 0;
  facts.untorn = untorn_writes_to(facts.path.path + (is_folder ? "/log" : ""));
  if (MaybeFailure failure = close_store(std::move(*store))) return *failure;
  return facts;
}

const char* medium_name(std::uint32_t medium) {
  constexpr std::array kNames{"disk", "memory", "program", "network"};
  return medium < kNames.size() ? kNames[medium] : "unknown";
}

void print_json(const StoreFacts& facts) {
  Json regions = Json::array();
  for (const memlith_region_info& region : facts.regions) {
    regions.push_back({{"name", name_of(region)},
                       {"address", fmt::format("{:#x}", region.address)},
                       {"size", region.size},
                       {"max_size", region.max_size}});
  }
  Json trackers = Json::object();
  for (const TrackerName& tracker : kTrackers) {
    if (tracker.tracker != MEMLITH_TRACKER_AUTO)
      trackers[std::string(tracker.name)] = describe_tracker(tracker.tracker);
  }
  Json device = nullptr;
  if (facts.info.device_bytes != 0) {
    device = {{"bytes", facts.info.device_bytes}, {"used_bytes", facts.info.device_used_bytes}};
  }
  Json disk = nullptr;
  if ((facts.info.disk & MEMLITH_DISK_KNOWN) != 0) {
    disk = {{"name", facts.info.disk_name},
            {"volatile_cache", (facts.info.disk & MEMLITH_DISK_VOLATILE_CACHE) != 0},
            {"passthrough", (facts.info.disk & MEMLITH_DISK_PASSTHROUGH) != 0},
            {"forced_unit_access", (facts.info.disk & MEMLITH_DISK_FORCED_UNIT_ACCESS) != 0},
            {"sector_bytes", facts.info.disk_sector_bytes},
            {"physical_sector_bytes", facts.info.disk_physical_sector_bytes},
            {"atomic_write_bytes", facts.info.disk_atomic_write_bytes}};
  }
  write_json({{"path", facts.path.path},
              {"kind", name_of(facts.path.kind)},
              {"clean", facts.info.was_clean != 0},
              {"writer", facts.info.writer},
              {"incarnation", facts.info.incarnation},
              {"regions", regions},
              {"log",
               {{"bytes", facts.info.log_bytes},
                {"used_bytes", facts.info.log_used_bytes},
                {"frames_waiting", facts.info.replayed_frames},
                {"frame_bytes", facts.info.replayed_bytes}}},
              {"durable_lsn", facts.info.durable_lsn},
              {"device", device},
              {"disk", disk},
              {"medium", medium_name(facts.info.medium)},
              {"file_system", std::string(facts.info.file_system)},
              {"untorn_write_bytes_min", facts.untorn.bytes_min},
              {"untorn_write_bytes_max", facts.untorn.bytes_max},
              {"log_block_bytes", facts.info.log_block_bytes},
              {"direct_io", facts.info.direct_io != 0},
              {"io", kIoNames.at(facts.info.io)},
              {"trackers", trackers}});
}

bool by_commands(const memlith_store_info& info) { return (info.disk & MEMLITH_DISK_PASSTHROUGH) != 0; }

const char* place_of(const StoreFacts& facts) {
  if (facts.info.device_bytes != 0)
    return by_commands(facts.info) ? "an NVMe namespace, by its commands" : "a block device";
  return facts.path.kind == StoreKind::folder ? "a folder" : "one file with its log beside it";
}

// The kernel's or the disk's report of the disk, and how a commit is therefore made durable.
std::string disk_line(const memlith_store_info& info) {
  const bool is_volatile = (info.disk & MEMLITH_DISK_VOLATILE_CACHE) != 0;
  const bool forced = (info.disk & MEMLITH_DISK_FORCED_UNIT_ACCESS) != 0;
  const char* commit = "a commit is a write and a flush";
  if (!is_volatile) commit = "a commit is a write; its flush has nothing to do";
  const bool on_block_device = info.device_bytes != 0 && !by_commands(info);
  if (is_volatile && forced && info.direct_io != 0 && !on_block_device) {
    commit = "a commit in one slot of the log is one command";
  }
  std::string sectors = fmt::format("sectors of {} B", info.disk_sector_bytes);
  if (info.disk_physical_sector_bytes > info.disk_sector_bytes) {
    sectors += fmt::format(" in blocks of {} B", info.disk_physical_sector_bytes);
  }
  if (info.disk_atomic_write_bytes > 0) sectors += fmt::format(", atomic up to {} B", info.disk_atomic_write_bytes);
  return fmt::format("disk      {}: {} cache, {}forced unit access, {}: {}", info.disk_name,
                     is_volatile ? "volatile" : "no volatile", forced ? "" : "no ", sectors, commit);
}

std::string untorn_line(const StoreFacts& facts) {
  const UntornWrites& sizes = facts.untorn;
  if (sizes.bytes_max == 0) return "";
  const std::uint64_t by_disk = facts.info.disk_atomic_write_bytes;
  std::string copied;
  if (by_disk < sizes.bytes_max) copied = ", by copying" + (by_disk > 0 ? " above " + human_bytes(by_disk) : "");
  return fmt::format("medium    {} keeps direct writes of {} to {} whole on request (RWF_ATOMIC){}",
                     facts.info.file_system[0] != '\0' ? facts.info.file_system : "the device",
                     human_bytes(sizes.bytes_min), human_bytes(sizes.bytes_max), copied);
}

std::string medium_line(const memlith_store_info& info) {
  switch (info.medium) {
    case MEMLITH_MEDIUM_MEMORY:
      return "medium    a file system in memory (tmpfs): a power loss or a restart erases the store";
    case MEMLITH_MEDIUM_PROGRAM:
      return fmt::format("medium    {}: another program, or the host of this machine, decides what a flush does",
                         info.file_system);
    case MEMLITH_MEDIUM_NETWORK:
      return fmt::format("medium    {}, a network file system: locks and flushes may promise nothing",
                         info.file_system);
    default: return "";
  }
}

void print_text(const StoreFacts& facts) {
  const bool clean = facts.info.was_clean != 0;
  const bool has_device = facts.info.device_bytes != 0;
  write_line(fmt::format("store     {} ({})", printable(facts.path.path), place_of(facts)));
  if (has_device) {
    write_line(fmt::format("device    {} of {} in use", human_bytes(facts.info.device_used_bytes),
                           human_bytes(facts.info.device_bytes)));
  }
  if (facts.info.writer != 0) {
    write_line(fmt::format("state     open for writing by process {}; this is its last durable commit",
                           facts.info.writer));
  } else {
    write_line(fmt::format("state     {}", clean ? "clean: the last program that used it closed it"
                                                 : "not closed: the next opening for writing recovers it"));
  }
  write_line(fmt::format("openings  {} for writing so far", facts.info.incarnation));
  write_line(fmt::format("log       {}, {} in use, {} frames waiting ({})", human_bytes(facts.info.log_bytes),
                         human_bytes(facts.info.log_used_bytes), facts.info.replayed_frames,
                         human_bytes(facts.info.replayed_bytes)));
  write_line(fmt::format("log I/O   {}, {}", facts.info.direct_io != 0 ? "direct" : "buffered",
                         facts.info.io == MEMLITH_IO_POSIX ? "without io_uring"
                                                           : "io_uring where several transfers are in flight"));
  if ((facts.info.disk & MEMLITH_DISK_KNOWN) != 0) write_line(disk_line(facts.info));
  if (facts.info.log_block_bytes == 64) {
    write_line(fmt::format("medium    byte-addressable{}: open it for writing with the option io = DAX",
                           facts.info.medium == MEMLITH_MEDIUM_MEMORY ? ", EMULATED" : " (fsdax)"));
  }
  for (const std::string& line : {medium_line(facts.info), untorn_line(facts)}) {
    if (!line.empty()) write_line(line);
  }
  write_line(fmt::format("regions   {}", facts.regions.size()));
  for (const memlith_region_info& region : facts.regions) {
    const std::string place = region.address == 0 ? "anywhere" : fmt::format("at {:#x}", region.address);
    write_line(fmt::format("  {:<24} {:<17}  size {:>10}  max {:>10}", printable(name_of(region)), place,
                           human_bytes(region.size), human_bytes(region.max_size)));
  }
  write_line("trackers  on this kernel, " + kernel_release());
  for (const TrackerName& tracker : kTrackers) {
    if (tracker.tracker == MEMLITH_TRACKER_AUTO) continue;
    write_line("  " + describe_tracker(tracker.tracker));  // the line begins with its name
  }
}

}  // namespace

MaybeFailure run_info(const StoreArguments& arguments) {
  Result<StoreFacts> facts = gather(arguments.path);
  if (!facts.ok()) return std::move(facts.failure());
  if (arguments.format == Format::json) {
    print_json(*facts);
  } else {
    print_text(*facts);
  }
  return {};
}

}  // namespace memlith::tool
