// memlith/steps.hpp on a simulated disk: the power is cut behind every operation of the device, in every way that it
// may keep what was not flushed; then the program is executed again, to its end. The effects are counted outside. Each
// step has happened once, each effect once, or with one key, and no message is lost or sent twice.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "capi/handles.hpp"
#include "memlith/steps.hpp"
#include "region/session.hpp"
#include "sim/power_cuts.hpp"
#include "sim/sim.hpp"

namespace memlith::test {
namespace {

using core::SimImage;
using core::SimVolume;
using steps::Journal;
using steps::Run;

constexpr int kRounds = 2;  // of a run: a step and an effect each

// The world outside of the power cut. Each call has the number of the device's operations when it was made.
struct World {
  std::vector<std::pair<std::string, std::size_t>> calls;
  [[nodiscard]] std::size_t count(const std::string& name) const {
    std::size_t found = 0;
    for (const auto& [each, at] : calls) found += each == name ? 1 : 0;
    return found;
  }
};

// A store on a volume, as a life of the program has it open.
class Life {
 public:
  explicit Life(std::unique_ptr<SimVolume> volume) : volume_(volume.get()) {
    core::StoreOptions options;
    options.create = true;
    options.manual_checkpoint = true;
    options.slot_bytes = 4096;
    options.log_bytes = 16 * options.slot_bytes;
    options.log_max_bytes = 256 * options.slot_bytes;
    auto opened = core::Session::open({std::move(volume), ""}, options);
    EXPECT_TRUE(opened.ok()) << core::last_error_text();
    session_ = std::move(*opened);
  }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  ~Life() { EXPECT_TRUE(core::Session::close(std::move(session_)).ok()); }
  [[nodiscard]] memlith_store* store() const { return core::handle_of(session_.get()); }
  [[nodiscard]] const SimVolume& volume() const { return *volume_; }

