// docs/guarantees.md, "Call by call": what the machine refuses (permission, a read-only file system, space) is told as
// such, names the file, changes nothing, and the store goes on as soon as it can.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/host.hpp"
#include "support/child.hpp"
#include "support/full_disk.hpp"
#include "support/region_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

// "" where the outcome is this error and its text names `path`.
template <class T>
std::string unless_error(const char* what, const T& outcome, Errc category, const std::string& path) {
  const Status status = status_of(outcome);
  if (status.category != category) return std::string(what) + ": " + (status.ok() ? "ok" : told(status)) + "\n";
  if (last_error_text().find(path) == std::string_view::npos)
    return std::string(what) + " names no file: " + told(status) + "\n";
  return "";
}
template <class T>
std::string unless_ok(const char* what, const T& outcome) {
  const Status status = status_of(outcome);
  return status.ok() ? "" : std::string(what) + ": " + told(status) + "\n";
}

std::string become_nobody() {
  if (::setegid(65534) != 0 || ::seteuid(65534) != 0)
    return std::string("skip: cannot change user: ") + std::strerror(errno);
  return "";
}

StoreOptions opening(bool create = false, bool read_only = false) {
  StoreOptions options = tiny_options();
  options.create = create;
  options.read_only = read_only;
  return options;
}

// Where the tests' folders go, if any user may enter it: what stands in root's home, say, not.
std::string where_nobody_may_enter() {
  const char* const given = std::getenv("MEMLITH_TEST_DIR");
  if (given == nullptr) return "/tmp";
  std::error_code unknown;
  for (auto folder = std::filesystem::absolute(given, unknown); folder.has_relative_path();
       folder = folder.parent_path()) {
    const auto others = std::filesystem::status(folder, unknown).permissions() & std::filesystem::perms::others_exec;
    if (others == std::filesystem::perms::none) return "/tmp";
  }
  return given;
}

class Environment : public ::testing::Test {
 protected:
  Environment() { ::chmod(folder_.path().c_str(), 0755); }
  // A store with object "a" that holds 7s, left with its commit in the log.
  void make_store() {
    auto store = must(Store::open(*volume_, opening(true)));
    const ObjectId a = create_object(*store, "a", 8192);
    EXPECT_OK(commit(*store, {{a, 0, filled(8192, 7)}}));
  }
  static std::string unless_sevens(Store& store) {
    return content_of(store, store.find("a")->id) == filled(8192, 7) ? "" : "the content is not what was committed\n";
  }

  TempFolder folder_{where_nobody_may_enter()};
  std::string path_ = folder_ / "store";
  std::unique_ptr<Volume> volume_ = make_posix_volume(path_);
};

// On a read-only file system a store can be read, not written, and the error says so.
TEST_F(Environment, ReadOnlyFileSystem) {
  make_store();
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    if (::mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return "skip: no bind mount";
    }
    const auto volume = make_posix_volume(path_);  // through the mount: the other one holds the folder from before
    std::string wrong = unless_error("open", Store::open(*volume, opening()), Errc::read_only, path_);
    auto reader = Store::open(*volume, opening(false, true));
    wrong += unless_ok("read", reader);
    if (reader.ok()) wrong += unless_sevens(**reader);
    return wrong;
  });
  EXPECT_OK(Store::open(*volume_, opening()));
}

// Nor can one be made there.
TEST_F(Environment, CreatingOnAReadOnlyFileSystem) {
  ASSERT_OK(volume_->make_folder(""));
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    if (::mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return "skip: no bind mount";
    }
    const auto volume = make_posix_volume(path_);  // through the mount: the other one holds the folder from before
    const auto below = make_posix_volume(path_ + "/below");
    return unless_error("create in it", Store::open(*volume, opening(true)), Errc::read_only, path_) +
           unless_error("create below it", Store::open(*below, opening(true)), Errc::read_only, path_ + "/below");
  });
}

