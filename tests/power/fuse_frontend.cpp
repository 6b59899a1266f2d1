// The FUSE protocol as the kernel speaks it on /dev/fuse, for a file system that is one ordinary file. Each write of
// the loop device above is one request here, each of its flushes one FUSE_FSYNC.
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "power/frontend.hpp"

namespace memlith::power {

namespace {

constexpr std::uint32_t kTransferBytesMax = 1u << 20;
constexpr std::uint32_t kPagesMax = kTransferBytesMax / 4096;
constexpr std::uint64_t kForEver = 1'000'000;  // seconds for which the kernel may remember the file's attributes

class FuseFrontend final : public Frontend {
 public:
  FuseFrontend(PoweredDisk& disk, int kernel, std::string mount_point)
      : disk_(disk), kernel_(kernel), mount_point_(std::move(mount_point)), request_(kTransferBytesMax + 4096) {}
  ~FuseFrontend() override {
    // Closing ends the connection: a process that waits for an answer gets an error.
    ::close(kernel_);
    ::umount2(mount_point_.c_str(), MNT_DETACH);
  }

  [[nodiscard]] int descriptor() const override { return kernel_; }

  bool serve() override {
    ssize_t got = 0;
    do {
      got = ::read(kernel_, request_.data(), request_.size());
    } while (got < 0 && (errno == EINTR || errno == ENOENT));  // ENOENT: the request was taken back
    if (got < 0 && errno == EAGAIN) return true;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return false;  // ENODEV: unmounted
    std::memcpy(&head_, request_.data(), sizeof head_);
    return dispatch();
  }

 private:
  template <class T>
  [[nodiscard]] T body() const {
    T value{};
    const std::size_t bytes = std::min(sizeof value, std::size_t{head_.len} - sizeof head_);
    std::memcpy(&value, request_.data() + sizeof head_, bytes);
    return value;
  }

  bool answer(int error, const void* payload = nullptr, std::size_t bytes = 0) const {
    fuse_out_header out{};
    out.len = static_cast<std::uint32_t>(sizeof out + bytes);
    out.error = -error;
    out.unique = head_.unique;
    const iovec pieces[] = {{&out, sizeof out}, {const_cast<void*>(payload), bytes}};
    // ENOENT: the request was interrupted; no process waits for this answer.
    return ::writev(kernel_, pieces, bytes > 0 ? 2 : 1) >= 0 || errno == ENOENT;
  }
  template <class T>
  bool answer_with(const T& payload) const {
    return answer(0, &payload, sizeof payload);
  }

  bool dispatch() {
    switch (head_.opcode) {
      case FUSE_INIT: return init();
      case FUSE_GETATTR:
      case FUSE_SETATTR: return attributes();
      case FUSE_OPEN: {
        fuse_open_out out{};
        out.open_flags = FOPEN_DIRECT_IO;  // no second cache above the disk's own
        return answer_with(out);
      }
      case FUSE_READ: return read_disk();
      case FUSE_WRITE: return write_disk();
      case FUSE_FSYNC: return flush_disk();
      case FUSE_FLUSH:  // close(), not a flush of the disk
      case FUSE_RELEASE: return answer(0);
      case FUSE_STATFS: {
        fuse_statfs_out out{};
        out.st.bsize = out.st.frsize = 4096;
        out.st.namelen = 255;
        return answer_with(out);
      }
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT: return true;  // no answer
      case FUSE_DESTROY: return answer(0);
      default: return answer(ENOSYS);
    }
  }

  bool init() {
    const auto in = body<fuse_init_in>();
    fuse_init_out out{};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = std::min<std::uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
    out.max_readahead = in.max_readahead;
    out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO);
    out.max_background = 64;
    out.congestion_threshold = 48;
    out.max_write = kTransferBytesMax;
    out.time_gran = 1;
    out.max_pages = kPagesMax;
    return answer_with(out);
  }

  bool attributes() const {
    fuse_attr_out out{};
    out.attr_valid = kForEver;
    out.attr.ino = FUSE_ROOT_ID;
    out.attr.size = disk_.disk().size();
    out.attr.blocks = out.attr.size / 512;
    out.attr.mode = S_IFREG | 0600;
    out.attr.nlink = 1;
    out.attr.blksize = 4096;
    return answer_with(out);
  }

  bool read_disk() {
    const auto in = body<fuse_read_in>();
    if (in.size > kTransferBytesMax || !disk_.disk().valid(in.offset, in.size)) return answer(EINVAL);
    buffer_.resize(in.size);
    disk_.disk().read(in.offset, buffer_);
    return answer(0, buffer_.data(), buffer_.size());
  }

  bool write_disk() {
    const auto in = body<fuse_write_in>();
    const std::size_t head_bytes = sizeof head_ + sizeof in;
    if (in.size > head_.len - head_bytes || !disk_.disk().valid(in.offset, in.size)) return answer(EINVAL);
    if (disk_.write(in.offset, std::span(request_).subspan(head_bytes, in.size), false) == Answer::none) return true;
    fuse_write_out out{};
    out.size = in.size;
    return answer_with(out);
  }

  bool flush_disk() {
    const Answer answered = disk_.flush();
    return answered == Answer::none || answer(answered == Answer::failed ? EIO : 0);
  }

  PoweredDisk& disk_;
  int kernel_;
  std::string mount_point_;
  std::vector<std::byte> request_;
  fuse_in_header head_{};
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<Frontend> make_fuse_frontend(PoweredDisk& disk, const std::string& mount_point) {
  // The kernel may need memory to write to this disk, and must not write to this disk to get it.
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  const int kernel = ::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const std::string options = "fd=" + std::to_string(kernel) +
                              ",rootmode=100600,user_id=0,group_id=0,max_read=" + std::to_string(kTransferBytesMax);
  if (kernel < 0 || ::mount("power-disk", mount_point.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    std::perror(("power-disk: cannot mount over " + mount_point).c_str());
    std::exit(2);
  }
  return std::make_unique<FuseFrontend>(disk, kernel, mount_point);
}

}  // namespace memlith::power
