#include "workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "steps.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

using namespace stores;

// ---- store workloads -------------------------------------------------------------------------------------------

std::vector<Step> commits(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 4096),
          create("b", 4096),
          commit({{"a", 0, 200 + shift}, {"b", 100, 50}}),
          commit({{"a", 100, 900}, {"b", 3000, 600 + shift}}),
          commit({{"a", 0, 300}, {"a", 200, 300}}),  // the second lies over the first
          commit({{"a", 4000, 96}, {"b", 0, 40 + shift}}),
          commit({{"b", 500, 64}, {"a", 1000, 64}})};
}

std::vector<Step> checkpoints(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 4096),
          create("b", 4096),
          checkpoint(),
          commit({{"a", 0, 700 + shift}, {"b", 500, 1200}}),
          commit({{"a", 300, 600}, {"b", 0, 100 + shift}}),
          checkpoint(),
          commit({{"a", 0, 64 + shift}, {"b", 1000, 64}}),
          checkpoint(),
          checkpoint(),
          commit({{"a", 0, 64}})};
}

std::vector<Step> reopening(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 4096),
          commit({{"a", 0, 600 + shift}}),
          close(),
          open(),
          commit({{"a", 100, 600}}),
          commit({{"a", 150, 600 + shift}}),
          abandon(),
          open(),
          commit({{"a", 200, 600}}),
          close(),
          open(),
          abandon(),
          open(),
          commit({{"a", 300, 600 + shift}}),
          close()};
}

// A program that abandons its store after any failure and opens it again: it finds what the kernel shows.
std::vector<Step> reopened(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 4096),
          create("b", 4096),
          abandon(),
          open(),
          commit({{"a", 0, 600 + shift}, {"b", 0, 600}}),
          abandon(),
          open(),
          commit({{"a", 100, 600}, {"b", 200, 600 + shift}}),
          batch({{{"a", 0, 300}}, {{"a", 200, 300 + shift}, {"b", 50, 100}}}),
          checkpoint(),
          commit({{"b", 300, 2000}, {"a", 300, 2000 + shift}}),
          abandon(),
          open(),
          commit({{"a", 4096, 1000}, {"b", 0, 40}}, 8192),
          abandon(),
          open(),
          commit({{"a", 4096, 1000}, {"b", 0, 40}}, 8192),  // if it failed
          commit({{"b", 4096, 1000}, {"a", 0, 50}}, 8192),
          checkpoint(),
          close(),
          open(),
          commit({{"a", 50, 700}, {"b", 0, 700}}),
          close(),
          open(),
          commit({{"b", 50, 700}, {"a", 0, 700}}),
          abandon(),
          open()};
}

// The same, with a log that is often full, so that frames that have to be written again find no free slot.
std::vector<Step> reopened_full(Random& random) {
  std::vector<Step> steps{open(), create("a", 8192), create("b", 4096)};
  for (std::uint64_t i = 0; i < 7; ++i) {
    steps.push_back(commit({{"a", random.below(3000), 1 + random.below(3000)}, {"b", random.below(3000), 900}}));
    if (i % 2 == 1) steps.push_back(checkpoint());
    steps.push_back(abandon());
    steps.push_back(open());
  }
  return steps;
}

// The same, with more in the log than is replayed at once: the newest commits are in a batch with what fills a piece.
std::vector<Step> reopened_pieces(Random& random) {
  std::vector<Step> steps{open(), create("a", 16384), create("b", 8192)};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t shift = random.below(100);
    steps.push_back(commit({{"a", 0, 2800}}));
    steps.push_back(commit({{"a", 5000, 800 + shift}}));  // with the first of the batch, a piece
    steps.push_back(batch({{{"a", 8000, 700}, {"b", 0, 700}}, {{"b", 1000, 500}, {"a", 9000, 500 + shift}}}));
    steps.push_back(abandon());
    steps.push_back(open());
  }
  return steps;
}

