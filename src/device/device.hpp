// A device: positioned reads and writes, and a flush. Floor: device.
//
// Everything above trusts exactly what is said here, and the simulated device of the tests breaks everything
// that is not said here:
//   - A write that returned ok may be lost, kept, or kept in part (torn at caps().atomic_bytes) by a crash until
//     a later flush() returned ok. Unflushed writes reach the medium in any order.
//   - After flush() returned ok, every write that had returned ok before it was called survives power loss.
//   - After write_through() returned ok, its own bytes survive power loss, and no other write for that reason.
//   - A read returns what was last written, flushed or not.
//   - The first failed write, flush or resize latches the device: from then on all three return `poisoned` and
//     touch nothing. A flush is never retried, because the kernel may have dropped the pages that failed.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/disk_facts.hpp"
#include "device/medium.hpp"

namespace memlith::core {

// How transfers are done.
enum class IoBackend : std::uint32_t {
  automatic = 0,  // system calls; io_uring where several transfers are in flight, if the kernel has it
  posix = 1,      // system calls only, one transfer at a time in each thread
  uring = 2,      // io_uring for every transfer
  dax = 3,        // stores to a mapping of the file, on a medium that is written by lines (device/dax.hpp)
};

struct DeviceCaps {
  std::uint32_t block_bytes = 1;     // offsets, lengths and memory of transfers are multiples of this; 1 = anything
  std::uint32_t atomic_bytes = 512;  // a crash keeps or loses this much of an unflushed write as a whole
  // A torn write may spoil so much around it: a log fills such a block with frames of one write only.
  std::uint32_t log_block_bytes = 512;
  // write_through() of up to so many bytes is one command to the disk, with forced unit access; 0: the disk has none,
  // or needs none.
  std::uint64_t through_bytes_max = 0;
  FileSystem file_system;
  IoBackend io = IoBackend::posix;  // what is used: automatic where there is io_uring for queues
};

// Several transfers in flight at once against one device. Not for use by two threads at a time.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // Starts the transfer with this `number` < depth; the caller does not touch the memory until wait(number) returns. A
  // transfer of the same number that is still in flight is waited for first.
  virtual Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) = 0;
  virtual Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) = 0;
  // Waits for the transfer; ok if it was complete. Ok if the number was never used.
  virtual Status wait(std::uint32_t number) = 0;
  virtual Status wait_all() = 0;
  // Transfers to and from this memory may be faster from now on, because the kernel keeps it pinned. Replaces the
  // memory of the last call. No transfer may be in flight, and the memory must outlive the queue or the next call.
  virtual void register_memory(std::span<std::byte>) {}
};

