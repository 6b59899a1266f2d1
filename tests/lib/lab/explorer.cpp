#include "explorer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "heap_life.hpp"
#include "log/format.hpp"
#include "sim/power_cuts.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::uint64_t kStepsMax = 1'000'000;  // of the threads of a run

std::uint64_t mixed(std::string_view name, std::uint64_t seed) {
  std::uint64_t value = seed * 0x9e3779b97f4a7c15u;
  for (const char c : name) value = value * 31 + static_cast<unsigned char>(c);
  return value;
}

bool is_size_change(SimOp op) { return op == SimOp::reserve || op == SimOp::truncate; }

}  // namespace

Explorer::Explorer(const Workload& workload, Case base, FaultSet faults, const Budget& budget, Tally& tally)
    : workload_(workload),
      base_(std::move(base)),
      faults_(faults),
      budget_(budget),
      tally_(tally),
      options_(workload.options()),
      random_(mixed(workload.name, base_.seed) + 1) {
  if (workload.how.lives_often) budget_.life_every = std::min<std::uint64_t>(budget_.life_every, 6);
  if (workload.how.dear && budget_.exhaustive_items <= Budget{}.exhaustive_items) {
    budget_.exhaustive_items = std::min<std::size_t>(budget_.exhaustive_items, 6);
    budget_.recovery_every *= 3;
    budget_.kill_every *= 4;
    budget_.life_every *= 4;
  }
  if (budget_.exhaustive_items >= Budget{}.exhaustive_items) {
    budget_.exhaustive_items = std::max(budget_.exhaustive_items, workload.how.exhaustive_items);
  }
  base_.workload = workload.name;
  base_.cuts.clear();
  Random random(mixed(workload.name, base_.seed));
  steps_ = workload.steps(random);
}

std::unique_ptr<Run> Explorer::run_workload() {
  set_identity(kIdentity);
  auto run = std::make_unique<Run>(options_, workload_.how.start != nullptr ? workload_.how.start() : SimImage{},
                                   workload_.how.before != nullptr ? workload_.how.before() : Content{});
  flip_no_homes(run->volume, options_);
  if (base_.fault.has_value()) {
    run->volume.faults().plan(kind_of(*base_.fault), base_.nth, is_for_ever(*base_.fault));
    run->volume.faults().done_nevertheless = base_.nth % 2 == 1;
  }
  perform(*run, 0, steps_.size(), false);
  return run;
}

void Explorer::perform(Run& run, std::size_t from, std::size_t until, bool again) {
  const auto act = [&] { run.perform(steps_, base_.steps, from, until, again); };
  if (workload_.how.turns == Turns::none) {
    act();
    run.history.finish();
    return;
  }
  Scheduler scheduler;
  scheduler.steps_max = kStepsMax;
  run.scheduler = &scheduler;
  Scheduler::Outcome outcome;
  if (workload_.how.turns == Turns::fixed) {
    outcome = scheduler.run(act, [](std::size_t) { return 0; });
  } else {
    Random random(mixed(workload_.name, base_.seed) + 2 + from);
    // In some runs a thread hardly ever loses its turn, in others at every step.
    const std::uint64_t most = 1 + random.below(64);
    const std::uint64_t stays = 64 - most / (1 + random.below(32));
    run.volume.before_transfer = [&] { scheduler.here("write or flush"); };
    outcome = scheduler.run(
        [&] {
          scheduler.begin_deciding();
          act();
          scheduler.end_deciding();
        },
        [&](std::size_t options) { return random.below(64) < stays ? 0 : random.below(options); });
  }
  if (!outcome.stuck.empty()) {
    fmt::print(stderr, "{}\n", outcome.stuck);
    std::abort();  // its threads are stuck in the engine: nothing can be taken down
  }
  run.scheduler = nullptr;
  run.history.finish();
}

void Explorer::work() {
  const std::unique_ptr<Run> run = run_workload();
  ++tally_.runs;
  if (base_.fault.has_value()) {
    FaultCount& count = at(tally_.faults, *base_.fault);
    ++count.planned;
    if (run->volume.faults().fired() > 0) ++count.fired;
  }
  for (const std::string& broken : run->broken()) violated(broken, 0);
  if (!run->broken().empty() || run->flip_in_open()) return;
  explore(*run, run->volume.trace(), 0, 1);
}

Case Explorer::position() const {
  Case result = base_;
  result.cuts = path_;
  return result;
}