// The superblock with which a checkpoint gives slots up is in the page cache only, and so is a commit that was under
// way.
std::vector<Step> reopened_inside(Random& random) {
  return {open(),
          create("a", 8192),
          commit({{"a", 0, 3500 + random.below(200)}}),
          step("a checkpoint inside a commit, and the flush of its superblock is forgotten",
               &Run::commit_with_forgotten_trim_inside, Write{"a", 1000, 600}),
          abandon(),
          open(),
          commit({{"a", 3000, 600}})};
}

std::vector<Step> file_reopened(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          resize_file(6000, {"file", 100, 600}),
          abandon(),
          open(),
          resize_file(9000 + shift, {"file", 5000, 3000}),
          abandon(),
          open(),
          resize_file(9000 + shift, {"file", 5000, 3000}),
          abandon(),
          open(),
          resize_file(3000 + shift, {"file", 0, 600}),
          checkpoint(),
          abandon(),
          open(),
          resize_file(5000, {"file", 2500, 2000}),
          close(),
          open(),
          resize_file(2000, {"file", 0, 100}),
          close(),
          open(),
          commit({{"file", 100, 600}}),
          abandon(),
          open(),
          close()};
}

// Frames of two sectors that were in flight together, lost and kept in every combination, and then written again.
std::vector<Step> stale_frames(Random& random) {
  const std::uint64_t shift = random.below(100);
  return {open(), create("a", 8192), commit({{"a", 0, 600}}),
          // The middle sector of the first frame holds payload only, so writing the frame again writes the same bytes
          // there.
          batch({{{"a", 100, 1100 + shift}}, {{"a", 4000, 100}}}),
          batch({{{"a", 3000, 1200}}, {{"a", 100, 100 + shift}}}),
          batch({{{"a", 100, 600 + shift}}, {{"a", 1000, 600 + shift}}, {{"a", 2000, 500}}}),
          batch({{{"a", 200, 600}}, {{"a", 900, 700 + shift}}}), abandon(), open(),
          batch({{{"a", 3000, 600}}, {{"a", 3100, 600 + shift}}}, 1), commit({{"a", 1, 1}})};
}

// Commits without a wait are lost with the process, or were made durable by commits that were waited for.
std::vector<Step> unfinished(Random& random) {
  const std::uint64_t shift = random.below(100);
  return {open(),
          create("a", 8192),
          batch({{{"a", 0, 300}}, {{"a", 200, 300 + shift}}, {{"a", 400, 300}}}, 1),
          batch({{{"a", 600, 300}}, {{"a", 700, 300 + shift}}}, 0),
          checkpoint(),
          commit({{"a", 800, 300}}),
          batch({{{"a", 900, 300}}, {{"a", 950, 300}}}, 0),
          abandon(),
          open(),
          commit({{"a", 1000, 100 + shift}}),
          batch({{{"a", 1100, 300}}}, 0),
          close(),
          open(),
          commit({{"a", 1200, 100}})};
}

std::vector<Step> wraparound(Random& random) {
  std::vector<Step> steps{open(), create("a", 8192), create("b", 4096)};
  for (int i = 0; i < 40; ++i) {
    steps.push_back(commit({{"a", random.below(6000), 1 + random.below(2000)},
                            {"b", random.below(3000), 1 + random.below(1000)}}));
    if (random.one_in(9)) steps.push_back(checkpoint());
    if (random.one_in(7)) steps.push_back(write_home());
    if (random.one_in(15)) steps.push_back(abandon()), steps.push_back(open());
  }
  return steps;
}

// A store whose log stands in its fourth slot, with the others free.
const SimImage& fourth_slot_image() {
  static const SimImage image = [] {
    Run run(small_store(), {}, {});
    run.open();
    run.create("a", 8192);
    run.fill_log_into(3, "a");
    run.checkpoint();
    return run.volume.image();
  }();
  return image;
}
SimImage fourth_slot() { return fourth_slot_image(); }
Content fourth_slot_content() {
  SimVolume volume(fourth_slot_image());
  return recover(volume, small_store()).content;
}

