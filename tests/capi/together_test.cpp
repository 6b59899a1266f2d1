// memlith_files_commit: several files that a crash leaves as one and the same commit left them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "memlith/files.hpp"
#include "private/images.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::together_test {
namespace {

const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::string last_error() {
  char text[1024];
  memlith_last_error(text, sizeof text);
  return text;
}

class SeveralFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"a", "b", "c"}) {
      std::ofstream(path(name), std::ios::binary) << std::string(2 * kPage, 'o');
    }
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Null on failure.
  [[nodiscard]] char* map(const std::string& name) const {
    const int fd = ::open(path(name).c_str(), O_RDWR | O_CLOEXEC);
    void* const got = memlith_mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return got == MAP_FAILED ? nullptr : static_cast<char*>(got);
  }
  // The bytes that a program finds that opens the file by memlith, with these flags; a sentence if it cannot.
  [[nodiscard]] std::string opened(const std::string& name, std::uint32_t flags = 0) const {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    memlith_store* store = nullptr;
    if (memlith_file_open(path(name).c_str(), &options, &store) != 0) return last_error();
    memlith_region_options region_options{};
    region_options.struct_size = sizeof region_options;
    memlith_region* region = nullptr;
    std::string found;
    if (memlith_region_open(store, "file", &region_options, &region) != 0) {
      found = last_error();
    } else {
      found.assign(static_cast<const char*>(memlith_region_address(region)), memlith_region_size(region));
    }
    memlith_region_close(region);
    memlith_store_close(store);
    return found;
  }
  // Commits "1" to the first byte of all files, and "2" to that of two of them.
  [[nodiscard]] std::string commit_twice() const {
    const std::vector<char*> files{map("a"), map("b"), map("c")};
    for (char* const each : files) {
      if (each == nullptr) return last_error();
      each[0] = '1';
    }
    const std::vector<void*> addresses(files.begin(), files.end());
    if (memlith_files_commit(addresses.data(), 3) != 0) return last_error();
    files[0][0] = files[2][0] = '2';
    const std::vector<void*> two{files[0], files[2]};
    if (memlith_files_commit(two.data(), 2) != 0) return last_error();
    files[1][0] = files[2][0] = 'x';
    return {};
  }
  // A process does so, and is gone.
  void leave() const {
    EXPECT_IN_CHILD([this] { return commit_twice(); });
  }
  [[nodiscard]] std::vector<std::filesystem::path> common_logs() const {
    std::vector<std::filesystem::path> found;
    for (const auto& each : std::filesystem::directory_iterator(folder_ / ".")) {
      if (each.path().filename().string().starts_with("common-")) found.push_back(each.path());
    }
    return found;
  }
  static std::string expected(char first) { return first + std::string(2 * kPage - 1, 'o'); }

  TempFolder folder_;
};

TEST_F(SeveralFiles, AProcessThatDiesLeavesWhatItCommitted) {
  leave();
  ASSERT_EQ(common_logs().size(), 1u);
  EXPECT_EQ(opened("c"), expected('2'));
  EXPECT_EQ(opened("a"), expected('2'));
  EXPECT_EQ(common_logs().size(), 1u) << "b may still need it";
  EXPECT_EQ(opened("b"), expected('1'));
  EXPECT_TRUE(common_logs().empty());
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_EQ(content(name), expected(name[0] == 'b' ? '1' : '2')) << "it is complete by itself";
  }
}

TEST_F(SeveralFiles, AReaderSeesWhatWasCommitted) {
  leave();
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(opened("a", MEMLITH_OPEN_READ_ONLY), expected('2'));
    EXPECT_EQ(opened("b", MEMLITH_OPEN_READ_ONLY), expected('1'));
  }
  EXPECT_NE(opened("a", MEMLITH_OPEN_READ_ONLY | MEMLITH_OPEN_FOLLOW).find("memlith recover"), std::string::npos);
  EXPECT_EQ(common_logs().size(), 1u);
  EXPECT_EQ(opened("a"), expected('2'));
}