// Without write permission a store can be read; without read permission it cannot; each error names what it could not
// open.
TEST_F(Environment, MissingPermission) {
  make_store();
  EXPECT_IN_CHILD([&]() -> std::string {
    ::chmod((path_ + "/objects/1").c_str(), 0600);
    if (auto reason = become_nobody(); !reason.empty()) return reason;
    std::string wrong = unless_error("write", Store::open(*volume_, opening()), Errc::permission, path_ + "/log");
    wrong += unless_error("read without a home", Store::open(*volume_, opening(false, true)), Errc::permission,
                          path_ + "/objects/1");
    if (::seteuid(0) != 0) return "cannot go back";
    ::chmod((path_ + "/objects/1").c_str(), 0644);
    if (auto reason = become_nobody(); !reason.empty()) return reason;
    {
      auto reader = Store::open(*volume_, opening(false, true));
      wrong += unless_ok("read", reader);
      if (reader.ok()) wrong += unless_sevens(**reader);
    }
    if (::seteuid(0) != 0) return "cannot go back";
    ::chmod((path_ + "/log").c_str(), 0600);
    if (auto reason = become_nobody(); !reason.empty()) return reason;
    return wrong + unless_error("read without the log", Store::open(*volume_, opening(false, true)), Errc::permission,
                                path_ + "/log");
  });
}

// A folder that one may not write to gets no store, and keeps nothing of the attempt.
TEST_F(Environment, NoPermissionToCreate) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = become_nobody(); !reason.empty()) return reason;
    StoreOptions file = opening(true);
    file.kind = StoreKind::one_file;
    file.file_name = "data";
    const auto here = make_posix_volume(folder_.path());
    return unless_error("create", Store::open(*volume_, opening(true)), Errc::permission, path_) +
           unless_error("create a file", Store::open(*here, file), Errc::permission, folder_.path());
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// A store on a full disk, whose folder is there already: every step says no_space, no commit is lost, and with space
// again everything goes on.
std::string live_on_a_full_disk(const std::string& path) {
  const auto volume = make_posix_volume(path + "/store");
  StoreOptions options = tiny_options();
  options.log_max_bytes = 64 * kMiB;
  auto opened = Store::open(*volume, options);
  if (!opened.ok()) return unless_ok("create", opened);
  RegionOptions wanted;
  wanted.create = true;
  wanted.size_bytes = 1 * kMiB;
  auto region = Region::open(**opened, "a", wanted);
  if (!region.ok()) return unless_ok("region", region);
  Region& a = **region;
  put(a, 0, 1);
  std::string wrong = unless_ok("persist", persist(a));

  Filler filler(path);
  wanted.size_bytes = 32 * kMiB;
  wrong += unless_error("create on a full disk", Region::open(**opened, "b", wanted), Errc::no_space, path);
  wrong += unless_error("grow on a full disk", a.grow(32 * kMiB), Errc::no_space, path);
  if (a.size() != 1 * kMiB) wrong += "the size changed\n";
  put(a, 8, 2);
  wrong += unless_ok("a small persist needs no space", persist(a));
  for (std::uint64_t offset = 0; offset < kMiB; offset += 8) put(a, offset, 3);
  wrong += unless_error("a persist that needs a larger log", persist(a), Errc::no_space, path);
  wrong += unless_error("again", persist(a), Errc::no_space, path);
  if ((*opened)->log().poisoned()) wrong += "poisoned by a full disk\n";
  wrong += unless_ok("checkpoint", (*opened)->checkpoint());
  if (get(a, 16) != 3) wrong += "memory lost a store\n";

  filler.release();
  wrong += unless_ok("persist with space again", persist(a));
  region->reset();
  wrong += unless_ok("close", (*opened)->close());
  *opened = nullptr;
  auto again = Store::open(*volume, options);
  if (!again.ok()) return wrong + unless_ok("open again", again);
  auto found = Region::open(**again, "a", {});
  if (!found.ok()) return wrong + unless_ok("region again", found);
  for (std::uint64_t offset = 0; offset < kMiB; offset += 8) {
    if (get(**found, offset) != 3) return wrong + "a committed store is lost\n";
  }
  return wrong;
}

// A full tmpfs.
TEST_F(Environment, FullTmpfs) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_tmpfs(folder_.path(), "size=8m"); !reason.empty()) return reason;
    return live_on_a_full_disk(folder_.path());
  });
}