// A frame over three segments is in flight, and the crash may leave only the header of its last slot. The next program
// reaches that segment in another slot.
std::vector<Step> two_claims(Random& random) {
  const std::uint64_t bytes = 7400 + random.below(100);
  const auto into = [](std::uint64_t segment) {
    return step(fmt::format("commit until the log is in segment {}", segment), &Run::fill_log_into, segment, "a");
  };
  return {open(),
          {text_of_commit({{"a", 0, bytes}}, 0), [=](Run& run) { run.commit({{"a", 0, bytes}}); },
           [](Run& run) {
             run.fill_log_into(4, "a");
             run.checkpoint();
             run.fill_log_into(5, "a");
           }},
          into(6)};
}

// A flush of the newest commit failed, and the medium does not have it. A recovery found it in the page cache, began to
// copy the segment to another slot, and was cut off by a power cut before that slot claimed the segment. So the copy
// has more than the original.
const SimImage& cut_recovery_image() {
  static const SimImage image = [] {
    Run run(small_store(), {}, {});
    run.open();
    run.create("a", 8192);
    run.fill_log_into(4, "a");  // every slot has held a segment
    run.checkpoint();
    run.commit({{"a", 0, 90}});
    run.commit({{"a", 40, 90}});
    SimImage result = run.volume.image();
    run.commit({{"a", 80, 90}});
    const SimImage copied = run.volume.image();
    const std::vector<std::byte>& source = *copied.files.at("log");
    std::vector<std::byte> log = *result.files.at("log");
    const std::uint64_t slot_bytes = small_store().slot_bytes;
    const auto segment_in = [&](std::uint64_t slot) {
      SlotHeader header;
      std::memcpy(&header, source.data() + kSlotsOffset + slot * slot_bytes, sizeof header);
      return header.segment;
    };
    std::uint64_t live = 0;
    for (std::uint64_t slot = 0; slot < 4; ++slot) live = segment_in(slot) > segment_in(live) ? slot : live;
    for (std::uint64_t slot = 0; slot < 4; ++slot) {
      if (slot == live) continue;
      std::memcpy(log.data() + kSlotsOffset + slot * slot_bytes + 512,
                  source.data() + kSlotsOffset + live * slot_bytes + 512, slot_bytes - 512);
    }
    result.files["log"] = std::make_shared<const std::vector<std::byte>>(std::move(log));
    return result;
  }();
  return image;
}
SimImage cut_recovery() { return cut_recovery_image(); }
Content cut_recovery_content() {
  SimVolume volume(cut_recovery_image());
  return recover(volume, small_store()).content;
}

// The copy's surplus must not come back.
std::vector<Step> recovery_again(Random& random) {
  return {open(), commit({{"a", random.below(300), 1 + random.below(600)}}), abandon(), open()};
}

// A poisoned store leaves its homes alone.
std::vector<Step> poisoned(Random& random) {
  return {open(), create("a", 4096), checkpoint(), commit({{"a", 0, 600 + random.below(300)}}),
          step("checkpoints, of which the first fails in the superblock", &Run::checkpoints_that_fail)};
}

// Whole pages and parts of them, of several objects, more than is gathered at a time.
std::vector<Step> pieces(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 12288),
          create("b", 8192),
          commit({{"a", 0, 4096}}),
          commit({{"a", 8192, 4096}, {"b", 0, 100 + shift}}),
          commit({{"b", 4096, 4096}}),
          checkpoint(),
          commit({{"a", 4096, 8192}}),
          commit({{"b", 300, 5000 + shift}, {"a", 0, 50}}),
          abandon(),
          open(),
          commit({{"a", 0, 4096}, {"b", 0, 4096}}),
          commit({{"a", 100, 700 + shift}}),
          close()};
}

