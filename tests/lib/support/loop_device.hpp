// A loop device over a sparse file, for tests of raw devices. Only root can have one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temp_folder.hpp"

namespace memlith::test {

class LoopDevice {
 public:
  explicit LoopDevice(std::uint64_t bytes) {
    const std::string image = folder_ / "image";
    {
      std::FILE* const file = std::fopen(image.c_str(), "w");
      if (file == nullptr) return;
      std::fclose(file);
    }
    std::filesystem::resize_file(image, bytes);
    std::FILE* const made = ::popen(("losetup -f --show " + image + " 2>/dev/null").c_str(), "r");
    if (made == nullptr) return;
    std::array<char, 64> line{};
    if (std::fgets(line.data(), line.size(), made) != nullptr) path_ = std::string(line.data());
    ::pclose(made);
    while (!path_.empty() && path_.back() == '\n') path_.pop_back();
  }
  ~LoopDevice() {
    if (!path_.empty()) (void)!std::system(("losetup -d " + path_).c_str());
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;

  // Empty if there is none: only root can make one, and not in every container.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TempFolder folder_;
  std::string path_;
};

}  // namespace memlith::test

#define MEMLITH_SKIP_WITHOUT(loop_device) \
  if ((loop_device).path().empty()) GTEST_SKIP() << "skip: no loop device (losetup needs root)"
