// Shared by the entry points of include/memlith/files.h and include/private/images.h. Floor: capi.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "capi/handles.hpp"
#include "files/image.hpp"
#include "private/images.h"
#include "store/place.hpp"

// The image goes before its store, and the store before the claim.
struct memlith_image {
  // A file without a store, which is locked: no other process opens it by memlith.
  struct Claim {
    std::string path;
    memlith::core::Place place;
    std::shared_ptr<memlith::core::OpenFile> file;
    std::unique_ptr<memlith::core::VolumeLock> lock;
  };
  std::optional<Claim> claim;
  memlith_store* store = nullptr;
  std::unique_ptr<memlith::core::FileImage> image;
  memlith::core::Descriptor detached;  // the working image while there is no store
  bool is_equal = false;               // the detached image is as the file
};

namespace memlith::core {

// memlith_file_open, of a file that keeps its holes; with `file`, of one that is open already.
Result<memlith_store*> open_file_store(const char* path, const memlith_store_options* options,
                                       std::shared_ptr<OpenFile> file);
Result<std::unique_ptr<memlith_image>> open_image(const char* path, const memlith_store_options* options);
// An image in private pages over the file. `take_room` takes addresses for a file of that length.
Result<std::unique_ptr<memlith_image>>
open_private_image(const char* path, const memlith_store_options* options,
                   const std::function<Result<Room>(std::uint64_t file_bytes)>& take_room);
Status close_image(std::unique_ptr<memlith_image> image);
// Commits what changed in the range. Durable on ok, or captured if `wait` is false.
Status commit_image(memlith_image& image, Range range, bool wait, bool is_last = false);

int errno_of(Status status);

}  // namespace memlith::core