// Pieces of several frames and of one, with commits in between, and one that a kill ends.
std::vector<Step> idle_store(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          create("a", 16384),
          create("b", 8192),
          commit({{"a", 0, 3000 + shift}}),
          commit({{"a", 100, 700}}),
          commit({{"b", 4096, 900}}),
          commit({{"a", 8192, 4096}, {"b", 0, 100 + shift}}),
          idle(),
          commit({{"a", 200, 5000}}),
          write_home(),
          commit({{"a", 9000, 50}}),
          commit({{"b", 4096, 50}}),
          write_home(),
          idle(),
          idle(),
          commit({{"b", 300, 600 + shift}}),
          abandon(),
          open(),
          commit({{"a", 12000, 700 + shift}}),
          commit({{"b", 0, 50}}),
          idle(),
          close()};
}

std::vector<Step> idle_file(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          commit({{"file", 0, 300 + shift}}),
          commit({{"file", 4000, 700}}),
          idle(),
          commit({{"file", 100, 300}}),
          idle(),
          commit({{"file", 50, 90}}),
          write_home(),
          abandon(),
          open(),
          commit({{"file", 700, 60 + shift}}),
          write_home(),
          commit({{"file", 4100, 60 + shift}}),
          idle(),
          close()};
}

std::vector<Step> log_full(Random& random) {
  std::vector<Step> steps{open(), create("a", 65536)};
  for (int i = 0; i < 14; ++i) {
    steps.push_back(commit({{"a", random.below(50000), 1000 + random.below(3500)}}));
    if (i == 5) {
      steps.push_back(step("commit 40000 bytes, more than the log can hold", &Run::commit_too_large, "a", 40000));
    }
    if (random.one_in(5)) steps.push_back(commit({{"a", random.below(50000), 9000}}));
  }
  return steps;
}

std::vector<Step> growing_log(Random& random) {
  const std::uint64_t shift = random.below(512);
  return {open(),
          create("a", 40960),
          commit({{"a", 0, 5000 + shift}}),
          commit({{"a", 1000, 30000 + shift}}),
          commit({{"a", 100, 300}}),
          commit({{"a", 0, 9000}, {"a", 20000, 9000 + shift}}),
          checkpoint(),
          commit({{"a", 7, 12345}}),
          commit({{"a", 8, 33333 + shift}}),
          abandon(),
          open(),
          commit({{"a", 9, 20000}}),
          commit({{"a", 9, 100}}),
          close(),
          open(),
          commit({{"a", 10, 100}}),
          commit({{"a", 10, 20000}})};
}

// Frames of several chunks in slots of 16 KiB, so that single writes are longer than 4 KiB.
std::vector<Step> streams(Random& random) {
  const std::uint64_t shift = random.below(4096);
  return {open(),
          create("a", 65536),
          commit({{"a", 0, 20000 + shift}}),
          commit({{"a", 500, 9000}}),
          commit({{"a", 1000, 40000 + shift}}),
          checkpoint(),
          commit({{"a", 0, 33000 + shift}}),
          commit({{"a", 9, 12000}}),
          abandon(),
          open(),
          commit({{"a", 5, 17000}})};
}

std::vector<Step> objects(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          create("a", 4096),
          commit({{"a", 0, 400 + shift}}),
          create("b", 8192),
          commit({{"b", 4000, 500}, {"a", 9, 9}}),
          remove("a"),
          commit({{"b", 0, 500 + shift}}),
          create("a", 4096),
          create("c", 4096),
          commit({{"a", 1000, 100}, {"c", 0, 64}}),
          remove("b"),
          checkpoint(),
          create("b", 4096),
          close(),
          open(),
          commit({{"a", 0, 100}, {"b", 7, 100}}),
          remove("c"),
          commit({{"a", 50, 100}})};
}

std::vector<Step> object_growth(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          create("a", 4096),
          commit({{"a", 0, 400 + shift}}),
          commit({{"a", 4000, 4000}}, 8192),
          checkpoint(),
          commit({{"a", 12000, 200}, {"a", 0, 20 + shift}}, 12288),
          commit({{"a", 1, 20}}),
          abandon(),
          open(),
          commit({{"a", 12288, 100}}, 16384),
          close()};
}

