// docs/architecture.md, "replay": of all bytes committed to a place, the last win, and nothing beside them changes.
#include "store/overlay.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "base/random.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

using namespace core;

// An overlay and the obvious version of it: an array of bytes that are there or not.
class Model {
 public:
  explicit Model(std::uint64_t bytes) : bytes_(bytes) {}

  void apply(std::uint64_t offset, std::uint64_t count, std::uint8_t fill) {
    const std::vector<std::byte> piece(count, static_cast<std::byte>(fill));
    ASSERT_TRUE(overlay_.apply(ObjectId{1}, offset, piece).ok());
    for (std::uint64_t i = 0; i < count; ++i) bytes_.at(offset + i) = fill;
  }
  void apply_zeros(std::uint64_t offset, std::uint64_t count) {
    overlay_.apply_zeros(ObjectId{1}, offset, count);
    for (std::uint64_t i = 0; i < count; ++i) bytes_.at(offset + i) = 0;
  }
  void drop(std::uint64_t offset, std::uint64_t count) {
    overlay_.drop({ObjectId{1}, offset, count});
    for (std::uint64_t i = 0; i < count; ++i) bytes_.at(offset + i).reset();
  }
  void expect_equal() {
    std::vector<std::optional<std::uint8_t>> seen(bytes_.size());
    std::uint64_t last_end = 0;
    ASSERT_OK(overlay_.for_each(ObjectId{1}, [&](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
      EXPECT_GE(offset, last_end) << "pieces overlap or are out of order";
      EXPECT_FALSE(piece.empty());
      last_end = offset + piece.size();
      for (std::uint64_t i = 0; i < piece.size(); ++i) seen.at(offset + i) = static_cast<std::uint8_t>(piece[i]);
      return kOk;
    }));
    ASSERT_EQ(seen, bytes_);
  }
  Overlay& overlay() { return overlay_; }

 private:
  Overlay overlay_;
  std::vector<std::optional<std::uint8_t>> bytes_;
};

// Every way in which two pieces can lie to each other.
TEST(Overlay, EveryPairOfPieces) {
  constexpr std::uint64_t kSpace = 7;
  for (std::uint64_t a = 0; a < kSpace; ++a) {
    for (std::uint64_t b = a; b <= kSpace; ++b) {
      for (std::uint64_t c = 0; c < kSpace; ++c) {
        for (std::uint64_t d = c; d <= kSpace; ++d) {
          Model model(kSpace);
          model.apply(a, b - a, 1);
          model.apply(c, d - c, 2);
          ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << a << ".." << b << ", then " << c << ".." << d;
        }
      }
    }
  }
}

// Thousands of random pieces, short and long, against the array.
TEST(Overlay, AgreesWithAnArray) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Model model(2000);
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t offset = random.below(2000);
      const std::uint64_t most = random.one_in(10) ? 2000 : 60;
      model.apply(offset, std::min(random.below(most), 2000 - offset), static_cast<std::uint8_t>(random.next()));
      if (step % 40 == 0) {
        ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed << ", step " << step;
      }
    }
    ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
  }
}

// Pages of zeros, before, between and over pieces.
TEST(Overlay, ZerosAgreeWithAnArray) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    Model model(4 * kPageBytes);
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t page = random.below(4);
      if (random.one_in(10)) {
        model.apply_zeros(page * kPageBytes, (1 + random.below(4 - page)) * kPageBytes);
      } else {
        const std::uint64_t offset = page * kPageBytes + random.below(kPageBytes);
        const std::uint64_t most = random.one_in(10) ? 2 * kPageBytes : 60;
        model.apply(offset, std::min(random.below(most), 4 * kPageBytes - offset),
                    static_cast<std::uint8_t>(random.next()));
      }
    }
    ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
  }
}

