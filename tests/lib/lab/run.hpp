// One life of a workload on a recording disk: what all steps need, and the words about the store itself. Each word
// changes the store, records in the history what it is about to change and what was acknowledged, and compares the
// engine's answer with the promises: no error without a cause, no success over a failed call, nothing acknowledged once
// poisoned. Regions, images, heaps and application logs have words of their own (run_regions.hpp, image_steps.cpp,
// heap_life.hpp, applog_life.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <vector>

#include "region/region.hpp"
#include "scheduler.hpp"
#include "sim/history.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"
#include "store_volume.hpp"

namespace memlith::lab {

// The regions that workloads make.
inline constexpr std::uint64_t kAddress = 0x550000000000;
inline constexpr std::uint64_t kReserve = 1 * core::kMiB;

struct Write {
  std::string object;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class Run;

// One step of a workload. Steps that make no sense (a commit to an object that is not there) do nothing, so that any of
// them may be left out when a failure is made smaller.
struct Step {
  std::string text;
  std::function<void(Run&)> act;
  // A program's answer to a crash in the middle of this step; without one, the step itself.
  std::function<void(Run&)> again = nullptr;
};

inline constexpr std::uint64_t kIdentity =
    0x6c61626f7261746f;  // of every log, so that states can be told apart by content

// A small seeded number that random_identity() returns from now on; 0 gives the real one back.
void set_identity(std::uint64_t identity);

// Leaves out of what is written what differs from run to run.
void make_repeatable(core::SimVolume& volume);

// The structures that a run has open beside its store, with the words about them. None outlives the store.
struct Structure {
  explicit Structure(Run& its_run) : run(its_run) {}
  Structure(const Structure&) = delete;
  Structure& operator=(const Structure&) = delete;
  virtual ~Structure() = default;

  Run& run;
};

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
  // For the workloads with threads that meet; set for as long as the run is under way.
  Scheduler* scheduler = nullptr;
  // Other bytes than a step writes the first time.
  std::uint64_t other_bytes = 0;
  [[nodiscard]] const core::StoreOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }  // promises, in words
  // A bit flipped in what opening the store read: it may rightly have lost the last commit.
  [[nodiscard]] bool flip_in_open() const { return flip_in_open_; }

  // ---- words
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
  void write_home();
  void idle();
  // A checkpoint of one home whose superblock is reported as failed, but written. More of them follow.
  void checkpoints_that_fail();
  // A commit that does not fit the log at its limit: it must fail and leave no trace.
  void commit_too_large(const std::string& object, std::uint64_t bytes);
  void wait();  // for all that was captured without a wait
  // Closes the store and removes its log, as `memlith run` does before a file is renamed or removed.
  void close_and_remove_log();
  // A file of which nothing has room on the disk, and that it has when the store is open.
  void make_holes();
  void check_holes();

  // ---- words in the middle of a commit's I/O, always at the same operation (run_threads.cpp)
  // A checkpoint between the write and the flush of the commit.
  void commit_with_checkpoint_inside(const Write& write);
  // The same, and what the checkpoint flushes last is in the page cache only.
  void commit_with_forgotten_trim_inside(const Write& write);
  // A second batch is written and flushed before the first is written; a third thread waits for the second's commit.
  void two_batches_crosswise(const Write& first, const Write& second);
  // Threads side by side, at the scheduler's will.
  void threads(const std::vector<std::string>& objects, std::size_t commits_each);

  // ---- what the words of all structures need
  std::unique_ptr<core::Store> store;
  std::map<std::string, std::unique_ptr<core::Store>> beside;  // of the other files on the volume, by name
  bool poisoned = false;
  std::map<std::string, std::vector<std::byte>> region_content;  // as last persisted, of regions that were mapped once
  std::vector<std::pair<std::size_t, core::Lsn>> soon;           // captured, not waited for
  std::uint64_t groups = 0;
  std::uint64_t forgiven = 0;  // failures below a call that is ok nevertheless

  // The structure that is open, or null.
  template <class Life>
  [[nodiscard]] Life* find() const {
    const auto found = structures_.find(typeid(Life));
    return found == structures_.end() ? nullptr : static_cast<Life*>(found->second.get());
  }
  template <class Life>
  Life& keep(std::unique_ptr<Life> life) {
    return static_cast<Life&>(*(structures_[typeid(Life)] = std::move(life)));
  }
  template <class Life>
  void drop() {
    structures_.erase(typeid(Life));
  }