std::vector<Step> directory_growth(Random&) {
  std::vector<Step> steps{open()};
  for (int i = 0; i < 66; ++i) steps.push_back(create("object " + std::to_string(i), 4096));
  steps.push_back(commit({{"object 65", 0, 100}}));
  steps.push_back(remove("object 3"));
  steps.push_back(checkpoint());
  steps.push_back(create("another", 4096));
  return steps;
}

std::vector<Step> one_file(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          commit({{"file", 5000, 3}}),
          commit({{"file", 4999, 4000 + shift}}, 9001 + shift),
          checkpoint(),
          commit({{"file", 0, 700}}),
          close(),
          open(),
          commit({{"file", 1, 1}, {"file", 12000, 33 + shift}}, 13000 + shift),
          abandon(),
          open(),
          commit({{"file", 100, 600 + shift}}),
          close(),
          open(),
          commit({{"file", 20, 600}})};
}

std::vector<Step> one_file_new(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          commit({{"file", 0, 700 + shift}}, 1000 + shift),
          commit({{"file", 600, 100}}),
          close(),
          open(),
          commit({{"file", 900, 1000 + shift}}, 2500 + shift),
          close()};
}

// ---- in the middle of a commit's I/O ---------------------------------------------------------------------------

Step crosswise(const Write& first, const Write& second) {
  return instead(commit({first}),
                 step(text_of_commit({first}, 0) + " while " + text_of_commit({second}, 0) + " overtakes it",
                      &Run::two_batches_crosswise, first, second));
}

std::vector<Step> interleaved(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          create("a", 4096),
          create("b", 4096),
          commit({{"a", 0, 300}}),
          checkpoint_inside({"a", 100, 300 + shift}),
          crosswise({"a", 200, 300}, {"b", 0, 300 + shift}),
          crosswise({"b", 100, 300}, {"a", 0, 300}),
          checkpoint(),
          commit({{"b", 50, 300}}),
          abandon(),
          open(),
          crosswise({"a", 0, 900 + shift}, {"b", 0, 100}),
          checkpoint_inside({"b", 100, 300}),
          close()};
}

