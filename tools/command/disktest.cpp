// memlith disktest: finds disks that say "durable" and lose it.
//
// `write` writes rounds of blocks and tells a witness of each round that the disk called durable, until the power is
// cut. `check` compares what the disk has afterwards with what the witness knows. The plan needs nothing from the disk:
// each round is a function of its number. A round begins only when the one before is durable, so a sector of round N
// on the disk proves that the disk had promised all rounds before N, told or not.
//
// The protocol is that of S. Park, T. Kelly and K. Shen, "Failure-Atomic msync()" (EuroSys 2013), section 4.1, who cut
// the power of six disks and found three that lose flushed data.
#include "disktest.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <random>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "disktest_witness.hpp"

namespace memlith::tool {

namespace {

using namespace disktest;

constexpr const char* kFileName = "memlith-disktest.data";
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kChunkBlocks = kMiB / kBlockBytes;  // written or read at a time where order does not matter
constexpr std::uint64_t kShownMax = 10;                     // losses that are named one by one
constexpr std::uint64_t kProgressSeconds = 10;

struct WriteArguments {
  std::string folder;
  std::string tell;
  std::uint64_t size_mib = 64;
  std::uint64_t rounds = 0;  // 0: until the power goes
  Format format = Format::text;
};

struct CheckArguments {
  std::string folder;
  std::string told;
  Format format = Format::text;
};

struct ListenArguments {
  std::uint16_t port = 0;
  std::string file;
  Format format = Format::text;
};

struct Freer {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Chunk = std::unique_ptr<std::byte, Freer>;  // aligned for direct I/O

Chunk make_chunk() {
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kMiB));
  if (memory == nullptr) throw std::bad_alloc();
  return Chunk(memory);
}

// ---- write -----------------------------------------------------------------------------------------------------

class Writer {
 public:
  Writer(const Plan& plan, std::string path) : plan_(plan), path_(std::move(path)), chunk_(make_chunk()) {}