void Explorer::violated(std::string what, std::uint64_t medium) {
  if (tally_.violations.size() >= budget_.violations_max) return;
  tally_.violations.push_back({std::move(what), position(), medium});
}

namespace {

Cut cut_of(char link, std::size_t at) {
  Cut cut;
  cut.link = link;
  cut.at = at;
  return cut;
}

}  // namespace

// ---- crash points ----------------------------------------------------------------------------------------------

// The run is told in the trace from `begin` on; what was done before it had no power cut behind it.
void Explorer::explore(Run& run, const SimTrace& trace, std::size_t begin, int life) {
  Seen seen;
  Seen* const outer = std::exchange(seen_, &seen);
  for (CrashPoints points(trace, begin); !enough() && points.next();) {
    const std::size_t position = points.at() - begin;
    if (position % budget_.point_every != base_.seed % budget_.point_every) continue;
    ++tally_.crash_points;
    operation_ = position > 0 ? static_cast<std::size_t>(trace.records[points.at() - 1].op) : 0;
    ++tally_.operations[operation_].crash_points;
    path_.push_back(cut_of(life == 1 ? ' ' : life_link_, position));
    cut_here(run, points.medium(), run.history.expected(position), life);
    path_.pop_back();
  }
  seen_ = outer;
}

void Explorer::cut_here(Run& run, const SimMedium& medium, const Expected& expected, int life) {
  operations_ = operations_of(medium);
  std::vector<SimChoice> choices(medium.pending_count());
  const auto try_it = [&] {
    path_.back().choices = choices;
    judge(run, medium.cut(choices, kGarbageSeed), expected, life);
  };
  const std::size_t pending = choices.size();
  for (PowerCuts cuts(medium, {budget_.exhaustive_items, budget_.samples}, random_); !enough() && cuts.next();) {
    choices = cuts.choices();
    count_shown(medium, choices, true);
    try_it();
  }
  // Writes of the killed program and of the next one may be torn together.
  if (also_allowed_ != nullptr && faults_.has(Fault::garbage) && !medium.lines() && !medium.whole_sectors() &&
      operations_.size() > 1 && !enough()) {
    choices.assign(pending, {});
    for (const Operation& operation : operations_) {
      if (operation.op == SimOp::write) choices[operation.begin].fate = SimFate::garbage;
    }
    count_shown(medium, choices, true);
    try_it();
  }
  constexpr Fault kSpecial[] = {Fault::garbage,      Fault::misdirected, Fault::bit_rot,    Fault::torn_512,
                                Fault::dropped,      Fault::garbage,     Fault::torn_4096,  Fault::misdirected,
                                Fault::stale_sector, Fault::bit_rot,     Fault::reordered,  Fault::lost_name,
                                Fault::lost_size,    Fault::torn_block,  Fault::torn_block, Fault::other_moment};
  for (std::size_t i = 0; i < budget_.special && !enough(); ++i) {
    const Fault fault = kSpecial[next_special_++ % std::size(kSpecial)];
    if (!faults_.has(fault) || ((life > 1 || workload_.how.starts_unproven) && is_medium_lie(fault))) continue;
    choices.assign(pending, {});
    if (fault == Fault::other_moment) {
      if (in_use_kind() != 0) swap_moments(run, medium, choices, expected);
      continue;
    }
    if (fault == Fault::bit_rot) {
      if (random_.one_in(2)) draw_operations(choices);
      SimImage image = medium.cut(choices, kGarbageSeed);
      // One of the files that carry checksums, and a byte of it that is not just a zero.
      std::vector<std::string> names;
      for (const auto& [name, bytes] : image.files) {
        if (!checksummed(name).empty() && !bytes->empty()) names.push_back(name);
      }
      if (names.empty()) continue;
      Cut& cut = path_.back();
      cut.choices = choices;
      cut.rotten_file = names[random_.below(names.size())];
      const auto& bytes = *image.files[cut.rotten_file];
      std::vector<std::uint64_t> sectors;
      for (std::uint64_t begin = 0; begin < bytes.size(); begin += kSimSectorBytes) {
        if (begin >= kHolderOffset && begin < kSlotsOffset && cut.rotten_file != "objects/0") continue;
        const std::uint64_t end = std::min<std::uint64_t>(begin + kSimSectorBytes, bytes.size());
        if (std::any_of(bytes.begin() + begin, bytes.begin() + end, [](std::byte b) { return b != std::byte{0}; })) {
          sectors.push_back(begin);
        }
      }
      if (!sectors.empty()) {
        std::uint64_t sector = sectors[random_.below(sectors.size())];
        // All else hangs on the superblock, and few of the sectors are its.
        if (cut.rotten_file != "objects/0" && random_.one_in(4)) sector = random_.below(2) * kSuperblockStrideBytes;
        // Headers stand at the start of sectors, and more depends on them.
        cut.rotten_offset = sector + random_.below(random_.one_in(2) ? 64 : kSimSectorBytes);
        cut.rotten_bit = static_cast<std::uint8_t>(random_.below(8));
        FaultCount& count = at(tally_.faults, fault);
        ++count.planned;
        if (let_rot(image, cut)) {
          ++count.fired;
          judge_lie(run, image, expected, fault, cut.rotten_file != "objects/0" && cut.rotten_offset >= kSlotsOffset);
        }
      }
      cut.rotten_file.clear();
      continue;
    }
    if (!draw(fault, medium, choices)) continue;
    ++at(tally_.faults, fault).planned;
    count_shown(medium, choices, false);
    if (fault == Fault::misdirected) {
      path_.back().choices = choices;
      std::uint64_t place = 0;
      std::string_view name;
      for (std::size_t item = 0; item < pending; ++item) {
        if (choices[item].fate < SimFate::elsewhere) continue;
        place = choices[item].offset;
        name = medium.name_of_file(medium.pending(item).file);
      }
      judge_lie(run, medium.cut(choices, kGarbageSeed), expected, fault, name != "objects/0" && place >= kSlotsOffset);
      continue;
    }
    try_it();
  }
  if (life > 1) return;
  if (faults_.has(Fault::killed) && random_.one_in(budget_.kill_every) && !enough()) {
    path_.back().choices.clear();
    path_.back().killed = true;
    const std::vector<Operation> operations = operations_;
    const std::size_t row = operation_;
    kill_here(run, run.volume.trace(), medium, expected);
    operations_ = operations;
    operation_ = row;
    path_.back().killed = false;
  }
  if (faults_.has(Fault::read_flip) && !workload_.how.starts_unproven && random_.one_in(8) && !enough()) {
    choices.assign(pending, {});
    path_.back().choices = choices;
    flip_reads(run, medium.cut(choices, kGarbageSeed), expected);
  }
}

