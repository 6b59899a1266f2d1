// memlith/files.h: mappings of ordinary files that a crash leaves as the last msync left them.
#include "private/images.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "memlith/files.hpp"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::files_test {
namespace {

struct Block {
  char bytes[4096];
};
const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::string last_error() {
  char text[1024];
  memlith_last_error(text, sizeof text);
  return text;
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override { write_file(std::string(4 * kPage, 'o')); }

  void write_file(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  [[nodiscard]] std::string path() const { return folder_ / "data"; }
  [[nodiscard]] std::string content() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] int open_file(int flags = O_RDWR) const { return ::open(path().c_str(), flags | O_CLOEXEC); }
  // Null on failure.
  [[nodiscard]] char* map(std::size_t bytes = 4 * kPage, off_t offset = 0) const {
    const int fd = open_file();
    void* const got = memlith_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    ::close(fd);
    return got == MAP_FAILED ? nullptr : static_cast<char*>(got);
  }
  // Replays what a process that ended without a word has left.
  void recover() const {
    memlith_store* store = nullptr;
    ASSERT_EQ(memlith_file_open(path().c_str(), nullptr, &store), 0) << last_error();
    ASSERT_EQ(memlith_store_close(store), 0) << last_error();
  }

  TempFolder folder_;
};

#define REQUIRE_MAPPED(pointer) ASSERT_NE(pointer, nullptr) << std::strerror(errno) << ": " << last_error()

TEST_F(Files, AProcessThatDiesLeavesTheLastSync) {
  char* const probe = map();
  REQUIRE_MAPPED(probe);
  ASSERT_EQ(memlith_munmap(probe, 4 * kPage), 0) << last_error();
  EXPECT_IN_CHILD([this]() -> std::string {
    char* const data = map();
    if (data == nullptr) return last_error();
    data[0] = 'a';
    data[2 * kPage] = 'b';
    if (memlith_msync(data, 4 * kPage, MS_SYNC) != 0) return last_error();
    data[1] = 'x';
    data[3 * kPage] = 'x';
    return {};  // ends here, without munmap
  });
  recover();
  std::string expected(4 * kPage, 'o');
  expected[0] = 'a';
  expected[2 * kPage] = 'b';
  EXPECT_EQ(content(), expected);
}

TEST_F(Files, NothingReachesTheFileBeforeASync) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  data[5] = 'x';
  EXPECT_EQ(content(), std::string(4 * kPage, 'o'));
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0) << last_error();
  EXPECT_EQ(content(), std::string(4 * kPage, 'o')) << "what was not synced is dropped with the last mapping";
}

TEST_F(Files, MappingsOfOneFileShowTheSameBytes) {
  char* const whole = map();
  REQUIRE_MAPPED(whole);
  char* const part = map(2 * kPage, 2 * kPage);
  ASSERT_NE(part, nullptr) << last_error();
  part[3] = 'p';
  EXPECT_EQ(whole[2 * kPage + 3], 'p');
  whole[3 * kPage] = 'w';
  EXPECT_EQ(part[kPage], 'w');
  // One call commits the pages of its range, through whichever mapping they were stored to.
  ASSERT_EQ(memlith_msync(whole, 4 * kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(whole, 4 * kPage), 0);
  part[4] = 'x';
  ASSERT_EQ(memlith_munmap(part, 2 * kPage), 0);
  std::string expected(4 * kPage, 'o');
  expected[2 * kPage + 3] = 'p';
  expected[3 * kPage] = 'w';
  EXPECT_EQ(content(), expected);
}

TEST_F(Files, ASyncOfARangeCommitsThatRange) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  data[0] = 'x';
  data[2 * kPage] = 'y';
  ASSERT_EQ(memlith_msync(data + 2 * kPage, kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0);
  std::string expected(4 * kPage, 'o');
  expected[2 * kPage] = 'y';
  EXPECT_EQ(content(), expected);
}

TEST_F(Files, InvalidateGoesBackToTheLastSync) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  data[7] = 's';
  ASSERT_EQ(memlith_msync(data, 4 * kPage, MS_ASYNC), 0) << last_error();
  data[7] = 'x';
  data[kPage] = 'x';
  ASSERT_EQ(memlith_msync(data, kPage, MS_INVALIDATE), 0) << last_error();
  EXPECT_EQ(data[7], 's');
  EXPECT_EQ(data[kPage], 'x') << "outside of the range";
  ASSERT_EQ(memlith_msync(data, 4 * kPage, MS_INVALIDATE), 0) << last_error();
  EXPECT_EQ(data[kPage], 'o');
  data[8] = 't';
  ASSERT_EQ(memlith_msync(data, 4 * kPage, MS_SYNC | MS_INVALIDATE), 0) << last_error();
  EXPECT_EQ(data[8], 't');
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0);
  EXPECT_EQ(content().substr(0, 10), "ooooooosto");
}

