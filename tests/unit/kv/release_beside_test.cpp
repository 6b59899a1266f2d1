// docs/kv.md, "Limits": a commit that uses the memory budget up does not wait for the release.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "kv/kv.hpp"
#include "region/session.hpp"
#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "support/store_words.hpp"

namespace memlith::test::release_beside_test {
namespace {

using namespace core;
using core::kv::Durability;
using core::kv::Kv;
using core::kv::Transaction;

constexpr std::uint64_t kBudgetPages = 256;
constexpr int kRecords = 4000;  // a page has three
constexpr auto kPatience = std::chrono::seconds(60);

class KvReleaseBeside : public ::testing::Test {
 protected:
  KvReleaseBeside() {
    StoreOptions options;
    options.create = true;
    options.manual_checkpoint = true;
    options.manual_flush = true;
    session_ =
        must(Session::open({std::make_unique<VolumeDecorator>(volume_), ""}, options, kBudgetPages * kPageBytes));
    RegionOptions region;
    region.create = true;
    region.tracker = TrackerKind::touched;
    region.size_bytes = 16 * kMiB;  // so that no commit makes it larger
    region.reserve_bytes = 64 * kMiB;
    region.limited = Limited::always;
    region.anywhere = true;
    OpenRegion* const open = must(session_->open_region("kv", region));
    auto kv = must(Kv::open(*open->region, {.create = true, .window = {}, .manual = true}));
    kv_ = kv.get();
    kv_->set_open_region(open);
    open->user = std::move(kv);
    map_ = must(kv_->open_map("map", true, false));
  }
  ~KvReleaseBeside() override {
    volume_.before_transfer = nullptr;
    EXPECT_OK(Session::close(std::move(session_)));
  }
  void put(int number) {
    Transaction transaction(*kv_, false);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map_, "key" + std::to_string(number % kRecords), std::string(1000, 'v')));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
    session_->keep_to_memory();
  }
  // But for a page of the kernel's in which the kv store ends.
  void expect_all_given_back() {
    const std::uint64_t at_once = host_page_bytes() / kPageBytes;
    EXPECT_LE(copied(), at_once > 1 ? at_once : 0);
  }
  [[nodiscard]] std::uint64_t copied() const { return kv_->region().copied_pages(); }

  SimVolume volume_;
  std::unique_ptr<Session> session_;
  Kv* kv_ = nullptr;
  core::kv::MapNumber map_ = 0;
};

// The release stands still at its first write until more has been committed.
TEST_F(KvReleaseBeside, CommitsGoOn) {
  EXPECT_OK(kv_->persist());
  const auto own = std::this_thread::get_id();
  std::atomic<int> commits{0};
  std::atomic<int> released_at{0};
  std::atomic<bool> own_transfers{false};
  std::atomic<bool> stood_still{false};
  volume_.before_transfer = [&] {
    if (std::this_thread::get_id() == own) {
      own_transfers = true;
      return;
    }
    int none = 0;
    released_at.compare_exchange_strong(none, commits);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (commits < released_at + 100 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (commits < released_at + 100) stood_still = true;
  };
  std::uint64_t most = 0;
  while (released_at == 0 && commits < 2 * kRecords) {
    put(commits);
    ++commits;
    most = std::max(most, copied());
  }
  ASSERT_GT(released_at, 0) << "nothing was released";
  for (int more = 0; more < 200; ++more) {
    put(commits);
    ++commits;
  }
  EXPECT_FALSE(own_transfers) << "a commit did what the release has to do";
  EXPECT_FALSE(stood_still);
  EXPECT_GT(most, kBudgetPages / 4);
  session_->make_memory(1, 0);  // waits for the release, and takes what has come meanwhile
  expect_all_given_back();
  EXPECT_OK(session_->memory_status());
  EXPECT_OK(kv_->verify().status());
}

// A commit that would not fit beside the copies waits for their release.
TEST_F(KvReleaseBeside, MemoryIsMadeForALargeCommit) {
  for (int i = 0; i < 100; ++i) put(i);
  ASSERT_GT(copied(), 20u);
  session_->make_memory(kMiB, 64 * kMiB);
  ASSERT_GT(copied(), 20u) << "it had fitted";
  session_->make_memory(kMiB, kMiB);
  expect_all_given_back();
  EXPECT_OK(kv_->verify().status());
}

}  // namespace
}  // namespace memlith::test::release_beside_test
