// The backends of a store, for tests of the C interface that each of them has to pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memlith/memlith.h"
#include "private/options.h"
#include "support/loop_device.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {

class Backend {
 public:
  // Files with system calls, files with io_uring, and a loop device without a file system.
  static constexpr const char* kNames[] = {"File", "FileUring", "RawLoop"};

  explicit Backend(std::string_view name) : path_(folder_ / "store") {
    if (name == "File") io_ = MEMLITH_IO_POSIX;
    if (name == "FileUring") {
      io_ = MEMLITH_IO_URING;
      if (!opens()) lacks_ = "skip: this kernel or sandbox refuses io_uring";
    }
    if (name != "RawLoop") return;
    device_ = std::make_unique<LoopDevice>(64 << 20);
    path_ = device_->path();
    if (path_.empty()) {
      lacks_ = "skip: no loop device (losetup needs root)";
    } else {
      EXPECT_EQ(memlith_device_format(path_.c_str(), 0), MEMLITH_OK);
    }
  }
  // Empty, or why there is none.
  [[nodiscard]] const std::string& lacks() const { return lacks_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint32_t io() const { return io_; }

 private:
  [[nodiscard]] bool opens() const {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.io = io_;
    memlith_store* store = nullptr;
    return memlith_store_open(path_.c_str(), &options, &store) == MEMLITH_OK &&
           memlith_store_close(store) == MEMLITH_OK;
  }

  TempFolder folder_;
  std::unique_ptr<LoopDevice> device_;
  std::string path_;
  std::string lacks_;
  std::uint32_t io_ = MEMLITH_IO_AUTO;
};

}  // namespace memlith::test
