// docs/architecture.md, "trackers": replaying what captures logged makes the memory as it was captured, whatever of a
// page was left out because its twin had it; and copies that never pay are given up.
#include "region/twins.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/random.hpp"
#include "support/expect.hpp"

namespace memlith::test::twins_test {
namespace {

using namespace core;

constexpr std::uint64_t kPlaces = 16384;                    // pages that far apart share a place
constexpr std::uint64_t kBytes = 3 * kPlaces * kPageBytes;  // of addresses; what is not stored to costs nothing

// Memory, and what replaying the pieces of each accepted capture makes of it.
class TwinsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = map();
    replayed_ = map();
    twins_ = must(Twins::make(kBytes));
  }
  void TearDown() override {
    twins_ = nullptr;
    ::munmap(memory_, kBytes);
    ::munmap(replayed_, kBytes);
  }

  void store(std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
    std::memset(memory_ + offset, value, bytes);
    for (std::uint64_t page = offset / kPageBytes; page * kPageBytes < offset + bytes; ++page) dirty_[page] = true;
  }
  // The pages stored to since the last accepted capture, as a tracker has them.
  [[nodiscard]] std::vector<Range> stored() const {
    std::vector<Range> ranges;
    for (const auto& [page, yes] : dirty_) ranges.push_back({page * kPageBytes, kPageBytes});
    normalize(ranges);
    return ranges;
  }
  std::vector<SourceExtent> reduce() {
    std::vector<SourceExtent> pieces;
    twins_->reduce(memory_, stored(), read_, pieces);
    return pieces;
  }
  static std::uint64_t bytes_of(const std::vector<SourceExtent>& pieces) {
    std::uint64_t bytes = 0;
    for (const SourceExtent& piece : pieces) bytes += piece.range.bytes;
    return bytes;
  }
  std::uint64_t capture() {
    const std::vector<SourceExtent> pieces = reduce();
    for (const SourceExtent& piece : pieces)
      std::memcpy(replayed_ + piece.range.offset, piece.source, piece.range.bytes);
    for (const auto& [page, yes] : dirty_) ever_[page] = true;
    dirty_.clear();
    twins_->accept();
    return bytes_of(pieces);
  }
  void expect_replayed() {
    for (const auto& [page, yes] : ever_) {
      ASSERT_EQ(std::memcmp(memory_ + page * kPageBytes, replayed_ + page * kPageBytes, kPageBytes), 0)
          << "page " << page;
    }
  }

  static std::byte* map() {
    void* const got =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    return static_cast<std::byte*>(got);
  }

  ReadTwin read_;
  std::byte* memory_ = nullptr;
  std::byte* replayed_ = nullptr;
  std::unique_ptr<Twins> twins_;
  std::map<std::uint64_t, bool> dirty_;
  std::map<std::uint64_t, bool> ever_;
};

TEST_F(TwinsTest, SecondCapturesHoldWhatChanged) {
  store(100, 50, 1);
  EXPECT_EQ(capture(), kPageBytes);
  store(200, 8, 2);
  store(3000, 1, 3);
  EXPECT_EQ(capture(), 9u);
  store(200, 8, 0);  // as it was at first
  EXPECT_EQ(capture(), 8u);
  store(200, 8, 0);  // as it is
  EXPECT_EQ(capture(), 0u);
  expect_replayed();
}

// A page without a twin is compared with what can be read of it, and has a twin then. What cannot be read is taken
// whole.
TEST_F(TwinsTest, PagesThatCanBeReadAreCompared) {
  std::uint64_t reads = 0;
  read_ = [&](std::uint64_t page, std::span<std::byte> target) {
    ++reads;
    std::memcpy(target.data(), replayed_ + page * kPageBytes, kPageBytes);
    return page != 1;
  };
  store(40, 10, 1);
  store(kPageBytes, 3, 1);
  EXPECT_EQ(capture(), 10 + kPageBytes);
  EXPECT_EQ(reads, 2u);
  store(50, 2, 1);
  store(kPageBytes + 8, 1, 1);
  EXPECT_EQ(capture(), 3u);
  EXPECT_EQ(reads, 2u) << "their twins were not kept";
  store(2 * kPageBytes, 1, 0);  // as it can be read
  EXPECT_EQ(capture(), 0u);
  store(2 * kPageBytes, kPageBytes, 4);
  EXPECT_EQ(capture(), kPageBytes);
  expect_replayed();
}

