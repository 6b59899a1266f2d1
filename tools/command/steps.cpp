// memlith steps list|show|retry|cancel: the durable runs of a store (memlith/steps.hpp, memlith.steps of Python).
#include "steps.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli_words.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "memlith/steps.hpp"

namespace memlith::tool {

using steps::RunInfo;

namespace {

std::string time_text(std::uint64_t since_1970_us) {
  if (since_1970_us == 0) return "";
  return fmt::format("{:%F %T}", fmt::gmtime(static_cast<std::time_t>(since_1970_us / 1000000)));
}

// The reason why a run does not go on by itself, or what it waits for.
std::string reason_of(const RunInfo& run) {
  if (!run.error.empty()) return run.error;
  std::string reason = run.waits_for.empty() ? "" : "signal " + run.waits_for;
  if (run.due_us > steps::detail::now_us()) {
    reason += fmt::format("{}until {}", reason.empty() ? "" : ", ", time_text(run.due_us));
  }
  return reason;
}

std::string kind_of(const steps::Call& call) {
  constexpr std::array kNames = {"step", "effect", "sleep", "signal"};
  return kNames[static_cast<std::size_t>(call.kind) - 1];
}

// An effect without a result is under way in a run that is being executed, and has no known outcome in another.
std::string state_of(const steps::Call& call, bool is_running) {
  constexpr std::array kNames = {"began", "done", "raised", "timed out"};
  const bool is_unknown = !is_running && call.kind == steps::Kind::effect && call.state == steps::State::began;
  return is_unknown ? "unknown" : kNames[static_cast<std::size_t>(call.state) - 1];
}

}  // namespace

std::string line_of(const RunInfo& run, const std::string& status, std::size_t width) {
  std::string line =
      fmt::format("{:<{}}  {:<9}  {:>6}  {:<19}  {:<16}  {}", printable(run.id), width, status, run.position,
                  time_text(run.changed_us), printable(run.workflow), printable(reason_of(run)));
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string line_of(const steps::Call& call, std::size_t number, bool is_running) {
  return fmt::format("{:>5}  {:<6}  {:<9}  {}  {}{}{}", number, kind_of(call), state_of(call, is_running),
                     time_text(call.time_us), printable(call.name),
                     call.key.empty() ? "" : " with key " + printable(call.key),
                     call.state == steps::State::raised ? ": " + printable(call.payload) : "");
}

namespace {

using steps::Journal;

struct StepsArguments {
  std::string path;
  std::string id;
  std::string begin;
  std::string status;
  Format format = Format::text;
};

Failure failure_of(const Error& error) {
  const bool is_missing = error.category() == MEMLITH_NOT_FOUND;
  return tool_failure(error.category(), error.message(),
                      is_missing ? "`memlith steps list STORE` lists the runs." : "");
}

// The journal of a store, which is closed behind it.
struct OpenJournal {
  StoreHandle store;
  Journal journal;
  bool in_use = false;  // by another process, whose workers have leases
};

Result<OpenJournal> open_journal(const StepsArguments& arguments, bool for_change) {
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  memlith_store_options options{};
  options.struct_size = sizeof options;
  Result<StoreHandle> store = for_change ? open_store(*path, options) : open_store_to_look(*path);
  if (!store.ok()) return std::move(store.failure());
  Result<memlith_store_info> info = info_of(store->get());
  if (!info.ok()) return std::move(info.failure());
  auto journal = Journal::open(store->get(), false);
  if (!journal && journal.error().category() == MEMLITH_NOT_FOUND) {
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("{} has no durable runs", printable(arguments.path)),
                        "memlith.steps.run of Python and memlith::steps::Journal of C++ make some.");
  }
  if (!journal) return failure_of(journal.error());
  return OpenJournal{std::move(*store), std::move(*journal), info->follows != 0};
}

std::string status_of(const RunInfo& run, const OpenJournal& opened) {
  const bool is_leased = opened.in_use && run.lease_until_us > steps::detail::now_us();
  return is_leased && !steps::has_ended(run.status) ? "running" : steps::name_of(run.status);
}

Json json_of(const RunInfo& run, const OpenJournal& opened) {
  return {{"id", run.id},
          {"status", status_of(run, opened)},
          {"workflow", run.workflow},
          {"version", run.version},
          {"codec", run.codec},
          {"steps", run.position},
          {"failures", run.failures},
          {"created_us", run.created_us},
          {"changed_us", run.changed_us},
          {"due_us", run.due_us},
          {"waits_for", run.waits_for},
          {"error", run.error}};
}

MaybeFailure run_list(const StepsArguments& arguments) {
  Result<OpenJournal> opened = open_journal(arguments, false);
  if (!opened.ok()) return std::move(opened.failure());
  auto runs = opened->journal.runs(arguments.begin);
  if (!runs) return failure_of(runs.error());
  std::erase_if(*runs, [&](const RunInfo& run) {
    return !arguments.status.empty() && status_of(run, *opened) != arguments.status;
  });
  if (arguments.format == Format::json) {
    for (const RunInfo& run : *runs) write_json(json_of(run, *opened));
    return {};
  }
  std::size_t width = 4;
  for (const RunInfo& run : *runs) width = std::max(width, printable(run.id).size());
  write_line(fmt::format("{:<{}}  {:<9}  {:>6}  {:<19}  {:<16}  {}", "run", width, "status", "steps", "changed (UTC)",
                         "workflow", "waits for, or failed by"));
  for (const RunInfo& run : *runs) {
    if (output_failed()) break;
    write_line(line_of(run, status_of(run, *opened), width));
  }
  return {};
}

MaybeFailure run_show(const StepsArguments& arguments) {
  Result<OpenJournal> opened = open_journal(arguments, false);
  if (!opened.ok()) return std::move(opened.failure());
  auto run = opened->journal.info(arguments.id);
  if (!run) return failure_of(run.error());
  auto calls = opened->journal.calls(arguments.id);
  if (!calls) return failure_of(calls.error());
  const bool is_running = status_of(*run, *opened) == "running";
  if (arguments.format == Format::json) {
    Json all = json_of(*run, *opened);
    all["calls"] = Json::array();
    for (const steps::Call& call : *calls) {
      all["calls"].push_back({{"kind", kind_of(call)},
                              {"state", state_of(call, is_running)},
                              {"name", call.name},
                              {"version", call.version},
                              {"key", call.key},
                              {"time_us", call.time_us},
                              {"result_bytes", call.payload.size()}});
    }
    write_json(all);
    return {};
  }
  write_line(fmt::format("{}: {}, {} steps, begun {}, changed {} UTC", printable(run->id), status_of(*run, *opened),
                         run->position, time_text(run->created_us), time_text(run->changed_us)));
  if (!run->workflow.empty() || !run->version.empty()) {
    write_line(fmt::format("  workflow {} of version \"{}\"", printable(run->workflow), printable(run->version)));
  }
  if (const std::string reason = reason_of(*run); !reason.empty()) write_line("  " + printable(reason));
  for (std::size_t number = 0; number < calls->size() && !output_failed(); ++number) {
    write_line("  " + line_of((*calls)[number], number, is_running));
  }
  return {};
}

MaybeFailure change(const StepsArguments& arguments, memlith::Result<void> (Journal::*act)(std::string_view) const) {
  Result<OpenJournal> opened = open_journal(arguments, true);
  if (!opened.ok()) return std::move(opened.failure());
  if (auto done = (opened->journal.*act)(arguments.id); !done) return failure_of(done.error());
  auto run = opened->journal.info(arguments.id);
  if (!run) return failure_of(run.error());
  if (arguments.format == Format::json) {
    write_json(json_of(*run, *opened));
  } else {
    write_line(fmt::format("{}: {}", printable(run->id), steps::name_of(run->status)));
  }
  if (auto closed = opened->journal.close(); !closed) return failure_of(closed.error());
  return close_store(std::move(opened->store));
}
MaybeFailure run_retry(const StepsArguments& arguments) { return change(arguments, &Journal::retry); }
MaybeFailure run_cancel(const StepsArguments& arguments) { return change(arguments, &Journal::cancel); }

}  // namespace

void add_steps_commands(CLI::App& app, CommandLine& line) {
  CLI::App* const group = app.add_subcommand("steps", "Look at the durable runs of a store, and decide about them");
  group->require_subcommand(1);
  const auto arguments = std::make_shared<StepsArguments>();
  const auto add = [&](const char* name, const char* what, MaybeFailure (*function)(const StepsArguments&)) {
    CLI::App* const command = group->add_subcommand(name, what);
    command->add_option("STORE", arguments->path, "A store's folder")->required();
    add_command(command, line, arguments, function);
    return command;
  };
  CLI::App* const list = add("list", "List the runs, also of a store that a program has open", run_list);
  list->add_option("--begin", arguments->begin, "Only the runs whose names begin so");
  list->add_option("--status", arguments->status, "Only the runs of this status")
      ->check(CLI::IsMember({"ready", "running", "waiting", "done", "failed", "cancelled", "stopped"}));
  const char* const id_text = "The name of a run";
  add("show", "Show a run with its steps", run_show)->add_option("RUN", arguments->id, id_text)->required();
  add("retry",
      "Let a run go on that has failed, was stopped or was cancelled. An effect whose outcome is unknown is called "
      "again. No program may have the store open",
      run_retry)
      ->add_option("RUN", arguments->id, id_text)
      ->required();
  add("cancel", "End a run; its finished steps stay. No program may have the store open", run_cancel)
      ->add_option("RUN", arguments->id, id_text)
      ->required();
}

}  // namespace memlith::tool
