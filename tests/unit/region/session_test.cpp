// A session holds what is open of a store: a region is open once, is not removed meanwhile, and gives memory back by
// the session's budget.
#include "region/session.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "support/store_words.hpp"

namespace memlith::test::session_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 256 * kKiB;

class Sessions : public ::testing::Test {
 protected:
  std::unique_ptr<Session> open(std::uint64_t memory_max_bytes = 0) {
    StoreOptions options = tiny_options();
    options.log_max_bytes = 256 * options.slot_bytes;
    return must(Session::open(must(place_of_store(folder_ / "store", StoreKind::folder)), options, memory_max_bytes));
  }
  static Region& open_region(Session& session, const std::string& name, std::uint64_t bytes = kSize) {
    RegionOptions options;
    options.create = true;
    options.limited = Limited::if_told;
    options.size_bytes = bytes;
    return *must(session.open_region(name, options))->region;
  }
  TempFolder folder_;
};

TEST_F(Sessions, ARegionIsOpenOnceAndStaysWhileItIs) {
  auto session = open();
  RegionOptions options;
  options.create = true;
  options.size_bytes = kSize;
  OpenRegion* const region = must(session->open_region("a", options));
  EXPECT_EQ(&region->session, session.get());
  EXPECT_EQ(session->open_region("a", options).status().category, Errc::busy);
  EXPECT_EQ(session->remove_region("a").category, Errc::busy);
  EXPECT_EQ(session->remove_region("b").category, Errc::not_found);
  const ObjectId object = region->region->object();
  const Region* seen = nullptr;
  session->look_at_region(object, [&seen](const Region& open) { seen = &open; });
  EXPECT_EQ(seen, region->region.get());

  ASSERT_TRUE(session->close_region(*region).ok());
  seen = nullptr;
  session->look_at_region(object, [&seen](const Region& open) { seen = &open; });
  EXPECT_EQ(seen, nullptr);
  EXPECT_OK(session->remove_region("a"));
  EXPECT_EQ(session->incarnation(), 1u);
  EXPECT_OK(Session::close(std::move(session)));
}

// Persists of both kinds, of one and of all; each is counted, and found after the next opening.
TEST_F(Sessions, PersistsAreTimedAndCanBeWaitedFor) {
  auto session = open();
  Region* const regions[] = {&open_region(*session, "a"), &open_region(*session, "b")};
  EXPECT_OK(session->persist({}, Scope::process));
  EXPECT_EQ(must(session->persist_async({}, Scope::process)).value, 0u);
  EXPECT_EQ(session->store().stats()->persists.count(), 0u) << "there was nothing to persist";

  for (Region* const region : regions) region->address()[8] = std::byte{1};
  EXPECT_OK(session->persist(regions, Scope::process));
  for (Region* const region : regions) region->address()[8] = std::byte{2};
  EXPECT_OK(session->persist_all(Scope::process));
  regions[0]->address()[8] = std::byte{3};
  const Lsn end = must(session->persist_async({regions, 1}, Scope::process));
  EXPECT_EQ(session->store().wait(end.advance(1)).category, Errc::invalid);
  EXPECT_OK(session->store().wait(end));
  EXPECT_GE(session->store().log().durable_lsn(), end);
  regions[1]->address()[8] = std::byte{4};
  EXPECT_OK(session->rollback({regions + 1, 1}, Scope::process));
  EXPECT_EQ(regions[1]->address()[8], std::byte{2});
  EXPECT_EQ(session->store().stats()->persists.count(), 2u);
  EXPECT_EQ(session->store().stats()->captures.count(), 1u);
  EXPECT_OK(Session::close(std::move(session)));

  session = open();
  EXPECT_EQ(session->incarnation(), 2u);
  EXPECT_EQ(open_region(*session, "a").address()[8], std::byte{3});
  EXPECT_EQ(open_region(*session, "b").address()[8], std::byte{2});
  EXPECT_OK(Session::close(std::move(session)));
}

// Private copies beyond the budget are given back behind a persist; without a budget they stay.
TEST_F(Sessions, AMemoryBudgetIsKept) {
  constexpr std::uint64_t kBytes = 8 * kMiB;
  constexpr std::uint64_t kStep = 512 * kKiB;
  for (const bool limited : {false, true}) {
    auto session = open(limited ? 2 * kMiB : 0);
    Region* const region = &open_region(*session, limited ? "limited" : "free", kBytes);
    std::uint64_t most = 0;
    for (std::uint64_t at = 0; at < kBytes; at += kStep) {
      std::memset(region->address() + at, 7, kStep);
      ASSERT_OK(session->persist({&region, 1}, Scope::process));
      most = std::max(most, region->tracker()->pages_taken() * kPageBytes);
    }
    EXPECT_OK(session->memory_status());
    EXPECT_EQ(most >= kBytes, !limited) << most;
    EXPECT_EQ(region->address()[kBytes - 1], std::byte{7});
    EXPECT_OK(Session::close(std::move(session)));
  }
}

// A forked child is told that the session is its parent's, and closing it there takes nothing from the parent.
TEST_F(Sessions, AForkedChildLeavesItAlone) {
  auto session = open();
  Region* const region = &open_region(*session, "a");
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = session->check_process().category == Errc::invalid;
    (void)Session::close(std::move(session));
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  region->address()[8] = std::byte{1};
  EXPECT_OK(session->persist({&region, 1}, Scope::process));
  EXPECT_OK(Session::close(std::move(session)));
}

}  // namespace
}  // namespace memlith::test::session_test
