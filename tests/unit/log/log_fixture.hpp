// A log on a simulated disk, and the words of its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "log/log.hpp"
#include "sim/sim.hpp"

namespace memlith::test {

using namespace core;

using Frames = std::vector<std::vector<std::byte>>;

inline std::vector<std::byte> payload_of(std::uint64_t bytes, std::uint64_t seed) {
  std::vector<std::byte> payload(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>((i * 31 + seed * 17) >> (i % 5));
  return payload;
}

class LogWorld {
 public:
  explicit LogWorld(LogFormat format = {512, 4096, 4}, LogOptions options = small_options())
      : options_(options), volume_(std::make_unique<SimVolume>()) {
    auto device = volume_->open("log", OpenMode::create, Caching::direct);
    EXPECT_TRUE(Log::format(**device, format, {}, 0x1234).ok()) << last_error_text();
  }

  static LogOptions small_options() {
    LogOptions options;
    options.slot_count_max = 16;
    options.batch_bytes = 4096;
    options.stream_chunk_bytes = 4096;
    options.window_bytes = 4096;
    options.recovery_window_bytes = 4096;
    return options;
  }

  // Opens, collects what survived, and starts a new incarnation that keeps it.
  Status open() {
    MEMLITH_TRY(open_to_read());
    return log_->start(log_->tail(), {});
  }
  Status open_to_read() {
    log_ = nullptr;
    MEMLITH_TRY_ASSIGN(device_, volume_->open("log", OpenMode::read_write, Caching::direct));
    MEMLITH_TRY_ASSIGN(log_, Log::open(*device_, options_));
    frames_.clear();
    return log_->recover([this](const Frame& frame) -> Status {
      frames_.emplace_back(frame.payload.begin(), frame.payload.end());
      ends_.push_back(frame.after);
      return kOk;
    });
  }
  // The disk as a power cut leaves it, changed at will.
  void crash(const std::function<void(std::vector<std::byte>& bytes)>& change = {}) {
    log_ = nullptr;
    device_ = nullptr;
    SimImage image = volume_->image();
    auto bytes = *image.files.at("log");
    if (change) change(bytes);
    image.files["log"] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    volume_ = std::make_unique<SimVolume>(std::move(image));
  }
  Lsn append(const std::vector<std::byte>& payload) {
    auto end = log_->append(payload, 1);
    EXPECT_TRUE(end.ok()) << last_error_text();
    return end.ok() ? *end : Lsn{};
  }
  // Completes the frame in memory; nothing is written until a sync.
  Lsn add(const std::vector<std::byte>& payload) {
    auto writer = log_->begin(payload.size(), 1);
    EXPECT_TRUE(writer.ok()) << last_error_text();
    writer->put(payload.data(), payload.size());
    return *writer->finish();
  }
  // Where in the file an LSN of the first lap lies: slot by slot as they were handed out.
  [[nodiscard]] std::uint64_t file_offset(Lsn lsn) const {
    const LogGeometry& g = log_->geometry();
    return g.slot_offset(static_cast<std::uint32_t>(g.segment_of(lsn))) + g.block_bytes + g.offset_in_segment(lsn);
  }
  [[nodiscard]] Log& log() { return *log_; }
  [[nodiscard]] SimVolume& volume() { return *volume_; }
  [[nodiscard]] const std::vector<std::vector<std::byte>>& frames() const { return frames_; }

 private:
  LogOptions options_;
  std::unique_ptr<SimVolume> volume_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Log> log_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<LogPosition> ends_;
};

}  // namespace memlith::test
