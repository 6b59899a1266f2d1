// power-workload: commits to a store with several regions and to a one-file store, or to a store on a device with
// regions, a kv store and an application log, until it is killed, and says on a descriptor, in one line each, what it
// does (tests/power/rig/oracle.py reads them):
//   P s n   on opening, stream s was found to hold exactly the state after commit n
//   S s n   commit n of s has begun: nothing of it was stored before
//   A s n   commit n was acknowledged, and with it those before it that were not waited for
//   F n     opening replayed n frames
//   X text  the state found is none that a crash may leave; the program ends
//   E text  something failed that may fail; the program ends
//   D       the program has done what it was asked to
// Streams: a (two regions, grows), b (one region, always explicit), f (the file) or, on a device, k (a kv store) and l
// (an application log), and c, which creates and removes regions. What stream c has done is told by which regions there
// are, so its numbers are modulo 4.
// Commits are synchronous or asynchronous, of the process or of the thread; and there are stores that no commit may
// bring to the disk: some that are rolled back, and some of a thread beside a persist of another's own.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "memlith/memlith.hpp"
#include "power/record_streams.hpp"
#include "power/report.hpp"
#include "power/stream.hpp"
#include "private/options.h"

namespace memlith::power {
namespace {

constexpr std::uint64_t kTemporaryBytes = 64 * 1024;
constexpr const char* kTemporary[] = {"t0", "t1"};

struct Options {
  std::string folder;
  std::uint64_t seed = 1;
  std::uint64_t life = 0;  // which run on this folder it is: the same data is stored in other ways
  std::uint64_t rounds = 0;
  std::uint64_t commits_max = 120;
  std::uint64_t die_ms = 0;
  int report = 1;
  bool check_only = false;
  bool dax = false;
  bool device = false;  // `folder` is that of a device, which holds the one store
  bool format = false;
  std::uint64_t puts = 0;
};

// ---- streams -------------------------------------------------------------------------------------------------------

StreamPlan plan_a() { return {'a', {{"a0", 1024, 512, 6, 0}, {"a1", 480, 0, 0, 0}}, 60, 500}; }
StreamPlan plan_b() { return {'b', {{"b0", 512, 128, 10, 0}}, 45, 300}; }
StreamPlan plan_f() { return {'f', {{"file", 1000, 300, 5, 77}}, 50, 400}; }

// A stream whose regions are open.
class LiveStream {
 public:
  LiveStream(StreamPlan plan, std::uint64_t seed, std::uint64_t life)
      : stream_(std::move(plan), seed),
        random_(core::Random(seed + life).next() ^ static_cast<std::uint64_t>(stream_.plan().letter)) {}

  // Opens the regions and compares them. `known` is what this process knows they hold, or nothing.
  void open(const Store& store, Tracker tracker, std::optional<std::uint64_t> known, Report& report) {
    regions_.clear();
    // Which the others are is up to the library.
    knows_threads_ = tracker == Tracker::fault || tracker == Tracker::touched;
    std::vector<std::span<const std::byte>> bytes;
    for (std::size_t i = 0; i < stream_.plan().regions.size(); ++i) {
      const std::string name = stream_.plan().regions[i].name;
      RegionOptions options;
      options.create = true;
      options.size = stream_.size_after(i, 0);
      options.tracker = tracker;
      regions_.push_back(must(report, "region " + name, store.region(name, options)));
      bytes.emplace_back(static_cast<const std::byte*>(regions_[i].address()), regions_[i].size());
    }
    commit_ = Stream::commit_in(bytes.front());
    if (commit_ > kCommitMax) report.violation(name() + "the first cell names no commit: " + std::to_string(commit_));
    if (known && commit_ != *known) {
      report.violation(name() + "closed with commit " + std::to_string(*known) + ", opened with " +
                       std::to_string(commit_));
    }
    if (const auto difference = stream_.check(bytes, commit_)) report.violation(name() + *difference);
    if (!known) report.line('P', stream_.plan().letter, commit_);
    acknowledged_ = commit_;
  }