// The files whose every byte carries a checksum, by the names that they have on the medium.
std::string Explorer::checksummed(std::string_view name) const {
  const bool log = options_.kind == StoreKind::one_file ? name == file_log_name(options_.file_name) : name == "log";
  return log || name == "objects/0" ? std::string(name) : std::string();
}

std::vector<Explorer::Operation> Explorer::operations_of(const SimMedium& medium) {
  std::vector<Operation> result;
  std::size_t record = ~std::size_t{0};
  for (std::size_t i = 0; i < medium.pending_count(); ++i) {
    const SimMedium::Item& item = medium.pending(i);
    if (item.record != record) {
      record = item.record;
      const SimRecord& source = medium.record_of(item);
      result.push_back({item.op, i, i, item.file, source.offset, source.data.size()});
    }
    result.back().end = i + 1;
  }
  return result;
}

// Each operation as a whole kept or lost.
void Explorer::draw_operations(std::vector<SimChoice>& choices) {
  const std::uint64_t bias = 1 + random_.below(7);
  for (const Operation& operation : operations_) {
    const SimFate fate = random_.below(8) < bias ? SimFate::kept : SimFate::lost;
    for (std::size_t i = operation.begin; i < operation.end; ++i) choices[i] = {fate, 0};
  }
}

// Chooses fates that show the fault; false where there is no chance for it.
bool Explorer::draw(Fault fault, const SimMedium& medium, std::vector<SimChoice>& choices) {
  const auto pick = [&](auto&& suits) -> const Operation* {
    std::vector<const Operation*> found;
    for (const Operation& operation : operations_) {
      if (suits(operation)) found.push_back(&operation);
    }
    return found.empty() ? nullptr : found[random_.below(found.size())];
  };
  const auto set = [&](const Operation& operation, SimFate fate) {
    for (std::size_t i = operation.begin; i < operation.end; ++i) choices[i] = {fate, 0};
  };
  switch (fault) {
    case Fault::dropped: {
      const Operation* const lost = pick([](const Operation& o) { return o.op == SimOp::write; });
      if (lost == nullptr) return false;
      set(*lost, SimFate::lost);
      return true;
    }
    case Fault::reordered: {
      if (operations_.size() < 2) return false;
      draw_operations(choices);
      const std::size_t later = 1 + random_.below(operations_.size() - 1);
      set(operations_[random_.below(later)], SimFate::lost);
      set(operations_[later], SimFate::kept);
      return true;
    }
    case Fault::torn_512: {
      const Operation* const torn = pick([](const Operation& o) { return o.end - o.begin >= 2; });
      if (torn == nullptr) return false;
      draw_operations(choices);
      const std::size_t border = torn->begin + 1 + random_.below(torn->end - torn->begin - 1);
      const bool front = random_.one_in(2);
      for (std::size_t i = torn->begin; i < torn->end; ++i) {
        choices[i] = {(i < border) == front ? SimFate::kept : SimFate::lost, 0};
      }
      return true;
    }
    case Fault::torn_4096: {
      const auto block = [&](std::size_t i) {
        const SimMedium::Item& item = medium.pending(i);
        return (medium.record_of(item).offset + item.skip) / 4096;
      };
      const Operation* const torn =
          pick([&](const Operation& o) { return o.op == SimOp::write && block(o.begin) != block(o.end - 1); });
      if (torn == nullptr) return false;
      draw_operations(choices);
      const std::uint64_t first = block(torn->begin);
      const std::uint64_t count = block(torn->end - 1) - first + 1;
      const std::uint64_t kept = random_.below(count);
      const std::uint64_t lost = (kept + 1 + random_.below(count - 1)) % count;
      const std::uint64_t coins = random_.next();
      for (std::size_t i = torn->begin; i < torn->end; ++i) {
        const std::uint64_t here = block(i) - first;
        const bool keep = here == kept || (here != lost && (coins >> here % 64 & 1) != 0);
        choices[i] = {keep ? SimFate::kept : SimFate::lost, 0};
      }
      return true;
    }
    case Fault::torn_block: {
      if (options_.physical_block_bytes == 0) return false;
      const Operation* const write = pick([](const Operation& o) { return o.op == SimOp::write; });
      if (write == nullptr) return false;
      if (random_.one_in(2)) draw_operations(choices);
      choices[write->begin + random_.below(write->end - write->begin)] = {SimFate::torn_block, 0};
      return true;
    }
    case Fault::stale_sector: {
      const Operation* const write = pick([](const Operation& o) { return o.end - o.begin >= 3; });
      if (write == nullptr) return false;
      choices[write->begin + 1 + random_.below(write->end - write->begin - 2)] = {SimFate::lost, 0};
      return true;
    }
    case Fault::garbage: {
      if (medium.lines() || medium.whole_sectors()) return false;  // a word, or a sector, is kept or lost
      const Operation* const write = pick([](const Operation& o) { return o.op == SimOp::write; });
      if (write == nullptr) return false;
      if (random_.one_in(2)) draw_operations(choices);
      if (random_.one_in(4)) {
        // The power failed while the disk was at all of them. What tells whether a write is whole is often in its first
        // sector.
        for (const Operation& operation : operations_) {
          if (operation.op != SimOp::write) continue;
          const std::size_t sectors = operation.end - operation.begin;
          choices[operation.begin + (random_.one_in(2) ? 0 : random_.below(sectors))] = {SimFate::garbage, 0};
        }
        return true;
      }
      for (std::uint64_t sectors = 1 + random_.below(2); sectors > 0; --sectors) {
        choices[write->begin + random_.below(write->end - write->begin)] = {SimFate::garbage, 0};
      }
      return true;
    }
    case Fault::lost_name:
    case Fault::lost_size: {
      const Operation* const change = pick([fault](const Operation& o) {
        return fault == Fault::lost_name ? is_name_change(o.op) : is_size_change(o.op);
      });
      if (change == nullptr) return false;
      set(*change, SimFate::lost);
      return true;
    }
    case Fault::misdirected: {
      if (medium.lines()) return false;  // there is no controller that takes one sector for another
      const Operation* const write = pick([&](const Operation& o) {
        return o.op == SimOp::write && !checksummed(medium.name_of_file(o.file)).empty();
      });
      if (write == nullptr) return false;
      if (random_.one_in(2)) draw_operations(choices);
      const std::size_t sector = write->begin + random_.below(write->end - write->begin);
      const std::uint64_t own = medium.record_of(medium.pending(sector)).offset + medium.pending(sector).skip;
      const bool log = medium.name_of_file(write->file) != "objects/0";
      std::uint64_t place = own;
      while (place / kSimSectorBytes == own / kSimSectorBytes) {
        if (!log) {
          place = own % kSimSectorBytes + random_.below(16) * kSimSectorBytes;
        } else if (random_.one_in(6)) {
          place = random_.one_in(2) ? 0 : kSuperblockStrideBytes;
        } else if (random_.one_in(2) && own >= kSlotsOffset) {
          // The same place in another slot: the likeliest to be taken for something.
          place = kSlotsOffset + random_.below(8) * options_.slot_bytes + (own - kSlotsOffset) % options_.slot_bytes;
        } else {
          place = kSlotsOffset + random_.below(8 * options_.slot_bytes / kSimSectorBytes) * kSimSectorBytes;
        }
      }
      choices[sector] = {random_.one_in(2) ? SimFate::elsewhere : SimFate::elsewhere_too, place};
      return true;
    }
    default: return false;
  }
}

