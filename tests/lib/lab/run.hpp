// One life of a workload on a recording disk: the functions of which workloads consist. Each function changes the
// store, records in the history what it is about to change and what was acknowledged, and compares the engine's answer
// with the promises: no error without a cause, no success over a failed call, nothing acknowledged once poisoned.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/image.hpp"
#include "history.hpp"
#include "region/region.hpp"
#include "scheduler.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"
#include "store_volume.hpp"

namespace memlith::lab {

// Of the regions that workloads make.
inline constexpr std::uint64_t kAddress = 0x550000000000;
inline constexpr std::uint64_t kReserve = 1 * core::kMiB;

struct Write {
  std::string object;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The heap of a workload: in the region "heap", or in the file of a one-file store.
struct HeapPlan {
  std::uint64_t size = 0;
  std::uint64_t max_size = 0;
  core::TrackerKind tracker = core::TrackerKind::touched;
};
struct HeapLife;
struct AppLogLife;
struct AppLogModel;
struct AppLogPlan;
class Run;

// One step of a workload. Steps that make no sense (a commit to an object that is not there) do nothing, so that any of
// them may be left out when a failure is made smaller.
struct Step {
  std::string text;
  std::function<void(Run&)> act;
  // What a program does about this step after a crash in its middle; without it, the step itself.
  std::function<void(Run&)> again = nullptr;
};

// A small seeded number that random_identity() returns from now on; 0 gives the real one back.
void set_identity(std::uint64_t identity);

// Leaves out of what is written what differs from run to run.
void make_repeatable(core::SimVolume& volume);

class Run {
 public:
  Run(core::StoreOptions options, core::SimImage start, Content before);
  ~Run();

  // Does the steps [from, until), those in `wanted` only if it is not empty.
  void perform(const std::vector<Step>& steps, const std::vector<std::size_t>& wanted, std::size_t from,
               std::size_t until, bool again);
  // Which step was under way when `operations` were done.
  [[nodiscard]] std::size_t step_at(std::size_t operations) const;
  [[nodiscard]] const std::vector<std::pair<std::size_t, std::size_t>>& step_marks() const { return step_marks_; }

  core::SimVolume volume;
  History history;
  // Of the workloads with threads that meet; set for as long as the run is under way.
  Scheduler* scheduler = nullptr;
  // Other bytes than a step writes the first time.
  std::uint64_t other_bytes = 0;
  [[nodiscard]] const core::StoreOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }  // promises, in words
  // A bit flipped in what opening the store read: it may rightly have lost the last commit.
  [[nodiscard]] bool flip_in_open() const { return flip_in_open_; }

  // ---- store
  void open();
  void close();
  void abandon();  // walks away, as kill -9 would
  void create(const std::string& name, std::uint64_t size);
  void remove(const std::string& name);
  // One commit; with `size`, the first write's object has that size from then on. Only a one-file store's may become
  // smaller.
  void commit(const std::vector<Write>& writes, std::uint64_t size = 0);
  // The same for a file of any size; the part by which it grows is written completely, because bytes from before it
  // shrank may still be there.
  void resize_file(std::uint64_t size, const Write& write);
  // Commits until the log has gone into that segment.
  void fill_log_into(std::uint64_t segment, const std::string& object);
  // Several commits in one batch, of which `until` are waited for (all unless said).
  void batch(const std::vector<std::vector<Write>>& commits, std::size_t until = ~std::size_t{0});
  void checkpoint();
  // A checkpoint of one home whose superblock is reported as failed, but written. More of them follow.
  void checkpoints_that_fail();
  // A commit that does not fit the log at its limit: it must fail and leave no trace.
  void commit_too_large(const std::string& object, std::uint64_t bytes);

  // ---- things in the middle of a commit's I/O, always at the same operation
  // A checkpoint between the write and the flush of the commit.
  void commit_with_checkpoint_inside(const Write& write);
  // The same, and what the checkpoint flushes last is in the page cache only.
  void commit_with_forgotten_trim_inside(const Write& write);
  // A second batch is written and flushed before the first is written; a third thread waits for the second's commit.
  void two_batches_crosswise(const Write& first, const Write& second);
  // Threads side by side, at the scheduler's will.
  void threads(const std::vector<std::string>& objects, std::size_t commits_each);

