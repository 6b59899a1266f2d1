// An NVMe namespace as a device (device/nvme.hpp, nvme_device.hpp), over simulated commands: what it says of itself is
// read right; writes of any bytes leave their neighbours; a forced write is one command; mappings show what is written;
// failures are told in a sentence and latch.
#include "device/nvme.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "device/nvme_device.hpp"
#include "sim/nvme_host.hpp"
#include "support/expect.hpp"

namespace memlith::test::nvme_test {
namespace {

using namespace core;

constexpr std::uint64_t kBytes = 256 * kKiB;

using Structure = std::array<std::byte, kNvmeIdentifyBytes>;

template <class T>
void put(Structure& structure, std::size_t offset, T value) {
  std::memcpy(structure.data() + offset, &value, sizeof value);
}

TEST(NvmeIdentity, IsRead) {
  Structure controller{};
  Structure name_space{};
  put<std::uint8_t>(controller, 77, 5);  // 32 pages a command
  put<std::uint16_t>(controller, 520, 1 << 3);
  put<std::uint8_t>(controller, 525, 1);
  put<std::uint16_t>(controller, 528, 7);  // 8 blocks
  put<std::uint64_t>(name_space, 0, 1000);
  put<std::uint8_t>(name_space, 24, 1 << 4);
  put<std::uint8_t>(name_space, 26, 1);
  put<std::uint8_t>(name_space, 33, 1 | 1 << 3);
  put<std::uint16_t>(name_space, 64, 3);
  put<std::uint8_t>(name_space, 128 + 2, 9);
  put<std::uint8_t>(name_space, 132 + 2, 12);
  const NvmeFacts facts = must(read_nvme_identity(controller, name_space, "ng"));
  EXPECT_EQ(facts.block_bytes, 4096u);
  EXPECT_EQ(facts.bytes, 1000u * 4096);
  EXPECT_EQ(facts.physical_bytes, 4 * 4096u);
  EXPECT_EQ(facts.atomic_bytes, 8 * 4096u);
  EXPECT_EQ(facts.transfer_bytes_max, 32 * kPageBytes);
  EXPECT_EQ(facts.zeroes_bytes_max, 65536 * std::uint64_t{4096});
  EXPECT_TRUE(facts.has_cache);
  EXPECT_TRUE(facts.deallocates);

  // A namespace's own unit counts, and with a boundary only a block does.
  put<std::uint8_t>(name_space, 24, 1 << 1);
  put<std::uint16_t>(name_space, 36, 1);
  EXPECT_EQ(must(read_nvme_identity(controller, name_space, "ng")).atomic_bytes, 2 * 4096u);
  put<std::uint16_t>(name_space, 44, 15);
  EXPECT_EQ(must(read_nvme_identity(controller, name_space, "ng")).atomic_bytes, 4096u);

  put<std::uint8_t>(controller, 77, 0);
  put<std::uint8_t>(controller, 525, 0);
  put<std::uint16_t>(controller, 520, 0);
  put<std::uint8_t>(name_space, 26, 0);
  const NvmeFacts plain = must(read_nvme_identity(controller, name_space, "ng"));
  EXPECT_EQ(plain.block_bytes, 512u);
  EXPECT_EQ(plain.transfer_bytes_max, 1 * kMiB);
  EXPECT_EQ(plain.zeroes_bytes_max, 0u);
  EXPECT_FALSE(plain.has_cache);
}

TEST(NvmeIdentity, BlocksThatCannotBeUsedAreRefused) {
  const Structure controller{};
  Structure name_space{};
  put<std::uint8_t>(name_space, 128 + 2, 9);
  put<std::uint16_t>(name_space, 128, 8);
  EXPECT_ERROR(Errc::unsupported, read_nvme_identity(controller, name_space, "ng"));
  put<std::uint16_t>(name_space, 128, 0);
  put<std::uint8_t>(name_space, 128 + 2, 13);
  EXPECT_ERROR(Errc::unsupported, read_nvme_identity(controller, name_space, "ng"));
}

std::string sentence(NvmeOp op, NvmeOutcome outcome) {
  EXPECT_FALSE(nvme_failure({.op = op, .offset = 4096, .bytes = 512}, outcome, "/dev/ng0n1").ok());
  return std::string(last_error_text());
}

TEST(NvmeFailure, IsASentence) {
  EXPECT_EQ(sentence(NvmeOp::read, 0x4281),
            "/dev/ng0n1: the read of 512 bytes at offset 4096 failed: the medium cannot be read (NVMe status 0x281)");
  EXPECT_NE(sentence(NvmeOp::write, 0x1f0).find("NVMe status 0x1f0"), std::string::npos);
  EXPECT_NE(sentence(NvmeOp::flush, 0x00b).find("does not exist any more"), std::string::npos);
  EXPECT_NE(sentence(NvmeOp::write, -ENODEV).find("the namespace is gone"), std::string::npos);
  EXPECT_NE(sentence(NvmeOp::write, -EINTR).find("whether it was done is not known"), std::string::npos);
  EXPECT_NE(sentence(NvmeOp::read, -EACCES).find("CAP_SYS_ADMIN"), std::string::npos);
}

// Counts commands, and lets all of them fail from one on.
class Watched final : public NvmeCommands {
 public:
  explicit Watched(std::unique_ptr<NvmeCommands> commands) : commands_(std::move(commands)), own_(commands_->facts()) {}
  [[nodiscard]] const NvmeFacts& facts() const override { return own_; }
  [[nodiscard]] std::string name() const override { return commands_->name(); }
  [[nodiscard]] FileIdentity identity() const override { return commands_->identity(); }
  [[nodiscard]] IoBackend io() const override { return commands_->io(); }
  NvmeOutcome run(const NvmeCommand& command) override {
    seen.push_back(command.op);
    forced += command.forced ? 1 : 0;
    return outcome != 0 ? outcome : commands_->run(command);
  }
  std::unique_ptr<NvmeQueue> make_queue(std::uint32_t depth) override { return commands_->make_queue(depth); }
  void set_facts(const NvmeFacts& facts) { own_ = facts; }

