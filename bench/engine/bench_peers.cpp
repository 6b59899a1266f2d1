// memlith bench persist --peers: 4 KiB to 4 MiB of dirty pages, random ones or one behind the other, made durable in
// every way there is, side by side.
//
// Each turn does one round of every side: memlith with each tracker, pwrite + fsync on each file system, msync, raw.
// The stores to the pages count everywhere, since a pwrite copies them too. All sides are durable; only memlith is
// atomic. Before there is a store, the peers alone take turns in the same way: memlith's checkpoints, which run in the
// background, slow whatever runs beside them, and the figures of the common turns alone would flatter memlith.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <span>

#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "kit/measure.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "peers/peers.hpp"
#include "region_rounds.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kAloneTurnsMax = 300;

struct Ours {
  std::string tracker;
  StoreHandle store;
  std::unique_ptr<RegionRounds> rounds;
  std::string detail;
  memlith_store_info before{};
};

struct Peer {
  std::string name;
  FileSystem file_system;
  std::function<MaybeFailure(std::uint64_t pages, std::uint64_t& elapsed_ns)> round;
};

struct Row {
  std::string name;
  std::string file_system;
  bool atomic = false;
  std::uint64_t pages = 0;
  std::uint64_t rounds = 0;
  Percentiles latency;
  Percentiles alone;  // peers only
  double over_raw = 0;
  double over_raw_alone = 0;
  std::string detail;
  memlith_store_info before{};
  memlith_store_info after{};
};

TurnLimits turns_of(const BenchPersistArguments& arguments) {
  if (arguments.rounds > 0) return {arguments.rounds, 0};
  return {kTurnsMin, static_cast<std::uint64_t>(arguments.seconds * static_cast<double>(kNsPerSecond))};
}

class Comparison {
 public:
  explicit Comparison(const BenchPersistArguments& arguments) : arguments_(arguments) {}

  MaybeFailure run() {
    if (MaybeFailure failure = open_record()) return failure;
    if (MaybeFailure failure = make_peers()) return failure;
    for (const std::uint64_t pages : arguments_.pages) {
      if (MaybeFailure failure = measure_peers_alone(pages)) return failure;
    }
    for (const std::string& tracker : arguments_.trackers) {
      if (MaybeFailure failure = make_store(tracker)) return failure;
    }
    if (arguments_.format == Format::text) write_heading();
    for (const std::uint64_t pages : arguments_.pages) {
      if (MaybeFailure failure = measure_size(pages)) return failure;
    }
    for (Ours& ours : ours_) {
      if (MaybeFailure failure = close_store(std::move(ours.store))) return failure;
    }
    record_.flush();
    if (arguments_.record.empty() || record_) return {};
    return tool_failure(MEMLITH_IO, fmt::format("{} did not take everything", arguments_.record));
  }

 private:
  // ---- what is compared ----

  MaybeFailure open_record() {
    if (arguments_.record.empty()) return {};
    record_.open(arguments_.record, std::ios::trunc);
    if (record_) return {};
    return errno_failure(errno, fmt::format("cannot write {}", arguments_.record));
  }

  Result<const ScratchFolder*> scratch_in(const std::string& folder, std::uint64_t bytes) {
    Result<ScratchFolder> made = ScratchFolder::make(folder);
    if (!made.ok()) return std::move(made.failure());
    scratches_.push_back(std::make_unique<ScratchFolder>(std::move(*made)));
    if (MaybeFailure failure = require_space(scratches_.back()->path(), bytes)) return *failure;
    return scratches_.back().get();
  }

  MaybeFailure add_file(const std::string& name, const std::string& folder, const ScratchFolder& scratch) {
    Result<FileSystem> file_system = file_system_of(folder);
    if (!file_system.ok()) return std::move(file_system.failure());
    Result<PeerFile> made = PeerFile::create(scratch.path_of(name), region_bytes(), order());
    if (!made.ok()) return std::move(made.failure());
    const auto file = std::make_shared<PeerFile>(std::move(*made));
    Peer peer{name, *file_system, {}};
    if (name == "msync") {
      peer.round = [file, bytes = arguments_.bytes_per_page](std::uint64_t pages, std::uint64_t& ns) {
        return file->msync_round(pages, bytes, ns);
      };
    } else {
      peer.round = [file](std::uint64_t pages, std::uint64_t& ns) { return file->pwrite_round(pages, ns); };
    }
    peers_.push_back(std::move(peer));
    return {};
  }

