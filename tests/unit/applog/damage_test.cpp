// docs/guarantees.md, "Trust in files": the region's bytes are input: every damaged bit of entries that are not
// consumed is found, and a log of another store or format is refused by name.
#include <gtest/gtest.h>

#include "applog_world.hpp"

namespace memlith::test::damage_test {
namespace {

using namespace core;
using applog::AppLog;

// Opens what the memory of the region holds.
Status open_status(AppLogWorld& world) { return world.try_open().status(); }

class Damage : public ::testing::Test {
 protected:
  Damage() {
    for (std::uint64_t i = 1; i <= 40; ++i) {
      must(append(world.log(), entry_text(i)));
      EXPECT_OK(world.log().write());
      (void)world.read_all();
      if (i == 12 || i == 30) {
        EXPECT_OK(world.log().consume(i));
      }
    }
    world.close();
  }
  AppLogWorld world{8 * kKiB};
};

TEST_F(Damage, EveryBitOfWhatIsNotConsumedIsChecked) {
  ASSERT_OK(open_status(world));
  std::byte* const base = world.region().address();
  const std::uint64_t first = world.region().size() - 8 * kKiB;
  std::uint64_t refused = 0;
  for (std::uint64_t offset = 0; offset < world.region().size(); offset += 1) {
    const bool is_head = (offset >= 16 && offset < 16 + sizeof(applog::Identity)) || (offset >= 64 && offset < 88) ||
                         (offset >= 128 && offset < 152);
    if (offset < first && !is_head) continue;
    if (!is_head && offset % 3 != 0) continue;  // enough, and quick
    base[offset] ^= std::byte{4};
    const Status found = open_status(world);
    base[offset] ^= std::byte{4};
    if (is_head) {
      EXPECT_FALSE(found.ok()) << offset;
    }
    if (found.ok()) continue;
    ++refused;
    EXPECT_TRUE(found.category == Errc::corrupt || found.category == Errc::incompatible) << told(found);
  }
  EXPECT_GT(refused, 400u);
  EXPECT_OK(open_status(world));
}

TEST_F(Damage, IsRefusedByName) {
  std::byte* const base = world.region().address();
  const Bytes good(base, base + kPageBytes);
  const auto refused = [&](Errc category, std::string_view word) {
    const Status found = open_status(world);
    EXPECT_EQ(found.category, category) << told(found);
    EXPECT_NE(last_error_text().find(word), std::string_view::npos) << last_error_text();
    std::memcpy(base, good.data(), good.size());
  };
  auto& identity = *reinterpret_cast<applog::Identity*>(base + applog::kIdentityOffset);
  identity.version = 2;
  refused(Errc::incompatible, "format 2");
  identity.store ^= 1;
  identity.checksum = applog::sum_of(identity, applog::kMagic);
  refused(Errc::incompatible, "another store");
  identity.magic ^= 1;
  refused(Errc::incompatible, "no application log");
  auto& shape = *reinterpret_cast<applog::Shape*>(base + applog::kShapeOffset);
  shape.capacity = 1 * kMiB;
  shape.checksum = applog::sum_of(shape, identity.log);
  refused(Errc::corrupt, "cut");
  EXPECT_OK(open_status(world));
}

// Numbers that no log can have, with right checksums: an addition to them would begin at zero again.
TEST_F(Damage, ImpossibleNumbersAreRefused) {
  std::byte* const base = world.region().address();
  const Bytes good(base, base + kPageBytes);
  const auto refused = [&](std::string_view word) {
    const Status found = open_status(world);
    EXPECT_EQ(found.category, Errc::corrupt) << told(found);
    EXPECT_NE(last_error_text().find(word), std::string_view::npos) << last_error_text();
    std::memcpy(base, good.data(), good.size());
  };
  const std::uint64_t seed = reinterpret_cast<const applog::Identity*>(base + applog::kIdentityOffset)->log;
  auto& shape = *reinterpret_cast<applog::Shape*>(base + applog::kShapeOffset);
  auto& position = *reinterpret_cast<applog::Position*>(base + applog::kPositionOffset);
  const std::uint64_t ring = world.region().size() - applog::kRingOffset;
  for (const std::uint64_t number :
       {~std::uint64_t{0}, ~std::uint64_t{0} - applog::kRingOffset + 1, std::uint64_t{1} << 63,
        (std::uint64_t{1} << 62) + 1, ring + 1, std::uint64_t{0}}) {
    SCOPED_TRACE(number);
    shape.capacity = number;
    shape.checksum = applog::sum_of(shape, seed);
    refused("larger");
    position.number = number;
    position.checksum = applog::sum_of(position, seed);
    refused(number == ring + 1 ? "neither" : "read position");
    position.at = number;
    position.checksum = applog::sum_of(position, seed);
    refused(number <= ring + 1 ? "application log" : "read position");
    if (number <= ring + 1) continue;
    shape.base = number;
    shape.checksum = applog::sum_of(shape, seed);
    refused("read position");
  }
  // The size of an entry, with a right checksum of what would be there.
  const std::uint64_t at = applog::kRingOffset + (position.at - shape.base) % shape.capacity;
  auto& entry = *reinterpret_cast<applog::EntryHeader*>(base + at);
  ASSERT_EQ(entry.number, position.number);
  const applog::EntryHeader sound = entry;
  for (const std::uint32_t bytes : {0xffffffffu, 0x80000000u, static_cast<std::uint32_t>(shape.capacity)}) {
    entry.bytes = bytes;
    entry.checksum = applog::entry_sum(entry, 0, seed);
    refused("neither");
    entry = sound;
  }
  EXPECT_OK(open_status(world));
}

TEST_F(Damage, AnEntryThatIsDamagedInMemoryIsNotRead) {
  world.open();
  std::byte* const base = world.region().address();
  const std::uint64_t bytes = world.region().size();
  for (std::uint64_t offset = kPageBytes; offset < bytes; offset += 8) base[offset] ^= std::byte{1};
  AppLog::Entry entry;
  EXPECT_ERROR(Errc::corrupt, world.log().read(0, entry));
  EXPECT_NE(last_error_text().find("close the store and open it again"), std::string_view::npos) << last_error_text();
}

// Numbers at the ends of their ranges, with right checksums and an end mark in its place.
TEST_F(Damage, HostileNumbersGiveAnswers) {
  std::byte* const base = world.region().address();
  const Bytes good(base, base + world.region().size());
  const auto answered = [](const Status& status) {
    const bool expected = status.ok() || status.category == Errc::corrupt || status.category == Errc::incompatible ||
                          status.category == Errc::full || status.category == Errc::invalid ||
                          status.category == Errc::no_space;
    EXPECT_TRUE(expected) << told(status);
    return status.ok();
  };
  std::uint64_t opened = 0;
  for (const std::uint64_t number :
       {std::uint64_t{1}, std::uint64_t{56}, std::uint64_t{1} << 31, (std::uint64_t{1} << 62) - 9,
        std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1, (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63,
        ~std::uint64_t{0} - 7, ~std::uint64_t{0}}) {
    for (int field = 0; field < 6; ++field) {
      SCOPED_TRACE(std::to_string(number) + " as field " + std::to_string(field));
      std::memcpy(base, good.data(), good.size());
      const std::uint64_t seed = reinterpret_cast<applog::Identity*>(base + applog::kIdentityOffset)->log;
      auto& shape = *reinterpret_cast<applog::Shape*>(base + applog::kShapeOffset);
      auto& position = *reinterpret_cast<applog::Position*>(base + applog::kPositionOffset);
      if (field == 0 || field >= 4) position.at = number;
      if (field == 1 || field == 4) position.number = number;
      if (field == 2 || field == 5) shape.base = number;
      if (field == 3) shape.capacity = number;
      shape.checksum = applog::sum_of(shape, seed);
      position.checksum = applog::sum_of(position, seed);
      if (shape.capacity >= sizeof(applog::EntryHeader) &&
          shape.capacity <= world.region().size() - applog::kRingOffset) {
        const applog::EntryHeader mark = applog::end_mark(position.number, seed);
        applog::Ring(base, shape).put(position.at, &mark, sizeof mark);
      }
      const auto log = world.try_open();
      if (!answered(log.status())) continue;
      ++opened;
      AppLog::Entry entry;
      for (int i = 0; i < 60; ++i) {
        const auto appended = append(**log, entry_text(static_cast<std::uint64_t>(i)));
        if (!answered(appended.status())) break;
        (void)answered((*log)->write().status());
        (void)answered((*log)->read(0, entry).status());
        std::vector<std::byte> content;
        (void)answered((*log)->read_at(*appended, content).status());
        if (i % 7 == 6) (void)answered((*log)->consume(entry.number));
      }
      (void)answered((*log)->truncate_after((*log)->report().newest - 1));
      (void)answered((*log)->restart(number));
      (void)answered(append(**log, "last").status());
      (void)answered((*log)->write().status());
    }
  }
  EXPECT_GT(opened, 5u);
  std::memcpy(base, good.data(), good.size());
}

}  // namespace
}  // namespace memlith::test::damage_test
