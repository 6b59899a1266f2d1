// One workload on each of the systems, in turns.
//
// A repetition runs every system once, in an order that moves on by one each time. A turn opens the system's own copy
// of the database, warms it up, measures, and closes it, so that nothing one system leaves undone (checkpoints, dirty
// pages) is done while another is measured. The raw device has its turn like the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calls.hpp"
#include "connection.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "meter.hpp"
#include "systems.hpp"

namespace memlith::sqlite_bench {

// The measurements of a turn.
struct Turn {
  std::vector<std::uint64_t> samples_ns;  // what the workload calls its latency
  std::vector<std::uint64_t> further_ns;  // a second one; may be empty
  std::uint64_t operations = 0;           // for the throughput
  std::uint64_t commits = 0;              // that changed something, those of the warm-up too
  std::uint64_t wall_ns = 0;
  Json more = Json::object();  // the workload's own
};

// A workload on one system, and what the database must hold by now.
class Workload {
 public:
  virtual ~Workload() = default;
  // Prepares statements. Each turn has a connection of its own.
  [[nodiscard]] virtual MaybeFailure attach(Connection& connection) = 0;
  virtual void detach() = 0;
  [[nodiscard]] virtual MaybeFailure warm_up(Turn& turn) = 0;
  [[nodiscard]] virtual MaybeFailure measure(Turn& turn) = 0;
  // Compares everything that the database holds with what it must; `connection` is plain SQLite's, after a clean close.
  [[nodiscard]] virtual MaybeFailure verify(Connection& connection, Checksum& checksum, std::uint64_t& rows) = 0;
};

// The turns of one system, and the workload that knows its state.
struct Lane {
  System system;
  std::string path;
  std::unique_ptr<Workload> workload;  // none: the raw device
  std::vector<Turn> turns;
  std::vector<double> operations_per_s;
  std::vector<double> process_bytes_per_commit;
  std::vector<double> device_bytes_per_commit;
  std::vector<double> user_us_per_operation;
  std::vector<double> system_us_per_operation;
  std::vector<CallCounts> calls;  // of each turn's measured part; empty unless they are counted
  Json memlith = nullptr;         // its own counters, of the last turn
  std::string checksum;
  std::uint64_t rows = 0;
};

struct Shape {
  Json fields;  // of every line: the benchmark and its sizes
  std::string latency;
  std::string further;
  bool same_content = false;        // all systems must hold the same at the end
  bool fresh_each_turn = false;     // each turn begins with the template again, and a new workload
  std::uint64_t raw_bytes = 4096;   // a round of the raw device; 0: leave it out
  std::uint64_t raw_rounds = 1000;  // a turn
};

class Contest {
 public:
  using Make = std::function<std::unique_ptr<Workload>()>;
  static Result<Contest> make(const Settings& settings);

  // Has plain SQLite build the database, in one transaction, that each system gets a copy of.
  [[nodiscard]] MaybeFailure enter(const std::function<MaybeFailure(Connection&)>& build, Make make);

  // All repetitions, then the comparison of contents, then a line a system.
  [[nodiscard]] MaybeFailure run(const Shape& shape);
  [[nodiscard]] std::vector<Lane>& lanes() { return lanes_; }
  // Removes the databases, for a template of another size.
  void leave();

 private:
  Contest(const Settings& settings, tool::ScratchFolder scratch, std::vector<System> systems)
      : settings_(settings), scratch_(std::move(scratch)), systems_(std::move(systems)), meter_(settings.folder) {}
  [[nodiscard]] std::string template_path() const { return scratch_.path_of("template.db"); }
  [[nodiscard]] MaybeFailure copy_template(const Lane& lane) const;
  [[nodiscard]] MaybeFailure take_turn(const Shape& shape, Lane& lane);
  [[nodiscard]] MaybeFailure raw_turn(const Shape& shape, Lane& lane);
  [[nodiscard]] MaybeFailure verify(const Shape& shape);
  [[nodiscard]] Json row_of(const Shape& shape, const Lane& lane) const;
  [[nodiscard]] const Lane* lane_named(std::string_view name) const;
  [[nodiscard]] MaybeFailure print(const Shape& shape) const;
  void print_table(const std::vector<Json>& rows) const;
  void print_calls(const std::vector<Json>& rows) const;

  Settings settings_;
  tool::ScratchFolder scratch_;
  std::vector<System> systems_;
  Meter meter_;
  Make make_;
  std::vector<Lane> lanes_;
};

// Looks whether measuring has to end.
[[nodiscard]] MaybeFailure reason_to_stop();

// Runs `count` operations of a turn.
[[nodiscard]] MaybeFailure repeat(Turn& turn, std::uint64_t count, const std::function<MaybeFailure()>& operation);

// CORRUPT unless there are as many rows as there must be.
[[nodiscard]] MaybeFailure check_count(std::uint64_t rows, std::uint64_t expected);

}  // namespace memlith::sqlite_bench
