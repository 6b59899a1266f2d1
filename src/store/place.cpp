#include "store/place.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "device/posix.hpp"
#include "device/raw_hosts.hpp"

namespace memlith::core {

Result<Place> place_of_name(const std::string& path, IoBackend io) {
  const std::filesystem::path whole(path);
  std::string file_name = whole.filename().string();
  if (file_name.empty() || file_name == "." || file_name == "..") {
    return fail(Errc::invalid, Detail::argument, "{}: this is not the path of a file", path);
  }
  const std::string folder = whole.parent_path().string();
  return Place{make_posix_volume(folder.empty() ? "." : folder, io), std::move(file_name)};
}

Result<Place> place_of_store(const std::string& path, StoreKind kind, IoBackend io) {
  if (path.empty()) return fail(Errc::invalid, Detail::argument, "the path is empty");
  if (is_raw_device(path)) {
    if (kind == StoreKind::one_file) {
      return fail(Errc::invalid, Detail::argument,
                  "{}: is a device, which holds a whole store; open it as a store, not as a file", path);
    }
    MEMLITH_TRY_ASSIGN(std::unique_ptr<RawHost> host, make_raw_host(path, io));
    return Place{std::make_unique<RawVolume>(std::move(host)), ""};
  }
  if (kind == StoreKind::folder) return Place{make_posix_volume(path, io), ""};
  std::error_code unresolved;
  if (std::filesystem::is_directory(path, unresolved)) {
    return fail(Errc::invalid, Detail::argument,
                "{}: is a folder; open it as a store (Store::open, memlith_store_open), or name a file", path);
  }
  if (std::filesystem::is_symlink(path, unresolved)) {
    const auto real = std::filesystem::canonical(path, unresolved);
    if (!unresolved) return place_of_name(real.string(), io);
  }
  return place_of_name(path, io);
}

StoreKind kind_at(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) || is_raw_device(path) ? StoreKind::folder : StoreKind::one_file;
}

}  // namespace memlith::core
