// What the entry points of include/memlith/files.h share. Floor: capi.
#pragma once

#include <memory>

#include "capi/handles.hpp"
#include "files/image.hpp"
#include "memlith/files.h"

// The image goes before its store.
struct memlith_image {
  memlith_store* store = nullptr;
  std::unique_ptr<memlith::core::FileImage> image;
  memlith::core::Descriptor detached;  // the working image while there is no store
};

namespace memlith::core {

Result<std::unique_ptr<memlith_image>> open_image(const char* path, const memlith_store_options* options);
Status close_image(std::unique_ptr<memlith_image> image);
// Commits what changed in the range. Durable on ok, or captured if `wait` is false.
Status commit_image(memlith_image& image, Range range, bool wait);

int errno_of(Status status);

}  // namespace memlith::core
