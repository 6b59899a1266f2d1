// docs/architecture.md, "Forced unit access": a batch in one slot is one command, and one in two slots is two writes
// and a flush.
#include <algorithm>

#include "log_fixture.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

class Through : public testing::Test {
 protected:
  void SetUp() override {
    {
      LogWorld world({512, 4096, 4});
      image_ = world.volume().image();
    }
    image_.forced_unit_access = true;
    volume_ = std::make_unique<SimVolume>(image_, true);
    device_ = must(volume_->open("log", OpenMode::read_write, Caching::direct));
    log_ = must(Log::open(*device_, LogWorld::small_options()));
    ASSERT_TRUE(log_->recover([](const Frame&) { return kOk; }).ok());
    ASSERT_TRUE(log_->start(log_->tail(), {}).ok());
  }
  // The operations of a durable commit of so many bytes.
  std::vector<SimOp> commit(std::uint64_t bytes) {
    const std::size_t before = volume_->operations();
    EXPECT_TRUE(log_->sync(must(log_->append(payload_of(bytes, before), 1))).ok()) << last_error_text();
    std::vector<SimOp> ops;
    const auto& records = volume_->trace().records;
    std::transform(records.begin() + static_cast<std::ptrdiff_t>(before), records.end(), std::back_inserter(ops),
                   [](const SimRecord& each) { return each.op; });
    return ops;
  }

  SimImage image_;
  std::unique_ptr<SimVolume> volume_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Log> log_;
};

TEST_F(Through, ABatchInOneSlotIsOneCommand) {
  EXPECT_EQ(commit(100), (std::vector{SimOp::write, SimOp::written_through})) << "with the header of the slot";
  EXPECT_EQ(commit(100), (std::vector{SimOp::write, SimOp::written_through}));
}

TEST_F(Through, ABatchInTwoSlotsIsFlushed) {
  ASSERT_EQ(commit(2500), (std::vector{SimOp::write, SimOp::written_through}));
  EXPECT_EQ(commit(1200), (std::vector{SimOp::write, SimOp::write, SimOp::flush}));
}

}  // namespace
}  // namespace memlith::test