TEST_F(Files, AnImageGoesOnUnderAnotherName) {
  char* const probe = map();
  REQUIRE_MAPPED(probe);
  ASSERT_EQ(memlith_munmap(probe, 4 * kPage), 0) << last_error();
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  memlith_image* image = nullptr;
  ASSERT_EQ(memlith_image_open(path().c_str(), &options, &image), 0) << last_error();
  const int before = memlith_image_descriptor(image);
  ASSERT_EQ(::pwrite(before, "kept", 4, 0), 4);
  ASSERT_EQ(memlith_image_written(image, 0, 4), 0) << last_error();
  ASSERT_EQ(memlith_image_commit(image, 0), 0) << last_error();
  ASSERT_EQ(::pwrite(before, "later", 5, 2 * kPage), 5);  // not committed when the file gets its new name
  ASSERT_EQ(memlith_image_detach(image), 0) << last_error();
  EXPECT_EQ(content().substr(0, 5), "kepto") << "detaching brings every commit into the file";
  EXPECT_EQ(content()[2 * kPage], 'o');
  EXPECT_EQ(memlith_category(memlith_image_commit(image, 0)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_image_store(image), nullptr);

  const std::string renamed = path() + ".renamed";
  std::filesystem::rename(path(), renamed);
  std::filesystem::remove(path() + ".memlith");
  ASSERT_EQ(memlith_image_attach(image, renamed.c_str(), &options), 0) << last_error();
  EXPECT_EQ(memlith_category(memlith_image_attach(image, renamed.c_str(), &options)), MEMLITH_INVALID);
  ASSERT_EQ(memlith_image_cut(image, 3 * kPage), 0) << last_error();
  ASSERT_EQ(memlith_image_commit(image, 0), 0) << last_error();
  ASSERT_EQ(memlith_image_close(image), 0) << last_error();
  std::filesystem::rename(renamed, path());
  std::string expected(3 * kPage, 'o');
  expected.replace(0, 4, "kept");
  expected.replace(2 * kPage, 5, "later");
  EXPECT_EQ(content(), expected);
}

class Guarded : public Files {
 protected:
  [[nodiscard]] std::string log() const { return path() + ".memlith"; }
  // A program that stores to the first page and dies behind its first or second commit.
  void die_after_commits(int commits) {
    EXPECT_IN_CHILD(([this, commits]() -> std::string {
      const int fd = open_file();
      void* const got =
          memlith_mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MEMLITH_IMAGE_GUARD, fd, 0);
      if (got == MAP_FAILED) return last_error();
      auto* const data = static_cast<char*>(got);
      for (int i = 0; i < commits; ++i) {
        data[3] = static_cast<char>('1' + i);
        data[kPage + 3] = static_cast<char>('1' + i);
        if (memlith_msync(data, 4 * kPage, MS_SYNC) != 0) return last_error();
      }
      return {};
    }));
  }
  [[nodiscard]] static std::string expected(char value) {
    std::string bytes(4 * kPage, 'o');
    bytes[3] = bytes[kPage + 3] = value;
    return bytes;
  }
  [[nodiscard]] bool is_marked() const { return content().substr(1, 6) == "MEMLIT"; }
  // Opens the file's region in a store, which is left open; the category of the error.
  [[nodiscard]] std::int32_t open_region(std::uint32_t flags, memlith_store** store, memlith_region** region) const {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    if (const std::int32_t code = memlith_file_open(path().c_str(), &options, store); code != 0)
      return memlith_category(code);
    memlith_region_options region_options{};
    region_options.struct_size = sizeof region_options;
    return memlith_category(memlith_region_open(*store, "file", &region_options, region));
  }
  [[nodiscard]] std::int32_t open_store(std::uint32_t flags) const {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    memlith_store* store = nullptr;
    const std::int32_t code = memlith_file_open(path().c_str(), &options, &store);
    if (code == 0) memlith_store_close(store);
    return memlith_category(code);
  }
};

