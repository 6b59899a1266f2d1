// src/kv/page_state.hpp: pages that share a line of tags. Tags are a hint, so all records are found whichever page has
// the line; and tags of a page that has its line are those of its keys, which verify() asserts.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::tags_test {
namespace {

using namespace core;
using kv::Durability;
using kv::LeafTags;
using kv::Transaction;

class KvTags : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  // Before the kv store is opened.
  struct Lines {
    explicit Lines(std::uint64_t lines) { LeafTags::lines_max = lines; }
    ~Lines() { LeafTags::lines_max = before; }
    std::uint64_t before = LeafTags::lines_max;
  };
  static std::string key_of(std::uint64_t number) { return "key" + std::to_string(100'000 + number); }
  void put(std::uint64_t number, const std::string& value) {
    Transaction transaction(world_.kv(), false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(map_, key_of(number), value));
    ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
  }

  Lines lines_{GetParam()};
  KvWorld world_;
  kv::MapNumber map_ = world_.map();
};

TEST_P(KvTags, AllRecordsAreFound) {
  Random random(60);
  Records model;
  for (int step = 0; step < 12'000; ++step) {
    Transaction transaction(world_.kv(), false);
    ASSERT_OK(transaction.begin());
    const std::string key = key_of(random.below(4000));
    if (random.one_in(4)) {
      ASSERT_EQ(must(transaction.remove(map_, key)), model.erase(key) == 1) << key;
    } else {
      model[key] = std::string(1 + random.below(random.one_in(3) ? 120 : 20), 'v');
      ASSERT_OK(transaction.put(map_, key, model[key]));
    }
    ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
    if (step % 3000 == 2999) {
      ASSERT_OK(world_.kv().verify().status());
      ASSERT_OK(world_.kv().persist());
      world_.crash();
      map_ = world_.map();
    }
  }
  Transaction reader(world_.kv(), true);
  ASSERT_OK(reader.begin());
  for (const auto& [key, value] : model) ASSERT_EQ(must(reader.get(map_, key)), value) << key;
  ASSERT_OK(world_.kv().verify().status());
}

// Readers use pages first, and so make their tags, while a writer changes others that share the lines.
TEST_P(KvTags, ReadersTakeLinesWhileAWriterChangesThem) {
  constexpr std::uint64_t kRecords = 6000;
  for (std::uint64_t i = 0; i < kRecords; ++i) put(i, "value");
  ASSERT_OK(world_.kv().persist());
  for (int life = 0; life < 4; ++life) {
    world_.crash();
    map_ = world_.map();
    std::atomic<bool> ends{false};
    std::vector<std::thread> readers;
    for (std::uint64_t t = 0; t < 2; ++t) {
      readers.emplace_back([&, t] {
        Random random(t + 1);
        while (!ends) {
          Transaction reader(world_.kv(), true);
          ASSERT_OK(reader.begin());
          for (int n = 0; n < 20; ++n) {
            ASSERT_TRUE(must(reader.get(map_, key_of(random.below(kRecords)))).has_value());
          }
        }
      });
    }
    Random random(9);
    for (int n = 0; n < 3000; ++n) put(random.below(kRecords), std::string(random.below(30), 'w'));
    ends = true;
    for (std::thread& each : readers) each.join();
    ASSERT_OK(world_.kv().verify().status());
    ASSERT_OK(world_.kv().persist());
  }
}

INSTANTIATE_TEST_SUITE_P(Lines, KvTags, ::testing::Values(1, 8, 1u << 18));

}  // namespace
}  // namespace memlith::test::tags_test
