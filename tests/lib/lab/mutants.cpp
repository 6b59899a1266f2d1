#include "mutants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "mutants/mutants.hpp"
#include "pool.hpp"
#include "replay.hpp"
#include "schedules.hpp"
#include "unit.hpp"

namespace memlith::lab {

using nlohmann::json;

namespace {

struct KnownMutant {
  const char* name;
  const char* floor;
  const char* what;
};
constexpr KnownMutant kMutants[] = {
#define MEMLITH_MUTANT_ENTRY(name, floor, what) {#name, #floor, what},
    MEMLITH_MUTANT_LIST(MEMLITH_MUTANT_ENTRY)
#undef MEMLITH_MUTANT_ENTRY
};

// Few workloads or cases of threads ("schedule NAME") show these, or late ones do, so the hunt begins there. What is
// missing here is found by looking through all of them, which takes up to a minute of processor time.
struct ShownBy {
  std::string_view mutant;
  std::string_view workload;
};
constexpr std::string_view kSchedule = "schedule ";
constexpr ShownBy kShownBy[] = {
    {"abort_oldest_image_last", "transactions"},
    {"acknowledge_next_batch", "schedule two-commits-each"},
    {"blocks_not_flushed", "blocks"},
    {"blocks_not_kept", "blocks"},
    {"blocks_taken_for_sectors", "blocks-pieces"},
    {"bytes_beyond_the_end", "file-pages"},
    {"bytes_over_the_end_dropped", "file-lengths"},
    {"cache_not_flushed", "nvme-files"},
    {"cached_length_believed", "heap-threads"},
    {"change_begins_uncaptured", "heap-changes"},
    {"change_captured_inside", "heap-changes"},
    {"change_not_undone", "heap-changes"},
    {"changed_pages_released", "releases"},
    {"checkpoint_beyond_durable", "blocks-random"},
    {"checkpoint_forgets_home", "random-pieces"},
    {"close_without_checkpoint", "file-reopened"},
    {"collectors_closed_apart", "schedule kv-two-stores"},
    {"command_not_forced", "nvme-random"},
    {"common_bytes_not_copied", "common-stores"},
    {"common_commit_not_flushed", "common-files"},
    {"common_commits_dropped", "common-files"},
    {"common_frames_freed_early", "common-files"},
    {"common_length_cut", "common-lengths"},
    {"common_log_left_early", "common-files"},
    {"common_log_not_named", "common-files"},
    {"common_part_before_decision", "common-files"},
    {"complete_out_of_order", "interleaved"},
    {"constant_incarnation", "stale-frames"},
    {"cut_log_goes_on_in_lost_slot", "growing-log"},
    {"cut_off_bytes_come_back", "file-image-regrown"},
    {"dead_bytes_early", "applog"},
    {"dead_bytes_late", "applog"},
    {"direct_home_not_waited", "pieces"},
    {"discard_keeps_memory", "discards"},
    {"durable_told_before_flush", "schedule flusher-fails"},
    {"earlier_commits_not_flushed", "common-files"},
    {"earlier_incarnation_taken", "streams"},
    {"failed_checkpoint_goes_on", "checkpoints"},
    {"failed_flush_retried", "schedule flush-fails"},
    {"failed_write_acknowledged", "schedule flush-fails"},
    {"flusher_ends_without_a_look", "schedule asynchronous-window"},
    {"flushes_side_by_side", "schedule flush-fails"},
    {"growth_sized_outside_lock", "schedule two-growths"},
    {"head_before_hold", "schedule kv-tickets"},
    {"heap_captured_unlocked", "heap-page-threads"},
    {"heap_changes_of_other_thread_taken", "heap-scopes"},
    {"heap_changes_of_thread_left_out", "heap-scopes"},
    {"heap_derived_kept", "heap-btree"},
    {"heap_inside_of_blocks_not_reached", "heap-collect"},
    {"heap_structures_left_out", "heap-page-scopes"},
    {"holes_left", "holes"},
    {"home_grown_unflushed", "file-reopened"},
    {"home_twin_too_old", "page-homes"},
    {"hot_pages_not_compared", "hot-pages"},
    {"hot_twin_not_renewed", "hot-pages"},
    {"hot_twin_renewed_when_full", "hot-scanned-pages"},
    {"joint_region_forgotten", "heap-kv"},
    {"lack_poisons", "schedule checkpoint-lacks"},
    {"last_line_left_in_cache", "lines-few"},
    {"last_piece_written_through", "commits-fua"},
    {"last_range_forgotten", "regions"},
    {"late_waiter_forgotten", "schedule checkpoint-lacks"},
    {"lines_not_fenced", "lines-few"},
    {"log_cut_early", "schedule close-busy-log"},
    {"mapped_pages_not_written", "nvme-regions"},
    {"moment_not_flushed", "moments"},
    {"moment_not_told_before_home", "moments-random"},
    {"moment_not_told_behind_home", "moments"},
    {"moments_not_compared", "moments"},
    {"pack_sealed_under_writers", "schedule packed"},
    {"packed_commits_dropped", "scopes"},
    {"page_of_other_thread_taken", "page-scopes"},
    {"page_of_thread_forgotten", "page-scopes"},
    {"hint_replaces_fault", "page-announced"},
    {"neighbours_opened_unmarked", "page-announced"},
    {"stores_before_handover_lost", "page-tracker-changes"},
    {"handover_trusts_newer_twin", "page-tracker-changes"},
    {"payload_of_any_incarnation", "lines-few"},
    {"persist_does_not_join", "region-joined"},
    {"persist_of_first_region_only", "regions"},
    {"poisoned_log_goes_on", "schedule flush-fails"},
    {"record_cut_short", "recorded-scopes"},
    {"record_lost_in_full_list", "recorded-too-large"},
    {"record_of_ended_thread_lost", "recorded-scopes"},
    {"record_of_other_thread_lost", "recorded-too-large"},
    {"recovered_blocks_written_over", "blocks"},
    {"refusal_wakes_nobody", "schedule checkpoint-lacks"},
    {"region_mapped_out_of_date", "regions"},
    {"region_size_not_persisted", "region-growth"},
    {"regrown_pages_not_in_range_committed", "file-image-regrown"},
    {"rest_of_block_lost", "nvme-files"},
    {"rest_of_line_lost", "one-file-lines"},
    {"rest_of_range_forgotten", "ranges"},
    {"rollback_forgotten", "scopes"},
    {"set_aside_not_waiting", "schedule kv-persist"},
    {"snapshot_of_old_homes", "snapshots"},
    {"stop_told_outside_lock", "schedule close-busy-log"},
    {"stored_dropped_when_full", "regions-too-large"},
    {"stream_beyond_in_flight_max", "schedule stream-commits"},
    {"stream_buffer_used_early", "growing-log"},
    {"tickets_between_places", "schedule kv-tickets"},
    {"tickets_not_held_back", "schedule kv-tickets"},
    {"tail_moved_outside_lock", "schedule trim-growth"},
    {"torn_moment_believed", "moments"},
    {"transaction_not_noted", "transactions"},
    {"transaction_range_forgotten", "transactions"},
    {"transaction_without_size", "transactions"},
    {"truncate_not_flushed_by_close", "file-region"},
    {"truncate_not_flushed_by_open", "file-reopened"},
    {"twin_not_renewed", "page-copies"},
    {"twin_renewed_when_full", "page-copies"},
    {"two_streams_at_once", "schedule two-streams"},
    {"unlink_before_checkpoint", "objects"},
    {"unproven_common_commits", "common-files"},
    {"unproven_frames_believed", "reopened"},
    {"unproven_frames_believed", "reopened-full"},
    {"unproven_pieces_written_home", "reopened-pieces"},
    {"in_use_header_ends_too_early", "used-file"},
    {"in_use_header_not_home", "used-file"},
    {"waiter_looks_late", "schedule two-commits"},
    {"write_through_not_forced", "commits-fua"},
    {"wrong_live_count", "objects"},
    {"wrong_scope", "scopes"},
};

bool is_shown_by(std::string_view mutant, std::string_view workload) {
  return std::any_of(std::begin(kShownBy), std::end(kShownBy),
                     [&](const ShownBy& entry) { return entry.mutant == mutant && entry.workload == workload; });
}

constexpr double kHangSeconds = 30;   // a single workload takes no such time, unless it hangs
constexpr std::uint64_t kRounds = 8;  // seeds tried; the first lightly

// How the violation came about, in a few words, from the line that replays it.
std::string how(const std::string& line) {
  std::string why;
  const std::optional<Case> parsed = parse_case(line, why);
  if (!parsed.has_value()) return "a crash";
  if (parsed->fault.has_value())
    return std::string(name_of(*parsed->fault)) + (parsed->cuts.empty() ? "" : " and a crash");
  if (parsed->cuts.empty()) return "without a crash";
  bool second_life = false;
  for (const Cut& cut : parsed->cuts) second_life = second_life || cut.link == '>' || cut.link == '+';
  const Cut& last = parsed->cuts.back();
  std::string text = "a crash";
  if (last.link == '/') text = parsed->cuts.size() > 2 ? "a crash of a crashed recovery" : "a crash of the recovery";
  for (const core::SimChoice& choice : last.choices) {
    if (choice.fate == core::SimFate::garbage) text = "garbage in a torn sector";
    if (choice.fate == core::SimFate::torn_block) text = "a torn physical block";
    if (choice.fate >= core::SimFate::elsewhere) text = "a misdirected write";
  }
  if (!last.rotten_file.empty()) text = "bit rot";
  if (!last.older_file.empty()) text = "a copy of an earlier moment";
  if (last.flipped_read.has_value()) text = "a flipped read";
  return second_life ? text + " in the second life" : text;
}

// One search for a mutant.
struct Hunt {
  const std::string& mutant;
  double seconds_max;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::uint64_t states = 0;

