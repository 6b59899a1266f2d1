// memlith/copy.h: what memlith_check_region and memlith_check_data say of bytes that are not as they were written; and
// memlith/archive.h: a log that waits for an archiver. docs/backup.md.
#include "memlith/archive.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "memlith/copy.hpp"
#include "memlith/memlith.hpp"
#include "support/mixed_store.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::archive_test {
namespace {

std::string last_error() {
  char text[1024] = "";
  (void)memlith_last_error(text, sizeof text);
  return text;
}

TEST(CheckedData, NamesTheRegionAndTheBytes) {
  const TempFolder folder;
  const std::string path = folder / "store";
  MixedContent now;
  std::mt19937_64 random(1);
  {
    auto opened = MixedStore::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    for (int i = 0; i < 40; ++i) commit_something(*opened, now, random);
    opened->close();
  }
  auto sound = check_data(path);
  ASSERT_TRUE(sound.ok()) << sound.error().message();
  EXPECT_GT(sound->blocks, 0u);
  EXPECT_EQ(sound->blocks_unknown, 0u);
  EXPECT_TRUE(sound->damaged.empty());
  const std::string home = path + "/objects/2";
  std::string bytes = read_file(home);
  const std::uint64_t at = bytes.size() / 4096 / 2 * 4096 + 77;
  bytes[at] = static_cast<char>(bytes[at] ^ 16);
  {
    std::ofstream file(home, std::ios::binary | std::ios::in);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const auto rotten = check_data(path);
  ASSERT_TRUE(rotten.ok()) << rotten.error().message();
  EXPECT_EQ(rotten->blocks_damaged, 1u);
  ASSERT_EQ(rotten->damaged.size(), 1u);
  const std::string sentence = "region \"heap\": 4096 bytes from offset " + std::to_string(at - 77) + " on";
  EXPECT_EQ(rotten->damaged.front(), sentence);
  const auto copied = copy_store(path, folder / "copy");
  ASSERT_FALSE(copied.ok());
  EXPECT_EQ(memlith_category(copied.error().code()), MEMLITH_CORRUPT);
  EXPECT_TRUE(copy_store(path, folder / "copy", {}, MEMLITH_COPY_DAMAGED).ok());

  // The same for one region, before it is opened.
  StoreOptions options;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  memlith_data_report report{};
  report.struct_size = sizeof report;
  std::vector<std::string> found;
  const auto note = [](void* all, const char* each) {
    static_cast<std::vector<std::string>*>(all)->emplace_back(each);
  };
  ASSERT_EQ(memlith_check_region(store->handle(), "heap", note, &found, &report), MEMLITH_OK) << last_error();
  EXPECT_EQ(report.blocks_damaged, 1u);
  EXPECT_EQ(found, std::vector<std::string>{sentence});
  ASSERT_EQ(memlith_check_region(store->handle(), "kv", note, &found, &report), MEMLITH_OK) << last_error();
  EXPECT_EQ(report.blocks_damaged, 0u);
  EXPECT_EQ(memlith_category(memlith_check_region(store->handle(), "none", note, &found, &report)), MEMLITH_NOT_FOUND);
}

TEST(CheckedData, OfAOneFileStoreIsRefused) {
  const TempFolder folder;
  StoreOptions options;
  options.create = true;
  auto store = Store::open_file(folder / "file", options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  ASSERT_DONE(store->close());
  const auto looked = check_data(folder / "file");
  ASSERT_FALSE(looked.ok());
  EXPECT_EQ(memlith_category(looked.error().code()), MEMLITH_UNSUPPORTED);
  EXPECT_EQ(memlith_category(memlith_complete_checksums((folder / "file").c_str(), nullptr)), MEMLITH_UNSUPPORTED);
}

// The log of a program that has the store open waits for an archiver that archives nothing yet.
TEST(ArchiveWithAKeptLog, HasNoGapUpToTheLimit) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const std::string target_path = folder / "target";
  memlith_archive_target target{};
  target.struct_size = sizeof target;
  target.folder = target_path.c_str();
  StoreOptions options;
  options.create = true;
  options.log_bytes = 1 << 20;
  options.log_max_bytes = 32 << 20;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store.ok()) << store.error().message();
  RegionOptions region_options;
  region_options.create = true;
  region_options.size = 1 << 20;
  region_options.tracker = Tracker::touched;
  auto region = store->region("a", region_options);
  ASSERT_TRUE(region.ok()) << region.error().message();
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  const auto write = [&](std::uint64_t mib) {
    for (std::uint64_t i = 0; i < mib * 4; ++i) {
      for (std::uint64_t at = 0; at < 32768; at += 512) ++numbers[at];
      ASSERT_DONE(region->touch(numbers, 256 << 10));
      ASSERT_DONE(region->persist());
    }
  };
  memlith_archive_options archive_options{};
  archive_options.struct_size = sizeof archive_options;
  archive_options.wait_ms = 3'600'000;
  archive_options.keep_log_bytes = 24 << 20;
  memlith_archive* archive = nullptr;
  ASSERT_EQ(memlith_archive_open(path.c_str(), &target, &archive_options, &archive), MEMLITH_OK) << last_error();
  write(12);
  EXPECT_TRUE(std::filesystem::exists(path + "/archived"));
  memlith_store_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(memlith_store_get_info(store->handle(), &info), MEMLITH_OK) << last_error();
  EXPECT_GT(info.log_bytes, 12u << 20);
  EXPECT_LE(info.log_bytes, 24u << 20);
  const std::uint64_t wanted = numbers[512];
  ASSERT_DONE(region->close());
  ASSERT_DONE(store->close());
  memlith_archive_progress progress{};
  progress.struct_size = sizeof progress;
  ASSERT_EQ(memlith_archive_step(archive, &progress), MEMLITH_OK) << last_error();
  EXPECT_EQ(progress.gaps, 0u);
  ASSERT_EQ(memlith_archive_close(archive), MEMLITH_OK) << last_error();
  EXPECT_FALSE(std::filesystem::exists(path + "/archived"));
  ASSERT_EQ(memlith_restore(&target, (folder / "restored").c_str(), nullptr, nullptr), MEMLITH_OK) << last_error();
  auto restored = Store::open(folder / "restored", {});
  ASSERT_TRUE(restored.ok()) << restored.error().message();
  auto found = restored->region("a", {});
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(static_cast<std::uint64_t*>(found->address())[512], wanted);
}

// The program that writes shows what is durable a little later; a flush of the archive waits for it.
TEST(ArchiveFlush, HasWhatWasDurableBefore) {
  const TempFolder folder;
  const std::string path = folder / "store";
  auto opened = MixedStore::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const std::string target_path = folder / "target";
  memlith_archive_target target{};
  target.struct_size = sizeof target;
  target.folder = target_path.c_str();
  memlith_archive_options options{};
  options.struct_size = sizeof options;
  options.wait_ms = 3'600'000;
  memlith_archive* archive = nullptr;
  ASSERT_EQ(memlith_archive_open(path.c_str(), &target, &options, &archive), MEMLITH_OK) << last_error();
  MixedContent now;
  std::mt19937_64 random(2);
  memlith_archive_progress progress{};
  progress.struct_size = sizeof progress;
  for (int i = 0; i < 20; ++i) {
    commit_something(*opened, now, random);
    const std::uint64_t durable = opened->store.durable();
    ASSERT_EQ(memlith_archive_flush(archive, &progress), MEMLITH_OK) << last_error();
    EXPECT_GE(progress.archived_lsn, durable) << i;
  }
  EXPECT_GE(progress.segments, 10u);
  commit_something(*opened, now, random);
  const std::uint64_t durable = opened->store.durable();
  ASSERT_EQ(memlith_archive_close(archive), MEMLITH_OK) << last_error();
  memlith_restore_options at{};
  at.struct_size = sizeof at;
  at.at = MEMLITH_AT_LSN;
  at.value = durable;
  EXPECT_EQ(memlith_restore(&target, (folder / "restored").c_str(), &at, nullptr), MEMLITH_OK) << last_error();
  opened->close();
}

}  // namespace
}  // namespace memlith::test::archive_test
