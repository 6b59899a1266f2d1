// The log that decides the commits of several files of one folder ("common commits"): all or none of them. Floor:
// store. docs/format.md, "The common log".
//
// A common commit is one frame of the common log, with what it changes in each file; the flush of this frame decides
// it. Only then does each file's own log get its part, as a commit that also sets the mark (CommonMark): the number of
// the common commit. Nothing waits for the flush of these. So a file's own log may lack common commits at its end, and
// nowhere else: a commit of one file flushes what is before it, and frames of the common log are freed only when the
// logs of its files are flushed. A file's log names the common log, by the mark, before the common log has anything
// for the file.
//
// An opening for writing that finds a mark appends what is missing to the file's own log, in its order. A read-only one
// lays it over the file. The common log is removed with the last file that leaves it.
//
// Threads: one at a time, with the mutex. One that was found belongs to the opening.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/sync.hpp"
#include "device/volume.hpp"
#include "log/log.hpp"
#include "store/format.hpp"
#include "store/objects.hpp"
#include "store/options.hpp"

namespace memlith::core {

class Store;

class CommonLog {
 public:
  // A common commit's changes in one file.
  struct Part {
    std::uint64_t log_id = 0;
    Changes changes;
  };

  // A new one, for files of the folder that `volume` is, with the permissions of one of them. Durable on ok.
  static Result<std::unique_ptr<CommonLog>> make(Volume& volume, Store& like);
  // The one that the mark of the file at `path` names, with the common commits that the file's own log, `log_id`,
  // lacks. They are on the medium, unless the options say read-only. Errors: corrupt (also: it is missing), busy.
  static Result<std::unique_ptr<CommonLog>> find(Volume& volume, const StoreOptions& options, const std::string& path,
                                                 std::uint64_t log_id, const CommonMark& mark);
  ~CommonLog() = default;
  CommonLog(const CommonLog&) = delete;
  CommonLog& operator=(const CommonLog&) = delete;

  [[nodiscard]] Mutex& mutex() MEMLITH_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // ---- of one that was made
  // The file's log says from now on that its newest commits may be here. Durable on ok.
  Status join(Store& store);
  [[nodiscard]] bool has(const Store& store) const;
  // The mark that the next common commit sets.
  [[nodiscard]] CommonMark next_mark() const { return {log_->log_id(), newest_ + 1}; }
  // Decides the next common commit: durable on ok, and every file's log has to get its part before anything else is
  // done here. Otherwise nothing was committed, unless the files are poisoned.
  Status commit(std::span<const Part> parts);
  // All of its files are.
  void poison(Status cause);
  // True if it is poisoned, or was removed with its last file: there has to be another one. Any thread.
  [[nodiscard]] bool is_over() const { return is_over_ || log_->poisoned(); }
  // The file is closed next: its own log has everything, durably, and names this one no more.
  Status leave(Store& store);
  // The file of that log was closed.
  void has_left(std::uint64_t log_id);

  // ---- of one that was found
  using Visit = std::function<Status(std::uint64_t number, const Changes& changes)>;
  // In their order.
  Status for_each_missing(const Visit& visit) const;
  // The length that the file needs for them.
  [[nodiscard]] std::uint64_t length() const;
  // The file's own log has them, durably, and names this one no more.
  Status has_recovered(std::uint64_t log_id);

 private:
  struct Missing {
    CommonRecord record;
    std::vector<std::byte> bytes;  // what follows the record
  };

  explicit CommonLog(Volume& volume) : volume_(volume) {}
  Status open(const StoreOptions& options, bool writable);
  Status read(std::uint64_t log_id, const CommonMark& mark, bool writable);
  Status take(const Frame& frame, std::uint64_t log_id, const CommonMark& mark);
  Status make_room(std::uint64_t payload_bytes);
  Status free_frames();
  Status append(std::uint32_t kind, const std::set<std::uint64_t>& log_ids);
  Status remove();

  Volume& volume_;
  std::string name_;
  std::unique_ptr<OpenFile> file_;
  std::unique_ptr<VolumeLock> lock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Log> log_;
  Mutex mutex_;
  std::atomic<bool> is_over_ = false;
  std::vector<Store*> stores_;       // that may be part of the next commit
  std::set<std::uint64_t> members_;  // the logs of all files that may lack what is here
  std::uint64_t newest_ = 0;         // common commit
  std::vector<Missing> missing_;     // in one that was found
};

}  // namespace memlith::core
