// Working images of files; include/private/images.h. Floor: capi.
#include "capi/image.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "capi/errors.hpp"
#include "store/names.hpp"
#include "store/stats.hpp"

using namespace memlith::core;

namespace memlith::core {

namespace {

// `image` has no store.
Status open_into(memlith_image& image, const char* path, const memlith_store_options* options) {
  // A file that was renamed meanwhile is opened by its new name.
  if (image.claim.has_value() && image.claim->path != path) image.claim.reset();
  MEMLITH_TRY_ASSIGN(memlith_store* const store,
                     open_file_store(path, options, image.claim.has_value() ? image.claim->file : nullptr));
  Descriptor memory;
  Status status = kOk;
  if (image.detached.get() >= 0) {
    memory = Descriptor(above_standard(::fcntl(image.detached.get(), F_DUPFD_CLOEXEC, 0)));
    if (memory.get() < 0) status = fail_errno(errno, Detail::mapping, "cannot open the working image again");
  }
  if (status.ok()) {
    auto opened = FileImage::open(session_of(store).store(), 1 * kMiB, std::move(memory), image.is_equal);
    if (opened.ok()) {
      image.image = std::move(*opened);
      image.store = store;
      image.detached = Descriptor();
      image.is_equal = false;
      return kOk;
    }
    status = opened.error();
  }
  const KeptSentence why;
  (void)memlith_store_close(store);
  return status;
}

Status close_store(memlith_image& image) {
  if (image.store == nullptr) return kOk;
  Store& store = session_of(image.store).store();
  std::shared_ptr<CommonFolder> common = std::move(image.common);
  if (store.in_forked_child()) {
    // The parent's threads may hold their locks.
    (void)image.image.release();
    (void)new (std::nothrow) std::shared_ptr<CommonFolder>(std::move(common));
  }
  image.image = nullptr;
  const std::uint64_t log_id = store.log().log_id();
  if (common != nullptr) {
    const LockGuard lock(common->log->mutex());
    (void)common->log->leave(store);  // or closing fails, too
  }
  const Status closed = Session::close(std::unique_ptr<Session>(&session_of(std::exchange(image.store, nullptr))));
  image.claim.reset();
  if (common != nullptr && closed.ok()) {
    const LockGuard lock(common->log->mutex());
    common->log->has_left(log_id);
  }
  return closed;
}

// ---- several files

class CommonFolders {
 public:
  // The log for commits of the file and others beside it.
  Result<std::shared_ptr<CommonFolder>> of(memlith_image& image, FileIdentity folder) MEMLITH_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<CommonFolder>> folders_ MEMLITH_GUARDED_BY(mutex_);
};

Result<std::shared_ptr<CommonFolder>> CommonFolders::of(memlith_image& image, FileIdentity folder) {
  const LockGuard lock(mutex_);
  std::erase_if(folders_, [](const auto& each) { return each.expired(); });
  for (const auto& each : folders_) {
    const auto found = each.lock();
    if (found != nullptr && found->folder == folder && !found->log->is_over()) return found;
  }
  Store& store = session_of(image.store).store();
  MEMLITH_TRY_ASSIGN(Place place, place_of_name(store.path()));
  auto made = std::make_shared<CommonFolder>();
  made->folder = folder;
  made->volume = std::move(place.volume);
  MEMLITH_TRY_ASSIGN(made->log, CommonLog::make(*made->volume, store));
  folders_.push_back(made);
  return made;
}

// Never destroyed: threads may use files while the program ends.
CommonFolders& common_folders() {
  static CommonFolders& all = *new CommonFolders;
  return all;
}

Result<FileIdentity> folder_of(const memlith_image& image) {
  if (image.common != nullptr) return image.common->folder;
  const std::string path = session_of(image.store).store().path();
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  struct stat seen{};
  if (::stat(folder.empty() ? "." : folder.c_str(), &seen) != 0) {
    return fail_errno(errno, Detail::open, "{}: its folder cannot be found", path);
  }
  return FileIdentity{seen.st_dev, seen.st_ino};
}

Status commit_folder(std::span<memlith_image* const> images, FileIdentity folder) {
  const PersistTimer timer;
  std::vector<FileImage::Wanted> wanted;
  for (memlith_image* const each : images) wanted.push_back({each->image.get(), {0, kWholeFile}});
  std::shared_ptr<CommonFolder> common;
  const Status done = FileImage::commit_together(wanted, [&]() -> Result<CommonLog*> {
    for (memlith_image* const each : images) {
      if (each->common != nullptr) common = each->common;
    }
    if (common == nullptr || common->log->is_over()) {
      MEMLITH_TRY_ASSIGN(common, common_folders().of(*images.front(), folder));
    }
    return common->log.get();
  });
  for (memlith_image* const each : images) {
    if (common != nullptr && each->image->common_log() == common->log.get()) each->common = common;
    if (done.ok()) timer.note_persist(*session_of(each->store).store().stats());
  }
  return done;
}

// A mapping of a process that was killed may hold the lock for a moment longer than the process lives.
Result<std::unique_ptr<VolumeLock>> lock_claimed(OpenFile& file, const std::string& path) {
  constexpr std::chrono::milliseconds kWait{5};
  constexpr int kWaits = 40;
  for (int waits = 0;; ++waits) {
    auto lock = file.lock(true);
    if (lock.ok() || lock.error().category != Errc::busy) return lock;
    if (waits == kWaits) break;
    std::this_thread::sleep_for(kWait);
  }
  return fail(Errc::busy, Detail::lock,
              "{}: the file is in use by another process, or under another of its names; close it there, or wait",
              path);
}

Status look_into(memlith_image& image, const char* path) {
  memlith_image::Claim claim;
  claim.path = path;
  MEMLITH_TRY_ASSIGN(claim.place, place_of_store(path, StoreKind::one_file));
  const std::string& name = claim.place.file_name;
  MEMLITH_TRY_ASSIGN(claim.file, claim.place.volume->open_file(name, true));
  MEMLITH_TRY_ASSIGN(claim.lock, lock_claimed(*claim.file, path));
  // After the lock: another process may have made a log meanwhile.
  for (const std::string& beside :
       {StoreNames(StoreKind::one_file, name).log, Store::stats_name(StoreKind::one_file, name)}) {
    MEMLITH_TRY_ASSIGN(const bool there, claim.place.volume->exists(beside));
    if (there) return fail(Errc::exists, Detail::open, "{}: {} is beside it; open it with its log", path, beside);
  }
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Device> file, claim.file->device(name, Caching::buffered));
  MEMLITH_TRY_ASSIGN(image.detached, FileImage::read_file(*file));
  image.is_equal = true;
  image.claim = std::move(claim);
  return kOk;
}

}  // namespace

