// A progress bar for what may take long: opening a store with a long log, copying a file.
//
// It appears on standard error, only if that is a terminal, and only after a second. The destructor erases the bar.
#pragma once

#include <cstdint>
#include <string_view>

namespace memlith::tool {

class ProgressBar {
 public:
  // `doing` stands before the bar; a constant.
  explicit ProgressBar(std::string_view doing);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // Fits memlith_store_options.progress; the context is the bar. Nothing unwinds out of it into the library.
  static void update(void* context, std::uint64_t bytes_done, std::uint64_t bytes_total) noexcept;

 private:
  void draw(std::uint64_t bytes_done, std::uint64_t bytes_total) const;

  std::string_view doing_;
  std::uint64_t start_ns_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace memlith::tool