constexpr Workload kWorkloads[] = {
    {"commits", "commits to two objects, overlapping, within a sector and across", small_store, commits},
    {"checkpoints", "checkpoints between commits", small_store, checkpoints},
    {"reopening", "clean close, walking away, reopening", small_store, reopening},
    {"reopened", "walking away and reopening behind every commit, whatever failed", small_store, reopened},
    {"reopened-full", "the same, with a log of two slots", two_slots, reopened_full},
    {"reopened-pieces", "the same, replayed by pieces", in_pieces, reopened_pieces, {.lives_often = true}},
    {"reopened-inside",
     "reopening behind a checkpoint whose superblock is in the page cache only",
     small_store,
     reopened_inside,
     {.turns = Turns::fixed, .with_call_faults = false}},
    {"recovery-again",
     "a recovery behind one that was cut off while it copied unproven frames to another slot",
     small_store,
     recovery_again,
     {.starts_unproven = true, .start = cut_recovery, .before = cut_recovery_content}},
    {"file-reopened", "an ordinary file that becomes longer and shorter, reopened behind every commit", file,
     file_reopened, kOrdinaryFile},
    {"blocks", "a store for disks that spoil the physical block around what they write", torn_blocks, checkpoints},
    {"blocks-random", "histories of such stores drawn by seed", torn_blocks, random_history},
    {"blocks-pieces", "the same, replayed by pieces", torn_blocks_in_pieces, random_history},
    {"blocks-file", "histories of such one-file stores", file_torn_blocks, random_file_history, kOrdinaryFile},
    {"stale-frames",
     "batches of several frames in flight, and the same again after the crash",
     small_store,
     stale_frames,
     {.lives_often = true}},
    {"unfinished", "commits that no thread waited for, and those that carry them along", small_store, unfinished},
    {"wraparound", "the log goes round many times", small_store, wraparound},
    {"two-claims",
     "a torn frame leaves a slot that claims a segment, which another slot holds later",
     small_store,
     two_claims,
     {.with_call_faults = false, .lives_often = true, .start = fourth_slot, .before = fourth_slot_content}},
    {"poisoned",
     "checkpoints behind one whose superblock was written and reported as failed",
     small_store,
     poisoned,
     {.with_call_faults = false}},
    {"pieces", "checkpoints and recoveries that go by pieces, past the page cache", in_pieces, pieces},
    {"idle", "a store that goes home by pieces while there are no commits", small_store, idle_store},
    {"idle-file", "the same of an ordinary file", file, idle_file, kOrdinaryFile},
    {"log-full", "a log that may not grow, and a commit that does not fit it", full_log, log_full},
    {"growing-log", "frames over several slots that make the log grow", small_store, growing_log},
    {"streams", "frames of several chunks, written in pieces of up to 16 KiB", wide_slots, streams},
    {"objects", "objects come and go", small_store, objects},
    {"object-growth", "objects grow with their bytes", small_store, object_growth},
    {"directory-growth",
     "the directory outgrows its file",
     small_store,
     directory_growth,
     {.every_seed_differs = false, .with_call_faults = false}},
    {"one-file", "an ordinary file, adopted, changed, grown, closed, reopened", file, one_file, kOrdinaryFile},
    {"one-file-new", "a one-file store whose file was not there", file, one_file_new},
    {"file-lengths", "histories of a file that becomes shorter and longer", file, random_file_lengths, kOrdinaryFile},
    {"file-pieces", "such histories, replayed by pieces", file_in_pieces, random_file_lengths, kOrdinaryFile},
    {"interleaved",
     "a checkpoint inside a commit; two batches in flight, the second done first",
     small_store,
     interleaved,
     {.turns = Turns::fixed}},
};

constexpr Workload kDrawnWorkloads[] = {
    {"group-commit", "three threads commit side by side", roomy, group_commit, {.turns = Turns::drawn}},
    {"background",
     "the checkpoint's own thread, under pressure",
     background,
     background_checkpoints,
     {.turns = Turns::drawn}},
    {"busy-log", "it lets the log grow, under pressure", busy, background_checkpoints, {.turns = Turns::drawn}},
    {"random", "histories drawn by seed", small_store, random_history},
    {"random-pieces", "such histories, replayed by pieces", in_pieces, random_history},
    {"random-file", "histories of a one-file store drawn by seed", file, random_file_history, kOrdinaryFile},
    {"random-regions", "histories of mapped regions drawn by seed", wide_slots, random_region_history},
    {"random-pages", "such histories, tracked by pages", wide_slots, random_page_history, {.with_call_faults = false}},
    {"random-recorded",
     "such histories, with stores that instrumented code records",
     wide_slots,
     random_recorded_history,
     {.with_call_faults = false}},
};

}  // namespace

std::span<const Workload> workloads() {
  static const std::vector<Workload> all = [] {
    std::vector<Workload> list(std::begin(kWorkloads), std::end(kWorkloads));
    std::ranges::copy(region_workloads(), std::back_inserter(list));
    list.insert(list.end(), std::begin(kDrawnWorkloads), std::end(kDrawnWorkloads));
    for (const auto& more : {heap_workloads(), thread_heap_workloads(), applog_workloads(), page_workloads(),
                             raw_workloads(), image_workloads(), common_workloads()}) {
      list.insert(list.end(), more.begin(), more.end());
    }
    const std::vector<Workload> disks = disk_workloads(list);
    list.insert(list.end(), disks.begin(), disks.end());
    return list;
  }();
  return all;
}

const Workload* find_workload(std::string_view name) {
  const std::span<const Workload> all = workloads();
  const auto found = std::find_if(all.begin(), all.end(), [name](const Workload& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace memlith::lab
