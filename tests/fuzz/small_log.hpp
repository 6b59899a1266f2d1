// A real log on a simulated disk, small and the same at each run; and what must hold of any log that opens.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "log/log.hpp"
#include "sim/sim.hpp"

namespace memlith::fuzz {

using Payloads = std::vector<std::vector<std::byte>>;

inline core::LogOptions small_log_options() {
  core::LogOptions options;
  options.slot_count_max = 8;
  options.batch_bytes = 4096;
  options.stream_chunk_bytes = 4096;
  options.window_bytes = 4096;
  options.recovery_window_bytes = 4096;
  return options;
}

[[noreturn]] inline void wrong(const char* what) {
  std::fprintf(stderr, "%s\n%s\n", what, std::string(core::last_error_text()).c_str());
  std::abort();
}

// Three frames over two of three slots, not closed; closed as well with `clean`.
inline core::SimImage small_log_image(bool clean = false) {
  core::SimVolume volume;
  auto device = volume.open("log", core::OpenMode::create, core::Caching::direct);
  if (!core::Log::format(**device, {512, 4096, 3}, {}, 0x1234567890).ok()) wrong("a log cannot be made");
  auto log = core::Log::open(**device, small_log_options());
  if (!log.ok() || !(*log)->recover([](const core::Frame&) { return core::kOk; }).ok()) wrong("it cannot be opened");
  if (!(*log)->start((*log)->tail(), {}).ok()) wrong("it cannot be started");
  for (const std::size_t bytes : {700u, 1800u, 1200u}) {
    if (!(*log)->append(std::vector<std::byte>(bytes, std::byte{7}), 1).ok()) wrong("it cannot be written to");
  }
  if (clean && !(*log)->close({}).ok()) wrong("it cannot be closed");
  return volume.image();
}

// The surviving frames, or none if the log does not open or is damaged.
inline bool read_log(core::Log& log, Payloads& frames) {
  frames.clear();
  return log
      .recover([&frames](const core::Frame& frame) {
        frames.emplace_back(frame.payload.begin(), frame.payload.end());
        return core::kOk;
      })
      .ok();
}

// True if memlith wrote the superblocks. An invented one with a corrected checksum may say anything, for example that
// an incarnation is still to come of which frames exist already. The result of opening is then undefined.
enum class Superblocks { real, made_up };

inline void try_log(std::vector<std::byte> bytes, Superblocks superblocks) {
  core::SimImage image;
  image.files["log"] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  core::SimVolume volume(std::move(image));
  auto device = volume.open("log", core::OpenMode::read_write, core::Caching::direct);
  Payloads before;
  {
    auto log = core::Log::open(**device, small_log_options());
    if (!log.ok() || !read_log(**log, before)) return;
    if (!(*log)->start((*log)->tail(), {}).ok()) return;
    const std::vector<std::byte> more(300, std::byte{9});
    const auto appended = (*log)->append(more, 1);
    if (!appended.ok()) {
      if (appended.error().category == core::Errc::full || superblocks == Superblocks::made_up) return;
      wrong("a log that opened takes no frame");
    }
    before.push_back(more);
  }
  // As a kill leaves it.
  auto log = core::Log::open(**device, small_log_options());
  Payloads after;
  const bool opened_again = log.ok() && read_log(**log, after);
  if (superblocks == Superblocks::made_up) return;
  if (!opened_again) wrong("a log that opened does not open again");
  if (after != before) wrong("the frames are others after a frame was appended");
}

}  // namespace memlith::fuzz