  // One commit, or a few, in one of the ways there are.
  void commit_some(const Store& store, Report& report) {
    const std::uint64_t what = random_.below(24);
    if (what < 3) commit_weakly(store, report);
    if (what == 3) roll_back(report);  // rarely: where home has to be read, it waits for a checkpoint
    if (what == 4) commit_of_this_thread(report);
    commit_once(MEMLITH_SCOPE_PROCESS, report);
  }

  // The store was closed in good order, and waited for all.
  void closed(Report& report) {
    if (acknowledged_ < commit_) acknowledge(commit_, report);
  }

  void close() { regions_.clear(); }
  [[nodiscard]] std::uint64_t commit() const { return commit_; }

 private:
  // A cell with content that must never be found.
  struct Litter {
    std::byte* cell;
    std::array<std::byte, kCellBytes> before;
  };

  [[nodiscard]] std::string name() const { return std::string("stream ") + stream_.plan().letter + ": "; }

  void acknowledge(std::uint64_t commit, Report& report) {
    report.line('A', stream_.plan().letter, commit);
    acknowledged_ = commit;
  }

  // Stores what the next commit is.
  void store_next(Report& report) {
    const std::uint64_t next = commit_ + 1;
    report.line('S', stream_.plan().letter, next);
    handles_.clear();
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const std::uint64_t size = stream_.size_after(i, next);
      if (size > regions_[i].size()) must(report, name() + "grow", regions_[i].grow(size));
      handles_.push_back(regions_[i].handle());
    }
    for (const Change& change : stream_.changes(next)) {
      const Region& region = regions_[change.region];
      auto* const cell = static_cast<std::byte*>(region.address()) + change.cell * kCellBytes;
      stream_.fill(Cell(cell, kCellBytes), change, next);
      must(report, name() + "touch", region.touch(cell, kCellBytes));
    }
  }

  void persist(std::uint32_t scope, Report& report) {
    const std::int32_t code = memlith_persist(handles_.data(), handles_.size(), scope);
    if (code != MEMLITH_OK) report_failure(report, name() + "persist", Error(code));
    acknowledge(++commit_, report);
  }

  void commit_once(std::uint32_t scope, Report& report) {
    store_next(report);
    persist(scope, report);
  }

  // Some that are only captured; then, or not, a wait for one of them. A crash may leave any number of those behind it.
  void commit_weakly(const Store& store, Report& report) {
    const std::uint64_t first = commit_ + 1;
    std::vector<std::uint64_t> tickets(1 + random_.below(5));
    for (std::uint64_t& ticket : tickets) {
      store_next(report);
      const std::int32_t code = memlith_persist_async(handles_.data(), handles_.size(), MEMLITH_SCOPE_PROCESS, &ticket);
      if (code != MEMLITH_OK) report_failure(report, name() + "persist asynchronously", Error(code));
      ++commit_;
    }
    if (random_.one_in(2)) return;
    const std::uint64_t waited = random_.below(tickets.size());
    if (const std::int32_t code = memlith_wait(store.handle(), tickets[waited]); code != MEMLITH_OK) {
      report_failure(report, name() + "wait", Error(code));
    }
    acknowledge(first + waited, report);
  }

  [[nodiscard]] Litter litter(std::size_t region, std::uint64_t cell, Report& report) {
    Litter result{static_cast<std::byte*>(regions_[region].address()) + cell * kCellBytes, {}};
    std::memcpy(result.before.data(), result.cell, kCellBytes);
    std::memset(result.cell, 0xee, kCellBytes);
    must(report, name() + "touch", regions_[region].touch(result.cell, kCellBytes));
    return result;
  }

  void undo(const std::vector<Litter>& all, Report& report) {
    const std::int32_t code = memlith_rollback(handles_.data(), handles_.size(), MEMLITH_SCOPE_PROCESS);
    if (code != MEMLITH_OK) report_failure(report, name() + "roll back", Error(code));
    for (const Litter& each : all) {
      if (std::memcmp(each.cell, each.before.data(), kCellBytes) == 0) continue;
      report.violation(name() + "after a rollback the memory is not what was persisted last");
    }
  }

