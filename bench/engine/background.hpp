// The load that a checkpoint puts on the disk, made by hand, for a raw writer to be measured beside.
//
// As memlith does it: when half of the log has been written since the last time, a second thread reads that back,
// writes the pages in question home, each once, in order of offset and neighbours together, through the page cache,
// flushes the home file, and then writes and flushes one block of the log. The home file is its own. What memlith's
// checkpoint computes (checksums, laying commits over each other) is left out, in raw's favour.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/failure.hpp"
#include "kit/raw_device.hpp"
#include "peers/peers.hpp"

namespace memlith::tool {

class CheckpointLoad {
 public:
  struct Counters {
    std::uint64_t checkpoints = 0;
    std::uint64_t home_bytes = 0;
    std::uint64_t read_bytes = 0;
  };

  // `log` is what the raw writer writes around in, `home` where pages go; both outlive this. Of each page
  // `bytes_per_page` go. `buffer` has at least 1 MiB.
  CheckpointLoad(const RawFile& log, const PeerFile& home, std::uint64_t bytes_per_page, HugeBuffer buffer);
  ~CheckpointLoad();

  // The raw writer has made `bytes` durable, which say what is now in `pages`. Cheap, and not part of a measured time.
  void note(std::span<const std::uint32_t> pages, std::uint64_t bytes);
  // True while the log has no room for `bytes` more, because its content is not home yet.
  [[nodiscard]] bool full(std::uint64_t bytes);
  // Returns when there is room, or something failed.
  void wait_for_room(std::uint64_t bytes);
  // Writes home what is left and returns when that is done.
  [[nodiscard]] MaybeFailure drain();

  [[nodiscard]] Counters counters();

 private:
  void loop();
  [[nodiscard]] MaybeFailure checkpoint(std::vector<std::uint32_t>& pages, std::uint64_t log_bytes);

  const RawFile& log_;
  const PeerFile& home_;
  const std::uint64_t bytes_per_page_;
  HugeBuffer buffer_;         // of the thread
  std::uint64_t cursor_ = 0;  // of the thread: where in the log it reads on
  std::mutex mutex_;          // all that follows
  std::condition_variable changed_;
  std::vector<std::uint32_t> pages_;  // since the last checkpoint began
  std::uint64_t written_ = 0;
  std::uint64_t tail_ = 0;  // everything before is home
  bool draining_ = false;
  bool stopping_ = false;
  MaybeFailure failure_;
  Counters counters_;
  std::thread thread_;
};

}  // namespace memlith::tool
