// One schedule: processes with SQLite connections in mode shared and on plain SQLite, that work on a database of the
// model disk in the order of the laboratory's scheduler, and what must be true of it. Time is the scheduler's: a woken
// thread, a busy handler and a flush take as long as the model says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lab/scheduler.hpp"
#include "model_disk.hpp"
#include "processes.hpp"
#include "sqlite/src/shared/connection.hpp"
#include "sqlite/tests/words.hpp"

namespace memlith::test::exploration {

class Schedule;

// A thread of a process with a connection of its own.
struct Actor {
  // normal: shared, with synchronous=NORMAL; automatic: shared, with SQLite's own checkpoints; checkpointer: the thread
  // that makes them, without a connection.
  enum class Kind : std::uint8_t { shared, normal, plain, automatic, checkpointer };
  int process = 0;
  Kind kind = Kind::shared;
  void (*act)(Schedule& schedule, int actor) = nullptr;
  bool comes_late = false;  // opens the connection itself
};

struct Case {
  const char* name;
  const char* sentence;
  std::vector<Actor> actors;
  int failing_log_flush = -1;
  int passed_over_max = 1000;  // by how many later ones; only where no process is stopped
  bool stops = true;           // processes are stopped, too, not only killed
  // Every order with two deviations, not one: another process goes on when the model is called, or at a wait.
  bool takes_turns = false;
};

// The words of an actor. Each notes what is wrong.
class Schedule final : public sqlite::shared::Processes {
 public:
  Schedule(const Case& its_case, lab::Scheduler& scheduler) : case_(its_case), scheduler_(scheduler) {}

  // The database that all schedules begin with; once.
  static void prepare();
  // Runs it, as the scheduler's first thread; empty if nothing is wrong.
  std::string run();
  [[nodiscard]] std::uint64_t blocked_max_ns() const { return blocked_max_ns_; }

  // ---- words
  void open(int actor);
  void close(int actor);
  void pause(std::uint64_t microseconds);
  // A transaction that adds one to the actor's counter and to the sum; false where it failed.
  bool write(int actor, const char* begin = "begin immediate");
  void read(int actor);
  // Reads inside a transaction that has the write lock, rolls it back, and reads from what the connection has cached.
  void read_and_roll_back(int actor);
  void checkpoint(int actor, const char* how);
  // The only connection of all; its log is gone when it is closed.
  void close_last(int actor);
  // Checkpoints that the process leaves to its thread, until its other threads have ended.
  void make_checkpoints(int actor);

  // ---- Processes
  sqlite::shared::Registry& registry() override { return *here().registry; }
  bool take_checkpoint(const sqlite::shared::Checkpoint& checkpoint) override;
  void takes_write_lock(bool is_promised_to_another) override;

 private:
  struct Process {
    std::unique_ptr<sqlite::shared::Registry> registry = std::make_unique<sqlite::shared::Registry>();
    bool has_checkpointer = false;
    std::deque<sqlite::shared::Checkpoint> checkpoints;
  };
  // The content after a power cut, as it was last looked at.
  struct Cut {
    std::uint64_t changes = UINT64_MAX;  // of the disk
    std::vector<int> numbers;
  };
  struct Word {
    Word(Schedule& schedule, int actor);
    ~Word();
    Schedule& schedule;
    std::uint64_t begun;
  };
  [[nodiscard]] std::string name(int actor) const;
  [[nodiscard]] const Actor& at(int actor) const { return case_.actors[static_cast<std::size_t>(actor)]; }
  // The actor whose thread runs; -1: that of the schedule, which works for `for_`.
  [[nodiscard]] int running() const { return static_cast<int>(scheduler_.thread()) - 2; }
  [[nodiscard]] int process() const { return for_ < 0 && running() < 0 ? -1 : at(std::max(running(), for_)).process; }
  Process& here() { return processes_.at(process()); }
  [[nodiscard]] std::uint64_t now_ns() const { return static_cast<std::uint64_t>(scheduler_.now().count()); }
  void tell(const std::string& line);
  void open_all();
  void set_hooks();
  void waits();
  Db& db(int actor) { return dbs_[static_cast<std::size_t>(actor)]; }
  void wrong(const std::string& what);
  [[nodiscard]] bool can_know(int actor) const;
  // True if the code is one that the actor may be told.
  void told(int actor, int code, const std::string& what);
  void shown(int actor, const std::string& row, bool is_durable);
  void check_cuts(const std::string& when);
  std::vector<int> recover(const std::pair<std::string, std::string>& image);
  void asked_for_write_lock(bool granted);
  void wrote_log();
  void kill(int process);
  void check_end();

  const Case& case_;
  lab::Scheduler& scheduler_;
  std::map<int, Process> processes_;
  int for_ = -1;
  std::string wrong_;
  std::vector<Db> dbs_;
  std::vector<int> begun_, acknowledged_;
  std::vector<int> must_;  // what a power cut must not take back, by actor
  std::uint64_t blocked_max_ns_ = 0;
  Cut cuts_[2];
  // The line for the write lock: by actor, when it asked first, when it slept first, how many that asked later passed.
  std::vector<std::uint64_t> came_;
  std::vector<std::uint64_t> slept_at_;
  std::vector<bool> got_it_;  // and has not used it: a connection that waits looks whether the lock is free
  std::vector<int> passed_;
  std::vector<bool> has_ended_;
};

}  // namespace memlith::test::exploration
