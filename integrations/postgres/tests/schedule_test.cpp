// The protocol of the shared pages under the laboratory's scheduler: processes that write and flush pages, and their
// keeper, in every order within a bound of preemptions, with the death of one of them at each step.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/exploration.hpp"
#include "mutants/mutants.hpp"
#include "postgres/src/keeper_waiting.hpp"
#include "postgres/src/page_log.hpp"
#include "shared_words.hpp"

namespace memlith_postgres::test {
namespace {

using memlith::core::active_mutant;
using memlith::core::Mutant;
using memlith::core::Thread;
using memlith::lab::Explored;
using memlith::lab::Scheduler;

constexpr const char* kPath = "base/5/1";
constexpr std::uint32_t kBlocks = 4;

// A file and the log, as a power cut would leave them: the file as it was flushed, and the batches.
struct Disk {
  std::vector<PageBytes> cached;
  std::vector<PageBytes> flushed;
  std::vector<std::string> batches;
  std::uint64_t given_up = 0;  // batches
};

class DiskLog final : public EntryLog {
 public:
  explicit DiskLog(Disk& disk) : disk_(disk) {}
  [[nodiscard]] bool has_room(std::uint64_t) const override { return true; }
  Result<void> append(std::string_view batch) override {
    shm::step("append a batch");
    disk_.batches.emplace_back(batch);
    return {};
  }
  Result<void> write() override { return {}; }
  Result<std::uint64_t> newest() override { return disk_.given_up + disk_.batches.size(); }
  Result<std::optional<std::string_view>> next() override {
    if (read_ == disk_.batches.size()) return std::optional<std::string_view>();
    return std::optional<std::string_view>(disk_.batches[read_++]);
  }
  Result<void> give_up(std::uint64_t upto) override {
    shm::step("empty the log");
    const auto count = static_cast<std::ptrdiff_t>(upto - disk_.given_up);
    disk_.batches.erase(disk_.batches.begin(), disk_.batches.begin() + count);
    disk_.given_up = upto;
    read_ = 0;
    return {};
  }

 private:
  Disk& disk_;
  std::size_t read_ = 0;
};

class DiskHome final : public HomeFile {
 public:
  explicit DiskHome(Disk& disk) : disk_(disk) {}
  Result<std::uint64_t> blocks() override { return std::uint64_t{disk_.cached.size()}; }
  Result<void> read(std::uint32_t block, std::byte* page) override {
    std::copy(disk_.cached[block].begin(), disk_.cached[block].end(), page);
    return {};
  }
  Result<void> write(std::uint32_t block, const std::byte* page) override {
    shm::step("write a page home");
    disk_.cached[block].assign(page, page + kPageBytes);
    return {};
  }
  Result<void> cut(std::uint32_t) override { return {}; }
  Result<void> flush() override {
    shm::step("flush the file");
    disk_.flushed = disk_.cached;
    return {};
  }

 private:
  Disk& disk_;
};

class DiskHomes final : public Homes {
 public:
  explicit DiskHomes(Disk& disk) : disk_(disk) {}
  Result<std::unique_ptr<HomeFile>> open(const std::string&) override {
    return std::unique_ptr<HomeFile>(std::make_unique<DiskHome>(disk_));
  }
  Result<void> flush_folder_of(const std::string&) override { return {}; }

 private:
  Disk& disk_;
};

class DiskAccess final : public FileAccess {
 public:
  explicit DiskAccess(Disk& disk) : disk_(disk) {}
  std::uint32_t blocks() override { return static_cast<std::uint32_t>(disk_.cached.size()); }
  bool read_cached(std::uint32_t block, std::byte* page) override {
    std::copy(disk_.cached[block].begin(), disk_.cached[block].end(), page);
    return true;
  }
  int write(std::uint32_t block, const std::byte* page) override {
    disk_.cached[block].assign(page, page + kPageBytes);
    return 0;
  }
  int flush() override {
    disk_.flushed = disk_.cached;
    return 0;
  }
  int cut(std::uint32_t) override { return 0; }
  int lengthen(std::uint32_t) override { return 0; }