// The faults that the choices show, planned by the strategy or by the explorer.
void Explorer::count_shown(const SimMedium& medium, const std::vector<SimChoice>& choices, bool planned_too) {
  std::uint32_t shown = 0;
  const auto show = [&shown](Fault fault) { shown |= 1u << static_cast<unsigned>(fault); };
  bool something_lost = false;
  for (const Operation& operation : operations_) {
    std::size_t lost = 0;
    bool gap = false;
    bool whole_blocks = true;
    for (std::size_t i = operation.begin; i < operation.end; ++i) {
      const SimFate fate = choices[i].fate;
      if (fate == SimFate::lost) ++lost;
      if (fate == SimFate::garbage) show(Fault::garbage);
      if (fate == SimFate::torn_block) show(Fault::torn_block);
      if (fate >= SimFate::elsewhere) show(Fault::misdirected);
      if (i > operation.begin && i + 1 < operation.end && fate == SimFate::lost &&
          choices[i - 1].fate == SimFate::kept && choices[i + 1].fate == SimFate::kept) {
        gap = true;
      }
      if (i > operation.begin && operation.op == SimOp::write && fate != choices[i - 1].fate) {
        const SimMedium::Item& item = medium.pending(i);
        if ((medium.record_of(item).offset + item.skip) % 4096 != 0) whole_blocks = false;
      }
    }
    const std::size_t items = operation.end - operation.begin;
    const bool all_lost = lost == items;
    if (operation.op == SimOp::write && all_lost) show(Fault::dropped);
    if (lost > 0 && !all_lost) {
      show(Fault::torn_512);
      if (whole_blocks) show(Fault::torn_4096);
    }
    if (gap) show(Fault::stale_sector);
    if (all_lost && is_name_change(operation.op)) show(Fault::lost_name);
    if (all_lost && is_size_change(operation.op)) show(Fault::lost_size);
    if (lost < items && something_lost) show(Fault::reordered);
    something_lost = something_lost || all_lost;
  }
  for (std::size_t i = 0; i < kFaults; ++i) {
    if ((shown >> i & 1) == 0 || !faults_.has(static_cast<Fault>(i))) continue;
    ++tally_.faults[i].fired;
    if (planned_too) ++tally_.faults[i].planned;
  }
}