  [[nodiscard]] double left() const {
    return seconds_max - std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
};

Budget budget_of(std::uint64_t round, bool call_faults) {
  Budget budget;
  budget.violations_max = 1;
  budget.life_every = 12;
  if (round > 0) return budget;
  budget.exhaustive_items = 4;
  budget.samples = 4;
  budget.special = 3;
  budget.recovery_every = 20;
  budget.kill_every = 8;
  budget.life_every = 40;
  budget.states_max = 2'000;
  if (!call_faults) return budget;
  budget.exhaustive_items = 1;  // what they break shows in the run itself, or at once
  budget.samples = 1;
  budget.special = 0;
  budget.recovery_every = budget.kill_every = ~0u;
  budget.states_max = ~0ull;
  return budget;
}

// Tries one workload after another; true if something was wrong, or the time is up.
bool hunt_round(Hunt& hunt, std::span<const Workload* const> workloads, std::uint64_t round, bool call_faults,
                json& report) {
  for (const Workload* const workload : workloads) {
    if (hunt.left() <= 0) return true;
    const bool differs = workload->how.every_seed_differs || is_shown_by(hunt.mutant, workload->name);
    if (round > 1 && !differs) continue;
    if (call_faults && !workload->how.with_call_faults) continue;
    Tally tally;
    const std::uint64_t seed = std::max<std::uint64_t>(1, round);
    work({workload, seed, call_faults, {}}, FaultSet::all(), budget_of(round, call_faults), round == 0 ? 2 : 3,
         hunt.mutant, tally);
    hunt.states += tally.states;
    if (tally.violations.empty()) continue;
    report = {{"workload", workload->name},
              {"what", tally.violations.front().what},
              {"replay", format_case(tally.violations.front().replay)},
              {"medium", text_of_medium(tally.violations.front().medium)},
              {"states", hunt.states}};
    return true;
  }
  return false;
}

// Threads in every order of the cases that are known to show it. Then the workloads that are known to show it, with
// every seed; those about the mutant's floor; all others. All cases of threads after the first light round of the
// others.
void hunt(const std::string& mutant, std::string_view floor, bool schedules, double seconds_max, json& report) {
  // The cases that are named after them show these: those of schedule_connections.cpp and schedule_kv.cpp.
  if (floor == "connection" || floor == "kv") {
    if (schedules) hunt_schedules(mutant, floor, seconds_max, report);
    if (!report.contains("states")) report["states"] = report.value("schedules", 0);
    return;
  }
  Hunt hunt{mutant, seconds_max};
  for (const ShownBy& entry : kShownBy) {
    if (!schedules || entry.mutant != mutant || !entry.workload.starts_with(kSchedule)) continue;
    hunt_schedules(mutant, entry.workload.substr(kSchedule.size()), hunt.left(), report);
    if (report.contains("replay")) return;
  }
  std::vector<const Workload*> order;
  for (const Workload& workload : workloads()) order.push_back(&workload);
  const auto shown = std::stable_partition(order.begin(), order.end(), [&](const Workload* workload) {
    return is_shown_by(mutant, workload->name);
  });
  const auto others =
      std::stable_partition(shown, order.end(), [&](const Workload* workload) { return workload->how.about == floor; });
  for (const auto& part : {std::span(order.begin(), shown), std::span(shown, others), std::span(others, order.end())}) {
    const bool is_last = part.data() + part.size() == order.data() + order.size();
    for (std::uint64_t round = 0; round < kRounds && !part.empty(); ++round) {
      for (const bool call_faults : {false, true}) {
        if (schedules && is_last && round == 0 && call_faults) {
          hunt_schedules(mutant, {}, hunt.left(), report);
          if (report.contains("replay")) return;
        }
        const bool over = hunt_round(hunt, part, round, call_faults, report);
        if (report.contains("replay")) return;
        if (!over) continue;
        report = {{"states", hunt.states}};
        return;
      }
    }
  }
  report = {{"states", hunt.states}};
}

std::string without_mutant(std::string line, std::string_view mutant) {
  const std::string word = fmt::format(" mutant={}", mutant);
  if (const std::size_t at = line.find(word); at != std::string::npos) line.erase(at, word.size());
  return line;
}

}  // namespace

std::string describe_mutants() {
  std::string text;
  for (const KnownMutant& entry : kMutants)
    text += fmt::format("  {:<32} {}: {}\n", entry.name, entry.floor, entry.what);
  return text;
}

int mutants_command(const MutantOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<KnownMutant> wanted;
  for (const std::string& name : options.only) {
    if (std::none_of(std::begin(kMutants), std::end(kMutants), [&](const auto& entry) { return name == entry.name; })) {
      fmt::print(stderr, "memlith-crashlab: there is no mutant \"{}\"; `memlith-crashlab list` names them\n", name);
      return 2;
    }
  }
  for (const KnownMutant& entry : kMutants) {
    const bool named = std::find(options.only.begin(), options.only.end(), entry.name) != options.only.end();
    if (options.only.empty() || named) wanted.push_back(entry);
  }
  json rows = json::array();
  std::size_t killed = 0;
  std::size_t not_replayed = 0;
  std::size_t started = 0;
  const bool table = !options.json && !options.markdown;
  run_jobs(
      options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency()),
      [&]() -> std::optional<Job> {
        if (started == wanted.size()) return std::nullopt;
        const std::string name = wanted[started].name;
        const std::string_view floor = wanted[started++].floor;
        Job job;
        const double seconds_each = options.seconds_each;
        job.seconds_max = seconds_each + kHangSeconds;
        const bool schedules = options.schedules;
        job.act = [name, floor, seconds_each, schedules](json& report, std::vector<std::uint64_t>&) {
          if (set_mutant(name)) hunt(name, floor, schedules, seconds_each, report);
        };
        return job;
      },
      [&](const Answer& answer) {
        const KnownMutant& entry = wanted[rows.size()];
        json row{{"name", entry.name}, {"floor", entry.floor}, {"what", entry.what}, {"seconds", answer.seconds}};
        if (!answer.died.empty()) {
          const std::string workload = answer.position.substr(0, answer.position.find(' '));
          row["caught_by"] = workload;
          row["how"] = "the process " + answer.died;
          row["states"] = nullptr;
          row["replay"] = answer.position;
          row["detail"] = answer.said;
        } else {
          row["states"] = answer.report["states"];
          if (answer.report.contains("replay")) {
            row["caught_by"] = answer.report["workload"];
            row["how"] =
                answer.report.contains("how") ? answer.report["how"].get<std::string>() : how(answer.report["replay"]);
            row["detail"] = answer.report["what"];
            row["replay"] = answer.report["replay"];
            row["medium"] = answer.report.value("medium", "");
          } else {
            row["caught_by"] = nullptr;
          }
        }
        const bool caught = !row["caught_by"].is_null();
        if (caught) ++killed;
        // The proof of a kill is a line that shows it again, and shows nothing without the mutant.
        const bool replayed = caught && replays(row["replay"], row.value("medium", ""));
        const bool alone = caught && replays(without_mutant(row["replay"], entry.name), "");
        row["replays"] = replayed && !alone;
        if (caught && (!replayed || alone)) {
          ++not_replayed;
          fmt::print(stderr, "{}: {}, memlith-crashlab replay '{}'\n",
                     alone ? "WRONG WITHOUT THE MUTANT, TOO" : "DOES NOT REPLAY", entry.name,
                     row["replay"].get<std::string>());
        }
        if (table) {
          fmt::print("{:<9} {:<32} {:>6.1f} s  {}\n", caught ? "killed" : "SURVIVED", entry.name, answer.seconds,
                     caught ? fmt::format("{}: {}", row["caught_by"].get<std::string>(), row["how"].get<std::string>())
                            : "");
          std::fflush(stdout);
        }
        if (!caught) fmt::print(stderr, "SURVIVED: {}, {}\n", entry.name, entry.what);
        rows.push_back(std::move(row));
        return true;
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (options.markdown) {
    fmt::print(
        "| mutant | floor | what it does | caught by workload | how | states until then "
        "|\n|---|---|---|---|---|---:|\n");
    for (const json& row : rows) {
      const bool caught = !row["caught_by"].is_null();
      fmt::print("| {} | {} | {} | {} | {} | {} |\n", row["name"].get<std::string>(), row["floor"].get<std::string>(),
                 row["what"].get<std::string>(), caught ? row["caught_by"].get<std::string>() : "**not caught**",
                 caught ? row["how"].get<std::string>() : "",
                 row["states"].is_null() ? "" : fmt::format("{}", row["states"].get<std::uint64_t>()));
    }
  } else if (options.json) {
    const json result{{"killed", killed},
                      {"total", rows.size()},
                      {"not_replayed", not_replayed},
                      {"seconds", seconds},
                      {"mutants", std::move(rows)}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{} of {} mutants killed in {:.0f} s; each line replays what it tells{}\n", killed, rows.size(), seconds,
               not_replayed == 0 ? "" : fmt::format(", but for {}", not_replayed));
  }
  return killed == wanted.size() && not_replayed == 0 ? 0 : 1;
}

}  // namespace memlith::lab