  MaybeFailure make_peers() {
    const std::uint64_t raw_bytes_max = pages_max() * kPageBytes;
    const std::uint64_t raw_file_bytes = std::max(kRawFileBytes, 5 * raw_bytes_max);
    const std::uint64_t store_bytes = region_bytes() + kStoreSlackBytes + arguments_.log_mib * kMiB;
    Result<const ScratchFolder*> scratch =
        scratch_in(arguments_.folder, 2 * region_bytes() + raw_file_bytes + arguments_.trackers.size() * store_bytes);
    if (!scratch.ok()) return std::move(scratch.failure());
    if (MaybeFailure failure = add_file("pwrite+fsync", arguments_.folder, **scratch)) return failure;
    for (const std::string& folder : arguments_.fsync_folders) {
      Result<const ScratchFolder*> further = scratch_in(folder, region_bytes());
      if (!further.ok()) return std::move(further.failure());
      if (MaybeFailure failure = add_file("pwrite+fsync", folder, **further)) return failure;
    }
    if (MaybeFailure failure = add_file("msync", arguments_.folder, **scratch)) return failure;

    Result<RawWriter> raw = RawWriter::create((*scratch)->path_of("raw"), kRawFileBytes, raw_bytes_max);
    if (!raw.ok()) return std::move(raw.failure());
    raw_direct_ = raw->file().direct();
    const auto writer = std::make_shared<RawWriter>(std::move(*raw));
    Peer peer{"raw", peers_.front().file_system, {}};
    peer.round = [writer](std::uint64_t pages, std::uint64_t& ns) {
      if (writer->round_bytes() != pages * kPageBytes) writer->set_round_bytes(pages * kPageBytes);
      return writer->round(ns);
    };
    peers_.push_back(std::move(peer));
    return {};
  }

  MaybeFailure make_store(const std::string& tracker) {
    const ScratchFolder& scratch = *scratches_.front();
    Result<StoreHandle> store = make_bench_store(scratch.path_of("store-" + tracker), arguments_.log_mib);
    if (!store.ok()) return std::move(store.failure());
    Ours ours;
    ours.tracker = tracker;
    RoundShape shape;
    shape.tracker = tracker_of(tracker);
    Result<memlith_region*> region = make_bench_region(store->get(), 0, arguments_.region_mib, shape, ours.detail);
    if (!region.ok()) return std::move(region.failure());
    ours.store = std::move(*store);
    ours.rounds =
        std::make_unique<RegionRounds>(*region, shape.tracker, MEMLITH_SCOPE_PROCESS,
                                       PageStores(static_cast<std::byte*>(memlith_region_address(*region)),
                                                  region_bytes() / kPageBytes, arguments_.bytes_per_page, order()));
    ours_.push_back(std::move(ours));
    return {};
  }

  // ---- measuring ----

  std::vector<Side> peer_sides(std::uint64_t pages) const {
    std::vector<Side> sides;
    for (const Peer& peer : peers_) {
      Side side;
      side.round = [&peer, pages](std::size_t, std::uint64_t& ns) { return peer.round(pages, ns); };
      sides.push_back(std::move(side));
    }
    return sides;
  }

  static MaybeFailure warm_up(std::span<Side> sides) {
    if (MaybeFailure failure = measure_in_turns(sides, {kWarmUpTurns, 0})) return failure;
    for (Side& side : sides) side.clear();
    return {};
  }