// Dropped bytes are gone, and nothing beside them.
TEST(Overlay, DropsAgreeWithAnArray) {
  constexpr std::uint64_t kBytes = 80 * kPageBytes;  // more than a leaf
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Model model(kBytes);
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t offset = random.below(kBytes);
      const std::uint64_t most = random.one_in(10) ? 3 * kPageBytes : 500;
      const std::uint64_t count = std::min(1 + random.below(most), kBytes - offset);
      if (random.one_in(20)) {
        const std::uint64_t page = random.below(80);
        model.apply_zeros(page * kPageBytes, (1 + random.below(std::min<std::uint64_t>(3, 80 - page))) * kPageBytes);
      } else if (random.one_in(3)) {
        model.drop(offset, count);
      } else {
        model.apply(offset, count, static_cast<std::uint8_t>(random.next()));
      }
    }
    ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
    model.drop(0, kBytes);
    ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
  }
  Overlay().drop({ObjectId{7}, 0, kPageBytes});  // of which it has nothing
}

// Pages that change in very many places, beside pages of zeros.
TEST(Overlay, ManySmallPieces) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    constexpr std::uint64_t kBytes = 3 * kPageBytes;
    Model model(kBytes);
    for (int i = 0; i < 600; ++i) {
      if (random.one_in(150)) {
        model.apply_zeros(random.below(3) * kPageBytes, kPageBytes);
        continue;
      }
      const std::uint64_t offset = random.below(kBytes);
      model.apply(offset, std::min(1 + random.below(random.one_in(50) ? kPageBytes : 70), kBytes - offset),
                  static_cast<std::uint8_t>(random.next()));
      if (i % 100 == 0) {
        ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
      }
    }
    ASSERT_NO_FATAL_FAILURE(model.expect_equal()) << "seed " << seed;
  }
}

// The same place again, in the same length, costs no memory.
TEST(Overlay, SamePagesStayInPlace) {
  Model model(8192);
  model.apply(4096, 4096, 1);
  const std::uint64_t before = model.overlay().bytes_held();
  for (std::uint8_t i = 2; i < 100; ++i) model.apply(4096, 4096, i);
  EXPECT_EQ(model.overlay().bytes_held(), before);
  model.expect_equal();
}

// Objects do not mix, and clearing forgets everything.
TEST(Overlay, ObjectsAreApart) {
  Overlay overlay;
  const std::byte one[4] = {};
  ASSERT_TRUE(overlay.apply(ObjectId{2}, 0, one).ok());
  ASSERT_TRUE(overlay.apply(ObjectId{1}, 100, one).ok());
  ASSERT_TRUE(overlay.apply(ObjectId{3}, 5, {}).ok());
  EXPECT_EQ(overlay.objects(), (std::vector<ObjectId>{ObjectId{1}, ObjectId{2}}));
  overlay.clear();
  EXPECT_TRUE(overlay.objects().empty());
  EXPECT_EQ(overlay.bytes_held(), 0u);
  ASSERT_TRUE(overlay.apply(ObjectId{1}, 0, one).ok());
  EXPECT_EQ(overlay.objects().size(), 1u);
}

// An error of the visitor ends the visit and is returned.
TEST(Overlay, VisitStopsAtAnError) {
  Overlay overlay;
  const std::byte one[1] = {};
  ASSERT_TRUE(overlay.apply(ObjectId{1}, 0, one).ok());
  ASSERT_TRUE(overlay.apply(ObjectId{1}, 10, one).ok());
  int visited = 0;
  EXPECT_ERROR(Errc::io, overlay.for_each(ObjectId{1}, [&](std::uint64_t, std::span<const std::byte>) {
    ++visited;
    return fail(Errc::io, Detail::write, "no");
  }));
  EXPECT_EQ(visited, 1);
}

// Places up to 2^62 and pieces larger than an arena are as good as any.
TEST(Overlay, FarAndLarge) {
  Overlay overlay;
  const std::vector<std::byte> large(3 << 20, std::byte{7});
  ASSERT_TRUE(overlay.apply(ObjectId{1}, 1ull << 62, large).ok());
  ASSERT_TRUE(overlay.apply(ObjectId{1}, (1ull << 62) + 5, std::span(large).first(10)).ok());
  std::uint64_t total = 0;
  EXPECT_OK(overlay.for_each(ObjectId{1}, [&](std::uint64_t, std::span<const std::byte> piece) {
    total += piece.size();
    return kOk;
  }));
  EXPECT_EQ(total, large.size());
}

}  // namespace
}  // namespace memlith::test
