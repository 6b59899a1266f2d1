// docs/guarantees.md, "memlith_file_open": the file is the user's. Its length and bytes follow commits only; after a
// clean close it is complete without its log; a crash undoes what was not committed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class OneFileStore : public ::testing::Test {
 protected:
  static StoreOptions options() {
    StoreOptions result = tiny_options();
    result.kind = StoreKind::one_file;
    result.file_name = "data";
    return result;
  }
  void open() { store_ = must(Store::open(*volume_, options())); }
  void drop() { store_ = nullptr; }
  void close() {
    EXPECT_OK(store_->close());
    store_ = nullptr;
  }
  void place(std::uint64_t bytes) { EXPECT_OK(store_->create("file", bytes, 0x510000000000, 1 * kGiB)); }
  std::string file() const { return read_file(folder_ / "data"); }
  std::uint64_t size() const { return store_->find("file")->size_bytes; }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_.path());
  std::unique_ptr<Store> store_;
};

// A file that is there is adopted as it is, with a length that is no multiple of anything.
TEST_F(OneFileStore, AdoptsAFile) {
  write_file(folder_ / "data", std::string(10'001, 'u'));
  open();
  EXPECT_EQ(size(), 10'001u);
  EXPECT_EQ(content_of(*store_, kFile), filled(10'001, 'u'));
  place(10'001);
  ASSERT_OK(commit(*store_, {{kFile, 10'000, filled(1, 'v')}}));
  EXPECT_EQ(file(), std::string(10'001, 'u')) << "only replay writes the file";
  close();
  EXPECT_EQ(file(), std::string(10'000, 'u') + "v");
}

// A sparse file gets space for its holes before anything else. Where there is none, opening fails and changes nothing,
// and there is no commit yet that could be lost for it.
TEST(SparseFile, NeedsItsSpaceWhenItIsOpened) {
  SimVolume volume;
  StoreOptions options = tiny_options();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  ASSERT_OK(must(volume.open("data", OpenMode::create, Caching::buffered))->reserve(8192));
  volume.make_sparse("data");
  // Every chance for no_space, from the log's own up to the holes'.
  std::uint64_t refused = 0;
  for (std::uint64_t nth = 0;; ++nth) {
    volume.faults().clear();
    volume.faults().plan(SimFaults::Kind::no_space, nth, true);
    const auto store = Store::open(volume, options);
    if (store.ok()) break;
    EXPECT_ERROR(Errc::no_space, store);
    EXPECT_TRUE(volume.sparse("data"));
    EXPECT_EQ(must(volume.exists("data.memlith")), false);
    ++refused;
    ASSERT_LT(nth, 100u);
  }
  EXPECT_FALSE(volume.sparse("data"));
  EXPECT_GE(refused, 2u) << "the log's and the holes'";
}

// Otherwise a hole gets its space with the first commit that changes it. Where there is none, that commit fails, and no
// checkpoint poisons the store.
TEST(SparseFile, MayKeepItsHolesUntilTheyAreChanged) {
  SimVolume volume;
  StoreOptions options = tiny_options();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  options.keeps_holes = true;
  ASSERT_OK(must(volume.open("data", OpenMode::create, Caching::buffered))->reserve(3 * 4096));
  volume.make_sparse("data");
  {
    const auto store = must(Store::open(volume, options));
    volume.faults().plan(SimFaults::Kind::no_space, 0, true);
    EXPECT_ERROR(Errc::no_space, commit(*store, {{kFile, 5000, filled(10, 'v')}}));
    volume.faults().clear();
    ASSERT_OK(commit(*store, {{kFile, 5000, filled(10, 'v')}}));
    ASSERT_OK(store->checkpoint());
    ASSERT_OK(commit(*store, {{kFile, 9000, filled(10, 'w')}}));
  }
  // The reservation of a commit may be gone: recovery reserves what it writes.
  volume.make_sparse("data");
  const auto store = must(Store::open(volume, options));
  EXPECT_TRUE(volume.sparse("data"));
  const Bytes content = content_of(*store, kFile);
  EXPECT_EQ(Bytes(content.begin() + 9000, content.begin() + 9010), filled(10, 'w'));
  ASSERT_OK(store->close());
}

// A missing file is made, empty, when asked to create, and not otherwise.
TEST_F(OneFileStore, MakesAMissingFile) {
  StoreOptions plain = options();
  plain.create = false;
  EXPECT_ERROR(Errc::not_found, Store::open(*volume_, plain));
  EXPECT_TRUE(read_folder(folder_.path()).empty());
  open();
  EXPECT_EQ(size(), 0u);
  close();
  EXPECT_EQ(file(), "");
  EXPECT_OK(Store::open(*volume_, plain));
}

// After a clean close the file alone holds everything: its log may be deleted.
TEST_F(OneFileStore, FileAloneIsCompleteAfterClose) {
  open();
  place(5000);
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(5000, 'a')}}));
  close();
  EXPECT_EQ(file(), std::string(5000, 'a'));
  std::filesystem::remove(folder_ / "data.memlith");
  open();
  EXPECT_EQ(content_of(*store_, kFile), filled(5000, 'a'));
}

// Commits survive a drop; the home gets them at the next open.
TEST_F(OneFileStore, CommitsSurviveACrash) {
  open();
  place(5000);
  ASSERT_OK(commit(*store_, {{kFile, 4000, filled(1000, 'a')}}));
  drop();
  open();
  EXPECT_EQ(file(), std::string(4000, '\0') + std::string(1000, 'a'));
  EXPECT_EQ(store_->find("file")->address, 0x510000000000u);
}

// Growth that was committed stays; growth that was only reserved is undone by a crash, and by a clean close.
TEST_F(OneFileStore, OnlyCommittedGrowthStays) {
  open();
  place(5000);
  ASSERT_OK(store_->reserve_home(kFile, 7001));
  ASSERT_OK(commit(*store_, {{kFile, 7000, filled(1, 'z')}}, {{kFile, 7001}}));
  ASSERT_OK(store_->reserve_home(kFile, 20'000));
  EXPECT_EQ(file().size(), 20'000u);
  drop();
  open();
  EXPECT_EQ(size(), 7001u);
  EXPECT_EQ(file().size(), 7001u);
  EXPECT_EQ(file().back(), 'z');
  ASSERT_OK(store_->reserve_home(kFile, 20'000));
  close();
  EXPECT_EQ(file().size(), 7001u);
}

// Between two uses the file is the user's own: a longer or shorter one is taken as it is.
TEST_F(OneFileStore, LengthBetweenUsesIsTheUsers) {
  open();
  place(5000);
  close();
  for (const std::size_t length : {std::size_t{100}, std::size_t{0}, std::size_t{9000}}) {
    write_file(folder_ / "data", std::string(length, 'x'));
    open();
    EXPECT_EQ(size(), length);
    EXPECT_EQ(content_of(*store_, kFile), filled(length, 'x'));
    close();
    EXPECT_EQ(file(), std::string(length, 'x'));
  }
}

// A file that another program cut short while commits wait for it is corrupt, with both lengths in the message; a
// missing file, too. Nothing is changed, so that the file can be put back.
TEST_F(OneFileStore, AFileThatIsShorterThanItsLogSaysIsCorrupt) {
  open();
  place(5000);
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(5000, 'a')}}));
  drop();
  const std::string whole = file();
  const std::string log = read_file(folder_ / "data.memlith");
  std::filesystem::resize_file(folder_ / "data", 4000);
  EXPECT_ERROR(Errc::corrupt, Store::open(*volume_, options()));
  EXPECT_NE(last_error_text().find("5000"), std::string_view::npos) << last_error_text();
  EXPECT_NE(last_error_text().find("4000"), std::string_view::npos) << last_error_text();
  EXPECT_NE(last_error_text().find(folder_ / "data"), std::string_view::npos) << last_error_text();
  std::filesystem::remove(folder_ / "data");
  EXPECT_ERROR(Errc::corrupt, Store::open(*volume_, options()));
  EXPECT_NE(last_error_text().find("put the file back, or remove the log"), std::string_view::npos)
      << last_error_text();
  EXPECT_EQ(read_file(folder_ / "data.memlith"), log);
  write_file(folder_ / "data", whole);
  open();
  EXPECT_EQ(content_of(*store_, kFile), filled(5000, 'a'));
}

// A file shorter than the log says is not touched, be there so much in the log that recovery writes home before it has
// seen all. A file that an earlier recovery cut, because it shrank later in the log, is shorter than the log says at
// first, and is right.
TEST_F(OneFileStore, AShorterFileIsLeftAsItIs) {
  open();
  place(12'000);
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(12'000, 'a')}}));
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(4000, 'b')}}));
  drop();
  StoreOptions in_steps = options();
  in_steps.replay_bytes_max = 1000;
  write_file(folder_ / "data", std::string(5000, 'o'));
  for (const StoreOptions& each : {options(), in_steps}) {
    EXPECT_ERROR(Errc::corrupt, Store::open(*volume_, each));
    EXPECT_EQ(file(), std::string(5000, 'o'));
  }
  write_file(folder_ / "data", std::string(12'000, '0'));
  open();
  ASSERT_OK(commit(*store_, {{kFile, 11'000, filled(1000, 'c')}}));
  ASSERT_OK(commit(*store_, {}, {{kFile, 3000}}));
  drop();
  std::filesystem::resize_file(folder_ / "data", 3000);
  store_ = must(Store::open(*volume_, in_steps));
  EXPECT_EQ(file(), std::string(3000, 'b'));
}

// The same in the last block of the file, of which a store for large physical blocks keeps the whole.
TEST_F(OneFileStore, BytesBehindTheEndOfACutFileAreInNoBlock) {
  StoreOptions in_steps = options();
  in_steps.physical_block_bytes = 4096;
  in_steps.replay_bytes_max = 1000;
  write_file(folder_ / "data", std::string(12'000, '0'));
  store_ = must(Store::open(*volume_, in_steps));
  place(12'000);
  ASSERT_OK(commit(*store_, {{kFile, 2900, filled(10, 'b')}, {kFile, 3500, filled(100, 'c')}}));
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(2000, 'a')}}));
  ASSERT_OK(commit(*store_, {}, {{kFile, 3000}}));
  drop();
  std::filesystem::resize_file(folder_ / "data", 3000);
  store_ = must(Store::open(*volume_, in_steps));
  EXPECT_EQ(file(), std::string(2000, 'a') + std::string(900, '0') + std::string(10, 'b') + std::string(90, '0'));
}

// Its bytes mean nothing to the store: another file in its place is taken for it while commits wait, and left alone
// after a close.
TEST_F(OneFileStore, AFileInItsPlaceIsTakenForIt) {
  open();
  place(5000);
  ASSERT_OK(commit(*store_, {{kFile, 4000, filled(1000, 'a')}}));
  drop();
  write_file(folder_ / "data", std::string(6000, 'o'));
  open();
  EXPECT_EQ(file(), std::string(4000, 'o') + std::string(1000, 'a'));
  close();
  write_file(folder_ / "data", std::string(6000, 'o'));
  open();
  EXPECT_EQ(file(), std::string(6000, 'o'));
}

// The file may be replaced by a longer one than its addresses hold: it gets new ones.
TEST_F(OneFileStore, OutgrownAddressesAreGivenUp) {
  open();
  EXPECT_OK(store_->create("file", 5000, 0x510000000000, 8192));
  close();
  write_file(folder_ / "data", std::string(10'000, 'x'));
  open();
  EXPECT_EQ(store_->find("file")->address, 0u);
}

// A file with two names would have two logs: while it is open under one of them, the other is refused.
TEST_F(OneFileStore, IsOpenUnderOneNameAtATime) {
  open();
  place(5000);
  std::filesystem::create_hard_link(folder_ / "data", folder_ / "other");
  StoreOptions other = options();
  other.file_name = "other";
  EXPECT_ERROR(Errc::busy, Store::open(*volume_, other));
  close();
  EXPECT_OK(Store::open(*volume_, other));
}

// The log's content is as secret as the file.
TEST_F(OneFileStore, TheLogHasThePermissionsOfTheFile) {
  write_file(folder_ / "data", "secret");
  using std::filesystem::perms;
  std::filesystem::permissions(folder_ / "data", perms::owner_read | perms::owner_write);
  open();
  for (const char* const name : {"data.memlith", "data.memlith-stats"}) {
    EXPECT_EQ(std::filesystem::status(folder_ / name).permissions(), perms::owner_read | perms::owner_write) << name;
  }
}

// The lock of the file may outlive a program that was killed, until its mappings are gone. The opening waits for that.
TEST_F(OneFileStore, WaitsForALockThatIsAboutToGo) {
  open();
  close();
  auto lock = must(volume_->lock("data", true));
  std::thread killed([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lock = nullptr;
  });
  EXPECT_OK(Store::open(*volume_, options()));
  killed.join();
}

// A program that was killed leaves its page of counters beside the file, and says so that the log had the newest
// commits.
TEST_F(OneFileStore, MissesTheLogOfAnOpeningThatWasNotClosed) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    open();
    place(5000);
    ::_exit(commit(*store_, {{kFile, 0, filled(5000, 'a')}}).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::remove(folder_ / "data.memlith"));
  const auto before = read_folder(folder_.path());
  ASSERT_ERROR(Errc::corrupt, Store::open(*volume_, options()));
  EXPECT_NE(last_error_text().find("data.memlith-stats is still there"), std::string::npos) << last_error_text();
  EXPECT_EQ(read_folder(folder_.path()), before);
  // The sentence's advice for giving the commits up.
  ASSERT_TRUE(std::filesystem::remove(folder_ / "data.memlith-stats"));
  open();
  close();
  EXPECT_EQ(file().find('a'), std::string::npos) << "the commits were in the log";
}

// When a close removes the log, no other process can lock it in between; the next opening creates another.
TEST_F(OneFileStore, ClosesWithoutItsLog) {
  open();
  place(5000);
  ASSERT_OK(commit(*store_, {{kFile, 0, filled(5000, 'a')}}));
  ASSERT_OK(store_->close_and_remove_log());
  drop();
  EXPECT_EQ(read_folder(folder_.path()), (std::map<std::string, std::string>{{"data", std::string(5000, 'a')}}));
  open();
  EXPECT_EQ(content_of(*store_, kFile), filled(5000, 'a'));
}

// There is nothing to remove in it, and a folder store's log is not one of it.
TEST_F(OneFileStore, KindsDoNotMix) {
  open();
  EXPECT_ERROR(Errc::invalid, store_->remove(kFile));
  close();
  (void)must(Store::open(*make_posix_volume(folder_ / "folder"), tiny_options()));
  std::filesystem::copy_file(folder_ / "folder/log", folder_ / "data.memlith",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_ERROR(Errc::invalid, Store::open(*volume_, options()));
  EXPECT_NE(last_error_text().find("folder store"), std::string_view::npos) << last_error_text();
}

}  // namespace
}  // namespace memlith::test
