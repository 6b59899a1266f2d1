// docs/guarantees.md, "Raw devices": the map of files is in three copies, of which a crash spoils at most two; damage
// and foreign devices are refused by name; extents never overlap.
#include "device/raw_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/buffer.hpp"
#include "base/random.hpp"
#include "sim/power_cuts.hpp"
#include "sim/raw_host.hpp"
#include "support/expect.hpp"

namespace memlith::test::raw_map_test {
namespace {

using namespace core;

constexpr std::uint64_t kDeviceBytes = 1 * kMiB;
constexpr RawFormat kSmall{4 * kKiB, kRawMapBytesMin};

class RawMapTest : public ::testing::Test {
 protected:
  RawMapTest() { take(formatted_sim_device(kDeviceBytes, kSmall)); }
  void take(SimImage image, bool record = false) {
    device_ = nullptr;
    volume_ = std::make_unique<SimVolume>(std::move(image), record);
    device_ = must(volume_->open(kSimDeviceName, OpenMode::read_write, Caching::direct));
  }
  RawHeader header() { return must(RawMapCopies::read_header(*device_)); }
  // Overwrites a page.
  void spoil(std::uint64_t offset) {
    const AlignedBuffer page = must(AlignedBuffer::allocate(kPageBytes));
    std::memset(page.data(), 0x5a, kPageBytes);
    std::memcpy(page.data(), &kRawMagic, sizeof kRawMagic);
    EXPECT_OK(device_->write(offset, page.span()));
  }
  static RawMap with_files(std::initializer_list<const char*> names) {
    RawMap map;
    for (const char* name : names) map.files[name] = {map.next_number++, 0, {}};
    return map;
  }
  RawMapCopies::Flush flush() {
    return [this] { return device_->flush(); };
  }
  Result<RawMap> read() {
    MEMLITH_TRY_ASSIGN(const RawHeader found, RawMapCopies::read_header(*device_));
    return RawMapCopies(found).read(*device_);
  }

