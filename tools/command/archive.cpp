// memlith archive STORE TARGET, archive list TARGET, archive --follow TARGET DEST, restore TARGET DEST, promote STORE.
//
// Archiving runs until it is interrupted, beside the process that writes. A target that fails is tried again; what was
// lost for it shows as a gap, and is told.
#include "archive.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "commands.hpp"
#include "memlith/archive.h"

namespace memlith::tool {

namespace {

constexpr std::chrono::milliseconds kLookEvery{100};
constexpr std::chrono::milliseconds kFollowEvery{1000};
constexpr int kLooksAfterFailure = 20;
constexpr std::uint64_t kShortNs = 2'000'000'000;  // that an archive may lag behind

memlith_archive_target target_of(const ArchiveArguments& arguments, const std::string& folder) {
  const auto command = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  return {sizeof(memlith_archive_target), folder.empty() ? nullptr : folder.c_str(), command(arguments.put_command),
          command(arguments.get_command), command(arguments.remove_command)};
}

bool has_commands(const ArchiveArguments& arguments) {
  return !arguments.put_command.empty() || !arguments.get_command.empty();
}

// With commands there is no TARGET, and what follows moves up.
MaybeFailure assign_words(ArchiveArguments& arguments, bool target_first) {
  const bool commands = has_commands(arguments);
  if (commands && target_first && arguments.to.empty()) std::swap(arguments.from, arguments.to);
  std::string& target = target_first ? arguments.from : arguments.to;
  if (commands == target.empty()) return {};
  return tool_failure(MEMLITH_INVALID, commands ? "there is a TARGET, and there are commands" : "TARGET is missing",
                      "Say where the archive is: a folder, or --command and --get-command.");
}

std::string time_text(std::uint64_t ns) {
  if (ns == 0) return "-";
  const std::time_t seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(seconds));
}

void warn(const std::string& text) { std::fputs(("memlith: " + text + "\n").c_str(), stderr); }

// ---- archiving -------------------------------------------------------------------------------------------------

struct ArchiveCloser {
  void operator()(memlith_archive* archive) const { (void)memlith_archive_close(archive); }
};
using ArchiveHandle = std::unique_ptr<memlith_archive, ArchiveCloser>;

void wait(std::chrono::milliseconds time, int times) {
  for (int i = 0; i < times && !interrupted(); ++i) std::this_thread::sleep_for(time);
}

bool can_pass(std::int32_t code) {
  const std::int32_t category = memlith_category(code);
  return category == MEMLITH_IO || category == MEMLITH_NO_SPACE || category == MEMLITH_NO_MEMORY ||
         category == MEMLITH_TOO_MANY_FILES;
}

// Tells of a failure once, until it has passed.
class Complaints {
 public:
  void note(std::int32_t code) {
    if (code == MEMLITH_OK) {
      if (!told_.empty()) warn("archiving goes on");
      told_.clear();
      return;
    }
    const std::string text = library_failure(code, {}).message;
    if (text != told_) warn(text + "; trying again");
    told_ = text;
  }

 private:
  std::string told_;
};

// Tells what has happened to an archive that goes on.
class Events {
 public:
  void note(const memlith_archive_progress& now) {
    if (now.gaps > before_.gaps) {
      warn(
          "the store's log was reused before it was archived, or the store was changed while it was closed; a new full "
          "copy was made, and the states in between cannot be restored");
    }
    if (now.refused_copies > before_.refused_copies) warn(library_failure(MEMLITH_CORRUPT, {}).message);
    if (now.log_is_full > before_.log_is_full) {
      warn(fmt::
               format("{} of the store's log are not archived yet, the limit of --keep; the program that writes goes "
                      "on, and what it overwrites from now on is missing in the archive",
                      human_bytes(now.durable_lsn - now.archived_lsn)));
    }
    before_ = now;
  }

