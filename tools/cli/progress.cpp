// Drawing and wiping the progress bar.
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "clock.hpp"
#include "output.hpp"

namespace memlith::tool {

namespace {
constexpr std::uint64_t kDelayNs = kNsPerSecond;
constexpr std::uint64_t kBarWidth = 30;
}  // namespace

ProgressBar::ProgressBar(std::string_view doing)
    : doing_(doing), start_ns_(now_ns()), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(void* context, std::uint64_t bytes_done, std::uint64_t bytes_total) noexcept {
  auto& bar = *static_cast<ProgressBar*>(context);
  if (!bar.terminal_ || now_ns() - bar.start_ns_ < kDelayNs) return;
  try {
    bar.draw(bytes_done, bytes_total);
    bar.drawn_ = true;
  } catch (const std::exception&) {
    bar.terminal_ = false;  // a terminal that takes no output gets no bar; the work goes on
  }
}

void ProgressBar::draw(std::uint64_t bytes_done, std::uint64_t bytes_total) const {
  const double share =
      bytes_total == 0 ? 1.0 : std::min(1.0, static_cast<double>(bytes_done) / static_cast<double>(bytes_total));
  const auto filled = static_cast<std::uint64_t>(share * static_cast<double>(kBarWidth));
  const double seconds = seconds_of(now_ns() - start_ns_);
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  fmt::print(stderr, "\r{} [{:#>{}}{:.>{}}] {:3.0f}%  {} of {}, {}/s, {}:{:02} left\x1b[K", doing_, "", filled, "",
             kBarWidth - filled, share * 100, human_bytes(bytes_done), human_bytes(bytes_total),
             human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes_done) / seconds)),
             static_cast<std::uint64_t>(left) / 60, static_cast<std::uint64_t>(left) % 60);
  std::fflush(stderr);
}

}  // namespace memlith::tool