// A full ext4; and an ext2, which has no fallocate.
class FullExt : public Environment, public ::testing::WithParamInterface<const char*> {
 protected:
  // "", or why not.
  std::string mount_ext(const std::string& mount) {
    const std::string image = folder_ / "image";
    std::filesystem::create_directory(mount);
    write_file(image, std::string(24 << 20, '\0'));
    const std::string command = "(mkfs." + std::string(GetParam()) + " -q -F -m 0 " + image + " && mount -o loop " +
                                image + " " + mount + ") >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) return "skip: cannot mount an " + std::string(GetParam()) + " image";
    return "";
  }
};
INSTANTIATE_TEST_SUITE_P(Of, FullExt, ::testing::Values("ext4", "ext2"), [](const auto& each) { return each.param; });
TEST_P(FullExt, LosesNothing) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    const std::string mount = folder_ / "disk";
    if (auto reason = mount_ext(mount); !reason.empty()) return reason;
    const std::string wrong = live_on_a_full_disk(mount);
    (void)::umount(mount.c_str());
    return wrong;
  });
}

// A user's file with holes gets their space when it is opened. On a full disk that is NO_SPACE, and not a store that
// the next checkpoint poisons.
std::string open_sparse_files(const std::string& path) {
  const std::string name = path + "/data";
  const auto volume = make_posix_volume(path);
  StoreOptions options = opening(true);
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  constexpr std::uint64_t kBytes = 4 * kMiB;
  write_file(name, "begin");
  if (::truncate(name.c_str(), kBytes) != 0) return "truncate";

  // Room for the log, and not for the holes.
  struct statvfs disk{};
  if (::statvfs(path.c_str(), &disk) != 0) return "statvfs";
  const int filler = ::open((path + "/filler").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  const std::string chunk(4096, 'f');
  for (std::uint64_t left = disk.f_bfree * disk.f_frsize; left > 2 * kMiB; left -= chunk.size()) {
    if (::write(filler, chunk.data(), chunk.size()) < 0) return "write";
  }
  ::fsync(filler);
  struct stat before{};
  struct stat after{};
  if (::stat(name.c_str(), &before) != 0) return "stat";
  std::string wrong = unless_error("open on a full disk", Store::open(*volume, options), Errc::no_space, name);
  if (::stat(name.c_str(), &after) != 0) return "stat";
  if (after.st_size != kBytes || after.st_blocks != before.st_blocks) wrong += "the file has changed\n";
  if (::access((name + ".memlith").c_str(), F_OK) == 0) wrong += "a log was left\n";
  ::ftruncate(filler, 0);

  auto store = Store::open(*volume, options);
  if (!store.ok()) return wrong + unless_ok("open with room", store);
  auto region = Region::open(**store, "file", {});
  if (!region.ok()) return wrong + unless_ok("region", region);
  ::lseek(filler, 0, SEEK_SET);
  while (::write(filler, chunk.data(), chunk.size()) > 0) continue;
  ::fsync(filler);
  for (std::uint64_t group = 0; group < kBytes && wrong.empty(); group += 8 * kPageBytes) {
    for (std::uint64_t page = 0; page < 8; ++page) put(**region, group + page * kPageBytes + 8, group + page);
    wrong += unless_ok("persist", persist(**region));
    wrong += unless_ok("checkpoint", (*store)->checkpoint());
  }
  if ((*store)->log().poisoned()) wrong += "poisoned by a hole\n";
  region->reset();
  wrong += unless_ok("close", (*store)->close());
  ::close(filler);
  ::unlink((path + "/filler").c_str());
  ::unlink((name + ".memlith").c_str());
  *store = nullptr;
  if (read_file(name).substr(0, 5) != "begin") wrong += "the content has changed\n";
  return wrong;
}

TEST_F(Environment, SparseFileOnFullTmpfs) {
  if (host_page_bytes() > 16 * kKiB)
    GTEST_SKIP() << "a capture of the kernel's pages does not fit the log of so small a disk";
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_tmpfs(folder_.path(), "size=12m"); !reason.empty()) return reason;
    return open_sparse_files(folder_.path());
  });
}
TEST_P(FullExt, HasNoRoomForHoles) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    const std::string mount = folder_ / "disk";
    if (auto reason = mount_ext(mount); !reason.empty()) return reason;
    const std::string wrong = open_sparse_files(mount);
    (void)::umount(mount.c_str());
    return wrong;
  });
}