 private:
  memlith_archive_progress before_{};
};

// Tells when a file has no log, so that there is nothing to archive.
class Absence {
 public:
  explicit Absence(std::string file) : file_(std::move(file)) {}
  void look() {
    std::error_code error;
    if (std::filesystem::is_directory(file_, error) || !std::filesystem::exists(file_, error)) return;
    const bool has_log = std::filesystem::exists(file_ + ".memlith", error);
    const bool is_shared = std::filesystem::exists(file_ + "-memlith", error);
    if (is_shared && !told_shared_) {
      warn(printable(file_) +
           " is in mode shared now: what is committed there is in SQLite's own WAL, and is not archived until a "
           "process has the database open with share=0");
    } else if (!has_log && !told_) {
      warn(printable(file_) + ": no program has it open with memlith; waiting for one");
    }
    told_ = !has_log;
    told_shared_ = is_shared;
  }

 private:
  std::string file_;
  bool told_ = false;
  bool told_shared_ = false;
};

void print_end(const ArchiveArguments& arguments, const memlith_archive_progress& progress) {
  if (arguments.format == Format::json) {
    write_json({{"archived_lsn", progress.archived_lsn},
                {"durable_lsn", progress.durable_lsn},
                {"segments", progress.segments},
                {"full_copies", progress.full_copies},
                {"gaps", progress.gaps}});
    return;
  }
  write_line(fmt::format("{}: archived up to LSN {}; {} segments, {} full copies, {} gaps", printable(arguments.from),
                         progress.archived_lsn, progress.segments, progress.full_copies, progress.gaps));
}

MaybeFailure archive(const ArchiveArguments& arguments) {
  const memlith_archive_target target = target_of(arguments, arguments.to);
  memlith_archive_options options{};
  options.struct_size = sizeof options;
  options.flags = (arguments.is_new ? MEMLITH_ARCHIVE_NEW : 0) | (arguments.damaged ? MEMLITH_ARCHIVE_DAMAGED : 0);
  options.wait_ms = std::max<std::uint64_t>(1, arguments.wait_ms);
  options.full_every_s = arguments.full_every_s == 0 ? MEMLITH_ARCHIVE_NEVER : arguments.full_every_s;
  options.keep_s = arguments.keep_s == 0 ? MEMLITH_ARCHIVE_NEVER : arguments.keep_s;
  options.keep_log_bytes = arguments.keep_log_bytes;
  memlith_archive* opened = nullptr;
  if (const auto code = memlith_archive_open(arguments.from.c_str(), &target, &options, &opened); code != MEMLITH_OK) {
    Failure failure = library_failure(code, {});
    if (memlith_category(code) == MEMLITH_UNSUPPORTED) failure.advice.clear();  // the sentence says what to do
    return failure;
  }
  ArchiveHandle handle(opened);
  Complaints complaints;
  memlith_archive_progress progress{};
  progress.struct_size = sizeof progress;
  Events events;
  Absence absence(arguments.from);
  while (!arguments.once && !interrupted()) {
    const std::int32_t code = memlith_archive_step(handle.get(), &progress);
    if (code != MEMLITH_OK && !can_pass(code)) return library_failure(code, {});
    complaints.note(code);
    events.note(progress);
    absence.look();
    wait(kLookEvery, code == MEMLITH_OK ? 1 : kLooksAfterFailure);
  }
  const std::int32_t code = memlith_archive_flush(handle.get(), &progress);
  if (code != MEMLITH_OK) return library_failure(code, {});
  events.note(progress);
  print_end(arguments, progress);
  return {};
}

// ---- a standby -------------------------------------------------------------------------------------------------

struct StandbyCloser {
  void operator()(memlith_standby* standby) const { (void)memlith_standby_close(standby); }
};

MaybeFailure follow(const ArchiveArguments& arguments) {
  const memlith_archive_target target = target_of(arguments, arguments.from);
  memlith_standby* opened = nullptr;
  if (const auto code = memlith_standby_open(&target, arguments.to.c_str(), &opened); code != MEMLITH_OK) {
    return library_failure(code, {});
  }
  const std::unique_ptr<memlith_standby, StandbyCloser> handle(opened);
  Complaints complaints;
  std::uint64_t lsn = 0;
  do {
    const std::int32_t code = memlith_standby_step(handle.get(), &lsn);
    if (code != MEMLITH_OK && (!can_pass(code) || arguments.once)) return library_failure(code, {});
    complaints.note(code);
    if (arguments.once) break;
    wait(kFollowEvery, 1);
  } while (!interrupted());
  if (arguments.format == Format::json) {
    write_json({{"lsn", lsn}});
  } else {
    write_line(fmt::format("{}: a standby, up to LSN {}", printable(arguments.to), lsn));
  }
  return {};
}

MaybeFailure run_archive(const ArchiveArguments& given) {
  ArchiveArguments arguments = given;
  if (MaybeFailure failure = assign_words(arguments, arguments.follow)) return failure;
  if (arguments.from.empty() && !arguments.follow) return tool_failure(MEMLITH_INVALID, "STORE is missing");
  if (arguments.to.empty() && arguments.follow) return tool_failure(MEMLITH_INVALID, "DEST is missing");
  catch_interrupts();
  return arguments.follow ? follow(arguments) : archive(arguments);
}

// ---- list ------------------------------------------------------------------------------------------------------

MaybeFailure run_list(const ArchiveArguments& given) {
  ArchiveArguments arguments = given;
  if (MaybeFailure failure = assign_words(arguments, true)) return failure;
  const memlith_archive_target target = target_of(arguments, arguments.from);
  std::vector<memlith_archive_run> runs;
  std::vector<std::string> whys;
  struct Found {
    std::vector<memlith_archive_run>& runs;
    std::vector<std::string>& whys;
  } found{runs, whys};
  const auto note = [](void* context, const memlith_archive_run* run) {
    auto& all = *static_cast<Found*>(context);
    all.runs.push_back(*run);
    all.whys.emplace_back(run->why);
  };
  if (const auto code = memlith_archive_list(&target, note, &found); code != MEMLITH_OK) {
    return library_failure(code, {});
  }
  if (arguments.format == Format::text) {
    write_line(
        "run  began for  restorable from (LSN, time)          to (LSN, time)                   copies  segments");
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const memlith_archive_run& run = runs[i];
    if (arguments.format == Format::json) {
      write_json({{"run", run.number},
                  {"why", whys[i]},
                  {"begin_lsn", run.begin_lsn},
                  {"end_lsn", run.end_lsn},
                  {"begin_ns", run.begin_ns},
                  {"end_ns", run.end_ns},
                  {"segments", run.segments},
                  {"segment_bytes", run.segment_bytes},
                  {"full_copies", run.full_copies},
                  {"full_bytes", run.full_bytes}});
      continue;
    }
    if (whys[i] == "gap" && i > 0) {
      write_line(fmt::format("     -- gap: nothing between LSN {} and LSN {} can be restored --", runs[i - 1].end_lsn,
                             run.begin_lsn));
    }
    write_line(fmt::format("{:<4} {:<10} {:>12}  {:<20}  {:>12}  {:<20}  {} ({})  {} ({})", run.number, whys[i],
                           run.begin_lsn, time_text(run.begin_ns), run.end_lsn, time_text(run.end_ns), run.full_copies,
                           human_bytes(run.full_bytes), run.segments, human_bytes(run.segment_bytes)));
  }
  return {};
}

// ---- restore ---------------------------------------------------------------------------------------------------

// A time as `archive list` prints it, local time; with a Z behind it, UTC.
std::optional<std::uint64_t> parse_time(std::string text) {
  const bool utc = text.ends_with('Z');
  if (utc) text.pop_back();
  std::replace(text.begin(), text.end(), 'T', ' ');
  std::tm parts{};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  parts.tm_isdst = -1;
  const std::time_t seconds = utc ? ::timegm(&parts) : std::mktime(&parts);
  std::uint64_t ns = 0;
  if (*rest == '.') {
    std::uint64_t unit = 100'000'000;
    const char* digit = rest + 1;
    for (; *digit >= '0' && *digit <= '9'; ++digit, unit /= 10) ns += static_cast<std::uint64_t>(*digit - '0') * unit;
    if (*digit != 0) return std::nullopt;
  } else if (*rest != 0) {
    return std::nullopt;
  }
  if (seconds < 0) return std::nullopt;
  return static_cast<std::uint64_t>(seconds) * 1'000'000'000 + ns;
}

MaybeFailure parse_moment(const std::string& at, memlith_restore_options& options) {
  if (at == "latest") return {};
  const auto number = [](std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
  };
  const std::size_t colon = at.find(':');
  const bool has_run = colon != std::string::npos && number(at.substr(0, colon), options.run);
  if (number(has_run ? at.substr(colon + 1) : at, options.value)) {
    options.at = MEMLITH_AT_LSN;
    return {};
  }
  options.run = 0;
  const std::optional<std::uint64_t> ns = parse_time(at);
  if (!ns.has_value()) {
    return tool_failure(MEMLITH_INVALID, fmt::format("--at does not take {}", at),
                        "Say latest, an LSN, the number of a run and an LSN of it (2:81920), or a time such as "
                        "'2026-11-25 10:00:00' (with Z behind it: UTC).");
  }
  options.at = MEMLITH_AT_TIME;
  options.value = *ns;
  return {};
}

MaybeFailure run_restore(const ArchiveArguments& given) {
  ArchiveArguments arguments = given;
  if (MaybeFailure failure = assign_words(arguments, true)) return failure;
  if (arguments.to.empty() && !arguments.dry_run) return tool_failure(MEMLITH_INVALID, "DEST is missing");
  memlith_restore_options options{};
  options.struct_size = sizeof options;
  if (MaybeFailure failure = parse_moment(arguments.at, options)) return failure;
  if (arguments.dry_run) options.flags |= MEMLITH_RESTORE_DRY;
  if (arguments.as_far_as_possible) options.flags |= MEMLITH_RESTORE_AS_FAR_AS_CAN;
  const memlith_archive_target target = target_of(arguments, arguments.from);
  memlith_restored restored{};
  restored.struct_size = sizeof restored;
  const std::uint64_t begin = now_ns();
  if (const auto code = memlith_restore(&target, arguments.to.c_str(), &options, &restored); code != MEMLITH_OK) {
    return library_failure(code, {});
  }
  if (restored.cut_short != 0)
    warn(library_failure(MEMLITH_CORRUPT, {}).message + "; the state before that was restored");
  if (restored.clock_went_back != 0) {
    warn(
        "a clock was set back: several states are of that time, and this is the last of them; --at LSN chooses "
        "another");
  }
  if (restored.short_ns > kShortNs) {
    warn(fmt::format(
        "the archive ends {:.0f} s before that time; what the store had then is in it only if nothing was committed "
        "meanwhile",
        static_cast<double>(restored.short_ns) / 1e9));
  }
  if (arguments.format == Format::json) {
    write_json({{"lsn", restored.lsn},
                {"segments", restored.segments},
                {"cut_short", restored.cut_short != 0},
                {"short_ns", restored.short_ns},
                {"dry_run", arguments.dry_run},
                {"seconds", seconds_of(now_ns() - begin)}});
    return {};
  }
  const std::string what = arguments.dry_run ? "can be restored" : printable(arguments.to) + ": restored";
  write_line(fmt::format("{}, as of LSN {}; {} segments, {:.3f} s", what, restored.lsn, restored.segments,
                         seconds_of(now_ns() - begin)));
  return {};
}

MaybeFailure run_promote(const StoreArguments& arguments) {
  if (const auto code = memlith_promote(arguments.path.c_str()); code != MEMLITH_OK) return library_failure(code, {});
  if (arguments.format == Format::json) {
    write_json({{"path", arguments.path}, {"promoted", true}});
  } else {
    write_line(fmt::format("{}: a store of its own now", printable(arguments.path)));
  }
  return {};
}

// ---- what may be typed -----------------------------------------------------------------------------------------

void add_target_commands(CLI::App* command, ArchiveArguments& arguments, bool writes) {
  if (writes) {
    command->add_option("--command", arguments.put_command,
                        "Instead of TARGET: a command of the shell that stores its input as the object %n, such as "
                        "'rclone rcat remote:%n'");
    command->add_option("--remove-command", arguments.remove_command, "One that removes the object %n");
  }
  command->add_option("--get-command", arguments.get_command,
                      "Instead of TARGET: a command of the shell that writes the object %n to its output, such as "
                      "'rclone cat remote:%n'");
}

}  // namespace

