// Shared by the entry points of include/memlith/files.h and include/private/images.h. Floor: capi.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "capi/handles.hpp"
#include "files/image.hpp"
#include "private/images.h"
#include "store/common_log.hpp"
#include "store/place.hpp"

namespace memlith::core {

// A folder with files of this process that were committed together, and the log of these commits.
struct CommonFolder {
  FileIdentity folder;
  std::unique_ptr<Volume> volume;
  std::unique_ptr<CommonLog> log;
};

}  // namespace memlith::core

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
  memlith::core::Descriptor detached;                   // the working image while there is no store
  bool is_equal = false;                                // the detached image is as the file
  std::shared_ptr<memlith::core::CommonFolder> common;  // since the file was committed together with others
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
// Commits what changed in these files, each of which is there once: all or none of those that lie in one folder.
// Durable on ok. Errors: invalid (`in_one_folder`, and they are not).
Status commit_images(std::span<memlith_image* const> images, bool in_one_folder);

int errno_of(Status status);

}  // namespace memlith::core
