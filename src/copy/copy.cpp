#include "copy/copy.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.hpp"
#include "base/not_for_children.hpp"
#include "copy/source.hpp"
#include "copy/target.hpp"
#include "device/posix.hpp"
#include "device/raw_hosts.hpp"
#include "store/place.hpp"

namespace memlith::core {

namespace {

namespace fs = std::filesystem;

// For a writer that has written commits and does not run just now, so that it cannot tell whether they are durable.
constexpr std::chrono::seconds kPatience{10};

// Sums what the target took by itself.
class CountingSink final : public CopySink {
 public:
  explicit CountingSink(CopyTarget& target) : target_(target) {}
  Status begin(const CopiedState& start) override {
    shared_ = 0;
    return target_.begin(start);
  }
  Result<bool> take(ObjectId object, Device& home) override {
    MEMLITH_TRY_ASSIGN(const bool taken, target_.take(object, home));
    if (!taken) return false;
    MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, home.size());
    shared_ += bytes;
    return true;
  }
  Status put(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) override {
    return target_.put(object, offset, bytes);
  }
  [[nodiscard]] std::uint64_t shared() const { return shared_; }

 private:
  CopyTarget& target_;
  std::uint64_t shared_ = 0;
};

// "region "a": 8192 bytes from offset 4096 on".
std::string in_words(const CopiedState& state, const DamagedBytes& damaged) {
  const auto info = std::find_if(state.objects.begin(), state.objects.end(),
                                 [&](const ObjectInfo& each) { return each.id == damaged.object; });
  MEMLITH_ASSERT(info != state.objects.end());  // what belongs to no object is not looked at
  return fmt::format("region \"{}\": {} bytes from offset {} on", info->name, damaged.bytes, damaged.offset);
}

Status check_undamaged(const CopiedState& state, const CopyRequest& request) {
  if (state.damaged.empty() || request.takes_damaged) return kOk;
  return fail(Errc::corrupt, Detail::object,
              "{0}: {1} are not what was written; the disk, or another program, has changed them{2}. No copy was made. "
              "`memlith verify --data {0}` lists everything; an older copy or an archive may have the right bytes. "
              "`memlith copy --damaged` copies what is there",
              request.from, in_words(state, state.damaged.front()),
              state.damaged.size() > 1 ? fmt::format(", and {} other places", state.damaged.size() - 1) : "");
}

Result<CopyReport> copy_into(CopyTarget& target, CopySource& source, const CopyRequest& request) {
  MEMLITH_TRY(target.prepare());
  CountingSink sink(target);
  const auto state = source.walk(sink, request.progress);
  Status status = state.status();
  if (status.ok()) status = check_undamaged(*state, request);
  if (status.ok()) status = target.finish(*state);
  if (!status.ok()) {
    target.abandon();
    if (status.category != Errc::no_space) return status;
    const std::string why(last_error_text());
    return fail(Errc::no_space, status.detail,
                "{}: there is no room for the copy ({}). Nothing was left there; make room, and start the copy again",
                request.to, why);
  }
  CopyReport report{state->position.lsn, 0, sink.shared()};
  for (const ObjectInfo& info : state->objects) report.bytes += info.size_bytes;
  return report;
}

enum class Kind : std::uint8_t { file, folder };

// Renames without replacing what another program has made there meanwhile. A file system that cannot say so (EINVAL)
// gives a second name to a file; and a folder replaces there nothing but an empty folder.
Status give_name(const std::string& from, const std::string& to, Kind kind) {
  bool given = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
  if (!given && errno == EINVAL) {
    given = kind == Kind::folder ? ::rename(from.c_str(), to.c_str()) == 0
                                 : ::link(from.c_str(), to.c_str()) == 0 && ::unlink(from.c_str()) == 0;
  }
  if (given) return kOk;
  return fail_errno(errno, Detail::write, "{}: the finished copy cannot be renamed to {}", from, to);
}

// ---- folders ---------------------------------------------------------------------------------------------------

// The folder in which a copy is made, beside its place. It is locked as long as this object lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& place) : place_(place), path_(place.string() + ".memlith-copy") {}

  [[nodiscard]] std::string path() const { return path_.string(); }