void add_archive_commands(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<ArchiveArguments>();
  CLI::App* const archive =
      app.add_subcommand("archive",
                         "Archive a store continuously, beside the process that writes to it, until interrupted: "
                         "archive STORE TARGET. Or keep a standby up to date: archive --follow TARGET DEST. Or "
                         "`archive list TARGET`");
  archive->add_option("STORE", arguments->from, "The store; with --follow the archive");
  archive->add_option("TARGET", arguments->to, "The folder of the archive, made if missing; with --follow the standby");
  add_target_commands(archive, *arguments, true);
  archive->add_flag("--new", arguments->is_new, "With commands: there is no archive yet; begin one");
  archive->add_flag("--damaged", arguments->damaged,
                    "Make full copies also of data that is not as it was written (memlith verify --data)");
  archive->add_flag("--follow", arguments->follow,
                    "Keep restoring to DEST, a folder, which can be opened read-only and followed meanwhile");
  archive->add_flag("--once", arguments->once, "Archive what there is, and end");
  add_number(archive, "--wait-ms", arguments->wait_ms, 1, 86'400'000,
             "How many milliseconds commits wait for others to share their segment");
  add_number(archive, "--full-every", arguments->full_every_s, 0, 1ull << 32,
             "Seconds between full copies; 0: only where they are needed");
  add_number(archive, "--keep-for", arguments->keep_s, 0, 1ull << 32,
             "States of the last so many seconds stay restorable; 0: all");
  archive
      ->add_option("--keep", arguments->keep_log_bytes,
                   "Let the store's log wait for the archive, and grow, up to this size: 512M, 2G. Default: the log "
                   "does not wait")
      ->transform(CLI::AsSizeValue(false));
  CLI::App* const list = archive->add_subcommand("list", "Show what an archive holds: copies, times, sizes, gaps");
  const auto list_arguments = std::make_shared<ArchiveArguments>();
  list->add_option("TARGET", list_arguments->from, "The folder of the archive");
  add_target_commands(list, *list_arguments, false);
  add_command(list, line, list_arguments, run_list);
  add_json(archive, line);
  // CLI11 calls it after that of `list`, too.
  archive->callback([&line, arguments, list] {
    if (list->parsed()) return;
    line.run = [&line, arguments] {
      arguments->format = line.format;
      return run_archive(*arguments);
    };
  });

  const auto restore_arguments = std::make_shared<ArchiveArguments>();
  CLI::App* const restore = app.add_subcommand("restore", "Restore a store from an archive, as of any archived commit");
  restore->add_option("TARGET", restore_arguments->from, "The folder of the archive");
  restore->add_option("DEST", restore_arguments->to, "Where the store is to appear; must not exist");
  add_target_commands(restore, *restore_arguments, false);
  restore
      ->add_option("--at", restore_arguments->at,
                   "latest, an LSN, RUN:LSN, or a time: '2026-11-25 10:00:00', UTC with a Z")
      ->capture_default_str();
  restore->add_flag("--dry-run", restore_arguments->dry_run, "Read and check what is needed, and make nothing");
  restore->add_flag("--as-far-as-possible", restore_arguments->as_far_as_possible,
                    "Where a segment is missing or damaged, restore the last complete state before it");
  add_command(restore, line, restore_arguments, run_restore);

  const auto promote_arguments = std::make_shared<StoreArguments>();
  CLI::App* const promote = app.add_subcommand("promote", "Make a standby a store that can be written");
  promote->add_option("STORE", promote_arguments->path, "The standby's folder, or its file")->required();
  add_command(promote, line, promote_arguments, run_promote);
}

}  // namespace memlith::tool
