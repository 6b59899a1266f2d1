#include "archive.hpp"

#include <memlith/archive.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

// Where an archive lies: a folder, or the commands that put, get and remove an object.
class Target {
 public:
  explicit Target(const nb::tuple& given) {
    for (const nb::handle each : given) parts_.emplace_back(nb::cast<nb::bytes>(each).c_str());
    target_.struct_size = sizeof target_;
    const char** const fields[] = {&target_.folder, &target_.put_command, &target_.get_command,
                                   &target_.remove_command};
    for (std::size_t i = 0; i < parts_.size() && i < std::size(fields); ++i) {
      if (!parts_[i].empty()) *fields[i] = parts_[i].c_str();
    }
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  const memlith_archive_target* get() const { return &target_; }

 private:
  std::vector<std::string> parts_;
  memlith_archive_target target_{};
};

// Any thread may call any method; one at a time is at work.
class Archive {
 public:
  Archive(const nb::bytes& store, const nb::tuple& target, std::uint32_t flags, std::uint64_t wait_ms,
          std::uint64_t full_every_s, std::uint64_t keep_s, std::uint64_t keep_log_bytes) {
    const std::string path = store.c_str();
    const Target place(target);
    memlith_archive_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    options.wait_ms = wait_ms;
    options.full_every_s = full_every_s;
    options.keep_s = keep_s;
    options.keep_log_bytes = keep_log_bytes;
    const Unlocked unlocked;
    check(memlith_archive_open(path.c_str(), place.get(), &options, &handle_));
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() {
    if (handle_ == nullptr) return;
    const Unlocked unlocked;
    (void)memlith_archive_close(handle_);
  }

  nb::tuple step() {
    memlith_archive_progress progress{};
    progress.struct_size = sizeof progress;
    with_handle([&](memlith_archive* handle) { return memlith_archive_step(handle, &progress); });
    return nb::make_tuple(progress.archived_lsn, progress.durable_lsn, progress.segments, progress.full_copies,
                          progress.gaps, progress.refused_copies, progress.log_is_full != 0);
  }
  void copy() {
    with_handle([](memlith_archive* handle) { return memlith_archive_copy(handle); });
  }
  void close() {
    const Unlocked unlocked;
    const std::lock_guard lock(mutex_);
    check(memlith_archive_close(std::exchange(handle_, nullptr)));
  }

 private:
  template <typename Work>
  void with_handle(Work&& work) {
    const Unlocked unlocked;
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr) fail(MEMLITH_INVALID, "the archive is closed");
    check(work(handle_));
  }

  std::mutex mutex_;
  memlith_archive* handle_ = nullptr;
};

nb::list runs(const nb::tuple& target) {
  struct Run {
    memlith_archive_run run;
    std::string why;
  };
  std::vector<Run> found;
  const Target place(target);
  {
    const auto note = [](void* context, const memlith_archive_run* run) {
      static_cast<std::vector<Run>*>(context)->push_back({*run, run->why});
    };
    const Unlocked unlocked;
    check(memlith_archive_list(place.get(), note, &found));
  }
  nb::list result;
  for (const auto& [run, why] : found) {
    result.append(nb::make_tuple(run.number, why, run.begin_lsn, run.end_lsn, run.begin_ns, run.end_ns, run.segments,
                                 run.segment_bytes, run.full_copies, run.full_bytes));
  }
  return result;
}

nb::tuple restore(const nb::tuple& target, const nb::bytes& dest, std::uint32_t at, std::uint64_t value,
                  std::uint64_t run, std::uint32_t flags) {
  struct Restoring {
    Restoring(const nb::tuple& target, const nb::bytes& dest) : place(target), path(dest.c_str()) {}
    Target place;
    std::string path;
    memlith_restore_options options{};
    memlith_restored restored{};
    std::string cut_short;
  };
  const auto all = std::make_shared<Restoring>(target, dest);
  all->options.struct_size = sizeof all->options;
  all->options.at = at;
  all->options.value = value;
  all->options.run = run;
  all->options.flags = flags;
  all->restored.struct_size = sizeof all->restored;
  run_hearing_signals([all] {
    check(memlith_restore(all->place.get(), all->path.c_str(), &all->options, &all->restored));
    char sentence[1024];
    if (all->restored.cut_short != 0 && memlith_last_error(sentence, sizeof sentence) > 0) all->cut_short = sentence;
  });
  const memlith_restored& restored = all->restored;
  return nb::make_tuple(restored.lsn, restored.segments, restored.clock_went_back != 0, all->cut_short);
}

}  // namespace

void define_archive(nb::module_& module) {
  nb::class_<Archive>(module, "Archive")
      .def(nb::init<const nb::bytes&, const nb::tuple&, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    std::uint64_t>(),
           nb::arg("store"), nb::arg("target"), nb::arg("flags"), nb::arg("wait_ms"), nb::arg("full_every_s"),
           nb::arg("keep_s"), nb::arg("keep_log_bytes"))
      .def("step", &Archive::step, "Looks at the store once: memlith_archive_progress.")
      .def("copy", &Archive::copy, "Makes a full copy now.")
      .def("close", &Archive::close, "Archives what is left.");
  module.def("archive_runs", &runs, nb::arg("target"), "What an archive holds: memlith_archive_run.");
  module.def("restore", &restore, nb::arg("target"), nb::arg("dest"), nb::arg("at"), nb::arg("value"), nb::arg("run"),
             nb::arg("flags"), "Restores a store: memlith_restored, and what cut it short.");
}

}  // namespace memlith::python