  void roll_back(Report& report) {
    handles_.clear();
    for (const Region& region : regions_) handles_.push_back(region.handle());
    std::vector<Litter> all;
    std::vector<std::pair<std::size_t, std::uint64_t>> places;
    for (std::uint64_t left = 1 + random_.below(6); left > 0; --left) {
      const std::size_t region = random_.below(regions_.size());
      const std::uint64_t cell = random_.below(regions_[region].size() / kCellBytes);
      // The content from before is kept once.
      if (std::find(places.begin(), places.end(), std::pair(region, cell)) != places.end()) continue;
      places.emplace_back(region, cell);
      all.push_back(litter(region, cell, report));
    }
    undo(all, report);
  }

  // Another thread has stored to a page of its own; the persist of this thread's stores leaves that out.
  void commit_of_this_thread(Report& report) {
    if (!knows_threads_) return;
    store_next(report);
    constexpr std::uint64_t kCellsAPage = 4096 / kCellBytes;
    const std::vector<Change> changes = stream_.changes(commit_ + 1);
    const std::size_t region = random_.below(regions_.size());
    const std::uint64_t cell = random_.below(regions_[region].size() / kCellBytes);
    const bool own_page = std::none_of(changes.begin(), changes.end(), [&](const Change& change) {
      return change.region == region && change.cell / kCellsAPage == cell / kCellsAPage;
    });
    std::vector<Litter> all;
    if (own_page) std::thread([&] { all.push_back(litter(region, cell, report)); }).join();
    persist(MEMLITH_SCOPE_THREAD, report);
    undo(all, report);
  }

  Stream stream_;
  core::Random random_;
  std::vector<Region> regions_;
  std::vector<memlith_region*> handles_;
  bool knows_threads_ = false;
  std::uint64_t commit_ = 0;        // the last that was captured
  std::uint64_t acknowledged_ = 0;  // the last that is known to be durable
};

// Stream c: t0 is created, t1 is created, t0 is removed, t1 is removed, and so on.
class Creations {
 public:
  // Finds out how far they had come; `known` as for LiveStream.
  void open(const Store& store, std::optional<std::uint64_t> known, Report& report) {
    bool there[2] = {};
    for (const memlith_region_info& info : store.regions()) {
      for (int i = 0; i < 2; ++i) there[i] = there[i] || std::strcmp(info.name, kTemporary[i]) == 0;
    }
    constexpr std::uint64_t kDone[2][2] = {{0, 3}, {1, 2}};
    done_ = kDone[there[0]][there[1]];
    for (int i = 0; i < 2; ++i) {
      if (there[i]) check_zeros(store, kTemporary[i], report);
    }
    if (known && *known % 4 != done_) report.violation("stream c: regions came or went while the store was closed");
    if (known) done_ = *known;
    if (!known) report.line('P', 'c', done_);
  }

  void step(const Store& store, Report& report) {
    const std::uint64_t next = done_ + 1;
    const std::string name = kTemporary[done_ % 2];
    report.line('S', 'c', next);
    if (done_ % 4 < 2) {
      RegionOptions options;
      options.create = options.exclusive = true;
      options.size = kTemporaryBytes;
      Region region = must(report, "create " + name, store.region(name, options));
      must(report, "close " + name, region.close());
    } else {
      must(report, "remove " + name, store.remove(name));
    }
    report.line('A', 'c', next);
    done_ = next;
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }

 private:
  static void check_zeros(const Store& store, const std::string& name, Report& report) {
    Region region = must(report, "region " + name, store.region(name));
    const std::string_view bytes(static_cast<const char*>(region.address()), region.size());
    if (bytes.size() != kTemporaryBytes || bytes.find_first_not_of('\0') != std::string_view::npos) {
      report.violation("region " + name + ": expected " + std::to_string(kTemporaryBytes) + " zeros");
    }
  }