 private:
  Disk& disk_;
};

// When the log starts over: at the end, after each batch, or by a thread beside the batches; then one process writes,
// and none dies.
enum class Checkpoints { last, each, beside };

class Case {
 public:
  Case(Scheduler& scheduler, Checkpoints checkpoints) : scheduler_(scheduler), checkpoints_(checkpoints) {
    disk_.cached.assign(kBlocks, page_of(0));
    disk_.flushed = disk_.cached;
    keepers_.reserve(8);  // looked at while they become more
    first_ = std::move(*Pages::make("", ""));
    for (auto& each : processes_) each = attach();
    const Pages::Lock lock(*processes_[0]);
    file_ = processes_[0]->add_file(1, 10, kPath, kBlocks);
    first_->file[file_.index].asks = 0;
    first_->file[file_.index].vouched = kBlocks;
  }

  // Each process writes pages of its own twice and flushes them. The first one, or the keeper, may die.
  std::string run() {
    keepers_.emplace_back([this] { keep(); });
    scheduler_.let_others_run();
    std::vector<Thread> threads;
    const bool beside = checkpoints_ == Checkpoints::beside;
    for (std::uint32_t i = 0; i < (beside ? 1 : 2); ++i) {
      threads.emplace_back([this, i, beside] {
        if (i == 0 && !beside) scheduler_.may_die([this] { processes_[0].reset(); });
        write(*processes_[i], i);
      });
    }
    scheduler_.begin_deciding();
    for (Thread& each : threads) each.join();
    KeeperWaiting waiting(*processes_[1], starts());
    if (!waiting.finish()) wrong_ = "the keeper does not end";
    for (std::size_t i = 0; i < keepers_.size(); ++i) keepers_[i].join();
    scheduler_.end_deciding();
    if (!wrong_.empty()) return wrong_;
    if (!disk_.batches.empty()) return "the log is not empty at the end";
    for (const auto& [block, value] : written_) {
      const bool is_whole =
          disk_.flushed[block] == page_of(value.second) || disk_.flushed[block] == page_of(value.first);
      if (!is_whole) return "a page is torn, or old";
      if (flushed_[block / 2] && disk_.flushed[block] != page_of(value.second)) return "a page is not home at the end";
    }
    return "";
  }

 private:
  std::unique_ptr<Pages> attach() {
    auto mapped =
        Pages::Segment::map(memlith::core::Descriptor(::fcntl(first_.descriptor(), F_DUPFD_CLOEXEC, 3)), true);
    return std::make_unique<Pages>(std::move(*mapped));
  }

  KeeperWaiting::Start starts() {
    return [this](int) -> Result<void> {
      keepers_.emplace_back([this] { keep(); });
      return {};
    };
  }

  // As keep() of keeper.cpp.
  void keep() {
    const std::size_t number = keeping_.size();
    keeping_.push_back(attach());
    const bool beside = checkpoints_ == Checkpoints::beside;
    if (number == 0 && !beside) scheduler_.may_die([this] { keeping_[0].reset(); });
    Pages& pages = *keeping_[number];
    SharedMemory& memory = pages.memory();
    if (!pages.begin_keeping()) return;
    DiskLog log(disk_);
    DiskHomes homes(disk_);
    PageLog page_log(log, homes, checkpoints_ == Checkpoints::last ? 1 << 20 : 1);
    if (memory.started.load() != 0) {
      page_log.resume(pages);
    } else {
      (void)page_log.replay();
      memory.started.store(1);
    }
    const auto repeat = [&](const auto& act) {
      while (memory.finish_wanted.load() == 0) {
        const std::uint32_t ticket = pages.ticket();
        const Result<bool> did = act();
        if (!did) wrong_ = did.error().message();
        if (!did) break;
        if (!*did) pages.wait(ticket, 200);
      }
    };
    std::optional<Thread> settler;
    if (beside) settler.emplace([&] { repeat([&] { return page_log.settle(pages); }); });
    repeat([&] {
      Result<bool> did = page_log.step(pages);
      return did && !*did && !beside ? page_log.settle(pages) : std::move(did);
    });
    if (settler) settler->join();
    if (const Result<void> finished = page_log.finish(pages); !finished) wrong_ = finished.error().message();
    memory.finished.store(1);
    pages.announce();
  }

