// Workloads of application logs, with a kv store that agrees and alone.
#include <fmt/format.h>

#include <utility>

#include "applog_life.hpp"
#include "heap_life.hpp"
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::uint64_t kRingBytes = kPageBytes;

StoreOptions applog_store() {
  StoreOptions options = stores::wide_slots();
  options.log_max_bytes = 16 * options.slot_bytes;
  options.flush_window = {3600'000, 1 * kGiB};  // what is not waited for stays so
  return options;
}

using Log = AppLogLife;

struct AppLogSteps : StructureSteps {
  explicit AppLogSteps(const AppLogPlan& plan) : StructureSteps(step("open the log", open_applog, plan)) {}

  Step open() const { return opening; }
  Step append(std::uint64_t bytes) const { return word(fmt::format("append {} bytes", bytes), &Log::append, bytes); }
  Step write() const { return word("write the log", &Log::write); }
  Step read(std::uint64_t entries) const { return word(fmt::format("read {} entries", entries), &Log::read, entries); }
  Step consume(std::uint64_t entries) const {
    return word(fmt::format("consume {} entries", entries), &Log::consume, entries);
  }
  Step commit(std::uint64_t entries, bool wait) const {
    return word(fmt::format("commit {} entries and their effects{}", entries, wait ? "" : ", weakly"),
                &Log::consume_with_kv, entries, wait);
  }
  Step persist() const { return word("persist the kv store", &Log::persist_kv); }
  Step drop_newest(std::uint64_t entries) const {
    return word(fmt::format("truncate the {} newest entries", entries), &Log::truncate_after, entries);
  }
  Step drop_oldest(std::uint64_t entries) const {
    return word(fmt::format("truncate the {} oldest entries", entries), &Log::truncate_before, entries);
  }
  Step restart(std::uint64_t skipped) const {
    return word(fmt::format("restart the log, without {} numbers", skipped), &Log::restart, skipped);
  }
  Step read_by_number(bool backwards) const {
    return word("read entries by their numbers", &Log::read_by_number, backwards);
  }
  Step set_term(std::uint64_t term) const {
    return word(fmt::format("set the term to {}", term), &Log::set_term, term);
  }
  Step commit_heap(bool wait) const {
    return word(fmt::format("commit the heap and the kv store{}", wait ? "" : ", weakly"), &Log::commit_heap, wait);
  }
  void reopen(std::vector<Step>& steps, const Step& how) const {
    for (const Step& each : {how, lab::open(), opening}) steps.push_back(each);
  }
};

// Laps of the ring, until it is full; entries across its end; checkpoints, kills and closings.
std::vector<Step> laps(Random& random, AppLogPlan plan, std::size_t rounds) {
  const AppLogSteps log(plan);
  std::vector<Step> steps{open(), log.open()};
  const std::uint64_t least = 50 + random.below(40);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::uint64_t left = 1 + random.below(5); left > 0; --left) {
      steps.push_back(log.append(random.one_in(9) ? 900 : least + random.below(500)));
    }
    steps.push_back(log.write());
    if (random.one_in(4)) steps.push_back(log.read(1 + random.below(4)));
    if (plan.with_kv) {
      if (!random.one_in(3)) steps.push_back(log.commit(1 + random.below(random.one_in(4) ? 9 : 2), random.one_in(4)));
      if (random.one_in(4)) steps.push_back(log.persist());
    } else if (!random.one_in(3)) {
      steps.push_back(log.consume(1 + random.below(7)));
    }
    if (random.one_in(7)) steps.push_back(random.one_in(2) ? checkpoint() : write_home());
    if (random.one_in(11)) log.reopen(steps, abandon());
    if (random.one_in(15)) log.reopen(steps, close());
  }
  steps.push_back(log.write());
  return steps;
}

std::vector<Step> applog_alone(Random& random) { return laps(random, {kRingBytes, 0, false, false}, 26); }
std::vector<Step> applog_growing(Random& random) {
  return laps(random, {kRingBytes, 6 * kRingBytes, false, false}, 26);
}
std::vector<Step> applog_on_board(Random& random) {
  return laps(random, {kRingBytes, 6 * kRingBytes, false, false, true}, 26);
}
std::vector<Step> applog_kv(Random& random) { return laps(random, {kRingBytes, 0, true, false}, 30); }