TEST_F(Guarded, ARecoveredFileHasItsOwnBytes) {
  die_after_commits(2);
  ASSERT_TRUE(is_marked());
  recover();
  EXPECT_EQ(content(), expected('2'));
}

TEST_F(Guarded, ACopyWithoutItsLogIsRefused) {
  die_after_commits(2);
  ASSERT_TRUE(is_marked());
  const std::string before = content();
  std::filesystem::remove(log());
  std::filesystem::remove(path() + ".memlith-stats");
  EXPECT_EQ(open_store(MEMLITH_OPEN_CREATE), MEMLITH_CORRUPT);
  EXPECT_NE(last_error().find("is a copy that was taken while the file was in use"), std::string::npos) << last_error();
  EXPECT_EQ(open_store(0), MEMLITH_CORRUPT) << last_error();
  EXPECT_EQ(content(), before);
}

TEST_F(Guarded, ACopyOfTheFileOrTheLogOfAnotherMomentIsRefused) {
  const std::string unused = content();
  die_after_commits(1);
  ASSERT_TRUE(is_marked());
  std::filesystem::copy_file(path(), path() + ".1");
  std::filesystem::copy_file(log(), log() + ".1");
  recover();  // the log goes on, and so does the file
  die_after_commits(2);
  ASSERT_TRUE(is_marked());
  const std::string file = content();
  const auto put = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  put(path() + ".1", path());
  EXPECT_EQ(open_store(0), MEMLITH_CORRUPT) << "an older file";
  EXPECT_NE(last_error().find("is not of the same moment as its log"), std::string::npos) << last_error();
  write_file(unused);
  EXPECT_EQ(open_store(0), MEMLITH_CORRUPT) << "a file of before";
  EXPECT_NE(last_error().find("has no in-use header"), std::string::npos) << last_error();
  write_file(file);
  put(log(), log() + ".2");
  put(log() + ".1", log());
  EXPECT_EQ(open_store(0), MEMLITH_CORRUPT) << "an older log";
  put(log() + ".2", log());
  recover();
  EXPECT_EQ(content(), expected('2'));
}

TEST_F(Guarded, AReaderSeesItsOwnBytes) {
  die_after_commits(1);
  ASSERT_TRUE(is_marked());
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;
  ASSERT_EQ(open_region(MEMLITH_OPEN_READ_ONLY, &store, &region), MEMLITH_OK) << last_error();
  EXPECT_EQ(std::string(static_cast<const char*>(memlith_region_address(region)), 4 * kPage), expected('1'));
  EXPECT_EQ(memlith_region_close(region), 0);
  EXPECT_EQ(memlith_store_close(store), 0);
  EXPECT_TRUE(is_marked());
}

TEST_F(Guarded, ARegionIsRefused) {
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;
  EXPECT_EQ(open_region(MEMLITH_OPEN_CREATE | MEMLITH_IMAGE_GUARD, &store, &region), MEMLITH_UNSUPPORTED);
  EXPECT_EQ(memlith_store_close(store), 0);
  EXPECT_EQ(content(), std::string(4 * kPage, 'o'));
}