  // Made, or found as an interrupted copy left it and emptied.
  Status make() {
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
      return fail_errno(errno, Detail::open, "{}: cannot make this folder", path());
    }
    lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (lock_.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open this folder", path());
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      return fail(Errc::busy, Detail::lock, "{}: another process is making a copy there; wait for its end",
                  place_.string());
    }
    not_for_children_.emplace(lock_.get());
    MEMLITH_TRY(check_is_ours());
    return empty();
  }

  // With the permissions of the original. What lay on a device stays the owner's alone.
  Status give_its_name(const std::string& original) {
    struct stat info{};
    const bool known = ::stat(original.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (known && ::fchmod(lock_.get(), info.st_mode & 07777) != 0) {
      return fail_errno(errno, Detail::write, "{}: cannot set its permissions", path());
    }
    if (::fsync(lock_.get()) != 0) return fail_errno(errno, Detail::flush, "{}: flush failed", path());
    MEMLITH_TRY(give_name(path(), place_.string(), Kind::folder));
    const fs::path above = place_.has_parent_path() ? place_.parent_path() : fs::path(".");
    const Descriptor parent(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent.get() < 0 || ::fsync(parent.get()) != 0) {
      return fail_errno(errno, Detail::flush, "{}: flush of the folder failed", above.string());
    }
    return kOk;
  }

  void remove() {
    const KeptSentence why;
    if (!empty().ok()) return;
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

 private:
  static bool is_of_a_store(std::string_view name) {
    constexpr std::array<std::string_view, 6> kNames{"log", "log.new", "objects", "stats", "blocks", "blocks.new"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  }

  Status check_is_ours() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      const std::string name = entry.path().filename().string();
      if (is_of_a_store(name)) continue;
      return fail(Errc::exists, Detail::open,
                  "{}: a copy is made in a folder of this name, but this one holds \"{}\", which no copy left; move it "
                  "away",
                  path(), name);
    }
    if (error) return fail_errno(error.value(), Detail::open, "{}: cannot list it", path());
    return kOk;
  }

  Status empty() {
    for (const std::string_view name : {"log", "log.new", "objects", "stats", "blocks", "blocks.new"}) {
      std::error_code error;
      fs::remove_all(path_ / name, error);
      if (error) return fail_errno(error.value(), Detail::write, "{}: cannot remove \"{}\" in it", path(), name);
    }
    return kOk;
  }

  fs::path place_;
  fs::path path_;
  Descriptor lock_;
  std::optional<NotForChildren> not_for_children_;  // the lock
};

Result<CopyReport> copy_to_folder(CopySource& source, const CopyRequest& request) {
  WorkingFolder folder{fs::path(request.to)};
  MEMLITH_TRY(folder.make());
  const auto volume = make_posix_volume(folder.path());
  CopyTarget target(*volume, StoreKind::folder, "");
  auto report = copy_into(target, source, request);
  const Status status = report.ok() ? folder.give_its_name(request.from) : report.status();
  if (status.ok()) return report;
  folder.remove();
  return status;
}

// ---- places ----------------------------------------------------------------------------------------------------

Status check_place(const CopyRequest& request, StoreKind kind) {
  struct stat info{};
  if (::lstat(request.to.c_str(), &info) == 0 && !is_raw_device(request.to)) {
    return fail(Errc::exists, Detail::open, "{}: exists already; a copy replaces nothing: choose another name",
                request.to);
  }
  if (kind == StoreKind::one_file || is_raw_device(request.from)) return kOk;
  std::error_code ignored;
  const fs::path store = fs::weakly_canonical(request.from, ignored);
  const fs::path place = fs::weakly_canonical(fs::absolute(request.to, ignored), ignored);
  const auto [left, right] = std::mismatch(store.begin(), store.end(), place.begin(), place.end());
  if (left != store.end()) return kOk;
  return fail(Errc::invalid, Detail::argument, "{}: lies in the store itself, {}; choose a place outside of it",
              request.to, request.from);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<CopyReport> copy_store(const CopyRequest& given) {
  CopyRequest request = given;
  request.to = without_slashes(request.to);
  request.from = without_slashes(request.from);
  if (request.to.empty()) return fail(Errc::invalid, Detail::argument, "the path of the copy is empty");
  const StoreKind kind = kind_at(request.from);
  MEMLITH_TRY_ASSIGN(const Place from, place_of_store(request.from, kind));
  MEMLITH_TRY(check_place(request, kind));
  StoreOptions options;
  options.kind = kind;
  options.file_name = from.file_name;
  options.follow_patience = kPatience;
  CopySource source(*from.volume, options);
  if (kind == StoreKind::folder && !is_raw_device(request.to)) return copy_to_folder(source, request);
  MEMLITH_TRY_ASSIGN(const Place to,
                     kind == StoreKind::folder ? place_of_store(request.to, kind) : place_of_name(request.to));
  CopyTarget target(*to.volume, kind, to.file_name);
  target.set_give_name([&to](const std::string& working, const std::string& name) {
    return give_name(to.volume->path_of(working), to.volume->path_of(name), Kind::file);
  });
  return copy_into(target, source, request);
}

// ---- looking at the data ---------------------------------------------------------------------------------------

namespace {

class NoSink final : public CopySink {
 public:
  Status begin(const CopiedState&) override { return kOk; }
  Result<bool> take(ObjectId, Device&) override { return false; }
  Status put(ObjectId, std::uint64_t, std::span<const std::byte>) override { return kOk; }
};

}  // namespace

Result<DataReport> check_data(const std::string& path, const CopyProgress& progress,
                              const std::function<void(const std::string& sentence)>& found) {
  const StoreKind kind = kind_at(path);
  if (kind == StoreKind::one_file) {
    return fail(Errc::unsupported, Detail::open,
                "{}: of the file of a one-file store no checksums are kept, because between two uses any program may "
                "change it; `memlith verify` without --data checks what its structures say of themselves",
                path);
  }
  MEMLITH_TRY_ASSIGN(const Place from, place_of_store(path, kind));
  StoreOptions options;
  options.kind = kind;
  options.follow_patience = kPatience;
  CopySource source(*from.volume, options);
  NoSink sink;
  MEMLITH_TRY_ASSIGN(const CopiedState state, source.walk(sink, progress));
  DataReport report{state.position.lsn, state.blocks, state.blocks_unknown, 0};
  for (const DamagedBytes& each : state.damaged) {
    report.damaged += (each.bytes + kSummedBytes - 1) / kSummedBytes;
    found(in_words(state, each));
  }
  return report;
}

}  // namespace memlith::core