// A closed store leaves nothing behind. Its disk can be unmounted at once, and the space of its log is free at once
// when that is removed, however it transferred.
class AfterClosing : public Environment, public ::testing::WithParamInterface<IoBackend> {};
std::string name_of_backend(const ::testing::TestParamInfo<IoBackend>& given) {
  constexpr const char* kNames[] = {"Automatic", "Posix", "Uring"};
  return kNames[static_cast<std::uint32_t>(given.param)];
}
INSTANTIATE_TEST_SUITE_P(By, AfterClosing, ::testing::Values(IoBackend::automatic, IoBackend::posix, IoBackend::uring),
                         name_of_backend);
TEST_P(AfterClosing, NothingHoldsTheDisk) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    StoreOptions options = opening(true);
    options.log_max_bytes = 32 * kMiB;
    for (int round = 0; round < 10; ++round) {
      if (::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=64m") != 0) return "skip: cannot mount a tmpfs";
      {
        const auto volume = make_posix_volume(path_, GetParam());
        auto store = Store::open(*volume, options);
        if (!store.ok() && store.error().category == Errc::unsupported) return "skip: no io_uring here";
        if (!store.ok()) return unless_ok("open", store);
        RegionOptions wanted;
        wanted.create = true;
        wanted.size_bytes = 4 * kMiB;
        auto region = Region::open(**store, "a", wanted);
        if (!region.ok()) return unless_ok("region", region);
        for (std::uint64_t offset = 0; offset < 4 * kMiB; offset += 8) put(**region, offset, offset);  // is streamed
        std::string wrong = unless_ok("persist", persist(**region));
        region->reset();
        wrong += unless_ok("close", (*store)->close());
        if (!wrong.empty()) return wrong;
      }
      struct statvfs before{};
      struct statvfs after{};
      if (::statvfs(folder_.path().c_str(), &before) != 0) return "statvfs";
      std::filesystem::remove(path_ + "/log");
      if (::statvfs(folder_.path().c_str(), &after) != 0) return "statvfs";
      if (after.f_bavail <= before.f_bavail) return "the space of the removed log is not free\n";
      if (::umount(folder_.path().c_str()) != 0) return std::string("umount: ") + std::strerror(errno) + "\n";
    }
    return "";
  });
}

// A disk too small for the store's log: no_space, and what was begun does not keep the space.
TEST_F(Environment, DiskTooSmallForTheStore) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (auto reason = own_mounts(); !reason.empty()) return reason;
    if (::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=512k") != 0) return "skip: cannot mount a tmpfs";
    StoreOptions options;
    options.create = true;  // 1 MiB of log
    std::string wrong = unless_error("create", Store::open(*volume_, options), Errc::no_space, path_);
    return wrong + unless_ok("create a small one instead", Store::open(*volume_, tiny_options()));
  });
}

// On a file system without O_DIRECT, or with, everything works the same.
TEST(EnvironmentShm, StoreOnDevShm) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  const TempFolder folder("/dev/shm");
  const auto volume = make_posix_volume(folder / "store");
  for (std::uint64_t round = 1; round <= 3; ++round) {
    auto store = must(Store::open(*volume, tiny_options()));
    RegionOptions options;
    options.create = true;
    options.size_bytes = 1 * kMiB;
    auto region = must(Region::open(*store, "a", options));
    EXPECT_EQ(get(*region, 0), round - 1);
    for (std::uint64_t i = 0; i < 50; ++i) {
      put(*region, i * 8192, round);
      ASSERT_OK(persist(*region));
    }
  }
}

// Paths in folders that are not there, or that are files, are told by name.
TEST_F(Environment, BadPaths) {
  const auto nowhere = make_posix_volume(folder_ / "no/such/store");
  EXPECT_EQ(unless_error("open", Store::open(*nowhere, opening()), Errc::not_found, "no/such/store"), "");
  EXPECT_EQ(unless_error("create", Store::open(*nowhere, opening(true)), Errc::not_found, "no/such/store"), "");
  write_file(folder_ / "plain", "x");
  const auto file = make_posix_volume(folder_ / "plain");
  EXPECT_EQ(unless_error("open", Store::open(*file, opening()), Errc::not_found, "plain"), "");
  EXPECT_EQ(unless_error("create", Store::open(*file, opening(true)), Errc::exists, "plain"), "");
}

}  // namespace
}  // namespace memlith::test
