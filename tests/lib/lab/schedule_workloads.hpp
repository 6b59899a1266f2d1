// The small cases that are run under the scheduler, and the words they are written in. To add one: write a row of the
// table in schedule_workloads.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mutant_volume.hpp"
#include "run.hpp"
#include "scheduler.hpp"
#include "sim/history.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"

namespace memlith::lab {

// A volume whose every call is a place to switch threads.
class SwitchingVolume final : public core::VolumeDecorator {
 public:
  SwitchingVolume(core::Volume& volume, Scheduler& scheduler) : VolumeDecorator(volume), scheduler_(scheduler) {}

 private:
  void before(const char* what) override { scheduler_.here(what); }

  Scheduler& scheduler_;
};

// One run of a case: the disk, the store, and what was promised.
class Session {
 public:
  Session(Scheduler& scheduler, core::StoreOptions options, core::SimImage start, Content before);

  core::SimVolume volume;
  History history;
  Scheduler& scheduler;
  std::optional<MutantVolume> mutated;  // what the store is on if a mutant of writes and flushes is active
  std::unique_ptr<core::Store> store;
  std::size_t decided_from = 0;  // operations done when the deciding began
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  [[nodiscard]] const core::StoreOptions& options() const { return options_; }

  void open();
  // Closes; with it everything captured before is acknowledged.
  void close();
  void checkpoint();
  void write_home();
  // A commit, and the wait for it.
  void commit(const std::string& object, std::uint64_t offset, std::uint64_t bytes);
  // A commit that a thread of the store makes durable; wait() is for those of the calling thread.
  struct Captured {
    std::size_t commit = 0;
    core::Lsn end;
    bool ok = false;
  };
  Captured commit_soon(const std::string& object, std::uint64_t offset, std::uint64_t bytes);
  // A commit of these bytes that sync() of its end makes durable; acknowledge() takes what that returned.
  Captured capture(std::string text, Change change, const std::string& object, std::uint64_t offset,
                   std::span<const std::byte> bytes);
  void acknowledge(const Captured& captured, core::Status status) { acknowledge(*store, captured, status); }
  // Until the store says that it is durable, without helping.
  void await_durable(const Captured& captured);
  // The store does not exist yet; the first opening creates it.
  void expect_creation();
  // No failure but a lack of memory was planned.
  void expect_unpoisoned();
  // Opens the store, commits, closes it; BUSY because another has it open is no error.
  void use_alone(const std::string& object, core::Volume& through);

  // A promise that does not hold.
  void broken(std::string what);

  // Threads beside each other, from here on at the scheduler's will; returns when all have ended.
  void side_by_side(std::vector<std::function<void()>> acts);

 private:
  [[nodiscard]] std::size_t now() const { return volume.operations(); }
  Captured append(core::Store& store, const std::string& object, std::uint64_t offset, std::uint64_t bytes, bool sync);
  Captured append(core::Store& store, std::size_t commit, const core::Extent& extent,
                  std::span<const std::byte> content, bool sync);
  void acknowledge(core::Store& store, const Captured& captured, core::Status status);

  core::StoreOptions options_;
  std::vector<std::string> broken_;
  std::vector<std::size_t> captured_;  // and not acknowledged yet
  std::uint64_t fill_ = 0;
  std::size_t creation_ = kNever;
};

struct ScheduleWorkload {
  std::string_view name;
  std::string_view sentence;
  core::StoreOptions (*options)();
  void (*act)(Session& session);
  std::size_t preemptions = 2;  // what the tests try
  bool fresh = false;           // begins on an empty disk, without a store
};

// Defined in schedule_connections.cpp.
void connections_share_flushes(Session& session);
void connections_flush_fails(Session& session);
void connections_second_flush_fails(Session& session);

// Defined in schedule_kv.cpp.
void kv_two_commits(Session& session);
void kv_conflicts(Session& session);
void kv_weak_beside_sync(Session& session);
void kv_window(Session& session);
void kv_beside_checkpoint(Session& session);
void kv_views(Session& session);
void kv_refused(Session& session);
void kv_small_frames(Session& session);
void kv_two_stores(Session& session);
void kv_before_persist(Session& session);
void kv_tickets(Session& session);

std::span<const ScheduleWorkload> schedule_workloads();
const ScheduleWorkload* find_schedule_workload(std::string_view name);
// A session of the workload, on a disk with a store of three objects that was created once. `in_flight_max` limits the
// batches in flight.
std::unique_ptr<Session> make_session(const ScheduleWorkload& workload, std::uint32_t in_flight_max,
                                      Scheduler& scheduler);

}  // namespace memlith::lab