// The log of a consensus engine: a new leader overwrites the newer end, snapshots cut the older one, and one that comes
// from elsewhere restarts it; the term is in a kv store. In some runs all entries are equally large, so that what was
// dropped lies exactly behind what took its place.
std::vector<Step> applog_raft(Random& random) {
  const AppLogPlan plan{kRingBytes, 0, true, false};
  const AppLogSteps log(plan);
  std::vector<Step> steps{open(), log.open()};
  const bool equal = random.one_in(2);
  const std::uint64_t least = 60 + random.below(60);
  std::uint64_t term = 0;
  for (int round = 0; round < 24; ++round) {
    if (random.one_in(4)) {
      steps.push_back(log.set_term(++term));
      if (random.one_in(3)) steps.push_back(log.append(least));
      steps.push_back(log.drop_newest(1 + random.below(4)));
      if (random.one_in(4)) steps.push_back(log.write());
    }
    for (std::uint64_t left = 1 + random.below(4); left > 0; --left) {
      steps.push_back(log.append(equal ? least : least + random.below(400)));
    }
    steps.push_back(log.write());
    if (random.one_in(3)) steps.push_back(log.read(1 + random.below(4)));
    if (random.one_in(3)) steps.push_back(log.drop_oldest(1 + random.below(5)));
    if (random.one_in(9)) steps.push_back(log.restart(random.below(3) * 5));
    if (random.one_in(4)) steps.push_back(log.read_by_number(random.one_in(2)));
    if (random.one_in(7)) steps.push_back(random.one_in(2) ? checkpoint() : write_home());
    if (random.one_in(11)) log.reopen(steps, abandon());
    if (random.one_in(15)) log.reopen(steps, close());
  }
  steps.push_back(log.write());
  return steps;
}

// One frame for a kv store, two logs, and a region.
std::vector<Step> applog_joint(Random& random) { return laps(random, {kRingBytes, 0, true, true}, 24); }

// One frame for a heap and a kv store whose records say what the heap holds; between two of them, either by itself.
std::vector<Step> heap_kv(Random& random) {
  const AppLogPlan plan{kRingBytes, 0, true, false};
  const HeapPlan heap{28 * kKiB, 112 * kKiB, TrackerKind::touched};
  const AppLogSteps log(plan);
  const Step open_heap = step("open the heap", lab::open_heap, heap);
  const auto with_heap = [&](const Step& each) { return behind(log.open(), behind(open_heap, each)); };
  std::vector<Step> steps{open(), log.open(), open_heap};
  const auto reopen = [&](const Step& how) {
    log.reopen(steps, how);
    steps.push_back(open_heap);
  };
  for (int round = 0; round < 14; ++round) {
    for (std::uint64_t left = 1 + random.below(3); left > 0; --left) {
      const std::uint64_t bytes = 40 + random.below(1500);
      steps.push_back(with_heap(step(fmt::format("allocate {} bytes", bytes), &HeapLife::allocate, bytes, 16)));
    }
    const std::uint64_t which = random.below(16);
    if (random.one_in(2)) steps.push_back(with_heap(step("free a block", &HeapLife::free_block, which)));
    steps.push_back(with_heap(log.commit_heap(random.one_in(2))));
    if (random.one_in(4)) steps.push_back(with_heap(step("persist the heap", &HeapLife::persist, true)));
    if (random.one_in(4)) steps.push_back(with_heap(step("roll the heap back", &HeapLife::rollback)));
    if (random.one_in(3)) {
      steps.push_back(log.append(60 + random.below(300)));
      steps.push_back(log.write());
      steps.push_back(log.commit(1, false));
    }
    if (random.one_in(5)) steps.push_back(checkpoint());
    if (random.one_in(8)) reopen(abandon());
    if (random.one_in(12)) reopen(close());
  }
  steps.push_back(with_heap(log.commit_heap(true)));
  return steps;
}