  std::vector<NvmeOp> seen;
  int forced = 0;
  NvmeOutcome outcome = 0;

 private:
  std::unique_ptr<NvmeCommands> commands_;
  NvmeFacts own_;
};

SimImage image_with_namespace() {
  SimImage image;
  image.files[std::string(kSimDeviceName)] = std::make_shared<const std::vector<std::byte>>(kBytes);
  return as_sim_namespace(std::move(image));
}

class NvmeDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device(Caching caching) { return make_nvme_device(commands_, shared_, "ng9n1", caching); }

  SimVolume volume_{image_with_namespace()};
  std::shared_ptr<Watched> commands_ = std::make_shared<Watched>(must(SimNvme::open(volume_, true)));
  std::shared_ptr<NvmeShared> shared_ = std::make_shared<NvmeShared>("ng9n1");
};

std::vector<std::byte> bytes_of(Device& device) {
  std::vector<std::byte> bytes(must(device.size()));
  EXPECT_OK(device.read(0, bytes));
  return bytes;
}

// Writes of any bytes, in pieces, through a queue or not, zeros, and reads of any bytes: beside a model. Some of it is
// mapped, and the mapping shows the same.
TEST_F(NvmeDeviceTest, HoldsWhatWasWrittenWhereverItBegins) {
  const auto buffered = device(Caching::buffered);
  std::vector<std::byte> model(kBytes);
  constexpr std::uint64_t kMappedAt = 16 * kKiB;
  constexpr std::uint64_t kMapped = 128 * kKiB;
  const Mappable content = must(buffered->mappable(kMappedAt, kMapped));
  EXPECT_EQ(content.bytes, kMapped);
  auto* const mapped = static_cast<std::byte*>(::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                                                      content.descriptor, static_cast<off_t>(content.offset)));
  ASSERT_NE(mapped, MAP_FAILED);
  const auto queue = buffered->make_queue(3);
  Random random(7);
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t most = random.one_in(4) ? 40000 : 1500;
    std::uint64_t offset = random.below(kBytes - most);
    std::uint64_t bytes = 1 + random.below(most - 1);
    if (random.one_in(3)) offset = round_down(offset, 512), bytes = round_up(bytes, 512);
    std::vector<std::byte> source(bytes);
    for (std::byte& each : source) each = static_cast<std::byte>(random.next());
    switch (random.below(4)) {
      case 0: {
        offset = round_down(offset, kPageBytes);
        bytes = std::min(round_up(bytes, kPageBytes), kBytes - offset);
        source.assign(bytes, std::byte{0});
        EXPECT_OK(buffered->discard(offset, bytes));
        break;
      }
      case 1:
        EXPECT_OK(queue->write(static_cast<std::uint32_t>(round % 3), offset, source));
        EXPECT_OK(queue->wait_all());
        break;
      default: {
        const std::uint64_t first = random.below(bytes);
        const iovec pieces[] = {{source.data(), first}, {source.data() + first, bytes - first}};
        EXPECT_OK(buffered->write_pieces(offset, pieces));
      }
    }
    std::copy(source.begin(), source.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    std::vector<std::byte> found(1 + random.below(5000));
    const std::uint64_t at = random.below(kBytes - found.size());
    EXPECT_OK(buffered->read(at, found));
    ASSERT_EQ(std::memcmp(found.data(), model.data() + at, found.size()), 0) << "round " << round;
    ASSERT_EQ(std::memcmp(mapped, model.data() + kMappedAt, kMapped), 0) << "round " << round;
  }
  EXPECT_EQ(bytes_of(*buffered), model);
  EXPECT_EQ(bytes_of(*device(Caching::direct)), model);
  // A copy of a page is the program's own.
  mapped[0] = std::byte{1};
  const std::byte two{2};
  EXPECT_OK(buffered->write(kMappedAt, {&two, 1}));
  EXPECT_EQ(mapped[0], std::byte{1});
  ::munmap(mapped, kMapped);
}