bool Explorer::note_distinct(std::uint64_t hash, std::size_t operation) {
  ++tally_.states;
  ++tally_.operations[operation].states;
  const bool fresh = tally_.distinct.insert(hash).second;
  if (fresh) ++tally_.operations[operation].distinct;
  return fresh;
}

// ---- judging ---------------------------------------------------------------------------------------------------

// A one-file store that was closed: the file by itself, as any program reads it.
Content Explorer::read_file_alone(const SimImage& image) const {
  Content content;
  content.exists = true;
  if (const auto file = image.files.find(options_.file_name); file != image.files.end()) {
    content.objects["file"] = *file->second;
    if (!workload_.how.structure_in_use)
      hide_moment(content.objects["file"]);  // of a file that was closed, that mark is gone
  }
  SimVolume volume(image);
  for (const std::string& name : stores::files_beside(volume)) content.objects[name] = *image.files.at(name);
  return content;
}

std::string Explorer::verdict(const Recovered& recovered, const Expected& expected) const {
  if (!recovered.ok) return "recovery failed: " + recovered.error;
  if (!recovered.unsound.empty()) return "recovered a structure that is not sound: " + recovered.unsound;
  // Until the program that came after a kill has opened the store, no more was seen than was acknowledged before.
  if (also_allowed_ != nullptr && path_.back().at < also_until_ &&
      also_allowed_->allows(recovered.found, also_allowed_->first)) {
    return {};
  }
  if (!expected.allows(recovered.found, expected.first)) {
    return fmt::format("recovered {}, which is none of the states after commits {} to {}", describe(recovered.content),
                       expected.first, expected.last);
  }
  if (expected.closed && expected.first == expected.last && (!recovered.was_clean || recovered.replayed > 0)) {
    return "the store was closed in good order, but opening it had to recover";
  }
  return {};
}