// Two open devices have equal identities exactly if they are open on the same file, under whatever names.
struct FileIdentity {
  std::uint64_t volume = 0;
  std::uint64_t number = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Tells a file from its copies, and stays with the file in a snapshot of its device. Zeros: unknown.
struct FileBirth {
  std::uint64_t ns = 0;      // when the file was made, since 1970
  std::uint64_t number = 0;  // of the file in its file system
  // True if the two are certainly of different files. Numbers are compared only if one of the times is unknown. A file
  // system that shows the files of others gives no numbers, and copies a file of theirs before the first write to it.
  [[nodiscard]] bool differs_from(const FileBirth& written) const {
    if (ns == 0 || written.ns == 0) return number != 0 && written.number != 0 && number != written.number;
    return ns != written.ns && (number != 0 || written.number == 0);
  }
};

// Content that can be mapped: from this offset of the descriptor on, which the device owns, in one piece.
struct Mappable {
  int descriptor = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes = ~std::uint64_t{0};
};

// The error of a read that reached the end of the file.
Status cut_short(const std::string& path, std::uint64_t offset, std::uint64_t wanted, std::uint64_t got);

// Writes into a file in memory, where a full disk means a lack of memory.
Status write_to_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes);
// The same, but pages of zeros are left out: the file has zeros there already.
Status write_pages_to_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes);

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceCaps& caps() const { return caps_; }
  [[nodiscard]] const std::string& path() const { return path_; }  // for messages
  // True if transfers bypass the page cache. A device may stop doing so when the file system refuses such a transfer;
  // the required alignment stays the same.
  [[nodiscard]] bool direct() const { return direct_.load(std::memory_order_relaxed); }

  // The length of the file in bytes.
  virtual Result<std::uint64_t> size() = 0;

  virtual Result<FileIdentity> identity() = 0;
  // Unknown for what is not copied file by file, such as a block device.
  [[nodiscard]] virtual FileBirth birth() { return {}; }
  // Another number when any program has changed the file's content or put another file in its place; 0: that cannot be
  // told. (A change within the same tick of the system's clock, of a few milliseconds, may be overlooked.)
  virtual Result<std::uint64_t> stamp() { return 0; }
  // Facts about the disk under the file, if the system tells.
  virtual std::optional<DiskFacts> disk() { return std::nullopt; }
  // Waits until the disk has written what processes that have ended had begun to write to the file; `busy` after some
  // seconds. The caller knows that no process that lives writes to the file, and this one by this device only.
  virtual Status wait_for_transfers() { return kOk; }
  // True if the file has lost its last name, so that it cannot be opened by name any more.
  virtual Result<bool> removed() = 0;
  // Copies the permissions of `file` and, if the process is root, its owner: the log is as secret as the file that it
  // belongs to.
  virtual Status match_permissions(Device& file) = 0;

  // Fills the whole target, or fails: bytes past the end of the file are an error (corrupt).
  Status read(std::uint64_t offset, std::span<std::byte> target) { return do_read(offset, target); }
  // The same if nothing has to be waited for, because all of it is in memory. False: the target holds anything.
  virtual bool read_cached(std::uint64_t, std::span<std::byte>) { return false; }

  // Writes everything, or fails and latches; never a silent short write.
  Status write(std::uint64_t offset, std::span<const std::byte> source) {
    const iovec piece{const_cast<std::byte*>(source.data()), source.size()};
    return write_pieces(offset, {&piece, 1});
  }
  Status write_pieces(std::uint64_t offset, std::span<const iovec> pieces) {
    MEMLITH_TRY(check_latch());
    return latch(do_write(offset, pieces));
  }

  // Writes each piece at its offset; offsets ascend, all lie within kApartBytesMax, and less than a file system's block
  // lies between two pieces. No other program writes the file: where the medium gets whole blocks anyway, the bytes
  // between them may be written again, as they are, by one call for all.
  static constexpr std::uint64_t kApartBytesMax = 64 * kKiB;
  Status write_apart(std::span<const std::uint64_t> offsets, std::span<const iovec> pieces);
  // A page cache: of a block that was written in part, everything goes to the medium.
  [[nodiscard]] virtual bool writes_whole_blocks() const { return false; }

  // True if write_through() of so many bytes costs less than a write and a flush.
  [[nodiscard]] bool can_write_through(std::uint64_t bytes) const {
    return bytes <= caps_.through_bytes_max && direct();
  }
  // As write_pieces(), and on ok these bytes survive power loss: those of no other write. They replace bytes that were
  // written before, in space that is durably the file's. Not serialised with flushes: a flush that fails loses only
  // what the disk's cache has, and bytes of a forced unit access are not left there.
  Status write_through(std::uint64_t offset, std::span<const iovec> pieces);

  // On ok, all writes that had returned survive power loss.
  //
  // Flushes run one at a time: of two concurrent flushes, one may fail and lose the bytes of both, and the other may
  // then return ok. That would amount to retrying a failed flush and believing it. [schedule/flush-fails]
  Status flush() {
    const LockGuard lock(flush_mutex_);
    return flush_unless_latched();
  }

  // Makes the file at least `bytes` long with its space reserved, new bytes reading as zeros. A full disk (no_space)
  // does not latch: nothing promised is lost. Durable after the next flush.
  Status reserve(std::uint64_t bytes) {
    MEMLITH_TRY(check_latch());
    return do_reserve(bytes);
  }

  // Reserves disk space for the file's holes. Neither content nor length changes, also on failure. A full disk
  // (no_space) does not latch. Not durable: a crash may bring holes back, and the next opening fills them again.
  Status fill_holes() {
    MEMLITH_TRY(check_latch());
    return do_fill_holes();
  }

  // Pages [offset, offset + bytes) read as zeros from now on and need no disk space, if the file system can give the
  // space back. Fails and latches like a write, and is as durable as one.
  Status discard(std::uint64_t offset, std::uint64_t bytes) {
    MEMLITH_TRY(check_latch());
    return latch(do_discard(offset, bytes));
  }
  // Reserves disk space for these pages again; as fill_holes().
  Status undiscard(std::uint64_t offset, std::uint64_t bytes) {
    MEMLITH_TRY(check_latch());
    return do_undiscard(offset, bytes);
  }

  // Sets the exact length. Durable after the next flush.
  Status truncate(std::uint64_t bytes) {
    MEMLITH_TRY(check_latch());
    return latch(do_truncate(bytes));
  }

  // Where the content of [offset, offset + bytes), or the beginning of it, can be mapped with MAP_PRIVATE; `offset` is
  // a multiple of the page. Only on buffered devices, where the mapping and write() see the same pages. Does not
  // allocate for content that was mapped before.
  virtual Result<Mappable> mappable(std::uint64_t offset, std::uint64_t bytes) = 0;

  // For queues: called before and after a write that bypasses the page cache. Returns whether it may; if not, nothing
  // has begun.
  virtual bool begin_direct_write() { return false; }
  virtual void end_direct_write() {}

  // The offset of the first byte from `offset` on that may differ from zero, or the size of the file if there is none;
  // the bytes between are a hole. `offset` lies before the end of the file. A device that cannot find holes returns
  // `offset`.
  virtual std::uint64_t skip_hole(std::uint64_t offset) { return offset; }

  // The first hole from `offset` on, which lies before the end of the file. Nothing: there is none, or the device
  // cannot find holes.
  struct Hole {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  virtual std::optional<Hole> next_hole(std::uint64_t /*offset*/) { return std::nullopt; }

  // Copies the first `bytes` bytes into a file in memory. The device has these bytes, and no thread writes them
  // meanwhile; later writes do not change the copy. Holes and pages of zeros take no memory. Only on buffered devices.
  // Errors: no_memory, too_many_files, and those of reads; none of them latches.
  Result<Descriptor> copy_to_memory(std::uint64_t bytes);

  // Makes the content that of `source`, of which no byte is copied: the two share blocks until one of them is written
  // (reflink). False: the file system cannot, and nothing happened. As durable as a write.
  virtual Result<bool> clone(Device&) { return false; }

  // At most `depth` transfers at once. Falls back to one at a time if the system offers nothing better.
  virtual std::unique_ptr<IoQueue> make_queue(std::uint32_t depth);

  [[nodiscard]] bool latched() const { return latched_.load(std::memory_order_acquire); }

  // Latches from outside: an asynchronous transfer failed, or the floor above found the medium unusable. Returns the
  // failure as `io`, whatever its errno: the bytes may be on the medium or not, and no_space or no_memory would claim
  // that they are not.
  Status latch(Status status);
  // `poisoned` once latched.
  Status check_latch() const;

 protected:
  Device(DeviceCaps caps, std::string path, bool direct) : caps_(caps), path_(std::move(path)), direct_(direct) {}

  virtual Status do_read(std::uint64_t offset, std::span<std::byte> target) = 0;
  virtual Status do_write(std::uint64_t offset, std::span<const iovec> pieces) = 0;
  // False: it cannot, or cannot any more, and nothing was written.
  virtual Result<bool> do_write_through(std::uint64_t, std::span<const iovec>) { return false; }
  virtual Status do_flush() = 0;
  virtual Status do_reserve(std::uint64_t bytes) = 0;
  virtual Status do_fill_holes() = 0;
  virtual Status do_truncate(std::uint64_t bytes) = 0;
  // Writes zeros, which keeps the space.
  virtual Status do_discard(std::uint64_t offset, std::uint64_t bytes);
  virtual Status do_undiscard(std::uint64_t, std::uint64_t) { return kOk; }

  DeviceCaps caps_;
  std::string path_;
  std::atomic<bool> direct_;  // only a hint; code that needs certainty holds a lock of its own

 private:
  Status flush_unless_latched() {
    MEMLITH_TRY(check_latch());
    return latch(do_flush());
  }

  Mutex flush_mutex_;  // held by the flush that is under way
  mutable Mutex latch_mutex_;
  KeptFailure why_ MEMLITH_GUARDED_BY(latch_mutex_);  // the first
  std::atomic<bool> latched_{false};                  // release in latch(), acquire in latched()
};

}  // namespace memlith::core