  std::unique_ptr<SimVolume> volume_;
  std::unique_ptr<Device> device_;
};

TEST_F(RawMapTest, WhatWasWrittenIsReadAgain) {
  RawMapCopies copies(header());
  RawMap map = must(copies.read(*device_));
  EXPECT_TRUE(copies.proven());
  EXPECT_TRUE(map.files.empty());
  map = with_files({"log", "objects/0", "objects/1"});
  EXPECT_OK(map.make_room(header(), map.files.at("objects/0"), 20000, {}));
  map.files.at("objects/0").size_bytes = 20000;
  EXPECT_OK(copies.write(*device_, map, flush()));
  RawMapCopies again(header());
  const RawMap found = must(again.read(*device_));
  EXPECT_EQ(found.files, map.files);
  EXPECT_EQ(found.generation, map.generation);
  EXPECT_EQ(found.next_number, 4u);
  EXPECT_TRUE(again.proven());
  EXPECT_FALSE(must(again.changed(*device_)));
  EXPECT_OK(copies.write(*device_, map, flush()));
  EXPECT_TRUE(must(again.changed(*device_)));
}

TEST_F(RawMapTest, AnyTwoDamagedCopiesAreSurvivedAndThreeAreRefused) {
  RawMapCopies copies(header());
  must(copies.read(*device_));
  RawMap map = with_files({"log"});
  EXPECT_OK(copies.write(*device_, map, flush()));
  const SimImage whole = volume_->image();
  const auto place = [&](std::size_t i) { return kRawMapsOffset + i * kSmall.map_bytes; };
  for (std::size_t a = 0; a < kRawMapCopies; ++a) {
    for (std::size_t b = 0; b < kRawMapCopies; ++b) {
      take(whole);
      spoil(place(a));
      spoil(place(b));
      EXPECT_EQ(must(read()).files, map.files) << a << b;
    }
  }
  spoil(place(0));
  spoil(place(1));
  spoil(place(2));
  EXPECT_ERROR(Errc::corrupt, read());
  EXPECT_NE(last_error_text().find("all 3 copies of the map"), std::string::npos) << last_error_text();
}

TEST_F(RawMapTest, OneDamagedHeaderIsSurvivedAndTwoAreRefused) {
  const RawHeader before = header();
  spoil(kRawHeaderOffsets[0]);
  EXPECT_EQ(header().device_id, before.device_id);
  spoil(kRawHeaderOffsets[1]);
  EXPECT_ERROR(Errc::corrupt, RawMapCopies::read_header(*device_));
  EXPECT_NE(last_error_text().find("both copies of the device header"), std::string::npos) << last_error_text();
}

TEST_F(RawMapTest, OtherDevicesAreRefusedByName) {
  SimImage zeros;
  zeros.files[std::string(kSimDeviceName)] = std::make_shared<const std::vector<std::byte>>(kDeviceBytes);
  take(zeros);
  EXPECT_ERROR(Errc::incompatible, RawMapCopies::read_header(*device_));
  EXPECT_NE(last_error_text().find("memlith format"), std::string::npos) << last_error_text();

  take(formatted_sim_device(kDeviceBytes, kSmall));
  EXPECT_OK(device_->truncate(kDeviceBytes - 4096));
  EXPECT_ERROR(Errc::corrupt, RawMapCopies::read_header(*device_));
  EXPECT_NE(last_error_text().find("was formatted with 1048576"), std::string::npos) << last_error_text();

  // A map of another volume, put on this device.
  take(formatted_sim_device(kDeviceBytes, kSmall));
  const RawHeader own = header();
  const SimImage other = formatted_sim_device(kDeviceBytes, kSmall);
  auto bytes = std::make_shared<std::vector<std::byte>>(*other.files.at(std::string(kSimDeviceName)));
  std::memcpy(bytes->data(), volume_->image().files.at(std::string(kSimDeviceName))->data(), 2 * kPageBytes);
  SimImage mixed;
  mixed.files[std::string(kSimDeviceName)] = bytes;
  take(mixed);
  ASSERT_EQ(header().device_id, own.device_id);
  EXPECT_ERROR(Errc::corrupt, read());
}

TEST_F(RawMapTest, ALaterVersionIsRefusedByName) {
  const AlignedBuffer page = must(AlignedBuffer::allocate(kPageBytes));
  EXPECT_OK(device_->read(0, page.span()));
  RawHeader later;
  std::memcpy(&later, page.data(), sizeof later);
  later.version = 7;
  later.checksum = checksum(std::as_bytes(std::span(&later, 1)).first(sizeof later - 8), kRawSeed);
  std::memcpy(page.data(), &later, sizeof later);
  for (const std::uint64_t offset : kRawHeaderOffsets) EXPECT_OK(device_->write(offset, page.span()));
  EXPECT_ERROR(Errc::incompatible, RawMapCopies::read_header(*device_));
  EXPECT_NE(last_error_text().find("version 7; this memlith reads version 1"), std::string::npos) << last_error_text();
}

TEST_F(RawMapTest, AFullMapRefusesAndChangesNothing) {
  RawMapCopies copies(header());
  must(copies.read(*device_));
  RawMap map = with_files({"log"});
  EXPECT_OK(copies.write(*device_, map, flush()));
  RawMap large = map;
  for (int i = 0; i < 300; ++i) large.files["objects/" + std::to_string(i)] = {large.next_number++, 0, {}};
  EXPECT_ERROR(Errc::no_space, copies.write(*device_, large, flush()));
  EXPECT_EQ(must(read()).files, map.files);
}

TEST_F(RawMapTest, TooSmallADeviceIsRefused) {
  EXPECT_OK(device_->truncate(64 * kKiB));
  EXPECT_ERROR(Errc::invalid, format_raw(*device_, kSmall));
}

// Whatever a power cut leaves, the device holds the volume of before, none, or the new one.
TEST_F(RawMapTest, AFormatThatIsCutOffLeavesNoVolume) {
  RawMapCopies copies(header());
  must(copies.read(*device_));
  RawMap map = with_files({"log"});
  EXPECT_OK(copies.write(*device_, map, flush()));
  const std::uint64_t old = header().device_id;
  take(volume_->image(), true);
  EXPECT_OK(format_raw(*device_, kSmall));
  const std::uint64_t fresh = header().device_id;
  const SimTrace trace = volume_->trace();
  Random random(11);
  std::size_t seen[3] = {};
  for (CrashPoints points(trace); points.next();) {
    for (int draw = 0; draw < 64; ++draw) {
      take(points.medium().cut([&](std::size_t) { return draw == 0 || (draw != 1 && random.one_in(2)); }));
      const auto found = RawMapCopies::read_header(*device_);
      if (!found.ok()) {
        ++seen[0];
        continue;
      }
      ASSERT_TRUE(found->device_id == old || found->device_id == fresh);
      const auto contents = RawMapCopies(*found).read(*device_);
      ASSERT_TRUE(contents.ok()) << last_error_text();
      ASSERT_EQ(contents->files.size(), found->device_id == old ? 1u : 0u);
      ++seen[found->device_id == old ? 1 : 2];
    }
  }
  EXPECT_TRUE(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
}

// Programs change the map, are killed at any operation, and the power is cut at any other: what was acknowledged is
// there, and so is what was begun last, or not.
TEST_F(RawMapTest, KillsAndPowerCutsLoseNothingAcknowledged) {
  constexpr int kRounds = 400;
  for (std::uint64_t seed = 1; seed <= kRounds; ++seed) {
    Random random(seed);
    take(formatted_sim_device(128 * kKiB, kSmall), true);
    RawMap acknowledged = must(RawMapCopies(header()).read(*device_));
    RawMap last = acknowledged;
    // In any life: what a killed program wrote is lost only with the power, and then any part of it may be.
    std::vector<RawMap> begun{acknowledged};
    for (int life = 0; life < 4; ++life) {
      const SimTrace before = volume_->trace();
      RawMapCopies copies(header());
      RawMap map = must(copies.read(*device_));
      // Nothing acknowledged is lost, and nothing else is made up.
      ASSERT_TRUE(map.files == acknowledged.files || map.files == last.files) << "seed " << seed;
      struct Done {
        std::size_t operations;
        RawMap map;
      };
      std::vector<Done> history{{volume_->operations(), acknowledged}};
      begun.push_back(map);
      for (std::uint64_t n = random.below(4); n-- > 0;) {
        const std::string name = "objects/" + std::to_string(random.below(3));
        if (map.files.erase(name) == 0) map.files[name] = {map.next_number++, 0, {}};
        begun.push_back(map);
        EXPECT_OK(copies.write(*device_, map, flush()));
        history.push_back({volume_->operations(), map});
      }
      const SimTrace trace = volume_->trace();
      const std::size_t cut = before.records.size() + random.below(trace.records.size() - before.records.size() + 1);
      for (const Done& done : history) {
        if (done.operations <= cut) acknowledged = done.map;
      }
      const SimMedium medium(trace, cut);
      const bool power_cut = random.one_in(2);
      const SimImage image = power_cut ? medium.cut([&](std::size_t) { return random.one_in(2); }) : SimImage{};
      std::unique_ptr<SimVolume> next =
          power_cut ? std::make_unique<SimVolume>(image, true) : std::make_unique<SimVolume>(trace, cut);
      device_ = nullptr;
      volume_ = std::move(next);
      device_ = must(volume_->open(kSimDeviceName, OpenMode::read_write, Caching::direct));
      const RawMap found = must(RawMapCopies(header()).read(*device_));
      const bool was_begun =
          std::any_of(begun.begin(), begun.end(), [&](const RawMap& each) { return each.files == found.files; });
      ASSERT_TRUE(found.files == acknowledged.files || was_begun) << "seed " << seed;
      ASSERT_GE(found.generation, acknowledged.generation) << "seed " << seed << ": an acknowledged change was lost";
      last = found;
    }
  }
}

// ---- extents ---------------------------------------------------------------------------------------------------

TEST_F(RawMapTest, FilesGrowInPlaceAndNeverOverlap) {
  const RawHeader own = header();
  Random random(5);
  RawMap map = with_files({"log", "objects/0", "objects/1", "objects/2"});
  for (int step = 0; step < 2000; ++step) {
    auto entry = map.files.begin();
    std::advance(entry, static_cast<std::ptrdiff_t>(random.below(map.files.size())));
    RawFileEntry& file = entry->second;
    const std::uint64_t bytes = random.below(400 * kKiB);
    const std::uint64_t free = map.free_bytes(own, {});
    const std::uint64_t room = file.room_bytes();
    if (bytes < file.size_bytes) {
      RawMap::cut(own, file, bytes);
    } else if (const Status status = map.make_room(own, file, bytes, {}); status.ok()) {
      file.size_bytes = bytes;
    } else {
      ASSERT_EQ(status.category, Errc::no_space);
      ASSERT_GT(bytes - std::min(bytes, room), free);
    }
    std::vector<RawExtent> all;
    std::uint64_t used = 0;
    for (const auto& [name, each] : map.files) {
      ASSERT_GE(each.room_bytes(), each.size_bytes);
      used += each.room_bytes();
      all.insert(all.end(), each.extents.begin(), each.extents.end());
    }
    std::sort(all.begin(), all.end(), [](const RawExtent& a, const RawExtent& b) { return a.offset < b.offset; });
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_GE(all[i].offset, raw_data_offset(own));
      ASSERT_LE(all[i].end(), kDeviceBytes);
      if (i > 0) {
        ASSERT_GE(all[i].offset, all[i - 1].end());
      }
    }
    ASSERT_EQ(map.free_bytes(own, {}) + used + raw_data_offset(own), kDeviceBytes);
  }
  // Alone on the device, a file of many growths is one extent.
  RawMap alone = with_files({"log"});
  for (std::uint64_t bytes = 4096; bytes < 400 * kKiB; bytes += 4096) {
    EXPECT_OK(alone.make_room(own, alone.files.at("log"), bytes, {}));
  }
  EXPECT_EQ(alone.files.at("log").extents.size(), 1u);
}

}  // namespace
}  // namespace memlith::test::raw_map_test
