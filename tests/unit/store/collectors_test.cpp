// store/collectors.hpp, INVARIANT one-order: what waits is seen to wait until it is in the log.
#include "store/collectors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "store/store.hpp"
#include "support/expect.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

// Keeps one word, and notes at each step of a closing whether another thread would see that something waits.
class OneWord : public Collector {
 public:
  OneWord(Store& store, ObjectId object) : Collector(store.collectors()), store_(store), object_(object) {}
  void put(std::uint64_t word) {
    word_ = word;
    note_waiting_commit();
  }
  std::vector<bool> seen;

 private:
  void note() { seen.push_back(store_.collectors().any_waits()); }
  Status pause() override {
    note();
    return kOk;
  }
  void set_aside() noexcept override { note(); }
  void resume() noexcept override { note(); }
  Piece first(std::uint64_t /*bytes_max*/) override {
    note();
    extents_ = {Extent{object_, 0, sizeof word_}};
    sources_ = {reinterpret_cast<const std::byte*>(&word_)};
    return {extents_, sources_, std::nullopt, sizeof word_, 1};
  }
  bool in_log(Lsn /*end*/) noexcept override {
    note();
    return false;
  }
  [[nodiscard]] std::string what_waits() const override { return "a word"; }

  Store& store_;
  ObjectId object_;
  std::uint64_t word_ = 0;
  std::array<Extent, 1> extents_;
  std::array<const std::byte*, 1> sources_;
};

// Otherwise a commit of another thread could pass one that had returned before, while a closing takes that to the log.
TEST(Collectors, WhatIsSetAsideWaitsUntilItIsInTheLog) {
  SimVolume volume;
  StoreOptions options;
  options.create = true;
  options.manual_flush = true;
  auto store = must(Store::open(volume, options));
  const ObjectId object = must(store->create("a", kPageBytes, 0, kPageBytes)).id;
  OneWord word(*store, object);
  store->collectors().add(word);
  EXPECT_FALSE(store->collectors().any_waits());
  for (std::uint64_t i = 1; i <= 2; ++i) {
    word.put(i);
    EXPECT_OK(store->collectors().close(false).status());
    EXPECT_EQ(word.seen, std::vector<bool>(5, true));  // one each of pause, set_aside, resume, first, in_log
    EXPECT_FALSE(store->collectors().any_waits());
    word.seen.clear();
  }
  store->collectors().remove(word, true);
}

}  // namespace
}  // namespace memlith::test