  MaybeFailure open() {
    buffered_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!buffered_.ok()) return errno_failure(errno, fmt::format("open {}", printable(path_)));
    direct_ = Descriptor(::open(path_.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    if (direct_.ok()) return {};
    return tool_failure(MEMLITH_UNSUPPORTED, fmt::format("{} is on a file system without direct I/O", printable(path_)),
                        "Test a folder on the disk itself: ext4, XFS or Btrfs.");
  }

  // Round 0: every block, and the file with its length, name and folder.
  MaybeFailure fill(const std::string& folder) {
    for (std::uint64_t first = 0; first < plan_.blocks && !interrupted(); first += kChunkBlocks) {
      const std::uint64_t count = std::min(kChunkBlocks, plan_.blocks - first);
      for (std::uint64_t i = 0; i < count; ++i) fill_block(plan_, 0, first + i, chunk_.get() + i * kBlockBytes);
      if (MaybeFailure failure = put(buffered_, first, count * kBlockBytes, 0)) return failure;
    }
    const Descriptor above(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool durable = ::ftruncate(buffered_.get(), static_cast<off_t>(plan_.blocks * kBlockBytes)) == 0 &&
                         ::fsync(buffered_.get()) == 0 && above.ok() && ::fsync(above.get()) == 0;
    return durable ? MaybeFailure() : errno_failure(errno, fmt::format("make {} durable", printable(path_)));
  }

  // Returns when the disk has said that the round is durable.
  MaybeFailure write(std::uint64_t round) {
    const Way way = way_of(round);
    for (const std::uint64_t block : blocks_of(plan_, round)) {
      fill_block(plan_, round, block, chunk_.get());
      const int flags = way == Way::forced ? RWF_DSYNC : 0;
      if (MaybeFailure failure = put(way == Way::flush ? buffered_ : direct_, block, kBlockBytes, flags)) {
        return failure;
      }
    }
    if (way == Way::forced || ::fdatasync(buffered_.get()) == 0) return {};
    return errno_failure(errno, fmt::format("flush {}", printable(path_)));
  }

 private:
  MaybeFailure put(const Descriptor& file, std::uint64_t block, std::uint64_t bytes, int flags) {
    const iovec piece{chunk_.get(), bytes};
    const ssize_t done = ::pwritev2(file.get(), &piece, 1, static_cast<off_t>(block * kBlockBytes), flags);
    if (done == static_cast<ssize_t>(bytes)) return {};
    return errno_failure(done < 0 ? errno : ENOSPC, fmt::format("write to {}", printable(path_)));
  }

  Plan plan_;
  std::string path_;
  Descriptor buffered_;
  Descriptor direct_;
  Chunk chunk_;
};

MaybeFailure run_write(const WriteArguments& arguments) {
  catch_interrupts();
  std::random_device chance;
  const Plan plan{(std::uint64_t{chance()} << 32) | chance(), arguments.size_mib * kMiB / kBlockBytes};
  Result<Witness> witness = Witness::reach(arguments.tell, arguments.folder, plan);
  if (!witness.ok()) return std::move(witness.failure());
  Writer writer(plan, arguments.folder + "/" + kFileName);
  if (MaybeFailure failure = writer.open()) return failure;
  if (MaybeFailure failure = writer.fill(arguments.folder)) return failure;
  std::uint64_t told = 0;
  const auto show = [&] {
    if (arguments.format == Format::json) {
      write_json({{"run", fmt::format("{:016x}", plan.run)}, {"blocks", plan.blocks}, {"told", told}});
    } else {
      write_line(fmt::format("{} rounds durable, says the disk", told));
    }
  };
  if (interrupted()) return interrupted_failure();
  if (MaybeFailure failure = witness->tell(0)) return failure;
  show();
  for (std::uint64_t shown = now_ns(); !interrupted() && (arguments.rounds == 0 || told < arguments.rounds);) {
    if (MaybeFailure failure = writer.write(told + 1)) return failure;
    if (MaybeFailure failure = witness->tell(told + 1)) return failure;
    ++told;
    if (now_ns() - shown < kProgressSeconds * kNsPerSecond) continue;
    shown = now_ns();
    show();
  }
  show();
  return {};
}

// ---- check -----------------------------------------------------------------------------------------------------

struct Loss {
  std::uint64_t block = 0;
  std::uint64_t round = 0;  // that the disk should have
  bool told = false;        // to the witness; else a later round on the disk proves it
};

struct Verdict {
  std::uint64_t told = 0;    // the newest round that the witness knows
  std::uint64_t newest = 0;  // on the disk
  std::vector<Loss> losses;  // a block each
  std::array<std::uint64_t, kWays.size()> lost_by{};
  std::uint64_t torn_blocks = 0;  // of the round in flight, which may be
  std::uint64_t piece_bytes = 0;  // the largest unit that every torn block consists of; 0: none was torn
  std::uint64_t damaged = 0;      // sectors
  std::uint64_t misplaced = 0;
  [[nodiscard]] bool honest() const { return losses.empty() && damaged == 0 && misplaced == 0; }
};

Result<std::vector<Sector>> read_sectors(const Plan& plan, const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok() && errno != ENOENT) return errno_failure(errno, fmt::format("open {}", printable(path)));
  std::vector<Sector> sectors(plan.blocks * kSectors);  // a missing file and a short one: never written
  if (!file.ok()) return sectors;
  const Chunk chunk = make_chunk();
  std::uint64_t at = 0;
  while (at < plan.blocks * kBlockBytes) {
    const ssize_t got = ::pread(file.get(), chunk.get(), kMiB, static_cast<off_t>(at));
    if (got < 0) return errno_failure(errno, fmt::format("read {} at {}", printable(path), at));
    const std::uint64_t whole = static_cast<std::uint64_t>(got) / kSectorBytes * kSectorBytes;
    for (std::uint64_t i = 0; i < whole / kSectorBytes && at / kSectorBytes + i < sectors.size(); ++i) {
      sectors[at / kSectorBytes + i] = look_at(plan, at / kSectorBytes + i, chunk.get() + i * kSectorBytes);
    }
    if (whole == 0) break;
    at += whole;
  }
  return sectors;
}

// Compares one block with the round that it must have, `due`, and with the round in flight, if that writes it.
class BlockCheck {
 public:
  BlockCheck(Verdict& verdict, const Sector* sectors) : verdict_(verdict), sectors_(sectors) {}