  std::uint64_t done_ = 0;
};

// ---- a life --------------------------------------------------------------------------------------------------------

class Life {
 public:
  Life(const Options& options, Report& report)
      : options_(options),
        report_(report),
        random_(core::Random(options.seed).next() ^ core::Random(options.life + 1).next()),
        a_(plan_a(), options.seed, options.life),
        b_(plan_b(), options.seed, options.life),
        f_(plan_f(), options.seed, options.life),
        k_(options.seed, options.life),
        l_(options.seed, options.life) {}

  void run() {
    for (std::uint64_t round = 0; options_.rounds == 0 || round < options_.rounds; ++round) {
      open_all(round == 0);
      if (!options_.check_only) work();
      close_all();
      if (options_.check_only) break;
    }
    report_.done();
  }

 private:
  StoreOptions store_options(bool file) {
    // The log's size is the store's for good, so it follows from the seed alone. Small: it comes round often.
    constexpr std::uint64_t kLogBytes[] = {256 << 10, 1 << 20, 4 << 20};
    StoreOptions options;
    options.create = true;  // a cut may have struck before there was a store
    options.log_bytes = kLogBytes[core::Random(options_.seed + (file ? 1 : 0)).below(3)];
    options.log_max_bytes = 16 << 20;
    options.manual_checkpoint = random_.one_in(3);
    if (random_.one_in(3)) options.window_ms = 1 + random_.below(20);
    // In all the ways of reading and writing; one life recovers what another wrote.
    constexpr Io kIo[] = {Io::automatic, Io::posix, static_cast<Io>(MEMLITH_IO_URING)};
    options.io = options_.dax ? Io::dax : kIo[random_.below(3)];
    return options;
  }
  template <class Open>
  Store open_store(const char* what, StoreOptions options, Open open) {
    Result<Store> store = open(options);
    if (!options_.dax && !store.ok() &&
        store.error().category() == MEMLITH_UNSUPPORTED) {  // a sandbox without io_uring
      options.io = Io::automatic;
      store = open(options);
    }
    return must(report_, what, std::move(store));
  }
  Tracker tracker() {
    constexpr Tracker kAll[] = {Tracker::automatic, Tracker::fault, Tracker::touched};
    return kAll[random_.below(3)];
  }

  void open_all(bool first) {
    const auto known = [&](std::uint64_t commit) { return first ? std::nullopt : std::optional(commit); };
    store_.emplace(open_store("open the store", store_options(false), [this](const StoreOptions& options) {
      return Store::open(options_.device ? options_.folder : options_.folder + "/store", options);
    }));
    creations_.open(*store_, known(creations_.done()), report_);
    a_.open(*store_, tracker(), known(a_.commit()), report_);
    b_.open(*store_, Tracker::touched, known(b_.commit()), report_);
    if (options_.device) {
      k_.open(*store_, known(k_.commit()), report_);
      l_.open(*store_, known(l_.commit()), report_);
      if (first) report_.frames(store_->info().replayed_frames);
      return;
    }
    file_.emplace(open_store("open the file", store_options(true), [this](const StoreOptions& options) {
      return Store::open_file(options_.folder + "/file.bin", options);
    }));
    f_.open(*file_, tracker(), known(f_.commit()), report_);
    if (first) report_.frames(store_->info().replayed_frames + file_->info().replayed_frames);
  }

  void work() {
    const std::uint64_t commits = 1 + random_.below(options_.commits_max);
    std::atomic<int> busy = options_.device ? 4 : 3;
    const auto commit_many = [&](auto& stream, const Store& store) {
      const std::uint64_t end = stream.commit() + commits;
      while (stream.commit() < end) stream.commit_some(store, report_);
      busy.fetch_sub(1);
    };
    std::vector<std::thread> threads;
    const auto start = [&](auto& stream, const Store& store) {
      threads.emplace_back([&] { commit_many(stream, store); });
    };
    start(a_, *store_);
    start(b_, *store_);
    if (options_.device) {
      start(k_, *store_);
      start(l_, *store_);
    } else {
      start(f_, *file_);
    }
    while (busy.load() > 0) {
      const std::uint64_t what = random_.below(8);
      if (what < 2) creations_.step(*store_, report_);
      if (what == 2) must(report_, "checkpoint the store", store_->checkpoint());
      if (what == 3 && file_) must(report_, "checkpoint the file", file_->checkpoint());
      std::this_thread::sleep_for(std::chrono::milliseconds(random_.below(20)));
    }
    for (std::thread& thread : threads) thread.join();
  }