TEST_F(Guarded, AReaderCannotFollowIt) {
  die_after_commits(1);
  ASSERT_TRUE(is_marked());
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;
  EXPECT_EQ(open_region(MEMLITH_OPEN_FOLLOW, &store, &region), MEMLITH_UNSUPPORTED);
  EXPECT_NE(last_error().find("a guarded file cannot be followed"), std::string::npos) << last_error();
  EXPECT_EQ(memlith_store_close(store), 0);
  EXPECT_TRUE(is_marked());
}

TEST_F(Guarded, ACleanCloseLeavesAFileOfAnyLength) {
  for (const std::size_t bytes : {0, 5, 16, 5000}) {
    write_file("");
    const int fd = open_file();
    void* const got = memlith_mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MEMLITH_IMAGE_GUARD, fd, 0);
    ASSERT_NE(got, MAP_FAILED) << last_error();
    std::string expected(bytes, 'n');
    ASSERT_EQ(memlith_ftruncate(fd, static_cast<off_t>(2 * kPage)), 0) << last_error();
    std::memset(got, 'n', 2 * kPage);
    ASSERT_EQ(memlith_msync(got, 2 * kPage, MS_SYNC), 0) << last_error();
    EXPECT_TRUE(is_marked());
    ASSERT_EQ(memlith_ftruncate(fd, static_cast<off_t>(bytes)), 0) << last_error();
    ASSERT_EQ(memlith_msync(got, 2 * kPage, MS_SYNC), 0) << last_error();
    ASSERT_EQ(memlith_munmap(got, 2 * kPage), 0) << last_error();
    ::close(fd);
    EXPECT_EQ(content(), expected);
  }
}