  // Returns true if the block lacks its round.
  bool lacks(std::uint64_t due, bool in_flight, std::uint64_t flying) {
    bool lost = false;
    std::uint64_t changes = 0;  // gcd of the places at which one round follows another
    bool mixed_rounds = false;
    for (std::uint64_t i = 0; i < kSectors; ++i) {
      const Sector& each = sectors_[i];
      if (each.found == Found::misplaced) ++verdict_.misplaced;
      if (each.found == Found::damaged) ++verdict_.damaged;
      const bool fine = each.found == Found::whole && (each.round == due || (in_flight && each.round == flying));
      lost = lost || each.found == Found::foreign || (each.found == Found::whole && !fine);
      if (i == 0 || sectors_[i - 1].round == each.round) continue;
      mixed_rounds = true;
      changes = std::gcd(changes, i * kSectorBytes);
    }
    if (in_flight && mixed_rounds && !lost) {
      ++verdict_.torn_blocks;
      verdict_.piece_bytes = std::gcd(verdict_.piece_bytes, changes);
    }
    return lost;
  }

 private:
  Verdict& verdict_;
  const Sector* sectors_;
};

Verdict judge(const Testimony& testimony, const std::vector<Sector>& sectors) {
  const Plan& plan = testimony.plan;
  Verdict verdict;
  verdict.told = testimony.round;
  for (const Sector& each : sectors) {
    if (each.found == Found::whole) verdict.newest = std::max(verdict.newest, each.round);
  }
  // Every round up to this one was promised.
  const std::uint64_t promised = std::max(verdict.told, verdict.newest - std::min<std::uint64_t>(verdict.newest, 1));
  std::vector<std::uint64_t> due(plan.blocks);
  for (std::uint64_t round = 1; round <= promised; ++round) {
    for (const std::uint64_t block : blocks_of(plan, round)) due[block] = round;
  }
  std::vector<bool> flying(plan.blocks);
  for (const std::uint64_t block : blocks_of(plan, promised + 1)) flying[block] = true;
  for (std::uint64_t block = 0; block < plan.blocks; ++block) {
    BlockCheck check(verdict, &sectors[block * kSectors]);
    if (!check.lacks(due[block], flying[block], promised + 1)) continue;
    verdict.losses.push_back({block, due[block], due[block] <= verdict.told});
    ++verdict.lost_by[static_cast<std::size_t>(way_of(due[block]))];
  }
  return verdict;
}

void show_text(const Verdict& verdict) {
  const auto told = static_cast<std::uint64_t>(std::count_if(verdict.losses.begin(), verdict.losses.end(),
                                                             [](const Loss& each) { return each.told; }));
  write_line(fmt::format("rounds told to the witness: {}; newest on the disk: {}", verdict.told, verdict.newest));
  for (std::size_t i = 0; i < std::min<std::size_t>(verdict.losses.size(), kShownMax); ++i) {
    const Loss& each = verdict.losses[i];
    write_line(fmt::format("block {} lacks round {} ({}): {}", each.block, each.round, name_of(way_of(each.round)),
                           each.told ? "told to the witness" : "a later round is there"));
  }
  if (verdict.losses.size() > kShownMax) write_line(fmt::format("... {} more", verdict.losses.size() - kShownMax));
  if (verdict.torn_blocks > 0) {
    write_line(fmt::format("blocks of the round in flight that were torn: {}, into pieces of {} bytes (a disk may)",
                           verdict.torn_blocks, verdict.piece_bytes));
  }
  if (verdict.honest()) return write_line("nothing that the disk called durable is lost");
  write_line(fmt::
                 format("LOST: {} blocks that were told to the witness; {} that a later round proves (written out of "
                        "order); {} damaged and {} misplaced sectors",
                        told, verdict.losses.size() - told, verdict.damaged, verdict.misplaced));
  for (const Way way : kWays) {
    write_line(fmt::format("  by {}: {} blocks", name_of(way), verdict.lost_by[static_cast<std::size_t>(way)]));
  }
}

void show_json(const Verdict& verdict) {
  Json lost = Json::object();
  for (const Way way : kWays) lost[field_of(way)] = verdict.lost_by[static_cast<std::size_t>(way)];
  const auto told = std::count_if(verdict.losses.begin(), verdict.losses.end(), [](const Loss& l) { return l.told; });
  write_json({{"honest", verdict.honest()},
              {"told", verdict.told},
              {"newest", verdict.newest},
              {"lost_told", told},
              {"lost_out_of_order", static_cast<std::int64_t>(verdict.losses.size()) - told},
              {"lost_by", lost},
              {"torn_blocks", verdict.torn_blocks},
              {"torn_piece_bytes", verdict.piece_bytes},
              {"damaged_sectors", verdict.damaged},
              {"misplaced_sectors", verdict.misplaced}});
}

MaybeFailure run_check(const CheckArguments& arguments) {
  Result<Testimony> testimony = read_testimony(arguments.told);
  if (!testimony.ok()) return std::move(testimony.failure());
  if (!testimony->any) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} has no round: the power went too early", arguments.told),
                        "Run `memlith disktest write` again, and cut the power once it prints its first line.");
  }
  struct stat folder{};
  if (::stat(arguments.folder.c_str(), &folder) != 0) {
    return errno_failure(errno, fmt::format("look at {}", printable(arguments.folder)));
  }
  Result<std::vector<Sector>> sectors = read_sectors(testimony->plan, arguments.folder + "/" + kFileName);
  if (!sectors.ok()) return std::move(sectors.failure());
  const Verdict verdict = judge(*testimony, *sectors);
  arguments.format == Format::json ? show_json(verdict) : show_text(verdict);
  if (verdict.honest()) return {};
  Failure failure = tool_failure(MEMLITH_CORRUPT, "the disk lost what it had called durable",
                                 "Nothing can be made durable on this disk. Switch its write cache off (hdparm -W 0, "
                                 "nvme set-feature -f 6 -v 0) and test again, or take another disk.");
  failure.exit_code = kExitDamaged;
  return failure;
}

