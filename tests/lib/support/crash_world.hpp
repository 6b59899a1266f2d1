// The crash explorer: runs a workload on a simulated disk that writes everything down, then cuts the power after every
// operation, in every way that device.hpp allows, recovers, and holds what comes back against the exact oracle:
//
//   the recovered state equals the state after exactly one commit P, in all objects together, and
//   last acknowledged <= P <= last started;
//   recovering again changes nothing; a crash at any operation of the recovery, and a recovery after that, gives P
//   again; a kill -9 at any operation, which leaves unflushed what was, and a power cut at any operation of the
//   recovery that follows, give a commit of that range too.
//
// Small numbers of unflushed items are cut in every subset, larger ones by seed. MEMLITH_SEED=n replays a seed; a
// failure prints its seed, the operation, and what was kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "sim/history.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"

namespace memlith::test {

using lab::Change;
using lab::Content;
using lab::Expected;

struct ExploreOptions {
  std::size_t exhaustive_items_max = 10;  // every subset of up to this many unflushed items
  std::size_t samples = 24;               // seeded subsets a crash point beyond that
  std::size_t recovery_samples = 3;       // crashes at each operation of a recovery, beyond "all lost" and "all kept"
  std::uint64_t recovery_every = 1;       // explore the recovery of every n-th distinct state
};

struct ExploreResult {
  std::uint64_t crash_points = 0;
  std::uint64_t states = 0;    // cuts made
  std::uint64_t distinct = 0;  // by content of the medium
  std::uint64_t recoveries = 0;
};

class CrashWorld {
 public:
  explicit CrashWorld(core::StoreOptions options, core::SimImage start = {}, Content before = {});

  [[nodiscard]] core::SimVolume& volume() { return volume_; }
  [[nodiscard]] const core::StoreOptions& options() const { return options_; }

  // ---- what the workload reports; any thread
  // A commit begins: `change` is what it does to the content. Returns its number, for the two below.
  std::size_t started(Change change);
  // Its place in the log, where several are under way at once; without it the order of started() counts.
  void placed(std::size_t commit, core::Lsn lsn);
  // It was acknowledged as durable.
  void acknowledged(std::size_t commit);

  // Explores everything that was recorded; failures are reported to GoogleTest. Adds to the total that the program
  // prints.
  ExploreResult explore(const ExploreOptions& options, std::uint64_t seed);

  // Opens the store on the volume and reads its content.
  static core::Result<Content> recover(core::SimVolume& volume, const core::StoreOptions& options);

 private:
  // The commit of those allowed that a content with this fingerprint shows, or -1.
  static std::int64_t match(lab::Fingerprint print, const Expected& allowed);
  std::int64_t check_image(const core::SimImage& image, const Expected& allowed, const ExploreOptions& options,
                           core::Random& random, const std::string& where);
  // Kills the program there, recovers, and cuts the power at each operation of that recovery.
  void check_kill(std::size_t at, Expected allowed, const ExploreOptions& options, core::Random& random,
                  std::uint64_t seed);
  void check_recovery_crashes(const core::SimTrace& trace, std::int64_t expected, const ExploreOptions& options,
                              core::Random& random, const std::string& where);

  core::StoreOptions options_;
  core::SimVolume volume_;
  lab::History history_;
  std::unordered_map<std::uint64_t, std::int64_t> seen_;  // content of a medium -> the commit it recovers to
  ExploreResult result_;
  std::uint64_t failures_ = 0;
};

// One more of those that the program says at its end that it has seen.
void count_distinct_state();

// MEMLITH_SEED, or a random one; printed either way.
std::uint64_t seed_for_this_run();

// Fewer samples under sanitizers, which are ten times slower.
std::size_t scaled(std::size_t samples);

// A store small enough that its states can be enumerated.
core::StoreOptions small_store_options();

}  // namespace memlith::test
