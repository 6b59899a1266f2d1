// Finding, opening and closing stores.
#include "store_path.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "progress.hpp"

namespace memlith::tool {

namespace {

constexpr std::string_view kLogSuffix = ".memlith";

bool exists(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_regular_file(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// FILE where `path` is FILE.memlith and FILE is there: the user named the log and means the file.
std::string file_of_log(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.size() <= kLogSuffix.size() || !path.ends_with(kLogSuffix)) return {};
  path.resize(path.size() - kLogSuffix.size());
  return is_regular_file(path) ? path : std::string{};
}

Failure nothing_there(const std::string& path, int os_errno) {
  if (os_errno != ENOENT && os_errno != ENOTDIR) {
    return errno_failure(os_errno, fmt::format("cannot examine {}", path));
  }
  return tool_failure(MEMLITH_NOT_FOUND, fmt::format("there is no store at {}", path),
                      std::string(advice_for(MEMLITH_NOT_FOUND)));
}

}  // namespace

std::string_view name_of(StoreKind kind) { return kind == StoreKind::folder ? "folder" : "file"; }

Result<StorePath> resolve_store_path(const std::string& given) {
  // The log lies beside the file itself, whatever link leads there.
  std::error_code unresolved;
  std::string path = given;
  if (std::filesystem::is_symlink(path, unresolved)) {
    const auto real = std::filesystem::canonical(path, unresolved);
    if (!unresolved && std::filesystem::is_regular_file(real, unresolved)) path = real.string();
  }
  const std::string log_path = path + std::string(kLogSuffix);
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    const int os_errno = errno;
    if (os_errno == ENOENT && exists(log_path)) return StorePath{path, StoreKind::one_file, true};
    return nothing_there(path, os_errno);
  }
  if (const std::string file = file_of_log(path); !file.empty()) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is the log of {}", path, file),
                        fmt::format("Name the file itself: {}", file));
  }
  if (S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode)) return StorePath{path, StoreKind::folder, true};
  if (S_ISREG(status.st_mode)) return StorePath{path, StoreKind::one_file, exists(log_path)};
  return tool_failure(MEMLITH_INVALID,
                      fmt::format("{} is neither a folder, nor a regular file, nor a block device", path),
                      std::string(advice_for(MEMLITH_NOT_FOUND)));
}

Result<StoreHandle> open_store(const StorePath& path, const memlith_store_options& options) {
  memlith_store* store = nullptr;
  const auto open = [&path, &store](const memlith_store_options& given) {
    return path.kind == StoreKind::folder ? memlith_store_open(path.path.c_str(), &given, &store)
                                          : memlith_file_open(path.path.c_str(), &given, &store);
  };
  const std::int32_t code = open(options);
  if (code == MEMLITH_OK) return StoreHandle(store);
  // A store for byte-addressable memory cannot be opened for writing in another way; its user has chosen that way.
  if (options.io == MEMLITH_IO_AUTO && memlith_category(code) == MEMLITH_UNSUPPORTED) {
    Failure failure = library_failure(code, {});
    memlith_store_options again = options;
    again.io = MEMLITH_IO_DAX;
    if (open(again) == MEMLITH_OK) return StoreHandle(store);
    return failure;
  }
  return library_failure(code, {});
}

Result<StoreHandle> open_store_read_only(const StorePath& path) {
  ProgressBar bar("reading the log");
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_READ_ONLY;
  options.progress = &ProgressBar::update;
  options.progress_context = &bar;
  return open_store(path, options);
}

Result<StoreHandle> open_store_to_look(const StorePath& path) {
  Result<StoreHandle> store = open_store_read_only(path);
  if (store.ok() || memlith_category(store.failure().code) != MEMLITH_BUSY) return store;
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_FOLLOW;
  Result<StoreHandle> followed = open_store(path, options);
  const bool cannot = !followed.ok() && memlith_category(followed.failure().code) == MEMLITH_UNSUPPORTED;
  return cannot ? std::move(store) : std::move(followed);
}

MaybeFailure close_store(StoreHandle store) {
  const std::int32_t code = memlith_store_close(store.release());
  if (code != MEMLITH_OK) return library_failure(code, "closing the store");
  return {};
}

Result<memlith_store_info> info_of(memlith_store* store) {
  memlith_store_info info{};
  info.struct_size = sizeof info;
  const std::int32_t code = memlith_store_get_info(store, &info);
  if (code != MEMLITH_OK) return library_failure(code, "examining the store");
  return info;
}

}  // namespace memlith::tool
