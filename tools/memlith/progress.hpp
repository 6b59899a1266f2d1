// A progress bar for opening a store whose log is long.
//
// It appears on standard error, only if that is a terminal, and only once a second has passed: nobody needs one for
// less. When the object goes, the bar is wiped from the line.
#pragma once

#include <cstdint>

namespace memlith::tool {

class ProgressBar {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // Fits memlith_store_options.progress; the context is the bar. Nothing unwinds out of it into the library.
  static void update(void* context, std::uint64_t bytes_done, std::uint64_t bytes_total) noexcept;

 private:
  void draw(std::uint64_t bytes_done, std::uint64_t bytes_total) const;

  std::uint64_t start_ns_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace memlith::tool
