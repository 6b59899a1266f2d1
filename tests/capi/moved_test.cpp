// docs/guarantees.md, "Paths": an open store goes on where its descriptors point. The program may change its current
// folder, the store may be renamed or moved, another process may put a store where it was, and the program may give up
// the rights that it opened it with.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "memlith/memlith.h"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::moved_test {
namespace {

namespace fs = std::filesystem;

enum class Kind { folder, one_file };
constexpr std::uint64_t kBytes = 64 * 1024;

std::string failure(const std::string& what, std::int32_t code) {
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  return what + ": " + memlith_category_name(code) + ": " + text + "\n";
}

// A store of either kind with a region of 64-bit numbers. Every word adds what goes wrong to `wrong`.
struct Opened {
  std::string wrong;
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;

  void check(const std::string& what, std::int32_t code) {
    if (code != 0) wrong += failure(what, code);
  }
  Opened(const std::string& path, Kind kind, const char* name = "a", std::uint32_t physical_block_bytes = 0) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.manual_checkpoint = 1;
    options.log_bytes = 1 << 20;
    options.log_max_bytes = 64 << 20;
    options.physical_block_bytes = physical_block_bytes;
    const auto opening = kind == Kind::folder ? memlith_store_open : memlith_file_open;
    check("open " + path, opening(path.c_str(), &options, &store));
    if (store != nullptr) region = open_region(kind == Kind::folder ? name : "file");
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  memlith_region* open_region(const char* name, std::int32_t expected = 0) {
    memlith_region_options wanted{};
    wanted.struct_size = sizeof wanted;
    wanted.flags = MEMLITH_CREATE;
    wanted.size = kBytes;
    wanted.max_size = 32 << 20;
    memlith_region* opened = nullptr;
    const std::int32_t code = memlith_region_open(store, name, &wanted, &opened);
    if (code == 0 && expected != 0) wrong += std::string("region ") + name + " was made\n";
    if (memlith_category(code) != expected) wrong += failure(std::string("region ") + name, code);
    return opened;
  }
  static std::uint64_t& number(memlith_region* region, std::uint64_t index = 0) {
    return static_cast<std::uint64_t*>(memlith_region_address(region))[index];
  }
  void persist(memlith_region* of, std::uint64_t value) {
    number(of) = value;
    check("persist", memlith_persist(&of, 1, MEMLITH_SCOPE_PROCESS));
  }
  void checkpoint() { check("checkpoint", memlith_store_checkpoint(store)); }
  // Returns everything that went wrong.
  std::string close() {
    check("close", memlith_store_close(store));
    return wrong;
  }
};

// The fault of the store at `path`, which is not open, if its region does not begin with `value`.
std::string unless_holds(const std::string& path, Kind kind, const char* name, std::uint64_t value) {
  memlith_report report{};
  report.struct_size = sizeof report;
  if (const std::int32_t code = memlith_verify(path.c_str(), &report); code != 0)
    return failure("verify " + path, code);
  Opened again(path, kind, name);
  if (!again.wrong.empty()) return again.wrong;
  if (const std::uint64_t found = Opened::number(again.region); found != value) {
    again.wrong += path + ": region " + name + " holds " + std::to_string(found) + "\n";
  }
  return again.close();
}

bool seen_alive(const std::string& path) {
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  return memlith_stat(path.c_str(), &stats) == 0 && stats.alive == 1;
}

class Moved : public ::testing::TestWithParam<Kind> {
 protected:
  [[nodiscard]] static bool in_folder() { return GetParam() == Kind::folder; }
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Stores, Moved, ::testing::Values(Kind::folder, Kind::one_file),
                         [](const auto& each) { return each.param == Kind::folder ? "Folder" : "OneFile"; });

// As daemon(3) does it: opened by a relative path, and then the current folder changes.
TEST_P(Moved, TheCurrentFolderChanges) {
  EXPECT_IN_CHILD([&]() -> std::string {
    if (::chdir(folder_.path().c_str()) != 0) return "chdir";
    Opened opened("s", GetParam());
    if (!opened.wrong.empty()) return opened.wrong;
    opened.persist(opened.region, 1);
    if (::chdir("/") != 0) return "chdir";
    opened.persist(opened.region, 2);
    opened.checkpoint();
    if (in_folder()) opened.persist(opened.open_region("b"), 7);
    opened.checkpoint();
    opened.persist(opened.region, 3);
    return opened.close();
  });
  EXPECT_EQ(unless_holds(folder_ / "s", GetParam(), "a", 3), "");
  if (in_folder()) {
    EXPECT_EQ(unless_holds(folder_ / "s", GetParam(), "b", 7), "");
  }
}

// The same, where the new current folder has a store of that name, which another process has open.
TEST_P(Moved, TheCurrentFolderHasAStoreOfThatName) {
  fs::create_directory(folder_ / "one");
  fs::create_directory(folder_ / "two");
  SecondProcess other([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "the test ended";
    Opened opened(folder_ / "two/s", GetParam());
    if (!opened.wrong.empty()) return opened.wrong;
    memlith_region* const second = in_folder() ? opened.open_region("b") : opened.region;  // objects/2
    opened.persist(second, 20);
    test.tell();
    if (!test.wait()) return "the test ended";
    opened.persist(second, 21);
    opened.checkpoint();
    return opened.close();
  });
  ASSERT_TRUE(other.step());
  EXPECT_IN_CHILD([&]() -> std::string {
    if (::chdir((folder_ / "one").c_str()) != 0) return "chdir";
    Opened opened("s", GetParam());
    if (!opened.wrong.empty()) return opened.wrong;
    opened.persist(opened.region, 1);
    if (::chdir((folder_ / "two").c_str()) != 0) return "chdir";
    memlith_region* const second = in_folder() ? opened.open_region("b") : opened.region;
    opened.persist(second, 10);
    opened.checkpoint();
    opened.persist(second, 11);
    return opened.close();
  });
  EXPECT_TRUE(seen_alive(folder_ / "two/s"));
  EXPECT_TRUE(other.finish());
  const char* const second = in_folder() ? "b" : "file";
  EXPECT_EQ(unless_holds(folder_ / "one/s", GetParam(), second, 11), "");
  EXPECT_EQ(unless_holds(folder_ / "two/s", GetParam(), second, 21), "");
}

// The store, or the folder of the file, gets another name, and another process puts a store in its place.
TEST_P(Moved, TheFolderIsRenamedAndAnotherStoreTakesItsPlace) {
  const std::string place = folder_ / "place";
  const std::string away = folder_ / "away";
  const std::string inside = in_folder() ? "" : "/file";
  if (!in_folder()) fs::create_directory(place);
  SecondProcess other([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "the test ended";
    if (!in_folder()) fs::create_directory(place);
    Opened opened(place + inside, GetParam());
    if (!opened.wrong.empty()) return opened.wrong;
    memlith_region* const second = in_folder() ? opened.open_region("b") : opened.region;
    opened.persist(second, 20);
    test.tell();
    if (!test.wait()) return "the test ended";
    opened.persist(second, 21);
    opened.checkpoint();
    return opened.close();
  });
  Opened opened(place + inside, GetParam());
  ASSERT_EQ(opened.wrong, "");
  opened.persist(opened.region, 1);
  fs::rename(place, away);
  ASSERT_TRUE(other.step());
  memlith_region* const second = in_folder() ? opened.open_region("b") : opened.region;
  ASSERT_NE(second, nullptr) << opened.wrong;
  opened.persist(second, 10);
  opened.checkpoint();
  opened.persist(second, 11);
  EXPECT_EQ(opened.close(), "");
  EXPECT_TRUE(seen_alive(place + inside));
  EXPECT_TRUE(other.finish());
  const char* const name = in_folder() ? "b" : "file";
  EXPECT_EQ(unless_holds(away + inside, GetParam(), name, 11), "");
  EXPECT_EQ(unless_holds(place + inside, GetParam(), name, 21), "");
}

// The file and its log get other names, and another process makes a file of the old one.
TEST(MovedFile, IsRenamedAndAnotherTakesItsPlace) {
  const TempFolder folder;
  SecondProcess other([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "the test ended";
    Opened opened(folder / "f", Kind::one_file);
    opened.persist(opened.region, 20);
    test.tell();
    if (!test.wait()) return "the test ended";
    opened.persist(opened.region, 21);
    opened.checkpoint();
    return opened.close();
  });
  Opened opened(folder / "f", Kind::one_file);
  ASSERT_EQ(opened.wrong, "");
  opened.persist(opened.region, 1);
  fs::rename(folder / "f", folder / "g");
  fs::rename(folder / "f.memlith", folder / "g.memlith");
  ASSERT_TRUE(other.step());
  opened.persist(opened.region, 10);
  opened.checkpoint();
  opened.persist(opened.region, 11);
  EXPECT_EQ(opened.close(), "");
  EXPECT_TRUE(seen_alive(folder / "f")) << "its counters belong to the other process";
  EXPECT_TRUE(other.finish());
  EXPECT_EQ(unless_holds(folder / "g", Kind::one_file, "file", 11), "");
  EXPECT_EQ(unless_holds(folder / "f", Kind::one_file, "file", 21), "");
}

// The same for stores that keep whole physical blocks in a file beside the log.
TEST_P(Moved, AStoreForLargePhysicalBlocksIsRenamedAndAnotherTakesItsPlace) {
  const std::string place = folder_ / "place";
  const std::string away = folder_ / "away";
  const std::string blocks = in_folder() ? "/blocks" : ".memlith-blocks";
  SecondProcess other([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "the test ended";
    Opened opened(place, GetParam(), "a", 4096);
    if (!opened.wrong.empty()) return opened.wrong;
    opened.persist(opened.region, 20);
    opened.checkpoint();
    test.tell();
    if (!test.wait()) return "the test ended";
    opened.persist(opened.region, 21);
    opened.checkpoint();
    return opened.close();
  });
  Opened opened(place, GetParam(), "a", 4096);
  ASSERT_EQ(opened.wrong, "");
  opened.persist(opened.region, 1);
  fs::rename(place, away);
  if (!in_folder()) {
    fs::rename(place + ".memlith", away + ".memlith");
    fs::rename(place + blocks, away + blocks);
  }
  ASSERT_TRUE(other.step());
  const std::string of_the_other = read_file(place + blocks);
  opened.persist(opened.region, 10);
  opened.checkpoint();
  EXPECT_EQ(read_file(place + blocks), of_the_other);
  EXPECT_NE(read_file(away + blocks), "");
  opened.persist(opened.region, 11);
  EXPECT_EQ(opened.close(), "");
  EXPECT_TRUE(fs::exists(place + blocks)) << "the file of blocks belongs to the other process";
  EXPECT_TRUE(other.finish());
  EXPECT_EQ(unless_holds(away, GetParam(), "a", 11), "");
  EXPECT_EQ(unless_holds(place, GetParam(), "a", 21), "");
}

// A file behind a link is that file from the opening on, wherever the link leads later.
TEST(MovedFile, TheLinkToItLeadsElsewhere) {
  const TempFolder folder;
  write_file(folder / "one", "");
  write_file(folder / "two", "untouched");
  fs::create_symlink("one", folder / "link");
  Opened opened(folder / "link", Kind::one_file);
  ASSERT_EQ(opened.wrong, "");
  opened.persist(opened.region, 1);
  fs::remove(folder / "link");
  fs::create_symlink("two", folder / "link");
  opened.persist(opened.region, 2);
  opened.checkpoint();
  EXPECT_EQ(opened.close(), "");
  EXPECT_EQ(read_file(folder / "two"), "untouched");
  EXPECT_EQ(unless_holds(folder / "one", Kind::one_file, "file", 2), "");
}

// A server opens its store as root, in a folder that only root may enter, and gives up root. Commits, checkpoints and
// the growth of the log and of regions continue; a new region needs the right that was given up, so only its creation
// fails.
void give_up_root(const TempFolder& folder, Kind kind, std::uint32_t physical_block_bytes) {
  const bool in_folder = kind == Kind::folder;
  const std::string closed = folder / "closed";
  fs::create_directory(closed);
  ASSERT_EQ(::chmod(closed.c_str(), 0700), 0);
  EXPECT_IN_CHILD([&]() -> std::string {
    if (::geteuid() != 0) return "skip: only root can give up root";
    Opened opened(closed + "/s", kind, "a", physical_block_bytes);
    if (!opened.wrong.empty()) return opened.wrong;
    opened.persist(opened.region, 1);
    constexpr id_t kNobody = 65534;
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      return "skip: cannot change user";
    }
    if (::access(closed.c_str(), X_OK) == 0) return "skip: no other user may enter a folder of root's here";
    opened.checkpoint();
    opened.persist(opened.region, 2);
    opened.checkpoint();
    if (in_folder) {
      (void)opened.open_region("b", MEMLITH_PERMISSION);
      opened.persist(opened.region, 3);
      opened.checkpoint();
    }
    opened.check("grow", memlith_region_grow(opened.region, 16 << 20));
    for (std::uint64_t index = 0; index < (16 << 20) / 8; ++index) Opened::number(opened.region, index) = index;
    opened.persist(opened.region, 4);  // more than the log has room for
    opened.checkpoint();
    opened.persist(opened.region, 5);
    memlith_store_info info{};
    info.struct_size = sizeof info;
    opened.check("info", memlith_store_get_info(opened.store, &info));
    if (info.poisoned != 0) opened.wrong += "poisoned\n";
    if (info.log_bytes <= 1 << 20) opened.wrong += "the log did not grow\n";
    return opened.close();
  });
  if (::geteuid() == 0) {
    EXPECT_EQ(unless_holds(closed + "/s", kind, in_folder ? "a" : "file", 5), "");
  }
}
TEST_P(Moved, TheServerGivesUpRoot) { give_up_root(folder_, GetParam(), 0); }
TEST_P(Moved, TheServerOfAStoreForLargePhysicalBlocksGivesUpRoot) { give_up_root(folder_, GetParam(), 4096); }

}  // namespace
}  // namespace memlith::test::moved_test