Result<std::unique_ptr<memlith_image>> open_image(const char* path, const memlith_store_options* options) {
  auto made = std::make_unique<memlith_image>();
  MEMLITH_TRY(open_into(*made, path, options));
  return made;
}

Result<std::unique_ptr<memlith_image>>
open_private_image(const char* path, const memlith_store_options* options,
                   const std::function<Result<Room>(std::uint64_t file_bytes)>& take_room) {
  auto made = std::make_unique<memlith_image>();
  MEMLITH_TRY_ASSIGN(made->store, open_file_store(path, options, nullptr));
  Store& store = session_of(made->store).store();
  auto room = take_room(store.find("file")->size_bytes);
  auto opened = room.ok() ? FileImage::open_private(store, *room) : Result<std::unique_ptr<FileImage>>(room.error());
  if (!opened.ok()) {
    const Status failed = opened.error();
    const KeptSentence why;
    (void)close_store(*made);
    return failed;
  }
  made->image = std::move(*opened);
  return made;
}

Status close_image(std::unique_ptr<memlith_image> image) { return close_store(*image); }

Status commit_image(memlith_image& image, Range range, bool wait, bool is_last) {
  Store& store = session_of(image.store).store();
  const PersistTimer timer;
  MEMLITH_TRY_ASSIGN(const Lsn end, image.image->capture(range, wait, is_last));
  if (wait) {
    if (!image.image->is_decided(end)) MEMLITH_TRY(store.sync(end));
    timer.note_persist(*store.stats());
  } else {
    store.flush_soon(end);
    timer.note_capture(*store.stats());
  }
  return kOk;
}

Status commit_images(std::span<memlith_image* const> images, bool in_one_folder) {
  std::vector<std::pair<FileIdentity, std::vector<memlith_image*>>> folders;
  for (memlith_image* const each : images) {
    MEMLITH_TRY(session_of(each->store).check_process());
    MEMLITH_TRY_ASSIGN(const FileIdentity folder, folder_of(*each));
    const auto found = std::ranges::find(folders, folder, [](const auto& one) { return one.first; });
    if (found != folders.end()) {
      found->second.push_back(each);
    } else {
      folders.push_back({folder, {each}});
    }
  }
  if (in_one_folder && folders.size() > 1) {
    return fail(Errc::invalid, Detail::argument,
                "{} and {} lie in different folders; a commit of several files is of files in one folder, where its "
                "log lies beside them",
                session_of(folders[0].second.front()->store).store().path(),
                session_of(folders[1].second.front()->store).store().path());
  }
  for (const auto& [folder, files] : folders) MEMLITH_TRY(commit_folder(files, folder));
  return kOk;
}

int errno_of(Status status) {
  if (status.ok()) return 0;
  if (status.os_errno != 0) return status.os_errno;
  return memlith_errno(code_of(status));
}

}  // namespace memlith::core

