// docs/testing.md, "the simulated disk": it keeps exactly the promises of device.hpp and no others, or everything that
// is proved on it is proved of nothing. Flushed bytes survive every cut, unflushed ones any subset of cuts, names need
// a sync_folder, and faults that are planned fire and are counted.
#include "sim/sim.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <set>

#include "base/random.hpp"
#include "support/expect.hpp"

namespace memlith::test::sim_test {
namespace {

using namespace core;
using Kind = SimFaults::Kind;

std::vector<std::byte> filled(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

bool all(std::size_t) { return true; }
bool none(std::size_t) { return false; }

class Sim : public ::testing::Test {
 protected:
  std::unique_ptr<Device> create(const std::string& name) {
    return must(volume_.open(name, OpenMode::create, Caching::buffered));
  }
  // A file that is durable with its name.
  std::unique_ptr<Device> durable(const std::string& name, std::size_t count, int value) {
    auto device = create(name);
    EXPECT_OK(device->write(0, filled(count, value)));
    EXPECT_OK(device->flush());
    EXPECT_OK(volume_.sync_folder(""));
    return device;
  }
  SimImage cut(const std::function<bool(std::size_t)>& keep, std::size_t operations = ~std::size_t{0}) {
    SimMedium medium(volume_.trace());
    while (medium.position() < std::min(operations, volume_.operations())) medium.step();
    pending_ = medium.pending_count();
    return medium.cut(keep);
  }
  std::size_t pending_after_cut() {
    (void)cut(none);
    return pending_;
  }
  static std::vector<std::byte> bytes(const SimImage& image, const std::string& name) {
    const auto found = image.files.find(name);
    return found == image.files.end() ? std::vector<std::byte>() : *found->second;
  }
  static std::vector<std::byte> read(Device& device) {
    std::vector<std::byte> target(must(device.size()));
    EXPECT_OK(device.read(0, target));
    return target;
  }

  SimVolume volume_{{}, true};
  std::size_t pending_ = 0;
};

// A read returns what was last written, flushed or not, and nothing past the end.
TEST_F(Sim, ReadsWhatWasWritten) {
  auto device = create("a");
  ASSERT_OK(device->write(100, filled(1000, 3)));
  EXPECT_EQ(must(device->size()), 1100u);
  EXPECT_EQ(read(*device)[99], std::byte{0});
  EXPECT_EQ(read(*device)[100], std::byte{3});
  std::vector<std::byte> target(10);
  EXPECT_ERROR(Errc::corrupt, device->read(1095, target));
}

// A flushed write survives when everything that can be lost is lost.
TEST_F(Sim, FlushedBytesCannotBeLost) {
  (void)durable("a", 2000, 7);
  const SimImage image = cut(none);
  EXPECT_EQ(pending_, 0u);
  EXPECT_EQ(bytes(image, "a"), filled(2000, 7));
}

// An unflushed write of n sectors may leave any of 2^n contents: kept, lost, or torn between any two sectors.
TEST_F(Sim, UnflushedSectorsAreKeptOrLostOneByOne) {
  auto device = durable("a", 4 * kSimSectorBytes, 1);
  ASSERT_OK(device->write(512, filled(3 * kSimSectorBytes, 2)));
  std::set<std::vector<std::byte>> states;
  for (unsigned mask = 0; mask < 8; ++mask) {
    const auto content = bytes(cut([mask](std::size_t i) { return (mask >> i & 1) != 0; }), "a");
    ASSERT_EQ(pending_, 3u);
    ASSERT_EQ(content.size(), 4 * kSimSectorBytes);
    EXPECT_EQ(content[0], std::byte{1});
    for (unsigned sector = 0; sector < 3; ++sector) {
      EXPECT_EQ(content[(sector + 1) * 512], (mask >> sector & 1) != 0 ? std::byte{2} : std::byte{1});
    }
    states.insert(content);
  }
  EXPECT_EQ(states.size(), 8u);
}

// A write that begins and ends inside sectors tears at the sectors' borders, not at its own.
TEST_F(Sim, TearsAtSectorBorders) {
  auto device = durable("a", 2048, 1);
  ASSERT_OK(device->write(500, filled(100, 2)));
  const auto second_lost = bytes(cut([](std::size_t i) { return i == 0; }), "a");
  ASSERT_EQ(pending_, 2u);
  EXPECT_EQ(second_lost[511], std::byte{2});
  EXPECT_EQ(second_lost[512], std::byte{1});
}

// On a byte-addressable medium the words of a write are kept or lost one by one until the fence that ends the write; a
// word that stays as it was is no item.
TEST(SimLinesMedium, WordsAreKeptOrLostUntilTheFence) {
  SimImage start;
  start.lines = true;
  start.files["a"] = std::make_shared<std::vector<std::byte>>(filled(256, 1));
  SimVolume volume(start, true);
  auto device = must(volume.open("a", OpenMode::read_write, Caching::direct));
  EXPECT_EQ(device->caps().log_block_bytes, 64u);
  ASSERT_OK(device->write(60, filled(20, 2)));  // the half of one word, two words
  ASSERT_OK(device->flush());
  ASSERT_OK(device->write(200, filled(8, 3)));
  const SimTrace& trace = volume.trace();
  ASSERT_GE(trace.records.size(), 4u);
  SimMedium medium(trace);
  medium.step();
  ASSERT_EQ(medium.pending_count(), 3u);
  std::set<std::vector<std::byte>> states;
  for (unsigned mask = 0; mask < 8; ++mask) {
    const SimImage image = medium.cut([mask](std::size_t i) { return (mask >> i & 1) != 0; });
    EXPECT_TRUE(image.lines);
    const auto& content = *image.files.at("a");
    ASSERT_EQ(content.size(), 256u);
    EXPECT_EQ(content[59], std::byte{1});
    EXPECT_EQ(content[60], (mask & 1) != 0 ? std::byte{2} : std::byte{1});
    EXPECT_EQ(content[79], (mask & 4) != 0 ? std::byte{2} : std::byte{1});
    EXPECT_EQ(content[80], std::byte{1});
    states.insert(content);
  }
  EXPECT_EQ(states.size(), 8u);
  medium.step();
  EXPECT_EQ(trace.records[1].op, SimOp::flush);
  EXPECT_EQ(medium.pending_count(), 0u);
}

// A flush covers its own file and no other.
TEST_F(Sim, FlushCoversOneFile) {
  auto a = durable("a", 512, 1);
  auto b = durable("b", 512, 1);
  ASSERT_OK(a->write(0, filled(512, 2)));
  ASSERT_OK(b->write(0, filled(512, 2)));
  ASSERT_OK(a->flush());
  const SimImage image = cut(none);
  EXPECT_EQ(bytes(image, "a"), filled(512, 2));
  EXPECT_EQ(bytes(image, "b"), filled(512, 1));
}

// Unflushed writes reach the medium in any order: the later one without the earlier one is possible.
TEST_F(Sim, LaterWriteWithoutEarlierOne) {
  auto device = durable("a", 1024, 1);
  ASSERT_OK(device->write(0, filled(512, 2)));
  ASSERT_OK(device->write(512, filled(512, 3)));
  const auto content = bytes(cut([](std::size_t i) { return i == 1; }), "a");
  EXPECT_EQ(content[0], std::byte{1});
  EXPECT_EQ(content[512], std::byte{3});
}

// A name is durable with the sync_folder of its own folder, not with a flush of the file.
TEST_F(Sim, NamesNeedSyncFolder) {
  auto device = create("objects/a");
  ASSERT_OK(device->write(0, filled(10, 1)));
  ASSERT_OK(device->flush());
  EXPECT_FALSE(cut(none).files.contains("objects/a"));
  ASSERT_OK(volume_.sync_folder(""));
  EXPECT_FALSE(cut(none).files.contains("objects/a")) << "synced another folder";
  ASSERT_OK(volume_.sync_folder("objects"));
  EXPECT_EQ(bytes(cut(none), "objects/a"), filled(10, 1));
}

// A rename may be lost or kept as one, never both names or neither; after sync_folder it stays.
TEST_F(Sim, RenameIsOneThing) {
  (void)durable("a", 10, 1);
  ASSERT_OK(volume_.rename("a", "b"));
  const SimImage lost = cut(none);
  const SimImage kept = cut(all);
  EXPECT_TRUE(lost.files.contains("a") && !lost.files.contains("b"));
  EXPECT_TRUE(kept.files.contains("b") && !kept.files.contains("a"));
  ASSERT_OK(volume_.sync_folder(""));
  EXPECT_TRUE(cut(none).files.contains("b"));
}

// A rename over a file that is there replaces it, as in POSIX.
TEST_F(Sim, RenameReplaces) {
  (void)durable("a", 10, 1);
  (void)durable("b", 10, 2);
  ASSERT_OK(volume_.rename("a", "b"));
  EXPECT_EQ(bytes(volume_.image(), "b"), filled(10, 1));
  EXPECT_EQ(bytes(cut(none), "b"), filled(10, 2));
  EXPECT_EQ(bytes(cut(all), "b"), filled(10, 1));
}

// A removal may be undone by a crash until the folder is synced; an open file outlives its name.
TEST_F(Sim, RemovalNeedsSyncFolder) {
  auto device = durable("a", 10, 1);
  ASSERT_OK(volume_.remove("a"));
  EXPECT_EQ(read(*device), filled(10, 1));
  EXPECT_FALSE(must(volume_.exists("a")));
  EXPECT_TRUE(cut(none).files.contains("a"));
  EXPECT_FALSE(cut(all).files.contains("a"));
  ASSERT_OK(volume_.sync_folder(""));
  EXPECT_FALSE(cut(none).files.contains("a"));
}

// A folder is durable once it is made; where that failed, all that is in it may be lost with it.
TEST_F(Sim, FoldersAreMadeDurable) {
  volume_.faults().plan(Kind::fail_folder, 0);
  EXPECT_ERROR(Errc::io, volume_.make_folder("objects"));
  EXPECT_TRUE(must(volume_.exists("objects")));
  EXPECT_EQ(must(volume_.list("")), (std::vector<std::string>{"objects"}));
  auto device = create("objects/a");
  ASSERT_OK(device->write(0, filled(10, 1)));
  ASSERT_OK(device->flush());
  ASSERT_OK(volume_.sync_folder("objects"));
  EXPECT_FALSE(cut(none).files.contains("objects/a"));
  EXPECT_EQ(bytes(cut(all), "objects/a"), filled(10, 1));
  ASSERT_OK(volume_.make_folder("objects"));
  EXPECT_EQ(bytes(cut(none), "objects/a"), filled(10, 1));
}

// A growth that is lost takes the writes into the grown part with it.
TEST_F(Sim, LostGrowthLosesWhatWasWrittenThere) {
  auto device = durable("a", 512, 1);
  ASSERT_OK(device->reserve(1024));
  ASSERT_OK(device->write(512, filled(512, 2)));
  EXPECT_EQ(bytes(cut([](std::size_t i) { return i == 1; }), "a"), filled(512, 1));
  const auto grown = bytes(cut([](std::size_t i) { return i == 0; }), "a");
  EXPECT_EQ(grown.size(), 1024u);
  EXPECT_EQ(grown[600], std::byte{0});
}

// A truncation is pending like any change of length.
TEST_F(Sim, TruncationMayBeLost) {
  auto device = durable("a", 1024, 1);
  ASSERT_OK(device->truncate(100));
  EXPECT_EQ(bytes(cut(none), "a").size(), 1024u);
  EXPECT_EQ(bytes(cut(all), "a").size(), 100u);
  ASSERT_OK(device->flush());
  EXPECT_EQ(bytes(cut(none), "a").size(), 100u);
}

// A random history: keeping everything gives what the volume shows, keeping nothing gives what was flushed, at every
// step.
TEST_F(Sim, CutsAgreeWithTheVolumeAtEveryOperation) {
  Random random(17);
  std::vector<SimImage> shown;
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 3; ++i) devices.push_back(create("f" + std::to_string(i)));
  while (shown.size() < volume_.operations()) shown.emplace_back();  // of the creations: not compared
  for (int step = 0; step < 300; ++step) {
    Device& device = *devices[random.below(3)];
    switch (random.below(6)) {
      case 0: ASSERT_OK(device.flush()); break;
      case 1: ASSERT_OK(device.reserve(random.below(8000))); break;
      case 2: ASSERT_OK(device.truncate(random.below(8000))); break;
      default:
        ASSERT_OK(device.write(random.below(6000),
                               filled(1 + random.below(3000), static_cast<int>(random.below(256)))));
    }
    while (shown.size() < volume_.operations()) shown.push_back(volume_.image());
  }
  SimMedium medium(volume_.trace());
  while (medium.position() < volume_.operations()) {
    medium.step();
    const SimImage& expected = shown[medium.position() - 1];
    if (expected.files.empty()) continue;
    ASSERT_EQ(medium.cut(all).hash(), expected.hash()) << "after operation " << medium.position();
  }
}

// An image can be booted from, and what is written to the new volume does not reach the image.
TEST_F(Sim, ImagesAreFrozen) {
  (void)durable("a", 512, 1);
  const SimImage image = cut(none);
  const std::uint64_t before = image.hash();
  SimVolume next(image);
  auto device = must(next.open("a", OpenMode::read_write, Caching::direct));
  EXPECT_EQ(device->caps().block_bytes, kSimSectorBytes);
  ASSERT_OK(device->write(0, filled(512, 9)));
  EXPECT_EQ(image.hash(), before);
  EXPECT_NE(next.image().hash(), before);
  EXPECT_EQ(bytes(volume_.image(), "a"), filled(512, 1));
}

// A recorded volume that starts from an image replays from it.
TEST_F(Sim, TracesStartFromTheirImage) {
  (void)durable("a", 512, 1);
  SimVolume next(cut(none), true);
  auto device = must(next.open("a", OpenMode::read_write, Caching::buffered));
  ASSERT_OK(device->write(0, filled(512, 2)));
  SimMedium medium(next.trace());
  medium.step();
  EXPECT_EQ(bytes(medium.cut(none), "a"), filled(512, 1));
  EXPECT_EQ(bytes(medium.cut(all), "a"), filled(512, 2));
}

// Each kind of fault strikes the planned operation, once, and is counted.
TEST_F(Sim, FaultsFireOnceAndAreCounted) {
  struct Row {
    Kind kind;
    std::function<Status(Device&, int)> act;
    Errc expected;
  };
  std::vector<std::byte> target(512);
  const Row rows[] = {
      {Kind::fail_write, [](Device& d, int) { return d.write(0, filled(512, 2)); }, Errc::io},
      {Kind::short_write, [](Device& d, int) { return d.write(0, filled(1024, 2)); }, Errc::io},
      {Kind::fail_flush, [](Device& d, int) { return d.flush(); }, Errc::io},
      {Kind::fail_read, [&](Device& d, int) { return d.read(0, target); }, Errc::io},
      {Kind::no_space, [](Device& d, int i) { return d.reserve(static_cast<std::uint64_t>(i + 10) * 1024); },
       Errc::no_space},
      {Kind::fail_resize, [](Device& d, int i) { return d.truncate(static_cast<std::uint64_t>(i + 1) * 1024); },
       Errc::io},
      {Kind::full_write, [](Device& d, int) { return d.write(0, filled(512, 2)); }, Errc::io},
      {Kind::fail_folder, [this](Device&, int) { return volume_.sync_folder(""); }, Errc::io},
      {Kind::fail_name, [this](Device&, int i) { return volume_.rename(i == 0 ? "f8" : "g", i == 0 ? "g" : "h"); },
       Errc::io},
  };
  int number = 0;
  for (const Row& row : rows) {
    auto device = durable("f" + std::to_string(number++), 1024, 1);
    volume_.faults().plan(row.kind, 1);
    EXPECT_OK(row.act(*device, 0)) << number;
    EXPECT_EQ(volume_.faults().fired(row.kind), 0u);
    EXPECT_ERROR(row.expected, row.act(*device, 1)) << number;
    EXPECT_EQ(volume_.faults().fired(row.kind), 1u);
    (void)row.act(*device, 2);
    EXPECT_EQ(volume_.faults().fired(row.kind), 1u) << "fired twice";
  }
  EXPECT_EQ(volume_.faults().planned(), std::size(rows));
}

// A call may fail and have done its work; the caller cannot tell.
TEST_F(Sim, FailedCallsMayHaveBeenDone) {
  for (const bool done : {false, true}) {
    volume_.faults().done_nevertheless = done;
    const std::string name = done ? "done" : "not";
    auto device = durable(name, 1024, 1);
    volume_.faults().plan(Kind::fail_resize, 0);
    EXPECT_ERROR(Errc::io, device->truncate(100));
    EXPECT_EQ(must(device->size()), done ? 100u : 1024u);
    volume_.faults().plan(Kind::fail_name, 0);
    EXPECT_ERROR(Errc::io, volume_.rename(name, name + " renamed"));
    EXPECT_EQ(must(volume_.exists(name + " renamed")), done);
    (void)create(name + " removed");
    volume_.faults().plan(Kind::fail_name, 0);
    EXPECT_ERROR(Errc::io, volume_.remove(name + " removed"));
    EXPECT_EQ(must(volume_.exists(name + " removed")), !done);
    (void)create(name + " synced");
    volume_.faults().plan(Kind::fail_folder, 0);
    EXPECT_ERROR(Errc::io, volume_.sync_folder(""));
    EXPECT_EQ(cut(none).files.contains(name + " synced"), done);
    auto full = durable(name + " full", 1024, 1);
    volume_.faults().plan(Kind::full_write, 0);
    EXPECT_ERROR(Errc::io, full->write(0, filled(1024, 2)));
    EXPECT_EQ(read(*full)[0], std::byte{static_cast<unsigned char>(done ? 2 : 1)});
    EXPECT_EQ(read(*full)[512], std::byte{1});
  }
}

// A transfer happens when it is waited for, from what the memory holds then.
TEST_F(Sim, TransfersHappenWhenTheyAreWaitedFor) {
  auto device = durable("a", 2048, 1);
  const auto queue = device->make_queue(4);
  auto source = filled(512, 2);
  ASSERT_OK(queue->write(0, 0, source));
  EXPECT_EQ(read(*device), filled(2048, 1));
  std::fill(source.begin(), source.end(), std::byte{3});
  ASSERT_OK(device->flush());
  ASSERT_OK(queue->wait(0));
  EXPECT_EQ(read(*device)[0], std::byte{3});
  EXPECT_EQ(pending_after_cut(), 1u) << "the flush came too early";
  std::vector<std::byte> target(512);
  ASSERT_OK(queue->read(1, 512, target));
  EXPECT_NE(target[0], std::byte{1}) << "no wait came for it";
  ASSERT_OK(queue->wait_all());
  EXPECT_EQ(target, filled(512, 1));
}

// A transfer is waited for before its number is used again; a transfer that is never waited for never happens; a
// failure is returned by the wait.
TEST_F(Sim, QueuesKeepTheirSlots) {
  auto device = durable("a", 2048, 1);
  const auto first = filled(512, 2);
  const auto second = filled(512, 3);
  {
    const auto queue = device->make_queue(2);
    ASSERT_OK(queue->write(0, 0, first));
    ASSERT_OK(queue->write(0, 512, second));
    EXPECT_EQ(read(*device)[0], std::byte{2});
  }
  EXPECT_EQ(read(*device)[512], std::byte{1});
  const auto queue = device->make_queue(2);
  volume_.faults().plan(Kind::fail_write, 0);
  ASSERT_OK(queue->write(0, 0, second));
  ASSERT_OK(queue->write(1, 512, second));
  EXPECT_ERROR(Errc::io, queue->wait(0));
  EXPECT_ERROR(Errc::poisoned, queue->wait(1));
  EXPECT_OK(queue->wait_all());
}

// A fault planned for ever goes on until it is cleared.
TEST_F(Sim, FaultsForEver) {
  auto device = durable("a", 512, 1);
  std::vector<std::byte> target(512);
  volume_.faults().plan(Kind::fail_read, 0, true);
  for (int i = 0; i < 3; ++i) EXPECT_ERROR(Errc::io, device->read(0, target));
  volume_.faults().clear();
  EXPECT_OK(device->read(0, target));
  EXPECT_EQ(volume_.faults().fired(Kind::fail_read), 3u);
}

// A failed write writes nothing, a short one a part; both latch the device.
TEST_F(Sim, FailedAndShortWrites) {
  auto failed = durable("a", 1024, 1);
  volume_.faults().plan(Kind::fail_write, 0);
  EXPECT_ERROR(Errc::io, failed->write(0, filled(1024, 2)));
  EXPECT_EQ(read(*failed), filled(1024, 1));
  EXPECT_ERROR(Errc::poisoned, failed->flush());
  auto cut_short = durable("b", 1024, 1);
  volume_.faults().plan(Kind::short_write, 0);
  EXPECT_ERROR(Errc::io, cut_short->write(0, filled(1024, 2)));
  EXPECT_EQ(read(*cut_short)[511], std::byte{2});
  EXPECT_EQ(read(*cut_short)[512], std::byte{1});
  EXPECT_TRUE(cut_short->latched());
}

// A failed flush loses what was unflushed at once, as Linux may, and latches.
TEST_F(Sim, FailedFlushLosesTheWrites) {
  auto device = durable("a", 1024, 1);
  ASSERT_OK(device->write(0, filled(2048, 2)));
  volume_.faults().plan(Kind::fail_flush, 0);
  EXPECT_ERROR(Errc::io, device->flush());
  EXPECT_EQ(read(*device), filled(1024, 1));
  EXPECT_ERROR(Errc::poisoned, device->flush());
}

// After any changes, a failed flush leaves what a power cut keeps; the two are computed apart.
TEST_F(Sim, FailedFlushLeavesWhatAPowerCutKeeps) {
  constexpr std::uint64_t kSectors = 12;
  SimImage image;
  image.forced_unit_access = true;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SimVolume volume(image, true);
    Random random(seed);
    const auto device = must(volume.open("a", OpenMode::create, Caching::direct));
    ASSERT_OK(volume.sync_folder(""));
    bool truncated = false;  // since the last flush; the medium takes a later write_through() back with that flush
    for (int step = 1; step <= 12; ++step) {
      const std::uint64_t first = random.below(kSectors);
      const std::uint64_t count = 1 + random.below(kSectors - first);
      auto content = filled(count * kSimSectorBytes, step);
      const iovec piece{content.data(), content.size()};
      switch (random.below(6)) {
        case 0:
          if (truncated) break;
          ASSERT_OK(device->write_through(first * kSimSectorBytes, {&piece, 1}));
          break;
        case 1:
          ASSERT_OK(device->truncate(first * kSimSectorBytes));
          truncated = true;
          break;
        case 2: ASSERT_OK(device->reserve((first + count) * kSimSectorBytes)); break;
        case 3:
          ASSERT_OK(device->flush());
          truncated = false;
          break;
        default: ASSERT_OK(device->write(first * kSimSectorBytes, content)); break;
      }
    }
    SimMedium medium(volume.trace());
    while (medium.position() < volume.operations()) medium.step();
    const SimImage kept = medium.cut(none);
    volume.faults().plan(Kind::fail_flush, 0);
    EXPECT_ERROR(Errc::io, device->flush());
    const std::string story = "seed " + std::to_string(seed) + "\n" + volume.trace().describe(~std::size_t{0});
    ASSERT_TRUE(read(*device) == bytes(kept, "a")) << story;
    ASSERT_TRUE(*SimVolume(volume.trace(), volume.operations()).image().files.at("a") == bytes(kept, "a")) << story;
  }
}

// A rotten read gives one other bit, without an error.
TEST_F(Sim, FlippedBit) {
  auto device = durable("a", 512, 1);
  volume_.faults().plan(Kind::flip_bit, 0);
  const auto rotten = read(*device);
  int differing = 0;
  for (const std::byte b : rotten) differing += std::popcount(static_cast<unsigned>(b ^ std::byte{1}));
  EXPECT_EQ(differing, 1);
  EXPECT_EQ(read(*device), filled(512, 1));
}

// Writes show through a mapping of the file, as they do in the page cache, and its growth too.
TEST_F(Sim, MappingsSeeWrites) {
  auto device = durable("a", 4096, 1);
  const int descriptor = must(device->mappable(0, 4096)).descriptor;
  ASSERT_OK(device->write(100, filled(10, 5)));
  ASSERT_OK(device->reserve(8192));
  ASSERT_OK(device->write(8000, filled(10, 6)));
  std::byte mirrored[8192];
  ASSERT_EQ(::pread(descriptor, mirrored, sizeof mirrored, 0), 8192);
  EXPECT_EQ(mirrored[99], std::byte{1});
  EXPECT_EQ(mirrored[100], std::byte{5});
  EXPECT_EQ(mirrored[8000], std::byte{6});
}

// Locks conflict as on a real volume.
TEST_F(Sim, LocksConflict) {
  (void)create("a");
  {
    auto writer = must(volume_.lock("a", true));
    EXPECT_ERROR(Errc::busy, volume_.lock("a", true));
    EXPECT_ERROR(Errc::busy, volume_.lock("a", false));
  }
  auto one = must(volume_.lock("a", false));
  auto two = must(volume_.lock("a", false));
  EXPECT_ERROR(Errc::busy, volume_.lock("a", true));
  one = nullptr;
  two = nullptr;
  EXPECT_OK(volume_.lock("a", true));
}

// A lock is on the file, not on its name: it follows a rename, as flock does.
TEST_F(Sim, LocksFollowRenames) {
  (void)create("a");
  auto lock = must(volume_.lock("a", true));
  ASSERT_OK(volume_.rename("a", "b"));
  EXPECT_ERROR(Errc::busy, volume_.lock("b", true));
  (void)create("a");
  EXPECT_OK(volume_.lock("a", true)) << "another file under the old name";
  lock = nullptr;
  EXPECT_OK(volume_.lock("b", true));
}

// Names list by folder, folders once each.
TEST_F(Sim, Lists) {
  for (const char* name : {"log", "objects/0", "objects/1"}) (void)create(name);
  EXPECT_EQ(must(volume_.list("objects")), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(must(volume_.list("")), (std::vector<std::string>{"log", "objects"}));
  EXPECT_TRUE(must(volume_.exists("objects")));
  EXPECT_FALSE(must(volume_.exists("obj")));
}

// Every operation is written down once, and can be shown to a person.
TEST_F(Sim, OperationsAreWrittenDown) {
  auto device = create("a");
  ASSERT_OK(device->write(0, filled(10, 1)));
  ASSERT_OK(device->flush());
  EXPECT_EQ(volume_.operations(), 3u);
  EXPECT_NE(volume_.trace().describe(3).find("flush"), std::string::npos);
}

}  // namespace
}  // namespace memlith::test::sim_test