void Explorer::judge(Run& run, const SimImage& image, const Expected& expected, int life) {
  const std::uint64_t hash = image.hash();
  const bool fresh = note_distinct(hash, operation_);
  if (const auto known = seen_->find(hash); known != seen_->end()) {
    // The same medium at another moment: it recovers to the same content, which must suit this moment too.
    const bool clean_enough = !expected.closed || expected.first != expected.last || known->second.was_clean;
    if (expected.allows(known->second.found, expected.first) && clean_enough) return;
  }
  SimVolume volume(image, true);
  set_identity(kIdentity);
  const Recovered recovered = recover(volume, options_);
  ++tally_.recoveries;
  (*seen_)[hash] = {recovered.found, recovered.was_clean};
  if (std::string wrong = verdict(recovered, expected); !wrong.empty()) {
    violated(std::move(wrong), hash);
    return;
  }
  if (expected.closed && expected.first == expected.last && options_.kind == StoreKind::one_file &&
      read_file_alone(image) != without_inventories(recovered.content)) {
    violated("the store was closed, but the file by itself is not complete: " +
                 describe_difference(recovered.content, read_file_alone(image)),
             hash);
    return;
  }
  if (std::string wrong = copy_wrong(image, recovered); !wrong.empty()) {
    violated(std::move(wrong), hash);
    return;
  }
  {
    SimVolume again(volume.image());
    const Recovered second = recover(again, options_);
    ++tally_.recoveries;
    if (!second.ok || second.found != recovered.found) {
      violated("a second recovery gives " + (second.ok ? describe(second.content) : "an error: " + second.error), hash);
      return;
    }
  }
  if (!fresh) return;
  ++recovered_states_;
  if (recovered_states_ % budget_.look_every == 0) {
    std::string wrong = look_wrong(image, options_, recovered);
    ++tally_.recoveries;
    if (!wrong.empty()) {
      violated(std::move(wrong), hash);
      return;
    }
  }
  // A spoiled block is whole again only when the recovery has written it, so these recoveries are crashed more often.
  const auto& choices = path_.back().choices;
  const bool spoiled = std::any_of(choices.begin(), choices.end(),
                                   [](const SimChoice& choice) { return choice.fate == SimFate::torn_block; });
  const std::uint64_t every = spoiled ? std::min<std::uint64_t>(budget_.recovery_every, 2) : budget_.recovery_every;
  if (faults_.has(Fault::recovery_crash) && recovered_states_ % every == 0) {
    crash_recovery(volume.trace(), recovered.found, 1);
  }
  if (life == 1 && faults_.has(Fault::second_life) && !base_.fault.has_value() && recovered.content.exists &&
      ++live_states_ % budget_.life_every == 0) {
    const std::vector<Operation> operations = operations_;
    const std::size_t row = operation_;
    second_life(run, image, recovered.content, live_states_ / budget_.life_every % 2 == 0);
    operations_ = operations;
    operation_ = row;
  }
}

