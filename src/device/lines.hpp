// Writing by lines, for media that the processor writes line by line past its cache. Floor: device.
//
// Such a medium keeps a line, loses it, or tears it at 8 bytes, until a fence has returned. LineWriter cuts a write
// into whole lines, gives each to `Lines` once, and fences behind the last one: what it has written survives power
// loss when finish() returns. `Lines` is a mapping of the file (dax.cpp) or the simulated medium of the tests:
//   void stream(std::uint64_t offset, const std::byte* line);    stores the line past the cache
//   void read(std::uint64_t offset, std::byte* line);            the line as it is; zeros beyond the end of the file
//   void fence();                                                what was streamed before is on the medium
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/units.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kLineBytes = 64;
inline constexpr std::uint64_t kWordBytes = 8;  // a torn line is torn between words

template <class Lines>
class LineWriter {
 public:
  LineWriter(Lines& lines, std::uint64_t offset) : lines_(lines), offset_(offset) {}

  // The bytes go behind those of the call before.
  void put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::uint64_t at = offset_ % kLineBytes;
      if (begun_ && at == 0) end_line();           // it is full, and not the last, which finish() writes
      if (at == 0 && bytes.size() > kLineBytes) {  // nor is this one
        lines_.stream(offset_, bytes.data());
        offset_ += kLineBytes;
        bytes = bytes.subspan(kLineBytes);
        continue;
      }
      if (!begun_) begin_line();
      const std::uint64_t count = std::min<std::uint64_t>(kLineBytes - at, bytes.size());
      std::memcpy(line_.data() + at, bytes.data(), count);
      offset_ += count;
      bytes = bytes.subspan(count);
    }
  }

  void finish() {
    if (begun_) {
      end_line();
    }
    // ORDER lines-before-fence: a commit is acknowledged when this returns, and lines that no fence follows may be
    // lost. [mutant lines_not_fenced]
    lines_.fence();
  }

 private:
  void begin_line() {
    begun_ = true;
    line_offset_ = round_down(offset_, kLineBytes);
    line_ = {};
    lines_.read(line_offset_, line_.data());
  }
  void end_line() {
    lines_.stream(line_offset_, line_.data());
    begun_ = false;
  }

  Lines& lines_;
  std::uint64_t offset_;
  std::uint64_t line_offset_ = 0;
  alignas(kLineBytes) std::array<std::byte, kLineBytes> line_{};
  bool begun_ = false;
};

}  // namespace memlith::core
