// memlith format DEVICE: prepares a block device for a store.
//
// The library refuses a device that holds anything. This command also says what it is, where libblkid can tell.
#include <fmt/format.h>

#include "cli/store_path.hpp"
#include "commands.hpp"
#include "memlith/memlith.h"

#ifdef MEMLITH_BLKID
#include <blkid/blkid.h>

#include <memory>
#endif

namespace memlith::tool {

namespace {

// "an ext4 file system"; empty if nothing was recognised.
std::string content_of(const std::string& path) {
#ifdef MEMLITH_BLKID
  const std::unique_ptr<std::remove_pointer_t<blkid_probe>, decltype(&blkid_free_probe)>
      probe(blkid_new_probe_from_filename(path.c_str()), &blkid_free_probe);
  if (probe == nullptr) return {};
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_enable_partitions(probe.get(), 1);
  if (blkid_do_fullprobe(probe.get()) != 0) return {};
  const char* value = nullptr;
  if (blkid_probe_lookup_value(probe.get(), "TYPE", &value, nullptr) == 0) {
    return fmt::format("what it holds looks like {}", printable(value));
  }
  if (blkid_probe_lookup_value(probe.get(), "PTTYPE", &value, nullptr) == 0) {
    return fmt::format("what it holds looks like a partition table ({})", printable(value));
  }
#else
  (void)path;
#endif
  return {};
}

}  // namespace

MaybeFailure run_format(const FormatArguments& arguments) {
  const std::string& path = arguments.path;
  if (!arguments.force) {
    if (const std::string content = content_of(path); !content.empty()) {
      return tool_failure(MEMLITH_EXISTS, fmt::format("{} holds something: {}", path, content),
                          "Choose another device; --force formats this one, and everything on it is lost.");
    }
  }
  const std::uint32_t flags = arguments.force ? MEMLITH_FORMAT_FORCE : 0;
  if (const std::int32_t code = memlith_device_format(path.c_str(), flags); code != MEMLITH_OK) {
    return library_failure(code, {});
  }
  if (arguments.format == Format::json) {
    write_json({{"path", path}, {"formatted", true}});
  } else {
    write_line(fmt::format("{}: prepared for a store; a program that opens the store with CREATE makes it",
                           printable(path)));
  }
  return {};
}

}  // namespace memlith::tool