  void write(Pages& pages, std::uint32_t process) {
    KeeperWaiting waiting(pages, starts());
    FileCalls calls(pages, waiting);
    DiskAccess access(disk_);
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t block = 2 * process + i;
      const int value = static_cast<int>(10 * process + i + 1);
      auto& [before, now] = written_[block];
      before = std::exchange(now, value);
      const PageBytes page = page_of(value);
      if (calls.write(file_, access, block, page.data()) != 0) wrong_ = "a write fails";
      PageBytes read(kPageBytes);
      if (!calls.read(file_, block, 0, kPageBytes, read.data())) read = disk_.cached[block];
      if (read != page) wrong_ = "a page that was written is not read";
    }
    if (calls.flush(file_, access) != 0) wrong_ = "a flush fails";
    flushed_[process] = true;
    // A power cut now keeps nothing that was not flushed: the log brings it back.
    const memlith::lab::Unobserved replaying;
    Disk after{disk_.flushed, disk_.flushed, disk_.batches, disk_.given_up};
    DiskLog log(after);
    DiskHomes homes(after);
    if (!PageLog(log, homes, 1).replay().ok()) wrong_ = "the log is damaged";
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (after.cached[2 * process + i] != page_of(written_[2 * process + i].second)) wrong_ = "a flushed page is lost";
    }
  }

  Scheduler& scheduler_;
  const Checkpoints checkpoints_;
  Disk disk_;
  Pages::Segment first_;
  std::unique_ptr<Pages> processes_[2];
  FileRef file_;
  std::vector<std::unique_ptr<Pages>> keeping_;
  std::vector<Thread> keepers_;
  std::map<std::uint32_t, std::pair<int, int>> written_;  // what a block had, and has
  bool flushed_[2]{};
  std::string wrong_;
};

// Drops the sentences that processes write to the log of the server.
class Silence {
 public:
  Silence() { ::dup2(memlith::core::Descriptor(::open("/dev/null", O_WRONLY)).get(), STDERR_FILENO); }
  ~Silence() { ::dup2(before_.get(), STDERR_FILENO); }

 private:
  const memlith::core::Descriptor before_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
};

Explored explore(Checkpoints checkpoints, std::size_t preemptions, std::uint64_t schedules_max) {
  const Silence silence;
  return memlith::lab::explore([=](Scheduler& scheduler) { return Case(scheduler, checkpoints).run(); }, preemptions,
                               schedules_max);
}

TEST(PageSchedules, KeepWhatWasFlushedWhateverDies) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  for (const Checkpoints checkpoints : {Checkpoints::last, Checkpoints::each, Checkpoints::beside}) {
    const Explored explored = explore(checkpoints, 1, 100'000);
    EXPECT_EQ(explored.wrong, "");
    EXPECT_TRUE(explored.complete);
    EXPECT_EQ(explored.deaths > 100, checkpoints != Checkpoints::beside);
    std::printf("schedules: %lu, with a death %lu\n", explored.schedules, explored.deaths);
  }
}

TEST(PageSchedules, ShowMutants) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  const std::pair<Mutant, Checkpoints> cases[] = {{Mutant::staged_left_out, Checkpoints::last},
                                                  {Mutant::durable_before_log, Checkpoints::last},
                                                  {Mutant::reset_before_flush, Checkpoints::each},
                                                  {Mutant::flushed_before_home, Checkpoints::beside}};
  for (const auto& [mutant, checkpoints] : cases) {
    active_mutant = mutant;
    const Explored explored = explore(checkpoints, 1, 100'000);
    active_mutant = Mutant::none;
    EXPECT_NE(explored.wrong, "") << static_cast<int>(mutant);
    std::printf("shown after %lu schedules: %s\n", explored.schedules,
                explored.wrong.substr(0, explored.wrong.find('\n')).c_str());
  }
}

}  // namespace
}  // namespace memlith_postgres::test
