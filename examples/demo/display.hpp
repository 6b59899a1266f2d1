// The demo's display: a line for each kill, a progress bar below them on a terminal, and numbers that people can read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace demo {

std::string format_bytes(std::uint64_t bytes);           // "4.9 MiB"
std::string format_duration(std::uint64_t nanoseconds);  // "41.2 us"
std::string format_count(std::uint64_t count);           // "182,113"

// The value below which `fraction` of the samples lie; 0 if there are none.
std::uint64_t percentile(std::vector<std::uint64_t> samples, double fraction);

// Rows of name, value and remark, the first two aligned.
struct Row {
  std::string name;
  std::string value;
  std::string remark;
};
void print_table(const std::vector<Row>& rows);

class Progress {
 public:
  Progress(std::uint64_t text_bytes, std::uint32_t kills);

  // Shows the builder's progress. Draws at most a few times per second, and only on a terminal.
  void advance(std::uint64_t text_bytes, std::uint64_t commits, std::uint32_t kills);
  // A line of its own: what became of a kill.
  void say(std::string_view verdict);
  // Leaves the bar's line.
  void end();

 private:
  void draw();

  bool terminal_;
  std::uint64_t text_bytes_all_;
  std::uint32_t kills_all_;
  std::uint64_t text_bytes_ = 0;
  std::uint64_t commits_ = 0;
  std::uint32_t kills_ = 0;
  std::uint64_t drawn_ns_ = 0;
};

}  // namespace demo