// The ring is nearly full, and commits that are not waited for have released a part of it.
std::vector<Step> applog_full(Random& random) {
  const AppLogSteps log({kRingBytes, 0, true, false});
  std::vector<Step> steps{open(), log.open()};
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 9; ++i) steps.push_back(log.append(350 + random.below(60)));
    steps.push_back(log.write());
    for (int i = 0; i < 2; ++i) {
      steps.push_back(log.commit(1, false));
      steps.push_back(log.append(300 + random.below(60)));
      steps.push_back(log.write());
    }
    steps.push_back(log.persist());
    steps.push_back(log.commit(6, round % 2 == 0));
  }
  steps.push_back(log.persist());
  return steps;
}

// Checkpoints beside a consumer: what it has given up does not go home. In some rounds the consumer is far behind, the
// entries lie across the end of the ring, or its commits are not durable when the checkpoint begins.
std::vector<Step> applog_given_up(Random& random) {
  const AppLogSteps log({kRingBytes, 0, true, false});
  std::vector<Step> steps{open(), log.open()};
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t left = 2 + random.below(6); left > 0; --left)
      steps.push_back(log.append(100 + random.below(400)));
    steps.push_back(log.write());
    if (random.one_in(3)) steps.push_back(checkpoint());
    steps.push_back(log.commit(1 + random.below(8), random.one_in(3)));
    if (random.one_in(2)) steps.push_back(log.append(60 + random.below(900)));
    if (random.one_in(2)) steps.push_back(log.write());
    if (!random.one_in(3)) steps.push_back(checkpoint());
    if (random.one_in(5)) steps.push_back(log.persist());
    if (random.one_in(6)) log.reopen(steps, abandon());
  }
  steps.push_back(log.write());
  return steps;
}

// Nothing but the making of a log and a kv store, and a second making behind it: a crash in the middle leaves either
// absent, and the next life makes what is missing.
std::vector<Step> making(Random& random) {
  const AppLogSteps log({kRingBytes, 0, true});
  std::vector<Step> steps{open(), log.open()};
  log.reopen(steps, random.one_in(2) ? abandon() : close());
  steps.push_back(log.append(100));
  steps.push_back(log.write());
  steps.push_back(log.commit(1, true));
  return steps;
}

constexpr Workload::How kAppLog{.with_call_faults = false, .dear = true, .about = "applog"};

const Workload kAppLogWorkloads[] = {
    {"making",
     "a log and a kv store are made: cut in the middle, either is absent, and is made by the next life",
     applog_store,
     making,
     {.lives_often = true, .exhaustive_items = 8, .about = "region"}},
    {"applog", "laps of an application log, with checkpoints, kills and closings", applog_store, applog_alone, kAppLog},
    {"applog-growth", "the same with a log that grows when it is full", applog_store, applog_growing, kAppLog},
    {"applog-on-board", "such a log whose bytes lie where other processes read them", applog_store, applog_on_board,
     kAppLog},
    {"applog-kv", "a kv store consumes the log: both agree, the read position included", applog_store, applog_kv,
     kAppLog},
    {"applog-raft", "the log of a consensus engine: cut at both ends, restarted, with the term in a kv store",
     applog_store, applog_raft, kAppLog},
    {"applog-full", "the same with a log that is full, and commits that are not waited for and release parts of it",
     applog_store, applog_full, kAppLog},
    {"applog-given-up", "checkpoints that leave out what the consumer of a log has given up", applog_store,
     applog_given_up, kAppLog},
    {"applog-joint", "one commit for a kv store, a log that it consumes, a second log that it fills, and a region",
     applog_store, applog_joint, kAppLog},
    {"heap-kv",
     "one commit for a heap and a kv store whose records say what the heap holds",
     applog_store,
     heap_kv,
     {.with_call_faults = false, .dear = true, .about = "heap"}},
    {"raw-applog-kv",
     "a kv store consumes the log, both on a raw device",
     applog_store,
     applog_kv,
     {.with_call_faults = false, .dear = true, .about = "applog", .start = stores::raw_device}},
};

}  // namespace

std::span<const Workload> applog_workloads() { return kAppLogWorkloads; }

}  // namespace memlith::lab