  MaybeFailure measure_peers_alone(std::uint64_t pages) {
    std::vector<Side> sides = peer_sides(pages);
    if (MaybeFailure failure = warm_up(sides)) return failure;
    const std::uint64_t turns = std::min(turns_of(arguments_).rounds_min, kAloneTurnsMax);
    if (MaybeFailure failure = measure_in_turns(sides, {turns, 0})) return failure;
    std::vector<Percentiles> alone;
    for (const Side& side : sides) alone.push_back(percentiles_of(side.samples_ns));
    alone_.push_back(std::move(alone));
    return {};
  }

  MaybeFailure measure_size(std::uint64_t pages) {
    std::vector<Side> sides;
    for (Ours& ours : ours_) {
      Side side;
      side.round = [&ours, pages](std::size_t, std::uint64_t& ns) { return ours.rounds->round(pages, ns); };
      sides.push_back(std::move(side));
    }
    for (Side& side : peer_sides(pages)) sides.push_back(std::move(side));
    if (MaybeFailure failure = warm_up(sides)) return failure;
    std::vector<memlith_store_info> before;
    for (Ours& ours : ours_) {
      // The checkpoint of the last size must not run beside this one.
      const std::int32_t code = memlith_store_checkpoint(ours.store.get());
      if (code != MEMLITH_OK) return library_failure(code, "checkpointing between two sizes");
      Result<memlith_store_info> info = info_of(ours.store.get());
      if (!info.ok()) return std::move(info.failure());
      ours.before = *info;
    }
    if (MaybeFailure failure = measure_in_turns(sides, turns_of(arguments_))) return failure;
    return write_size(pages, sides);
  }

  // ---- printing ----

