// docs/backup.md, "Archive" and "Restore": whichever of the writer, the archiver and the restorer is killed, and when,
// the archive goes on, and what is restored from it is what some persists left, the newest that were archived.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "memlith/archive.h"
#include "memlith/copy.hpp"
#include "support/numbered_pages.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::archive_kill_test {
namespace {

class ArchiveOf : public ::testing::TestWithParam<bool> {
 protected:
  ArchiveOf() {
    target_.struct_size = sizeof target_;
    target_.folder = target_path_.c_str();
  }

  [[noreturn]] void archive_for_ever(std::uint64_t keep_log_bytes) const {
    memlith_archive_options options{};
    options.struct_size = sizeof options;
    options.wait_ms = 1;
    options.full_every_s = options.keep_s = 1;
    options.keep_log_bytes = keep_log_bytes;
    for (;;) {
      memlith_archive* archive = nullptr;
      std::int32_t code = memlith_archive_open(path_.c_str(), &target_, &options, &archive);
      while (code == MEMLITH_OK) {
        code = memlith_archive_step(archive, nullptr);
        ::usleep(1000);
      }
      (void)memlith_archive_close(archive);
      ::usleep(1000);
    }
  }
  [[nodiscard]] std::int32_t restore(const std::string& dest) const {
    return memlith_restore(&target_, dest.c_str(), nullptr, nullptr);
  }
  // The newest that can be restored; 0: nothing can be yet.
  [[nodiscard]] std::uint64_t archived() const {
    std::uint64_t end = 0;
    const auto note = [](void* context, const memlith_archive_run* run) {
      *static_cast<std::uint64_t*>(context) = run->end_lsn;
    };
    (void)memlith_archive_list(&target_, note, &end);
    return end;
  }
  static std::string last_error() {
    char text[1024] = "";
    (void)memlith_last_error(text, sizeof text);
    return text;
  }

  TempFolder folder_;
  const bool one_file_ = GetParam();
  const std::string path_ = folder_ / "store";
  const std::string target_path_ = folder_ / "target";
  memlith_archive_target target_{};
};
INSTANTIATE_TEST_SUITE_P(A, ArchiveOf, ::testing::Values(false, true),
                         [](const auto& given) { return given.param ? "File" : "Folder"; });

// MEMLITH_KILLS: how many processes are killed, in turn the archiver, a restorer, the archiver and the writer. The log
// waits for half of the archivers.
TEST_P(ArchiveOf, AStoreInUseWhileWritersArchiversAndRestorersAreKilled) {
  const char* const told = std::getenv("MEMLITH_KILLS");
  const int kills = told != nullptr ? std::atoi(told) : 12;
  std::mt19937_64 random(std::random_device{}());
  PersistingProcess writer(path_, one_file_, 1000, 16 << 20);
  KilledProcess archiver;
  std::uint64_t restored = 0;
  for (int round = 0; round < kills && !HasFailure(); ++round) {
    writer.start();
    if (!archiver.started()) {
      const std::uint64_t keep_log_bytes = round % 8 < 4 ? 0 : std::uint64_t{8} << 20;
      archiver.start([&] { archive_for_ever(keep_log_bytes); }, [&] { return archived() != 0; });
    }
    const std::string dest = folder_ / "restored";
    KilledProcess restorer;
    if (round % 4 == 1) restorer.start([&] { (void)restore(dest); });
    ::usleep(static_cast<useconds_t>(random() % 60000));
    if (round % 4 == 1) {
      restorer.kill();
      if (std::filesystem::exists(dest)) {
        check_copy(dest, one_file_);
        std::filesystem::remove_all(dest);
      }
    } else if (round % 4 == 3) {
      writer.kill();
    } else {
      archiver.kill();
    }
    // The archiver may take away what was too old while it was read.
    std::int32_t code = restore(dest);
    for (int tries = 0; code != MEMLITH_OK && archiver.started() && tries < 20; ++tries) code = restore(dest);
    ASSERT_EQ(code, MEMLITH_OK) << last_error();
    if (!one_file_) {
      const auto data = check_data(dest);
      ASSERT_TRUE(data.ok()) << data.error().message();
      EXPECT_EQ(data->blocks_damaged, 0u);
      EXPECT_EQ(data->blocks_unknown, 0u);
    }
    const std::uint64_t count = check_copy(dest, one_file_);
    EXPECT_GE(count, restored) << "the archive went back";
    EXPECT_LE(count, writer.acknowledged() + 1) << "the archive is ahead of the store";
    restored = count;
    std::filesystem::remove_all(dest);
    std::filesystem::remove_all(dest + ".memlith");
  }
  EXPECT_GT(restored, 0u);
}

}  // namespace
}  // namespace memlith::test::archive_kill_test
