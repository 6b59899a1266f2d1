// Mappings of images: which file each is of, and which of them commits have to look at.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// In a forked child: what it may only read, and what is said when it stores there.
struct Forbidden {
  const std::byte* begin;
  const std::byte* end;
  std::string sentence;
};
std::vector<Forbidden>& forbidden() {
  static std::vector<Forbidden>& all = *new std::vector<Forbidden>;
  return all;
}
struct sigaction fault_action_before;

// Says why the child dies, and leaves the signal to whom it belonged before.
void on_fault(int number, siginfo_t* info, void*) {
  const int error = errno;
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  for (const Forbidden& each : forbidden()) {
    if (info->si_code <= 0 || address < each.begin || each.end <= address) continue;
    if (real().write(STDERR_FILENO, each.sentence.data(), each.sentence.size()) < 0) {
    }  // there is nowhere else to say it
    break;
  }
  ::sigaction(number, &fault_action_before, nullptr);
  if (info->si_code <= 0) ::raise(number);  // sent; otherwise the store is tried again
  errno = error;
}

}  // namespace

int Images::watch(const Mapping& mapping) {
  if (!mapping.writable || !mapping.image->attached) return 0;
  Image& image = *mapping.image;
  const std::int32_t code = memlith_image_watch(image.handle, mapping.begin, mapping.bytes, mapping.offset);
  if (code == 0) return 0;
  if (memlith_category(code) != MEMLITH_UNSUPPORTED) return fail_with(code, image.path() + " cannot be mapped");
  // Nothing marks the pages that are stored to: each commit finds them by comparing.
  image.is_unwatched = true;
  if (!image.has_unseen.exchange(true)) {
    say(image.path() + ": each commit will compare the whole file, because the program maps it for writing, and " +
        why());
  }
  return 0;
}

void Images::leave(std::byte* begin, std::byte* end, std::vector<ImagePtr>& touched) {
  std::vector<Mapping> left;
  for (const Mapping& mapping : mappings_) {
    std::byte* const from = std::max(begin, mapping.begin);
    std::byte* const to = std::min(end, mapping.begin + mapping.bytes);
    if (from >= to) {
      left.push_back(mapping);
      continue;
    }
    touched.push_back(mapping.image);
    const bool ours = mapping.image->owner == ::getpid() && mapping.image->attached;
    if (ours && mapping.writable &&
        memlith_image_unwatch(mapping.image->handle, from, static_cast<std::size_t>(to - from)) != 0) {
      memlith_image_suspect(mapping.image->handle);
    }
    const auto before = static_cast<std::size_t>(from - mapping.begin);
    const auto until = static_cast<std::size_t>(to - mapping.begin);
    if (before > 0) left.push_back({mapping.begin, before, mapping.offset, mapping.writable, mapping.image});
    if (until < mapping.bytes) {
      left.push_back({to, mapping.bytes - until, mapping.offset + until, mapping.writable, mapping.image});
    }
  }
  mappings_.swap(left);
}

// After a call that failed, and may have changed something or nothing.
void Images::watch_again(const std::vector<ImagePtr>& touched) {
  const int error = errno;
  for (const ImagePtr& image : touched) image->has_unseen = true;
  for (const Mapping& mapping : mappings_) {
    if (std::find(touched.begin(), touched.end(), mapping.image) == touched.end()) continue;
    if (mapping.image->owner != ::getpid() || !mapping.image->attached) continue;
    memlith_image_unwatch(mapping.image->handle, mapping.begin, mapping.bytes);
    (void)watch(mapping);
  }
  errno = error;
}

void* Images::map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  const ImagePtr image = (flags & MAP_ANONYMOUS) != 0 ? nullptr : of_descriptor(fd);
  const int type = flags & MAP_TYPE;
  const bool shares = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
  if (image != nullptr && shares && (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && image->owner == ::getpid() &&
      touch(image) != 0) {
    return MAP_FAILED;
  }
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  std::vector<ImagePtr> touched;
  auto* const wanted = static_cast<std::byte*>(address);
  const bool replaces = (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
  const std::vector<Mapping> before = replaces ? mappings_ : std::vector<Mapping>();
  if (replaces) leave(wanted, wanted + whole_pages(bytes), touched);
  void* const got = real().mmap(address, bytes, protection, flags, fd, offset);
  if (got == MAP_FAILED && replaces) {
    mappings_ = before;
    watch_again(touched);
  }
  if (got != MAP_FAILED && image != nullptr && shares) {
    const bool writable = (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
    if (image->owner != ::getpid() && writable) {
      say(image->path() + ": a forked child cannot map the file that its parent has open");
      real().munmap(got, bytes);
      errno = EIO;
      return MAP_FAILED;
    }
    mappings_.push_back({static_cast<std::byte*>(got), whole_pages(bytes), static_cast<std::uint64_t>(offset), writable,
                         image});
    if (watch(mappings_.back()) != 0) {
      mappings_.pop_back();
      real().munmap(got, bytes);
      return MAP_FAILED;
    }
  }
  for (const ImagePtr& each : touched) {
    if (each->owner == ::getpid() && each->handle != nullptr && !is_used(*each)) close(each);
  }
  return got;
}

int Images::unmap(void* address, std::size_t bytes) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  std::vector<ImagePtr> touched;
  auto* const begin = static_cast<std::byte*>(address);
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % whole_pages(1) != 0)
    return real().munmap(address, bytes);
  const std::vector<Mapping> before = mappings_;
  leave(begin, begin + whole_pages(bytes), touched);
  const int result = real().munmap(address, bytes);
  if (result != 0) {
    mappings_ = before;
    watch_again(touched);
  }
  for (const ImagePtr& each : touched) {
    if (each->owner == ::getpid() && each->handle != nullptr && !is_used(*each)) close(each);
  }
  return result;
}

