// docs/guarantees.md, "Raw devices": files on a device without a file system behave as those of a folder; new bytes are
// zeros, whatever was there; a removed file's extents belong to no other file while it is open; one lock holds for the
// whole device; another process's changes are seen; a crash leaves every acknowledged change.
#include "device/raw_volume.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "base/host.hpp"
#include "base/random.hpp"
#include "sim/nvme_host.hpp"
#include "sim/power_cuts.hpp"
#include "support/expect.hpp"

namespace memlith::test::raw_volume_test {
namespace {

using namespace core;

constexpr std::uint64_t kDeviceBytes = 1 * kMiB;
constexpr RawFormat kSmall{4 * kKiB, kRawMapBytesMin};

std::vector<std::byte> filled(std::uint64_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
std::vector<std::byte> bytes_of(Device& device) {
  std::vector<std::byte> bytes(must(device.size()));
  EXPECT_OK(device.read(0, bytes));
  return bytes;
}
class RawVolumeTest : public ::testing::TestWithParam<bool> {
 protected:
  static bool by_commands() { return GetParam(); }
  static SimImage formatted(std::uint64_t bytes) {
    SimImage image = formatted_sim_device(bytes, kSmall);
    return by_commands() ? as_sim_namespace(std::move(image)) : image;
  }
  static std::unique_ptr<RawVolume> volume_on(SimVolume& disk) {
    return std::make_unique<RawVolume>(by_commands() ? make_sim_nvme_host(disk) : std::make_unique<SimRawHost>(disk));
  }
  std::unique_ptr<Device> create(std::string_view name, std::uint64_t bytes, int value) {
    auto device = must(volume_->open(name, OpenMode::create, Caching::buffered));
    EXPECT_OK(device->write(0, filled(bytes, value)));
    EXPECT_OK(device->flush());
    return device;
  }

  SimVolume disk_{formatted(kDeviceBytes)};
  std::unique_ptr<RawVolume> volume_ = volume_on(disk_);
};

TEST_P(RawVolumeTest, FilesAreCreatedRenamedListedAndRemoved) {
  create("log.new", 10000, 1);
  create("objects/0", 5000, 2);
  create("objects/12", 1, 3);
  EXPECT_ERROR(Errc::exists, volume_->open("objects/0", OpenMode::create, Caching::buffered));
  EXPECT_ERROR(Errc::not_found, volume_->open("objects/1", OpenMode::read_write, Caching::buffered));
  EXPECT_EQ(must(volume_->list("objects")), (std::vector<std::string>{"0", "12"}));
  EXPECT_EQ(must(volume_->list("")), (std::vector<std::string>{"log.new", "objects"}));
  EXPECT_OK(volume_->rename("log.new", "log"));
  EXPECT_FALSE(must(volume_->exists("log.new")));
  EXPECT_ERROR(Errc::not_found, volume_->rename("log.new", "log"));
  EXPECT_OK(volume_->remove("objects/12"));
  EXPECT_OK(volume_->remove("objects/12"));
  volume_ = volume_on(disk_);
  EXPECT_EQ(must(volume_->list("")), (std::vector<std::string>{"log", "objects"}));
  EXPECT_EQ(bytes_of(*must(volume_->open("log", OpenMode::read_only, Caching::buffered))), filled(10000, 1));
  EXPECT_ERROR(Errc::invalid, volume_->open(std::string(60, 'x'), OpenMode::create, Caching::buffered));
}

// Extents that fit the smaller pages of another kernel cannot be mapped by this one. The sentence says what to do.
TEST_P(RawVolumeTest, WhatThisKernelCannotMapIsRefused) {
  const auto device = create("a", 3 * kPageBytes, 1);
  const std::uint64_t before = host_page_bytes();
  assume_host_pages(kHostPageBytesMax);
  EXPECT_ERROR(Errc::unsupported, device->mappable(0, 3 * kPageBytes));
  EXPECT_NE(last_error_text().find("256 MiB or more"), std::string_view::npos) << last_error_text();
  assume_host_pages(kPageBytes);
  EXPECT_OK(device->mappable(0, 3 * kPageBytes));
  assume_host_pages(before);
}

TEST_P(RawVolumeTest, NewBytesAreZerosWhateverWasThere) {
  while (must(volume_->free_bytes()) > 0) {
    create("junk", std::min<std::uint64_t>(must(volume_->free_bytes()), 100000), 0xee);
    EXPECT_OK(volume_->rename("junk", "junk" + std::to_string(must(volume_->free_bytes()))));
  }
  for (const std::string& name : must(volume_->list(""))) EXPECT_OK(volume_->remove(name));
  const auto device = create("a", 5003, 7);
  EXPECT_OK(device->reserve(200000));
  std::vector<std::byte> wanted = filled(5003, 7);
  wanted.resize(200000);
  EXPECT_EQ(bytes_of(*device), wanted);
  EXPECT_OK(device->truncate(1234));
  EXPECT_OK(device->truncate(9000));
  wanted = filled(1234, 7);
  wanted.resize(9000);
  EXPECT_EQ(bytes_of(*device), wanted);
}

TEST_P(RawVolumeTest, TransfersCrossExtents) {
  const auto a = create("a", 4096, 1);
  const auto b = create("b", 4096, 2);
  std::uint64_t size = 4096;
  // Fragments: a growing file takes the space behind it, and then any.
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(volume_->open("wedge" + std::to_string(i), OpenMode::create, Caching::buffered).status());
    EXPECT_OK(must(volume_->open("wedge" + std::to_string(i), OpenMode::read_write, Caching::buffered))
                  ->reserve(30000));
  }
  for (int i = 0; i < 20; i += 2) EXPECT_OK(volume_->remove("wedge" + std::to_string(i)));
  size = 4096 + round_down(must(volume_->free_bytes()), kPageBytes);
  EXPECT_OK(a->reserve(size));
  if (host_page_bytes() == kPageBytes) {
    EXPECT_LT(must(a->mappable(0, size)).bytes, size) << "one extent only: this test shows nothing";
  }
  std::vector<std::byte> bytes(size);
  Random random(3);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
  const iovec pieces[] = {{bytes.data(), 10000}, {bytes.data() + 10000, size - 10000}};
  EXPECT_OK(a->write_pieces(0, pieces));
  EXPECT_EQ(bytes_of(*a), bytes);
  EXPECT_EQ(bytes_of(*b), filled(4096, 2));

  const auto direct = must(volume_->open("a", OpenMode::read_write, Caching::direct));
  const AlignedBuffer memory = must(AlignedBuffer::allocate(4 * 65536));
  {
    const auto queue = direct->make_queue(4);
    for (std::uint32_t n = 0; n < 4; ++n) {
      std::fill_n(memory.data() + n * 65536, 65536, static_cast<std::byte>(n + 1));
      EXPECT_OK(queue->write(n, n * 65536, {memory.data() + n * 65536, 65536}));
    }
    EXPECT_OK(queue->wait_all());
  }
  for (std::uint32_t n = 0; n < 4; ++n) std::fill_n(bytes.data() + n * 65536, 65536, static_cast<std::byte>(n + 1));
  EXPECT_EQ(bytes_of(*a), bytes);
  EXPECT_OK(a->discard(8192, 100 * kPageBytes));
  std::fill_n(bytes.data() + 8192, 100 * kPageBytes, std::byte{0});
  EXPECT_EQ(bytes_of(*a), bytes);
}

TEST_P(RawVolumeTest, ARemovedFileKeepsItsBytesWhileItIsOpen) {
  auto held = create("a", 300000, 1);
  const auto lock = must(volume_->lock("a", true));
  EXPECT_OK(volume_->remove("a"));
  EXPECT_TRUE(must(held->removed()));
  EXPECT_ERROR(Errc::not_found, held->reserve(400000));
  const std::uint64_t free = must(volume_->free_bytes());
  create("b", free, 2);
  EXPECT_EQ(bytes_of(*held), filled(300000, 1));
  EXPECT_ERROR(Errc::no_space, must(volume_->open("b", OpenMode::read_write, Caching::buffered))->reserve(free + 1));
  held = nullptr;
  EXPECT_EQ(must(volume_->free_bytes()), round_up(300000, 4096));
}

TEST_P(RawVolumeTest, NoSpaceDoesNotLatch) {
  const auto device = create("a", 1000, 1);
  EXPECT_ERROR(Errc::no_space, device->reserve(2 * kMiB));
  EXPECT_OK(device->reserve(500000));
  EXPECT_OK(device->write(0, filled(1000, 2)));
}

TEST_P(RawVolumeTest, OneLockHoldsForTheDevice) {
  create("log", 4096, 1);
  const auto other = volume_on(disk_);
  auto exclusive = must(volume_->lock("log", true));
  EXPECT_ERROR(Errc::busy, other->lock("log", false));
  EXPECT_ERROR(Errc::busy, other->open("new", OpenMode::create, Caching::buffered));
  EXPECT_ERROR(Errc::busy, volume_->lock("log", true));
  EXPECT_OK(volume_->open("mine", OpenMode::create, Caching::buffered));
  exclusive = nullptr;
  const auto shared = must(other->lock("log", false));
  EXPECT_ERROR(Errc::busy, volume_->lock("log", true));
  EXPECT_OK(volume_->lock("log", false));
  EXPECT_ERROR(Errc::not_found, volume_->lock("none", false));
}

TEST_P(RawVolumeTest, AReaderSeesWhatAnotherProcessChanges) {
  const auto file = create("a", 4096, 1);
  const auto other = volume_on(disk_);
  const auto seen = must(other->open("a", OpenMode::read_only, Caching::buffered));
  EXPECT_EQ(bytes_of(*seen), filled(4096, 1));
  const auto lock = must(volume_->lock("a", true));
  EXPECT_OK(file->write(0, filled(50000, 2)));
  EXPECT_EQ(bytes_of(*seen), filled(50000, 2));
  create("b", 10, 1);
  EXPECT_TRUE(must(other->exists("b")));
  EXPECT_OK(volume_->remove("a"));
  EXPECT_FALSE(must(other->exists("a")));
  EXPECT_TRUE(must(seen->removed()));
  std::vector<std::byte> rest(10);
  EXPECT_ERROR(Errc::not_found, seen->read(0, rest));
}

// A flush may lose another file's writes, made past the page cache or not.
TEST_P(RawVolumeTest, AFailedFlushOfOneFileIsTheEndOfAll) {
  create("log", 4096, 1);
  create("home", 4096, 1);
  const auto lock = must(volume_->lock("log", true));
  const auto log = must(volume_->open("log", OpenMode::read_write, Caching::direct));
  const auto home = must(volume_->open("home", OpenMode::read_write, Caching::buffered));
  const AlignedBuffer page = must(AlignedBuffer::allocate(kPageBytes));
  EXPECT_OK(log->write(0, page.span()));
  disk_.faults().plan(SimFaults::Kind::fail_flush, 0);
  EXPECT_ERROR(Errc::io, home->flush());
  EXPECT_ERROR(Errc::poisoned, log->flush());
}

TEST_P(RawVolumeTest, AFailedFlushOfTheMapEndsChanges) {
  create("a", 10, 1);
  auto lock = must(volume_->lock("a", true));
  disk_.faults().plan(SimFaults::Kind::fail_flush, 0);
  EXPECT_ERROR(Errc::io, volume_->rename("a", "b"));
  EXPECT_ERROR(Errc::poisoned, volume_->rename("a", "c"));
  lock = nullptr;
  volume_ = volume_on(disk_);
  EXPECT_OK(volume_->rename("a", "d"));
}

// Files are created, filled, grown, renamed over each other and removed; programs are killed, and the power is cut at
// any operation: what was acknowledged is there with its bytes, and what was not is as before or as wanted.
TEST_P(RawVolumeTest, CrashesLeaveEveryAcknowledgedChange) {
  std::uint64_t states = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    Random random(seed);
    SimVolume disk(formatted(256 * kKiB), true);
    using State = std::map<std::string, std::vector<std::byte>>;
    std::vector<std::pair<std::size_t, State>> history{{0, {}}};  // (operations by which it was acknowledged, state)
    {
      const auto volume = volume_on(disk);
      State state;
      for (int step = 0; step < 24; ++step) {
        const std::string name = "f" + std::to_string(random.below(3));
        const bool there = state.contains(name);
        if (!there) {
          EXPECT_OK(volume->open(name, OpenMode::create, Caching::buffered));
          state[name] = {};
        } else if (random.one_in(3)) {
          EXPECT_OK(volume->remove(name));
          state.erase(name);
        } else if (random.one_in(2)) {
          EXPECT_OK(volume->rename(name, "f9"));
          state["f9"] = state.at(name);
          state.erase(name);
        } else {
          const std::uint64_t size = random.below(30000);
          const auto device = must(volume->open(name, OpenMode::read_write, Caching::buffered));
          EXPECT_OK(device->truncate(size));
          state[name].resize(size);
          history.emplace_back(disk.operations(), state);
          if (size > 0) {
            state[name] = filled(size, 1 + step);
            EXPECT_OK(device->write(0, state[name]));
            EXPECT_OK(device->flush());
          }
        }
        history.emplace_back(disk.operations(), state);
      }
    }
    const SimTrace& trace = disk.trace();
    for (CrashPoints points(trace); points.next();) {
      const std::size_t at = points.at();
      for (int draw = 0; draw < 10; ++draw) {
        // All of what was not flushed, nothing, each half of the time, and nearly all of it.
        SimVolume after(points.medium().cut([&](std::size_t) {
          return draw == 0 || (draw != 1 && (draw < 4 ? random.one_in(2) : !random.one_in(8)));
        }));
        const auto volume = volume_on(after);
        State found;
        for (const std::string& name : must(volume->list(""))) {
          found[name] = bytes_of(*must(volume->open(name, OpenMode::read_only, Caching::buffered)));
        }
        std::size_t acknowledged = 0;
        while (acknowledged + 1 < history.size() && history[acknowledged + 1].first <= at) ++acknowledged;
        const State& before = history[acknowledged].second;
        const State& next = history[std::min(acknowledged + 1, history.size() - 1)].second;
        // Bytes under way may be either of two; names and lengths may not be anything else.
        const auto equal = [&](const State& wanted) {
          return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                            [&](const auto& a, const auto& b) {
                              if (a.first != b.first || a.second.size() != b.second.size()) return false;
                              if (a.second == b.second) return true;
                              const auto old = before.find(a.first);
                              const auto fresh = next.find(a.first);
                              if (old == before.end() || fresh == next.end() ||
                                  old->second.size() != fresh->second.size())
                                return false;
                              for (std::size_t i = 0; i < a.second.size(); ++i) {
                                if (a.second[i] != old->second[i] && a.second[i] != fresh->second[i]) return false;
                              }
                              return true;
                            });
        };
        ASSERT_TRUE(equal(before) || equal(next)) << "seed " << seed << ", cut after operation " << at << "\n"
                                                  << trace.describe(at);
        ++states;
      }
    }
  }
  EXPECT_GT(states, 5000u);
}

INSTANTIATE_TEST_SUITE_P(On, RawVolumeTest, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "ANamespace" : "ABlockDevice"; });

}  // namespace
}  // namespace memlith::test::raw_volume_test