  void close_all() {
    for (LiveStream* stream : {&a_, &b_, &f_}) stream->close();
    if (options_.device) {
      k_.close(report_);
      l_.close(report_);
    }
    must(report_, "close the store", store_->close());
    for (LiveStream* stream : {&a_, &b_}) stream->closed(report_);
    if (options_.device) return;
    must(report_, "close the file", file_->close());
    f_.closed(report_);
  }

  const Options& options_;
  Report& report_;
  core::Random random_;
  std::optional<Store> store_;
  std::optional<Store> file_;
  Creations creations_;
  LiveStream a_;
  LiveStream b_;
  LiveStream f_;  // not on a device
  KvStream k_;    // on a device only, as the next
  LogStream l_;
};

// As many commits as were asked for, each alone, so that what the disk is given can be counted.
void put_only(const Options& options, Report& report) {
  StoreOptions wanted;
  wanted.create = true;
  wanted.log_bytes = 4 << 20;
  wanted.manual_checkpoint = true;
  const std::string path = options.device ? options.folder : options.folder + "/store";
  Store store = must(report, "open the store", Store::open(path, wanted));
  RegionOptions small;
  small.create = true;
  small.size = 4096;
  small.tracker = Tracker::touched;
  Region region = must(report, "region", store.region("r", small));
  auto* const word = static_cast<std::uint64_t*>(region.address());
  for (std::uint64_t i = 0; i < options.puts; ++i) {
    ++*word;
    must(report, "touch", region.touch(word, sizeof *word));
    must(report, "persist", region.persist());
  }
  must(report, "close the region", region.close());
  must(report, "close the store", store.close());
  report.done();
}

}  // namespace
}  // namespace memlith::power

int main(int count, char** arguments) {
  memlith::power::Options options;
  CLI::App app("Commits to memlith stores in FOLDER until it is killed, and says what it does");
  app.add_option("folder", options.folder)->required()->check(CLI::ExistingPath);
  app.add_flag("--device", options.device, "FOLDER is a device, on which the store is");
  app.add_flag("--format", options.format, "format the device first");
  app.add_option("--puts", options.puts, "only so many commits, one after the other, then end");
  app.add_option("--seed", options.seed, "of what is stored");
  app.add_option("--life", options.life, "of how it is stored");
  app.add_option("--rounds", options.rounds, "close and reopen so often, then end; 0 = for ever");
  app.add_option("--commits", options.commits_max, "of each stream between opening and closing, at most")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--die-ms", options.die_ms, "kill itself with SIGKILL after so long; 0 = never");
  app.add_option("--report-fd", options.report, "where reports go");
  app.add_flag("--dax", options.dax, "use byte-addressable memory, or end");
  app.add_flag("--check", options.check_only, "open, compare, say what was found, close");
  CLI11_PARSE(app, count, arguments);
  ::signal(SIGPIPE, SIG_IGN);
  memlith::power::Report report(options.report);
  if (options.format) {
    const std::int32_t code = memlith_device_format(options.folder.c_str(), MEMLITH_FORMAT_FORCE);
    if (code != MEMLITH_OK) memlith::power::report_failure(report, "format the device", memlith::Error(code));
  }
  // Behind the formatting, which this life alone does. The power may go in it.
  if (options.die_ms > 0) {
    std::thread([after = std::chrono::milliseconds(options.die_ms)] {
      std::this_thread::sleep_for(after);
      ::kill(::getpid(), SIGKILL);
    }).detach();
  }
  if (options.puts > 0) {
    memlith::power::put_only(options, report);
    return 0;
  }
  memlith::power::Life life(options, report);
  life.run();
  return 0;
}