  // ---- regions
  void map(const std::string& name, std::uint64_t size, core::TrackerKind tracker = core::TrackerKind::touched);
  void unmap(const std::string& name);
  void store(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // stores zeros
  void grow(const std::string& name, std::uint64_t size);
  void store_by_another(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // thread, which then ends
  void persist(const std::vector<std::string>& names, core::Scope scope = core::Scope::process);
  void persist_soon(const std::vector<std::string>& names, core::Scope scope);
  // Of a region that is tracked by touches, only the stores to these bytes.
  void persist_range(const Write& range);
  void discard(const Write& pages);
  void store_same(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // as often as it is called
  void wait();                                                                          // for all of those
  void rollback(const std::vector<std::string>& names);
  void release(const std::string& name);  // as a session does for its memory limit
  // A view of the regions: what was persisted last, whatever was stored since.
  void snapshot(const std::vector<std::string>& names);
  // Changes the writes' bytes, a quarter of each twice, in one transaction; persists regions meanwhile; ends it.
  enum class Ending : std::uint8_t { commit, commit_soon, abort };
  void transaction(const std::vector<Write>& writes, Ending ending, const std::vector<std::string>& persisted = {});
  // A file of which nothing has room on the disk, and that it has when the store is open.
  void make_holes();
  void check_holes();
  // Another thread, with nothing of its own, persists while the I/O of the first one is under way.
  void persist_joined_by_another(const std::string& name);

  // ---- the working image of a file
  void map_image();
  void store_image(std::uint64_t offset, std::uint64_t bytes);  // through the mapping
  void write_image(std::uint64_t offset, std::uint64_t bytes);  // through the descriptor
  void cut_image(std::uint64_t size);                           // to any length
  void sync_image(core::Range range = {0, core::kWholeFile}, bool wait = true);
  void roll_image_back();
  bool mark_use();  // whether the structure is open
  // Closes the store and removes its log, as `memlith run` does before a file is renamed or removed; the image goes on.
  void detach_image();
  // The image is that of the file again, which gets what it lacks with the next commit.
  void attach_image();
  void store_detached(std::uint64_t offset, std::uint64_t bytes);  // through the mapping, in between
  // ---- a heap, beside a model of it (run_heap.cpp)
  void open_heap(const HeapPlan& plan);
  bool open_in_region(HeapLife& life, const HeapPlan& plan, std::uint64_t fired_before);
  void close_heap();
  void allocate(std::uint64_t bytes, std::uint64_t alignment);
  void free_block(std::size_t which);  // of those that have no name, modulo their number
  void free_largest();
  void name_block(const std::string& name, std::size_t which);
  void unname(const std::string& name);
  void change_containers(std::uint64_t draw, std::size_t times);
  void persist_heap(bool wait);
  void rollback_heap();
  // In a change, which is committed or undone: containers are changed, or else blocks come and go.
  void transact_heap(std::uint64_t draw, std::size_t times, bool undone);
  // Stores a pointer to the inside of a block into an object with a name, frees what nothing leads to, and persists.
  void collect_heap();
  void damage_heap();
  // Threads that allocate, free each other's blocks, and persist.
  void heap_threads(std::size_t threads, std::size_t operations, std::uint64_t draw);
  // ---- an application log, alone or with a kv store, beside a model of them (run_applog.cpp)
  void open_applog(const AppLogPlan& plan);
  void append_entry(std::uint64_t bytes);  // if there is room
  void write_applog();
  void read_applog(std::uint64_t entries);                 // without consuming them
  void consume_applog(std::uint64_t entries);              // of a log alone
  void consume_with_kv(std::uint64_t entries, bool wait);  // of one with a kv store
  void persist_kv();
  // (run_applog_cuts.cpp)
  void truncate_applog_after(std::uint64_t entries);
  void truncate_applog_before(std::uint64_t entries);
  void restart_applog(std::uint64_t skipped);
  void read_applog_by_number(bool backwards);
  void set_term(std::uint64_t term);
  // One commit for what was stored to the heap and for records of the kv store that say what the heap holds.
  void commit_heap_with_kv(bool wait);

 private:
  struct Image {
    ~Image();
    std::unique_ptr<core::FileImage> image;
    core::Descriptor detached;  // the image while it has no store
    std::byte* mapping = nullptr;
    std::vector<std::byte> expected;                  // the content that it must have
    std::vector<std::byte> captured;                  // what a commit took last
    std::uint64_t shortest_bytes = core::kWholeFile;  // since that
  };
  struct Memory {
    std::unique_ptr<core::Region> region;
    std::vector<std::byte> expected;                           // the content that it must have
    std::vector<std::byte> captured;                           // what a persist took last
    std::vector<std::pair<std::uint64_t, std::uint64_t>> own;  // stored to by this thread since
  };

  class HeapThreads;

  [[nodiscard]] std::size_t now() const { return volume.operations(); }
  static void record(const core::Region& region, std::uint64_t offset, std::uint64_t bytes);
  void broken(std::string what);
  // Judges what a call returned. True when it was ok.
  bool passed(core::Status status, std::string_view what, std::uint64_t fired_before);
  void settle(std::size_t commit, bool ok);
  void now_poisoned();
  [[nodiscard]] std::uint64_t fired() { return volume.faults().fired(); }
  [[nodiscard]] std::uint64_t fill_of(std::size_t part) const;
  void store_bytes(const std::string& name, std::uint64_t offset, const std::vector<std::byte>& content);
  [[nodiscard]] std::optional<core::ObjectInfo> find(const std::string& name) const;
  [[nodiscard]] std::vector<Write> possible(const std::vector<Write>& writes, std::uint64_t size) const;
  core::Result<core::Lsn> append(const std::vector<Write>& writes, std::uint64_t fill, std::uint64_t size,
                                 std::size_t commit = kNever);
  [[nodiscard]] std::string log_name() const;
  void drop_regions();
  void check_heap(std::string_view when);
  // `also`: what the commit changes beside the logs and the kv store.
  bool applog_commit(std::string_view text, bool wait, const std::function<core::Status()>& act,
                     const std::function<void(AppLogModel& framed)>& framed, const Change& also = nullptr);
  std::unique_ptr<core::Region> applog_region(const std::string& name, std::uint64_t size, std::uint64_t most);
  bool open_audit();
  core::Status join_audit(core::Transaction& transaction, std::uint64_t number, const std::string& entry);
  void close_applog();
  void write_before_cut();
  void destroy_everything();
  // What the capture takes is the heap as it is now. False: it failed.
  bool capture_heap(const std::string& what, bool wait, const std::function<core::Result<core::Lsn>()>& capture);
  void heap_is_undone(bool ok);
  void heap_was_captured(std::vector<std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> capture_of(Memory& memory, core::Scope scope) const;
  void persist_or_capture(const std::vector<std::string>& names, core::Scope scope, bool wait);
  [[nodiscard]] bool can_write(const std::vector<Write>& writes) const;
  using Contents = std::map<std::string, std::vector<std::byte>>;
  bool commit_transaction(std::string_view text, const Contents& captured, const Contents& expected, bool wait,
                          const std::function<core::Result<core::Lsn>()>& capture);
  void check_memory(const std::vector<Write>& writes, std::string_view when);

  core::StoreOptions options_;
  StoreVolume store_volume_;
  std::unique_ptr<core::Store> store_;
  std::map<std::string, Memory> regions_;
  std::unique_ptr<Image> image_;
  std::unique_ptr<Image> detached_;
  std::unique_ptr<HeapLife> heap_;
  std::unique_ptr<AppLogLife> applog_;
  std::map<std::string, std::vector<std::byte>> region_content_;  // as last persisted, of regions that were mapped once
  std::vector<std::pair<std::size_t, core::Lsn>> soon_;           // captured, not waited for
  std::optional<std::size_t> creation_;
  bool created_ = false;
  bool poisoned_ = false;
  std::size_t poisoned_since_ = 0;  // how many commits had begun by then
  bool flip_in_open_ = false;
  std::uint64_t groups_ = 0;
  std::size_t step_ = 0;
  std::size_t part_ = 0;                                         // of the step
  std::vector<std::pair<std::size_t, std::size_t>> step_marks_;  // (operations done when it began, step)
  std::vector<std::string> broken_;
};

// Replay says in a marked file which commits the file holds. To a user these bytes are SQLite's own.
void hide_moment(std::vector<std::byte>& file);

// From here on, flipped bits strike only what carries checksums.
void flip_no_homes(core::SimVolume& volume, const core::StoreOptions& options);

// What one recovery found.
struct Recovered {
  bool ok = false;
  Fingerprint found = 0;
  Content content;
  bool was_clean = false;
  std::uint64_t replayed = 0;
  std::uint64_t reads_of_open = 0;
  core::Status status;
  std::string error;
  std::string unsound;  // what is wrong with a heap in it; empty: nothing
};
// Opens the store on the volume and reads its content.
Recovered recover(core::SimVolume& volume, const core::StoreOptions& options, bool read_only = false);
// The fault that a read-only opening shows, or empty: it must show the same content and write nothing.
std::string look_wrong(const core::SimImage& image, const core::StoreOptions& options, const Recovered& recovered);

std::string text_of_commit(const std::vector<Write>& writes, std::uint64_t size);
Change change_of_commit(std::vector<Write> writes, std::uint64_t fill, std::uint64_t size);
// The bytes that a commit writes.
std::vector<std::byte> bytes_of(std::uint64_t fill, const Write& write);

}  // namespace memlith::lab