TEST_F(NvmeDeviceTest, AForcedWriteIsOneCommandAndAFlushAnother) {
  const auto direct = device(Caching::direct);
  const AlignedBuffer memory = must(AlignedBuffer::allocate(2 * kPageBytes));
  ASSERT_TRUE(direct->can_write_through(kSimThroughBytes));
  EXPECT_FALSE(direct->can_write_through(kSimThroughBytes + 1));
  const iovec pieces[] = {{memory.data(), 512}, {memory.data() + 512, 1024}};
  EXPECT_OK(direct->write_through(512, pieces));
  EXPECT_EQ(commands_->seen, std::vector<NvmeOp>{NvmeOp::write});
  EXPECT_EQ(commands_->forced, 1);
  EXPECT_OK(direct->write_pieces(4096, pieces));
  EXPECT_OK(direct->flush());
  EXPECT_EQ(commands_->seen, (std::vector<NvmeOp>{NvmeOp::write, NvmeOp::write, NvmeOp::flush}));
  EXPECT_EQ(commands_->forced, 1);
}

TEST_F(NvmeDeviceTest, WithoutAVolatileCacheNothingIsFlushed) {
  NvmeFacts facts = commands_->facts();
  facts.has_cache = facts.cache_is_on = false;
  commands_->set_facts(facts);
  const auto direct = device(Caching::direct);
  EXPECT_FALSE(direct->can_write_through(512));
  EXPECT_OK(direct->flush());
  EXPECT_TRUE(commands_->seen.empty());
  EXPECT_FALSE(direct->disk()->volatile_cache);
}