  MaybeFailure write_size(std::uint64_t pages, std::span<const Side> sides) {
    const std::vector<Percentiles>& alone = alone_[size_index_++];
    const double raw_us = percentiles_of(sides.back().samples_ns).p50_us;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Row row;
      if (i < ours_.size()) {
        row.name = ours_[i].tracker;
        row.atomic = true;
        row.detail = ours_[i].detail;
        row.file_system = peers_.front().file_system.name;
        row.before = ours_[i].before;
        Result<memlith_store_info> info = info_of(ours_[i].store.get());
        if (!info.ok()) return std::move(info.failure());
        row.after = *info;
      } else {
        row.name = peers_[i - ours_.size()].name;
        row.file_system = peers_[i - ours_.size()].file_system.name;
        row.detail = peers_[i - ours_.size()].file_system.note;
        row.alone = alone[i - ours_.size()];
      }
      row.pages = pages;
      row.rounds = sides[i].samples_ns.size();
      row.latency = percentiles_of(sides[i].samples_ns);
      row.over_raw = ratio_of(row.latency.p50_us, raw_us);
      row.over_raw_alone = ratio_of(i < ours_.size() ? row.latency.p50_us : row.alone.p50_us, alone.back().p50_us);
      write(row);
    }
    return {};
  }

  void write_heading() const {
    write_line(fmt::format("memlith {}, kernel {}, folder {} ({}), {}", memlith_version(), kernel_release(),
                           printable(arguments_.folder), peers_.front().file_system.name, utc_now()));
    write_line(fmt::format("{} bytes in each page, {} of {} MiB, stores included, one round of each side in turn",
                           arguments_.bytes_per_page, arguments_.sequential ? "one behind the other" : "random ones",
                           arguments_.region_mib));
    for (const Ours& ours : ours_) write_line(fmt::format("# {}: memlith_persist(); {}", ours.tracker, ours.detail));
    write_line(fmt::format("# pwrite+fsync: {}, then one fsync, on a preallocated, written file",
                           arguments_.sequential ? "one pwritev for all pages"
                                                 : "a pwrite of 4096 bytes for each page"));
    write_line("# msync: stores to a shared mapping of such a file, then one msync(MS_SYNC) of the whole mapping");
    write_line(
        fmt::format("# raw: one write of as many bytes in one piece + fdatasync{}; the pages are not in their places",
                    raw_direct_ ? ", O_DIRECT" : ", through the page cache (no direct I/O in this folder)"));
    bool xfs = false;
    for (const Peer& peer : peers_) {
      xfs = xfs || peer.file_system.name == "xfs";
      if (!peer.file_system.note.empty()) write_line("# " + peer.file_system.note);
    }
    if (!xfs)
      write_line("# no XFS: ./dev mounts one if it runs as root and finds mkfs.xfs, or name a folder with --fsync-dir");
    write_line("# durable: survives power loss once it has returned; atomic: after a crash all of the pages or none");
    write_line(
        "# alone: without memlith's checkpoints beside it; p50/alone: over raw alone, a peer's also of its own alone");
    write_line(fmt::format("{:<13} {:<6} {:>8} {:>7} {:>7} {:>9} {:>10} {:>10} {:>9} {:>7} {:>9} {:>7}", "side", "on",
                           "KiB", "durable", "atomic", "p50 us", "p99 us", "p999 us", "alone p50", "p50/raw",
                           "p50/alone", "rounds"));
  }

  void write(const Row& row) {
    const bool peer = !row.atomic;
    const Json json = {{"bench", "peers"},
                       {"side", row.name},
                       {"file_system", row.file_system},
                       {"durable", true},
                       {"atomic", row.atomic},
                       {"kib", row.pages * kPageBytes / kKiB},
                       {"pages", row.pages},
                       {"bytes_per_page", arguments_.bytes_per_page},
                       {"order", arguments_.sequential ? "sequential" : "random"},
                       {"region_mib", arguments_.region_mib},
                       {"rounds", row.rounds},
                       {"p50_us", rounded(row.latency.p50_us)},
                       {"p99_us", rounded(row.latency.p99_us)},
                       {"p999_us", rounded(row.latency.p999_us)},
                       {"alone_p50_us", peer ? Json(rounded(row.alone.p50_us)) : Json(nullptr)},
                       {"ratio_p50", rounded(row.over_raw)},
                       {"ratio_alone_p50", rounded(row.over_raw_alone)},
                       {"checkpoints", row.after.checkpoints - row.before.checkpoints},
                       {"home_bytes", row.after.home_bytes - row.before.home_bytes},
                       {"bytes_logged", row.after.logged_bytes - row.before.logged_bytes},
                       {"detail", row.detail},
                       {"kernel", kernel_release()},
                       {"time", utc_now()},
                       {"version", memlith_version()}};
    if (!arguments_.record.empty()) record_ << json.dump() << '\n';
    if (arguments_.format == Format::json) return write_json(json);
    const auto us = [](double value) { return fmt::format("{:.1f}", value); };
    write_line(fmt::format("{:<13} {:<6} {:>8} {:>7} {:>7} {:>9} {:>10} {:>10} {:>9} {:>7.2f} {:>9.2f} {:>7}", row.name,
                           row.file_system, row.pages * kPageBytes / kKiB, "yes", row.atomic ? "yes" : "no",
                           us(row.latency.p50_us), us(row.latency.p99_us), us(row.latency.p999_us),
                           peer ? us(row.alone.p50_us) : "-", row.over_raw, row.over_raw_alone, row.rounds));
  }

  [[nodiscard]] PageOrder order() const { return arguments_.sequential ? PageOrder::sequential : PageOrder::random; }
  [[nodiscard]] std::uint64_t region_bytes() const { return arguments_.region_mib * kMiB; }
  [[nodiscard]] std::uint64_t pages_max() const {
    return *std::max_element(arguments_.pages.begin(), arguments_.pages.end());
  }

  const BenchPersistArguments& arguments_;
  std::vector<std::unique_ptr<ScratchFolder>> scratches_;  // go last: what lies in them is closed by then
  std::vector<Peer> peers_;                                // raw is the last
  std::vector<Ours> ours_;
  std::vector<std::vector<Percentiles>> alone_;  // by size, by peer
  std::size_t size_index_ = 0;
  std::ofstream record_;
  bool raw_direct_ = false;
};

}  // namespace

MaybeFailure run_bench_peers(const BenchPersistArguments& arguments) { return Comparison(arguments).run(); }

}  // namespace memlith::tool