void* Images::remap(void* address, std::size_t old_bytes, std::size_t bytes, int flags, void* wanted) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  auto* const begin = static_cast<std::byte*>(address);
  std::byte* const end = begin + whole_pages(old_bytes);
  Mapping moved;
  for (const Mapping& mapping : mappings_) {
    if (mapping.begin <= begin && begin < mapping.begin + mapping.bytes) moved = mapping;
  }
  if (moved.image == nullptr && (flags & MREMAP_FIXED) == 0) {
    return real().mremap(address, old_bytes, bytes, flags, wanted);
  }
  std::vector<ImagePtr> touched;
  auto* const target = static_cast<std::byte*>(wanted);
  if ((flags & MREMAP_FIXED) != 0) leave(target, target + whole_pages(bytes), touched);
  if (moved.image != nullptr && old_bytes == 0) {
    say(moved.image->path() + ": mremap cannot copy a mapping of this file; map it again");
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (moved.image != nullptr) leave(begin, end, touched);
  void* const got = real().mremap(address, old_bytes, bytes, flags, wanted);
  const int error = errno;
  if (moved.image != nullptr) {
    moved.offset += static_cast<std::uint64_t>(begin - moved.begin);
    moved.begin = got == MAP_FAILED ? begin : static_cast<std::byte*>(got);
    moved.bytes = whole_pages(got == MAP_FAILED ? old_bytes : bytes);
    mappings_.push_back(moved);
    if (moved.image->owner == ::getpid() && watch(moved) != 0) moved.image->has_unseen = true;
    // Stores of other threads in between were seen by neither watch.
    if (moved.writable && moved.image->attached && moved.image->owner == ::getpid()) {
      memlith_image_written(moved.image->handle, moved.offset, moved.bytes);
    }
  }
  errno = error;
  return got;
}

int Images::sync(void* address, std::size_t bytes, int flags) {
  if (real().msync(address, bytes, flags) != 0) return -1;
  std::vector<ImagePtr> covered;
  {
    const NoSignals no_signals;
    const std::shared_lock lock(lock_);
    auto* const begin = static_cast<std::byte*>(address);
    for (const Mapping& mapping : mappings_) {
      if (mapping.begin < begin + whole_pages(bytes) && begin < mapping.begin + mapping.bytes) {
        if (std::find(covered.begin(), covered.end(), mapping.image) == covered.end()) covered.push_back(mapping.image);
      }
    }
  }
  if ((flags & (MS_SYNC | MS_ASYNC)) == 0) return 0;
  for (const ImagePtr& image : covered) {
    if (settings().commit == CommitAt::fsync) continue;
    if (settings().commit == CommitAt::automatic && image->was_fsynced) {
      // One msync before each fsync is usual; a program that goes on with msync alone relies on it.
      constexpr int kUnusual = 2;
      if ((flags & MS_SYNC) != 0 && ++image->msyncs_left_out == kUnusual) {
        say(image->path() +
            ": the program called fsync for this file before, so msync does not commit it any more; now the program " +
            "calls msync alone, and --commit msync makes it durable");
      }
      continue;
    }
    if (commit(image, (flags & MS_SYNC) != 0) != 0) return -1;
  }
  return 0;
}

int Images::punch(void* address, std::size_t bytes) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  auto* const begin = static_cast<std::byte*>(address);
  std::byte* const end = begin + whole_pages(bytes);
  const auto each_part = [&](const auto& body) {
    for (const Mapping& mapping : mappings_) {
      std::byte* const from = std::max(begin, mapping.begin);
      std::byte* const to = std::min(end, mapping.begin + mapping.bytes);
      if (from < to) body(mapping, from, static_cast<std::size_t>(to - from));
    }
  };
  bool is_of_parent = false;
  each_part([&](const Mapping& mapping, const std::byte*, std::size_t) {
    is_of_parent = is_of_parent || mapping.image->owner != ::getpid();
  });
  if (is_of_parent) {
    say("a forked child cannot punch holes into the mapping of its parent's file");
    errno = EIO;
    return -1;
  }
  const int result = real().madvise(address, bytes, MADV_REMOVE);
  const int error = errno;
  // Also after a failure, which may have come in the middle.
  each_part([&](const Mapping& mapping, const std::byte* from, std::size_t count) {
    if (!mapping.image->attached) return;
    memlith_image_written(mapping.image->handle, mapping.offset + static_cast<std::uint64_t>(from - mapping.begin),
                          count);
  });
  errno = error;
  return result;
}

// A forked child has the parent's mappings; what it stored through them would reach no commit.
void Images::in_child() {
  for (const ImagePtr& image : images_) image->make_locks();
  forbidden().clear();
  for (const Mapping& mapping : mappings_) {
    if (!mapping.writable) continue;
    ::mprotect(mapping.begin, mapping.bytes, PROT_READ);
    forbidden().push_back({mapping.begin, mapping.begin + mapping.bytes,
                           "memlith: " + mapping.image->path() +
                               ": a forked child cannot store to the mapping of its parent's file, which no commit "
                               "would see; it gets SIGSEGV\n"});
  }
  if (forbidden().empty()) return;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  struct sigaction before{};
  ::sigaction(SIGSEGV, &ours, &before);
  if (before.sa_sigaction != on_fault) fault_action_before = before;
}

}  // namespace memlith::preload
