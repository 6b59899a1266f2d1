// docs/guarantees.md, "Durable steps": memlith/steps.hpp on a simulated disk. The power is cut behind every operation
// of the device, in every way that it may keep what was not flushed; then the program is executed again, to its end.
// The effects are counted outside. Each step has happened once, each effect once, or with one key, and no message is
// lost or sent twice.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
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

// The right program, and planted ones, whose fault has to be found.
enum class Program : std::uint8_t {
  right,
  calls_in_a_step,    // the world outside is called where a crash leaves no trace of that
  state_beside_step,  // what a step changes is a commit of its own
};

struct Wrong {
  std::string text;
};

void require(bool right, const std::string& text) {
  if (!right) throw Wrong{text};
}
template <class T>
T must(Result<T> result) {
  if (!result) throw Wrong{result.error().message()};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

struct Plan {
  Program program = Program::right;
  bool weak = false;
};

// Adds one to the record of the run, and returns the sum.
Result<int> count_in(KvTransaction& records, KvMap counts, const std::string& id) {
  auto found = records.find(counts, id);
  if (!found) return found.error();
  const int now = found->has_value() ? std::stoi(std::string(**found)) + 1 : 1;
  if (auto put = records.put(counts, id, std::to_string(now)); !put) return put.error();
  return now;
}

// The world knows the outcome of an effect without a key.
int call_world(Run& run, const std::string& name, const std::string& key, World& world,
               const std::function<int(std::string_view)>& call) {
  auto done = run.effect("call", call, {.key = key});
  if (!done && key.empty()) {
    require(done.error().category() == MEMLITH_INVALID, done.error().message());
    must(world.count(name + "/") > 0 ? run.happened(0) : run.repeat());
    done = run.effect("call", call);
  }
  return must(std::move(done));
}

// Executes a run to its end.
void execute(Journal& journal, KvMap counts, const std::string& id, const Plan& plan, World& world,
             const SimVolume& volume) {
  Run run = must(journal.run(id, {.weak = plan.weak}));
  for (int round = 0; round < kRounds; ++round) {
    if (plan.program == Program::state_beside_step) {
      must(journal.records().transact([&](KvTransaction& records) { return count_in(records, counts, id); }));
    }
    const int sum = must(run.step("count", [&](steps::Step& step) -> Result<int> {
      if (auto sent = step.send(id + std::to_string(round)); !sent) return sent.error();
      return plan.program == Program::state_beside_step ? round + 1 : count_in(step.records(), counts, id);
    }));
    require(sum == round + 1, "a step had another state");
    const std::string name = id + std::to_string(round);
    const auto call = [&](std::string_view key) {
      world.calls.emplace_back(name + "/" + std::string(key), volume.operations());
      return 0;
    };
    if (plan.program == Program::calls_in_a_step) {
      must(run.step("call", [&](steps::Step&) { return call(""); }));
    } else {
      call_world(run, name, id == "keyed" ? run.key() : "", world, call);
    }
  }
  must(run.finish());
}

// A small outbox: the disk's images are compared byte by byte.
memlith_applog* open_outbox(const Life& life) {
  memlith_applog_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = 64 << 10;
  memlith_applog* log = nullptr;
  require(memlith_applog_open(life.store(), "steps.outbox", &options, &log) == MEMLITH_OK, "the outbox does not open");
  return log;
}

void live(Life& life, World& world, const Plan& plan) {
  require(memlith_applog_close(open_outbox(life)) == MEMLITH_OK, "the outbox does not close");
  Journal journal = must(Journal::open(life.store()));
  const KvMap counts = must(journal.records().map("counts", {.create = true}));
  for (const char* const id : {"keyed", "keyless"}) execute(journal, counts, id, plan, world, life.volume());
  must(journal.records().transact([&](KvTransaction& records) -> Result<void> {
    for (const char* const id : {"keyed", "keyless"}) {
      const std::string sum(must(records.get(counts, id)));
      require(sum == std::to_string(kRounds), std::string(id) + " counted " + sum);
    }
    return {};
  }));
  must(journal.close());
}

void check_messages(const Life& life) {
  memlith_applog* const log = open_outbox(life);
  std::string sent;
  memlith_applog_entry entry{};
  while (memlith_applog_read(log, 0, &entry) == MEMLITH_OK) {
    const auto message = must(steps::message_of(memlith::detail::view_of(entry.content)));
    sent += message.run + " " + message.content + ";";
  }
  (void)memlith_applog_close(log);
  require(sent == "keyed keyed0;keyed keyed1;keyless keyless0;keyless keyless1;", "the outbox has " + sent);
}

void check_calls(const World& world) {
  std::map<std::string, std::size_t> keys;  // of each effect
  std::map<std::string, std::size_t> calls;
  for (const auto& [call, at] : world.calls) keys[call.substr(0, call.find('/'))] += calls[call]++ == 0 ? 1 : 0;
  require(keys.size() == std::size_t{2} * kRounds, "effects are missing");
  for (const auto& [name, count] : keys) require(count == 1, name + " has several keys");
  for (const auto& [call, count] : calls) {
    require(count == 1 || (count == 2 && !call.ends_with('/')), call + " happened " + std::to_string(count) + " times");
  }
}

// The second life, in what a cut or a kill has left. The world has the calls that were made before. Returns what is
// wrong behind it.
std::string go_on(std::unique_ptr<SimVolume> volume, World world, const Plan& plan) {
  Life life(std::move(volume));
  try {
    live(life, world, plan);
    check_messages(life);
    check_calls(world);
  } catch (const Wrong& wrong) {
    return wrong.text;
  }
  return {};
}

// Returns the first thing that is wrong, and where.
std::string cut_everywhere(const Plan& plan) {
  World first;
  core::SimTrace trace;
  {
    auto volume = std::make_unique<SimVolume>(SimImage(), true);
    Life life(std::move(volume));
    try {
      live(life, first, plan);
    } catch (const Wrong& wrong) {
      return "without a crash: " + wrong.text;
    }
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
  for (core::CrashPoints points(trace); points.next();) {
    const std::string where = " (the end behind operation " + std::to_string(points.at());
    for (const bool came : {true, false}) {
      std::string wrong = go_on(std::make_unique<SimVolume>(trace, points.at()), world_at(points.at(), came), plan);
      if (!wrong.empty()) return wrong + where + ", kill -9)";
      for (core::PowerCuts cuts(points.medium(), {8, 24}, random); cuts.next();) {
        const SimImage image = cuts.image();
        World world = world_at(points.at(), came);
        if (!seen.emplace(image.hash(), world.calls.size()).second) continue;
        ++states;
        wrong = go_on(std::make_unique<SimVolume>(image), std::move(world), plan);
        if (!wrong.empty()) return wrong + where + ", subset " + std::to_string(cuts.number()) + ")";
      }
    }
  }
  std::printf("  %zu operations, %zu states\n", trace.records.size(), states);
  EXPECT_GT(states, trace.records.size());
  return {};
}

TEST(StepsPower, EachStepAndEffectHappensOnceWhereverThePowerIsCut) {
  EXPECT_EQ(cut_everywhere({Program::right, false}), "");
}
TEST(StepsPower, WeakStepsGoOnFromAPrefix) { EXPECT_EQ(cut_everywhere({Program::right, true}), ""); }
TEST(StepsPower, FindsACallWithoutAnIntent) {
  EXPECT_NE(cut_everywhere({Program::calls_in_a_step, false}).find("happened 2 times"), std::string::npos);
}
TEST(StepsPower, FindsAStateApartFromItsStep) {
  EXPECT_NE(cut_everywhere({Program::state_beside_step, false}).find("counted 3"), std::string::npos);
}

}  // namespace
}  // namespace memlith::test