TEST_F(Files, AFileGrowsAndShrinks) {
  char* const data = map(64 * kPage);  // beyond the end of the file
  REQUIRE_MAPPED(data);
  const int fd = open_file();
  ASSERT_EQ(memlith_ftruncate(fd, 8 * kPage + 10), 0) << last_error();
  EXPECT_EQ(data[8 * kPage], 0);
  data[8 * kPage + 9] = 'e';
  ASSERT_EQ(memlith_msync(data, kPage, MS_SYNC), 0) << last_error();  // the length, and nothing in that page
  ASSERT_EQ(memlith_ftruncate(fd, kPage), 0) << last_error();
  ASSERT_EQ(memlith_ftruncate(fd, 3 * kPage), 0) << last_error();
  data[kPage] = 'n';
  data[2 * kPage] = 'l';
  ASSERT_EQ(memlith_msync(data, 2 * kPage, MS_SYNC), 0) << last_error();  // the length, and nothing in the last page
  std::string expected(3 * kPage, '\0');
  expected.replace(0, kPage, kPage, 'o');
  expected[kPage] = 'n';
  EXPECT_EQ(memlith_msync(data, 3 * kPage, MS_INVALIDATE), 0) << last_error();
  EXPECT_EQ(std::string(data, 3 * kPage), expected);
  // The same after a commit of the cut.
  ASSERT_EQ(memlith_ftruncate(fd, kPage + 7), 0) << last_error();
  ASSERT_EQ(memlith_msync(data, kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_ftruncate(fd, 3 * kPage), 0) << last_error();
  data[kPage + 100] = 'l';
  data[2 * kPage] = 'l';
  data[0] = 'f';
  ASSERT_EQ(memlith_msync(data, kPage, MS_SYNC), 0) << last_error();
  expected[0] = 'f';
  EXPECT_EQ(memlith_msync(data, 3 * kPage, MS_INVALIDATE), 0) << last_error();
  EXPECT_EQ(std::string(data, 3 * kPage), expected);
  data[2 * kPage] = 'l';
  ASSERT_EQ(memlith_munmap(data, 64 * kPage), 0);
  EXPECT_EQ(content(), expected);
  EXPECT_EQ(memlith_ftruncate(fd, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  ::close(fd);
}

TEST_F(Files, APageHasOneAddress) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  EXPECT_EQ(map(kPage, static_cast<off_t>(2 * kPage)), data + 2 * kPage) << "where the file lies already";
  EXPECT_EQ(map(9 * kPage), data) << "beyond the first mapping, too";
  const int fd = open_file();
  const auto map_at = [fd](char* address, int flags) {
    return memlith_mmap(address, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, static_cast<off_t>(kPage));
  };
  EXPECT_EQ(map_at(data, 0), data + kPage) << "a hint";
  EXPECT_EQ(map_at(data + kPage, MAP_FIXED), data + kPage) << last_error();
  EXPECT_EQ(map_at(data + 2 * kPage, MAP_FIXED), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(last_error().find("leave MAP_FIXED out"), std::string::npos) << last_error();
  EXPECT_EQ(memlith_mmap(nullptr, std::size_t{1} << 45, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, ENOMEM);
  ::close(fd);
  while (memlith_msync(data + 2 * kPage, kPage, MS_SYNC) == 0)
    ASSERT_EQ(memlith_munmap(data, 9 * kPage), 0) << last_error();
}

TEST_F(Files, PartsAreUnmapped) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  ASSERT_NE(map(2 * kPage, static_cast<off_t>(kPage)), nullptr) << last_error();
  data[kPage] = 'm';
  data[3 * kPage] = 'm';
  ASSERT_EQ(memlith_munmap(data + kPage, kPage), 0) << last_error();  // the page has another mapping
  ASSERT_EQ(memlith_msync(data, 2 * kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data + kPage, 2 * kPage), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data + 2 * kPage, kPage), 0) << last_error();
  EXPECT_EQ(memlith_msync(data, 2 * kPage, MS_SYNC), -1) << "its second page has no mapping any more";
  EXPECT_EQ(errno, ENOMEM);
  data[0] = 'm';
  ASSERT_EQ(memlith_msync(data, kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0) << last_error();
  std::string expected(4 * kPage, 'o');
  expected[0] = expected[kPage] = 'm';
  EXPECT_EQ(content(), expected);
  EXPECT_FALSE(std::filesystem::exists(path() + ".memlith-stats")) << "the file is closed";
}

// The program has set addresses aside, where the kernel chooses none by itself.
TEST_F(Files, AFileLiesWhereTheProgramWantsIt) {
  constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const room = ::mmap(reinterpret_cast<void*>(std::uintptr_t{1} << 45), 16 * kPage, PROT_NONE, kNothing, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  auto* const place = static_cast<char*>(room) + 4 * kPage;
  const int fd = open_file();
  const auto map_at = [fd](char* address, std::size_t bytes, int flags, off_t offset) {
    return memlith_mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, offset);
  };
  EXPECT_EQ(map_at(place, kPage, MAP_FIXED_NOREPLACE, 0), MAP_FAILED);
  ASSERT_EQ(map_at(place, 3 * kPage, MAP_FIXED, 0), place) << last_error();
  place[2 * kPage] = 'f';
  EXPECT_EQ(map_at(nullptr, 4 * kPage, 0, 0), MAP_FAILED) << "the addresses behind belong to the program";
  EXPECT_EQ(errno, ENOMEM);
  const int other = ::open((folder_ / "other").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_EQ(memlith_mmap(place + kPage, kPage, PROT_READ, MAP_SHARED | MAP_FIXED, other, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL) << "a file lies there";
  ::close(other);
  ASSERT_EQ(memlith_msync(place, 3 * kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(place, 3 * kPage), 0) << last_error();
  EXPECT_EQ(content()[2 * kPage], 'f');
  // From its second page on: the first has its addresses in front of it.
  EXPECT_EQ(map_at(static_cast<char*>(room) + kPage, kPage, MAP_FIXED, static_cast<off_t>(kPage)), MAP_FAILED);
  EXPECT_EQ(errno, ENOMEM) << "they are the program's";
  ASSERT_EQ(::munmap(room, 16 * kPage), 0);
  ASSERT_EQ(map_at(place + kPage, kPage, MAP_FIXED, static_cast<off_t>(kPage)), place + kPage) << last_error();
  ASSERT_EQ(memlith_munmap(place + kPage, kPage), 0) << last_error();
  ASSERT_EQ(map_at(place, kPage, 0, 0), place) << "a hint: " << last_error();
  ASSERT_EQ(memlith_munmap(place, kPage), 0) << last_error();
  ::close(fd);
}

// A file that is longer than its addresses in the process.
TEST_F(Files, WhatLiesBehindTheAddressesIsCut) {
  void* const room = ::mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  const int fd = open_file();
  auto* const data =
      static_cast<char*>(memlith_mmap(room, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
  ASSERT_EQ(data, room) << last_error();
  data[kPage] = 'a';
  ASSERT_EQ(memlith_ftruncate(fd, static_cast<off_t>(kPage + 1)), 0) << last_error();
  ASSERT_EQ(memlith_ftruncate(fd, static_cast<off_t>(3 * kPage)), 0) << last_error();
  ASSERT_EQ(memlith_msync(data, 2 * kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data, 2 * kPage), 0) << last_error();
  ::close(fd);
  std::string expected(3 * kPage, '\0');
  expected.replace(0, kPage, kPage, 'o');
  expected[kPage] = 'a';
  EXPECT_EQ(content(), expected);
}

TEST_F(Files, ASystemCallThatStoresIsFound) {
  char text[256];
  memlith_tracker_describe(MEMLITH_TRACKER_SCAN, text, sizeof text);
  if (std::string(text).find("by faults") != std::string::npos) GTEST_SKIP() << text;
  char* const data = map();
  REQUIRE_MAPPED(data);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "call", 4), 4);
  ASSERT_EQ(::read(ends[0], data + 3 * kPage, 4), 4);
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_EQ(memlith_msync(data, 4 * kPage, MS_SYNC), 0) << last_error();
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0);
  EXPECT_EQ(content().substr(3 * kPage, 5), "callo");
}

TEST_F(Files, WhatCannotBeKeptCoherentIsRefused) {
  char* const data = map();
  REQUIRE_MAPPED(data);
  const int fd = open_file();
  EXPECT_EQ(memlith_mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(memlith_mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 17), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  const int only_read = open_file(O_RDONLY);
  EXPECT_EQ(memlith_mmap(nullptr, kPage, PROT_READ, MAP_SHARED, only_read, 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  ::close(only_read);
  int stranger = 0;
  EXPECT_EQ(memlith_msync(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&stranger) & ~(kPage - 1)), kPage,
                          MS_SYNC),
            -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(memlith_msync(data, kPage, MS_SYNC | MS_ASYNC), -1);
  EXPECT_EQ(errno, EINVAL);
  // A child must not use what its parent has open, and cannot open it either.
  EXPECT_IN_CHILD([&]() -> std::string {
    if (memlith_msync(data, kPage, MS_SYNC) != -1 || errno != EINVAL) return "msync in a forked child";
    return {};
  });
  ::close(fd);
  ASSERT_EQ(memlith_munmap(data, 4 * kPage), 0);

  const std::string other = folder_ / "gone";
  std::ofstream(other) << "bytes";
  const int gone = ::open(other.c_str(), O_RDWR | O_CLOEXEC);
  std::filesystem::remove(other);
  EXPECT_EQ(memlith_mmap(nullptr, kPage, PROT_READ, MAP_SHARED, gone, 0), MAP_FAILED);
  EXPECT_EQ(errno, ENOENT);
  ::close(gone);
}

TEST_F(Files, AnotherProcessIsKeptOut) {
  SecondProcess other([this](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "no test";
    char* const data = map();
    test.tell();
    if (!test.wait()) return "no test";
    return data != nullptr ? "" : last_error();
  });
  ASSERT_TRUE(other.step());
  char* const data = map();
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_TRUE(other.finish());
}

// ---- the C++ interface ------------------------------------------------------------------------------------------

TEST_F(Files, AMappedFileIsMadePersistedAndFoundAgain) {
  const std::string made = folder_ / "made";
  EXPECT_EQ(MappedFile::open(made).error().category(), MEMLITH_NOT_FOUND);
  EXPECT_EQ(MappedFile::open(made, {.create = true}).error().category(), MEMLITH_INVALID) << "a file of no bytes";
  auto file = MappedFile::open(made, {.create = true, .size = 100, .max_size = 4 * kPage});
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->size(), 100u);
  EXPECT_EQ(file->as<Block>(), nullptr) << "larger than the file";
  auto* const numbers = file->as<std::uint64_t>();
  numbers[0] = 7;
  ASSERT_TRUE(file->persist().ok());
  numbers[0] = 8;
  ASSERT_TRUE(file->rollback().ok());
  EXPECT_EQ(numbers[0], 7u);
  ASSERT_TRUE(file->resize(2 * kPage).ok());
  EXPECT_EQ(file->size(), 2 * kPage);
  EXPECT_NE(file->as<Block>(), nullptr);
  EXPECT_EQ(file->resize(5 * kPage).error().category(), MEMLITH_INVALID) << "beyond its addresses";
  numbers[1] = 9;
  numbers[kPage / 8 + 1] = 10;
  ASSERT_TRUE(file->persist_range(numbers + kPage / 8 + 1, 8).ok());
  ASSERT_TRUE(file->rollback().ok());
  EXPECT_EQ(numbers[1], 0u) << "not in the page of the range";
  EXPECT_EQ(numbers[kPage / 8 + 1], 10u);
  numbers[2] = 11;
  ASSERT_TRUE(file->persist_async().ok());
  numbers[3] = 12;
  MappedFile moved = std::move(*file);
  ASSERT_TRUE(moved.close().ok());
  EXPECT_EQ(MappedFile::open(made, {.create = true, .exclusive = true}).error().category(), MEMLITH_EXISTS);
  auto again = MappedFile::open(made);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->size(), 2 * kPage);
  EXPECT_EQ(again->as<std::uint64_t>()[0], 7u);
  EXPECT_EQ(again->as<std::uint64_t>()[2], 11u);
  EXPECT_EQ(again->as<std::uint64_t>()[3], 0u) << "never persisted";
}

// The file is longer once its log is replayed.
TEST_F(Files, AMappedFileThatWasLeftIsRecovered) {
  EXPECT_IN_CHILD([this]() -> std::string {
    auto file = MappedFile::open(folder_ / "left", {.create = true, .size = kPage, .max_size = 64 * kPage});
    if (!file) return file.error().message();
    if (auto done = file->persist(); !done) return done.error().message();
    if (auto done = file->resize(9 * kPage); !done) return done.error().message();
    file->as<char>()[8 * kPage] = 'e';
    if (auto done = file->persist(); !done) return done.error().message();
    file->as<char>()[0] = 'x';
    ::_exit(0);
  });
  auto file = MappedFile::open(folder_ / "left");
  ASSERT_TRUE(file.ok()) << file.error().message();
  ASSERT_EQ(file->size(), 9 * kPage);
  EXPECT_EQ(file->as<char>()[8 * kPage], 'e');
  EXPECT_EQ(file->as<char>()[0], 0);
}

// ---- images ----------------------------------------------------------------------------------------------------

class Images : public Files {
 protected:
  void open_image() {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    code_ = memlith_image_open(path().c_str(), &options, &image_);
  }
  memlith_image* image_ = nullptr;
  std::int32_t code_ = 0;
};

TEST_F(Images, WhatIsToldIsCommitted) {
  open_image();
  if (memlith_category(code_) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
  ASSERT_EQ(code_, 0) << last_error();
  const int fd = memlith_image_descriptor(image_);
  ASSERT_EQ(::pwrite(fd, "told", 4, 10), 4);
  ASSERT_EQ(memlith_image_written(image_, 10, 4), 0);
  ASSERT_EQ(memlith_image_commit(image_, 0), 0) << last_error();
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(memlith_store_get_stats(memlith_image_store(image_), &stats), 0);
  EXPECT_EQ(stats.persists, 1u);
  ASSERT_EQ(::pwrite(fd, "lost", 4, 20), 4);
  ASSERT_EQ(memlith_image_written(image_, 20, 4), 0);
  ASSERT_EQ(::ftruncate(fd, 5), 0);
  ASSERT_EQ(memlith_image_rollback(image_), 0) << last_error();
  std::string back(4 * kPage, '\0');
  EXPECT_EQ(::pread(fd, back.data(), back.size(), 0), static_cast<ssize_t>(back.size()));
  EXPECT_EQ(back.substr(8, 16), "ootoldoooooooooo");
  ASSERT_EQ(memlith_image_close(image_), 0) << last_error();
  std::string expected(4 * kPage, 'o');
  expected.replace(10, 4, "told");
  EXPECT_EQ(content(), expected);
}

TEST_F(Images, WhatWasNotToldIsFoundBySuspicion) {
  open_image();
  if (memlith_category(code_) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
  ASSERT_EQ(code_, 0) << last_error();
  const int fd = memlith_image_descriptor(image_);
  ASSERT_EQ(::pwrite(fd, "secret", 6, 2 * kPage), 6);
  ASSERT_EQ(memlith_image_commit(image_, 0), 0) << last_error();
  ASSERT_EQ(memlith_image_rollback(image_), 0) << last_error();
  ASSERT_EQ(memlith_image_suspect(image_), 0);
  ASSERT_EQ(memlith_image_commit(image_, MEMLITH_IMAGE_ASYNC), 0) << last_error();
  ASSERT_EQ(memlith_image_close(image_), 0) << last_error();
  EXPECT_EQ(content().substr(2 * kPage, 7), "secreto");
}

// To ask what has changed loses nothing of it.
TEST_F(Images, WhatHasChangedIsCounted) {
  open_image();
  if (memlith_category(code_) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
  ASSERT_EQ(code_, 0) << last_error();
  const auto changed = [this] {
    std::uint64_t bytes = ~std::uint64_t{0};
    EXPECT_EQ(memlith_image_changed(image_, &bytes), 0) << last_error();
    return bytes;
  };
  const int fd = memlith_image_descriptor(image_);
  void* const mapped = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::int32_t watched = memlith_image_watch(image_, mapped, 4 * kPage, 0);
  if (memlith_category(watched) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
  ASSERT_EQ(watched, 0) << last_error();
  EXPECT_EQ(changed(), 0u);
  static_cast<char*>(mapped)[3 * kPage] = 's';
  EXPECT_EQ(changed(), kPage);
  ASSERT_EQ(::pwrite(fd, "told", 4, 10), 4);
  ASSERT_EQ(memlith_image_written(image_, 10, 4), 0);
  EXPECT_EQ(changed(), 2 * kPage);
  EXPECT_EQ(changed(), 2 * kPage);
  ASSERT_EQ(memlith_image_commit(image_, 0), 0) << last_error();
  EXPECT_EQ(changed(), 0u);
  ASSERT_EQ(memlith_image_cut(image_, 4 * kPage + 1), 0);
  EXPECT_GT(changed(), 0u);
  ASSERT_EQ(memlith_image_cut(image_, 4 * kPage), 0);
  ::munmap(mapped, 4 * kPage);
  ASSERT_EQ(memlith_image_close(image_), 0) << last_error();
  EXPECT_EQ(content().substr(3 * kPage, 2), "so");
  EXPECT_EQ(content().substr(10, 4), "told");
}

TEST_F(Images, ASparseFileTakesNoMemoryForItsHoles) {
  std::filesystem::resize_file(path(), 64 << 20);
  open_image();
  if (memlith_category(code_) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
  ASSERT_EQ(code_, 0) << last_error();
  struct stat seen{};
  ASSERT_EQ(::fstat(memlith_image_descriptor(image_), &seen), 0);
  EXPECT_EQ(seen.st_size, 64 << 20);
  EXPECT_LT(seen.st_blocks * 512, 4 << 20);
  ASSERT_EQ(memlith_image_close(image_), 0) << last_error();
}

}  // namespace
}  // namespace memlith::test::files_test