// One that is off may be on by the next flush; a write needs no force as long as it is off.
TEST_F(NvmeDeviceTest, ACacheThatIsOffIsFlushedNevertheless) {
  NvmeFacts facts = commands_->facts();
  facts.cache_is_on = false;
  commands_->set_facts(facts);
  const auto direct = device(Caching::direct);
  EXPECT_FALSE(direct->can_write_through(512));
  EXPECT_OK(direct->flush());
  EXPECT_EQ(commands_->seen, std::vector<NvmeOp>{NvmeOp::flush});
}

TEST_F(NvmeDeviceTest, ANamespaceWithoutWriteZeroesGetsZeros) {
  NvmeFacts facts = commands_->facts();
  facts.zeroes_bytes_max = 0;
  commands_->set_facts(facts);
  const auto buffered = device(Caching::buffered);
  const std::vector<std::byte> ones(kBytes, std::byte{1});
  EXPECT_OK(buffered->write(0, ones));
  EXPECT_OK(buffered->discard(kPageBytes, 5 * kPageBytes));
  std::vector<std::byte> wanted = ones;
  std::fill_n(wanted.begin() + kPageBytes, 5 * kPageBytes, std::byte{0});
  EXPECT_EQ(bytes_of(*buffered), wanted);
}

TEST_F(NvmeDeviceTest, WhatFailsLatches) {
  const auto direct = device(Caching::direct);
  const AlignedBuffer memory = must(AlignedBuffer::allocate(kPageBytes));
  commands_->outcome = -ENODEV;
  EXPECT_ERROR(Errc::io, direct->flush());
  commands_->outcome = 0;
  const std::size_t commands = commands_->seen.size();
  EXPECT_ERROR(Errc::poisoned, direct->write(0, memory.span()));
  EXPECT_EQ(commands_->seen.size(), commands);
  EXPECT_NE(last_error_text().find("the namespace is gone"), std::string_view::npos);
  EXPECT_OK(direct->read(0, memory.span()));
}

TEST_F(NvmeDeviceTest, AQueuedWriteThatFailsLatches) {
  const auto direct = device(Caching::direct);
  const AlignedBuffer memory = must(AlignedBuffer::allocate(4 * kSimThroughBytes));
  const auto queue = direct->make_queue(2);
  volume_.faults().plan(SimFaults::Kind::fail_write, 1);
  EXPECT_OK(queue->write(0, 0, memory.span()));  // of several commands, of which the second fails
  EXPECT_ERROR(Errc::io, queue->wait_all());
  EXPECT_ERROR(Errc::poisoned, queue->write(1, 0, memory.span()));
  EXPECT_ERROR(Errc::poisoned, direct->flush());
}

TEST_F(NvmeDeviceTest, BeyondTheEndIsNothing) {
  const auto buffered = device(Caching::buffered);
  std::vector<std::byte> some(10);
  EXPECT_ERROR(Errc::corrupt, buffered->read(kBytes - 5, some));
  EXPECT_ERROR(Errc::no_space, buffered->reserve(kBytes + 1));
  EXPECT_ERROR(Errc::io, buffered->write(kBytes - 5, some));
}

// Pages that could not be read or kept are not mapped, and are read again at the next attempt.
TEST_F(NvmeDeviceTest, AFailedMappingMayBeTriedAgain) {
  const auto buffered = device(Caching::buffered);
  commands_->outcome = 0x281;
  EXPECT_ERROR(Errc::io, buffered->mappable(0, 8192));
  commands_->outcome = 0;
  EXPECT_OK(buffered->mappable(0, 8192));
  const std::size_t commands = commands_->seen.size();
  EXPECT_OK(buffered->mappable(4096, 4096));
  EXPECT_EQ(commands_->seen.size(), commands) << "what is there is not read again";
  EXPECT_OK(buffered->mappable(4096, 8192));
  EXPECT_EQ(commands_->seen.size(), commands + 1);
}

}  // namespace
}  // namespace memlith::test::nvme_test