  [[nodiscard]] std::size_t now() const { return volume.operations(); }
  [[nodiscard]] std::size_t step_index() const { return step_; }
  [[nodiscard]] std::uint64_t fired() { return volume.faults().fired(); }
  [[nodiscard]] bool flipped() { return volume.faults().fired(core::SimFaults::Kind::flip_bit) > 0; }
  [[nodiscard]] std::uint64_t fill_of(std::size_t part) const { return 1 + step_ * 29 + part * 113 + other_bytes; }
  // The bytes of a write of this step: others each time.
  [[nodiscard]] std::vector<std::byte> next_bytes(const Write& write);
  [[nodiscard]] std::optional<core::ObjectInfo> info_of(const std::string& name) const;

  void broken(std::string what);
  // Judges what a call returned. True when it was ok.
  bool passed(core::Status status, std::string_view what, std::uint64_t fired_before);
  bool is_poisoned();  // the store: nothing is acknowledged any more
  // A commit returned: the history learns what became of it.
  void note_outcome(std::size_t commit, bool ok);
  // One call, `what`, that commits `change`, and is waited for unless it goes on with wait(). One that does not fit the
  // log is no failure. True when it was ok.
  bool capture(std::string text, Change change, std::string_view what, bool wait,
               const std::function<core::Result<core::Lsn>()>& act);
  // The end of a capture, once it is durable if the call is to wait.
  core::Result<core::Lsn> durable(core::Result<core::Lsn> end, bool wait);
  // Opens the store of a file beside the first; adds what it shows to the content. False: it failed.
  bool open_beside(const std::string& name, Content& content);
  // Opens a region, which is made if there is none. Null: it failed.
  std::unique_ptr<core::Region> open_region(const std::string& name, core::RegionOptions options,
                                            std::string_view what = "opening a region");
  // The bytes are those that were persisted last, if that is known; else `what` is broken.
  void expect_persisted(const std::string& name, const std::vector<std::byte>& bytes, std::string what);

 private:
  void now_poisoned();
  [[nodiscard]] std::vector<Write> possible(const std::vector<Write>& writes, std::uint64_t size) const;
  core::Result<core::Lsn> append(const std::vector<Write>& writes, std::uint64_t fill, std::uint64_t size,
                                 std::size_t commit = kNever);
  void drop_structures();

  core::StoreOptions options_;
  StoreVolume store_volume_;
  std::map<std::string, StoreVolume> volumes_beside_;
  std::map<std::type_index, std::unique_ptr<Structure>> structures_;
  std::optional<std::size_t> creation_;
  bool created_ = false;
  std::size_t poisoned_since_ = 0;  // how many commits had begun by then
  bool flip_in_open_ = false;
  std::size_t step_ = 0;
  std::size_t part_ = 0;                                         // of the step
  std::vector<std::pair<std::size_t, std::size_t>> step_marks_;  // (operations done when it began, step)
  std::vector<std::string> broken_;
};

// ---- steps of words: of the run, of a structure, which does nothing while that is not open, or of neither

template <class... Takes, class... Given>
Step step(std::string text, void (Run::*word)(Takes...), Given... given) {
  return {std::move(text), [=](Run& run) { (run.*word)(given...); }};
}
template <class Life, class... Takes, class... Given>
Step step(std::string text, void (Life::*word)(Takes...), Given... given) {
  return {std::move(text), [=](Run& run) {
            if (Life* const life = run.find<Life>()) (life->*word)(given...);
          }};
}
template <class... Takes, class... Given>
Step step(std::string text, void (*word)(Run&, Takes...), Given... given) {
  return {std::move(text), [=](Run& run) { word(run, given...); }};
}

// Replay says in a marked file which commits the file holds. To a user these bytes are SQLite's own.
void hide_moment(std::vector<std::byte>& file);

// From here on, flipped bits strike only what carries checksums.
void flip_no_homes(core::SimVolume& volume, const core::StoreOptions& options);

// The findings of one recovery.
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