TEST_F(SeveralFiles, WithoutTheCommonLogAFileIsRefused) {
  leave();
  const std::filesystem::path log = common_logs().front();
  const std::string aside = folder_ / "aside";
  std::filesystem::rename(log, aside);
  EXPECT_EQ(map("a"), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_NE(last_error().find(log.filename().string()), std::string::npos) << last_error();
  EXPECT_NE(opened("a", MEMLITH_OPEN_READ_ONLY).find("is missing"), std::string::npos);
  std::filesystem::rename(aside, log);
  EXPECT_EQ(opened("a"), expected('2'));
  std::filesystem::remove(log);
  EXPECT_NE(opened("c").find("--accept-copy"), std::string::npos);
  const std::string taken = opened("c", MEMLITH_OPEN_ACCEPT_COPY);
  EXPECT_TRUE(taken == expected('o') || taken == expected('1') || taken == expected('2')) << taken.substr(0, 100);
  EXPECT_EQ(opened("c"), taken);
}

TEST_F(SeveralFiles, OnlyTheCommonLogIsFlushed) {
  std::vector<memlith_image*> images;
  for (const char* const name : {"a", "b", "c"}) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    memlith_image* image = nullptr;
    const std::int32_t code = memlith_image_open(path(name).c_str(), &options, &image);
    if (memlith_category(code) == MEMLITH_UNSUPPORTED) GTEST_SKIP() << last_error();
    ASSERT_EQ(code, 0) << last_error();
    images.push_back(image);
  }
  const auto batches = [&images] {
    std::uint64_t sum = 0;
    for (memlith_image* const image : images) {
      memlith_stats stats{};
      stats.struct_size = sizeof stats;
      EXPECT_EQ(memlith_store_get_stats(memlith_image_store(image), &stats), 0);
      sum += stats.batches;
    }
    return sum;
  };
  std::uint64_t before = 0;
  for (int times = 0; times < 20; ++times) {
    for (memlith_image* const image : images) {
      ASSERT_EQ(::pwrite(memlith_image_descriptor(image), &times, sizeof times, 8), 4);
      ASSERT_EQ(memlith_image_written(image, 8, 4), 0);
    }
    ASSERT_EQ(memlith_images_commit(images.data(), images.size()), 0) << last_error();
    if (times == 0) before = batches();
  }
  for (memlith_image* const image : images) EXPECT_EQ(memlith_image_commit(image, 0), 0) << "nothing is left to do";
  // Logs get a frame when they are idle, and about each second.
  EXPECT_LT(batches() - before, 19u) << "19 commits of 3 files";
  for (memlith_image* const image : images) EXPECT_EQ(memlith_image_close(image), 0) << last_error();
  EXPECT_TRUE(common_logs().empty());
}

TEST_F(SeveralFiles, ACommitOfOneFileNeedsNoCommonLog) {
  char* const a = map("a");
  char* const b = map("b");
  ASSERT_TRUE(a != nullptr && b != nullptr) << last_error();
  const std::vector<void*> both{a, b, a + kPage};
  EXPECT_EQ(memlith_files_commit(both.data(), 3), 0) << "nothing has changed";
  a[0] = '1';
  EXPECT_EQ(memlith_files_commit(both.data(), 3), 0) << last_error();
  EXPECT_TRUE(common_logs().empty());
  b[0] = a[1] = '2';
  EXPECT_EQ(memlith_files_commit(both.data(), 3), 0) << last_error();
  EXPECT_EQ(common_logs().size(), 1u);
  EXPECT_EQ(memlith_munmap(a, 2 * kPage), 0) << last_error();
  EXPECT_EQ(common_logs().size(), 1u);
  b[1] = '3';
  EXPECT_EQ(memlith_msync(b, 2 * kPage, MS_SYNC), 0) << last_error();
  EXPECT_EQ(memlith_munmap(b, 2 * kPage), 0) << last_error();
  EXPECT_TRUE(common_logs().empty());
  EXPECT_EQ(content("a").substr(0, 3), "12o");
  EXPECT_EQ(content("b").substr(0, 3), "23o");
}

TEST_F(SeveralFiles, WhatIsNoMappingOrElsewhereIsRefused) {
  char* const a = map("a");
  ASSERT_NE(a, nullptr) << last_error();
  const std::string elsewhere = folder_ / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  auto other = MappedFile::open(elsewhere + "/d", {.create = true, .size = kPage});
  ASSERT_TRUE(other.ok()) << other.error().message();
  a[0] = *other->as<char>() = '1';
  char own = 0;
  const std::vector<void*> wrong{a, &own};
  errno = 0;
  EXPECT_EQ(memlith_files_commit(wrong.data(), 2), -1);
  EXPECT_EQ(errno, ENOMEM);
  const std::vector<void*> apart{a, other->address()};
  EXPECT_EQ(memlith_files_commit(apart.data(), 2), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(last_error().find("different folders"), std::string::npos) << last_error();
  EXPECT_EQ(memlith_munmap(a, 2 * kPage), 0);
  EXPECT_EQ(content("a"), expected('o'));
}

TEST_F(SeveralFiles, MappedFilesArePersistedTogether) {
  auto a = MappedFile::open(path("a"));
  auto b = MappedFile::open(path("b"), {.max_size = 8 * kPage});
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(b->resize(5 * kPage).ok());
  a->as<char>()[0] = b->as<char>()[4 * kPage] = '1';
  const auto done = MappedFile::persist_together({&*a, &*b});
  ASSERT_TRUE(done.ok()) << done.error().message();
  a->as<char>()[0] = b->as<char>()[4 * kPage] = 'x';
  ASSERT_TRUE(a->rollback().ok() && b->rollback().ok());
  EXPECT_EQ(a->as<char>()[0], '1');
  EXPECT_EQ(b->as<char>()[4 * kPage], '1');
  ASSERT_TRUE(a->close().ok() && b->close().ok());
  EXPECT_EQ(content("b").size(), 5 * kPage);
}

}  // namespace
}  // namespace memlith::test::together_test
