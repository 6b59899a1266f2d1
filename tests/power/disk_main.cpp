// power-disk: serves an image as a disk with a volatile write cache, until its power is cut. The rigs in
// tests/power/rig run it; one line a command on standard input, one JSON object a line on standard output:
//   arm N      the power goes with the N-th write or flush from now on; {"frozen":...} says that it has
//   slow A B   each write and flush takes A to B ms from now on
//   fail N     the next N flushes fail, and do nothing; 0: none does any more
//   failed     {"failed":...}: how many did
//   cut SEED   {"kept":...}: puts on the image what was flushed and of the rest what SEED says, and ends
//   lose       the same, but of the rest nothing is kept
//   finish     puts everything on the image and ends
//   discard    leaves the image as it was when the program started and ends; so does the end of the input
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "power/frontend.hpp"
#include "power/lossy_disk.hpp"

namespace memlith::power {
namespace {

constexpr unsigned long long kSlowMsMax = 60'000;

struct Options {
  std::string image;
  std::string nbd;
  std::string fuse;
  std::vector<std::uint64_t> whole;  // begin, end, begin, end...
  DiskRules rules;
};

// Reads lines without ever blocking behind what poll() has promised.
class Commands {
 public:
  // False at the end of the input.
  bool fill() {
    char bytes[256];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got <= 0) return false;
    text_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  bool next(std::string& line) {
    const std::size_t end = text_.find('\n');
    if (end == std::string::npos) return false;
    line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return true;
  }

 private:
  std::string text_;
};

// True when the program is to end.
bool obey(const std::string& line, PoweredDisk& powered) {
  LossyDisk& disk = powered.disk();
  unsigned long long number = 0;
  if (std::sscanf(line.c_str(), "arm %llu", &number) == 1) {
    powered.arm(number);
    return false;
  }
  unsigned long long most = 0;
  if (std::sscanf(line.c_str(), "slow %llu %llu", &number, &most) == 2 && number <= most && most <= kSlowMsMax) {
    powered.slow_down(std::chrono::milliseconds(number), std::chrono::milliseconds(most));
    return false;
  }
  if (std::sscanf(line.c_str(), "fail %llu", &number) == 1) {
    powered.fail_flushes(number);
    return false;
  }
  if (line == "failed") {
    std::printf("{\"failed\": %" PRIu64 "}\n", powered.failed_flushes());
    return false;
  }
  if (line == "lose" || std::sscanf(line.c_str(), "cut %llu", &number) == 1) {
    const CutResult cut = line == "lose" ? disk.lose() : disk.cut(number);
    std::printf("{\"style\": \"%s\", \"requests\": %" PRIu64 ", \"kept\": %" PRIu64 ", \"dropped\": %" PRIu64
                ", \"writes\": %" PRIu64 ", \"flushes\": %" PRIu64 ", \"forced\": %" PRIu64 "}\n",
                cut.style.c_str(), cut.requests, cut.kept, cut.dropped, disk.writes(), disk.flushes(), disk.forced());
    return true;
  }
  if (line == "finish") disk.finish();
  if (line == "finish" || line == "discard") {
    std::printf("{\"writes\": %" PRIu64 ", \"flushes\": %" PRIu64 "}\n", disk.writes(), disk.flushes());
    return true;
  }
  std::fprintf(stderr, "power-disk: what is \"%s\"?\n", line.c_str());
  return false;
}

void run(PoweredDisk& powered, Frontend& frontend) {
  Commands commands;
  bool told = false;
  for (;;) {
    if (powered.frozen() && !told) {
      std::puts("{\"frozen\": true}");
      told = true;
    }
    // A machine without power takes no requests: they stay where they are until the connection breaks.
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {frontend.descriptor(), POLLIN, 0}};
    if (::poll(waits, powered.frozen() ? 1 : 2, -1) < 0) continue;
    if (waits[0].revents != 0) {
      if (!commands.fill()) return;
      std::string line;
      while (commands.next(line)) {
        if (obey(line, powered)) return;
      }
    }
    if (!powered.frozen() && waits[1].revents != 0 && !frontend.serve()) return;
  }
}

int main_with(const Options& options) {
  const int image = ::open(options.image.c_str(), O_RDWR | O_CLOEXEC);
  const off_t bytes = image < 0 ? -1 : ::lseek(image, 0, SEEK_END);
  if (bytes <= 0) {
    std::perror(("power-disk: " + options.image).c_str());
    return 2;
  }
  LossyDisk disk(image, static_cast<std::uint64_t>(bytes), options.rules);
  PoweredDisk powered(disk);
  const auto frontend =
      options.nbd.empty() ? make_fuse_frontend(powered, options.fuse) : make_nbd_frontend(powered, options.nbd);
  std::puts("{\"ready\": true}");
  run(powered, *frontend);
  return 0;
}

}  // namespace
}  // namespace memlith::power

int main(int count, char** arguments) {
  memlith::power::Options options;
  CLI::App app("A disk that loses what was not flushed");
  app.add_option("--image", options.image, "the medium: a file, as long as the disk")
      ->required()
      ->check(CLI::ExistingFile);
  auto* const served = app.add_option_group("as");
  served->add_option("--nbd", options.nbd, "serve NBD on this Unix socket");
  served->add_option("--fuse", options.fuse, "be the file mounted here");
  served->require_option(1);
  app.add_option("--atom", options.rules.atom_bytes, "bytes kept or lost as one")->check(CLI::IsMember({512, 4096}));
  app.add_option("--torn-prefix", options.rules.torn_prefixes,
                 "writes that begin so are torn at 512 bytes all the same");
  app.add_option("--whole", options.whole, "BEGIN END: 4096-byte blocks of this range are kept or lost as one")
      ->expected(2, 100);
  app.add_flag("--lie", options.rules.lies, "acknowledge flushes without doing them");
  CLI11_PARSE(app, count, arguments);
  for (std::size_t i = 0; i + 1 < options.whole.size(); i += 2) {
    options.rules.whole_blocks.emplace_back(options.whole[i], options.whole[i + 1]);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return memlith::power::main_with(options);
}