namespace {

Status need_ours(const memlith_image* image) {
  MEMLITH_TRY(need(image, "image"));
  if (image->store == nullptr) return fail(Errc::invalid, Detail::argument, "the image is detached from its file");
  return session_of(image->store).check_process();
}

}  // namespace

extern "C" {

int32_t memlith_image_open(const char* path, const memlith_store_options* options, memlith_image** image) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(image, "image"));
    MEMLITH_TRY_ASSIGN(std::unique_ptr<memlith_image> made, open_image(path, options));
    *image = made.release();
    return kOk;
  });
}

int32_t memlith_image_look(const char* path, memlith_image** image) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    MEMLITH_TRY(need(image, "image"));
    auto made = std::make_unique<memlith_image>();
    MEMLITH_TRY(look_into(*made, path));
    *image = made.release();
    return kOk;
  });
}

int32_t memlith_image_close(memlith_image* image) {
  if (image == nullptr) return 0;
  return guarded([&] { return close_image(std::unique_ptr<memlith_image>(image)); });
}

int32_t memlith_image_detach(memlith_image* image) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    image->detached = image->image->take_memory();
    return close_store(*image);
  });
}

int32_t memlith_image_attach(memlith_image* image, const char* path, const memlith_store_options* options) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(image, "image"));
    if (image->store != nullptr) return fail(Errc::invalid, Detail::argument, "the image has a file already");
    return open_into(*image, path, options);
  });
}

int memlith_image_descriptor(const memlith_image* image) {
  return image->store != nullptr ? image->image->descriptor() : image->detached.get();
}

memlith_store* memlith_image_store(const memlith_image* image) { return image->store; }

int32_t memlith_image_watch(memlith_image* image, void* address, uint64_t bytes, uint64_t offset) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    return image->image->watch(static_cast<std::byte*>(address), bytes, offset);
  });
}

int32_t memlith_image_unwatch(memlith_image* image, const void* address, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    return image->image->unwatch(static_cast<const std::byte*>(address), bytes);
  });
}

int32_t memlith_image_written(memlith_image* image, uint64_t offset, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    return image->image->note(offset, bytes);
  });
}

int32_t memlith_image_cut(memlith_image* image, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    return image->image->cut(bytes);
  });
}

int32_t memlith_image_suspect(memlith_image* image) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    image->image->suspect();
    return kOk;
  });
}

int32_t memlith_image_commit(memlith_image* image, uint32_t flags) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    if ((flags & ~std::uint32_t{MEMLITH_IMAGE_ASYNC | MEMLITH_IMAGE_LAST}) != 0) {
      return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", flags);
    }
    return commit_image(*image, {0, kWholeFile}, (flags & MEMLITH_IMAGE_ASYNC) == 0, (flags & MEMLITH_IMAGE_LAST) != 0);
  });
}

int32_t memlith_images_commit(memlith_image* const* images, size_t count) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(images, "images"));
    for (const memlith_image* const each : std::span(images, count)) MEMLITH_TRY(need_ours(each));
    return commit_images({images, count}, false);
  });
}

int32_t memlith_image_check(memlith_image* image, uint32_t* as_told) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    MEMLITH_TRY(need(as_told, "as_told"));
    MEMLITH_TRY_ASSIGN(const bool told, image->image->is_as_told());
    *as_told = told ? 1 : 0;
    return kOk;
  });
}

int32_t memlith_image_changed(memlith_image* image, uint64_t* bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    MEMLITH_TRY(need(bytes, "bytes"));
    MEMLITH_TRY_ASSIGN(*bytes, image->image->changed_bytes());
    return kOk;
  });
}

int32_t memlith_image_rollback(memlith_image* image) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(image));
    return image->image->rollback({0, kWholeFile});
  });
}

int memlith_errno(int32_t code) {
  switch (memlith_category(code)) {
    case MEMLITH_OK: return 0;
    case MEMLITH_INVALID: return EINVAL;
    case MEMLITH_NOT_FOUND: return ENOENT;
    case MEMLITH_EXISTS: return EEXIST;
    case MEMLITH_BUSY: return EBUSY;
    case MEMLITH_FULL: return EFBIG;
    case MEMLITH_NO_SPACE: return ENOSPC;
    case MEMLITH_PERMISSION: return EACCES;
    case MEMLITH_READ_ONLY: return EROFS;
    case MEMLITH_ADDRESS_TAKEN:
    case MEMLITH_NO_MEMORY: return ENOMEM;
    case MEMLITH_UNSUPPORTED: return EOPNOTSUPP;
    case MEMLITH_TOO_MANY_FILES: return EMFILE;
    default: return EIO;
  }
}

}  // extern "C"
