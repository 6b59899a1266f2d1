// memlith verify STORE: checks every structure on disk and changes nothing.
//
// Exit code 0: sound. 2: damaged. 3: of another format version, which says nothing about damage. 1: could not be
// examined.
#include <fmt/format.h>

#include <cstdio>

#include "cli/progress.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "leaks.hpp"
#include "memlith/copy.h"
#include "memlith/heap.h"
#include "sqlite/tool/sqlite_head.hpp"

namespace memlith::tool {

namespace {

Failure verify_failure(Failure failure) {
  const std::int32_t category = memlith_category(failure.code);
  if (category == MEMLITH_CORRUPT || category == MEMLITH_INCOMPATIBLE) failure.exit_code = kExitDamaged;
  if (is_other_version(failure.code)) failure.exit_code = kExitOtherVersion;
  return failure;
}

// The arguments of --pointers; null without it.
using Pointers = std::vector<std::string>;

// The argument of --data.
struct Data {
  memlith_data_report report{};
  std::vector<std::string> damaged;
  std::uint64_t completed = 0;

  [[nodiscard]] Json json() const {
    return {{"blocks", report.blocks},
            {"unknown", report.blocks_unknown},
            {"damaged", report.blocks_damaged},
            {"completed", completed},
            {"found", damaged}};
  }
};

MaybeFailure look_at_data(const VerifyArguments& arguments, Data& data) {
  if (arguments.complete) {
    const std::int32_t code = memlith_complete_checksums(arguments.path.c_str(), &data.completed);
    if (code != MEMLITH_OK) return verify_failure(library_failure(code, {}));
  }
  ProgressBar bar("reading");
  data.report.struct_size = sizeof data.report;
  const auto note = [](void* all, const char* sentence) {
    static_cast<std::vector<std::string>*>(all)->emplace_back(sentence);
  };
  const std::int32_t code =
      memlith_check_data(arguments.path.c_str(), note, &data.damaged, &ProgressBar::update, &bar, &data.report);
  if (code != MEMLITH_OK) return verify_failure(library_failure(code, {}));
  return {};
}

void print_data(const Data& data) {
  const memlith_data_report& report = data.report;
  if (data.completed > 0) write_line(fmt::format("  checksums are kept of {} more blocks from now on", data.completed));
  write_line(fmt::format("  data: {} blocks of 4 KiB read, {} of them damaged", report.blocks, report.blocks_damaged));
  for (const std::string& sentence : data.damaged) write_line("    " + printable(sentence));
  if (report.blocks_unknown > 0) {
    write_line(fmt::
                   format("  of {} blocks no checksum is known; `memlith verify --data --complete` keeps one of each "
                          "from now on",
                          report.blocks_unknown));
  }
}

// `pointers`, `leaks` and `data` are null where they were not asked for.
void print_json(const StorePath& path, const memlith_report& report, const Pointers* pointers, const Leaks* leaks,
                const Data* data) {
  Json all = {{"path", path.path},
              {"ok", data == nullptr || data->damaged.empty()},
              {"kind", name_of(path.kind)},
              {"clean", report.clean != 0},
              {"regions", report.regions},
              {"region_bytes", report.region_bytes},
              {"heaps", report.heaps},
              {"kvs", report.kvs},
              {"log_bytes", report.log_bytes},
              {"frames", report.frames},
              {"frame_bytes", report.frame_bytes},
              {"superblock_copies", report.superblock_copies},
              {"incarnation", report.incarnation}};
  if (pointers != nullptr) all["pointers"] = *pointers;
  if (leaks != nullptr) all["leaks"] = leaks->json();
  if (data != nullptr) all["data"] = data->json();
  write_json(all);
}

void print_text(const StorePath& path, const memlith_report& report, const Pointers* pointers, const Leaks* leaks,
                const Data* data) {
  const bool damaged = data != nullptr && !data->damaged.empty();
  write_line(fmt::format("{}: {}", printable(path.path), damaged ? "damaged" : "sound"));
  write_line(fmt::format("  {} region{}, {}", report.regions, report.regions == 1 ? "" : "s",
                         human_bytes(report.region_bytes)));
  if (report.kvs > 0) {
    write_line(fmt::format("  {} of them hold{} a kv store, which is sound", report.kvs, report.kvs == 1 ? "s" : ""));
  }
  if (report.heaps > 0) {
    write_line(fmt::format("  {} of them hold{} a heap, which is sound", report.heaps, report.heaps == 1 ? "s" : ""));
  }
  write_line(fmt::format("  log of {}: {} whole frames, {}", human_bytes(report.log_bytes), report.frames,
                         human_bytes(report.frame_bytes)));
  write_line(fmt::format("  openings for writing so far: {}; {}", report.incarnation,
                         report.clean != 0 ? "closed cleanly"
                                           : "not closed: the next opening for writing recovers it"));
  if (report.superblock_copies < 2) {
    write_line(
        "  one of the two superblock copies is damaged, as a crash can leave it; the next opening for writing repairs "
        "it");
  }
  if (data != nullptr) print_data(*data);
  if (leaks != nullptr) {
    print_leaks(*leaks, "to which nothing leads");
    if (leaks->heaps.empty()) write_line("  something leads to every block of its heaps");
  }
  if (pointers == nullptr) return;
  write_line(pointers->empty() ? "  no word looks like an address of a process"
                               : fmt::format("  {} words look like addresses of a process:", pointers->size()));
  for (const std::string& sentence : *pointers) write_line("    " + printable(sentence));
}

}  // namespace

MaybeFailure run_verify(const VerifyArguments& arguments) {
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  if (MaybeFailure failure = path->has_log ? check_sqlite_before_replay(*path) : check_log_not_missed(*path)) {
    return verify_failure(std::move(*failure));
  }
  Data data;
  if (arguments.data) {
    if (MaybeFailure failure = look_at_data(arguments, data)) return failure;
  }
  memlith_report report{};
  report.struct_size = sizeof report;
  const std::int32_t code = memlith_verify(arguments.path.c_str(), &report);
  if (code != MEMLITH_OK) {
    for (const std::string& sentence : data.damaged) std::fputs((printable(sentence) + "\n").c_str(), stderr);
    return verify_failure(library_failure(code, {}));
  }
  Pointers pointers;
  const auto note = [](void* all, const char* sentence) { static_cast<Pointers*>(all)->emplace_back(sentence); };
  if (arguments.pointers) {
    const std::int32_t looked = memlith_verify_pointers(arguments.path.c_str(), note, &pointers);
    if (looked != MEMLITH_OK) return verify_failure(library_failure(looked, {}));
  }
  Leaks leaks;
  if (arguments.leaks) {
    const std::int32_t looked = memlith_verify_leaks(arguments.path.c_str(), Leaks::note, &leaks);
    if (looked != MEMLITH_OK) return verify_failure(library_failure(looked, {}));
  }
  const Data* const shown_data = arguments.data ? &data : nullptr;
  const Pointers* const shown = arguments.pointers ? &pointers : nullptr;
  const Leaks* const shown_leaks = arguments.leaks ? &leaks : nullptr;
  if (arguments.format == Format::json) {
    print_json(*path, report, shown, shown_leaks, shown_data);
  } else {
    print_text(*path, report, shown, shown_leaks, shown_data);
  }
  if (!data.damaged.empty()) {
    return Failure{
        "data", 0,
        fmt::format("{}: {} blocks are not as they were written", printable(path->path), data.report.blocks_damaged),
        "the disk, or another program, has changed them: restore them from a copy or an archive", kExitDamaged};
  }
  if (pointers.empty()) return {};
  return Failure{"pointers", 0,
                 fmt::format("{}: {} words look like addresses of a process", printable(path->path), pointers.size()),
                 "set MEMLITH_CHECK_POINTERS=1 for the program that stores them", kExitDamaged};
}

}  // namespace memlith::tool