// Crashes the recovery itself at each of its operations; whatever happens, the same commit must come back.
void Explorer::crash_recovery(const SimTrace& trace, Fingerprint found, int level) {
  path_.push_back(cut_of('/', 0));
  const Fault fault = level == 1 ? Fault::recovery_crash : Fault::recovery_crash_twice;
  if (trace.records.empty()) return path_.pop_back();
  for (CrashPoints points(trace, 1); !enough() && points.next();) {
    for (PowerCuts cuts(points.medium(), {2, budget_.recovery_samples}, random_); !enough() && cuts.next();) {
      path_.back().at = points.at();
      path_.back().choices = cuts.choices();
      const SimImage image = cuts.image();
      const std::uint64_t hash = image.hash();
      (void)note_distinct(hash, kSimOpCount);
      ++at(tally_.faults, fault).planned;
      ++at(tally_.faults, fault).fired;
      if (const auto known = seen_->find(hash); known != seen_->end() && known->second.found == found) continue;
      SimVolume volume(image, true);
      set_identity(kIdentity);
      const Recovered recovered = recover(volume, options_);
      ++tally_.recoveries;
      (*seen_)[hash] = {recovered.found, recovered.was_clean};
      if (!recovered.ok || recovered.found != found) {
        violated("a crash of the recovery gives " +
                     (recovered.ok ? describe(recovered.content) : "an error: " + recovered.error),
                 hash);
        continue;
      }
      if (level == 1 && faults_.has(Fault::recovery_crash_twice) && ++recovery_crashes_ % budget_.deep_every == 0) {
        crash_recovery(volume.trace(), found, 2);
      }
    }
  }
  path_.pop_back();
}

// The program is killed here, with the power on: the next one finds the files as the kernel has them, recovers, and
// goes on, while what the first one had not flushed is still not safe. The power is cut at each operation of that.
void Explorer::kill_here(Run& first, const SimTrace& trace, const SimMedium& medium, const Expected& expected) {
  FaultCount& count = at(tally_.faults, Fault::killed);
  ++count.planned;
  ++count.fired;
  const SimImage image = medium.cached();
  SimVolume volume(image);
  set_identity(kIdentity);
  const Recovered alive = recover(volume, options_);
  ++tally_.recoveries;
  if (std::string wrong = verdict(alive, expected); !wrong.empty()) {
    violated("after a kill, with the power on: " + wrong, image.hash());
    return;
  }
  const std::size_t killed_at = path_.back().at;
  life_link_ = random_.one_in(2) ? '>' : '+';
  const std::unique_ptr<Run> next = next_life(first, image, alive.content, life_link_ == '+');
  if (!next->broken().empty()) {
    path_.push_back(cut_of(life_link_, next->volume.operations()));
    violated("after a kill, " + next->broken().front(), image.hash());
    path_.pop_back();
    return;
  }
  also_allowed_ = &expected;
  also_until_ = next->step_marks().empty() ? next->volume.operations() : next->step_marks().front().first;
  const Budget full = lighten();
  explore(*next, trace.continued(killed_at, next->volume.trace()), killed_at, 2);
  budget_ = full;
  also_allowed_ = nullptr;
}

std::unique_ptr<Run> Explorer::next_life(Run& first, const SimImage& image, const Content& content, bool other) {
  const std::size_t step = first.step_at(path_.back().at);
  set_identity(kIdentity);
  auto run = std::make_unique<Run>(options_, image, content);
  run->other_bytes = other ? 101 : 0;
  path_.push_back(cut_of(other ? '+' : '>', 0));  // in case it dies in there
  perform(*run, step, step + budget_.life_steps, true);
  path_.pop_back();
  return run;
}

Budget Explorer::lighten() {
  Budget lighter = budget_;
  lighter.exhaustive_items = std::min<std::size_t>(budget_.exhaustive_items, 5);
  lighter.samples = std::min<std::size_t>(budget_.samples, 4);
  lighter.special = std::min<std::size_t>(budget_.special, 1);
  return std::exchange(budget_, lighter);
}

// The program comes back, does again what was interrupted, goes on for a few steps, and crashes again.
void Explorer::second_life(Run& first, const SimImage& image, const Content& content, bool other) {
  ++tally_.lives;
  ++at(tally_.faults, Fault::second_life).planned;
  const std::unique_ptr<Run> run = next_life(first, image, content, other);
  ++at(tally_.faults, Fault::second_life).fired;
  life_link_ = other ? '+' : '>';
  if (!run->broken().empty()) {
    path_.push_back(cut_of(life_link_, run->volume.operations()));
    violated("in its second life, " + run->broken().front(), image.hash());
    path_.pop_back();
    return;
  }
  const Budget full = lighten();
  explore(*run, run->volume.trace(), 0, 2);
  budget_ = full;
}

}  // namespace memlith::lab