// ---- listen ----------------------------------------------------------------------------------------------------

MaybeFailure run_listen(const ListenArguments& arguments) {
  catch_interrupts();
  const bool json = arguments.format == Format::json;
  const auto bound = [json](std::uint16_t port) {
    json ? write_json({{"port", port}}) : write_line(fmt::format("listening at port {}", port));
  };
  Result<std::uint64_t> lines = listen_to_writer({arguments.port, arguments.file, bound});
  if (!lines.ok()) return std::move(lines.failure());
  const std::uint64_t told = *lines - std::min<std::uint64_t>(*lines, 2);  // the first line, and round 0
  if (json) {
    write_json({{"file", arguments.file}, {"told", told}});
  } else {
    write_line(fmt::format("{}: the writer is gone after {} rounds", printable(arguments.file), told));
  }
  return {};
}

}  // namespace

void add_disktest_commands(CLI::App& app, CommandLine& line) {
  CLI::App* disktest = app.add_subcommand(
      "disktest", "Find out if a disk keeps, when its power is cut, what it said was durable (docs: Test a disk)");
  disktest->require_subcommand(1);

  const auto writing = std::make_shared<WriteArguments>();
  CLI::App* write = disktest->add_subcommand(
      "write", "Write and flush in a folder on the disk, and tell a witness what is durable, until the power is cut");
  write->add_option("DIR", writing->folder, "A folder on the disk that is tested")->required();
  write
      ->add_option("--tell", writing->tell,
                   "The witness: HOST:PORT, where `disktest listen` runs, or a new file on another disk")
      ->required();
  add_number(write, "--size", writing->size_mib, 1, 1 << 20, "MiB that are written to");
  add_number(write, "--rounds", writing->rounds, 0, std::uint64_t{1} << 40, "End after so many rounds; 0: never");
  add_command(write, line, writing, run_write);

  const auto checking = std::make_shared<CheckArguments>();
  CLI::App* check = disktest->add_subcommand("check",
                                             "Compare the disk with what the witness knows. Exit codes: 0, nothing is "
                                             "lost; 1, not examined; 2, lost");
  check->add_option("DIR", checking->folder, "The folder that `disktest write` was given")->required();
  check->add_option("--told", checking->told, "The witness's file")->required();
  add_command(check, line, checking, run_check);

  const auto listening = std::make_shared<ListenArguments>();
  CLI::App* listen =
      disktest
          ->add_subcommand("listen",
                           "Be the witness, on a machine whose power stays on: keep what one `disktest write` tells");
  listen->add_option("PORT", listening->port, "0: any free one, which is printed")->required();
  listen->add_option("FILE", listening->file, "A new file")->required();
  add_command(listen, line, listening, run_listen);
}

}  // namespace memlith::tool