// A capture that came to nothing is made again whole, compared with what was captured before it.
TEST_F(TwinsTest, WhatIsGivenBackIsStillDue) {
  store(0, 10, 1);
  EXPECT_EQ(bytes_of(reduce()), kPageBytes);
  twins_->give_back();
  EXPECT_EQ(capture(), kPageBytes);
  store(5, 10, 2);
  EXPECT_EQ(bytes_of(reduce()), 10u);
  twins_->give_back();
  store(40, 4, 3);
  EXPECT_EQ(capture(), 14u);
  expect_replayed();
}

// Other threads' stores behind the copy are not in the pieces, and are in the next.
TEST_F(TwinsTest, PiecesStayAsTheyWereCopied) {
  store(0, 8, 1);
  capture();
  store(0, 8, 2);
  const std::vector<SourceExtent> pieces = reduce();
  store(0, 4, 9);
  ASSERT_EQ(pieces.size(), 1u);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(pieces[0].source[i], std::byte{2});
  std::memcpy(replayed_, pieces[0].source, 8);
  twins_->accept();
  EXPECT_EQ(capture(), 4u);
  expect_replayed();
}

// Long stretches, and a page that ends with a file, are taken as they are, from memory, and are not known afterwards.
TEST_F(TwinsTest, StretchesAndPartsAreTakenWhole) {
  store(0, 10, 1);
  capture();
  store(0, 200 * kPageBytes, 2);
  const std::vector<SourceExtent> pieces = reduce();
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].range, (Range{0, 200 * kPageBytes}));
  EXPECT_EQ(pieces[0].source, memory_);
  twins_->give_back();
  EXPECT_EQ(capture(), 200 * kPageBytes);
  store(0, 1, 3);
  EXPECT_EQ(capture(), kPageBytes);

  std::vector<SourceExtent> part;
  const Range last{0, 700};
  twins_->reduce(memory_, {&last, 1}, nullptr, part);
  ASSERT_EQ(part.size(), 1u);
  EXPECT_EQ(part[0].range, last);
  twins_->accept();
  store(0, 1, 4);
  EXPECT_EQ(capture(), kPageBytes) << "the twin was of before the part";
  expect_replayed();
}

// Pages that are always rewritten whole are copied less and less; small changes are found again when there are some.
TEST_F(TwinsTest, CopiesThatNeverPayAreGivenUp) {
  Random random(7);
  std::uint8_t value = 0;
  const auto from_memory = [&](int captures) {
    std::uint64_t bytes = 0;
    for (int i = 0; i < captures; ++i) {
      for (std::uint64_t n = 0; n < 32; ++n) store(random.below(1000) * 2 * kPageBytes, kPageBytes, ++value);
      for (const SourceExtent& piece : reduce()) {
        if (piece.source == memory_ + piece.range.offset) bytes += piece.range.bytes;
      }
      twins_->give_back();
      capture();
    }
    return bytes;
  };
  from_memory(1000);
  const std::uint64_t late = from_memory(100);
  EXPECT_GT(late, 100 * 28 * kPageBytes) << "pages are still copied first";
  expect_replayed();
  std::uint64_t logged = 0;
  for (int i = 0; i < 500; ++i) {
    store(2 * kPageBytes, 1, ++value);
    logged = capture();
  }
  EXPECT_EQ(logged, 1u);
  expect_replayed();
}

TEST_F(TwinsTest, ClearForgetsEverything) {
  store(0, 10, 1);
  capture();
  twins_->clear();
  store(0, 1, 2);
  EXPECT_EQ(capture(), kPageBytes);
  expect_replayed();
}

// Random stores to pages that fight for places, captures that succeed and that do not, and memory given back.
TEST_F(TwinsTest, AgreesWithAModel) {
  Random random(19);
  for (int round = 0; round < 3000; ++round) {
    for (std::uint64_t n = random.below(12); n > 0; --n) {
      const std::uint64_t page = random.below(24) + kPlaces * random.below(3);
      const std::uint64_t offset = random.below(kPageBytes);
      const std::uint64_t bytes = random.one_in(6) ? kPageBytes + random.below(70 * kPageBytes) : 1 + random.below(300);
      store(page * kPageBytes + offset, std::min(bytes, kBytes - page * kPageBytes - offset),
            static_cast<std::uint8_t>(random.below(3)));
    }
    if (random.one_in(4)) {
      (void)reduce();
      twins_->give_back();
    } else {
      capture();
      expect_replayed();
    }
    if (random.one_in(200)) twins_->clear();
  }
}

}  // namespace
}  // namespace memlith::test::twins_test
