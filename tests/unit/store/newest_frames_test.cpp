// docs/guarantees.md, "After a crash": a flipped bit in the newest acknowledged frame looks like a torn end, and the
// commit is lost silently, until the log was idle; from then on it is damage, and opening refuses the log.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class NewestFrames : public ::testing::Test {
 protected:
  // A store that was killed behind an acknowledged commit; `idle`: when the log had been idle.
  void make(bool idle) {
    StoreOptions options;
    options.create = true;
    options.manual_flush = !idle;  // without the thread that puts marks
    const auto store = must(Store::open(*volume_, options));
    const ObjectId object = create_object(*store, "a", 64 * kKiB);
    newest_.assign(64, std::byte{0x5a});
    EXPECT_OK(commit(*store, {{object, 4096, filled(64, 0x11)}}));
    EXPECT_OK(commit(*store, {{object, 8192, newest_}}));
    acknowledged_ = store->log().durable_lsn();
    while (idle && store->log().durable_lsn() == acknowledged_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Where the log's file has the bytes of the newest commit.
  off_t place_of_newest() const {
    std::vector<std::byte> log(std::filesystem::file_size(log_path()));
    const int file = ::open(log_path().c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::pread(file, log.data(), log.size(), 0), static_cast<ssize_t>(log.size()));
    ::close(file);
    const auto at = std::search(log.begin(), log.end(), newest_.begin(), newest_.end());
    EXPECT_NE(at, log.end());
    return at - log.begin();
  }
  void flip(off_t at, int bit) const {
    const int file = ::open(log_path().c_str(), O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    EXPECT_EQ(::pread(file, &byte, 1, at), 1);
    byte = static_cast<unsigned char>(byte ^ (1 << bit));
    EXPECT_EQ(::pwrite(file, &byte, 1, at), 1);
    ::close(file);
  }
  Result<std::unique_ptr<Store>> look() {
    StoreOptions options;
    options.read_only = true;
    return Store::open(*volume_, options);
  }
  std::string log_path() const { return folder_ / "store/log"; }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_ / "store");
  Bytes newest_;
  Lsn acknowledged_;
};

TEST_F(NewestFrames, AFlippedBitLooksLikeATornEndAtFirst) {
  make(false);
  EXPECT_EQ(must(look())->log().recovered().lsn, acknowledged_);
  const off_t at = place_of_newest();
  for (int i = 0; i < 64; i += 7) {
    flip(at + i, i % 8);
    EXPECT_LT(must(look())->log().recovered().lsn, acknowledged_);
    flip(at + i, i % 8);
  }
}

TEST_F(NewestFrames, AFlippedBitIsDamageOnceTheLogWasIdle) {
  make(true);
  EXPECT_GT(must(look())->log().recovered().lsn, acknowledged_);
  const off_t at = place_of_newest();
  for (int i = 0; i < 64; i += 7) {
    flip(at + i, i % 8);
    EXPECT_ERROR(Errc::corrupt, look());
    flip(at + i, i % 8);
  }
  EXPECT_OK(look());
}

}  // namespace
}  // namespace memlith::test