 private:
  SimVolume* volume_;
  std::unique_ptr<core::Session> session_;
};

#define MUST(call)                                             \
  do {                                                         \
    const auto must = call;                                    \
    ASSERT_TRUE(must.ok()) << must.error().message() << where; \
  } while (false)

// Executes a run to its end. Of a keyless effect whose outcome is unknown, the world knows it.
void execute(Journal& journal, KvMap counts, const std::string& id, bool weak, World& world, const SimVolume& volume,
             const std::string& where) {
  auto opened = journal.run(id, {.weak = weak});
  ASSERT_TRUE(opened.ok()) << opened.error().message() << where;
  Run& run = *opened;
  const bool has_key = id == "keyed";
  for (int round = 0; round < kRounds; ++round) {
    MUST(run.step("count", [&](steps::Step& step) -> Result<int> {
      auto found = step.records().find(counts, id);
      if (!found) return found.error();
      const int now = found->has_value() ? std::stoi(std::string(**found)) + 1 : 1;
      EXPECT_EQ(now, round + 1) << where;
      if (auto put = step.records().put(counts, id, std::to_string(now)); !put) return put.error();
      if (auto sent = step.send(id + std::to_string(round)); !sent) return sent.error();
      return now;
    }));
    const std::string name = id + std::to_string(round);
    const auto call = [&](std::string_view key) {
      world.calls.emplace_back(name + "/" + std::string(key), volume.operations());
      return round;
    };
    auto done = run.effect("call", call, {.key = has_key ? run.key() : ""});
    if (!done && !has_key) {
      ASSERT_EQ(done.error().category(), MEMLITH_INVALID) << done.error().message() << where;
      if (world.count(name + "/") > 0) {
        MUST(run.happened(round));
      } else {
        MUST(run.repeat());
      }
      done = run.effect("call", call);
    }
    ASSERT_TRUE(done.ok()) << done.error().message() << where;
    ASSERT_EQ(*done, round) << where;
  }
  MUST(run.finish());
}

// A small outbox: the disk's images are compared byte by byte.
void make_outbox(const Life& life) {
  memlith_applog_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = 64 << 10;
  memlith_applog* log = nullptr;
  ASSERT_EQ(memlith_applog_open(life.store(), "steps.outbox", &options, &log), MEMLITH_OK);
  ASSERT_EQ(memlith_applog_close(log), MEMLITH_OK);
}

void live(Life& life, World& world, bool weak, const std::string& where) {
  make_outbox(life);
  auto journal = Journal::open(life.store());
  ASSERT_TRUE(journal.ok()) << journal.error().message() << where;
  auto counts = journal->records().map("counts", {.create = true});
  ASSERT_TRUE(counts.ok()) << where;
  for (const char* const id : {"keyed", "keyless"}) execute(*journal, *counts, id, weak, world, life.volume(), where);
  MUST(journal->close());
}

void expect_messages(const Life& life, const std::string& where) {
  memlith_applog* log = nullptr;
  ASSERT_EQ(memlith_applog_open(life.store(), "steps.outbox", nullptr, &log), MEMLITH_OK) << where;
  std::string sent;
  memlith_applog_entry entry{};
  while (memlith_applog_read(log, 0, &entry) == MEMLITH_OK) {
    sent += std::string(static_cast<const char*>(entry.content.data), entry.content.size).substr(8) + ";";
  }
  EXPECT_EQ(sent, "rawkeyedkeyed0;rawkeyedkeyed1;rawkeylesskeyless0;rawkeylesskeyless1;") << where;
  ASSERT_EQ(memlith_applog_close(log), MEMLITH_OK) << where;
}

// The second life, in what a cut or a kill has left. The world has the calls that were made before.
void go_on(std::unique_ptr<SimVolume> volume, World world, bool weak, const std::string& where) {
  Life life(std::move(volume));
  live(life, world, weak, where);
  std::map<std::string, std::size_t> keys;  // of each effect
  std::map<std::string, std::size_t> calls;
  for (const auto& [call, at] : world.calls) keys[call.substr(0, call.find('/'))] += calls[call]++ == 0 ? 1 : 0;
  ASSERT_EQ(keys.size(), 2u * kRounds) << where;
  for (const auto& [name, count] : keys) EXPECT_EQ(count, 1u) << name << " has several keys" << where;
  for (const auto& [call, count] : calls) {
    EXPECT_LE(count, call.ends_with('/') ? 1u : 2u) << call << where;
  }
  expect_messages(life, where);
}

void cut_everywhere(bool weak) {
  World first;
  core::SimTrace trace;
  {
    auto volume = std::make_unique<SimVolume>(SimImage(), true);
    Life life(std::move(volume));
    live(life, first, weak, "");
    trace = life.volume().trace();
  }
  // A call that was made behind an operation may have come before the end of the life there, or not.
  const auto world_at = [&](std::size_t at, bool came) {
    World world;
    for (const auto& call : first.calls) {
      if (call.second < at || (came && call.second == at)) world.calls.push_back(call);
    }
    return world;
  };
  core::Random random(1);
  std::size_t states = 0;
  std::set<std::pair<std::uint64_t, std::size_t>> seen;  // an image, and how many calls were made before
  for (core::CrashPoints points(trace); points.next() && !::testing::Test::HasFailure();) {
    const std::size_t at = points.at();
    for (const bool came : {true, false}) {
      const std::string where = " (the end behind operation " + std::to_string(at) + (came ? ", the call came" : "");
      go_on(std::make_unique<SimVolume>(trace, at), world_at(at, came), weak, where + ", kill -9)");
      for (core::PowerCuts cuts(points.medium(), {8, 24}, random); cuts.next();) {
        const SimImage image = cuts.image();
        World world = world_at(at, came);
        if (!seen.emplace(image.hash(), world.calls.size()).second) continue;
        ++states;
        go_on(std::make_unique<SimVolume>(image), std::move(world), weak,
              where + ", subset " + std::to_string(cuts.number()) + ")");
      }
    }
  }
  std::printf("  %zu operations, %zu states\n", trace.records.size(), states);
  EXPECT_GT(states, trace.records.size());
}

TEST(StepsPower, EachStepAndEffectHappensOnceWhereverThePowerIsCut) { cut_everywhere(false); }
TEST(StepsPower, WeakStepsGoOnFromAPrefix) { cut_everywhere(true); }

}  // namespace
}  // namespace memlith::test
