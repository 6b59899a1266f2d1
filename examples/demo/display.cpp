// Writing to the terminal. See display.hpp.
#include "display.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/core.h>

#include "common.hpp"

namespace demo {
namespace {

constexpr std::uint64_t kDrawNs = 50'000'000;
constexpr std::size_t kBarColumns = 32;
// Wipes what an earlier, longer line has left behind.
constexpr std::string_view kClearToEnd = "\x1b[K";

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 40) return 80;
  return size.ws_col;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  if (bytes >= 10 * kMiB) return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB);
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB);
  if (bytes >= kKiB) return fmt::format("{:.0f} KiB", static_cast<double>(bytes) / kKiB);
  return fmt::format("{} bytes", bytes);
}

std::string format_duration(std::uint64_t nanoseconds) {
  const auto value = static_cast<double>(nanoseconds);
  if (nanoseconds >= 1'000'000'000) return fmt::format("{:.1f} s", value / 1e9);
  if (nanoseconds >= 1'000'000) return fmt::format("{:.2f} ms", value / 1e6);
  return fmt::format("{:.1f} us", value / 1e3);
}

std::string format_count(std::uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::uint64_t percentile(std::vector<std::uint64_t> samples, double fraction) {
  if (samples.empty()) return 0;
  const auto rank = static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1) + 0.5);
  const auto place = samples.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(samples.begin(), place, samples.end());
  return *place;
}

void print_table(const std::vector<Row>& rows) {
  std::size_t name_columns = 0;
  std::size_t value_columns = 0;
  for (const Row& row : rows) {
    name_columns = std::max(name_columns, row.name.size());
    value_columns = std::max(value_columns, row.value.size());
  }
  for (const Row& row : rows) {
    fmt::print("  {:<{}}  {:>{}}", row.name, name_columns, row.value, value_columns);
    if (!row.remark.empty()) fmt::print("  {}", row.remark);
    fmt::print("\n");
  }
}

Progress::Progress(std::uint64_t text_bytes, std::uint32_t kills)
    : terminal_(::isatty(STDOUT_FILENO) == 1), text_bytes_all_(text_bytes), kills_all_(kills) {}

void Progress::advance(std::uint64_t text_bytes, std::uint64_t commits, std::uint32_t kills) {
  text_bytes_ = text_bytes;
  commits_ = commits;
  kills_ = kills;
  if (terminal_ && now_ns() - drawn_ns_ > kDrawNs) draw();
}

void Progress::say(std::string_view verdict) {
  std::string line = fmt::format("{:3}%  {}", text_bytes_ * 100 / text_bytes_all_, verdict);
  if (!terminal_) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
    return;
  }
  line.resize(std::min(line.size(), terminal_columns() - 1));
  fmt::print("\r{}{}\n", line, kClearToEnd);
  draw();
}

void Progress::draw() {
  const std::size_t filled = std::min<std::size_t>(text_bytes_ * kBarColumns / text_bytes_all_, kBarColumns);
  fmt::print("\r{:3}%  [{:.<{}}]  commit {}, kills {} of {}{}", text_bytes_ * 100 / text_bytes_all_,
             std::string(filled, '#'), kBarColumns, commits_, kills_, kills_all_, kClearToEnd);
  std::fflush(stdout);
  drawn_ns_ = now_ns();
}

void Progress::end() {
  if (!terminal_) return;
  draw();
  fmt::print("\n");
}

}  // namespace demo
