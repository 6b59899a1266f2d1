// A transaction remembers where it found its records (kv::LeafPlace): its commit writes there as long as the leaf has
// not changed, and looks again if it has; in commits of many writes, and in those with other structures, too.
#include <gtest/gtest.h>

#include <array>

#include "base/random.hpp"
#include "kv/part.hpp"
#include "kv_world.hpp"
#include "region/region_part.hpp"
#include "region/transaction.hpp"

namespace memlith::test::places_test {
namespace {

using namespace core;
using kv::Durability;
using kv::Transaction;

constexpr std::uint64_t kClients = 3;
constexpr std::uint64_t kKeys = 400;

// Transactions that share leaves and no records: each has the keys of its own number.
class KvPlaces : public ::testing::Test {
 protected:
  static std::string key_of(std::uint64_t number) { return "key" + std::to_string(10'000 + number); }
  std::string some_value() {
    if (random_.one_in(60)) return std::string(5000 + random_.below(3) * 4000, 'l');
    return std::string(random_.one_in(3) ? 40 : random_.below(300), static_cast<char>('a' + random_.below(26)));
  }
  void write(std::uint64_t client) {
    Transaction& transaction = *clients_[client];
    const std::string key = key_of(random_.below(kKeys) * kClients + client);
    Records& own = written_[client];
    const bool had = own.contains(key);
    if (random_.one_in(2)) {
      const auto found = must(transaction.get(map_, key));
      ASSERT_EQ(found.has_value(), had) << key;
      if (had) {
        ASSERT_EQ(*found, own[key]) << key;
      }
    }
    if (random_.one_in(4)) {
      ASSERT_EQ(must(transaction.remove(map_, key)), had) << key;
      own.erase(key);
    } else {
      // The same length, often: then only the bytes of the value change.
      const std::string value = had && random_.one_in(2) ? std::string(own[key].size(), 'x') : some_value();
      ASSERT_OK(transaction.put(map_, key, value));
      own[key] = value;
    }
  }
  void commit(std::uint64_t client) {
    Transaction& transaction = *clients_[client];
    if (random_.one_in(4)) {
      core::Transaction joint(region_.store());
      ASSERT_OK(joint.add(std::make_unique<kv::KvPart>(transaction)));
      put(region_, 0, ++joints_);
      ASSERT_OK(joint.add(std::make_unique<RegionPart>(region_)));
      ASSERT_OK(joint.capture(false).status());
      joint.forget();
    } else {
      ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
    }
    committed_[client] = written_[client];
    ASSERT_OK(transaction.begin());
  }
  Records all_committed() const {
    Records all;
    for (const Records& each : committed_) all.insert(each.begin(), each.end());
    return all;
  }

  KvWorld world_;
  Region& region_ = world_.open_region("counts", 64 * kKiB);
  kv::MapNumber map_ = world_.map();
  Random random_{60};
  std::array<std::unique_ptr<Transaction>, kClients> clients_;
  std::array<Records, kClients> written_;
  std::array<Records, kClients> committed_;
  std::uint64_t joints_ = 0;
};

TEST_F(KvPlaces, CommitsOfSharedLeavesAreThoseOfTheModel) {
  for (auto& each : clients_) {
    each = std::make_unique<Transaction>(world_.kv(), false);
    ASSERT_OK(each->begin());
  }
  for (int step = 0; step < 6000; ++step) {
    const std::uint64_t client = random_.below(kClients);
    // Few writes, as many as leaves take, and more than a commit's bound of the log.
    for (std::uint64_t left = random_.one_in(20) ? 200 : random_.below(6); left > 0; --left) write(client);
    if (random_.one_in(2)) commit(client);
    if (HasFatalFailure()) return;
    if (step % 500 != 0) continue;
    ASSERT_TRUE(world_.content(map_) == all_committed()) << "step " << step;
    ASSERT_OK(world_.kv().verify().status());
  }
  for (auto& each : clients_) each->abort();
  EXPECT_GT(joints_, 100u);
  ASSERT_OK(world_.kv().persist());
  world_.crash();
  EXPECT_TRUE(world_.content(world_.map()) == all_committed());
}

}  // namespace
}  // namespace memlith::test::places_test
